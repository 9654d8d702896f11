"""cvt: between integers, and every floating-point format; cvt.pack.

- Float to integer rounds to an integral value and clamps to the destination's range. NaN gives 0, but the
  value with the top bit alone when the source is f64 or the destination has 64 bits, as hardware does.
- A NaN becomes canonical, but keeps sign and upper payload bits when it comes from f64 or bf16.
- Integer to integer keeps the low bits, or clamps with `.sat`; float `.sat` clamps to [0, 1].
- In two-source forms the first source becomes the upper half of the result.

Source: PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sandbox.emulator.semantics import formats, rounding
from sandbox.emulator.semantics.floating import canonical, clamp_unit, flush, flush_result
from sandbox.emulator.semantics.types import (
    TYPES,
    Array,
    Lowered,
    Lowering,
    Modifiers,
    dtype_of,
    join,
    quiet,
    split,
)

Convert = Callable[[Array], Array]

_TO_WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_DIRECTIONS = ("rn", "rz", "rm", "rp", "rna")
_INTEGERS = ("unsigned", "signed")
_SCALARS = frozenset({"f16", "bf16", "f32", "f64"})
_SMALL = frozenset({"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"})


def _widen(name: str, ftz: bool) -> Convert:
    """Values of a float type as the narrowest of f32 and f64 that holds them exactly."""
    if name in formats.HALVES:
        return formats.HALVES[name].widen
    if name in _SMALL:
        return lambda codes: formats.decode(codes, name)
    if name == "f32" and ftz:
        return lambda values: canonical(flush(values))
    return lambda values: values


def _two_doubles(values: Array) -> tuple[Array, Array]:
    """An integer as the exact sum of two doubles."""
    if values.dtype.itemsize < 8:
        return values.astype(np.float64), np.zeros((), np.float64)
    high = np.right_shift(values, values.dtype.type(32)).astype(np.float64) * 2.0**32
    return high, (values & values.dtype.type(0xFFFF_FFFF)).astype(np.float64)


def _integer_to_float(result: str, direction: str, sat: bool) -> Convert | None:
    dtype = dtype_of(result)
    if result not in _SCALARS or direction == "rna":
        return None

    def convert(values: Array) -> Array:
        if direction == "rn" and result in ("f32", "f64"):
            rounded = np.asarray(values).astype(dtype)
        elif result == "f64":
            rounded = rounding.add_double(*_two_doubles(values), direction)
        else:
            return _from_double(rounding.exact_sum(*_two_doubles(values)), result, direction, sat=sat)
        return clamp_unit(rounded) if sat else rounded

    return convert


def _from_double(
    values: Array,
    result: str,
    direction: str,
    *,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
) -> Array:
    """Doubles, or f32, rounded once to a float type of 32 bits or fewer."""
    values = np.asarray(values)
    if sat:
        values = clamp_unit(values)
    if result == "f32":
        return rounding.to_single(values, direction)
    if direction == "rn" and not satfinite and result in formats.HALVES:
        if relu:  # NaN stays NaN, -0 becomes +0
            values = np.where(values <= 0, values.dtype.type(0), values)
        return formats.HALVES[result].narrow(values)
    if result == "tf32" and not relu and (direction == "rna" or not satfinite):
        return formats.narrow_tf32(values, direction, satfinite)
    codes = formats.narrow(values, formats.FORMATS[result], direction, satfinite=satfinite, relu=relu)
    return codes.view(np.float16) if result == "f16" else codes


def _to_integer(result: str, source: str, direction: str) -> Convert:
    dtype = dtype_of(result)
    info, whole = np.iinfo(dtype), rounding.TO_WHOLE[direction]
    top = 2.0 ** (info.bits if dtype.kind == "u" else info.bits - 1)
    indefinite = info.bits == 64 or source == "f64"
    of_nan = np.array(1 << (info.bits - 1) if indefinite else 0, f"uint{info.bits}").view(dtype)

    def convert(values: Array) -> Array:
        integral = whole(np.asarray(values, np.float64))
        nan = np.isnan(integral)
        if nan.any():
            return np.where(nan, of_nan, clamp(np.where(nan, 0.0, integral)))
        return clamp(integral)

    def clamp(integral: Array) -> Array:
        if info.bits < 64:
            return np.clip(integral, float(info.min), float(info.max)).astype(dtype)
        over, under = integral >= top, integral < float(info.min)
        inside = np.where(over | under, 0.0, integral).astype(dtype)
        return np.where(over, dtype.type(info.max), np.where(under, dtype.type(info.min), inside))

    return convert


def _between_integers(result: str, sat: bool) -> Convert:
    dtype = dtype_of(result)
    info = np.iinfo(dtype)

    def clamp(values: Array) -> Array:
        low, high = max(info.min, np.iinfo(values.dtype).min), min(info.max, np.iinfo(values.dtype).max)
        return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(dtype)

    return clamp if sat else lambda values: np.asarray(values).astype(dtype)


def _nan_of(values: Array, result: str) -> Array:
    """f64 NaNs as f16 or bf16 ones of the same sign and upper payload."""
    bits = np.asarray(values).astype(np.float32).view(np.uint32)
    upper = np.right_shift(bits, np.uint32(16)).astype(np.uint16)
    if result == "bf16":
        return upper
    payload = np.right_shift(bits, np.uint32(13)).astype(np.uint16) & np.uint16(0x3FF)
    return (upper & np.uint16(0x8000) | np.uint16(0x7C00) | payload).view(np.float16)


def _between_floats(
    result: str, source: str, direction: str, integral: str, ftz: bool, sat: bool
) -> Convert | None:
    """Between f16, bf16, f32 and f64, without packing."""
    widen = _widen(source, ftz)
    wider = TYPES[result].width > TYPES[source].width
    if direction and (wider or result == source):
        return None
    if result == source or (integral and TYPES[result].width == TYPES[source].width):
        whole = rounding.TO_WHOLE[integral] if integral else None

        def same(values: Array) -> Array:
            wide = widen(values)
            wide = whole(wide) if whole is not None else wide
            wide = clamp_unit(wide) if sat else wide
            wide = flush(wide) if ftz else wide
            if result in formats.HALVES:
                return formats.HALVES[result].narrow(wide)
            return canonical(wide) if result == "f32" else wide

        return same
    if not wider and not direction:
        return None
    if result == "f64":
        return lambda values: (
            clamp_unit(widen(values).astype(np.float64)) if sat else widen(values).astype(np.float64)
        )

    def convert(values: Array) -> Array:
        rounded = _from_double(widen(values), result, direction or "rn", sat=sat)
        if source == "f64" and result != "f32" and not sat and np.isnan(values).any():
            return np.where(np.isnan(values), _nan_of(values, result), rounded)
        rounded = canonical(rounded) if source == "f16" else rounded
        if ftz and result == "f32":
            return flush_result(rounded, lambda: values, direction or "rn")
        return rounded

    return convert


def _scalar(modifiers: Modifiers, result: str, source: str) -> Lowered | None:
    integral = _TO_WHOLE.get(modifiers.one_of(*_TO_WHOLE), "")
    direction = modifiers.one_of(*_DIRECTIONS)
    ftz, sat = modifiers.has("ftz"), modifiers.has("sat")
    relu, satfinite = modifiers.has("relu"), modifiers.has("satfinite")
    to, of = TYPES[result].kind, TYPES[source].kind
    convert: Convert | None
    if to in _INTEGERS and of in _INTEGERS:
        convert = None if integral or direction or ftz else _between_integers(result, sat)
    elif of in _INTEGERS:
        convert = None if integral else _integer_to_float(result, direction or "rn", sat)
    elif to in _INTEGERS:
        if not integral or direction or source not in _SCALARS:
            return None
        widen, inner = _widen(source, ftz), _to_integer(result, source, integral)
        convert = lambda values: inner(widen(values))  # noqa: E731
    elif result == "tf32" or relu or satfinite:
        if not direction or result not in ("tf32", "f16", "bf16") or source != "f32":
            return None
        convert = partial(_from_double, result=result, direction=direction, satfinite=satfinite, relu=relu)
        relu = satfinite = False
    elif {result, source} <= _SCALARS:
        convert = _between_floats(result, source, direction, integral, ftz, sat)
    else:
        return None
    if convert is None or relu or satfinite:
        return None
    chosen = convert
    return Lowered((source,), (result,), quiet(lambda values: (chosen(values),)))


def _elements(packed: Array, name: str) -> Array:
    """Carriers of the elements of a packed type, lowest first, on a new last axis."""
    if name == "e2m1x2":
        return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)
    return split(packed, dtype_of(TYPES[name].element))


def _together(elements: Array, name: str) -> Array:
    """The inverse of `_elements`."""
    if name == "e2m1x2":
        return elements[..., 0] | np.left_shift(elements[..., 1], np.uint8(4))
    return join(elements.astype(dtype_of(TYPES[name].element), copy=False), dtype_of(name))


def _packed(modifiers: Modifiers, result: str, source: str) -> Lowered | None:
    """Forms whose result, or whose only source, holds two elements."""
    direction = modifiers.one_of("rn", "rz", default="rn")
    relu, satfinite = modifiers.has("relu"), modifiers.has("satfinite")
    element, inner = TYPES[result].element, TYPES[source].element
    if element not in formats.FORMATS or TYPES[result].name != f"{element}x2":
        return None
    put = partial(_from_double, result=element, direction=direction, satfinite=satfinite, relu=relu)
    if source == "f32":

        def pack(a: Array, b: Array) -> tuple[Array, ...]:
            return (_together(np.stack(np.broadcast_arrays(put(b), put(a)), axis=-1), result),)

        return Lowered(("f32", "f32"), (result,), quiet(pack))
    if inner not in formats.FORMATS or source != f"{inner}x2":
        return None
    widen = _widen(inner, False)
    return Lowered(
        (source,), (result,), quiet(lambda a: (_together(put(widen(_elements(a, source))), result),))
    )


_PACK_WIDTHS = {"u2": 2, "s2": 2, "u4": 4, "s4": 4, "u8": 8, "s8": 8, "u16": 16, "s16": 16}


def _pack(modifiers: Modifiers) -> Lowered | None:
    """cvt.pack: two s32 clamped to a narrow integer and put side by side, above them the low bits of a third
    source."""
    name = modifiers.one_of(*_PACK_WIDTHS)
    if not modifiers.has("sat") or not name:
        return None
    types = modifiers.types()
    width = _PACK_WIDTHS[name]
    if types not in (("s32",), ("s32", "b32")) or (width < 16) != (len(types) == 2):
        return None
    low = -(1 << (width - 1)) if name[0] == "s" else 0
    high, mask = low + (1 << width) - 1, np.uint32((1 << width) - 1)

    def pack(a: Array, b: Array, *c: Array) -> tuple[Array, ...]:
        upper, lower = (np.clip(each, low, high).astype(np.uint32) & mask for each in (a, b))
        both = np.left_shift(upper, np.uint32(width)) | lower
        return (both | np.left_shift(c[0], np.uint32(2 * width)) if c else both,)

    return Lowered(("s32", "s32", *types[1:]), ("b32",), pack)


def _cvt(modifiers: Modifiers) -> Lowered | None:
    if modifiers.has("pack"):
        return _pack(modifiers)
    types = modifiers.types()
    if len(types) != 2:
        return None
    if "packed" in (TYPES[types[0]].kind, TYPES[types[1]].kind):
        return _packed(modifiers, *types)
    return _scalar(modifiers, *types)


LOWERINGS: Mapping[str, Lowering] = {"cvt": _cvt}
