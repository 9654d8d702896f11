"""What a GPU worker does: functions that a judge calls in the child process that owns one context on one GPU.

State lives in this module from call to call (`sandbox.keeper`). A kernel that faults or hangs comes back as a `Stop`; after one the
context is spent, the driver is not touched again, and the judge kills the process. A launch that no device would take raises
LaunchRefused before it is made; a driver that fails by itself raises InfraError, and the judge replaces the worker then too. A run that
is refused or fails gives back the memory it held.
"""

from __future__ import annotations

import importlib
import random
import struct
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sandbox.cuda import kernels, launching
from sandbox.cuda.driver import Driver, DriverError, Geometry, wait
from sandbox.cuda.harness import Harness
from sandbox.cuda.launching import KERNEL_FAULTS, Module, admit, broken, refused
from sandbox.cuda.memory import Memory, Place
from sandbox.cuda.params import ParamSpace, furnish, param_spaces
from sandbox.cuda.printed import Printed
from sandbox.cuda.rings import Rings
from sandbox.cuda.wire import Gpu, Lap, Lapped, Load, Loaded, Ran, Ring, Run, Stop
from tasks.errors import InfraError

T = TypeVar("T")
HARNESS_SECONDS = 20.0
"""Time for kernels of our own."""


@dataclass
class _Flight:
    """A run under way. number: of the launch that comes next, or that is waited for when `queued`."""

    asked: Run
    module: Module
    geometries: Sequence[Geometry]
    spaces: Sequence[ParamSpace]
    places: Mapping[str, Place]
    copies: Mapping[str, int]
    """Of tensor maps in device memory."""
    began: float
    number: int = 0
    queued: bool = False
    launched: float = 0.0


@dataclass
class _Service:
    """One GPU, one context."""

    gpu: Gpu
    driver: Driver
    printed: Printed
    memory: Memory
    rings: Rings
    harness: Harness
    event: int
    modules: dict[int, Module] = field(default_factory=dict[int, Module])
    allowed: set[tuple[int, int, bool]] = field(default_factory=set[tuple[int, int, bool]])
    flight: _Flight | None = None
    spent: bool = False
    """A kernel faulted or hung: the context is of no more use."""
    count: int = 0


_SERVICE: list[_Service] = []
"""The one service of this process, once started."""


def start(gpu: int, driver: str) -> Gpu:
    """Make the context. driver: `module:class` of a `Driver`. Raises InfraError."""
    began = time.monotonic()
    if _SERVICE:
        raise InfraError("the GPU worker is started already")
    module, _, name = driver.partition(":")
    made: Driver = getattr(importlib.import_module(module), name)()
    printed = Printed()
    try:
        found = made.open(gpu)
        event = made.event()
    except DriverError as error:
        raise InfraError(f"GPU {gpu} cannot be used: {error}") from None
    found = replace(found, start_seconds=time.monotonic() - began)
    _SERVICE.append(_Service(found, made, printed, Memory(made), Rings(made), Harness(made, found), event))
    return found


def load(wanted: Load) -> Loaded:
    """Load machine code. Raises LaunchRefused when the driver will not have it."""
    here = _here()
    try:
        module = launching.load(here.driver, wanted)
    except DriverError as error:
        raise refused(error, "the driver does not load the module") from None
    here.count += 1
    here.modules[here.count] = module
    return Loaded(here.count, module.attributes)


def unload(handle: int) -> None:
    """Forget a module; safe to call twice."""
    here = _here()
    module = here.modules.pop(handle, None)
    if module is not None and not here.spent:
        gone = set(module.functions.values())
        here.allowed = {each for each in here.allowed if each[0] not in gone}
        _sound(lambda: launching.unload(here.driver, module))


