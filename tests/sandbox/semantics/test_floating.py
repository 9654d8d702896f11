"""f32 and f64 arithmetic against exact fractions, in every rounding direction."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.emulator.semantics import rounding
from tests.sandbox.semantics.support import FORMATS, doubles, one, round_exact, run, same, singles

DIRECTIONS = ("rn", "rz", "rm", "rp")
SAMPLES = {"f32": singles, "f64": doubles}
CANONICAL = 0x7FFF_FFFF


def zero_sum(signs: list[bool], direction: str) -> float:
    """An exact zero sum: the common sign of its zero parts, else −0 when rounding down and +0 otherwise."""
    if all(signs):
        return -0.0
    if not any(signs):
        return 0.0
    return -0.0 if direction == "rm" else 0.0


def exact_fma(a: float, b: float, c: float, name: str, direction: str) -> float:
    """a × b + c with one rounding; a sum is b = 1, a product c = −0 of its own sign."""
    if not all(map(math.isfinite, (a, b, c))):
        product = math.nan if math.isnan(a) or math.isnan(b) else None
        if product is None:
            if (math.isinf(a) and b == 0) or (math.isinf(b) and a == 0):
                product = math.nan
            elif math.isinf(a) or math.isinf(b):
                product = math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))
            else:
                product = 0.0
        return product + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        negative = math.copysign(1, a) * math.copysign(1, b) < 0
        return zero_sum([negative, math.copysign(1, c) < 0], direction)
    return round_exact(exact, *FORMATS[name], direction)


def check(found: list[float], wanted: list[float], rows: list[tuple[float, ...]]) -> None:
    for got, want, row in zip(found, wanted, rows, strict=True):
        assert same(got, want), f"{row}: found {got!r}, wanted {want!r}"


def triples(name: str, count: int = 1500) -> list[np.ndarray]:
    """Three columns; the third often close to minus the product of the others, where cancellation bites."""
    make = SAMPLES[name]
    rng = np.random.default_rng(5)
    a, b, c = (make(seed, count) for seed in (1, 2, 3))
    a, b, c = rng.permutation(a), rng.permutation(b), rng.permutation(c)
    with np.errstate(all="ignore"):
        near = (-(a * b)).astype(c.dtype)
        near = np.where(rng.integers(0, 2, count) == 1, np.nextafter(near, c.dtype.type(1)), near)
    c = np.where(rng.integers(0, 3, count) == 0, near, c)
    return [each.reshape(1, -1) for each in (a, b, c)]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_fma_rounds_once(name: str, direction: str) -> None:
    a, b, c = triples(name)
    rows = list(zip(*(each[0].tolist() for each in (a, b, c)), strict=True))
    check(
        one(f"fma.{direction}.{name} d, a, b, c", a, b, c),
        [exact_fma(*row, name, direction) for row in rows],
        rows,
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_sums_and_products(name: str, direction: str) -> None:
    a, b, _ = triples(name)
    _, _, near = triples(name)
    rows = list(zip(a[0].tolist(), b[0].tolist(), strict=True))
    sums = list(zip(a[0].tolist(), near[0].tolist(), strict=True))
    check(
        one(f"add.{direction}.{name} d, a, b", a, near),
        [exact_fma(x, 1.0, y, name, direction) for x, y in sums],
        sums,
    )
    check(
        one(f"sub.{direction}.{name} d, a, b", a, near),
        [exact_fma(x, 1.0, -y, name, direction) for x, y in sums],
        sums,
    )
    products = []
    for x, y in rows:
        sign = math.copysign(1, x) * math.copysign(1, y)
        products.append(exact_fma(x, y, math.copysign(0.0, sign), name, direction))
    check(one(f"mul.{direction}.{name} d, a, b", a, b), products, rows)


def exact_quotient(a: float, b: float, name: str, direction: str) -> float:
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isinf(a) or b == 0:
        return math.copysign(math.inf, sign)
    if math.isinf(b) or a == 0:
        return math.copysign(0.0, sign)
    return round_exact(Fraction(a) / Fraction(b), *FORMATS[name], direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_quotients(name: str, direction: str) -> None:
    a, b, _ = triples(name)
    rows = list(zip(a[0].tolist(), b[0].tolist(), strict=True))
    check(
        one(f"div.{direction}.{name} d, a, b", a, b),
        [exact_quotient(x, y, name, direction) for x, y in rows],
        rows,
    )
    check(
        one(f"rcp.{direction}.{name} d, a", a),
        [exact_quotient(1.0, x, name, direction) for x, _ in rows],
        rows,
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_roots_bracket_the_exact_one(name: str, direction: str) -> None:
    a = np.abs(SAMPLES[name](9, 1500)).reshape(1, -1)
    squares = (np.arange(300.0) ** 2).reshape(1, -1)
    a = np.concatenate([a, squares.astype(a.dtype)], axis=1)
    (roots,) = run(f"sqrt.{direction}.{name} d, a", a)
    for x, root in zip(a[0], roots, strict=True):
        if not np.isfinite(x) or x == 0:
            assert same(float(root), math.sqrt(x))
            continue
        exact, square = Fraction(float(x)), Fraction(float(root)) ** 2
        above, below = Fraction(float(np.nextafter(root, np.inf))), Fraction(float(np.nextafter(root, 0)))
        if direction in ("rz", "rm"):
            assert square <= exact < above**2
        elif direction == "rp":
            assert below**2 < exact <= square
        else:
            middle = Fraction(float(root))
            assert ((below + middle) / 2) ** 2 <= exact <= ((above + middle) / 2) ** 2


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=300, deadline=None)
@given(FINITE, FINITE, FINITE, st.sampled_from(DIRECTIONS))
def test_fma_f32_of_any_values(a: float, b: float, c: float, direction: str) -> None:
    assert same(
        one(f"fma.{direction}.f32 d, a, b, c", [a], [b], [c])[0], exact_fma(a, b, c, "f32", direction)
    )


@settings(max_examples=300, deadline=None)
@given(*[st.floats(allow_nan=False, allow_infinity=False)] * 3, st.sampled_from(DIRECTIONS))
def test_fma_f64_of_any_values(a: float, b: float, c: float, direction: str) -> None:
    assert same(
        one(f"fma.{direction}.f64 d, a, b, c", [a], [b], [c])[0], exact_fma(a, b, c, "f64", direction)
    )


def test_the_tie_that_double_rounding_would_break() -> None:
    # a × b is a tie of the f32 grid; c decides it, far below what a double can add.
    a, b, c = 1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60
    assert np.float32(np.float64(a) * b + c) != one("fma.rn.f32 d, a, b, c", [a], [b], [c])[0]
    assert one("fma.rn.f32 d, a, b, c", [a], [b], [c])[0] == 1 + 2.0**-11 + 2.0**-23


def test_neg_and_abs_of_nan() -> None:
    odd = np.array([[0xFF80_0001]], np.uint32).view(np.float32)
    assert run("neg.f32 d, a", odd)[0].view(np.uint32).tolist() == [CANONICAL]
    assert run("abs.f32 d, a", odd)[0].view(np.uint32).tolist() == [CANONICAL]
    wide = np.array([[0x7FF0_0000_0000_0001]], np.uint64).view(np.float64)
    assert run("neg.f64 d, a", wide)[0].view(np.uint64).tolist() == [0x7FF8_0000_0000_0001]


def test_f32_nan_results_are_canonical() -> None:
    odd = np.array([[0x7F80_0001, 0xFFC1_2345]], np.uint32).view(np.float32)
    other = np.ones((1, 2), np.float32)
    for text, sources in (
        ("add.f32 d, a, b", 2),
        ("mul.f32 d, a, b", 2),
        ("fma.rn.f32 d, a, b, c", 3),
        ("min.NaN.f32 d, a, b", 2),
    ):
        (found,) = run(text, odd, *[other] * (sources - 1))
        assert found.view(np.uint32).tolist() == [CANONICAL, CANONICAL], text
    (found,) = run("max.f32 d, a, b", odd, odd)
    assert found.view(np.uint32).tolist() == [CANONICAL, CANONICAL]


def test_ftz_flushes_sources_and_results() -> None:
    tiny, small = 2.0**-126, 2.0**-127
    assert one("add.ftz.f32 d, a, b", [small, -small], [0.0, -0.0]) == [0.0, 0.0]
    assert math.copysign(1, one("add.ftz.f32 d, a, b", [-small], [-0.0])[0]) == -1
    assert one("add.f32 d, a, b", [small], [0.0]) == [small]
    assert one("mul.ftz.f32 d, a, b", [tiny], [0.5]) == [0.0]
    assert one("fma.rn.ftz.f32 d, a, b, c", [1.0], [1.0], [small]) == [1.0]
    assert one("mul.ftz.f32 d, a, b", [small], [2.0**30]) == [0.0]
    assert one("abs.ftz.f32 d, a", [-small]) == [0.0]


def test_ftz_goes_by_the_value_with_no_lower_bound_on_its_exponent() -> None:
    # Readings of an H200: 2**-126 (1 - 2**-24) fits 24 bits below the normal range; 1 - 2**-26 rounds up.
    def near(k: int) -> tuple[list[float], list[float]]:
        return [(1 - 2.0**-k) * 2.0**-63], [(1 + 2.0**-k) * 2.0**-63]

    for mode in ("rn", "rp"):
        assert one(f"mul.{mode}.ftz.f32 d, a, b", *near(12)) == [0.0]
        assert one(f"mul.{mode}.ftz.f32 d, a, b", *near(13)) == [2.0**-126]
        assert one(f"fma.{mode}.ftz.f32 d, a, b, c", *near(12), [0.0]) == [0.0]
        assert one(f"fma.{mode}.ftz.f32 d, a, b, c", *near(13), [0.0]) == [2.0**-126]
        assert one(f"cvt.{mode}.ftz.f32.f64 d, a", [2.0**-126 * (1 - 2.0**-24)]) == [0.0]
        assert one(f"cvt.{mode}.ftz.f32.f64 d, a", [2.0**-126 * (1 - 2.0**-25)]) == [2.0**-126]
    assert one("mul.f32 d, a, b", *near(12)) == [2.0**-126]
    assert one("mul.rz.ftz.f32 d, a, b", *near(13)) == [0.0]
    assert one("div.rp.ftz.f32 d, a, b", [2.0**-126], [1 + 2.0**-23]) == [0.0]
    assert one("fma.rn.ftz.f32 d, a, b, c", [-(2.0**-75)], [2.0**-75], [2.0**-126]) == [0.0]
    assert one("fma.rn.ftz.f32 d, a, b, c", [-(2.0**-75)], [2.0**-76], [2.0**-126]) == [2.0**-126]


def test_sat_clamps_and_takes_nan_to_zero() -> None:
    found = one(
        "add.sat.f32 d, a, b", [0.25, 2.0, -3.0, math.nan, math.inf, -0.0], [0.5, 0.0, 0.0, 0.0, 0.0, -0.0]
    )
    assert found == [0.75, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert math.copysign(1, found[-1]) == 1


def test_minimum_and_maximum() -> None:
    nan, a, b = math.nan, [1.0, -0.0, 0.0, math.nan, 2.0], [2.0, 0.0, -0.0, 3.0, math.nan]
    for name in ("f32", "f64"):
        for found, want in zip(one(f"min.{name} d, a, b", a, b), [1.0, -0.0, -0.0, 3.0, 2.0], strict=True):
            assert same(found, want)
        for found, want in zip(one(f"max.{name} d, a, b", a, b), [2.0, 0.0, 0.0, 3.0, 2.0], strict=True):
            assert same(found, want)
    for found, want in zip(one("min.NaN.f32 d, a, b", a, b), [1.0, -0.0, -0.0, nan, nan], strict=True):
        assert same(found, want)
    found = one("min.xorsign.abs.f32 d, a, b", [-1.0, -1.0, 3.0], [2.0, -2.0, -0.5])
    assert found == [-1.0, 1.0, -0.5]
    assert one("max.f32 d, a, b, c", [1.0, 5.0], [2.0, 4.0], [0.5, 9.0]) == [2.0, 9.0]


def test_signs_and_classes() -> None:
    values = [0.0, -0.0, 1.0, -(2.0**-127), math.inf, math.nan]
    assert one("testp.finite.f32 p, a", values) == [True, True, True, True, False, False]
    assert one("testp.infinite.f32 p, a", values) == [False, False, False, False, True, False]
    assert one("testp.number.f32 p, a", values) == [True, True, True, True, True, False]
    assert one("testp.notanumber.f32 p, a", values) == [False] * 5 + [True]
    assert one("testp.normal.f32 p, a", values) == [True, True, True, False, False, False]
    assert one("testp.subnormal.f32 p, a", values) == [False, False, False, True, False, False]
    assert one("copysign.f32 d, a, b", [-0.0, 1.0], [3.0, -4.0]) == [-3.0, 4.0]
    assert one("neg.f64 d, a", [1.5, -0.0]) == [-1.5, 0.0]


def test_pairs_of_f32() -> None:
    a = np.array([[1.5, -2.0]], np.float32).view(np.uint64)
    (found,) = run("fma.rn.f32x2 d, a, b, c", a, a, a)
    assert found.view(np.float32).tolist() == [1.5 * 1.5 + 1.5, 2.0]


def test_odd_rounding_keeps_the_side() -> None:
    total = rounding.exact_sum(np.array([1.0]), np.array([2.0**-80]))
    assert total[0] == 1 + 2.0**-52
    assert rounding.exact_sum(np.array([1.0]), np.array([-(2.0**-80)]))[0] == 1 - 2.0**-53
