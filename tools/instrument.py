"""Counters in front of target instructions: how often each ran, exactly, on a device that cannot count by itself.

Before an instruction of a family, under its own guard, `activemask` gives the threads for which the guard holds. The lowest of them adds
to a module variable: the number of threads for an instruction that a thread executes, one for an instruction that a warp (or, a quarter
each, a warpgroup) executes together. However the warp diverges afterwards, each executed instruction has exactly one such thread.
Instructions of one straight stretch under one unchanged guard share a counter. There are no new branches, and four new registers.

Source: PTX ISA, "activemask" (predicated-off threads contribute 0), "red", special register %lanemask_lt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sandbox.device import Counts
from sandbox.ptx.families import FAMILIES, family_of
from sandbox.ptx.layout import instructions, names_in
from sandbox.ptx.nodes import (
    Address,
    Block,
    Function,
    Guard,
    Immediate,
    Instruction,
    Module,
    Name,
    Not,
    Operand,
    Pair,
    Statement,
    Variable,
)
from sandbox.ptx.printer import print_module

LEAST_VERSION = (6, 2)
"""PTX ISA version that brought `activemask`."""
FLOW = frozenset({"bra", "brx", "call", "ret", "exit", "trap", "brkpt"})
"""After these, who is active may have changed."""
SIZED = frozenset({"bulk_copy", "bulk_reduce"})
"""Families whose third operand is a number of bytes, in a register more often than not."""

Unit = Literal["threads", "warps", "bytes"]
_Key = tuple[str, bool, Unit]


@dataclass(frozen=True, slots=True)
class Site:
    """What one counter counts for: an instruction of the original."""

    function: str
    line: int
    name: str
    unit: Unit
    counter: int
    share: int
    """Counts are divided by it: four warps execute one instruction of a warpgroup."""


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A module with counters. variable: the array of 64-bit counters."""

    module: Module
    variable: str
    sites: tuple[Site, ...]

    def counts(self, data: bytes) -> Counts:
        """Executions (and bytes) by site, from the variable's contents after a run."""
        values = struct.unpack(f"<{len(data) // 8}Q", data)
        ran: dict[tuple[str, int, str], int] = {}
        moved: dict[tuple[str, int, str], int] = {}
        for site in self.sites:
            into = moved if site.unit == "bytes" else ran
            key = (site.function, site.line, site.name)
            into[key] = into.get(key, 0) + values[site.counter] // site.share
        return Counts(ran, 0, moved)


def instrument(module: Module) -> Instrumented | None:
    """The module with counters; None when it uses no family, or its version has no `activemask`."""
    used = any(family_of(each) for function in module.functions for each in instructions(function.body))
    if not used or module.version < LEAST_VERSION:
        return None
    prefix = fresh(module)
    writer = _Writer(prefix)
    items = tuple(writer.function(item) if isinstance(item, Function) else item for item in module.items)
    array = Variable("global", "b64", prefix, dims=(max(writer.counters, 1),), align=8, linkage=("visible",))
    first = next(index for index, item in enumerate(items) if isinstance(item, Function))
    made = replace(module, items=(*items[:first], array, *items[first:]))
    return Instrumented(made, prefix, tuple(writer.sites))


def fresh(module: Module) -> str:
    """A name that no name of the module begins with."""
    text = print_module(module)
    number = 0
    while (name := f"proof{number}") in text:
        number += 1
    return name


def destinations(instruction: Instruction) -> Iterable[str]:
    """Registers that an instruction may write: its first operand's."""
    if not instruction.operands:
        return ()
    first = instruction.operands[0]
    if isinstance(first, Pair):
        return (first.first.text, first.second.text)
    return tuple(names_in((first,)))


