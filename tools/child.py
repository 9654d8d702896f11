"""One external program, run once within limits.

Contract: the program gets an argument list, a private folder as its working directory, an almost empty
environment and its own session; wall time, address space, CPU time and the size of any file it writes are
bounded; whatever way it ends, its whole process group is gone when `run_limited` returns. Its output goes
to files (so a flood cannot block it) of which only the first part is read.

The limits are set on the child's pid from outside (`resource.prlimit`): running Python between fork and
exec is unsafe when other threads hold locks, and a launcher process would double the cost of a 20 ms
assembly. The child runs free for well under a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import InfraError


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What an external program may use."""

    seconds: float = 60.0
    """Wall time."""
    memory_bytes: int = 4 << 30
    """Address space."""
    file_bytes: int = 256 << 20
    """Largest file it may write, its output included."""
    output_bytes: int = 1 << 20
    """How much of each output stream is read."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a program ended."""

    code: int
    """Exit code, or minus the signal that ended it."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    """It outran its wall or CPU time."""
    seconds: float


def run_limited(argv: Sequence[str], folder: Path, limits: ChildLimits) -> ChildResult:
    """Run `argv` in `folder`; `InfraError` when it cannot be started."""
    out, err = folder / "stdout", folder / "stderr"
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(folder), "HOME": str(folder)}
    started = time.monotonic()
    timed_out = False
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                list(argv),
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise InfraError(
                f"{argv[0]} could not be started: {error}. Check that it is executable on this machine."
            ) from error
        try:
            _limit(process.pid, limits)
            process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = process.returncode
    return ChildResult(
        code=code,
        stdout=_head(out, limits.output_bytes),
        stderr=_head(err, limits.output_bytes),
        timed_out=timed_out or code == -signal.SIGXCPU,
        seconds=time.monotonic() - started,
    )


def _limit(pid: int, limits: ChildLimits) -> None:
    cpu = int(limits.seconds) + 1
    table = (
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_CORE, 0, 0),
    )
    with contextlib.suppress(ProcessLookupError):  # it may have ended already
        for which, soft, hard in table:
            ceiling = resource.getrlimit(which)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.prlimit(pid, which, (soft, hard))


def _head(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)
