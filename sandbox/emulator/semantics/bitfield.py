"""Counting and moving bits: popc, clz, bfind, fns, brev, bfe, bfi, bmsk, szext.

Source: PTX ISA, "Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sandbox.emulator.semantics.types import (
    TYPES,
    Array,
    Lowered,
    Lowering,
    Modifiers,
    bits_of,
    dtype_of,
    quiet,
)

_BITS = frozenset({"b32", "b64"})
_FIELDS = frozenset({"u32", "u64", "s32", "s64"})
_NONE = np.uint32(0xFFFF_FFFF)
_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)[:, ::-1], axis=1)[:, 0]


def _smear(bits: Array) -> Array:
    """Every bit below the highest set bit set as well."""
    one, shift = bits.dtype.type(1), 1
    while shift < bits.dtype.itemsize * 8:
        bits = np.bitwise_or(bits, np.right_shift(bits, one * bits.dtype.type(shift)))
        shift *= 2
    return bits


def length(bits: Array) -> Array:
    """Position of the highest set bit plus one, 0 for none; uint32."""
    return np.bitwise_count(_smear(bits)).astype(np.uint32)


def low_ones(count: Array, dtype: np.dtype[Any]) -> Array:
    """A value with `count` low bits set; all of them from the width on."""
    width = dtype.itemsize * 8
    full, one = np.invert(dtype.type(0)), dtype.type(1)
    partial = np.left_shift(one, (count & np.uint32(width - 1)).astype(dtype)) - one
    return np.where(count >= width, full, partial)


def shift_left(values: Array, count: Array) -> Array:
    """Unsigned shift with zero from the width on."""
    width = values.dtype.itemsize * 8
    moved = np.left_shift(values, (count & np.uint32(width - 1)).astype(values.dtype))
    return np.multiply(moved, count < width)


def shift_right(values: Array, count: Array) -> Array:
    """Unsigned shift with zero from the width on."""
    width = values.dtype.itemsize * 8
    moved = np.right_shift(values, (count & np.uint32(width - 1)).astype(values.dtype))
    return np.multiply(moved, count < width)


def _popc(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    return Lowered((name,), ("u32",), lambda a: (np.bitwise_count(a).astype(np.uint32),)) if name else None


def _clz(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    if not name:
        return None
    width = np.uint32(TYPES[name].width)
    return Lowered((name,), ("u32",), lambda a: (np.subtract(width, length(a)),))


def _bfind(modifiers: Modifiers) -> Lowered | None:
    amount, name = modifiers.has("shiftamt"), modifiers.type_in(_FIELDS)
    if not name:
        return None
    width = np.uint32(TYPES[name].width)

    def find(a: Array) -> tuple[Array, ...]:
        value = np.where(a < 0, np.invert(a), a) if a.dtype.kind == "i" else a
        found = length(bits_of(value))
        place = np.subtract(width, found) if amount else np.subtract(found, np.uint32(1))
        return (np.where(found == 0, _NONE, place),)

    return Lowered((name,), ("u32",), quiet(find))


def _fns(modifiers: Modifiers) -> Lowered | None:
    if not modifiers.type_in(frozenset({"b32"})):
        return None

    def nth(mask: Array, base: Array, offset: Array) -> tuple[Array, ...]:
        shape = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
        wanted = np.broadcast_to(np.maximum(np.abs(offset.astype(np.int64)), 1), shape)
        found, seen = np.full(shape, _NONE), np.zeros(shape, np.int64)
        start = base.astype(np.int64)
        for step in range(32):
            place = np.where(offset >= 0, start + step, start - step)
            inside = (place >= 0) & (place < 32) & ((offset != 0) | (step == 0))
            bit = np.right_shift(mask, np.clip(place, 0, 31).astype(np.uint32)) & np.uint32(1)
            hit = inside & (bit == 1)
            seen = seen + hit
            found = np.where(hit & (seen == wanted), place.astype(np.uint32), found)
        return (found,)

    return Lowered(("b32", "b32", "s32"), ("b32",), quiet(nth))


def _brev(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    if not name:
        return None
    size, dtype = TYPES[name].width // 8, dtype_of(name)

    def reverse(a: Array) -> tuple[Array, ...]:
        octets = np.ascontiguousarray(a).reshape((*a.shape, 1)).view(np.uint8)
        return (np.ascontiguousarray(_REVERSED[octets[..., size - 1 :: -1]]).view(dtype)[..., 0],)

    return Lowered((name,), (name,), reverse)


def _bfe(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_FIELDS)
    if not name:
        return None
    width, dtype = TYPES[name].width, dtype_of(name)
    unsigned, signed = np.dtype(f"uint{width}"), TYPES[name].kind == "signed"

    def extract(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        bits, start, size = bits_of(a), b & np.uint32(255), c & np.uint32(255)
        valid = np.minimum(size, np.where(start < width, np.uint32(width) - start, np.uint32(0)))
        ones = low_ones(valid, unsigned)
        field = shift_right(bits, start) & ones
        if signed:
            top = np.minimum(start + size - np.uint32(1), np.uint32(width - 1)) & np.uint32(width - 1)
            set_ = (np.right_shift(bits, top.astype(unsigned)) & unsigned.type(1)).astype(bool) & (size != 0)
            field = np.where(set_, field | ~ones, field)
        return (np.asarray(field).view(dtype),)

    return Lowered((name, "u32", "u32"), (name,), quiet(extract))


def _bfi(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    if not name:
        return None
    dtype = dtype_of(name)

    def insert(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
        start, size = c & np.uint32(255), d & np.uint32(255)
        mask = shift_left(low_ones(size, dtype), start)
        return ((b & ~mask) | (shift_left(a, start) & mask),)

    return Lowered((name, name, "u32", "u32"), (name,), quiet(insert))


def _bmsk(modifiers: Modifiers) -> Lowered | None:
    mode = modifiers.one_of("clamp", "wrap")
    if not modifiers.type_in(frozenset({"b32"})) or not mode:
        return None
    five, word = np.uint32(31), np.dtype(np.uint32)

    def mask(a: Array, b: Array) -> tuple[Array, ...]:
        start, size = (a, b) if mode == "clamp" else (a & five, b & five)
        return (shift_left(low_ones(np.minimum(size, np.uint32(32)), word), start),)

    return Lowered(("u32", "u32"), ("b32",), quiet(mask))


def _szext(modifiers: Modifiers) -> Lowered | None:
    mode, name = modifiers.one_of("clamp", "wrap"), modifiers.type_in(frozenset({"u32", "s32"}))
    if not name or not mode:
        return None
    word, signed = np.dtype(np.uint32), name == "s32"

    def extend(a: Array, b: Array) -> tuple[Array, ...]:
        bits, size = bits_of(a), b if mode == "clamp" else b & np.uint32(31)
        ones = low_ones(np.minimum(size, np.uint32(32)), word)
        value = bits & ones
        if signed:
            top = (size - np.uint32(1)) & np.uint32(31)
            set_ = (np.right_shift(bits, top) & np.uint32(1)).astype(bool) & (size != 0) & (size < 32)
            value = np.where(set_, value | ~ones, value)
        return (np.asarray(value).view(a.dtype),)

    return Lowered((name, "u32"), (name,), quiet(extend))


LOWERINGS: Mapping[str, Lowering] = {
    "popc": _popc,
    "clz": _clz,
    "bfind": _bfind,
    "fns": _fns,
    "brev": _brev,
    "bfe": _bfe,
    "bfi": _bfi,
    "bmsk": _bmsk,
    "szext": _szext,
}
