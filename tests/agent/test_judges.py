"""Judging on GPUs: many processes check, one a GPU times, each keeps to its GPU, and a late one takes all it started with it."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.config import RunConfig
from agent.judges import LEAST_BYTES, GpuJudges, memory_of
from agent.runner import _judge
from sandbox.keeper import Keeper
from sandbox.pool import Pool
from tasks.errors import InputError
from tests.agent.doubles import TOOLS
from tests.agent.timed import A100, H200, with_gpus
from tests.sandbox.test_pool import gone, pids
from tools.evaluation import Evaluation
from tools.ladder import Job, StageResult

JOB = Job(task="affine", arch="sm_90a", text="", device="cuda", gpus=(3, 5))
Seen = tuple[int, tuple[int, ...], bool]


def look(job: Job, evaluation: Evaluation | None) -> Seen:
    """Who judges what, after a while in which others come."""
    time.sleep(0.2)
    return os.getpid(), job.gpus, job.ahead


def timing(job: Job, evaluation: Evaluation | None) -> StageResult:
    return look(job, evaluation)  # type: ignore[return-value]  # whatever a stage gives is passed on


def pid() -> int:
    return os.getpid()


def limits() -> dict[str, int]:
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("DATA", "AS")}


def limits_of_both(job: Job, evaluation: Evaluation | None) -> tuple[dict[str, int], dict[str, int]]:
    """Of a judge, and of a child such as a GPU's worker or a referee."""
    keeper = Keeper()
    try:
        return limits(), keeper.call(limits, seconds=30)
    finally:
        keeper.kill()


def hang_with_a_worker(job: Job, evaluation: Evaluation | None) -> None:
    """As a judge whose GPU worker hangs with it."""
    assert job.text
    keeper = Keeper()
    Path(job.text).write_text(f"{os.getpid()} {keeper.call(pid, seconds=30)}")
    time.sleep(1000)


@pytest.fixture
async def judges() -> AsyncIterator[GpuJudges]:
    made = GpuJudges(timing, (3, 5), workers=3, memory_bytes=1 << 30, seconds=60)
    yield made
    await made.close()


async def test_each_process_keeps_to_one_gpu_and_one_a_gpu_times(judges: GpuJudges) -> None:
    checks = [judges.call(look, JOB, None) for _ in range(6)]
    times = [judges.call(timing, JOB, None) for _ in range(4)]
    seen: list[Seen] = await asyncio.gather(*checks, *times)
    checking, measuring = set(seen[:6]), set(seen[6:])
    assert sorted(gpus for _, gpus, _ in checking) == [(3,), (3,), (5,)]
    assert sorted(gpus for _, gpus, _ in measuring) == [(3,), (5,)]
    assert len({process for process, _, _ in checking | measuring}) == 5
    assert not any(ahead for _, _, ahead in seen), "who checks does not begin what only timing needs"


async def test_little_work_stays_with_one_process(judges: GpuJudges) -> None:
    seen = [await judges.call(look, JOB, None) for _ in range(3)]
    assert len(set(seen)) == 1


async def test_a_judge_that_is_given_up_takes_its_gpu_worker_with_it(
    judges: GpuJudges, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    job = Job(task="affine", arch="sm_90a", text=str(file), device="cuda")
    call = asyncio.create_task(judges.call(hang_with_a_worker, job, None))
    judge, worker = await pids(file)
    assert judge != worker
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await gone(judge, worker)


def test_a_run_on_gpus_has_such_judges_and_one_on_the_emulator_a_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gpus(monkeypatch, H200, A100)
    config = RunConfig(model="instant:x", tasks=("affine",), device="cuda", arch="sm_90a")
    assert isinstance(_judge(config, TOOLS), GpuJudges)
    assert isinstance(_judge(config.model_copy(update={"device": "emulator"}), TOOLS), Pool)
    with pytest.raises(InputError, match="--gpus 1 needs a GPU that runs sm_90a"):
        _judge(config.model_copy(update={"gpus": (1,)}), TOOLS)


@pytest.mark.parametrize("stage", ["checks", "times"])
async def test_a_judge_is_bounded_and_what_holds_its_gpu_is_not(stage: str) -> None:
    timer = limits_of_both if stage == "times" else timing
    made = GpuJudges(timer, (3,), workers=1, memory_bytes=memory_of(1 << 30), seconds=60)  # type: ignore[arg-type]
    try:
        judge, child = await made.call(limits_of_both, JOB, None)
    finally:
        await made.close()
    hard = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in ("DATA", "AS")}
    assert judge["DATA"] == LEAST_BYTES
    assert child == hard, "a driver maps far more than it uses, and a referee holds the largest references"


def test_a_run_that_grants_more_is_given_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, H200)
    given: list[int] = []
    monkeypatch.setattr("agent.judges.GpuJudges", lambda *_, memory_bytes, **__: given.append(memory_bytes))
    config = RunConfig(model="instant:x", tasks=("affine",), device="cuda")
    for bytes_ in (1 << 30, 64 << 30):
        _judge(config.model_copy(update={"worker_bytes": bytes_}), TOOLS)
    assert given == [LEAST_BYTES, 64 << 30]
