"""The two kinds of side: a candidate in the worker that owns the GPU, and a baseline in the referee's process.

Both keep a ring of buffer sets in their own process and time their own windows; the judge that calls them in turn is the token that
passes between them. Inputs go from the referee to a candidate's worker by CUDA IPC, once, when its ring is made.

Invariants
- A candidate that stops in a lap comes out as `Stopped`, whatever side it was on; a worker that outlasts its time counts as hung.
- One referee a device and process: `referee_on` keeps it, and ends it with the process.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sandbox.cuda import service, wire
from sandbox.keeper import Keeper, Late
from tasks.errors import CandidateError, InputError, WorkerLost
from tools.timing import referee as refereeing
from tools.timing.referee import Subject
from tools.timing.schedule import Stopped

T = TypeVar("T")

CALL_SECONDS = 60.0
"""Time of a call of the referee on what is prepared."""
PREPARE_SECONDS = 600.0
"""Time to make a large workload's inputs and reference, with the start of torch."""
LAUNCH_SECONDS = 5.0
"""Wall time after which a timed launch counts as hung: it ran in `check` before."""
RING_SECONDS = 120.0
"""Time to make a ring and run each of its sets once."""
MARGIN_SECONDS = 20.0
"""What a call of the worker may take besides its launches."""
BLOCKER_US = 40.0
"""Microseconds for which the GPU is held while a lap is queued."""


class Caller(Protocol):
    """Runs functions in the worker that owns a GPU (`sandbox.cuda.slot.Slot`)."""

    def call(self, function: Callable[..., T], *args: object, seconds: float) -> T: ...


class Referee:
    """This process's referee on one torch device; calls may come from any thread, one at a time."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._keeper = Keeper()
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        """Of the child, while it lives."""
        return self._keeper.pid

    def call(self, function: Callable[..., T], *args: object, seconds: float = CALL_SECONDS) -> T:
        """Run a function of `tools.timing.referee` in the child, on this device."""
        with self._lock:
            return self._keeper.call(function, self.device, *args, seconds=seconds)

    def info(self) -> refereeing.Info:
        """The child's machine; starts it. Raises CannotJudge where torch does not reach the device."""
        return self.call(refereeing.start, seconds=PREPARE_SECONDS)

    def prepare(self, subject: Subject) -> refereeing.Prepared:
        """Have a workload's inputs and reference; the first time this takes seconds."""
        return self.call(refereeing.prepare, subject, seconds=PREPARE_SECONDS)

    def close(self) -> None:
        """End the child."""
        self._keeper.kill()


_REFEREES: dict[str, Referee] = {}
_LOCK = threading.Lock()


def referee_on(device: str) -> Referee:
    """This process's referee on a torch device, such as `cuda:0`."""
    with _LOCK:
        if device not in _REFEREES:
            _REFEREES[device] = Referee(device)
            atexit.register(_REFEREES[device].close)
        return _REFEREES[device]


@dataclass
class BaselineSide:
    """A baseline of a task, run by the referee."""

    referee: Referee
    subject: Subject
    baseline: str
    note: str = ""
    """Why its runs are not one graph, or ''."""

    def prepare(self, sets: int) -> None:
        """Copies of the inputs, kept for the next candidate."""
        self.referee.call(refereeing.ring, self.subject, sets)

    def capture(self, window: int) -> None:
        """Graphs of all windows, kept for the next candidate."""
        self.note = self.referee.call(refereeing.capture, self.subject, self.baseline, window)

    def lap(self, first: int, count: int) -> float:
        """One window."""
        return self.referee.call(refereeing.lap, self.subject, self.baseline, first, count)


@dataclass
class KernelSide:
    """A candidate's plan in a worker. work: as bound for one workload, its inputs from the referee's memory."""

    worker: Caller
    work: wire.Work
    ring: int | None = None
    sets: int = 0

    def prepare(self, sets: int) -> None:
        """Make the ring: memory of its own for every buffer of every set, inputs copied from the referee."""
        if self.ring is not None and self.sets == sets:
            return
        self.close()
        wanted = wire.Ring(self.work, sets, LAUNCH_SECONDS)
        try:
            self.ring, self.sets = self.worker.call(service.ring, wanted, seconds=RING_SECONDS), sets
        except Late:
            raise Stopped(wire.Stop("TIMEOUT", 0, RING_SECONDS)) from None

    def capture(self, window: int) -> None:
        """The worker captures a window when it is first run."""

    def lap(self, first: int, count: int) -> float:
        """One window. Raises Stopped."""
        assert self.ring is not None, "a lap was asked for before its ring was made"
        asked = wire.Lap(self.ring, first, count, BLOCKER_US)
        limit = LAUNCH_SECONDS * count * len(self.work.launches) + MARGIN_SECONDS
        try:
            lapped = self.worker.call(service.lap, asked, seconds=limit)
        except WorkerLost as lost:
            self.ring = None  # it went with its worker
            if isinstance(lost, Late):
                raise Stopped(wire.Stop("TIMEOUT", 0, limit)) from None
            raise
        if lapped.stop is not None:
            self.ring = None
            raise Stopped(lapped.stop)
        return lapped.ms

    def exported(self, which: int, names: Sequence[str]) -> Mapping[str, bytes]:
        """Handles of these buffers of one set, for the referee to copy from."""
        assert self.ring is not None
        ring = self.ring
        return {
            name: self.worker.call(service.exported, ring, which, name, seconds=CALL_SECONDS)
            for name in names
        }

    def close(self) -> None:
        """Free the ring; safe to call twice."""
        if self.ring is not None:
            ring, self.ring = self.ring, None
            self.worker.call(service.unring, ring, seconds=CALL_SECONDS)


class RivalFailed(InputError):
    """The kernel that stands for the baseline cannot be timed: it says nothing of the candidate."""


@contextmanager
def blamed() -> Generator[None]:
    """What goes wrong in here is the rival's."""
    try:
        yield
    except (Stopped, CandidateError) as error:
        raise RivalFailed(
            f"the kernel to time against does not run well: {error}; use one that passes check"
        ) from error


@dataclass(frozen=True, slots=True)
class RivalSide:
    """A candidate's side that stands for the baseline: its stop is not the candidate's."""

    side: KernelSide

    def prepare(self, sets: int) -> None:
        with blamed():
            self.side.prepare(sets)

    def capture(self, window: int) -> None:
        self.side.capture(window)

    def lap(self, first: int, count: int) -> float:
        with blamed():
            return self.side.lap(first, count)
