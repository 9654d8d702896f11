"""Builders for instructions without memory or control flow: what `semantics.lower` knows, and addresses of
variables.

Source: PTX ISA, "mov", "cvta", "isspacep", "Warp-level instructions".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sandbox.emulator.decode import SYNC, WAITING, Decoder, Op, builds, nothing
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.memory import TAG_BITS, WINDOWS
from sandbox.emulator.names import CARRY, Slot
from sandbox.emulator.operands import Reader, Unsupported, Writer, elements, reader, whole, width_of, writer
from sandbox.emulator.semantics import TYPES, Lowered, lower
from sandbox.emulator.warps import Need
from sandbox.ptx.nodes import Instruction, Name, Offset
from tasks.errors import CannotJudge

ACCEPTED = (
    "applypriority", "brkpt", "createpolicy", "fence", "griddepcontrol", "membar", "nanosleep", "pmevent",
    "prefetch", "prefetchu", "setmaxnreg",
)  # fmt: skip
"""Opcodes that are counted and change nothing the machine can show."""

MASKED = frozenset({"shfl", "vote", "match", "redux", "elect"})
"""Warp-wide opcodes whose last operand names the threads to wait for."""


def owned(value: Array, sources: list[Array]) -> bool:
    """Whether nobody but the caller holds `value`."""
    if value.base is None:
        return all(value is not source for source in sources)
    return not any(np.may_share_memory(value, source) for source in sources)


@builds("*")
def lowered(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Whatever `semantics.lower` knows."""
    meaning = lower(instruction)
    if meaning is None:
        raise Unsupported("an instruction or form it does not know")
    operands = instruction.operands
    given = len(meaning.results) - meaning.carry_out
    results = elements(operands[0], decoder.scope) if given else []
    rest = operands[1:] if given else operands
    sources = [each for operand in rest for each in elements(operand, decoder.scope)]
    types = meaning.sources[:-1] if meaning.carry_in else meaning.sources
    readers = [reader(decoder, operand, kind) for operand, kind in zip(sources, types, strict=True)]
    writers = [
        writer(decoder, operand, kind) for operand, kind in zip(results, meaning.results[:given], strict=True)
    ]
    if meaning.carry_in:
        readers.append(reader(decoder, Name(CARRY.name), "u32"))
    if meaning.carry_out:
        writers.append(writer(decoder, Name(CARRY.name), "u32"))
    if meaning.scope == "warp":
        _warp_wide(instruction, op, meaning, readers, writers)
        return
    fn = meaning.fn
    if len(writers) == 1 and writers[0] is not None:
        only = writers[0]

        def run_one(lanes: Lanes) -> None:
            arguments = [read(lanes) for read in readers]
            value = fn(*arguments)[0]
            only(lanes, value, owned(value, arguments))

        op.run = run_one
        return

    def run(lanes: Lanes) -> None:
        arguments = [read(lanes) for read in readers]
        values = fn(*arguments)
        for write, value in zip(writers, values, strict=True):
            if write is not None:
                write(lanes, value, len(values) == 1 and owned(value, arguments))

    op.run = run


def _warp_wide(
    instruction: Instruction,
    op: Op,
    meaning: Lowered,
    readers: list[Reader],
    writers: Sequence[Writer | None],
) -> None:
    fn = meaning.fn
    op.collective = True
    strict = "sync" in instruction.modifiers and instruction.opcode not in MASKED

    def run(lanes: Lanes) -> None:
        arguments = [whole(lanes, read(lanes)) for read in readers]
        if strict and lanes.mask is not None:  # all that live have come: the others exited, or never were
            arguments = [np.where(lanes.active, each, each.dtype.type(0)) for each in arguments]
        for write, value in zip(writers, fn(lanes.active, *arguments), strict=True):
            if write is not None:
                write(lanes, value, False)

    op.run = run
    if "sync" not in instruction.modifiers:
        return
    op.kind = SYNC
    op.detail = Need(None if strict else readers[-1], strict=strict)


@builds("mov")
def mov(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """`mov` of the address of a local variable is ours; all else is semantics'."""
    if len(instruction.operands) == 2:
        source = instruction.operands[1]
        if isinstance(source, (Name, Offset)):
            offset = decoder.local_offset(source)
            if offset is not None:
                kind = f"u{width_of(decoder, instruction.operands[0])}"
                write = writer(decoder, instruction.operands[0], kind)
                dtype = TYPES[kind].dtype

                def run(lanes: Lanes) -> None:
                    if write is not None:
                        write(lanes, np.array(lanes.frame.local_base + offset, dtype), True)

                op.run = run
                return
    lowered(decoder, instruction, op)


@builds("cvta")
def cvta(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Between a space's own addresses and generic ones."""
    back = "to" in instruction.modifiers
    spaces = [part.partition("::")[0] for part in instruction.modifiers if part not in ("to", "u64", "u32")]
    kind = instruction.modifiers[-1]
    if len(spaces) != 1 or kind != "u64" or spaces[0] not in ("global", *WINDOWS):
        raise Unsupported("an unknown form of cvta")
    window = np.uint64(WINDOWS.get(spaces[0], 0))
    read, local = _address_source(decoder, instruction.operands[1])
    write = writer(decoder, instruction.operands[0], kind)

    def run(lanes: Lanes) -> None:
        value = read(lanes)
        if local:
            value = value + np.uint64(lanes.frame.local_base)
        moved = value - window if back else value + window
        if write is not None:
            write(lanes, moved, True)

    op.run = run


def _address_source(decoder: Decoder, operand: object) -> tuple[Reader, bool]:
    if isinstance(operand, (Name, Offset)):
        offset = decoder.local_offset(operand)
        if offset is not None:
            fixed = np.array(offset, np.uint64)
            return (lambda lanes: fixed), True
    return reader(decoder, operand, "u64"), False  # type: ignore[arg-type]


@builds("isspacep")
def isspacep(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Whether a generic address lies in a space's window."""
    space = instruction.modifiers[0].partition("::")[0]
    read = reader(decoder, instruction.operands[1], "u64")
    write = writer(decoder, instruction.operands[0], "pred")
    shift = np.uint64(TAG_BITS)
    tags = [np.uint64(base >> TAG_BITS) for base in WINDOWS.values()]

    def run(lanes: Lanes) -> None:
        tag = read(lanes) >> shift
        inside = tag == np.uint64(WINDOWS[space] >> TAG_BITS) if space in WINDOWS else ~np.isin(tag, tags)
        if write is not None:
            write(lanes, inside, True)

    op.run = run


@builds(*ACCEPTED)
def accepted(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Order, hints and profiling: nothing to show. A policy has a destination, which gets an opaque value."""
    op.collective = "aligned" in instruction.modifiers
    if instruction.opcode == "createpolicy":
        write = writer(decoder, instruction.operands[0], "b64")
        policy = np.array(1, np.uint64)
        op.run = lambda lanes: write(lanes, policy, False) if write is not None else None
        return
    if instruction.opcode == "nanosleep":
        op.spins = WAITING
    for operand in instruction.operands:
        if isinstance(operand, Name):
            found = decoder.scope.find(operand.text)
            if isinstance(found, Slot):
                decoder.reads(found)
    op.run = nothing


__all__ = ["CannotJudge", "lowered", "owned"]
