"""Logic and shifts: and, or, xor, not, cnot, lop3, shl, shr, shf, prmt.

Source: PTX ISA, "Logic and Shift Instructions", "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sandbox.emulator.semantics.types import TYPES, Array, Lowered, Lowering, Modifiers, dtype_of, quiet
from sandbox.ptx.nodes import Immediate

_BITS = frozenset({"b16", "b32", "b64"})
_SHIFTED = frozenset({*_BITS, "u16", "u32", "u64", "s16", "s32", "s64"})
BOOLEAN: Mapping[str, Callable[..., Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
"""How `.and`, `.or` and `.xor` join two predicates."""


def _bitwise(operation: Callable[..., Array]) -> Lowering:
    def lowering(modifiers: Modifiers) -> Lowered | None:
        name = modifiers.type_in(_BITS | {"pred"})
        return Lowered((name, name), (name,), lambda a, b: (operation(a, b),)) if name else None

    return lowering


def _not(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS | {"pred"})
    return Lowered((name,), (name,), lambda a: (np.invert(a),)) if name else None


def _cnot(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    return Lowered((name,), (name,), lambda a: (np.equal(a, 0).astype(a.dtype),)) if name else None


# The two-input functions f(b, c) by truth table: bit 2b + c is f(b, c). None stands for "all zeros".
_TWO: tuple[Callable[[Array, Array], Array] | None, ...] = (
    None,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: np.invert(np.zeros_like(b)),
)


def lop3(table: int) -> Callable[[Array, Array, Array], Array]:
    """The three-input function whose truth table is `table`: bit 4a + 2b + c is f(a, b, c)."""
    low, high = table & 15, table >> 4 & 15
    if low == 15 - high:  # f = a ^ g(b, c)
        invariant = _TWO[low]
        return (lambda a, b, c: a ^ invariant(b, c)) if invariant else (lambda a, b, c: a)
    without, with_a = _TWO[low], _TWO[high]
    if low == high:
        return lambda a, b, c: without(b, c) if without else np.zeros_like(a)
    if without is None:
        return lambda a, b, c: a & with_a(b, c) if with_a else np.zeros_like(a)
    if with_a is None:
        return lambda a, b, c: ~a & without(b, c)
    return lambda a, b, c: (a & with_a(b, c)) | (~a & without(b, c))


def _lop3(modifiers: Modifiers) -> Lowered | None:
    joined = modifiers.one_of("and", "or", "xor")
    name = modifiers.type_in(frozenset({"b32"}))
    if not name or len(modifiers.operands) < 5:
        return None
    table = modifiers.operands[4]
    if not isinstance(table, Immediate):
        return None
    function = lop3(table.value & 255)
    if not joined:
        return Lowered((name,) * 4, (name,), lambda a, b, c, _: (function(a, b, c),))
    join = BOOLEAN[joined]

    def with_predicate(a: Array, b: Array, c: Array, _: Array, q: Array) -> tuple[Array, ...]:
        value = function(a, b, c)
        return value, join(np.not_equal(value, 0), q)

    return Lowered((name,) * 4 + ("pred",), (name, "pred"), with_predicate)


def _shl(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_BITS)
    if not name:
        return None
    width, dtype = np.uint32(TYPES[name].width), dtype_of(name)

    def shift(a: Array, b: Array) -> tuple[Array, ...]:
        if b.size == 1:  # a count that is the same for all: the common case
            by = b.reshape(())
            return (np.left_shift(a, dtype.type(by)) if by < width else np.zeros_like(a),)
        return (np.multiply(np.left_shift(a, (b & (width - 1)).astype(dtype)), b < width),)

    return Lowered((name, "u32"), (name,), shift)


def _shr(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_SHIFTED)
    if not name:
        return None
    limit, dtype = np.uint32(TYPES[name].width - 1), dtype_of(name)
    if TYPES[name].kind == "signed":  # a count past the width leaves copies of the sign
        return Lowered(
            (name, "u32"), (name,), lambda a, b: (np.right_shift(a, np.minimum(b, limit).astype(dtype)),)
        )

    def shift(a: Array, b: Array) -> tuple[Array, ...]:
        if b.size == 1:
            by = b.reshape(())
            return (np.right_shift(a, dtype.type(by)) if by <= limit else np.zeros_like(a),)
        return (np.multiply(np.right_shift(a, (b & limit).astype(dtype)), b <= limit),)

    return Lowered((name, "u32"), (name,), shift)


def _shf(modifiers: Modifiers) -> Lowered | None:
    direction, mode = modifiers.one_of("l", "r"), modifiers.one_of("clamp", "wrap")
    name = modifiers.type_in(frozenset({"b32"}))
    if not (name and direction and mode):
        return None
    half = np.uint64(32)

    def shift(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        by = (np.minimum(c, np.uint32(32)) if mode == "clamp" else c & np.uint32(31)).astype(np.uint64)
        both = np.bitwise_or(np.left_shift(b.astype(np.uint64), half), a)
        moved = (
            np.right_shift(np.left_shift(both, by), half) if direction == "l" else np.right_shift(both, by)
        )
        return (moved.astype(np.uint32),)

    return Lowered(("b32", "b32", "u32"), ("b32",), shift)


# Byte indices by c & 3, for the modes that pick from a fixed pattern; result byte 0 first.
_PATTERNS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _permute_all(a: Array, b: Array, selector: int) -> Array:
    """prmt with one selector for all lanes."""
    result = np.zeros((), np.uint32)
    for place in range(4):
        nibble = selector >> 4 * place & 15
        source, shift = (b if nibble & 4 else a), 8 * (nibble & 3)
        byte = np.right_shift(source, np.uint32(shift)) & np.uint32(255)
        if nibble & 8:
            byte = np.multiply(np.right_shift(byte, np.uint32(7)), np.uint32(255))
        result = result | np.left_shift(byte, np.uint32(8 * place))
    return result


def _prmt(modifiers: Modifiers) -> Lowered | None:
    mode = modifiers.one_of(*_PATTERNS)
    name = modifiers.type_in(frozenset({"b32"}))
    if not name:
        return None
    pattern = None
    if mode:
        nibbles = [sum(byte << 4 * place for place, byte in enumerate(row)) for row in _PATTERNS[mode]]
        pattern = np.array(nibbles, dtype=np.uint32)

    def permute(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        selector = c if pattern is None else pattern[c & np.uint32(3)]
        if selector.size == 1:
            return (_permute_all(a, b, int(selector.reshape(()))),)
        both = np.bitwise_or(np.left_shift(b.astype(np.uint64), np.uint64(32)), a)
        result = np.zeros((), np.uint32)
        for place in range(4):
            nibble = np.right_shift(selector, np.uint32(4 * place)) & np.uint32(15)
            byte = np.right_shift(both, ((nibble & np.uint32(7)) << np.uint32(3)).astype(np.uint64)).astype(
                np.uint8
            )
            if np.any(nibble > 7):  # the high bit of a selector asks for eight copies of the byte's sign
                byte = np.where(
                    nibble > 7, np.right_shift(byte.view(np.int8), np.int8(7)).view(np.uint8), byte
                )
            result = result | np.left_shift(byte.astype(np.uint32), np.uint32(8 * place))
        return (result,)

    return Lowered(("b32",) * 3, ("b32",), quiet(permute))


LOWERINGS: Mapping[str, Lowering] = {
    "and": _bitwise(np.bitwise_and),
    "or": _bitwise(np.bitwise_or),
    "xor": _bitwise(np.bitwise_xor),
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shl": _shl,
    "shr": _shr,
    "shf": _shf,
    "prmt": _prmt,
}
