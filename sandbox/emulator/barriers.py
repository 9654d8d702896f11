"""Barriers of a block: who has come, who waits, when they go on.

Decisions where the ISA leaves room
- Threads that have exited are not waited for by a barrier without a thread count, as chips from sm_70 on
  behave.
- An aligned barrier (`bar`, `.aligned`) waits until every live thread of the warp stands at it; a guard that
  holds for only some of a warp's threads, or warp-mates that wait elsewhere for ever, make a
  DIVERGENT_BARRIER. Where warp-mates exit instead, the barrier goes on and a `hazard` notice stays, since the
  ISA leaves that undefined while chips do go on.
- A thread count counts warps × 32 for aligned forms, threads otherwise.

Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.chip import WARP
from sandbox.emulator.decode import Op
from sandbox.emulator.faults import Stopped
from sandbox.emulator.flow import Barrier
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.operands import whole
from sandbox.emulator.warps import Need, ready
from sandbox.emulator.wave import BARRIERS, CELLS, Wave

_WARP_MATES = Need(None, barrier=True)


def reach(wave: Wave, op: Op, lanes: Lanes, passive: Array | None) -> Lanes | None:
    """Threads come to a barrier. passive: threads [W, 32] of the same warps whose guard is false.

    Returns those that go straight on; the others wait in `wave.parked` or `wave.barred`.
    """
    barrier: Barrier = op.detail
    key = (lanes.frame, op.pc)
    here = lanes.dense().any(axis=1) if passive is not None else None
    if barrier.aligned:
        if passive is not None and here is not None and np.any(passive.any(axis=1) & here):
            row = int(np.flatnonzero(passive.any(axis=1) & here)[0])
            where = (row, int(np.flatnonzero(lanes.dense()[row])[0]))
            raise Stopped(
                FaultKind.DIVERGENT_BARRIER,
                f"{op.name}: its guard holds for only some threads of a warp, {wave.who(where)}; every "
                "thread of a warp must execute it",
                op.line,
                where,
                {"threads": lanes.n},
            )
        good = ready(_WARP_MATES, lanes, op.line, op.name)
        if good is not None:
            rest = Lanes(wave, lanes.frame, lanes.rows, lanes.active & ~good)
            wave.parked[key] = rest.dense()
            narrowed = lanes.narrowed(good)
            if narrowed is None:
                return None
            lanes = narrowed
        elif lanes.mask is not None:
            _note_partial(wave, op, lanes)
    return _arrive(wave, op, barrier, lanes)


def _note_partial(wave: Wave, op: Op, lanes: Lanes) -> None:
    index = np.arange(wave.block_warps * WARP).reshape(wave.block_warps, WARP) < wave.block_threads
    exists = np.tile(index, (wave.blocks, 1))
    here: Array = np.asarray(lanes.active.any(axis=1))
    if (lanes.part(exists) & ~lanes.active & here[:, None]).any():
        wave.machine.notice(
            "hazard",
            f"{op.name}: threads of the same warp have exited; the barrier goes on without them, as chips "
            "do, "
            "but the ISA wants every thread of a warp to execute it",
            op.line,
        )


def _arrive(wave: Wave, op: Op, barrier: Barrier, lanes: Lanes) -> Lanes | None:
    numbers = lanes.flat(whole(lanes, barrier.identity(lanes))).astype(np.int64)
    if barrier.cluster == "wait":
        return _wait(wave, op, lanes)
    if barrier.cluster:
        _keep(wave.token, lanes, wave.phase[lanes.per_warp(wave.block_of)])
    elif numbers.max() >= BARRIERS:
        at = int(np.argmax(numbers))
        raise _illegal(op, wave, lanes, at, f"barrier {int(numbers[at])} does not exist; there are 0 to 15")
    blocks = lanes.per_warp(wave.block_of)
    cell = blocks * CELLS + numbers
    threads = np.bincount(cell, minlength=wave.arrived.size)
    touched = np.flatnonzero(threads)
    expected = np.full(wave.arrived.size, -1)
    if barrier.count is not None:
        counts = lanes.flat(whole(lanes, barrier.count(lanes))).astype(np.int64)
        wrong = (counts % WARP != 0) | (counts == 0)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise _illegal(
                op,
                wave,
                lanes,
                at,
                f"its thread count must be a positive multiple of 32, found {int(counts[at])}",
            )
        expected[cell] = counts
    slots = threads
    if barrier.aligned and lanes.mask is not None:
        rows = np.flatnonzero(lanes.active.any(axis=1))
        first = lanes.active.argmax(axis=1)
        ids = whole(lanes, barrier.identity(lanes))[rows, first[rows]].astype(np.int64)
        of = lanes.part(wave.block_of)[rows]
        slots = np.bincount(of * CELLS + ids, minlength=wave.arrived.size) * WARP
    pending = wave.expected.ravel()
    clash = touched[(pending[touched] != 0) & (pending[touched] != expected[touched])]
    if len(clash):
        at = int(np.flatnonzero(cell == clash[0])[0])
        raise _illegal(
            op, wave, lanes, at,
            f"barrier {int(clash[0]) % CELLS} already waits for {_people(int(pending[clash[0]]))}, "
            f"and this asks for {_people(int(expected[clash[0]]))}",
        )  # fmt: skip
    pending[touched] = expected[touched]
    wave.arrived.ravel()[:] += threads
    wave.slots.ravel()[:] += slots
    if barrier.predicate is not None:
        votes = lanes.flat(whole(lanes, barrier.predicate(lanes)))
        wave.votes.ravel()[:] += np.bincount(cell, weights=votes, minlength=wave.arrived.size).astype(
            np.int64
        )
    going: Lanes | None = None
    if barrier.arrive:
        going = lanes
    elif not barrier.reduction and not wave.barred and _all_there(wave, touched):
        clear(wave, touched)
        wave.machine.event()
        return lanes
    else:
        _hold(wave, op, lanes, numbers)
    release(wave)
    return going


def _keep(table: Array, lanes: Lanes, values: Array) -> None:
    """Set active lanes of a table [warps, 32]; values: flat."""
    active = lanes.active
    part = table if lanes.rows is None else table[lanes.rows]
    part[active] = values
    if lanes.rows is not None:
        table[lanes.rows] = part


def _hold(wave: Wave, op: Op, lanes: Lanes, numbers: Array) -> None:
    """These threads wait at barriers of these numbers."""
    _keep(wave.barrier_id, lanes, numbers)
    key = (lanes.frame, op.pc)
    mask = lanes.dense()
    held = wave.barred.get(key)
    wave.barred[key] = mask if held is None else held | mask


def _wait(wave: Wave, op: Op, lanes: Lanes) -> Lanes | None:
    """Threads wait for the phase of the cluster's barrier at which they arrived; those whose phase is over go
    on.
    """
    release(wave)
    token = lanes.part(wave.token)
    if (token[lanes.active] < 0).any():
        at = int(np.flatnonzero(token[lanes.active] < 0)[0])
        raise _illegal(op, wave, lanes, at, "waits for the cluster without having arrived")
    over = token < wave.phase[lanes.part(wave.block_of)][:, None]
    going = lanes.narrowed(over)
    rest = lanes.narrowed(~over)
    if rest is not None:
        _hold(wave, op, rest, np.full(rest.n, BARRIERS, np.int8))
    return going


def _illegal(op: Op, wave: Wave, lanes: Lanes, at: int, why: str) -> Stopped:
    where = lanes.locate(at)
    return Stopped(FaultKind.ILLEGAL_OPERAND, f"{op.name}: {why}, {wave.who(where)}", op.line, where)


def _people(count: int) -> str:
    return "all threads of the block" if count < 0 else f"{count} threads"


def _goal(wave: Wave) -> tuple[Array, Array]:
    """(came, awaited) for every barrier of every block, in the units each counts in."""
    living = np.count_nonzero(wave.live.reshape(wave.blocks, -1), axis=1)[:, None]
    everyone = wave.expected < 0
    return np.where(everyone, wave.arrived, wave.slots), np.where(everyone, living, wave.expected)


def _all_there(wave: Wave, touched: Array) -> bool:
    came, awaited = _goal(wave)
    return bool((came.ravel()[touched] == awaited.ravel()[touched]).all())


def clear(wave: Wave, cells: Array) -> None:
    """Barriers start anew."""
    for state in (wave.arrived, wave.slots, wave.expected, wave.votes):
        state.ravel()[cells] = 0


def release(wave: Wave) -> bool:
    """Let the threads of every complete barrier go on; whether there was one."""
    came, awaited = _goal(wave)
    full = (wave.expected != 0) & (came >= awaited)
    if not full.any():
        return False
    over = full & (came > awaited) & (wave.expected > 0)
    if over.any():
        block, number = (int(k) for k in np.argwhere(over)[0])
        raise Stopped(
            FaultKind.ILLEGAL_OPERAND,
            f"barrier {number} waits for {int(awaited[block, number])} threads, but "
            f"{int(came[block, number])} came, "
            f"block {wave.block_coordinates(block * wave.block_warps)}",
            None,
            (block * wave.block_warps, 0),
        )
    # -1 marks threads that wait nowhere, so give them a column that is never full.
    table = np.concatenate([full, np.zeros((wave.blocks, 1), np.bool_)], axis=1)
    free = table[wave.block_of[:, None], wave.barrier_id]
    ops = wave.machine.code.ops
    for key in list(wave.barred):
        held = wave.barred[key]
        going = held & free
        if not going.any():
            continue
        op = ops[key[1]]
        detail: Barrier = op.detail
        if detail.reduction and detail.result is not None:
            lanes = wave.lanes(key[0], going)
            blocks = lanes.part(wave.block_of)[:, None]
            numbers = lanes.part(wave.barrier_id)
            votes, total = wave.votes[blocks, numbers], wave.arrived[blocks, numbers]
            value = {"popc": votes.astype(np.uint32), "and": votes == total, "or": votes > 0}[
                detail.reduction
            ]
            detail.result(lanes, value, True)
            for index in op.marks:
                key[0].bank.mark(index)[going] = True
        wave.add((key[0], key[1] + 1), going)
        left = held & ~free
        if left.any():
            wave.barred[key] = left
        else:
            del wave.barred[key]
    wave.barrier_id[free] = -1
    wave.phase += full[:, BARRIERS]
    clear(wave, np.flatnonzero(full.ravel()))
    wave.machine.event()
    return True
