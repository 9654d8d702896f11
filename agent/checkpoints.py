"""Checkpoints in SQLite, many episodes to a commit.

Every superstep waits until its checkpoint is committed (durability "sync"). With many episodes in flight, those that wait at the same
time share one transaction: `flush` takes all that has gathered while the one before was being written.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

_CHECKPOINT = (
    "INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type,"
    " checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_WRITE = (
    "INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_KEEP, _REPLACE = f"INSERT OR IGNORE {_WRITE}", f"INSERT OR REPLACE {_WRITE}"
_DELETE = ("DELETE FROM checkpoints WHERE thread_id = ?", "DELETE FROM writes WHERE thread_id = ?")

Statement = tuple[str, list[tuple[Any, ...]]]


class SharedCommits(AsyncSqliteSaver):
    """AsyncSqliteSaver whose writes share commits."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self._gathered: list[tuple[Statement, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place: dict[str, Any] = config.get("configurable", {})
        thread, space = str(place["thread_id"]), str(place["checkpoint_ns"])
        kind, data = self.serde.dumps_typed(checkpoint)
        about = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        row = (
            thread,
            space,
            checkpoint["id"],
            place.get("checkpoint_id"),
            kind,
            data,
            about.encode("utf-8", "ignore"),
        )
        await self._commit((_CHECKPOINT, [row]))
        return {
            "configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint["id"]}
        }

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place: dict[str, Any] = config.get("configurable", {})
        head = (str(place["thread_id"]), str(place["checkpoint_ns"]), str(place["checkpoint_id"]))
        rows = [
            (
                *head,
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                *self.serde.dumps_typed(value),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        await self._commit((_REPLACE if special else _KEEP, rows))

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.gather(*(self._commit((text, [(thread_id,)])) for text in _DELETE))

    async def threads(self) -> frozenset[str]:
        """Threads that have a checkpoint."""
        async with self.lock, self.conn.execute("SELECT DISTINCT thread_id FROM checkpoints") as cursor:
            return frozenset([str(row[0]) async for row in cursor])

    async def _commit(self, statement: Statement) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gathered.append((statement, done))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def _flush(self) -> None:
        while self._gathered:
            batch, self._gathered = self._gathered, []
            by_text: dict[str, list[tuple[Any, ...]]] = {}
            for (text, rows), _ in batch:
                by_text.setdefault(text, []).extend(rows)
            failure: Exception | None = None
            try:
                async with self.lock:
                    for text, rows in by_text.items():
                        await self.conn.executemany(text, rows)
                    await self.conn.commit()
            except Exception as error:  # every waiter must hear of it, whatever it is
                failure = error
            for _, done in batch:
                if not done.done():
                    done.set_exception(failure) if failure else done.set_result(None)


@asynccontextmanager
async def open_checkpoints(path: Path) -> AsyncGenerator[SharedCommits]:
    """The saver of this process. A file that SQLite cannot read is put away: it is a cache, rebuilt from the ledgers."""
    connection = await aiosqlite.connect(path, timeout=30)
    try:
        try:
            saver = await _prepared(connection)
        except sqlite3.DatabaseError:
            await connection.close()
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            connection = await aiosqlite.connect(path, timeout=30)
            saver = await _prepared(connection)
        yield saver
    finally:
        await connection.close()


async def _prepared(connection: aiosqlite.Connection) -> SharedCommits:
    await connection.execute("PRAGMA journal_mode=WAL")
    await connection.execute("PRAGMA synchronous=NORMAL")
    saver = SharedCommits(connection)
    await saver.setup()
    return saver
