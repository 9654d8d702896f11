"""Where buffers lie: arithmetic of places, red zones, and what a worker keeps from run to run."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cuda.driver import DriverError
from sandbox.cuda.memory import ALIGNMENT, SPARE_BYTES, ZONE, Memory, Slab, placed, slab_bytes
from tests.sandbox.cuda.double import GRANULE, Double

MEBIBYTE = 1 << 20


class Books(Double):
    """Keeps account of mappings instead of giving memory; `most` bytes can be mapped at once."""

    def __init__(self, most: int = 1 << 60) -> None:
        super().__init__(arena=bytearray())
        self.mapped: dict[int, int] = {}
        self.most, self.next = most, 1 << 40

    def map(self, size: int) -> int:
        assert size % GRANULE == 0
        if self.held + size > self.most:
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemCreate")
        address, self.next = self.next, self.next + size + 2 * GRANULE
        self.mapped[address] = size
        return address

    def unmap(self, address: int, size: int) -> None:
        assert self.mapped.pop(address) == size

    @property
    def held(self) -> int:
        return sum(self.mapped.values())


def memory(driver: Double) -> Memory:
    return Memory(driver, random.Random(1))


@given(st.integers(0, 1 << 24), st.sampled_from([1 << 16, 1 << 21]))
def test_a_buffer_ends_as_near_to_its_mapping_as_alignment_allows(size: int, granule: int) -> None:
    slab = Slab(1 << 40, slab_bytes(size, granule))
    place = placed(slab, size)
    assert slab.size % granule == 0
    assert slab.size < size + ALIGNMENT + granule
    assert place.address % ALIGNMENT == 0
    assert slab.base + ALIGNMENT <= place.address
    assert 0 <= slab.base + slab.size - (place.address + size) < ALIGNMENT
    (front, before), (end, behind) = place.before, place.behind
    assert (front + before, end) == (place.address, place.address + size)
    assert before == min(ZONE, place.address - slab.base)
    assert end + behind == slab.base + slab.size


def test_every_changed_byte_beside_a_buffer_is_counted() -> None:
    driver = Double()
    held = memory(driver)
    places = held.take({"x": 1000, "y": 5000}, "any")
    held.stain(places, 0xA5)
    assert held.red_zones(places, 0xA5) == ()
    y = places["y"]
    driver.write(y.address - 8, b"1234")
    driver.write(y.address + 5000 + 100, b"\xa5!")
    found = held.red_zones(places, 0xA5)
    assert [(each.buffer, each.offset, each.count) for each in found] == [("y", -8, 4), ("y", 5101, 1)]


def test_buffers_keep_their_place_or_leave_it() -> None:
    held = memory(Books())
    sizes = {"x": 1000, "y": 1000, "z": 300 * MEBIBYTE}
    first = held.take(sizes, "any")
    assert len({each.slab for each in first.values()}) == 3
    held.give_back(first)
    for _ in range(3):
        again = held.take(sizes, "keep")
        assert again == first
        held.give_back(again)
    for _ in range(5):
        moved = held.take(sizes, "move")
        assert all(moved[name].address != first[name].address for name in sizes)
        held.give_back(moved)
        first = moved


def test_what_is_kept_is_bounded_however_candidates_vary() -> None:
    driver = Books()
    held = memory(driver)
    for number in range(300):
        places = held.take({"x": 4096, "scratch": number * 3 * MEBIBYTE % (700 * MEBIBYTE) + 1}, "any")
        held.give_back(places)
        assert driver.held <= SPARE_BYTES
    assert held.take({"x": 4096}, "keep")["x"].slab in [each.slab for each in places.values()]


def test_a_run_that_does_not_fit_leaves_nothing_behind() -> None:
    driver = Books(most=64 * MEBIBYTE)
    held = memory(driver)
    for _ in range(5):
        with pytest.raises(DriverError):
            held.take({"a": MEBIBYTE, "b": 100 * MEBIBYTE}, "any")
    assert driver.held < 2 * MEBIBYTE
    held.give_back(held.take({"a": 40 * MEBIBYTE}, "any"))


def test_kept_memory_makes_way_for_what_does_not_fit_beside_it() -> None:
    driver = Books(most=64 * MEBIBYTE)
    held = memory(driver)
    held.give_back(held.take({"a": 20 * MEBIBYTE, "b": 20 * MEBIBYTE}, "any"))
    held.give_back(held.take({"a": 50 * MEBIBYTE}, "any"))
    assert driver.held < 52 * MEBIBYTE


def test_without_virtual_memory_plain_memory_has_red_zones_too() -> None:
    class Plain(Double):
        def granularity(self) -> int:
            return 0

    driver = Plain()
    held = memory(driver)
    places = held.take({"x": 1000}, "any")
    held.stain(places, 7)
    driver.write(places["x"].address - 1, b"\0")
    (found,) = held.red_zones(places, 7)
    assert (found.offset, found.count) == (-1, 1)
