"""Seeded contents for a workload's input tensors.

Invariants
- A tensor is a function of (seed, its name, shape, dtype, `Inputs`) alone: the same on every machine and NumPy ≥ 2.0 (Philox).
- Tensors of one workload are independent of each other and of their order.
- Values are drawn in float64 and rounded to the element type; `integers` are exact in every type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tasks.dtypes import DTYPES, torch_dtype
from tasks.schema import DType, Inputs

if TYPE_CHECKING:
    import torch

Reals = npt.NDArray[np.float64]

INTEGER_LIMITS: Mapping[DType, tuple[int, int]] = {
    DType.S8: (-128, 127),
    DType.U8: (0, 255),
    DType.S16: (-(2**15), 2**15 - 1),
    DType.S32: (-(2**31), 2**31 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.S64: (-(2**63), 2**63 - 1),
    DType.U64: (0, 2**64 - 1),
}


def generator(seed: int, name: str) -> np.random.Generator:
    """The generator for one tensor: Philox, keyed by the seed (≥ 0) and the tensor's name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def _normal(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    return rng.normal(how.mean, how.std, shape)


def _uniform(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    return rng.uniform(how.low, how.high, shape)


def _integers(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    return rng.integers(int(how.low), int(how.high), shape, endpoint=True).astype(np.float64)


def _wide(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    signs = rng.choice([-1.0, 1.0], shape)
    return signs * np.exp2(rng.uniform(how.low, how.high, shape))


def _special(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    values = _normal(rng, shape, how)
    strange = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-140, -(2.0**-149), 2.0**127, -(2.0**127)])
    return np.where(rng.random(shape) < 0.2, rng.choice(strange, shape), values)


def _ramp(rng: np.random.Generator, shape: Sequence[int], how: Inputs) -> Reals:
    size = int(np.prod(shape, dtype=np.int64))
    return np.linspace(how.low, how.high, size, dtype=np.float64).reshape(shape) if size else np.zeros(shape)


KINDS: Mapping[str, Callable[[np.random.Generator, Sequence[int], Inputs], Reals]] = {
    "normal": _normal,
    "uniform": _uniform,
    "integers": _integers,
    "wide": _wide,
    "special": _special,
    "ramp": _ramp,
}


def make(name: str, shape: Sequence[int], dtype: DType, how: Inputs, seed: int) -> torch.Tensor:
    """One input tensor of `shape` and `dtype`. Integer types take any kind, rounded and clipped to their range."""
    import torch

    values = KINDS[how.kind](generator(seed, name), tuple(shape), how)
    if DTYPES[dtype].eps:
        return torch.from_numpy(np.asarray(values, np.float64)).to(torch_dtype(dtype))
    low, high = INTEGER_LIMITS[dtype]
    most = float(high) if int(float(high)) <= high else np.nextafter(float(high), 0.0)
    whole = np.asarray(np.clip(np.nan_to_num(np.rint(values)), low, most))
    return torch.from_numpy(whole.astype(np.uint64 if low == 0 else np.int64)).to(torch_dtype(dtype))
