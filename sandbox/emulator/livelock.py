"""Proof that threads spin for ever.

After many backward branches without any event (a barrier passed, a thread ended), the watch keeps a copy of
where every thread of the wave stands and of all registers. When the same state comes again, every runnable
thread has run in between, and no byte of memory changed, then each thread will walk the same circle until
somebody else writes; if there is nobody else, for ever. A kernel that reads a clock in its loop, or counts
its turns, is never proven: it meets the budget instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.stuck import waiting
from sandbox.emulator.wave import Key, Wave

CALM = 256
"""Backward branches without an event before anybody looks."""
LONG = 4096
"""Backward branches without a change of memory after which a wave yields although nothing is proven."""


@dataclass(slots=True)
class Snapshot:
    """All that decides what the wave's threads do next, memory aside."""

    key: Key | None
    running: Array | None
    groups: dict[Key, Array]
    arrays: list[tuple[Any, int, Array]]
    mutations: int
    timers: int
    turn: int
    ran: Array


class Watch:
    """The look-out of one wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.events = -1
        self.turns = 0
        self.snapshot: Snapshot | None = None
        self.mark = (0, 0)
        self.proved_at = -1
        """Value of `machine.mutations` for which this wave is proven to spin; -1 for none."""

    def ran(self, lanes: Lanes) -> None:
        """These threads run now."""
        if self.snapshot is not None:
            self.snapshot.ran |= lanes.dense()

    def turn(self, running: tuple[Key, Lanes] | None) -> bool:
        """A backward branch was taken; True when the wave should yield. Raises a LIVELOCK when nobody else
        can help.
        """
        machine = self.wave.machine
        if machine.events != self.events:
            self.events, self.turns, self.snapshot = machine.events, 0, None
            machine.watching = False
        self.turns += 1
        if self.turns < CALM:
            return False
        machine.watching = True
        held = self.snapshot
        quiet = held is not None and held.mutations == machine.mutations and held.timers == machine.timers
        if held is not None and quiet and self._same(held, running) and self._all_ran(held):
            self.proved_at = machine.mutations
            machine.spinning(self.wave, running)
            return True
        if self.turns & (self.turns - 1) == 0:
            self._keep(running)
        if self.turns % LONG == 0:
            idle = self.mark[1] == machine.mutations
            self.mark = (self.turns, machine.mutations)
            return idle and machine.others(self.wave)
        return False

    def _keep(self, running: tuple[Key, Lanes] | None) -> None:
        wave, machine = self.wave, self.wave.machine
        mask = None if running is None else running[1].dense()
        self.snapshot = Snapshot(
            key=None if running is None else running[0],
            running=mask,
            groups={key: held.copy() for key, held in wave.groups.items()},
            arrays=[
                (frame.bank, index, array.copy())
                for frame in wave.frames()
                for index, array in enumerate(frame.bank.arrays)
                if array is not None
            ],
            mutations=machine.mutations,
            timers=machine.timers,
            turn=self.turns,
            ran=np.zeros_like(wave.live) if mask is None else mask.copy(),
        )

    def _same(self, held: Snapshot, running: tuple[Key, Lanes] | None) -> bool:
        if (
            held.key != (None if running is None else running[0])
            or held.groups.keys() != self.wave.groups.keys()
        ):
            return False
        if running is not None and not np.array_equal(held.running, running[1].dense()):  # type: ignore[arg-type]
            return False
        if sum(array is not None for frame in self.wave.frames() for array in frame.bank.arrays) != len(
            held.arrays
        ):
            return False
        if any(not np.array_equal(mask, self.wave.groups[key]) for key, mask in held.groups.items()):
            return False
        for place, (bank, index, array) in enumerate(held.arrays):
            if not np.array_equal(array.view(np.uint8), bank.arrays[index].view(np.uint8)):
                if place:  # what differed once will likely differ again: look there first
                    held.arrays[0], held.arrays[place] = held.arrays[place], held.arrays[0]
                return False
        return True

    def _all_ran(self, held: Snapshot) -> bool:
        wave = self.wave
        still = np.zeros_like(wave.live)
        for table in (wave.parked, wave.barred):
            for mask in table.values():
                still |= mask
        return bool((held.ran | still | ~wave.live).all())


def livelock(wave: Wave, running: tuple[Key, Lanes] | None, waves: int, pending: str) -> Stopped:
    """The fault of threads that spin with nobody left to free them. pending: blocks that are not resident, in
    words, or ''.
    """
    machine = wave.machine
    places = [(key, mask) for key, mask in wave.groups.items()]
    if running is not None:
        places.insert(0, (running[0], running[1].dense()))
    phrases: list[str] = []
    first: tuple[int | None, tuple[int, int]] | None = None
    for key, mask in places[:8]:
        row = int(np.flatnonzero(mask.any(axis=1))[0])
        lane = (row, int(np.flatnonzero(mask[row])[0]))
        op = machine.code.ops[min(key[1], len(machine.code.ops) - 1)]
        seen = machine.seen_near(op.pc)
        line = seen[0] if seen else op.line
        what = f" reading {seen[1]}" if seen else ""
        phrases.append(
            f"{several(int(np.count_nonzero(mask)), 'thread')} spin at line {line}{what}, first "
            f"{wave.who(lane)}"
        )
        first = first or (line, lane)
    phrases += waiting(wave)
    if pending:
        phrases.append(pending)
    assert first is not None
    tail = f"; {pending}" if pending else ""
    return Stopped(
        FaultKind.LIVELOCK,
        f"threads spin for ever: {phrases[0]}; no thread that is resident will ever change what they wait "
        f"for{tail}",
        first[0],
        first[1],
        {"waiting": tuple(phrases), "threads": wave.living},
    )
