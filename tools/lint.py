"""lint: would a wrong answer pass this task?

A task is refused when its own tolerance lets through an answer that nobody computed: zeros, a constant, an
input as it is, the answer transposed, rounded through a narrower type, half done, or that of other inputs.
Its reference must be deterministic, and finite where the inputs are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.errors import CannotJudge, PtxmendError
from tasks.schema import DType, Role
from tools.evaluation import Verdict
from tools.numerics import judge
from tools.problem import Problem, derived, named_workloads, of_inputs, problem

if TYPE_CHECKING:
    import torch

    from tasks.registry import LoadedTask

ROLES = (Role.EMULATE, Role.CHECK, Role.HIDDEN)
ALLOWED = "lint_allows"
"""Key of a task's `extra`: names of impostors that the task accepts on purpose, such as bf16_cast."""
MINIMUM = 2
"""Elements below which an output is too small to tell an impostor by."""
SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a task. kind: name of the impostor that passes, or of the rule that is broken."""

    severity: Literal["error", "warning"]
    kind: str
    message: str


Impostor = Callable[[Problem, Problem, str], "torch.Tensor | None"]


def lint_task(task: LoadedTask, *, solutions: bool = False) -> tuple[Finding, ...]:
    """All findings; the task is refused when one is an error. solutions: also run its own solutions on the
    emulator.
    """
    workloads = named_workloads(task, ROLES)
    findings = list(_roles(task))
    if workloads:
        caught: dict[str, bool] = {}
        for workload, name in workloads:
            try:
                one, two = (problem(task, workload, name, derived(SEED, name, k)) for k in range(2))
            except PtxmendError as error:
                findings.append(Finding("error", "inputs", f"workload {name} cannot be made: {error}"))
                continue
            findings.extend(_reference(one))
            open_cases = [impostor for impostor in IMPOSTORS if not caught.get(impostor)]
            caught |= _impostors(one, two, open_cases)
        allowed = set(task.task.extra.get(ALLOWED, ()))
        findings.extend(_passing(caught, allowed))
    if solutions:
        findings.extend(_solutions(task))
    return tuple(findings)


def _roles(task: LoadedTask) -> Iterator[Finding]:
    for role in (Role.MEASURE, Role.HIDDEN):  # the schema itself asks for the others
        if not task.workloads(role):
            yield Finding("warning", "workloads", f"no workload has the role {role.value}; add one")


def _reference(made: Problem) -> Iterator[Finding]:
    import torch

    again = of_inputs(made.task, made.workload, made.name, made.inputs)
    for name, want in made.expected.items():
        if not torch.equal(
            torch.nan_to_num(want.reference), torch.nan_to_num(again.expected[name].reference)
        ):
            yield Finding(
                "error", "reference", f"the reference of {name} on {made.name} differs from call to call"
            )
        finite_inputs = all(
            not x.is_floating_point() or bool(x.isfinite().all()) for x in made.inputs.values()
        )
        if finite_inputs and want.reference.is_floating_point() and not bool(want.reference.isfinite().all()):
            yield Finding(
                "error",
                "reference",
                f"the reference of {name} on {made.name} is not finite though its inputs are",
            )
        honest = judge(want.honest, want, workload=made.name, output=name)
        if not honest.passed and not want.exact:
            yield Finding(
                "error",
                "honest",
                f"the honest answer of {name} on {made.name} fails the tolerance: {honest.mismatch}",
            )


def _impostors(one: Problem, two: Problem, which: Sequence[str]) -> dict[str, bool]:
    """Impostor → whether this workload tells it from the truth, for those that can be made here and differ
    from it.
    """
    import torch

    found: dict[str, bool] = {}
    for impostor in which:
        for name, want in one.expected.items():
            fake = IMPOSTORS[impostor](one, two, name) if want.reference.numel() >= MINIMUM else None
            if fake is None or torch.equal(fake := fake.to(want.honest.dtype), want.honest):
                continue
            caught = not judge(fake, want, workload=one.name, output=name).passed
            found[impostor] = found.get(impostor, False) or caught
    return found


def _passing(caught: dict[str, bool], allowed: set[str]) -> Iterator[Finding]:
    for impostor, seen in caught.items():
        if not seen and impostor not in allowed:
            yield Finding(
                "error",
                impostor,
                f"a wrong answer passes: {MEANING[impostor]}; tighten the tolerance or change the inputs",
            )


def _solutions(task: LoadedTask) -> Iterator[Finding]:
    """Each solution must be correct with its targets met; one that the emulator cannot judge is told, not passed."""
    from tools.ladder import Job, evaluate

    arches = [
        arch for arch in ("sm_90a", "sm_100a", *task.task.targets) if arch != "any" and task.solution(arch)
    ]
    if not arches:
        yield Finding("error", "solution", "no solution for any architecture; add solutions/sm_90a.ptx")
    for arch in dict.fromkeys(arches):
        path = task.solution(arch)
        assert path is not None
        job = Job(str(task.folder), arch, path.read_text(encoding="utf-8"), seed=SEED)
        try:
            evaluation = evaluate(job).evaluation
        except CannotJudge as error:
            yield Finding("warning", "solution", f"the solution for {arch} is not tried: {error}")
            continue
        if evaluation.verdict is not Verdict.CORRECT or not evaluation.targets_met:
            said = f"{evaluation.verdict.value}: {evaluation.summary}"
            yield Finding("error", "solution", f"the solution for {arch} does not pass: {said}")


def _zeros(one: Problem, two: Problem, name: str) -> torch.Tensor:
    import torch

    return torch.zeros_like(one.expected[name].honest)


def _mean(one: Problem, two: Problem, name: str) -> torch.Tensor:
    import torch

    want = one.expected[name]
    values = want.reference.double()
    finite = values[values.isfinite()]
    mean = finite.mean() if finite.numel() else torch.zeros(())
    return mean.expand(want.reference.shape).to(want.honest.dtype)


def _identity(one: Problem, two: Problem, name: str) -> torch.Tensor | None:
    want = one.expected[name].honest
    for tensor in one.inputs.values():
        if tensor.numel() == want.numel():
            return tensor.reshape(want.shape).to(want.dtype)
    return None


def _transposed(one: Problem, two: Problem, name: str) -> torch.Tensor | None:
    want = one.expected[name].honest
    if want.ndim < 2 or min(want.shape[-2:]) < MINIMUM:
        return None
    return want.transpose(-1, -2).reshape(want.shape)


def _cast(dtype: str) -> Impostor:
    def make(one: Problem, two: Problem, name: str) -> torch.Tensor | None:
        import torch

        want = one.expected[name]
        narrow = getattr(torch, dtype)
        return want.honest.to(narrow).to(torch.float32) if want.dtype is DType.F32 else None

    return make


def _previous(one: Problem, two: Problem, name: str) -> torch.Tensor | None:
    import torch

    mine, other = one.expected[name], two.expected[name]
    # A workload whose inputs are the same for every seed (a ramp) has no other answer.
    return None if torch.equal(mine.honest, other.honest) else other.honest


def _nan(one: Problem, two: Problem, name: str) -> torch.Tensor | None:
    import torch

    want = one.expected[name].honest
    return torch.full_like(want, float("nan")) if want.is_floating_point() else None


def _half(one: Problem, two: Problem, name: str) -> torch.Tensor:
    fake = one.expected[name].honest.clone()
    flat = fake.reshape(-1)
    flat[flat.numel() // 2 :] = 0
    return fake


IMPOSTORS: dict[str, Impostor] = {
    "zeros": _zeros,
    "constant_mean": _mean,
    "identity": _identity,
    "transposed": _transposed,
    "fp16_cast": _cast("float16"),
    "bf16_cast": _cast("bfloat16"),
    "previous": _previous,
    "nan_fill": _nan,
    "first_half": _half,
}
"""Name → the answer that somebody lazy or broken would give; None where it makes no sense."""
MEANING = {
    "zeros": "all zeros",
    "constant_mean": "the mean of the right answer everywhere",
    "identity": "an input copied as it is",
    "transposed": "the right answer transposed",
    "fp16_cast": "the right answer rounded through f16",
    "bf16_cast": "the right answer rounded through bf16",
    "previous": "the answer for other inputs",
    "nan_fill": "NaN everywhere",
    "first_half": "the first half right, the rest zero",
}
