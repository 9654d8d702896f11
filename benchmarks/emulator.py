"""How fast the emulator is: thread-instructions per second on the `bench` workloads of vector_add (1 M elements)
and gemm_f16_mma (512³).

Runs the tasks' own solutions, best of a few runs, and prints a small table with what machine it was; `--json`
prints the same as one object. A task that is not there, or has no solution for the architecture, is skipped
and said so; a solution that faults ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sandbox.device import Buffer, Limits, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.dtypes import DTYPES, to_bytes
from tasks.errors import InputError
from tasks.registry import load_task

ARCH = "sm_90a"
TASKS = ("vector_add", "gemm_f16_mma")
WORKLOAD = "bench"


class Skipped(Exception):
    """Nothing to measure, and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One task's figures."""

    task: str
    axes: dict[str, int]
    thread_instructions: int
    seconds: float
    """Best of the runs."""
    per_second: float
    """Thread-instructions per second."""


def measure(task_name: str, runs: int) -> Reading:
    """Run a task's solution `runs` times at its benchmark size. Raises Skipped."""
    try:
        loaded = load_task(task_name)
    except InputError as error:
        raise Skipped(f"the task cannot be loaded: {error}") from error
    path = loaded.solution(ARCH)
    if path is None:
        raise Skipped(f"the task has no solution for {ARCH}")
    workload = next((each for each in loaded.workloads() if each.name == WORKLOAD), None)
    if workload is None:
        raise Skipped(f"the task has no workload {WORKLOAD}")
    candidate = read_candidate(path.read_text(encoding="utf-8"))
    axes = loaded.bind(workload)
    buffers = {
        name: Buffer(name, to_bytes(tensor)) for name, tensor in loaded.make_inputs(workload, 1).items()
    }
    shapes = loaded.shapes(axes)
    for name, tensor in loaded.task.outputs.items():
        size = int(np.prod(shapes[name])) * DTYPES[tensor.dtype].bytes
        buffers[name] = Buffer(name, np.zeros(size, np.uint8), False, "output")
    module = parse_module(candidate.ptx, candidate.ptx_first_line)
    session = EmulatorDevice(ARCH).load(Program(module, candidate.plan, candidate.text, ARCH))
    outcomes = [session.run(axes, buffers, Limits(seconds=600)) for _ in range(runs)]
    for outcome in outcomes:
        if outcome.fault is not None:
            sys.exit(f"{task_name}: {outcome.fault.message}")
    best = min(outcomes, key=lambda outcome: outcome.seconds)
    return Reading(
        task_name, dict(workload.axes), best.counts.threads, best.seconds, best.counts.threads / best.seconds
    )


def machine() -> dict[str, str | int | None]:
    """Where the figures were taken."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--runs",
        type=int,
        choices=range(1, 101),
        metavar="N",
        default=5,
        help="runs of each task; the best counts",
    )
    options = parser.parse_args()
    readings: list[Reading] = []
    skipped: dict[str, str] = {}
    for name in TASKS:
        try:
            readings.append(measure(name, options.runs))
        except Skipped as reason:
            skipped[name] = str(reason)
    if options.json:
        figures = [asdict(each) for each in readings]
        print(json.dumps({"machine": machine(), "readings": figures, "skipped": skipped}))
        return
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{'task':<16}{'size':>10}{'thread-instructions':>22}{'seconds':>10}{'M/s':>9}")
    for each in readings:
        size = next(iter(each.axes.values()))
        print(
            f"{each.task:<16}{size:>10}{each.thread_instructions:>22}{each.seconds:>10.3f}"
            f"{each.per_second / 1e6:>9.0f}"
        )
    for name, why in skipped.items():
        print(f"{name:<16}skipped: {why}")


if __name__ == "__main__":
    main()
