"""What the emulated chips look like from inside a kernel, as a table; sizes are per streaming multiprocessor
(SM) unless said otherwise.

The machine needs them for three things only: which launches a chip refuses, how many blocks are resident
together (a home-made grid barrier larger than that hangs on the chip and so must hang here), and the values
of special registers.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; product briefs of the
named cards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.errors import LaunchRefused


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture as its usual data-centre card has it."""

    sms: int
    threads: int
    """Resident threads."""
    blocks: int
    """Resident blocks."""
    registers: int
    """32-bit registers."""
    shared: int
    """Bytes of shared memory, of which every resident block also costs `RESERVED_SHARED`."""
    shared_block: int
    """Most bytes of shared memory one block may ask for (opt-in)."""


RESERVED_SHARED = 1024
"""Bytes of shared memory the system keeps for itself in each block, from compute capability 8.0 on."""
THREADS_PER_BLOCK = 1024
BLOCK_EXTENT = (1024, 1024, 64)
GRID_EXTENT = (2**31 - 1, 65535, 65535)
WARP = 32

CHIPS: dict[int, Chip] = {
    70: Chip(80, 2048, 32, 65536, 98304, 98304),
    75: Chip(40, 1024, 16, 65536, 65536, 65536),
    80: Chip(108, 2048, 32, 65536, 167936, 166912),
    86: Chip(84, 1536, 16, 65536, 102400, 101376),
    87: Chip(16, 1536, 16, 65536, 167936, 166912),
    89: Chip(142, 1536, 24, 65536, 102400, 101376),
    90: Chip(132, 2048, 32, 65536, 233472, 232448),
    100: Chip(148, 2048, 32, 65536, 233472, 232448),
    103: Chip(160, 2048, 32, 65536, 233472, 232448),
    120: Chip(170, 1536, 24, 65536, 102400, 101376),
}


def chip_of(arch: str) -> Chip:
    """The chip of an architecture such as `sm_90a`; an unknown one is taken as the nearest older one in the
    table.
    """
    found = re.match(r"sm_(\d+)", arch)
    number = int(found.group(1)) if found else 90
    return CHIPS[max((known for known in CHIPS if known <= number), default=70)]


def check_launch(
    chip: Chip,
    entry: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    clusters: int,
) -> None:
    """Refuse, as the driver would, extents or shared memory that the chip does not have; `shared` is static
    and dynamic bytes.
    """
    for what, extents, most in (("grid", grid, GRID_EXTENT), ("block", block, BLOCK_EXTENT)):
        for axis, value, bound in zip("xyz", extents, most, strict=True):
            if not 1 <= value <= bound:
                raise LaunchRefused(f"launch of {entry}: {what}.{axis} must be 1 to {bound}, found {value}")
    threads = block[0] * block[1] * block[2]
    if threads > THREADS_PER_BLOCK:
        raise LaunchRefused(
            f"launch of {entry}: a block may have at most {THREADS_PER_BLOCK} threads, found {threads} "
            f"({block[0]} by {block[1]} by {block[2]})"
        )
    if shared > chip.shared_block:
        raise LaunchRefused(
            f"launch of {entry}: a block may have at most {chip.shared_block} bytes of shared memory on "
            f"this chip, found {shared} "
            "(static and dynamic together)"
        )
    if clusters > 16:
        raise LaunchRefused(f"launch of {entry}: a cluster may have at most 16 blocks, found {clusters}")


def resident_blocks(chip: Chip, threads: int, registers: int, shared: int) -> int:
    """How many blocks the whole chip holds at once.

    threads: per block. registers: 32-bit registers per thread. shared: bytes.
    """
    warps = -(-threads // WARP)
    per_warp = -(-max(registers, 1) * WARP // 256) * 256
    by_threads = chip.threads // (warps * WARP)
    by_registers = chip.registers // (per_warp * warps) if per_warp * warps else chip.blocks
    by_shared = chip.shared // (shared + RESERVED_SHARED) if shared else chip.blocks
    return max(1, min(by_threads, by_registers, by_shared, chip.blocks)) * chip.sms
