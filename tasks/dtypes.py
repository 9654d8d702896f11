"""The table of element types, and the way between torch tensors and the bytes a kernel sees.

Invariant: `from_bytes(to_bytes(t), dtype, t.shape)` equals `t` bit for bit; all is little-endian, contiguous, row-major.
torch is imported when a tensor is first asked for, not with this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tasks.schema import DType

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What one element type is."""

    bytes: int
    torch: str
    """Attribute of the torch module."""
    eps: float
    """Distance from 1 to the next number; 0 for integers."""
    tiny: float
    """Smallest positive subnormal; 0 for integers."""
    ptx: tuple[str, ...]
    """PTX types that hold it, the natural one first."""


DTYPES: Mapping[DType, TypeFacts] = {
    DType.F16: TypeFacts(2, "float16", 2.0**-10, 2.0**-24, ("f16", "b16", "u16")),
    DType.BF16: TypeFacts(2, "bfloat16", 2.0**-7, 2.0**-133, ("bf16", "b16", "u16")),
    DType.F32: TypeFacts(4, "float32", 2.0**-23, 2.0**-149, ("f32", "b32")),
    DType.F64: TypeFacts(8, "float64", 2.0**-52, 2.0**-1074, ("f64", "b64")),
    DType.S8: TypeFacts(1, "int8", 0.0, 0.0, ("s8", "b8")),
    DType.U8: TypeFacts(1, "uint8", 0.0, 0.0, ("u8", "b8")),
    DType.S16: TypeFacts(2, "int16", 0.0, 0.0, ("s16", "b16")),
    DType.S32: TypeFacts(4, "int32", 0.0, 0.0, ("s32", "b32")),
    DType.U32: TypeFacts(4, "uint32", 0.0, 0.0, ("u32", "b32")),
    DType.S64: TypeFacts(8, "int64", 0.0, 0.0, ("s64", "b64")),
    DType.U64: TypeFacts(8, "uint64", 0.0, 0.0, ("u64", "b64")),
}


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype of an element type."""
    import torch

    found: torch.dtype = getattr(torch, DTYPES[dtype].torch)
    return found


def to_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """A tensor's elements as a 1-D uint8 array of its own (row-major, little-endian)."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().copy() if flat.numel() else np.zeros(0, np.uint8)


def from_bytes(data: npt.NDArray[np.uint8], dtype: DType, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of `dtype` and `shape` from bytes as `to_bytes` gives them. Raises ValueError when the sizes disagree."""
    import torch

    expected = int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype].bytes
    if data.size != expected:
        raise ValueError(f"expected {expected} bytes for {dtype.value}{list(shape)}, found {data.size}")
    if not expected:
        return torch.empty(tuple(shape), dtype=torch_dtype(dtype))
    raw = torch.from_numpy(np.ascontiguousarray(data).copy())
    return raw.view(torch_dtype(dtype)).reshape(tuple(shape))
