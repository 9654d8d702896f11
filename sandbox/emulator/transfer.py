"""Builders for loads, stores and the warp-wide matrix moves.

Cache operators, eviction hints, memory orders and scopes change nothing here: the machine runs one
instruction at a time, in program order of each thread, which every memory model allows.

Source: PTX ISA, "ld", "st", "ldmatrix", "stmatrix", "discard".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sandbox.emulator.access import load, resolve, store
from sandbox.emulator.decode import LOOKING, SYNC, WAITING, Decoder, Op, builds
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.names import Place
from sandbox.emulator.operands import Unsupported, addresses, elements, reader, whole, writer
from sandbox.emulator.semantics.types import TYPES
from sandbox.emulator.warps import Need
from sandbox.ptx.nodes import Address, Instruction, Name

SPACES = frozenset({"global", "shared", "local", "const", "param"})
WATCHFUL = frozenset({"volatile", "relaxed", "acquire", "mmio"})
"""Modifiers of loads by which a thread looks at what others write."""
HINTS = frozenset(
    {
        "weak", "volatile", "relaxed", "acquire", "release", "mmio", "cta", "cluster", "gpu", "sys", "ca",
        "cg", "cs", "cv", "lu", "wb", "wt", "nc", "unified", "entry", "func",
    }
)  # fmt: skip
"""Modifiers of ld and st that say how caches and other threads see the access, not what it does."""


def shape_of(instruction: Instruction) -> tuple[str, str, int]:
    """(state space, element type, elements) of a load or store; raises Unsupported for a modifier nobody
    knows.
    """
    space, kind, count = "generic", "", 1
    for part in instruction.modifiers:
        plain, _, rest = part.partition("::")
        if plain in SPACES and rest in ("", "cta", "entry", "func", "cluster"):
            space = plain
        elif part in ("v2", "v4", "v8"):
            count = int(part[1])
        elif part in TYPES:
            kind = part
        elif part not in HINTS and plain not in ("L1", "L2", "global", "const"):
            raise Unsupported(f"modifier .{part}")
    if not kind or TYPES[kind].kind == "pred":
        raise Unsupported("no type")
    return space, kind, count


def unit(kind: str) -> tuple[int, int]:
    """(bytes of an element as it is moved, elements of that size that make one of the type)."""
    size = TYPES[kind].width // 8
    return (8, 2) if size == 16 else (size, 1)


@builds("ld", "ldu")
def ld(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Loads of every space; narrower than their registers they are extended."""
    space, kind, count = shape_of(instruction)
    targets = elements(instruction.operands[0], decoder.scope)
    if len(targets) != count:
        raise Unsupported(f"{len(targets)} destinations for {count} elements")
    writers = [writer(decoder, target, kind) for target in targets]
    size, parts = unit(kind)
    dtype, site = TYPES[kind].dtype, op.site
    op.spins = WAITING if WATCHFUL.intersection(instruction.modifiers) else LOOKING
    fixed = _param_offset(decoder, instruction, space)
    if fixed is not None and parts == 1:

        def run_param(lanes: Lanes) -> None:
            data = lanes.wave.machine.param.data[fixed : fixed + size * count]
            for write, value in zip(writers, data.view(f"u{size}"), strict=True):
                if write is not None:
                    write(lanes, np.array(value).view(dtype), True)

        if fixed % (size * count) == 0:
            op.run, op.spins = run_param, 0
            return
    space, where = addresses(decoder, instruction.operands[1], space)
    if space == "param":
        op.spins = 0

    def run(lanes: Lanes) -> None:
        got = load(space, lanes, where(lanes), size, count * parts, site)
        if parts == 2:
            got = [np.stack(pair, axis=-1) for pair in zip(got[::2], got[1::2], strict=True)]
        for write, values in zip(writers, got, strict=True):
            if write is not None:
                write(lanes, lanes.spread(values).view(dtype), True)

    op.run = run


def _param_offset(decoder: Decoder, instruction: Instruction, space: str) -> int | None:
    """Where a kernel parameter that is named directly begins, offset included."""
    address = instruction.operands[1]
    if (
        space not in ("param", "generic")
        or not isinstance(address, Address)
        or not isinstance(address.base, Name)
    ):
        return None
    found = decoder.scope.find(address.base.text)
    if isinstance(found, Place) and found.space == "param":
        start = found.base + address.offset
        size = TYPES[shape_of(instruction)[1]].width // 8 * shape_of(instruction)[2]
        if start >= 0 and start + size <= decoder.code.spaces.param_bytes:
            return start
    return None


