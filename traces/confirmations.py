"""Timings taken again: `RUN/confirmations.jsonl`, appended and fsynced, one writer at a time, nothing ever overwritten.

A run's own readings steer its episodes, and the best of many readings is the luckiest too. What is published is what a record here
holds: the same candidate judged and timed again in a fresh process, on new data at new addresses.

A torn last line was never acknowledged: it is passed over, and cut off before the next record. Readers are loose as those of events are;
a record of a higher format is refused.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from pydantic import ValidationError

from tasks.errors import InputError
from tasks.record import Record
from tools.evaluation import Timing, Verdict
from traces.disk import append, sync_folder
from traces.store import Run

FORMAT = 1
"""Version of a record."""

Said = Literal["agrees", "slower", "faster", "untold"]


class Confirmation(Record):
    """One candidate, judged and timed again."""

    format: int = FORMAT
    time: float = 0.0
    """Seconds since 1970, when it was appended."""
    candidate: str
    """Reference to its text."""
    task: str
    task_digest: str
    arch: str
    episode: str
    turn: int
    in_loop: Timing
    """The reading of the run."""
    verdict: Verdict
    """Of judging again; the timing counts only when it is correct."""
    timing: Timing | None
    """`confirmed` is set; None when the verdict is not correct."""
    note: str = ""
    """The evaluation's summary."""
    seed: int
    """Of all inputs; no secret once the candidate has been judged."""
    evaluation: str
    """Reference to the whole Evaluation."""
    blobs: dict[str, str] = {}
    """File name → reference; `samples.json` holds every raw sample."""
    versions: dict[str, str] = {}
    """Package → version."""
    environment: dict[str, str] = {}
    """Facts of the machine, its GPUs among them."""
    ptxas: dict[str, str] = {}

    @property
    def said(self) -> Said:
        """Whether the new interval lies below or above that of the loop; untold: no figure, or another baseline or kind of GPU."""
        new, old = self.timing, self.in_loop
        if new is None or (new.baseline, new.device) != (old.baseline, old.device):
            return "untold"
        if new.high < old.low:
            return "slower"
        return "faster" if new.low > old.high else "agrees"


class Confirmations:
    """The records of a run, open for appending."""

    def __init__(self, run: Run, descriptor: int, records: list[Confirmation]) -> None:
        self._run, self._descriptor = run, descriptor
        self.records = records

    def append(self, record: Confirmation) -> Confirmation:
        """Write a record and wait for the disk; returns it with its time."""
        stamped = record.model_copy(update={"time": time.time()})
        append(self._descriptor, stamped.model_dump_json().encode() + b"\n")
        self.records.append(stamped)
        return stamped


def confirmations(run: Run) -> tuple[Confirmation, ...]:
    """All records of a run, oldest first. Raises InputError where the file is damaged."""
    return tuple(_parse(run, _lines(run)))


def latest(run: Run) -> dict[tuple[str, str], Confirmation]:
    """(task digest, candidate) → its newest record."""
    return {(each.task_digest, each.candidate): each for each in confirmations(run)}


@contextmanager
def confirming(run: Run) -> Generator[Confirmations]:
    """Open for appending. Raises InputError when another process confirms this run."""
    path = run.confirmations
    fresh = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{path} is being written by another process; wait for it or stop it") from None
        if fresh:
            sync_folder(path.parent)
        lines = _lines(run)
        records = _parse(run, lines)
        whole = sum(map(len, lines))
        if os.fstat(descriptor).st_size > whole:
            os.ftruncate(descriptor, whole)
            os.fsync(descriptor)
        yield Confirmations(run, descriptor, records)
    finally:
        os.close(descriptor)


def _lines(run: Run) -> list[bytes]:
    """Whole lines, ends included; a last one without its end is torn."""
    try:
        data = run.confirmations.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{run.confirmations} cannot be read: {error.strerror}") from None
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def _parse(run: Run, lines: list[bytes]) -> list[Confirmation]:
    records: list[Confirmation] = []
    for number, line in enumerate(lines, 1):
        try:
            found = _Format.model_validate_json(line, extra="ignore").format
            if found > FORMAT:
                raise InputError(
                    f"{run.confirmations}, line {number} has format {found}, this version reads up to {FORMAT}; install a newer ptxmend"
                )
            records.append(Confirmation.model_validate_json(line, extra="ignore"))
        except ValidationError as error:
            what = error.errors()[0]
            raise InputError(
                f"{run.confirmations}, line {number}: expected a confirmation, found {line[:80]!r}: "
                f"{'.'.join(map(str, what['loc']))}: {what['msg']}"
            ) from None
    return records


class _Format(Record):
    format: int
