"""Operands made into closures: readers give an array [W, 32] (or 0-d for what is the same for all), writers
set a register.

Widths follow the ISA's relaxed rules: a source narrower than its register takes the low bits; a result
narrower than its register is extended, with its sign for signed types, with zeros for the others.

Source: PTX ISA, "Operand Size Exceeding Instruction-Type Size".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sandbox.emulator import special
from sandbox.emulator.lanes import WIDTHS, Array, Lanes
from sandbox.emulator.names import COMPONENTS, Names, Place, Slot
from sandbox.emulator.semantics.types import TYPES, Type
from sandbox.ptx.nodes import Address, Immediate, Name, Negative, Not, Offset, Operand, Pair, Vector
from tasks.errors import CannotJudge

if TYPE_CHECKING:
    from sandbox.emulator.decode import Decoder

Reader: TypeAlias = Callable[[Lanes], Array]
Writer: TypeAlias = Callable[[Lanes, Array, bool], None]


class Unsupported(Exception):
    """The instruction being decoded has a form the machine does not know."""


def constant(value: Immediate, kind: Type) -> Array:
    """An immediate as a 0-d array of a type."""
    if kind.kind == "pred":
        return np.array(value.value != 0)
    if value.kind == "int":
        if kind.width == 128:
            return np.array([value.value & (2**64 - 1), (value.value >> 64) & (2**64 - 1)], np.uint64)
        if kind.kind == "float" and kind.dtype.kind == "f":
            return np.array(value.value, np.float64).astype(kind.dtype)
        raw = np.array(value.value & ((1 << kind.width) - 1), np.dtype(f"u{kind.width // 8}"))
        return raw.view(kind.dtype)
    bits = np.array(value.value, np.uint32 if value.kind == "f32" else np.uint64)
    if kind.dtype.kind != "f":
        if bits.itemsize * 8 == kind.width:
            return bits.view(kind.dtype)
        if value.kind == "f64" and kind.width == 32:
            return bits.view(np.float64).astype(np.float32).view(np.uint32).view(kind.dtype)
        raise Unsupported(f"a floating-point literal as .{kind.name}")
    with np.errstate(all="ignore"):
        return bits.view(np.float32 if value.kind == "f32" else np.float64).astype(kind.dtype)


def elements(operand: Operand, scope: Names) -> list[Operand]:
    """An operand as the scalars it stands for: vectors and vector registers by element, pairs as two."""
    if isinstance(operand, Vector):
        return [each for part in operand.elements for each in elements(part, scope)]
    if isinstance(operand, Pair):
        return [operand.first, operand.second]
    if isinstance(operand, Name) and not operand.component:
        found = scope.find(operand.text)
        if isinstance(found, tuple):
            return [Name(operand.text, COMPONENTS[k], operand.span) for k in range(len(found))]
    return [operand]


def register_of(operand: Operand, scope: Names) -> Slot | None:
    """The register an operand names."""
    if not isinstance(operand, Name):
        return None
    found = scope.find(operand.text)
    if isinstance(found, Slot) and not operand.component:
        return found
    if isinstance(found, tuple) and operand.component[:1] in ("x", "y", "z", "w", "r", "g", "b", "a"):
        place = ("xyzw" if operand.component in "xyzw" else "rgba").index(operand.component)
        return found[place] if place < len(found) else None
    return None


def as_type(kind: Type, bits: int) -> Callable[[Array], Array]:
    """From a register's own array to one of a type."""
    dtype = kind.dtype
    if kind.width == bits:
        return (lambda a: a) if WIDTHS.get(bits) == dtype or bits == 128 else (lambda a: a.view(dtype))
    if kind.kind == "pred" or bits == 1 or 128 in (bits, kind.width):
        raise Unsupported(f"a register of {bits} bits as .{kind.name}")
    unsigned = np.dtype(f"u{kind.width // 8}")
    return lambda a: a.astype(unsigned).view(dtype)


def from_type(kind: Type, bits: int) -> Callable[[Array], Array]:
    """From an array of a type to a register's own; the result is fresh unless the widths agree."""
    if kind.width == bits:
        own = WIDTHS.get(bits, np.dtype(np.uint64))
        return (lambda a: a) if own == kind.dtype else (lambda a: a.view(own))
    if kind.kind == "pred" or bits == 1 or 128 in (bits, kind.width):
        raise Unsupported(f".{kind.name} into a register of {bits} bits")
    if kind.kind == "signed":
        signed, own = np.dtype(f"i{bits // 8}"), WIDTHS[bits]
        return lambda a: a.astype(signed).view(own)
    unsigned, own = np.dtype(f"u{kind.width // 8}"), WIDTHS[bits]
    return lambda a: a.view(unsigned).astype(own)


