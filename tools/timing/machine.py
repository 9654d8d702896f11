"""What the referee needs of the machine under torch: sharing memory with the candidate's worker, replaying runs, timing them.

Two machines answer alike. `CudaMachine` is the real one: CUDA IPC for memory (CUDA driver API, "Memory Management": cuIpcGetMemHandle),
CUDA graphs for runs, the GPU's events for time. `HostMachine` does the same with files, plain calls and the host's clock, so that the
referee's own code can be tried in a child process without a GPU; its times say nothing.

Invariants
- Memory of the other process is mapped only while it is copied.
- Exports are copies of their own, whole multiples of 2 MiB: a mapping shows nothing else of this process.
- torch and the driver's bindings are imported when a machine is made, not with this module.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sandbox.cuda import kernels
from tasks.errors import CannotJudge, InfraError

if TYPE_CHECKING:
    import torch

    Outputs: TypeAlias = Mapping[str, torch.Tensor]

Call: TypeAlias = "Callable[[], Outputs]"

GRANULE = 2 << 20
HANDLE_BYTES = 64
"""CU_IPC_HANDLE_SIZE."""
LAZY_PEERS = 1
"""CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the one flag that cuIpcOpenMemHandle takes."""
GRAPH_US, CALL_US = 40.0, 25.0
"""Microseconds for which the blocking kernel holds the GPU while the host queues a graph, or each call that could not be captured."""

POISON = 0xFF
"""Byte in the outputs that a lap fills beforehand, as the candidate's worker does."""


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """Memory that another process may copy. handle: what it is told; memory: what keeps it alive here."""

    handle: bytes
    memory: object


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """Runs that can be replayed. held: keeps a graph's outputs apart; reason: why it is no graph, '' when it is one."""

    go: Callable[[], object]
    held: object
    calls: int
    reason: str = ""


class Machine(Protocol):
    """Where the referee's tensors live."""

    device: str
    """For torch."""
    uuid: str
    """Of the GPU, such as GPU-8c3f…; '' without one."""

    def room(self) -> int:
        """Free bytes."""
        ...

    def export(self, tensor: torch.Tensor) -> Export:
        """A copy of a contiguous tensor that another process may map."""
        ...

    def withdraw(self, export: Export) -> None:
        """Free an export."""
        ...

    def fetch(self, handle: bytes, into: torch.Tensor) -> None:
        """Fill a tensor of bytes from another process's memory."""
        ...

    def capture(self, calls: Sequence[Call]) -> Captured:
        """Make these calls replayable in their order, each with outputs of its own."""
        ...

    def time(self, captured: Captured, stale: Sequence[torch.Tensor]) -> float:
        """Replay and give the milliseconds it took. stale: bytes to fill before, so that the cache holds what it holds for a candidate."""
        ...

    def settle(self) -> None:
        """Wait until nothing runs any more, and give back what is not used."""
        ...


