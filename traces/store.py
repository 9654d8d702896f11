"""A run's folder: who made it, with what, and where everything in it is.

    run.json            what was decided once, never changed: configuration, versions, environment, fingerprints, the secret of the seeds
    episodes/<id>.jsonl ledgers
    blobs/<sha256>      texts
    checkpoints.sqlite  the machine's checkpoints: a cache
    confirmations.jsonl timings taken again, where there are any

Only this module knows the layout.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tasks.errors import InputError
from tasks.record import Record
from traces.blobs import BlobStore
from traces.disk import sync_folder, write_whole
from traces.events import FORMAT
from traces.ledger import Ledger, read_events
from traces.records import Episode, fold

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class RunFile(Record):
    """`run.json`: frozen when the run is made."""

    format: int = FORMAT
    name: str
    created: float
    """Seconds since 1970."""
    config: dict[str, Any]
    """The run's configuration, as its owner wrote it."""
    config_digest: str
    graph: str
    """Fingerprint of the machine."""
    prompts: str
    """Digest of the templates."""
    draws: str
    """Hex; seeds of all inputs are drawn from it, so a resumed run judges alike. Models never see it."""
    versions: dict[str, str] = {}
    """Package → version."""
    environment: dict[str, str] = {}
    """Facts of the machine."""
    ptxas: dict[str, str] = {}
    """path and version; empty when there is none."""


class Run:
    """An opened run folder."""

    def __init__(self, path: Path, about: RunFile) -> None:
        self.path = path
        self.about = about
        self.blobs = BlobStore(path / "blobs")

    @property
    def checkpoints(self) -> Path:
        """The cache of checkpoints."""
        return self.path / "checkpoints.sqlite"

    @property
    def confirmations(self) -> Path:
        """Timings taken again; not there before the first."""
        return self.path / "confirmations.jsonl"

    def ledger(self, episode: str) -> Ledger:
        """An episode's ledger, open for appending."""
        return Ledger(self._ledger(episode))

    def episode(self, episode: str) -> Episode:
        """One episode as far as it got."""
        path = self._ledger(episode)
        if not path.exists():
            raise InputError(f"{self.path} has no episode {episode!r}; `ptxmend show {self.path}` lists them")
        return fold(read_events(path))

    def episode_ids(self) -> tuple[str, ...]:
        """Those that were admitted, sorted."""
        return tuple(
            sorted(path.stem for path in (self.path / "episodes").glob("*.jsonl") if path.stat().st_size)
        )

    def episodes(self) -> Iterator[Episode]:
        """All that were admitted."""
        for path in sorted((self.path / "episodes").glob("*.jsonl")):
            events = read_events(path)
            if events:
                yield fold(events)

    @contextmanager
    def lock(self) -> Generator[None]:
        """Be the only process that works on this run. Raises InputError when another does."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{self.path} is in use by another process; wait for it or stop it"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def _ledger(self, episode: str) -> Path:
        if not _NAME.fullmatch(episode):
            raise InputError(f"{episode!r} cannot be the id of an episode")
        return self.path / "episodes" / f"{episode}.jsonl"


def create_run(
    root: Path,
    *,
    config: dict[str, Any],
    config_digest: str,
    graph: str,
    prompts: str,
    name: str | None = None,
    draws: str | None = None,
    versions: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    ptxas: dict[str, str] | None = None,
) -> Run:
    """Make `root/name`; without a name one is made of the time. Raises InputError when it is there already."""
    now = time.time()
    name = name or time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + secrets.token_hex(2)
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a run; use letters, digits, dot, dash and underscore")
    path = root / name
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise InputError(
            f"{path} exists; continue it with `ptxmend resume {path}` or choose another name"
        ) from None
    except OSError as error:
        raise InputError(f"cannot make {path}: {error.strerror}") from None
    (path / "episodes").mkdir()
    (path / "blobs").mkdir()
    about = RunFile(
        name=name,
        created=now,
        config=config,
        config_digest=config_digest,
        graph=graph,
        prompts=prompts,
        draws=draws or secrets.token_hex(32),
        versions=versions or {},
        environment=environment or {},
        ptxas=ptxas or {},
    )
    write_whole(path / "run.json", about.model_dump_json(indent=2).encode() + b"\n")
    sync_folder(root)
    return Run(path, about)


def open_run(path: Path) -> Run:
    """Open a run folder. Raises InputError when it is none, or of a newer format than this version reads."""
    file = path / "run.json"
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path} is not a run: cannot read {file}: {error.strerror}") from None
    try:
        found = _Format.model_validate_json(text).format
        if found > FORMAT:
            raise InputError(
                f"{file} has format {found}, this version reads up to {FORMAT}; install a newer ptxmend"
            )
        return Run(path, RunFile.model_validate_json(text, extra="ignore"))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{file} is not a run's: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None


def list_runs(root: Path) -> tuple[Path, ...]:
    """Run folders under `root`, oldest name first."""
    return tuple(sorted(file.parent for file in root.glob("*/run.json")))


class _Format(BaseModel):
    format: int
