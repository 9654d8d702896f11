"""The narrow floating-point formats: how their codes read as numbers, and how numbers are rounded to codes.

Invariants
- `widen` is exact. `narrow` rounds once, from an f32 or from a double that is exact or rounded to odd.
- A NaN becomes the format's canonical NaN; formats without NaN take it as their largest value.

Source: PTX ISA, "Alternate Floating-Point Data Formats", "cvt"; IEEE 754 binary16; OCP 8-bit Floating Point
and MX formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sandbox.emulator.semantics import rounding
from sandbox.emulator.semantics.types import Array


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format with a sign bit, `exponent_bits` and `fraction_bits`."""

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    largest: float
    """Largest finite value."""
    infinite: bool
    """Whether the format has infinities."""
    nan: int | None
    """Code of the canonical NaN; None when the format has no NaN."""
    carrier: np.dtype[np.unsignedinteger]
    """Unsigned dtype that holds the code."""
    shift: int = 0
    """Zero bits below the code in its carrier: 13 for tf32, which sits in the upper bits of an f32."""

    @property
    def sign(self) -> int:
        """The bit of the sign within the code."""
        return 1 << (self.exponent_bits + self.fraction_bits)


def _formats() -> dict[str, Format]:
    u8, u16, u32 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32)
    largest32 = (2 - 2.0**-7) * 2.0**127
    rows = (
        Format("f16", 5, 10, 15, 65504.0, True, 0x7FFF, u16),
        Format("bf16", 8, 7, 127, largest32, True, 0x7FFF, u16),
        Format("tf32", 8, 10, 127, (2 - 2.0**-10) * 2.0**127, True, 0x3FFFF, u32, 13),
        Format("e4m3", 4, 3, 7, 448.0, False, 0x7F, u8),
        Format("e5m2", 5, 2, 15, 57344.0, True, 0x7F, u8),
        Format("e2m3", 2, 3, 1, 7.5, False, None, u8),
        Format("e3m2", 3, 2, 3, 28.0, False, None, u8),
        Format("e2m1", 2, 1, 1, 6.0, False, None, u8),
    )
    return {row.name: row for row in rows}


FORMATS: Mapping[str, Format] = _formats()
"""Every format narrower than f32, by PTX name."""


def encode(values: Array, form: Format) -> Array:
    """Codes of doubles that lie on the format's grid and within its finite range."""
    size = np.abs(values)
    exponent = np.maximum(np.frexp(size)[1] - 1, 1 - form.bias)
    steps = np.ldexp(size, form.fraction_bits - exponent).astype(np.int64)
    code = ((exponent.astype(np.int64) + (form.bias - 1)) << form.fraction_bits) + steps
    code = np.where(size == 0, 0, code)
    return np.where(np.signbit(values), code | form.sign, code)


def narrow(
    values: Array, form: Format, direction: str, *, satfinite: bool = False, relu: bool = False
) -> Array:
    """Codes of `values` rounded in `direction`; beyond the finite range as that direction says, or clamped
    with `satfinite`."""
    wide = np.asarray(values, np.float64)
    if relu:
        wide = np.where(wide < 0, 0.0, np.where(wide == 0, np.abs(wide), wide))
    grid = rounding.quantize(wide, form.fraction_bits + 1, 1 - form.bias, direction)
    nan, size = np.isnan(grid), np.abs(grid)
    over = size > form.largest
    code = encode(np.where(over | nan, np.copysign(form.largest, grid), grid), form)
    if np.any(over) and not satfinite:
        special = ((1 << form.exponent_bits) - 1) << form.fraction_bits if form.infinite else form.nan
        kept = np.zeros((), bool)
        if direction == "rz":
            kept = np.isfinite(wide)
        elif direction in ("rm", "rp"):
            kept = np.isfinite(wide) & (np.signbit(wide) == (direction == "rp"))
        if special is not None:
            code = np.where(over & ~kept, special | np.where(np.signbit(wide), form.sign, 0), code)
    if np.any(nan):
        code = np.where(nan, encode(np.array(form.largest), form) if form.nan is None else form.nan, code)

    return np.left_shift(code, form.shift).astype(form.carrier)


