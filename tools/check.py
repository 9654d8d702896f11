"""check: is the output right, on every workload, whatever the memory held before, launch after launch?

Rules (each closes a way in which a wrong kernel has passed somewhere)
- All workloads of the roles emulate, check and hidden, in this order and within each the cheapest first, with
  inputs from secret seeds; the first that fails is told whole.
- The module stays loaded through all runs, at least `LAUNCHES` of them, each with fresh contents: a counter
  or a cache in module variables is caught. What goes wrong is run again after a reload, to tell state from
  plain error; and each workload runs also as the first launch of a module just loaded.
- Outputs hold one pattern, then another, then the kernel's own last answer, right for a half of the new data
  only: elements never written, and work skipped because "it is already there", show.
- Kernels also run with the first, and with the last, warp of each block and blocks of the grid ahead of the others: a
  missing barrier that goes unseen while all keep in step shows (`race`).
- Inputs must come back unchanged, byte for byte; the reference is computed from a pristine copy.
- A read of memory that nothing wrote is followed up: the kernel runs on with different fillings in such
  places. When the answer depends on them it is wrong (`residue`), else it is a warning.
- A GPU can neither see what was written nor choose an order. There each judged run is made twice, over two patterns and two residues
  in shared memory, at other addresses and after a random number of other launches: what equals both patterns was never written.
- Faults become verdicts by one table; an `InfraError` of the device is passed on and is never a verdict.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sandbox.device import (
    HANGS,
    Bytes,
    Device,
    Fault,
    FaultKind,
    Limits,
    OnUnwritten,
    Order,
    Outcome,
    Placement,
    Program,
)
from sandbox.ptx.plan import PlanError
from tasks.dtypes import DTYPES, from_bytes
from tasks.errors import LaunchRefused
from tasks.schema import Role
from tools.evaluation import Mismatch, Numerics, Verdict, Warning_
from tools.explain import explain
from tools.numerics import judge
from tools.problem import Problem, derived, mixed, named_workloads, problem, work_of

if TYPE_CHECKING:
    from tasks.registry import LoadedTask

ROLES = (Role.EMULATE, Role.CHECK, Role.HIDDEN)
LAUNCHES = 8
"""Runs of the plan in one loaded module, at the least."""
FILLS = (0xFF, 0x5A)
"""Bytes that outputs hold before a run: NaN (-1 in integers), or a large number."""
RESIDUES = (0xFF, 0x45)
"""Bytes in memory that nothing wrote, when the kernel is let run on: NaN, or a large number."""
HEAVY = 20_000_000
"""FLOPs and bytes of a workload above which it is run twice only: over a pattern, and over an earlier answer."""
ZERO = 0x00
"""The commonest residue of all: tried too once a kernel has read what nothing wrote."""
AHEAD = {
    Order.FIRST_ALONE: "when the first warps and blocks run ahead: ",
    Order.LAST_ALONE: "when the last warps and blocks run ahead: ",
}
"""Orders in which a missing barrier shows, and what to say before a fault that comes in one."""
STEPS = (400_000_000, 1_000)
"""Thread-instructions a run may take: a base, and so many for each FLOP and byte of the task's own work."""
SECONDS = 60.0
"""Wall time of one run."""
LAUNCH_SECONDS = (1.0, 1e-8)
"""Wall time of one launch on a GPU: a base, and so much for each FLOP and byte of the task's own work; a naive kernel does many times
the work, and other processes may use the GPU meanwhile."""
PRINTING = 10.0
"""How much longer a launch of a module that prints may take on a GPU: its threads print one after the other."""
DUMMIES = 4
"""Launches of the harness before a run on a GPU, at the most."""
FAULT_VERDICT = {kind: Verdict.HANG if kind in HANGS else Verdict.FAULT for kind in FaultKind}
"""What a fault makes of the candidate; an unwritten read comes here only when the kernel cannot run on."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What check found. verdict: CORRECT, or where it stopped; summary: one sentence."""

    verdict: Verdict
    summary: str
    numerics: Numerics | None = None
    fault: Fault | None = None
    warnings: tuple[Warning_, ...] = ()
    stdout: str = ""


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


class _Stop(Exception):
    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.summary)
        self.result = result


