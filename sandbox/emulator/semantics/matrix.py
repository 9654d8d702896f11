"""mma.sync: the matrix product of a warp, D = A × B + C.

Fragments. Lane l has g = l // 4 and t = l % 4. Register r of A holds E = 32 // width elements of row g +
8·(r % 2) (of row g when M is 8), from column E·t + 4·E·(r // 2) on (with M = 8: 4·E·r); register r of B
holds elements of column g from row E·t + 4·E·r on. C and D hold pairs: elements 2i and 2i + 1 are columns
2t and 2t + 1 of row g + 8·i. For f64 a register is one element (E = 1).

Arithmetic. Products are exact; `accumulate` says how their sum is rounded. Integer results wrap, or clamp
with `.satfinite`.

Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions: mma", "Matrix Fragments for mma".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.semantics.accumulate import SUMS
from sandbox.emulator.semantics.floating import canonical
from sandbox.emulator.semantics.formats import decode, narrow_half, widen_brain
from sandbox.emulator.semantics.rounding import to_single
from sandbox.emulator.semantics.types import Array, Lowered, Lowering, Modifiers, quiet, split

Decode = Callable[[Array], Array]
Place = Callable[[int, int], tuple[int, int]]

_U16, _U8, _I8 = np.dtype(np.uint16), np.dtype(np.uint8), np.dtype(np.int8)
_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)
_TF32 = np.uint32(0xFFFF_E000)


def _nibbles(packed: Array, signed: bool) -> Array:
    octets = split(packed, _U8)
    both = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1).reshape((*packed.shape, 8))
    return np.where(both > 7, both.astype(np.int16) - 16, both) if signed else both


_DECODE: Mapping[str, tuple[int, Decode]] = {
    "f16": (2, lambda packed: split(packed, _F16).astype(_F32)),
    "bf16": (2, lambda packed: widen_brain(split(packed, _U16))),
    "tf32": (1, lambda bits: (bits & _TF32).view(_F32)[..., None]),
    "e4m3": (4, lambda packed: decode(split(packed, _U8), "e4m3")),
    "e5m2": (4, lambda packed: decode(split(packed, _U8), "e5m2")),
    "s8": (4, lambda packed: split(packed, _I8)),
    "u8": (4, lambda packed: split(packed, _U8)),
    "s4": (8, lambda packed: _nibbles(packed, signed=True)),
    "u4": (8, lambda packed: _nibbles(packed, signed=False)),
    "f64": (1, lambda values: values[..., None]),
}
"""Elements a register, and a register's elements on a new last axis, by operand type."""

_REGISTER = {"f16": "f16x2", "bf16": "bf16x2", "tf32": "b32", "f64": "f64"}

_SHAPES: Mapping[str, frozenset[str]] = {
    "f16": frozenset({"m16n8k8", "m16n8k16"}),
    "bf16": frozenset({"m16n8k8", "m16n8k16"}),
    "tf32": frozenset({"m16n8k4", "m16n8k8"}),
    "f64": frozenset({"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"}),
    "int8": frozenset({"m8n8k16", "m16n8k16", "m16n8k32"}),
    "int4": frozenset({"m8n8k32", "m16n8k32", "m16n8k64"}),
    "fp8": frozenset({"m16n8k16", "m16n8k32"}),
}
_FAMILY = {"s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4", "e4m3": "fp8", "e5m2": "fp8"}
_ACCUMULATORS: Mapping[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
    "int8": ("s32",), "int4": ("s32",), "fp8": ("f32", "f16"),
}  # fmt: skip


def gather_map(rows: int, columns: int, elements: int, place: Place) -> Array:
    """Where in a warp's [32 × elements] fragment each matrix element stands, flat, row by row."""
    index = np.full((rows, columns), -1, np.int64)
    for lane in range(32):
        for element in range(elements):
            index[place(lane, element)] = lane * elements + element
    if (index < 0).any():
        raise AssertionError("a fragment that does not cover its matrix")
    return index.reshape(-1)


