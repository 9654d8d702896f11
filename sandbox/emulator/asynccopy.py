"""`cp.async`: copies from global to shared memory whose data is there only after the thread has waited for
them.

The source is read when the copy is issued; the destination is written when the issuing thread waits for the
copy's group (or ends, or lets an mbarrier track it). A kernel that reads the destination without waiting sees
what was there before: memory that nothing wrote, or stale data.

Source: PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox.device import FaultKind, Order
from sandbox.emulator.access import load, resolve
from sandbox.emulator.decode import Decoder, Op, builds
from sandbox.emulator.faults import Stopped
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.memory import ALL_WRITTEN
from sandbox.emulator.operands import Reader, Unsupported, addresses, reader, whole
from sandbox.ptx.nodes import Immediate, Instruction

OPEN = -1
"""Group of a copy that no commit_group has taken yet."""


@dataclass(slots=True)
class Batch:
    """Copies one wide instruction issued."""

    threads: Array
    """Index in the wave of each copy's thread."""
    group: Array
    """Number of its commit group within its thread; OPEN before the commit."""
    index: Array
    """Byte position in the wave's shared store."""
    words: Array
    """Data, uint32 [copies, size / 4]."""


class Queue:
    """Copies of a wave that are under way, oldest first."""

    def __init__(self, threads: int) -> None:
        self.batches: list[Batch] = []
        self.committed = np.zeros(threads, np.int64)
        """Groups each thread has committed."""


def queue(lanes: Lanes) -> Queue:
    """The wave's queue, made on first use."""
    wave = lanes.wave
    if not wave.copies:
        wave.copies.append(Queue(wave.warps * 32))
    return wave.copies[0]


def complete(lanes: Lanes, before: Array | None) -> None:
    """Write the data of copies of these threads: all of them, or those of groups numbered below `before` (by
    thread of the wave).
    """
    found = queue(lanes)
    if not found.batches:
        return
    member = lanes.dense().ravel()
    kept: list[Batch] = []
    shared = lanes.wave.shared
    view = shared.view(4)
    for batch in found.batches:
        chosen = member[batch.threads]
        if before is not None:
            chosen &= (batch.group != OPEN) & (batch.group < before[batch.threads])
        if not chosen.any():
            kept.append(batch)
            continue
        every = bool(chosen.all())
        index = (batch.index if every else batch.index[chosen]) >> 2
        words = batch.words if every else batch.words[chosen]
        marks = shared.written_view(4) if shared.written is not None else None
        for k in range(words.shape[1]):
            view[index + k] = words[:, k]
            if marks is not None:
                marks[index + k] = ALL_WRITTEN[4]
        if not every:
            left = ~chosen
            kept.append(Batch(batch.threads[left], batch.group[left], batch.index[left], batch.words[left]))
    found.batches = kept
    lanes.wave.machine.changed()


def finish(lanes: Lanes) -> None:
    """Threads end: their copies arrive."""
    complete(lanes, None)