def check(program: Program, task: LoadedTask, device: Device, seed: int) -> CheckResult:
    """Judge a program on every workload. Raises InfraError when the device cannot tell."""
    try:
        bench = _Bench(program, device)
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LOAD_ERROR, f"the module cannot be loaded: {refusal}")
    try:
        return _walk(bench, task, seed)
    except _Stop as stop:
        return stop.result
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LAUNCH_ERROR, f"the launch is refused: {refusal}")
    except PlanError as error:
        return CheckResult(Verdict.BAD_PLAN, f"the launch plan cannot be used: {error}")
    finally:
        bench.close()


def _walk(bench: _Bench, task: LoadedTask, seed: int) -> CheckResult:
    workloads = named_workloads(task, ROLES)
    names: list[str] = []
    for workload, name in workloads:
        names.append(name)
        bench.names = tuple(names)
        first, second = (problem(task, workload, name, derived(seed, name, k)) for k in range(2))
        left = bench.judged(Trial(first, first.filled(FILLS[0]), False, RESIDUES[0]))
        if work_of(task, first.axes) <= HEAVY:
            again = bench.fresh(Trial(first, first.filled(FILLS[1]), False, RESIDUES[1]))
            same = all(np.array_equal(left[key], again[key]) for key in left)
            bench.deterministic = same and bench.deterministic is not False
            left = bench.judged(Trial(second, second.filled(FILLS[1]), False, RESIDUES[1]))
            for order, made, fill in zip(AHEAD, (second, first), FILLS, strict=True):
                if bench.device.traits.orders:
                    bench.judged(Trial(made, made.filled(fill), False, RESIDUES[0], order))
            first, second = second, first
        for rows in (False, True) if _has_rows(first) and work_of(task, first.axes) <= HEAVY else (False,):
            first = mixed(first, second, derived(seed, name, "mixed", rows), rows=rows)
            left = bench.judged(Trial(first, left, True, RESIDUES[1]))
        if bench.unwritten is not None or not bench.device.traits.orders:
            bench.judged(Trial(first, first.filled(ZERO), False, ZERO))
    workload, name = workloads[0]
    for extra in range(LAUNCHES):
        if bench.launches >= LAUNCHES:
            break
        fresh = problem(task, workload, name, derived(seed, name, "extra", extra))
        bench.judged(Trial(fresh, fresh.filled(FILLS[extra % 2]), False, RESIDUES[extra % 2]))
    numerics = Numerics(
        workloads=bench.names, passed=True, max_error=bench.worst, deterministic=bench.deterministic
    )
    summary = f"correct on {len(names)} workloads"
    return CheckResult(
        Verdict.CORRECT, summary, numerics, warnings=bench.all_warnings(), stdout=bench.printed()
    )


def _has_rows(made: Problem) -> bool:
    return any(tensor.ndim > 1 for tensor in made.inputs.values())


