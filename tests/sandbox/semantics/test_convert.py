"""cvt against exact fractions, Python integers and torch."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from sandbox.emulator.semantics import TYPES, Array
from tests.sandbox.semantics.support import (
    FORMATS,
    brain,
    doubles,
    integers,
    one,
    round_exact,
    run,
    same,
    singles,
    wrap,
)

INTEGERS = tuple(f"{sign}{width}" for sign in "us" for width in (8, 16, 32, 64))
DIRECTIONS = ("rn", "rz", "rm", "rp")
SMALL = {"e4m3": (4, -6, 8), "e5m2": (3, -14, 15), "e2m3": (4, 0, 2), "e3m2": (3, -2, 4), "e2m1": (2, 0, 2)}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e2m3": 7.5, "e3m2": 28.0, "e2m1": 6.0}


def floats(name: str, seed: int = 1, count: int = 2000) -> tuple[Array, list[float]]:
    """Carriers of a float type and their values."""
    if name == "f64":
        array = doubles(seed, count).reshape(1, -1)
        return array, array[0].tolist()
    array = singles(seed, count).reshape(1, -1)
    if name == "f32":
        return array, array[0].tolist()
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**16, (1, count)).astype(np.uint16)
    if name == "f16":
        return bits.view(np.float16), bits.view(np.float16)[0].tolist()
    return bits, brain(bits)[0].tolist()


def number(name: str, carriers: Array) -> list[float]:
    return (brain(carriers) if name == "bf16" else carriers).tolist()


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("result", INTEGERS)
def test_integers_keep_low_bits_or_saturate(result: str, source: str) -> None:
    values = integers(1, 60, source)
    info = np.iinfo(TYPES[result].dtype)
    assert one(f"cvt.{result}.{source} d, a", values) == [wrap(x, result) for x in values]
    assert one(f"cvt.sat.{result}.{source} d, a", values) == [
        max(int(info.min), min(int(info.max), x)) for x in values
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("result", ["f16", "bf16", "f32", "f64"])
def test_integers_to_floats(result: str, direction: str) -> None:
    for source in INTEGERS:
        values = integers(2, 150, source)
        if source.endswith("64"):  # where a double in between would round a second time
            values += [
                (1 << 54) + (1 << 30) + 1,
                (1 << 62) + (1 << 38) + 1,
                (1 << 62) + (1 << 38) - 1,
                2**63 - 1,
            ]
        (found,) = run(f"cvt.{direction}.{result}.{source} d, a", values)
        for got, x in zip(number(result, found), values, strict=True):
            assert same(got, round_exact(Fraction(x), *FORMATS[result], direction)), (source, x)


@pytest.mark.parametrize("result", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_to_integers_clamp_and_give_nan_one_value(result: str, source: str) -> None:
    carriers, values = floats(source, 3, 600)
    info = np.iinfo(TYPES[result].dtype)
    rules = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
    for mode, rule in rules.items():
        wanted = []
        for x in values:
            if math.isnan(x):
                top_bit = info.bits == 64 or source == "f64"  # as seen on an H200
                wanted.append(wrap(1 << (info.bits - 1), result) if top_bit else 0)
            elif math.isinf(x):
                wanted.append(int(info.max if x > 0 else info.min))
            else:
                wanted.append(max(int(info.min), min(int(info.max), rule(x))))
        assert one(f"cvt.{mode}.{result}.{source} d, a", carriers) == wanted, mode


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("result", "source"), [*itertools.permutations(("f16", "bf16", "f32", "f64"), 2)])
def test_floats_to_floats(result: str, source: str, direction: str) -> None:
    carriers, values = floats(source, 4)
    exact = TYPES[result].width > TYPES[source].width
    (found,) = run(f"cvt.{'' if exact else direction + '.'}{result}.{source} d, a", carriers)
    for got, x in zip(number(result, found), values, strict=True):
        want = (
            x
            if not math.isfinite(x) or x == 0
            else round_exact(Fraction(x), *FORMATS[result], "rn" if exact else direction)
        )
        assert same(got, want), x


def test_bf16_and_f16_agree_with_torch() -> None:
    carriers, _ = floats("f32", 5, 4000)
    numbers = torch.from_numpy(carriers[0].copy())
    brains = numbers.to(torch.bfloat16)
    (found,) = run("cvt.rn.bf16.f32 d, a", carriers)
    mask = ~torch.isnan(brains)
    assert torch.equal(torch.from_numpy(found.view(np.int16).copy())[mask], brains.view(torch.int16)[mask])
    (found,) = run("cvt.rn.f16.f32 d, a", carriers)
    halves = numbers.to(torch.float16)
    assert torch.equal(torch.from_numpy(found.view(np.int16).copy())[mask], halves.view(torch.int16)[mask])
    assert set(found.view(np.uint16)[~mask.numpy()].tolist()) == {0x7FFF}


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("direction", ["rn", "rz"])
def test_two_sources_pack_with_the_first_on_top(name: str, direction: str) -> None:
    a, b = floats("f32", 6)[0], floats("f32", 7)[0]
    (packed,) = run(f"cvt.{direction}.{name}x2.f32 d, a, b", a, b)
    upper, lower = (run(f"cvt.{direction}.{name}.f32 d, a", each)[0].view(np.uint16) for each in (a, b))
    assert (packed >> 16).tolist() == upper.tolist()
    assert (packed & 0xFFFF).tolist() == lower.tolist()


def test_relu_and_satfinite() -> None:
    values = [-1.0, 1e30, -1e30, math.inf, math.nan, 2.0, -0.0]
    found = one("cvt.rn.relu.f16.f32 d, a", values)
    assert found[:4] == [0.0, math.inf, 0.0, math.inf]
    assert math.isnan(found[4])
    assert same(found[6], 0.0)
    assert one("cvt.rn.satfinite.f16.f32 d, a", values)[:4] == [-1.0, 65504.0, -65504.0, 65504.0]
    (word,) = run("cvt.rz.relu.satfinite.bf16x2.f32 d, a, b", [math.inf], [-5.0])
    assert word.tolist() == [0x7F7F0000]


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_rounding_to_integral_values(mode: str) -> None:
    rule = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    for name in ("f32", "f64", "f16"):
        carriers, values = floats(name, 8)
        (found,) = run(f"cvt.{mode}.{name}.{name} d, a", carriers)
        for got, x in zip(number(name, found), values, strict=True):
            assert same(got, x if math.isnan(x) else float(rule(x))), x


def test_float_saturation_and_flushing() -> None:
    assert one("cvt.sat.f32.f32 d, a", [2.0, -1.0, 0.25, math.nan]) == [1.0, 0.0, 0.25, 0.0]
    assert one("cvt.rn.sat.f16.f32 d, a", [2.0, -1.0, 0.25, math.nan]) == [1.0, 0.0, 0.25, 0.0]
    assert one("cvt.rn.sat.f32.s32 d, a", [5, -5]) == [1.0, 0.0]
    assert one("cvt.ftz.f64.f32 d, a", [2.0**-130]) == [0.0]
    assert one("cvt.f64.f32 d, a", [2.0**-130]) == [2.0**-130]
    assert one("cvt.rn.ftz.f32.f64 d, a", [2.0**-130]) == [0.0]
    assert one("cvt.rzi.ftz.s32.f32 d, a", [-7.9]) == [-7]
    assert one("cvt.rpi.ftz.s32.f32 d, a", [2.0**-130]) == [0]
    assert one("cvt.rpi.s32.f32 d, a", [2.0**-130]) == [1]


@pytest.mark.parametrize("direction", ["rna", "rn", "rz"])
def test_tf32(direction: str) -> None:
    carriers, values = floats("f32", 9)
    (found,) = run(f"cvt.{direction}.tf32.f32 d, a", carriers)
    for code, x in zip(found.tolist(), values, strict=True):
        got = float(np.array(code, np.uint32).view(np.float32))
        want = x if not math.isfinite(x) or x == 0 else round_exact(Fraction(x), 11, -126, 127, direction)
        if math.isnan(x) and direction == "rna":  # cut like any bits: what is left may be an infinity
            want = got
        assert same(got, want), x
        assert code & 0x1FFF == 0


def test_tf32_of_nan_is_what_an_h200_gives() -> None:
    bits = np.array([[0x7FFF_FFFF, 0x7F80_0001, 0xFFC0_0001, 0x7F80_0000]], np.uint32).view(np.float32)
    wanted = {
        "rna": [0x7FFF_E000, 0x7F80_0000, 0xFFC0_0000, 0x7F80_0000],
        "rn": [0x7FFF_E000, 0x7FFF_E000, 0x7FFF_E000, 0x7F80_0000],
        "rna.satfinite": [0x7FFF_C000, 0x7F7F_E000, 0xFFBF_E000, 0x7F7F_E000],
    }
    for mode, codes in wanted.items():
        assert one(f"cvt.{mode}.tf32.f32 d, a", bits) == codes


def decoded(name: str) -> list[float]:
    """Values of all 256 codes by the format's definition, written anew here."""
    digits, lowest, _ = SMALL[name]
    fraction_bits = digits - 1
    width = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}[name]
    out = []
    for code in range(1 << width):
        sign = -1.0 if code >> (width - 1) else 1.0
        body = code & ((1 << width - 1) - 1)
        exponent, fraction = body >> fraction_bits, body & ((1 << fraction_bits) - 1)
        if name == "e4m3" and body == 0x7F:
            out.append(math.nan)
        elif name == "e5m2" and exponent == 31:
            out.append(sign * math.inf if fraction == 0 else math.nan)
        elif exponent == 0:
            out.append(sign * math.ldexp(fraction, lowest - fraction_bits))
        else:
            out.append(
                sign * math.ldexp(fraction + (1 << fraction_bits), exponent - 1 + lowest - fraction_bits)
            )
    return out


