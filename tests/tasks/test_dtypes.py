"""The table of types against torch itself, and the way to bytes and back, bit for bit."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.dtypes import DTYPES, from_bytes, to_bytes, torch_dtype
from tasks.schema import DType

ALL = list(DType)
FLOATS = [dtype for dtype in ALL if DTYPES[dtype].eps]


def test_the_table_holds_every_type() -> None:
    assert set(DTYPES) == set(DType)


@pytest.mark.parametrize("dtype", ALL)
def test_the_table_says_what_torch_says(dtype: DType) -> None:
    facts, real = DTYPES[dtype], torch_dtype(dtype)
    assert facts.bytes == real.itemsize
    assert facts.ptx[0] == dtype.value
    assert all(int(name.lstrip("fbsu")) == 8 * facts.bytes for name in facts.ptx)
    assert (facts.eps == 0) == (not real.is_floating_point)
    if facts.eps:
        info = torch.finfo(real)
        assert (facts.eps, facts.tiny) == (info.eps, info.smallest_normal * info.eps)
    else:
        assert facts.tiny == 0
        assert (torch.iinfo(real).min == 0) == dtype.value.startswith("u")


@settings(deadline=None, max_examples=60)
@given(data=st.binary(min_size=0, max_size=96), dtype=st.sampled_from(ALL))
def test_any_bytes_survive_the_round_trip(data: bytes, dtype: DType) -> None:
    """NaN payloads, negative zeros and subnormals included."""
    count = len(data) // DTYPES[dtype].bytes
    raw = np.frombuffer(data[: count * DTYPES[dtype].bytes], np.uint8)
    tensor = from_bytes(raw, dtype, (count,))
    assert tensor.dtype == torch_dtype(dtype)
    assert to_bytes(tensor).tobytes() == raw.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ALL)
def test_shapes_survive(dtype: DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape, dtype=np.int64))
    tensor = torch.arange(count).to(torch_dtype(dtype)).reshape(shape)
    raw = to_bytes(tensor)
    assert (raw.dtype, raw.shape) == (np.dtype(np.uint8), (count * DTYPES[dtype].bytes,))
    back = from_bytes(raw, dtype, shape)
    assert back.shape == tensor.shape
    assert torch.equal(back.to(torch.float64), tensor.to(torch.float64))


def test_bytes_are_row_major_and_little_endian() -> None:
    assert sys.byteorder == "little"
    tensor = torch.tensor([[1, 2], [258, 4]], dtype=torch.int16)
    assert to_bytes(tensor).tobytes() == bytes([1, 0, 2, 0, 2, 1, 4, 0])
    assert to_bytes(tensor.t()).tobytes() == bytes([1, 0, 2, 1, 2, 0, 4, 0])


def test_neither_side_shares_memory_with_the_other() -> None:
    tensor = torch.tensor([1.0, 2.0])
    raw = to_bytes(tensor)
    back = from_bytes(raw, DType.F32, (2,))
    raw[:] = 0
    assert tensor.tolist() == back.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("size", "shape"), [(7, (2,)), (12, (2,)), (0, (1,)), (4, (0,)), (4, (2, 2))])
def test_a_wrong_number_of_bytes_is_refused(size: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=rf"expected {4 * np.prod(shape, dtype=int)} bytes for f32.*found {size}"
    ):
        from_bytes(np.zeros(size, np.uint8), DType.F32, shape)
