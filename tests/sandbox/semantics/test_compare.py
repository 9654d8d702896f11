"""setp, set, selp and slct against the definitions of the comparisons."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np
import pytest

from tests.sandbox.semantics.support import brain, integers, one, run, wrap

ORDERED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
FLOATS = [0.0, -0.0, 1.0, -1.0, 2.0**-130, math.inf, -math.inf, math.nan]


def pairs(values: list) -> tuple[list, list]:
    rows = list(itertools.product(values, values))
    return [a for a, _ in rows], [b for _, b in rows]


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_comparisons(name: str) -> None:
    a, b = pairs(integers(1, 25, name))
    tests = ORDERED | (UNSIGNED if name[0] == "u" else {})
    for comparison, exact in tests.items():
        assert one(f"setp.{comparison}.{name} p, a, b", a, b) == [
            exact(x, y) for x, y in zip(a, b, strict=True)
        ]


def wanted(comparison: str, x: float, y: float) -> bool:
    unordered = math.isnan(x) or math.isnan(y)
    if comparison in ("num", "nan"):
        return unordered == (comparison == "nan")
    if len(comparison) == 3:
        return unordered or ORDERED[comparison[:2]](x, y)
    return not unordered and ORDERED[comparison](x, y)


COMPARISONS = [*ORDERED, *(f"{each}u" for each in ORDERED), "num", "nan"]


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_float_comparisons(comparison: str) -> None:
    a, b = pairs(FLOATS)
    truth = [wanted(comparison, x, y) for x, y in zip(a, b, strict=True)]
    assert one(f"setp.{comparison}.f32 p, a, b", a, b) == truth
    assert one(f"setp.{comparison}.f64 p, a, b", a, b) == truth
    with np.errstate(all="ignore"):
        halves = [np.array([each], np.float16) for each in (a, b)]
    small = [wanted(comparison, x, y) for x, y in zip(*(each[0].tolist() for each in halves), strict=True)]
    assert one(f"setp.{comparison}.f16 p, a, b", *halves) == small
    brains = [(np.array([each], np.float32).view(np.uint32) >> 16).astype(np.uint16) for each in (a, b)]
    small = [
        wanted(comparison, x, y) for x, y in zip(*(brain(each)[0].tolist() for each in brains), strict=True)
    ]
    assert one(f"setp.{comparison}.bf16 p, a, b", *brains) == small


def test_flushing_makes_subnormals_zero() -> None:
    assert one("setp.gt.f32 p, a, b", [2.0**-130], [0.0]) == [True]
    assert one("setp.gt.ftz.f32 p, a, b", [2.0**-130], [0.0]) == [False]
    assert one("setp.eq.ftz.f16 p, a, b", [2.0**-15], [0.0]) == [True]


@pytest.mark.parametrize("joined", ["and", "or", "xor"])
def test_both_predicates_join_the_third(joined: str) -> None:
    join = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[joined]
    a, b, c = [1, 1, 2, 2], [2, 2, 1, 1], [False, True, False, True]
    p, q = run(f"setp.lt.{joined}.s32 p|q, a, b, c", a, b, c)
    assert p.tolist() == [join(x < y, z) for x, y, z in zip(a, b, c, strict=True)]
    assert q.tolist() == [join(not x < y, z) for x, y, z in zip(a, b, c, strict=True)]
    assert one(f"setp.lt.{joined}.s32 p, a, b, c", a, b, c) == p.tolist()
    p, q = run("setp.lt.s32 p|q, a, b", a, b)
    assert q.tolist() == [not x for x in p.tolist()]


def test_packed_comparisons_give_a_predicate_a_half() -> None:
    a = np.array([[1.0, 5.0], [math.nan, 0.0]], np.float16).view(np.uint32).reshape(1, -1)
    b = np.array([[2.0, 5.0], [1.0, -1.0]], np.float16).view(np.uint32).reshape(1, -1)
    low, high = run("setp.lt.f16x2 p|q, a, b", a, b)
    assert low.tolist() == [True, False]
    assert high.tolist() == [False, False]
    low, high = run("setp.geu.or.f16x2 p|q, a, b, c", a, b, [False, True])
    assert low.tolist() == [False, True]
    assert high.tolist() == [True, True]
    assert one("set.lt.u32.f16x2 d, a, b", a, b) == [0x0000_FFFF, 0]
    assert one("set.ge.f16x2.f16x2 d, a, b", a, b) == [0x3C00_0000, 0x3C00_0000]


def test_set_writes_ones_or_one() -> None:
    a, b = [1.0, 3.0, math.nan], [2.0, 2.0, 2.0]
    assert one("set.lt.u32.f32 d, a, b", a, b) == [0xFFFF_FFFF, 0, 0]
    assert one("set.ltu.s32.f32 d, a, b", a, b) == [-1, 0, -1]
    assert one("set.gt.f32.f32 d, a, b", a, b) == [0.0, 1.0, 0.0]
    assert one("set.lt.and.f32.s32 d, a, b, c", [1, 1], [2, 2], [True, False]) == [1.0, 0.0]
    assert one("set.eq.f16.f16 d, a, b", [1.0, 2.0], [1.0, 1.0]) == [1.0, 0.0]


def test_selection() -> None:
    assert one("selp.b32 d, a, b, p", [1, 2], [3, 4], [True, False]) == [1, 4]
    assert one("selp.f64 d, a, b, p", [1.5], [2.5], [False]) == [2.5]
    assert one("slct.u32.s32 d, a, b, c", [1, 2, 3], [4, 5, 6], [0, -1, 7]) == [1, 5, 3]
    assert one("slct.f32.f32 d, a, b, c", [1.0] * 4, [2.0] * 4, [-0.0, math.nan, -1.0, 1.0]) == [
        1.0,
        2.0,
        2.0,
        1.0,
    ]
    assert one("slct.ftz.f32.f32 d, a, b, c", [1.0], [2.0], [-(2.0**-130)]) == [1.0]
    assert wrap(one("selp.s64 d, a, b, p", [-5], [1], [True])[0], "s64") == -5
