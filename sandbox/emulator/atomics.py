"""`atom` and `red`: many threads at one address behave as if they came one after another, in thread order.

Each wide atomic is split into rounds in which every address occurs once; cheap cases (sums and bitwise
operations whose old values nobody asks for, integer sums, exchanges) take a shorter way with the same
outcome. Subnormal results of f32 sums are kept in every space.

Source: PTX ISA, "atom", "red".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from sandbox.emulator.access import check, resolve
from sandbox.emulator.decode import WAITING, Decoder, Op, builds
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.memory import ALL_WRITTEN, Piece, Site, take
from sandbox.emulator.operands import Unsupported, addresses, elements, reader, whole, writer
from sandbox.emulator.semantics import lower
from sandbox.emulator.semantics.types import TYPES
from sandbox.ptx.nodes import Instruction, Name

Step: TypeAlias = Callable[..., Array]
"""From old values and operands, one each an address, to new values."""

OPERATIONS = frozenset({"add", "min", "max", "inc", "dec", "and", "or", "xor", "cas", "exch"})
_HINTS = frozenset({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"})
_STEPS: dict[str, Step] = {
    "add": lambda old, b: old + b,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, b: np.where(old >= b, 0, old + 1).astype(old.dtype),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1).astype(old.dtype),
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
}
_AT: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def rounds(index: Array) -> Iterator[Array]:
    """Positions of `index` in groups without repeats, each value's occurrences in order."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.empty(len(index), np.bool_)
    starts[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    if starts.all():
        yield np.arange(len(index))
        return
    first = np.flatnonzero(starts)
    rank = np.arange(len(index)) - np.repeat(first, np.diff(np.append(first, len(index))))
    by_rank = order[np.argsort(rank, kind="stable")]
    at = 0
    for count in np.bincount(rank):
        yield by_rank[at : at + count]
        at += count


def serial(view: Array, index: Array, step: Step, operands: list[Array]) -> Array:
    """Apply `step` at each index in order; gives the old values."""
    old = np.empty(len(index), view.dtype)
    for chosen in rounds(index):
        at = index[chosen]
        seen = view[at]
        old[chosen] = seen
        view[at] = step(seen, *(operand[chosen] for operand in operands))
    return old


def _crowded(index: Array) -> bool:
    """Whether few addresses have many threads each, so that going address by address is the shorter way."""
    if len(index) < 64:
        return False
    _, counts = np.unique(index, return_counts=True)
    return len(counts) * 8 < int(counts.max())


def _one_by_one(view: Array, index: Array, operation: str, operands: list[Array]) -> Array:
    """As `serial`, an address at a time: running results, and for cas from one success to the next."""
    old = np.empty(len(index), view.dtype)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, end in zip(first, np.append(first[1:], len(index)), strict=True):
        chosen, at = order[start:end], ordered[start]
        mine = [operand[chosen] for operand in operands]
        if operation == "cas":
            view[at] = _swaps(view[at], mine[0], mine[1], old, chosen)
            continue
        running = np.append(view[at], mine[0])
        if operation != "exch":
            running = _AT[operation].accumulate(running)
        old[chosen] = running[:-1]
        view[at] = running[-1]
    return old


def _swaps(value: Any, compare: Array, swap: Array, old: Array, chosen: Array) -> Any:
    """Compare-and-swap of many threads at one address; fills in what each saw and gives the last value."""
    at = 0
    while at < len(compare):
        hits = compare[at:] == value
        hit = int(hits.argmax())
        if not hits[hit]:
            old[chosen[at:]] = value
            break
        old[chosen[at : at + hit + 1]] = value
        value = swap[at + hit]
        at += hit + 1
    return value


def _sums(view: Array, index: Array, values: Array) -> Array:
    """Integer sums with old values: a running sum within each address."""
    order = np.argsort(index, kind="stable")
    ordered, added = index[order], values[order]
    running = np.cumsum(added, dtype=view.dtype)
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(first, len(index)))
    before = running - added
    base = view[ordered[first]] - before[first]
    old = np.empty(len(index), view.dtype)
    old[order] = before + np.repeat(base, sizes)
    last = first + sizes - 1
    view[ordered[first]] = running[last] + base
    return old


def perform(
    piece: Piece, kind: str, operation: str, step: Step, operands: list[Array], *, wanted: bool
) -> Array | None:
    """One atomic over flat lanes; operands and result in the dtype of `kind`."""
    dtype = TYPES[kind].dtype
    size = dtype.itemsize
    view = piece.store.view(size).view(dtype)
    index = piece.index >> (size.bit_length() - 1)
    plain = TYPES[kind].kind in ("unsigned", "signed", "bits") or kind in ("f32", "f64")
    old: Array | None = None
    if not wanted and plain and operation in _AT:
        _AT[operation].at(view, index, operands[0])
    elif operation == "add" and plain and kind not in ("f32", "f64"):
        old = _sums(view, index, operands[0])
    elif (
        plain
        and (operation in _AT or operation in ("exch", "cas"))
        and step is _STEPS.get(operation)
        and _crowded(index)
    ):
        old = _one_by_one(view, index, operation, operands)
    else:
        old = serial(view, index, step, operands)
    if piece.store.written is not None:
        piece.store.written_view(size)[index] = ALL_WRITTEN[size]
    return old


