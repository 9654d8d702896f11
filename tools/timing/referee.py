"""The referee: a process with torch that makes a workload's inputs, times its baselines, and judges what timed runs gave.

These functions run in a child (`sandbox.keeper.Keeper`) whose state lives in this module from call to call. It shares the GPU with the
candidate's worker, never its process or its context: neither pristine inputs nor the reference are ever mapped where a candidate runs.

Invariants
- A call names its `Subject`; what the child does not have yet it makes, so a restarted child needs no history.
- The inputs of a workload are made once in a process: later seeds get the same, because making them can take seconds and no candidate
  carries anything from one judgement to the next. A fresh process has fresh ones (that is what a confirmation is).
- Everything kept is counted in bytes; the least recently used workload goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.dtypes import torch_dtype
from tasks.errors import InfraError, InputError
from tasks.registry import LoadedTask, load_task
from tasks.schema import Workload
from tools.numerics import acceptable
from tools.timing.machine import Captured, Machine, machine
from tools.timing.prepared import Kept, made, raw

if TYPE_CHECKING:
    import torch

KEPT_SHARE = 0.25
"""Share of the memory that was free at the start which prepared workloads may keep."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload to time. task: its folder. seed: of its inputs, when they are first made in a process."""

    task: str
    digest: str
    workload: str
    seed: int


@dataclass(frozen=True, slots=True)
class Info:
    """The referee's machine."""

    uuid: str
    torch: str
    cuda: str
    """Version that torch was built for; '' for none."""
    room: int
    """Free bytes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs that the candidate's worker may copy: handle and bytes of each."""

    handles: Mapping[str, bytes]
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one timed run. error: largest error over tolerance (≤ 1 when right); text: what is wrong, or ''."""

    passed: bool
    error: float
    text: str = ""


@dataclass
class _State:
    machine: Machine
    keep: int
    workloads: OrderedDict[tuple[str, str], Kept] = field(
        default_factory=OrderedDict["tuple[str, str]", Kept]
    )
    """(task digest, workload) → what is kept of it, the least recently used first."""
    drawn: dict[tuple[str, str], dict[str, torch.Tensor]] = field(
        default_factory=dict["tuple[str, str]", "dict[str, torch.Tensor]"]
    )
    """Inputs made ahead, still in host memory."""


_STATES: dict[str, _State] = {}
"""Device → what this process holds on it."""


def subject_of(task: LoadedTask, workload: Workload, seed: int) -> Subject:
    """What to call a workload by."""
    return Subject(str(task.folder), task.digest, workload.name, seed)


def start(device: str) -> Info:
    """Make the machine ready: `cuda:0`, or `cpu` for a try without a GPU. Raises InfraError."""
    import torch

    if device not in _STATES:
        made = machine(device)
        _STATES[device] = _State(made, int(made.room() * KEPT_SHARE))
    here = _STATES[device].machine
    return Info(here.uuid, str(torch.__version__), str(torch.version.cuda or ""), here.room())


def draw(device: str, subject: Subject) -> None:
    """Make the inputs ahead of `prepare`, without touching the GPU, on which others may be timing."""
    start(device)
    state, key = _STATES[device], (subject.digest, subject.workload)
    if key not in state.workloads and key not in state.drawn:
        task, workload = _named(subject)
        state.drawn[key] = task.make_inputs(workload, subject.seed)


def prepare(device: str, subject: Subject) -> Prepared:
    """Make the inputs and the reference, and give out the inputs."""
    kept = _kept(device, subject)
    state = _STATES[device]
    if not kept.exports:
        kept.exports = {name: state.machine.export(tensor) for name, tensor in kept.inputs.items()}
    handles = {name: export.handle for name, export in kept.exports.items()}
    return Prepared(handles, {name: tensor.nbytes for name, tensor in kept.inputs.items()})


def ring(device: str, subject: Subject, sets: int) -> None:
    """Have `sets` copies of the inputs for the baselines, each at its own addresses."""
    kept = _kept(device, subject)
    if len(kept.ring) != sets:
        kept.windows.clear()
        kept.ring = [{name: tensor.clone() for name, tensor in kept.inputs.items()} for _ in range(sets)]
        kept.stale = [[raw(want.honest.clone()) for want in kept.expected.values()] for _ in range(sets)]
        _bounded(_STATES[device])


def capture(device: str, subject: Subject, baseline: str, window: int) -> str:
    """Capture every window of so many runs of a baseline; why they are called one by one instead, or ''."""
    kept = _kept(device, subject)
    stale = [key for key in kept.windows if key[0] == baseline and key[2] not in (window, 1)]
    for key in stale:
        del kept.windows[key]  # their outputs would only take room
    if stale:
        _STATES[device].machine.settle()
    for first in range(0, len(kept.ring), window):
        made = _window(device, kept, baseline, first, window)
        if made.reason:
            return made.reason
    return ""


def lap(device: str, subject: Subject, baseline: str, first: int, count: int) -> float:
    """Milliseconds of `count` runs of a baseline on the sets first, first + 1, … of the ring.

    Beforehand as much is written as the candidate's worker writes into the outputs half a ring away, so that the cache is as dirty.
    """
    kept = _kept(device, subject)
    sets = len(kept.ring)
    if not sets:
        raise InfraError("a baseline was to be timed before its ring of buffers was made")
    stale = [each for k in range(count) for each in kept.stale[(first + sets // 2 + k) % sets]]
    return _STATES[device].machine.time(_window(device, kept, baseline, first, count), stale)


def snapshot(
    device: str, subject: Subject, inputs: Mapping[str, bytes], outputs: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Take over a timed run's outputs, to be judged later; the names of inputs that are not as they were."""
    import torch

    kept, here = _kept(device, subject), _STATES[device].machine
    changed: list[str] = []
    for name, handle in inputs.items():
        pristine = raw(kept.inputs[name])
        copy = torch.empty_like(pristine)
        here.fetch(handle, copy)
        if not torch.equal(copy, pristine):
            changed.append(name)
    taken: dict[str, torch.Tensor] = {}
    for name, handle in outputs.items():
        want = kept.expected[name]
        taken[name] = torch.empty(want.reference.shape, dtype=torch_dtype(want.dtype), device=here.device)
        here.fetch(handle, raw(taken[name]))
    kept.snapshots.append(taken)
    return tuple(changed)


