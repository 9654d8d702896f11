"""Do the emulator and a GPU judge alike? Every solution, every corpus candidate and every recorded answer on both.

    python -m benchmarks.devices [--processes 8]

Prints one line a candidate whose verdicts differ, then a table; exit code 1 when a difference has no explanation in `KNOWN`. The
emulator's part runs in several processes; the GPU's in this one, after each candidate that faults or hangs followed by an honest one.
Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from agent.extract import extract
from agent.models.cassette import find_cassette, read_cassette
from tasks.errors import InfraError
from tasks.registry import list_tasks, load_task
from tools.evaluation import Evaluation, Verdict
from tools.ladder import Job, evaluate

ARCH = "sm_90a"
CORPUS = Path(__file__).parents[1] / "tests" / "corpus" / "candidates"
PLAN = '//! launch:\n//!   - {entry: k, grid: ["cdiv(n, 256)"], block: [256], args: [x, y, n]}\n'
"""The launch plan of the corpus candidates, which are bare PTX for the task affine."""
KNOWN = {
    "c25_host_scan": "the address lies in the window of the kernel's own shared memory on hardware",
    "c31_discard": "what the ISA leaves undefined may stay as it was",
    "c61_mbarrier_never": "other warps wait on a barrier object that is not made yet",
}
"""Candidate → why its verdicts may differ."""


@dataclass(frozen=True, slots=True)
class Case:
    """A candidate and where it comes from."""

    name: str
    group: str
    task: str
    text: str


def cases() -> list[Case]:
    """Solutions, corpus, cassettes."""
    found: list[Case] = []
    for name in list_tasks():
        path = load_task(name).solution(ARCH)
        if path is not None:
            found.append(Case(name, "solution", name, path.read_text()))
    for path in sorted(CORPUS.glob("*.ptx")):
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        found.append(Case(path.stem, "corpus", "affine", PLAN + text))
    for cassette in ("demo", "planted"):
        for entry in read_cassette(find_cassette(cassette)).entries:
            text = extract(entry.text, entry.finish).text
            if text is not None:
                name = f"{cassette}:{entry.task}:{entry.sample}:{entry.turn}"
                found.append(Case(name, "cassette", entry.task, text))
    return found


def judged(case: Case, device: str) -> tuple[Evaluation | None, str, float]:
    """The evaluation, or why there is none, and the seconds it took."""
    started = time.monotonic()
    try:
        job = Job(task=case.task, arch=ARCH, text=case.text, seed=20_261_201, device=device)
        return evaluate(job).evaluation, "", time.monotonic() - started
    except InfraError as error:
        return None, f"{type(error).__name__}: {error}", time.monotonic() - started


def on_emulator(case: Case) -> tuple[Evaluation | None, str, float]:
    """`judged` on the emulator, for another process."""
    return judged(case, "emulator")


def main() -> int:
    """Judge all on both devices and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=8)
    asked = options.parse_args()
    every = cases()
    honest = next(case for case in every if case.group == "solution" and case.task == "affine")
    unexplained, rows = 0, []
    table: Counter[tuple[str, str, str]] = Counter()
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        emulated = [pool.submit(on_emulator, case) for case in every]
        for case, future in zip(every, emulated, strict=True):
            there, why, seconds = judged(case, "cuda")
            if there is not None and there.verdict in (Verdict.FAULT, Verdict.HANG):
                after, reason, _ = judged(honest, "cuda")
                if after is None or after.verdict is not Verdict.CORRECT:
                    unexplained += 1
                    print(
                        f"{case.name}: the honest candidate after it: {after and after.summary}{reason}",
                        flush=True,
                    )
            here, cannot, _ = future.result()
            gpu = there.verdict.value if there is not None else "cannot judge"
            emulator = here.verdict.value if here is not None else "cannot judge"
            table[case.group, emulator, gpu] += 1
            met = there is not None and there.targets_met
            agree = gpu == emulator and (here is None or there is None or here.targets_met == met)
            rows.append([case.name, emulator, gpu, met, seconds])
            if case.group == "solution" or not agree:
                depths = (
                    {each.family: each.depth.value for each in there.targets if each.required}
                    if there
                    else {}
                )
                print(
                    f"{case.name:32} emulator {emulator:14} GPU {gpu:14} targets met {met} {depths} {seconds:.2f} s\n"
                    f"    {(there.summary if there else why)[:300]}",
                    flush=True,
                )
                if not agree:
                    print(f"    emulator: {(here.summary if here else cannot)[:300]}", flush=True)
                    unexplained += case.name not in KNOWN and emulator != "cannot judge"
    for (group, emulator, gpu), count in sorted(table.items()):
        print(f"{group:9} emulator {emulator:14} GPU {gpu:14} {count:4}")
    print(json.dumps({"rows": rows}))
    print(f"{len(every)} candidates; {unexplained} differences without an explanation")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
