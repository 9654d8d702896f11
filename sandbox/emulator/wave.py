"""A wave: blocks that run together, and everything their threads hold.

Warps of all blocks stand one after another; a block whose size is no multiple of 32 has a last warp with
lanes that never live.

Invariants
- Every live thread is in exactly one of `groups` (can run), `parked` (waits for its warp) and `barred` (waits
  at a barrier).
- A `Frame` is one call path; threads that took the same path share its register bank, each in its own lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sandbox.emulator.chip import WARP
from sandbox.emulator.faults import coordinates
from sandbox.emulator.lanes import Array, Bank, Lanes
from sandbox.emulator.memory import ROW, Region, blank
from sandbox.emulator.names import FrameShape

if TYPE_CHECKING:
    from sandbox.emulator.machine import Machine

BARRIERS = 16
"""Barriers a kernel can name; one more, behind them, is the barrier of a cluster of one block."""
CELLS = BARRIERS + 1


class Frame:
    """An activation of a function along one call path."""

    __slots__ = (
        "bank",
        "children",
        "depth",
        "local_base",
        "local_top",
        "order",
        "parent",
        "return_op",
        "shape",
    )

    def __init__(
        self, wave: Wave, shape: FrameShape, parent: Frame | None, return_op: Any, base: int
    ) -> None:
        self.shape = shape
        self.parent = parent
        self.return_op = return_op
        """The call that made it; None for the entry."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.order: tuple[int, ...] = () if parent is None else (*parent.order, return_op.pc)
        self.local_base = base
        self.local_top: int = base + shape.local_bytes
        """Where the local memory of a thread that stands in this frame ends."""
        self.bank = Bank(shape.bits, wave.warps, wave.machine.limits.poison)
        self.children: dict[tuple[int, str], Frame] = {}

    def regions(self) -> list[Region]:
        """Local variables of this function and its callers, outermost first."""
        outer = [] if self.parent is None else self.parent.regions()
        return [*outer, *(Region(r.name, self.local_base + r.base, r.size) for r in self.shape.local)]


Key: TypeAlias = tuple[Frame, int]
"""Where threads stand: frame and program counter."""


