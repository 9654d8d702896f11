"""Special registers: what a thread may ask about itself and the machine. Their names and types are those of
`sandbox.ptx.symbols`; one that says nothing of this machine reads as zero.

Values that are the same for all threads of a launch are 0-d arrays; the others [W, 32]. Clocks count
instructions that the machine has executed, so they only ever grow; `%globaltimer` is real time in
nanoseconds.

Source: PTX ISA, "Special Registers".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from sandbox.emulator.chip import WARP
from sandbox.emulator.lanes import WIDTHS, Array, Lanes
from sandbox.emulator.names import COMPONENTS
from sandbox.emulator.semantics.types import TYPES
from sandbox.ptx.nodes import Name
from sandbox.ptx.symbols import SPECIAL_REGISTERS

Get: TypeAlias = Callable[[Lanes, int], "int | Array"]
"""From lanes and axis (0 for registers without) to one value for all or an array [W, 32]."""

_LANE = np.arange(WARP, dtype=np.uint64)


def _own(name: str) -> Get:
    return lambda lanes, axis: lanes.part(lanes.wave.own(name, axis))


def _lanemask(bits: Array) -> Get:
    fixed = bits.astype(np.uint32)
    return lambda lanes, axis: np.broadcast_to(fixed, (lanes.w, WARP))


def _clock(lanes: Lanes, axis: int) -> int:
    lanes.wave.machine.timer_read()
    return lanes.wave.machine.steps


def _globaltimer(lanes: Lanes, axis: int) -> int:
    lanes.wave.machine.timer_read()
    return time.time_ns()


def _high(get: Callable[[Lanes, int], int]) -> Get:
    return lambda lanes, axis: get(lanes, axis) >> 32


VALUES: Mapping[str, Get] = {
    "%tid": _own("%tid"),
    "%ctaid": _own("%ctaid"),
    "%clusterid": _own("%ctaid"),
    "%laneid": _own("%laneid"),
    "%warpid": _own("%warpid"),
    "%smid": _own("%smid"),
    "%ntid": lambda lanes, axis: lanes.wave.machine.block[axis],
    "%nctaid": lambda lanes, axis: lanes.wave.machine.grid[axis],
    "%nclusterid": lambda lanes, axis: lanes.wave.machine.grid[axis],
    "%cluster_nctaid": lambda lanes, axis: 1,
    "%cluster_nctarank": lambda lanes, axis: 1,
    "%nwarpid": lambda lanes, axis: lanes.wave.machine.chip.threads // WARP,
    "%nsmid": lambda lanes, axis: lanes.wave.machine.chip.sms,
    "%gridid": lambda lanes, axis: lanes.wave.machine.grid_id,
    "%lanemask_eq": _lanemask(1 << _LANE),
    "%lanemask_lt": _lanemask((1 << _LANE) - 1),
    "%lanemask_le": _lanemask((2 << _LANE) - 1),
    "%lanemask_gt": _lanemask(~((2 << _LANE) - 1)),
    "%lanemask_ge": _lanemask(~((1 << _LANE) - 1)),
    "%clock": _clock,
    "%clock_hi": _high(_clock),
    "%clock64": _clock,
    "%globaltimer": _globaltimer,
    "%globaltimer_lo": _globaltimer,
    "%globaltimer_hi": _high(_globaltimer),
    "%dynamic_smem_size": lambda lanes, axis: lanes.wave.machine.dynamic_smem,
    "%total_smem_size": lambda lanes, axis: lanes.wave.machine.shared_bytes,
    "%aggr_smem_size": lambda lanes, axis: lanes.wave.machine.shared_bytes,
}


def reader(operand: Name) -> tuple[int, Callable[[Lanes], Array]] | None:
    """(bits, closure) of a special register; None when the name is not one."""
    kind = SPECIAL_REGISTERS.get(operand.text)
    if kind is None:
        return None
    bits = TYPES[kind.rpartition(".")[2]].width
    get = VALUES.get(operand.text)
    axis = COMPONENTS.index(operand.component) if operand.component else 0
    if get is None or axis == 3:  # the fourth element of a vector is always zero
        zero = np.zeros((), WIDTHS[bits])
        return bits, lambda lanes: zero

    def read(lanes: Lanes) -> Array:
        value = get(lanes, axis)
        return np.array(value & ((1 << bits) - 1), WIDTHS[bits]) if isinstance(value, int) else value

    return bits, read
