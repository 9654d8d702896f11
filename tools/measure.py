"""measure: how fast is it against the task's baselines?

A timing comes from a real GPU or not at all: it is never estimated. The candidate runs in the worker that owns the GPU, the baseline in
the referee's process, lap by lap in one schedule (`tools.timing`), while this process holds the GPU's exclusive lock.

Rules
- quick: the largest workload of the role `measure`, against the first baseline; it steers a loop. full: every such workload, every
  baseline; only full readings are published.
- Outputs of timed runs drawn in secret are judged against the float64 reference, and their inputs against the pristine ones: a candidate
  that is wrong while it is timed is wrong, whatever it gave in check.
- A fault or a hang in a timed lap is the candidate's.
- Without a GPU, or without a torch that reaches it, there is no timing, and the note says what is missing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from sandbox.cuda.wire import Gpu
from sandbox.device import Device, Fault, Program
from sandbox.ptx.plan import PlanError
from tasks.errors import CannotJudge, LaunchRefused
from tasks.registry import LoadedTask
from tasks.schema import Role, Workload
from tools.evaluation import Clocks, Reading, Timing, Verdict
from tools.problem import work_of
from tools.timing.schedule import Mode
from tools.timing.statistics import Said, beyond

if TYPE_CHECKING:
    from sandbox.cuda.device import CudaDevice


@dataclass(frozen=True, slots=True)
class Measured:
    """What measuring gave. note: one phrase for the evaluation's summary; blobs: `samples.json`, every raw sample.

    verdict: FAULT, HANG or WRONG_OUTPUT when the candidate failed while it was timed; None when it did not.
    """

    timing: Timing | None
    note: str
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    verdict: Verdict | None = None
    fault: Fault | None = None


def measure(
    program: Program,
    task: LoadedTask,
    device: Device,
    seed: int,
    *,
    mode: Mode = "quick",
    against: Program | None = None,
) -> Measured:
    """Time a candidate that `check` passed. against: another candidate in the place of the baselines.

    Raises InfraError when the machine fails, never for what the candidate does.
    """
    if not device.traits.timed:
        return Measured(None, f"not timed: {device.name} is not a GPU")
    workloads = chosen(task, mode)
    if not workloads:
        return Measured(None, f"not timed: task {task.task.name} has no workload of the role measure")
    if against is None and not task.task.baselines:
        return Measured(None, f"not timed: task {task.task.name} names no baseline")
    from tools.timing.bench import (
        Bench,
        Failed,
    )  # knows the GPU's worker, which other devices have no use for

    bench = Bench(program, task, cast("CudaDevice", device), seed, mode, against)
    at = f"right in check, on workload {workloads[-1].name} "
    try:
        bench.timed(workloads)
        timing = summed(
            bench.readings, mode=mode, gpu=bench.gpu, clocks=bench.clocks(), seconds=bench.seconds
        )
        blobs = bench.blobs()
        digest = hashlib.sha256(blobs["samples.json"]).hexdigest()
        timing = timing.model_copy(update={"samples_sha256": digest})
        return Measured(timing, told(bench.readings), blobs)
    except Failed as failure:
        return Measured(None, failure.note, bench.blobs(), failure.verdict, failure.fault)
    except LaunchRefused as refusal:
        return Measured(None, f"{at}its launch is refused: {refusal}", bench.blobs(), Verdict.LAUNCH_ERROR)
    except PlanError as error:
        return Measured(None, f"{at}its launch plan cannot be used: {error}", bench.blobs(), Verdict.BAD_PLAN)
    except CannotJudge as lack:
        return Measured(None, f"not timed: {lack}", bench.blobs())
    finally:
        bench.close()


def ahead(task: LoadedTask, device: Device, seed: int, *, mode: Mode = "quick") -> None:
    """Begin what `measure` will need on a device that can time: starting torch and making large inputs takes seconds."""
    workloads = chosen(task, mode)
    asked = {(id(device), task.digest, each.name) for each in workloads}
    if not device.traits.timed or asked <= _ASKED:
        return
    _ASKED.update(asked)
    from tools.timing import bench

    bench.ahead(task, cast("CudaDevice", device), workloads, seed)


_ASKED: set[tuple[int, str, str]] = set()
"""What was begun in this process: (device, task, workload)."""


def chosen(task: LoadedTask, mode: Mode) -> list[Workload]:
    """The workloads to time, the largest last: that one alone when quick."""
    every = sorted(task.workloads(Role.MEASURE), key=lambda each: work_of(task, task.bind(each)))
    return every[-1:] if mode == "quick" else every


def summed(readings: Sequence[Reading], *, mode: Mode, gpu: Gpu, clocks: Clocks, seconds: float) -> Timing:
    """One timing of several readings: those against the first one's baseline count, a geometric mean over their workloads."""
    first = readings[0].baseline
    counted = [each for each in readings if each.baseline == first]

    def mean(values: Sequence[float]) -> float:
        return sum(map(math.log, values)) / len(values)

    low, high = mean([each.low for each in counted]), mean([each.high for each in counted])
    said: Said = beyond(low, high, max(each.margin for each in counted))
    verdicts = {each.verdict for each in counted}
    if len(counted) == 1:
        said = counted[0].verdict
    for spoilt in ("unstable", "suspect"):
        if spoilt in verdicts:
            said = spoilt
    return Timing(
        baseline=first,
        speedup=math.exp(mean([each.speedup for each in counted])),
        low=math.exp(low),
        high=math.exp(high),
        candidate_ms=counted[-1].candidate_ms.p50,
        baseline_ms=counted[-1].baseline_ms.p50,
        verdict=said,
        device=gpu.name,
        uuid=gpu.uuid,
        driver=gpu.driver,
        mode=mode,
        readings=tuple(readings),
        clocks=clocks,
        seconds=seconds,
    )


SAID = {
    "faster": "",
    "slower": "",
    "same": ", the same within noise",
    "unstable": ", on a card too restless to tell",
    "suspect": ", faster than the hardware can be: suspect",
}
"""What a verdict adds to the figures."""


def told(readings: Sequence[Reading]) -> str:
    """The readings in words, such as `1.37 x torch (1.36 to 1.38) on gpu`."""
    return "; ".join(
        f"{each.speedup:.3f} x {each.baseline} ({each.low:.3f} to {each.high:.3f}) on {each.workload}{SAID[each.verdict]}"
        for each in readings
    )
