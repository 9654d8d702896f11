"""Byte memory of every state space: where an address leads, and loads and stores of many threads at once.

A `Store` is the flat bytes behind one space; `Region`s are the named parts of it that a kernel may touch.
Global memory is one arena of buffers, each behind a guard gap, so that nearly every stray access lands
between two regions and is told exactly. Shared, local, const and param memory also appear in the generic
address space, each in a window of its own.

Invariants
- `written` has one byte a byte of memory, 1 once something put it there; None when all of the store always
  holds something.
- Indices are int64 byte positions in a store, in bounds and aligned: `resolve` has faulted otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sandbox.emulator.lanes import Array

GLOBAL_BASE = 0x7F40_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
CONST_WINDOW = 0x7C00_0000_0000
PARAM_WINDOW = 0x7B00_0000_0000
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW, "param": PARAM_WINDOW}
TAG_BITS = 40
"""Address bits below a window's number."""
TAGS = {base >> TAG_BITS: space for space, base in WINDOWS.items()}
GUARD = 4096
"""Bytes that belong to nobody between two buffers of global memory, at least."""
BASE_ALIGN = 512
"""Alignment of a buffer, as cuMemAlloc gives on every card of today or better."""

ROW = 64
"""Bytes to which every part of a store is rounded up; no single access is wider."""
UINT = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
ALL_WRITTEN = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


@dataclass(slots=True)
class Region:
    """A named stretch of a space."""

    name: str
    base: int
    """Address in its own space."""
    size: int
    defined: bool = True
    """False: bytes that nothing wrote hold nothing."""
    read_only: bool = False
    role: str = "variable"

    @property
    def end(self) -> int:
        return self.base + self.size


class Store:
    """Flat bytes, with views by element size."""

    __slots__ = ("checks", "data", "views", "written", "written_views")

    def __init__(self, data: npt.NDArray[np.uint8], written: npt.NDArray[np.uint8] | None) -> None:
        self.data = data
        self.views: dict[int, Array] = {1: data}
        self.written = written
        self.written_views: dict[int, Array] = {} if written is None else {1: written}
        self.checks = 0

    def view(self, size: int) -> Array:
        found = self.views.get(size)
        if found is None:
            found = self.views[size] = self.data.view(UINT[size])
        return found

    def written_view(self, size: int) -> Array:
        found = self.written_views.get(size)
        if found is None:
            assert self.written is not None
            found = self.written_views[size] = self.written.view(UINT[size])
        return found


