"""The rounding of matrix sums: readings of an H200, and the rule they follow in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sandbox.emulator.semantics import Array
from sandbox.emulator.semantics.accumulate import SUMS
from sandbox.emulator.semantics.rounding import to_single
from tests.sandbox.semantics.support import FORMATS, round_exact

# One element of D each, from mma.m16n8k16 and m16n8k8 on an H200: a row of A, a column of B, C, D, as f32 bits. In each the sum
# rounded once to nearest ends one higher.
READINGS = {
    "f16": (
        "bf5d8000 4054a000 3e674000 beb48000 be900000 bf2b0000 bf870000 bec82000 "
        "3b34a000 3fe12000 3f966000 bf3f6000 be5ec000 3e5a8000 bf6c2000 be8fc000",
        "bf9e6000 bdf36000 bee92000 bff5c000 3e3e4000 3df0e000 3ea48000 bf310000 "
        "3de3a000 3e826000 400b2000 3f07e000 bf368000 bfb22000 3ebe4000 3f89c000",
        "3fd0796f",
        "408febb1",
    ),
    "bf16": (
        "bf5d0000 40540000 3e670000 beb40000 be900000 bf2b0000 bf870000 bec80000 "
        "3b340000 3fe10000 3f960000 bf3f0000 be5e0000 3e5a0000 bf6c0000 be8f0000",
        "c03b0000 3f0e0000 bff10000 3d7c0000 bf8f0000 bc0b0000 bee00000 3ee60000 "
        "3faf0000 bffb0000 bec10000 bfec0000 3e9c0000 3f910000 3fa60000 bf5d0000",
        "bdab6235",
        "3f92cdda",
    ),
    "tf32": (
        "40028000 c0238000 3ed60000 bf114000 3eeb6000 3ec32000 bfcfe000 3f356000",
        "bf936000 3cd44000 3f08a000 3f5ee000 bf86e000 bf9ca000 c030c000 bff8e000",
        "bd4de4cd",
        "bf140930",
    ),
}


def floats(text: str) -> Array:
    return np.array([int(word, 16) for word in text.split()], np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("name", READINGS)
def test_readings(name: str) -> None:
    a, b, c, d = map(floats, READINGS[name])
    add_up, direction = SUMS[name]
    found = to_single(add_up(a.reshape(1, 1, -1), b.reshape(1, -1, 1), c.reshape(1, 1, 1)), direction)
    assert found.item() == d.item()
    nearest = round_exact(
        sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(c[0])),
        *FORMATS["f32"],
        "rn",
    )
    assert nearest != d.item()


def exponent(value: float) -> int:
    return math.frexp(value)[1] - 1


def by_the_rule(a: list[float], b: list[float], c: float) -> Fraction:
    """The sum of terms cut at 25 bits below the largest exponent."""
    largest = max(
        [exponent(x) + exponent(y) for x, y in zip(a, b, strict=True) if x and y] + [exponent(c)] * (c != 0),
        default=0,
    )
    unit = Fraction(2) ** (largest - 25)
    terms = [Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)] + [Fraction(c)]
    return sum((math.trunc(term / unit) * unit for term in terms), Fraction(0))


@pytest.mark.parametrize("warps", [2, 40])  # below and above the number that is summed all at once
def test_the_rule_in_exact_arithmetic(warps: int) -> None:
    rng = np.random.default_rng(warps)
    a = (rng.integers(-128, 129, (warps, 2, 16)) * 2.0 ** rng.integers(-30, 30, (warps, 2, 16))).astype(
        np.float64
    )
    b = (rng.integers(-128, 129, (warps, 16, 3)) * 2.0 ** rng.integers(-30, 30, (warps, 16, 3))).astype(
        np.float64
    )
    c = (rng.integers(-(2**24), 2**24, (warps, 2, 3)) * 2.0 ** rng.integers(-40, 40, (warps, 2, 3))).astype(
        np.float64
    )
    a[0, 0], c[0, 0, 0] = 0.0, 0.0
    found = SUMS["bf16"][0](a, b, c)
    for warp in range(min(warps, 8)):
        for row in range(2):
            for column in range(3):
                wanted = by_the_rule(
                    a[warp, row].tolist(), b[warp, :, column].tolist(), float(c[warp, row, column])
                )
                assert Fraction(float(found[warp, row, column])) == wanted


def test_infinities_and_nans_go_through() -> None:
    a, b, c = np.ones((2, 1, 4)), np.ones((2, 4, 1)), np.zeros((2, 1, 1))
    a[0, 0, 2], a[1, 0, 1] = math.inf, math.nan
    found = SUMS["f16"][0](a, b, c)
    assert found[0, 0, 0] == math.inf
    assert math.isnan(found[1, 0, 0])


def test_f64_is_a_chain_of_fused_steps() -> None:
    rng = np.random.default_rng(4)
    a, b, c = rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 4, 1)), rng.normal(size=(1, 1, 1))
    wanted = float(c[0, 0, 0])
    for k in range(4):
        wanted = round_exact(
            Fraction(a[0, 0, k]) * Fraction(b[0, k, 0]) + Fraction(wanted), *FORMATS["f64"], "rn"
        )
    assert SUMS["f64"][0](a, b, c)[0, 0, 0] == wanted
