"""What the loop itself costs: durable turns a second, and memory with a thousand episodes in flight.

    python -m benchmarks.orchestration [--json] [--episodes 200] [--turns 4] [--flight 1000]

An instant model and tools that do nothing: every turn still passes all seven nodes, writes its events and texts with fsync, and commits a
checkpoint a node. Each of the two measurements runs in a process of its own, so one's memory is not the other's.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.config import RunConfig
from agent.context import Tools
from agent.models.base import Message, Request
from agent.models.instant import InstantModel
from agent.runner import Parts, run
from tasks.registry import list_tasks, load_task
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import Job, StageResult

AIM = {"turns_per_second": 60.0, "peak_rss_mib": 1024.0}
PTX = "\n".join(f"    add.u32 %r{n}, %r{n - 1}, 1;" for n in range(1, 120))
"""Answers of the size of a small kernel."""


def nothing(job: Job, evaluation: Evaluation | None) -> StageResult:
    """A tool that finds the candidate correct, without its targets."""
    text = (job.text or "").encode()
    return StageResult(
        Evaluation(
            task=job.task,
            task_digest="0" * 64,
            arch=job.arch,
            candidate=hashlib.sha256(text).hexdigest(),
            device=job.device,
            verdict=Verdict.CORRECT,
            summary="not judged",
        )
    )


class Here:
    """Runs tools in this process; holds each for `hold` seconds, so that episodes gather in flight."""

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self.flying = 0
        self.most = 0

    async def call(self, function: Callable[..., Any], *args: object, seconds: float | None = None) -> Any:
        self.flying += 1
        self.most = max(self.most, self.flying)
        if self._hold:
            await asyncio.sleep(self._hold)
        self.flying -= 1
        return function(*args)

    async def close(self) -> None: ...


class Answer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.reason = ""


def tools() -> Tools:
    """Parts that cost nothing but have the sizes of real ones."""
    return Tools(
        load_task=load_task,
        first_messages=lambda task, config: (
            Message(role="system", content="s" * 4000),
            Message(role="user", content=task.task.name + "u" * 6000),
        ),
        extract=lambda text, finish: Answer(text),
        render=lambda evaluation, **named: f"turn {named['turn']}: {evaluation.candidate}" + "f" * 2000,
        prompts="0" * 64,
        stages=dict.fromkeys(Stage, nothing),
        cost=lambda config, usage: 0.0,
    )


def answer(request: Request) -> str:
    """A different candidate each time."""
    return f"// {request.episode} {request.turn}\n{PTX}\n"


def work(episodes: int, turns: int, flight: int, hold: float) -> dict[str, float]:
    """One run in this process."""
    config = RunConfig(
        model="instant:nothing",
        tasks=list_tasks()[:1],
        samples=episodes,
        turns=turns,
        parallel=flight,
        seed=1,
    )
    judge = Here(hold)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        model = InstantModel(answer, keep=False)
        started = time.monotonic()
        summary = run(config, Path(folder), parts=Parts(tools=tools(), model=model, judge=judge))
        seconds = time.monotonic() - started
        assert summary.ended == episodes, summary
        assert summary.turns == episodes * turns, summary
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "episodes": episodes,
        "turns": summary.turns,
        "most_in_flight": judge.most,
        "seconds": round(seconds, 2),
        "turns_per_second": round(summary.turns / seconds, 1),
        "peak_rss_mib": round(peak, 1),
    }


def measured(*arguments: object) -> dict[str, float]:
    """`work` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.orchestration", "--work", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Durable turns a second, and memory with many episodes in flight."
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--flight", type=int, default=1000)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        episodes, turns, flight, hold = given.work
        print(json.dumps(work(int(episodes), int(turns), int(flight), float(hold))))
        return
    result = {
        "machine": {
            "system": platform.platform(),
            "processors": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
        "aim": AIM,
        "throughput": measured(given.episodes, given.turns, 64, 0.0),
        "flight": measured(given.flight, 2, given.flight, 5.0),
    }
    if given.json:
        print(json.dumps(result, indent=2))
        return
    machine, speed, flight = result["machine"], result["throughput"], result["flight"]
    print(f"{machine['processors']} processors, load {machine['load']:.1f}, {machine['system']}")
    print(f"durable turns a second   {speed['turns_per_second']:8.1f}   aim ≥ {AIM['turns_per_second']:.0f}")
    print(f"peak memory (MiB)        {flight['peak_rss_mib']:8.1f}   aim ≤ {AIM['peak_rss_mib']:.0f}")
    print(f"most episodes in flight  {flight['most_in_flight']:8.0f}")


if __name__ == "__main__":
    main()
