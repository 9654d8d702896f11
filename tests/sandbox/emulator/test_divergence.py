"""Divergence: random control-flow graphs, run wide, against every thread walked alone by a few lines of
Python.
"""

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sandbox.emulator.harness import HEAD, TID, good, kernel, output, run, zeros

THREADS = 80
REGS = 4
MASK = 0xFFFFFFFF


@dataclass
class Part:
    """A basic block: register steps, then where to."""

    steps: list[tuple[str, int, int, int]]
    """(operation, destination, source, literal); operations end in `?` when guarded by `source is odd`."""
    test: tuple[str, int, int]
    """Comparison of a register with a literal."""
    taken: int
    other: int
    """Blocks; the number of blocks stands for the end. When `table` is given both are unused."""
    table: tuple[int, ...] = ()


def program(seed: int) -> list[Part]:
    """Blocks that branch anywhere, so that loops may be entered at any of their blocks."""
    rng = random.Random(seed)
    count = rng.randint(2, 7)
    parts: list[Part] = []
    for _ in range(count):
        steps = [
            (
                rng.choice(["add", "xor", "mul", "sub", "add?", "xor?"]),
                rng.randrange(REGS),
                rng.randrange(REGS),
                rng.getrandbits(5),
            )
            for _ in range(rng.randint(1, 3))
        ]
        table = tuple(rng.randint(0, count) for _ in range(rng.randint(2, 4))) if rng.random() < 0.15 else ()
        test = (
            rng.choice(["lt", "ge", "eq", "ne"]),
            rng.randrange(REGS),
            rng.choice([0, 3, 17, 40, 1 << 31]),
        )
        parts.append(Part(steps, test, rng.randint(0, count), rng.randint(0, count), table))
    return parts


def as_ptx(parts: list[Part], fuel: int) -> str:
    lines = ["ld.param.u64 %rd1, [o]; mov.u32 %r30, %tid.x; mov.u32 %r29, 0;", f"mov.u32 %r28, {fuel};"]
    lines += [f"mad.lo.u32 %r{k}, %r30, {2 * k + 1}, {k};" for k in range(REGS)]
    for number, part in enumerate(parts):
        lines.append(f"B{number}: sub.u32 %r28, %r28, 1; setp.eq.u32 %p9, %r28, 0; @%p9 bra B{len(parts)};")
        lines.append(f"mad.lo.u32 %r29, %r29, 31, {number + 1};")
        for name, to, source, literal in part.steps:
            guard = ""
            if name.endswith("?"):
                lines.append(f"and.b32 %r27, %r{source}, 1; setp.ne.u32 %p8, %r27, 0;")
                guard = "@%p8 "
            kind = {"add": "add.u32", "sub": "sub.u32", "xor": "xor.b32", "mul": "mul.lo.u32"}[
                name.rstrip("?")
            ]
            lines.append(f"{guard}{kind} %r{to}, %r{source}, {literal};")
        if part.table:
            names = ", ".join(f"B{each}" for each in part.table)
            lines.append(
                f"rem.u32 %r27, %r{part.test[1]}, {len(part.table)};\nT{number}: .branchtargets {names};\n"
                f"brx.idx %r27, T{number};"
            )
            continue
        lines.append(
            f"setp.{part.test[0]}.u32 %p7, %r{part.test[1]}, {part.test[2]}; @%p7 bra B{part.taken};"
        )
        if part.other != number + 1:
            lines.append(f"bra B{part.other};")
    lines.append(
        f"B{len(parts)}: mad.lo.u32 %r26, %r30, {4 * (REGS + 1)}, 0; cvt.u64.u32 %rd2, %r26; add.u64 %rd3, "
        "%rd1, %rd2;"
    )
    lines += [f"st.global.u32 [%rd3+{4 * k}], %r{k};" for k in range(REGS)]
    lines.append(f"st.global.u32 [%rd3+{4 * REGS}], %r29;")
    return kernel("\n".join(lines))


