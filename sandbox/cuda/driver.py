"""The CUDA driver as a worker needs it: numbers and bytes in, numbers and bytes out, an error named at once.

`Driver` is the seam: `CudaDriver` speaks to libcuda through cuda-python, and the tests have a double that a kernel of theirs can crash.
Addresses, streams and handles are plain integers.

Source: CUDA driver API, the sections of the functions named.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sandbox.cuda.wire import Attributes, Dim3, Gpu, MapSpec
from tasks.errors import InfraError

PRINTF_BYTES: Final = 64 << 20
"""Device buffer of vprintf, emptied when a run has ended. A kernel that prints more than it holds was seen not to end (H200, CUDA 13)."""
HEAP_BYTES: Final = 1 << 20
"""Device heap of malloc; a heap outlives a launch, so it is kept small."""


class DriverError(Exception):
    """A driver call failed. name: of the CUresult, such as CUDA_ERROR_ILLEGAL_ADDRESS."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"{call}: {name}")
        self.name = name
        self.call = call


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched. shared: dynamic bytes."""

    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    shared: int = 0
    cooperative: bool = False


class Driver(Protocol):
    """One GPU, one context, one stream. Every method may raise DriverError."""

    def open(self, gpu: int) -> Gpu:
        """Make a context on GPU number `gpu` (`start_seconds` is left 0)."""
        ...

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...

    def granularity(self) -> int:
        """Bytes of which mapped memory is a multiple; 0 where there is no virtual memory management."""
        ...

    def map(self, size: int) -> int:
        """Memory of `size` bytes (a multiple of the granularity) with an unmapped granule before and behind it."""
        ...

    def unmap(self, address: int, size: int) -> None: ...

    def alloc(self, size: int) -> int:
        """Plain memory, which can be exported."""
        ...

    def free(self, address: int) -> None: ...

    def fill(self, address: int, byte: int, size: int) -> None:
        """Queue on the stream."""
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Device to device; queued on the stream."""
        ...

    def write(self, target: int, data: bytes) -> None:
        """Host to device, done on return."""
        ...

    def read(self, source: int, size: int) -> bytes:
        """Device to host, once the stream has come to an end."""
        ...

    def load(self, cubin: bytes) -> int: ...
    def unload(self, module: int) -> None: ...

    def function(self, module: int, name: str) -> int: ...

    def variable(self, module: int, name: str) -> tuple[int, int] | None:
        """Address and bytes of a module variable; None when there is none of that name."""
        ...

    def attributes(self, function: int) -> Attributes: ...

    def allow(self, function: int, shared: int, cluster: bool) -> None:
        """Let a function take so much dynamic shared memory, and clusters beyond the portable size."""
        ...

    def resident_blocks(self, function: int, threads: int, shared: int) -> int:
        """Blocks that one multiprocessor holds at once."""
        ...

    def resident_clusters(self, function: int, geometry: Geometry) -> int:
        """Clusters that the GPU holds at once."""
        ...

    def launch(self, function: int, geometry: Geometry, params: bytes, offsets: Sequence[int]) -> None:
        """Queue a kernel. params: the param space; offsets: where each parameter begins."""
        ...

    def event(self) -> int: ...
    def record(self, event: int) -> None: ...

    def finished(self, event: int) -> bool:
        """Whether all that was queued before the event has ended; a fault of a kernel comes out here."""
        ...

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds."""
        ...

    def begin_graph(self) -> None:
        """From here on work is gathered, not run."""
        ...

    def end_graph(self) -> int: ...
    def replay(self, graph: int) -> None: ...
    def drop_graph(self, graph: int) -> None: ...

    def export(self, address: int) -> bytes: ...

    def attach(self, handle: bytes) -> int:
        """Map memory of another process."""
        ...

    def detach(self, address: int) -> None: ...

    def encode(self, spec: MapSpec, address: int) -> bytes:
        """A tensor map, 128 bytes."""
        ...

    def reset_l2(self) -> None:
        """Make persisting lines ordinary again."""
        ...

    def settle(self) -> None:
        """Synchronise the context, once everything has ended: what kernels printed is then on stdout."""
        ...


MAP_TYPES: Final = {
    "u8": "UINT8", "s8": "UINT8", "u16": "UINT16", "s16": "UINT16", "u32": "UINT32", "s32": "INT32", "u64": "UINT64", "s64": "INT64",
    "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "tf32": "TFLOAT32", "f64": "FLOAT64",
}  # fmt: skip
"""Element type → end of its CUtensorMapDataType."""


@dataclass
class CudaDriver:
    """The real one. The bindings are imported when the context is opened."""

    _api: Any = None
    _device: Any = None
    _stream: Any = None
    _property: Any = None
    _mapped: dict[int, Any] = field(default_factory=dict[int, Any])
    """Address → handle of its memory."""
    _events: dict[int, Any] = field(default_factory=dict[int, Any])
    _graphs: dict[int, Any] = field(default_factory=dict[int, Any])
    _granularity: int = 0

    def open(self, gpu: int) -> Gpu:
        self._api = api = importlib.import_module("cuda.bindings.driver")
        self._call("cuInit", 0)
        self._device = self._call("cuDeviceGet", gpu)
        context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuCtxSetLimit", api.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE, PRINTF_BYTES)
        self._call("cuCtxSetLimit", api.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, HEAP_BYTES)
        self._stream = self._call("cuStreamCreate", int(api.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self._property = self._memory_property(gpu)
        if self._attribute("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"):
            least = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
            self._granularity = int(self._call("cuMemGetAllocationGranularity", self._property, least))
        raw = bytes(self._call("cuDeviceGetUuid", self._device).bytes).hex()
        version = int(self._call("cuDriverGetVersion"))
        return Gpu(
            index=gpu,
            name=bytes(self._call("cuDeviceGetName", 256, self._device)).split(b"\0")[0].decode(),
            uuid="GPU-" + "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])),
            capability=(
                self._attribute("COMPUTE_CAPABILITY_MAJOR"),
                self._attribute("COMPUTE_CAPABILITY_MINOR"),
            ),
            driver=f"{version // 1000}.{version % 1000 // 10}",
            multiprocessors=self._attribute("MULTIPROCESSOR_COUNT"),
            memory_bytes=self.memory()[1],
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            shared_optin=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            clock_khz=self._attribute("CLOCK_RATE"),
            memory_clock_khz=self._attribute("MEMORY_CLOCK_RATE"),
            bus_bits=self._attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            pageable=bool(self._attribute("PAGEABLE_MEMORY_ACCESS")),
            start_seconds=0.0,
        )

    def memory(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def granularity(self) -> int:
        return self._granularity

    def map(self, size: int) -> int:
        guard = self._granularity
        base = int(self._call("cuMemAddressReserve", size + 2 * guard, 0, 0, 0))
        try:
            handle = self._call("cuMemCreate", size, self._property, 0)
        except DriverError:
            self._call("cuMemAddressFree", base, size + 2 * guard)
            raise
        address = base + guard
        self._call("cuMemMap", address, size, 0, handle, 0)
        access = self._api.CUmemAccessDesc()
        access.location = self._property.location
        access.flags = self._api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call("cuMemSetAccess", address, size, [access], 1)
        self._mapped[address] = handle
        return address

    def unmap(self, address: int, size: int) -> None:
        guard = self._granularity
        self._call("cuMemUnmap", address, size)
        self._call("cuMemRelease", self._mapped.pop(address))
        self._call("cuMemAddressFree", address - guard, size + 2 * guard)

    def alloc(self, size: int) -> int:
        return int(self._call("cuMemAlloc", max(size, 1)))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def fill(self, address: int, byte: int, size: int) -> None:
        if size:
            self._call("cuMemsetD8Async", address, byte, size, self._stream)

    def copy(self, target: int, source: int, size: int) -> None:
        if size:
            self._call("cuMemcpyDtoDAsync", target, source, size, self._stream)

    def write(self, target: int, data: bytes) -> None:
        if data:
            self._call("cuMemcpyHtoDAsync", target, data, len(data), self._stream)
            self._call(
                "cuStreamSynchronize", self._stream
            )  # nothing but copies and fills of our own is queued before

    def read(self, source: int, size: int) -> bytes:
        if not size:
            return b""
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoHAsync", ctypes.addressof(data), source, size, self._stream)
        self._call("cuStreamSynchronize", self._stream)
        return data.raw

    def load(self, cubin: bytes) -> int:
        return int(self._call("cuModuleLoadData", cubin))

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        return int(self._call("cuModuleGetFunction", module, name.encode()))

    def variable(self, module: int, name: str) -> tuple[int, int] | None:
        try:
            address, size = self._call("cuModuleGetGlobal", module, name.encode())
        except DriverError as error:
            if error.name == "CUDA_ERROR_NOT_FOUND":
                return None
            raise
        return int(address), int(size)

    def attributes(self, function: int) -> Attributes:
        def of(name: str) -> int:
            which = getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(self._call("cuFuncGetAttribute", which, function))

        return Attributes(
            registers=of("NUM_REGS"),
            shared=of("SHARED_SIZE_BYTES"),
            local=of("LOCAL_SIZE_BYTES"),
            max_threads=of("MAX_THREADS_PER_BLOCK"),
        )

    def allow(self, function: int, shared: int, cluster: bool) -> None:
        known = self._api.CUfunction_attribute
        most = known.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, most, shared)
        if cluster:
            beyond = known.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._call("cuFuncSetAttribute", function, beyond, 1)

    def resident_blocks(self, function: int, threads: int, shared: int) -> int:
        return int(self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared))

    def resident_clusters(self, function: int, geometry: Geometry) -> int:
        return int(self._call("cuOccupancyMaxActiveClusters", function, self._config(geometry)))

    def launch(self, function: int, geometry: Geometry, params: bytes, offsets: Sequence[int]) -> None:
        space = ctypes.create_string_buffer(params, max(len(params), 1))
        base = ctypes.addressof(space)
        pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(base + each for each in offsets))
        given = ctypes.addressof(pointers) if offsets else 0
        self._call("cuLaunchKernelEx", self._config(geometry), function, given, 0)

    def event(self) -> int:
        made = self._call("cuEventCreate", 0)
        self._events[int(made)] = made
        return int(made)

    def record(self, event: int) -> None:
        self._call("cuEventRecord", self._events[event], self._stream)

    def finished(self, event: int) -> bool:
        (code,) = self._api.cuEventQuery(self._events[event])
        if code == self._api.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._done((code,), "cuEventQuery")
        return True

    def elapsed(self, start: int, end: int) -> float:
        return float(self._call("cuEventElapsedTime", self._events[start], self._events[end]))

    def begin_graph(self) -> None:
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)

    def end_graph(self) -> int:
        graph = self._call("cuStreamEndCapture", self._stream)
        made = self._call("cuGraphInstantiate", graph, 0)
        self._call("cuGraphDestroy", graph)
        self._graphs[int(made)] = made
        return int(made)

    def replay(self, graph: int) -> None:
        self._call("cuGraphLaunch", self._graphs[graph], self._stream)

    def drop_graph(self, graph: int) -> None:
        self._call("cuGraphExecDestroy", self._graphs.pop(graph))

    def export(self, address: int) -> bytes:
        handle = self._call("cuIpcGetMemHandle", address)
        return ctypes.string_at(int(handle.getPtr()), 64)

    def attach(self, handle: bytes) -> int:
        if len(handle) != 64:
            raise InfraError(f"expected a CUDA IPC handle of 64 bytes; found {len(handle)}")
        given = self._api.CUipcMemHandle()
        ctypes.memmove(int(given.getPtr()), handle, 64)
        return int(
            self._call("cuIpcOpenMemHandle", given, 1)
        )  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the one flag there is

    def detach(self, address: int) -> None:
        self._call("cuIpcCloseMemHandle", address)

    def encode(self, spec: MapSpec, address: int) -> bytes:
        api = self._api

        def named(enum: str, prefix: str, name: str) -> Any:
            return getattr(getattr(api, enum), f"CU_TENSOR_MAP_{prefix}_{name}")

        kind = named("CUtensorMapDataType", "DATA_TYPE", MAP_TYPES[spec.dtype])
        shape = (
            len(spec.dims),
            address,
            [api.cuuint64_t(each) for each in spec.dims],
            [api.cuuint64_t(each) for each in spec.strides],
        )
        steps = [api.cuuint32_t(each) for each in spec.element_strides]
        layout = (
            named("CUtensorMapInterleave", "INTERLEAVE", spec.interleave.upper()),
            named("CUtensorMapSwizzle", "SWIZZLE", spec.swizzle.upper()),
            named(
                "CUtensorMapL2promotion",
                "L2_PROMOTION",
                "NONE" if spec.l2_promotion == "none" else f"L2_{spec.l2_promotion}",
            ),
            named(
                "CUtensorMapFloatOOBfill",
                "FLOAT_OOB_FILL",
                "NONE" if spec.oob_fill == "none" else "NAN_REQUEST_ZERO_FMA",
            ),
        )
        if spec.lower:
            channels, pixels = spec.box
            corners = (list(spec.lower), list(spec.upper), channels, pixels)
            made = self._call("cuTensorMapEncodeIm2col", kind, *shape, *corners, steps, *layout)
        else:
            box = [api.cuuint32_t(each) for each in spec.box]
            made = self._call("cuTensorMapEncodeTiled", kind, *shape, box, steps, *layout)
        return ctypes.string_at(int(made.getPtr()), 128)

    def reset_l2(self) -> None:
        self._api.cuCtxResetPersistingL2Cache()  # not every GPU has such lines: its answer does not matter

    def settle(self) -> None:
        self._call("cuCtxSynchronize")

    def _config(self, geometry: Geometry) -> Any:
        api = self._api
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = geometry.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = geometry.block
        config.sharedMemBytes = geometry.shared
        config.hStream = self._stream
        attributes: list[Any] = []
        if geometry.cluster != (1, 1, 1):
            cluster = api.CUlaunchAttribute()
            cluster.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            shape = cluster.value.clusterDim
            shape.x, shape.y, shape.z = geometry.cluster
            attributes.append(cluster)
        if geometry.cooperative:
            together = api.CUlaunchAttribute()
            together.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            together.value.cooperative = 1
            attributes.append(together)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        return config

    def _memory_property(self, gpu: int) -> Any:
        made = self._api.CUmemAllocationProp()
        made.type = self._api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED  # pinned in device memory
        made.location.type = self._api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        made.location.id = gpu
        return made

    def _attribute(self, name: str) -> int:
        which = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", which, self._device))

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._done(getattr(self._api, name)(*arguments), name)

    def _done(self, answer: tuple[Any, ...], call: str) -> Any:
        code, *values = answer
        if code != self._api.CUresult.CUDA_SUCCESS:
            raise DriverError(code.name, call)
        return values[0] if len(values) == 1 else tuple(values)


def wait(driver: Driver, event: int, seconds: float) -> bool:
    """Wait for an event, at most so long; False when it has not come. A kernel's fault comes out as DriverError."""
    began = time.perf_counter()
    pause = 0.0
    while not driver.finished(event):
        spent = time.perf_counter() - began
        if spent > seconds:
            return False
        if spent > 0.002:  # short kernels are waited for without giving up the processor
            pause = min(pause + 20e-6, 200e-6)
            time.sleep(pause)
    return True


def pointer(address: int) -> bytes:
    """An address as a kernel parameter."""
    return struct.pack("<Q", address)
