"""From addresses to bytes: every load, store and atomic goes through `resolve`, which faults on what no chip
allows.

Shared memory is one store a wave, a block's part after another; local memory likewise by thread. Addresses of
a window that another thread made are read as one's own, as on hardware.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sandbox.device import FaultKind, OnUnwritten
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.memory import (
    GLOBAL_BASE,
    ROW,
    TAG_BITS,
    TAGS,
    Piece,
    Site,
    Store,
    blank,
    put,
    take,
    unwritten,
)
from sandbox.emulator.whereabouts import misaligned, out_of_bounds, place, read_only

_TAG_SHIFT = np.uint64(TAG_BITS)
_LOW = np.uint64((1 << TAG_BITS) - 1)


def resolve(space: str, lanes: Lanes, addresses: Array, size: int, site: Site, *, write: bool) -> list[Piece]:
    """Where `size` bytes at each address are. addresses: flat, of the active lanes, uint32 or uint64, in the
    address space `space`.
    """
    odd = int(np.bitwise_or.reduce(addresses)) & (size - 1)
    if odd:
        misaligned(space, lanes, addresses, size, site)
    if space == "generic":
        first = int(addresses[0]) >> TAG_BITS
        tags = addresses >> _TAG_SHIFT
        if (tags == first).all():
            own = TAGS.get(first)
            if own is None:
                return [_resolve_global(lanes, addresses, size, site, write)]
            return [_windowed(own, lanes, addresses & _LOW, size, site, write)]
        pieces: list[Piece] = []
        for tag in np.unique(tags):
            chosen = np.flatnonzero(tags == tag)
            part = _sub(lanes, chosen)
            own = TAGS.get(int(tag))
            if own is None:
                piece = _resolve_global(part, addresses[chosen], size, site, write)
            else:
                piece = _windowed(own, part, addresses[chosen] & _LOW, size, site, write)
            piece.chosen = chosen
            pieces.append(piece)
        return pieces
    if space == "global":
        return [_resolve_global(lanes, addresses, size, site, write)]
    return [_windowed(space, lanes, addresses, size, site, write)]


def _sub(lanes: Lanes, chosen: Array) -> Lanes:
    mask = np.zeros((lanes.w, 32), np.bool_)
    rows, places = lanes.places()
    mask[rows[chosen], places[chosen]] = True
    return Lanes(lanes.wave, lanes.frame, lanes.rows, mask)


def _resolve_global(lanes: Lanes, addresses: Array, size: int, site: Site, write: bool) -> Piece:
    arena = lanes.wave.machine.arena
    low, high = int(addresses.min()), int(addresses.max()) + size
    region = arena.fits(low, high)
    check = arena.discarded is not None
    if region is not None:
        check = check or not region.defined
    else:
        inside, which = arena.inside(addresses.astype(np.uint64), size)
        if not inside.all():
            out_of_bounds("global", lanes, addresses, size, site, ~inside, write)
        check = check or not all(arena.regions[int(each)].defined for each in np.unique(which))
    index = (addresses.astype(np.uint64, copy=False) - np.uint64(GLOBAL_BASE)).view(np.int64)
    return Piece(arena.store, index, "global", None, check, region)


def _windowed(space: str, lanes: Lanes, addresses: Array, size: int, site: Site, write: bool) -> Piece:
    wave = lanes.wave
    if space == "shared":
        limit, store = wave.shared_size, wave.shared
    elif space == "local":
        limit, store = lanes.frame.local_top, wave.local
    else:
        store = wave.machine.const if space == "const" else wave.machine.param
        limit = wave.machine.space_size(space)
        if write:
            read_only(space, lanes, addresses, size, site)
    high = int(addresses.max()) + size
    if high > limit:
        wide = addresses.astype(np.uint64)
        bad = (wide > np.uint64(limit)) | (wide + np.uint64(size) > np.uint64(limit))
        out_of_bounds(space, lanes, addresses, size, site, bad, write)
    index = addresses.astype(np.int64)
    if space == "shared":
        if wave.blocks > 1:
            index += lanes.per_warp(wave.shared_base)
    elif space == "local":
        index += lanes.threads() * wave.local_stride
    return Piece(store, index, space, None, store.written is not None)


def load(space: str, lanes: Lanes, addresses: Array, size: int, count: int, site: Site) -> list[Array]:
    """`count` elements of `size` bytes (1, 2, 4, 8) for each active lane, flat, unsigned."""
    pieces = resolve(space, lanes, addresses, size * count, site, write=False)
    if lanes.wave.machine.watching:
        lanes.wave.machine.seen[site.pc] = (site.line, pieces[0].space, int(addresses[0]), lanes)
    if len(pieces) == 1:
        piece = pieces[0]
        if piece.check:
            check(lanes, piece, addresses, size, count, site)
        return take(piece, size, count)
    out = [np.empty(lanes.n, f"u{size}") for _ in range(count)]
    for piece in pieces:
        assert piece.chosen is not None
        part = _sub(lanes, piece.chosen)
        check(part, piece, addresses[piece.chosen], size, count, site)
        for whole, got in zip(out, take(piece, size, count), strict=True):
            whole[piece.chosen] = got
    return out


def store(space: str, lanes: Lanes, addresses: Array, size: int, values: list[Array], site: Site) -> None:
    """Put elements of `size` bytes at each active lane's address; values: flat, unsigned."""
    machine = lanes.wave.machine
    for piece in resolve(space, lanes, addresses, size * len(values), site, write=True):
        mine = values if piece.chosen is None else [value[piece.chosen] for value in values]
        if machine.watching:
            before = take(piece, size, len(values))
            put(piece, size, mine)
            after = take(piece, size, len(values))
            if not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)):
                machine.changed()
        else:
            put(piece, size, mine)
            machine.mutations += 1
        if piece.space == "global":
            machine.stored(piece, lanes, site)


