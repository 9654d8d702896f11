"""What a model reads first: every task renders, no secret enters, and the example it is shown is a right kernel."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from agent import prompts
from agent.extract import extract
from agent.models.base import Message
from agent.prompts import DEFAULT, TEMPLATES, digest, environment, first_messages
from sandbox.ptx.families import FAMILIES
from tasks.errors import InputError
from tasks.registry import LoadedTask, list_tasks, load_task
from tasks.schema import Role
from tools.evaluation import Verdict
from tools.ladder import Job, evaluate

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")

COLUMN_SUM = """
name: column_sum
suite: test
title: Sums of columns
description: y[j] = sum over i of x[i, j], in float32. x is [m, n], y is [n].
family: reduction
axes: {m: null, n: null}
inputs: {x: {shape: [m, n], dtype: f32}}
outputs: {y: {shape: [n], dtype: f32}}
tolerance: {terms: m, factor: 2}
work: {flops: m * n, bytes: 4 * m * n + 4 * n}
workloads:
  - {name: small, roles: [emulate], axes: {m: 9, n: 257}, inputs: {kind: normal, mean: 1, std: 2}}
  - {name: one, roles: [check], axes: {m: 1, n: 1}, inputs: {kind: normal, mean: 1, std: 2}}
  - {name: exact, roles: [check], axes: {m: 33, n: 300}, inputs: {kind: integers, low: -8, high: 8}, exact: true}
  - {name: unnamed, roles: [hidden], axes: {m: 7919, n: 3}, inputs: {kind: normal, mean: 1, std: 2}}
"""
REFERENCE = """
def reference(inputs, axes):
    return {"y": inputs["x"].double().sum(0)}


def honest(inputs, axes):
    return {"y": inputs["x"].sum(0)}


def magnitude(inputs, axes):
    return {"y": inputs["x"].double().abs().sum(0)}
