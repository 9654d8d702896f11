"""A candidate on a device while it is judged: its runs, what has been seen of it, and how a failure is told.

Invariants
- The first failure ends it: `Stopped` carries the whole finding.
- Of a hidden workload nothing is told that tells its shape or data: neither numbers nor what the device said.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandbox.device import (
    HANGS,
    Bytes,
    Device,
    Fault,
    FaultKind,
    OnUnwritten,
    Order,
    Outcome,
    Program,
)
from sandbox.ptx.declarations import TYPE_BYTES
from sandbox.ptx.nodes import Variable
from sandbox.ptx.plan import PlanError
from tasks.errors import LaunchRefused
from tools.blame import by_chance, by_orders
from tools.evaluation import Mismatch, Numerics, Verdict, Warning_
from tools.explain import explain
from tools.trial import Trial, compared, limits_of, mutated, same

AHEAD = {
    Order.FIRST_ALONE: "when the first warps and blocks run ahead: ",
    Order.LAST_ALONE: "when the last warps and blocks run ahead: ",
}
"""Orders in which a missing barrier shows, and what to say before a fault that comes in one."""
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


class Stopped(Exception):
    """Judging ends here."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.summary)
        self.result = result


@dataclass
class Bench:
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
        """Run and judge; the outputs when right. Raises Stopped with the whole finding when not."""
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
        """A run that ended well. Raises Stopped when it did not."""
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
        raise Stopped(found)

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


def small_variables(program: Program) -> tuple[Variable, ...]:
    """Module variables that a kernel can write and whose contents are quickly read."""
    found: list[Variable] = []
    for each in program.module.variables:
        if each.space == "global" and "extern" not in each.linkage:
            elements = math.prod(WATCHED_BYTES + 1 if extent is None else extent for extent in each.dims)
            if TYPE_BYTES.get(each.type, 8) * each.vector * elements <= WATCHED_BYTES:
                found.append(each)
    return tuple(found)
