"""The one place where the bytes of a run are written: redacted, whole, and on the disk before the call returns."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from traces.redact import redact


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` under `path` in one step; readers see all of it or nothing."""
    descriptor, draft = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        try:
            _write_all(descriptor, redact(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append(descriptor: int, data: bytes) -> int:
    """Append to an open file and wait for the disk; returns the number of bytes written."""
    data = redact(data)
    _write_all(descriptor, data)
    os.fsync(descriptor)
    return len(data)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
