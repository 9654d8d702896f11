"""How the sums of a matrix product are rounded: D = A × B + C for values already decoded.

Three ways, each as readings of an H200 have it, bit for bit:
- `aligned` (f16, bf16, tf32): the K exact products and C are cut, towards zero, at 25 bits below the largest
  exponent among them, where a product counts with the sum of its factors' exponents; they are added exactly,
  and the sum is rounded towards zero to f32, or to nearest to f16.
- `chained` (f64): one fused multiply-add after the other, K ascending.
- `whole` (integers, fp8): the exact sum, rounded once to nearest.

Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions: mma", leaves the order and the
rounding open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.semantics import rounding
from sandbox.emulator.semantics.types import Array

Sum = Callable[[Array, Array, Array], Array]
_GUARD = 25
_FEW = 16
_NOTHING = -600
"""An exponent below that of every product."""


def _exponents(values: Array) -> Array:
    """Exponents of doubles that are normal or zero; int16."""
    return (np.right_shift(np.ascontiguousarray(values).view(np.int64), 52) & 0x7FF).astype(
        np.int16
    ) - np.int16(1023)


def _power(exponents: Array) -> Array:
    """2 to integers from -1022 to 1023, as doubles."""
    return np.left_shift(exponents.astype(np.int64) + 1023, 52).view(np.float64)


def _whole(a: Array, b: Array, c: Array) -> Array:
    return np.matmul(a, b) + c


def _aligned(a: Array, b: Array, c: Array) -> Array:
    # The warps go last, so that every inner loop of NumPy is long.
    rows, columns = np.ascontiguousarray(a.transpose(2, 1, 0)), np.ascontiguousarray(b.transpose(1, 2, 0))
    start = np.ascontiguousarray(c.transpose(1, 2, 0))
    # Few warps: all K at once, since calls cost more than memory. Many: one k at a time, to stay in the cache.
    step = len(rows) if rows.shape[-1] <= _FEW else 1
    slices = [slice(at, at + step) for at in range(0, len(rows), step)]
    largest, of_rows, of_columns = _exponents(start), _exponents(rows), _exponents(columns)
    shape = (step, *start.shape)
    sums, term = np.empty(shape, np.int16), np.empty(shape)
    for part in slices:
        np.add(of_rows[part, :, None, :], of_columns[part, None, :, :], out=sums)
        np.maximum(largest, sums.max(axis=0) if step > 1 else sums[0], out=largest)
    np.maximum(largest, np.int16(_NOTHING), out=largest)
    scale = _power(_GUARD - largest)
    total = np.trunc(np.multiply(start, scale))
    for part in slices:
        np.multiply(rows[part, :, None, :], columns[part, None, :, :], out=term)
        np.multiply(term, scale, out=term)
        np.trunc(term, out=term)
        np.add(total, term.sum(axis=0) if step > 1 else term[0], out=total)
    result = np.multiply(total, _power(largest - np.int16(_GUARD))).transpose(2, 0, 1)
    special = ~np.isfinite(result)
    return np.where(special, _whole(a, b, c), result) if special.any() else result


def _chained(a: Array, b: Array, c: Array) -> Array:
    for k in range(a.shape[-1]):
        row, column = np.broadcast_arrays(a[:, :, k, None], b[:, k, None, :])
        c = rounding.fma_double(row, column, c, "rn")
    return c


SUMS: Mapping[str, tuple[Sum, str]] = {
    "f16": (_aligned, "rz"),
    "bf16": (_aligned, "rz"),
    "tf32": (_aligned, "rz"),
    "f64": (_chained, "rn"),
    "int8": (_whole, "rn"),
    "int4": (_whole, "rn"),
    "fp8": (_whole, "rn"),
}
"""By family of operand types: A [W, M, K], B [W, K, N], C [W, M, N] of doubles to their sum, exact for f32
and below, and how it is rounded to f32."""
