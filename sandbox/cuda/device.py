"""A GPU as a Device: binds a plan, has the worker run it, and tells what happened.

A session's module stays loaded between runs and keeps its variables, as on the emulator. After a fault or hang the worker is replaced;
the session then loads its module again at the next run.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from sandbox.cuda import service
from sandbox.cuda.bound import to_work
from sandbox.cuda.faults import fault_of, trespass
from sandbox.cuda.locks import GpuLock, state_folder
from sandbox.cuda.slot import Slot
from sandbox.cuda.wire import BufferSpec, Gpu, Load, Ran, Run, Source, Stop
from sandbox.device import Buffer, Bytes, Counts, Fault, Limits, Notice, Outcome, Program, Traits
from sandbox.keeper import Keeper, Late
from tasks.errors import InfraError, InputError

DRIVER = "sandbox.cuda.driver:CudaDriver"
CALL_SECONDS = 30.0
"""What a call of the worker may take besides its launches: copies of large buffers."""
ALONE = 0.5
"""How much longer a launch that timed out is waited for with the GPU to itself, as a part of its time."""
MOST_GPUS = 64


class CudaDevice:
    """GPUs of this machine, by their numbers. driver, state: for tests."""

    def __init__(
        self, gpus: Sequence[int] = (0,), *, driver: str = DRIVER, state: Path | None = None
    ) -> None:
        self._numbers = tuple(gpus) or (0,)
        self._driver, self._state = driver, state_folder(state)
        self._slots: dict[int, Slot] = {}
        self._locks: dict[int, GpuLock] = {}
        self._number = self._numbers[0]
        atexit.register(self.close)

    @property
    def name(self) -> str:
        return "cuda"

    @property
    def traits(self) -> Traits:
        return Traits(masks=False, orders=False, counts=False, timed=True)

    @property
    def slot(self) -> Slot:
        """The worker in use; started when it is first asked for."""
        if self._number not in self._slots:
            self._slots[self._number] = Slot(self._number, self._driver, self._state)
        return self._slots[self._number]

    @contextmanager
    def shared(self) -> Generator[None]:
        """Use the GPU beside others."""
        with self._lock.shared():
            yield

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Have the GPU alone."""
        with self._lock.exclusive():
            yield

    def load(self, program: Program) -> CudaSession:
        """Load a module on a GPU that is free, else the one in use. Raises LaunchRefused, InfraError."""
        if len(self._numbers) > 1:
            self._choose()
        session = CudaSession(self, self.slot, program)
        session.load()
        return session

    def fresh(self) -> None:
        """Another worker, with other addresses."""
        self.slot.fresh()

    def beside(self) -> CudaDevice:
        """Another worker on the GPU in use, for a second candidate: nothing of the first is in its reach."""
        return CudaDevice((self._number,), driver=self._driver, state=self._state)

    def close(self) -> None:
        """End all workers."""
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        self._locks.clear()

    @property
    def _lock(self) -> GpuLock:
        if self._number not in self._locks:
            self._locks[self._number] = GpuLock(self._state, self.slot.gpu.uuid)
        return self._locks[self._number]

    def _choose(self) -> None:
        """The first GPU that nobody times on; one that is quarantined is passed over."""
        lasting: InfraError | None = None
        usable: list[int] = []
        for number in self._numbers:
            self._number = number
            try:
                self.slot.ready()
            except InfraError as error:
                lasting = error
                continue
            usable.append(number)
            if self._lock.free():
                return
        if not usable:
            assert lasting is not None
            raise lasting
        self._number = usable[0]


