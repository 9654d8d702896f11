"""`ptxmend doctor`: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

import typer

from tasks.errors import PtxmendError

LEAST = (8, 0)
"""Capability of the oldest GPUs that ptxmend knows."""
State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. absent: not there, and only needed for more than the basics; broken: ptxmend cannot do its work."""

    what: str
    state: State
    detail: str
    advice: str = ""


def doctor() -> None:
    """Say what works here and what to do about what does not. Exit code 1 when something needed is broken."""
    from rich.table import Table
    from rich.text import Text

    from agent.commands.console import console, plain

    styles = {"ok": "green", "absent": "yellow", "broken": "red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "state", "found", "what to do"):
        table.add_column(column, overflow="fold")
    broken = False
    for check in CHECKS:
        found = check()
        for finding in found if isinstance(found, tuple) else (found,):
            broken = broken or finding.state == "broken"
            state = Text(finding.state, styles[finding.state])
            table.add_row(finding.what, state, plain(finding.detail), plain(finding.advice))
    console.print(table)
    if broken:
        raise typer.Exit(1)


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} processors"
    return Finding("Python", "ok", found)


def _packages() -> Finding:
    names = ("langgraph", "openai", "anthropic", "pydantic", "numpy", "torch")
    try:
        return Finding("packages", "ok", ", ".join(f"{name} {metadata.version(name)}" for name in names))
    except metadata.PackageNotFoundError as error:
        return Finding("packages", "broken", f"{error.name} is missing", "pip install ptxmend again")


def _tool(name: str) -> Finding:
    from tools.toolchain import find_nvdisasm, find_ptxas

    try:
        tool = {"ptxas": find_ptxas, "nvdisasm": find_nvdisasm}[name]()
    except PtxmendError as error:
        return Finding(name, "broken", "not usable", str(error))
    return Finding(name, "ok", f"{tool.version} at {tool.path}")


def _emulator() -> Finding:
    from tasks.registry import load_task
    from tools.ladder import Job, evaluate

    path = load_task("vector_add").solution("sm_90a")
    assert path is not None, "vector_add has a solution"
    try:
        verdict = evaluate(
            Job(task="vector_add", arch="sm_90a", text=path.read_text(), seed=1)
        ).evaluation.verdict
    except PtxmendError as error:
        return Finding("emulator", "broken", "vector_add could not be judged", str(error))
    if verdict.value != "correct":
        return Finding(
            "emulator", "broken", f"our own vector_add is judged {verdict.value}", "please report this"
        )
    return Finding("emulator", "ok", "judges our own vector_add correct")


def _gpus() -> tuple[Finding, ...]:
    """A line for each GPU: what it is, which suites it runs, and how its workers fared."""
    from agent.provenance import driver
    from sandbox.cuda.device import gpus, suiting
    from sandbox.cuda.ledger import health
    from sandbox.cuda.locks import state_folder

    found = gpus()
    version = driver()
    if not found:
        advice = "kernels run on the emulator; timings need an NVIDIA GPU and its driver"
        if version:
            detail = f"driver {version}, but no GPU on which a context could be made"
            return (Finding("GPU", "absent", detail, "look at nvidia-smi and CUDA_VISIBLE_DEVICES"),)
        return (Finding("GPU", "absent", "no driver, or no GPU", advice),)
    try:
        lived = {each.uuid: each for each in health(state_folder())}
    except PtxmendError as error:
        return (Finding("GPU", "broken", "its locks cannot be used", str(error)),)
    suites = _suites()
    findings: list[Finding] = []
    for gpu in found:
        told = lived.get(gpu.uuid)
        state: State = "broken" if told is not None and told.quarantined else "ok"
        advice = ""
        if told is not None and told.quarantined:
            advice = f"quarantined ({told.quarantined}): look at the driver's log (dmesg, nvidia-smi), then start again"
        elif gpu.pageable:
            advice = "kernels can reach ordinary host memory here: judge only kernels that you trust"
        fit = [
            name
            for name, tasks in suites.items()
            if all(
                any(
                    gpu.capability >= LEAST if arch == "any" else gpu.index in suiting(arch) for arch in archs
                )
                for archs in tasks
            )
        ]
        detail = (
            f"{gpu.name}, capability {gpu.capability[0]}.{gpu.capability[1]}, {gpu.memory_bytes / 2**30:.0f} GiB, "
            f"driver {version or '?'} (CUDA {gpu.driver}); suites: {', '.join(fit) or 'none'}"
        )
        if told is not None:
            detail += (
                f"; so far {', '.join(f'{count} {event}' for event, count in sorted(told.counts.items()))}"
            )
        findings.append(Finding(f"GPU {gpu.index}", state, detail, advice))
    return tuple(findings)


