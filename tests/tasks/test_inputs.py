"""Inputs are a function of seed and name alone, every kind fits every type, and whole numbers are whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.dtypes import DTYPES, to_bytes, torch_dtype
from tasks.inputs import INTEGER_LIMITS, KINDS, generator, make
from tasks.schema import DType, Inputs

NORMAL = Inputs(kind="normal", mean=3.0, std=2.0)
FLOATS = [dtype for dtype in DType if DTYPES[dtype].eps]
WHOLE = [dtype for dtype in DType if not DTYPES[dtype].eps]


def bits(tensor: torch.Tensor) -> bytes:
    return to_bytes(tensor).tobytes()


def test_every_kind_of_the_schema_can_be_made() -> None:
    kinds = Inputs.model_json_schema()["properties"]["kind"]["enum"]
    assert set(kinds) == {*KINDS, "custom"}
    assert set(INTEGER_LIMITS) == set(WHOLE)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3)])
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_fits_every_type_and_shape(kind: str, dtype: DType, shape: tuple[int, ...]) -> None:
    how = Inputs.model_validate({"kind": kind, "low": -3, "high": 9})
    tensor = make("x", shape, dtype, how, 1)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch_dtype(dtype), shape)
    assert bits(tensor) == bits(make("x", shape, dtype, how, 1))


def test_the_generator_is_the_one_it_was() -> None:
    """Values of a seed are for ever: a recorded seed must make the same inputs again."""
    assert generator(7, "x").integers(0, 2**32, 3).tolist() == GOLDEN


GOLDEN = [1154037105, 1052830801, 2807403777]


@given(seed=st.integers(0, 2**64), other=st.integers(0, 2**64))
@settings(deadline=None, max_examples=30)
def test_another_seed_makes_other_values(seed: int, other: int) -> None:
    same = bits(make("x", (64,), DType.F32, NORMAL, seed)) == bits(make("x", (64,), DType.F32, NORMAL, other))
    assert same == (seed == other)


def test_tensors_of_a_workload_are_independent() -> None:
    n = 20_000
    a, b = (make(name, (n,), DType.F64, Inputs(), 5) for name in ("a", "b"))
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 5 / n**0.5
    alone = make("b", (n,), DType.F64, Inputs(), 5)
    assert torch.equal(alone, b), "another tensor made before changes nothing"


def test_seed_and_name_are_not_run_together() -> None:
    pairs = [(1, "1x"), (11, "x"), (1, "x"), (11, "1x")]
    assert len({bits(make(name, (8,), DType.F64, Inputs(), seed)) for seed, name in pairs}) == len(pairs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_whole_numbers_are_exact_up_to_what_the_type_holds(dtype: DType) -> None:
    most = min(int(2 / DTYPES[dtype].eps), 2**53)
    how = Inputs(kind="integers", low=-most, high=most)
    drawn = make("x", (4_000,), DType.F64, how, 9)
    assert torch.equal(make("x", (4_000,), dtype, how, 9).double(), drawn)
    assert torch.equal(drawn, drawn.round())
    assert drawn.abs().max() > most // 2


def test_both_ends_of_a_range_of_integers_are_drawn() -> None:
    found = make("x", (4_000,), DType.S32, Inputs(kind="integers", low=-3, high=4), 2)
    assert found.unique().tolist() == list(range(-3, 5))


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("kind", ["wide", "normal", "uniform", "special", "ramp"])
def test_reals_are_clipped_to_the_range_of_an_integer_type(kind: str, dtype: DType) -> None:
    low, high = INTEGER_LIMITS[dtype]
    wide = Inputs.model_validate(
        {"kind": kind, "std": 1e30, "low": -1e30, "high": 1e30}
        | ({"low": 60, "high": 90} if kind == "wide" else {})
    )
    found = [int(each) for each in make("x", (2_000,), dtype, wide, 3).tolist()]
    assert low == min(found)
    assert high - 2048 <= max(found) <= high


def test_rounding_is_to_the_nearest() -> None:
    how = Inputs(kind="uniform", low=-4, high=4)
    real, whole = make("x", (500,), DType.F64, how, 1), make("x", (500,), DType.S8, how, 1)
    assert torch.equal(real.round(), whole.double())


def test_uniform_and_ramp_stay_within_their_ends() -> None:
    uniform = make("x", (5_000,), DType.F64, Inputs(kind="uniform", low=2, high=5), 1)
    assert 2 <= uniform.min() < 2.01 < 4.99 < uniform.max() <= 5
    ramp = make("x", (3, 5), DType.F64, Inputs(kind="ramp", low=-1, high=6), 1)
    assert ramp.reshape(-1).tolist() == [-1 + n / 2 for n in range(15)]


def test_normal_has_its_mean_and_deviation() -> None:
    found = make("x", (40_000,), DType.F64, NORMAL, 1)
    assert abs(found.mean().item() - 3) < 0.06
    assert abs(found.std().item() - 2) < 0.06


def test_wide_covers_its_magnitudes_with_both_signs() -> None:
    found = make("x", (4_000,), DType.F32, Inputs(kind="wide", low=-20, high=100), 1)
    magnitudes = found.abs().double().log2()
    assert -20 <= magnitudes.min() < -18
    assert 98 < magnitudes.max() <= 100.001
    assert 0.45 < (found > 0).double().mean() < 0.55


def test_special_strews_every_strange_value() -> None:
    found = make("x", (4_000,), DType.F32, Inputs(kind="special"), 1).numpy()
    finite = found[np.isfinite(found)]
    tiny = np.abs(finite[finite != 0])
    assert np.isnan(found).any()
    assert {np.inf, -np.inf} <= set(found.tolist())
    assert {False, True} == set(np.signbit(finite[finite == 0]).tolist())
    assert tiny.min() == np.float32(2.0**-149)
    assert tiny.max() == np.float32(2.0**127)
    assert 0.7 < (np.abs(finite) < 10).mean() < 1.0