"""


@pytest.fixture
def column_sum(tmp_path: Path) -> LoadedTask:
    folder = tmp_path / "column_sum"
    folder.mkdir()
    (folder / "task.yaml").write_text(COLUMN_SUM)
    (folder / "reference.py").write_text(REFERENCE)
    return load_task(str(folder))


def words(messages: tuple[Message, ...]) -> str:
    return "\n".join(message.content for message in messages)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", list_tasks())
def test_every_task_renders(name: str, arch: str) -> None:
    task = load_task(name)
    system, user = first_messages(task, arch)
    assert (system.role, user.role) == ("system", "user")
    assert user.content.startswith(f"# Task: {task.task.title}\n\n{task.task.description.strip()}\n")
    assert user.content.endswith("```\n")
    text = words((system, user))
    for leftover in ("{{", "{%", "None", "DType", "Role."):
        assert leftover not in text
    for tensor in (*task.task.inputs, *task.task.outputs):
        assert f"| `{tensor}` | " in text
    for each in task.targets_for(arch).all:
        assert f"`{each}`: {FAMILIES[each].title}. {FAMILIES[each].how}" in text
    assert f".target {arch}\n" in text
    assert set(re.findall(r"sm_\d+[af]?", text)) == {arch}


@pytest.mark.parametrize("name", list_tasks())
def test_hidden_workloads_are_never_named(name: str) -> None:
    task = load_task(name)
    hidden = task.workloads(Role.HIDDEN)
    assert hidden
    text = words(first_messages(task, "sm_90a"))
    shown = {pair for each in task.workloads() if each not in hidden for pair in each.axes.items()}
    for workload in hidden:
        for axis, value in set(workload.axes.items()) - shown:
            assert not re.search(rf"\b{axis} = {value}\b", text)


@pytest.mark.parametrize("name", list_tasks())
def test_a_prompt_is_the_same_whatever_is_hidden(name: str) -> None:
    task = load_task(name)
    open_ = tuple(each for each in task.task.workloads if Role.HIDDEN not in each.roles)
    bare = dataclasses.replace(task, task=task.task.model_copy(update={"workloads": open_}))
    assert first_messages(bare, "sm_90a") == first_messages(task, "sm_90a")


def test_a_hidden_shape_stays_hidden_and_the_others_are_shown(column_sum: LoadedTask) -> None:
    text = words(first_messages(column_sum, "sm_90a"))
    assert "m = 9, n = 257; m = 1, n = 1; m = 33, n = 300; others are not named" in text
    assert "7919" not in text
    assert "unnamed" not in text


def test_the_same_task_gives_the_same_bytes() -> None:
    task = load_task("row_sum")
    assert first_messages(task, "sm_90a") == first_messages(task, "sm_90a")
    assert words(first_messages(task, "sm_90a")) != words(first_messages(task, "sm_80"))


def test_required_families_are_asked_for_and_none_where_none_is() -> None:
    asked = words(first_messages(load_task("gemm_f16_mma"), "sm_90a"))
    assert "These instruction families must really do the work" in asked
    assert "`mma_sync`" in asked
    assert "instruction families" not in words(first_messages(load_task("row_sum"), "sm_90a"))


def test_families_required_besides_are_asked_for_once() -> None:
    task = load_task("gemm_f16_mma")
    assert first_messages(task, "sm_90a", require=("mma_sync",)) == first_messages(task, "sm_90a")
    more = words(first_messages(load_task("row_sum"), "sm_90a", require=("redux", "shfl")))
    assert f"   - `redux`: {FAMILIES['redux'].title}. " in more
    assert f"   - `shfl`: {FAMILIES['shfl'].title}. " in more


def test_exactness_is_told_as_the_task_has_it() -> None:
    assert "Results must be exact." in words(first_messages(load_task("histogram"), "sm_90a"))
    rounded = words(first_messages(load_task("row_sum"), "sm_90a"))
    assert "Results must be exact." not in rounded
    assert "Some inputs are such that the result must be exact." in rounded
    assert "the result must be exact" not in words(first_messages(load_task("vector_add"), "sm_90a"))


def test_the_example_is_right_for_the_task_it_names(column_sum: LoadedTask) -> None:
    """As a model reads it: taken out of the message, and judged."""
    for arch in ("sm_80", "sm_90a"):
        shown = extract(first_messages(load_task("row_sum"), arch)[1].content).text
        assert shown is not None
        found = evaluate(Job(str(column_sum.folder), arch, shown, seed=5)).evaluation
        assert found.verdict is Verdict.CORRECT, found.summary
        assert not found.diagnostics
        assert not found.warnings


def test_the_judge_of_the_example_sees_a_wrong_one(column_sum: LoadedTask) -> None:
    text = (TEMPLATES / DEFAULT / "example.ptx").read_text().replace("mov.u32 %r5, 0;", "mov.u32 %r5, 1;")
    found = evaluate(Job(str(column_sum.folder), "sm_90a", text, seed=5)).evaluation
    assert found.verdict is Verdict.WRONG_OUTPUT


@pytest.mark.parametrize("version", ["v0", "", "..", "v1/..", "V1"])
def test_an_unknown_version_is_refused(version: str) -> None:
    for ask in (environment, digest, lambda name: first_messages(load_task("row_sum"), "sm_90a", name)):
        with pytest.raises(InputError, match=r"no templates are called .*; there are: .*v1"):
            ask(version)


def test_the_digest_changes_with_a_byte_of_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TEMPLATES / DEFAULT, tmp_path / "v1")
    before = digest(DEFAULT)
    monkeypatch.setattr(prompts, "TEMPLATES", tmp_path)
    fresh = digest.__wrapped__
    assert fresh("v1") == before
    seen = {before}
    for path in sorted((tmp_path / "v1").iterdir()):
        original = path.read_bytes()
        path.write_bytes(original + b" ")
        seen.add(fresh("v1"))
        path.write_bytes(original)
    (tmp_path / "v1" / "more.md.j2").write_text("")
    seen.add(fresh("v1"))
    assert len(seen) == 2 + len(list((TEMPLATES / DEFAULT).iterdir()))


def test_the_digest_says_which_file_holds_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that move from one file to another are a change."""
    shutil.copytree(TEMPLATES / DEFAULT, tmp_path / "v1")
    monkeypatch.setattr(prompts, "TEMPLATES", tmp_path)
    first, second = tmp_path / "v1" / "task.md.j2", tmp_path / "v1" / "verdict.md.j2"
    first.write_bytes(b"abc"), second.write_bytes(b"def")
    before = digest.__wrapped__("v1")
    first.write_bytes(b"abcd"), second.write_bytes(b"ef")
    assert digest.__wrapped__("v1") != before
    before = digest.__wrapped__("v1")
    second.rename(second.with_name("z.md.j2"))
    assert digest.__wrapped__("v1") != before, "a file of another name is a change"
