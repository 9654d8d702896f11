"""What every lowering promises: shapes, dtypes, sources left alone, no warnings, immediates, and unknown
forms refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from sandbox.emulator.semantics import TYPES, Array, lower
from sandbox.emulator.semantics.coverage import opcodes
from sandbox.emulator.semantics.types import BLOCK
from tests.sandbox.semantics.support import instruction, lowered

FORMS = """
add.s32 d, a, b; add.sat.s32 d, a, b; add.u16x2 d, a, b; sub.u64 d, a, b; mul.lo.s64 d, a, b; mul.hi.s64
d, a, b; mul.hi.u32 d, a, b; mul.wide.s16 d, a, b; mad.lo.u32 d, a, b, c; mad.hi.sat.s32 d, a, b, c;
mad.wide.u32 d, a, b, c; mul24.lo.u32 d, a, b; mad24.hi.s32 d, a, b, c; sad.u32 d, a, b, c; div.s32 d, a,
b; rem.u64 d, a, b; abs.s64 d, a; neg.s32 d, a; min.s16x2 d, a, b; max.relu.s32 d, a, b; dp4a.u32.s32 d,
a, b, c; dp2a.hi.s32.s32 d, a, b, c; add.cc.u32 d, a, b; addc.cc.u64 d, a, b; subc.s32 d, a, b;
mad.lo.cc.u32 d, a, b, c; madc.hi.u32 d, a, b, c; popc.b64 d, a; clz.b32 d, a; bfind.s64 d, a; fns.b32 d,
a, b, c; brev.b64 d, a; bfe.s64 d, a, b, c; bfi.b32 d, a, b, c, e; bmsk.clamp.b32 d, a, b; szext.wrap.s32
d, a, b; and.b32 d, a, b; or.pred d, a, b; xor.b64 d, a, b; not.b64 d, a; cnot.b16 d, a; lop3.b32 d, a, b,
c, 0xE8; lop3.and.b32 d|p, a, b, c, 0x96, q; shl.b64 d, a, b; shr.s16 d, a, b; shr.u64 d, a, b;
shf.l.wrap.b32 d, a, b, c; prmt.b32 d, a, b, c; prmt.b32.f4e d, a, b, c; add.f32 d, a, b;
add.rz.ftz.sat.f32 d, a, b; sub.rm.f64 d, a, b; mul.rp.f64 d, a, b; fma.rn.f32 d, a, b, c;
fma.rn.ftz.f32x2 d, a, b, c; fma.rm.f64 d, a, b, c; mad.f32 d, a, b, c; div.rz.f64 d, a, b;
div.full.ftz.f32 d, a, b; div.approx.f32 d, a, b; rcp.rn.f32 d, a; sqrt.rp.f64 d, a; abs.f32 d, a;
neg.ftz.f32 d, a; min.NaN.f32 d, a, b; max.ftz.NaN.xorsign.abs.f32 d, a, b; min.f32 d, a, b, c;
copysign.f64 d, a, b; testp.normal.f32 p, a; rsqrt.approx.ftz.f64 d, a; sin.approx.ftz.f32 d, a;
cos.approx.f32 d, a; lg2.approx.f32 d, a; ex2.approx.f16x2 d, a; tanh.approx.bf16 d, a; add.f16 d, a, b;
mul.ftz.sat.f16x2 d, a, b; fma.rn.relu.bf16x2 d, a, b, c; neg.bf16 d, a; abs.ftz.f16x2 d, a;
min.NaN.xorsign.abs.bf16x2 d, a, b; add.rn.f32.bf16 d, a, b; fma.rz.sat.f32.f16 d, a, b, c; setp.lt.s32 p,
a, b; setp.geu.and.f64 p|q, a, b, c; setp.ne.ftz.f16x2 p|q, a, b; set.le.u32.f16x2 d, a, b;
set.gt.bf16.bf16 d, a, b; selp.f32 d, a, b, p; slct.ftz.u64.f32 d, a, b, c; mov.u32 d, a; mov.pred d, a;
mov.b128 d, a; mov.b128 d, {a, b}; mov.b64 {a, b, c, e}, d; mov.b16 d, {a, b}; cvt.u8.s64 d, a;
cvt.sat.s16.u64 d, a; cvt.rm.f16.u64 d, a; cvt.rzi.ftz.u32.f32 d, a; cvt.rni.s64.f64 d, a; cvt.rp.bf16.f64
d, a; cvt.f64.f16 d, a; cvt.rn.relu.satfinite.f16x2.f32 d, a, b; cvt.rna.tf32.f32 d, a;
cvt.rn.satfinite.relu.e5m2x2.f32 d, a, b; cvt.rn.satfinite.e4m3x2.f16x2 d, a; cvt.rn.f16x2.e2m1x2 d, a;
cvt.rn.satfinite.e2m1x2.f32 d, a, b; cvt.pack.sat.u8.s32.b32 d, a, b, c; shfl.sync.idx.b32 d|p, a, b, c,
m; vote.sync.uni.pred p, a, m; vote.ballot.b32 d, a; activemask.b32 d; match.all.sync.b64 d|p, a, m;
match.any.sync.b32 d, a, m; redux.sync.add.s32 d, a, m; redux.sync.max.NaN.f32 d, a, m; elect.sync d|p, m;
movmatrix.sync.aligned.m8n8.trans.b16 d, a; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a, b, c,
d}, {e, f, g, h}, {i, j}, {k, l, m, n}; mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {a, b}, {e, f,
g, h}, {i, j}, {k, l}; mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {a, b, c, d}, {e, f, g,
h}, {i, j}, {k, l, m, n}; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {a, b}, {c}, {d}, {e, f}
"""
TEXTS = [" ".join(text.split()) for text in FORMS.split(";")]
WARPS = 4


def noise(name: str, shape: tuple[int, ...], seed: int) -> Array:
    """Random bits of a type, read-only."""
    rng = np.random.default_rng(seed)
    dtype = TYPES[name].dtype
    shape = (*shape, 2) if name == "b128" else shape
    count = int(np.prod(shape))
    flat = (
        rng.integers(0, 2, count).astype(bool)
        if name == "pred"
        else np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    )
    array = np.array(flat.reshape(shape))
    array.flags.writeable = False
    return array


def call(text: str, sources: list[Array], lanes: Array) -> list[Array]:
    form = lowered(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = form.fn(lanes, *sources) if form.scope == "warp" else form.fn(*sources)
    assert isinstance(results, tuple)
    assert len(results) == len(form.results)
    whole = []
    for result, name in zip(results, form.results, strict=True):
        assert result.dtype == TYPES[name].dtype, (text, name)
        shape = (WARPS, 32, 2) if name == "b128" else (WARPS, 32)
        whole.append(np.broadcast_to(result, shape))
    return whole


@pytest.mark.parametrize("text", TEXTS)
def test_promises(text: str) -> None:
    form = lowered(text)
    lanes = noise("pred", (WARPS, 32), 99)
    sources = [noise(name, (WARPS, 32), seed) for seed, name in enumerate(form.sources)]
    before = [source.tobytes() for source in sources]
    call(text, sources, lanes)
    assert [source.tobytes() for source in sources] == before
    if len(sources) < 2:
        return
    # An immediate, in either of its shapes, means the same as the register that holds it everywhere.
    for place in range(len(sources)):
        immediate = [*sources]
        small = noise(form.sources[place], (1, 1), 7)
        immediate[place] = np.broadcast_to(small, sources[place].shape)
        wanted = [result.tobytes() for result in call(text, immediate, lanes)]
        for shape in (small, small[0, 0] if small.ndim == 3 else small.reshape(())):
            immediate[place] = shape
            assert [result.tobytes() for result in call(text, immediate, lanes)] == wanted


@pytest.mark.parametrize(
    "text",
    ["mov.u32 d, 5", "sub.u32 d, 5, 7", "fma.rn.f64 d, 1, 2, 3", "shl.b32 d, 5, 40", "bfe.u32 d, 1, 2, 3"],
)
def test_immediates_alone(text: str) -> None:
    form = lowered(text)
    results = form.fn(*(np.array(3, TYPES[name].dtype) for name in form.sources))
    assert results[0].dtype == TYPES[form.results[0]].dtype


@pytest.mark.parametrize(
    "text",
    [
        "ld.global.u32 d, a",
        "frobnicate.u32 d, a",
        "add.rn.u32 d, a, b",
        "add.b32 d, a, b",
        "add.ftz.f64 d, a, b",
        "add.f32 d, a",
        "fma.f32 d, a, b, c",
        "mul.u32 d, a, b",
        "mul.wide.u64 d, a, b",
        "cvt.rn.u32.f32 d, a",
        "cvt.u32.f32 d, a",
        "cvt.rn.f32.f32 d, a",
        "cvt.rn.f32.f16 d, a",
        "setp.lo.s32 p, a, b",
        "setp.equ.u32 p, a, b",
        "lop3.b32 d, a, b, c, e",
        "shfl.sync.left.b32 d, a, b, c, m",
        "mov.b64 d, {a, b, c}",
        "sin.f32 d, a",
    ],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    assert lower(instruction(text)) is None


HEAVY = [
    text
    for text in TEXTS
    if text.startswith(("fma", "cvt", "bfe", "prmt", "mma", "add.f16")) and ".f64" not in text
]


@pytest.mark.parametrize("text", HEAVY)
def test_large_arrays_mean_the_same_as_their_parts(text: str) -> None:
    form = lowered(text)
    warps = 2 * BLOCK + 77
    sources = [noise(name, (warps, 32), seed) for seed, name in enumerate(form.sources)]
    if form.scope == "thread" and len(sources) > 1:
        sources[1] = sources[1][:1, :1]
    lanes = [np.ones((warps, 32), bool)] if form.scope == "warp" else []
    results = form.fn(*lanes, *sources)
    for at in range(0, warps, 700):
        rows = slice(at, at + 700)
        parts = form.fn(*(each[rows] if len(each) > 1 else each for each in (*lanes, *sources)))
        for whole, part in zip(results, parts, strict=True):
            assert whole[rows].tobytes() == np.ascontiguousarray(part).tobytes()


def test_coverage_names_every_opcode_tried() -> None:
    known = opcodes()
    assert list(known) == sorted(set(known))
    assert {text.partition(".")[0] for text in TEXTS} == set(known)
