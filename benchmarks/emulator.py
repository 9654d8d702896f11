"""How fast the emulator is: thread-instructions per second on vector_add (1 M elements) and gemm_f16_mma
(512³).

Runs the tasks' own solutions, best of a few runs, and prints a small table with what machine it was; `--json`
prints the figures alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sandbox.device import Buffer, Limits, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.dtypes import DTYPES, to_bytes
from tasks.registry import load_task
from tasks.schema import Inputs, Role, Workload

ARCH = "sm_90a"
SIZES: Mapping[str, int] = {"vector_add": 1 << 20, "gemm_f16_mma": 512}
"""Task -> value of every axis that its workloads bind."""


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
    """Run a task's solution `runs` times at its benchmark size."""
    loaded = load_task(task_name)
    path = loaded.solution(ARCH)
    if path is None:
        sys.exit(f"{task_name} has no solution for {ARCH}")
    candidate = read_candidate(path.read_text(encoding="utf-8"))
    bound = {name: SIZES[task_name] for name, value in loaded.task.axes.items() if value is None}
    workload = Workload(name="benchmark", roles=(Role.MEASURE,), axes=bound, inputs=Inputs())
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
    return Reading(task_name, bound, best.counts.threads, best.seconds, best.counts.threads / best.seconds)


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
    parser.add_argument("--runs", type=int, default=5, help="runs of each task; the best counts")
    options = parser.parse_args()
    readings = [measure(name, options.runs) for name in SIZES]
    if options.json:
        print(json.dumps({"machine": machine(), "readings": [asdict(each) for each in readings]}))
        return
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{'task':<16}{'size':>10}{'thread-instructions':>22}{'seconds':>10}{'M/s':>9}")
    for each in readings:
        size = next(iter(each.axes.values()))
        print(
            f"{each.task:<16}{size:>10}{each.thread_instructions:>22}{each.seconds:>10.3f}"
            f"{each.per_second / 1e6:>9.0f}"
        )


if __name__ == "__main__":
    main()