def update(
    space: str, lanes: Lanes, where: Array, kind: str, operation: str, step: Step, operands: list[Array],
    site: Site, *, wanted: bool = True,
) -> Array:  # fmt: skip
    """An atomic on each active lane's address; gives old values (zeros where not wanted)."""
    dtype = TYPES[kind].dtype
    machine = lanes.wave.machine
    out = np.zeros(lanes.n, dtype)
    for piece in resolve(space, lanes, where, dtype.itemsize, site, write=True):
        chosen = piece.chosen
        mine = operands if chosen is None else [operand[chosen] for operand in operands]
        if piece.check and operation != "exch":
            some = lanes
            if chosen is not None:
                mask = np.zeros(lanes.n, np.bool_)
                mask[chosen] = True
                some = Lanes(lanes.wave, lanes.frame, lanes.rows, lanes.spread(mask))
            check(some, piece, where if chosen is None else where[chosen], dtype.itemsize, 1, site)
        before = None
        if machine.watching:
            machine.seen[site.pc] = (site.line, piece.space, int(where[0]), lanes)
            before = take(piece, dtype.itemsize, 1)[0]
        old = perform(piece, kind, operation, step, mine, wanted=wanted)
        if before is None or not np.array_equal(before, take(piece, dtype.itemsize, 1)[0]):
            machine.changed()
        if piece.space == "global":
            machine.stored(piece, lanes, site)
        if old is not None:
            if chosen is None:
                return old
            out[chosen] = old
    return out


def step_of(operation: str, kind: str) -> Step:
    """What an operation does to one address."""
    if operation == "add" and TYPES[kind].kind in ("float", "packed") and kind not in ("f32", "f64"):
        meaning = lower(Instruction("add", ("rn", kind), (Name("d"), Name("a"), Name("b"))))
        if meaning is None:
            raise Unsupported(f"an atomic sum of .{kind}")
        fn = meaning.fn
        return lambda old, b: fn(old, b)[0]
    if operation in ("min", "max") and TYPES[kind].kind in ("float", "packed"):
        meaning = lower(Instruction(operation, (kind,), (Name("d"), Name("a"), Name("b"))))
        if meaning is None:
            raise Unsupported(f"an atomic {operation} of .{kind}")
        fn = meaning.fn
        return lambda old, b: fn(old, b)[0]
    return _STEPS[operation]


@builds("atom", "red")
def atomic(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """Both; `red` gives no old value."""
    space, operation, kind, count = "generic", "", "", 1
    for part in instruction.modifiers:
        plain, _, rest = part.partition("::")
        if plain in ("global", "shared") and rest in ("", "cta", "cluster"):
            space = plain
        elif part in OPERATIONS:
            operation = part
        elif part in TYPES:
            kind = part
        elif part in ("v2", "v4", "v8"):
            count = int(part[1])
        elif part not in _HINTS and plain != "L2":
            raise Unsupported(f"modifier .{part}")
    if not operation or not kind or TYPES[kind].width == 128 or TYPES[kind].kind == "pred":
        raise Unsupported("this operation or type")
    operands = list(instruction.operands)
    writers = [None] * count
    if instruction.opcode == "atom":
        targets = elements(operands.pop(0), decoder.scope)
        writers = [writer(decoder, target, kind) for target in targets]
    space, where = addresses(decoder, operands.pop(0), space)
    used = 2 if operation == "cas" else 1
    sources = [
        [reader(decoder, each, kind) for each in elements(operand, decoder.scope)]
        for operand in operands[:used]
    ]
    if len(writers) != count or any(len(group) != count for group in sources):
        raise Unsupported("another number of elements than its vector has")
    step, site = step_of(operation, kind), op.site
    size = TYPES[kind].width // 8
    op.spins = WAITING

    def run(lanes: Lanes) -> None:
        start = where(lanes)
        if count > 1:
            resolve(space, lanes, start, size * count, site, write=True)
        for k, write in enumerate(writers):
            values = [np.ascontiguousarray(lanes.flat(whole(lanes, group[k](lanes)))) for group in sources]
            at = start + start.dtype.type(size * k) if k else start
            old = update(space, lanes, at, kind, operation, step, values, site, wanted=write is not None)
            if write is not None:
                write(lanes, lanes.spread(old), True)

    op.run = run
