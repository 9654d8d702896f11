"""Do speedups repeat? One candidate judged again and again in fresh processes, against its baseline and against a copy made 1 % slower.

    python -m benchmarks.repeatability --task gemm_bf16_async [--evaluations 20] [--full]

Prints the speedup of every evaluation, the largest over the smallest, the noise floors, and how often the slower copy was called
slower (and the unchanged copy `same`). Each evaluation is a process of its own: `ptxmend eval … --device cuda`. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox.ptx.candidate import read_candidate
from tasks.registry import load_task
from tools.evaluation import Evaluation, Timing

ARCH = "sm_90a"
CALIBRATION = 4000
"""Turns of the loop with which its cost is first measured."""
DELAY = """
    .reg .pred %pDelay; .reg .u32 %uDelay, %uTurn;
    mov.u32 %uDelay, %ctaid.x; mov.u32 %uTurn, 0;
DELAY:
    mad.lo.u32 %uDelay, %uDelay, 1664525, 1013904223;
    add.u32 %uTurn, %uTurn, 1;
    setp.lt.u32 %pDelay, %uTurn, {turns};
    @%pDelay bra DELAY;
    setp.eq.u32 %pDelay, %uDelay, 2863311530;
    @%pDelay trap;
"""
"""A bounded loop that the assembler cannot remove: its last value decides whether the kernel traps, which it never does."""


def slowed(text: str, turns: int) -> str:
    """The candidate with `turns` turns of an extra loop at the start of its first entry."""
    ptx = text[text.index(".entry") :]
    body = text.index(".entry") + ptx.index("\n{") + 2
    return f"{text[:body]}{DELAY.format(turns=turns)}{text[body:]}"


def judged(text: str, task: str, *options: str) -> Evaluation:
    """Judge a candidate in a fresh process; raises SystemExit with what was printed when it cannot be judged."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.ptx"
        file.write_text(text)
        command = [sys.executable, "-c", "from agent.cli import main; main()", "eval", str(file)]
        command += ["--task", task, "--arch", ARCH, "--device", "cuda", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"eval failed ({done.returncode}): {done.stderr[-2000:]}")
    return Evaluation.model_validate_json(done.stdout)


def timed(text: str, task: str, *options: str) -> Timing:
    """The timing of a candidate; raises SystemExit when there is none."""
    evaluation = judged(text, task, *options)
    if evaluation.timing is None:
        raise SystemExit(f"no timing: {evaluation.summary}")
    return evaluation.timing


def main() -> None:
    """Run all evaluations and print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--task", default="gemm_bf16_async")
    options.add_argument("--evaluations", type=int, default=20)
    options.add_argument("--full", action="store_true", help="full readings instead of quick ones")
    options.add_argument("--skip-baseline", action="store_true")
    options.add_argument("--skip-slower", action="store_true")
    asked = options.parse_args()
    solution = load_task(asked.task).solution(ARCH)
    if solution is None:
        raise SystemExit(f"{asked.task} has no solution for {ARCH}")
    text = solution.read_text()
    read_candidate(text)
    mode = ("--full",) if asked.full else ()
    report: dict[str, object] = {"task": asked.task, "mode": "full" if asked.full else "quick"}
    if not asked.skip_baseline:
        speedups, floors, seconds = [], [], []
        for number in range(asked.evaluations):
            started = time.monotonic()
            timing = timed(text, asked.task, *mode)
            seconds.append(time.monotonic() - started)
            reading = timing.readings[0]
            speedups.append(timing.speedup)
            floors.append(reading.floor)
            print(
                f"{number + 1:3} {timing.speedup:.5f} ({timing.low:.5f} to {timing.high:.5f}) floor {reading.floor:.5f} "
                f"{timing.candidate_ms:.4f} ms against {timing.baseline_ms:.4f} ms {timing.verdict} "
                f"{seconds[-1]:.1f} s",
                flush=True,
            )
        spread = max(speedups) / min(speedups)
        print(f"max/min {spread:.5f}; A/A floor at most {max(floors):.5f}")
        report |= {"speedups": speedups, "max_over_min": spread, "floors": floors, "seconds": seconds}
    if not asked.skip_slower:
        with tempfile.TemporaryDirectory() as folder:
            original = Path(folder) / "original.ptx"
            original.write_text(text)
            against = ("--against", str(original), *mode)
            cost = 1 / timed(slowed(text, CALIBRATION), asked.task, *against).speedup - 1
            turns = max(1, round(CALIBRATION * 0.01 / cost))
            print(f"{CALIBRATION} turns cost {cost:.3%}; {turns} turns are taken for 1 %")
            verdicts = {"slower": [], "unchanged": []}
            for number in range(asked.evaluations):
                for name, copy in (("slower", slowed(text, turns)), ("unchanged", f"{text}\n// {number}\n")):
                    timing = timed(copy, asked.task, *against)
                    verdicts[name].append((timing.verdict, timing.speedup))
                    print(
                        f"{number + 1:3} {name:9} {timing.speedup:.5f} ({timing.low:.5f} to {timing.high:.5f}) "
                        f"{timing.verdict}",
                        flush=True,
                    )
        called = sum(verdict == "slower" for verdict, _ in verdicts["slower"])
        same = sum(verdict == "same" for verdict, _ in verdicts["unchanged"])
        print(f"1 % slower: called slower {called} of {asked.evaluations}; unchanged: called same {same}")
        report |= {"turns": turns, "verdicts": verdicts}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
