"""Launches of the harness's own kernels (`kernels`) in a worker; the driver compiles them at first need."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from sandbox.cuda import kernels
from sandbox.cuda.driver import Driver, Geometry, pointer
from sandbox.cuda.wire import Gpu

NAMES = ("canary", "hold", "stain", "nothing")
WARP = Geometry((1, 1, 1), (32, 1, 1))


@dataclass
class Harness:
    """Every method may raise DriverError."""

    driver: Driver
    gpu: Gpu
    loaded: dict[str, int] = field(default_factory=dict[str, int])

    def function(self, name: str) -> int:
        """A kernel of our own."""
        if not self.loaded:
            module = self.driver.load(kernels.PTX.encode() + b"\0")
            loaded = {each: self.driver.function(module, each) for each in NAMES}
            self.driver.allow(loaded["stain"], self._shared, False)
            self.loaded = loaded
        return self.loaded[name]

    def nothing(self) -> None:
        """Queue a launch that does nothing."""
        self.driver.launch(self.function("nothing"), WARP, b"", ())

    def stain(self, byte: int) -> None:
        """Queue a fill of the shared memory of every multiprocessor: a kernel that reads what it did not write sees `byte`."""
        blocks = self.gpu.multiprocessors * kernels.STAIN_ROUNDS
        geometry = Geometry((blocks, 1, 1), (kernels.STAIN_THREADS, 1, 1), shared=self._shared)
        params = struct.pack("<II", self._shared, byte * 0x01010101)
        self.driver.launch(self.function("stain"), geometry, params, (0, 4))

    def canary(self, space: int, seed: int) -> None:
        """Queue the canary: 4 bytes of `space` for each of its threads."""
        geometry = Geometry((kernels.CANARY_THREADS // 256, 1, 1), (256, 1, 1))
        self.driver.launch(
            self.function("canary"), geometry, pointer(space) + struct.pack("<I", seed), (0, 8)
        )

    @property
    def _shared(self) -> int:
        return self.gpu.shared_optin // 16 * 16
