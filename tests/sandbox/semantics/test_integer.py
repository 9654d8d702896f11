"""Integer arithmetic against Python's integers."""

from __future__ import annotations

import itertools
import operator

import pytest

from tests.sandbox.semantics.support import integers, one, run, wrap

TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
WIDTH = {name: int(name[1:]) for name in TYPES}


def pairs(name: str, count: int = 40) -> tuple[list[int], list[int]]:
    values = integers(1, count, name)
    both = list(itertools.product(values, values))
    return [a for a, _ in both], [b for _, b in both]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("text", "exact"),
    [("add", operator.add), ("sub", operator.sub), ("mul.lo", operator.mul), ("min", min), ("max", max)],
)
def test_two_sources_wrap_to_the_type(text: str, exact, name: str) -> None:
    a, b = pairs(name)
    assert one(f"{text}.{name} d, a, b", a, b) == [wrap(exact(x, y), name) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("name", TYPES)
def test_mul_hi_is_the_upper_half_of_the_exact_product(name: str) -> None:
    a, b = pairs(name)
    wanted = [wrap(x * y >> WIDTH[name], name) for x, y in zip(a, b, strict=True)]
    assert one(f"mul.hi.{name} d, a, b", a, b) == wanted


@pytest.mark.parametrize("name", WIDER)
def test_wide_products_and_sums_are_exact(name: str) -> None:
    a, b = pairs(name)
    c = integers(3, len(a), WIDER[name])
    exact = [wrap(x * y, WIDER[name]) for x, y in zip(a, b, strict=True)]
    assert one(f"mul.wide.{name} d, a, b", a, b) == exact
    assert one(f"mad.wide.{name} d, a, b, c", a, b, c) == [
        wrap(x + y, WIDER[name]) for x, y in zip(exact, c, strict=True)
    ]


@pytest.mark.parametrize("name", TYPES)
def test_mad_adds_to_the_chosen_half(name: str) -> None:
    a, b = pairs(name)
    c = integers(4, len(a), name)
    rows = list(zip(a, b, c, strict=True))
    assert one(f"mad.lo.{name} d, a, b, c", a, b, c) == [wrap(x * y + z, name) for x, y, z in rows]
    assert one(f"mad.hi.{name} d, a, b, c", a, b, c) == [
        wrap((x * y >> WIDTH[name]) + z, name) for x, y, z in rows
    ]


def clamp(value: int) -> int:
    return max(-(2**31), min(2**31 - 1, value))


def test_saturating_forms_clamp_to_s32() -> None:
    a, b = pairs("s32")
    c = integers(5, len(a), "s32")
    rows = list(zip(a, b, c, strict=True))
    assert one("add.sat.s32 d, a, b", a, b) == [clamp(x + y) for x, y, _ in rows]
    assert one("sub.sat.s32 d, a, b", a, b) == [clamp(x - y) for x, y, _ in rows]
    assert one("mad.hi.sat.s32 d, a, b, c", a, b, c) == [clamp((x * y >> 32) + z) for x, y, z in rows]


@pytest.mark.parametrize("name", ["u32", "s32"])
@pytest.mark.parametrize("kind", ["lo", "hi"])
def test_24_bit_products(name: str, kind: str) -> None:
    def low24(value: int) -> int:
        value &= 0xFF_FFFF
        return value - (1 << 24) if name == "s32" and value >> 23 else value

    a, b = pairs(name)
    c = integers(6, len(a), name)
    shift = 0 if kind == "lo" else 16
    exact = [low24(x) * low24(y) >> shift for x, y in zip(a, b, strict=True)]
    assert one(f"mul24.{kind}.{name} d, a, b", a, b) == [wrap(x, name) for x in exact]
    assert one(f"mad24.{kind}.{name} d, a, b, c", a, b, c) == [
        wrap(wrap(x, name) + z, name) for x, z in zip(exact, c, strict=True)
    ]


@pytest.mark.parametrize("name", TYPES)
def test_division_rounds_to_zero_and_the_remainder_follows_the_dividend(name: str) -> None:
    a, b = pairs(name)
    rows = [(x, y) for x, y in zip(a, b, strict=True) if y]
    a, b = [x for x, _ in rows], [y for _, y in rows]
    quotient = [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in rows]
    assert one(f"div.{name} d, a, b", a, b) == [wrap(q, name) for q in quotient]
    assert one(f"rem.{name} d, a, b", a, b) == [
        wrap(x - q * y, name) for (x, y), q in zip(rows, quotient, strict=True)
    ]


@pytest.mark.parametrize("name", TYPES)
def test_division_by_zero_gives_all_ones(name: str) -> None:
    a = integers(7, 20, name)
    assert one(f"div.{name} d, a, b", a, [0] * 20) == [wrap(-1, name)] * 20


@pytest.mark.parametrize("name", ["s16", "s32", "s64"])
def test_abs_and_neg_wrap_at_the_most_negative(name: str) -> None:
    a = integers(8, 50, name)
    assert one(f"abs.{name} d, a", a) == [wrap(abs(x), name) for x in a]
    assert one(f"neg.{name} d, a", a) == [wrap(-x, name) for x in a]


@pytest.mark.parametrize("name", TYPES)
def test_sad_adds_the_distance(name: str) -> None:
    a, b = pairs(name)
    c = integers(9, len(a), name)
    assert one(f"sad.{name} d, a, b, c", a, b, c) == [
        wrap(z + abs(x - y), name) for x, y, z in zip(a, b, c, strict=True)
    ]


def halves(word: int, signed: bool) -> list[int]:
    return [wrap(word >> shift, "s16" if signed else "u16") for shift in (0, 16)]


@pytest.mark.parametrize(("name", "signed"), [("u16x2", False), ("s16x2", True)])
@pytest.mark.parametrize(("text", "exact"), [("add", operator.add), ("min", min), ("max", max)])
def test_packed_halves_do_not_touch(name: str, signed: bool, text: str, exact) -> None:
    a, b = pairs("u32")
    wanted = []
    for x, y in zip(a, b, strict=True):
        low, high = (exact(p, q) & 0xFFFF for p, q in zip(halves(x, signed), halves(y, signed), strict=True))
        wanted.append(high << 16 | low)
    assert one(f"{text}.{name} d, a, b", a, b) == wanted


def test_relu_takes_negatives_to_zero() -> None:
    a, b = pairs("s32")
    assert one("min.relu.s32 d, a, b", a, b) == [max(0, min(x, y)) for x, y in zip(a, b, strict=True)]
    packed = one("max.relu.s16x2 d, a, b", [0x8000_0005, 0xFFFF_FFFE], [0x8001_0003, 0x0001_FFFF])
    assert packed == [0x0000_0005, 0x0001_0000]


def octets(word: int, name: str) -> list[int]:
    return [wrap(word >> shift, f"{name[0]}8") for shift in (0, 8, 16, 24)]


@pytest.mark.parametrize(("first", "second"), [*itertools.product(["u32", "s32"], repeat=2)])
def test_dot_products_of_bytes(first: str, second: str) -> None:
    a, b = pairs("u32")
    result = "u32" if (first, second) == ("u32", "u32") else "s32"
    c = integers(10, len(a), result)
    rows = list(zip(a, b, c, strict=True))
    assert one(f"dp4a.{first}.{second} d, a, b, c", a, b, c) == [
        wrap(z + sum(p * q for p, q in zip(octets(x, first), octets(y, second), strict=True)), result)
        for x, y, z in rows
    ]
    for kind, start in (("lo", 0), ("hi", 2)):
        assert one(f"dp2a.{kind}.{first}.{second} d, a, b, c", a, b, c) == [
            wrap(
                z
                + sum(
                    p * q
                    for p, q in zip(
                        halves(x, first == "s32"), octets(y, second)[start : start + 2], strict=True
                    )
                ),
                result,
            )
            for x, y, z in rows
        ]


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_carry_chains_compute_double_width(name: str) -> None:
    width = WIDTH[name]
    a, b = pairs(name, 30)
    high_a, high_b = integers(11, len(a), name), integers(12, len(a), name)
    mask = (1 << width) - 1
    for operation, exact in (("add", operator.add), ("sub", operator.sub)):
        low, carry = run(f"{operation}.cc.{name} d, a, b", a, b)
        high, out = run(f"{operation}c.cc.{name} d, a, b", high_a, high_b, carry.reshape(1, -1))
        (last,) = run(f"{operation}c.{name} d, a, b", [0] * len(a), [0] * len(a), out.reshape(1, -1))
        for index in range(len(a)):
            wide_a = (high_a[index] & mask) << width | a[index] & mask
            wide_b = (high_b[index] & mask) << width | b[index] & mask
            total = (int(last[index]) & mask) << 2 * width
            total |= (int(high[index]) & mask) << width | int(low[index]) & mask
            assert total == exact(wide_a, wide_b) & ((1 << 3 * width) - 1)


@pytest.mark.parametrize("name", ["u32", "u64"])
@pytest.mark.parametrize("kind", ["lo", "hi"])
def test_mad_with_carry(name: str, kind: str) -> None:
    width = WIDTH[name]
    a, b = pairs(name, 30)
    c, carry = integers(13, len(a), name), [index % 2 for index in range(len(a))]
    part = [(x * y >> (0 if kind == "lo" else width)) & ((1 << width) - 1) for x, y in zip(a, b, strict=True)]
    value, out = run(f"madc.{kind}.cc.{name} d, a, b, c", a, b, c, carry)
    totals = [p + z + f for p, z, f in zip(part, c, carry, strict=True)]
    assert value.tolist() == [wrap(total, name) for total in totals]
    assert out.tolist() == [total >> width for total in totals]
    value, out = run(f"mad.{kind}.cc.{name} d, a, b, c", a, b, c)
    assert out.tolist() == [p + z >> width for p, z in zip(part, c, strict=True)]
