"""Runs: many episodes at once under one frozen configuration; begun, stopped and continued.

Signals: the first SIGINT or SIGTERM lets every episode finish the superstep it is in (a call to the model included) and stops; the
second stops now. Either way the run is resumable, as it is after kill -9: all that was paid is in the ledgers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agent import provenance
from agent.config import RunConfig
from agent.context import Judge, Progress, Quiet, RunContext, Tools, real_tools
from agent.episodes import Planned, plan, run_episode
from agent.models.base import Model
from agent.models.factory import make_model, with_environment
from agent.models.retry import Policy
from agent.prompts import version_of
from sandbox.pool import Pool
from tasks.errors import InputError
from tools.evaluation import Stage
from traces.records import Episode
from traces.redact import protect
from traces.store import Run, create_run, open_run

os.environ["LANGSMITH_TRACING"] = "false"


@dataclass(frozen=True)
class RunSummary:
    """How a run stands when this process leaves it."""

    path: Path
    episodes: int
    """Planned."""
    ended: int
    stopped: str
    """Why it stopped before the end; empty when every episode ended."""
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """Why episodes ended → how many."""
    best: dict[str, int] = field(default_factory=dict[str, int])
    """Verdict of the best turn → episodes; `missing` for those without a verdict."""
    turns: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    """Wall time of this process's part."""


@dataclass(frozen=True)
class Parts:
    """What a caller may bring instead of the real thing; None: the real one."""

    tools: Tools | None = None
    model: Model | None = None
    judge: Judge | None = None
    policy: Policy | None = None


def run(
    config: RunConfig,
    root: Path,
    *,
    name: str | None = None,
    progress: Progress | None = None,
    parts: Parts | None = None,
) -> RunSummary:
    """Begin a run under `root` and take it as far as it goes. Raises InputError for what is wrong with the configuration."""
    parts = parts or Parts()
    config = config.model_copy(update={"options": with_environment(config.model, config.options)})
    _guard_key(config)
    tools = parts.tools or real_tools(config.template, config.prices)
    plan(config, tools.load_task)
    model = parts.model or make_model(config.model, config.options)
    draws = (
        None if config.seed is None else hashlib.sha256(f"ptxmend draws {config.seed}".encode()).hexdigest()
    )
    made = create_run(
        root,
        name=name,
        config=config.model_dump(mode="json"),
        config_digest=config.digest,
        graph=_fingerprint(tools),
        prompts=tools.prompts,
        draws=draws,
        versions=provenance.versions(),
        environment=provenance.machine(config.device, config.arch, config.gpus),
        ptxas=provenance.ptxas(),
    )
    return asyncio.run(_work(made, config, tools, model, parts, progress or Quiet()))


def resume(path: Path, *, progress: Progress | None = None, parts: Parts | None = None) -> RunSummary:
    """Continue a run. Raises InputError when it was begun on another machine than this version's."""
    parts = parts or Parts()
    opened = open_run(path)
    config = RunConfig.model_validate(opened.about.config)
    if config.template is None:  # the newest of then, not of now
        config = config.model_copy(update={"template": version_of(opened.about.prompts)})
    _guard_key(config)
    tools = parts.tools or real_tools(config.template, config.prices)
    found = _fingerprint(tools)
    if found != opened.about.graph:
        raise InputError(
            f"{path} was begun with graph and prompts {opened.about.graph[:12]}, this version has {found[:12]}: its "
            f"turns would not be comparable. Continue it with ptxmend {opened.about.versions.get('ptxmend', '?')}, "
            f"or begin a new run with the same options."
        )
    model = parts.model or make_model(config.model, config.options)
    return asyncio.run(_work(opened, config, tools, model, parts, progress or Quiet()))


async def _work(
    opened: Run, config: RunConfig, tools: Tools, model: Model, parts: Parts, progress: Progress
) -> RunSummary:
    from agent.checkpoints import open_checkpoints
    from agent.graph import build

    started = time.monotonic()
    planned = plan(config, tools.load_task, opened.about.config_digest)
    _allow_files(config.parallel)
    with opened.lock():
        judge = parts.judge or _judge(config, tools)
        shared = RunContext(opened, config, tools, model, judge, progress, parts.policy)
        episodes = list(opened.episodes())
        _same_tasks(opened, planned, episodes)
        _remember(shared, episodes)
        closed = {episode.id for episode in episodes if episode.reason is not None}
        todo = [each for each in planned if each.id not in closed]
        progress.run_started(opened, len(planned), len(planned) - len(todo))
        try:
            async with open_checkpoints(opened.checkpoints) as saver:
                for thread in await saver.threads() & closed:
                    await saver.adelete_thread(thread)
                graph = build().compile(checkpointer=saver)
                limit = config.run_budget.seconds
                with _signals(shared), _clock(shared, limit):
                    shared.check_budget()
                    await _together(shared, todo, lambda each: run_episode(graph, saver, shared, each))
        finally:
            await judge.close()
            await model.close()
        return _summary(opened, planned, shared.why, time.monotonic() - started)


