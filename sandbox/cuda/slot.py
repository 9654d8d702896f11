"""One GPU's worker, always at hand: a spare is made ready while the first one works, and takes its place when a kernel ends it.

Invariants
- A worker in which a kernel faulted or hung is killed with its process group and never used again.
- After that, the next worker is used only once a canary launch has come back right; a second one is tried, then the slot is quarantined:
  every further call raises InfraError until the process ends.
- One call at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sandbox.cuda import service
from sandbox.cuda.ledger import Ledger
from sandbox.cuda.wire import Gpu
from sandbox.keeper import Keeper
from tasks.errors import CannotJudge, InfraError

T = TypeVar("T")

START_SECONDS = 60.0
"""Time for a worker to make its context."""
CANARY_SECONDS = 40.0
TRIES = 2
"""Workers that may fail the canary one after the other."""


class Slot:
    """The worker of one GPU. driver: `module:class` of the driver it speaks to."""

    def __init__(self, gpu: int, driver: str, state: Path) -> None:
        self._number, self._driver, self._state = gpu, driver, state
        self._lock = threading.RLock()
        self._keeper, self.gpu = self._started()
        self._ledger = Ledger(state, self.gpu.uuid, self.gpu.name)
        self._ledger.note("started", seconds=self.gpu.start_seconds)
        self._spare: _Spare | None = None
        self._suspect = False
        """The last worker ended by a kernel: the GPU must prove itself."""
        self._quarantined = ""
        self.generation = 1
        """Counts workers: what was loaded under another generation is gone."""
        self.prepare_spare()

    @property
    def pid(self) -> int | None:
        """Of the worker in use."""
        return self._keeper.pid

    def ready(self) -> None:
        """Have a worker that is fit for use. Raises InfraError when the slot is quarantined."""
        with self._lock:
            if self._quarantined:
                raise InfraError(self._quarantined)
            if self._keeper.pid is None:
                self._replace()

    def call(self, function: Callable[..., T], *args: object, seconds: float) -> T:
        """Run a function of `sandbox.cuda.service` in the worker. Raises Late, WorkerLost, or what the function raised."""
        with self._lock:
            self.ready()
            why = "a call of its worker was broken off"
            try:
                return self._keeper.call(function, *args, seconds=seconds)
            except CannotJudge:
                raise
            except (
                InfraError
            ) as error:  # late or dead; or its driver failed by itself, and would fail the next candidate too
                self._keeper.kill()
                why = str(error)
                raise
            finally:
                if self._keeper.pid is None:
                    self._ended(why)

    def end(self, why: str) -> None:
        """Kill the worker: a kernel faulted or hung in it."""
        with self._lock:
            self._keeper.kill()
            self._ended(why)

    def fresh(self) -> None:
        """Go on with another worker, with other addresses; the GPU need not prove itself."""
        with self._lock:
            self._keeper.kill()
            self.ready()

    def prepare_spare(self) -> None:
        """Make the next worker ready beside this one."""
        with self._lock:
            if self._spare is None and not self._quarantined:
                self._spare = _Spare(self._started)

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._keeper.kill()
            if self._spare is not None:
                self._spare.close()
                self._spare = None

    def _ended(self, why: str) -> None:
        self._suspect = True
        self._ledger.note("killed", why=why)

    def _started(self) -> tuple[Keeper, Gpu]:
        keeper = Keeper()
        try:
            return keeper, keeper.call(service.start, self._number, self._driver, seconds=START_SECONDS)
        except BaseException:
            keeper.kill()
            raise

    def _replace(self) -> None:
        """Take the spare, or start a worker; when the last one was ended by a kernel, let the GPU prove itself."""
        for attempt in range(TRIES):
            spare, self._spare = self._spare, None
            began = time.monotonic()
            self._keeper, found = spare.take() if spare is not None else self._started()
            self.generation += 1
            self._ledger.note("started", seconds=found.start_seconds, waited=time.monotonic() - began)
            if not self._suspect:
                break
            try:
                ms = self._keeper.call(service.canary, seconds=CANARY_SECONDS)
            except InfraError as error:
                self._keeper.kill()
                self._ledger.note("sick", why=str(error))
                if attempt + 1 == TRIES:
                    self._quarantined = (
                        f"GPU {self._number} ({self.gpu.name}) is quarantined: after a kernel was ended, {TRIES} fresh workers "
                        f"could not run a canary launch ({error}); look at the driver's log, then start again"
                    )
                    self._ledger.note("quarantined", why=str(error))
                    raise InfraError(self._quarantined) from None
                continue
            self._suspect = False
            self._ledger.note("canary", ms=ms)
            break
        self.prepare_spare()


class _Spare:
    """A worker that is being made ready in a thread."""

    def __init__(self, make: Callable[[], tuple[Keeper, Gpu]]) -> None:
        self._made: tuple[Keeper, Gpu] | None = None
        self._error: BaseException | None = None

        def work() -> None:
            try:
                self._made = make()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work, name="spare GPU worker", daemon=True)
        self._thread.start()

    def take(self) -> tuple[Keeper, Gpu]:
        """The worker, once it is ready. Raises what its start raised."""
        self._thread.join()
        if self._made is None:
            assert self._error is not None
            raise self._error
        return self._made

    def close(self) -> None:
        """End it, ready or not."""
        self._thread.join()
        if self._made is not None:
            self._made[0].kill()
