"""What is refused before the assembler sees it: texts that would cost it gigabytes or minutes, and bytes that
are no text.

Contract: `refuse_oversize` reads the text in linear time and gives the one diagnostic to refuse it with, or
None. The scan is of the text; where it finds something, the parser is asked, when it can parse, so that a
comment or a string never counts.

Measured: `.reg .b32 %q<2000000000>` takes ptxas 15 GB and half a minute; initialised arrays go into the
cubin byte for byte.
"""

from __future__ import annotations

import re

from sandbox.ptx.nodes import Block, Module, Variable
from tools.evaluation import Diagnostic
from tools.source import Source

TEXT_BYTES = 1 << 20
REGISTERS = 1 << 20
"""All ranges of a module together."""
ARRAY_BYTES = 256 << 20
"""All arrays of a module together, a number of elements counted as bytes where the text alone is known."""

_RANGE = re.compile(r"<\s*(0[xX][0-9a-fA-F]+|\d+)\s*[uU]?\s*>")
_EXTENTS = re.compile(r"(?:\[\s*(?:0[xX][0-9a-fA-F]+|\d+)\s*[uU]?\s*\]\s*)+")
ALIGNMENT = 1 << 16
"""Bytes; ptxas takes memory for larger ones."""
_ALIGN = re.compile(r"\.align\s+(?:0[xX][0-9a-fA-F]+|\d+)")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")


def refuse_oversize(source: Source) -> Diagnostic | None:
    """The diagnostic to refuse the text with, or None when the assembler may have it."""
    size = len(source.text.encode("utf-8", "surrogatepass"))
    if size > TEXT_BYTES:
        return _refusal(
            "too_large",
            f"the text has {size} bytes; at most {TEXT_BYTES} are assembled",
            "Use loops instead of unrolled text.",
        )
    if "\0" in source.text:
        line = source.text.count("\n", 0, source.text.index("\0")) + 1
        return _refusal(
            "nul_byte",
            f"a NUL byte stands in line {line}",
            "PTX is plain ASCII text. Write it without NUL.",
            line,
            source,
        )
    registers = _largest(source, _RANGE, REGISTERS)
    if registers is not None and _confirmed(source, registers=True):
        total, line = registers
        return _refusal(
            "too_large",
            f"register ranges declare {total} registers; at most {REGISTERS} are assembled",
            "A thread has 255 registers. Declare as many names as the code uses.",
            line,
            source,
        )
    for match in _ALIGN.finditer(source.text):
        if _value(_NUMBER.findall(match[0])[-1]) > ALIGNMENT:
            line = source.text.count("\n", 0, match.start()) + 1
            return _refusal(
                "too_large",
                f"{' '.join(match[0].split())} is more than {ALIGNMENT} bytes",
                "Alignments of 1,024 bytes serve every instruction.",
                line,
                source,
            )
    elements = _largest(source, _EXTENTS, ARRAY_BYTES)
    if elements is not None and _confirmed(source, registers=False):
        total, line = elements
        return _refusal(
            "too_large",
            f"arrays declare {total} elements; at most {ARRAY_BYTES} bytes are assembled",
            "Ask for large buffers as scratch in the launch plan; shared memory is at most 227 KiB a block.",
            line,
            source,
        )
    return None


def _refusal(
    kind: str, message: str, hint: str, line: int | None = None, source: Source | None = None
) -> Diagnostic:
    text = source.line(line)[:200] if source is not None else ""
    return Diagnostic(
        severity="error",
        kind=kind,
        message=f"refused before assembling: {message}",
        line=line,
        source=text or None,
        hint=hint,
    )


def _largest(source: Source, pattern: re.Pattern[str], limit: int) -> tuple[int, int] | None:
    """Total of what a pattern counts and the line of the largest one, when the total is over the limit."""
    total = most = at = 0
    for match in pattern.finditer(source.text):
        count = 1
        for number in _NUMBER.findall(match[0]):
            count *= _value(number)
        total += count
        if count > most:
            most, at = count, match.start()
    return (total, source.text.count("\n", 0, at) + 1) if total > limit else None


def _value(number: str) -> int:
    if len(number) > 20:
        return 1 << 64
    return int(number, 16) if number[:2] in ("0x", "0X") else int(number)


def _confirmed(source: Source, *, registers: bool) -> bool:
    """False only when the parser shows that the large numbers are no declarations."""
    from sandbox.ptx.parser import parse_module
    from tasks.errors import CandidateError

    try:
        module = parse_module(source.text)
    except CandidateError:
        return True
    variables = _variables(module)
    if registers:
        return sum(variable.range or 0 for variable in variables) > REGISTERS
    return sum(_bytes(variable) for variable in variables) > ARRAY_BYTES


def _bytes(variable: Variable) -> int:
    width = re.search(r"\d+", variable.type)
    total = max(1, int(width[0]) // 8 if width else 1) * variable.vector
    for extent in variable.dims:
        total *= extent or 0
    return total


def _variables(module: Module) -> list[Variable]:
    found = list(module.variables)
    waiting = [function.body for function in module.functions if function.body is not None]
    while waiting:
        for statement in waiting.pop().statements:
            if isinstance(statement, Variable):
                found.append(statement)
            elif isinstance(statement, Block):
                waiting.append(statement)
    return found
