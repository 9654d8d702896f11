"""Kernel parameters as the bytes of the param space."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sandbox.emulator.decode import Code
from sandbox.emulator.memory import ROW, Region
from sandbox.emulator.semantics.types import TYPES
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


def scalar(value: float, type_name: str) -> bytes:
    """A number as a parameter of a type; integers wrap, floats are rounded to nearest even."""
    kind = TYPES[type_name]
    if kind.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(value, np.float64).astype(kind.dtype).tobytes()
    if type_name == "bf16":
        with np.errstate(over="ignore"):
            bits = int(np.array(value, np.float32).view(np.uint32))
        rounded = bits + 0x7FFF + (bits >> 16 & 1) if value == value else 0x7FFF0000
        return (rounded >> 16 & 0xFFFF).to_bytes(2, "little")
    return (int(value) & ((1 << kind.width) - 1)).to_bytes(kind.width // 8, "little")