class CudaMachine:
    """A GPU, in torch's own (primary) context."""

    def __init__(self, gpu: int) -> None:
        import torch

        if not torch.cuda.is_available():
            raise CannotJudge(
                f"expected a torch that reaches GPU {gpu}; torch {torch.__version__} finds no CUDA: install a CUDA build of torch"
            )
        driver: Any = importlib.import_module("cuda.bindings.driver")
        self._torch, self._driver = torch, driver
        self.device = f"cuda:{gpu}"
        torch.cuda.set_device(gpu)
        torch.zeros(1, device=self.device)  # makes the primary context current on this thread
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._module = self._done(driver.cuModuleLoadData(kernels.PTX.encode() + b"\0"), "cuModuleLoadData")
        self._hold = self._done(driver.cuModuleGetFunction(self._module, b"hold"), "cuModuleGetFunction")
        number = self._done(
            driver.cuDeviceGetUuid(self._done(driver.cuDeviceGet(gpu), "cuDeviceGet")), "cuDeviceGetUuid"
        )
        raw = number.bytes.hex()
        self.uuid = "GPU-" + "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))

    def room(self) -> int:
        """Free bytes on the card, with what torch's allocator holds unused."""
        free, _ = self._torch.cuda.mem_get_info()
        return int(free) + self._torch.cuda.memory_reserved() - self._torch.cuda.memory_allocated()

    def export(self, tensor: torch.Tensor) -> Export:
        """A copy in memory of its own."""
        size = tensor.numel() * tensor.element_size()
        whole = max(GRANULE, -(-size // GRANULE) * GRANULE)
        address = self._done(self._driver.cuMemAlloc(whole), "cuMemAlloc")
        self._torch.cuda.synchronize()
        if size:
            self._done(self._driver.cuMemcpyDtoD(address, tensor.data_ptr(), size), "cuMemcpyDtoD")
        self._done(self._driver.cuCtxSynchronize(), "cuCtxSynchronize")
        handle = self._done(self._driver.cuIpcGetMemHandle(address), "cuIpcGetMemHandle")
        return Export(ctypes.string_at(int(handle.getPtr()), HANDLE_BYTES), address)

    def withdraw(self, export: Export) -> None:
        """Free the copy."""
        self._done(self._driver.cuMemFree(export.memory), "cuMemFree")

    def fetch(self, handle: bytes, into: torch.Tensor) -> None:
        """Map, copy, unmap."""
        if len(handle) != HANDLE_BYTES:
            raise InfraError(f"expected a CUDA IPC handle of {HANDLE_BYTES} bytes, found {len(handle)}")
        given = self._driver.CUipcMemHandle()
        ctypes.memmove(int(given.getPtr()), handle, HANDLE_BYTES)
        self._torch.cuda.synchronize()
        address = self._done(self._driver.cuIpcOpenMemHandle(given, LAZY_PEERS), "cuIpcOpenMemHandle")
        try:
            if into.numel():
                self._done(self._driver.cuMemcpyDtoD(into.data_ptr(), address, into.numel()), "cuMemcpyDtoD")
            self._done(self._driver.cuCtxSynchronize(), "cuCtxSynchronize")
        finally:
            self._done(self._driver.cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle")

    def capture(self, calls: Sequence[Call]) -> Captured:
        """A graph of the calls; the calls themselves, and why, where they cannot be captured."""
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        held: list[Outputs] = []
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            calls[0]()  # libraries set themselves up outside of the capture
            torch.cuda.synchronize()
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool)
                try:
                    held.extend(call() for call in calls)
                finally:
                    graph.capture_end()
        except Exception as error:  # whatever a baseline does that a graph cannot hold
            torch.cuda.synchronize()
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return Captured(lambda: [call() for call in calls], None, len(calls), reason[:300])
        return Captured(self._launcher(graph), (graph, held), len(calls))

    def time(self, captured: Captured, stale: Sequence[torch.Tensor]) -> float:
        """By two events behind the blocking kernel."""
        hold = GRAPH_US + (CALL_US * captured.calls if captured.reason else 0.0)
        self._driver.cuCtxResetPersistingL2Cache()  # not every card has such lines: its answer does not matter
        with self._torch.cuda.stream(self._stream):
            for each in stale:
                each.fill_(POISON)
            self._block(round(hold * 1e3))
            self._start.record()
            captured.go()
            self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end))

    def settle(self) -> None:
        """Synchronise; torch's unused memory goes back to the card."""
        self._torch.cuda.synchronize()
        self._torch.cuda.empty_cache()

    def _launcher(self, graph: Any) -> Callable[[], object]:
        """What launches a graph and nothing else: torch's own replay may set the state of random numbers first, inside the window."""
        raw = getattr(graph, "raw_cuda_graph_exec", None)
        if raw is None:  # torch before 2.9
            return graph.replay
        executable = self._driver.CUgraphExec(int(raw()))
        return lambda: self._done(
            self._driver.cuGraphLaunch(executable, self._stream.cuda_stream), "cuGraphLaunch"
        )

    def _block(self, nanoseconds: int) -> None:
        arguments = ((nanoseconds,), (ctypes.c_uint64,))
        launched = self._driver.cuLaunchKernel(
            self._hold, 1, 1, 1, 1, 1, 1, 0, self._stream.cuda_stream, arguments, 0
        )
        self._done(launched, "cuLaunchKernel")

    def _done(self, answer: tuple[Any, ...], what: str) -> Any:
        """The value a driver call gave. Raises InfraError with the driver's name of the error."""
        code, *values = answer
        if int(code) != 0:
            raise InfraError(
                f"the referee's {what} failed with {code.name}: the GPU is not well, or its memory is taken"
            )
        return values[0] if values else None


class HostMachine:
    """The CPU. clock: seconds."""

    device = "cpu"
    uuid = ""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def room(self) -> int:
        """Enough for what is tried without a GPU."""
        return 1 << 30

    def export(self, tensor: torch.Tensor) -> Export:
        """A file in memory; its path is the handle."""
        from tasks.dtypes import to_bytes

        number = os.memfd_create("export")
        with open(number, "wb", closefd=False) as file:
            file.write(to_bytes(tensor).tobytes())
        return Export(f"/proc/{os.getpid()}/fd/{number}".encode(), number)

    def withdraw(self, export: Export) -> None:
        """Close the file, which is then gone."""
        assert isinstance(export.memory, int)
        os.close(export.memory)

    def fetch(self, handle: bytes, into: torch.Tensor) -> None:
        """Read a file."""
        import torch

        data = bytearray(Path(handle.decode()).read_bytes())
        if into.numel():
            into.copy_(torch.frombuffer(data, dtype=torch.uint8)[: into.numel()])

    def capture(self, calls: Sequence[Call]) -> Captured:
        """The calls as they are."""
        return Captured(lambda: [call() for call in calls], None, len(calls))

    def time(self, captured: Captured, stale: Sequence[torch.Tensor]) -> float:
        """By the host's clock."""
        for each in stale:
            each.fill_(POISON)
        start = self._clock()
        captured.go()
        return (self._clock() - start) * 1e3

    def settle(self) -> None:
        """Nothing runs on its own here."""


def machine(device: str) -> Machine:
    """The machine of a torch device: `cpu`, or `cuda:0`. Raises InfraError when it cannot be reached."""
    return HostMachine() if device == "cpu" else CudaMachine(int(device.partition(":")[2] or 0))
