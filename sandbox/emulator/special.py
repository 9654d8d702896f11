"""Special registers: what a thread may ask about itself and the machine.

Values that are the same for all threads of a launch are 0-d arrays; the others [W, 32]. Clocks count
instructions that the machine has executed, so they only ever grow; `%globaltimer` is real time in
nanoseconds.

Source: PTX ISA, "Special Registers".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.chip import WARP
from sandbox.emulator.lanes import Array, Lanes
from sandbox.ptx.nodes import Name

_LANE = np.arange(WARP, dtype=np.uint64)
LANEMASKS: Mapping[str, Array] = {
    "eq": (1 << _LANE).astype(np.uint32),
    "lt": ((1 << _LANE) - 1).astype(np.uint32),
    "le": ((2 << _LANE) - 1).astype(np.uint32),
    "gt": (~((2 << _LANE) - 1)).astype(np.uint32),
    "ge": (~((1 << _LANE) - 1)).astype(np.uint32),
}
AXES = {"x": 0, "y": 1, "z": 2, "": 0}


def _uniform(value: int, bits: int = 32) -> tuple[int, Callable[[Lanes], Array]]:
    fixed = np.array(value, np.uint32 if bits == 32 else np.uint64)
    return bits, lambda lanes: fixed


def _cached(name: str, axis: int = 0) -> tuple[int, Callable[[Lanes], Array]]:
    return 32, lambda lanes: lanes.part(lanes.wave.own(name, axis))


def _launch(get: Callable[[Lanes], int], bits: int = 32) -> tuple[int, Callable[[Lanes], Array]]:
    dtype = np.uint32 if bits == 32 else np.uint64
    return bits, lambda lanes: np.array(get(lanes) & ((1 << bits) - 1), dtype)


def reader(operand: Name) -> tuple[int, Callable[[Lanes], Array]] | None:
    """(bits, closure) of a special register; None when the name is not one."""
    name, axis = operand.text, AXES.get(operand.component, 3)
    if name in ("%tid", "%ctaid"):
        return _uniform(0) if axis == 3 else _cached(name, axis)
    if name in ("%laneid", "%warpid", "%smid"):
        return _cached(name)
    if name == "%ntid":
        return _uniform(0) if axis == 3 else _launch(lambda lanes: lanes.wave.machine.block[axis])
    if name in ("%nctaid", "%nclusterid"):
        return _uniform(0) if axis == 3 else _launch(lambda lanes: lanes.wave.machine.grid[axis])
    if name == "%clusterid":
        return _uniform(0) if axis == 3 else _cached("%ctaid", axis)
    if name.startswith("%lanemask_") and name[10:] in LANEMASKS:
        fixed = LANEMASKS[name[10:]]
        return 32, lambda lanes: np.broadcast_to(fixed, (lanes.w, WARP))
    if name.startswith("%envreg") or name.startswith("%pm") or name.startswith("%reserved_smem_offset"):
        return _uniform(0, 64 if name.endswith("_64") else 32)
    return _TABLE.get(name)


def _clock(lanes: Lanes) -> int:
    lanes.wave.machine.timer_read()
    return lanes.wave.machine.steps


def _globaltimer(lanes: Lanes) -> int:
    lanes.wave.machine.timer_read()
    return time.time_ns()


_TABLE: dict[str, tuple[int, Callable[[Lanes], Array]]] = {
    "%nwarpid": _launch(lambda lanes: lanes.wave.machine.chip.threads // WARP),
    "%nsmid": _launch(lambda lanes: lanes.wave.machine.chip.sms),
    "%gridid": _launch(lambda lanes: lanes.wave.machine.grid_id, 64),
    "%cluster_ctaid": _uniform(0),
    "%cluster_nctaid": _uniform(1),
    "%cluster_ctarank": _uniform(0),
    "%cluster_nctarank": _uniform(1),
    "%is_explicit_cluster": (32, lambda lanes: np.array(False)),
    "%clock": _launch(_clock),
    "%clock_hi": _launch(lambda lanes: _clock(lanes) >> 32),
    "%clock64": _launch(_clock, 64),
    "%globaltimer": _launch(_globaltimer, 64),
    "%globaltimer_lo": _launch(_globaltimer),
    "%globaltimer_hi": _launch(lambda lanes: _globaltimer(lanes) >> 32),
    "%dynamic_smem_size": _launch(lambda lanes: lanes.wave.machine.dynamic_smem),
    "%total_smem_size": _launch(lambda lanes: lanes.wave.machine.shared_bytes),
    "%aggr_smem_size": _launch(lambda lanes: lanes.wave.machine.shared_bytes),
}
_TABLE["%is_explicit_cluster"] = (1, lambda lanes: np.array(False))
