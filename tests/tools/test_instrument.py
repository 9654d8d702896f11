"""Counters put before instructions count what the emulator counts by itself, to the last one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sandbox.device import Buffer, Counts, Limits, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.families import family_of_name
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import parse_plan
from sandbox.ptx.printer import print_module
from tasks.registry import list_tasks, load_task
from tools.assemble import assemble
from tools.instrument import instrument
from tools.problem import named_workloads, problem
from tools.trial import FILLS

PLAN = "launch:\n  - {entry: k, grid: [3], block: [80], args: [out]}\n"
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def both(program: Program, axes: dict[str, int], buffers: dict[str, Buffer]) -> tuple[Counts, Counts]:
    """What the emulator counts, of target families alone, and what the counters count."""
    made = instrument(program.module)
    assert made is not None
    counted = replace(program, module=made.module)
    plain = EmulatorDevice().load(program).run(axes, buffers, Limits())
    outcome = EmulatorDevice().load(counted).run(axes, buffers, Limits(variables=(made.variable,)))
    assert plain.fault is None
    assert outcome.fault is None
    for name in buffers:
        assert np.array_equal(plain.buffers[name], outcome.buffers[name])
    sites = {site: count for site, count in plain.counts.by_site.items() if family_of_name(site[2])}
    found = made.counts(outcome.variables[made.variable].tobytes())
    return Counts(sites), Counts({site: count for site, count in found.by_site.items() if count})


@pytest.mark.parametrize("name", list_tasks("starter"))
def test_solutions(name: str) -> None:
    task = load_task(name)
    path = task.solution("sm_90a")
    assert path is not None
    candidate = read_candidate(path.read_text())
    module = parse_module(candidate.ptx, candidate.ptx_first_line)
    if instrument(module) is None:
        return  # uses no family
    workload, shown = named_workloads(task, tuple(task.task.workloads[0].roles))[0]
    made = problem(task, workload, shown, 3)
    program = Program(module, candidate.plan, candidate.text, "sm_90a")
    own, counted = both(program, dict(made.axes), made.buffers(made.filled(FILLS[0])))
    assert counted.by_site == own.by_site


BODIES = {
    "guards": """
    setp.lt.u32 %p1, %r1, 17;
    @%p1 red.global.add.u32 [%d1], 1;
    @!%p1 red.global.add.u32 [%d1], 2;
    setp.gt.u32 %p1, %r1, 70;
    @%p1 red.global.add.u32 [%d1], 3;
    """,
    "divergence": """
    and.b32 %r2, %r1, 3;
    setp.eq.u32 %p1, %r2, 1;
    @%p1 bra A;
    red.global.add.u32 [%d1], 1;
    bra B;
A:  red.global.add.u32 [%d1], 2;
    red.global.add.u32 [%d1], 3;
B:  red.global.add.u32 [%d1], 4;
    """,
    "loop": """
    mov.u32 %r2, 0;
L:  red.global.add.u32 [%d1], 1;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra L;
    """,
    "exit": """
    red.global.add.u32 [%d1], 1;
    setp.gt.u32 %p1, %r1, 40;
    @%p1 exit;
    red.global.add.u32 [%d1], 1;
    """,
    "warp": """
    shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff;
    shfl.sync.bfly.b32 %r2, %r2, 2, 31, 0xffffffff;
    vote.sync.ballot.b32 %r3, 1, 0xffffffff;
    red.global.add.u32 [%d1], %r2;
    """,
    "nested scope": """
    { .reg .b32 %inner; atom.global.add.u32 %inner, [%d1], 1; }
    red.global.add.u32 [%d1], 1;
    """,
}


@pytest.mark.parametrize("name", BODIES)
def test_small_kernels(name: str) -> None:
    block = 64 if name == "warp" else 80  # whole warps for what a warp does together
    text = f"""{HEAD}.visible .entry k(.param .u64 out)
{{
    .reg .b64 %d<3>; .reg .b32 %r<5>; .reg .pred %p<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    {BODIES[name]}
    ret;
}}
"""
    program = Program(parse_module(text), parse_plan(PLAN.replace("80", str(block))), text, "sm_90a")
    own, counted = both(program, {}, {"out": Buffer("out", np.zeros(4, np.uint8))})
    assert counted.by_site == own.by_site
    assert sum(own.by_site.values()) > 0


def test_a_function_that_is_called_is_counted_for_every_caller() -> None:
    text = f"""{HEAD}.func bump(.param .u64 where)
{{
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [where];
    red.global.add.u32 [%d1], 1;
    ret;
}}
.visible .entry k(.param .u64 out)
{{
    .reg .b64 %d<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 33;
    {{ .param .u64 a; st.param.u64 [a], %d1; @%p1 call bump, (a); }}
    {{ .param .u64 a; st.param.u64 [a], %d1; call bump, (a); }}
    ret;
}}
"""
    program = Program(parse_module(text), parse_plan(PLAN), text, "sm_90a")
    own, counted = both(program, {}, {"out": Buffer("out", np.zeros(4, np.uint8))})
    assert counted.by_site == own.by_site
    assert list(own.by_site.values()) == [3 * (33 + 80)]


def test_hopper_kernels_assemble_with_counters_and_copies_are_weighed_by_their_registers() -> None:
    text = (Path(__file__).parent / "hopper_sm90a.ptx").read_text()
    made = instrument(parse_module(text))
    assert made is not None
    assert {site.unit for site in made.sites} >= {"threads", "warps"}
    assert {site.share for site in made.sites if "wgmma.mma_async" in site.name} == {4}
    assert assemble(print_module(made.module), "sm_90a").assembly.ok


def test_a_module_that_is_too_old_or_uses_no_family_is_left_alone() -> None:
    empty = ".visible .entry k() { ret; }"
    assert instrument(parse_module(HEAD + empty)) is None
    old = (
        HEAD.replace("8.0", "6.0")
        + ".visible .entry k(.param .u64 o) { .reg .b64 %d; ld.param.u64 %d, [o]; red.global.add.u32 [%d], 1; ret; }"
    )
    assert instrument(parse_module(old)) is None
