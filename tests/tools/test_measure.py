"""What measure says of readings, and where it says nothing: no GPU, no workload, no baseline."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from sandbox.cuda.wire import Gpu
from sandbox.device import Program, Traits
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.registry import LoadedTask, load_task
from tools import ladder
from tools import measure as measuring
from tools.evaluation import Clocks, Depth, Reading, Spread, Stage, Target, Timing, Verdict
from tools.ladder import STAGES, Job
from tools.measure import Measured, chosen, measure, summed, told

GPU = Gpu(0, "NVIDIA H200", "GPU-1", (9, 0), "13.0", 132, 1, 1, 1, 1, 1, 1, False, 0.0)
SOLUTION = load_task("affine").solution("sm_90a")


def program() -> Program:
    assert SOLUTION is not None
    candidate = read_candidate(SOLUTION.read_text())
    return Program(
        parse_module(candidate.ptx, candidate.ptx_first_line), candidate.plan, candidate.text, "sm_90a"
    )


class Timed(EmulatorDevice):
    """A device that claims to have a clock."""

    traits = Traits(masks=False, orders=False, counts=False, timed=True)  # type: ignore[assignment]


def reading(**fields: object) -> Reading:
    given = {
        "workload": "gpu",
        "baseline": "torch",
        "verdict": "faster",
        "speedup": 1.37,
        "low": 1.36,
        "high": 1.38,
        "floor": 0.0004,
        "margin": 0.002,
        "candidate_ms": Spread(p10=0.9, p50=1.0, p90=1.1),
        "baseline_ms": Spread(p10=1.3, p50=1.37, p90=1.4),
        "pairs": 40,
    }
    return Reading.model_validate(given | fields)


def timing(*readings: Reading) -> Timing:
    return summed(readings, mode="full", gpu=GPU, clocks=Clocks(), seconds=1.0)


def without(**fields: object) -> LoadedTask:
    task = load_task("affine")
    return dataclasses.replace(task, task=task.task.model_copy(update=fields))


def test_the_emulator_times_nothing() -> None:
    found = measure(program(), load_task("affine"), EmulatorDevice("sm_90a"), 0)
    assert found == Measured(None, "not timed: emulator is not a GPU")


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"baselines": {}}, "not timed: task affine names no baseline"),
        ({"workloads": ()}, "not timed: task affine has no workload of the role measure"),
    ],
)
def test_a_task_that_cannot_be_timed_says_what_is_missing(fields: dict[str, object], note: str) -> None:
    assert measure(program(), without(**fields), Timed("sm_90a"), 0) == Measured(None, note)


def test_quick_takes_the_largest_workload_and_full_takes_all() -> None:
    task = load_task("gemm_bf16_async")
    assert [each.name for each in chosen(task, "quick")] == ["gpu"]
    assert [each.name for each in chosen(task, "full")] == ["bench", "gpu"]


def test_one_reading_speaks_for_itself() -> None:
    made = timing(reading())
    assert (made.verdict, made.speedup, made.low, made.baseline_ms) == (
        "faster",
        pytest.approx(1.37),
        pytest.approx(1.36),
        1.37,
    )
    assert (made.device, made.uuid, made.mode) == ("NVIDIA H200", "GPU-1", "full")


def test_several_workloads_are_a_geometric_mean_against_the_first_baseline() -> None:
    small = reading(workload="bench", speedup=0.5, low=0.49, high=0.51, verdict="slower")
    large = reading(speedup=2.0, low=1.98, high=2.02)
    other = reading(baseline="compiled", speedup=9.0, low=8.9, high=9.1)
    made = timing(small, large, other)
    assert made.speedup == pytest.approx(1.0)
    assert made.low == pytest.approx(math.sqrt(0.49 * 1.98))
    assert made.verdict == "same"
    assert len(made.readings) == 3


@pytest.mark.parametrize(("said", "whole"), [("suspect", "suspect"), ("unstable", "unstable")])
def test_one_spoilt_reading_spoils_the_whole(said: str, whole: str) -> None:
    assert timing(reading(workload="bench", verdict=said), reading()).verdict == whole


def test_readings_are_told_in_words() -> None:
    assert told([reading()]) == "1.370 x torch (1.360 to 1.380) on gpu"
    assert told([reading(verdict="suspect")]).endswith("on gpu, faster than the hardware can be: suspect")


@pytest.mark.parametrize("verdict", [Verdict.WRONG_OUTPUT, Verdict.FAULT])
def test_a_candidate_that_fails_while_timed_stops_at_measure(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def failing(*args: object, mode: str, against: object) -> Measured:
        asked.append((mode, against))
        return Measured(None, "right in check, wrong in a timed run", {"samples.json": b"{}"}, verdict)

    monkeypatch.setattr(measuring, "measure", failing)
    assert SOLUTION is not None
    job = Job("affine", "sm_90a", Path(SOLUTION).read_text(), seed=3, mode="full")
    evaluation = None
    for _, stage in STAGES[:3]:
        evaluation = stage(job, evaluation).evaluation
    assert evaluation is not None
    met = Target(family="x", required=True, depth=Depth.LOAD_BEARING, met=True)
    evaluation = evaluation.model_copy(update={"targets": (met,), "targets_met": True})
    result = ladder.measure(job, evaluation)
    found = result.evaluation
    assert asked == [("full", None)]
    assert (found.verdict, found.stopped_at, found.targets_met) == (verdict, Stage.MEASURE, False)
    assert found.numerics is not None
    assert found.numerics.passed is (verdict is Verdict.FAULT)
    assert result.blobs == {"samples.json": b"{}"}
