"""f32 and f64 arithmetic: add, sub, mul, fma, mad, abs, neg, min, max, copysign, testp, and IEEE div, rcp,
sqrt.

- A NaN result of f32 arithmetic is the canonical 0x7fffffff; f64 keeps what the host's arithmetic gives.
- `.ftz` flushes subnormal inputs and, after rounding, results to a zero of the same sign. `.sat` clamps to
  [0, 1], NaN to +0.

Source: PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sandbox.emulator.semantics import rounding
from sandbox.emulator.semantics.extremes import extreme, pick_larger, pick_smaller
from sandbox.emulator.semantics.types import (
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

_FLOATS = frozenset({"f32", "f64"})
_SPREAD = frozenset({"f32", "f64", "f32x2"})
NAN32 = np.array(0x7FFF_FFFF, np.uint32).view(np.float32)
"""The canonical f32 NaN."""
Elementwise = Callable[..., Array]


def canonical(values: Array) -> Array:
    """f32 values with every NaN made the canonical one."""
    nan = np.isnan(values)
    return np.where(nan, NAN32, values) if nan.any() else values


def flush(values: Array) -> Array:
    """f32 values with subnormals replaced by a zero of their sign."""
    small = np.abs(values) < rounding.TINY32
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def clamp_unit(values: Array) -> Array:
    """Values clamped to [0, 1]; NaN and −0 become +0."""
    one = values.dtype.type(1)
    return np.add(np.fmin(np.fmax(values, values.dtype.type(0)), one), values.dtype.type(0))


def flush_result(result: Array, exact: Callable[[], Array], direction: str) -> Array:
    """`result` with subnormals flushed as hardware does: by the value rounded to 24 bits with no lower bound.

    Such a value can lie below the normal range and yet have rounded up to its least number; only then is
    `exact` (the double before rounding, exact or rounded to odd) asked.
    """
    edge = np.abs(result) == rounding.TINY32
    if edge.any():
        unbounded = rounding.quantize(exact(), 24, -1022, direction)
        result = np.where(
            edge & (np.abs(unbounded) < rounding.TINY32), np.copysign(np.float32(0), result), result
        )
    return flush(result)


def finish(
    elementwise: Elementwise,
    name: str,
    *,
    ftz: bool = False,
    sat: bool = False,
    exact: Elementwise | None = None,
    direction: str = "rn",
) -> Function:
    """A function of f32 or f64 arrays with flushing, saturation and canonical NaN put around `elementwise`.

    exact: gives the double that `elementwise` rounds in `direction`, where that can be just below the
    normal range.
    """
    if name == "f32x2":
        inner = finish(elementwise, "f32", ftz=ftz, sat=sat, exact=exact, direction=direction)
        single, whole = np.dtype(np.float32), dtype_of("f32x2")
        return lambda *arrays: (join(inner(*(split(array, single) for array in arrays))[0], whole),)
    if name == "f64":
        return quiet(lambda *arrays: (elementwise(*arrays),))

    def finished(*arrays: Array) -> tuple[Array, ...]:
        if ftz:
            arrays = tuple(flush(array) for array in arrays)
        result = elementwise(*arrays)
        if ftz:
            result = flush_result(result, partial(exact, *arrays), direction) if exact else flush(result)
        if sat:
            result = clamp_unit(result)
        return (canonical(result),)

    return quiet(finished)


def _sum(name: str, direction: str, negate: bool) -> Elementwise:
    if direction == "rn":
        return np.subtract if negate else np.add
    if name == "f64":
        if not negate:
            return lambda a, b: rounding.add_double(a, b, direction)
        return lambda a, b: select(np.isnan(b), b + b, rounding.add_double(a, np.negative(b), direction))

    def single(a: Array, b: Array) -> Array:
        wide = np.asarray(b, np.float64)
        total = rounding.exact_sum(
            np.asarray(a, np.float64), np.negative(wide) if negate else wide, direction
        )
        return rounding.to_single(total, direction)

    return single


def _product(name: str, direction: str) -> Elementwise:
    if direction == "rn":
        return np.multiply
    if name == "f64":
        return lambda a, b: rounding.multiply_double(a, b, direction)
    return lambda a, b: rounding.to_single(np.multiply(a, b, dtype=np.float64), direction)


def _fused(name: str, direction: str) -> Elementwise:
    inner = rounding.fma_double if name == "f64" else rounding.fma_single
    return lambda a, b, c: inner(a, b, c, direction)


def _quotient(name: str, direction: str) -> Elementwise:
    # A double quotient or root of f32 values is on the f32 grid, or on one of its ties, only when exact.
    if direction == "rn":
        return np.divide
    if name == "f64":
        return lambda a, b: rounding.divide_double(a, b, direction)
    return lambda a, b: rounding.to_single(np.divide(a, b, dtype=np.float64), direction)


def _root(name: str, direction: str) -> Elementwise:
    if direction == "rn":
        return np.sqrt
    if name == "f64":
        return lambda a: rounding.root_double(a, direction)
    return lambda a: rounding.to_single(np.sqrt(a, dtype=np.float64), direction)


def _exact_product(a: Array, b: Array) -> Array:
    return np.multiply(a, b, dtype=np.float64)


def _exact_fused(a: Array, b: Array, c: Array) -> Array:
    return rounding.exact_sum(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64))


def _exact_quotient(a: Array, b: Array) -> Array:
    return np.divide(a, b, dtype=np.float64)


def _arithmetic(
    make: Callable[[str, str], Elementwise],
    sources: int,
    allowed: frozenset[str],
    *,
    must_round: bool = False,
    exact: Elementwise | None = None,
) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        direction = modifiers.one_of(*rounding.DIRECTIONS)
        ftz, sat = modifiers.has("ftz"), modifiers.has("sat")
        name = modifiers.type_in(allowed)
        if not name or (must_round and not direction) or (name == "f64" and (ftz or sat)):
            return None
        element, direction = ("f32" if name == "f32x2" else name), direction or "rn"
        fn = finish(make(element, direction), name, ftz=ftz, sat=sat, exact=exact, direction=direction)
        return Lowered((name,) * sources, (name,), fn)

    return lowering


def _reciprocal(name: str, direction: str) -> Elementwise:
    divide, one = _quotient(name, direction), dtype_of(name).type(1)
    return lambda a: divide(one, a)


def _sign_only(change: Callable[[Array], Array]) -> Lowering:
    """abs and neg: the sign alone; an f32 NaN becomes canonical, an f64 NaN keeps sign and payload and is
    quieted."""

    def single(a: Array) -> Array:
        return canonical(change(a))

    def double(a: Array) -> Array:
        nan = np.isnan(a)
        return np.where(nan, a + a, change(a)) if nan.any() else change(a)

    def lowering(modifiers: Modifiers) -> Lowered | None:
        ftz, name = modifiers.has("ftz"), modifiers.type_in(_FLOATS)
        if not name or (ftz and name == "f64"):
            return None
        elementwise = double if name == "f64" else single
        return Lowered((name,), (name,), quiet(lambda a: (elementwise(flush(a) if ftz else a),)))

    return lowering


def _extreme(pick: Elementwise) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        ftz, nan = modifiers.has("ftz"), modifiers.has("NaN")
        xorsign = modifiers.has("xorsign") and modifiers.has("abs")
        name, sources = modifiers.type_in(_FLOATS), modifiers.source_count
        if not name or sources not in (2, 3) or (name == "f64" and (ftz or nan or xorsign or sources == 3)):
            return None
        return Lowered(
            (name,) * sources, (name,), finish(extreme(pick, nan=nan, xorsign=xorsign), name, ftz=ftz)
        )

    return lowering


def _copysign(modifiers: Modifiers) -> Lowered | None:
    """The size of the second source with the sign of the first."""
    name = modifiers.type_in(_FLOATS)
    return Lowered((name, name), (name,), lambda a, b: (np.copysign(b, a),)) if name else None


def _testp(modifiers: Modifiers) -> Lowered | None:
    """The class of a number; zeros count as normal."""
    tests: Mapping[str, Elementwise] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0)),
        "subnormal": lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0),
    }
    kind, name = modifiers.one_of(*tests), modifiers.type_in(_FLOATS)
    if not kind or not name:
        return None
    test = tests[kind]
    return Lowered((name,), ("pred",), lambda a: (test(a),))


LOWERINGS: Mapping[str, Lowering] = {
    "add": _arithmetic(lambda name, direction: _sum(name, direction, False), 2, _SPREAD),
    "sub": _arithmetic(lambda name, direction: _sum(name, direction, True), 2, _SPREAD),
    "mul": _arithmetic(_product, 2, _SPREAD, exact=_exact_product),
    "fma": _arithmetic(_fused, 3, _SPREAD, must_round=True, exact=_exact_fused),
    "mad": _arithmetic(_fused, 3, _FLOATS, exact=_exact_fused),
    "div": _arithmetic(_quotient, 2, _FLOATS, must_round=True, exact=_exact_quotient),
    "rcp": _arithmetic(_reciprocal, 1, _FLOATS, must_round=True),
    "sqrt": _arithmetic(_root, 1, _FLOATS, must_round=True),
    "abs": _sign_only(np.abs),
    "neg": _sign_only(np.negative),
    "min": _extreme(pick_smaller),
    "max": _extreme(pick_larger),
    "copysign": _copysign,
    "testp": _testp,
}
