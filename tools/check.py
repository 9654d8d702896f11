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
- A GPU can neither see what was written nor choose an order. There the same data run over two patterns and three residues (the device
  fills shared memory, scratch and red zones), in the loaded module and in a fresh one, at other addresses, and once more than that; other
  data run at the same addresses; a random number of other launches comes before each run. Answers that differ in bits are reported, not
  punished; what is wrong only sometimes is a race (`tools.blame`).
- Faults become verdicts by one table; an `InfraError` of the device is passed on and is never a verdict.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sandbox.device import (
    HANGS,
    Bytes,
    Device,
    Fault,
    FaultKind,
    OnUnwritten,
    Order,
    Outcome,
    Placement,
    Program,
)
from sandbox.ptx.declarations import TYPE_BYTES
from sandbox.ptx.nodes import Variable
from sandbox.ptx.plan import PlanError
from tasks.errors import LaunchRefused
from tasks.schema import Role
from tools.blame import by_chance, by_orders
from tools.evaluation import Mismatch, Numerics, Verdict, Warning_
from tools.explain import explain
from tools.problem import Problem, derived, mixed, named_workloads, problem, work_of
from tools.trial import FILLS, RESIDUES, ZERO, Trial, compared, limits_of, mutated, same

if TYPE_CHECKING:
    from tasks.registry import LoadedTask

ROLES = (Role.EMULATE, Role.CHECK, Role.HIDDEN)
LAUNCHES = 8
"""Runs of the plan in one loaded module, at the least."""
HEAVY = 20_000_000
"""FLOPs and bytes of a workload above which it is run twice only: over a pattern, and over an earlier answer."""
AHEAD = {
    Order.FIRST_ALONE: "when the first warps and blocks run ahead: ",
    Order.LAST_ALONE: "when the last warps and blocks run ahead: ",
}
"""Orders in which a missing barrier shows, and what to say before a fault that comes in one."""
REPEATS = 3
"""Further runs on the same data, on a device on which chance takes part."""
WATCHED_BYTES = 1 << 16
"""Of a module variable that is looked at for traces of earlier launches."""
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
    workload: str = ""
    """The named workload on which it stopped; '' for a hidden one, and where none is to blame."""


class _Stop(Exception):
    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.summary)
        self.result = result


def check(program: Program, task: LoadedTask, device: Device, seed: int) -> CheckResult:
    """Judge a program on every workload. Raises InfraError when the device cannot tell."""
    try:
        bench = _Bench(program, device, random.Random(derived(seed, "dummies")))
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LOAD_ERROR, f"the module cannot be loaded: {refusal}")
    try:
        walk = _walk_by_orders if device.traits.orders else _walk_by_chance
        walk(bench, task, seed)
        return bench.passed()
    except _Stop as stop:
        return stop.result
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LAUNCH_ERROR, f"the launch is refused: {refusal}")
    except PlanError as error:
        return CheckResult(Verdict.BAD_PLAN, f"the launch plan cannot be used: {error}")
    finally:
        bench.close()


def _walk_by_orders(bench: _Bench, task: LoadedTask, seed: int) -> None:
    """All workloads on a device that sees what is written, and chooses orders."""
    for workload, name in named_workloads(task, ROLES):
        bench.names += (name,)
        first, second = (problem(task, workload, name, derived(seed, name, k)) for k in range(2))
        left = bench.judged(Trial(first, first.filled(FILLS[0]), False, RESIDUES[0]))
        light = work_of(task, first.axes) <= HEAVY
        if light:
            again = bench.fresh(Trial(first, first.filled(FILLS[1]), False, RESIDUES[1]))
            bench.repeated(left, again)
            left = bench.judged(Trial(second, second.filled(FILLS[1]), False, RESIDUES[1]))
            for order, made, fill in zip(AHEAD, (second, first), FILLS, strict=True):
                bench.judged(Trial(made, made.filled(fill), False, RESIDUES[0], order))
            first, second = second, first
        for rows in (False, True) if light and _has_rows(first) else (False,):
            first = mixed(first, second, derived(seed, name, "mixed", rows), rows=rows)
            left = bench.judged(Trial(first, left, True, RESIDUES[1]))
        if bench.unwritten is not None:
            bench.judged(Trial(first, first.filled(ZERO), False, ZERO))
    workload, name = named_workloads(task, ROLES)[0]
    for extra in range(LAUNCHES):
        if bench.launches >= LAUNCHES:
            break
        fresh = problem(task, workload, name, derived(seed, name, "extra", extra))
        bench.judged(Trial(fresh, fresh.filled(FILLS[extra % 2]), False, RESIDUES[extra % 2]))


