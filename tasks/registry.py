"""Where tasks are found and how a folder becomes one.

A task folder holds
- `task.yaml`: the record of `tasks.schema.Task`;
- `reference.py`: `reference(inputs, axes) -> outputs`, exact in float64 (integers for integer outputs); `honest(inputs, axes) ->
  outputs`, the honest low-precision answer in the outputs' own types; optionally `magnitude(inputs, axes)`, the sum of absolute terms
  of each output element in float64, `custom_inputs(axes, rng)` for workloads of kind `custom`, and baselines by name;
- `solutions/<arch>.ptx`: candidates that pass.

Invariants
- `reference.py` is code and is trusted: only folders that ship with ptxmend or that a person names on the command line are loaded.
- A folder that cannot be used raises `TaskError`, which says file, field, what was expected and what was found.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import ValidationError

from tasks import inputs as filling
from tasks.dtypes import DTYPES, torch_dtype
from tasks.errors import InputError, PtxmendError
from tasks.expressions import ExpressionError, evaluate, parse
from tasks.schema import TASK_FORMAT, Role, TargetRule, Task, Tensor, Workload

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]

SUITE = Path(__file__).parent / "suite"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ARCH = re.compile(r"sm_(\d+)([af]?)")


class TaskError(InputError):
    """A task that cannot be found or used."""


@dataclass(frozen=True)
class LoadedTask:
    """A task with its folder and its Python side."""

    task: Task
    folder: Path
    digest: str
    """sha256 over task.yaml and reference.py."""

    @cached_property
    def _module(self) -> ModuleType:
        path = self.folder / "reference.py"
        spec = importlib.util.spec_from_file_location(f"_ptxmend_task_{self.digest[:12]}", path)
        if spec is None or spec.loader is None:
            raise TaskError(f"{path}: expected a Python file with reference() and honest()")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise TaskError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
        return module

    def _function(self, name: str) -> Callable[..., Any] | None:
        found = getattr(self._module, name, None)
        return found if callable(found) else None

    def _call(self, name: str, *args: object) -> dict[str, torch.Tensor]:
        function = self._function(name)
        if function is None:
            raise TaskError(f"{self.folder / 'reference.py'} must define {name}(inputs, axes)")
        where = f"{self.folder / 'reference.py'}: {name}()"
        try:
            found = function(*args)
        except PtxmendError:
            raise
        except Exception as error:
            raise TaskError(f"{where} fails with {type(error).__name__}: {error}") from error
        if not isinstance(found, Mapping):
            raise TaskError(f"{where}: expected a mapping of names to tensors, found {type(found).__name__}")
        return dict(cast("Mapping[str, torch.Tensor]", found))

    def _custom_inputs(self, axes: Mapping[str, int], seed: int) -> dict[str, torch.Tensor]:
        made = self._call("custom_inputs", dict(axes), filling.generator(seed, "custom"))
        shapes = self.shapes(axes)
        wanted = {name: (shapes[name], torch_dtype(each.dtype)) for name, each in self.task.inputs.items()}
        given = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in made.items()}
        if given != wanted:
            where = f"{self.folder / 'reference.py'}: custom_inputs()"
            raise TaskError(f"{where}: expected {_told(wanted)}, found {_told(given)}")
        return made

    def workloads(self, role: Role | None = None) -> tuple[Workload, ...]:
        """Workloads of a role (all when None), in file order."""
        return tuple(each for each in self.task.workloads if role is None or role in each.roles)

    def bind(self, workload: Workload) -> dict[str, int]:
        """Every axis with its value on this workload."""
        constants = {name: value for name, value in self.task.axes.items() if value is not None}
        return constants | workload.axes

    def shapes(self, axes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Input and output → extents."""
        every = {**self.task.inputs, **self.task.outputs}
        return {
            name: tuple(evaluate(extent, axes) for extent in tensor.shape) for name, tensor in every.items()
        }

    def make_inputs(self, workload: Workload, seed: int) -> dict[str, torch.Tensor]:
        """The workload's inputs in their own types."""
        axes = self.bind(workload)
        if workload.inputs.kind == "custom":
            return self._custom_inputs(axes, seed)
        shapes = self.shapes(axes)
        return {
            name: filling.make(name, shapes[name], tensor.dtype, workload.inputs, seed)
            for name, tensor in self.task.inputs.items()
        }

    def reference(self, inputs: Tensors, axes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """Outputs in float64, or in integers for integer outputs."""
        return self._call("reference", dict(inputs), dict(axes))

    def honest(self, inputs: Tensors, axes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """What a good kernel gives: low-precision arithmetic, outputs in their own types."""
        return self._call("honest", dict(inputs), dict(axes))

    def magnitude(self, inputs: Tensors, axes: Mapping[str, int]) -> dict[str, torch.Tensor] | None:
        """Sum of absolute terms of each output element in float64; None when the task gives none (|reference| stands for it)."""
        if self._function("magnitude") is None:
            return None
        return self._call("magnitude", dict(inputs), dict(axes))

    def baseline(self, name: str, inputs: Tensors, axes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """Outputs as the baseline of this name computes them, on the device of `inputs`: what candidates are timed against."""
        return self._call(self.task.baselines[name], dict(inputs), dict(axes))

    def solution(self, arch: str) -> Path | None:
        """Our own passing candidate for `arch`: its own file, else the one for the highest older portable architecture."""
        folder = self.folder / "solutions"
        exact = folder / f"{arch}.ptx"
        if exact.is_file():
            return exact
        match = _ARCH.fullmatch(arch)
        limit = int(match[1]) if match else 0
        found = [
            (int(m[1]), path)
            for path in folder.glob("sm_*.ptx")
            if (m := _ARCH.fullmatch(path.stem)) and not m[2]
        ]
        return max((each for each in found if each[0] <= limit), default=(0, None))[1]

    def targets_for(self, arch: str) -> TargetRule:
        """The rule for `arch`; the task's "any" rule, or an empty one, when it has none of its own."""
        return self.task.targets.get(arch, self.task.targets.get("any", TargetRule()))


def _told(tensors: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str:
    return (
        ", ".join(f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in sorted(tensors.items()))
        or "nothing"
    )


def list_tasks(suite: str | None = None) -> tuple[str, ...]:
    """Names of the packaged tasks of a suite (all when None), easiest first. Raises TaskError for an unknown suite."""
    tasks = [_load_folder(path.parent).task for path in sorted(SUITE.glob("*/task.yaml"))]
    if suite is not None and suite not in {task.suite for task in tasks}:
        known = ", ".join(sorted({task.suite for task in tasks}))
        raise TaskError(f"no suite is called {suite!r}; there are: {known}")
    chosen = [task for task in tasks if suite in (None, task.suite)]
    return tuple(
        task.name for task in sorted(chosen, key=lambda task: (task.suite, task.difficulty, task.name))
    )


def suites() -> tuple[str, ...]:
    """Names of the packaged suites."""
    return tuple(sorted({load_task(name).task.suite for name in list_tasks()}))


def load_task(name_or_path: str) -> LoadedTask:
    """A packaged task by name, or any task folder by path (it must contain a `/` or be an existing folder)."""
    packaged, path = SUITE / name_or_path, Path(name_or_path)
    try:
        if _IDENTIFIER.fullmatch(name_or_path) and (packaged / "task.yaml").is_file():
            return _load_folder(packaged)
        there = path.is_dir()
    except OSError:  # too long for a path
        there = False
    if there:
        return _load_folder(path.resolve())
    names = list_tasks()
    near = get_close_matches(name_or_path, names, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    raise TaskError(
        f"no task or task folder is called {name_or_path[:200]!r}{guess} Tasks: {', '.join(names)}"
    )


@lru_cache(maxsize=256)
def _load_cached(folder: Path, stamp: tuple[int, int]) -> LoadedTask:
    source = (folder / "task.yaml").read_bytes()
    code = (folder / "reference.py").read_bytes()
    digest = hashlib.sha256(source + b"\0" + code).hexdigest()
    return LoadedTask(_validated(folder / "task.yaml", source), folder, digest)


def _load_folder(folder: Path) -> LoadedTask:
    stamps: list[int] = []
    for name in ("task.yaml", "reference.py"):
        path = folder / name
        if not path.is_file():
            raise TaskError(f"{folder} is no task folder: it has no {name}")
        stamps.append(path.stat().st_mtime_ns)
    return _load_cached(folder, (stamps[0], stamps[1]))


def _validated(path: Path, source: bytes) -> Task:
    try:
        raw = yaml.safe_load(source)
    except yaml.YAMLError as error:
        raise TaskError(f"{path} is not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise TaskError(f"{path}: expected a mapping of task fields, found {type(raw).__name__}")
    if raw.get("format", TASK_FORMAT) != TASK_FORMAT:
        raise TaskError(f"{path}: format is {raw['format']!r}; this ptxmend reads format {TASK_FORMAT}")
    try:
        task = Task.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        found = "nothing" if first["type"] == "missing" else repr(first["input"])[:200]
        raise TaskError(f"{path}: field {field}: {first['msg']}; found {found}") from error
    problems = list(_problems(task))
    if problems:
        raise TaskError(f"{path}: {problems[0]}")
    return task


def _problems(task: Task) -> list[str]:
    """What pydantic cannot see, in words; empty when the task is sound."""
    found: list[str] = []
    names = [task.name, *task.axes, *task.inputs, *task.outputs]
    found += [
        f"{name!r} is not an identifier (letters, digits, _)"
        for name in names
        if not _IDENTIFIER.fullmatch(name)
    ]
    found += [
        f"{name!r} names two things among axes, inputs and outputs"
        for name in names[1:]
        if names[1:].count(name) > 1
    ]
    tensors: dict[str, Tensor] = {**task.inputs, **task.outputs}
    expressions = {f"{name}.shape": extent for name, tensor in tensors.items() for extent in tensor.shape}
    expressions |= {
        "work.flops": task.work.flops,
        "work.bytes": task.work.bytes,
        "tolerance.terms": task.tolerance.terms,
    }
    for field, text in expressions.items():
        try:
            unknown = parse(text).names - set(task.axes)
        except ExpressionError as error:
            found.append(f"field {field}: {error}")
        else:
            found += [
                f"field {field}: {name!r} is not an axis; axes: {', '.join(task.axes)}"
                for name in sorted(unknown)
            ]
    free = {name for name, value in task.axes.items() if value is None}
    for workload in task.workloads:
        if set(workload.axes) != free:
            found.append(
                f"workload {workload.name!r}: expected values for the axes {sorted(free)}, found {sorted(workload.axes)}"
            )
    if not found:
        found += [problem for workload in task.workloads for problem in _of_workload(task, workload)]
    found += [
        f"field targets: expected an architecture such as sm_90a, or any; found {arch!r}"
        for arch in task.targets
        if arch != "any" and not _ARCH.fullmatch(arch)
    ]
    roles = [role for workload in task.workloads for role in workload.roles]
    for role, least in ((Role.EMULATE, 1), (Role.CHECK, 2)):
        if roles.count(role) < least:
            found.append(
                f"field workloads: expected at least {least} of role {role.value}, found {roles.count(role)}"
            )
    names = [workload.name for workload in task.workloads]
    found += [f"two workloads are called {name!r}" for name in sorted(set(names)) if names.count(name) > 1]
    return found


def _of_workload(task: Task, workload: Workload) -> list[str]:
    """What is wrong with one workload of a task whose expressions can be read."""
    where, how = f"workload {workload.name!r}", workload.inputs
    found: list[str] = []
    axes = {name: value for name, value in task.axes.items() if value is not None} | workload.axes
    for name, tensor in {**task.inputs, **task.outputs}.items():
        for extent in tensor.shape:
            try:
                value = evaluate(extent, axes)
            except ExpressionError as error:
                found.append(f"{where}: {name}.shape: {error}")
            else:
                if value < 0:
                    found.append(
                        f"{where}: {name}.shape: expected an extent of 0 or more, found {extent} = {value}"
                    )
    if how.std < 0:
        found.append(f"{where}: field inputs.std: expected 0 or more, found {how.std:g}")
    if how.low > how.high:
        found.append(f"{where}: field inputs.low: expected at most high ({how.high:g}), found {how.low:g}")
    if how.kind == "integers":
        exact = [int(2 / DTYPES[each.dtype].eps) for each in task.inputs.values() if DTYPES[each.dtype].eps]
        most = min([*exact, 2**53])
        found += [
            f"{where}: field inputs.{field}: expected a whole number of at most {most}, which all inputs hold exactly; found {value:g}"
            for field, value in (("low", how.low), ("high", how.high))
            if value != int(value) or abs(value) > most
        ]
    return found
