"""Which threads run next, and for how long.

Threads are independent; those at one place run as one. The lowest program counter goes first (deeper calls
before their callers), which brings diverged threads together again as early as they can meet. Every backward
branch adds heat, much of it where the loop may be waiting for someone else; when hot, the group that has
waited longest runs instead, so a spinning thread never starves the one that would free it. A wave that only
spins yields, so that other waves, and blocks not yet resident, get their turn.

Under `Order.FIRST_ALONE` and `LAST_ALONE` one warp of each block, the first or last that can, goes on alone until
it waits. Every order is legal on hardware; a kernel that is right in only some of them lacks a barrier.
"""

from __future__ import annotations

import numpy as np

from sandbox.device import Order
from sandbox.emulator.barriers import reach
from sandbox.emulator.calls import enter, leave
from sandbox.emulator.decode import BARRIER, BRANCH, CALL, EXIT, INDIRECT, PLAIN, RETURN, SYNC, Op
from sandbox.emulator.flow import Jump
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.livelock import Watch
from sandbox.emulator.operands import whole
from sandbox.emulator.registers import check_defined, mark_written
from sandbox.emulator.stuck import explain, indirect_fault, unstick
from sandbox.emulator.warps import Need, ready
from sandbox.emulator.wave import Frame, Key, Wave

HOT = 1024
PATIENCE = 64
"""Backward branches an aged group may take before the lowest goes first again."""
NEVER = 1 << 60


