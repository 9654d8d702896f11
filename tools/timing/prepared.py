"""A workload on the referee's machine: pristine inputs, what the outputs must be, and the rings its baselines run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.expressions import evaluate
from tasks.registry import LoadedTask
from tasks.schema import Workload
from tools.numerics import Expectation
from tools.timing.machine import Captured, Export

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Kept:
    """One workload on the machine."""

    task: LoadedTask
    axes: Mapping[str, int]
    inputs: dict[str, torch.Tensor]
    expected: dict[str, Expectation]
    exports: dict[str, Export] = field(default_factory=dict[str, Export])
    ring: list[dict[str, torch.Tensor]] = field(default_factory=list["dict[str, torch.Tensor]"])
    stale: list[list[torch.Tensor]] = field(default_factory=list["list[torch.Tensor]"])
    """Of each set, as many bytes as its outputs take."""
    windows: dict[tuple[str, int, int], Captured] = field(
        default_factory=dict[tuple[str, int, int], Captured]
    )
    """(baseline, first set, runs) → what replays them."""
    snapshots: list[dict[str, torch.Tensor]] = field(default_factory=list["dict[str, torch.Tensor]"])

    def bytes(self) -> int:
        """Held on the machine, about."""
        expected = [
            tensor
            for want in self.expected.values()
            for tensor in (want.reference, want.honest, want.magnitude)
            if tensor is not None
        ]
        outputs = sum(want.honest.nbytes for want in self.expected.values())
        inputs = sum(each.nbytes for each in self.inputs.values())
        captured = {(name, first + k) for name, first, count in self.windows for k in range(count)}
        return (
            sum(each.nbytes for each in expected)
            + inputs * (2 + len(self.ring))
            + outputs * (len(captured) + len(self.stale))
        )


def made(device: str, task: LoadedTask, workload: Workload, drawn: Mapping[str, torch.Tensor]) -> Kept:
    """Inputs on the machine, and what the outputs must be."""
    axes = task.bind(workload)
    inputs = {name: tensor.to(device).contiguous() for name, tensor in drawn.items()}
    reference, honest, magnitude = answers(task, inputs, axes, device)
    rule = task.task.tolerance
    expected = {
        name: Expectation(
            dtype=tensor.dtype,
            reference=reference[name],
            honest=honest[name],
            magnitude=magnitude.get(name),
            tolerance=rule,
            terms=evaluate(rule.terms, axes),
            exact=workload.exact,
            nan_payload=task.task.nan_payload,
        )
        for name, tensor in task.task.outputs.items()
    }
    return Kept(task, axes, inputs, expected)


def answers(
    task: LoadedTask, inputs: Mapping[str, torch.Tensor], axes: Mapping[str, int], device: str
) -> tuple[dict[str, torch.Tensor], ...]:
    """Reference, honest answer and magnitude, computed where the inputs are; on the CPU when that fails."""

    def all_of(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], ...]:
        given = (
            task.reference(tensors, axes),
            task.honest(tensors, axes),
            task.magnitude(tensors, axes) or {},
        )
        return tuple({name: tensor.to(device) for name, tensor in each.items()} for each in given)

    try:
        return all_of(inputs)
    except Exception:
        if device == "cpu":
            raise
        return all_of({name: tensor.cpu() for name, tensor in inputs.items()})


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes, in place."""
    import torch

    return tensor.reshape(-1).view(torch.uint8)
