"""Every planted bug is judged, called what it is, and told with facts that are true."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tasks.dtypes import to_bytes
from tasks.registry import list_tasks, load_task
from tasks.schema import Role
from tests.tasks.mutants import ARCH, MUTANTS, RACES, Mutant
from tools.evaluation import Evaluation, Mismatch, Verdict
from tools.ladder import Job, evaluate
from tools.problem import derived, named_workloads, problem

SEED = 20_261_201


def judged(mutant: Mutant) -> Evaluation:
    return evaluate(Job(mutant.task, ARCH, mutant.text, seed=SEED)).evaluation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_called_what_it_is(mutant: Mutant) -> None:
    found = judged(mutant)
    assert found.verdict is mutant.verdict, found.summary
    assert not found.targets_met
    assert re.search(mutant.says, found.summary), found.summary
    if found.verdict is Verdict.FAULT:
        assert found.fault is not None
        assert found.fault.line is not None
        assert found.fault.source == mutant.text.split("\n")[found.fault.line - 1].split("//")[0].strip()
    if found.verdict is Verdict.WRONG_OUTPUT:
        assert found.numerics is not None
        assert found.numerics.explanation == found.summary
        assert all(first_is_true(mutant.task, each) for each in found.numerics.mismatches)
        assert found.numerics.mismatches or found.numerics.inputs_mutated


def first_is_true(task: str, mismatch: Mismatch) -> bool:
    """Whether what the first wrong element should be is what the task's reference says of the secret inputs."""
    loaded = load_task(task)
    roles = (Role.EMULATE, Role.CHECK, Role.HIDDEN)
    workload = next(each for each, name in named_workloads(loaded, roles) if name == mismatch.workload)
    truths = (
        problem(loaded, workload, mismatch.workload, derived(SEED, mismatch.workload, k)).expected[
            mismatch.output
        ]
        for k in range(2)
    )
    assert mismatch.first is not None
    values = {float(truth.reference[mismatch.first]) for truth in truths}
    return mismatch.expected in values or (
        mismatch.expected != mismatch.expected and any(v != v for v in values)
    )


def test_every_task_has_its_bugs() -> None:
    per_task = Counter(mutant.task for mutant in MUTANTS)
    simple = {name for name in list_tasks("starter") if load_task(name).task.family != "gemm"}
    assert len(simple) == 8
    assert {name for name in simple if per_task[name] < 3} == set()
    names = [mutant.name for mutant in (*MUTANTS, *RACES)]
    assert len(set(names)) == len(names)
    kinds = Counter(mutant.verdict for mutant in MUTANTS)
    assert set(kinds) >= {
        Verdict.BAD_PLAN,
        Verdict.ASSEMBLE_ERROR,
        Verdict.FAULT,
        Verdict.HANG,
        Verdict.WRONG_OUTPUT,
    }


@pytest.mark.parametrize("mutant", RACES, ids=lambda mutant: mutant.name)
def test_a_missing_barrier_is_seen(mutant: Mutant) -> None:
    found = judged(mutant)
    assert found.verdict is mutant.verdict, found.summary
    assert found.numerics is not None
    assert found.numerics.reason == mutant.says
    assert "a barrier is missing" in found.summary


def test_a_mutant_differs_from_its_solution_in_behaviour_not_in_inputs() -> None:
    """The seed alone decides the inputs: what a mutant got wrong, the solution gets right on the same data."""
    loaded = load_task("row_sum")
    workload, name = named_workloads(loaded, (Role.EMULATE,))[0]
    one, two = (problem(loaded, workload, name, derived(SEED, name, 0)) for _ in range(2))
    assert all((to_bytes(one.inputs[key]) == to_bytes(two.inputs[key])).all() for key in one.inputs)
    path = loaded.solution(ARCH)
    assert path is not None
    assert evaluate(Job("row_sum", ARCH, path.read_text(), seed=SEED)).evaluation.verdict is Verdict.CORRECT
