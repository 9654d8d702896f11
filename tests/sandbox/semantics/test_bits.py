"""Logic, shifts and bit fields against Python's integers, bit by bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.sandbox.semantics.support import integers, one, run, wrap

COUNTS = [0, 1, 4, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 0x8000_0001, 0xFFFF_FFFF]


def crossed(first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
    rows = list(itertools.product(first, second))
    return [a for a, _ in rows], [b for _, b in rows]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bitwise(width: int) -> None:
    name = f"b{width}"
    a, b = crossed(integers(1, 30, f"u{width}"), integers(2, 30, f"u{width}"))
    rows = list(zip(a, b, strict=True))
    assert one(f"and.{name} d, a, b", a, b) == [x & y for x, y in rows]
    assert one(f"or.{name} d, a, b", a, b) == [x | y for x, y in rows]
    assert one(f"xor.{name} d, a, b", a, b) == [x ^ y for x, y in rows]
    assert one(f"not.{name} d, a", a) == [~x & ((1 << width) - 1) for x in a]
    assert one(f"cnot.{name} d, a", a) == [int(x == 0) for x in a]


def test_predicates() -> None:
    a, b = [False, False, True, True], [False, True, False, True]
    assert one("and.pred d, a, b", a, b) == [False, False, False, True]
    assert one("or.pred d, a, b", a, b) == [False, True, True, True]
    assert one("xor.pred d, a, b", a, b) == [False, True, True, False]
    assert one("not.pred d, a", a) == [True, True, False, False]
    assert one("mov.pred d, a", a) == a


def test_every_lop3_table() -> None:
    a, b, c = [0xF0], [0xCC], [0xAA]
    for table in range(256):
        (found,) = one(f"lop3.b32 d, a, b, c, {table}", a, b, c, [table])
        wanted = 0
        for bit in range(32):
            index = (a[0] >> bit & 1) << 2 | (b[0] >> bit & 1) << 1 | c[0] >> bit & 1
            wanted |= (table >> index & 1) << bit
        assert found == wanted, table


def test_lop3_with_predicate() -> None:
    word, predicate = run(
        "lop3.or.b32 d|p, a, b, c, 0x80, q", [5, 6, 7], [2, 2, 2], [7, 2, 2], [0x80] * 3, [False, False, True]
    )
    assert word.tolist() == [0, 2, 2]
    assert predicate.tolist() == [False, True, True]
    _, predicate = run(
        "lop3.and.b32 _|p, a, b, c, 0x80, q", [5, 6, 7], [2, 2, 2], [7, 2, 2], [0x80] * 3, [True, True, False]
    )
    assert predicate.tolist() == [False, True, False]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_past_the_width(width: int) -> None:
    values, counts = crossed(integers(3, 20, f"u{width}"), COUNTS)
    rows = list(zip(values, counts, strict=True))
    left = [x << n & ((1 << width) - 1) if n < width else 0 for x, n in rows]
    assert one(f"shl.b{width} d, a, b", values, counts) == left
    assert one(f"shr.u{width} d, a, b", values, counts) == [x >> n if n < width else 0 for x, n in rows]
    assert one(f"shr.b{width} d, a, b", values, counts) == [x >> n if n < width else 0 for x, n in rows]
    signed = f"s{width}"
    assert one(f"shr.{signed} d, a, b", values, counts) == [wrap(x, signed) >> min(n, width) for x, n in rows]
    for count in COUNTS:  # one count for all is a path of its own
        once = np.array(count, np.uint32)
        wanted = [x << count & ((1 << width) - 1) if count < width else 0 for x in values]
        assert one(f"shl.b{width} d, a, b", values, once) == wanted
        assert one(f"shr.u{width} d, a, b", values, once) == [
            x >> count if count < width else 0 for x in values
        ]
        assert one(f"shr.s{width} d, a, b", values, once) == [
            wrap(x, signed) >> min(count, width) for x in values
        ]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(mode: str) -> None:
    a, c = crossed(integers(4, 20, "u32"), COUNTS)
    b = integers(5, len(a), "u32")
    for direction in "lr":
        wanted = []
        for x, y, n in zip(a, b, c, strict=True):
            n = min(n, 32) if mode == "clamp" else n & 31
            both = y << 32 | x
            wanted.append((both << n >> 32 if direction == "l" else both >> n) & 0xFFFF_FFFF)
        assert one(f"shf.{direction}.{mode}.b32 d, a, b, c", a, b, c) == wanted


def test_prmt_picks_bytes_and_their_signs() -> None:
    a, b = integers(6, 300, "u32"), integers(7, 300, "u32")
    c = integers(8, 300, "u32")
    wanted = []
    for x, y, selector in zip(a, b, c, strict=True):
        octets = [(y << 32 | x) >> 8 * place & 255 for place in range(8)]
        word = 0
        for place in range(4):
            nibble = selector >> 4 * place & 15
            byte = octets[nibble & 7]
            word |= ((255 if byte >> 7 else 0) if nibble & 8 else byte) << 8 * place
        wanted.append(word)
    assert one("prmt.b32 d, a, b, c", a, b, c) == wanted


@pytest.mark.parametrize(
    ("mode", "rows"),
    [  # bytes of the result, most significant first, by c = 0, 1, 2, 3: as the ISA's table lists them
        ("f4e", ("3210", "4321", "5432", "6543")),
        ("b4e", ("5670", "6701", "7012", "0123")),
        ("rc8", ("0000", "1111", "2222", "3333")),
        ("ecl", ("3210", "3211", "3222", "3333")),
        ("ecr", ("0000", "1110", "2210", "3210")),
        ("rc16", ("1010", "3232", "1010", "3232")),
    ],
)
def test_prmt_modes(mode: str, rows: tuple[str, ...]) -> None:
    a, b = 0x33221100, 0x77665544
    wanted = [int("".join(digit * 2 for digit in row), 16) for row in rows]
    assert one(f"prmt.b32.{mode} d, a, b, c", [a] * 4, [b] * 4, [0, 1, 2, 7]) == wanted


@pytest.mark.parametrize("width", [32, 64])
def test_counting(width: int) -> None:
    values = (
        [1 << bit for bit in range(width)]
        + [(1 << bit) - 1 for bit in range(width + 1)]
        + integers(9, 100, f"u{width}")
    )
    assert one(f"popc.b{width} d, a", values) == [x.bit_count() for x in values]
    assert one(f"clz.b{width} d, a", values) == [width - x.bit_length() for x in values]
    assert one(f"bfind.u{width} d, a", values) == [(x.bit_length() - 1) & 0xFFFF_FFFF for x in values]
    signed = [wrap(x, f"s{width}") for x in values]
    lengths = [(~x if x < 0 else x).bit_length() for x in signed]
    assert one(f"bfind.s{width} d, a", values) == [(n - 1) & 0xFFFF_FFFF for n in lengths]
    assert one(f"bfind.shiftamt.s{width} d, a", values) == [width - n if n else 0xFFFF_FFFF for n in lengths]
    assert one(f"brev.b{width} d, a", values) == [int(f"{x:0{width}b}"[::-1], 2) for x in values]


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bfe(name: str) -> None:
    width = int(name[1:])
    values = integers(10, 12, f"u{width}")
    rows = list(itertools.product(values, COUNTS, COUNTS))
    wanted = []
    for x, start, size in rows:
        start, size = start & 255, size & 255
        fill = 0
        if name[0] == "s" and size:
            fill = x >> min(start + size - 1, width - 1) & 1
        word = 0
        for bit in range(width):
            word |= (x >> (start + bit) & 1 if bit < size and start + bit < width else fill) << bit
        wanted.append(wrap(word, name))
    assert one(f"bfe.{name} d, a, b, c", *map(list, zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize("width", [32, 64])
def test_bfi(width: int) -> None:
    rows = list(itertools.product(integers(11, 6, f"u{width}"), integers(12, 6, f"u{width}"), COUNTS, COUNTS))
    wanted = []
    for x, into, start, size in rows:
        for bit in range(size & 255):
            place = (start & 255) + bit
            if place < width:
                into = into & ~(1 << place) | (x >> bit & 1) << place
        wanted.append(into)
    assert one(f"bfi.b{width} d, a, b, c, e", *map(list, zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extension(mode: str) -> None:
    a, b = crossed(COUNTS, COUNTS)
    wanted = []
    for start, size in zip(a, b, strict=True):
        if mode == "wrap":
            start, size = start & 31, size & 31
        wanted.append(((1 << min(size, 64)) - 1 << min(start, 32)) & 0xFFFF_FFFF)
    assert one(f"bmsk.{mode}.b32 d, a, b", a, b) == wanted
    values, sizes = crossed(integers(13, 20, "u32"), COUNTS)
    for name in ("u32", "s32"):
        wanted = []
        for x, size in zip(values, sizes, strict=True):
            size = size & 31 if mode == "wrap" else min(size, 32)
            word = x & ((1 << size) - 1)
            wanted.append(
                wrap(word - (1 << size) if name == "s32" and size and word >> (size - 1) else word, name)
            )
        assert one(f"szext.{mode}.{name} d, a, b", values, sizes) == wanted


def test_fns_counts_set_bits_from_a_base() -> None:
    rows = list(itertools.product(integers(14, 12, "u32"), range(0, 32, 5), range(-5, 6)))
    wanted = []
    for mask, base, offset in rows:
        if offset == 0:
            wanted.append(base if mask >> base & 1 else 0xFFFF_FFFF)
            continue
        places = range(base, 32) if offset > 0 else range(base, -1, -1)
        hits = [place for place in places if mask >> place & 1]
        wanted.append(hits[abs(offset) - 1] if abs(offset) <= len(hits) else 0xFFFF_FFFF)
    assert one("fns.b32 d, a, b, c", *map(list, zip(*rows, strict=True))) == wanted


def test_vectors_pack_from_the_low_end() -> None:
    assert one("mov.b32 d, {a, b}", [0x1234], [0xABCD]) == [0xABCD1234]
    assert one("mov.b64 d, {a, b, c, e}", [1], [2], [3], [0x8004]) == [0x8004_0003_0002_0001]
    assert [part.tolist() for part in run("mov.b64 {a, b}, d", [0x1122334455667788])] == [
        [0x55667788],
        [0x11223344],
    ]
    assert [part.tolist() for part in run("mov.b32 {a, b, c, d}, e", [0x44332211])] == [
        [0x11],
        [0x22],
        [0x33],
        [0x44],
    ]
    quad = np.array([[[0x0011223344556677, 0x8899AABBCCDDEEFF]]], np.uint64)
    assert [part.tolist() for part in run("mov.b128 {a, b}, d", quad)] == [
        [0x0011223344556677],
        [0x8899AABBCCDDEEFF],
    ]
    packed = run("mov.b128 d, {a, b}", [7], [9])
    assert packed[0].tolist() == [7, 9]
