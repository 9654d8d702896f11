"""Plausible bugs, planted one at a time in the tasks' own solutions, and what each must be called.

A mutant is text of a solution replaced by other text. `verdict` is where the ladder must stop, `says` a
phrase of what the evaluation must say: the true cause or place of the damage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.registry import load_task
from tools.evaluation import Verdict

ARCH = "sm_90a"
WRONG, FAULT, HANG = Verdict.WRONG_OUTPUT, Verdict.FAULT, Verdict.HANG
NARROW = "cvt.rn.f16.f32 %half, {0};\n  cvt.f32.f16 {0}, %half;"


@dataclass(frozen=True)
class Mutant:
    """One bug. edits: (text, replacement); each text must stand in the solution exactly once."""

    task: str
    bug: str
    edits: tuple[tuple[str, str], ...]
    verdict: Verdict
    says: str
    """A regular expression that the summary, the explanation or a warning must match."""

    @property
    def text(self) -> str:
        path = load_task(self.task).solution(ARCH)
        assert path is not None
        text = path.read_text()
        for old, new in self.edits:
            assert text.count(old) == 1, (self.task, self.bug, old, text.count(old))
            text = text.replace(old, new)
        return text

    @property
    def name(self) -> str:
        return f"{self.task}-{re.sub(r'[^a-z0-9]+', '_', self.bug.lower())}"


def _one(task: str, bug: str, old: str, new: str, verdict: Verdict, says: str) -> Mutant:
    return Mutant(task, bug, ((old, new),), verdict, says)


def _through_half(task: str, bug: str, register: str, before: str, says: str) -> Mutant:
    """`register` goes through float16 in front of the instruction `before`."""
    edits = (
        (before, f"{NARROW.format(register)}\n  {before}"),
        ("  .reg .pred", "  .reg .b16 %half;\n  .reg .pred"),
    )
    return Mutant(task, bug, edits, WRONG, says)


MUTANTS: tuple[Mutant, ...] = (
    _one(
        "affine",
        "wrong constant in one of four",
        "fma.rn.f32 %v2, %v2, 0f40000000, 0f3F800000;",
        "fma.rn.f32 %v2, %v2, 0f40000000, 0f40000000;",
        WRONG,
        "index % 4 in",
    ),
    _one("affine", "no way to the tail", "  @%p1 bra TAIL;\n", "", FAULT, "past the end of x"),
    _one("affine", "the tail does one element", "  @%p2 bra TAIL;\n", "", WRONG, "never written"),
    _one(
        "affine",
        "guard lets the end through",
        "setp.ge.u32 %p0, %i, %n",
        "setp.gt.u32 %p0, %i, %n",
        FAULT,
        "x",
    ),
    _one("affine", "grid rounds down", "cdiv(n, 1024)", "max(n // 1024, 1)", WRONG, "never written"),
    _one("affine", "half a block", "block: 256", "block: 128", WRONG, "never written"),
    _through_half("affine", "through f16", "%v0", "st.global.v4.f32 [%y]", "too narrow a type"),
    _one(
        "vector_add",
        "minus in one of four",
        "add.rn.f32 %u3, %u3, %v3;",
        "sub.rn.f32 %u3, %u3, %v3;",
        WRONG,
        "index % 4 in",
    ),
    _one(
        "vector_add",
        "a twice",
        "{%v0, %v1, %v2, %v3}, [%b]",
        "{%v0, %v1, %v2, %v3}, [%a]",
        WRONG,
        "1000 of 1000 elements of c",
    ),
    _one(
        "vector_add",
        "thread is no multiple of four",
        "  shl.b32 %i, %i, 2; ",
        "  //",
        FAULT,
        "multiple of 16",
    ),
    _one(
        "vector_add",
        "output pointer stays",
        "  add.u64 %c, %c, %offset;\n",
        "",
        WRONG,
        "996 of 1000 elements of c are never written",
    ),
    _one(
        "vector_add",
        "offset of doubles",
        "mul.wide.u32 %offset, %i, 4;",
        "mul.wide.u32 %offset, %i, 8;",
        FAULT,
        "past the end of a",
    ),
    _one(
        "vector_add",
        "writes into an input",
        "st.global.v4.f32 [%c]",
        "st.global.v4.f32 [%a]",
        WRONG,
        "overwrote its input a",
    ),
    _one(
        "vector_add",
        "the tail leaves b behind",
        "  add.u64 %b, %b, 4;\n",
        "",
        WRONG,
        "every element from index 1021 on",
    ),
    _through_half("vector_add", "through f16", "%u1", "st.global.v4.f32 [%c]", "too narrow a type|infinit"),
    _one(
        "vector_add",
        "NaN swallowed",
        "add.rn.f32 %u0, %u0, %v0;\n  add.rn.f32 %u1",
        "add.rn.f32 %u0, %u0, %v0;\n  max.f32 %u0, %u0, 0fFF800000;\n  add.rn.f32 %u1",
        WRONG,
        "NaN",
    ),
    _one(
        "gelu",
        "wrong constant",
        "0f3D372713",
        "0f3EE4F0D8",
        WRONG,
        "workload small [^,]*, .* elements of y are wrong",
    ),
    Mutant(
        "gelu",
        "x times sigmoid of 1.702 x",
        (("0f3D372713", "0f00000000"), ("0fC0135761", "0fC01D2660")),
        WRONG,
        "elements of y are wrong",
    ),
    _one(
        "gelu",
        "sign of the exponent",
        "0fC0135761",
        "0f40135761",
        WRONG,
        "workload small [^,]*, 99. of 1000 elements of y",
    ),
    _one(
        "gelu",
        "swapped halves",
        "mov.b32 {%h0, %h1}, %pair;",
        "mov.b32 {%h1, %h0}, %pair;",
        WRONG,
        "workload small [^,]*, 99. of 1000 elements of y",
    ),
    _one("gelu", "no way to the tail", "  @%p1 bra TAIL;\n", "", FAULT, "past the end of x"),
    _one(
        "gelu", "x squared and not cubed", "  mul.rn.f32 %u, %u, %x;\n", "", WRONG, "elements of y are wrong"
    ),
    _one(
        "row_sum",
        "wrong shuffle distance",
        "%bits, 8, 31, -1",
        "%bits, 4, 31, -1",
        WRONG,
        "8 of 8 elements of y",
    ),
    _one(
        "row_sum",
        "a shuffle between half warps",
        "%bits, 16, 31, -1",
        "%bits, 16, 0x101f, -1",
        WRONG,
        "every element",
    ),
    _one(
        "row_sum",
        "seven warps of eight",
        "setp.lt.u32 %p3, %j, 8",
        "setp.lt.u32 %p3, %j, 7",
        WRONG,
        "8 of 8 elements of y",
    ),
    _one(
        "row_sum",
        "stride of the loop",
        "add.u64 %x, %x, 1024",
        "add.u64 %x, %x, 1020",
        WRONG,
        "8 of 8 elements of y",
    ),
    _one(
        "row_sum",
        "guard lets the end through",
        "setp.ge.u32 %p0",
        "setp.gt.u32 %p0",
        FAULT,
        "past the end of x",
    ),
    _one(
        "row_sum",
        "row stride of a block",
        "mul.wide.u32 %base, %row, %n;",
        "mul.wide.u32 %base, %row, 256;",
        WRONG,
        "every element but the first",
    ),
    _one(
        "row_sum", "row offset in doubles", "shl.b64 %base, %base, 2", "shl.b64 %base, %base, 3", FAULT, "x"
    ),
    _one(
        "row_sum",
        "barrier for one warp",
        "  bar.sync 0;\n",
        "  @%p1 bar.sync 0;\n",
        FAULT,
        "bar.sync: its guard holds for only some threads of a warp",
    ),
    _one(
        "row_sum",
        "a barrier nobody else meets",
        "  bar.sync 0;\n",
        "  bar.sync 0, 512;\n",
        HANG,
        "256 of 512 threads came to barrier 0",
    ),
    _one(
        "row_sum",
        "partial sums in another's slot",
        "mad.lo.u32 %slot, %warp, 4, %slot",
        "mad.lo.u32 %slot, %lane, 4, %slot",
        WRONG,
        "shared memory that nothing wrote: partial, byte 4",
    ),
    _through_half("row_sum", "sums through f16", "%sum", "add.u64 %x, %x, 1024;", "too narrow a type"),
    _one(
        "transpose",
        "pitch of the tile",
        "mad.lo.u32 %t, %tx, 33, %k;",
        "mad.lo.u32 %t, %tx, 32, %k;",
        WRONG,
        "shared memory that nothing wrote: tile",
    ),
    _one(
        "transpose",
        "swapped index",
        "mad.lo.u32 %t, %tx, 33, %k;",
        "mad.lo.u32 %t, %k, 33, %tx;",
        WRONG,
        r"first y\[0, 1\]",
    ),
    _one(
        "transpose",
        "row length of the input",
        "mul.wide.u32 %index, %i, %m;",
        "mul.wide.u32 %index, %i, %n;",
        WRONG,
        "every row but the first",
    ),
    _one(
        "transpose",
        "swapped grid",
        "cdiv(n, 32), cdiv(m, 32)",
        "cdiv(m, 32), cdiv(n, 32)",
        WRONG,
        "never written",
    ),
    _one(
        "transpose",
        "half the rows",
        "block: 32, 8",
        "block: 32, 4",
        WRONG,
        "shared memory that nothing wrote: tile, byte 528",
    ),
    _one(
        "transpose",
        "one guard of two",
        "setp.lt.and.u32 %p1, %j, %n, %p0;",
        "setp.lt.u32 %p1, %j, %n;",
        FAULT,
        "x",
    ),
    _one(
        "transpose",
        "arguments swapped",
        "args: x, y, m, n",
        "args: x, y, n, m",
        WRONG,
        "every element but the first",
    ),
    _through_half(
        "transpose", "through f16", "%v", "st.shared.f32 [%slot], %v;", "2048 of 2048 elements of y"
    ),
    Mutant(
        "histogram",
        "counts not cleared",
        (("//!   - entry: clear\n//!     grid: 1\n//!     block: 256\n//!     args: y\n", ""),),
        WRONG,
        "memory that nothing wrote: y, byte 0",
    ),
    _one(
        "histogram",
        "clears half the counts",
        "    grid: 1\n//!     block: 256",
        "    grid: 1\n//!     block: 128",
        WRONG,
        "every element from index 128 on",
    ),
    _one(
        "histogram",
        "shared counts not cleared",
        "  st.shared.u32 [%own], %zero;\n",
        "",
        WRONG,
        "shared memory that nothing wrote: counts",
    ),
    _one("histogram", "signed bytes", "ld.global.u8 %value", "ld.global.s8 %value", FAULT, "shared|counts"),
    _one(
        "histogram",
        "not atomic",
        "red.shared.add.u32 [%slot], 1;",
        "ld.shared.u32 %count, [%slot];\n  add.u32 %count, %count, 1;\n  st.shared.u32 [%slot], %count;",
        WRONG,
        "elements of y are wrong",
    ),
    _one(
        "histogram",
        "blocks overwrite each other",
        "red.global.add.u32 [%at], %count;",
        "st.global.u32 [%at], %count;",
        WRONG,
        "elements of y are wrong",
    ),
    _one(
        "histogram",
        "step of the grid",
        "  shl.b32 %step, %step, 8; ",
        "  //",
        WRONG,
        "256 of 256 elements of y",
    ),
    _one(
        "histogram",
        "guard lets the end through",
        "setp.ge.u32 %p0",
        "setp.gt.u32 %p0",
        FAULT,
        "past the end of x",
    ),
    _one("rms_norm", "no epsilon", "  add.rn.f32 %sum, %sum, 0f3727C5AC;", "  //", WRONG, "tiny|thin"),
    _one("rms_norm", "another epsilon", "0f3727C5AC", "0f358637BD", WRONG, "tiny|thin"),
    _one("rms_norm", "sum and not mean", "  div.rn.f32 %sum, %sum, %count;\n", "", WRONG, "every element"),
    _one("rms_norm", "weights stay", "  add.u64 %w, %w, 512;\n", "", WRONG, r"only column 256 \(the last\)"),
    _one("rms_norm", "no root", "  sqrt.rn.f32 %sum, %sum;\n", "", WRONG, "every element"),
    _one(
        "rms_norm",
        "shuffles start at eight",
        "mov.u32 %distance, 16;",
        "mov.u32 %distance, 8;",
        WRONG,
        "every element",
    ),
    _one(
        "rms_norm",
        "lower half of the word",
        "mov.b32 %g, {%zero, %h};",
        "mov.b32 %g, {%h, %zero};",
        WRONG,
        r"y\[0, 0\] = 0 instead",
    ),
    _one(
        "rms_norm",
        "output in f16",
        "cvt.rn.bf16.f32 %h, %v;",
        "cvt.rn.f16.f32 %h, %v;",
        WRONG,
        "elements of y are wrong",
    ),
    _one("rms_norm", "entry misspelt", "- entry: rms_norm", "- entry: rmsnorm", Verdict.BAD_PLAN, "rmsnorm"),
    Mutant(
        "row_softmax",
        "no maximum",
        (("  max.f32 %max, %max, %v;\n  add.u64", "  add.u64"), ("0fFF800000", "0f00000000")),
        WRONG,
        "below|large|far",
    ),
    _one("row_softmax", "maximum starts at zero", "0fFF800000", "0f00000000", WRONG, "below"),
    _one(
        "row_softmax",
        "maximum starts at the smallest positive",
        "0fFF800000",
        "0f00800000",
        WRONG,
        "below",
    ),
    _one(
        "row_softmax",
        "sum misses the last warp",
        "  ld.shared.f32 %v, [%slot+28];\n  add.rn.f32 %sum, %sum, %v;\n",
        "",
        WRONG,
        "1028 of 1028 elements of y",
    ),
    _one("row_softmax", "no quotient", "  mul.rn.f32 %v, %v, %inverse;\n", "", WRONG, "every element"),
    _one(
        "row_softmax",
        "type of an operand",
        "rcp.rn.f32 %inverse, %sum;",
        "rcp.rn.f32 %inverse, %at;",
        Verdict.ASSEMBLE_ERROR,
        "rcp",
    ),
    _through_half(
        "row_softmax", "quotients through f16", "%v", "add.u64 %offset, %at, %y;", "too narrow a type"
    ),
    _one(
        "row_softmax",
        "too much shared memory",
        "partial[8]",
        "partial[65536]",
        Verdict.ASSEMBLE_ERROR,
        "too much shared data",
    ),
)

RACES: tuple[Mutant, ...] = (
    _one("row_sum", "no barrier", "  bar.sync 0;\n", "", WRONG, "race"),
    _one("transpose", "no barrier", "  bar.sync 0;\n", "", WRONG, "race"),
    _one("histogram", "no barrier before the sum", "COUNTED:\n  bar.sync 0;\n", "COUNTED:\n", WRONG, "race"),
    _one("rms_norm", "no barrier", "  bar.sync 0;\n", "", WRONG, "race"),
    _one(
        "row_softmax",
        "slots used too early",
        "  ld.shared.f32 %v, [%slot+28];\n  max.f32 %max, %max, %v;\n  bar.sync 0;",
        "  ld.shared.f32 %v, [%slot+28];\n  max.f32 %max, %max, %v;\n",
        WRONG,
        "race",
    ),
)
"""Barriers left out where only the order of warps makes it wrong: right while warps keep in step."""
