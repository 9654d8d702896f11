"""The child's side of `sandbox.pool`: read a call, make it, answer, until the parent closes the pipe.

    python -m sandbox.worker CALLS ANSWERS LIFELINE MEMORY

CALLS, ANSWERS and LIFELINE are inherited file descriptors, MEMORY is a limit in bytes (0: none).

Invariants
- Answers travel over ANSWERS alone, each as an 8-byte length and a pickle; stdout and stderr mean nothing.
- When the parent is gone, LIFELINE ends and the worker is killed with all its children, even in mid-call.
- An error of ptxmend keeps its type on the way back; any other becomes an `InfraError` with its traceback as
  a note.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tasks.errors import CandidateError, InfraError, InputError, PtxmendError

HEADER = struct.Struct("<Q")
"""Length of the pickle that follows."""
ADDRESS_SPACE_SLACK = 16 << 30
"""Bytes of address space granted above the memory limit: libraries map far more than they touch."""


def read_frame(stream: int) -> bytes | None:
    """One message from file descriptor `stream`; None at its end (a message cut short counts as the end)."""
    head = _read_exactly(stream, HEADER.size)
    return None if head is None else _read_exactly(stream, HEADER.unpack(head)[0])


def write_frame(stream: int, body: bytes) -> None:
    """Write one message whole; raises BrokenPipeError when nobody reads any more."""
    view = memoryview(HEADER.pack(len(body)) + body)
    while view:
        view = view[os.write(stream, view) :]


def _read_exactly(stream: int, size: int) -> bytes | None:
    buffer = bytearray(size)
    rest = memoryview(buffer)
    while rest:
        count = os.readv(stream, [rest])
        if not count:
            return None
        rest = rest[count:]
    return bytes(buffer)


def portable(error: BaseException) -> PtxmendError:
    """`error`, or the nearest error of ptxmend that survives pickling."""
    if isinstance(error, PtxmendError):
        try:
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
            if type(copy) is type(error) and str(copy) == str(error):
                return error
        except Exception:  # noqa: S110 - an error that cannot travel is replaced below
            pass
        for kind in (CandidateError, InputError, InfraError):
            if isinstance(error, kind):
                return kind(str(error))
        return PtxmendError(str(error))
    if isinstance(error, MemoryError):
        return InfraError("a tool ran out of its worker's memory; raise the limit or use a smaller workload")
    note = "".join(traceback.format_exception(error))[-4000:]
    wrapped = InfraError(f"a tool failed by a fault of its own: {type(error).__name__}: {error}")
    wrapped.add_note(note)
    return wrapped


def answer(call: bytes) -> bytes:
    """Make one pickled call `(function, args)`; the pickled answer is `(True, value)` or `(False, error)`."""
    try:
        function: Callable[..., Any]
        function, args = pickle.loads(call)  # noqa: S301 - from our own parent
        return pickle.dumps((True, function(*args)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps((False, portable(error)), pickle.HIGHEST_PROTOCOL)


def kill_tree(process: int) -> None:
    """Kill a session leader's process group, and every descendant that made a session of its own."""
    doomed = {process}
    parents = _parents()
    while more := {child for child, parent in parents.items() if parent in doomed} - doomed:
        doomed |= more
    for each in doomed - {process}:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Process → parent, of all processes; empty where there is no /proc."""
    found: dict[int, int] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            with suppress(OSError, ValueError), open(f"/proc/{entry}/stat") as stat:
                found[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1])
    return found


def _limit(memory: int) -> None:
    """Set the limits. Without one of its own a worker does not keep its parent's: a GPU's driver reserves far more than it uses."""
    for which, value in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_AS, memory + ADDRESS_SPACE_SLACK)):
        hard = resource.getrlimit(which)[1]
        wanted = value if memory else hard
        resource.setrlimit(which, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    kill_tree(os.getpid())


def main(arguments: list[str]) -> int:
    """Serve calls until the parent closes the pipe."""
    calls, answers, lifeline, memory = (int(argument) for argument in arguments)
    _limit(memory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a worker ends
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    write_frame(answers, b"ready")
    while (call := read_frame(calls)) is not None:
        write_frame(answers, answer(call))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
