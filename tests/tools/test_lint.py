"""Tasks that a wrong answer would pass are refused; the starter tasks are not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.registry import LoadedTask, list_tasks, load_task
from tools.lint import IMPOSTORS, MEANING, Finding, _solutions, lint_task


def doctored(
    folder: Path, change: Callable[[dict[str, Any]], None], reference: str | None = None
) -> LoadedTask:
    shutil.copytree(load_task("affine").folder, folder)
    text = yaml.safe_load((folder / "task.yaml").read_text())
    change(text)
    (folder / "task.yaml").write_text(yaml.safe_dump(text))
    if reference is not None:
        (folder / "reference.py").write_text(reference)
    return load_task(str(folder))


def errors(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.kind for finding in findings if finding.severity == "error"}


def test_the_starter_tasks_pass() -> None:
    for name in list_tasks():
        assert errors(lint_task(load_task(name))) == set(), name


def test_the_solution_of_affine_passes() -> None:
    assert errors(lint_task(load_task("affine"), solutions=True)) == set()


def test_a_solution_that_needs_a_gpu_is_told_and_not_passed() -> None:
    (found,) = _solutions(load_task("gemm_bf16_wgmma"))
    assert (found.severity, found.kind) == ("warning", "solution")
    assert "not tried" in found.message
    assert "needs a real GPU" in found.message


def test_a_task_that_zeros_pass_is_refused(tmp_path: Path) -> None:
    def loosen(text: dict[str, Any]) -> None:
        text["tolerance"] = {"factor": 1e15, "rms_ratio": 1e15}
        text["workloads"] = [each for each in text["workloads"] if not each.get("exact")]
        for each in text["workloads"]:
            each["inputs"] = {"kind": "normal"}

    found = errors(lint_task(doctored(tmp_path / "affine", loosen)))
    assert {"zeros", "constant_mean", "identity", "fp16_cast", "bf16_cast"} <= found
    assert "nan_fill" not in found


def test_a_task_loose_enough_for_halves_is_refused_unless_it_says_so(tmp_path: Path) -> None:
    def loosen(text: dict[str, Any]) -> None:
        text["tolerance"] = {"factor": 2.0**15, "rms_ratio": 2.0**18}
        text["workloads"] = [each for each in text["workloads"] if not each.get("exact")]
        for each in text["workloads"]:
            each["inputs"] = {"kind": "normal"}

    def allow(text: dict[str, Any]) -> None:
        loosen(text)
        text["extra"] = {"lint_allows": ["fp16_cast", "bf16_cast"]}

    assert errors(lint_task(doctored(tmp_path / "one", loosen))) >= {"fp16_cast"}
    assert not errors(lint_task(doctored(tmp_path / "two", allow))) & {"fp16_cast", "bf16_cast", "zeros"}


def test_missing_hidden_workloads_are_a_warning(tmp_path: Path) -> None:
    def show_all(text: dict[str, Any]) -> None:
        for each in text["workloads"]:
            each["roles"] = [role for role in each["roles"] if role != "hidden"] or ["check"]

    findings = lint_task(doctored(tmp_path / "affine", show_all))
    assert Finding("warning", "workloads", "no workload has the role hidden; add one") in findings
    assert errors(findings) == set()


def test_a_reference_that_varies_is_refused(tmp_path: Path) -> None:
    source = (
        "import torch\n\n\n"
        "def reference(inputs, axes):\n    return {'y': 2 * inputs['x'].double() + 1 + torch.rand(axes['n'])}\n\n\n"
        "def honest(inputs, axes):\n    return {'y': 2 * inputs['x'] + 1}\n"
    )
    task = doctored(tmp_path / "affine", lambda text: None, source)
    assert "reference" in errors(lint_task(task))


def test_a_reference_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    source = (
        "def reference(inputs, axes):\n    return {'y': 2 * inputs['x'].double()[:1] + 1}\n\n\n"
        "def honest(inputs, axes):\n    return {'y': 2 * inputs['x'] + 1}\n"
    )
    findings = lint_task(doctored(tmp_path / "affine", lambda text: None, source))
    assert any(each.kind == "inputs" and "must give y with shape" in each.message for each in findings)


def test_every_impostor_has_words() -> None:
    assert set(MEANING) == set(IMPOSTORS)


@pytest.mark.parametrize("kind", ["zeros", "first_half"])
def test_findings_say_what_to_do(kind: str, tmp_path: Path) -> None:
    def loosen(text: dict[str, Any]) -> None:
        text["tolerance"] = {"factor": 1e15, "rms_ratio": 1e15}
        text["workloads"] = [each for each in text["workloads"] if not each.get("exact")]
        for each in text["workloads"]:
            each["inputs"] = {"kind": "normal"}

    findings = lint_task(doctored(tmp_path / "affine", loosen))
    assert any(each.kind == kind and "tighten" in each.message for each in findings)
