"""Builders for control flow: branches, calls, exits, traps and barriers. What they mean is the scheduler's
business.

Source: PTX ISA, "Control Flow Instructions", "bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.device import FaultKind
from sandbox.emulator.decode import (
    BARRIER,
    BRANCH,
    BUILDERS,
    CALL,
    EXIT,
    INDIRECT,
    RETURN,
    SYNC,
    Decoder,
    Op,
    builds,
    nothing,
)
from sandbox.emulator.faults import Stopped
from sandbox.emulator.lanes import Lanes
from sandbox.emulator.operands import Reader, Unsupported, Writer, elements, reader, register_of, writer
from sandbox.emulator.warps import Need
from sandbox.emulator.wave import BARRIERS
from sandbox.ptx.nodes import Directive, Function, Group, Immediate, Instruction, Name, Operand


@dataclass(slots=True)
class Barrier:
    """A `bar` or `barrier` as the scheduler needs it."""

    arrive: bool
    """Does not wait."""
    aligned: bool
    identity: Reader
    count: Reader | None
    """Threads expected; None: all of the block."""
    reduction: str = ""
    """popc, and, or; '' for none."""
    predicate: Reader | None = None
    result: Writer | None = None
    cluster: str = ""
    """arrive or wait of a cluster's barrier; '' for a block's."""


@dataclass(slots=True)
class Jump:
    """An indirect branch."""

    index: Reader
    targets: tuple[int, ...]


@dataclass(slots=True)
class Call:
    """A call: who is called, what goes in, what comes back."""

    name: str = ""
    """Callee of a direct call."""
    pointer: Reader | None = None
    allowed: tuple[str, ...] = ()
    """Targets listed for an indirect call; empty: any."""
    arguments: list[Operand] = field(default_factory=list[Operand])
    results: list[Operand] = field(default_factory=list[Operand])


@builds("bra")
def bra(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    target = instruction.operands[0]
    if not isinstance(target, Name):
        raise Unsupported("a branch to something that is not a label")
    op.kind, op.target = BRANCH, decoder.label(target.text)


@builds("brx")
def brx(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    table = instruction.operands[1]
    found = decoder.scope.find(table.text) if isinstance(table, Name) else None
    if not isinstance(found, Directive):
        raise Unsupported("a branch without a .branchtargets list")
    labels = [name for part in found.arguments for name in part.replace(",", " ").split()]
    jump = Jump(
        reader(decoder, instruction.operands[0], "u32"), tuple(decoder.label(name) for name in labels)
    )
    op.kind, op.detail = INDIRECT, jump


@builds("ret")
def ret(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    op.kind = RETURN


@builds("exit")
def leave(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    op.kind = EXIT


@builds("trap")
def trap(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    def run(lanes: Lanes) -> None:
        where = lanes.locate(0)
        raise Stopped(FaultKind.TRAP, f"trap, {lanes.wave.who(where)}", op.line, where, {"threads": lanes.n})

    op.run = run


@builds("call")
def call(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    operands = list(instruction.operands)
    made = Call()
    if operands and isinstance(operands[0], Group):
        made.results = list(operands.pop(0).elements)  # type: ignore[union-attr]
    target = operands.pop(0)
    if not isinstance(target, Name):
        raise Unsupported("a call of something that is not a name")
    if operands and isinstance(operands[0], Group):
        made.arguments = list(operands.pop(0).elements)  # type: ignore[union-attr]
    found = decoder.scope.find(target.text)
    if isinstance(found, Function):
        made.name = found.name
    else:
        made.pointer = reader(decoder, target, "u64")
        if operands and isinstance(operands[0], Name):
            listed = decoder.scope.find(operands[0].text)
            if isinstance(listed, Directive) and listed.name == "calltargets":
                made.allowed = tuple(
                    name for part in listed.arguments for name in part.replace(",", " ").split()
                )
    for operand in made.arguments:
        register = register_of(operand, decoder.scope)
        if register is not None:
            decoder.reads(register)
    for operand in made.results:
        register = register_of(operand, decoder.scope)
        if register is not None:
            decoder.writes(register)
    op.kind, op.detail = CALL, made


@builds("bar", "barrier")
def bar(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """bar{.cta}.sync|arrive|red, barrier{.cta}.…{.aligned}, bar.warp.sync."""
    mods = [part for part in instruction.modifiers if part != "cta"]
    if mods and mods[0] == "warp":
        op.kind, op.detail = SYNC, Need(reader(decoder, instruction.operands[0], "u32"))
        op.run = nothing
        return
    if mods and mods[0] == "cluster":
        if mods[1] not in ("arrive", "wait"):
            raise Unsupported(f"cluster barrier action .{mods[1]}")
        last = reader(decoder, Immediate(BARRIERS, "int"), "u32")
        op.kind, op.collective = BARRIER, "aligned" in mods
        op.detail = Barrier(mods[1] == "arrive", "aligned" in mods, last, None, cluster=mods[1])
        return
    action = mods[0]
    if action not in ("sync", "arrive", "red"):
        raise Unsupported(f"barrier action .{action}")
    aligned = instruction.opcode == "bar" or "aligned" in mods
    operands = list(instruction.operands)
    made = Barrier(action == "arrive", aligned, reader(decoder, Immediate(0, "int"), "u32"), None)
    if action == "red":
        made.reduction = mods[1]
        kind = "u32" if made.reduction == "popc" else "pred"
        made.result = writer(decoder, elements(operands.pop(0), decoder.scope)[0], kind)
        made.predicate = reader(decoder, operands.pop(), "pred")
    if operands:
        made.identity = reader(decoder, operands[0], "u32")
    if len(operands) > 1:
        made.count = reader(decoder, operands[1], "u32")
    op.kind, op.detail = BARRIER, made
    op.collective = aligned


__all__ = ["BUILDERS", "Barrier", "Call", "Jump"]