class CudaSession:
    """A loaded module on one GPU."""

    def __init__(self, device: CudaDevice, slot: Slot, program: Program) -> None:
        if program.cubin is None:
            raise InfraError("a program for a GPU needs machine code; found none: assemble it first")
        self._device, self._slot, self.program = device, slot, program
        self._handle = 0
        self._generation = 0

    def load(self) -> None:
        """Load the module unless this worker has it. Raises LaunchRefused, InfraError."""
        self._slot.ready()
        if self._generation == self._slot.generation:
            return
        entries = tuple(dict.fromkeys(each.entry for each in self.program.plan.launches))
        assert self.program.cubin is not None
        with self._device.shared():
            wanted = Load(self.program.cubin, entries)
            self._handle = self._slot.call(service.load, wanted, seconds=CALL_SECONDS).handle
        self._generation = self._slot.generation

    def close(self) -> None:
        """Unload the module, unless its worker is gone."""
        if self._generation == self._slot.generation and self._slot.pid is not None:
            with suppress(InfraError):
                self._slot.call(service.unload, self._handle, seconds=CALL_SECONDS)
        self._generation = 0

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        """Run every launch of the plan, in order. Raises LaunchRefused, PlanError, InfraError."""
        self.load()
        specs = {name: spec(buffer) for name, buffer in buffers.items()}
        work = to_work(self.program, self._handle, axes, specs, poison=limits.poison)
        asked = Run(
            work=work,
            launch_seconds=limits.launch_seconds,
            placement=limits.placement.value,
            dummies=limits.dummies,
            poison=limits.poison,
            globals=limits.variables,
            stdout_bytes=limits.stdout_bytes,
        )
        total = limits.launch_seconds * len(work.launches) + CALL_SECONDS
        with self._device.shared():
            ran = self._within(total, service.run, asked)
        if ran.stop is not None and ran.stop.code == "TIMEOUT" and self._slot.pid is not None:
            # Others may have had the GPU meanwhile: a hang is what does not end with the GPU to itself.
            with self._device.exclusive():
                seconds = limits.launch_seconds * ALONE
                ran = self._within(seconds * len(work.launches) + CALL_SECONDS, service.more, seconds)
        if ran.stop is not None:
            self._slot.end(ran.stop.code)
        return self._outcome(buffers, work.buffers, ran)

    def _within(self, seconds: float, function: Callable[..., Ran], argument: Run | float) -> Ran:
        """A call that runs the candidate; a worker that cannot tell any more counts as a hang."""
        try:
            return self._slot.call(function, argument, seconds=seconds)
        except Late:
            return Ran({}, Stop("TIMEOUT", 0, seconds))

    def _outcome(self, buffers: Mapping[str, Buffer], held: Sequence[BufferSpec], ran: Ran) -> Outcome:
        fault: Fault | None = None
        if ran.stop is not None:
            fault = fault_of(ran.stop, self.program)
        elif ran.red_zones:
            fault = trespass(ran.red_zones, {each.name: each.bytes for each in held}, self.program)
        contents: dict[str, Bytes] = {
            name: np.frombuffer(ran.buffers[name], np.uint8) if name in ran.buffers else buffer.data
            for name, buffer in buffers.items()
        }
        notices: tuple[Notice, ...] = ()
        if self._slot.gpu.pageable:
            text = "this GPU reaches ordinary host memory: a kernel could read what is not its own"
            notices = (Notice(kind="host_memory", message=text),)
        return Outcome(
            buffers=contents,
            fault=fault,
            counts=Counts(),
            notices=notices,
            stdout=ran.stdout,
            stdout_dropped=ran.stdout_dropped,
            variables={name: np.frombuffer(data, np.uint8) for name, data in ran.globals.items()},
            seconds=ran.seconds,
        )


def spec(buffer: Buffer) -> BufferSpec:
    """A buffer as the worker is sent it, its contents to come back."""
    alike = buffer.data.size > 0 and bool((buffer.data == buffer.data[0]).all())
    source = Source(fill=int(buffer.data[0])) if alike else Source(data=buffer.data.tobytes())
    role = "output" if buffer.role == "output" else "input"
    return BufferSpec(buffer.name, buffer.data.nbytes, source, role, True, buffer.dtype, buffer.shape)


@lru_cache(maxsize=1)
def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine, asked in a child; () where there is no driver. Never raises."""
    found: list[Gpu] = []
    for number in range(MOST_GPUS):
        keeper = Keeper()
        try:
            found.append(keeper.call(service.start, number, DRIVER, seconds=CALL_SECONDS))
        except Exception:  # no driver, no such GPU, or one that cannot be used
            break
        finally:
            keeper.kill()
    return tuple(found)


def suiting(arch: str) -> tuple[int, ...]:
    """Numbers of the GPUs that run machine code for an architecture such as sm_90a."""
    digits = "".join(each for each in arch.removeprefix("sm_") if each.isdigit())
    if not digits:
        raise InputError(f"expected an architecture such as sm_90a; found {arch!r}")
    number, exact = int(digits), arch[-1].isalpha()
    wanted = (number // 10, number % 10)
    return tuple(
        gpu.index
        for gpu in gpus()
        if gpu.capability == wanted
        or (not exact and gpu.capability[0] == wanted[0] and gpu.capability >= wanted)
    )
