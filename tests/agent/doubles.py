"""Small real doubles for the loop's tests: a judge in this process, and stages that read the verdict from the candidate.

A candidate is `verdict: <verdict>`, `targets: yes` where it meets them, and anything else; `trouble: <error>` in it makes a stage fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.config import RunConfig
from agent.context import Tools
from agent.models.base import Message, Usage
from tasks import errors
from tasks.registry import load_task
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import Job, StageResult

ROOT = Path(__file__).parents[2]
STOPS = {
    Verdict.BAD_PLAN: Stage.ASSEMBLE,
    Verdict.ASSEMBLE_ERROR: Stage.ASSEMBLE,
    Verdict.FAULT: Stage.CHECK,
    Verdict.HANG: Stage.CHECK,
    Verdict.WRONG_OUTPUT: Stage.CHECK,
}


def judged(job: Job, stage: Stage) -> StageResult:
    """What the stage says of the candidate, at once."""
    text = job.text
    if text is None:
        verdict = Verdict.NO_CANDIDATE
    else:
        if trouble := re.search(r"trouble: (\w+)", text):
            raise getattr(errors, trouble[1])(f"{stage} cannot: {trouble[1]}")
        found = re.search(r"verdict: (\w+)", text)
        verdict = Verdict(found[1] if found else "correct")
    stopped = STOPS.get(verdict) if verdict is not Verdict.NO_CANDIDATE else Stage.ASSEMBLE
    here = stopped is stage
    made = Evaluation(
        task=job.task.rsplit("/", 1)[-1],
        task_digest="t" * 64,
        arch=job.arch,
        candidate=None if text is None else hashlib.sha256(text.encode()).hexdigest(),
        device=job.device,
        verdict=verdict if here or stopped is None else Verdict.LOAD_ERROR,
        stopped_at=stage if here else None,
        summary=f"{verdict} by seed {job.seed % 1000}",
        targets_met=text is not None and "targets: yes" in text,
    )
    return StageResult(made, {"log": f"{stage} of {text}".encode()})


def assemble(job: Job, evaluation: Evaluation | None) -> StageResult:
    return judged(job, Stage.ASSEMBLE)


def inspect(job: Job, evaluation: Evaluation | None) -> StageResult:
    return judged(job, Stage.INSPECT)


def check(job: Job, evaluation: Evaluation | None) -> StageResult:
    return judged(job, Stage.CHECK)


def prove(job: Job, evaluation: Evaluation | None) -> StageResult:
    return judged(job, Stage.PROVE)


def measure(job: Job, evaluation: Evaluation | None) -> StageResult:
    return judged(job, Stage.MEASURE)


@dataclass
class Inline:
    """A judge that runs stages in this process; fails the first `broken` calls as a lost worker would."""

    broken: int = 0
    delay: float = 0.0
    calls: list[str] = field(default_factory=list[str])

    async def call(self, function: Callable[..., Any], *args: object, seconds: float | None = None) -> Any:
        self.calls.append(function.__name__)
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.broken:
            self.broken -= 1
            raise errors.WorkerLost("the worker was lost")
        return function(*args)

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Found:
    text: str | None
    reason: str


def extract(text: str, finish: str) -> Found:
    return Found(text, "") if text.strip() else Found(None, "an empty answer")


def first_messages(task: Any, config: RunConfig) -> tuple[Message, ...]:
    name = task.task.name
    return Message(role="system", content="You write PTX."), Message(role="user", content=f"Task {name}.")


def render(evaluation: Evaluation, **named: Any) -> str:
    best, turn = named["best_turn"], named["turn"]
    return f"[{named['arm']}] turn {turn}: {evaluation.summary}; best: {best}; {named['candidate_text']!r}"


def cost(config: RunConfig, usage: Usage) -> float | None:
    return (usage.input + usage.output) * 0.001


TOOLS = Tools(
    load_task=load_task,
    first_messages=first_messages,
    extract=extract,
    render=render,
    prompts="p" * 64,
    stages={
        Stage.ASSEMBLE: assemble,
        Stage.INSPECT: inspect,
        Stage.CHECK: check,
        Stage.PROVE: prove,
        Stage.MEASURE: measure,
    },
    cost=cost,
)


def tools(**changed: Any) -> Tools:
    return replace(TOOLS, **changed)