def _places(m: int, per: int) -> tuple[Place, Place, Place]:
    """Matrix coordinates of an element of A, B and C by lane and element, for `per` elements a register."""

    def a(lane: int, element: int) -> tuple[int, int]:
        register, inner = divmod(element, per)
        half, step = (register % 2, register // 2) if m == 16 else (0, register)
        return lane // 4 + 8 * half, per * (lane % 4) + inner + 4 * per * step

    def b(lane: int, element: int) -> tuple[int, int]:
        register, inner = divmod(element, per)
        return per * (lane % 4) + inner + 4 * per * register, lane // 4

    def c(lane: int, element: int) -> tuple[int, int]:
        return lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2

    return a, b, c


def _stack(registers: tuple[Array, ...], active: Array) -> Array:
    """Registers of one operand as [W, 32, registers]."""
    whole = np.empty((*active.shape, len(registers)), registers[0].dtype)
    for place, register in enumerate(registers):
        whole[..., place] = register
    return whole


def _unpack_types(modifiers: Modifiers) -> tuple[str, ...]:
    known = {*_DECODE, "f32", "s32"}
    types = tuple(part for part in modifiers.left if part in known)
    modifiers.left = [part for part in modifiers.left if part not in known]
    return types


def _mma(modifiers: Modifiers) -> Lowered | None:
    wanted = ("sync", "aligned", "row", "col")
    shape = next((part for part in modifiers.left if re.fullmatch(r"m\d+n\d+k\d+", part)), "")
    if not shape or not all(modifiers.has(part) for part in (*wanted, shape)):
        return None
    satfinite, _ = modifiers.has("satfinite"), modifiers.has("rn")
    types = _unpack_types(modifiers)
    if len(types) != 4:
        return None
    result, a_type, b_type, c_type = types
    family = _FAMILY.get(a_type, a_type)
    if (
        family != _FAMILY.get(b_type, b_type)
        or shape not in _SHAPES.get(family, ())
        or c_type not in _ACCUMULATORS[family]
    ):
        return None
    if (
        (result != c_type and a_type != "f16")
        or result not in _ACCUMULATORS[family]
        or (satfinite and not family.startswith("int"))
    ):
        return None
    m, n, k = (int(size) for size in re.findall(r"\d+", shape))
    per, decode_a = _DECODE[a_type]
    decode_b = _DECODE[b_type][1]
    place_a, place_b, place_c = _places(m, per)
    per_a, per_b, per_c = m * k // 32, k * n // 32, m * n // 32
    index_a, index_b = gather_map(m, k, per_a, place_a), gather_map(k, n, per_b, place_b)
    index_c = gather_map(m, n, per_c, place_c)
    back = np.argsort(index_c)
    count_a, count_b = per_a // per, per_b // per
    count_c = per_c // 2 if c_type == "f16" else per_c

    add_up, direction = SUMS[family]

    def multiply(active: Array, *registers: Array) -> tuple[Array, ...]:
        warps = active.shape[0]
        a = decode_a(_stack(registers[:count_a], active)).reshape(warps, -1)
        b = decode_b(_stack(registers[count_a : count_a + count_b], active)).reshape(warps, -1)
        c = _stack(registers[count_a + count_b :], active)
        left = np.take(a, index_a, axis=1).reshape(warps, m, k).astype(np.float64)
        right = np.take(b, index_b, axis=1).reshape(warps, k, n).astype(np.float64)
        if c_type == "f16":
            c = split(c, _F16)
        before = np.take(c.reshape(warps, -1), index_c, axis=1).reshape(warps, m, n).astype(np.float64)
        total = np.take(add_up(left, right, before).reshape(warps, -1), back, axis=1).reshape(
            warps, 32, per_c
        )
        if result == "s32":
            total = np.clip(total, -(2.0**31), 2.0**31 - 1) if satfinite else total
            value = total.astype(np.int64).astype(np.int32)
        elif result == "f16":
            value = narrow_half(total).view(np.uint32)
        else:
            value = canonical(to_single(total, direction)) if result == "f32" else total
        return tuple(value[..., place] for place in range(value.shape[-1]))

    register_a, register_b = _REGISTER.get(a_type, "b32"), _REGISTER.get(b_type, "b32")
    sources = (register_a,) * count_a + (register_b,) * count_b
    sources += ({"f16": "f16x2"}.get(c_type, c_type),) * count_c
    results = ("f16x2",) * (per_c // 2) if result == "f16" else (result,) * per_c
    return Lowered(sources, results, quiet(multiply, block=128), "warp")


LOWERINGS: Mapping[str, Lowering] = {"mma": _mma}
