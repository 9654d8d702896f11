"""A small on-disk cache of what external programs answered, by content.

Contract: a key is a sha256 over everything the answer depends on (the program's version too). An entry
carries its own digest: one that is torn, corrupt or unreadable is a miss and is removed. Writing is atomic
(a private file, then rename), so any number of processes may share the folder; a folder that cannot be
written is no error, only no cache. The folder is bounded: the oldest entries go when it grows past
`LIMIT_BYTES`. `PTXMEND_CACHE` names the folder (default `~/.cache/ptxmend`); set but empty, it turns the
cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

FORMAT = b"ptxmend-cache-1"
LIMIT_BYTES = 512 << 20
ENTRY_BYTES = 32 << 20
"""Larger answers are not kept."""
_PRUNE_EVERY = 64


def key_of(*parts: str | bytes) -> str:
    """A hex key over parts; no two lists of parts share one by concatenation."""
    digest = hashlib.sha256(FORMAT)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def folder() -> Path | None:
    """Where entries live; None when the cache is off."""
    setting = os.environ.get("PTXMEND_CACHE")
    if setting is not None:
        return Path(setting) if setting else None
    try:
        return Path.home() / ".cache" / "ptxmend"
    except RuntimeError:
        return None


def get(key: str) -> bytes | None:
    """The answer kept under a key, or None."""
    root = folder()
    if root is None:
        return None
    path = root / key[:2] / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[:32], data[32:]
    if hashlib.sha256(key.encode() + payload).digest() != digest:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return payload


def put(key: str, payload: bytes) -> None:
    """Keep an answer; does nothing where it cannot."""
    root = folder()
    if root is None or len(payload) > ENTRY_BYTES:
        return
    path = root / key[:2] / key
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(key.encode() + payload).digest() + payload)
        os.replace(temporary, path)
        temporary = None
    except OSError:
        return
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    if int(key[-4:], 16) % _PRUNE_EVERY == 0:
        prune(root)


def prune(root: Path, limit: int = LIMIT_BYTES) -> None:
    """Remove the entries used longest ago until the folder holds at most `limit` bytes."""
    entries: list[tuple[float, int, Path]] = []
    for path in root.glob("??/*"):
        with contextlib.suppress(OSError):
            state = path.stat()
            entries.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
