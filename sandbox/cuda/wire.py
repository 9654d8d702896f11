"""What crosses the pipe between a judge and the worker that owns a GPU: plain dataclasses, nothing heavy.

The judge has read the plan and knows every number (`sandbox.ptx.binding`); the worker reads neither PTX nor plans. Contents of buffers
travel as bytes; large inputs of timings travel as CUDA IPC handles (`Source.handle`) between processes on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Dim3: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver describes it."""

    index: int
    name: str
    uuid: str
    """Such as GPU-8c3f…; names locks and ledger entries."""
    capability: tuple[int, int]
    driver: str
    """CUDA version that the driver offers, such as 13.0."""
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    shared_optin: int
    """Bytes of shared memory that one block may take."""
    clock_khz: int
    """Peak clock of the multiprocessors."""
    memory_clock_khz: int
    bus_bits: int
    pageable: bool
    """Whether kernels can reach ordinary host memory: then host memory is in a candidate's reach."""
    start_seconds: float
    """From the first import to a context that is ready."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load machine code. entries: those that the plan launches."""

    cubin: bytes
    entries: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """Writable module-scope variables that must have their first values again before every timed launch."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What cuFuncGetAttribute says of one entry."""

    registers: int
    shared: int
    """Static bytes."""
    local: int
    """Bytes a thread."""
    max_threads: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded module."""

    handle: int
    entries: Mapping[str, Attributes]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a buffer's contents come from: exactly one of the three."""

    data: bytes | None = None
    fill: int | None = None
    """A byte all over."""
    handle: bytes | None = None
    """CUDA IPC handle of memory on the same GPU in another process; mapped only while it is copied."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer in global memory."""

    name: str
    bytes: int
    source: Source
    role: Literal["input", "output", "scratch"]
    back: bool = True
    """Whether its contents come back after the run."""
    dtype: str = "u8"
    """Of its elements, for tensor maps that do not say their own."""
    shape: tuple[int, ...] = ()
    """Outermost first; empty: as many elements as there are bytes."""


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A tensor map, every number known; dimensions innermost first, as in `sandbox.ptx.maps.BoundTensorMap`."""

    name: str
    buffer: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    interleave: str
    l2_promotion: str
    oob_fill: str
    lower: tuple[int, ...] = ()
    """Im2col corners; empty for a tiled map, and `box` then holds (channels, pixels)."""
    upper: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Param:
    """One kernel parameter at its place in the param space."""

    offset: int
    size: int
    kind: Literal["bytes", "pointer", "map", "map_pointer"]
    value: bytes = b""
    """For kind bytes: what to put there."""
    name: str = ""
    """For the others: of the buffer or tensor map."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch, every number known."""

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared: int
    """Dynamic bytes."""
    params: tuple[Param, ...]
    param_bytes: int
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """All launches of a plan and what they work on."""

    module: int
    launches: tuple[LaunchSpec, ...]
    buffers: tuple[BufferSpec, ...]
    maps: tuple[MapSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Run a plan once, with every guard."""

    work: Work
    launch_seconds: float
    """Wall time after which one launch counts as hung."""
    placement: Literal["any", "keep", "move"] = "any"
    """keep: every buffer where the last run of this worker had one of its name and size; move: elsewhere."""
    dummies: int = 0
    """Launches of our own before the first: shifts what counts launches."""
    poison: int = 0xA5
    """Byte for shared memory of every multiprocessor and for red zones before the run; scratch says its own fill."""
    globals: tuple[str, ...] = ()
    """Module variables whose contents come back."""
    stdout_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class RedZone:
    """Bytes outside a buffer that changed. offset: of the first, from the start of the buffer (negative: before it)."""

    buffer: str
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Stop:
    """How a run ended when not well; the context is gone, and the worker must be killed.

    code: the driver's name of the error, such as CUDA_ERROR_ILLEGAL_ADDRESS; `TIMEOUT` for a hang.
    """

    code: str
    launch: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left behind."""

    buffers: Mapping[str, bytes]
    """Contents afterwards; a buffer that holds the very bytes it was sent is left out."""
    stop: Stop | None = None
    red_zones: tuple[RedZone, ...] = ()
    globals: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdout: bytes = b""
    stdout_dropped: int = 0
    addresses: Mapping[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    """Wall seconds of the launches."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Make buffer sets for timing: `sets` copies of all buffers of `work`, each at its own addresses."""

    work: Work
    sets: int
    launch_seconds: float


@dataclass(frozen=True, slots=True)
class Lap:
    """Time `count` runs of the plan on the sets first, first + 1, … (modulo the ring), in one window behind a blocking kernel.

    Outside the window: module variables get their first values, persisting L2 lines are reset, and the outputs of the set half a ring
    away are filled with `poison`.
    """

    ring: int
    first: int
    count: int
    blocker_us: float
    poison: int = 0xFF


@dataclass(frozen=True, slots=True)
class Lapped:
    """Milliseconds of the whole window by the GPU's own events; stop: it did not end well."""

    ms: float
    stop: Stop | None = None
