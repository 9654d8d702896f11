"""What the nodes work with, handed to them by the runner and never serialised.

`Tools` names every function of other parts that the loop calls, so that a test or a benchmark may bring its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from langgraph.runtime import RunControl

from agent.config import RunConfig
from agent.journal import Journal
from agent.models.base import Message, Model, Usage
from agent.models.retry import Policy
from tasks.registry import LoadedTask
from tools.evaluation import Evaluation, Stage
from tools.ladder import Job, StageResult
from traces.store import Run


class Progress(Protocol):
    """Who is told how a run goes. Calls come from one thread, in order, and must be quick."""

    def run_started(self, run: Run, episodes: int, done: int) -> None:
        """`done` of `episodes` had ended before."""
        ...

    def episode_started(self, episode: str, task: str, sample: int) -> None: ...

    def turn_judged(self, episode: str, turn: int, evaluation: Evaluation | None, reason: str) -> None:
        """evaluation None: the turn is missing, for `reason`."""
        ...

    def episode_ended(self, episode: str, reason: str, detail: str) -> None: ...

    def spent(self, tokens: int, usd: float) -> None:
        """Of the whole run so far."""
        ...

    def stopping(self, reason: str) -> None:
        """No new work is begun; what is open stays open."""
        ...


class Quiet:
    """A Progress that says nothing."""

    def run_started(self, run: Run, episodes: int, done: int) -> None: ...
    def episode_started(self, episode: str, task: str, sample: int) -> None: ...
    def turn_judged(self, episode: str, turn: int, evaluation: Evaluation | None, reason: str) -> None: ...
    def episode_ended(self, episode: str, reason: str, detail: str) -> None: ...
    def spent(self, tokens: int, usd: float) -> None: ...
    def stopping(self, reason: str) -> None: ...


class Judge(Protocol):
    """Runs a stage of the ladder somewhere."""

    async def call(self, function: Callable[..., Any], *args: object, seconds: float | None = None) -> Any:
        """As `sandbox.pool.Pool.call`."""
        ...

    async def close(self) -> None: ...


class Extracted(Protocol):
    """As `agent.extract.Extraction`."""

    @property
    def text(self) -> str | None: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class Tools:
    """The functions of other parts that the loop calls."""

    load_task: Callable[[str], LoadedTask]
    first_messages: Callable[[LoadedTask, RunConfig], tuple[Message, ...]]
    extract: Callable[..., Extracted]
    """(text, finish) → Extraction."""
    render: Callable[..., str]
    """As `agent.feedback.render`."""
    prompts: str
    """Digest of the templates."""
    stages: dict[Stage, Callable[[Job, Evaluation | None], StageResult]]
    cost: Callable[[RunConfig, Usage], float | None]
    """USD of an answer; None: not known."""


def real_tools(template: str | None = None, prices: str | None = None) -> Tools:
    """Those of ptxmend, with one version of prompts and feedback (None: the newest) and a price table (None: ours)."""
    from agent import feedback, prompts
    from agent.extract import extract
    from agent.models.pricing import load_prices
    from tasks.registry import load_task
    from tools.ladder import STAGES

    table = load_prices(None if prices is None else Path(prices))

    def first_messages(task: LoadedTask, config: RunConfig) -> tuple[Message, ...]:
        version = {} if config.template is None else {"version": config.template}
        return prompts.first_messages(task, config.arch, require=config.require, **version)

    def render(*args: Any, template: str | None, **named: Any) -> str:
        return feedback.render(*args, **named, **({} if template is None else {"template": template}))

    return Tools(
        load_task=load_task,
        first_messages=first_messages,
        extract=extract,
        render=render,
        prompts=prompts.digest() if template is None else prompts.digest(template),
        stages=dict(STAGES),
        cost=lambda config, usage: table.cost(config.model, usage, config.options.base_url),
    )


@dataclass
class Foreign:
    """A judged candidate, as another episode's placebo."""

    episode: str
    candidate: str
    evaluation: str


@dataclass
class RunContext:
    """What all episodes of a run share in this process."""

    run: Run
    config: RunConfig
    tools: Tools
    model: Model
    judge: Judge
    progress: Progress
    policy: Policy | None = None
    control: RunControl = field(default_factory=RunControl)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    """Why it stops; empty while it goes on."""
    tokens: int = 0
    usd: float = 0.0
    judged: dict[str, list[Foreign]] = field(default_factory=dict[str, list[Foreign]])
    """Task → judged candidates of all episodes, in the order they came."""

    def halt(self, reason: str) -> None:
        """Begin nothing new; every episode stops after the superstep it is in and stays resumable."""
        if not self.stopping.is_set():
            self.why = reason
            self.stopping.set()
            self.control.request_drain(reason)
            self.progress.stopping(reason)

    def spend(self, tokens: int, usd: float | None) -> None:
        """Count an answer; halt when the run's budget is used up."""
        self.tokens += tokens
        self.usd += usd or 0.0
        self.progress.spent(self.tokens, self.usd)
        self.check_budget()

    def check_budget(self) -> None:
        """Halt when the run's budget of tokens or money is used up."""
        limit = self.config.run_budget
        if limit.tokens is not None and self.tokens >= limit.tokens:
            self.halt(f"the run's budget of {limit.tokens} tokens is used up")
        if limit.usd is not None and self.usd >= limit.usd:
            self.halt(f"the run's budget of {limit.usd} USD is used up")

    def draw(self, *names: str | int) -> int:
        """A secret number below 2**63 that depends on the run's secret and on `names` alone."""
        message = "\0".join(map(str, names)).encode()
        code = hmac.new(bytes.fromhex(self.run.about.draws), message, hashlib.sha256).digest()
        return int.from_bytes(code[:8], "big") >> 1


@dataclass
class EpisodeContext:
    """What the nodes of one episode work with."""

    shared: RunContext
    episode: str
    task: LoadedTask
    sample: int
    journal: Journal

    @property
    def config(self) -> RunConfig:
        return self.shared.config

    def evaluation(self, digest: str) -> Evaluation:
        """The Evaluation kept under this reference."""
        return Evaluation.model_validate_json(self.journal.blobs.get(digest), extra="ignore")

    def job(self, turn: int, candidate: str | None, reason: str) -> Job:
        """What the tools are given for a turn."""
        return Job(
            task=str(self.task.folder),
            arch=self.config.arch,
            text=None if candidate is None else self.journal.blobs.text(candidate),
            reason=reason,
            require=self.config.require,
            seed=self.shared.draw("inputs", self.episode, turn),
            device=self.config.device,
            gpus=self.config.gpus,
            screen=self.config.screen,
        )