class Scheduler:
    """Runs one wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.machine = wave.machine
        self.ops: list[Op] = wave.machine.code.ops
        self.heat = 0
        self.patience = 0
        self.spun = 1
        self.clock = 0
        self.alone = wave.machine.limits.order is not Order.TOGETHER and wave.block_warps > 1
        self.since: dict[Key, int] = {}
        """When each group last ran."""
        self.standing: Key = (wave.root, 0)
        """Where the threads that run now stood last, roughly."""
        self.watch = Watch(wave)

    def run(self) -> bool:
        """Run until all threads have ended (True) or until the wave only spins and others might help
        (False).
        """
        wave = self.wave
        while True:
            if not wave.groups:
                if not wave.living:
                    return True
                if not unstick(wave):
                    raise explain(wave)
            ahead = self._ahead() if self.alone and self.heat < HOT else None
            frame, pc = key = self._pick(ahead)
            if self.alone and ahead is None:
                self.heat = 0  # the others have had their turn
            mask = wave.groups.pop(key)
            if ahead is not None and (mask & ~ahead).any():
                wave.add(key, mask & ~ahead)
                mask = mask & ahead
            self.clock += 1
            self.since[key] = self.clock
            self.standing = key
            if self._advance(frame, pc, mask):
                return False

    def _ahead(self) -> Array:
        """Bool [W, 1]: the first or last warp of each block that can go on."""
        wave = self.wave
        can = np.zeros(wave.warps, bool)
        for mask in wave.groups.values():
            can |= mask.any(axis=1)
        can = can.reshape(wave.blocks, wave.block_warps)
        place = can.argmax(axis=1)
        if self.machine.limits.order is Order.LAST_ALONE:
            place = wave.block_warps - 1 - can[:, ::-1].argmax(axis=1)
        chosen = np.zeros_like(can)
        rows = np.arange(wave.blocks)
        chosen[rows, place] = can[rows, place]
        return chosen.reshape(wave.warps, 1)

    def _pick(self, ahead: Array | None) -> Key:
        groups = self.wave.groups
        if len(groups) == 1:
            return next(iter(groups))
        if ahead is not None:
            return min((key for key, mask in groups.items() if (mask & ahead).any()), key=_order)
        if self.heat >= HOT:
            self.heat = 0
            self.patience = PATIENCE
            return min(groups, key=lambda key: self.since.get(key, 0))
        self.patience = 0
        return min(groups, key=_order)

    def _stop(self, frame: Frame, pc: int) -> int:
        """Where to look up next: the nearest place after pc at which others stand."""
        return min((at for of, at in self.wave.groups if of is frame and at > pc), default=NEVER)

    def _advance(self, frame: Frame, pc: int, mask: Array) -> bool:
        """Run threads until they end, wait, meet others or must let others go first; True when the wave
        should yield.
        """
        wave, machine, ops = self.wave, self.machine, self.ops
        lanes = wave.lanes(frame, mask)
        self.watch.ran(lanes)
        stop = self._stop(frame, pc)
        end = frame.shape.end_pc
        while True:
            if pc == stop:
                wave.add((frame, pc), lanes.dense())
                return False
            if pc >= end:
                leave(wave, lanes, None)
                return False
            op = ops[pc]
            machine.tick()
            kind = op.kind
            active: Lanes | None = lanes
            passing: Array | None = None
            if op.guard >= 0 and kind != BRANCH:
                if op.checks and op.guard in op.checks:
                    check_defined(op, lanes, (op.guard,))
                chosen = lanes.read(op.guard)
                if op.negated:
                    chosen = ~chosen
                active = lanes.narrowed(chosen)
                if active is None:
                    pc += 1
                    continue
                if kind != PLAIN and active is not lanes:
                    passing = lanes.dense() & ~active.dense()
            if op.checks:
                check_defined(op, active, op.checks)
            if kind == PLAIN:
                op.run(active)
                if op.marks:
                    mark_written(op, active)
                if op.collective:
                    op.count += (
                        active.w if active.mask is None else int(np.count_nonzero(active.mask.any(axis=1)))
                    )
                else:
                    op.count += active.n
                machine.steps += active.n
                if op.spins > self.spun:
                    self.spun = op.spins
                pc += 1
                continue
            if kind == BRANCH:
                taken: Lanes | None = lanes
                if op.guard >= 0:
                    chosen = lanes.read(op.guard)
                    if op.negated:
                        chosen = ~chosen
                    taken = lanes.narrowed(chosen)
                    if taken is None:
                        machine.steps += 1
                        pc += 1
                        continue
                op.count += taken.n
                machine.steps += taken.n
                target = op.target
                if taken is not lanes:
                    there = taken.dense()
                    wave.add((frame, pc + 1), lanes.dense() & ~there)
                    wave.add((frame, target), there)
                    return target <= pc and self._turn(frame, target, None)
                if target <= pc:
                    if self._turn(frame, target, lanes):
                        wave.add((frame, target), lanes.dense())
                        return True
                    if wave.groups and self.patience == 0:
                        wave.add((frame, target), lanes.dense())
                        self.since[frame, target] = self.clock
                        return False
                elif wave.groups and self.patience == 0:
                    wave.add((frame, target), lanes.dense())
                    self.since[frame, target] = self.clock
                    return False
                if wave.groups and (frame, target) in wave.groups:
                    wave.add((frame, target), lanes.dense())
                    return False
                pc = target
                self.standing = (frame, pc)
                stop = self._stop(frame, pc) if wave.groups else NEVER
                continue
            if passing is not None:
                wave.add((frame, pc + 1), passing)
            going = self._special(op, active, frame, pc, passing)
            if going is None:
                return False
            if passing is not None or (self.alone and kind == BARRIER):
                wave.add((frame, pc + 1), going.dense())
                return False
            lanes = going
            pc += 1
            stop = self._stop(frame, pc - 1) if wave.groups else NEVER

    def _special(self, op: Op, lanes: Lanes, frame: Frame, pc: int, passing: Array | None) -> Lanes | None:
        """Everything but plain instructions and branches; the threads that go on to the next instruction."""
        wave, machine = self.wave, self.machine
        machine.steps += lanes.n
        if op.kind in (SYNC, BARRIER):
            waiting = wave.parked.pop((frame, pc), None)
            if waiting is not None:
                lanes = wave.lanes(frame, lanes.dense() | waiting)
        if op.kind == SYNC:
            need: Need = op.detail
            good = ready(need, lanes, op.line, op.name)
            if good is not None:
                rest = lanes.active & ~good
                wave.parked[frame, pc] = Lanes(wave, frame, lanes.rows, rest).dense()
                narrowed = lanes.narrowed(good)
                if narrowed is None:
                    return None
                lanes = narrowed
            op.run(lanes)
            if op.marks:
                mark_written(op, lanes)
            op.count += lanes.w if lanes.mask is None else int(np.count_nonzero(lanes.active.any(axis=1)))
            return lanes
        if op.kind == BARRIER:
            before = wave.parked.get((frame, pc))
            went = lanes.n - (0 if before is None else int(np.count_nonzero(before)))
            going = reach(wave, op, lanes, passing)
            held = wave.parked.get((frame, pc))
            came = lanes if held is None else wave.lanes(frame, lanes.dense() & ~held)
            if op.collective:
                op.count += int(np.count_nonzero(came.active.any(axis=1))) if came.n else 0
            else:
                op.count += min(came.n, went)
            return going
        op.count += lanes.n
        if op.kind == EXIT:
            leave(wave, lanes, None, everything=True)
        elif op.kind == RETURN:
            leave(wave, lanes, op)
        elif op.kind == CALL:
            enter(wave, lanes, op, frame, pc)
        elif op.kind == INDIRECT:
            jump: Jump = op.detail
            index = whole(lanes, jump.index(lanes))
            if (lanes.flat(index) >= len(jump.targets)).any():
                raise indirect_fault(wave, lanes, op, index, len(jump.targets))
            for number, target in enumerate(jump.targets):
                part = lanes.narrowed(index == number)
                if part is not None:
                    wave.add((frame, target), part.dense())
            if min(jump.targets) <= pc:
                self._turn(frame, pc, None)
        return None

    def _turn(self, frame: Frame, target: int, lanes: Lanes | None) -> bool:
        """A backward branch was taken; True when the wave should yield to others."""
        self.heat += self.spun
        self.spun = 1
        if self.patience:
            self.patience -= 1
        if self.heat >= HOT and len(self.wave.groups) > 1:
            self.patience = 0
        return self.watch.turn(None if lanes is None else ((frame, target), lanes))


def _order(key: Key) -> tuple[int, ...]:
    return (*key[0].order, key[1])


__all__ = ["EXIT", "Scheduler"]
