"""Extended-precision integer arithmetic over the condition code: add.cc, addc, sub.cc, subc, mad.cc, madc.

The condition code CC.CF is a uint32 of 0 or 1: the last source where the instruction reads it, the last
result where it writes it. After a subtraction it holds the borrow.

Source: PTX ISA, "Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sandbox.emulator.semantics.integer import multiply
from sandbox.emulator.semantics.types import Array, Lowered, Lowering, Modifiers, bits_of

_TYPES = frozenset({"u32", "s32", "u64", "s64"})


def _add(a: Array, b: Array, carry: Array | None) -> tuple[Array, Array]:
    """The sum and whether it carried out of the top bit."""
    ua, ub = bits_of(a), bits_of(b)
    total = np.add(ua, ub)
    out = total < ua
    if carry is not None:
        more = np.add(total, carry.astype(ua.dtype))
        out, total = out | (more < total), more
    return np.asarray(total).view(a.dtype), np.asarray(out).astype(np.uint32)


def _subtract(a: Array, b: Array, borrow: Array | None) -> tuple[Array, Array]:
    """The difference and whether it borrowed."""
    ua, ub = bits_of(a), bits_of(b)
    total = np.subtract(ua, ub)
    out = ua < ub
    if borrow is not None:
        more = np.subtract(total, borrow.astype(ua.dtype))
        out, total = out | (more > total), more
    return np.asarray(total).view(a.dtype), np.asarray(out).astype(np.uint32)


def _additive(subtract: bool, carry_in: bool) -> Lowering:
    step = _subtract if subtract else _add

    def lowering(modifiers: Modifiers) -> Lowered | None:
        carry_out, name = modifiers.has("cc"), modifiers.type_in(_TYPES)
        if not name or not (carry_in or carry_out):
            return None
        results = 2 if carry_out else 1

        def fn(a: Array, b: Array, *carry: Array) -> tuple[Array, ...]:
            return step(a, b, carry[0] if carry_in else None)[:results]

        sources = (name, name, "u32") if carry_in else (name, name)
        return Lowered(sources, (name, "u32")[:results], fn, carry_in=carry_in, carry_out=carry_out)

    return lowering


def _mad(carry_in: bool) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        kind, carry_out = modifiers.one_of("lo", "hi"), modifiers.has("cc")
        name = modifiers.type_in(_TYPES)
        if not name or not kind or not (carry_in or carry_out):
            return None
        results = 2 if carry_out else 1

        def fn(a: Array, b: Array, c: Array, *carry: Array) -> tuple[Array, ...]:
            return _add(multiply(kind, a, b), c, carry[0] if carry_in else None)[:results]

        sources = (name, name, name, "u32") if carry_in else (name, name, name)
        return Lowered(sources, (name, "u32")[:results], fn, carry_in=carry_in, carry_out=carry_out)

    return lowering


LOWERINGS: Mapping[str, Lowering] = {
    "add": _additive(subtract=False, carry_in=False),
    "addc": _additive(subtract=False, carry_in=True),
    "sub": _additive(subtract=True, carry_in=False),
    "subc": _additive(subtract=True, carry_in=True),
    "mad": _mad(carry_in=False),
    "madc": _mad(carry_in=True),
}
