"""Random hostile candidates with the verdict they must get, drawn without end from a seed; and a runner that judges thousands in a row.

    python -m tests.hostile --device cuda --count 2000 --processes 8

Every draw is affine or vector_add: a corpus candidate, an honest solution, or a kernel of a family below with random numbers in it. The
runner counts wrong verdicts, judgements that were lost, and the memory of each process and of its GPU worker.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from sandbox.pool import ONE_THREAD
from tasks.errors import PtxmendError
from tasks.registry import load_task
from tests.tools.test_corpus import EXPECTED, PLAN, read
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import STAGES, Job

HONEST_SHARE = 0.3
CORPUS_SHARE = 0.4
BOTH = {
    "c61_mbarrier_never": {Verdict.FAULT},
    "c25_host_scan": {Verdict.CORRECT},
    "c31_discard": {Verdict.CORRECT},
    "c115_nonascii_comment": {Verdict.ASSEMBLE_ERROR},
}
"""Corpus candidates for which a GPU, or an older ptxas, may say something else, and what."""


SLOW = {"c74_printf_flood"}
"""300,000 threads that print take seconds of a GPU; the corpus tests judge it alone."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A candidate and the verdicts that are right for it."""

    kind: str
    text: str
    expected: frozenset[Verdict]


HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 px, .param .u64 py, .param .u32 pn)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; ld.param.u32 %r1, [pn];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
"""
WORK = """
  setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
  mul.wide.u32 %rd5, %r5, 4; add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5;
  ld.global.f32 %f1, [%rd6]; fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000; st.global.f32 [%rd7], %f2;
DONE:
  ret;
}
"""


def kernel(before: str, work: str = WORK) -> str:
    return PLAN + HEAD + before + work


def _beyond(chance: random.Random) -> str:
    """Stores far outside of every buffer."""
    away = chance.choice((1 << chance.randrange(33, 46), -(1 << chance.randrange(33, 40))))
    return kernel(f"mov.u64 %rd8, {away}; add.u64 %rd8, %rd2, %rd8; st.global.u32 [%rd8], %r5;")


def _null(chance: random.Random) -> str:
    return kernel(f"mov.u64 %rd8, {4 * chance.randrange(1000)}; st.global.u32 [%rd8], %r5;")


def _misaligned(chance: random.Random) -> str:
    return kernel(f"add.u64 %rd8, %rd2, {chance.choice((1, 2, 3))}; st.global.u32 [%rd8], %r5;")


def _spin(chance: random.Random) -> str:
    return kernel(
        chance.choice(
            (
                "LOOP: bra LOOP;",
                "LOOP: add.u32 %r6, %r6, 1; bra LOOP;",
                "LOOP: ld.volatile.global.u32 %r6, [%rd1]; setp.ne.u32 %p2, %r6, 123456789; @%p2 bra LOOP;",
                f"setp.ne.u32 %p3, %r4, {chance.randrange(32)}; @%p3 bra OUT; LOOP: st.volatile.global.u32 [%rd2], %r4; bra LOOP; OUT:",
            )
        )
    )


def _trap(chance: random.Random) -> str:
    return kernel(f"setp.eq.u32 %p2, %r5, {chance.randrange(900)}; @%p2 trap;")


def _inputs(chance: random.Random) -> str:
    """Changes its input."""
    value = chance.randrange(1 << 20) | 1
    return kernel(f"setp.eq.u32 %p2, %r5, 0; mov.u32 %r6, {value}; @%p2 st.global.u32 [%rd1], %r6;")


def _wrong(chance: random.Random) -> str:
    bits = 0x3F800000 + chance.randrange(1 << 18, 1 << 22)
    return kernel("", WORK.replace("0f3F800000", f"0f{bits:08X}"))


def _partial(chance: random.Random) -> str:
    """Leaves some elements out."""
    mask = chance.choice((1, 3, 7))
    return kernel(f"and.b32 %r7, %r5, {mask}; setp.eq.u32 %p3, %r7, 0; @%p3 bra DONE;")


def _nan(chance: random.Random) -> str:
    return kernel(
        "", WORK.replace("st.global.f32 [%rd7], %f2;", "mov.f32 %f2, 0f7FC00000; st.global.f32 [%rd7], %f2;")
    )


def _syntax(chance: random.Random) -> str:
    text = kernel("")
    at = chance.randrange(len(PLAN) + 200, len(text) - 20)
    return text[:at] + chance.choice(("@@", "%%%", "ld.blobal ", "{{", "\x00")) + text[at:]


def _plan(chance: random.Random) -> str:
    bad = chance.choice(("args: [x, y]", "args: [x, z, n]", "args: [x, y, n, n]", "args: [y, x, 1.5]"))
    return PLAN.replace("args: [x, y, n]", bad) + HEAD + WORK


def _block(chance: random.Random) -> str:
    return PLAN.replace("[256]", f"[{chance.choice((1025, 2048, 4096))}]") + HEAD + WORK


FAMILIES: dict[str, tuple[Callable[[random.Random], str], frozenset[Verdict]]] = {
    "beyond": (_beyond, frozenset({Verdict.FAULT})),
    "null": (_null, frozenset({Verdict.FAULT})),
    "misaligned": (_misaligned, frozenset({Verdict.FAULT})),
    "spin": (_spin, frozenset({Verdict.HANG})),
    "trap": (_trap, frozenset({Verdict.FAULT})),
    "inputs": (_inputs, frozenset({Verdict.WRONG_OUTPUT})),
    "wrong": (_wrong, frozenset({Verdict.WRONG_OUTPUT})),
    "partial": (_partial, frozenset({Verdict.WRONG_OUTPUT})),
    "nan": (_nan, frozenset({Verdict.WRONG_OUTPUT})),
    "syntax": (_syntax, frozenset({Verdict.ASSEMBLE_ERROR})),
    "plan": (_plan, frozenset({Verdict.BAD_PLAN})),
    "block": (_block, frozenset({Verdict.LAUNCH_ERROR})),
}
"""Kind → how it is made, and what it must be called. A store of 32 bits at a wrong address of 4 faults on both devices alike."""


def drawn(chance: random.Random) -> Hostile:
    """One candidate."""
    luck = chance.random()
    if luck < HONEST_SHARE:
        path = load_task("affine").solution("sm_90a")
        assert path is not None
        text = path.read_text() + f"\n// {chance.randrange(50)}\n"
        return Hostile("honest", text, frozenset({Verdict.CORRECT}))
    if luck < HONEST_SHARE + CORPUS_SHARE:
        name = chance.choice(sorted(set(EXPECTED) - SLOW))
        verdicts = {EXPECTED[name].verdict, *BOTH.get(name, ())}
        return Hostile(name, PLAN + read(name), frozenset(verdicts))
    kind = chance.choice(sorted(FAMILIES))
    make, expected = FAMILIES[kind]
    return Hostile(kind, make(chance), expected)


def candidates(seed: int, count: int) -> Iterator[Hostile]:
    """`count` candidates of a seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield drawn(chance)