def _decode_all(form: Format) -> Array:
    """Value of every code of a format of 8 bits or fewer, as f32."""
    codes = np.arange(256)
    mask = (1 << form.exponent_bits) - 1
    exponent, fraction = codes >> form.fraction_bits & mask, codes & ((1 << form.fraction_bits) - 1)
    normal = exponent > 0
    steps = np.where(normal, fraction + (1 << form.fraction_bits), fraction)
    values = np.ldexp(
        steps.astype(np.float64), np.where(normal, exponent, 1) - form.bias - form.fraction_bits
    )
    if form.infinite:
        values = np.where(exponent == mask, np.where(fraction == 0, np.inf, np.nan), values)
    elif form.nan is not None:
        values = np.where(codes & 0x7F == form.nan, np.nan, values)
    return np.where(codes & form.sign, -values, values).astype(np.float32)


_DECODED: Mapping[str, Array] = {
    name: _decode_all(form) for name, form in FORMATS.items() if form.carrier.itemsize == 1
}


def decode(codes: Array, name: str) -> Array:
    """Values of codes of an 8-bit-or-narrower format, as f32; bits above the format are ignored."""
    return _DECODED[name][codes]


def narrow_tf32(values: Array, direction: str, satfinite: bool = False) -> Array:
    """f32 to tf32 to nearest (ties even with rn, away with rna) or to zero.

    rn and rz make a NaN canonical. rna cuts it like any bits, and its `satfinite` takes one step off
    whatever has the largest exponent, a NaN too: so does an H200.
    """
    bits, kept = np.asarray(values).view(np.uint32), np.uint32(0xFFFF_E000)
    nan = np.isnan(values)
    if direction == "rna":
        code = np.where(nan, bits, bits + np.uint32(0x1000)) & kept
        return (
            code - np.multiply(np.uint32(0x2000), code & np.uint32(0x7F80_0000) == 0x7F80_0000)
            if satfinite
            else code
        )
    if direction == "rn":
        bits = bits + (np.uint32(0xFFF) + (np.right_shift(bits, np.uint32(13)) & np.uint32(1)))
    return np.where(nan, np.uint32(0x7FFF_E000), bits & kept) if nan.any() else bits & kept


NAN16 = np.array(0x7FFF, np.uint16)
"""The canonical NaN of f16 and of bf16."""


def widen_half(values: Array) -> Array:
    """f16 to f32."""
    return np.asarray(values).astype(np.float32)


def narrow_half(values: Array) -> Array:
    """f32, or a double that is exact or rounded to odd, to f16, to nearest even, NaN canonical."""
    values = np.asarray(values)
    result = (rounding.to_single_odd(values) if values.dtype == np.float64 else values).astype(np.float16)
    nan = np.isnan(result)
    return np.where(nan, NAN16.view(np.float16), result) if nan.any() else result


def widen_brain(codes: Array) -> Array:
    """bf16 codes to f32."""
    return np.left_shift(np.asarray(codes).astype(np.uint32), np.uint32(16)).view(np.float32)


def narrow_brain(values: Array) -> Array:
    """f32, or a double that is exact or rounded to odd, to bf16 codes, to nearest even, NaN canonical."""
    values = np.asarray(values)
    if values.dtype != np.float32:
        values = rounding.to_single_odd(values)
    bits = values.view(np.uint32)
    odd = np.right_shift(bits, np.uint32(16)) & np.uint32(1)
    code = np.right_shift(bits + (np.uint32(0x7FFF) + odd), np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    return np.where(nan, NAN16, code) if nan.any() else code


@dataclass(frozen=True, slots=True)
class Half:
    """A 16-bit format for arithmetic."""

    widen: Callable[[Array], Array]
    """To f32, exactly."""
    narrow: Callable[[Array], Array]
    """From f32 or double to nearest even, NaN canonical."""
    tiny: np.float32
    """Smallest normal value."""
    one: Array
    """1.0 in the format."""


HALVES: Mapping[str, Half] = {
    "f16": Half(widen_half, narrow_half, np.float32(2.0**-14), np.array(1, np.float16)),
    "bf16": Half(widen_brain, narrow_brain, rounding.TINY32, np.array(0x3F80, np.uint16)),
}
"""The two 16-bit formats by PTX name."""
