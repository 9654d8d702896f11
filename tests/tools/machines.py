"""Devices for tests of check: a GPU as check sees one, and a machine that costs nothing.

`Blind` is the emulator with what a GPU cannot do taken away: it tells neither what was written nor at which line a kernel stopped, lets
kernels read what nothing wrote, and picks the order of warps by chance. Memory has addresses only as far as `Limits.placement` goes: the
emulator lays buffers out alike in every run.

`Instant` gives the honest answer without running anything: what is left is what judging itself costs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from sandbox.device import (
    HANGS,
    Buffer,
    Bytes,
    Counts,
    Fault,
    FaultKind,
    Limits,
    OnUnwritten,
    Order,
    Outcome,
    Placement,
    Program,
    Session,
    Traits,
)
from sandbox.emulator.device import EmulatorDevice
from tasks.dtypes import from_bytes, to_bytes
from tasks.registry import LoadedTask

SEEN = {
    FaultKind.OUT_OF_BOUNDS: FaultKind.OUT_OF_BOUNDS,
    FaultKind.MISALIGNED: FaultKind.MISALIGNED,
    FaultKind.ASSERT: FaultKind.ASSERT,
    FaultKind.ILLEGAL_OPERAND: FaultKind.ILLEGAL_INSTRUCTION,
}
"""What hardware makes of faults it sees; any other ends as a launch failure."""
GPU = Traits(masks=False, orders=False, counts=False, timed=False)


class Blind:
    """A GPU as check sees one, over the emulator. seed: of the orders it picks."""

    name = "cuda"
    traits = GPU

    def __init__(self, seed: int = 0, arch: str = "sm_90a") -> None:
        self.inner = EmulatorDevice(arch)
        self.random = random.Random(seed)
        self.asked: list[Limits] = []
        """Of every run, over all sessions."""

    def load(self, program: Program) -> Session:
        return _Blind(self, self.inner.load(program))


class _Blind:
    def __init__(self, device: Blind, inner: Session) -> None:
        self.device, self.inner = device, inner

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        self.device.asked.append(limits)
        order = self.device.random.choice((Order.TOGETHER, Order.FIRST_ALONE, Order.LAST_ALONE))
        there = {name: replace(buffer, defined=True) for name, buffer in buffers.items()}
        real = replace(limits, on_unwritten=OnUnwritten.POISON, order=order)
        found = self.inner.run(axes, there, real)
        fault = None if found.fault is None else _dim(found.fault)
        contents = {name: buffer.data for name, buffer in buffers.items()} if fault else found.buffers
        return replace(found, buffers=contents, fault=fault, counts=Counts(), notices=(), written=None)

    def close(self) -> None:
        self.inner.close()


def _dim(fault: Fault) -> Fault:
    kind = FaultKind.TIMEOUT if fault.kind in HANGS else SEEN.get(fault.kind, FaultKind.LAUNCH_FAILURE)
    return Fault(kind=kind, message=f"on the GPU, in {fault.entry}: {kind.value}", entry=fault.entry)


@dataclass(frozen=True)
class Ran:
    """A run of `Instant` that a spoiler may change."""

    number: int
    """Of the run in its session, from 0."""
    place: int
    """Stands for the addresses of its buffers."""
    before: Mapping[str, Buffer]
    limits: Limits
    after: dict[str, Bytes]
    """Contents that it leaves behind."""
    kept: dict[str, Any]
    """What a session keeps from run to run, as module variables do."""


class Instant:
    """Answers honestly and at once. spoil: what goes wrong."""

    name = "cuda"
    traits = GPU

    def __init__(self, task: LoadedTask, spoil: Callable[[Ran], None] = lambda ran: None) -> None:
        self.task, self.spoil = task, spoil
        self.runs = 0
        self.loads = 0
        self.place = 0
        self.asked: list[tuple[Placement, int, int]] = []
        """Of every run: placement, residue, dummies."""

    def load(self, program: Program) -> Session:
        self.loads += 1
        return _Instant(self)


class _Instant:
    def __init__(self, device: Instant) -> None:
        self.device = device
        self.count = 0
        self.kept: dict[str, Any] = {}

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        device, task = self.device, self.device.task
        shapes = task.shapes(axes)
        inputs: dict[str, torch.Tensor] = {
            name: from_bytes(buffers[name].data, tensor.dtype, shapes[name])
            for name, tensor in task.task.inputs.items()
        }
        contents = {name: buffer.data.copy() for name, buffer in buffers.items()}
        for name, tensor in task.honest(inputs, axes).items():
            contents[name] = to_bytes(tensor)
        device.runs += 1
        device.place += limits.placement is not Placement.KEEP
        device.asked.append((limits.placement, limits.poison, limits.dummies))
        device.spoil(Ran(self.count, device.place, buffers, limits, contents, self.kept))
        self.count += 1
        return Outcome(contents, None, Counts())

    def close(self) -> None: ...