def judged(hostile: Hostile, device: str, seed: int) -> Evaluation:
    """All stages but the timing. Raises what the ladder raises."""
    job = Job("affine", "sm_90a", hostile.text, seed=seed, device=device)
    found: Evaluation | None = None
    for stage, function in STAGES:
        if stage is Stage.MEASURE or (found is not None and found.stopped_at is not None):
            break
        found = function(job, found).evaluation
    assert found is not None
    return found


def _share(task: tuple[int, int, str, float]) -> dict[str, object]:
    """One process's part: judge until done or out of time."""
    seed, count, device, seconds = task
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    lost: list[str] = []
    memory: list[tuple[int, int]] = []
    began = time.monotonic()
    done = 0
    spent: Counter[str] = Counter()
    for number, hostile in enumerate(candidates(seed, count)):
        if time.monotonic() - began > seconds:
            break
        start = time.monotonic()
        try:
            found = judged(hostile, device, seed * 100_000 + number)
        except PtxmendError as error:
            lost.append(f"{seed}/{number} {hostile.kind}: {type(error).__name__}: {error}"[:300])
        else:
            verdicts[found.verdict.value] += 1
            spent[found.verdict.value] += time.monotonic() - start  # type: ignore[assignment]
            if found.verdict not in hostile.expected:
                wrong.append(f"{seed}/{number} {hostile.kind}: {found.verdict.value}: {found.summary}"[:300])
        done += 1
        if number == 20 or (number > 20 and number % 50 == 0):
            me = psutil.Process()
            memory.append(
                (
                    me.memory_info().rss >> 20,
                    sum(each.memory_info().rss for each in me.children(recursive=True)) >> 20,
                )
            )
    return {
        "done": done,
        "verdicts": verdicts,
        "wrong": wrong,
        "lost": lost,
        "memory": memory,
        "spent": spent,
        "spent": spent,
        "seconds": time.monotonic() - began,
    }


def main() -> int:
    """Judge and tell."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=500)
    asked = options.parse_args()
    os.environ.update(ONE_THREAD)  # many small judgements side by side
    each = -(-asked.count // asked.processes)
    tasks = [(asked.seed + k, each, asked.device, asked.seconds) for k in range(asked.processes)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        parts = pool.map(_share, tasks)
    verdicts: Counter[str] = Counter()
    for part in parts:
        verdicts.update(part["verdicts"])  # type: ignore[arg-type]
    spent: Counter[str] = Counter()
    for part in parts:
        spent.update(part["spent"])  # type: ignore[arg-type]
    wrong = [line for part in parts for line in part["wrong"]]  # type: ignore[attr-defined]
    lost = [line for part in parts for line in part["lost"]]  # type: ignore[attr-defined]
    print("\n".join([*wrong, *lost]))
    print(
        json.dumps(
            {
                "judged": sum(part["done"] for part in parts),  # type: ignore[misc]
                "seconds": max(part["seconds"] for part in parts),  # type: ignore[type-var]
                "verdicts": dict(sorted(verdicts.items())),
                "mean_seconds": {name: round(spent[name] / verdicts[name], 3) for name in sorted(verdicts)},
                "wrong": len(wrong),
                "lost": len(lost),
                "memory_mib": [part["memory"] for part in parts],
            }
        )
    )
    return int(bool(wrong or lost))


if __name__ == "__main__":
    sys.exit(main())