def walk(parts: list[Part], thread: int, fuel: int) -> tuple[list[int], int]:
    """(registers and path of one thread, blocks it walked)."""
    regs = [(thread * (2 * k + 1) + k) & MASK for k in range(REGS)]
    path = at = walked = 0
    while at < len(parts):
        fuel -= 1
        walked += 1
        if fuel == 0:
            break
        part = parts[at]
        path = (path * 31 + at + 1) & MASK
        for name, to, source, literal in part.steps:
            value = regs[source]
            if name.endswith("?") and not value & 1:
                continue
            plain = name.rstrip("?")
            value = {
                "add": value + literal,
                "sub": value - literal,
                "xor": value ^ literal,
                "mul": value * literal,
            }[plain]
            regs[to] = value & MASK
        comparison, left, right = part.test
        if part.table:
            at = part.table[regs[left] % len(part.table)]
            continue
        value = regs[left]
        holds = {"lt": value < right, "ge": value >= right, "eq": value == right, "ne": value != right}[
            comparison
        ]
        at = part.taken if holds else part.other
    return [*regs, path], walked


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), fuel=st.integers(3, 60))
def test_any_graph_runs_as_if_every_thread_were_alone(seed: int, fuel: int):
    parts = program(seed)
    outcome = run(as_ptx(parts, fuel), output(4 * THREADS * (REGS + 1)), block=(THREADS,))
    got = good(outcome).reshape(THREADS, REGS + 1)
    walks = [walk(parts, thread, fuel) for thread in range(THREADS)]
    assert got.tolist() == [registers for registers, _ in walks]
    subtractions = sum(
        count for (_, _, name), count in outcome.counts.by_site.items() if name == "mad.lo.u32"
    ) - THREADS * (REGS + 1)  # the first registers, and the address at the end
    assert subtractions == sum(walked for _, walked in walks) - sum(walked == fuel for _, walked in walks)


def test_many_waves_and_divergent_loops():
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; "
        "mad.lo.u32 %r4, %r2, %r3, %r1;\n"
        "mul.wide.u32 %rd2, %r4, 4; add.u64 %rd3, %rd1, %rd2; rem.u32 %r5, %r4, 37; mov.u32 %r6, 0;\n"
        "L: setp.eq.u32 %p1, %r5, 0; @%p1 bra D; add.u32 %r6, %r6, %r5; sub.u32 %r5, %r5, 1; bra L;\n"
        "D: st.global.u32 [%rd3], %r6;"
    )
    count = 1000 * 192
    index = np.arange(count) % 37
    got = good(run(kernel(body), output(4 * count), grid=(1000,), block=(192,)))
    assert (got == index * (index + 1) // 2).all()


@pytest.mark.parametrize("steps", [1, 500, 5000])
def test_a_spinning_thread_does_not_starve_its_warp_mate(steps: int):
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 7; @%p1 bra Q;\n"
        "L: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L; bra D;\n"
        f"Q: mov.u32 %r3, 0;\nM: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, {steps}; @%p3 bra M; "
        "st.volatile.global.u32 [%rd1], %r3;\nD:"
    )
    assert good(run(kernel(body), zeros(4)))[0] == steps


def test_blocks_that_wait_for_later_blocks():
    """Block b waits until block b + 1 has been: only the last may go at once, many waves away from the
    first.
    """
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; "
        "add.u32 %r4, %r2, 1;\n"
        "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; setp.eq.u32 %p1, %r4, %r3; @%p1 bra G;\n"
        "L: ld.acquire.gpu.global.u32 %r5, [%rd3+4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L;\n"
        "G: bar.sync 0; setp.ne.u32 %p3, %r1, 0; @%p3 bra D; st.release.gpu.global.u32 [%rd3], 1;\nD:"
    )
    assert good(run(kernel(body), zeros(4 * 300), grid=(300,), block=(512,))).all()


def test_a_lock_between_threads_of_one_warp_and_of_many_blocks():
    body = (
        "ld.param.u64 %rd1, [o];\n"
        "L: atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;\n"
        "ld.volatile.global.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%rd1+4], %r3; "
        "membar.gl;\n"
        "atom.global.exch.b32 %r4, [%rd1], 0;"
    )
    assert good(run(kernel(body), zeros(8), grid=(6,), block=(64,))).tolist() == [0, 384]


def test_warp_barriers_at_different_places_meet():
    body = (
        ".shared .align 4 .u32 sm[32];\n"
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; "
        "mov.u32 %r2, sm;\n"
        "shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; setp.lt.u32 %p1, %r1, 16; "
        "@%p1 bra A;\n"
        "bar.warp.sync -1; bra B;\nA: bar.warp.sync -1;\n"
        "B: xor.b32 %r5, %r3, 124; add.u32 %r5, %r5, %r2; ld.shared.u32 %r6, [%r5];\n"
        "st.global.u32 [%rd3], %r6;"
    )
    assert (good(run(kernel(body), output(128))) == np.arange(32)[::-1]).all()


