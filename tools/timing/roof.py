"""The roof over a task on a GPU: no honest run of it is shorter. What is faster is `suspect`.

The roof must never fall on an honest kernel, so every part of it is generous:
- bandwidth is the memory's own, clock × bus width × 2 (double data rate), which no kernel reaches (an H200: 4.9 TB/s);
- what the L2 cache can hold over is taken off the bytes, and they count only when the ring of buffer sets is too large for the cache;
- arithmetic is the dense tensor-core rate of the narrowest type that the task's types allow, at the peak clock, with a discount for
  algorithms that save multiplications (Strassen's saves an eighth a level);
- a launch takes `LAUNCH_MS` at the least.

Rates: FLOPs of one multiprocessor in one clock, dense, from NVIDIA's own peaks divided by multiprocessors and boost clock
(A100 whitepaper table 1: 312 TFLOP/s f16, 108 SMs, 1.41 GHz; H100 whitepaper table 2: 989 f16, 1979 f8, 67 f64, 132 SMs, 1.83 GHz;
Blackwell B200 datasheet: 2,250 f16, 4,500 f8, 148 SMs, 1.85 GHz).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from sandbox.cuda.wire import Gpu
from tasks.schema import DType
from tools.evaluation import Reading

Bound: TypeAlias = Literal["memory", "arithmetic", "launch"]

LAUNCH_MS = 0.0015
"""Milliseconds that the shortest kernel takes."""
SAVINGS = 0.75
"""Share of a task's FLOPs that a clever algorithm may do with: two levels of Strassen's."""
CACHE_TIMES = 3
"""A ring of buffer sets this many times the L2 cache leaves no set in it."""

TENSOR: Mapping[int, Mapping[str, int]] = {
    8: {"f64": 128, "wide": 1024, "half": 2048, "byte": 4096},
    9: {"f64": 256, "wide": 2048, "half": 4096, "byte": 8192},
    10: {"f64": 256, "wide": 4096, "half": 8192, "byte": 16384},
}
"""Major compute capability → kind of arithmetic → dense FLOPs of one multiprocessor in a clock."""
NARROWEST: Mapping[DType, str] = {
    DType.F64: "f64",
    DType.F32: "half",  # three products of halves make one of floats: half is a generous bound
    DType.F16: "half",
    DType.BF16: "half",
}
"""Element type → the fastest arithmetic an honest kernel may use for it; any other (integers): byte."""


def memory_bytes_per_ms(gpu: Gpu) -> float:
    """Peak of the GPU's memory; 0 where the driver gives no clock or width."""
    return 2.0 * gpu.memory_clock_khz * gpu.bus_bits / 8


def flops_per_ms(gpu: Gpu, dtypes: Collection[DType]) -> float:
    """Dense tensor-core peak for the narrowest of these types; 0 where the architecture's is not known."""
    rates = TENSOR.get(gpu.capability[0])
    if rates is None or not dtypes:
        return 0.0
    rate = max(rates[NARROWEST.get(dtype, "byte")] for dtype in dtypes)
    return float(rate * gpu.multiprocessors * gpu.clock_khz)


def roof_of(
    gpu: Gpu, *, flops: int, moved: int, dtypes: Collection[DType], set_bytes: int, sets: int, window: int
) -> tuple[float, Bound]:
    """Milliseconds that no honest run is shorter than, and what holds the roof there.

    flops, moved: the task's own work, in FLOPs and bytes. set_bytes, sets, window: bytes of one buffer set, sets in the ring, runs in a
    timed window.
    """
    roofs: list[tuple[float, Bound]] = [(LAUNCH_MS, "launch")]
    bandwidth = memory_bytes_per_ms(gpu)
    if bandwidth and set_bytes * sets >= CACHE_TIMES * gpu.l2_bytes:
        roofs.append(((moved - gpu.l2_bytes / window) / bandwidth, "memory"))
    arithmetic = flops_per_ms(gpu, dtypes)
    if arithmetic:
        roofs.append((SAVINGS * flops / arithmetic, "arithmetic"))
    return max(roofs)


def roof_ms(
    gpu: Gpu, *, flops: int, moved: int, dtypes: Collection[DType], set_bytes: int, sets: int, window: int
) -> float:
    """The milliseconds of `roof_of`."""
    work = {"flops": flops, "moved": moved, "set_bytes": set_bytes, "sets": sets, "window": window}
    return roof_of(gpu, dtypes=dtypes, **work)[0]


def reached(reading: Reading) -> tuple[float, float, Bound] | None:
    """(milliseconds at the chip's peak, share of that peak which the candidate reaches, what bounds it), for people and models to aim at.

    Unlike the roof itself this takes nothing off for clever algorithms. None where no roof is known, or where a launch alone is longer.
    """
    ours = reading.candidate_ms.p50
    if not reading.roof_ms or not ours or reading.bound in ("", "launch"):
        return None
    peak = reading.roof_ms / (SAVINGS if reading.bound == "arithmetic" else 1.0)
    return peak, peak / ours, reading.bound