def blank(size: int, poison: int, *, written: bool = False) -> Store:
    """A store of poison, rounded up to whole `ROW` bytes, in which nothing counts as written unless said so."""
    rounded = max(ROW, -(-size // ROW) * ROW)
    data = np.full(rounded, poison, np.uint8) if poison else np.zeros(rounded, np.uint8)
    return Store(data, None if written else np.zeros(rounded, np.uint8))


class Arena:
    """Global memory: buffers and module variables behind guard gaps."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.bases: list[int] = []
        self.top = GLOBAL_BASE
        self.store = blank(0, 0)
        self.last: Region | None = None
        self.discarded: Array | None = None
        """1 for each byte that held something and was discarded; None before the first discard."""

    def reserve(self, region_name: str, size: int, *, defined: bool, role: str) -> Region:
        """A new region behind a guard gap; `build` gives it memory."""
        base = -(-(self.top + GUARD) // BASE_ALIGN) * BASE_ALIGN
        region = Region(region_name, base, size, defined, role=role)
        self.regions.append(region)
        self.bases.append(base)
        self.top = base + size
        return region

    def build(self) -> None:
        """Memory for all regions, zero."""
        self.store = blank(self.top - GLOBAL_BASE + GUARD, 0)

    def bytes_of(self, region: Region) -> npt.NDArray[np.uint8]:
        start = region.base - GLOBAL_BASE
        return self.store.data[start : start + region.size]

    def written_of(self, region: Region) -> npt.NDArray[np.uint8]:
        assert self.store.written is not None
        start = region.base - GLOBAL_BASE
        return self.store.written[start : start + region.size]

    def discard(self, index: Array) -> None:
        """These bytes of the store hold nothing any more, defined or not."""
        if self.discarded is None:
            self.discarded = np.zeros_like(self.store.data)
        self.discarded[index] = 1

    def empty(self, index: Array, size: int, bad: Array) -> Array:
        """Those of the `bad` accesses, all of which touch bytes nothing stored, whose bytes also held nothing
        to begin with or hold nothing any more.
        """
        _, which = self.inside((index + GLOBAL_BASE).astype(np.uint64), size)
        defined = np.array([each.defined for each in self.regions])[which]
        found = bad & ~defined
        if self.discarded is not None and self.store.written is not None:
            at = np.flatnonzero(bad & defined)
            every = index[at][:, None] + np.arange(size)
            found[at] = (self.discarded[every] > self.store.written[every]).any(axis=1)
        return found

    def nearest(self, address: int) -> Region | None:
        """The region that holds an address, or else the one with the least distance to it."""
        at = bisect_right(self.bases, address)
        around = self.regions[max(at - 1, 0) : at + 1]
        return min(around, key=lambda r: max(r.base - address, address - r.end + 1, 0), default=None)

    def fits(self, low: int, high: int) -> Region | None:
        """The one region that holds [low, high)."""
        region = self.last
        if region is not None and region.base <= low and high <= region.base + region.size:
            return region
        at = bisect_right(self.bases, low) - 1
        if at >= 0:
            region = self.regions[at]
            if high <= region.end:
                self.last = region
                return region
        return None

    def inside(self, addresses: Array, size: int) -> tuple[Array, Array]:
        """(whether each access is in one region, index of that region)."""
        bases = np.array(self.bases, np.uint64)
        ends = np.array([region.end for region in self.regions], np.uint64)
        at = np.searchsorted(bases, addresses, side="right") - 1
        safe = np.maximum(at, 0)
        room = (
            ends[safe] - np.minimum(addresses, ends[safe])
            if len(ends)
            else np.zeros(len(addresses), np.uint64)
        )
        return (at >= 0) & (room >= np.uint64(size)), safe


@dataclass(slots=True)
class Site:
    """What an access needs to say about itself."""

    name: str
    """Full name of the instruction."""
    line: int
    function: str
    pc: int = -1


@dataclass(slots=True)
class Piece:
    """The part of an access that falls into one store; `chosen` is None when that is all of it."""

    store: Store
    index: Array
    space: str
    chosen: Array | None = None
    check: bool = True
    """Whether bytes may be unwritten."""
    region: Region | None = None


LONG = 256
"""Accesses from which on it pays to see whether they are one stretch of memory."""


def stretch(piece: Piece, size: int) -> int:
    """Where an access that is one stretch begins, thread after thread, in units of `size` bytes; -1 when it is none."""
    index = piece.index
    count = len(index)
    if count < LONG or int(index[-1]) - int(index[0]) != (count - 1) * size:
        return -1
    if not (index[1:] - index[:-1] == size).all():
        return -1
    return int(index[0]) // size


def _columns(rows: Array, count: int) -> list[Array]:
    return [rows[:, 0]] if count == 1 else [rows[:, k] for k in range(count)]


def take(piece: Piece, size: int, count: int) -> list[Array]:
    """`count` consecutive elements of `size` bytes for each thread; columns of one array, which is fresh."""
    rows = _rows(piece.store.view(size), count)
    first = stretch(piece, size * count)
    if first >= 0:
        return _columns(rows[first : first + len(piece.index)].copy(), count)
    return _columns(rows.take(_places(piece, size * count), axis=0), count)


def put(piece: Piece, size: int, values: list[Array]) -> None:
    """Store consecutive elements of `size` bytes for each thread; of two threads at one address the later
    stays.
    """
    count = len(values)
    first = stretch(piece, size * count)
    where: Any = slice(first, first + len(piece.index)) if first >= 0 else _places(piece, size * count)
    rows = _rows(piece.store.view(size), count)
    for k, value in enumerate(values):
        rows[where, k] = value
    if piece.store.written is not None:
        _rows(piece.store.written_view(size), count)[where] = ALL_WRITTEN[size]


def unwritten(piece: Piece, size: int, count: int) -> Array | None:
    """Which accesses read a byte that nothing wrote; None when none does."""
    store = piece.store
    if store.written is None or not piece.check:
        return None
    rows = _rows(store.written_view(size), count)
    good = (rows.take(_places(piece, size * count), axis=0) == ALL_WRITTEN[size]).all(axis=1)
    return None if good.all() else ~good


def _rows(view: Array, count: int) -> Array:
    """Elements as rows of `count`; every space begins and ends at a multiple of any row."""
    return view.reshape(-1, count)


def _places(piece: Piece, size: int) -> Array:
    return piece.index if size == 1 else piece.index >> (size.bit_length() - 1)
