"""Who judges in a run on GPUs: processes that check, and one a GPU that times.

A process that times holds a referee with torch on its GPU, which is slow to start and large: so there is one for each GPU and no more,
whatever number of processes checks. Every process keeps to one GPU, so that what it has warm is on the GPU it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandbox.pool import Pool
from tools.ladder import Job, StageFunction

LEAST_BYTES = 16 << 30
"""Memory that a process which judges on a GPU may use at the least: workloads are larger there than on the emulator. A limit, reserved
nowhere; its GPU worker and its referee are children without one."""


def memory_of(config_bytes: int) -> int:
    """The limit of a process that judges on a GPU, where a run grants each of its processes so much."""
    return max(config_bytes, LEAST_BYTES)


@dataclass(frozen=True, slots=True)
class _Lane:
    """One process, and the GPU it keeps to."""

    pool: Pool
    gpu: int


class _Lanes:
    """Processes of one kind. The one used last is used first, so few stay warm where few are needed."""

    def __init__(self, gpus: Sequence[int], memory_bytes: int, seconds: float) -> None:
        pools = [Pool(1, memory_bytes=memory_bytes, seconds=seconds) for _ in gpus]
        self._lanes = tuple(_Lane(pool, gpu) for pool, gpu in zip(pools, gpus, strict=True))
        self._free: asyncio.LifoQueue[_Lane] = asyncio.LifoQueue()
        for lane in reversed(self._lanes):
            self._free.put_nowait(lane)

    async def call(self, function: Callable[..., Any], job: Job, *rest: object, seconds: float | None) -> Any:
        lane = await self._free.get()
        try:
            pinned = replace(job, gpus=(lane.gpu,), ahead=False)
            return await lane.pool.call(function, pinned, *rest, seconds=seconds)
        finally:
            self._free.put_nowait(lane)

    async def close(self) -> None:
        await asyncio.gather(*(lane.pool.close() for lane in self._lanes))


class GpuJudges:
    """A `Judge` for stages of the ladder, whose first argument is a Job. timing: the stage that times.

    gpus: numbers of those to use. workers: processes that check, at least one a GPU.
    """

    def __init__(
        self,
        timing: StageFunction,
        gpus: Sequence[int],
        *,
        workers: int,
        memory_bytes: int,
        seconds: float,
    ) -> None:
        self._timing = timing
        pinned = [gpus[each % len(gpus)] for each in range(max(workers, len(gpus)))]
        self._checkers = _Lanes(pinned, memory_bytes, seconds)
        self._timers = _Lanes(gpus, memory_bytes, seconds)

    async def call(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """As `sandbox.pool.Pool.call`."""
        lanes = self._timers if function is self._timing else self._checkers
        return await lanes.call(function, *args, seconds=seconds)

    async def close(self) -> None:
        """Kill every process, also busy ones."""
        await asyncio.gather(self._checkers.close(), self._timers.close())