def run(asked: Run) -> Ran:
    """Run a plan once, with every guard. Raises LaunchRefused, InfraError."""
    here = _here()
    module = _module(here, asked.work.module)
    geometries = [admit(here.driver, here.gpu, module, each, here.allowed) for each in asked.work.launches]
    places = _sound(
        lambda: here.memory.take({each.name: each.bytes for each in asked.work.buffers}, asked.placement)
    )
    copies: dict[str, int] = {}
    with _held(here, places, copies):
        here.printed.cut()
        _sound(lambda: _furnish(here, asked, places))
        addresses = {name: place.address for name, place in places.items()}
        spaces = _sound(lambda: param_spaces(here.driver, asked.work, addresses, copies))
        here.flight = _Flight(asked, module, geometries, spaces, places, copies, time.monotonic())
        _sound(lambda: _prepare(here, asked))
        return _fly(here, here.flight, asked.launch_seconds)


def more(seconds: float) -> Ran:
    """Wait on for a run that timed out: it may have shared the GPU with others before. Raises LaunchRefused, InfraError."""
    here = _here()
    if here.flight is None:
        raise InfraError("the GPU worker has no run to wait for")
    with _held(here, here.flight.places, here.flight.copies):
        return _fly(here, here.flight, seconds)


def canary() -> float:
    """Prove that the GPU computes: milliseconds it took. Raises InfraError."""
    here = _here()
    began = time.monotonic()
    seed = random.SystemRandom().randrange(1 << 32)
    threads = kernels.CANARY_THREADS

    def sing() -> bytes:
        driver = here.driver
        space = driver.alloc(4 * threads)
        driver.fill(space, 0, 4 * threads)
        here.harness.canary(space, seed)
        driver.record(here.event)
        if not wait(driver, here.event, HARNESS_SECONDS):
            raise InfraError(
                f"GPU {here.gpu.index}: a canary launch did not end within {HARNESS_SECONDS:g} s"
            )
        data = driver.read(space, 4 * threads)
        driver.free(space)
        return data

    found = struct.unpack(f"<{threads}I", _sound(sing))
    wrong = sum(value != kernels.canary_answer(index, seed) for index, value in enumerate(found))
    if wrong:
        raise InfraError(
            f"GPU {here.gpu.index}: {wrong} of {threads} threads of a canary launch gave a wrong number"
        )
    return (time.monotonic() - began) * 1e3


def memory() -> tuple[int, int]:
    """Free and total bytes of the GPU."""
    return _sound(_here().driver.memory)


def ring(wanted: Ring) -> int:
    """Make buffer sets for timing, each run once. Raises LaunchRefused, InfraError; a fault there is told by the first lap."""
    here = _here()
    module = _module(here, wanted.work.module)
    geometries = [admit(here.driver, here.gpu, module, each, here.allowed) for each in wanted.work.launches]
    return _sound(lambda: here.rings.make(wanted, module, geometries, here.harness.function("hold")))


def lap(asked: Lap) -> Lapped:
    """Time one window."""
    here = _here()
    try:
        done = here.rings.lap(asked)
    except DriverError as error:
        if error.name not in KERNEL_FAULTS:
            raise broken(error) from None
        done = Lapped(0.0, Stop(error.name, 0))
    here.spent = done.stop is not None
    return done


def exported(number: int, which: int, buffer: str) -> bytes:
    """Handle of a buffer of one set of a ring, for another process on this GPU."""
    here = _here()
    return _sound(lambda: here.driver.export(here.rings.address(number, which, buffer)))


def unring(number: int) -> None:
    """Free a ring."""
    here = _here()
    if not here.spent:
        _sound(lambda: here.rings.drop(number))


@contextmanager
def _held(here: _Service, places: Mapping[str, Place], copies: Mapping[str, int]) -> Generator[None]:
    """Memory of a run: given back also when the run is refused."""
    try:
        yield
    except BaseException:
        with suppress(DriverError):
            _let_go(here, places, copies)
        raise


def _let_go(here: _Service, places: Mapping[str, Place], copies: Mapping[str, int]) -> None:
    """The run has ended, and its memory is free for others."""
    here.flight = None
    here.memory.give_back(places)
    for address in copies.values():
        here.driver.free(address)