def test_calls_from_divergent_places_nest_and_return():
    before = (
        ".func (.param .b32 r) fact(.param .b32 n)\n{\n.reg .pred %p<3>; .reg .b32 %r<8>;\n"
        "ld.param.u32 %r1, [n]; setp.le.u32 %p1, %r1, 1; @%p1 bra ONE; sub.u32 %r2, %r1, 1;\n"
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call.uni (b), fact, (a); ld.param.b32 %r3, "
        "[b]; }\n"
        "mul.lo.u32 %r4, %r1, %r3; st.param.b32 [r], %r4; ret;\n"
        "ONE: mov.u32 %r5, 1; st.param.b32 [r], %r5; ret;\n}\n"
    )
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; "
        "and.b32 %r2, %r1, 7;\n"
        "setp.gt.u32 %p1, %r1, 15; mov.u32 %r3, 0; @%p1 bra S;\n"
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), fact, (a); ld.param.b32 %r3, [b]; "
        "}\n"
        "S: st.global.u32 [%rd3], %r3;"
    )
    got = good(run(kernel(body, before=before), output(128)))
    assert got.tolist() == [1, 1, 2, 6, 24, 120, 720, 5040] * 2 + [0] * 16


def test_an_indirect_call():
    before = (
        ".func (.param .b32 r) twice(.param .b32 n) { .reg .b32 %r<3>; ld.param.u32 %r1, [n]; shl.b32 %r2, "
        "%r1, 1; "
        "st.param.b32 [r], %r2; ret; }\n"
        ".func (.param .b32 r) thrice(.param .b32 n) { .reg .b32 %r<3>; ld.param.u32 %r1, [n]; mul.lo.u32 "
        "%r2, %r1, 3; "
        "st.param.b32 [r], %r2; ret; }\n"
    )
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;\n"
        "mov.u64 %rd4, twice; mov.u64 %rd5, thrice; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; selp.b64 "
        "%rd6, %rd4, %rd5, %p1;\n"
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; P: .callprototype (.param .b32 _) _ (.param "
        ".b32 _);\n"
        "call (b), %rd6, (a), P; ld.param.b32 %r3, [b]; }\nst.global.u32 [%rd3], %r3;"
    )
    index = np.arange(32)
    got = good(run(kernel(body, before=before), output(128)))
    assert (got == np.where(index % 2, 3 * index, 2 * index)).all()


def test_nested_scopes_shadow_registers():
    text = (
        HEAD + ".visible .entry k(.param .u64 o) { .reg .b32 %r1; .reg .b64 %rd1; ld.param.u64 %rd1, [o]; "
        "mov.u32 %r1, 1;\n"
        "{ .reg .b32 %r1; mov.u32 %r1, 2; st.global.u32 [%rd1+4], %r1; }\nst.global.u32 [%rd1], %r1; ret; }\n"
    )
    assert good(run(text, output(8))).tolist() == [1, 2]


def exchanges(seed: int) -> tuple[str, list[int]]:
    """Both halves of a warp exchange by shfl on ways of their own, after loops of unlike length; and what
    comes out.
    """
    rng = random.Random(seed)
    lines = [TID + "mov.u32 %r2, %r1;"]
    values = list(range(64))
    for step in range(6):
        bit = rng.randrange(5)
        first, second = (1 << rng.choice([each for each in range(5) if each != bit]) for _ in range(2))
        literal = rng.randrange(1, 9)
        members = sum(1 << lane for lane in range(32) if lane >> bit & 1)
        lines += [
            f"and.b32 %r3, %r1, {1 << bit}; setp.ne.u32 %p1, %r3, 0; @%p1 bra A{step}; and.b32 %r5, %r1, 3;",
            f"L{step}: sub.u32 %r5, %r5, 1; setp.lt.s32 %p3, %r5, 0; @!%p3 bra L{step};",
            f"shfl.sync.bfly.b32 %r4, %r2, {first}, 31, {MASK ^ members}; mad.lo.u32 %r2, %r4, 3, %r2; bra "
            f"J{step};",
            f"A{step}: shfl.sync.bfly.b32 %r4, %r2, {second}, 31, {members}; xor.b32 %r2, %r4, {literal};",
            f"J{step}: " + rng.choice(["", "bar.warp.sync -1;", "bar.sync 0;"]),
        ]
        values = [
            values[t ^ second] ^ literal if t >> bit & 1 else (values[t ^ first] * 3 + values[t]) & MASK
            for t in range(64)
        ]
    return kernel("\n".join([*lines, "st.global.u32 [%rd3], %r2;"])), values


@pytest.mark.parametrize("seed", range(12))
def test_warp_wide_exchanges_wait_for_the_threads_they_name(seed: int):
    text, values = exchanges(seed)
    assert good(run(text, output(256), block=(64,))).tolist() == values
