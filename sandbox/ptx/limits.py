"""What a launch may ask for: one table, with where each number comes from.

Source: CUDA C++ programming guide, "Technical Specifications per Compute Capability" (9.0; 10.0 agrees); CUDA driver API,
cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col. Bounds of our own are marked so.
"""

from __future__ import annotations

from typing import Final

GRID: Final = (2**31 - 1, 65535, 65535)
"""Blocks per dimension."""
BLOCK: Final = (1024, 1024, 64)
"""Threads per dimension."""
BLOCK_THREADS: Final = 1024
CLUSTER_BLOCKS: Final = 16
"""Non-portable size; 8 is portable."""
SHARED_BYTES: Final = 232_448
"""227 KiB: static and dynamic shared memory of one block together."""
LOCAL_BYTES: Final = 512 * 1024 - 16
"""Local memory of one thread; the driver keeps 16 bytes."""
RESIDENT_THREADS: Final = 2048
"""Threads of one multiprocessor."""
MULTIPROCESSORS: Final = 132
"""Of an H100 or H200."""
LOCAL_TOTAL_BYTES: Final = 100 << 30
"""Our own: local memory is set aside for every thread that can be resident, and must leave room in device memory."""
RUN_THREADS: Final = 2**33
"""Our own: threads of all launches of one run."""
SCRATCH_BYTES: Final = 4 << 30
"""Our own: scratch buffers of one plan together."""
PARAM_BYTES: Final = 32_764
"""Parameters of one kernel (4,352 before PTX 8.1)."""

MAP_RANK: Final = 5
MAP_DIM: Final = 2**32
MAP_STRIDE: Final = 2**40
MAP_BOX: Final = 256
MAP_ELEMENT_STRIDE: Final = 8
IM2COL_CHANNELS: Final = 256
"""Channels of a pixel that one copy takes."""
IM2COL_PIXELS: Final = 1024
IM2COL_CORNER: Final = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
"""Rank → bound of a corner's offsets: from minus this to one less than it."""
MAP_UNIT: Final = 16
"""Bytes: strides and the inner box are multiples of it."""
SWIZZLE_SPAN: Final = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
"""Bytes the inner box may not exceed."""
MAP_DTYPES: Final = {
    "u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "tf32": 4, "f64": 8,
}  # fmt: skip
"""Element types of tensor maps and their bytes; signed 8- and 16-bit elements move as unsigned ones."""
FLOAT_DTYPES: Final = frozenset({"f16", "bf16", "f32", "tf32", "f64"})
