"""Plausible bugs of tiled matrix products, planted one at a time in the tasks' own solutions."""

from __future__ import annotations

from tests.tasks.mutants import FAULT, WRONG, Mutant
from tools.evaluation import Verdict

F16, BF16 = "gemm_f16_mma", "gemm_bf16_async"


def _one(task: str, bug: str, old: str, new: str, verdict: Verdict, says: str) -> Mutant:
    return Mutant(task, bug, ((old, new),), verdict, says)


MUTANTS: tuple[Mutant, ...] = (
    _one(F16, "fragment from the wrong row", "[%at_a+1280]", "[%at_a+640]", WRONG, "workload small"),
    _one(
        F16,
        "fragment of b not transposed",
        "x4.trans.shared.b16 {%b0, %b1, %b2, %b3}, [%at_b+0]",
        "x4.shared.b16 {%b0, %b1, %b2, %b3}, [%at_b+0]",
        WRONG,
        "workload small",
    ),
    _one(
        F16,
        "tail of k missed",
        "setp.gt.u32 %more, %left, 32;",
        "setp.ge.u32 %more, %left, 64;",
        WRONG,
        "workload edges",
    ),
    _one(
        F16,
        "always the first slot of a",
        "add.u32 %at_a, %get_a, %slot;",
        "add.u32 %at_a, %get_a, 0;",
        WRONG,
        "workload small",
    ),
    _one(
        F16,
        "columns let the end through",
        "setp.lt.u32 %in_n, %col, %n",
        "setp.le.u32 %in_n, %col, %n",
        FAULT,
        "past the end of b",
    ),
    _one(
        F16,
        "rows let the end through",
        "setp.lt.u32 %in_m0, %row, %m",
        "setp.le.u32 %in_m0, %row, %m",
        FAULT,
        "past the end of a",
    ),
    _one(BF16, "nobody waits for the copies", "  cp.async.wait_group 1; ", "  //", WRONG, "shared memory"),
    _one(
        BF16,
        "waits for one group too few",
        "cp.async.wait_group 1;",
        "cp.async.wait_group 2;",
        WRONG,
        "shared memory",
    ),
    _one(
        BF16,
        "always the same slot",
        "add.u32 %slot, %slot, 15360;",
        "add.u32 %slot, %slot, 0;",
        WRONG,
        "workload small",
    ),
    _one(
        BF16,
        "two slots and three",
        "setp.eq.u32 %p0, %slot, 46080;",
        "setp.eq.u32 %p0, %slot, 30720;",
        WRONG,
        "workload",
    ),
    _one(
        BF16, "fragment from the wrong row", "shr.u32 %t, %lane, 3;", "shr.u32 %t, %lane, 4;", WRONG, "small"
    ),
    _one(
        BF16,
        "tail of k missed",
        "setp.gt.u32 %more, %left, 32;",
        "setp.ge.u32 %more, %left, 64;",
        WRONG,
        "workload edges",
    ),
    _one(
        BF16,
        "columns let the end through",
        "setp.lt.u32 %p0, %col, %n;\n  selp.b32 %b_bytes0",
        "setp.le.u32 %p0, %col, %n;\n  selp.b32 %b_bytes0",
        FAULT,
        "past the end of b",
    ),
    _one(
        BF16,
        "one column too many is stored",
        "setp.lt.and.u32 %p1, %t, %n, %p0;\n  cvt.rn.bf16.f32 %h, %c1;",
        "setp.le.and.u32 %p1, %t, %n, %p0;\n  cvt.rn.bf16.f32 %h, %c1;",
        WRONG,
        "only column 0",
    ),
)

RACES: tuple[Mutant, ...] = (
    _one(F16, "no barrier after the first tile", "  bar.sync 0;\nTILE:", "TILE:", WRONG, "race"),
    _one(F16, "no barrier in the loop", "  bar.sync 0;\n  setp.gt", "  setp.gt", WRONG, "race"),
    _one(BF16, "no barrier in the loop", "  bar.sync 0;  ", "  //", WRONG, "race"),
)
"""Barriers left out where the order of warps alone makes it wrong: right while warps keep in step."""
