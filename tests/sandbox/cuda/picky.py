"""Doubles of the driver that refuse what others take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.cuda.driver import DriverError, Geometry
from sandbox.cuda.wire import MapSpec
from tests.sandbox.cuda.double import Double


@dataclass
class Picky(Double):
    """Encodes no tensor map; a function named `absent` is in no module; tells as free what is not in use, loaded modules included."""

    used: int = 0
    modules: int = 0

    def memory(self) -> tuple[int, int]:
        return len(self.arena) - self.used - self.modules * 4096, len(self.arena)

    def map(self, size: int) -> int:
        address = super().map(size)
        self.used += size
        return address

    def unmap(self, address: int, size: int) -> None:
        self.used -= size

    def load(self, cubin: bytes) -> int:
        self.modules += b".entry" not in cubin
        return super().load(cubin)

    def unload(self, module: int) -> None:
        self.modules -= 1

    def function(self, module: int, name: str) -> int:
        if name == "absent":
            raise DriverError("CUDA_ERROR_NOT_FOUND", "cuModuleGetFunction")
        return super().function(module, name)

    def encode(self, spec: MapSpec, address: int) -> bytes:
        raise DriverError("CUDA_ERROR_INVALID_VALUE", "cuTensorMapEncodeTiled")


@dataclass
class Ledger(Double):
    """For rings, in this process: frees are booked, launches run at once unless a graph gathers them.

    A launch of `count` adds one to the module variable `calls` and writes its value to the buffer that is its first parameter.
    """

    captures: bool = True
    """Whether launches can be gathered."""
    fails_at: int = 0
    """Number of the launch that the driver refuses; 0: none."""

    def __post_init__(self) -> None:
        self.live: set[int] = set()
        self.gathered: list[tuple[int, bytes]] | None = None
        self.graphs: dict[int, list[tuple[int, bytes]]] = {}
        self.launches = 0

    def alloc(self, size: int) -> int:
        address = super().alloc(size)
        self.live.add(address)
        return address

    def free(self, address: int) -> None:
        self.live.remove(address)

    def launch(self, function: int, geometry: Geometry, params: bytes, offsets: Sequence[int]) -> None:
        self.launches += 1
        if self.launches == self.fails_at:
            raise DriverError("CUDA_ERROR_UNKNOWN", "cuLaunchKernelEx")
        if self.gathered is not None and not self.captures:
            raise DriverError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cuLaunchKernelEx")
        if self.gathered is not None:
            self.gathered.append((function, params))
        else:
            self._one(function, params)

    def begin_graph(self) -> None:
        self.gathered = []

    def end_graph(self) -> int:
        gathered, self.gathered = self.gathered, None
        if not self.captures:
            raise DriverError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cuStreamEndCapture")
        assert gathered is not None
        self.graphs[len(self.graphs) + 1] = gathered
        return len(self.graphs)

    def replay(self, graph: int) -> None:
        for function, params in self.graphs[graph]:
            self._one(function, params)

    def drop_graph(self, graph: int) -> None:
        self.graphs[graph].clear()

    def _one(self, function: int, params: bytes) -> None:
        if self.names[function] != "count":
            return
        address, size = self.values["calls"]
        now = int.from_bytes(self.read(address, size), "little") + 1
        self.write(address, now.to_bytes(size, "little"))
        self.write(int.from_bytes(params[:8], "little"), now.to_bytes(8, "little"))
