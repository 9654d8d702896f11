"""Executed counts become evidence: share of work, dead code, and the rule of the task."""

from __future__ import annotations

import pytest

from sandbox.device import Counts
from sandbox.ptx.parser import parse_module
from tasks.schema import TargetRule
from tools.evaluation import Depth, Target
from tools.prove import executed, met, usage, weighed

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MODULE = parse_module(f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
{{
  .reg .f32 %f<8>; .reg .b32 %r<8>; .reg .pred %p;
  {MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%f0,%f1,%f2,%f3}};
  @%p bra END;
  {MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%f0,%f1,%f2,%f3}};
END:
  ret;
}}
""")
FLOPS = 2 * 16 * 8 * 16
WORK = FLOPS * 8


def target(depth: Depth = Depth.IN_SASS, note: str = "") -> Target:
    return Target(family="mma_sync", required=True, depth=depth, in_ptx=2, in_sass=2, note=note)


def proven(counts: dict[tuple[str, int, str], int], depth: Depth = Depth.IN_SASS, note: str = "") -> Target:
    found = executed(target(depth, note), usage(MODULE, Counts(counts))["mma_sync"], WORK, 0)
    return weighed(found, "changed", "small") if found.depth is Depth.EXECUTED else found


def test_executions_and_their_share_of_the_work() -> None:
    found = proven({("k", 8, MMA): 3, ("k", 10, MMA): 1})
    assert (found.depth, found.executed, found.met) == (Depth.LOAD_BEARING, 4, True)
    assert found.share == pytest.approx(0.5)


def test_what_never_ran_is_dead_code_with_its_lines() -> None:
    found = proven({("k", 9, "bra"): 5})
    assert (found.depth, found.executed, found.met) == (Depth.IN_SASS, 0, False)
    assert found.note == "mma_sync is in the machine code but never ran: dead code at lines 8, 10"


def test_a_dead_half_is_named_though_the_target_is_met() -> None:
    found = proven({("k", 8, MMA): 7})
    assert found.met
    assert found.note == "ran 7 times; never ran at line 10"


@pytest.mark.parametrize("depth", [Depth.ABSENT, Depth.IN_PTX])
def test_what_ptxas_dropped_is_not_proven_by_the_emulator(depth: Depth) -> None:
    found = proven({("k", 8, MMA): 7}, depth, "dropped by ptxas")
    assert (found.depth, found.met, found.note) == (depth, False, "dropped by ptxas")


def test_the_rule_asks_for_all_and_for_one_of_any() -> None:
    good = proven({("k", 8, MMA): 1})
    bad = good.model_copy(update={"family": "wgmma", "met": False})
    assert met(TargetRule(), (), ())
    assert met(TargetRule(all=("mma_sync",)), (), (good, bad))
    assert not met(TargetRule(all=("mma_sync", "wgmma")), (), (good, bad))
    assert met(TargetRule(any=("mma_sync", "wgmma")), (), (good, bad))
    assert not met(TargetRule(any=("wgmma",)), (), (good, bad))
    assert not met(TargetRule(all=("mma_sync",)), ("wgmma",), (good, bad))
