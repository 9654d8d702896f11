"""The schedule on sides whose truth is known: a card that grows slower while it is timed, and sides that fail."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from sandbox.cuda.wire import Stop
from tasks.errors import CannotJudge
from tools.timing.clocks import Sample
from tools.timing.schedule import EFFORTS, Record, Stopped, run, sets_for, window_for
from tools.timing.statistics import compare


@dataclass
class Card:
    """A GPU in its own time: hot after seconds, so that all is slower by `drift`; half a millisecond passes between laps."""

    drift: float = 0.17
    noise: float = 0.003
    seed: int = 0
    clock: float = 0.0
    sm_mhz: int = 1980
    reasons: tuple[str, ...] = ()
    busy: str = ""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def now(self) -> float:
        return self.clock

    def sm(self) -> int:
        return self.sm_mhz

    def look(self) -> Sample:
        return Sample(self.clock, self.sm_mhz, throttle=self.reasons)


@dataclass
class FakeSide:
    """Runs that take `ms` on a cool card."""

    card: Card
    ms: float
    sets: int = 0
    window: int = 0
    laps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    faults_at: int | None = None

    def prepare(self, sets: int) -> None:
        self.sets = sets

    def capture(self, window: int) -> None:
        self.window = window

    def lap(self, first: int, count: int) -> float:
        assert 0 <= first < self.sets
        if self.faults_at == len(self.laps):
            raise Stopped(Stop("CUDA_ERROR_ILLEGAL_ADDRESS", 0))
        self.laps.append((first, count))
        card = self.card
        slow = 1 + card.drift * (1 - math.exp(-card.clock))
        took = count * self.ms * slow * math.exp(card.noise * card.random.standard_normal())
        card.clock += took / 1e3 + 0.0005
        return took


def timed(
    card: Card, one: float, other: float, mode: str = "quick", seed: int = 1, sets: int = 8
) -> tuple[Record, FakeSide]:
    candidate = FakeSide(card, one)
    made = run(
        candidate, FakeSide(card, other), effort=EFFORTS[mode], sets=sets, seed=seed, watch=card, now=card.now
    )
    return made, candidate


def test_a_drift_of_17_percent_biases_the_speedup_by_less_than_a_twentieth_of_a_percent() -> None:
    found = [
        compare(timed(Card(seed=seed), 1.0, 1.3, seed=seed)[0].timed(), seed).speedup for seed in range(60)
    ]
    assert abs(math.log(float(np.mean(found)) / 1.3)) < 0.0005
    assert max(found) / min(found) < 1.005


def test_identical_sides_are_the_same_and_one_percent_is_seen() -> None:
    verdicts = Counter(
        compare(timed(Card(seed=seed), 1.0, 1.0, seed=seed)[0].timed(), seed).verdict for seed in range(40)
    )
    assert verdicts == {"same": 40}
    verdicts = Counter(
        compare(timed(Card(seed=seed), 1.01, 1.0, seed=seed)[0].timed(), seed).verdict for seed in range(20)
    )
    assert verdicts == {"slower": 20}


def test_a_quick_reading_of_a_millisecond_kernel_stays_under_half_a_second_of_gpu_time() -> None:
    card = Card(noise=0.05)
    made, _ = timed(card, 1.0, 1.0)
    laps = [*made.rough, *(lap for each in (*made.pilot, *made.blocks) for lap in each.laps)]
    assert sum(lap.ms for lap in laps) < 500


def test_a_long_kernel_is_timed_in_few_blocks_and_a_short_one_in_long_windows() -> None:
    assert len(timed(Card(), 40.0, 40.0)[0].blocks) == 6
    made, candidate = timed(Card(), 0.004, 0.02, sets=128)
    assert made.window == candidate.window == 64
    assert all(count == 64 for _, count in candidate.laps[3:])


def test_windows_walk_through_the_ring_and_never_meet_the_one_before() -> None:
    made, candidate = timed(Card(), 0.11, 0.11, sets=8)
    assert made.window == 2
    windows = [first for first, _ in candidate.laps[3:]]
    assert set(windows) == {0, 2, 4, 6}
    assert all(one != other for one, other in itertools.pairwise(windows))


def test_the_plan_is_a_function_of_the_seed_and_mixes_both_kinds_of_block() -> None:
    one, same, other = (timed(Card(), 1.0, 1.1, seed=seed)[0] for seed in (3, 3, 4))
    assert one == same
    assert [each.kind for each in one.blocks] != [each.kind for each in other.blocks]
    assert {each.kind for each in one.blocks} == {"ABBA", "BAAB"}
    assert all([lap.side for lap in each.laps] == list(each.kind) for each in one.blocks)


def test_audits_name_sets_that_the_lap_before_them_ran_on() -> None:
    card = Card()
    candidate, audited = FakeSide(card, 0.1), list[tuple[int, tuple[int, int]]]()
    made = run(
        candidate,
        FakeSide(card, 0.1),
        effort=EFFORTS["full"],
        sets=8,
        seed=2,
        watch=card,
        audit=lambda which: audited.append((which, candidate.laps[-1])),
        now=card.now,
    )
    assert len(audited) == len(made.audited) == 6
    assert all(which in range(first, first + count) for which, (first, count) in audited)


def test_every_lap_of_a_reading_is_audited_sooner_or_later() -> None:
    seen = Counter[tuple[int, int]]()
    for seed in range(300):
        card = Card(drift=0, noise=0)
        candidate = FakeSide(card, 1.0)
        run(candidate, FakeSide(card, 1.0), effort=EFFORTS["quick"], sets=4, seed=seed, watch=card, now=card.now,
            audit=lambda which, side=candidate: seen.update([(len(side.laps), which)]))  # fmt: skip
    laps = {lap for lap, _ in seen}
    assert len(laps) == 40  # two laps of the candidate in each of 20 blocks
    assert {which for _, which in seen} == {0, 1, 2, 3}


def test_a_full_reading_warms_up_until_the_clock_holds_still() -> None:
    made, _ = timed(Card(), 1.0, 1.0, "full")
    warm = made.rough[6:]
    assert warm[-1].at - warm[0].at >= 0.49
    restless = Card()
    restless.sm = lambda: 1500 + int(restless.clock * 1e4) % 400  # type: ignore[method-assign]
    made, _ = timed(restless, 1.0, 1.0, "full")
    assert made.rough[-1].at >= 2.9


def test_blocks_on_a_hot_or_restless_card_are_dropped() -> None:
    hot, _ = timed(Card(reasons=("hw_thermal_slowdown", "sw_power_cap")), 1.0, 1.0)
    assert {each.dropped for each in hot.blocks} == {"hw_thermal_slowdown"}
    assert compare(hot.timed(), 0).verdict == "unstable"
    torn = Card()
    clocks = itertools.cycle([1980, 1800, 1980])
    torn.sm = lambda: next(clocks)  # type: ignore[method-assign]
    made, _ = timed(torn, 1.0, 1.0)
    assert any(each.dropped.startswith("SM clock") for each in made.blocks)
    capped, _ = timed(Card(reasons=("sw_power_cap",)), 1.0, 1.0)
    assert {each.dropped for each in capped.blocks} == {""}


def test_a_fault_in_a_lap_comes_out_as_it_is() -> None:
    card = Card()
    candidate = FakeSide(card, 1.0, faults_at=30)
    with pytest.raises(Stopped, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        run(candidate, FakeSide(card, 1.0), effort=EFFORTS["quick"], sets=4, seed=0, watch=card, now=card.now)


@pytest.mark.parametrize(
    ("set_bytes", "room", "sets"),
    [
        (470 << 20, 16 << 30, 4),
        (1 << 20, 16 << 30, 128),
        (100, 1 << 30, 128),
        (1 << 30, 3 << 30, 2),
        (3 << 30, 1 << 40, 4),
    ],
)
def test_rings_outgrow_the_cache_and_fit_the_memory(set_bytes: int, room: int, sets: int) -> None:
    assert sets_for(set_bytes, 50 << 20, room) == sets


def test_a_workload_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CannotJudge, match="time a smaller workload"):
        sets_for(1 << 30, 50 << 20, 1 << 30)


def test_a_window_is_at_most_half_the_ring() -> None:
    assert window_for(1.0, 8) == 1
    assert window_for(0.11, 8) == 2
    assert window_for(0.001, 8) == 4
    assert window_for(0.001, 2) == 1
