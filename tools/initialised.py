"""Registers that are read though nothing in the function can have written them.

Contract: certain, not complete. A register counts as written when it stands anywhere an instruction could
write (the first operand of everything but stores, branches and the like, and the results of a call), in
whatever order; so what is named here was surely never written. Registers read before their only write on
some path are the business of whoever runs the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.ptx.nodes import (
    Address,
    Function,
    Group,
    Instruction,
    Name,
    Negative,
    Not,
    Offset,
    Operand,
    Pair,
    Statement,
    Variable,
    Vector,
)

READERS = frozenset(
    {
        "st",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "bar",
        "barrier",
        "fence",
        "membar",
        "prefetch",
        "prefetchu",
        "discard",
        "applypriority",
        "stmatrix",
        "cp",
        "nanosleep",
        "setmaxnreg",
        "griddepcontrol",
        "sust",
        "sured",
        "pmevent",
        "brkpt",
    }
)
"""Opcodes whose first operand is read, not written, or that have no register result."""

RESULT_AFTER_ALL = frozenset({"barrier", "bar"})
"""Readers of which some forms do write their first operand."""


def names_in(operand: Operand) -> Iterator[Name]:
    """Every name inside an operand, addresses included."""
    match operand:
        case Name():
            yield operand
        case Not() | Negative():
            yield operand.operand
        case Pair():
            yield operand.first
            yield operand.second
        case Vector() | Group():
            for element in operand.elements:
                yield from names_in(element)
        case Offset():
            yield operand.base
        case Address():
            if isinstance(operand.base, Name):
                yield operand.base
            for element in operand.rest:
                yield from names_in(element)
        case _:
            return


def never_written(function: Function, body: Sequence[Statement]) -> tuple[tuple[str, int], ...]:
    """(register, first line that reads it), in order of lines."""
    plain = {
        one.name for one in body if isinstance(one, Variable) and one.space == "reg" and one.range is None
    }
    ranges = {
        one.name: one.range
        for one in body
        if isinstance(one, Variable) and one.space == "reg" and one.range is not None
    }
    plain |= {one.name for one in (*function.results,) if one.space == "reg"}
    given = {one.name for one in function.params if one.space == "reg"}

    def declared(name: str) -> bool:
        if name in plain:
            return True
        stem = name.rstrip("0123456789")
        return stem != name and stem in ranges and int(name[len(stem) :]) < ranges[stem]

    written: set[str] = set(given)
    read: dict[str, int] = {}
    for statement in body:
        if not isinstance(statement, Instruction):
            continue
        results = _results(statement)
        for operand in results:
            if not isinstance(operand, Address):
                written.update(name.text for name in names_in(operand))
        if statement.guard is not None:
            read.setdefault(statement.guard.register.text, statement.span.line)
        for operand in statement.operands:
            if isinstance(operand, Address) or operand not in results:
                for name in names_in(operand):
                    read.setdefault(name.text, statement.span.line)
    unset = [(name, line) for name, line in read.items() if name not in written and declared(name)]
    return tuple(sorted(unset, key=lambda pair: pair[1]))


def _results(instruction: Instruction) -> tuple[Operand, ...]:
    operands = instruction.operands
    if not operands:
        return ()
    if instruction.opcode == "call":
        return tuple(operand for operand in operands if isinstance(operand, Group))[:1]
    if instruction.opcode in READERS and not (
        instruction.opcode in RESULT_AFTER_ALL and "red" in instruction.modifiers
    ):
        return ()
    return operands[:1]
