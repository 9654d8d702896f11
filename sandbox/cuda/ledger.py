"""The health of a GPU, as its workers lived it: one JSON line an event, appended, versioned, bounded.

Events: `started` (seconds), `canary` (milliseconds), `killed` (why), `sick` (a canary failed), `quarantined` (why).
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FORMAT = 1
MOST_BYTES = 4 << 20
"""A longer ledger is put aside as `.old`, in the place of the one before."""

Event = Literal["started", "canary", "killed", "sick", "quarantined"]


@dataclass(frozen=True, slots=True)
class Health:
    """What a ledger tells of one GPU."""

    uuid: str
    name: str
    counts: dict[str, int]
    quarantined: str
    """Why, when that was the last event; else ''."""


class Ledger:
    """The ledger of one GPU."""

    def __init__(self, folder: Path, uuid: str, name: str) -> None:
        self._path = folder / f"{uuid}.jsonl"
        self._about = {"format": FORMAT, "uuid": uuid, "name": name, "pid": os.getpid()}

    def note(self, event: Event, **facts: Any) -> None:
        """Append an event; a ledger that cannot be written is no reason to stop judging."""
        line = json.dumps({**self._about, "at": time.time(), "event": event, **facts}) + "\n"
        with suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > MOST_BYTES:
                self._path.replace(self._path.with_suffix(".old"))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)


def health(folder: Path) -> tuple[Health, ...]:
    """What all ledgers of a folder tell; lines that cannot be read are passed over."""
    found: list[Health] = []
    for path in sorted(folder.glob("*.jsonl")):
        counts: Counter[str] = Counter()
        name, quarantined = "", ""
        for line in path.read_text(errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                counts[told["event"]] += 1
                name = told["name"]
                quarantined = told.get("why", "") if told["event"] == "quarantined" else ""
        found.append(Health(path.stem, name, dict(counts), quarantined))
    return tuple(found)
