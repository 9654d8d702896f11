"""From timed blocks to a speedup, its interval and a verdict. Pure NumPy: no GPU, no clock, no hidden state.

A block is four laps in the order A B B A or B A A B (A the candidate, B the baseline): whatever drifts evenly over a block cancels in
its log ratio, half of log(b1·b2 / a1·a2). The speedup is exp of the median over blocks; its interval comes from a moving-block bootstrap,
since neighbouring blocks share the card's mood.

Rules
- Laps of one block stand or fall together; a block is dropped for what the clocks say, never for its times.
- The noise floor is each side paired against itself within the same blocks; a verdict must clear it twice over.
- A verdict needs the whole 99 % interval beyond the margin: in simulation (see the tests) at most 1 in 100 identical kernels is called
  faster or slower, and every kernel that is 1 % slower is called slower, under a drift of 17 % and autocorrelated noise of 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Said: TypeAlias = Literal["faster", "slower", "same", "unstable", "suspect"]

RESAMPLES = 2_000
BOOTSTRAP_BLOCK = 5
"""Neighbouring blocks that a resample keeps together."""
SHOWN, JUDGED = 0.95, 0.99
"""Confidence of the interval that is reported, and of the wider one that a verdict rests on."""
MARGIN = 0.002
"""Smallest |log ratio| by which an interval must clear 1: simulated false alarms stay at 1 % or less with it, and it hides no 1 %."""
FLOORS = 2.0
"""How many noise floors it must clear besides."""
CLOCK_SHIFT = 0.02
"""Relative difference of the SM clock between the sides of a block above which the block is dropped."""
MOST_DROPPED = 0.2
"""Share of dropped blocks above which nothing is claimed."""
BLOCKS = (20, 400)
"""Fewest and most blocks of a reading."""


@dataclass(frozen=True, slots=True)
class Block:
    """Four laps: milliseconds of one run of the plan, both sides in the order of time.

    dropped: why the block does not count, or ''.
    """

    candidate: tuple[float, float]
    baseline: tuple[float, float]
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the blocks say. speedup: baseline time over candidate time; low, high: its 95 % interval."""

    verdict: Said
    speedup: float
    low: float
    high: float
    floor: float
    """|log ratio| of the sides against themselves."""
    margin: float
    """|log ratio| that the interval had to clear."""
    cross_check: float
    """The speedup as Hodges and Lehmann estimate it: half the medians of all pairwise means."""
    blocks: int
    dropped: int


def log_ratios(blocks: Sequence[Block]) -> Floats:
    """log(baseline / candidate) of each block."""
    times = np.log([(*each.candidate, *each.baseline) for each in blocks]).reshape(-1, 4)
    return np.asarray((times[:, 2:].sum(axis=1) - times[:, :2].sum(axis=1)) / 2)


def noise_floor(blocks: Sequence[Block]) -> float:
    """|log ratio| of both sides paired against themselves, the way they are paired against each other.

    The four laps that a side has in two neighbouring blocks make one null block (first and last against the middle two).
    """
    null: list[Floats] = []
    for laps in ([each.candidate for each in blocks], [each.baseline for each in blocks]):
        pairs = np.log(laps).reshape(-1, 2)[: len(blocks) // 2 * 2]
        step = pairs[:, 0] - pairs[:, 1]
        null.append((step[0::2] - step[1::2]) / 2)
    values = np.concatenate(null)
    return abs(hodges_lehmann(values)) if values.size else 0.0


def hodges_lehmann(values: Floats) -> float:
    """Median of the means of all pairs, each value with itself too (Hodges and Lehmann 1963)."""
    one, other = np.triu_indices(values.size)
    return float(np.median((values[one] + values[other]) / 2))


def bootstrap_medians(values: Floats, seed: int) -> Floats:
    """Medians of the resamples of a moving-block bootstrap (Künsch 1989): their percentiles bound the median of `values`."""
    random = np.random.default_rng(seed)
    size = values.size
    length = min(BOOTSTRAP_BLOCK, size)
    starts = random.integers(0, size - length + 1, (RESAMPLES, -(-size // length)))
    chosen = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :size]
    return np.median(values[chosen], axis=1)


def interval(medians: Floats, confidence: float) -> tuple[float, float]:
    """The middle share of the resampled medians."""
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def blocks_needed(pilot: Sequence[Block], half_width: float, limits: tuple[int, int] = BLOCKS) -> int:
    """n = ceil((1.96 s / h)²) within `limits`; s: the spread of the pilot's log ratios, by their absolute deviations from the median."""
    ratios = log_ratios(pilot)
    spread = 1.4826 * float(np.median(np.abs(ratios - np.median(ratios))))
    wanted = math.ceil((1.96 * spread / half_width) ** 2)
    return min(max(wanted, limits[0]), limits[1])


def compare(blocks: Sequence[Block], seed: int, *, roof_ms: float | None = None) -> Comparison:
    """Judge the blocks of one reading. seed: of the bootstrap. roof_ms: no honest run is shorter. Raises ValueError without blocks."""
    kept = [each for each in blocks if not each.dropped]
    dropped = len(blocks) - len(kept)
    unstable = dropped > MOST_DROPPED * len(blocks) or len(kept) < 2
    if unstable:
        kept = list(blocks)
    if not kept:
        raise ValueError("expected at least one timed block, found none")
    ratios = log_ratios(kept)
    middle = float(np.median(ratios))
    medians = bootstrap_medians(ratios, seed)
    low, high = interval(medians, SHOWN)
    floor = noise_floor(kept)
    margin = max(MARGIN, FLOORS * floor)
    verdict: Said = "same"
    if roof_ms is not None and float(np.median([each.candidate for each in kept])) < roof_ms:
        verdict = "suspect"
    elif unstable:
        verdict = "unstable"
    else:
        verdict = beyond(*interval(medians, JUDGED), margin)
    return Comparison(
        verdict=verdict,
        speedup=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        floor=floor,
        margin=margin,
        cross_check=math.exp(hodges_lehmann(ratios)),
        blocks=len(kept),
        dropped=dropped,
    )


def beyond(low: float, high: float, margin: float) -> Literal["faster", "slower", "same"]:
    """What an interval of log speedups allows to be said."""
    if low > margin:
        return "faster"
    return "slower" if high < -margin else "same"


def drop_reason(
    candidate: Sequence[int | None], baseline: Sequence[int | None], slowed: Sequence[str]
) -> str:
    """Why a block does not count, or ''. candidate, baseline: SM clocks (MHz) after their laps; slowed: reasons that disturb a pair."""
    if slowed:
        return ", ".join(sorted(set(slowed)))
    one, other = ([each for each in side if each] for side in (candidate, baseline))
    if one and other:
        here, there = sum(one) / len(one), sum(other) / len(other)
        if max(here, there) > (1 + CLOCK_SHIFT) * min(here, there):
            return f"SM clock {here:.0f} MHz under the candidate, {there:.0f} MHz under the baseline"
    return ""
