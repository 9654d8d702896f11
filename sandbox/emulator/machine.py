"""One launch: its blocks in waves, its budgets, and what it shows to the outside.

Waves are smaller than what a chip holds, for speed; while blocks wait for others, more waves are admitted
until as many blocks are resident as the chip would hold, and no more. So a kernel whose blocks wait for each
other runs here if and only if it fits there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandbox.device import FaultKind, Limits, Order
from sandbox.emulator.chip import Chip, resident_blocks
from sandbox.emulator.decode import Code
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Lanes
from sandbox.emulator.livelock import livelock
from sandbox.emulator.memory import Arena, Piece, Region, Site, Store
from sandbox.emulator.scheduler import Scheduler
from sandbox.emulator.wave import Key, Wave
from sandbox.emulator.whereabouts import describe
from tasks.errors import CannotJudge

WAVE_WARPS = 2048
"""Warps of a wave when there is a choice: wide enough to drown Python's share, small enough for the
caches.
"""
ORDERED_WAVES = 16
"""Waves into which a launch is cut, at least, when one block or warp is to run ahead of others."""
WAVE_BYTES = 256 << 20
"""Bytes of shared and local memory and registers of a wave, at most, when there is a choice."""
RESIDENT_BYTES = 4 << 30
"""The same for all waves together; a launch that needs more cannot be judged."""


@dataclass(slots=True)
class Tally:
    """What adds up over the launches of a run."""

    limits: Limits
    deadline: float
    steps: int = 0
    stdout: bytearray = field(default_factory=bytearray)
    stdout_dropped: int = 0
    notices: dict[tuple[str, int | None], str] = field(default_factory=dict[tuple[str, int | None], str])


class Machine:
    """A launch under way."""

    def __init__(
        self,
        code: Code,
        chip: Chip,
        arena: Arena,
        const: tuple[Store, list[Region]],
        param: tuple[Store, list[Region]],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_smem: int,
        tally: Tally,
        grid_id: int = 1,
        registers: int | None = None,
    ) -> None:
        """registers: 32-bit ones a thread takes on the chip; None: as `code` guesses."""
        self.code = code
        self.chip = chip
        self.arena = arena
        self.const, self._const_regions = const
        self.param, self._param_regions = param
        self.grid = grid
        self.block = block
        self.dynamic_smem = dynamic_smem
        self.shared_bytes = code.dynamic_base + dynamic_smem
        self.tally = tally
        self.limits = tally.limits
        self.grid_id = grid_id
        self.ticks = 0
        self.mutations = 0
        """Grows whenever a byte of memory may have changed; exactly then while `watching`."""
        self.events = 0
        """Grows whenever a thread ends or a barrier lets threads go."""
        self.timers = 0
        self.watching = False
        self.seen: dict[int, tuple[int, str, int, Lanes]] = {}
        self.waves: list[Scheduler] = []
        self.next_block = 0
        self.total = grid[0] * grid[1] * grid[2]
        threads = block[0] * block[1] * block[2]
        self.resident = resident_blocks(chip, threads, registers or code.registers, self.shared_bytes)
        warps = -(-threads // 32)
        self.block_bytes = 2 * self.shared_bytes + warps * 32 * code.thread_bytes
        """Memory of this machine for one block."""
        self.chunk = max(1, min(WAVE_WARPS // warps, WAVE_BYTES // self.block_bytes, self.resident))
        if self.limits.order is not Order.TOGETHER:
            self.chunk = min(self.chunk, -(-self.total // ORDERED_WAVES))
        self.current: Scheduler | None = None

    # Running

    def run(self) -> None:
        """Run the launch to its end; raises Stopped."""
        while self.next_block < self.total or self.waves:
            if not self.waves:
                self._admit()
            for scheduler in list(self.waves):
                self.current = scheduler
                if scheduler.run():
                    self.waves.remove(scheduler)
                elif not self._admit() and self._all_proven():
                    raise livelock(scheduler.wave, None, len(self.waves), self._pending())

    def _admit(self) -> bool:
        """Make the next blocks resident if there are some and the chip has room."""
        room = self.resident - sum(each.wave.living_blocks() for each in self.waves)
        count = min(self.chunk, room, self.total - self.next_block)
        if count <= 0:
            return False
        held = count + sum(each.wave.blocks for each in self.waves)
        if held * self.block_bytes > RESIDENT_BYTES:
            raise CannotJudge(
                f"{held} blocks that wait for each other take {held * self.block_bytes} bytes on the "
                "emulator; "
                f"at most {RESIDENT_BYTES} are given"
            )
        first = self.next_block
        if self.limits.order is Order.LAST_ALONE:
            first = self.total - self.next_block - count
        self.waves.append(Scheduler(Wave(self, first, count)))
        self.next_block += count
        return True

    def _all_proven(self) -> bool:
        return all(each.watch.proved_at == self.mutations for each in self.waves)

    def _pending(self) -> str:
        waiting = self.total - self.next_block
        if not waiting:
            return ""
        verb = "is" if waiting == 1 else "are"
        held = f"the chip holds {self.resident} such blocks at once"
        return f"{several(waiting, 'block')} of {self.total} {verb} not resident: {held}"

    def others(self, wave: Wave) -> bool:
        """Whether anybody besides this wave could still run."""
        if len(self.waves) > 1:
            return True
        return self.next_block < self.total and wave.living_blocks() < self.resident

    def spinning(self, wave: Wave, running: tuple[Key, Lanes] | None) -> None:
        """A wave is proven to spin; raises when nobody else can change that."""
        if not self.others(wave):
            raise livelock(wave, running, 1, self._pending())

    # What the parts report

    @property
    def steps(self) -> int:
        return self.tally.steps

    @steps.setter
    def steps(self, value: int) -> None:
        self.tally.steps = value

    def tick(self) -> None:
        """Look at the budgets now and then."""
        self.ticks += 1
        if self.ticks & 31:
            return
        if self.tally.steps > self.limits.steps:
            raise self._over(f"more than {self.limits.steps} thread-instructions")
        if time.monotonic() > self.tally.deadline:
            raise self._over(f"more than {self.limits.seconds} seconds")

    def _over(self, what: str) -> Stopped:
        assert self.current is not None
        wave = self.current.wave
        places = {self.current.standing, *wave.groups}
        lines = sorted({self.code.ops[min(pc, len(self.code.ops) - 1)].line for _, pc in places})
        left = self.total - self.next_block + sum(each.wave.living_blocks() for each in self.waves)
        where = f"; threads stand at lines {', '.join(map(str, lines[:8]))}" if lines else ""
        return Stopped(
            FaultKind.STEP_LIMIT,
            f"the budget ran out: {what}, with {left} of {self.total} blocks unfinished{where}",
            lines[0] if lines else None,
            None,
            {"threads": wave.living},
        )

    def line(self) -> int | None:
        """Roughly where the threads that run now stand."""
        if self.current is None:
            return None
        return self.code.ops[min(self.current.standing[1], len(self.code.ops) - 1)].line

    def changed(self) -> None:
        """Memory holds something else now."""
        self.mutations += 1

    def event(self) -> None:
        """Threads got further in a way that cannot be undone."""
        self.events += 1

    def timer_read(self) -> None:
        """A thread looked at a clock, whose value never repeats."""
        self.timers += 1

    def stored(self, piece: Piece, lanes: Lanes, site: Site) -> None:
        """Global memory was written."""
        if piece.region is not None and piece.region.role == "variable":
            self.notice(
                "persistent_state",
                f"{site.name} writes the module variable {piece.region.name}, whose value lasts from launch "
                "to launch",
                site.line,
                once=True,
            )

    def notice(self, kind: str, message: str, line: int | None, *, once: bool = False) -> None:
        """Something worth a warning; one for each line, or one in all."""
        if once and any(known == kind for known, _ in self.tally.notices):
            return
        self.tally.notices.setdefault((kind, line), message)

    def stdout_full(self) -> bool:
        return len(self.tally.stdout) >= self.limits.stdout_bytes

    def print_bytes(self, text: bytes) -> None:
        """Output of vprintf, up to the limit; the rest is counted."""
        room = self.limits.stdout_bytes - len(self.tally.stdout)
        self.tally.stdout += text[:room]
        self.tally.stdout_dropped += max(0, len(text) - room)

    @property
    def stdout_dropped(self) -> int:
        return self.tally.stdout_dropped

    @stdout_dropped.setter
    def stdout_dropped(self, value: int) -> None:
        self.tally.stdout_dropped = value

    def seen_near(self, pc: int) -> tuple[int, str] | None:
        """(line, address in words) of the read a spinning group at pc makes: the nearest one from there on,
        else any.
        """
        after = [at for at in self.seen if at >= pc]
        at = min(after) if after else max(self.seen, default=None)
        if at is None:
            return None
        line, space, address, lanes = self.seen[at]
        return line, describe(space, lanes, address)

    def space_size(self, space: str) -> int:
        regions = self.regions(space)
        return max((region.end for region in regions), default=0)

    def regions(self, space: str) -> list[Region]:
        """Named parts of shared, const or param memory."""
        if space == "const":
            return self._const_regions
        if space == "param":
            return self._param_regions
        spaces = self.code.spaces
        if not self.dynamic_smem and not spaces.dynamic:
            return spaces.shared
        return [
            *spaces.shared,
            Region(spaces.dynamic_name, self.code.dynamic_base, self.dynamic_smem),
        ]
