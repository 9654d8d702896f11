"""`ptxmend doctor`: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Literal

import typer

from tasks.errors import PtxmendError

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

    from agent.commands.console import console

    styles = {"ok": "green", "absent": "yellow", "broken": "red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "state", "found", "what to do"):
        table.add_column(column, overflow="fold")
    broken = False
    for check in CHECKS:
        finding = check()
        broken = broken or finding.state == "broken"
        table.add_row(
            finding.what, f"[{styles[finding.state]}]{finding.state}[/]", finding.detail, finding.advice
        )
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


def _gpu() -> Finding:
    try:
        driver = import_module("cuda.bindings.driver")

        status, *_ = driver.cuInit(0)
        if int(status) != 0:
            return Finding(
                "GPU",
                "absent",
                f"the driver answers {status.name}",
                "nothing, unless this machine has an NVIDIA GPU",
            )
        _, count = driver.cuDeviceGetCount()
    except Exception as error:  # cuda.bindings raises its own kinds when libcuda is not there
        detail = f"no driver ({type(error).__name__})"
        return Finding(
            "GPU", "absent", detail, "kernels run on the emulator; timings need an NVIDIA GPU and its driver"
        )
    return Finding(
        "GPU",
        "ok",
        f"{count} seen by the driver",
        "kernels still run on the emulator: this version has no GPU device",
    )


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


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _packages,
    lambda: _tool("ptxas"),
    lambda: _tool("nvdisasm"),
    _emulator,
    _cassette,
    _gpu,
    lambda: _key("OpenAI", "OPENAI_API_KEY"),
    lambda: _key("Anthropic", "ANTHROPIC_API_KEY"),
)
