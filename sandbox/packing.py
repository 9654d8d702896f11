"""Numbers as kernel parameters: the same bytes for every device."""

from __future__ import annotations

import numpy as np

FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def scalar(value: float, type_name: str) -> bytes:
    """A number as a parameter of a PTX type without dot; integers wrap, floats are rounded to nearest even."""
    if type_name in FLOATS:
        with np.errstate(over="ignore"):
            return np.array(value, np.float64).astype(FLOATS[type_name]).tobytes()
    if type_name == "bf16":
        with np.errstate(over="ignore"):
            bits = int(np.array(value, np.float32).view(np.uint32))
        rounded = bits + 0x7FFF + (bits >> 16 & 1) if value == value else 0x7FFF0000
        return (rounded >> 16 & 0xFFFF).to_bytes(2, "little")
    width = int(type_name[1:])
    return (int(value) & ((1 << width) - 1)).to_bytes(width // 8, "little")
