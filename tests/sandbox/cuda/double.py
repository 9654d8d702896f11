"""A GPU that is none, for the worker's own process: one arena of bytes, and kernels that do what their names say.

`copy` takes (x, y, n) and copies n bytes; `past`, `before` write 4 bytes beside y; `params` writes its whole param space to y; `shout`
prints n lines; `spin` never ends; `fault_<NAME>` ends in the error CUDA_ERROR_<NAME>; `die` kills its process; `family` starts a child
that would live on, then spins; `count` adds one to the module variable `calls`.

A file named by DOUBLE_SICK holds how many workers to come will fail their canary.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cuda import kernels
from sandbox.cuda.driver import DriverError, Geometry
from sandbox.cuda.wire import Attributes, Gpu, MapSpec

BASE = 1 << 40
GRANULE = 1 << 16
BUSY = "DOUBLE_SICK"


@dataclass
class Double:
    """A driver of one such GPU."""

    arena: bytearray = field(default_factory=lambda: bytearray(64 << 20))
    top: int = GRANULE
    names: list[str] = field(default_factory=lambda: [""])
    values: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    error: str = ""
    stuck: bool = False
    events: int = 0
    sick: bool = False

    def open(self, gpu: int) -> Gpu:
        if gpu > 1:
            raise DriverError("CUDA_ERROR_INVALID_DEVICE", "cuDeviceGet")
        file = os.environ.get(BUSY)
        if file:
            left = int(Path(file).read_text())
            self.sick = left > 0
            Path(file).write_text(str(max(left - 1, 0)))
        return Gpu(
            gpu, "Double", f"GPU-{gpu}", (9, 0), "13.0", 2, 1 << 30, 1 << 20, 232_448, 1, 1, 8, gpu == 1, 0.0
        )

    def memory(self) -> tuple[int, int]:
        return len(self.arena) - self.top, len(self.arena)

    def granularity(self) -> int:
        return GRANULE

    def map(self, size: int) -> int:
        return self.alloc(size)

    def unmap(self, address: int, size: int) -> None: ...

    def alloc(self, size: int) -> int:
        if self.top + size > len(self.arena):
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")
        address, self.top = BASE + self.top, self.top + -(-size // 256) * 256 + GRANULE
        return address

    def free(self, address: int) -> None: ...

    def fill(self, address: int, byte: int, size: int) -> None:
        self.write(address, bytes([byte]) * size)

    def copy(self, target: int, source: int, size: int) -> None:
        self.write(target, self.read(source, size))

    def write(self, target: int, data: bytes) -> None:
        self.arena[target - BASE : target - BASE + len(data)] = data

    def read(self, source: int, size: int) -> bytes:
        return bytes(self.arena[source - BASE : source - BASE + size])

    def load(self, cubin: bytes) -> int:
        if cubin == b"foreign":
            raise DriverError("CUDA_ERROR_NO_BINARY_FOR_GPU", "cuModuleLoadData")
        self.values = {"calls": (self.alloc(8), 8)}
        self.fill(self.values["calls"][0], 0, 8)
        return 1

    def unload(self, module: int) -> None: ...

    def function(self, module: int, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def variable(self, module: int, name: str) -> tuple[int, int] | None:
        return self.values.get(name)

    def attributes(self, function: int) -> Attributes:
        return Attributes(40, 1024, 0, 512 if self.names[function] == "greedy" else 1024)

    def allow(self, function: int, shared: int, cluster: bool) -> None: ...

    def resident_blocks(self, function: int, threads: int, shared: int) -> int:
        return 0 if self.names[function] == "nowhere" else 2

    def resident_clusters(self, function: int, geometry: Geometry) -> int:
        return 0

    def launch(self, function: int, geometry: Geometry, params: bytes, offsets: Sequence[int]) -> None:
        name = self.names[function]
        if name == "refused":
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "cuLaunchKernelEx")
        if name.startswith("fault_"):
            self.error = f"CUDA_ERROR_{name.removeprefix('fault_').upper()}"
        elif name == "spin":
            self.stuck = True
        elif name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name == "block":
            time.sleep(600)
        elif name == "family":
            subprocess.Popen(["sleep", "600"])
            self.stuck = True
        elif name == "canary":
            space, seed = struct.unpack_from("<QI", params)
            answers = [kernels.canary_answer(i, seed) + self.sick for i in range(kernels.CANARY_THREADS)]
            self.write(space, struct.pack(f"<{len(answers)}I", *(each & 0xFFFFFFFF for each in answers)))
        elif name in ("copy", "past", "before", "params", "shout", "count"):
            self._work(name, params)

    def _work(self, name: str, params: bytes) -> None:
        x, y, n = struct.unpack_from("<QQI", params)
        if name == "params":
            self.write(y, params)
            return
        self.copy(y, x, n)
        if name == "past":
            self.write(y + n, b"beef")
        elif name == "before":
            self.write(y - 4, b"beef")
        elif name == "shout":
            os.write(1, b"check: pass\n" * n)
        elif name == "count":
            address, _ = self.values["calls"]
            self.write(address, struct.pack("<Q", struct.unpack("<Q", self.read(address, 8))[0] + 1))

    def event(self) -> int:
        self.events += 1
        return self.events

    def record(self, event: int) -> None: ...

    def finished(self, event: int) -> bool:
        if self.error:
            raise DriverError(self.error, "cuEventQuery")
        return not self.stuck

    def elapsed(self, start: int, end: int) -> float:
        return 1.0

    def begin_graph(self) -> None: ...
    def end_graph(self) -> int:
        return 1

    def replay(self, graph: int) -> None: ...
    def drop_graph(self, graph: int) -> None: ...

    def export(self, address: int) -> bytes:
        return struct.pack("<Q", address)

    def attach(self, handle: bytes) -> int:
        return int(struct.unpack("<Q", handle)[0])

    def detach(self, address: int) -> None: ...

    def encode(self, spec: MapSpec, address: int) -> bytes:
        return struct.pack("<Q", address) + spec.dtype.encode().ljust(120, b".")

    def reset_l2(self) -> None: ...
    def settle(self) -> None: ...