@dataclass
class _Bench:
    """A candidate on a device: its loaded module and what has been seen of it."""

    program: Program
    device: Device
    launches: int = 0
    """Runs since the module was loaded."""
    on_unwritten: OnUnwritten = OnUnwritten.FAULT
    unwritten: Fault | None = None
    """The first read of memory that nothing wrote."""
    names: tuple[str, ...] = ()
    worst: float = 0.0
    deterministic: bool | None = None
    warnings: dict[tuple[str, int | None], Warning_] = field(
        default_factory=dict[tuple[str, int | None], Warning_]
    )
    stdout: bytes = b""
    random: random.Random = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        self.session = self.device.load(self.program)

    def close(self) -> None:
        self.session.close()

    def reload(self) -> None:
        """Load the module anew: its variables have their first values again."""
        self.session.close()
        self.session = self.device.load(self.program)
        self.launches = 0

    def run(self, trial: Trial) -> Outcome:
        """One run as it comes, after an unwritten read again with such reads allowed."""
        made = trial.problem
        limits = replace(
            limits_of(made, self.program),
            on_unwritten=self.on_unwritten,
            poison=trial.residue,
            order=trial.order,
            placement=trial.placement,
            dummies=self.random.randrange(DUMMIES + 1),
        )
        outcome = self.session.run(made.axes, made.buffers(trial.fill, stale=trial.stale), limits)
        self.launches += 1
        fault = outcome.fault
        if fault and fault.kind is FaultKind.UNWRITTEN_READ and self.on_unwritten is OnUnwritten.FAULT:
            self.unwritten, self.on_unwritten = fault, OnUnwritten.POISON
            told = f"memory that nothing wrote is read on {made.name}" if made.secret else fault.message
            self._warn("unwritten_read", told, fault.line)
            self.reload()
            return self.run(trial)
        return outcome

    def judged(self, trial: Trial) -> dict[str, Bytes]:
        """Run and judge; the outputs when right. Raises _Stop with the whole finding when not."""
        outcome = self._sound(trial)
        if not self.device.traits.masks and not trial.stale:
            twin = twin_of(trial)
            other = self._sound(twin)
            self._right_or_stop(twin, _masked(other, twin, outcome, trial))
            outcome = _masked(outcome, trial, other, twin)
            same = all(np.array_equal(outcome.buffers[name], other.buffers[name]) for name in trial.fill)
            self.deterministic = same and self.deterministic is not False
        self._right_or_stop(trial, outcome)
        return {name: outcome.buffers[name] for name in trial.fill}

    def _sound(self, trial: Trial) -> Outcome:
        """A run that ended well. Raises _Stop when it did not."""
        try:
            outcome = self.run(trial)
        except (LaunchRefused, PlanError) as refusal:
            if not trial.problem.secret:
                raise
            raise type(refusal)(
                f"on {trial.problem.name}, a shape that is not named, it cannot be launched"
            ) from None
        if not trial.problem.secret:
            self._notes(outcome)
        if outcome.fault is not None:
            if trial.problem.secret:
                self._hidden(trial, FAULT_VERDICT[outcome.fault.kind], "", outcome.fault)
            ahead = AHEAD.get(trial.order, "")
            text = f"on workload {trial.problem.label}, {ahead}{outcome.fault.message}"
            self._stop(FAULT_VERDICT[outcome.fault.kind], text, None, outcome.fault)
        return outcome

    def _right_or_stop(self, trial: Trial, outcome: Outcome) -> None:
        """Raise _Stop unless inputs are as they were and outputs are right."""
        changed = _mutated(trial, outcome)
        if changed:
            for name in changed:
                self._warn("input_mutated", f"the kernel changed its input {name}", None)
            self._wrong(trial, (), "input_mutated", changed)
        mismatches, reason, worst = compared(trial, outcome)
        self.worst = max(self.worst, worst)
        if mismatches:
            self._wrong(trial, mismatches, self._cause(trial, reason, outcome))

    def fresh(self, trial: Trial) -> dict[str, Bytes]:
        """`judged` in a module that was just loaded, beside the one that stays."""
        kept, launches = self.session, self.launches
        self.session, self.launches = self.device.load(self.program), 0
        try:
            return self.judged(trial)
        finally:
            self.session.close()
            self.session, self.launches = kept, launches

    def _right(self, trial: Trial) -> bool:
        outcome = self.run(trial)
        return outcome.fault is None and not compared(trial, outcome)[0]

    def _cause(self, trial: Trial, reason: str, seen: Outcome) -> str:
        """Why it is wrong: tell what only shows after earlier launches, over old answers, or with other
        residue.
        """
        self.before = self.launches - 1
        made = trial.problem
        if trial.order is not Order.TOGETHER and self._right(replace(trial, order=Order.TOGETHER)):
            return "race"
        if self.before:
            self.reload()
            if self._right(trial):
                return "state"
        if trial.stale and self._right(Trial(made, made.filled(FILLS[0]), False, trial.residue)):
            return "replay"
        if not self.device.traits.orders:
            return self._cause_on_gpu(trial, reason)
        if self.unwritten is None:
            return reason
        other = FILLS[1] if np.all(next(iter(trial.fill.values())) == FILLS[0]) else FILLS[0]
        residue = RESIDUES[1] if trial.residue == RESIDUES[0] else RESIDUES[0]
        self.reload()
        outcome = self.run(Trial(made, made.filled(other), False, residue))
        same = all(np.array_equal(outcome.buffers[name], seen.buffers[name]) for name in trial.fill)
        return reason if same and outcome.fault is None else "residue"

    def _cause_on_gpu(self, trial: Trial, reason: str) -> str:
        """What a device that cannot see it lets one tell: right by chance, or right over another residue."""
        self.reload()
        if self._right(trial):
            return "race"
        for residue in (*RESIDUES, ZERO):
            if residue != trial.residue and self._right(replace(trial, residue=residue)):
                return "residue"
        return reason

    def _wrong(
        self, trial: Trial, mismatches: tuple[Mismatch, ...], reason: str, mutated: tuple[str, ...] = ()
    ) -> None:
        if trial.problem.secret:
            self._hidden(trial, Verdict.WRONG_OUTPUT, reason, None)
        text = explain(reason, mismatches, mutated, trial.problem.label, self.before, self.unwritten)
        numerics = Numerics.model_validate(
            {
                "workloads": self.names,
                "passed": False,
                "mismatches": mismatches,
                "inputs_mutated": mutated,
                "reason": reason,
                "explanation": text,
                "max_error": self.worst,
                "deterministic": self.deterministic,
            }
        )
        fault = self.unwritten if reason in ("residue", "race") else None
        self._stop(Verdict.WRONG_OUTPUT, text, numerics, fault)

    before: int = 0
    """Runs in the loaded module before the one that failed."""

    def _hidden(self, trial: Trial, verdict: Verdict, reason: str, fault: Fault | None) -> None:
        """Stop on a hidden workload: what kind of failure and on which line, but no number that tells its shape or data."""
        what = (
            f"the output is wrong ({reason})" if fault is None else f"{fault.kind.value} at line {fault.line}"
        )
        text = f"on {trial.problem.name}, a shape that is not named, {what}; the shapes you know pass"
        if fault is not None:
            shown = {"kind": fault.kind, "line": fault.line, "source": fault.source, "entry": fault.entry}
            fault = Fault.model_validate({**shown, "launch": fault.launch, "message": text})
        numerics = None
        if verdict is Verdict.WRONG_OUTPUT:
            shown = {"workloads": self.names, "passed": False, "reason": reason, "explanation": text}
            numerics = Numerics.model_validate(shown)
        self._stop(verdict, text, numerics, fault)

    def _stop(self, verdict: Verdict, summary: str, numerics: Numerics | None, fault: Fault | None) -> None:
        raise _Stop(CheckResult(verdict, summary, numerics, fault, self.all_warnings(), self.printed()))

    def _notes(self, outcome: Outcome) -> None:
        for notice in outcome.notices:
            if notice.kind != "unwritten_read":  # told by the fault that came first
                self._warn(notice.kind, notice.message, notice.line)
        if outcome.stdout and not self.stdout:
            self.stdout = outcome.stdout
            size = len(outcome.stdout) + outcome.stdout_dropped
            self._warn(
                "stdout", f"the kernel prints ({size} bytes in one run); it is never read as a result", None
            )

    def _warn(self, kind: str, message: str, line: int | None) -> None:
        self.warnings.setdefault((kind, line), Warning_(kind=kind, message=message, line=line))

    def all_warnings(self) -> tuple[Warning_, ...]:
        return tuple(self.warnings.values())

    def printed(self) -> str:
        return self.stdout.decode("utf-8", "replace")


