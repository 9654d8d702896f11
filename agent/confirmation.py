"""Winners of a run, judged and timed again: only these figures are published.

The best of many readings is the luckiest too (the winner's curse), so the kernel that a run ends with is measured anew: a fresh process
for each, hence new inputs at new addresses and baselines that start over, with new seeds, in full mode. The whole ladder is climbed, so a
kernel that was right by chance is found out as well.

Invariants
- Records are appended and never changed; what has one is left out unless asked for again.
- A candidate is on record before the next one begins on its GPU: an interruption loses what is in hand and nothing else.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from agent import provenance
from agent.config import RunConfig
from agent.context import Judge
from agent.judges import memory_of
from agent.winners import Winner
from sandbox.pool import Pool
from tasks.errors import CannotJudge, InfraError, InputError, PtxmendError
from tasks.registry import LoadedTask, load_task
from tools.devices import CUDA, usable
from tools.evaluation import Verdict
from tools.ladder import Job, StageResult, evaluate
from traces.confirmations import Confirmation, Confirmations, confirming
from traces.store import Run

SECONDS = 3600.0
"""Time of one candidate, up the whole ladder."""


class Watch(Protocol):
    """Who is told how confirming goes."""

    def begun(self, winner: Winner, gpu: int) -> None: ...

    def done(self, winner: Winner, record: Confirmation) -> None: ...

    def failed(self, winner: Winner, error: InfraError) -> None:
        """It could not be judged, for a reason that is not the candidate's; nothing is recorded."""
        ...


def confirm(
    run: Run,
    chosen: Sequence[Winner],
    watch: Watch,
    *,
    gpus: tuple[int, ...] = (),
    again: bool = False,
    judge: Callable[[], Judge] | None = None,
    climb: Callable[[Job], StageResult] = evaluate,
) -> tuple[Confirmation, ...]:
    """Measure these again; the records that were added. judge: makes the process of one candidate; climb: judges it there.

    Raises InputError when a GPU is not there, or a task is no longer what it was.
    """
    config = RunConfig.model_validate(run.about.config)
    numbers = usable(config.arch, gpus)
    tasks = _tasks(config, chosen)

    def process() -> Judge:
        return Pool(1, memory_bytes=memory_of(config.worker_bytes), seconds=SECONDS)

    with confirming(run) as kept:
        had = {(each.task_digest, each.candidate) for each in kept.records}
        todo = [each for each in chosen if again or (each.episode.task_digest, each.candidate) not in had]
        before = len(kept.records)
        if todo:
            asyncio.run(_all(run, config, tasks, todo, watch, numbers, kept, judge or process, climb))
        return tuple(kept.records[before:])


def _tasks(config: RunConfig, chosen: Sequence[Winner]) -> dict[str, LoadedTask]:
    """Task digest → task, for all that is to be confirmed."""
    loaded = {task.digest: task for task in map(load_task, config.tasks)}
    for winner in chosen:
        if winner.episode.task_digest not in loaded:
            raise InputError(
                f"task {winner.episode.task} is no longer what this run was begun with (its digest was "
                f"{winner.episode.task_digest[:12]}): a new timing would not be comparable"
            )
    return loaded


async def _all(
    run: Run,
    config: RunConfig,
    tasks: dict[str, LoadedTask],
    todo: Sequence[Winner],
    watch: Watch,
    gpus: tuple[int, ...],
    kept: Confirmations,
    process: Callable[[], Judge],
    climb: Callable[[Job], StageResult],
) -> None:
    """Each GPU takes the next candidate as soon as it is free."""
    waiting = iter(todo)
    versions, ptxas = provenance.versions(), provenance.ptxas()
    environment = provenance.machine(CUDA, config.arch, gpus)
    failures: list[PtxmendError] = []

    async def on(gpu: int) -> None:
        for winner in waiting:
            if failures:
                return
            watch.begun(winner, gpu)
            job = Job(
                task=str(tasks[winner.episode.task_digest].folder),
                arch=winner.episode.arch,
                text=run.blobs.text(winner.candidate),
                require=config.require,
                seed=secrets.randbits(62),
                device=CUDA,
                gpus=(gpu,),
                mode="full",
            )
            judge = process()
            try:
                result = await judge.call(climb, job, seconds=SECONDS)
                found = result.evaluation
                if found.verdict is Verdict.CORRECT and found.timing is None:
                    raise CannotJudge(found.summary)  # this machine cannot time it: nothing to record
            except InfraError as error:
                watch.failed(winner, error)
                continue
            except PtxmendError as error:  # bad input concerns all of them
                failures.append(error)
                return
            finally:
                await judge.close()
            record = _record(run, winner, job, result).model_copy(
                update={"versions": versions, "environment": environment, "ptxas": ptxas}
            )
            watch.done(winner, kept.append(record))

    async with asyncio.TaskGroup() as group:
        for gpu in gpus:
            group.create_task(on(gpu))
    if failures:
        raise failures[0]


def _record(run: Run, winner: Winner, job: Job, result: StageResult) -> Confirmation:
    found = result.evaluation
    timing = found.timing
    if timing is not None:
        timing = timing.model_copy(update={"confirmed": True})
        found = found.model_copy(update={"timing": timing})
    return Confirmation(
        candidate=winner.candidate,
        task=winner.episode.task,
        task_digest=winner.episode.task_digest,
        arch=job.arch,
        episode=winner.episode.id,
        turn=winner.turn.number,
        in_loop=winner.timing,
        verdict=found.verdict,
        timing=timing if found.verdict is Verdict.CORRECT else None,
        note=found.summary,
        seed=job.seed,
        evaluation=run.blobs.put(found.model_dump_json().encode("utf-8", "surrogatepass")),
        blobs={name: run.blobs.put(data) for name, data in result.blobs.items()},
    )
