"""Instructions across the lanes of a warp: shfl, vote, match, redux, elect, activemask, movmatrix.

- A lane takes part when it is active and, where there is a membermask, named by the mask of the lane that
  asks; lanes of one warp may come with different masks at once.
- `shfl` from a lane that does not take part is undefined in PTX; here it reads that lane's register as it
  stands.
- `elect.sync` elects the lowest lane.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions", "Data Movement: shfl",
"movmatrix".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sandbox.emulator.semantics.extremes import pick_larger, pick_smaller
from sandbox.emulator.semantics.floating import NAN32
from sandbox.emulator.semantics.types import Array, Lowered, Lowering, Modifiers, dtype_of, join, split

_LANES = np.arange(32, dtype=np.int64)
_ALL = np.array([[0xFFFF_FFFF]], np.uint32)


def ballot(votes: Array) -> Array:
    """Bool [W, 32] as one mask a warp, uint32 [W, 1]."""
    return np.packbits(np.ascontiguousarray(votes), axis=-1, bitorder="little").view(np.uint32)


def _spread(value: Array, active: Array) -> Array:
    """The array over all lanes, also when it came as one value."""
    return np.broadcast_to(value, active.shape)


def _shfl(modifiers: Modifiers) -> Lowered | None:
    sync, mode = modifiers.has("sync"), modifiers.one_of("up", "down", "bfly", "idx")
    if not mode or not modifiers.type_in(frozenset({"b32"})):
        return None
    pair = modifiers.result_count == 2

    def shuffle(active: Array, a: Array, b: Array, c: Array, *_: Array) -> tuple[Array, ...]:
        by, control = b.astype(np.int64) & 31, c.astype(np.int64)
        segment, clamp = control >> 8 & 31, control & 31
        first = _LANES & segment
        last = first | (clamp & ~segment)
        if mode == "up":
            source = _LANES - by
            inside = source >= last
        else:
            source = {"down": lambda: _LANES + by, "bfly": lambda: _LANES ^ by}.get(
                mode, lambda: first | (by & ~segment)
            )()
            inside = source <= last
        source = np.where(inside, source, _LANES)
        values = _spread(a, active)
        if source.size == 32:  # the same pattern in every warp
            moved = np.take(values, source.reshape(32), axis=1)
        else:
            moved = np.take_along_axis(values, np.broadcast_to(source, active.shape), axis=1)
        return (moved, inside) if pair else (moved,)

    sources = ("b32", "b32", "b32", "b32") if sync else ("b32", "b32", "b32")
    return Lowered(sources, ("b32", "pred") if pair else ("b32",), shuffle, "warp")


def _vote(modifiers: Modifiers) -> Lowered | None:
    sync, mode = modifiers.has("sync"), modifiers.one_of("all", "any", "uni", "ballot")
    name = modifiers.type_in(frozenset({"b32" if mode == "ballot" else "pred"}))
    if not mode or not name:
        return None

    def vote(active: Array, a: Array, mask: Array = _ALL) -> tuple[Array, ...]:
        here, yes = ballot(active) & mask, ballot(np.logical_and(active, a)) & mask
        if mode == "ballot":
            return (yes,)
        if mode == "any":
            return (yes != 0,)
        return (yes == here if mode == "all" else (yes == here) | (yes == 0),)

    return Lowered(("pred", "b32") if sync else ("pred",), (name,), vote, "warp")


def _activemask(modifiers: Modifiers) -> Lowered | None:
    if not modifiers.type_in(frozenset({"b32"})):
        return None
    return Lowered((), ("b32",), lambda active: (ballot(active),), "warp")


def _match(modifiers: Modifiers) -> Lowered | None:
    sync, mode = modifiers.has("sync"), modifiers.one_of("any", "all")
    name, pair = modifiers.type_in(frozenset({"b32", "b64"})), modifiers.result_count == 2
    if not sync or not mode or not name or (pair and mode == "any"):
        return None

    def match(active: Array, a: Array, mask: Array) -> tuple[Array, ...]:
        values, here = _spread(a, active), ballot(active) & mask
        same = np.zeros(active.shape, np.uint32)
        for lane in range(32):
            same |= np.left_shift((values == values[:, lane : lane + 1]).astype(np.uint32), np.uint32(lane))
        same &= here
        if mode == "any":
            return (same,)
        agree = same == here
        result = np.where(agree, here, np.uint32(0))
        return (result, agree) if pair else (result,)

    return Lowered((name, "b32"), ("b32", "pred") if pair else ("b32",), match, "warp")


def _float_extreme(
    pick: Callable[[Array, Array], Array], absolute: bool, nan: bool
) -> Callable[[Array, Array], Array]:
    def reduce(values: Array, member: Array) -> Array:
        sized = np.abs(values) if absolute else values
        left = np.where(member, sized, NAN32)  # a NaN never wins, so it stands for "no lane"
        width = 16
        while width:
            left = pick(left[:, :width], left[:, width : 2 * width])
            width //= 2
        result = np.where(np.isnan(left), NAN32, left)
        if not nan:
            return result
        poisoned = (np.isnan(values) & member).any(axis=-1, keepdims=True)
        return np.where(poisoned, NAN32, result)

    return reduce


def _redux(modifiers: Modifiers) -> Lowered | None:
    sync, operation = modifiers.has("sync"), modifiers.one_of("add", "min", "max", "and", "or", "xor")
    absolute, nan = modifiers.has("abs"), modifiers.has("NaN")
    name = modifiers.type_in(frozenset({"u32", "s32", "b32", "f32"}))
    arithmetic, bitwise = operation in ("add", "min", "max"), operation in ("and", "or", "xor")
    if not sync or not name or (name == "b32") != bitwise or (name == "f32" and operation == "add"):
        return None
    if not (arithmetic or bitwise) or ((absolute or nan) and name != "f32"):
        return None
    dtype = dtype_of(name)
    reduce: Callable[[Array, Array], Array]
    if name == "f32":
        reduce = _float_extreme(pick_smaller if operation == "min" else pick_larger, absolute, nan)
    else:
        ufunc: Any = {
            "add": np.add, "min": np.minimum, "max": np.maximum,
            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        }[operation]  # fmt: skip
        info = np.iinfo(dtype)
        neutral = dtype.type({"min": info.max, "max": info.min, "and": info.max}.get(operation, 0))

        def whole(values: Array, member: Array) -> Array:
            return ufunc.reduce(np.where(member, values, neutral), axis=-1, keepdims=True, dtype=dtype)

        reduce = whole

    def across(active: Array, a: Array, mask: Array) -> tuple[Array, ...]:
        values, masks = _spread(a, active), _spread(mask, active)
        with np.errstate(all="ignore"):
            uniform = masks.min() == masks.max()
            distinct = masks[:1, 0] if uniform else np.unique(masks[active])
            result = np.zeros((active.shape[0], 1), dtype)
            for one in distinct:
                asking = masks == one
                named = (np.right_shift(one, _LANES.astype(np.uint32)) & np.uint32(1)).astype(bool)
                reduced = reduce(values, active & asking & named)
                result = reduced if len(distinct) == 1 else np.where(asking, reduced, result)
        return (result,)

    return Lowered((name, "b32"), (name,), across, "warp")


def _elect(modifiers: Modifiers) -> Lowered | None:
    if not modifiers.has("sync") or modifiers.result_count != 2:
        return None

    def elect(active: Array, mask: Array) -> tuple[Array, ...]:
        here = ballot(active) & mask
        lowest = np.bitwise_count((here & (~here + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
        return lowest, lowest == _LANES

    return Lowered(("b32",), ("b32", "pred"), elect, "warp")


def _movmatrix(modifiers: Modifiers) -> Lowered | None:
    wanted = ("sync", "aligned", "m8n8", "trans")
    if not all(modifiers.has(part) for part in wanted) or not modifiers.type_in(frozenset({"b16"})):
        return None
    half, word = np.dtype(np.uint16), np.dtype(np.uint32)

    def transpose(active: Array, a: Array) -> tuple[Array, ...]:
        matrix = split(_spread(a, active), half).reshape(-1, 8, 8)
        return (join(matrix.transpose(0, 2, 1).reshape(-1, 32, 2), word),)

    return Lowered(("b32",), ("b32",), transpose, "warp")


LOWERINGS: Mapping[str, Lowering] = {
    "shfl": _shfl,
    "vote": _vote,
    "activemask": _activemask,
    "match": _match,
    "redux": _redux,
    "elect": _elect,
    "movmatrix": _movmatrix,
}
