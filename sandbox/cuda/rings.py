"""Buffer sets for timing, and laps over them.

A ring is a number of copies of all buffers of a plan, each at its own addresses: a run never meets what the one before left in the cache.
Its memory is plain, so that other processes of ours can copy from it.

A lap is one window of `count` runs on as many sets, captured in one CUDA graph (launched one by one where the driver captures none) and
timed by two events behind a kernel that lets time pass while the rest is queued. Outside the window: persisting lines of the L2 cache are
made ordinary, module variables get the values they had when the module was loaded (so that nothing a launch kept can help the next, in
this ring or a later one), and the outputs of the sets half a ring away are filled with poison.

Source: CUDA driver API, "Graph Management", "Event Management"; CUDA C++ programming guide, "L2 Cache Access Management".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox.cuda.driver import Driver, DriverError, Geometry, pointer, wait
from sandbox.cuda.launching import KERNEL_FAULTS, Module, restore
from sandbox.cuda.params import ParamSpace, furnish, param_spaces
from sandbox.cuda.wire import Lap, Lapped, Ring, Stop
from tasks.errors import InfraError

ALONE = Geometry((1, 1, 1), (1, 1, 1))
POISON = 0xFF
"""Byte in outputs before the first lap."""
SETTLE_SECONDS = 60.0
"""Time for fills and copies of our own."""


@dataclass
class _Made:
    """A ring."""

    wanted: Ring
    module: Module
    geometries: Sequence[Geometry]
    sets: list[dict[str, int]]
    """Of each set: buffer → address."""
    spaces: list[list[ParamSpace]]
    """Of each set, of each launch."""
    copies: list[dict[str, int]]
    """Of each set: tensor map → its copy."""
    graphs: dict[tuple[int, int], int | None] = field(default_factory=dict[tuple[int, int], "int | None"])
    """(first set, runs) → graph; None where the driver captures none."""
    stop: Stop | None = None
    """How the first runs went."""


@dataclass
class Rings:
    """The rings of one worker."""

    driver: Driver
    made: dict[int, _Made] = field(default_factory=dict[int, _Made])
    count: int = 0
    events: tuple[int, int] | None = None
    hold: int = 0

    def make(self, wanted: Ring, module: Module, geometries: Sequence[Geometry], hold: int) -> int:
        """Allocate and fill the sets, and run each once. hold: the kernel that lets time pass. Raises DriverError; nothing is held then."""
        driver = self.driver
        self.hold = hold
        if self.events is None:
            self.events = (driver.event(), driver.event())
        sets: list[dict[str, int]] = []
        copies: list[dict[str, int]] = [{} for _ in range(wanted.sets)]
        work = wanted.work
        try:
            for number in range(wanted.sets):
                sets.append({})
                for spec in work.buffers:
                    sets[-1][spec.name] = driver.alloc(spec.bytes)
                    if number and spec.source.data is None and spec.source.fill is None:
                        driver.copy(sets[-1][spec.name], sets[0][spec.name], spec.bytes)
                    else:
                        furnish(driver, spec, sets[-1][spec.name])
            spaces = [param_spaces(driver, work, each, mine) for each, mine in zip(sets, copies, strict=True)]
            ring = _Made(wanted, module, geometries, sets, spaces, copies)
            restore(driver, module)
            for number in range(wanted.sets):
                if ring.stop is None:
                    ring.stop = self._once(ring, number)
        except BaseException:
            with suppress(DriverError):
                self._free([*sets, *copies])
            raise
        self.count += 1
        self.made[self.count] = ring
        return self.count

    def lap(self, asked: Lap) -> Lapped:
        """Time one window. Raises DriverError."""
        ring = self._ring(asked.ring)
        if ring.stop is not None:
            return Lapped(0.0, ring.stop)
        driver, sets = self.driver, len(ring.sets)
        assert self.events is not None
        start, end = self.events
        key = (asked.first % sets, asked.count)
        if key not in ring.graphs:
            ring.graphs[key] = self._captured(ring, *key)
        graph = ring.graphs[key]
        driver.reset_l2()
        restore(driver, ring.module)
        for number in range(asked.count):
            self._poison(ring, (asked.first + sets // 2 + number) % sets, asked.poison)
        driver.launch(self.hold, ALONE, pointer(round(asked.blocker_us * 1e3)), (0,))
        driver.record(start)
        if graph is not None:
            driver.replay(graph)
        else:
            self._queue_all(ring, *key)
        driver.record(end)
        seconds = ring.wanted.launch_seconds * asked.count * len(ring.geometries)
        if not wait(driver, end, seconds):
            return Lapped(0.0, Stop("TIMEOUT", 0, seconds))
        return Lapped(driver.elapsed(start, end))

    def address(self, number: int, which: int, buffer: str) -> int:
        """Of a buffer of one set."""
        return self._ring(number).sets[which][buffer]

    def drop(self, number: int) -> None:
        """Free a ring; safe to call twice."""
        ring = self.made.pop(number, None)
        if ring is None:
            return
        for graph in ring.graphs.values():
            if graph is not None:
                self.driver.drop_graph(graph)
        self._free([*ring.sets, *ring.copies])

    def _ring(self, number: int) -> _Made:
        if number not in self.made:
            raise InfraError(f"the GPU worker has no ring {number}")
        return self.made[number]

    def _free(self, sets: Sequence[dict[str, int]]) -> None:
        for each in sets:
            for address in each.values():
                self.driver.free(address)

    def _captured(self, ring: _Made, first: int, count: int) -> int | None:
        """One graph of `count` runs; None when the driver does not capture them. Raises DriverError for a fault of a kernel before."""
        self.driver.begin_graph()
        failed: DriverError | None = None
        try:
            self._queue_all(ring, first, count)
        except DriverError as error:
            failed = error
        try:
            graph = self.driver.end_graph()  # in any case: else the stream stays in capture
        except DriverError as error:
            failed, graph = failed or error, None
        if failed is not None and failed.name in KERNEL_FAULTS:
            raise failed
        if failed is not None and graph is not None:
            self.driver.drop_graph(graph)
        return None if failed is not None else graph

    def _queue_all(self, ring: _Made, first: int, count: int) -> None:
        """`count` runs, each on the next set."""
        for number in range(count):
            self._queue(ring, (first + number) % len(ring.sets))

    def _queue(self, ring: _Made, number: int) -> None:
        """One run of the plan on one set."""
        launches = zip(ring.wanted.work.launches, ring.geometries, ring.spaces[number], strict=True)
        for launch, geometry, space in launches:
            self.driver.launch(ring.module.functions[launch.entry], geometry, space.data, space.offsets)

    def _once(self, ring: _Made, number: int) -> Stop | None:
        """Run one set untimed; how it stopped, or None."""
        assert self.events is not None
        try:
            self._queue(ring, number)
            self.driver.record(self.events[1])
            seconds = ring.wanted.launch_seconds * len(ring.geometries) + (0 if number else SETTLE_SECONDS)
            if not wait(self.driver, self.events[1], seconds):
                return Stop("TIMEOUT", 0, seconds)
            self._poison(ring, number, POISON)
        except DriverError as error:
            if error.name in KERNEL_FAULTS:
                return Stop(error.name, 0)
            raise
        return None

    def _poison(self, ring: _Made, number: int, byte: int) -> None:
        for spec in ring.wanted.work.buffers:
            address = ring.sets[number][spec.name]
            if spec.role == "output":
                self.driver.fill(address, byte, spec.bytes)
            elif spec.role == "scratch":
                self.driver.fill(address, spec.source.fill or 0, spec.bytes)
