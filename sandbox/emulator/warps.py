"""Who must be there before a warp-wide instruction may run.

`.sync` instructions name their threads by a member mask; those with `.aligned` and no mask mean the whole
warp. Threads that have exited are not waited for where a mask names them; matrix instructions need all 32.

Source: PTX ISA, "shfl.sync", "vote.sync", "bar.warp.sync", "mma": "all threads in the warp must execute the
same instruction".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.chip import WARP
from sandbox.emulator.faults import Stopped
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.operands import Reader, whole

BITS = (1 << np.arange(WARP, dtype=np.uint64)).astype(np.uint32)
ALL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Need:
    """What an op waits for."""

    members: Reader | None = None
    """Member mask as u32; None: all threads of the warp."""
    strict: bool = False
    """Threads that exited, or never were, are missed, though not waited for: a `hazard` notice stays."""
    barrier: bool = False
    """An aligned barrier: who is missing makes a DIVERGENT_BARRIER."""


def packed(mask: Array) -> Array:
    """Bool [W, 32] as one uint32 a warp."""
    return np.packbits(mask, axis=1, bitorder="little").view(np.uint32)[:, 0]


def ready(need: Need, lanes: Lanes, site_line: int, name: str) -> Array | None:
    """Which of the active lanes [W, 32] may go on; None when all may. Raises when one never can."""
    if need.members is not None:
        value = need.members(lanes)
        if value.ndim == 0 and lanes.mask is None and value == ALL:
            return None
        members = whole(lanes, value)
        own = (members & BITS) != 0
        if not (own | ~lanes.active).all():
            row, lane = (int(k) for k in np.argwhere(~own & lanes.active)[0])
            where = (row if lanes.rows is None else int(lanes.rows[row]), lane)
            raise Stopped(
                FaultKind.ILLEGAL_OPERAND,
                f"{name}: its member mask {int(members[row, lane]):#010x} does not name the executing "
                "thread, "
                f"{lanes.wave.who(where)}",
                site_line,
                where,
            )
    elif lanes.mask is None:
        return None
    else:
        members = ALL
    present = packed(lanes.active)[:, None]
    live = packed(lanes.part(lanes.wave.live))[:, None]
    if need.strict:
        gone = (members & ~live) != 0
        if (gone & lanes.active).any():
            row = int(np.flatnonzero((gone & lanes.active).any(axis=1))[0])
            lanes.wave.machine.notice(
                "hazard",
                f"{name}: lanes {spell(~int(live[row, 0]))} of a warp have exited or do not exist; it goes "
                "on with zeros for them, but the ISA wants all 32 threads of a warp and a chip may find anything",
                site_line,
            )
    good = (members & live & ~present) == 0
    good = np.broadcast_to(good, lanes.active.shape)
    if (good | ~lanes.active).all():
        return None
    return good & lanes.active


def spell(bits: int) -> str:
    """Lanes of a 32-bit mask as ranges: `0-15, 31`."""
    bits &= 0xFFFFFFFF
    parts: list[str] = []
    lane = 0
    while lane < WARP:
        if bits >> lane & 1:
            end = lane
            while end + 1 < WARP and bits >> (end + 1) & 1:
                end += 1
            parts.append(str(lane) if lane == end else f"{lane}-{end}")
            lane = end
        lane += 1
    return ", ".join(parts) or "none"
