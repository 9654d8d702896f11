"""Instruction forms that exist on sm_90a, a wide sample of every opcode that the semantics know."""

from __future__ import annotations

from itertools import product


def _forms() -> list[str]:
    """Forms as text, operands named in order."""
    out: list[str] = []

    def add(heads: list[str], operands: str) -> None:
        out.extend(f"{head} {operands}" for head in heads)

    whole = ["u16", "s16", "u32", "s32", "u64", "s64"]
    add(
        [f"{op}.{t}" for op in ("add", "sub", "min", "max", "mul.lo", "mul.hi", "div", "rem") for t in whole],
        "d, a, b",
    )
    add([f"mad.lo.{t}" for t in whole] + [f"mad.hi.{t}" for t in whole] + ["mad.hi.sat.s32"], "d, a, b, c")
    add([f"sad.{t}" for t in whole], "d, a, b, c")
    add([f"mul.wide.{t}" for t in whole[:4]], "d, a, b")
    add([f"mad.wide.{t}" for t in whole[:4]], "d, a, b, c")
    add(["add.sat.s32", "sub.sat.s32", "min.relu.s32", "max.relu.s32"], "d, a, b")
    add(
        [f"{op}.{t}" for op in ("add", "min", "max") for t in ("u16x2", "s16x2")] + ["max.relu.s16x2"],
        "d, a, b",
    )
    add([f"mul24.{k}.{t}" for k in ("lo", "hi") for t in ("u32", "s32")], "d, a, b")
    add([f"mad24.{k}.{t}" for k in ("lo", "hi") for t in ("u32", "s32")] + ["mad24.hi.sat.s32"], "d, a, b, c")
    add([f"{op}.{t}" for op in ("abs", "neg") for t in ("s16", "s32", "s64")], "d, a")
    add([f"dp4a.{a}.{b}" for a, b in product(("u32", "s32"), repeat=2)], "d, a, b, c")
    add(
        [f"dp2a.{k}.{a}.{b}" for k, a, b in product(("lo", "hi"), ("u32", "s32"), ("u32", "s32"))],
        "d, a, b, c",
    )
    add(
        [f"{op}.cc.{t}" for op in ("add", "addc", "sub", "subc") for t in ("u32", "s32", "u64", "s64")],
        "d, a, b",
    )
    add(
        [f"{op}.{k}.cc.{t}" for op in ("mad", "madc") for k in ("lo", "hi") for t in ("u32", "u64")],
        "d, a, b, c",
    )
    add([f"{op}.{t}" for op in ("popc", "clz", "brev") for t in ("b32", "b64")], "d, a")
    add([f"bfind{s}.{t}" for s in ("", ".shiftamt") for t in whole[2:]], "d, a")
    add(["fns.b32", *(f"bfe.{t}" for t in whole[2:])], "d, a, b, c")
    add(["bfi.b32", "bfi.b64"], "d, a, b, c, e")
    add([f"bmsk.{m}.b32" for m in ("clamp", "wrap")], "d, a, b")
    add([f"szext.{m}.{t}" for m in ("clamp", "wrap") for t in ("u32", "s32")], "d, a, b")
    add([f"{op}.{t}" for op in ("and", "or", "xor") for t in ("pred", "b16", "b32", "b64")], "d, a, b")
    add(
        [f"not.{t}" for t in ("pred", "b16", "b32", "b64")] + [f"cnot.{t}" for t in ("b16", "b32", "b64")],
        "d, a",
    )
    add(["lop3.b32"], "d, a, b, c, 0xE8")
    add(["lop3.b32"], "d, a, b, c, 0x1D")
    add(["lop3.and.b32"], "d|p, a, b, c, 0x96, q")
    add([f"shl.{t}" for t in ("b16", "b32", "b64")] + [f"shr.{t}" for t in (*whole, "b32")], "d, a, b")
    add([f"shf.{d}.{m}.b32" for d, m in product("lr", ("clamp", "wrap"))], "d, a, b, c")
    add(["prmt.b32", *(f"prmt.b32.{m}" for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))], "d, a, b, c")

    rounds = ("rn", "rz", "rm", "rp")
    for t in ("f32", "f64"):
        add([f"{op}.{r}.{t}" for op in ("add", "sub", "mul", "div") for r in rounds], "d, a, b")
        add([f"fma.{r}.{t}" for r in rounds], "d, a, b, c")
        add([f"{op}.{r}.{t}" for op in ("rcp", "sqrt") for r in rounds], "d, a")
        add([f"{op}.{t}" for op in ("min", "max", "copysign")], "d, a, b")
        add([f"{op}.{t}" for op in ("abs", "neg")], "d, a")
        add(
            [f"testp.{k}.{t}" for k in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")],
            "p, a",
        )
    add(
        ["add.ftz.f32", "add.sat.f32", "mul.ftz.sat.f32", "sub.rz.ftz.f32", "div.rn.ftz.f32", "min.ftz.f32"],
        "d, a, b",
    )
    add(["min.NaN.f32", "max.ftz.NaN.f32", "max.NaN.xorsign.abs.f32", "min.xorsign.abs.f32"], "d, a, b")
    add(["fma.rn.ftz.f32", "fma.rp.sat.f32", "fma.rm.ftz.sat.f32"], "d, a, b, c")
    add(["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"], "d, a, b")
    approximate = ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"]
    add([f"{op}.approx{z}.f32" for op in approximate for z in ("", ".ftz")] + ["tanh.approx.f32"], "d, a")
    add(["rsqrt.approx.f64", "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"], "d, a")
    add(
        [
            "ex2.approx.f16",
            "ex2.approx.f16x2",
            "ex2.approx.ftz.bf16",
            "tanh.approx.f16",
            "tanh.approx.bf16x2",
        ],
        "d, a",
    )
    add(["abs.ftz.f32", "neg.ftz.f32"], "d, a")

    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        add(
            [f"{op}.{t}" for op in ("add", "sub", "mul", "min", "max", "min.NaN", "max.NaN.xorsign.abs")],
            "d, a, b",
        )
        add([f"fma.rn.{t}", f"fma.rn.relu.{t}"], "d, a, b, c")
        add([f"neg.{t}", f"abs.{t}"], "d, a")
    add(["add.ftz.f16", "mul.ftz.sat.f16x2", "sub.sat.f16", "min.ftz.f16"], "d, a, b")
    add(["fma.rn.ftz.f16", "fma.rn.ftz.sat.f16x2", "fma.rn.ftz.relu.f16"], "d, a, b, c")
    add(["neg.ftz.f16", "abs.ftz.f16x2"], "d, a")

    ordered = ("eq", "ne", "lt", "le", "gt", "ge")
    add([f"setp.{c}.{t}" for c in ordered for t in ("u16", "s32", "u64", "s64")], "p, a, b")
    add([f"setp.{c}.u32" for c in ("lo", "ls", "hi", "hs")] + ["setp.ne.b64"], "p, a, b")
    every = (*ordered, *(f"{c}u" for c in ordered), "num", "nan")
    add([f"setp.{c}.{t}" for c in every for t in ("f32", "f64", "f16", "bf16")], "p, a, b")
    add(["setp.lt.ftz.f32", "setp.geu.ftz.f16"], "p, a, b")
    add(["setp.lt.and.s32", "setp.gtu.xor.f32", "setp.ge.or.f64"], "p|q, a, b, c")
    add(["setp.lt.f16x2", "setp.neu.bf16x2"], "p|q, a, b")
    add(["setp.lt.and.f16x2"], "p|q, a, b, c")
    add(
        ["set.lt.u32.f32", "set.geu.f32.f64", "set.ne.s32.u64", "set.lt.f16.f16", "set.gtu.bf16.bf16"],
        "d, a, b",
    )
    add(["set.le.f16x2.f16x2", "set.lt.u32.f16x2", "set.lt.s32.f16", "set.eq.u16.f16"], "d, a, b")
    add(["set.lt.and.u32.s32", "set.lt.xor.f16x2.f16x2"], "d, a, b, c")
    add([f"selp.{t}" for t in ("b16", "u32", "f32", "f64")], "d, a, b, p")
    add(["slct.b32.s32", "slct.f64.f32", "slct.ftz.u64.f32"], "d, a, b, c")

    pairs = [(a, b) for a, b in product(whole, ["u8", "s8", *whole]) if a != b]
    add([f"cvt.{a}.{b}" for a, b in pairs], "d, a")
    # `.sat` only where some source does not fit.
    fits = {(a, b) for a, b in pairs if int(a[1:]) > int(b[1:]) and (a[0] == "s" or b[0] == "u")}
    add([f"cvt.sat.{a}.{b}" for a, b in pairs if (a, b) not in fits], "d, a")
    add(
        [f"cvt.{r}.{f}.{t}" for f in ("f16", "f32", "f64") for t in whole for r in ("rn", "rz", "rm", "rp")],
        "d, a",
    )
    add([f"cvt.{r}.bf16.{t}" for t in whole for r in ("rn", "rz", "rm", "rp")], "d, a")
    for f in ("f16", "bf16", "f32", "f64"):
        add(
            [
                f"cvt.{r}.{t}.{f}"
                for t in (*whole, *(() if f == "bf16" else ("u8", "s8")))
                for r in ("rni", "rzi", "rmi", "rpi")
            ],
            "d, a",
        )
    add([f"cvt.{r}.{t}" for t in ("f16.f32", "f16.f64", "f32.f64", "bf16.f32") for r in ("rn", "rz")], "d, a")
    add([f"cvt.{r}.{t}" for t in ("f16.f32", "f32.f64", "f16.f64") for r in ("rm", "rp")], "d, a")
    add([f"cvt.{r}.{t}" for t in ("bf16.f16", "f16.bf16", "bf16.f64") for r in rounds], "d, a")
    add(
        ["cvt.f32.f16", "cvt.f64.f16", "cvt.f64.f32", "cvt.f32.bf16", "cvt.f64.bf16", "cvt.ftz.f64.f32"],
        "d, a",
    )
    add([f"cvt.{r}.{t}.{t}" for t in ("f16", "f32", "f64") for r in ("rni", "rzi", "rmi", "rpi")], "d, a")
    add(
        [
            "cvt.sat.f32.f32",
            "cvt.rn.sat.f16.f32",
            "cvt.rn.sat.f32.s32",
            "cvt.rn.ftz.f32.f64",
            "cvt.rni.ftz.s32.f32",
        ],
        "d, a",
    )
    add(["cvt.rn.relu.f16.f32", "cvt.rz.relu.bf16.f32"], "d, a")
    add(["cvt.rn.satfinite.f16.f32", "cvt.rn.satfinite.relu.bf16.f32"], "d, a")
    add(
        [f"cvt.{r}{x}.{t}x2.f32" for r in ("rn", "rz") for x in ("", ".relu") for t in ("f16", "bf16")],
        "d, a, b",
    )
    add(["cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.relu.tf32.f32", "cvt.rna.satfinite.tf32.f32"], "d, a")
    add([f"cvt.rn.satfinite{x}.{t}x2.f32" for x in ("", ".relu") for t in ("e4m3", "e5m2")], "d, a, b")
    add([f"cvt.rn.satfinite.{t}x2.f16x2" for t in ("e4m3", "e5m2")], "d, a")
    add([f"cvt.rn{x}.f16x2.{t}x2" for x in ("", ".relu") for t in ("e4m3", "e5m2")], "d, a")
    add(["cvt.pack.sat.u16.s32", "cvt.pack.sat.s16.s32"], "d, a, b")
    add(["cvt.pack.sat.u8.s32.b32", "cvt.pack.sat.s4.s32.b32", "cvt.pack.sat.u2.s32.b32"], "d, a, b, c")

    add([f"shfl.sync.{m}.b32" for m in ("up", "down", "bfly", "idx")], "d|p, a, b, c, m")
    add([f"vote.sync.{m}.pred" for m in ("all", "any", "uni")] + ["vote.sync.ballot.b32"], "d, a, m")
    add(["match.any.sync.b32", "match.any.sync.b64"], "d, a, m")
    add(["match.all.sync.b32", "match.all.sync.b64"], "d|p, a, m")
    add([f"redux.sync.{o}.{t}" for o in ("add", "min", "max") for t in ("u32", "s32")], "d, a, m")
    add([f"redux.sync.{o}.b32" for o in ("and", "or", "xor")], "d, a, m")
    add(["elect.sync"], "d|p, m")
    add(["activemask.b32"], "d")
    add(["movmatrix.sync.aligned.m8n8.trans.b16"], "d, a")

    mma = "mma.sync.aligned.{}.row.col.{} {}"

    def matrix(shape: str, types: str, *counts: int) -> None:
        vectors = [
            "{" + ", ".join(f"%{letter}{i}" for i in range(n)) + "}"
            for letter, n in zip("dabc", counts, strict=True)
        ]
        out.append(mma.format(shape, types, ", ".join(vectors)))

    for t in ("f16", "bf16"):
        matrix("m16n8k16", f"f32.{t}.{t}.f32", 4, 4, 2, 4)
        matrix("m16n8k8", f"f32.{t}.{t}.f32", 4, 2, 1, 4)
    matrix("m16n8k16", "f16.f16.f16.f16", 2, 4, 2, 2)
    matrix("m16n8k8", "f16.f16.f16.f16", 2, 2, 1, 2)
    matrix("m16n8k4", "f32.tf32.tf32.f32", 4, 2, 1, 4)
    matrix("m16n8k8", "f32.tf32.tf32.f32", 4, 4, 2, 4)
    matrix("m8n8k4", "f64.f64.f64.f64", 2, 1, 1, 2)
    for k, a, b in ((4, 2, 1), (8, 4, 2), (16, 8, 4)):
        matrix(f"m16n8k{k}", "f64.f64.f64.f64", 4, a, b, 4)
    for a, b in product(("s8", "u8"), repeat=2):
        matrix("m8n8k16", f"s32.{a}.{b}.s32", 2, 1, 1, 2)
        matrix("m16n8k16", f"satfinite.s32.{a}.{b}.s32", 4, 2, 1, 4)
        matrix("m16n8k32", f"s32.{a}.{b}.s32", 4, 4, 2, 4)
    matrix("m16n8k32", "s32.s4.u4.s32", 4, 2, 1, 4)
    matrix("m16n8k64", "s32.u4.s4.s32", 4, 4, 2, 4)
    for a, b in product(("e4m3", "e5m2"), repeat=2):
        matrix("m16n8k32", f"f32.{a}.{b}.f32", 4, 4, 2, 4)
    return out


HOPPER = tuple(_forms())
"""Every form, in the order of the modules that compute them."""
