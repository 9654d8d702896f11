"""The one table from opcode to lowerings, gathered from the modules that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sandbox.emulator.semantics import (
    approx,
    bitfield,
    carry,
    compare,
    convert,
    floating,
    half,
    integer,
    logic,
    matrix,
    move,
    warp,
)
from sandbox.emulator.semantics.types import Function, Lowered, Lowering, Modifiers
from sandbox.ptx.nodes import Immediate, Instruction

_TABLES: tuple[Mapping[str, Lowering], ...] = (
    integer.LOWERINGS,
    logic.LOWERINGS,
    floating.LOWERINGS,
    compare.LOWERINGS,
    move.LOWERINGS,
    convert.LOWERINGS,
    bitfield.LOWERINGS,
    half.LOWERINGS,
    approx.LOWERINGS,
    carry.LOWERINGS,
    half.MIXED,
    warp.LOWERINGS,
    matrix.LOWERINGS,
)


def _gather() -> dict[str, tuple[Lowering, ...]]:
    table: dict[str, tuple[Lowering, ...]] = {}
    for part in _TABLES:
        for opcode, lowering in part.items():
            table[opcode] = (*table.get(opcode, ()), lowering)
    return table


LOWERINGS: Mapping[str, tuple[Lowering, ...]] = _gather()
"""Lowerings of an opcode, one per kind of type; the first that knows the form answers."""


def lower(instruction: Instruction) -> Lowered | None:
    """The meaning of a register-to-register instruction; None when it is not one, or not a form we know."""
    for lowering in LOWERINGS.get(instruction.opcode, ()):
        modifiers = Modifiers(instruction)
        lowered = lowering(modifiers)
        if lowered is None or modifiers.left:
            continue
        if modifiers.source_count == len(lowered.sources) - lowered.carry_in and (
            modifiers.result_count == len(lowered.results) - lowered.carry_out
        ):
            constant = all(isinstance(operand, Immediate) for operand in instruction.operands[1:])
            return replace(lowered, fn=_with_axes(lowered.fn)) if constant else lowered
    return None


def _with_axes(fn: Function) -> Function:
    """`fn` for sources that are all immediates: NumPy treats 0-d arrays as scalars, which no lowering
    expects of all its sources."""
    return lambda *arrays: fn(*(array.reshape((1, 1)) if array.ndim == 0 else array for array in arrays))
