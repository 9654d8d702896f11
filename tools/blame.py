"""Why an answer is wrong: the same run again, with one thing changed at a time.

Each reason is the outcome of an experiment. On a device that chooses orders and sees unwritten reads a run repeats exactly; on a GPU
chance takes part, so each experiment there is made several times, and what cannot be repeated at all is a race.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sandbox.device import Fault, Order, Outcome, Placement
from tools.trial import FILLS, RESIDUES, ZERO, Trial, compared, elements, masked, same, untouched

SECONDS = 10.0
"""Wall time after which no further experiment is begun on a device on which chance takes part."""
TRIES = 3
"""Times that an experiment is made on a device on which chance takes part."""


class Bench(Protocol):
    """What an experiment needs of `tools.check`."""

    unwritten: Fault | None
    """The first read of memory that nothing wrote, where the device sees such."""

    def run(self, trial: Trial) -> Outcome:
        """One run in the module as it is now."""
        ...

    def reload(self) -> None:
        """Load the module anew."""
        ...


def right(bench: Bench, trial: Trial) -> bool:
    """Whether one more run gives the right answer."""
    outcome = bench.run(trial)
    return outcome.fault is None and not compared(trial, outcome)[0]


def by_orders(bench: Bench, trial: Trial, reason: str, seen: Outcome, before: int) -> str:
    """The reason, on a device whose runs repeat. before: launches of the module before the wrong one."""
    made = trial.problem
    if trial.order is not Order.TOGETHER and right(bench, replace(trial, order=Order.TOGETHER)):
        return "race"
    if before:
        bench.reload()
        if right(bench, trial):
            return "state"
    if trial.stale and right(bench, Trial(made, made.filled(FILLS[0]), False, trial.residue)):
        return "replay"
    if bench.unwritten is None:
        return reason
    other = FILLS[1] if np.all(next(iter(trial.fill.values())) == FILLS[0]) else FILLS[0]
    residue = RESIDUES[1] if trial.residue == RESIDUES[0] else RESIDUES[0]
    bench.reload()
    outcome = bench.run(Trial(made, made.filled(other), False, residue))
    alike = same({name: outcome.buffers[name] for name in trial.fill}, seen.buffers)
    return reason if alike and outcome.fault is None else "residue"


@dataclass(frozen=True, slots=True)
class Blame:
    """What experiments on a GPU found. outcome: the wrong one, with the map of what was written."""

    reason: str
    outcome: Outcome


def by_chance(bench: Bench, trial: Trial, seen: Outcome, history: Sequence[Trial]) -> Blame:
    """The reason, on a device on which chance takes part. history: the runs of the loaded module before the wrong one.

    A slow candidate is not run for ever: when `SECONDS` are over, what is known by then is said.
    """
    deadline = time.monotonic() + SECONDS

    def over() -> bool:
        return time.monotonic() > deadline

    again = replace(trial, placement=Placement.KEEP)
    if not trial.stale:
        other = bench.run(trial.twin)
        if other.fault is None:
            seen = masked(trial, seen, trial.twin, other)
    made, plain = trial.problem, Blame(compared(trial, seen)[1], seen)
    afresh = [_afresh(bench, again) for _ in range(TRIES) if not over()]
    if afresh and all(afresh):
        state = bool(history) and all(_relived(bench, trial, history, deadline) for _ in range(TRIES))
        return Blame("state" if state else "race", seen)
    if any(afresh):
        return Blame("race", seen)
    if over():
        return plain
    if trial.stale and right(bench, replace(again, fill=made.filled(FILLS[0]), stale=False)):
        return Blame("replay", seen)
    if any(_afresh(bench, replace(trial, placement=Placement.MOVE)) for _ in range(TRIES) if not over()):
        return Blame("address", seen)
    others = [each for each in (*RESIDUES, ZERO) if each != trial.residue]
    if any(_afresh(bench, replace(again, residue=each)) for each in others if not over()):
        return Blame("residue", seen)
    return Blame("residue", seen) if not over() and _depends(bench, again) else plain


def _afresh(bench: Bench, trial: Trial) -> bool:
    """Whether the first launch of a module just loaded is right."""
    bench.reload()
    return right(bench, trial)


def _relived(bench: Bench, trial: Trial, history: Sequence[Trial], deadline: float) -> bool:
    """Whether it comes out wrong again after the same runs as before; taken to be so when there is no time to see."""
    bench.reload()
    for each in history:
        if time.monotonic() > deadline:
            return True
        if bench.run(each).fault is not None:
            return False
    return not right(bench, trial)


def _depends(bench: Bench, trial: Trial) -> bool:
    """Whether the answer changes with what the output, or memory that nothing wrote, held before, more than it does by chance.

    Elements tell that come out alike in three runs over one filling, and never so in three over another; how many do so by chance is
    told by the same runs grouped across.
    """
    if trial.stale:
        return False
    residue = RESIDUES[1] if trial.residue == RESIDUES[0] else RESIDUES[0]
    other = replace(trial.twin, residue=residue)
    ones, others = ([bench.run(each) for _ in range(TRIES)] for each in (trial, other))
    if any(each.fault for each in (*ones, *others)):
        return False
    known = ~(untouched(trial, ones[0]) & untouched(other, others[0]))
    rows = [elements(trial, each)[known] for each in (*ones, *others)]

    def apart(order: Sequence[int]) -> int:
        left, right_ = ([rows[index] for index in half] for half in (order[:TRIES], order[TRIES:]))
        steady = np.logical_or(
            *(np.logical_and(*(half[0] == each for each in half[1:])) for half in (left, right_))
        )
        return int((steady & np.logical_and.reduce([one != two for one in left for two in right_])).sum())

    told = apart((0, 1, 2, 3, 4, 5))
    return told > 4 * max(apart((0, 1, 3, 2, 4, 5)), apart((0, 4, 2, 3, 1, 5)))