@pytest.mark.parametrize("name", SMALL)
def test_narrow_formats_round_trip_and_saturate(name: str) -> None:
    table = decoded(name)
    carriers, values = floats("f32", 10)
    spread = np.array([list(np.linspace(-1.2, 1.2, 400) * LARGEST[name])], np.float32)
    carriers, values = np.concatenate([carriers, spread], axis=1), values + spread[0].tolist()
    zero = np.zeros_like(carriers)
    (word,) = run(f"cvt.rn.satfinite.{name}x2.f32 d, a, b", zero, carriers)
    shift, mask = (4, 15) if name == "e2m1" else (8, 255)
    assert not (word.astype(np.uint32) >> shift).any()
    for code, x in zip((word & mask).tolist(), values, strict=True):
        if math.isnan(x):
            assert code == (0x7F if name in ("e4m3", "e5m2") else len(table) // 2 - 1)
            continue
        digits, lowest, highest = SMALL[name]
        want = x if x == 0 or math.isinf(x) else round_exact(Fraction(x), digits, lowest, highest + 9, "rn")
        assert same(table[code], max(-LARGEST[name], min(LARGEST[name], want))), x
    (back,) = run(f"cvt.rn.f16x2.{name}x2 d, a", [code << shift | code for code in range(len(table))])
    for word_, x in zip(back.view(np.float16).reshape(-1, 2).tolist(), table, strict=True):
        assert same(word_[0], x)
        assert same(word_[1], x)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_agrees_with_torch(name: str) -> None:
    torch_type = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]
    values = np.linspace(-400, 400, 5001, dtype=np.float32)
    wanted = torch.from_numpy(values).to(torch_type).view(torch.uint8)
    (word,) = run(f"cvt.rn.satfinite.{name}x2.f32 d, a, b", values[None], values[None])
    assert (word & 255).tolist() == wanted.tolist()
    assert (word >> 8).tolist() == wanted.tolist()
    halves = (
        np.stack([values.astype(np.float16), np.zeros_like(values, np.float16)], -1)
        .view(np.uint32)
        .reshape(1, -1)
    )
    (word,) = run(f"cvt.rn.satfinite.{name}x2.f16x2 d, a", halves)
    again = torch.from_numpy(values.astype(np.float16)).to(torch_type).view(torch.uint8)
    assert (word & 255).tolist() == again.tolist()


def test_cvt_pack() -> None:
    assert one("cvt.pack.sat.s16.s32 d, a, b", [70000], [-2]) == [0x7FFF_FFFE]
    assert one("cvt.pack.sat.u16.s32 d, a, b", [-5], [70000]) == [0x0000_FFFF]
    assert one("cvt.pack.sat.u8.s32.b32 d, a, b, c", [300], [7], [0x1234_5678]) == [0x5678_FF07]
    assert one("cvt.pack.sat.s4.s32.b32 d, a, b, c", [-9], [7], [0x1]) == [0x187]