def limits_of(made: Problem, program: Program) -> Limits:
    """What a run on a problem may take, by the task's own work."""
    work = work_of(made.task, made.axes)
    base, each = STEPS
    seconds, slow = LAUNCH_SECONDS
    prints = any(function.name == "vprintf" for function in program.module.functions)
    patience = PRINTING if prints else 1.0
    return Limits(base + each * work, SECONDS, launch_seconds=patience * (seconds + slow * work))


def twin_of(trial: Trial) -> Trial:
    """The same run over the other pattern and the other residue, at other addresses."""
    byte = (
        int(next(iter(trial.fill.values()))[0])
        if any(each.size for each in trial.fill.values())
        else FILLS[0]
    )
    fill = FILLS[1] if byte == FILLS[0] else FILLS[0]
    residue = RESIDUES[1] if trial.residue == RESIDUES[0] else RESIDUES[0]
    return replace(trial, fill=trial.problem.filled(fill), residue=residue, placement=Placement.MOVE)


def _masked(outcome: Outcome, trial: Trial, other: Outcome, twin: Trial) -> Outcome:
    """The outcome with a map of what was written: all but the bytes that hold the pattern they had before in both of two runs."""
    written = {
        name: (outcome.buffers[name] != before) | (other.buffers[name] != twin.fill[name])
        for name, before in trial.fill.items()
    }
    return replace(outcome, written=written)


def _mutated(trial: Trial, outcome: Outcome) -> tuple[str, ...]:
    pristine = trial.problem.input_bytes
    return tuple(name for name, data in pristine.items() if not np.array_equal(outcome.buffers[name], data))


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
