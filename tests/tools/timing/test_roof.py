"""The roof: known chips, known kernels, and what it must let through."""

from __future__ import annotations

import pytest

from sandbox.cuda.wire import Gpu
from tasks.schema import DType
from tools.timing.roof import LAUNCH_MS, flops_per_ms, memory_bytes_per_ms, roof_ms

H200 = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-0",
    capability=(9, 0),
    driver="13.0",
    multiprocessors=132,
    memory_bytes=141 << 30,
    l2_bytes=60 << 20,
    shared_optin=232_448,
    clock_khz=1_980_000,
    memory_clock_khz=3_201_000,
    bus_bits=6144,
    pageable=False,
    start_seconds=0.4,
)


def test_peaks_are_those_of_the_data_sheet_or_a_little_above() -> None:
    assert memory_bytes_per_ms(H200) * 1e3 == pytest.approx(4.9e12, rel=0.01)  # data sheet: 4.8 TB/s
    assert flops_per_ms(H200, [DType.BF16]) * 1e3 == pytest.approx(
        1.07e15, rel=0.01
    )  # 989 TFLOP/s at 1.83 GHz
    assert flops_per_ms(H200, [DType.F64]) * 1e3 == pytest.approx(67e12, rel=0.01)


def test_the_fastest_honest_matrix_product_seen_is_under_the_roof() -> None:
    m, n, k = 8192, 7168, 5120
    moved = 2 * (m * k + n * k + m * n)
    work = {"flops": 2 * m * n * k, "moved": moved, "set_bytes": moved, "sets": 8, "window": 1}
    roof = roof_ms(H200, dtypes=[DType.BF16], **work)
    assert 0.4 < roof < 0.746  # cuBLAS on a cool card


def test_a_copy_at_the_speed_of_the_memory_is_honest_and_twice_that_is_not() -> None:
    moved = 8 * 58_720_256
    roof = roof_ms(H200, flops=0, moved=moved, dtypes=[DType.F32], set_bytes=moved, sets=4, window=2)
    assert moved / 4.8e9 > roof > moved / 2 / 4.8e9


def test_data_that_fits_the_cache_is_bounded_by_the_launch_alone() -> None:
    small = {"flops": 0, "moved": 1 << 20, "dtypes": [DType.F32], "set_bytes": 1 << 20, "window": 1}
    assert roof_ms(H200, sets=4, **small) == LAUNCH_MS  # type: ignore[arg-type]


def test_an_architecture_that_is_not_known_bounds_nothing_by_its_arithmetic() -> None:
    import dataclasses

    unknown = dataclasses.replace(H200, capability=(12, 0), memory_clock_khz=0)
    work = {
        "flops": 10**15,
        "moved": 10**12,
        "dtypes": [DType.F16],
        "set_bytes": 10**12,
        "sets": 2,
        "window": 1,
    }
    assert roof_ms(unknown, **work) == LAUNCH_MS  # type: ignore[arg-type]
