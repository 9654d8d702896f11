"""Integer arithmetic: add, sub, mul, mad, mul24, mad24, sad, div, rem, abs, neg, min, max, dp4a, dp2a.

Chosen where the ISA leaves it open: division by zero gives all ones, and so does the remainder.

Source: PTX ISA, "Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sandbox.emulator.semantics.types import (
    INTEGERS,
    TYPES,
    Array,
    Function,
    Lowered,
    Lowering,
    Modifiers,
    dtype_of,
    join,
    quiet,
    select,
    split,
)

_PACKED = frozenset({"u16x2", "s16x2"})
_SIGNED = frozenset({"s16", "s32", "s64"})
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_MASK32 = np.uint64(0xFFFF_FFFF)


def saturate(values: Array, dtype: np.dtype[Any]) -> Array:
    """`values` clamped to the range of the narrower integer `dtype`."""
    info = np.iinfo(dtype)
    return np.clip(values, info.min, info.max).astype(dtype)


def magnitude(values: Array) -> Array:
    """|values| as unsigned, right for the most negative number too."""
    unsigned = np.dtype(f"uint{values.dtype.itemsize * 8}")
    return np.abs(values).view(unsigned) if values.dtype.kind == "i" else values


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the double-width product, in the type of the sources."""
    if a.dtype.itemsize < 8:
        bits = a.dtype.itemsize * 8
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        product = np.multiply(a, b, dtype=wide)
        return np.right_shift(product, wide.type(bits)).astype(a.dtype)
    ua, ub = np.asarray(a).view(np.uint64), np.asarray(b).view(np.uint64)
    shift = np.uint64(32)
    a0, a1, b0, b1 = ua & _MASK32, ua >> shift, ub & _MASK32, ub >> shift
    low = a0 * b0
    middle = a1 * b0 + (low >> shift)
    other = a0 * b1 + (middle & _MASK32)
    high = a1 * b1 + (middle >> shift) + (other >> shift)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return np.asarray(high).view(a.dtype)


def multiply(kind: str, a: Array, b: Array) -> Array:
    """The product: `lo` and `hi` in the type of the sources, `wide` in the type twice as wide."""
    if kind == "lo":
        return np.multiply(a, b)
    if kind == "hi":
        return multiply_high(a, b)
    return np.multiply(a, b, dtype=np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}"))