def check(lanes: Lanes, piece: Piece, addresses: Array, size: int, count: int, site: Site) -> None:
    """Fault, or note, a read of bytes that nothing wrote."""
    bad = unwritten(piece, size, count)
    if bad is None:
        settle(piece.store, lanes)
        return
    machine = lanes.wave.machine
    if piece.space == "global" and (piece.region is None or piece.region.defined):
        bad = machine.arena.empty(piece.index, size * count, bad)
        if not bad.any():
            return
    position = int(np.flatnonzero(bad)[0])
    address = int(addresses[position])
    plain = address & int(_LOW) if piece.space != "global" else address
    region, offset, where = place(piece.space, lanes, plain)
    name = region.name if region is not None else piece.space
    if region is not None and 0 <= offset < region.size:
        where = f"{name}, byte {offset}"
    who = lanes.wave.who(lanes.locate(position))
    message = (
        f"{site.name} reads {several(size * count, 'byte')} of {piece.space} memory that nothing wrote: "
        f"{where}, {who}; "
        f"{several(int(np.count_nonzero(bad)), 'thread')} here"
    )
    if machine.limits.on_unwritten is OnUnwritten.POISON:
        machine.notice("unwritten_read", message, site.line)
        return
    raise Stopped(
        FaultKind.UNWRITTEN_READ,
        message,
        site.line,
        lanes.locate(position),
        {
            "space": piece.space,
            "buffer": name,
            "offset": offset,
            "buffer_bytes": region.size if region is not None else None,
            "address": int(addresses[position]),
            "size": size * count,
            "threads": int(np.count_nonzero(bad)),
        },
    )


def settle(memory: Store, lanes: Lanes) -> None:
    """Now and then see whether all of a wave's shared memory has been written, after which nothing need be
    checked.
    """
    if memory is not lanes.wave.shared or memory.written is None:
        return
    memory.checks += 1
    if memory.checks & (memory.checks - 1) == 0 and memory.written.all():
        memory.written = None


def grow_local(wave: Any, size: int) -> None:
    """Make local memory at least `size` bytes a thread, keeping what is in it."""
    if size <= wave.local_stride:
        return
    stride = -(-max(size, 2 * wave.local_stride) // ROW) * ROW
    threads = wave.warps * 32
    fresh = blank(threads * stride, wave.machine.limits.poison)
    if wave.local_stride:
        old = wave.local
        assert fresh.written is not None
        for new, kept in ((fresh.data, old.data), (fresh.written, old.written)):
            new.reshape(threads, stride)[:, : wave.local_stride] = kept.reshape(threads, wave.local_stride)
    wave.local, wave.local_stride = fresh, stride
