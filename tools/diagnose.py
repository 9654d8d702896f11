"""From what ptxas printed to diagnostics: parsed, classed, each cause once, the root first.

Contract: `diagnose(log, source)` is a pure function of its arguments. Lines are those of `source` (plus
`offset`); consequences of a cause on the same line are dropped, and messages of one cause are merged into
one diagnostic that names the other lines. Errors come before warnings, warnings before advice. Verbose
statistics are no diagnostics: `read_resources` reads those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tools.causes import Cause, Severity, find_cause
from tools.evaluation import Diagnostic, Resources
from tools.source import Source

_MESSAGE = re.compile(
    r"ptxas\s+(?:\S+, line (?P<line>\d+);\s*)?(?P<severity>error|fatal|warning|info)\s*: (?P<text>.*)"
)
_CODE = re.compile(r"\(C\d+\)\s*")
_LINE_IN_TEXT = re.compile(r"\bon line '?(\d+)|\b(?:around|in) line (\d+)")
_NOISE = re.compile(
    r"Ptx assembly aborted.*|\d+ bytes gmem.*|Compiling entry function "
    r".*|Function properties for .*|Used \d+ .*|Compile time = .*"
    r"|Overriding .*|.*bytes stack frame.*|Registers are spilled to local "
    r"memory in function .*|Local memory used for function .*"
)
SEVERITIES: Mapping[str, Severity] = {
    "error": "error",
    "fatal": "error",
    "warning": "warning",
    "info": "info",
}
"""The assembler's word → ours."""
_ORDER: Mapping[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_SHOWN_LINES = 8
CUT = 1 << 19
"""Characters from which on a log may have been cut off."""
MESSAGES = 2000
"""Messages that are read; a text with more faults has its first ones told."""
DIAGNOSTICS = 50
"""Diagnostics that are given, the most important ones."""


@dataclass(slots=True)
class _Finding:
    severity: Severity
    cause: Cause
    kind: str
    hint: str
    message: str
    line: int | None
    key: tuple[str, ...]


def diagnose(log: str, source: Source, offset: int = 0) -> tuple[Diagnostic, ...]:
    """Diagnostics of an assembler's log, most important first."""
    whole = (
        log[: log.rfind("\n") + 1] if len(log) >= CUT else log
    )  # the last line of a cut log may be half a line
    lines = whole.split("\n")[:MESSAGES]
    findings = [finding for line in lines if (finding := _read(line.rstrip("\r"), source)) is not None]
    groups: dict[tuple[str, tuple[str, ...]], list[_Finding]] = {}
    for finding in _without_consequences(findings):
        groups.setdefault((finding.kind, finding.key), []).append(finding)
    leaders = sorted(
        groups.values(),
        key=lambda group: (min(_ORDER[f.severity] for f in group), min(f.cause.rank for f in group)),
    )
    return tuple(_merge(group, source, offset) for group in leaders[:DIAGNOSTICS])


def _read(text: str, source: Source) -> _Finding | None:
    found = _MESSAGE.fullmatch(text)
    if found is None or _NOISE.fullmatch(found["text"]):
        return None
    message = found["text"].strip()
    line = int(found["line"]) if found["line"] else None
    if line is None and (inner := _LINE_IN_TEXT.search(message)):
        line = int(inner[1] or inner[2])
    cause, match = find_cause(_CODE.sub("", found["text"]))
    severity = SEVERITIES[found["severity"]]
    if cause.severity is not None:
        severity = cause.severity
    refined = cause.refine(match, source, line) if cause.refine is not None else None
    groups = {name: value or "" for name, value in match.groupdict().items()}
    key = tuple(groups[name] for name in (cause.key if cause.key is not None else groups))
    kind, hint = (
        (refined.kind, refined.hint)
        if refined is not None
        else (cause.kind, cause.hint.format_map(_filled(groups, source)))
    )
    return _Finding(severity, cause, kind, hint, message, line, key)


def _filled(groups: dict[str, str], source: Source) -> dict[str, str]:
    numbers = {f"{name}_dec": str(int(value, 16)) for name, value in groups.items() if value.startswith("0x")}
    return {"arch": source.arch, "op": "the instruction", **{k: v for k, v in groups.items() if v}, **numbers}


def _without_consequences(findings: list[_Finding]) -> list[_Finding]:
    explained = {
        (finding.line, kind)
        for finding in findings
        if finding.line is not None
        for kind in finding.cause.explains
    }
    return [
        finding
        for finding in findings
        if (finding.line, finding.kind) not in explained
        and (finding.line, finding.cause.kind) not in explained
    ] or findings


def _merge(group: list[_Finding], source: Source, offset: int) -> Diagnostic:
    group = sorted(
        group, key=lambda finding: (_ORDER[finding.severity], finding.cause.rank, finding.line is None)
    )
    first = group[0]
    lines = list(dict.fromkeys(finding.line for finding in group if finding.line is not None))
    line = first.line if first.line is not None else (lines[0] if lines else None)
    others = [number + offset for number in lines if number != line]
    hint = first.hint
    if others:
        shown = ", ".join(str(number) for number in others[:_SHOWN_LINES])
        hint += (
            f" The same cause is reported on {len(others)} more line(s): "
            f"{shown}{' …' if len(others) > _SHOWN_LINES else ''}."
        )
    return Diagnostic(
        severity=first.severity,
        kind=first.kind,
        message=first.message,
        line=None if line is None else line + offset,
        source=source.line(line) or None,
        hint=hint,
    )


_PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (\S+)")
_COMPILING = re.compile(r"ptxas info\s*: Compiling entry function '([^']+)' for '[^']+'")
_FRAME = re.compile(r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (\d+) registers(?:, used (\d+) barriers)?(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_resources(log: str) -> tuple[Resources, ...]:
    """What the verbose lines say of each entry, in their order."""
    found: dict[str, dict[str, int]] = {}
    entry = function = ""
    for line in log.split("\n"):
        if match := _COMPILING.match(line):
            entry = match[1]
            found.setdefault(entry, {})
        elif match := _PROPERTIES.match(line):
            function = match[1]
        elif (match := _FRAME.match(line)) and function in found:
            stack, stores, loads = (int(match[index]) for index in (1, 2, 3))
            found[function] = {
                **found[function],
                "stack": stack,
                "spill_stores": stores,
                "spill_loads": loads,
            }
        elif (match := _USED.match(line)) and entry:
            shared = _SHARED.search(match[3])
            found[entry] |= {
                "registers": int(match[1]),
                "barriers": int(match[2] or 0),
                "shared": int(shared[1]) if shared else 0,
            }
    return tuple(Resources(entry=name, **values) for name, values in found.items())
