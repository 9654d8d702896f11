"""Without a family's effect the answer changes, or the family was decoration."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.ptx.families import family_of
from sandbox.ptx.layout import instructions
from sandbox.ptx.nodes import Module
from sandbox.ptx.parser import parse_module
from sandbox.ptx.printer import print_module
from tasks.registry import list_tasks, load_task
from tools.assemble import assemble
from tools.evaluation import Depth, Evaluation, Target, Verdict
from tools.knockout import RULES, NoCopy, knocked_out
from tools.ladder import Job, evaluate

HOPPER = parse_module((Path(__file__).parent / "hopper_sm90a.ptx").read_text())
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%a0,%a1,%a2,%a3}, {%b0,%b1,%b2,%b3}, {%b4,%b5}, {%a0,%a1,%a2,%a3};"


def families(module: Module) -> set[str]:
    return {name for each in module.functions for i in instructions(each.body) if (name := family_of(i))}


def judged(text: str, task: str, *require: str) -> Evaluation:
    return evaluate(Job(task, "sm_90a", text, require=require, seed=5)).evaluation


def target(found: Evaluation, family: str) -> Target:
    return next(each for each in found.targets if each.family == family)


@pytest.mark.parametrize("name", [n for n in list_tasks("starter") if load_task(n).targets_for("sm_90a").all])
def test_what_the_solutions_are_asked_to_use_bears_load(name: str) -> None:
    path = load_task(name).solution("sm_90a")
    assert path is not None
    found = judged(path.read_text(), name)
    assert found.verdict is Verdict.CORRECT
    for each in load_task(name).targets_for("sm_90a").all:
        assert (target(found, each).depth, target(found, each).knocked_out) == (Depth.LOAD_BEARING, "changed")
    assert found.targets_met


def decorated(use: str) -> str:
    """The solution of vector_add with an mma whose result goes where `use` says, kept alive for ptxas by a store that never happens."""
    path = load_task("vector_add").solution("sm_90a")
    assert path is not None
    text = path.read_text()
    body = text.index("\n{", text.index(".entry")) + 2
    decoration = f"""
    .reg .f32 %a<4>; .reg .b32 %b<6>; .reg .pred %never;
    mov.u32 %b0, %tid.x; mov.b32 %b1, %b0; mov.b32 %b2, %b0; mov.b32 %b3, %b0; mov.b32 %b4, %b0; mov.b32 %b5, %b0;
    mov.f32 %a0, 0f00000000; mov.f32 %a1, %a0; mov.f32 %a2, %a0; mov.f32 %a3, %a0;
    {MMA}
    {use}
    """
    return text[:body] + decoration + text[body:]


USES = {
    "compared with what it never is": "setp.eq.f32 %never, %a0, 0f7F123456; @%never trap;",
    "multiplied by a zero that ptxas does not know": """
    .reg .u32 %z; .reg .f32 %zero; mov.u32 %z, %tid.z; cvt.rn.f32.u32 %zero, %z;
    mul.f32 %a0, %a0, %zero; setp.gt.f32 %never, %a0, 0f3F800000; @%never exit;""",
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_decoration_stops_at_executed_and_the_note_says_why(use: str) -> None:
    found = judged(decorated(use), "vector_add", "mma_sync")
    seen = target(found, "mma_sync")
    assert found.verdict is Verdict.CORRECT
    assert (seen.depth, seen.knocked_out, seen.met) == (Depth.EXECUTED, "unchanged", False)
    assert "without mma_sync the output on" in seen.note
    assert not found.targets_met


@pytest.mark.parametrize("family", sorted(families(HOPPER) & set(RULES)))
def test_copies_of_hopper_kernels_assemble(family: str) -> None:
    copy = knocked_out(HOPPER, family)
    result = assemble(print_module(copy), "sm_90a")
    assert result.assembly.ok, [each.message for each in result.diagnostics]
    assert families(copy) | {family} == families(HOPPER)


FORMS = {
    "shfl": ("shfl.sync.bfly.b32 %r1|%p, %r2, 1, 31, -1;", ["mov.b32 %r1, %r2;", "setp.eq.u32 %p, 0, 0;"]),
    "vote": ("vote.sync.any.pred %p, %p, -1;", ["setp.ne.u32 %p, 0, 0;"]),
    "atomic": ("@%p atom.global.add.u64 %d, [%d], 1;", ["@%p mov.b64 %d, 0;"]),
    "redux": ("redux.sync.add.s32 %r1, %r2, -1;", ["mov.b32 %r1, %r2;"]),
    "stmatrix": ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", []),
    "cp_async": (
        "cp.async.ca.shared.global [%r1], [%d], 8;",
        ["cp.async.ca.shared.global [%r1], [%d], 8, 0;"],
    ),
    "ldmatrix": (
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r1];",
        ["mov.b32 %r1, 0;", "mov.b32 %r2, 0;"],
    ),
}


@pytest.mark.parametrize("family", FORMS)
def test_what_stands_in_the_place_of_an_instruction(family: str) -> None:
    line, instead = FORMS[family]
    text = f"{HEAD}.entry k() {{ .reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p; {line} ret; }}"
    copy = print_module(knocked_out(parse_module(text), family))
    lines = [each.strip() for each in copy.splitlines()]
    assert lines[lines.index("ret;") - len(instead) : lines.index("ret;")] == instead


def test_a_form_without_a_rule_is_named() -> None:
    text = f"{HEAD}.entry k() {{ .reg .b16 %h; .reg .b64 %d; atom.global.cas.b16 %h, [%d], %h, %h; ret; }}"
    with pytest.raises(NoCopy, match=r"atom\.global\.cas\.b16"):
        knocked_out(parse_module(text), "atomic")
