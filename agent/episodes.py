"""One episode from where it stands to its end, and the rules by which it is taken up again.

| ledger | checkpoint | then |
| --- | --- | --- |
| ended | any | nothing to do; the thread is deleted |
| open | none | walk from START: the ledger answers what has happened |
| open | next or tasks | go on from there |
| open | neither | the checkpoint is of no use: delete it, walk from START |
| new | any | delete it, walk from START |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langgraph.errors import GraphDrained

from agent.checkpoints import SharedCommits
from agent.config import RunConfig
from agent.context import EpisodeContext, RunContext
from agent.graph import STEPS
from agent.journal import Journal, on_disk
from agent.nodes import Halted
from tasks.registry import LoadedTask
from traces.events import Admitted, EpisodeEnded


@dataclass(frozen=True)
class Planned:
    """An episode of a run."""

    id: str
    task: LoadedTask
    sample: int


def plan(
    config: RunConfig, load_task: Callable[[str], LoadedTask], digest: str | None = None
) -> tuple[Planned, ...]:
    """All episodes: sample by sample, so that every task has its first before one has its second.

    digest: of the configuration, as the run was begun with; None: as of now. A later version with more settings spells it differently.
    """
    tasks = [load_task(name) for name in config.tasks]
    return tuple(
        Planned(episode_id(config, task, sample, digest or config.digest), task, sample)
        for sample in range(config.samples)
        for task in tasks
    )


def episode_id(config: RunConfig, task: LoadedTask, sample: int, digest: str) -> str:
    """The same for the same task, arm, model, sample and configuration, in every process; also the thread's id."""
    parts = (task.digest, config.arm.value, config.model, str(sample), digest)
    return f"{task.task.name}.{sample}.{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


async def run_episode(
    graph: Any, saver: SharedCommits, shared: RunContext, planned: Planned
) -> EpisodeEnded | None:
    """Take one episode to its end; None when the run stopped before it. Raises what is a defect or bad input."""
    with shared.run.ledger(planned.id) as ledger:
        thread = {
            "configurable": {"thread_id": planned.id},
            "recursion_limit": STEPS * shared.config.turns + 2,
        }
        if not ledger.closed:
            fresh = not ledger.events
            if fresh:
                await on_disk(ledger.append, _admission(shared, planned))
            shared.progress.episode_started(planned.id, planned.task.task.name, planned.sample)
            journal = Journal(ledger, shared.run.blobs)
            context = EpisodeContext(shared, planned.id, planned.task, planned.sample, journal)
            start = await _start(graph, saver, thread, planned.id, fresh)
            try:
                await graph.ainvoke(start, thread, context=context, durability="sync", control=shared.control)
            except (GraphDrained, Halted):
                return None
            ended = ledger.find("episode_ended")
            assert isinstance(ended, EpisodeEnded), f"{planned.id} left the graph without an end"
            shared.progress.episode_ended(planned.id, ended.reason, ended.detail)
        await saver.adelete_thread(planned.id)
        ended = ledger.find("episode_ended")
        return ended if isinstance(ended, EpisodeEnded) else None


async def _start(graph: Any, saver: SharedCommits, thread: Any, episode: str, fresh: bool) -> Any:
    """What to invoke the graph with: None goes on from the checkpoint, a state begins at START."""
    if not fresh and await saver.aget_tuple(thread) is not None:
        snapshot = await graph.aget_state(thread)
        if snapshot.next or snapshot.tasks:
            return None
    if await saver.aget_tuple(thread) is not None:
        await saver.adelete_thread(episode)
    return {"turn": 0, "stopped": False, "missing": "", "stop": ""}


def _admission(shared: RunContext, planned: Planned) -> Admitted:
    config = shared.config
    return Admitted(
        episode=planned.id,
        task=planned.task.task.name,
        task_digest=planned.task.digest,
        family=planned.task.task.family,
        arch=config.arch,
        arm=config.arm,
        model=config.model,
        sample=planned.sample,
        turns=config.turns,
        config=shared.run.about.config_digest,
        graph=shared.run.about.graph,
    )
