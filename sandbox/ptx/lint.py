"""What ptxas accepts in silence and a look at the text can name.

Each finding is a Notice with kind, line and source. Only code that a launch could run is looked at, never comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.device import Notice
from sandbox.ptx.declarations import TYPE_BYTES, VECTORS
from sandbox.ptx.layout import instructions, names_in
from sandbox.ptx.nodes import Address, Immediate, Instruction, Module

MAX_NOTICES: Final = 64
"""More would help nobody; the rest is dropped."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What to look for in an instruction; both patterns must hold where both are given."""

    kind: str
    instruction: str
    """Regular expression over the start of the dotted name; '' matches any."""
    operand: str
    """Regular expression over a whole name that an operand mentions; '' asks for none."""
    message: str


RULES: Final = (
    Rule("timer", r"nanosleep\b", "", "waits for time: a timing it can steer is not trusted"),
    Rule("timer", "", r"%clock\w*|%globaltimer\w*", "reads the time: a timing it can steer is not trusted"),
    Rule("l2", r"createpolicy\b", "", "makes an L2 policy: it may keep data in L2 across the flush between timings"),
    Rule("l2", r"applypriority\b", "", "changes the L2 priority of data across the flush between timings"),
    Rule("l2", r"discard\b", "", "discards L2 lines: what they held is undefined afterwards"),
    Rule("l2", r"(cp\.async\.bulk\.)?prefetchu?\b(?!\.tensormap)", "", "prefetches: only data of its own launch may be meant"),
    Rule("l2", r".*\.L2::cache_hint\b", "", "passes an L2 policy: it may keep data in L2 across the flush"),
    Rule("l2", r".*\.L[12]::evict_\w+", "", "asks for an eviction priority: it may keep data cached across the flush"),
    Rule("state", "", r"%gridid", "reads the launch number: an answer must not depend on it"),
    Rule("stdout", r"call\b", r"vprintf", "prints; what it prints is never read as a result"),
    Rule("heap", r"call\b", r"malloc|free", "uses the device heap, which outlives a launch"),
)  # fmt: skip
_RULES: Final = tuple((rule, re.compile(rule.instruction), re.compile(rule.operand)) for rule in RULES)


def lint(module: Module, text: str, first_line: int = 1) -> tuple[Notice, ...]:
    """Findings in order of line. text, first_line: what the module was parsed from, for the source lines."""
    lines = text.split("\n")
    found = sorted(_findings(module), key=lambda each: each[2])[:MAX_NOTICES]
    return tuple(_notice(kind, message, line, lines, first_line) for kind, message, line in found)


def _notice(kind: str, message: str, line: int, lines: list[str], first_line: int) -> Notice:
    index = line - first_line
    source = lines[index].strip() if line and 0 <= index < len(lines) else None
    return Notice(kind=kind, message=message, line=line or None, source=source)


def _findings(module: Module) -> Iterator[tuple[str, str, int]]:
    entries = [each for each in module.functions if each.entry and each.body is not None]
    if not entries:
        yield "no_entry", "the module has no .entry with a body, so nothing can be launched", 0
    for entry in entries:
        if "visible" not in entry.linkage:
            yield (
                "no_visible_entry",
                f".entry {entry.name} is not .visible; write .visible .entry",
                entry.span.line,
            )
    for function in module.functions:
        for instruction in instructions(function.body):
            yield from _of_instruction(instruction)


def _of_instruction(instruction: Instruction) -> Iterator[tuple[str, str, int]]:
    name, line = instruction.name, instruction.span.line
    mentioned = tuple(names_in(instruction.operands))
    seen: set[str] = set()
    for rule, of_name, of_operand in _RULES:
        if rule.kind in seen or not of_name.match(name):
            continue
        subject = name
        if rule.operand:
            subject = next((each for each in mentioned if of_operand.fullmatch(each)), "")
        if subject:
            seen.add(rule.kind)
            yield rule.kind, f"{subject} {rule.message}", line
    yield from _misaligned(instruction)


def _misaligned(instruction: Instruction) -> Iterator[tuple[str, str, int]]:
    """An access whose immediate offset alone cannot be aligned, its base being aligned to the access."""
    if instruction.opcode not in ("ld", "ldu", "st", "atom", "red"):
        return
    kind = next((each for each in reversed(instruction.modifiers) if each in TYPE_BYTES), None)
    if kind is None:
        return
    lanes = next((VECTORS[each] for each in instruction.modifiers if each in VECTORS), 1)
    size = TYPE_BYTES[kind] * lanes
    for operand in instruction.operands:
        if isinstance(operand, Address):
            offset = operand.base.value if isinstance(operand.base, Immediate) else operand.offset
            if offset % size:
                yield (
                    "misaligned_offset",
                    f"{instruction.name} moves {size} bytes at offset {offset}, which is no multiple of {size}: "
                    "with an aligned base it faults",
                    instruction.span.line,
                )
