"""Comparison with a reference: what passes, what fails and why, and where wrong elements lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.schema import DType, Tolerance
from tools import numerics
from tools.numerics import EPS, TINY, Expectation, Judgement, acceptable, judge
from tools.pattern import describe

NAN, INF = float("nan"), float("inf")
TORCH = {
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F64: torch.float64,
}


def compare(got: object, reference: object, dtype: DType = DType.F32, **options: object) -> Judgement:
    kind = TORCH.get(dtype, torch.int32)
    want = torch.as_tensor(reference, dtype=torch.float64 if dtype in TORCH else torch.int64)
    expectation = Expectation(
        dtype=dtype,
        reference=want,
        honest=want.to(kind),
        magnitude=None,
        tolerance=Tolerance(),
        terms=1,
        exact=bool(options.get("exact")),
        nan_payload=bool(options.get("nan_payload")),
    )
    mask = options.get("unwritten")
    actual = torch.as_tensor(got, dtype=kind)
    return judge(actual, expectation, workload="w", output="y", unwritten=mask)  # type: ignore[arg-type]


def test_the_honest_answer_passes_in_every_type() -> None:
    reference = torch.randn(1000, dtype=torch.float64)
    for dtype, kind in TORCH.items():
        judged = compare(reference.to(kind), reference, dtype)
        assert judged.passed
        assert judged.error <= 1


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1.001, 0.0])
def test_one_wrong_element_fails_whatever_it_is(bad: float) -> None:
    reference = np.ones(100)
    got = reference.copy()
    got[37] = bad
    judged = compare(got, reference)
    assert not judged.passed
    assert judged.mismatch is not None
    assert (judged.mismatch.first, judged.mismatch.wrong) == ((37,), 1)
    assert judged.mismatch.pattern == "only element 37"


@pytest.mark.parametrize(
    ("got", "reference", "passes"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, INF, False),
        (NAN, INF, False),
        (INF, NAN, False),
        (1.0, NAN, False),
        (3.0e38, INF, False),
        (INF, 1e39, True),
        (0.0, 1e-39, True),
        (0.0, 1e-30, False),
    ],
)
def test_special_values_must_match_in_kind_and_sign(got: float, reference: float, passes: bool) -> None:
    assert compare([got], [reference]).passed is passes


def test_nan_payloads_count_only_where_the_task_says_so() -> None:
    other = torch.tensor([0x7FC12345], dtype=torch.int32).view(torch.float32)
    assert compare(other, [NAN]).passed
    assert not compare(other, [NAN], nan_payload=True).passed
    assert compare([NAN], [NAN], nan_payload=True).passed


def test_exact_mode_tells_one_unit_in_the_last_place_but_not_minus_zero() -> None:
    near = float(np.nextafter(np.float32(3), np.float32(4)))
    assert not compare([near], [3.0], exact=True).passed
    assert compare([near], [3.0]).passed
    assert compare([-0.0], [0.0], exact=True).passed
    judged = compare([near], [3.0], exact=True)
    assert judged.mismatch is not None
    assert judged.mismatch.max_ulp == 1


def test_integers_are_exact() -> None:
    assert compare([1, 2, 3], [1, 2, 3], DType.S32).passed
    judged = compare([1, 2, 4], [1, 2, 3], DType.S32)
    assert judged.reason == "values"
    assert judged.mismatch is not None
    assert judged.mismatch.got == 4


def test_half_precision_arithmetic_in_a_float_task_is_named_precision() -> None:
    reference = torch.randn(512, dtype=torch.float64) * 100
    assert compare(reference.to(torch.float16).float(), reference).reason == "precision"
    assert compare(reference.to(torch.bfloat16).float(), reference).reason == "precision"
    large = reference * 1000
    assert compare(large.to(torch.float16).float(), large).reason == "precision"


def test_error_within_each_tolerance_but_large_as_a_whole_fails() -> None:
    reference = torch.rand(4096, dtype=torch.float64) + 1
    biased = (reference * (1 + 3 * 2.0**-23)).float()
    judged = compare(biased, reference)
    assert judged.reason == "precision"
    assert judged.mismatch is not None
    assert "as a whole" in judged.mismatch.pattern


def test_skipped_special_inputs_are_named_nonfinite() -> None:
    reference = np.arange(8.0)
    reference[[2, 5]] = [NAN, INF]
    got = reference.copy()
    got[[2, 5]] = 7.0
    missing = ~np.isfinite(reference)
    assert compare(got, reference, unwritten=missing).reason == "nonfinite"
    assert compare(np.full(8, NAN), np.arange(8.0)).reason == "nonfinite"


def test_unwritten_elements_fail_even_when_they_look_right() -> None:
    missing = np.zeros(100, np.bool_)
    missing[50:] = True
    judged = compare(np.ones(100), np.ones(100), unwritten=missing)
    assert judged.reason == "unwritten"
    assert judged.mismatch is not None
    assert judged.mismatch.unwritten == 50


@pytest.mark.parametrize(
    ("change", "words", "ratio"),
    [
        (lambda r: 0 * r, "the output is 0", 0.0),
        (lambda r: 0 * r + 2.5, "always 2.5", None),
        (lambda r: 2 * r, "got is 2 times expected", 2.0),
        (lambda r: r + 1, "got is expected + 1", None),
        (lambda r: np.roll(r, -1), "got[i] is expected[i + 1]", None),
    ],
)
def test_laws_between_got_and_expected_are_named(change, words: str, ratio: float | None) -> None:  # type: ignore[no-untyped-def]
    reference = np.random.default_rng(1).normal(size=256) + 3
    judged = compare(change(reference), reference)
    assert judged.mismatch is not None
    assert words in judged.mismatch.pattern
    assert judged.mismatch.ratio == (None if ratio is None else pytest.approx(ratio, rel=1e-3))


def test_a_transposed_answer_is_named() -> None:
    reference = np.random.default_rng(1).normal(size=(32, 32))
    judged = compare(reference.T.copy(), reference)
    assert judged.mismatch is not None
    assert judged.mismatch.pattern == "every element off the diagonal; there got is the transpose of expected"


@pytest.mark.parametrize(
    ("size", "select", "phrase"),
    [
        (1000, lambda i: i >= 512, "every element from index 512 on (a multiple of 512)"),
        (1000, lambda i: i < 0, ""),
        (1000, lambda i: i >= 0, "every element"),
        (1000, lambda i: i % 2 == 1, "odd elements"),
        (1000, lambda i: i % 8 > 3, "elements with index % 8 in {4..7}"),
        (
            1000,
            lambda i: i >= 992,
            "every element from index 992 on (the last 8, after the last whole block of 32)",
        ),
        (1000, lambda i: i == 999, "only element 999 (the last)"),
        (1000, lambda i: (i >= 100) & (i < 200), "elements 100 to 199"),
        (1000, lambda i: i != 0, "every element but the first"),
        (1024, lambda i: (i // 256 == 1) | (i // 256 == 3), "elements with index % 512 in {256..511}"),
        (
            1024,
            lambda i: (i // 256 == 0) | (i // 256 == 3),
            "whole blocks of 256 elements: blocks {0, 3} of 4",
        ),
    ],
)
def test_patterns_on_a_line(size: int, select, phrase: str) -> None:  # type: ignore[no-untyped-def]
    assert describe(select(np.arange(size))) == phrase


@pytest.mark.parametrize(
    ("select", "phrase"),
    [
        (lambda r, c: (r >= 64) & (c >= 0), "every row from row 64 on (a multiple of 64)"),
        (lambda r, c: (r >= 0) & (c % 8 >= 4), "columns with column % 8 in {4..7}"),
        (lambda r, c: (r >= 64) & (c % 2 == 1), "every row from row 64 on (a multiple of 64), odd columns"),
        (lambda r, c: c > r, "every element above the diagonal"),
        (
            lambda r, c: (r // 32 + c // 32) % 3 == 1,
            "whole tiles of 32 rows x 32 columns: tile (0, 1), (1, 0), (1, 3), (2, 2) of 3 x 4",
        ),
    ],
)
def test_patterns_on_a_plane(select, phrase: str) -> None:  # type: ignore[no-untyped-def]
    rows, columns = np.indices((96, 128))
    assert describe(select(rows, columns)) == phrase


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(1, 4))
@settings(deadline=None, max_examples=200)
def test_any_mask_gets_a_phrase(bits: list[bool], rows: int) -> None:
    flat = np.array(bits * rows)
    assert bool(describe(flat)) == any(bits)
    assert bool(describe(flat.reshape(rows, -1))) == any(bits)


@given(
    st.lists(st.floats(width=32), min_size=4, max_size=40),
    st.lists(st.floats(width=32), min_size=4, max_size=40),
)
@settings(deadline=None, max_examples=100)
def test_any_two_outputs_can_be_compared(got: list[float], reference: list[float]) -> None:
    size = min(len(got), len(reference))
    judged = compare(got[:size], reference[:size])
    assert judged.passed is (judged.reason == "") is (judged.mismatch is None)
    assert judged.passed is (judged.error <= 1)
    assert compare(reference[:size], reference[:size]).passed


def plain(got: torch.Tensor, want: Expectation) -> tuple[bool, float]:
    """The rule as the docstrings state it, in NumPy, element by element and whole."""
    y, r = got.double().numpy(), want.reference.double().numpy()
    rounded = want.reference.to(got.dtype).double().numpy()
    honest = want.honest.double().numpy()
    magnitude = np.abs(r) if want.magnitude is None else want.magnitude.numpy()
    eps, rule = EPS[want.dtype], want.tolerance
    gathered = EPS.get(rule.accumulate, 0.0) * np.sqrt(max(want.terms, 1)) * magnitude
    with np.errstate(all="ignore"):
        allowed = rule.factor * (eps * np.abs(r) + gathered) + TINY[want.dtype]
        same = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
        error = np.abs(y - r)
        near = np.isfinite(r) & (error <= allowed) & (not want.exact)
        if not (same | near).all():
            return False, 0.0
        share = np.where(same, 0.0, error / allowed)
        counted = np.isfinite(r) & np.isfinite(rounded) & np.isfinite(honest)
        if want.exact or not counted.any():
            return True, float(share.max(initial=0.0))
        rms = lambda values: np.sqrt(np.mean(np.square(values[counted])))  # noqa: E731
        floor = eps * rms(r) + rms(gathered) / 2 + TINY[want.dtype]
        excess = rms(error) / (rule.rms_ratio * rms(honest - r) + floor)
    return bool(excess <= 1), float(share.max(initial=0.0)) if excess <= 1 else float(excess)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[torch.Tensor, Expectation]:
    """An output and what it must be: near it, far from it, special in places."""
    dtype = draw(st.sampled_from(sorted(TORCH)))
    kind = TORCH[dtype]
    size = draw(st.integers(0, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    reference = rng.normal(size=size) * 10.0 ** draw(st.integers(-3, 3))
    honest = reference * (1 + rng.normal(size=size) * EPS[dtype] * draw(st.sampled_from([0, 0.3, 1])))
    got = reference * (1 + rng.normal(size=size) * EPS[dtype] * draw(st.sampled_from([0, 0.3, 1, 3, 30])))
    strange = np.array([np.nan, np.inf, -np.inf, 0.0, 1e-42, 1e39])
    for values, share in ((reference, 0.2), (got, 0.03)):
        places = rng.random(size) < share * draw(st.integers(0, 1))
        values[places] = rng.choice(strange, int(places.sum()))
    got = np.where(
        np.isnan(reference) | np.isinf(reference), np.where(rng.random(size) < 0.99, reference, 1.0), got
    )
    magnitude = (
        None
        if draw(st.booleans())
        else torch.from_numpy(np.abs(np.nan_to_num(reference, posinf=0, neginf=0)) * 3 + 1)
    )
    want = Expectation(
        dtype=dtype,
        reference=torch.from_numpy(reference),
        honest=torch.from_numpy(honest).to(kind),
        magnitude=magnitude,
        tolerance=Tolerance(factor=draw(st.sampled_from([1.0, 2.0, 8.0]))),
        terms=draw(st.sampled_from([1, 64, 4096])),
        exact=draw(st.integers(0, 5)) == 0,
    )
    return torch.from_numpy(got).to(kind), want


@given(outputs())
@settings(deadline=None, max_examples=150)
def test_the_rule_is_what_it_says_and_judge_describes_what_it_refuses(
    case: tuple[torch.Tensor, Expectation],
) -> None:
    got, want = case
    passed, error = acceptable(got, want)
    stated, share = plain(got, want)
    assert passed is stated
    assert passed is (error <= 1)
    if passed:
        assert error == pytest.approx(min(share, 1.0))
    judged = judge(got, want, workload="w", output="y")
    assert judged.passed is passed
    assert (judged.reason == "") is passed


@given(outputs(), st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_the_rule_does_not_depend_on_how_an_output_is_cut(
    case: tuple[torch.Tensor, Expectation], piece: int
) -> None:
    got, want = case
    whole = acceptable(got, replace(want, yardstick=[]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "PIECE", piece)
        cut = acceptable(got, replace(want, yardstick=[]))
    assert cut[0] is whole[0]
    assert cut[1] == pytest.approx(whole[1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", sorted(TORCH))
def test_the_rule_is_the_same_on_a_gpu(dtype: DType) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    generator = torch.Generator().manual_seed(3)
    for spread in (0.0, 0.5, 3.0, 40.0):
        reference = torch.randn(100_000, dtype=torch.float64, generator=generator)
        noise = torch.randn(100_000, dtype=torch.float64, generator=generator)
        reference[::1000] = float("nan")
        got = (reference * (1 + noise * EPS[dtype] * spread)).to(TORCH[dtype])
        want = Expectation(dtype, reference, reference.to(TORCH[dtype]), None, Tolerance(), 1)
        there = Expectation(dtype, reference.cuda(), reference.to(TORCH[dtype]).cuda(), None, Tolerance(), 1)
        (passed, error), (passed_there, error_there) = acceptable(got, want), acceptable(got.cuda(), there)
        assert passed is passed_there
        assert error == pytest.approx(error_there)
