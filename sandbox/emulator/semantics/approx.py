"""Approximate functions: div.approx, div.full, and .approx of rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh.

Each is computed in double and rounded once, so its error is at most half a unit (a little over for the
functions of the host's mathematical library): within what the ISA allows, and usually nearer the truth than
hardware. Special values follow the ISA's tables.

Source: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions": the
sections of these opcodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.semantics.floating import finish
from sandbox.emulator.semantics.half import computed
from sandbox.emulator.semantics.types import Array, Lowered, Lowering, Modifiers, bits_of

Elementwise = Callable[..., Array]
_UPPER = np.uint64(0xFFFF_FFFF_0000_0000)
_NAN = np.array(0x7FFF_FFFF_0000_0000, np.uint64).view(np.float64)


def _wide(function: Callable[[Array], Array]) -> Elementwise:
    """An f32 function computed in double."""
    return lambda a: np.asarray(function(np.asarray(a, np.float64))).astype(np.float32)


def _reciprocal_root(a: Array) -> Array:
    return np.divide(1.0, np.sqrt(a))


def _upper_word(function: Callable[[Array], Array]) -> Elementwise:
    """An f64 function on upper words: those below are ignored in the source and zero in the result;
    `.ftz`."""
    tiny = np.finfo(np.float64).tiny

    def elementwise(a: Array) -> Array:
        source = (bits_of(a) & _UPPER).view(np.float64)
        source = np.where(np.abs(source) < tiny, np.copysign(0.0, source), source)
        result = np.asarray(function(source))
        kept = (bits_of(result) & _UPPER).view(np.float64)
        kept = np.where(np.abs(kept) < tiny, np.copysign(0.0, kept), kept)
        return np.where(np.isnan(a) | np.isnan(result), _NAN, kept)

    return elementwise


def _divide_full(a: Array, b: Array) -> Array:
    return np.divide(a, b)


def _divide_approximately(a: Array, b: Array) -> Array:
    """a × (1 ÷ b): beyond 2**126 the reciprocal is lost, so a finite a gives zero and an infinite one NaN."""
    lost = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    quotient = np.divide(a, b)
    if not lost.any():
        return quotient
    zero = np.where(np.signbit(a) != np.signbit(b), np.float32(-0.0), np.float32(0))
    return np.where(lost & ~np.isnan(a), np.where(np.isinf(a), np.float32(np.nan), zero), quotient)


def _div(modifiers: Modifiers) -> Lowered | None:
    kind, ftz = modifiers.one_of("approx", "full"), modifiers.has("ftz")
    if not kind or not modifiers.type_in(frozenset({"f32"})):
        return None
    fn = finish(_divide_full if kind == "full" else _divide_approximately, "f32", ftz=ftz)
    return Lowered(("f32", "f32"), ("f32",), fn)


def _unary(function: Callable[[Array], Array], *, double: bool = False, half: bool = False) -> Lowering:
    """`.approx{.ftz}.f32`; with `double` also f64, and with `half` also the 16-bit types."""

    def lowering(modifiers: Modifiers) -> Lowered | None:
        if not modifiers.has("approx"):
            return None
        ftz, types = modifiers.has("ftz"), modifiers.types()
        if types == ("f32",):
            return Lowered(("f32",), ("f32",), finish(_wide(function), "f32", ftz=ftz))
        if double and types == ("f64",):
            return Lowered(("f64",), ("f64",), finish(_upper_word(function) if ftz else function, "f64"))
        if half and len(types) == 1 and types[0] in ("f16", "f16x2", "bf16", "bf16x2"):
            return Lowered(
                types, types, computed(lambda a: function(a.astype(np.float64)), types[0], ftz=ftz)
            )
        return None

    return lowering


LOWERINGS: Mapping[str, Lowering] = {
    "div": _div,
    "rcp": _unary(lambda a: np.divide(1.0, a), double=True),
    "sqrt": _unary(np.sqrt),
    "rsqrt": _unary(_reciprocal_root, double=True),
    "sin": _unary(np.sin),
    "cos": _unary(np.cos),
    "lg2": _unary(np.log2),
    "ex2": _unary(np.exp2, half=True),
    "tanh": _unary(np.tanh, half=True),
}
