"""Approximate functions: special values of the ISA's tables, and errors within what it states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sandbox.semantics.support import one, run, same, singles

INF, NAN = math.inf, math.nan

SPECIAL = {
    "rcp.approx.f32 d, a": [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN), (2.0, 0.5)],
    "rcp.approx.ftz.f32 d, a": [(2.0**-130, INF), (-(2.0**-130), -INF), (2.0**127, 0.0), (4.0, 0.25)],
    "sqrt.approx.f32 d, a": [
        (-INF, NAN),
        (-1.0, NAN),
        (-0.0, -0.0),
        (0.0, 0.0),
        (INF, INF),
        (NAN, NAN),
        (9.0, 3.0),
    ],
    "sqrt.approx.ftz.f32 d, a": [(-(2.0**-130), -0.0), (2.0**-130, 0.0)],
    "rsqrt.approx.f32 d, a": [
        (-INF, NAN),
        (-1.0, NAN),
        (-0.0, -INF),
        (0.0, INF),
        (INF, 0.0),
        (NAN, NAN),
        (4.0, 0.5),
    ],
    "rsqrt.approx.ftz.f32 d, a": [(2.0**-130, INF), (-(2.0**-130), -INF)],
    "sin.approx.f32 d, a": [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN), (NAN, NAN)],
    "cos.approx.f32 d, a": [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN), (NAN, NAN)],
    "lg2.approx.f32 d, a": [
        (-INF, NAN),
        (-1.0, NAN),
        (-0.0, -INF),
        (0.0, -INF),
        (INF, INF),
        (NAN, NAN),
        (8.0, 3.0),
    ],
    "lg2.approx.ftz.f32 d, a": [(2.0**-130, -INF), (-(2.0**-130), -INF)],
    "ex2.approx.f32 d, a": [
        (-INF, 0.0),
        (-0.0, 1.0),
        (0.0, 1.0),
        (INF, INF),
        (NAN, NAN),
        (-130.0, 2.0**-130),
        (3.0, 8.0),
    ],
    "ex2.approx.ftz.f32 d, a": [(-130.0, 0.0), (2.0**-130, 1.0)],
    "tanh.approx.f32 d, a": [(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (NAN, NAN)],
    "ex2.approx.f16 d, a": [(-INF, 0.0), (0.0, 1.0), (INF, INF), (NAN, NAN), (3.0, 8.0)],
    "tanh.approx.f16 d, a": [(-INF, -1.0), (-0.0, -0.0), (INF, 1.0), (NAN, NAN)],
    "rsqrt.approx.f64 d, a": [(-1.0, NAN), (0.0, INF), (INF, 0.0), (4.0, 0.5)],
    "rcp.approx.ftz.f64 d, a": [(0.0, INF), (-INF, -0.0), (2.0, 0.5), (1e-310, INF), (NAN, NAN)],
}


@pytest.mark.parametrize("text", SPECIAL)
def test_special_values(text: str) -> None:
    rows = SPECIAL[text]
    for found, (source, want) in zip(one(text, [source for source, _ in rows]), rows, strict=True):
        assert same(found, want), f"{text} of {source}: found {found}, wanted {want}"


@pytest.mark.parametrize(
    ("text", "exact", "low", "high", "relative"),
    [
        ("rcp.approx.f32", lambda x: 1 / x, 2.0**-120, 2.0**120, 2.0**-23),
        ("sqrt.approx.f32", math.sqrt, 2.0**-126, 2.0**120, 2.0**-23),
        ("rsqrt.approx.f32", lambda x: 1 / math.sqrt(x), 2.0**-126, 2.0**120, 2.0**-22.9),
        ("ex2.approx.f32", lambda x: 2.0**x, -120.0, 120.0, 2.0**-22.5),
        ("tanh.approx.f32", math.tanh, 2.0**-20, 9.0, 2.0**-11),
        ("rsqrt.approx.f64", lambda x: 1 / math.sqrt(x), 1e-300, 1e300, 2.0**-50),
        ("rcp.approx.ftz.f64", lambda x: 1 / x, 1e-300, 1e300, 2.0**-19),
        ("rsqrt.approx.ftz.f64", lambda x: 1 / math.sqrt(x), 1e-300, 1e300, 2.0**-19),
    ],
)
def test_relative_errors_stay_within_the_isa(
    text: str, exact, low: float, high: float, relative: float
) -> None:
    rng = np.random.default_rng(1)
    spread = (
        rng.uniform(low, high, 1000) if low < 0 else np.exp(rng.uniform(math.log(low), math.log(high), 1000))
    )
    sources = spread.astype(np.float32 if "f32" in text else np.float64)
    (found,) = run(f"{text} d, a", sources[None])
    for got, x in zip(found.tolist(), sources.tolist(), strict=True):
        assert abs(got - exact(x)) <= relative * abs(exact(x)), x


@pytest.mark.parametrize(
    ("text", "exact", "high"),
    [("sin", math.sin, math.pi), ("cos", math.cos, math.pi), ("lg2", math.log2, 2.0)],
)
def test_absolute_errors_stay_within_the_isa(text: str, exact, high: float) -> None:
    sources = np.random.default_rng(2).uniform(0.5 if text == "lg2" else -high, high, 1000).astype(np.float32)
    (found,) = run(f"{text}.approx.f32 d, a", sources[None])
    for got, x in zip(found.tolist(), sources.tolist(), strict=True):
        assert abs(got - exact(x)) <= 2.0**-20.5, x


def test_lower_word_of_gross_f64_forms_is_zero() -> None:
    (found,) = run("rcp.approx.ftz.f64 d, a", np.random.default_rng(3).uniform(1, 9, (1, 50)))
    assert not (found.view(np.uint64) & 0xFFFF_FFFF).any()


def test_division() -> None:
    a, b = singles(4, 1000)[None], singles(5, 1000)[None]
    (full,) = run("div.full.f32 d, a, b", a, b)
    (exact,) = run("div.rn.f32 d, a, b", a, b)
    assert full.view(np.uint32).tolist() == exact.view(np.uint32).tolist()
    rows = [
        (1.0, 2.0**127, 0.0),
        (-1.0, 2.0**127, -0.0),
        (INF, 2.0**127, NAN),
        (1.0, INF, 0.0),
        (6.0, 3.0, 2.0),
        (0.0, 0.0, NAN),
    ]
    found = one("div.approx.f32 d, a, b", [a for a, _, _ in rows], [b for _, b, _ in rows])
    for got, (_, _, want) in zip(found, rows, strict=True):
        assert same(got, want)


def test_bf16_forms_round_to_bf16() -> None:
    one_and_a_half = np.array([[0x3FC0]], np.uint16)
    assert run("ex2.approx.ftz.bf16 d, a", one_and_a_half)[0].tolist() == [
        0x4035
    ]  # 2.828125, nearest to 2**1.5
    pair = np.array([[0x3FC0_0000]], np.uint32)
    assert run("tanh.approx.bf16x2 d, a", pair)[0].tolist() == [0x3F68_0000]  # 0.90625, nearest to tanh(1.5)
