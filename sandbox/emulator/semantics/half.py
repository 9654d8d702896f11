"""f16 and bf16 arithmetic, scalar and packed: add, sub, mul, fma, neg, abs, min, max; and f32 results of
16-bit sources.

Sums and products are computed in f32, which is wide enough that the second rounding changes nothing (24 ≥
2·11 + 2); fma in double, with the one rounding that is left. NaN results are the canonical 0x7fff.

Source: PTX ISA, "Half Precision Floating Point Instructions", "Mixed Precision Floating-Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.semantics import rounding
from sandbox.emulator.semantics.extremes import extreme, pick_larger, pick_smaller
from sandbox.emulator.semantics.floating import canonical, clamp_unit
from sandbox.emulator.semantics.formats import HALVES, NAN16, Half
from sandbox.emulator.semantics.types import (
    TYPES,
    Array,
    Function,
    Lowered,
    Lowering,
    Modifiers,
    dtype_of,
    join,
    quiet,
    split,
)

Elementwise = Callable[..., Array]
_NAMES = frozenset({"f16", "bf16", "f16x2", "bf16x2"})


def level(values: Array, form: Half) -> Array:
    """f32 values with those below the format's normal range replaced by a zero of their sign."""
    small = np.abs(values) < form.tiny
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def spread(elementwise: Elementwise, name: str) -> Function:
    """`elementwise` on carriers of a scalar type, or on both halves of a packed one."""
    if TYPES[name].kind != "packed":
        return quiet(lambda *arrays: (elementwise(*arrays),))
    half, whole = dtype_of(TYPES[name].element), dtype_of(name)
    return quiet(lambda *arrays: (join(elementwise(*(split(array, half) for array in arrays)), whole),))


def computed(
    inner: Elementwise, name: str, *, ftz: bool = False, sat: bool = False, relu: bool = False
) -> Function:
    """`inner` on f32 values of the 16-bit sources, its result clamped, flushed and rounded to the type."""
    form = HALVES[TYPES[name].element or name]

    def elementwise(*arrays: Array) -> Array:
        wide = [form.widen(array) for array in arrays]
        if ftz:
            wide = [level(values, form) for values in wide]
        result = np.asarray(inner(*wide))
        if sat:
            result = clamp_unit(result)
        if relu:  # -0 becomes +0, NaN stays
            result = np.where(result <= 0, result.dtype.type(0), result)
        code = form.narrow(result)
        return form.narrow(level(form.widen(code), form)) if ftz else code

    return spread(elementwise, name)


def _fused_half(a: Array, b: Array, c: Array) -> Array:
    """a × b + c as an f32 rounded to odd: the product of f16 values is exact in f32."""
    product = np.multiply(a, b)
    total = np.add(product, c)
    return rounding.to_odd(total, rounding.two_sum_error(product, c, total))


def _fused_brain(a: Array, b: Array, c: Array) -> Array:
    """a × b + c as a double rounded to odd: the product of bf16 values may leave the range of f32."""
    return rounding.exact_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))


def _arithmetic(inner: Elementwise, sources: int) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        rounded, ftz, sat = modifiers.has("rn"), modifiers.has("ftz"), modifiers.has("sat")
        fused, relu = sources == 3, modifiers.has("relu")
        name = modifiers.type_in(_NAMES)
        if not name or (fused and not rounded) or (relu and (not fused or sat)):
            return None
        if (ftz or sat) and "bf16" in name:
            return None
        function = (_fused_brain if "bf16" in name else _fused_half) if fused else inner
        return Lowered((name,) * sources, (name,), computed(function, name, ftz=ftz, sat=sat, relu=relu))

    return lowering


def _mixed(inner: Elementwise, sources: int) -> Lowering:
    """add, sub and fma with f32 result and last source, the others f16 or bf16."""

    def lowering(modifiers: Modifiers) -> Lowered | None:
        direction = modifiers.one_of(*rounding.DIRECTIONS, default="" if sources == 3 else "rn")
        sat, types = modifiers.has("sat"), modifiers.types()
        if len(types) != 2 or types[0] != "f32" or types[1] not in HALVES or not direction:
            return None
        form = HALVES[types[1]]

        def fn(*arrays: Array) -> tuple[Array, ...]:
            wide = [form.widen(array).astype(np.float64) for array in arrays[:-1]]
            exact = inner(*wide, np.asarray(arrays[-1], np.float64), direction)
            result = rounding.to_single(exact, direction)
            return (canonical(clamp_unit(result) if sat else result),)

        return Lowered((types[1],) * (sources - 1) + ("f32",), ("f32",), quiet(fn))

    return lowering


def _sign_only(clear: bool) -> Lowering:
    """neg and abs: the sign bit alone, unless `.ftz` flushes; a NaN becomes canonical."""

    def lowering(modifiers: Modifiers) -> Lowered | None:
        ftz, name = modifiers.has("ftz"), modifiers.type_in(_NAMES)
        if not name or (ftz and "bf16" in name):
            return None
        form = HALVES[TYPES[name].element or name]

        def elementwise(a: Array) -> Array:
            wide = form.widen(a)
            source = form.narrow(level(wide, form)) if ftz else a
            bits = np.asarray(source).view(np.uint16)
            bits = bits & NAN16 if clear else bits ^ np.uint16(0x8000)
            return np.where(np.isnan(wide), NAN16, bits).view(a.dtype)

        return Lowered((name,), (name,), spread(elementwise, name))

    return lowering


def _extreme(pick: Elementwise) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        ftz, nan = modifiers.has("ftz"), modifiers.has("NaN")
        xorsign = modifiers.has("xorsign") and modifiers.has("abs")
        name, sources = modifiers.type_in(_NAMES), modifiers.source_count
        if not name or sources not in (2, 3) or (ftz and "bf16" in name):
            return None
        chosen = extreme(pick, nan=nan, xorsign=xorsign)
        return Lowered((name,) * sources, (name,), computed(chosen, name, ftz=ftz))

    return lowering


LOWERINGS: Mapping[str, Lowering] = {
    "add": _arithmetic(np.add, 2),
    "sub": _arithmetic(np.subtract, 2),
    "mul": _arithmetic(np.multiply, 2),
    "fma": _arithmetic(_fused_half, 3),
    "neg": _sign_only(clear=False),
    "abs": _sign_only(clear=True),
    "min": _extreme(pick_smaller),
    "max": _extreme(pick_larger),
}

MIXED: Mapping[str, Lowering] = {
    "add": _mixed(rounding.exact_sum, 2),
    "sub": _mixed(lambda a, c, direction: rounding.exact_sum(a, np.negative(c), direction), 2),
    "fma": _mixed(lambda a, b, c, direction: rounding.exact_sum(np.multiply(a, b), c, direction), 3),
}
"""Forms whose result is f32 and whose first sources are 16-bit."""
