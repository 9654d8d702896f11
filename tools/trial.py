"""One run of a candidate, and how its outcome is judged: what `tools.check` is made of, and what `tools.prove` borrows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sandbox.device import Bytes, Limits, Order, Outcome, Placement, Program
from tasks.dtypes import DTYPES, from_bytes
from tools.evaluation import Mismatch
from tools.numerics import judge
from tools.pattern import Mask
from tools.problem import Problem, work_of

FILLS = (0xFF, 0x5A)
"""Bytes that outputs hold before a run: NaN (-1 in integers), or a large number."""
RESIDUES = (0xFF, 0x45)
"""Bytes in memory that nothing wrote, when the kernel is let run on: NaN, or a large number."""
ZERO = 0x00
"""The commonest residue of all: tried too once a kernel has read what nothing wrote, and always where no device sees such reads."""
STEPS = (400_000_000, 1_000)
"""Thread-instructions a run may take: a base, and so many for each FLOP and byte of the task's own work."""
SECONDS = 60.0
"""Wall time of one run."""
LAUNCH_SECONDS = (1.0, 1e-6, 10.0, 1e-8)
"""Wall time of one launch on a GPU: a base; so much for each FLOP and byte of the task's own work (one thread that does all of it, each
time waiting for memory), up to a most; and beyond that so much for each (a naive kernel does many times the work, and other processes
may use the GPU meanwhile). The first workload is small: a hang shows within little more than the base."""
PRINTING = 10.0
"""How many times longer a launch of a module that prints may take on a GPU: its threads print one after the other."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run to make. fill: what the outputs hold before; stale: that is an earlier answer; residue: see
    RESIDUES.
    """

    problem: Problem
    fill: Mapping[str, Bytes]
    stale: bool
    residue: int
    order: Order = Order.TOGETHER
    placement: Placement = Placement.ANY

    @property
    def twin(self) -> Trial:
        """The same run over another pattern, at the same addresses."""
        first = next((each[0] for each in self.fill.values() if each.size), FILLS[0])
        other = FILLS[1] if first == FILLS[0] else FILLS[0]
        return replace(self, fill=self.problem.filled(other), stale=False, placement=Placement.KEEP)


def limits_of(made: Problem, program: Program) -> Limits:
    """What a run on a problem may take, by the task's own work."""
    work = work_of(made.task, made.axes)
    base, each = STEPS
    seconds, alone, most, slow = LAUNCH_SECONDS
    prints = any(function.name == "vprintf" for function in program.module.functions)
    patience = PRINTING if prints else 1.0
    launch = patience * (seconds + min(alone * work, most) + slow * work)
    return Limits(base + each * work, SECONDS, launch_seconds=launch)


def compared(trial: Trial, outcome: Outcome) -> tuple[tuple[Mismatch, ...], str, float]:
    """Mismatches of all outputs, the reason of the first, and the largest error over tolerance."""
    mismatches: list[Mismatch] = []
    reason, worst = "", 0.0
    for name, want in trial.problem.expected.items():
        shape = tuple(want.reference.shape)
        got = from_bytes(outcome.buffers[name], want.dtype, shape)
        missing = None
        if outcome.written is not None and not trial.stale:
            whole = outcome.written[name].reshape(*shape, DTYPES[want.dtype].bytes)
            missing = np.asarray(~whole.all(axis=-1))
        judgement = judge(got, want, workload=trial.problem.name, output=name, unwritten=missing)
        worst = max(worst, judgement.error)
        if judgement.mismatch is not None:
            mismatches.append(judgement.mismatch)
            reason = reason or judgement.reason
    return tuple(mismatches), reason, worst


def mutated(trial: Trial, outcome: Outcome) -> tuple[str, ...]:
    """Inputs that did not come back as they were."""
    pristine = trial.problem.input_bytes
    return tuple(name for name, data in pristine.items() if not np.array_equal(outcome.buffers[name], data))


def same(one: Mapping[str, Bytes], other: Mapping[str, Bytes]) -> bool:
    """Whether two answers are the same, byte for byte."""
    return all(np.array_equal(data, other[name]) for name, data in one.items())


def elements(trial: Trial, outcome: Outcome) -> Bytes:
    """All outputs end to end, each element as a void of its own bytes, so that elements compare bit for bit."""
    rows = [
        outcome.buffers[name].reshape(-1, DTYPES[want.dtype].bytes)
        for name, want in trial.problem.expected.items()
    ]
    most = max((each.shape[1] for each in rows), default=1)
    wide = [np.pad(each, ((0, 0), (0, most - each.shape[1]))) for each in rows]
    whole = np.ascontiguousarray(np.concatenate(wide)) if wide else np.zeros((0, 1), np.uint8)
    return whole.view(np.dtype((np.void, most))).reshape(-1)


def untouched(trial: Trial, outcome: Outcome) -> Mask:
    """Elements that hold what they held before, end to end."""
    parts = [
        (outcome.buffers[name] == trial.fill[name]).reshape(-1, DTYPES[want.dtype].bytes).all(axis=1)
        for name, want in trial.problem.expected.items()
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def masked(trial: Trial, outcome: Outcome, twin: Trial, other: Outcome) -> Outcome:
    """The outcome with a map of what was written, told by two runs over two patterns.

    An element was not written when all its bytes hold the pattern they had before in both runs: an answer cannot equal both.
    """
    left = untouched(trial, outcome) & untouched(twin, other)
    written: dict[str, Mask] = {}
    start = 0
    for name, want in trial.problem.expected.items():
        size = DTYPES[want.dtype].bytes
        count = outcome.buffers[name].size // size
        written[name] = np.repeat(~left[start : start + count], size)
        start += count
    return replace(outcome, written=written)