def judge(device: str, subject: Subject) -> tuple[Judged, ...]:
    """Judge the snapshots, by the rule of `tools.numerics`, and forget them."""
    kept = _kept(device, subject)
    taken, kept.snapshots = kept.snapshots, []
    found: list[Judged] = []
    for outputs in taken:
        wrong, worst = "", 0.0
        for name, got in outputs.items():
            passed, error = acceptable(got, kept.expected[name])
            worst = max(worst, error)
            if not passed:
                wrong = (
                    wrong or f"output {name} is wrong: its largest error is {error:.3g} times what is allowed"
                )
        found.append(Judged(not wrong, worst, wrong))
    return tuple(found)


def forget(device: str, subject: Subject) -> None:
    """Drop snapshots that nobody will ask to judge."""
    _kept(device, subject).snapshots.clear()


def release(device: str) -> None:
    """Drop every workload."""
    state = _STATES[device]
    while state.workloads:
        _drop(state, next(iter(state.workloads)))
    state.machine.settle()


def _kept(device: str, subject: Subject) -> Kept:
    state = _STATES.get(device)
    if state is None:
        start(device)
        state = _STATES[device]
    key = (subject.digest, subject.workload)
    if key in state.workloads:
        state.workloads.move_to_end(key)
        return state.workloads[key]
    task, workload = _named(subject)
    drawn = state.drawn.pop(key, None)
    if drawn is None:
        drawn = task.make_inputs(workload, subject.seed)
    kept = made(state.machine.device, task, workload, drawn)
    state.workloads[key] = kept
    _bounded(state)
    return kept


def _named(subject: Subject) -> tuple[LoadedTask, Workload]:
    task = load_task(subject.task)
    if task.digest != subject.digest:
        raise InfraError(
            f"task {task.task.name} in {subject.task} was changed while a candidate was judged on it: judge again"
        )
    for workload in task.workloads():
        if workload.name == subject.workload:
            return task, workload
    raise InputError(f"task {task.task.name} has no workload called {subject.workload!r}")


def _window(device: str, kept: Kept, baseline: str, first: int, count: int) -> Captured:
    """What replays these runs; captured when it is first asked for."""
    key = (baseline, first, count)
    if key not in kept.windows:
        sets = len(kept.ring)
        chosen = [kept.ring[(first + k) % sets] for k in range(count)]
        calls = [lambda inputs=inputs: kept.task.baseline(baseline, inputs, kept.axes) for inputs in chosen]
        kept.windows[key] = _STATES[device].machine.capture(calls)
    return kept.windows[key]


def _bounded(state: _State) -> None:
    while len(state.workloads) > 1 and sum(each.bytes() for each in state.workloads.values()) > state.keep:
        _drop(state, next(iter(state.workloads)))


def _drop(state: _State, key: tuple[str, str]) -> None:
    gone = state.workloads.pop(key)
    for export in gone.exports.values():
        state.machine.withdraw(export)
    gone.windows.clear()
    gone.ring.clear()
    gone.stale.clear()
    gone.inputs.clear()
    state.machine.settle()
