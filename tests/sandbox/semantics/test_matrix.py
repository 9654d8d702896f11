"""mma.sync against a plain matrix product, with fragments laid out element by element as the ISA's figures
list them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sandbox.emulator.semantics import Array, lower
from tests.sandbox.semantics.support import brain, instruction, lowered

WARPS = 3
LANES = np.ones((WARPS, 32), bool)
Place = Callable[[int, int], tuple[int, int]]


def mma(shape: str, types: str, counts: tuple[int, int, int, int], extra: str = "") -> str:
    """The text of an mma whose D, A, B, C vectors have `counts` registers."""
    vectors = ", ".join(
        "{" + ", ".join(f"%{letter}{i}" for i in range(n)) + "}"
        for letter, n in zip("dabc", counts, strict=True)
    )
    return f"mma.sync.aligned.{shape}.row.col{extra}.{types} {vectors}"


# Where element i of lane l stands, from the figures of "Matrix Fragments for mma" of each shape.
def a16(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 + (8 if i in (2, 3, 6, 7) else 0)
    return row, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def b16(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def c16(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def a_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def b_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


def a8(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 if i < 4 or 8 <= i < 12 else lane // 4 + 8
    return row, lane % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)


def a8_short(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 4 else 0), lane % 4 * 4 + (i & 3)


def b8(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), lane // 4


def a64(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i % 2 else 0), lane % 4 + 4 * (i // 2)


def b64(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


def fragment(matrix: Array, place: Place, elements: int) -> Array:
    """[W, rows, columns] as [W, 32, elements]."""
    out = np.zeros((WARPS, 32, elements), matrix.dtype)
    for lane in range(32):
        for i in range(elements):
            out[:, lane, i] = matrix[(slice(None), *place(lane, i))]
    return out


def registers(elements: Array, word: type) -> list[Array]:
    packed = np.ascontiguousarray(elements).view(word)
    return [packed[..., i] for i in range(packed.shape[-1])]


def run(text: str, *sources: Array) -> list[Array]:
    form = lowered(text)
    assert form.scope == "warp"
    assert len(form.sources) == len(sources)
    return list(form.fn(LANES, *sources))


def matrices(m: int, n: int, k: int, seed: int = 1) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    # Small integers: every sum is exact in every type, so the answer has no slack.
    return (
        rng.integers(-8, 9, (WARPS, m, k)),
        rng.integers(-8, 9, (WARPS, k, n)),
        rng.integers(-99, 100, (WARPS, m, n)),
    )


@pytest.mark.parametrize(("k", "per_a", "per_b"), [(16, 8, 4), (8, 4, 2)])
@pytest.mark.parametrize("types", ["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32"])
def test_16_bit(k: int, per_a: int, per_b: int, types: str) -> None:
    a, b, c = matrices(16, 8, k)

    def carrier(matrix: Array) -> Array:
        if "bf16" in types:
            return (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return matrix.astype(np.float16)

    half = types.startswith("f16")
    accumulators = c.astype(np.float16 if half else np.float32)
    sources = registers(fragment(carrier(a), a16, per_a), np.uint32) + registers(
        fragment(carrier(b), b16, per_b), np.uint32
    )
    sources += registers(fragment(accumulators, c16, 4), np.uint32 if half else np.float32)
    counts = (2 if half else 4, per_a // 2, per_b // 2, 2 if half else 4)
    found = run(mma(f"m16n8k{k}", types, counts), *sources)
    wanted = registers(
        fragment((a @ b + c).astype(accumulators.dtype), c16, 4), np.uint32 if half else np.float32
    )
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


@pytest.mark.parametrize(("k", "per_a", "per_b"), [(8, 4, 2), (4, 2, 1)])
def test_tf32_ignores_the_low_bits(k: int, per_a: int, per_b: int) -> None:
    a, b, c = matrices(16, 8, k)
    noisy = a.astype(np.float32).view(np.uint32) | np.where(a != 0, 0x1FFF, 0).astype(np.uint32)
    sources = registers(fragment(noisy, a_tf32, per_a), np.uint32)
    sources += registers(fragment(b.astype(np.float32), b_tf32, per_b), np.uint32)
    sources += registers(fragment(c.astype(np.float32), c16, 4), np.float32)
    found = run(mma(f"m16n8k{k}", "f32.tf32.tf32.f32", (4, per_a, per_b, 4)), *sources)
    wanted = registers(fragment((a @ b + c).astype(np.float32), c16, 4), np.float32)
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_f64(m: int, k: int) -> None:
    a, b, c = (each.astype(np.float64) / 3 for each in matrices(m, 8, k))
    place: Place = (lambda lane, i: (lane // 4, lane % 4)) if m == 8 else a64
    per_a, per_b, per_c = m * k // 32, k // 4, m // 4
    sources = registers(fragment(a, place, per_a), np.float64) + registers(
        fragment(b, b64, per_b), np.float64
    )
    sources += registers(fragment(c, c16, per_c), np.float64)
    extra = ".rn" if m == 16 else ""
    text = mma(f"m{m}n8k{k}", f"f64.f64.f64.f64{extra}", (per_c, per_a, per_b, per_c))
    found = run(text, *sources)
    for got, want in zip(found, registers(fragment(a @ b + c, c16, per_c), np.float64), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("first", ["s8", "u8"])
@pytest.mark.parametrize("second", ["s8", "u8"])
@pytest.mark.parametrize(("m", "k"), [(16, 32), (16, 16), (8, 16)])
def test_int8(m: int, k: int, first: str, second: str) -> None:
    rng = np.random.default_rng(3)
    dtypes = {"s8": np.int8, "u8": np.uint8}
    a = rng.integers(0, 256, (WARPS, m, k)).astype(np.uint8).view(dtypes[first])
    b = rng.integers(0, 256, (WARPS, k, 8)).astype(np.uint8).view(dtypes[second])
    c = rng.integers(-(2**31), 2**31, (WARPS, m, 8)).astype(np.int32)
    c[0, 0, :] = 2**31 - 1
    place: Place = {(16, 32): a8, (16, 16): a8_short, (8, 16): lambda lane, i: (lane // 4, lane % 4 * 4 + i)}[
        m, k
    ]
    per_a, per_b, per_c = m * k // 32, k // 4, m // 4
    sources = registers(fragment(a, place, per_a), np.uint32) + registers(fragment(b, b8, per_b), np.uint32)
    sources += registers(fragment(c, c16, per_c), np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    counts = (per_c, per_a // 4, per_b // 4, per_c)
    for extra, wanted in (
        ("", exact.astype(np.int32)),
        (".satfinite", np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)),
    ):
        found = run(mma(f"m{m}n8k{k}", f"s32.{first}.{second}.s32", counts, extra), *sources)
        assert [each.tolist() for each in found] == [
            each.tolist() for each in registers(fragment(wanted, c16, per_c), np.int32)
        ]
    assert (exact != exact.astype(np.int32)).any()


@pytest.mark.parametrize("name", ["s4", "u4"])
def test_int4(name: str) -> None:
    rng = np.random.default_rng(4)
    low = -8 if name == "s4" else 0
    a, b = rng.integers(low, low + 16, (WARPS, 16, 64)), rng.integers(low, low + 16, (WARPS, 64, 8))
    c = rng.integers(-99, 99, (WARPS, 16, 8)).astype(np.int32)

    def packed(elements: Array) -> list[Array]:
        nibbles = (elements & 15).astype(np.uint8)
        return registers(nibbles[..., ::2] | nibbles[..., 1::2] << 4, np.uint32)

    def place(lane: int, i: int) -> tuple[int, int]:
        return lane // 4 + (8 if 8 <= i < 16 or i >= 24 else 0), lane % 4 * 8 + (i & 7) + (
            32 if i >= 16 else 0
        )

    sources = packed(fragment(a, place, 32))
    sources += packed(
        fragment(b, lambda lane, i: (lane % 4 * 8 + (i & 7) + (32 if i >= 8 else 0), lane // 4), 16)
    )
    sources += registers(fragment(c, c16, 4), np.int32)
    found = run(mma("m16n8k64", f"s32.{name}.{name}.s32", (4, 4, 2, 4)), *sources)
    wanted = registers(fragment((a @ b + c).astype(np.int32), c16, 4), np.int32)
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


def test_fp8() -> None:
    rng = np.random.default_rng(5)
    codes_a, codes_b = (
        rng.integers(0x30, 0x40, (WARPS, 16, 32)).astype(np.uint8),
        rng.integers(0x38, 0x44, (WARPS, 32, 8)).astype(np.uint8),
    )
    c = rng.integers(-99, 99, (WARPS, 16, 8)).astype(np.float32)
    a = (1 + (codes_a & 7) / 8) * 2.0 ** ((codes_a >> 3) - 7.0)  # e4m3
    b = (1 + (codes_b & 3) / 4) * 2.0 ** ((codes_b >> 2) - 15.0)  # e5m2
    sources = registers(fragment(codes_a, a8, 16), np.uint32) + registers(fragment(codes_b, b8, 8), np.uint32)
    sources += registers(fragment(c, c16, 4), np.float32)
    found = run(mma("m16n8k32", "f32.e4m3.e5m2.f32", (4, 4, 2, 4)), *sources)
    wanted = registers(fragment((a @ b + c).astype(np.float32), c16, 4), np.float32)
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


def test_one_rounding_at_the_end() -> None:
    # 2**24 + 1 + 1: rounding after each product would lose both ones; their exact sum does not.
    a, b = np.zeros((WARPS, 16, 16), np.float32), np.zeros((WARPS, 16, 8), np.float32)
    a[:, 0, :2], b[:, :2, 0] = 1.0, 1.0
    c = np.zeros((WARPS, 16, 8), np.float32)
    c[:, 0, 0] = 2.0**24

    def brains(matrix: Array) -> Array:
        code = (matrix.view(np.uint32) >> 16).astype(np.uint16)
        assert (brain(code) == matrix).all()
        return code

    sources = registers(fragment(brains(a), a16, 8), np.uint32) + registers(
        fragment(brains(b), b16, 4), np.uint32
    )
    sources += registers(fragment(c, c16, 4), np.float32)
    found = run(mma("m16n8k16", "f32.bf16.bf16.f32", (4, 4, 2, 4)), *sources)
    assert found[0][0, 0] == 2.0**24 + 2


@pytest.mark.parametrize(
    "text",
    [
        mma("m16n16k16", "f32.f16.f16.f32", (8, 4, 4, 8)),  # no such shape
        mma("m16n8k16", "f32.f16.bf16.f32", (4, 4, 2, 4)),  # mixed formats
        mma("m16n8k16", "f32.f16.f16.f32", (4, 4, 4, 4)),  # a register too many
        mma("m16n8k16", "f32.f16.f16.f32", (4, 4, 2, 4), ".satfinite"),
    ],
)
def test_forms_that_do_not_exist(text: str) -> None:
    assert lower(instruction(text)) is None
