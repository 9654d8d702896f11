"""Random hostile candidates with the verdict they must get, drawn without end from a seed; and a runner that judges thousands in a row.

    python -m tests.hostile --device cuda --count 2000 --processes 8

Of every four draws at least one is honest, at a random place. The others are a corpus candidate with its pinned verdict, a planted bug
of `tests.tasks.mutants`, or a kernel of a family of `tests.hostile_kernels`. The runner judges in processes of its own, each with its own
GPU worker, and counts wrong verdicts, judgements that were lost, processes that died, and the memory of each judge and of its workers.
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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice

import psutil

from tasks.errors import PtxmendError
from tasks.registry import load_task
from tests.hostile_kernels import FAMILIES, FORMS, HONEST_KERNELS, heap
from tests.tasks.mutants import MUTANTS
from tests.tools.test_corpus import EXPECTED, PLAN, read
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import STAGES, Job

ARCH = "sm_90a"
PACK = 4
"""Draws of which one at least is honest."""
HONEST, CORPUS, MUTANT = 0.1, 0.4, 0.15
"""Shares of the other draws; what is left are the families."""
TASKS = tuple(form.task for form in FORMS)
BUGS = tuple(each for each in MUTANTS if each.task in TASKS)
BOTH = {
    "c25_host_scan": {Verdict.CORRECT},  # the address lies in the window of the kernel's own shared memory
    "c31_discard": {Verdict.CORRECT},  # what is undefined may stay as it was
    "c115_nonascii_comment": {Verdict.ASSEMBLE_ERROR},  # where ptxas is older than 13.5
}
"""Corpus candidates for which a GPU, or an older ptxas, may say something else, and what."""
SLOW = {"c74_printf_flood"}
"""300,000 threads that print take seconds of a GPU; the corpus tests judge it alone."""
WARM = 50
"""Judgements of a process before its memory counts as settled: the references that a process keeps are then as many as they get."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A candidate and the verdicts that are right for it."""

    kind: str
    """Family, mutant or corpus candidate; begins with `honest` for what is right."""
    text: str
    expected: frozenset[Verdict]
    task: str = "affine"


def candidates(seed: int, count: int, *, device_heap: bool = False) -> Iterator[Hostile]:
    """`count` candidates of a seed; the same whatever the count. device_heap: malloc too, which only a GPU has."""
    chance = random.Random(seed)
    for number in range(count):
        if number % PACK == 0:
            safe = chance.randrange(PACK)
        yield _honest(chance) if number % PACK == safe else _drawn(chance, device_heap)


def _honest(chance: random.Random) -> Hostile:
    form = chance.choice(FORMS)
    path = load_task(form.task).solution(ARCH)
    assert path is not None
    own = f"{path.read_text()}\n// {chance.randrange(50)}\n"
    text = own if chance.random() < 0.5 else chance.choice(HONEST_KERNELS)(chance, form)
    return Hostile("honest", text, frozenset({Verdict.CORRECT}), form.task)


def _drawn(chance: random.Random, device_heap: bool) -> Hostile:
    luck = chance.random()
    if luck < HONEST:
        return _honest(chance)
    if luck < HONEST + CORPUS:
        name = chance.choice(sorted(set(EXPECTED) - SLOW))
        verdicts = frozenset({EXPECTED[name].verdict, *BOTH.get(name, ())})
        return Hostile(name, PLAN + read(name), verdicts)
    if luck < HONEST + CORPUS + MUTANT:
        bug = chance.choice(BUGS)
        return Hostile(bug.name, bug.text, frozenset({bug.verdict}), bug.task)
    form = chance.choice(FORMS)
    if device_heap and chance.random() < 1 / len(FAMILIES):
        return Hostile("heap", heap(chance, form), frozenset({Verdict.CORRECT}), form.task)
    kind = chance.choice(sorted(FAMILIES))
    make, expected = FAMILIES[kind]
    return Hostile(kind, make(chance, form), expected, form.task)


def judged(hostile: Hostile, device: str, seed: int) -> Evaluation:
    """All stages but the timing. Raises what the ladder raises."""
    job = Job(hostile.task, ARCH, hostile.text, seed=seed, device=device)
    found: Evaluation | None = None
    for stage, function in STAGES:
        if stage is Stage.MEASURE or (found is not None and found.stopped_at is not None):
            break
        found = function(job, found).evaluation
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Share:
    """What one process is to do: `count` candidates of its own seed, as far as `seconds` reach."""

    seed: int
    count: int
    device: str
    seconds: float
    device_heap: bool = False


