"""Minimum and maximum of floats: how a NaN, the sign of zero, `.NaN` and `.xorsign.abs` count.

Source: PTX ISA, "Floating Point Instructions: min, max".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sandbox.emulator.semantics.types import Array, bits_of

Elementwise = Callable[..., Array]


def pick_smaller(a: Array, b: Array) -> Array:
    """min of floats: a NaN loses to a number, and −0 is below +0."""
    equal, chosen = np.equal(a, b), np.fmin(a, b)
    if not equal.any():
        return chosen
    return np.where(equal, np.bitwise_or(bits_of(a), bits_of(b)).view(a.dtype), chosen)


def pick_larger(a: Array, b: Array) -> Array:
    """max of floats: a NaN loses to a number, and +0 is above −0."""
    equal, chosen = np.equal(a, b), np.fmax(a, b)
    if not equal.any():
        return chosen
    return np.where(equal, np.bitwise_and(bits_of(a), bits_of(b)).view(a.dtype), chosen)


def extreme(pick: Elementwise, *, nan: bool, xorsign: bool) -> Elementwise:
    """`pick` over two or three sources with `.NaN` (a NaN wins) and `.xorsign.abs` (of the sizes, with the
    product's sign)."""

    def chosen(*arrays: Array) -> Array:
        sized = tuple(np.abs(array) for array in arrays) if xorsign else arrays
        result = sized[0]
        for other in sized[1:]:
            result = pick(result, other)
        if xorsign:
            sign = np.signbit(arrays[0])
            for other in arrays[1:]:
                sign = np.logical_xor(sign, np.signbit(other))
            result = np.copysign(np.abs(result), np.where(sign, result.dtype.type(-1), result.dtype.type(1)))
        if nan:
            any_nan = np.isnan(arrays[0])
            for other in arrays[1:]:
                any_nan = any_nan | np.isnan(other)
            result = np.where(any_nan, result.dtype.type(np.nan), result)
        return result

    return chosen
