"""Task folders: what is sound loads, and what is not is refused by file, field, what was expected and what was found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tasks.dtypes import torch_dtype
from tasks.errors import InputError
from tasks.registry import SUITE, LoadedTask, TaskError, list_tasks, load_task, suites
from tasks.schema import DType, Role

CODE = """
import torch


def reference(inputs, axes):
    return {"y": inputs["x"].double() + axes["k"]}


def honest(inputs, axes):
    return {"y": inputs["x"] + axes["k"]}
"""


def sound() -> dict[str, Any]:
    return {
        "format": 1,
        "name": "plus",
        "suite": "mine",
        "title": "Plus",
        "description": "y = x + k",
        "family": "elementwise",
        "axes": {"n": None, "k": 3},
        "inputs": {"x": {"shape": ["n"], "dtype": "f16"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "f16"}},
        "targets": {"sm_90a": {"all": ["tma_load"]}, "any": {"any": ["ldmatrix"]}},
        "work": {"flops": "n", "bytes": "4 * n"},
        "workloads": [
            {"name": "small", "roles": ["emulate"], "axes": {"n": 10}},
            {"name": "one", "roles": ["check"], "axes": {"n": 1}},
            {"name": "odd", "roles": ["check", "hidden"], "axes": {"n": 33}},
        ],
    }


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a task folder: the sound one, changed by a function, with other code."""

    def write(change: Callable[[Any], object] = lambda raw: None, code: str = CODE) -> Path:
        raw = sound()
        change(raw)
        folder = tmp_path / "plus"
        folder.mkdir(exist_ok=True)
        (folder / "task.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
        (folder / "reference.py").write_text(code)
        return folder

    return write


def test_a_sound_folder_loads(make: Make) -> None:
    task = load_task(str(make()))
    assert [each.name for each in task.workloads()] == ["small", "one", "odd"]
    assert [each.name for each in task.workloads(Role.CHECK)] == ["one", "odd"]
    (small,) = task.workloads(Role.EMULATE)
    axes = task.bind(small)
    assert axes == {"n": 10, "k": 3}
    assert task.shapes(axes) == {"x": (10,), "y": (10,)}
    inputs = task.make_inputs(small, 4)
    assert inputs["x"].dtype == torch_dtype(DType.F16)
    assert torch.equal(task.reference(inputs, axes)["y"], inputs["x"].double() + 3)
    assert torch.equal(task.honest(inputs, axes)["y"], inputs["x"] + 3)
    assert task.magnitude(inputs, axes) is None


def set_(*path: Any) -> Callable[[Any], None]:
    """A change: the last of `path` put where the others lead."""
    *way, last, value = path

    def change(raw: Any) -> None:
        for step in way:
            raw = raw[step]
        raw[last] = value

    return change


def drop(field: str) -> Callable[[Any], None]:
    return lambda raw: raw.pop(field)


BROKEN: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "no title": (drop("title"), ["field title", "required", "found nothing"]),
    "a field too many": (set_("colour", "red"), ["field colour", "not permitted", "'red'"]),
    "a later format": (set_("format", 9), ["format is 9", "reads format 1"]),
    "difficulty": (set_("difficulty", 9), ["field difficulty", "less than or equal to 5", "found 9"]),
    "dtype": (set_("inputs", "x", "dtype", "f17"), ["field inputs.x.dtype", "'f16'", "found 'f17'"]),
    "role": (
        set_("workloads", 1, "roles", ["chek"]),
        ["field workloads.1.roles.0", "'check'", "found 'chek'"],
    ),
    "kind": (
        set_("workloads", 1, "inputs", {"kind": "gauss"}),
        ["field workloads.1.inputs.kind", "'normal'", "found 'gauss'"],
    ),
    "axis of no workload": (
        set_("axes", {"n": None, "k": 3, "m": None}),
        ["workload 'small'", "['m', 'n']", "found ['n']"],
    ),
    "axis too many": (
        set_("workloads", 0, "axes", {"n": 1, "z": 2}),
        ["workload 'small'", "expected values for the axes ['n']", "found ['n', 'z']"],
    ),
    "axis not whole": (
        set_("workloads", 0, "axes", {"n": 1.5}),
        ["field workloads.0.axes.n", "integer", "1.5"],
    ),
    "unknown axis in a shape": (
        set_("inputs", "x", "shape", ["q"]),
        ["field x.shape", "'q' is not an axis", "axes: n, k"],
    ),
    "expression": (set_("work", "flops", "n ** 2"), ["field work.flops", "expected integers, axis names"]),
    "code in an expression": (
        set_("work", "bytes", "__import__('os').getpid()"),
        ["field work.bytes", "expected integers, axis names"],
    ),
    "unknown axis in terms": (
        set_("tolerance", {"terms": "zz"}),
        ["field tolerance.terms", "'zz' is not an axis"],
    ),
    "negative extent": (
        set_("outputs", "y", "shape", ["n - 5"]),
        ["workload 'one'", "y.shape", "0 or more", "n - 5 = -4"],
    ),
    "no value": (set_("inputs", "x", "shape", ["n // (n - 1)"]), ["workload 'one'", "x.shape", "column"]),
    "not an identifier": (set_("name", "my task"), ["'my task' is not an identifier"]),
    "a tensor named like an axis": (
        set_("inputs", {"k": {"shape": ["n"], "dtype": "f16"}}),
        ["'k' names two things"],
    ),
    "two workloads of one name": (
        set_("workloads", 1, "name", "small"),
        ["two workloads are called 'small'"],
    ),
    "nothing to emulate": (
        set_("workloads", 0, "roles", ["measure"]),
        ["field workloads", "at least 1 of role emulate", "found 0"],
    ),
    "one check": (
        set_("workloads", 1, "roles", ["measure"]),
        ["field workloads", "at least 2 of role check", "found 1"],
    ),
    "architecture": (
        set_("targets", {"sm90": {"all": ["wgmma"]}}),
        ["field targets", "expected an architecture such as sm_90a, or any", "found 'sm90'"],
    ),
    "deviation": (
        set_("workloads", 0, "inputs", {"std": -1}),
        ["workload 'small'", "inputs.std", "0 or more", "found -1"],
    ),
    "range": (
        set_("workloads", 0, "inputs", {"kind": "uniform", "low": 2, "high": 1}),
        ["workload 'small'", "inputs.low", "at most high (1)", "found 2"],
    ),
    "integers that a half cannot hold": (
        set_("workloads", 0, "inputs", {"kind": "integers", "low": 0, "high": 2049}),
        ["workload 'small'", "inputs.high", "at most 2048", "found 2049"],
    ),
    "integers that are none": (
        set_("workloads", 0, "inputs", {"kind": "integers", "low": 0.5, "high": 2}),
        ["workload 'small'", "inputs.low", "whole number", "found 0.5"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_task_is_refused_by_file_and_field(make: Make, name: str) -> None:
    change, says = BROKEN[name]
    folder = make(change)
    with pytest.raises(TaskError) as refused:
        load_task(str(folder))
    message = str(refused.value)
    assert message.startswith(f"{folder / 'task.yaml'}: ")
    for part in says:
        assert part in message
    assert len(message) < 1_000


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (b"", "expected a mapping of task fields, found NoneType"),
        (b"- a\n- b\n", "expected a mapping of task fields, found list"),
        (b"name: [unclosed", "is not YAML"),
        (b"\xff\xfe\x00name", "is not YAML"),
        (b"name: !!python/object/apply:os.getcwd []\n", "is not YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(make: Make, source: bytes, says: str) -> None:
    folder = make()
    (folder / "task.yaml").write_bytes(source)
    with pytest.raises(TaskError, match=says) as refused:
        load_task(str(folder))
    assert str(folder / "task.yaml") in str(refused.value)


@pytest.mark.parametrize("missing", ["task.yaml", "reference.py"])
def test_a_folder_without_one_of_its_files_is_no_task(make: Make, missing: str) -> None:
    folder = make()
    (folder / missing).unlink()
    with pytest.raises(TaskError, match=f"is no task folder: it has no {missing}"):
        load_task(str(folder))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def reference(:", "cannot be imported: SyntaxError"),
        ("import no_such_package_of_ours", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit"),
        ("honest = 3", r"must define reference\(inputs, axes\)"),
        ("reference = 3", r"must define reference\(inputs, axes\)"),
        ("def reference(inputs, axes): return inputs['z']", r"reference\(\) fails with KeyError: 'z'"),
        ("def reference(inputs): return {}", r"reference\(\) fails with TypeError"),
        (
            "def reference(inputs, axes): return inputs['x']",
            r"reference\(\): expected a mapping .* found Tensor",
        ),
        ("def reference(inputs, axes): pass", r"reference\(\): expected a mapping .* found NoneType"),
    ],
)
def test_broken_code_is_refused_by_file_and_function(make: Make, code: str, says: str) -> None:
    task = load_task(str(make(code=code)))
    workload = task.workloads()[0]
    with pytest.raises(TaskError, match=says) as refused:
        task.reference(task.make_inputs(workload, 1), task.bind(workload))
    assert str(task.folder / "reference.py") in str(refused.value)


def custom(raw: Any) -> None:
    raw["workloads"][0]["inputs"] = {"kind": "custom"}


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ("{}", "found nothing"),
        ("{'z': torch.zeros(axes['n']).half()}", r"found z torch.float16 \[10\]"),
        ("{'x': torch.zeros(axes['n'])}", r"found x torch.float32 \[10\]"),
        ("{'x': torch.zeros(2, 5).half()}", r"found x torch.float16 \[2, 5\]"),
    ],
)
def test_custom_inputs_must_be_those_of_the_task(make: Make, result: str, found: str) -> None:
    task = load_task(str(make(custom, CODE + f"\n\ndef custom_inputs(axes, rng):\n    return {result}\n")))
    with pytest.raises(TaskError, match=rf"custom_inputs\(\): expected x torch.float16 \[10\], {found}"):
        task.make_inputs(task.workloads()[0], 1)


def test_custom_inputs_come_from_the_seed(make: Make) -> None:
    code = "\n\ndef custom_inputs(axes, rng):\n    return {'x': torch.from_numpy(rng.normal(size=axes['n'])).half()}\n"
    task = load_task(str(make(custom, CODE + code)))
    first, again, other = (task.make_inputs(task.workloads()[0], seed)["x"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_caller_keeps_its_inputs_whatever_the_reference_does_to_the_mapping(make: Make) -> None:
    code = "def reference(inputs, axes):\n    axes['n'] = 0\n    return {'y': inputs.pop('x')}\n"
    task = load_task(str(make(code=code)))
    workload = task.workloads()[0]
    inputs, axes = task.make_inputs(workload, 1), task.bind(workload)
    task.reference(inputs, axes)
    assert list(inputs) == ["x"]
    assert axes["n"] == 10


def test_the_digest_is_of_both_files_and_nothing_else(make: Make) -> None:
    folder = make()
    before = load_task(str(folder))
    (folder / "notes.txt").write_text("more")
    assert load_task(str(folder)).digest == before.digest
    seen = {before.digest}
    for name in ("task.yaml", "reference.py"):
        path = folder / name
        path.write_bytes(path.read_bytes() + b"# a remark\n")
        os.utime(path, ns=(1, len(seen)))
        seen.add(load_task(str(folder)).digest)
    assert len(seen) == 3


def test_changed_code_is_read_again(make: Make) -> None:
    folder = make()
    task = load_task(str(folder))
    workload = task.workloads()[0]
    inputs, axes = task.make_inputs(workload, 1), task.bind(workload)
    task.reference(inputs, axes)
    (folder / "reference.py").write_text(CODE.replace("+ axes", "- axes"))
    os.utime(folder / "reference.py", ns=(1, 1))
    assert torch.equal(load_task(str(folder)).reference(inputs, axes)["y"], inputs["x"].double() - 3)


@pytest.mark.parametrize(
    ("files", "arch", "chosen"),
    [
        ([], "sm_90a", None),
        (["sm_80"], "sm_90a", "sm_80"),
        (["sm_80", "sm_90"], "sm_90a", "sm_90"),
        (["sm_80", "sm_90", "sm_90a"], "sm_90a", "sm_90a"),
        (["sm_80", "sm_90a"], "sm_100a", "sm_80"),
        (["sm_80", "sm_100", "sm_120"], "sm_103a", "sm_100"),
        (["sm_100f"], "sm_103a", None),
        (["sm_90"], "sm_80", None),
        (["sm_80"], "nonsense", None),
        (["sm_80", "sm_90.draft"], "sm_90", "sm_80"),
    ],
)
def test_the_solution_is_the_nearest_that_runs(
    make: Make, files: list[str], arch: str, chosen: str | None
) -> None:
    folder = make()
    (folder / "solutions").mkdir()
    for name in files:
        (folder / "solutions" / f"{name}.ptx").write_text("")
    found = load_task(str(folder)).solution(arch)
    assert (found and found.name) == (chosen and f"{chosen}.ptx")


def test_targets_are_those_of_the_architecture_or_of_any(make: Make) -> None:
    task = load_task(str(make()))
    assert task.targets_for("sm_90a").all == ("tma_load",)
    assert task.targets_for("sm_80").any == ("ldmatrix",)
    none = load_task(str(make(set_("targets", {}))))
    assert (none.targets_for("sm_90a").all, none.targets_for("sm_90a").any) == ((), ())


def test_packaged_tasks_are_listed_easiest_first() -> None:
    names = list_tasks()
    assert set(names) == {path.parent.name for path in SUITE.glob("*/task.yaml")}
    keys = [(task.suite, task.difficulty, task.name) for task in (load_task(name).task for name in names)]
    assert keys == sorted(keys)
    assert suites() == tuple(sorted({suite for suite, _, _ in keys}))
    assert [name for suite in suites() for name in list_tasks(suite)] == list(names)


def test_a_name_nobody_has_is_refused_with_a_guess() -> None:
    with pytest.raises(TaskError, match=r"called 'vektor_add'; did you mean 'vector_add'\? Tasks: .*affine"):
        load_task("vektor_add")
    with pytest.raises(TaskError, match=r"called 'zzz'\. Tasks: .*affine"):
        load_task("zzz")
    with pytest.raises(TaskError, match=r"no suite is called 'zzz'; there are: hopper, starter"):
        list_tasks("zzz")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/", "\0", "a/b", "x" * 5_000, "vector_add\n", "../suite/vector_add"]
)
def test_no_name_does_anything_but_be_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        load_task(name)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("name", list_tasks())
def test_packaged_tasks_keep_their_word(name: str) -> None:
    """Inputs and answers have the types and shapes of the record, on the smallest workload."""
    task: LoadedTask = load_task(name)
    workload = task.workloads(Role.EMULATE)[0]
    axes = task.bind(workload)
    shapes = task.shapes(axes)
    inputs = task.make_inputs(workload, 2)
    for key, tensor in task.task.inputs.items():
        assert (inputs[key].dtype, tuple(inputs[key].shape)) == (torch_dtype(tensor.dtype), shapes[key])
    reference, honest, magnitude = (f(inputs, axes) for f in (task.reference, task.honest, task.magnitude))
    assert set(reference) == set(honest) == set(task.task.outputs)
    for key, tensor in task.task.outputs.items():
        assert tuple(reference[key].shape) == tuple(honest[key].shape) == shapes[key]
        assert honest[key].dtype == torch_dtype(tensor.dtype)
        assert reference[key].dtype == torch.float64 or not reference[key].dtype.is_floating_point
        if magnitude is not None:
            assert (magnitude[key] >= reference[key].abs() * (1 - 1e-12)).all()