class Wave:
    """The blocks numbered `first` to `first + blocks - 1` of a launch."""

    def __init__(self, machine: Machine, first: int, blocks: int) -> None:
        self.machine = machine
        self.first = first
        self.blocks = blocks
        self.block_threads = machine.block[0] * machine.block[1] * machine.block[2]
        self.block_warps = -(-self.block_threads // WARP)
        self.warps = blocks * self.block_warps
        lanes = np.arange(self.block_warps * WARP).reshape(self.block_warps, WARP) < self.block_threads
        self.live: Array = np.tile(lanes, (blocks, 1))
        self.living = int(np.count_nonzero(self.live))
        self.block_of: Array = np.repeat(np.arange(blocks), self.block_warps)
        """Block within the wave of each warp."""
        self.shared_size = machine.shared_bytes
        self.shared_stride = -(-self.shared_size // ROW) * ROW
        self.shared = blank(blocks * self.shared_stride, machine.limits.poison)
        if self.shared_size and self.shared.written is not None:
            # What lies between two blocks' parts is nobody's; it must not keep the store from being complete.
            parts = self.shared.written[: blocks * self.shared_stride].reshape(blocks, self.shared_stride)
            parts[:, self.shared_size :] = 1
        self.shared_base: Array = self.block_of.astype(np.int64) * self.shared_stride
        self.local = blank(0, 0)
        self.local_stride = 0
        self.root = self._frame(machine.code.shapes[0], None, None)
        self.groups: dict[Key, Array] = {(self.root, machine.code.shapes[0].first_pc): self.live.copy()}
        self.parked: dict[Key, Array] = {}
        self.barred: dict[Key, Array] = {}
        self.barrier_id: Array = np.full((self.warps, WARP), -1, np.int8)
        self.arrived: Array = np.zeros((blocks, CELLS), np.int64)
        """Threads that came to each barrier, those that only arrived too."""
        self.slots: Array = np.zeros((blocks, CELLS), np.int64)
        """The same counted as the instruction counts: whole warps for aligned forms."""
        self.expected: Array = np.zeros((blocks, CELLS), np.int64)
        """Threads a barrier waits for; 0 when nobody is there, -1 when all of the block."""
        self.votes: Array = np.zeros((blocks, CELLS), np.int64)
        """True predicates brought to a reduction."""
        self.phase: Array = np.zeros(blocks, np.int64)
        """How often each block's cluster barrier has been complete."""
        self.token: Array = np.full((self.warps, WARP), -1, np.int64)
        """Phase of the cluster barrier at which each thread arrived last."""
        self.copies: list[Any] = []
        """Asynchronous copies not yet complete (sandbox.emulator.asynccopy)."""
        self.cached: dict[tuple[str, int], Array] = {}

    # Frames

    def _frame(self, shape: FrameShape, parent: Frame | None, op: Any) -> Frame:
        from sandbox.emulator.access import grow_local

        base = 0
        if parent is not None:
            base = -(-(parent.local_base + parent.shape.local_bytes) // 16) * 16
        if shape.local_bytes:
            grow_local(self, base + shape.local_bytes)
        return Frame(self, shape, parent, op, base)

    def call(self, parent: Frame, op: Any, shape: FrameShape) -> Frame:
        """The frame of a call, made on its first use."""
        key = (op.pc, shape.function.name)
        found = parent.children.get(key)
        if found is None:
            found = parent.children[key] = self._frame(shape, parent, op)
        return found

    def frames(self) -> list[Frame]:
        """Every frame in use so far."""
        out = [self.root]
        for frame in out:
            out.extend(frame.children.values())
        return out

    # Threads

    def add(self, key: Key, mask: Array) -> None:
        """Threads [warps, 32] can go on at `key`; the mask is taken over."""
        found = self.groups.get(key)
        if found is None:
            self.groups[key] = mask
        else:
            found |= mask

    def lanes(self, frame: Frame, mask: Array) -> Lanes:
        """A mask over the wave as Lanes."""
        count = int(np.count_nonzero(mask))
        if count == mask.size:
            return Lanes(self, frame, None, None)
        rows = np.flatnonzero(mask.any(axis=1))
        if len(rows) == self.warps:
            return Lanes(self, frame, None, mask)
        part = mask[rows]
        return Lanes(self, frame, rows, None if count == part.size else part)

    def retire(self, lanes: Lanes) -> None:
        """Threads end."""
        if lanes.rows is None and lanes.mask is None:
            self.live[:] = False
        else:
            self.live &= ~lanes.dense()
        self.living -= lanes.n

    def living_blocks(self) -> int:
        """Blocks with a live thread, which are what occupies a chip."""
        return int(np.count_nonzero(self.live.reshape(self.blocks, -1).any(axis=1)))

    def block_coordinates(self, warp: int) -> tuple[int, int, int]:
        return coordinates(self.first + warp // self.block_warps, self.machine.grid)

    def thread_coordinates(self, lane: tuple[int, int]) -> tuple[int, int, int]:
        return coordinates(lane[0] % self.block_warps * WARP + lane[1], self.machine.block)

    def who(self, lane: tuple[int, int]) -> str:
        """A thread in words, from (warp, lane)."""
        return f"thread {self.thread_coordinates(lane)} of block {self.block_coordinates(lane[0])}"

    def own(self, name: str, axis: int) -> Array:
        """A special register that differs between threads, uint32 [warps, 32]; made once."""
        found = self.cached.get((name, axis))
        if found is None:
            found = self.cached[name, axis] = np.ascontiguousarray(
                np.broadcast_to(self._own(name, axis), (self.warps, WARP)), np.uint32
            )
        return found

    def _own(self, name: str, axis: int) -> Array:
        x, y, z = self.machine.block
        if name == "%laneid":
            return np.arange(WARP)
        if name == "%warpid":
            return (np.arange(self.warps) % self.block_warps)[:, None]
        if name == "%tid":
            index = np.arange(self.block_warps * WARP)
            one = (index % x, index // x % y, index // (x * y))[axis].reshape(self.block_warps, WARP)
            # Lanes beyond the block never run; keep what they hold in range.
            return np.tile(np.minimum(one, (x, y, z)[axis] - 1), (self.blocks, 1))
        block = self.first + self.block_of
        gx, gy, _ = self.machine.grid
        if name == "%smid":
            return (block % self.machine.chip.sms)[:, None]
        return (block % gx, block // gx % gy, block // (gx * gy))[axis][:, None]