@builds("st")
def st(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Stores of every space but const and the parameters of an entry."""
    if "async" in instruction.modifiers or "bulk" in instruction.modifiers:
        raise Unsupported("an asynchronous store")
    space, kind, count = shape_of(instruction)
    values = elements(instruction.operands[1], decoder.scope)
    if len(values) != count:
        raise Unsupported(f"{len(values)} sources for {count} elements")
    size, parts = unit(kind)
    readers = [reader(decoder, value, kind) for value in values]
    space, where = addresses(decoder, instruction.operands[0], space)
    unsigned, site = np.dtype(f"u{size}"), op.site

    def run(lanes: Lanes) -> None:
        data = [lanes.flat(whole(lanes, read(lanes))).view(unsigned) for read in readers]
        if parts == 2:
            data = [half for each in data for half in (each[:, 0], each[:, 1])]
        store(space, lanes, where(lanes), size, data, site)

    op.run = run


def matrices(instruction: Instruction) -> tuple[int, bool]:
    """(matrices, transposed) of an ldmatrix or stmatrix of 8×8 16-bit elements."""
    mods = instruction.modifiers
    if "m8n8" not in mods or "b16" not in mods:
        raise Unsupported("a matrix shape other than m8n8 of b16")
    number = next((int(part[1]) for part in mods if part in ("x1", "x2", "x4")), 0)
    if not number:
        raise Unsupported("how many matrices")
    return number, "trans" in mods


def _space(instruction: Instruction) -> str:
    return "shared" if any(part.startswith("shared") for part in instruction.modifiers) else "generic"


def _rows(lanes: Lanes, where: Callable[[Lanes], Array], number: int) -> tuple[Lanes, Array]:
    """The lanes whose addresses count (the first 8 of each matrix), and those addresses."""
    giving = np.zeros((lanes.w, 32), np.bool_)
    giving[:, : 8 * number] = True
    givers = Lanes(lanes.wave, lanes.frame, lanes.rows, giving if number < 4 else None)
    return givers, where(givers)


@builds("ldmatrix")
def ldmatrix(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Lane l gets elements (row l/4, columns 2(l%4) and the next) of each matrix; rows come from the
    addresses of lanes 8j … 8j+7.
    """
    number, transposed = matrices(instruction)
    targets = elements(instruction.operands[0], decoder.scope)
    if len(targets) != number:
        raise Unsupported(f"{len(targets)} destinations for {number} matrices")
    writers = [writer(decoder, target, "b32") for target in targets]
    space, where = addresses(decoder, instruction.operands[1], _space(instruction))
    site = op.site
    op.kind, op.collective, op.detail = SYNC, True, Need(None, strict=True)

    def run(lanes: Lanes) -> None:
        givers, start = _rows(lanes, where, number)
        words = np.stack(load(space, givers, start, 4, 4, site), axis=-1).reshape(lanes.w, number, 8, 4)
        if transposed:
            halves = words.view(np.uint16).reshape(lanes.w, number, 8, 8)
            words = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.uint32)
        for k, write in enumerate(writers):
            if write is not None:
                write(lanes, np.ascontiguousarray(words[:, k].reshape(lanes.w, 32)), True)

    op.run = run


@builds("stmatrix")
def stmatrix(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """The inverse of ldmatrix."""
    number, transposed = matrices(instruction)
    sources = elements(instruction.operands[1], decoder.scope)
    if len(sources) != number:
        raise Unsupported(f"{len(sources)} sources for {number} matrices")
    readers = [reader(decoder, source, "b32") for source in sources]
    space, where = addresses(decoder, instruction.operands[0], _space(instruction))
    site = op.site
    op.kind, op.collective, op.detail = SYNC, True, Need(None, strict=True)

    def run(lanes: Lanes) -> None:
        givers, start = _rows(lanes, where, number)
        words = np.stack([whole(lanes, read(lanes)) for read in readers], axis=1).reshape(
            lanes.w, number, 8, 4
        )
        if transposed:
            halves = np.ascontiguousarray(words).view(np.uint16).reshape(lanes.w, number, 8, 8)
            words = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.uint32)
        flat = words.reshape(-1, 4)
        store(space, givers, start, 4, [np.ascontiguousarray(flat[:, k]) for k in range(4)], site)

    op.run = run


@builds("discard")
def discard(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """The named bytes of global memory hold nothing afterwards: poison, and reading them is an unwritten
    read.
    """
    space, where = addresses(
        decoder, instruction.operands[0], "global" if "global" in instruction.modifiers else "generic"
    )
    size = 128
    site = op.site

    def run(lanes: Lanes) -> None:
        arena, poison = lanes.wave.machine.arena, lanes.wave.machine.limits.poison
        for piece in resolve(space, lanes, where(lanes), size, site, write=True):
            if piece.space != "global" or piece.store.written is None:
                continue
            lines = np.unique(piece.index)
            every = lines[:, None] + np.arange(size)
            arena.discard(every)
            piece.store.written[every] = 0
            piece.store.data[every] = poison
        lanes.wave.machine.changed()

    op.run = run
