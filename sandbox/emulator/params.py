"""Kernel parameters as the bytes of the param space."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sandbox.emulator.decode import Code
from sandbox.emulator.memory import ROW, Region
from sandbox.packing import scalar
from sandbox.ptx.binding import BoundLaunch, PointerArg, ScalarArg
from tasks.errors import CannotJudge


def pack(launch: BoundLaunch, code: Code, regions: Mapping[str, Region]) -> npt.NDArray[np.uint8]:
    """The param space of a launch, uint8, rounded up to whole `ROW` bytes."""
    data = np.zeros(max(ROW, -(-code.spaces.param_bytes // ROW) * ROW), np.uint8)
    for argument in launch.args:
        if isinstance(argument, PointerArg):
            raw = regions[argument.buffer].base.to_bytes(8, "little")
        elif isinstance(argument, ScalarArg):
            raw = scalar(argument.value, argument.type)
        else:
            raise CannotJudge(
                f"launch of {launch.entry}: the emulator does not make tensor maps yet, and a parameter is "
                "one"
            )
        data[argument.offset : argument.offset + len(raw)] = np.frombuffer(raw, np.uint8)
    return data