@dataclass
class Part:
    """What one process did."""

    seed: int
    done: int = 0
    verdicts: Counter[str] = field(default_factory=Counter[str])
    spent: dict[str, float] = field(default_factory=dict[str, float])
    """Verdict → seconds."""
    kinds: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    memory: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(candidates judged, resident MiB of this process, of its workers together)."""
    seconds: float = 0.0

    @property
    def growth(self) -> tuple[int, int]:
        """MiB that the judge and its workers took on since they were warm."""
        settled = [each for each in self.memory if each[0] >= WARM] or self.memory
        if not settled:
            return 0, 0
        (_, judge, workers), (_, judge_last, workers_last) = settled[0], settled[-1]
        return judge_last - judge, workers_last - workers


def work(share: Share) -> Part:
    """One process's part: judge until done or out of time."""
    part = Part(share.seed)
    began = time.monotonic()
    for number, hostile in enumerate(candidates(share.seed, share.count, device_heap=share.device_heap)):
        if time.monotonic() - began > share.seconds:
            break
        start = time.monotonic()
        name = f"{share.seed}/{number} {hostile.kind}"
        try:
            found = judged(hostile, share.device, share.seed * 100_000 + number)
        except PtxmendError as error:
            part.lost.append(f"{name}: {type(error).__name__}: {error}"[:300])
        else:
            verdict = found.verdict.value
            part.verdicts[verdict] += 1
            part.spent[verdict] = part.spent.get(verdict, 0.0) + time.monotonic() - start
            if found.verdict not in hostile.expected:
                part.wrong.append(f"{name}: {verdict}: {found.summary}"[:300])
        part.kinds[hostile.kind] += 1
        part.done += 1
        if part.done in (1, WARM) or part.done % 50 == 0 or part.done == share.count:
            part.memory.append((part.done, *_memory()))
        if part.done % 50 == 0:
            wrong, lost = len(part.wrong), len(part.lost)
            print(
                f"{share.seed}: {part.done} judged, {wrong} wrong, {lost} lost", file=sys.stderr, flush=True
            )
    part.seconds = time.monotonic() - began
    if part.memory and part.memory[-1][0] != part.done:
        part.memory.append((part.done, *_memory()))
    return part


def _memory() -> tuple[int, int]:
    """Resident MiB of this process, and of all its children together."""
    me = psutil.Process()
    workers = 0
    for child in me.children(recursive=True):
        try:
            workers += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return me.memory_info().rss >> 20, workers >> 20


def judge_all(shares: list[Share]) -> tuple[list[Part], list[str]]:
    """Every share in a process of its own; the parts, and what became of processes that died."""
    parts: list[Part] = []
    died: list[str] = []
    # Many judges share the cores, and torch's threads spin where they wait.
    os.environ["OMP_NUM_THREADS"] = "1"
    pools = [ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) for _ in shares]
    waiting = {pool.submit(work, share): share for pool, share in zip(pools, shares, strict=True)}
    for future in as_completed(waiting):
        try:
            parts.append(future.result())
        except BrokenProcessPool:
            died.append(f"the judge process of seed {waiting[future].seed} died")
    for pool in pools:
        pool.shutdown()
    return parts, died


def told(parts: list[Part], died: list[str]) -> dict[str, object]:
    """The summary, as JSON."""
    verdicts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for part in parts:
        verdicts.update(part.verdicts)
        kinds.update(part.kinds)
    spent = {name: sum(part.spent.get(name, 0.0) for part in parts) for name in sorted(verdicts)}
    return {
        "judged": sum(part.done for part in parts),
        "seconds": round(max((part.seconds for part in parts), default=0.0), 1),
        "verdicts": dict(sorted(verdicts.items())),
        "mean_seconds": {name: round(total / verdicts[name], 3) for name, total in spent.items()},
        "kinds": dict(sorted(kinds.items())),
        "wrong": sum(len(part.wrong) for part in parts),
        "lost": sum(len(part.lost) for part in parts),
        "died": len(died),
        "growth_mib": [max((part.growth[k] for part in parts), default=0) for k in range(2)],
        "memory_mib": {part.seed: part.memory for part in sorted(parts, key=lambda each: each.seed)},
    }


def main() -> int:
    """Judge and tell; 1 when anything went wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--device", default="cuda")
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=500)
    options.add_argument(
        "--heap", action="store_true", help="also kernels that take memory of the device heap"
    )
    options.add_argument("--show", metavar="SEED/NUMBER", help="print one candidate instead")
    asked = options.parse_args()
    if asked.show:
        seed, number = map(int, asked.show.split("/"))
        print(next(islice(candidates(seed, number + 1, device_heap=asked.heap), number, None)).text)
        return 0
    each = -(-asked.count // asked.processes)
    numbers = range(asked.seed, asked.seed + asked.processes)
    parts, died = judge_all([Share(k, each, asked.device, asked.seconds, asked.heap) for k in numbers])
    trouble = [*died, *(line for part in parts for line in (*part.wrong, *part.lost))]
    print("\n".join(trouble))
    print(json.dumps(told(parts, died)))
    return int(bool(trouble))


if __name__ == "__main__":
    sys.exit(main())
