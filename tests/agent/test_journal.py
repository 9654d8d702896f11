"""Writes of an episode wait for the disk in a thread; a caller that is cancelled waits for them all the same."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent.journal import on_disk


async def test_others_go_on_while_one_writes() -> None:
    go = threading.Event()
    write = asyncio.create_task(on_disk(go.wait, 20.0))
    await asyncio.sleep(0.01)
    assert not write.done()
    go.set()
    assert await write is True


async def test_what_a_write_raises_is_raised() -> None:
    def full() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        await on_disk(full)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_waits_for_the_end_of_its_write(fails: bool) -> None:
    go, begun = threading.Event(), threading.Event()
    done: list[str] = []

    def write() -> None:
        begun.set()
        go.wait(20.0)
        done.append("written")
        if fails:
            raise OSError("no space left")

    async def episode() -> None:
        try:
            await on_disk(write)
        finally:
            done.append("closed")

    task = asyncio.create_task(episode())
    await asyncio.to_thread(begun.wait, 20.0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
        assert done == []
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["written", "closed"]
