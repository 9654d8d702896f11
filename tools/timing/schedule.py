"""The order of laps: two sides, one GPU, one plan that is fixed before the first lap that counts.

A lap is one window: `window` runs of a side on as many buffer sets of its ring, timed by the GPU between two events behind a blocking
kernel, so that neither the host's jitter nor the hand-over between processes shows. Sides run strictly by turns.

Rules
- Window and number of blocks follow from rough laps and a pilot that do not count; nothing that counts ends the schedule early.
- The window is the same for both sides, so that what a window costs besides (an event, a graph's start) weighs the same.
- A side walks through its ring, so no window meets the buffers of the one before, and `sets_for` keeps the ring too large for the cache.
- Which timed runs have their outputs judged is drawn from the seed; `audit` is called right after such a lap.
- Every lap is kept, with its time of day and the SM clock behind it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from sandbox.cuda.wire import Stop
from tasks.errors import CannotJudge
from tools.timing.clocks import Sample, disturbing
from tools.timing.roof import CACHE_TIMES
from tools.timing.statistics import BLOCKS, Block, blocks_needed, drop_reason

Mode: TypeAlias = Literal["quick", "full"]

WINDOW_MS = 0.2
"""Shortest window aimed at: the events' resolution of half a microsecond is then 1 in 400."""
RING_BYTES = 1 << 30
"""Size of ring aimed at: many sets, so that windows can be long, and the luck of addresses averages out."""
SETS = (4, 128)
"""Fewest and most sets, where memory allows."""
FEWEST = 6
"""Blocks timed however long the kernel runs."""
FIRST_USE_SECONDS = 0.1
"""GPU time that may be spent so that every window was used before; beyond it a window is so long that its first start does not show."""
STEADY, READS = 0.01, 5
"""The card is warm once so many readings of the SM clock lie so close together."""


class Side(Protocol):
    """One of the two that are compared."""

    def prepare(self, sets: int) -> None:
        """Make a ring of `sets` buffer sets."""
        ...

    def capture(self, window: int) -> None:
        """Do ahead of time what laps of `window` runs need."""
        ...

    def lap(self, first: int, count: int) -> float:
        """Milliseconds of `count` runs on the sets first, first + 1, … Raises Stopped when they do not end well."""
        ...


class Watch(Protocol):
    """Who looks at the card meanwhile (`clocks.Monitor`)."""

    def sm(self) -> int | None: ...

    def look(self) -> Sample: ...


class Stopped(Exception):
    """A lap did not end well: the kernel faulted or hung."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"{stop.code} in launch {stop.launch}")
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a reading may cost."""

    warm_seconds: float
    """Laps of both sides before the pilot."""
    steady: bool
    """Whether to go on warming until the SM clock holds still, up to `steady_seconds`."""
    steady_seconds: float
    pilot: int
    """Blocks of the pilot."""
    blocks: tuple[int, int]
    """Fewest and most blocks."""
    half_width: float
    """Wanted half width of the interval, as a log ratio."""
    gpu_seconds: float
    """Time of all timed windows, at the most; `FEWEST` blocks are timed whatever they take."""
    audits: int
    """Timed runs whose outputs are judged."""


EFFORTS: Mapping[Mode, Effort] = {
    "quick": Effort(0.02, False, 0.0, 5, (20, 40), 0.001, 0.3, 2),
    "full": Effort(0.5, True, 3.0, 10, (40, BLOCKS[1]), 0.0005, 8.0, 6),
}
"""Quick readings steer a loop: at most half a second of GPU time for a kernel of 1 ms. Full ones are published."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One timed window. side: A is the candidate. at: seconds since the schedule began; ms: of the whole window."""

    side: Literal["A", "B"]
    first: int
    at: float
    ms: float
    sm_mhz: int | None


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """Four laps in the order `kind`, and what the card was like after them."""

    kind: str
    laps: tuple[Lap, ...]
    throttle: tuple[str, ...]
    dropped: str

    def times(self, window: int) -> Block:
        """Milliseconds of one run."""
        a1, a2 = (lap.ms / window for lap in self.laps if lap.side == "A")
        b1, b2 = (lap.ms / window for lap in self.laps if lap.side == "B")
        return Block((a1, a2), (b1, b2), self.dropped)


@dataclass(frozen=True, slots=True)
class Record:
    """All that a schedule did. The laps in `rough` and `pilot` do not count."""

    sets: int
    window: int
    rough: tuple[Lap, ...]
    pilot: tuple[TimedBlock, ...]
    blocks: tuple[TimedBlock, ...]
    audited: tuple[tuple[int, int], ...]
    """Which runs were judged: (block, set)."""
    seconds: float

    def timed(self) -> list[Block]:
        """The blocks that count, for the statistics."""
        return [each.times(self.window) for each in self.blocks]


def sets_for(set_bytes: int, l2_bytes: int, room_bytes: int) -> int:
    """Buffer sets of a ring: a power of two, large enough for `RING_BYTES` and three times the cache. Raises CannotJudge without room."""
    sets, wanted = SETS[0], max(RING_BYTES, CACHE_TIMES * l2_bytes)
    while sets < SETS[1] and sets * set_bytes < wanted:
        sets *= 2
    while sets > 2 and sets * set_bytes > room_bytes:
        sets //= 2
    if sets * set_bytes > room_bytes:
        raise CannotJudge(
            f"expected room for two sets of {set_bytes} bytes on the GPU; {room_bytes} bytes may be used: time a smaller workload"
        )
    return sets


