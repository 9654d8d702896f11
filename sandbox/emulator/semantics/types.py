"""PTX types as NumPy sees them, what a lowering is, and the small tools that every lowering shares.

Invariants
- A value of a PTX type is an array of the type's `dtype`; formats NumPy lacks (bf16, tf32, fp8, packed
  pairs) travel as unsigned integers of their width. b128 has a trailing axis of two uint64, low half first.
- A function of a `Lowered` never writes to its arguments, never warns, and returns arrays of its result
  types' dtypes.

Source: PTX ISA, "Fundamental Types", "Packed Data Types", "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sandbox.ptx.nodes import Instruction, Operand, Pair, Vector

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., tuple[Array, ...]]
Scope: TypeAlias = Literal["thread", "warp"]


@dataclass(frozen=True, slots=True)
class Type:
    """One PTX type."""

    name: str
    """Without dot, as in `s32`."""
    kind: Literal["pred", "unsigned", "signed", "bits", "float", "packed"]
    """`float` covers every scalar format with an exponent; `packed` holds several elements in one
    register."""
    width: int
    """Bits in a register; 1 for pred."""
    dtype: np.dtype[Any]
    """Of the arrays that carry it; b128 adds a trailing axis of 2."""
    element: str = ""
    """Type of the elements of a packed type, '' otherwise."""


def _table() -> dict[str, Type]:
    types = [Type("pred", "pred", 1, np.dtype(np.bool_)), Type("b128", "bits", 128, np.dtype(np.uint64))]
    for width in (8, 16, 32, 64):
        unsigned = np.dtype(f"uint{width}")
        types.append(Type(f"u{width}", "unsigned", width, unsigned))
        types.append(Type(f"s{width}", "signed", width, np.dtype(f"int{width}")))
        types.append(Type(f"b{width}", "bits", width, unsigned))
    types += [Type(f"f{width}", "float", width, np.dtype(f"float{width}")) for width in (16, 32, 64)]
    carried = {"bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 8, "ue8m0": 8}
    types += [Type(name, "float", width, np.dtype(f"uint{width}")) for name, width in carried.items()]
    packed = {
        "u16x2": 32, "s16x2": 32, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "u8x4": 32, "s8x4": 32,
        "e4m3x2": 16, "e5m2x2": 16, "e4m3x4": 32, "e5m2x4": 32, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16,
        "e2m1x4": 16, "e2m3x4": 32, "e3m2x4": 32, "ue8m0x2": 16,
    }  # fmt: skip
    for name, width in packed.items():
        types.append(Type(name, "packed", width, np.dtype(f"uint{width}"), name.rpartition("x")[0]))
    return {each.name: each for each in types}


TYPES: Mapping[str, Type] = _table()
"""Every type by name."""

INTEGERS = frozenset(f"{sign}{width}" for sign in "us" for width in (16, 32, 64))
"""Types of the integer arithmetic instructions."""


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of the arrays that carry type `name`."""
    return TYPES[name].dtype


@dataclass(frozen=True, slots=True)
class Lowered:
    """One register-to-register instruction with its modifiers read: what it takes, what it gives, and the
    function between."""

    sources: tuple[str, ...]
    """Type of each source operand in order; elements of a vector operand count singly."""
    results: tuple[str, ...]
    """Type of each destination in order; `p|q` gives two."""
    fn: Function
    """Arrays of shape [W, 32] (or broadcastable to it) in, a tuple of the same out. Warp scope takes the
    active mask first."""
    scope: Scope = "thread"
    """`warp` when a lane's result depends on other lanes; then inactive lanes' results mean nothing."""
    carry_in: bool = False
    """True when the last source is the condition code CC.CF, as uint32 0 or 1, which no operand names."""
    carry_out: bool = False
    """True when the last result is the new CC.CF."""


class Modifiers:
    """The dotted parts of an instruction that its lowering has not read yet; one left over means the form is
    not known."""

    def __init__(self, instruction: Instruction) -> None:
        self.left = list(instruction.modifiers)
        self.operands: tuple[Operand, ...] = instruction.operands

    def has(self, name: str) -> bool:
        """Take `name`; False when it is not there."""
        if name in self.left:
            self.left.remove(name)
            return True
        return False

    def one_of(self, *names: str, default: str = "") -> str:
        """Take the first part that is one of `names`; `default` when there is none."""
        for part in self.left:
            if part in names:
                self.left.remove(part)
                return part
        return default

    def types(self) -> tuple[str, ...]:
        """Take every part that names a type, in order."""
        taken = tuple(part for part in self.left if part in TYPES)
        self.left = [part for part in self.left if part not in TYPES]
        return taken

    def type_in(self, allowed: frozenset[str]) -> str:
        """Take the types when they are exactly one of `allowed`; '' otherwise."""
        types = self.types()
        return types[0] if len(types) == 1 and types[0] in allowed else ""

    @property
    def source_count(self) -> int:
        """Source operands, vectors counted by element."""
        return sum(count(operand) for operand in self.operands[1:])

    @property
    def result_count(self) -> int:
        """Destination operands, pairs and vectors counted by element."""
        return count(self.operands[0]) if self.operands else 0


Lowering: TypeAlias = Callable[[Modifiers], Lowered | None]


def count(operand: Operand) -> int:
    """How many values an operand stands for."""
    if isinstance(operand, Pair):
        return 2
    if isinstance(operand, Vector):
        return len(operand.elements)
    return 1


BLOCK = 1024
"""Warps that a function with many temporaries is given at a time, so that these stay in the cache."""


def quiet(fn: Function, block: int = BLOCK) -> Function:
    """`fn` with NumPy's floating-point warnings off, since what overflows or is invalid is PTX's business,
    block by block."""

    @wraps(fn)
    def silent(*arrays: Array) -> tuple[Array, ...]:
        warps = max((array.shape[0] for array in arrays if array.ndim), default=0)
        with np.errstate(all="ignore"):
            if warps < 2 * block:
                return fn(*arrays)
            wholes: list[Array] = []
            for start in range(0, warps, block):
                rows = slice(start, start + block)
                results = fn(
                    *(array[rows] if array.ndim and array.shape[0] > 1 else array for array in arrays)
                )
                if not wholes:
                    wholes = [
                        np.empty((warps, *(result.shape[1:] or (1,))), result.dtype) for result in results
                    ]
                for whole, result in zip(wholes, results, strict=True):
                    whole[rows] = result
            return tuple(wholes)

    return silent


def select(condition: Array, yes: Array, no: Array) -> Array:
    """`np.where` for values of one dtype, by masks instead of branches: faster when the condition is
    mixed."""
    a, b = bits_of(yes), bits_of(no)
    mask = np.multiply(condition, np.invert(b.dtype.type(0)))
    return np.bitwise_xor(b, np.bitwise_and(np.bitwise_xor(a, b), mask)).view(no.dtype)


def split(packed: Array, dtype: np.dtype[Any]) -> Array:
    """Elements of a packed register, lowest first, on a new last axis."""
    return np.ascontiguousarray(packed).reshape((*packed.shape, 1)).view(dtype)


def join(elements: Array, dtype: np.dtype[Any]) -> Array:
    """The inverse of `split`."""
    return np.ascontiguousarray(elements).view(dtype)[..., 0]


def bits_of(values: Array) -> Array:
    """The same bits as unsigned integers."""
    return np.asarray(values).view(np.dtype(f"uint{values.dtype.itemsize * 8}"))