def _walk_by_chance(bench: _Bench, task: LoadedTask, seed: int) -> None:
    """All workloads on a device that does neither."""
    for workload, name in named_workloads(task, ROLES):
        bench.names += (name,)
        bench.accepted.clear()
        bench.watched = small_variables(bench.program) if len(bench.names) == 1 else ()
        first, second = (problem(task, workload, name, derived(seed, name, k)) for k in range(2))
        light = work_of(task, first.axes) <= HEAVY
        over = Trial(first, first.filled(FILLS[1]), False, RESIDUES[1])
        before = bench.fresh(over) if light else bench.judged(over)
        elsewhere = Trial(first, first.filled(FILLS[0]), False, RESIDUES[0], placement=Placement.MOVE)
        left = bench.judged(elsewhere)
        bench.repeated(before, left)
        if light:
            there = Trial(second, second.filled(FILLS[1]), False, RESIDUES[1], placement=Placement.KEEP)
            left = bench.judged(there)
        base, other = (second, first) if light else (first, second)
        for rows in (False, True) if light and _has_rows(first) else (False,):
            base = mixed(base, other, derived(seed, name, "mixed", rows), rows=rows)
            left = bench.judged(Trial(base, left, True, RESIDUES[1], placement=Placement.KEEP))
        for residue in (ZERO, *RESIDUES)[: REPEATS if light else 1]:
            placement = Placement.MOVE if residue == ZERO else Placement.ANY
            again = Trial(first, first.filled(residue), False, residue, placement=placement)
            bench.repeated(before, bench.judged(again))


def small_variables(program: Program) -> tuple[Variable, ...]:
    """Module variables that a kernel can write and whose contents are quickly read."""
    found: list[Variable] = []
    for each in program.module.variables:
        if each.space == "global" and "extern" not in each.linkage:
            elements = math.prod(WATCHED_BYTES + 1 if extent is None else extent for extent in each.dims)
            if TYPE_BYTES.get(each.type, 8) * each.vector * elements <= WATCHED_BYTES:
                found.append(each)
    return tuple(found)


def _has_rows(made: Problem) -> bool:
    return any(tensor.ndim > 1 for tensor in made.inputs.values())