def window_for(shortest_ms: float, sets: int) -> int:
    """Runs in a window: a power of two that makes the faster side's window `WINDOW_MS`, at most half the ring."""
    window = 1
    while window * 2 <= sets // 2 and window * shortest_ms < WINDOW_MS:
        window *= 2
    return window


def run(
    candidate: Side,
    baseline: Side,
    *,
    effort: Effort,
    sets: int,
    seed: int,
    watch: Watch,
    audit: Callable[[int], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> Record:
    """Time two sides against each other. audit: called with the set whose run is to be judged. Raises Stopped, InfraError."""
    schedule = _Schedule(candidate, baseline, sets, random.Random(seed), watch, now)
    for side in (candidate, baseline):
        side.prepare(sets)
    rough = schedule.rough()
    window = schedule.window
    for side in (candidate, baseline):
        side.capture(window)
    rough += schedule.warm(effort)
    pilot = [schedule.block() for _ in range(effort.pilot)]
    longest = sum(lap.ms for each in pilot for lap in each.laps) / len(pilot) / 1e3
    most = min(effort.blocks[1], max(FEWEST, int(effort.gpu_seconds / longest)))
    count = blocks_needed(
        [each.times(window) for each in pilot], effort.half_width, (min(effort.blocks[0], most), most)
    )
    chosen = schedule.drawn(count, effort.audits)
    audited: list[tuple[int, int]] = []

    def check(block: int, nth: int, first: int) -> None:
        if (block, nth) in chosen:
            which = (first + schedule.random.randrange(window)) % sets
            audit(which)
            audited.append((block, which))

    blocks = [
        schedule.block(lambda nth, first, block=block: check(block, nth, first)) for block in range(count)
    ]
    return Record(sets, window, tuple(rough), tuple(pilot), tuple(blocks), tuple(audited), schedule.elapsed())


class _Schedule:
    """Where both sides stand in their rings."""

    def __init__(
        self,
        candidate: Side,
        baseline: Side,
        sets: int,
        chance: random.Random,
        watch: Watch,
        now: Callable[[], float],
    ) -> None:
        self.sides = {"A": candidate, "B": baseline}
        self.sets, self.window = sets, 1
        self.random, self.watch, self.now = chance, watch, now
        self.began = now()
        self.at = {"A": 0, "B": 0}

    def elapsed(self) -> float:
        return self.now() - self.began

    def lap(self, side: Literal["A", "B"]) -> Lap:
        """The next window of a side's ring."""
        first = self.at[side]
        self.at[side] = (first + self.window) % self.sets
        at = self.elapsed()
        ms = self.sides[side].lap(first, self.window)
        return Lap(side, first, at, ms, self.watch.sm())

    def rough(self) -> list[Lap]:
        """Three single runs of each side, from which the window follows; then both begin at a window's edge."""
        laps = [self.lap(side) for side in ("A", "B") for _ in range(3)]
        self.window = window_for(min(lap.ms for lap in laps), self.sets)
        for side in self.at:
            self.at[side] = self.random.randrange(self.sets // self.window) * self.window
        return laps

    def warm(self, effort: Effort) -> list[Lap]:
        """Laps by turns until the card has run warm, and every window once: the first start of a graph is slow."""
        laps: list[Lap] = []
        start = self.now()
        windows = self.sets // self.window
        while (spent := self.now() - start) < effort.warm_seconds or (
            effort.steady and spent < effort.steady_seconds and not _steady(laps)
        ):
            laps += [self.lap("A"), self.lap("B")]
        while len(laps) < 2 * windows and sum(lap.ms for lap in laps) < FIRST_USE_SECONDS * 1e3:
            laps += [self.lap("A"), self.lap("B")]
        return laps

    def block(self, after: Callable[[int, int], None] = lambda nth, first: None) -> TimedBlock:
        """Four laps; `after` hears of each lap of the candidate: its number in the block, and its first set."""
        kind = self.random.choice(("ABBA", "BAAB"))
        laps: list[Lap] = []
        nth = 0
        for letter in kind:
            side: Literal["A", "B"] = "A" if letter == "A" else "B"
            laps.append(self.lap(side))
            if side == "A":
                after(nth, laps[-1].first)
                nth += 1
        sample = self.watch.look()
        one, other = ([lap.sm_mhz for lap in laps if lap.side == side] for side in ("A", "B"))
        reason = drop_reason(one, other, disturbing([sample]))
        return TimedBlock(kind, tuple(laps), sample.throttle, reason)

    def drawn(self, blocks: int, audits: int) -> set[tuple[int, int]]:
        """(block, candidate's lap in it) of the laps to judge, each lap as likely as any other."""
        every = [(block, nth) for block in range(blocks) for nth in range(2)]
        return set(self.random.sample(every, min(audits, len(every))))


def _steady(laps: list[Lap]) -> bool:
    seen = [lap.sm_mhz for lap in laps[-READS:]]
    known = [each for each in seen if each]
    return len(laps) >= READS and (not known or max(known) <= (1 + STEADY) * min(known))
