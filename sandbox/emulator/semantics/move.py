"""mov: between registers, and packing and unpacking of vectors.

A vector `{a, b, …}` stands for its elements from the least significant on.

Source: PTX ISA, "Data Movement and Conversion Instructions: mov".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sandbox.emulator.semantics.types import TYPES, Array, Lowered, Lowering, Modifiers, dtype_of
from sandbox.ptx.nodes import Operand, Vector

_MOVED = frozenset(
    {"pred", "b128", "f16", "bf16", "f32", "f64"}
    | {f"{kind}{width}" for kind in "bus" for width in (8, 16, 32, 64)}
)


def _element_type(name: str, vector: Vector) -> str:
    width, over = divmod(TYPES[name].width, len(vector.elements))
    return f"b{width}" if not over and f"b{width}" in TYPES and width >= 8 else ""


def _unpack(name: str, element: str, parts: int) -> Lowered:
    small, whole = dtype_of(element), dtype_of(name)
    width = TYPES[element].width
    if name == "b128":

        def halves(a: Array) -> tuple[Array, ...]:
            flat = np.ascontiguousarray(a).view(small)
            return tuple(flat[..., place] for place in range(parts))

        return Lowered((name,), (element,) * parts, halves)
    unsigned = np.dtype(f"uint{whole.itemsize * 8}")

    def pieces(a: Array) -> tuple[Array, ...]:
        bits = a.view(unsigned)
        return tuple(
            np.right_shift(bits, unsigned.type(width * place)).astype(small) for place in range(parts)
        )

    return Lowered((name,), (element,) * parts, pieces)


def _pack(name: str, element: str, parts: int) -> Lowered:
    small, whole = dtype_of(element), dtype_of(name)

    def together(*pieces: Array) -> tuple[Array, ...]:
        shaped = np.broadcast_arrays(*pieces)
        both = np.empty((*shaped[0].shape, parts), small)
        for place, piece in enumerate(shaped):
            both[..., place] = piece
        value = both.view(whole)
        return (value if name == "b128" else value[..., 0],)

    return Lowered((element,) * parts, (name,), together)


def _mov(modifiers: Modifiers) -> Lowered | None:
    name = modifiers.type_in(_MOVED)
    if not name or len(modifiers.operands) != 2:
        return None
    result: Operand
    result, source = modifiers.operands
    for vector, lowered in ((result, _unpack), (source, _pack)):
        if isinstance(vector, Vector):
            element = _element_type(name, vector)
            return lowered(name, element, len(vector.elements)) if element else None
    return Lowered((name,), (name,), lambda a: (a,))


LOWERINGS: Mapping[str, Lowering] = {"mov": _mov}