def reader(decoder: Decoder, operand: Operand, type_name: str) -> Reader:
    """A closure that reads one scalar source operand as a type."""
    kind = TYPES[type_name]
    if isinstance(operand, Immediate):
        value = constant(operand, kind)
        return lambda lanes: value
    if isinstance(operand, Not):
        inner = reader(decoder, operand.operand, type_name)
        return lambda lanes: ~inner(lanes)
    if isinstance(operand, Negative):
        inner = reader(decoder, operand.operand, type_name)
        if kind.kind not in ("float", "signed", "unsigned", "bits") or (
            kind.kind == "float" and kind.dtype.kind != "f"
        ):
            raise Unsupported(f"a negated operand of type .{type_name}")
        return lambda lanes: -inner(lanes)
    if isinstance(operand, Name):
        found = register_of(operand, decoder.scope)
        if found is not None:
            decoder.reads(found)
            return _register_reader(found, kind)
        if operand.text == "WARP_SZ":
            size = np.array(32).astype(kind.dtype)
            return lambda lanes: size
        value = special.reader(operand)
        if value is not None:
            width, get = value
            if width == kind.width:
                dtype = kind.dtype
                return lambda lanes: get(lanes).view(dtype)
            unsigned = np.dtype(f"u{kind.width // 8}")
            return lambda lanes: get(lanes).astype(unsigned).view(kind.dtype)
    if isinstance(operand, (Name, Offset)):
        address = decoder.address_constant(operand)
        if address is not None:
            value = np.array(address & ((1 << kind.width) - 1), np.dtype(f"u{kind.width // 8}")).view(
                kind.dtype
            )
            return lambda lanes: value
    raise Unsupported(f"operand {describe(operand)}")


def _register_reader(found: Slot, kind: Type) -> Reader:
    index = found.index
    if kind.width == found.bits and WIDTHS.get(found.bits) == kind.dtype:
        return lambda lanes: lanes.read(index)
    convert = as_type(kind, found.bits)
    return lambda lanes: convert(lanes.read(index))


def writer(decoder: Decoder, operand: Operand, type_name: str) -> Writer | None:
    """A closure that sets one scalar destination in the active lanes; None for the sink `_`.

    Called with an array of the type's dtype, [W, 32] or broadcastable to it, and whether nobody else holds
    that array.
    """
    if isinstance(operand, Name) and operand.text == "_":
        return None
    found = register_of(operand, decoder.scope)
    if found is None:
        raise Unsupported(f"destination {describe(operand)}")
    decoder.writes(found)
    kind = TYPES[type_name]
    convert = from_type(kind, found.bits)
    fresh = kind.width != found.bits
    index, wide = found.index, found.bits == 128

    def write(lanes: Lanes, value: Array, owned: bool) -> None:
        shape = (lanes.w, 32, 2) if wide else (lanes.w, 32)
        if value.shape != shape:
            value, owned = np.array(np.broadcast_to(value, shape)), True
        elif not value.flags.c_contiguous:
            value, owned = np.ascontiguousarray(value), True
        lanes.write(index, convert(value), owned or fresh)

    return write


def width_of(decoder: Decoder, operand: Operand) -> int:
    """Bits of the register an operand names; 64 for anything else."""
    found = register_of(operand, decoder.scope)
    return found.bits if found is not None else 64


def whole(lanes: Lanes, value: Array) -> Array:
    """An array [W, 32] from one that may be 0-d."""
    return value if value.shape[:2] == (lanes.w, 32) else np.broadcast_to(value, (lanes.w, 32))


def addresses(decoder: Decoder, operand: Operand, space: str) -> tuple[str, Callable[[Lanes], Array]]:
    """(state space, closure giving each active lane's address, flat).

    A named variable brings its own space; for generic accesses to one, its address in the generic window is
    used.
    """
    if not isinstance(operand, Address):
        raise Unsupported(f"address {describe(operand)}")
    base, offset = operand.base, operand.offset
    if operand.rest:
        raise Unsupported("a tensor address")
    if isinstance(base, Immediate):
        fixed = np.uint64((base.value + offset) & (2**64 - 1))
        return space, lambda lanes: np.full(lanes.n, fixed)
    found = register_of(base, decoder.scope)
    if found is not None:
        decoder.reads(found)
        index, bits = found.index, found.bits
        if bits not in (32, 64):
            raise Unsupported(f"an address in a register of {bits} bits")
        if not offset:
            return space, lambda lanes: lanes.flat(lanes.read(index))
        step = WIDTHS[bits].type(offset & ((1 << bits) - 1))
        return space, lambda lanes: lanes.flat(lanes.read(index)) + step
    meaning = decoder.scope.find(base.text)
    if isinstance(meaning, Place):
        if space == "generic":
            space = meaning.space
        elif space != meaning.space and not (space == "param" and meaning.space == "local"):
            raise Unsupported(f".{space} access to {base.text}, which is .{meaning.space}")
        where = np.uint64((meaning.base + offset) & (2**64 - 1))
        if meaning.space == "local":
            return "local", lambda lanes: np.full(lanes.n, where + np.uint64(lanes.frame.local_base))
        return space, lambda lanes: np.full(lanes.n, where)
    raise Unsupported(f"address [{base.text}]")


def describe(operand: Any) -> str:
    """An operand in words for a message."""
    if isinstance(operand, Name):
        return operand.text + (f".{operand.component}" if operand.component else "")
    return type(operand).__name__.lower()


__all__ = [
    "CannotJudge",
    "Reader",
    "Unsupported",
    "Writer",
    "addresses",
    "constant",
    "describe",
    "elements",
    "reader",
    "register_of",
    "whole",
    "width_of",
    "writer",
]