@dataclass
class _Bench:
    """A candidate on a device: its loaded module and what has been seen of it."""

    program: Program
    device: Device
    random: random.Random
    history: list[Trial] = field(default_factory=list[Trial])
    """Runs since the module was loaded."""
    on_unwritten: OnUnwritten = OnUnwritten.FAULT
    unwritten: Fault | None = None
    """The first read of memory that nothing wrote."""
    names: tuple[str, ...] = ()
    worst: float = 0.0
    deterministic: bool | None = None
    accepted: dict[int, Mapping[str, Bytes]] = field(default_factory=dict[int, Mapping[str, Bytes]])
    """Of this workload, id of a problem → an answer to it that was judged right: the same bytes need no second judgement."""
    watched: tuple[Variable, ...] = ()
    """Module variables whose contents are looked at after each run."""
    state: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Their contents after the last run: 0 before any, unless they have an initial value."""
    warnings: dict[tuple[str, int | None], Warning_] = field(
        default_factory=dict[tuple[str, int | None], Warning_]
    )
    stdout: bytes = b""

    def __post_init__(self) -> None:
        self.session = self.device.load(self.program)

    @property
    def launches(self) -> int:
        """Runs since the module was loaded."""
        return len(self.history)

    def close(self) -> None:
        self.session.close()

    def reload(self) -> None:
        """Load the module anew: its variables have their first values again."""
        self.session.close()
        self.session = self.device.load(self.program)
        self.history = []

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
            variables=tuple(each.name for each in self.watched),
        )
        outcome = self.session.run(made.axes, made.buffers(trial.fill, stale=trial.stale), limits)
        self.history.append(trial)
        self._watch(outcome)
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
        changed = mutated(trial, outcome)
        if changed:
            for name in changed:
                self._warn("input_mutated", f"the kernel changed its input {name}", None)
            self._wrong(trial, (), "input_mutated", changed)
        answer = {name: outcome.buffers[name] for name in trial.fill}
        known = self.accepted.get(id(trial.problem))
        if known is not None and same(answer, known):
            return answer
        mismatches, reason, worst = compared(trial, outcome)
        self.worst = max(self.worst, worst)
        if mismatches:
            self._blamed(trial, reason, outcome)
        if outcome.written is None:
            self.accepted[id(trial.problem)] = answer
        return answer

    def _watch(self, outcome: Outcome) -> None:
        """Warn of a module variable that does not hold what it held before any run, or after the last."""
        for each in self.watched:
            if each.name not in outcome.variables:
                continue
            now = outcome.variables[each.name].tobytes()
            before = self.state.get(each.name, now if each.init is not None else bytes(len(now)))
            self.state[each.name] = now
            if now != before:
                told = f"the kernel writes the module variable {each.name}, whose value lasts from launch to launch"
                self._warn("persistent_state", told, each.span.line)

    def _blamed(self, trial: Trial, reason: str, outcome: Outcome) -> None:
        """Find out why an answer is wrong, and stop."""
        history = tuple(self.history[:-1])
        self.before = len(history)
        if self.device.traits.orders:
            reason = by_orders(self, trial, reason, outcome, self.before)
        else:
            found = by_chance(self, trial, outcome, history)
            reason, outcome = found.reason, found.outcome
            self.deterministic = False if reason == "race" else self.deterministic
        self._wrong(trial, compared(trial, outcome)[0], reason)

    def repeated(self, one: Mapping[str, Bytes], other: Mapping[str, Bytes]) -> None:
        """Two answers to the same question, both right: do they agree to the last bit?"""
        self.deterministic = same(one, other) and self.deterministic is not False

    def passed(self) -> CheckResult:
        """What is said when all went well."""
        numerics = Numerics(
            workloads=self.names, passed=True, max_error=self.worst, deterministic=self.deterministic
        )
        summary = f"correct on {len(self.names)} workloads"
        return CheckResult(
            Verdict.CORRECT, summary, numerics, warnings=self.all_warnings(), stdout=self.printed()
        )

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
            self._stop(FAULT_VERDICT[outcome.fault.kind], text, None, outcome.fault, trial.problem.name)
        return outcome

    def fresh(self, trial: Trial) -> dict[str, Bytes]:
        """`judged` in a module that was just loaded, beside the one that stays."""
        kept, history = self.session, self.history
        self.session, self.history = self.device.load(self.program), []
        try:
            return self.judged(trial)
        finally:
            self.session.close()
            self.session, self.history = kept, history

    def _wrong(
        self, trial: Trial, mismatches: tuple[Mismatch, ...], reason: str, mutated: tuple[str, ...] = ()
    ) -> None:
        if trial.problem.secret:
            self._hidden(trial, Verdict.WRONG_OUTPUT, reason, None)
        text = explain(
            reason,
            mismatches,
            mutated,
            trial.problem.label,
            self.before,
            self.unwritten,
            orders=self.device.traits.orders,
        )
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
        self._stop(Verdict.WRONG_OUTPUT, text, numerics, fault, trial.problem.name)

    before: int = 0
    """Runs in the loaded module before the one that failed."""

    def _hidden(self, trial: Trial, verdict: Verdict, reason: str, fault: Fault | None) -> None:
        """Stop on a hidden workload: what kind of failure and on which line, but no number that tells its shape or data."""
        what = f"the output is wrong ({reason})"
        if fault is not None:
            what = fault.kind.value + (f" at line {fault.line}" if fault.line is not None else "")
        text = f"on {trial.problem.name}, a shape that is not named, {what}; the shapes you know pass"
        if fault is not None:
            shown = {"kind": fault.kind, "line": fault.line, "source": fault.source, "entry": fault.entry}
            fault = Fault.model_validate({**shown, "launch": fault.launch, "message": text})
        numerics = None
        if verdict is Verdict.WRONG_OUTPUT:
            shown = {"workloads": self.names, "passed": False, "reason": reason, "explanation": text}
            numerics = Numerics.model_validate(shown)
        self._stop(verdict, text, numerics, fault)

    def _stop(
        self,
        verdict: Verdict,
        summary: str,
        numerics: Numerics | None,
        fault: Fault | None,
        workload: str = "",
    ) -> None:
        found = CheckResult(
            verdict, summary, numerics, fault, self.all_warnings(), self.printed(), workload=workload
        )
        raise _Stop(found)

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
