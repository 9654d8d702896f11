"""Instructions across the lanes of a warp, against their definition lane by lane."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sandbox.emulator.semantics import TYPES, Array
from tests.sandbox.semantics.support import lowered

RNG = np.random.default_rng(1)
WARPS = 6
FULL = np.full((WARPS, 32), 0xFFFF_FFFF, np.uint32)


def active(kind: str) -> Array:
    """Which lanes are there: all, some, or one a warp."""
    if kind == "all":
        return np.ones((WARPS, 32), bool)
    if kind == "one":
        return np.arange(32) == np.arange(WARPS)[:, None]
    some = np.random.default_rng(2).integers(0, 2, (WARPS, 32)).astype(bool)
    some[:, 3] = True
    return some


def run(text: str, lanes: Array, *sources: Array) -> list[Array]:
    form = lowered(text)
    assert form.scope == "warp"
    assert len(sources) == len(form.sources)
    results = form.fn(lanes, *sources)
    for result, name in zip(results, form.results, strict=True):
        assert result.dtype == TYPES[name].dtype
    return [np.broadcast_to(result, lanes.shape) for result in results]


def words(seed: int, low: int = 0, high: int = 2**32) -> Array:
    return np.random.default_rng(seed).integers(low, high, (WARPS, 32), dtype=np.uint64).astype(np.uint32)


def shuffled(mode: str, lane: int, by: int, control: int) -> tuple[int, bool]:
    segment, clamp = control >> 8 & 31, control & 31
    last = (lane & segment) | (clamp & ~segment & 31)
    source = {
        "up": lane - by,
        "down": lane + by,
        "bfly": lane ^ by,
        "idx": (lane & segment) | (by & ~segment & 31),
    }[mode]
    inside = source >= last if mode == "up" else source <= last
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("uniform", [True, False])
def test_shfl(mode: str, uniform: bool) -> None:
    values = words(3)
    for width in (1, 2, 4, 8, 16, 32):
        control = (32 - width) << 8 | (0 if mode == "up" else 31)
        for by in (0, 1, 3, 16, 31, 35):
            shift = (
                np.array([[by]], np.uint32)
                if uniform
                else (np.full((WARPS, 32), by) ^ words(4, 0, 4)).astype(np.uint32)
            )
            clamp = np.array([[control]], np.uint32)
            moved, inside = run(
                f"shfl.sync.{mode}.b32 d|p, a, b, c, m", active("all"), values, shift, clamp, FULL
            )
            each = np.broadcast_to(shift, values.shape)
            for warp in range(WARPS):
                for lane in range(32):
                    source, there = shuffled(mode, lane, int(each[warp, lane]) & 31, control)
                    assert moved[warp, lane] == values[warp, source]
                    assert inside[warp, lane] == there
    (alone,) = run(f"shfl.{mode}.b32 d, a, b, c", active("all"), values, np.array([[1]], np.uint32), clamp)
    both = run(
        f"shfl.sync.{mode}.b32 d|p, a, b, c, m",
        active("all"),
        values,
        np.array([[1]], np.uint32),
        clamp,
        FULL,
    )
    assert alone.tolist() == both[0].tolist()


def bits(mask: int) -> list[int]:
    return [lane for lane in range(32) if mask >> lane & 1]


MASKS = {
    "full": FULL,
    "immediate": np.array([[0xFFFF_FFFF]], np.uint32),
    "halves": np.where(np.arange(32) < 16, 0xFFFF, 0xFFFF_0000).astype(np.uint32)
    * np.ones((WARPS, 1), np.uint32),
    "parity": np.where(np.arange(32) % 2 == 0, 0x5555_5555, 0xAAAA_AAAA).astype(np.uint32)
    * np.ones((WARPS, 1), np.uint32),
}


def members(lanes: Array, mask: Array, warp: int, lane: int) -> list[int]:
    named = int(np.broadcast_to(mask, lanes.shape)[warp, lane])
    return [other for other in bits(named) if lanes[warp, other]]


@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("kind", ["all", "some", "one"])
def test_votes_matches_and_reductions_by_mask(kind: str, which: str) -> None:
    lanes, mask = active(kind), MASKS[which]
    votes = RNG.integers(0, 2, (WARPS, 32)).astype(bool)
    votes[0], votes[1] = True, False
    small = words(5, 0, 3)
    small[2] = 7
    wide = small.astype(np.uint64) << np.uint64(40)
    numbers = words(6)
    found = {
        mode: run(f"vote.sync.{mode}.pred p, a, m", lanes, votes, mask)[0] for mode in ("all", "any", "uni")
    }
    found["ballot"] = run("vote.sync.ballot.b32 d, a, m", lanes, votes, mask)[0]
    found["match"] = run("match.any.sync.b32 d, a, m", lanes, small, mask)[0]
    found["wide"] = run("match.any.sync.b64 d, a, m", lanes, wide, mask)[0]
    found["same"], found["agree"] = run("match.all.sync.b32 d|p, a, m", lanes, small, mask)
    reductions = {
        "add.u32": lambda row: sum(row) & 0xFFFF_FFFF,
        "min.u32": min,
        "max.u32": max,
        "and.b32": lambda row: int(np.bitwise_and.reduce(np.array(row, np.uint32))),
        "or.b32": lambda row: int(np.bitwise_or.reduce(np.array(row, np.uint32))),
        "xor.b32": lambda row: int(np.bitwise_xor.reduce(np.array(row, np.uint32))),
    }
    reduced = {name: run(f"redux.sync.{name} d, a, m", lanes, numbers, mask)[0] for name in reductions}
    signed = run("redux.sync.min.s32 d, a, m", lanes, numbers.view(np.int32), mask)[0]
    leader, elected = run("elect.sync d|p, m", lanes, mask)
    for warp in range(WARPS):
        for lane in np.nonzero(lanes[warp])[0]:
            there = members(lanes, mask, warp, lane)
            yes = [votes[warp, other] for other in there]
            assert found["all"][warp, lane] == all(yes)
            assert found["any"][warp, lane] == any(yes)
            assert found["uni"][warp, lane] == (all(yes) or not any(yes))
            assert bits(int(found["ballot"][warp, lane])) == [other for other in there if votes[warp, other]]
            alike = [other for other in there if small[warp, other] == small[warp, lane]]
            assert bits(int(found["match"][warp, lane])) == alike
            assert bits(int(found["wide"][warp, lane])) == alike
            assert found["agree"][warp, lane] == (alike == there)
            assert bits(int(found["same"][warp, lane])) == (there if alike == there else [])
            row = [int(numbers[warp, other]) for other in there]
            for name, exact in reductions.items():
                assert reduced[name][warp, lane] == exact(row), name
            assert signed[warp, lane] == min(int(numbers.view(np.int32)[warp, other]) for other in there)
            assert leader[warp, lane] == there[0]
            assert elected[warp, lane] == (lane == there[0])


def test_votes_without_a_mask_and_activemask() -> None:
    lanes = active("some")
    votes = RNG.integers(0, 2, (WARPS, 32)).astype(bool)
    (ballot,) = run("vote.ballot.b32 d, a", lanes, votes)
    (mask,) = run("activemask.b32 d", lanes)
    (every,) = run("vote.all.pred p, a", lanes, np.array([[True]]))
    for warp in range(WARPS):
        assert bits(int(ballot[warp, 0])) == np.nonzero(lanes[warp] & votes[warp])[0].tolist()
        assert bits(int(mask[warp, 0])) == np.nonzero(lanes[warp])[0].tolist()
    assert every.all()


def test_float_reductions() -> None:
    values = np.random.default_rng(7).normal(size=(WARPS, 32)).astype(np.float32)
    values[1, 5] = math.nan
    values[2] = math.nan
    values[3] = 0.0
    values[3, 9] = -0.0
    lanes = active("all")
    (low,) = run("redux.sync.min.f32 d, a, m", lanes, values, FULL)
    (high,) = run("redux.sync.max.abs.f32 d, a, m", lanes, values, FULL)
    (poisoned,) = run("redux.sync.min.NaN.f32 d, a, m", lanes, values, FULL)
    with np.errstate(all="ignore"):
        assert low[0, 0] == values[0].min()
        assert low[1, 0] == np.nanmin(values[1])
        assert high[1, 0] == np.nanmax(np.abs(values[1]))
    assert low.view(np.uint32)[2, 0] == 0x7FFF_FFFF
    assert poisoned.view(np.uint32)[1, 0] == 0x7FFF_FFFF
    assert poisoned[0, 0] == values[0].min()
    assert np.signbit(low[3, 0])
    some = active("one")
    (own,) = run("redux.sync.min.f32 d, a, m", some, values, FULL)
    assert own[0, 0] == values[0, 0]


def test_movmatrix_transposes() -> None:
    matrix = np.random.default_rng(8).integers(0, 2**16, (WARPS, 8, 8)).astype(np.uint16)
    fragment = np.zeros((WARPS, 32), np.uint32)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        fragment[:, lane] = matrix[:, row, column] | matrix[:, row, column + 1].astype(np.uint32) << 16
    (found,) = run("movmatrix.sync.aligned.m8n8.trans.b16 d, a", active("all"), fragment)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        wanted = matrix[:, column, row] | matrix[:, column + 1, row].astype(np.uint32) << 16
        assert found[:, lane].tolist() == wanted.tolist()
