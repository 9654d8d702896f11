"""Correct rounding in the four directions, on NumPy, which rounds to nearest alone.

Two ideas carry everything:
- *Round to odd*: a double that is inexact gets its last bit set, so a later rounding to a format of at most
  51 bits, in any direction, is as if made from the exact value (Boldo and Melquiond, "Emulation of FMA and
  correctly rounded sums", 2008).
- *Residue*: the sign of (exact − rounded to nearest) says by itself whether another direction differs by one
  step.
Doubles whose residue itself could underflow or overflow are settled one by one with `fractions`; they are
rare.

Source: PTX ISA, "Rounding Modifiers" of floating-point instructions and of `cvt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from sandbox.emulator.semantics.types import Array

DIRECTIONS = ("rn", "rz", "rm", "rp")
"""To nearest even, to zero, to minus infinity, to plus infinity."""
TINY32 = np.float32(2.0**-126)
"""Smallest normal f32."""
_LOW29, _TIE29 = np.int64((1 << 29) - 1), np.int64(1 << 28)
_SPLITTER = np.float64(2.0**27 + 1)


def two_sum_error(a: Array, b: Array, total: Array) -> Array:
    """What rounding took from a + b = total, exactly; NaN where the sum is not finite."""
    part = total - a
    return (a - (total - part)) + (b - part)


def two_product_error(a: Array, b: Array, product: Array) -> Array:
    """What rounding took from a × b = product, exactly unless a part under- or overflows."""
    scaled = a * _SPLITTER
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = b * _SPLITTER
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def to_odd(nearest: Array, error: Array) -> Array:
    """f32 or f64 rounded to odd, from the value rounded to nearest and the sign of what that took."""
    nearest = np.asarray(nearest)
    word = np.dtype(f"int{nearest.dtype.itemsize * 8}")
    up, bits = error > 0, nearest.view(word)
    outward = np.where(up != np.signbit(nearest), word.type(1), word.type(-1))
    inexact = (bits & word.type(1) == 0) & (up | (error < 0))
    return np.asarray(bits + np.multiply(outward, inexact)).view(nearest.dtype)


def to_single_odd(values: Array) -> Array:
    """Doubles (exact, or rounded to odd) rounded to odd in f32: ready for rounding to a format of at most
    22 bits."""
    nearest = np.asarray(values).astype(np.float32)
    if np.isinf(nearest).any():
        largest = np.copysign(np.finfo(np.float32).max, nearest)
        nearest = np.where(np.isinf(nearest) & np.isfinite(values), largest, nearest)
    return to_odd(nearest, values - nearest)


def exact_sum(a: Array, b: Array, direction: str = "rn") -> Array:
    """a + b of doubles, rounded to odd, with the sign a zero has in `direction`."""
    total = np.add(a, b)
    odd = to_odd(total, two_sum_error(a, b, total))
    if direction == "rm":
        odd = np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, odd)
    return odd


def to_single(values: Array, direction: str) -> Array:
    """Doubles (exact, or rounded to odd) rounded to f32 in `direction`."""
    nearest = np.asarray(values).astype(np.float32)
    if direction == "rn":
        return nearest
    if direction == "rz":
        return np.where(np.abs(nearest) > np.abs(values), np.nextafter(nearest, np.float32(0)), nearest)
    if direction == "rm":
        return np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return np.where(nearest < values, np.nextafter(nearest, np.float32(np.inf)), nearest)


def fma_single(a: Array, b: Array, c: Array, direction: str) -> Array:
    """a × b + c of f32 with one rounding.

    The product is exact in double. The sum is not always; it matters only when the double lies on a tie of
    the f32 grid, or below the normal range where that grid is coarser.
    """
    product = np.multiply(a, b, dtype=np.float64)
    if direction != "rn":
        return to_single(exact_sum(product, np.asarray(c, np.float64), direction), direction)
    total = np.asarray(np.add(product, c, dtype=np.float64))
    risky = ((total.view(np.int64) & _LOW29) == _TIE29) | ((np.abs(total) < TINY32) & (total != 0))
    if np.any(risky):
        total = to_odd(total, two_sum_error(product, np.asarray(c, np.float64), total))
    return total.astype(np.float32)


def step_double(nearest: Array, error: Array, direction: str) -> Array:
    """The double rounded in `direction`, from the one rounded to nearest and the sign of what that took."""
    if direction == "rz":
        outside = ((error < 0) & (nearest > 0)) | ((error > 0) & (nearest < 0))
        return np.where(outside, np.nextafter(nearest, 0.0), nearest)
    if direction == "rm":
        return np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
    if direction == "rp":
        return np.where(error > 0, np.nextafter(nearest, np.inf), nearest)
    return nearest


def _settle(
    nearest: Array, error: Array, unsure: Array, sources: tuple[Array, ...], compare: Callable[..., int]
) -> Array:
    """`error` with the elements of `unsure` replaced by the sign that `compare(nearest, *sources)` finds
    exactly."""
    if not np.any(unsure):
        return error
    shaped = np.broadcast_arrays(nearest, *sources)
    error = np.array(np.broadcast_to(error, unsure.shape))
    for index in zip(*np.nonzero(unsure), strict=True):
        values = [float(array[index]) for array in shaped]
        error[index] = compare(*values)
    return error


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def _beyond(nearest: float) -> int | None:
    """The sign of (finite − infinite) when a finite result was rounded to infinity."""
    return None if math.isfinite(nearest) else (-1 if nearest > 0 else 1)


def _compare_product(r: float, a: float, b: float) -> int:
    beyond = _beyond(r)
    return _sign(Fraction(a) * Fraction(b) - Fraction(r)) if beyond is None else beyond


def _compare_quotient(r: float, a: float, b: float) -> int:
    beyond = _beyond(r)
    return _sign(Fraction(a) / Fraction(b) - Fraction(r)) if beyond is None else beyond


def _compare_root(r: float, a: float) -> int:
    return _sign(Fraction(a) - Fraction(r) ** 2)


def _unsafe(*values: Array) -> Array:
    """True where a value is so small or so large that the parts of a product may leave the range of
    doubles."""
    unsafe = np.zeros((), bool)
    for value in values:
        size = np.abs(value)
        unsafe = unsafe | (size < 2.0**-450) | (size > 2.0**450)
    return unsafe


def add_double(a: Array, b: Array, direction: str) -> Array:
    """a + b of f64."""
    total = np.add(a, b)
    if direction == "rn":
        return total
    error = two_sum_error(a, b, total)
    over = np.isinf(total) & np.isfinite(a) & np.isfinite(b)
    result = step_double(total, np.where(over, -total, error), direction)
    if direction == "rm":
        result = np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, result)
    return result


def multiply_double(a: Array, b: Array, direction: str) -> Array:
    """a × b of f64."""
    product = np.multiply(a, b)
    if direction == "rn":
        return product
    finite = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    error = _settle(
        product, two_product_error(a, b, product), _unsafe(a, b) & finite, (a, b), _compare_product
    )
    return step_double(product, np.where(finite, error, 0.0), direction)


def divide_double(a: Array, b: Array, direction: str) -> Array:
    """a ÷ b of f64."""
    quotient = np.divide(a, b)
    if direction == "rn":
        return quotient
    finite = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    back = np.multiply(quotient, b)
    error = ((a - back) - two_product_error(quotient, b, back)) * np.sign(b)
    error = _settle(quotient, error, _unsafe(a, b) & finite, (a, b), _compare_quotient)
    return step_double(quotient, np.where(finite, error, 0.0), direction)


def root_double(a: Array, direction: str) -> Array:
    """√a of f64."""
    root = np.sqrt(a)
    if direction == "rn":
        return root
    finite = np.isfinite(root) & (root != 0)
    back = np.multiply(root, root)
    error = (a - back) - two_product_error(root, root, back)
    error = _settle(root, error, _unsafe(a) & finite, (a,), _compare_root)
    return step_double(root, np.where(finite, error, 0.0), direction)


def _fma_exactly(direction: str, a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        negative = math.copysign(1, a) * math.copysign(1, b) < 0
        both = negative == (math.copysign(1, c) < 0)
        return (-0.0 if negative else 0.0) if both and c == 0 else (-0.0 if direction == "rm" else 0.0)
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.copysign(math.inf, _sign(exact))
    if nearest == 0:
        nearest = math.copysign(0.0, _sign(exact))
    error = _sign(exact - Fraction(nearest)) if math.isfinite(nearest) else -_sign(exact)
    return float(step_double(np.array(nearest), np.array(float(error)), direction))


def fma_double(a: Array, b: Array, c: Array, direction: str) -> Array:
    """a × b + c of f64 with one rounding."""
    product = np.multiply(a, b)
    low = two_product_error(a, b, product)
    upper = np.add(c, low)
    upper_error = two_sum_error(c, low, upper)
    high = np.add(product, upper)
    high_error = two_sum_error(product, upper, high)
    tail = exact_sum(upper_error, high_error)
    result = add_double(high, tail, direction)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    trivial = ~finite | (product == 0) & ((a == 0) | (b == 0))
    if np.any(trivial):
        overflown = np.isinf(product) & np.isfinite(a) & np.isfinite(b)  # finite in truth, so c alone decides
        result = np.where(trivial, add_double(np.where(overflown, 0.0, product), c, direction), result)
    size, other = np.abs(product), np.abs(c)
    unsafe = (
        (np.abs(a) > 2.0**990)
        | (np.abs(b) > 2.0**990)
        | (size > 2.0**1000)
        | (size < 2.0**-900)
        | (other > 2.0**1000)
    )
    unsafe = np.asarray(unsafe & ~trivial)
    if direction == "rm":
        cancelled = (result == 0) & ~trivial
        result = np.where(cancelled, -0.0, result)
    if np.any(unsafe):
        shaped = np.broadcast_arrays(a, b, c)
        result = np.array(np.broadcast_to(result, unsafe.shape))
        for index in zip(*np.nonzero(unsafe), strict=True):
            result[index] = _fma_exactly(direction, *(float(array[index]) for array in shaped))
    return result


def _away(values: Array) -> Array:
    """To nearest, ties away from zero; exact for |values| < 2**52."""
    whole = np.trunc(values)
    size = np.abs(whole) + (np.abs(values - whole) >= 0.5)
    return np.copysign(size, values)


TO_WHOLE: Mapping[str, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": _away,
}
"""Rounding to an integral value, by direction."""


def quantize(values: Array, digits: int, lowest: int, direction: str) -> Array:
    """Doubles (exact, or rounded to odd) on the grid of a format with `digits` significant bits and least
    normal exponent `lowest`.

    No upper bound is applied: what is too large for the format is for the caller to see.
    """
    exponent = np.frexp(values)[1] - 1
    unit = np.maximum(exponent, lowest) - (digits - 1)
    whole = TO_WHOLE[direction](np.ldexp(values, -unit))
    return np.where(np.isfinite(values), np.ldexp(whole, unit), values)