def _divide(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient rounded to zero and remainder with the sign of the dividend."""
    ua, ub = magnitude(a), magnitude(b)
    quotient, remainder = np.floor_divide(ua, ub), np.remainder(ua, ub)
    if a.dtype.kind == "i":
        quotient, remainder = np.asarray(quotient).view(a.dtype), np.asarray(remainder).view(a.dtype)
        quotient = select((a < 0) != (b < 0), np.negative(quotient), quotient)
        remainder = select(a < 0, np.negative(remainder), remainder)
    zero = np.equal(b, 0)
    if np.any(zero):
        ones = np.invert(np.zeros((), a.dtype))
        quotient, remainder = np.where(zero, ones, quotient), np.where(zero, ones, remainder)
    return quotient, remainder


def _lift(elementwise: Callable[..., Array], name: str) -> Function:
    """`elementwise` on the 16-bit halves of a packed register."""
    whole, half = dtype_of(name), dtype_of(TYPES[name].element)

    def packed(*arrays: Array) -> tuple[Array, ...]:
        return (join(elementwise(*(split(array, half) for array in arrays)), whole),)

    return packed


def _same(elementwise: Callable[..., Array], name: str, sources: int) -> Lowered:
    """A lowering whose sources and result all have type `name`."""
    if name in _PACKED:
        return Lowered((name,) * sources, (name,), _lift(elementwise, name))
    return Lowered((name,) * sources, (name,), lambda *arrays: (elementwise(*arrays),))


def _add_saturated(a: Array, b: Array) -> Array:
    return saturate(np.add(a, b, dtype=np.int64), a.dtype)


def _subtract_saturated(a: Array, b: Array) -> Array:
    return saturate(np.subtract(a, b, dtype=np.int64), a.dtype)


def _additive(plain: Callable[..., Array], saturated: Callable[..., Array]) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        sat = modifiers.has("sat")
        name = modifiers.type_in(INTEGERS | _PACKED)
        if not name or (sat and TYPES[name].width == 64):
            return None
        return _same(saturated if sat else plain, name, 2)

    return lowering


def _mul(modifiers: Modifiers) -> Lowered | None:
    kind = modifiers.one_of("lo", "hi", "wide")
    name = modifiers.type_in(INTEGERS)
    if not name or not kind or (kind == "wide" and name not in _WIDER):
        return None
    result = _WIDER[name] if kind == "wide" else name
    if kind == "lo":
        return Lowered((name, name), (name,), lambda a, b: (np.multiply(a, b),))
    return Lowered((name, name), (result,), quiet(lambda a, b: (multiply(kind, a, b),)))


def _mad(modifiers: Modifiers) -> Lowered | None:
    kind, sat = modifiers.one_of("lo", "hi", "wide"), modifiers.has("sat")
    name = modifiers.type_in(INTEGERS)
    if (
        not name
        or not kind
        or (kind == "wide" and name not in _WIDER)
        or (sat and (kind, name) != ("hi", "s32"))
    ):
        return None
    result = _WIDER[name] if kind == "wide" else name
    sources = (name, name, result)
    if sat:
        return Lowered(sources, (result,), lambda a, b, c: (_add_saturated(multiply_high(a, b), c),))
    if kind == "lo":
        return Lowered(sources, (result,), lambda a, b, c: (np.add(np.multiply(a, b), c),))
    return Lowered(sources, (result,), quiet(lambda a, b, c: (np.add(multiply(kind, a, b), c),)))


def _product24(kind: str, a: Array, b: Array) -> Array:
    """Bits 0..31 (`lo`) or 16..47 (`hi`) of the product of the low 24 bits."""
    wide = np.dtype(np.int64) if a.dtype.kind == "i" else np.dtype(np.uint64)
    forty = wide.type(40)
    a24 = np.right_shift(np.left_shift(a.astype(wide), forty), forty)
    b24 = np.right_shift(np.left_shift(b.astype(wide), forty), forty)
    product = np.multiply(a24, b24)
    return (product if kind == "lo" else np.right_shift(product, wide.type(16))).astype(a.dtype)


def _mul24(modifiers: Modifiers) -> Lowered | None:
    kind, name = modifiers.one_of("lo", "hi"), modifiers.type_in(frozenset({"u32", "s32"}))
    if not name or not kind:
        return None
    return Lowered((name, name), (name,), lambda a, b: (_product24(kind, a, b),))


def _mad24(modifiers: Modifiers) -> Lowered | None:
    kind, sat = modifiers.one_of("lo", "hi"), modifiers.has("sat")
    name = modifiers.type_in(frozenset({"u32", "s32"}))
    if not name or not kind or (sat and (kind, name) != ("hi", "s32")):
        return None
    plus = _add_saturated if sat else np.add
    return Lowered((name,) * 3, (name,), lambda a, b, c: (plus(_product24(kind, a, b), c),))


def _absolute_difference(a: Array, b: Array) -> Array:
    return np.subtract(np.maximum(a, b), np.minimum(a, b))


def _relu(values: Array) -> Array:
    return np.maximum(values, values.dtype.type(0))


def _extreme(pick: Callable[..., Array]) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        relu = modifiers.has("relu")
        name = modifiers.type_in(INTEGERS | _PACKED)
        if not name or (relu and name not in ("s32", "s16x2")):
            return None
        return _same((lambda a, b: _relu(pick(a, b))) if relu else pick, name, 2)

    return lowering


def _simple(elementwise: Callable[..., Array], sources: int, allowed: frozenset[str]) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        name = modifiers.type_in(allowed)
        if not name:
            return None
        return Lowered((name,) * sources, (name,), quiet(lambda *arrays: (elementwise(*arrays),)))

    return lowering


def _dot(lanes: int) -> Lowering:
    """dp4a (four bytes by four bytes) and dp2a (two halves by the lower or upper two bytes)."""

    def lowering(modifiers: Modifiers) -> Lowered | None:
        half = modifiers.one_of("lo", "hi") if lanes == 2 else "lo"
        types = modifiers.types()
        if len(types) != 2 or not half or not set(types) <= {"u32", "s32"}:
            return None
        first = np.dtype(f"{types[0][0].replace('s', 'i')}{4 // lanes}")
        second = np.dtype(f"{types[1][0].replace('s', 'i')}1")
        part = slice(0, lanes) if half == "lo" else slice(2, 4)
        result = "u32" if types == ("u32", "u32") else "s32"

        def dot(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
            products = split(a, first).astype(np.int64) * split(b, second)[..., part]
            return (np.add(products.sum(axis=-1).astype(c.dtype), c),)

        return Lowered((*types, result), (result,), dot)

    return lowering


LOWERINGS: Mapping[str, Lowering] = {
    "add": _additive(np.add, _add_saturated),
    "sub": _additive(np.subtract, _subtract_saturated),
    "mul": _mul,
    "mad": _mad,
    "mul24": _mul24,
    "mad24": _mad24,
    "sad": _simple(lambda a, b, c: np.add(c, _absolute_difference(a, b)), 3, INTEGERS),
    "div": _simple(lambda a, b: _divide(a, b)[0], 2, INTEGERS),
    "rem": _simple(lambda a, b: _divide(a, b)[1], 2, INTEGERS),
    "abs": _simple(np.abs, 1, _SIGNED),
    "neg": _simple(np.negative, 1, _SIGNED),
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
    "dp4a": _dot(4),
    "dp2a": _dot(2),
}
