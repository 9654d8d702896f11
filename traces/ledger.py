"""An episode's ledger: `episodes/<id>.jsonl`, appended and fsynced, one writer at a time.

A crash may tear the last line; what was torn was never acknowledged, so opening for writing cuts it off and reading skips it. A damaged
line anywhere else is an error, never skipped.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from tasks.errors import InputError
from traces.disk import append, sync_folder
from traces.events import Event, read_event

Key = tuple[str | int, ...]


def read_events(path: Path) -> tuple[Event, ...]:
    """All events of a ledger, without a torn last line. Raises InputError where the file is damaged."""
    return _parse(path, _lines(path))


class Ledger:
    """One episode's events, open for appending; close it or use it as a context manager."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Opens or makes the file. Raises InputError when another process writes it."""
        self.path = path
        self._clock = clock
        fresh = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise InputError(f"{path} is being written by another process; wait for it or stop it") from None
        try:
            if fresh:
                sync_folder(path.parent)
            lines = _lines(path)
            whole = sum(map(len, lines))
            if os.fstat(self._descriptor).st_size > whole:
                os.ftruncate(self._descriptor, whole)
                os.fsync(self._descriptor)
            self.events: list[Event] = list(_parse(path, lines))
        except BaseException:
            os.close(self._descriptor)
            raise
        self._by_key: dict[Key, Event] = {event.key: event for event in self.events if event.key is not None}

    def append(self, *events: Event) -> None:
        """Write events in one piece and wait for the disk; those whose key is already there are left out."""
        new: list[Event] = []
        for event in events:
            if event.key is None or event.key not in self._by_key:
                stamp = {"seq": len(self.events) + len(new), "time": self._clock()}
                new.append(event.model_copy(update=stamp))
        if not new:
            return
        append(self._descriptor, b"".join(event.model_dump_json().encode() + b"\n" for event in new))
        for event in new:
            self.events.append(event)
            if event.key is not None:
                self._by_key[event.key] = event

    def find(self, *key: str | int) -> Event | None:
        """The event about this, None when it has not happened."""
        return self._by_key.get(key)

    @property
    def closed(self) -> bool:
        """The episode has ended."""
        return ("episode_ended",) in self._by_key

    def close(self) -> None:
        """Give the file free; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(path: Path) -> list[bytes]:
    """Whole lines, ends included; a last one without its end is torn."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def _parse(path: Path, lines: list[bytes]) -> tuple[Event, ...]:
    events: list[Event] = []
    for number, line in enumerate(lines):
        try:
            event = read_event(line)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            raise InputError(
                f"{path}, line {number + 1}: expected an event, found {line[:80]!r}: {what}"
            ) from None
        if event.seq != number:
            raise InputError(f"{path}, line {number + 1}: expected event {number}, found event {event.seq}")
        events.append(event)
    return tuple(events)
