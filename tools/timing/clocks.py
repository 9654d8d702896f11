"""The state of a GPU while it is timed, from NVML: clocks, temperature, power, what holds it back, who else is there.

Invariants
- Nothing is ever set: ptxmend leaves clocks, power limits, persistence and partitions as it finds them.
- What NVML or its library does not tell is None (no reasons, for `throttle`), never an error: timing goes on without.
- The functions are those of NVML 11 and later (nvidia-ml-py); names of reasons are NVML's own, in small letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tools.evaluation import Clocks

T = TypeVar("T")
Number = TypeVar("Number", int, float)

REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*)."""
QUIET = frozenset({"gpu_idle", "applications_clocks_setting"})
"""Reasons that say nothing of a busy card: they are not told."""
DISTURBING = frozenset(
    {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
"""Reasons under which neighbouring laps are not comparable. A power cap is not among them: a heavy kernel sits at it all the time, both
sides alike, and where it moves the clock, the clock tells.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the GPU. at: seconds of time.monotonic; MHz, °C, W; None where NVML does not tell."""

    at: float
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()


class Monitor:
    """Looks at one GPU. uuid: as the driver gives it, such as GPU-8c3f…

    Without NVML, or without that GPU, every answer is None.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml, self._handle = _found(uuid)
        self._samples: list[Sample] = []

    @property
    def sees(self) -> bool:
        """Whether NVML tells of this GPU."""
        return self._handle is not None

    def sm(self) -> int | None:
        """SM clock now, in MHz: the cheapest look, for every lap."""
        return self._ask(lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)))

    def look(self) -> Sample:
        """Everything, kept for `summary`: once a block."""
        sample = Sample(
            at=time.monotonic(),
            sm_mhz=self.sm(),
            memory_mhz=self._ask(
                lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))
            ),
            temperature_c=self._ask(
                lambda nvml, gpu: int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
            ),
            power_w=self._ask(lambda nvml, gpu: float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1000),
            throttle=self._reasons(),
        )
        self._samples.append(sample)
        return sample

    def summary(self, own: Collection[int] = ()) -> Clocks:
        """What was seen since the start; own: processes of ours that hold the GPU."""
        seen = self._samples
        return Clocks(
            sm_mhz=_range([each.sm_mhz for each in seen if each.sm_mhz is not None]),
            memory_mhz=_range([each.memory_mhz for each in seen if each.memory_mhz is not None]),
            temperature_c=_range([each.temperature_c for each in seen if each.temperature_c is not None]),
            power_w=_range([each.power_w for each in seen if each.power_w is not None]),
            throttle=tuple(sorted({reason for each in seen for reason in each.throttle})),
            others=self._others(own),
            persistence=self._ask(lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu))),
            ecc=self._ask(lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0])),
            mig=self._ask(lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0])),
        )

    def _reasons(self) -> tuple[str, ...]:
        def ask(nvml: Any, gpu: Any) -> int:
            new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            return int((new or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(gpu))

        return named(self._ask(ask) or 0)

    def _others(self, own: Collection[int]) -> int | None:
        """None too where process numbers are those of another namespace, so that ours cannot be told apart."""
        found = self._ask(
            lambda nvml, gpu: [int(each.pid) for each in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
        )
        if found is None or (found and own and not set(found) & set(own)):
            return None
        return len(set(found) - set(own))

    def _ask(self, question: Callable[[Any, Any], T]) -> T | None:
        if self._handle is None:
            return None
        try:
            return question(self._nvml, self._handle)
        except Exception:  # a question that this driver or card does not answer
            return None


def _found(uuid: str) -> tuple[Any, Any]:
    """NVML and its handle of a GPU; (None, None) without either."""
    try:
        import pynvml

        pynvml.nvmlInit()  # counts its callers: only the first call costs anything
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # no library, no driver, no such GPU: all the same to a reading
        return None, None


def named(bits: int) -> tuple[str, ...]:
    """The reasons in an NVML mask that say something of a busy card."""
    return tuple(name for bit, name in REASONS.items() if bits & bit and name not in QUIET)


def disturbing(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Reasons among these looks for which a block is dropped."""
    return tuple(sorted({reason for each in samples for reason in each.throttle} & DISTURBING))


def _range(values: Sequence[Number]) -> tuple[Number, Number] | None:
    return (min(values), max(values)) if values else None
