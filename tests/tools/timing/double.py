"""A GPU that is none: the driver's double for timing tests. It computes `2 x + 1` with NumPy, in a virtual time that is exact.

What it loads is no machine code but words: `right`, `wrong`, `fault`, `hang`, `scribble` (changes its input), each with the microseconds a
launch takes, such as `right 500`. `fault` and `hang` do so once a module has been launched `LATER` times. Memory goes to other processes
as files in memory, the way the referee's machine without a GPU shares it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sandbox.cuda import kernels
from sandbox.cuda.driver import DriverError, Geometry
from sandbox.cuda.wire import Attributes, Gpu, MapSpec

LATER = 25


@dataclass
class _Function:
    word: str
    us: float
    launches: int = 0


@dataclass
class Double:
    """Memory is byte arrays by address; the stream runs at once; a graph is what was gathered."""

    memories: dict[int, bytearray] = field(default_factory=dict[int, bytearray])
    functions: dict[int, _Function] = field(default_factory=dict[int, _Function])
    events: dict[int, float] = field(default_factory=dict[int, float])
    graphs: dict[int, list[Callable[[], None]]] = field(default_factory=dict[int, "list[Callable[[], None]]"])
    gathered: list[Callable[[], None]] | None = None
    files: list[int] = field(default_factory=list[int])
    us: float = 0.0
    stuck: bool = False
    fault: str = ""
    number: int = 0
    """Of the last handle."""
    next: int = 1 << 20
    """Address of the next memory."""

    def open(self, gpu: int) -> Gpu:
        return Gpu(
            gpu, "Double", "GPU-double", (9, 0), "13.0", 4, 1 << 30, 1 << 10, 232_448, 1, 0, 0, False, 0.0
        )

    def memory(self) -> tuple[int, int]:
        return (1 << 28) - sum(map(len, self.memories.values())), 1 << 30

    def granularity(self) -> int:
        return 0

    def map(self, size: int) -> int:
        raise NotImplementedError

    def unmap(self, address: int, size: int) -> None:
        raise NotImplementedError

    def alloc(self, size: int) -> int:
        address, self.next = self.next, self.next + ((size >> 20) + 1 << 20)
        self.memories[address] = bytearray(max(size, 1))
        return address

    def free(self, address: int) -> None:
        del self.memories[address]

    def fill(self, address: int, byte: int, size: int) -> None:
        self._at(address)[:size] = bytes([byte]) * size

    def copy(self, target: int, source: int, size: int) -> None:
        self._at(target)[:size] = self._at(source)[:size]

    def write(self, target: int, data: bytes) -> None:
        self._at(target)[: len(data)] = data

    def read(self, source: int, size: int) -> bytes:
        return bytes(self._at(source)[:size])

    def load(self, cubin: bytes) -> int:
        if b".entry" in cubin:  # the harness's own kernels
            return 0
        word, us = cubin.decode().split()
        return self._new(_Function(word, float(us)))

    def unload(self, module: int) -> None:
        del self.functions[module]

    def function(self, module: int, name: str) -> int:
        return module or self._new(_Function(name, 0.0))

    def variable(self, module: int, name: str) -> tuple[int, int] | None:
        return None

    def attributes(self, function: int) -> Attributes:
        return Attributes(32, 0, 0, 1024)

    def allow(self, function: int, shared: int, cluster: bool) -> None: ...

    def resident_blocks(self, function: int, threads: int, shared: int) -> int:
        return 2

    def resident_clusters(self, function: int, geometry: Geometry) -> int:
        return 2

    def launch(self, function: int, geometry: Geometry, params: bytes, offsets: Sequence[int]) -> None:
        self._queue(lambda: self._run(self.functions[function], params, offsets))

    def event(self) -> int:
        self.number += 1
        return self.number

    def record(self, event: int) -> None:
        self.events[event] = self.us

    def finished(self, event: int) -> bool:
        if self.fault:
            raise DriverError(self.fault, "cuEventQuery")
        return not self.stuck

    def elapsed(self, start: int, end: int) -> float:
        return (self.events[end] - self.events[start]) / 1e3

    def begin_graph(self) -> None:
        self.gathered = []

    def end_graph(self) -> int:
        assert self.gathered is not None
        self.number += 1
        self.graphs[self.number], self.gathered = self.gathered, None
        return self.number

    def replay(self, graph: int) -> None:
        for each in self.graphs[graph]:
            each()

    def drop_graph(self, graph: int) -> None:
        del self.graphs[graph]

    def export(self, address: int) -> bytes:
        file = os.memfd_create("double")
        os.write(file, self._at(address))
        self.files.append(file)
        return f"/proc/{os.getpid()}/fd/{file}".encode()

    def attach(self, handle: bytes) -> int:
        with open(handle.decode(), "rb") as file:
            data = file.read()
        address = self.alloc(len(data))
        self.write(address, data)
        return address

    def detach(self, address: int) -> None:
        self.free(address)

    def encode(self, spec: MapSpec, address: int) -> bytes:
        return bytes(128)

    def reset_l2(self) -> None: ...

    def settle(self) -> None: ...

    def _new(self, function: _Function) -> int:
        self.number += 1
        self.functions[self.number] = function
        return self.number

    def _at(self, address: int) -> bytearray:
        return self.memories[address]

    def _queue(self, work: Callable[[], None]) -> None:
        if self.gathered is None:
            work()
        else:
            self.gathered.append(work)

    def _run(self, function: _Function, params: bytes, offsets: Sequence[int]) -> None:
        self.us += function.us
        function.launches += 1
        if function.word == "hold":
            self.us += struct.unpack_from("<Q", params)[0] / 1e3
            return
        if function.word == "canary":
            space, seed = struct.unpack_from("<QI", params)
            threads = range(kernels.CANARY_THREADS)
            self.write(
                space, struct.pack(f"<{len(threads)}I", *(kernels.canary_answer(i, seed) for i in threads))
            )
            return
        if function.word in ("fault", "hang") and function.launches > LATER:
            self.fault = "CUDA_ERROR_ILLEGAL_ADDRESS" if function.word == "fault" else ""
            self.stuck = function.word == "hang"
            return
        x, y = (self._at(struct.unpack_from("<Q", params, each)[0]) for each in offsets[:2])
        size = len(x) // 4
        values = np.frombuffer(x, np.float32, size) * np.float32(2) + np.float32(1)
        if function.word == "wrong":
            values[size // 2] += 1
        y[: 4 * size] = values.tobytes()
        if function.word == "scribble":
            x[0] = (x[0] + 1) % 256  # never back where it was after the few runs of a test
