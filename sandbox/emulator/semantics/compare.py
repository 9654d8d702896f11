"""Comparison and selection: setp, set, selp, slct.

Floats compare ordered (`eq ne lt le gt ge`, false when either is NaN) or unordered (`equ neu ltu leu gtu
geu`, true then).

Source: PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sandbox.emulator.semantics import formats
from sandbox.emulator.semantics.floating import flush
from sandbox.emulator.semantics.logic import BOOLEAN
from sandbox.emulator.semantics.types import (
    TYPES,
    Array,
    Lowered,
    Lowering,
    Modifiers,
    dtype_of,
    join,
    select,
    split,
)
from sandbox.ptx.nodes import Pair

Test = Callable[[Array, Array], Array]

_WHOLE: Mapping[str, Test] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED: Mapping[str, Test] = {
    **_WHOLE, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_FLOAT: Mapping[str, Test] = {
    "eq": np.equal,
    "ne": lambda a, b: np.less(a, b) | np.greater(a, b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": lambda a, b: ~(np.less(a, b) | np.greater(a, b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~np.greater_equal(a, b),
    "leu": lambda a, b: ~np.greater(a, b),
    "gtu": lambda a, b: ~np.less_equal(a, b),
    "geu": lambda a, b: ~np.less(a, b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_TESTS: Mapping[str, Mapping[str, Test]] = {
    "unsigned": _UNSIGNED,
    "signed": _WHOLE,
    "bits": {"eq": np.equal, "ne": np.not_equal},
    "float": _FLOAT,
}
_NAMES = tuple({**_UNSIGNED, **_FLOAT})
_SELECTED = frozenset({f"{kind}{width}" for kind in "bus" for width in (16, 32, 64)} | {"f32", "f64"})


def _test(name: str, comparison: str, ftz: bool) -> Test | None:
    """The comparison of two values of scalar type `name`."""
    test = _TESTS.get(TYPES[name].kind, {}).get(comparison)
    if test is None or (ftz and name == "f64"):
        return None
    if name == "f32":
        return (lambda a, b: test(flush(a), flush(b))) if ftz else test
    if name in ("f16", "bf16"):
        widen = formats.HALVES[name].widen
        if ftz:
            tiny = formats.HALVES[name].tiny

            def level(a: Array) -> Array:
                wide = widen(a)
                return np.where(np.abs(wide) < tiny, np.float32(0), wide)

            return lambda a, b: test(level(a), level(b))
        return lambda a, b: test(widen(a), widen(b))
    return None if ftz else test


def _read(modifiers: Modifiers) -> tuple[str, str, bool]:
    return modifiers.one_of(*_NAMES), modifiers.one_of(*BOOLEAN), modifiers.has("ftz")


def _setp(modifiers: Modifiers) -> Lowered | None:
    comparison, joined, ftz = _read(modifiers)
    types = modifiers.types()
    if len(types) != 1:
        return None
    name = types[0]
    packed = name in ("f16x2", "bf16x2")
    test = _test(TYPES[name].element if packed else name, comparison, ftz)
    if test is None:
        return None
    pair = bool(modifiers.operands) and isinstance(modifiers.operands[0], Pair)
    join_with = BOOLEAN[joined] if joined else None
    sources = (name, name, "pred") if joined else (name, name)
    if packed:
        half = dtype_of(TYPES[name].element)

        def halves(a: Array, b: Array, *c: Array) -> tuple[Array, ...]:
            both = test(split(a, half), split(b, half))
            low, high = both[..., 0], both[..., 1]
            return (join_with(low, *c), join_with(high, *c)) if join_with else (low, high)

        return Lowered(sources, ("pred", "pred"), halves) if pair else None
    if join_with is None:
        if not pair:
            return Lowered(sources, ("pred",), lambda a, b: (test(a, b),))

        def twofold(a: Array, b: Array) -> tuple[Array, ...]:
            holds = test(a, b)
            return holds, np.logical_not(holds)

        return Lowered(sources, ("pred", "pred"), twofold)
    if not pair:
        return Lowered(sources, ("pred",), lambda a, b, c: (join_with(test(a, b), c),))

    def twofold_joined(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        holds = test(a, b)
        return join_with(holds, c), join_with(np.logical_not(holds), c)

    return Lowered(sources, ("pred", "pred"), twofold_joined)


def _true_of(name: str) -> np.ndarray[Any, Any] | None:
    """What `set` writes for true: 1.0 in a float type, all ones in an integer one."""
    if name in ("f16", "bf16"):
        return formats.HALVES[name].one
    if name == "f32":
        return np.array(1.0, np.float32)
    if name in ("u32", "s32", "u16", "s16"):
        return np.array(-1, np.int64).astype(dtype_of(name))
    return None


def _set(modifiers: Modifiers) -> Lowered | None:
    comparison, joined, ftz = _read(modifiers)
    types = modifiers.types()
    if len(types) != 2:
        return None
    result, source = types
    packed = source in ("f16x2", "bf16x2")
    test = _test(TYPES[source].element if packed else source, comparison, ftz)
    if packed:
        element = TYPES[result].element if TYPES[result].kind == "packed" else "u16"
        if result not in (source, "u32", "s32"):
            return None
    else:
        element = result
    true = _true_of(element)
    if test is None or true is None:
        return None
    false, join_with = np.zeros((), true.dtype), BOOLEAN[joined] if joined else None
    half = dtype_of(TYPES[source].element) if packed else None

    def setting(a: Array, b: Array, *c: Array) -> tuple[Array, ...]:
        if half is not None:
            a, b = split(a, half), split(b, half)
            c = tuple(np.asarray(each)[..., None] for each in c)
        holds = test(a, b)
        value = np.where(join_with(holds, *c) if join_with else holds, true, false)
        return (join(value, dtype_of(result)) if half is not None else value,)

    return Lowered((source, source, "pred") if joined else (source, source), (result,), setting)


def _selp(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_SELECTED)
    return Lowered((name, name, "pred"), (name,), lambda a, b, c: (select(c, a, b),)) if name else None


def _slct(modifiers: Modifiers) -> Lowered | None:
    """a where c ≥ 0, else b; a NaN is not ≥ 0, and −0 is."""
    ftz, types = modifiers.has("ftz"), modifiers.types()
    if (
        len(types) != 2
        or types[0] not in _SELECTED
        or types[1] not in ("s32", "f32")
        or (ftz and types[1] != "f32")
    ):
        return None
    zero = dtype_of(types[1]).type(0)

    def select(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return (np.where(np.greater_equal(flush(c) if ftz else c, zero), a, b),)

    return Lowered((types[0], *types), (types[0],), select)


LOWERINGS: Mapping[str, Lowering] = {"setp": _setp, "set": _set, "selp": _selp, "slct": _slct}
