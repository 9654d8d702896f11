"""Where an address lies, in words, and the faults of accesses that no chip allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.memory import TAG_BITS, TAGS, WINDOWS, Region, Site

LOW_BITS = (1 << TAG_BITS) - 1


def place(space: str, lanes: Lanes, address: int) -> tuple[Region | None, int, str]:
    """(nearest region, offset from its start, where that is in words)."""
    if space == "global":
        region = lanes.wave.machine.arena.nearest(address)
    else:
        own = space == "local"
        regions: list[Region] = lanes.frame.regions() if own else lanes.wave.machine.regions(space)
        inside = [each for each in regions if each.base <= address < each.end]
        region = min(
            inside or regions,
            key=lambda r: (max(r.base - address, address - r.end + 1, 0), -r.base),
            default=None,
        )
    if region is None:
        return None, address, f"there is no {space} memory"
    offset = address - region.base
    if offset < 0:
        where = f"{several(-offset, 'byte')} before {region.name} begins"
    elif offset == region.size:
        where = f"just past the end of {region.name}"
    elif offset > region.size:
        where = f"{several(offset - region.size, 'byte')} past the end of {region.name}"
    else:
        where = f"in {region.name}, byte {offset}"
    return region, offset, where


def describe(space: str, lanes: Lanes, address: int) -> str:
    """An address in words: the buffer and the byte in it."""
    return f"{space} memory {place(space, lanes, address if space == 'global' else address & LOW_BITS)[2]}"


def _details(
    space: str, region: Region | None, offset: int, address: int, size: int, count: int
) -> dict[str, Any]:
    return {
        "space": space,
        "buffer": region.name if region is not None else None,
        "offset": offset if region is not None else None,
        "buffer_bytes": region.size if region is not None else None,
        "address": address,
        "size": size,
        "threads": count,
    }


def out_of_bounds(
    space: str, lanes: Lanes, addresses: Array, size: int, site: Site, bad: Array, write: bool
) -> None:
    position = int(np.flatnonzero(bad)[0])
    address = int(addresses[position])
    region, offset, where = place(space, lanes, address)
    count = int(np.count_nonzero(bad))
    held = f" ({several(region.size, 'byte')})" if region is not None else ""
    verb = "writes" if write else "reads"
    if region is not None and 0 <= offset < region.size:
        where = f"{several(offset + size - region.size, 'byte')} past the end of {region.name}"
    raise Stopped(
        FaultKind.OUT_OF_BOUNDS,
        f"{site.name} {verb} {several(size, 'byte')} at {space} address {address:#x}, {where}{held}, "
        f"{lanes.wave.who(lanes.locate(position))}; {several(count, 'thread')} here",
        site.line,
        lanes.locate(position),
        _details(space, region, offset, address, size, count),
    )


def misaligned(space: str, lanes: Lanes, addresses: Array, size: int, site: Site) -> None:
    bad = (addresses & addresses.dtype.type(size - 1)) != 0
    position = int(np.flatnonzero(bad)[0])
    address = int(addresses[position])
    own, plain = space, address
    if space == "generic":
        own = TAGS.get(address >> TAG_BITS, "global")
        plain = address - WINDOWS.get(own, 0)
    region, offset, where = place(own, lanes, plain)
    count = int(np.count_nonzero(bad))
    raise Stopped(
        FaultKind.MISALIGNED,
        f"{site.name} needs an address that is a multiple of {size}, found {address:#x} ({own}, {where}), "
        f"{lanes.wave.who(lanes.locate(position))}; {several(count, 'thread')} here",
        site.line,
        lanes.locate(position),
        _details(own, region, offset, address, size, count),
    )


def read_only(space: str, lanes: Lanes, addresses: Array, size: int, site: Site) -> None:
    region, offset, where = place(space, lanes, int(addresses[0]))
    raise Stopped(
        FaultKind.READ_ONLY_WRITE,
        f"{site.name} writes to .{space} memory ({where}), which a kernel may only read, "
        f"{lanes.wave.who(lanes.locate(0))}",
        site.line,
        lanes.locate(0),
        _details(space, region, offset, int(addresses[0]), size, lanes.n),
    )
