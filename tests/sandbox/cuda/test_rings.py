"""Rings and laps against a driver's double in this process: what each run finds, and what is left behind."""

from __future__ import annotations

import pytest

from sandbox.cuda import launching
from sandbox.cuda.driver import DriverError, Geometry
from sandbox.cuda.rings import Rings
from sandbox.cuda.wire import BufferSpec, Lap, LaunchSpec, Load, MapSpec, Param, Ring, Source, Work
from tests.sandbox.cuda.picky import Ledger

ONE = (1, 1, 1)
SETS = 6
GEOMETRY = Geometry(ONE, ONE)


def loaded(driver: Ledger) -> launching.Module:
    return launching.load(driver, Load(b"code", ("count",), ("calls", "gone")))


def wanted(by_address: bool = False) -> Ring:
    """by_address: the kernel takes the address of a tensor map as well."""
    params = (Param(0, 8, "pointer", name="y"), Param(8, 8, "map_pointer", name="m"))[: 1 + by_address]
    launch = LaunchSpec("count", ONE, ONE, ONE, 0, params, 8 * len(params))
    view = MapSpec("m", "x", "u8", (16,), (), (16,), (1,), "none", "none", "none", "none")
    buffers = (
        BufferSpec("x", 64, Source(data=b"x" * 64), "input"),
        BufferSpec("y", 64, Source(fill=1), "output"),
        BufferSpec("s", 64, Source(fill=3), "scratch"),
    )
    return Ring(Work(1, (launch,), buffers, (view,)), SETS, 1.0)


def made(driver: Ledger, module: launching.Module, by_address: bool = False) -> tuple[Rings, int]:
    rings = Rings(driver)
    return rings, rings.make(wanted(by_address), module, [GEOMETRY], driver.function(1, "hold"))


def answer(driver: Ledger, rings: Rings, ring: int, which: int) -> int:
    return int.from_bytes(driver.read(rings.address(ring, which, "y"), 8), "little")


@pytest.mark.parametrize("captures", [True, False])
def test_every_lap_begins_with_the_variables_first_values(captures: bool) -> None:
    driver = Ledger(captures=captures)
    module = loaded(driver)
    driver.write(driver.values["calls"][0], b"\x64")  # after the load: not a first value
    for _ in range(2):  # a second ring of the same module starts where the first one did
        rings, ring = made(driver, module)
        for first, count in ((0, 2), (2, 3), (5, 2), (1, 2)):
            assert rings.lap(Lap(ring, first, count, 1.0)).stop is None
            found = [answer(driver, rings, ring, (first + number) % SETS) for number in range(count)]
            assert found == list(range(1, count + 1))
        rings.drop(ring)


@pytest.mark.parametrize("captures", [True, False])
def test_outputs_and_scratch_half_a_ring_away_are_renewed(captures: bool) -> None:
    driver = Ledger(captures=captures)
    rings, ring = made(driver, loaded(driver))
    for which in range(SETS):
        assert driver.read(rings.address(ring, which, "y"), 64) == b"\xff" * 64
        for name in ("y", "s"):
            driver.fill(rings.address(ring, which, name), 0x11, 64)
    rings.lap(Lap(ring, 1, 2, 1.0, poison=0xEE))
    renewed = [
        which for which in range(SETS) if driver.read(rings.address(ring, which, "y"), 64) == b"\xee" * 64
    ]
    assert renewed == [4, 5]
    assert [driver.read(rings.address(ring, which, "s"), 64)[0] for which in range(SETS)] == [
        17,
        17,
        17,
        17,
        3,
        3,
    ]
    assert {driver.read(rings.address(ring, which, "x"), 64) for which in range(SETS)} == {b"x" * 64}


@pytest.mark.parametrize("by_address", [False, True])
def test_a_ring_gives_back_all_it_took(by_address: bool) -> None:
    driver = Ledger()
    module = loaded(driver)
    before = set(driver.live)
    rings, ring = made(driver, module, by_address=by_address)
    assert len(driver.live) - len(before) == SETS * (3 + by_address)
    rings.lap(Lap(ring, 0, 2, 1.0))
    rings.drop(ring)
    rings.drop(ring)
    assert driver.live == before
    launching.unload(driver, module)
    assert len(before) - len(driver.live) == 1


@pytest.mark.parametrize("launch", [1, 4])
def test_a_ring_that_cannot_be_made_leaves_nothing(launch: int) -> None:
    driver = Ledger(fails_at=launch)
    module = loaded(driver)
    before = set(driver.live)
    with pytest.raises(DriverError, match="UNKNOWN"):
        made(driver, module)
    assert driver.live == before


def test_first_values_that_do_not_fit_leave_no_module() -> None:
    class Full(Ledger):
        unloaded = 0

        def alloc(self, size: int) -> int:
            if self.values:
                raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")
            return super().alloc(size)

        def unload(self, module: int) -> None:
            self.unloaded += 1

    driver = Full()
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        loaded(driver)
    assert driver.unloaded == 1
