"""The statistics of timing on synthetic laps whose truth is known: drift, autocorrelated noise, outliers, lost blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tools.timing.statistics import (
    Block,
    beyond,
    blocks_needed,
    bootstrap_medians,
    compare,
    drop_reason,
    hodges_lehmann,
    interval,
    log_ratios,
    noise_floor,
)

LAP_SECONDS = 0.0013


def simulated(blocks: int, speedup: float, noise: float, seed: int, drift: float = 0.17) -> list[Block]:
    """Laps of a card that grows slower by `drift` within seconds, hums, and has noise of which half (in variance) is AR(1).

    One lap in a hundred is an outlier: slower by an exponential of mean 10 %.
    """
    random = np.random.default_rng(seed)
    laps = 4 * blocks
    at = np.arange(laps) * LAP_SECONDS + random.uniform(0, 0.5)
    level = np.log1p(drift * (1 - np.exp(-at))) + 0.003 * np.sin(
        2 * np.pi * at / 0.037 + random.uniform(0, 6)
    )
    slow = np.empty(laps)
    state = random.standard_normal()
    for lap, shock in enumerate(random.standard_normal(laps)):
        state = 0.8 * state + 0.6 * shock
        slow[lap] = state
    level += noise * math.sqrt(0.5) * (slow + random.standard_normal(laps))
    level += (random.random(laps) < 0.01) * random.exponential(0.1, laps)
    made: list[Block] = []
    for four in np.exp(level).reshape(-1, 4):
        a1, b1, b2, a2 = four if random.random() < 0.5 else four[[1, 0, 3, 2]]
        made.append(Block((a1 / speedup, a2 / speedup), (b1, b2)))
    return made


@pytest.mark.parametrize(("blocks", "noise"), [(20, 0.0025), (40, 0.005), (40, 0.02), (400, 0.02)])
def test_identical_kernels_are_the_same_99_times_of_100(blocks: int, noise: float) -> None:
    trials = 100 if blocks == 400 else 300
    alarms = sum(compare(simulated(blocks, 1, noise, seed), seed).verdict != "same" for seed in range(trials))
    assert alarms <= 0.01 * trials


@pytest.mark.parametrize(("blocks", "noise"), [(20, 0.0025), (40, 0.005), (400, 0.02)])
def test_one_percent_slower_is_slower_every_time(blocks: int, noise: float) -> None:
    verdicts = {compare(simulated(blocks, 1 / 1.01, noise, seed), seed).verdict for seed in range(60)}
    assert verdicts == {"slower"}


def test_the_estimate_is_not_biased_by_drift() -> None:
    found = [math.log(compare(simulated(40, 1.37, 0.005, seed), seed).speedup / 1.37) for seed in range(200)]
    assert abs(np.mean(found)) < 0.0005
    assert np.std(found) < 0.0012


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        found = compare(simulated(100, 0.8, 0.01, seed), seed)
        inside += found.low <= 0.8 <= found.high
    assert 0.88 <= inside / 200 <= 0.99


def test_steady_drift_cancels_within_a_block_exactly() -> None:
    a1, b1, b2, a2 = np.exp([0.0, 0.1, 0.2, 0.3])
    assert log_ratios([Block((a1, a2), (b1, b2))])[0] == pytest.approx(0, abs=1e-12)
    steady = [
        Block((math.exp(8 * k), math.exp(8 * k + 3)), (math.exp(8 * k + 1), math.exp(8 * k + 2)))
        for k in range(6)
    ]
    assert noise_floor(steady) == pytest.approx(0, abs=1e-12)


def test_the_floor_sees_a_side_that_disagrees_with_itself() -> None:
    torn = [Block((1.0, 1.01), (1.0, 1.0)) if k % 2 else Block((1.01, 1.0), (1.0, 1.0)) for k in range(20)]
    assert noise_floor(torn) == pytest.approx(math.log(1.01) / 2, rel=0.01)
    assert compare(torn, 0).margin == pytest.approx(math.log(1.01), rel=0.01)


def test_hodges_lehmann_and_median_agree_on_symmetric_data_and_shrug_off_an_outlier() -> None:
    values = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert hodges_lehmann(values) == 0
    assert abs(hodges_lehmann(np.append(values, 1e6))) <= 1


def test_the_bootstrap_is_a_function_of_its_seed() -> None:
    values = np.random.default_rng(0).standard_normal(40)
    one, same, other = (interval(bootstrap_medians(values, seed), 0.95) for seed in (1, 1, 2))
    assert one == same != other
    assert interval(bootstrap_medians(np.full(3, 0.5), 1), 0.95) == (0.5, 0.5)


def test_blocks_follow_from_the_pilot_within_their_limits() -> None:
    still = [Block((1.0, 1.0), (1.0, 1.0))] * 8
    wide = [Block((1.0, 1.0), (math.exp(0.04 * (-1) ** k),) * 2) for k in range(8)]
    assert blocks_needed(still, 0.001) == 20
    assert blocks_needed(wide, 0.001) == 400
    spread = 1.4826 * 0.04
    assert blocks_needed(wide, 0.01) == math.ceil((1.96 * spread / 0.01) ** 2)


def test_dropped_blocks_do_not_count_until_too_many_are_lost() -> None:
    good, bad = Block((1.0, 1.0), (2.0, 2.0)), Block((9.0, 9.0), (1.0, 1.0), "hw_slowdown")
    few = compare([good] * 20 + [bad] * 4, 0)
    assert (few.verdict, few.speedup, few.blocks, few.dropped) == ("faster", 2.0, 20, 4)
    many = compare([good] * 20 + [bad] * 6, 0)
    assert (many.verdict, many.dropped) == ("unstable", 6)


def test_faster_than_the_hardware_can_be_is_suspect_whatever_the_ratio() -> None:
    blocks = [Block((0.5, 0.5), (1.0, 1.0))] * 20
    assert compare(blocks, 0, roof_ms=0.6).verdict == "suspect"
    assert compare(blocks, 0, roof_ms=0.4).verdict == "faster"


def test_the_whole_interval_must_lie_beyond_the_margin() -> None:
    assert beyond(0.003, 0.004, 0.002) == "faster"
    assert beyond(0.001, 0.004, 0.002) == "same"
    assert beyond(-0.004, -0.003, 0.002) == "slower"
    assert beyond(-0.01, 0.01, 0.002) == "same"


def test_a_block_is_dropped_for_its_clocks_or_for_a_throttled_chip() -> None:
    assert drop_reason([1980, 1900], [1940, 1940], []) == ""  # it falls, for both sides alike
    assert drop_reason([None, None], [None, None], []) == ""
    assert drop_reason([1980, 1980], [1905, 1905], []).startswith(
        "SM clock 1980 MHz under the candidate, 1905"
    )
    assert drop_reason([1980], [1980], ["hw_thermal_slowdown"]) == "hw_thermal_slowdown"


def test_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one timed block"):
        compare([], 0)
