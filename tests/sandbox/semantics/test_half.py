"""f16 and bf16 arithmetic against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sandbox.emulator.semantics import Array
from tests.sandbox.semantics.support import FORMATS, brain, one, round_exact, run, same

NAMES = ("f16", "bf16")
ZERO_LIKE = {False: 0.0, True: -0.0}


def codes(name: str, seed: int, count: int = 3000) -> Array:
    """Carriers of every kind of value: random bits, small integers, and the edges."""
    rng = np.random.default_rng(seed)
    edges = [
        0,
        0x8000,
        1,
        0x8001,
        0x03FF,
        0x0400,
        0x007F,
        0x0080,
        0x7BFF,
        0xFBFF,
        0x7F7F,
        0x7C00,
        0xFC00,
        0x7F80,
        0xFF80,
        0x7E01,
    ]
    wide = (rng.integers(1, 9, count) * 2.0 ** rng.integers(-9, 9, count)).astype(np.float32)
    near = (
        wide.astype(np.float16).view(np.uint16)
        if name == "f16"
        else (wide.view(np.uint32) >> 16).astype(np.uint16)
    )
    bits = np.where(rng.integers(0, 2, count) == 0, rng.integers(0, 2**16, count), near).astype(np.uint16)
    bits[: len(edges)] = edges
    bits = rng.permutation(bits).reshape(1, -1)
    return bits.view(np.float16) if name == "f16" else bits


def values(name: str, carriers: Array) -> list[float]:
    flat = carriers.reshape(-1)
    return (flat if name == "f16" else brain(flat)).tolist()


def rounded(exact: Fraction | float, name: str) -> float:
    """A fraction rounded to the format, a float (zero, infinity, NaN) as it is."""
    return round_exact(exact, *FORMATS[name], "rn") if isinstance(exact, Fraction) else exact


def fma(a: float, b: float, c: float) -> Fraction | float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return exact if exact else a * b + c if a == 0 or b == 0 or c == 0 else 0.0


def check(name: str, text: str, sources: list[Array], exact) -> None:
    (found,) = run(text, *sources)
    rows = list(zip(*(values(name, source) for source in sources), strict=True))
    for got, row in zip(values(name, found), rows, strict=True):
        want = rounded(exact(*row), name)
        assert same(got, want), f"{text} {row}: found {got!r}, wanted {want!r}"


@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_rounds_once(name: str) -> None:
    a, b, c = codes(name, 1), codes(name, 2), codes(name, 3)
    check(name, f"add.rn.{name} d, a, b", [a, b], lambda x, y: fma(x, 1.0, y))
    check(name, f"sub.{name} d, a, b", [a, b], lambda x, y: fma(y, -1.0, x))
    check(
        name,
        f"mul.{name} d, a, b",
        [a, b],
        lambda x, y: Fraction(x) * Fraction(y) if math.isfinite(x * y) and x * y else x * y,
    )
    check(name, f"fma.rn.{name} d, a, b, c", [a, b, c], fma)


def test_bf16_fma_decided_far_below_the_tie() -> None:
    # 1.0078125 squared is a tie of the bf16 grid after rounding to double; 2**-100 decides it.
    a, c = np.array([[0x3F88]], np.uint16), np.array([[0x0D80]], np.uint16)  # 1.0625 and about 2**-100
    square = Fraction(1.0625) ** 2
    for sign in (0, 0x8000):
        (found,) = run("fma.rn.bf16 d, a, b, c", a, a, c | np.uint16(sign))
        exact = square + Fraction(float(brain(c)[0, 0])) * (-1 if sign else 1)
        assert values("bf16", found) == [rounded(exact, "bf16")]
    one_and, tie = (
        np.array([[0x3F81]], np.uint16),
        np.array([[0x3FC0]], np.uint16),
    )  # 1.0078125 × 1.5 is a tie
    assert Fraction(1.0078125) * Fraction(1.5) == Fraction(387, 256)
    above = run("fma.rn.bf16 d, a, b, c", one_and, tie, c)[0]
    below = run("fma.rn.bf16 d, a, b, c", one_and, tie, c | np.uint16(0x8000))[0]
    assert int(above[0]) == int(below[0]) + 1


@pytest.mark.parametrize("name", NAMES)
def test_packed_is_twice_the_scalar(name: str) -> None:
    a, b, c = (codes(name, seed) for seed in (4, 5, 6))
    pack = [np.ascontiguousarray(each).view(np.uint32) for each in (a, b, c)]
    for text, sources in (
        ("add", 2),
        ("mul", 2),
        ("fma.rn", 3),
        ("min", 2),
        ("max", 2),
        ("neg", 1),
        ("abs", 1),
    ):
        operands = ", ".join("dabc"[: sources + 1])
        (scalar,) = run(f"{text}.{name} {operands}", *(a, b, c)[:sources])
        (packed,) = run(f"{text}.{name}x2 {operands}", *pack[:sources])
        assert packed.view(np.uint16).tolist() == scalar.view(np.uint16).tolist()


def bits(name: str, numbers: list[float]) -> Array:
    if name == "f16":
        return np.array([numbers], np.float16)
    return (np.array([numbers], np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_clamps_and_flushes() -> None:
    tiny = 2.0**-15  # subnormal in f16
    assert one("add.sat.f16 d, a, b", [0.5, 3.0, -3.0, math.nan], [0.25, 0.0, 0.0, 0.0]) == [
        0.75,
        1.0,
        0.0,
        0.0,
    ]
    assert one("add.ftz.f16 d, a, b", [tiny, 1.0], [tiny, tiny]) == [0.0, 1.0]
    assert one("mul.ftz.f16 d, a, b", [2.0**-8], [2.0**-8]) == [0.0]
    found = one(
        "fma.rn.relu.f16 d, a, b, c", [1.0, -1.0, math.nan, -0.0], [2.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, -0.0]
    )
    assert found[:2] == [3.0, 0.0]
    assert math.isnan(found[2])
    assert same(found[3], 0.0)
    a = bits("bf16", [1.0, -1.0])
    assert values("bf16", run("fma.rn.relu.bf16 d, a, b, c", a, a, bits("bf16", [-3.0, 1.5]))[0]) == [
        0.0,
        2.5,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_extremes_and_signs(name: str) -> None:
    a, b = bits(name, [1.0, -0.0, math.nan, 2.0]), bits(name, [2.0, 0.0, 3.0, math.nan])
    assert values(name, run(f"min.{name} d, a, b", a, b)[0]) == [1.0, 0.0, 3.0, 2.0]
    assert math.copysign(1, values(name, run(f"min.{name} d, a, b", a, b)[0])[1]) == -1
    assert math.copysign(1, values(name, run(f"max.{name} d, a, b", a, b)[0])[1]) == 1
    found = values(name, run(f"max.NaN.{name} d, a, b", a, b)[0])
    assert found[0] == 2.0
    assert math.isnan(found[2])
    assert math.isnan(found[3])
    assert run(f"max.NaN.{name} d, a, b", a, b)[0].view(np.uint16)[2] == 0x7FFF
    assert values(name, run(f"min.xorsign.abs.{name} d, a, b", bits(name, [-1.0]), bits(name, [2.0]))[0]) == [
        -1.0
    ]
    assert values(name, run(f"neg.{name} d, a", bits(name, [1.5, -0.0]))[0]) == [-1.5, 0.0]
    assert values(name, run(f"abs.{name} d, a", bits(name, [-1.5, -math.inf]))[0]) == [1.5, math.inf]


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision_results_are_f32(name: str) -> None:
    a, b = codes(name, 7, 400), codes(name, 8, 400)
    c = (
        np.random.default_rng(9)
        .integers(0, 2**32, 400, dtype=np.uint64)
        .astype(np.uint32)
        .view(np.float32)
        .reshape(1, -1)
    )
    rows = list(zip(values(name, a), values(name, b), c[0].tolist(), strict=True))
    for direction in ("rn", "rz", "rm", "rp"):
        found = one(f"fma.{direction}.f32.{name} d, a, b, c", a, b, c)
        for got, row in zip(found, rows, strict=True):
            exact = fma(*row)
            if isinstance(exact, Fraction):
                assert same(got, round_exact(exact, *FORMATS["f32"], direction)), row
            elif exact != 0:
                assert same(got, exact)
    assert one(f"add.f32.{name} d, a, c", bits(name, [1.0]), [2.0**-20]) == [1 + 2.0**-20]
    assert one(f"sub.f32.{name} d, a, c", bits(name, [1.0]), [2.0**-20]) == [1 - 2.0**-20]
