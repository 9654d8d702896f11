"""What a GPU cannot say of a failure, found elsewhere: the line, the thread, the buffer.

A fault or hang is replayed on the emulator, on workloads whose shapes the candidate's author knows, within bounds of steps and seconds;
its facts then stand in the fault, and the message says what each machine saw. Where the emulator cannot judge, or sees nothing,
compute-sanitizer is asked (`tools.sanitizer`). A wrong answer that the GPU cannot explain is replayed too, to see whether it depends on
memory or registers that nothing wrote.

Invariants
- The verdict stays the GPU's.
- A failure on a hidden workload is left as it is: nothing is replayed that could tell its shape.
- At most `SECONDS` go into a replay and `OPINION_SECONDS` into a second opinion.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandbox.device import HANGS, Device, Fault, FaultKind, Limits, OnUnwritten, Order, Outcome, Program
from sandbox.emulator.device import EmulatorDevice
from tasks.errors import PtxmendError
from tasks.schema import Role
from tools import sanitizer
from tools.evaluation import Verdict
from tools.problem import Problem, derived, named_workloads, problem, work_of
from tools.trial import FILLS, RESIDUES, same

if TYPE_CHECKING:
    from tasks.registry import LoadedTask
    from tools.judging import CheckResult

SECONDS = 4.0
OPINION_SECONDS = 6.0
STEPS = 100_000_000
"""Thread-instructions of one replay."""
SMALL = 2_000_000
"""FLOPs and bytes of a workload up to which it is replayed; larger ones take too long."""
WORKLOADS = 3
"""Workloads that are replayed, at the most."""
LAUNCHES = 2
"""Runs in one loaded module: what the first leaves behind may undo the second."""
UNEXPLAINED = ("values", "nonfinite", "residue")


@dataclass(frozen=True, slots=True)
class _Replay:
    """A candidate, and what it may still cost."""

    program: Program
    task: LoadedTask
    seed: int
    deadline: float

    def problems(self, first: str) -> Iterator[Problem]:
        """Small named workloads, the one that failed before the others."""
        named = [
            (workload, name)
            for workload, name in named_workloads(self.task, (Role.EMULATE, Role.CHECK))
            if work_of(self.task, self.task.bind(workload)) <= SMALL
        ]
        named.sort(key=lambda each: each[1] != first)
        for workload, name in named[:WORKLOADS]:
            yield problem(self.task, workload, name, derived(self.seed, name, 0))

    def run(
        self, made: Problem, order: Order, launches: int, unwritten: OnUnwritten, residue: int
    ) -> Outcome | None:
        """The first run that faults, else the last; None when the emulator cannot tell, or there is no time."""
        outcome: Outcome | None = None
        try:
            session = EmulatorDevice(self.program.arch).load(self.program)
            for launch in range(launches):
                left = self.deadline - time.monotonic()
                if left <= 0:
                    return None
                limits = Limits(STEPS, left, on_unwritten=unwritten, poison=residue, order=order)
                outcome = session.run(made.axes, made.buffers(made.filled(FILLS[launch % 2])), limits)
                if outcome.fault is not None:
                    break
            session.close()
        except PtxmendError:
            return None
        return outcome


def enriched(
    found: CheckResult, program: Program, task: LoadedTask, device: Device, seed: int
) -> CheckResult:
    """What check found, with what can be learnt elsewhere."""
    if device.traits.masks or not found.workload:
        return found
    replay = _Replay(program, task, seed, time.monotonic() + SECONDS)
    if found.verdict in (Verdict.FAULT, Verdict.HANG) and found.fault is not None:
        return _placed(found, found.fault, replay, device)
    if found.numerics is not None and found.numerics.reason in UNEXPLAINED:
        return _traced(found, replay)
    return found


def _placed(found: CheckResult, fault: Fault, replay: _Replay, device: Device) -> CheckResult:
    """A fault or hang with its line."""
    for made in replay.problems(found.workload):
        for order in Order:
            outcome = replay.run(made, order, LAUNCHES, OnUnwritten.POISON, RESIDUES[0])
            seen = None if outcome is None else outcome.fault
            if seen is None or seen.kind is FaultKind.STEP_LIMIT:
                continue
            on = "" if made.name == found.workload else f" on workload {made.label}"
            told = f"; replayed on the emulator{on}: {seen.message}"
            alike = (seen.kind in HANGS) == (fault.kind in HANGS)
            kind = seen.kind if alike else fault.kind
            full = seen.model_copy(update={"kind": kind, "message": fault.message + told})
            return replace(found, summary=found.summary + told, fault=full)
    return found if fault.kind in HANGS else _opinion(found, fault, replay, device)


def _opinion(found: CheckResult, fault: Fault, replay: _Replay, device: Device) -> CheckResult:
    """A fault with what compute-sanitizer says of it."""
    from sandbox.cuda.bound import to_work
    from sandbox.cuda.device import DRIVER, CudaDevice, spec

    if not isinstance(device, CudaDevice) or replay.program.cubin is None:
        return found
    made = next((each for each in replay.problems(found.workload) if each.name == found.workload), None)
    if made is None:
        return found
    buffers = made.buffers(made.filled(FILLS[0]))
    work = to_work(replay.program, 0, made.axes, {name: spec(each) for name, each in buffers.items()})
    entries = tuple(dict.fromkeys(each.entry for each in replay.program.plan.launches))
    gpu = device.slot.gpu.index
    with device.shared():
        said = sanitizer.asked(
            replay.program.cubin, entries, work, gpu=gpu, driver=DRIVER, seconds=OPINION_SECONDS
        )
    if said is None:
        return found
    told = f"; compute-sanitizer: {said.text}"
    facts = {"block": said.block, "thread": said.thread, "address": said.address, "size": said.size}
    known = {name: value for name, value in facts.items() if value is not None}
    full = fault.model_copy(update={**known, "message": fault.message + told})
    return replace(found, summary=found.summary + told, fault=full)


def _traced(found: CheckResult, replay: _Replay) -> CheckResult:
    """A wrong answer, with the read of something that nothing wrote on which it depends."""
    assert found.numerics is not None
    made = next(iter(replay.problems(found.workload)), None)
    if made is None or made.name != found.workload:
        return found
    stopped = replay.run(made, Order.TOGETHER, 1, OnUnwritten.FAULT, RESIDUES[0])
    read = None if stopped is None else stopped.fault
    if read is None or read.kind is not FaultKind.UNWRITTEN_READ:
        return found
    runs = [replay.run(made, Order.TOGETHER, 1, OnUnwritten.POISON, residue) for residue in RESIDUES]
    answers = [
        {name: each.buffers[name] for name in made.expected}
        for each in runs
        if each is not None and each.fault is None
    ]
    if len(answers) < len(runs) or same(*answers):
        return found
    told = f"; replayed on the emulator, the answer depends on memory or registers that nothing wrote: {read.message}"
    text = found.summary + told
    numerics = found.numerics.model_copy(update={"reason": "residue", "explanation": text})
    return replace(found, summary=text, numerics=numerics, fault=read)
