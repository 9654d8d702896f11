"""What the tests of instruction semantics share: instructions from text, exact rounding, and values worth
trying."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from sandbox.emulator.semantics import TYPES, Array, Lowered, lower
from sandbox.ptx.nodes import Immediate, Instruction, Name, Operand, Pair, Vector


def _operand(text: str) -> Operand:
    if text.startswith("{"):
        return Vector(tuple(_operand(part.strip()) for part in text[1:-1].split(",")))
    if "|" in text:
        first, second = text.split("|")
        return Pair(Name(first), Name(second))
    if re.fullmatch(r"-?\d.*", text):
        return Immediate(int(text, 0), "int")
    return Name(text)


def instruction(text: str) -> Instruction:
    """The syntax tree of one instruction; only the operand forms that these tests use."""
    head, _, rest = text.partition(" ")
    opcode, *modifiers = head.split(".")
    return Instruction(opcode, tuple(modifiers), tuple(map(_operand, re.findall(r"\{[^}]*\}|[^,\s]+", rest))))


def lowered(text: str) -> Lowered:
    """The lowering of an instruction that must have one."""
    found = lower(instruction(text))
    assert found is not None, f"no lowering for {text}"
    return found


def array(values: Any, name: str) -> Array:
    """Values as one row of the dtype of PTX type `name`; a Python int outside the range wraps."""
    dtype = TYPES[name].dtype
    if isinstance(values, np.ndarray):
        assert values.dtype == dtype, (values.dtype, name)
        return values
    if dtype.kind in "ui":
        mask = (1 << dtype.itemsize * 8) - 1
        return np.array([[int(value) & mask for value in values]], f"u{dtype.itemsize}").view(dtype)
    return np.array([values], dtype)


def run(text: str, *sources: Any) -> list[Array]:
    """Results of a thread-scope instruction, each flattened to one dimension."""
    form = lowered(text)
    assert form.scope == "thread"
    assert len(sources) == len(form.sources), f"{text} takes {form.sources}"
    arrays = [array(values, name) for values, name in zip(sources, form.sources, strict=True)]
    return [np.asarray(result).reshape(-1) for result in form.fn(*arrays)]


def one(text: str, *sources: Any) -> list[Any]:
    """The single result of a thread-scope instruction as Python values."""
    (result,) = run(text, *sources)
    return result.tolist()


def round_exact(value: Fraction, digits: int, lowest: int, highest: int, direction: str) -> float:
    """`value` in the binary format of `digits` bits with normal exponents `lowest`..`highest`, by integer
    arithmetic alone."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, lowest) - digits + 1)
    scaled = value / unit
    below = math.floor(scaled)
    if direction == "rn":
        whole = round(scaled)
    elif direction == "rna":
        whole = (-1 if value < 0 else 1) * math.floor(abs(scaled) + Fraction(1, 2))
    elif direction == "rz":
        whole = math.trunc(scaled)
    else:
        whole = below if direction == "rm" else math.ceil(scaled)
    result = whole * unit
    largest = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** highest
    if abs(result) > largest:
        kept = direction == "rz" or (direction == "rm" and value > 0) or (direction == "rp" and value < 0)
        return (-1 if value < 0 else 1) * (float(largest) if kept else math.inf)
    return math.copysign(float(result), -1 if value < 0 else 1)


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
"""Digits, lowest and highest normal exponent, for `round_exact`."""


def same(found: float, wanted: float) -> bool:
    """Equal values, the sign of zero too; any NaN equals any NaN."""
    if math.isnan(wanted):
        return math.isnan(found)
    return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)


def brain(codes: Array) -> Array:
    """bf16 codes as f32, written anew here."""
    return np.frombuffer(np.stack([np.zeros_like(codes), codes], -1).tobytes(), np.float32).reshape(
        codes.shape
    )


def singles(seed: int, count: int) -> Array:
    """f32 values: special ones, then random bit patterns, small integers and neighbours of powers of two."""
    rng = np.random.default_rng(seed)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45,
         1.1754942e-38, 1.17549435e-38, -1.17549435e-38, 3.4028235e38, -3.4028235e38,
         1 + 2.0**-23, 1 - 2.0**-24, 65504, 65520, 448, 464],
        np.float32,
    )  # fmt: skip
    bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    whole = rng.integers(-40, 40, count).astype(np.float32)
    near = np.ldexp(1 + rng.integers(-4, 5, count) * 2.0**-23, rng.integers(-40, 40, count)).astype(
        np.float32
    )
    pool = np.concatenate([bits, whole, near])
    return np.concatenate([special, rng.choice(pool, max(0, count - len(special)))])[:count]


def doubles(seed: int, count: int) -> Array:
    """f64 values of the same kinds."""
    rng = np.random.default_rng(seed)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324,
         2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308,
         1 + 2.0**-52, 1 - 2.0**-53, 2.0**31, -(2.0**31), 2.0**63, 2.0**64]
    )  # fmt: skip
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    whole = rng.integers(-40, 40, count).astype(np.float64)
    near = np.ldexp(1 + rng.integers(-4, 5, count) * 2.0**-52, rng.integers(-60, 60, count))
    pool = np.concatenate([bits, whole, near])
    return np.concatenate([special, rng.choice(pool, max(0, count - len(special)))])[:count]


def integers(seed: int, count: int, name: str) -> list[int]:
    """Values of an integer type: the edges, then random ones of every size."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(TYPES[name].dtype)
    low, high = int(info.min), int(info.max)
    edges = [
        0,
        1,
        2,
        3,
        low,
        low + 1,
        high,
        high - 1,
        high // 2,
        high // 2 + 1,
        5,
        7,
        max(low, -1),
        max(low, -7),
    ]
    out = list(edges)
    while len(out) < count:
        size = int(rng.integers(1, info.bits + 1))
        value = int.from_bytes(rng.bytes(8), "little") >> (64 - size)
        value = -value if low < 0 and rng.integers(2) else value
        out.append((value - low) % (high - low + 1) + low)
    return out[:count]


def wrap(value: int, name: str) -> int:
    """A Python int reduced to the range of an integer type."""
    width = TYPES[name].width
    value &= (1 << width) - 1
    return value - (1 << width) if TYPES[name].kind == "signed" and value >> (width - 1) else value
