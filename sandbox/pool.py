"""Child processes that run tools: warm between calls, bounded in memory and time, killed as a group.

Invariants
- A call runs in a process of its own session; when its time is up, or its caller is cancelled, it is killed
  with everything it started, and reaped.
- Nothing that a candidate or a library prints is read as a result: answers come over a dedicated pipe.
- A worker that died is replaced at the next call; so is one that served `RECYCLE` calls: leaks stay bounded.
- After `close`, and after the parent's death, no worker is left.
- Workers get no credentials: environment variables that look like keys are withheld.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from sandbox.worker import kill_tree, read_frame, write_frame
from tasks.errors import WorkerLost

T = TypeVar("T")

RECYCLE = 256
"""Calls after which a worker is replaced."""
START_SECONDS = 60.0
"""Time a fresh worker has to say that it is ready."""
PIPE_BYTES = 1 << 20
"""Of a pipe: large buffers cross it in few pieces."""
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "VECLIB")}
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class Worker:
    """One child process; every method blocks and belongs in a thread, except `kill`."""

    def __init__(self, memory_bytes: int) -> None:
        """Start the process and wait until it is ready. Raises WorkerLost."""
        calls_read, self._calls = os.pipe()
        self._answers, answers_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        for end in (self._calls, self._answers):
            with suppress(OSError):  # a pipe of the usual size serves too
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.served = 0
        ends = (calls_read, answers_write, lifeline_read)
        environment = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
        environment |= ONE_THREAD | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sandbox.worker", *map(str, ends), str(memory_bytes)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=ends,
                start_new_session=True,
                env=environment,
            )
        except BaseException:
            self._release()
            raise
        finally:
            for end in ends:
                os.close(end)

    def ready(self) -> Worker:
        """Wait for the child's first message; raises WorkerLost when it died instead."""
        if read_frame(self._answers) is None:
            raise WorkerLost(f"a worker process could not start: {self.epitaph()}")
        return self

    @property
    def pid(self) -> int:
        """Of the process, which leads its own group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def exchange(self, call: bytes) -> bytes | None:
        """Send one pickled call and wait for the answer; None when the process ended instead."""
        self.served += 1
        try:
            write_frame(self._calls, call)
        except BrokenPipeError:
            return None
        return read_frame(self._answers)

    def kill(self) -> None:
        """Kill the process and all it started at once; a pending `exchange` then returns None."""
        if self._process.returncode is None:  # not reaped: the group's number is still ours
            kill_tree(self._process.pid)

    def epitaph(self) -> str:
        """How the process ended, with the end of what it wrote to stderr."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        how = "it still runs" if code is None else f"exit {code}"
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        with suppress(OSError):
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 800))
        tail = self._log.read().decode(errors="replace").strip()
        return f"{how}; stderr: {tail}" if tail else how

    def close(self) -> None:
        """Kill, reap, and free the pipes."""
        self.kill()
        self._process.wait()
        self._release()

    def _release(self) -> None:
        self._log.close()
        for end in (self._calls, self._answers, self._lifeline):
            os.close(end)


class Pool:
    """`size` workers, started when first needed.

    memory_bytes: limit of each worker (RLIMIT_DATA, and RLIMIT_AS with slack for mapped libraries). seconds:
    time of a call when the call gives none.
    """

    def __init__(self, size: int, *, memory_bytes: int, seconds: float) -> None:
        self._memory = memory_bytes
        self._seconds = seconds
        self._free: asyncio.LifoQueue[Worker | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._free.put_nowait(None)
        self._size = size
        self._workers: set[Worker] = set()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="pool")
        self._closed = False

    async def call(self, function: Callable[..., T], *args: object, seconds: float | None = None) -> T:
        """Run an importable function in a worker and return its value.

        Waits for a free worker first; `seconds` counts from then. Raises what the function raised when that
        is an error of ptxmend, InfraError for any other, WorkerLost when the process died or was late.
        """
        call = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
        if self._closed:
            raise WorkerLost("the pool is closed")
        worker = await self._free.get()
        kept: Worker | None = None
        try:
            if worker is None:
                worker = await self._start()
            ready = worker
            limit = self._seconds if seconds is None else seconds
            reply = await self._within(worker, limit, lambda: ready.exchange(call))
            name = f"{function.__module__}.{function.__qualname__}"
            if reply is _LATE:
                raise WorkerLost(f"{name} took more than {limit:g} s in a worker, which was killed")
            if reply is None:
                how = await asyncio.get_running_loop().run_in_executor(self._threads, worker.epitaph)
                raise WorkerLost(f"the worker that ran {name} died: {how}")
            assert isinstance(reply, bytes)
            good, value = pickle.loads(reply)  # noqa: S301 - from our own child, over its own pipe
            if worker.served < RECYCLE and not self._closed:
                kept = worker
            if good:
                return value
            raise value
        finally:
            if worker is not None and kept is None:
                self._drop(worker)
            self._free.put_nowait(kept)

    async def close(self) -> None:
        """Kill every worker, also busy ones (their calls raise WorkerLost), and wait until all are reaped."""
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill()
        for _ in range(self._size):
            idle = await self._free.get()
            if idle is not None:
                self._drop(idle)
        for _ in range(self._size):  # calls that still wait start, fail and end
            self._free.put_nowait(None)
        await asyncio.to_thread(self._threads.shutdown)

    async def _start(self) -> Worker:
        if self._closed:
            raise WorkerLost("the pool is closed")
        worker = Worker(self._memory)
        self._workers.add(worker)
        try:
            if await self._within(worker, START_SECONDS, worker.ready) is _LATE:
                raise WorkerLost(f"a worker process was not ready within {START_SECONDS:g} s")
        except BaseException:
            self._drop(worker)
            raise
        return worker

    async def _within(self, worker: Worker, seconds: float, function: Callable[[], T]) -> T | object:
        """Run a blocking exchange in a thread; at time-out or cancellation kill the worker."""
        task = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except BaseException:
            worker.kill()
            await asyncio.wait({task})
            raise
        if done:
            return task.result()
        worker.kill()
        await asyncio.wait({task})
        return _LATE

    def _drop(self, worker: Worker) -> None:
        self._workers.discard(worker)
        worker.close()


_LATE = object()
