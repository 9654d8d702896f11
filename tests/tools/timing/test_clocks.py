"""What NVML's answers become, and that its absence is no error."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import pytest

from tools.evaluation import Clocks
from tools.timing.clocks import Monitor, Sample, disturbing, named


class Nvml(types.ModuleType):
    """A double of pynvml for one card, which refuses to tell its ECC mode."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.clock = [1980, 1965]
        self.pids: list[int] = [os.getpid(), 999_999]

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise RuntimeError("not found")
        return uuid

    def nvmlDeviceGetClockInfo(self, _: str, which: int) -> int:
        return self.clock[0] if which == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetTemperature(self, _: str, __: int) -> int:
        return 41

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:
        return 612_500

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:
        return 0x4 | 0x1

    def nvmlDeviceGetPersistenceMode(self, _: str) -> int:
        return 1

    def nvmlDeviceGetEccMode(self, _: str) -> Any:
        raise RuntimeError("not supported")

    def nvmlDeviceGetMigMode(self, _: str) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, _: str) -> list[Any]:
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    double = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", double)
    return double


def test_ranges_reasons_and_neighbours_are_told(nvml: Nvml) -> None:
    monitor = Monitor("GPU-1")
    monitor.look()
    nvml.clock.pop(0)
    assert monitor.look().sm_mhz == 1965
    assert monitor.summary(own=[os.getpid()]) == Clocks(
        sm_mhz=(1965, 1980),
        memory_mhz=(3201, 3201),
        temperature_c=(41, 41),
        power_w=(612.5, 612.5),
        throttle=("sw_power_cap",),
        others=1,
        persistence=True,
        ecc=None,
        mig=False,
    )


def test_processes_of_another_namespace_cannot_be_told_apart(nvml: Nvml) -> None:
    nvml.pids = [4_000_001, 4_000_002]
    assert Monitor("GPU-1").summary(own=[os.getpid()]).others is None


def test_a_gpu_that_nvml_does_not_know_leaves_every_field_none(nvml: Nvml) -> None:
    monitor = Monitor("GPU-2")
    assert not monitor.sees
    assert monitor.sm() is None
    assert monitor.look().throttle == ()
    assert monitor.summary() == Clocks()


def test_a_machine_without_the_library_leaves_every_field_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monitor = Monitor("GPU-1")
    assert monitor.look().sm_mhz is None
    assert monitor.summary() == Clocks()


def test_heat_disturbs_a_pair_and_a_steady_power_cap_does_not() -> None:
    assert named(0x1 | 0x2) == ()
    assert named(0x4 | 0x40) == ("sw_power_cap", "hw_thermal_slowdown")
    assert disturbing([Sample(0.0, throttle=("sw_power_cap",))]) == ()
    assert disturbing([Sample(0.0), Sample(1.0, throttle=("hw_slowdown", "sw_power_cap"))]) == (
        "hw_slowdown",
    )
