"""Who may use a GPU now: runs share it, timings have it alone, across all processes of this user.

Each GPU has two lock files. Whoever wants the GPU takes the turnstile first, then the GPU itself (shared or exclusive), and leaves the
turnstile: a timing that waits for runs to end holds the turnstile meanwhile, so no later run overtakes it. The kernel frees the locks of
a process that dies (flock(2)).
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import InfraError


def state_folder(given: Path | None = None) -> Path:
    """The folder of locks and ledgers: `given`, else one of this user's own under $XDG_RUNTIME_DIR or the temporary folder."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        return given
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"ptxmend-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InfraError(f"cannot make the folder for GPU locks, {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InfraError(f"expected a folder of this user's own for GPU locks; {folder} is not: move it away")
    return folder


class GpuLock:
    """The lock of one GPU. Re-entrant in a thread: runs inside of a timing go on under its exclusive lock."""

    def __init__(self, folder: Path, uuid: str) -> None:
        self._turnstile = folder / f"{uuid}.turnstile"
        self._gpu = folder / f"{uuid}.lock"
        self._held = threading.local()

    @contextmanager
    def shared(self) -> Generator[None]:
        """Use the GPU beside others."""
        with self._lock(fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Have the GPU alone."""
        with self._lock(fcntl.LOCK_EX):
            yield

    def free(self) -> bool:
        """Whether a run could begin at once."""
        with _opened(self._turnstile) as turnstile, _opened(self._gpu) as gpu:
            try:
                fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(gpu, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @contextmanager
    def _lock(self, how: int) -> Generator[None]:
        depth, held = getattr(self._held, "depth", 0), getattr(self._held, "how", how)
        if depth and how == fcntl.LOCK_EX and held != fcntl.LOCK_EX:
            raise InfraError("a GPU that is shared cannot be had alone before it is let go")
        self._held.depth, self._held.how = depth + 1, held
        try:
            if depth:
                yield
                return
            with _opened(self._gpu) as gpu:
                with _opened(self._turnstile) as turnstile:
                    fcntl.flock(turnstile, fcntl.LOCK_EX)
                    fcntl.flock(gpu, how)
                yield
        finally:
            self._held.depth = depth


@contextmanager
def _opened(path: Path) -> Generator[int]:
    """A lock file; closing it lets the lock go. Not inherited by children."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