async def _together(shared: RunContext, todo: list[Planned], work: Callable[[Planned], object]) -> None:
    """Work on all, so many at once; one that fails by a defect or by bad input stops the others after their superstep."""
    waiting = iter(todo)
    failures: list[Exception] = []

    async def worker() -> None:
        for each in waiting:
            if shared.stopping.is_set():
                return
            try:
                await work(each)  # type: ignore[misc]
            except Exception as error:  # kept to be raised below, when the others have stopped
                failures.append(error)
                shared.halt(f"{each.id}: {type(error).__name__}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(shared.config.parallel, len(todo))):
            group.create_task(worker())
    if failures:
        raise failures[0]


@contextlib.contextmanager
def _signals(shared: RunContext) -> Generator[None]:
    """First signal drains, second cancels."""
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    assert this is not None, "a run works inside a task"

    def heard(name: str) -> None:
        if shared.stopping.is_set():
            this.cancel(f"{name} again")
        shared.halt(name)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, heard, number.name)
    except (RuntimeError, ValueError):  # not in the main thread: whoever runs us there handles signals
        numbers = ()
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _clock(shared: RunContext, seconds: float | None) -> Generator[None]:
    """Halt the run when its time is up."""
    timer = None
    if seconds is not None:
        why = f"the run's budget of {seconds:g} seconds is used up"
        timer = asyncio.get_running_loop().call_later(seconds, shared.halt, why)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _guard_key(config: RunConfig) -> None:
    """Keep the model's key off the disk, whatever its variable is called."""
    if "@" in urlsplit(config.options.base_url or "").netloc:
        raise InputError(
            "the model's address holds a password; put it into an environment variable and name that instead"
        )
    if config.options.api_key_env:
        protect(os.environ.get(config.options.api_key_env, "").strip())


def _same_tasks(opened: Run, planned: tuple[Planned, ...], episodes: list[Episode]) -> None:
    """Episodes are named by what their task was; refuse to go on with another."""
    known = {each.id for each in planned}
    for episode in episodes:
        if episode.id not in known:
            raise InputError(
                f"{opened.path} has episode {episode.id} of task {episode.task} as it was then (digest {episode.task_digest[:12]}), "
                f"and the task has changed since. Put the task back as it was, or begin a new run."
            )


def _remember(shared: RunContext, episodes: list[Episode]) -> None:
    """Count what was spent, and know what was judged, in earlier processes."""
    from agent.context import Foreign

    for episode in episodes:
        shared.tokens += episode.tokens
        shared.usd += episode.usd
        for turn in episode.turns:
            if turn.ended and turn.candidate and turn.evaluation and not turn.missing:
                known = shared.judged.setdefault(episode.task_digest, [])
                known.append(Foreign(episode.id, turn.candidate, turn.evaluation))


def _summary(opened: Run, planned: tuple[Planned, ...], why: str, seconds: float) -> RunSummary:
    ids = {each.id for each in planned}
    episodes = [episode for episode in opened.episodes() if episode.id in ids]
    ended = [episode for episode in episodes if episode.reason is not None]
    best = (each.best.verdict if each.best is not None else None for each in ended)
    return RunSummary(
        path=opened.path,
        episodes=len(planned),
        ended=len(ended),
        stopped=why if len(ended) < len(planned) else "",
        reasons=dict(Counter(each.reason or "" for each in ended)),
        best=dict(Counter(verdict.value if verdict else "missing" for verdict in best)),
        turns=sum(len(each.turns) for each in episodes),
        tokens=sum(each.tokens for each in episodes),
        usd=sum(each.usd for each in episodes),
        seconds=seconds,
    )


def _fingerprint(tools: Tools) -> str:
    from agent.graph import fingerprint

    return fingerprint(tools.prompts)


def _judge(config: RunConfig, tools: Tools) -> Judge:
    """The processes that judge. Raises InputError when the run's device is not here."""
    from tools.devices import CUDA, resolved, usable

    if resolved(config.device, config.arch, config.gpus) != CUDA:
        return Pool(config.workers, memory_bytes=config.worker_bytes, seconds=config.stage_seconds)
    from agent.judges import GpuJudges, memory_of

    return GpuJudges(
        tools.stages[Stage.MEASURE],
        usable(config.arch, config.gpus),
        workers=config.workers,
        memory_bytes=memory_of(config.worker_bytes),
        seconds=config.stage_seconds,
    )


def _allow_files(episodes: int) -> None:
    """Each episode in flight holds its ledger open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = episodes + 512
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise InputError(
            f"{episodes} episodes at once need {wanted} open files, this system allows {hard}; use fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
