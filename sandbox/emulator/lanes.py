"""The threads that run one instruction together, and their registers.

A wave holds `warps` × 32 lanes. `Lanes` names a part of them: `rows` selects warps (None: all of the wave)
and `mask` the active lanes of those warps (None: all 32). Every array an instruction sees has shape [W, 32]
with W the selected warps; memory works on the active lanes alone, as one flat array in thread order.

Invariants
- Arrays in a `Bank` are owned by it: unsigned integers of the register's width (bool for predicates, [..., 2]
  uint64 for b128), C-contiguous, shape [warps, 32]. Nobody else keeps one, so a partial write may change it
  in place.
- A register that nothing wrote holds the poison byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sandbox.emulator.chip import WARP

Array = npt.NDArray[Any]

WIDTHS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
"""NumPy type that carries a register, by its bits; 128 bits are two of 64 on a last axis."""


class Bank:
    """Registers of one function activation, over all lanes of a wave."""

    __slots__ = ("arrays", "bits", "marks", "poison", "warps")

    def __init__(self, bits: list[int], warps: int, poison: int) -> None:
        self.bits = bits
        self.warps = warps
        self.poison = poison
        self.arrays: list[Array | None] = [None] * len(bits)
        self.marks: dict[int, Array] = {}
        """Register -> which lanes wrote it; only for registers that may be read unwritten."""

    def array(self, index: int) -> Array:
        """The register over the whole wave, made of poison when nothing wrote it yet."""
        found = self.arrays[index]
        if found is None:
            found = self.arrays[index] = self.fresh(index)
        return found

    def fresh(self, index: int) -> Array:
        bits = self.bits[index]
        if bits == 1:
            return np.full((self.warps, WARP), self.poison != 0)
        shape = (self.warps, WARP, bits // 8)
        filled = np.full(shape, self.poison, np.uint8)
        return filled.view(np.uint64) if bits == 128 else filled.view(WIDTHS[bits])[..., 0].copy()

    def mark(self, index: int) -> Array:
        found = self.marks.get(index)
        if found is None:
            found = self.marks[index] = np.zeros((self.warps, WARP), np.bool_)
        return found


class Lanes:
    """Which lanes run, and access to what they hold."""

    __slots__ = ("bank", "frame", "mask", "n", "rows", "w", "wave", "where")

    def __init__(self, wave: Any, frame: Any, rows: Array | None, mask: Array | None) -> None:
        self.wave = wave
        self.frame = frame
        self.bank: Bank = frame.bank
        self.rows = rows
        self.mask = mask
        self.w: int = wave.warps if rows is None else len(rows)
        self.n: int = self.w * WARP if mask is None else int(np.count_nonzero(mask))
        self.where: tuple[Array, Array] | None = None

    def narrowed(self, chosen: Array) -> Lanes | None:
        """The lanes among these where `chosen` [W, 32] holds; None when there are none."""
        mask = chosen if self.mask is None else chosen & self.mask
        count = int(np.count_nonzero(mask))
        if count == self.n:
            return self
        if not count:
            return None
        rows = self.rows
        if count * 4 <= self.w:
            kept = np.flatnonzero(mask.any(axis=1))
            mask = mask[kept]
            rows = kept if rows is None else rows[kept]
        full = count == mask.size
        return Lanes(self.wave, self.frame, rows, None if full else mask)

    def dense(self) -> Array:
        """These lanes as a new bool array over the whole wave, [warps, 32]."""
        if self.rows is None:
            return np.ones((self.w, WARP), np.bool_) if self.mask is None else self.mask.copy()
        out = np.zeros((self.wave.warps, WARP), np.bool_)
        out[self.rows] = True if self.mask is None else self.mask
        return out

    @property
    def active(self) -> Array:
        """Active mask [W, 32]."""
        return np.ones((self.w, WARP), np.bool_) if self.mask is None else self.mask

    # Whole arrays, [W, 32]

    def read(self, index: int) -> Array:
        """A register of these warps; never to be written to."""
        array = self.bank.arrays[index]
        if array is None:
            array = self.bank.array(index)
        return array if self.rows is None else array[self.rows]

    def part(self, array: Array) -> Array:
        """The rows of these warps of an array whose first axis is the wave's warps."""
        return array if self.rows is None else array[self.rows]

    def write(self, index: int, value: Array, owned: bool) -> None:
        """Set a register in the active lanes. value: [W, 32] in the register's dtype; owned: nobody else
        holds it.
        """
        bank = self.bank
        if self.rows is None:
            if self.mask is None:
                bank.arrays[index] = value if owned else value.copy()
            else:
                np.copyto(bank.array(index), value, where=self._mask_for(value))
            return
        array = bank.array(index)
        if self.mask is None:
            array[self.rows] = value
        else:
            old = array[self.rows]
            np.copyto(old, value, where=self._mask_for(value))
            array[self.rows] = old

    def _mask_for(self, value: Array) -> Array:
        assert self.mask is not None
        return self.mask if value.ndim == 2 else self.mask[..., None]

    # Active lanes alone, flat

    def flat(self, array: Array) -> Array:
        """The active lanes of a [W, 32] array, in thread order."""
        if self.mask is None:
            return array.reshape(self.n, *array.shape[2:])
        return array[self.mask]

    def spread(self, values: Array) -> Array:
        """The inverse of `flat`; inactive lanes hold zero."""
        if self.mask is None:
            return values.reshape(self.w, WARP, *values.shape[1:])
        out = np.zeros((self.w, WARP, *values.shape[1:]), values.dtype)
        out[self.mask] = values
        return out

    def per_warp(self, values: Array) -> Array:
        """One value a warp of the wave, given to each active lane, flat."""
        chosen = values if self.rows is None else values[self.rows]
        if self.mask is None:
            return np.repeat(chosen, WARP)
        return chosen[self.places()[0]]

    def places(self) -> tuple[Array, Array]:
        """(row among these warps, lane) of each active lane, flat."""
        if self.where is None:
            rows, lanes = np.nonzero(self.active)
            self.where = (rows, lanes)
        return self.where

    def threads(self) -> Array:
        """Index in the wave, warp × 32 + lane, of each active lane, flat."""
        rows, lanes = self.places()
        return (rows if self.rows is None else self.rows[rows]) * WARP + lanes

    def locate(self, position: int) -> tuple[int, int]:
        """(warp of the wave, lane) of the active lane at a flat position."""
        rows, lanes = self.places()
        row = int(rows[position])
        return (row if self.rows is None else int(self.rows[row])), int(lanes[position])