def _suites() -> dict[str, list[set[str]]]:
    """Suite → of each task the architectures that it names, or `any`."""
    from tasks.registry import list_tasks, load_task, suites

    return {
        suite: [set(load_task(name).task.targets) or {"any"} for name in list_tasks(suite)]
        for suite in suites()
    }


def _timing() -> Finding:
    """Whether torch reaches a GPU: asked in a child, since a CUDA context is no business of this process."""
    asked = "import torch; print(torch.__version__, torch.version.cuda or 'none', torch.cuda.device_count())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, timeout=120, check=True
        )
        version, cuda, count = done.stdout.split()[-3:]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Finding(
            "baselines", "absent", f"torch cannot say ({type(error).__name__})", "pip install ptxmend again"
        )
    if cuda == "none":
        return Finding(
            "baselines", "absent", f"torch {version} has no CUDA", "for timings install a CUDA build of torch"
        )
    if count == "0":
        advice = "timings need torch to reach the GPU: look at CUDA_VISIBLE_DEVICES, and at the CUDA version that the driver offers"
        return Finding("baselines", "absent", f"torch {version} (CUDA {cuda}) reaches no GPU", advice)
    return Finding("baselines", "ok", f"torch {version} (CUDA {cuda}) reaches {count} GPUs")


def _clocks() -> Finding:
    try:
        found = metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return Finding(
            "clocks",
            "absent",
            "nvidia-ml-py is missing",
            "pip install nvidia-ml-py, to see throttling in timings",
        )
    from agent.provenance import driver

    version = driver()
    told = f"nvidia-ml-py {found}, " + (f"driver {version}" if version else "no driver to ask")
    return Finding("clocks", "ok" if version else "absent", told)


def _optional(tool: str, use: str) -> Finding:
    path = shutil.which(tool)
    if path is None:
        return Finding(tool, "absent", "not on the PATH", f"only for {use}; part of the CUDA toolkit")
    return Finding(tool, "ok", path)


def _key(name: str, variable: str) -> Finding:
    if os.environ.get(variable):
        return Finding(name, "ok", f"{variable} is set")
    return Finding(name, "absent", f"{variable} is not set", f"set it to use {name.split()[0].lower()}:MODEL")


def _cassette() -> Finding:
    from agent.models.cassette import find_cassette, read_cassette

    try:
        cassette = read_cassette(find_cassette("demo"))
    except PtxmendError as error:
        return Finding("recorded:demo", "broken", "not usable", str(error))
    return Finding("recorded:demo", "ok", f"{len(cassette.entries)} answers by {cassette.header.model}")


CHECKS: tuple[Callable[[], Finding | tuple[Finding, ...]], ...] = (
    _python,
    _packages,
    lambda: _tool("ptxas"),
    lambda: _tool("nvdisasm"),
    _emulator,
    _cassette,
    _gpus,
    _timing,
    _clocks,
    lambda: _optional("compute-sanitizer", "a second opinion on faults"),
    lambda: _optional("ncu", "comparing our counts with the profiler's"),
    lambda: _key("OpenAI", "OPENAI_API_KEY"),
    lambda: _key("Anthropic", "ANTHROPIC_API_KEY"),
)
