"""The matrix products: their solutions are what their generators write, pass, and planted bugs in them do not."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tasks.registry import load_task
from tests.tasks.mutants import ARCH, Mutant
from tests.tasks.mutants_gemm import BF16, F16, MUTANTS, RACES
from tools.evaluation import Evaluation, Verdict
from tools.ladder import Job, evaluate

TARGETS = {F16: {"ldmatrix", "mma_sync"}, BF16: {"cp_async", "ldmatrix", "mma_sync"}}


def judged(task: str, text: str) -> Evaluation:
    return evaluate(Job(task, ARCH, text, seed=20_261_201)).evaluation


def solution(task: str) -> str:
    path = load_task(task).solution(ARCH)
    assert path is not None
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("task", TARGETS)
def test_the_committed_solution_is_what_its_generator_writes(task: str) -> None:
    path = load_task(task).folder / "solutions" / "generate.py"
    spec = importlib.util.spec_from_file_location(f"generate_{task}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.source() == solution(task)


@pytest.mark.parametrize("task", TARGETS)
def test_the_solution_does_all_of_the_work_on_tensor_cores(task: str) -> None:
    found = judged(task, solution(task))
    assert found.verdict is Verdict.CORRECT, found.summary
    assert {target.family for target in found.targets if target.met} == TARGETS[task]
    share = next(target.share for target in found.targets if target.family == "mma_sync")
    assert share is not None
    assert share >= 0.99


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_called_what_it_is(mutant: Mutant) -> None:
    found = judged(mutant.task, mutant.text)
    assert found.verdict is mutant.verdict, found.summary
    assert not found.targets_met
    assert re.search(mutant.says, found.summary), found.summary


@pytest.mark.parametrize("mutant", RACES, ids=lambda mutant: mutant.name)
def test_a_missing_barrier_is_seen(mutant: Mutant) -> None:
    found = judged(mutant.task, mutant.text)
    assert found.verdict is mutant.verdict, found.summary
    assert found.numerics is not None
    assert found.numerics.reason == mutant.says