@dataclass
class _Writer:
    prefix: str
    counters: int = 0
    sites: list[Site] = field(default_factory=list[Site])
    open: dict[_Key, int] = field(default_factory=dict[_Key, int])
    """Counters that still hold for what follows."""
    name: str = ""

    def function(self, function: Function) -> Function:
        if function.body is None:
            return function
        self.name = function.name
        before = self.counters
        body = self.block(function.body)
        if self.counters == before:
            return function
        p = f"%{self.prefix}"
        registers = (
            Variable("reg", "b32", f"{p}m"),
            Variable("reg", "b32", f"{p}t"),
            Variable("reg", "b64", f"{p}c"),
            Variable("reg", "pred", f"{p}p"),
        )
        return replace(function, body=replace(body, statements=(*registers, *body.statements)))

    def block(self, block: Block) -> Block:
        self.open.clear()
        made: list[Statement] = []
        for statement in block.statements:
            if isinstance(statement, Instruction):
                made += self.before(statement)
                made.append(statement)
                self.after(statement)
            elif isinstance(statement, Block):
                made.append(self.block(statement))
                self.open.clear()
            else:
                made.append(statement)
                if not isinstance(statement, Variable):
                    self.open.clear()
        return replace(block, statements=tuple(made))

    def before(self, instruction: Instruction) -> list[Statement]:
        """The counter of an instruction, unless one counts for it already."""
        family = family_of(instruction)
        if family is None:
            return []
        collective = FAMILIES[family].collective
        unit: Unit = "threads" if collective == "thread" else "warps"
        made: list[Statement] = []
        guard = instruction.guard
        key: _Key = ("" if guard is None else guard.register.text, guard is not None and guard.negated, unit)
        if key not in self.open:
            self.open[key] = self._new()
            made += self._counter(guard, unit, self.open[key])
        share = 4 if collective == "warpgroup" else 1
        place = (self.name, instruction.span.line, instruction.name)
        self.sites.append(Site(*place, unit, self.open[key], share))
        size = instruction.operands[2] if family in SIZED and len(instruction.operands) > 2 else None
        if isinstance(size, Name):
            number = self._new()
            made += self._sizes(guard, size, number)
            self.sites.append(Site(*place, "bytes", number, 1))
        return made

    def after(self, instruction: Instruction) -> None:
        """Close counters that no longer hold."""
        if instruction.opcode in FLOW:
            self.open.clear()
            return
        written = set(destinations(instruction))
        for key in [each for each in self.open if each[0] in written]:
            del self.open[key]

    def _new(self) -> int:
        self.counters += 1
        return self.counters - 1

    def _counter(self, guard: Guard | None, unit: Unit, number: int) -> list[Statement]:
        m, t, c, p = (Name(f"%{self.prefix}{letter}") for letter in "mtcp")
        holds: tuple[Operand, ...] = ()
        if guard is not None:
            holds = (Not(guard.register) if guard.negated else guard.register,)
        leader = ("eq", "and", "u32") if holds else ("eq", "u32")
        count = (
            [_of("mov", ("u64",), c, Immediate(1, "int"))]
            if unit == "warps"
            else [_of("popc", ("b32",), t, m), _of("cvt", ("u64", "u32"), c, t)]
        )
        none = [_of("mov", ("u32",), m, Immediate(0, "int"))] if holds else []
        return [
            *none,
            _of("activemask", ("b32",), m, guard=guard),
            _of("mov", ("u32",), t, Name("%lanemask_lt")),
            _of("and", ("b32",), t, t, m),
            _of("setp", leader, p, t, Immediate(0, "int"), *holds),
            *count,
            self._add(number, c, Guard(p)),
        ]

    def _sizes(self, guard: Guard | None, size: Name, number: int) -> list[Statement]:
        c = Name(f"%{self.prefix}c")
        return [_of("cvt", ("u64", "u32"), c, size), self._add(number, c, guard)]

    def _add(self, number: int, value: Name, guard: Guard | None) -> Instruction:
        return _of(
            "red", ("global", "add", "u64"), Address(Name(self.prefix), 8 * number), value, guard=guard
        )


def _of(
    opcode: str, modifiers: tuple[str, ...], *operands: Operand, guard: Guard | None = None
) -> Instruction:
    return Instruction(opcode, modifiers, operands, guard)