def _furnish(here: _Service, asked: Run, places: Mapping[str, Place]) -> None:
    """Contents of all buffers, and red zones."""
    here.memory.stain(places, asked.poison)
    for spec in asked.work.buffers:
        furnish(here.driver, spec, places[spec.name].address)


def _prepare(here: _Service, asked: Run) -> None:
    """What comes before the first launch."""
    for _ in range(asked.dummies):
        here.harness.nothing()
    here.harness.stain(asked.poison)


def _fly(here: _Service, flight: _Flight, seconds: float) -> Ran:
    """Go on with a run until it ends, stops, or a launch takes longer than `seconds`; in that case it may be gone on with."""
    asked = flight.asked
    try:
        stop = _launches(here, flight, seconds)
    except DriverError as error:
        raise refused(error, "the launch is refused") from None
    spent = time.monotonic() - flight.began
    addresses = {name: place.address for name, place in flight.places.items()}
    if stop is not None:
        here.spent = stop.code != "TIMEOUT"
        text, dropped = here.printed.take(asked.stdout_bytes)
        return Ran({}, stop, stdout=text, stdout_dropped=dropped, addresses=addresses, seconds=spent)
    done = _sound(lambda: _collect(here, asked, flight.module, flight.places))
    _sound(lambda: _let_go(here, flight.places, flight.copies))
    return replace(done, addresses=addresses, seconds=spent)


def _launches(here: _Service, flight: _Flight, seconds: float) -> Stop | None:
    """All launches that are left, each waited for; how it stopped, or None. Raises DriverError for a launch that is refused."""
    driver, launches = here.driver, flight.asked.work.launches
    try:
        while flight.number < len(launches):
            number = flight.number
            if not flight.queued:
                space = flight.spaces[number]
                function = flight.module.functions[launches[number].entry]
                driver.launch(function, flight.geometries[number], space.data, space.offsets)
                driver.record(here.event)
                flight.queued, flight.launched = True, time.monotonic()
            if not wait(driver, here.event, seconds):
                return Stop("TIMEOUT", number, time.monotonic() - flight.launched)
            flight.number, flight.queued = number + 1, False
        driver.settle()
    except DriverError as error:
        if error.name in KERNEL_FAULTS:
            return Stop(error.name, min(flight.number, len(launches) - 1), time.monotonic() - flight.launched)
        raise
    return None


def _collect(here: _Service, asked: Run, module: Module, places: Mapping[str, Place]) -> Ran:
    driver = here.driver
    text, dropped = here.printed.take(asked.stdout_bytes)
    values: dict[str, bytes] = {}
    for name in asked.globals:
        found = driver.variable(module.handle, name)
        if found is not None:  # the assembler drops what nothing uses
            values[name] = driver.read(*found)
    contents = {
        each.name: driver.read(places[each.name].address, each.bytes)
        for each in asked.work.buffers
        if each.back
    }
    sent = {each.name: each.source.data for each in asked.work.buffers}
    return Ran(
        buffers={name: data for name, data in contents.items() if data != sent[name]},
        red_zones=here.memory.red_zones(places, asked.poison),
        globals=values,
        stdout=text,
        stdout_dropped=dropped,
    )


def _here() -> _Service:
    if not _SERVICE:
        raise InfraError("the GPU worker was not started")
    if _SERVICE[0].spent:
        raise InfraError("a kernel faulted or hung in this GPU worker: it must be replaced")
    return _SERVICE[0]


def _module(here: _Service, handle: int) -> Module:
    if handle not in here.modules:
        raise InfraError(f"the GPU worker has no module {handle}")
    return here.modules[handle]


def _sound(function: Callable[[], T]) -> T:
    """What driver calls of our own give; their errors are never a candidate's."""
    try:
        return function()
    except DriverError as error:
        raise broken(error) from None
