"""Our own solutions pass, their generators make them, and no task lets a wrong answer through."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tasks.registry import SUITE, list_tasks, load_task
from tools.evaluation import Verdict
from tools.ladder import Job, evaluate
from tools.lint import lint_task

SIMPLE = tuple(name for name in list_tasks("starter") if load_task(name).task.family != "gemm")
GENERATORS = sorted(SUITE.glob("*/solutions/generate.py"))


@pytest.mark.parametrize("name", SIMPLE)
def test_the_solution_is_correct_with_its_targets_met(name: str) -> None:
    path = load_task(name).solution("sm_90a")
    assert path is not None
    found = evaluate(Job(name, "sm_90a", path.read_text(), seed=11)).evaluation
    assert (found.verdict, found.targets_met) == (Verdict.CORRECT, True), found.summary


@pytest.mark.parametrize("name", SIMPLE)
def test_the_task_is_sound(name: str) -> None:
    assert lint_task(load_task(name)) == ()


def test_the_generator_of_row_softmax_agrees_with_its_file() -> None:
    path = SUITE / "row_softmax" / "solutions" / "generate.py"
    assert path in GENERATORS
    source = runpy.run_path(str(path))["source"]
    assert source() == Path(path).with_name("sm_80.ptx").read_text()
