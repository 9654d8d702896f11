"""Where buffers lie: each in a mapping of its own between unmapped pages, its end as near to the end as alignment allows.

An access past a buffer thus faults at full speed as soon as it leaves the last few bytes of its mapping; those bytes, and the ones
before the buffer, are red zones whose contents are compared afterwards. Mappings are kept and used again: at the same place when a run
asks for it (`keep`, unless the last run's buffers were larger together than what is kept), never at the same place when it asks for
that (`move`). What is kept never exceeds `SPARE_BYTES`, however the sizes of candidates vary, and makes way for a run that needs room.

Where a GPU has no virtual memory management, plain memory with red zones on both sides takes the place of mappings.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from sandbox.cuda.driver import Driver, DriverError
from sandbox.cuda.wire import RedZone

ALIGNMENT: Final = 256
"""Bytes: what cudaMalloc promises, and so what kernels rely on."""
ZONE: Final = 4096
"""Bytes of red zone that are looked at before a buffer, and behind it where there are so many."""
SPARE_BYTES: Final = 1 << 30
"""Mappings that are kept for later runs, together."""
PLAIN_GRANULE: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Slab:
    """A mapping. size: a multiple of the granularity."""

    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where one buffer lies in its slab."""

    slab: Slab
    address: int
    bytes: int

    @property
    def before(self) -> tuple[int, int]:
        """Address and bytes of the red zone in front."""
        size = min(ZONE, self.address - self.slab.base)
        return self.address - size, size

    @property
    def behind(self) -> tuple[int, int]:
        """Address and bytes of the red zone at its end."""
        end = self.address + self.bytes
        return end, min(ZONE, self.slab.base + self.slab.size - end)


def placed(slab: Slab, size: int) -> Place:
    """The place of `size` bytes in a slab: as far back as the alignment allows."""
    offset = (slab.size - size) // ALIGNMENT * ALIGNMENT
    return Place(slab, slab.base + offset, size)


def slab_bytes(size: int, granularity: int) -> int:
    """Bytes of the slab for a buffer of `size`, with room for a red zone in front."""
    return -(-(size + ALIGNMENT) // granularity) * granularity


@dataclass
class Memory:
    """The slabs of one worker."""

    driver: Driver
    random: random.Random = field(default_factory=random.SystemRandom)
    spare: list[Slab] = field(default_factory=list[Slab])
    """Slabs nobody uses, those given back first in front."""
    last: dict[str, Slab] = field(default_factory=dict[str, Slab])
    """Name → slab of the last run that had a buffer of this name."""

    def take(self, sizes: Mapping[str, int], how: Literal["any", "keep", "move"]) -> dict[str, Place]:
        """A place for every buffer. Raises DriverError; nothing is held then."""
        found: dict[str, Place] = {}
        try:
            for name, size in sizes.items():
                wanted = slab_bytes(size, self.driver.granularity() or PLAIN_GRANULE)
                found[name] = placed(self._slab(name, wanted, how), size)
        except DriverError:
            self.give_back(found)
            raise
        self.last = {name: place.slab for name, place in found.items()}
        return found

    def give_back(self, places: Mapping[str, Place]) -> None:
        """What a run no longer needs; kept for the next, within bounds."""
        self.spare += (place.slab for place in places.values())
        last = set(self.last.values())
        excess = sum(each.size for each in self.spare) - SPARE_BYTES
        for slab in sorted(self.spare, key=lambda each: each in last):  # those of the last run go last
            if excess <= 0:
                break
            self._drop(slab)
            excess -= slab.size

    def stain(self, places: Mapping[str, Place], byte: int) -> None:
        """Fill all red zones."""
        for place in places.values():
            for address, size in (place.before, place.behind):
                self.driver.fill(address, byte, size)

    def red_zones(self, places: Mapping[str, Place], byte: int) -> tuple[RedZone, ...]:
        """Red zones that are not as `stain` left them."""
        found: list[RedZone] = []
        for name, place in places.items():
            for address, size in (place.before, place.behind):
                data = self.driver.read(address, size)
                wrong = (
                    [index for index, each in enumerate(data) if each != byte]
                    if data.count(byte) != size
                    else []
                )
                if wrong:
                    found.append(RedZone(name, address + wrong[0] - place.address, len(wrong)))
        return tuple(found)

    def _slab(self, name: str, size: int, how: Literal["any", "keep", "move"]) -> Slab:
        free = [each for each in self.spare if each.size == size]
        before = self.last.get(name)
        if how == "keep" and before in free:
            self.spare.remove(before)
            return before
        taken = set(self.last.values())
        others = [each for each in free if (each != before if how == "move" else each not in taken)]
        if others:
            chosen = self.random.choice(others)
            self.spare.remove(chosen)
            return chosen
        try:
            return self._map(size)
        except DriverError:
            if not self.spare:
                raise
            for each in list(self.spare):
                self._drop(each)
            return self._map(size)

    def _map(self, size: int) -> Slab:
        if self.driver.granularity():
            return Slab(self.driver.map(size), size)
        return Slab(self.driver.alloc(size), size)

    def _drop(self, slab: Slab) -> None:
        self.spare.remove(slab)
        if self.driver.granularity():
            self.driver.unmap(slab.base, slab.size)
        else:
            self.driver.free(slab.base)
