"""One workload with its secret inputs and what the outputs must be.

Invariants
- Inputs, reference and buffers are functions of (task, workload, seed) alone; references are kept per
  process, bounded in bytes.
- A hidden workload goes by the name `hidden-k` everywhere.
- Buffers handed out are copies: nothing a device does reaches the pristine inputs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sandbox.device import Buffer, Bytes
from tasks.dtypes import to_bytes
from tasks.errors import InputError
from tasks.expressions import evaluate
from tasks.schema import Role, Workload
from tools.numerics import Expectation

if TYPE_CHECKING:
    import torch

    from tasks.registry import LoadedTask

ONE_THREAD = 500_000_000
"""FLOPs and bytes of a workload whose reference one thread computes in a few tens of milliseconds."""
KEPT_BYTES = 256 << 20
"""Inputs and references that a process keeps, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Inputs in their own types, and an `Expectation` for each output."""

    task: LoadedTask
    workload: Workload
    name: str
    axes: Mapping[str, int]
    inputs: Mapping[str, torch.Tensor]
    input_bytes: Mapping[str, Bytes]
    expected: Mapping[str, Expectation]

    @property
    def secret(self) -> bool:
        """Whether the workload is hidden: nothing that tells its shape or data may leave the judge."""
        return self.name != self.workload.name

    @property
    def label(self) -> str:
        """The name with the axes it binds, for a sentence; of a hidden workload the name alone."""
        if self.secret or not self.workload.axes:
            return self.name
        return f"{self.name} ({', '.join(f'{axis} = {value}' for axis, value in self.workload.axes.items())})"

    def buffers(self, fill: Mapping[str, Bytes], *, stale: bool = False) -> dict[str, Buffer]:
        """Inputs, and outputs that hold `fill`; `stale`: that is an earlier answer, so reading it is no
        unwritten read.
        """
        made: dict[str, Buffer] = {}
        for name, data in self.input_bytes.items():
            dtype, shape = str(self.task.task.inputs[name].dtype), tuple(self.inputs[name].shape)
            made[name] = Buffer(name, data.copy(), dtype=dtype, shape=shape)
        for name, data in fill.items():
            dtype, shape = str(self.expected[name].dtype), tuple(self.expected[name].reference.shape)
            made[name] = Buffer(name, data.copy(), defined=stale, role="output", dtype=dtype, shape=shape)
        return made

    def filled(self, byte: int) -> dict[str, Bytes]:
        """Contents for the outputs: `byte` all over."""
        return {
            name: np.full(to_bytes(want.honest).size, byte, np.uint8) for name, want in self.expected.items()
        }


def named_workloads(task: LoadedTask, roles: Sequence[Role]) -> list[tuple[Workload, str]]:
    """Workloads of these roles with the names to show: by role, hidden ones last, and within one the
    cheapest first.
    """
    chosen: dict[str, tuple[Workload, str]] = {}
    hidden = 0
    for role in (Role.EMULATE, Role.CHECK, Role.HIDDEN):
        for workload in sorted(task.workloads(role), key=lambda each: work_of(task, task.bind(each))):
            secret = role is Role.HIDDEN and workload.name not in chosen
            hidden += secret
            if role in roles and workload.name not in chosen:
                chosen[workload.name] = (workload, f"hidden-{hidden}" if secret else workload.name)
    return list(chosen.values())


def work_of(task: LoadedTask, axes: Mapping[str, int]) -> int:
    """FLOPs and bytes of the task on these axes, added up: a measure of what running it costs."""
    return evaluate(task.task.work.flops, axes) + evaluate(task.task.work.bytes, axes)


@contextmanager
def threads(work: int) -> Generator[None]:
    """Keep torch to one thread unless a workload is worth more: threads that wait for each other cost judges that share a machine dearly.

    work: as `work_of` gives it.
    """
    import torch

    before = torch.get_num_threads()
    if work <= ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def derived(seed: int, *parts: object) -> int:
    """A secret seed (63 bits) for one purpose."""
    digest = hashlib.blake2b(repr((seed, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def problem(task: LoadedTask, workload: Workload, name: str, seed: int) -> Problem:
    """The workload with inputs from `seed`; kept for the next candidate of the same task."""
    key = (task.digest, workload.name, seed)
    if key in _KEPT:
        _KEPT.move_to_end(key)
        return _KEPT[key]
    made = of_inputs(task, workload, name, task.make_inputs(workload, seed))
    _KEPT[key] = made
    while len(_KEPT) > 1 and sum(map(_size, _KEPT.values())) > KEPT_BYTES:
        _KEPT.popitem(last=False)
    return made


def of_inputs(task: LoadedTask, workload: Workload, name: str, inputs: Mapping[str, torch.Tensor]) -> Problem:
    """The workload with these inputs."""
    axes = task.bind(workload)
    pristine = {key: tensor.clone() for key, tensor in inputs.items()}
    reference, honest = task.reference(inputs, axes), task.honest(inputs, axes)
    magnitude = task.magnitude(inputs, axes) or {}
    for key in task.task.outputs:
        for part, given in (("reference", reference), ("honest", honest), ("magnitude", magnitude)):
            if key in given or part != "magnitude":
                _shaped(task, workload, axes, part, key, given.get(key))
    rule = task.task.tolerance
    expected = {
        key: Expectation(
            dtype=tensor.dtype,
            reference=reference[key],
            honest=honest[key],
            magnitude=magnitude.get(key),
            tolerance=rule,
            terms=evaluate(rule.terms, axes),
            exact=workload.exact,
            nan_payload=task.task.nan_payload,
        )
        for key, tensor in task.task.outputs.items()
    }
    data = {key: to_bytes(tensor) for key, tensor in pristine.items()}
    return Problem(task, workload, name, axes, pristine, data, expected)


def _shaped(
    task: LoadedTask,
    workload: Workload,
    axes: Mapping[str, int],
    part: str,
    output: str,
    tensor: torch.Tensor | None,
) -> None:
    """Raise InputError unless what `reference.py` gives for an output has the output's shape."""
    found = None if tensor is None else tuple(tensor.shape)
    wanted = task.shapes(axes)[output]
    if found != wanted:
        raise InputError(
            f"{task.folder / 'reference.py'}: {part}() must give {output} with shape {wanted} on workload "
            f"{workload.name}; found {found}"
        )


def mixed(base: Problem, other: Problem, seed: int, *, rows: bool) -> Problem:
    """`base` with a random half of its input taken from `other`: single elements, or whole rows (leading
    indices).

    Inputs that the task makes itself (`custom`) keep their integer tensors: mixed, they might break a
    structure.
    """
    import torch

    random = torch.Generator().manual_seed(seed)
    inputs: dict[str, torch.Tensor] = {}
    for name, tensor in base.inputs.items():
        bound = base.workload.inputs.kind == "custom" and not tensor.is_floating_point()
        if bound or not tensor.ndim:
            inputs[name] = tensor
            continue
        shape = (tensor.shape[0], *[1] * (tensor.ndim - 1)) if rows else tuple(tensor.shape)
        inputs[name] = torch.where(torch.rand(shape, generator=random) < 0.5, other.inputs[name], tensor)
    return of_inputs(base.task, base.workload, base.name, inputs)


def _size(kept: Problem) -> int:
    return sum(data.nbytes for data in kept.input_bytes.values()) + sum(
        2 * want.reference.nbytes + want.honest.nbytes for want in kept.expected.values()
    )


_KEPT: OrderedDict[tuple[str, str, int], Problem] = OrderedDict()