@builds("cp")
def cp(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """All `cp.async` forms but the bulk ones."""
    mods = instruction.modifiers
    if not mods or mods[0] != "async" or "bulk" in mods:
        raise Unsupported("an asynchronous bulk copy")
    if mods[1] == "commit_group":
        op.run = _commit
    elif mods[1] == "wait_all":
        op.run = lambda lanes: complete(lanes, None)
    elif mods[1] == "wait_group":
        count = instruction.operands[0]
        if not isinstance(count, Immediate):
            raise Unsupported("a group count that is not a literal")
        op.run = _wait(count.value)
    elif mods[1] == "mbarrier":
        _track(decoder, instruction, op)
    else:
        _copy(decoder, instruction, op)


def _commit(lanes: Lanes) -> None:
    found = queue(lanes)
    member = lanes.dense().ravel()
    for batch in found.batches:
        chosen = (batch.group == OPEN) & member[batch.threads]
        if chosen.any():
            batch.group[chosen] = found.committed[batch.threads[chosen]]
    found.committed[member] += 1


def _wait(allowed: int):
    def run(lanes: Lanes) -> None:
        complete(lanes, queue(lanes).committed - allowed)

    return run


def _track(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    from sandbox.emulator.mbarrier import arrive

    inner = any(part.startswith("shared") for part in instruction.modifiers)
    space, where = addresses(decoder, instruction.operands[0], "shared" if inner else "generic")
    counted = "noinc" in instruction.modifiers

    def run(lanes: Lanes) -> None:
        complete(lanes, None)
        # Without .noinc the arrival it adds and the arrival it makes cancel out.
        if counted:
            arrive(space, lanes, where(lanes), np.ones(lanes.n, np.int64), op)

    op.run = run


def _copy(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    mods, operands = instruction.modifiers, instruction.operands
    if mods[1] not in ("ca", "cg"):
        raise Unsupported(f"modifier .{mods[1]}")
    size_operand = operands[2]
    if not isinstance(size_operand, Immediate) or size_operand.value not in (4, 8, 16):
        raise Unsupported("a copy of other than 4, 8 or 16 bytes")
    size = size_operand.value
    hinted = any(part.startswith("L2::cache_hint") for part in mods)
    rest = list(operands[3 : len(operands) - hinted])
    amount: Reader | None = None
    ignore: Reader | None = None
    if rest:
        from sandbox.emulator.operands import register_of
        from sandbox.ptx.nodes import Not

        plain = rest[0].operand if isinstance(rest[0], Not) else rest[0]
        found = register_of(plain, decoder.scope)
        if found is not None and found.bits == 1:
            ignore = reader(decoder, rest[0], "pred")
        else:
            amount = reader(decoder, rest[0], "u32")
    target_space, target = addresses(decoder, operands[0], "shared")
    source_space, source = addresses(decoder, operands[1], "global")
    site = op.site

    def run(lanes: Lanes) -> None:
        pieces = resolve(target_space, lanes, target(lanes), size, site, write=True)
        piece = pieces[0]
        start = source(lanes)
        if ignore is not None:
            amounts = np.where(lanes.flat(whole(lanes, ignore(lanes))), 0, size)
        elif amount is not None:
            amounts = lanes.flat(whole(lanes, amount(lanes))).astype(np.int64)
        else:
            amounts = None
        if amounts is None or (amounts == size).all():
            words = np.stack(load(source_space, lanes, start, 4, size // 4, site), axis=-1)
        else:
            words = _partial(lanes, start, amounts, source_space, op, size)
        waiting = Batch(lanes.threads(), np.full(lanes.n, OPEN, np.int64), piece.index, words)
        queue(lanes).batches.append(waiting)
        if lanes.wave.machine.limits.order is not Order.TOGETHER:
            complete(lanes, None)  # as early as hardware may: what must not be overwritten yet shows
        lanes.wave.machine.changed()

    op.run = run


def _partial(lanes: Lanes, start: Array, amounts: Array, space: str, op: Op, size: int) -> Array:
    """Data where some threads copy fewer bytes than they fill; the rest is zero, and not read."""
    if (amounts > size).any():
        at = int(np.flatnonzero(amounts > size)[0])
        where = lanes.locate(at)
        raise Stopped(
            FaultKind.ILLEGAL_OPERAND,
            f"{op.name}: source size {int(amounts[at])} is more than the copy's {size} bytes, "
            f"{lanes.wave.who(where)}",
            op.line,
            where,
        )
    data = np.zeros((lanes.n, size), np.uint8)
    for count in np.unique(amounts):
        if not count:
            continue
        chosen = amounts == count
        part = Lanes(lanes.wave, lanes.frame, lanes.rows, lanes.spread(chosen))
        at = start[chosen]
        if count == size:
            words = np.stack(load(space, part, at, 4, size // 4, op.site), axis=-1)
            data[chosen] = words.view(np.uint8).reshape(-1, size)
        else:
            for k in range(int(count)):
                data[chosen, k] = load(space, part, at + at.dtype.type(k), 1, 1, op.site)[0]
    return data.view(np.uint32)


__all__ = ["Batch", "Queue", "complete", "finish"]
