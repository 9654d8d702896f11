"""PTX to cubin, by ptxas in a bounded child, with what it said as records.

Contract
- `assemble` never runs ptxas on a text that would make it eat the machine: size, register ranges and array
  extents are looked at first.
- The assembler sees the candidate whole, so its line numbers are the candidate's; plan lines (`//!`) are
  emptied, not removed.
- What the text causes is a diagnostic: also a timeout, too much memory, a crash. A missing ptxas is
  `ToolMissing`; one that cannot run, or that something outside killed, is `InfraError`; an architecture
  ptxas does not know is `InputError`.
- The answer is a function of (text, arch, flags, ptxas version) and is cached under them; timeouts, crashes
  and the like are not kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import InfraError, InputError
from tools import cache
from tools.accepted import REMARKS, accepted
from tools.causes import find_cause
from tools.child import ChildLimits, ChildResult, run_limited
from tools.diagnose import diagnose, read_resources
from tools.evaluation import Assembly, Diagnostic, Resources, Warning_
from tools.oversize import refuse_oversize
from tools.source import Source
from tools.toolchain import Tool, find_ptxas

FLAGS = ("-v",)
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_COMPILE_TIME = re.compile(r"^ptxas info\s*: Compile time = [^\n]*\n", re.MULTILINE)
"""The one line that differs from run to run."""
_PLAN_LINE = re.compile(r"^//![^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AssembleResult:
    """What assembling gave; `cubin` is None unless `assembly.ok`."""

    assembly: Assembly
    diagnostics: tuple[Diagnostic, ...]
    """Errors first, then warnings, then advice."""
    warnings: tuple[Warning_, ...]
    """The warnings and advice among the diagnostics, for the evaluation; not mere remarks."""
    cubin: bytes | None
    log: str
    """As the assembler printed it (its first part); for a person to read."""


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    log: str
    cubin: bytes | None
    trouble: str = ""
    """Class when the assembler did not end on its own terms."""


def assemble(
    text: str, arch: str, *, first_line: int = 1, tool: Tool | None = None, limits: ChildLimits | None = None
) -> AssembleResult:
    """Assemble `text` for exactly `arch`; `first_line` is the line of the candidate file at which `text`
    begins.
    """
    if not _ARCH.fullmatch(arch):
        raise InputError(f"An architecture such as sm_90a was expected, {arch[:40]!r} was given.")
    tool = tool or find_ptxas()
    limits = limits or ChildLimits()
    started = time.monotonic()
    source = Source(text, arch)
    refusal = refuse_oversize(source)
    if refusal is not None:
        return _result(_Answer(-1, "", None), (_moved(refusal, first_line),), (), arch, tool, started)
    answer = _ask(text, arch, tool, limits)
    resources = read_resources(answer.log)
    ok = answer.code == 0 and answer.cubin is not None and not answer.trouble
    diagnostics = tuple(_moved(item, first_line) for item in explain(answer.log, source, ok=ok))
    if any(item.kind == "unknown_arch" for item in diagnostics):
        raise InputError(
            f"ptxas {tool.version} ({tool.path}) does not know {arch}. Choose another, or a newer ptxas."
        )
    if answer.trouble or (not ok and not any(item.severity == "error" for item in diagnostics)):
        diagnostics = (_trouble(answer, limits), *(item for item in diagnostics if item.severity != "error"))
    return _result(answer, diagnostics, resources, arch, tool, started)


def explain(log: str, source: Source, *, ok: bool) -> tuple[Diagnostic, ...]:
    """Diagnostics of a text from what an assembler of any version printed about it.

    For an accepted one (`ok`) also from our own reading of it (`tools.accepted`).
    """
    said = diagnose(log, source)
    return accepted(source, read_resources(log), said) if ok else said


def _result(
    answer: _Answer,
    diagnostics: tuple[Diagnostic, ...],
    resources: tuple[Resources, ...],
    arch: str,
    tool: Tool,
    started: float,
) -> AssembleResult:
    ok = answer.code == 0 and answer.cubin is not None and not answer.trouble
    cubin = answer.cubin if ok else None
    assembly = Assembly(
        ok=ok,
        arch=arch,
        ptxas=tool.version,
        resources=resources if ok else (),
        seconds=time.monotonic() - started,
        cubin_sha256=hashlib.sha256(cubin).hexdigest() if cubin is not None else None,
    )
    warnings = tuple(
        Warning_(kind=item.kind, message=f"{item.message} {item.hint}".strip(), line=item.line)
        for item in diagnostics
        if item.severity != "error" and item.kind not in REMARKS
    )
    return AssembleResult(assembly, diagnostics, warnings, cubin, answer.log)


def _moved(item: Diagnostic, first_line: int) -> Diagnostic:
    if item.line is None or first_line == 1:
        return item
    return item.model_copy(update={"line": item.line + first_line - 1})


def _ask(text: str, arch: str, tool: Tool, limits: ChildLimits) -> _Answer:
    data = _PLAN_LINE.sub("//", text).encode("utf-8", "surrogatepass")
    key = cache.key_of("ptxas", tool.version, arch, *FLAGS, data)
    kept = _unpack(cache.get(key))
    if kept is not None:
        return kept
    folder = Path(tempfile.mkdtemp(prefix="ptxmend-ptxas-"))
    try:
        (folder / "candidate.ptx").write_bytes(data)
        argv = [str(tool.path), f"-arch={arch}", *FLAGS, "-o", "candidate.cubin", "candidate.ptx"]
        result = run_limited(argv, folder, limits)
        cubin_path = folder / "candidate.cubin"
        cubin = cubin_path.read_bytes() if result.code == 0 and cubin_path.is_file() else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    log = _COMPILE_TIME.sub("", (result.stderr + result.stdout).decode("utf-8", "replace"))
    answer = _Answer(result.code, log, cubin, _trouble_of(result, log, tool))
    if not answer.trouble:
        cache.put(key, _pack(answer))
    return answer


def _trouble_of(result: ChildResult, log: str, tool: Tool) -> str:
    """'' when ptxas ended on its own terms, else the class of what happened; raises `InfraError` when it is
    not the text's doing.
    """
    if result.timed_out:
        return "assembler_timeout"
    said = any(
        find_cause(line.split(": ", 1)[-1])[0].kind == "assembler_memory" for line in log.split("\n")[:50]
    )
    if result.code != 0 and said:
        return "assembler_memory"
    if result.code == -signal.SIGKILL:
        raise InfraError(
            f"Something outside killed {tool.path}; the machine may be out of memory. "
            "Try again with fewer at once."
        )
    if result.code == -signal.SIGXFSZ:
        return "assembler_memory"
    if result.code < 0:
        return "assembler_crash"
    if result.code in (126, 127) and "ptxas" not in log.split(":", 1)[0]:
        raise InfraError(f"{tool.path} could not run here (exit {result.code}): {log[:300]!r}.")
    return ""


_TROUBLES: dict[str, tuple[str, str]] = {
    "assembler_timeout": (
        "ptxas did not finish within {seconds:g} s",
        "Assembling takes too long: the module has too many instructions, live "
        "registers or branches. Use loops instead of unrolled "
        "text, fewer live registers, and direct branches.",
    ),
    "assembler_memory": (
        "ptxas wanted more than {gib:g} GiB of memory, or wrote more than {mib} MiB",
        "Declare fewer registers and smaller arrays, and initialise no large array.",
    ),
    "assembler_crash": (
        "ptxas ended by itself with code {code}",
        "The assembler failed on this text without naming a line. Write the "
        "module more simply, and change the part written last.",
    ),
}


def _trouble(answer: _Answer, limits: ChildLimits) -> Diagnostic:
    kind = answer.trouble or "assembler_crash"
    message, hint = _TROUBLES[kind]
    filled = message.format(
        seconds=limits.seconds,
        gib=limits.memory_bytes / (1 << 30),
        mib=limits.file_bytes >> 20,
        code=answer.code,
    )
    return Diagnostic(severity="error", kind=kind, message=filled, hint=hint)


def _pack(answer: _Answer) -> bytes:
    cubin = base64.b64encode(answer.cubin).decode() if answer.cubin is not None else None
    return json.dumps({"code": answer.code, "log": answer.log, "cubin": cubin}).encode()


def _unpack(payload: bytes | None) -> _Answer | None:
    if payload is None:
        return None
    try:
        kept = json.loads(payload)
        cubin = base64.b64decode(kept["cubin"], validate=True) if kept["cubin"] is not None else None
        return _Answer(int(kept["code"]), str(kept["log"]), cubin)
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None
