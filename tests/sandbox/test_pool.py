"""The pool against real processes: deaths, time-outs, cancellation, memory, leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox import pool as pools
from sandbox.device import Fault, FaultKind
from sandbox.keeper import Keeper
from sandbox.pool import Pool
from sandbox.ptx.plan import PlanError
from tasks.errors import CannotJudge, InfraError, PtxmendError, WorkerLost


class Awkward(CannotJudge):
    """An error that cannot be pickled back by its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def double(number: int) -> int:
    return 2 * number


def pid() -> int:
    return os.getpid()


def chatter() -> str:
    print("(True, 'forged')" * 1000)
    os.write(1, b"\x00" * 100_000)
    os.write(2, b"noise\n" * 1000)
    return "real"


def own_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def limits() -> tuple[int, int]:
    """Of this worker, and of a keeper's worker that it starts."""
    keeper = Keeper()
    try:
        return own_limit(), keeper.call(own_limit, seconds=30)
    finally:
        keeper.kill()


def refuse(kind: str) -> None:
    raise {
        "plan": PlanError("bad grid", 7),
        "judge": CannotJudge("lacks wgmma"),
        "awkward": Awkward("this", "that"),
        "bug": ValueError("a bug"),
    }[kind]


def sleep_with_child(path: str) -> None:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(path).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(1000)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def grab(size: int) -> int:
    return len(bytearray(size))


def environment(name: str) -> str | None:
    return os.environ.get(name)


def a_fault() -> Fault:
    return Fault(kind=FaultKind.TRAP, message="trap", block=(1, 2, 3))


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def gone(*processes: int) -> bool:
    for _ in range(200):
        if not any(running(process) for process in processes):
            return True
        await asyncio.sleep(0.05)
    return False


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def pids(path: Path) -> tuple[int, int]:
    for _ in range(400):
        if len(found := words(path)) == 2:
            return int(found[0]), int(found[1])
        await asyncio.sleep(0.05)
    raise AssertionError("the worker never started its child")


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(1, memory_bytes=1 << 30, seconds=60)
    yield pool
    await pool.close()


async def test_a_worker_stays_warm_and_answers_typed_records(pool: Pool) -> None:
    assert await pool.call(double, 21) == 42
    assert await pool.call(a_fault) == a_fault()
    assert await pool.call(pid) == await pool.call(pid) != os.getpid()


async def test_what_is_printed_is_not_an_answer(pool: Pool) -> None:
    assert await pool.call(chatter) == "real"
    assert await pool.call(double, 1) == 2


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("plan", PlanError, "bad grid"),
        ("judge", CannotJudge, "lacks wgmma"),
        ("awkward", InfraError, "this and that"),
        ("bug", InfraError, "ValueError: a bug"),
    ],
)
async def test_errors_keep_their_type(pool: Pool, kind: str, error: type[PtxmendError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        await pool.call(refuse, kind)
    if isinstance(caught.value, PlanError):
        assert caught.value.line == 7
    assert await pool.call(double, 2) == 4


async def test_a_dead_worker_is_replaced(pool: Pool) -> None:
    first = await pool.call(pid)
    with pytest.raises(WorkerLost, match="SIGKILL"):
        await pool.call(die)
    assert await pool.call(pid) != first


async def test_time_out_kills_the_whole_group(pool: Pool, tmp_path: Path) -> None:
    await pool.call(pid)
    with pytest.raises(WorkerLost, match="took more than 2 s"):
        await pool.call(sleep_with_child, str(tmp_path / "pids"), seconds=2)
    assert await gone(*await pids(tmp_path / "pids"))
    assert await pool.call(double, 3) == 6


async def test_cancellation_kills(pool: Pool, tmp_path: Path) -> None:
    task = asyncio.create_task(pool.call(sleep_with_child, str(tmp_path / "pids")))
    processes = await pids(tmp_path / "pids")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(*processes)
    assert await pool.call(double, 3) == 6


async def test_memory_is_bounded(pool: Pool) -> None:
    assert await pool.call(grab, 1 << 20) == 1 << 20
    with pytest.raises(InfraError, match="memory"):
        await pool.call(grab, 2 << 30)
    assert await pool.call(double, 4) == 8


async def test_workers_are_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "RECYCLE", 2)
    pool = Pool(1, memory_bytes=1 << 30, seconds=60)
    seen = [await pool.call(pid) for _ in range(4)]
    await pool.close()
    assert seen[0] == seen[1] != seen[2] == seen[3]


async def test_credentials_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PTXMEND_PTXAS", "/opt/ptxas")
    assert await pool.call(environment, "OPENAI_API_KEY") is None
    assert await pool.call(environment, "PTXMEND_PTXAS") == "/opt/ptxas"
    assert await pool.call(environment, "OMP_NUM_THREADS") == "1"


async def test_calls_share_the_workers_and_close_ends_busy_ones(tmp_path: Path) -> None:
    pool = Pool(2, memory_bytes=1 << 30, seconds=60)
    answers = await asyncio.gather(*(pool.call(double, number) for number in range(20)))
    assert answers == [2 * number for number in range(20)]
    task = asyncio.create_task(pool.call(sleep_with_child, str(tmp_path / "pids")))
    processes = await pids(tmp_path / "pids")
    await pool.close()
    with pytest.raises(WorkerLost):
        await task
    assert await gone(*processes)
    with pytest.raises(WorkerLost, match="closed"):
        await pool.call(double, 1)


async def test_a_killed_parent_leaves_no_worker(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from sandbox.pool import Pool\n"
        "from tests.sandbox.test_pool import sleep_with_child\n"
        "asyncio.run(Pool(1, memory_bytes=1 << 30, seconds=99).call(sleep_with_child, sys.argv[1]))\n"
    )
    parent = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [sys.executable, "-c", program, str(tmp_path / "pids")]
    )
    processes = await pids(tmp_path / "pids")
    parent.kill()
    parent.wait()
    assert await gone(*processes)


async def test_a_function_that_is_not_importable_is_refused(pool: Pool) -> None:
    with contextlib.suppress(AttributeError), pytest.raises(Exception, match="pickle"):
        await pool.call(lambda: 1)
    assert await pool.call(double, 4) == 8


async def test_a_worker_without_a_limit_does_not_keep_that_of_the_worker_it_comes_from() -> None:
    pool = Pool(1, memory_bytes=2 << 30, seconds=60)
    try:
        limited, free = await pool.call(limits)
    finally:
        await pool.close()
    assert limited < 20 << 30
    assert free == resource.getrlimit(resource.RLIMIT_AS)[1]
