"""When no thread of a wave can run: free those whose wait is over because others ended, or say who waits for
whom.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.barriers import release
from sandbox.emulator.decode import BARRIER, SYNC, Op
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.flow import Barrier
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.operands import whole
from sandbox.emulator.warps import Need, packed, ready, spell
from sandbox.emulator.wave import BARRIERS, Key, Wave

PHRASES = 8
_WARP_MATES = Need(None, barrier=True)


def unstick(wave: Wave) -> bool:
    """Make some waiting thread runnable again; False when none can be."""
    ops: list[Op] = wave.machine.code.ops
    for key in list(wave.parked):
        op = ops[key[1]]
        lanes = wave.lanes(key[0], wave.parked[key])
        good = ready(op.detail if op.kind == SYNC else _WARP_MATES, lanes, op.line, op.name)
        if good is None or good.any():
            wave.add(key, wave.parked.pop(key))
            return True
    return _join_warp_barriers(wave, ops) or release(wave)


def _join_warp_barriers(wave: Wave, ops: list[Op]) -> bool:
    """`bar.warp.sync` with one mask may be executed at different places; let go those whose members have all
    come to some.
    """
    keys = [key for key in wave.parked if ops[key[1]].name == "bar.warp.sync"]
    if len(keys) < 2:
        return False
    present = packed(np.logical_or.reduce([wave.parked[key] for key in keys]))[:, None]
    live = packed(wave.live)[:, None]
    freed = False
    for key in keys:
        lanes = wave.lanes(key[0], wave.parked[key])
        members = whole(lanes, ops[key[1]].detail.members(lanes))
        good = lanes.active & ((members & lanes.part(live) & ~lanes.part(present)) == 0)
        part = lanes.narrowed(good)
        if part is None:
            continue
        freed = True
        going = part.dense()
        ops[key[1]].count += part.n
        wave.add((key[0], key[1] + 1), going)
        left = wave.parked[key] & ~going
        if left.any():
            wave.parked[key] = left
        else:
            del wave.parked[key]
    return freed


def explain(wave: Wave) -> Stopped:
    """The fault of a wave in which every thread that is left waits."""
    ops: list[Op] = wave.machine.code.ops
    phrases = waiting(wave)
    for kind, fault in ((SYNC, FaultKind.NON_CONVERGED), (BARRIER, FaultKind.DIVERGENT_BARRIER)):
        for key, mask in wave.parked.items():
            op = ops[key[1]]
            if op.kind != kind:
                continue
            row = int(np.flatnonzero(mask.any(axis=1))[0])
            lane = (row, int(np.flatnonzero(mask[row])[0]))
            missing = int(packed(wave.live[row : row + 1])[0]) & ~int(packed(mask[row : row + 1])[0])
            where = _where(wave, row, missing)
            return Stopped(
                fault,
                f"{op.name}: lanes {spell(int(packed(mask[row : row + 1])[0]))} of the warp of "
                f"{wave.who(lane)} wait for lanes "
                f"{spell(missing)}, which never come: {where}",
                op.line,
                lane,
                {"waiting": phrases, "threads": int(np.count_nonzero(mask))},
            )
    key, mask = next(iter(wave.barred.items()))
    op = ops[key[1]]
    row = int(np.flatnonzero(mask.any(axis=1))[0])
    lane = (row, int(np.flatnonzero(mask[row])[0]))
    return Stopped(
        FaultKind.DEADLOCK,
        f"{op.name}: every thread that is left waits, and nobody can wake it; {phrases[0]}",
        op.line,
        lane,
        {"waiting": phrases, "threads": wave.living},
    )


def _where(wave: Wave, row: int, lanes: int) -> str:
    """Where some lanes of a warp stand."""
    ops: list[Op] = wave.machine.code.ops
    parts: list[str] = []
    for table in (wave.parked, wave.barred, wave.groups):
        for key, mask in table.items():
            here = int(packed(mask[row : row + 1])[0]) & lanes
            if here and key[1] < len(ops):
                parts.append(f"lanes {spell(here)} stand at line {ops[key[1]].line} ({ops[key[1]].name})")
    return "; ".join(parts) or "they have exited"


def waiting(wave: Wave) -> tuple[str, ...]:
    """Who waits for what, by place and block."""
    ops: list[Op] = wave.machine.code.ops
    out: list[str] = []
    for table, at in ((wave.barred, "at the barrier"), (wave.parked, "for their warp")):
        for key, mask in table.items():
            op = ops[key[1]]
            blocks = np.flatnonzero(mask.reshape(wave.blocks, -1).any(axis=1))
            room = PHRASES - len(out)
            out.extend(_phrase(wave, key, op, mask, int(block), at) for block in blocks[:room])
            if len(blocks) > 1 and len(out) >= PHRASES:
                out.append(f"and {several(len(blocks), 'block')} in all at line {op.line}")
                return tuple(out)
    return tuple(out)


def _phrase(wave: Wave, key: Key, op: Op, mask: Array, block: int, at: str) -> str:
    rows = slice(block * wave.block_warps, (block + 1) * wave.block_warps)
    held = mask[rows]
    threads = several(int(np.count_nonzero(held)), "thread")
    who = f"block {wave.block_coordinates(block * wave.block_warps)}: {threads} wait"
    text = f"{who} {at} at line {op.line} ({op.name})"
    if op.kind == BARRIER and key in wave.barred:
        number = int(wave.barrier_id[rows][held][0])
        goal = int(wave.expected[block, number])
        detail: Barrier = op.detail
        came = int((wave.arrived if goal < 0 else wave.slots)[block, number])
        if goal < 0:
            goal = int(np.count_nonzero(wave.live[rows]))
        name = f"barrier {number}" if number < BARRIERS else "the cluster's barrier"
        text += f": {came} of {goal} threads came to {name}" + (" (.aligned)" if detail.aligned else "")
    return text


def indirect_fault(wave: Wave, lanes: Lanes, op: Op, index: Array, count: int) -> Stopped:
    """An indirect branch past the end of its list."""
    flat: Any = lanes.flat(index)
    position = int(np.flatnonzero(flat >= count)[0])
    where = lanes.locate(position)
    return Stopped(
        FaultKind.BAD_CALL,
        f"{op.name}: index {int(flat[position])} is outside the list of {count} targets, {wave.who(where)}",
        op.line,
        where,
    )
