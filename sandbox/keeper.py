"""One worker process for a caller that waits: its state lives in the modules of the child from call to call.

Where `sandbox.pool.Pool` hands any call to any worker, a keeper keeps one: what a call left behind (a GPU context, a loaded module, a
baseline's tensors) is there for the next. A call that outlasts its time, or a child that dies, ends the worker; the next call starts a
fresh one, with nothing in it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import TypeVar

from sandbox.pool import START_SECONDS, Worker
from tasks.errors import WorkerLost

T = TypeVar("T")


class Late(WorkerLost):
    """The call outlasted its time; the worker was killed with all it had started."""


class Keeper:
    """A worker, started when first needed. memory_bytes: its limit; 0 for none (a GPU driver maps far more than it uses).

    Calls come from one thread at a time; `kill` may come from any.
    """

    def __init__(self, memory_bytes: int = 0) -> None:
        self._memory = memory_bytes
        self._worker: Worker | None = None
        self.generation = 0
        """Counts the workers started so far: state made under another generation is gone."""

    @property
    def pid(self) -> int | None:
        """Of the living worker."""
        return None if self._worker is None else self._worker.pid

    def start(self) -> None:
        """Start the worker unless it runs. Raises WorkerLost."""
        if self._worker is not None and self._worker.alive:
            return
        self.kill()
        self._worker = Worker(self._memory)
        self.generation += 1
        if self._timed(START_SECONDS, self._worker.ready) is _LATE:
            self.kill()
            raise Late(f"a worker process was not ready within {START_SECONDS:g} s")

    def call(self, function: Callable[..., T], *args: object, seconds: float) -> T:
        """Run an importable function in the worker. Raises Late, WorkerLost, or what the function raised (see `sandbox.worker`)."""
        self.start()
        worker = self._worker
        assert worker is not None
        name = f"{function.__module__}.{function.__qualname__}"
        call = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
        reply = self._timed(seconds, lambda: worker.exchange(call))
        if reply is _LATE:
            self.kill()
            raise Late(f"{name} took more than {seconds:g} s in a worker, which was killed")
        if reply is None:
            how = worker.epitaph()
            self.kill()
            raise WorkerLost(f"the worker that ran {name} died: {how}")
        assert isinstance(reply, bytes)
        good, value = pickle.loads(reply)  # noqa: S301 - from our own child, over its own pipe
        if good:
            return value
        raise value

    def kill(self) -> None:
        """End the worker and all it started; safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _timed(self, seconds: float, function: Callable[[], object]) -> object:
        """What `function` returns; `_LATE` when the worker was killed because it took too long."""
        worker, late = self._worker, threading.Event()
        assert worker is not None

        def expire() -> None:
            late.set()
            worker.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            result = function()
        except WorkerLost:
            if late.is_set():
                return _LATE
            raise
        except BaseException:  # interrupted in mid-exchange: the pipe is out of step
            self.kill()
            raise
        finally:
            timer.cancel()
        return _LATE if late.is_set() and result is None else result


_LATE = object()
