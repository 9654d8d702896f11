"""Measuring from end to end without a GPU: real workers with the driver's double, the real referee on the CPU, the real schedule."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.cuda import service
from sandbox.cuda.device import CudaDevice
from sandbox.device import FaultKind, Program
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.errors import InputError
from tasks.registry import SUITE, LoadedTask, load_task
from tools.evaluation import Verdict
from tools.measure import Measured, ahead, measure
from tools.timing import arms, bench
from tools.timing.arms import Referee
from tools.timing.schedule import FEWEST

DRIVER = "tests.tools.timing.double:Double"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LoadedTask:
    """`affine`, with a workload to measure that suits a CPU."""
    folder = tmp_path_factory.mktemp("tasks") / "affine"
    folder.mkdir()
    text = (SUITE / "affine" / "task.yaml").read_text()
    (folder / "task.yaml").write_text(text.replace("axes: {n: 58720256}", "axes: {n: 5000}"))
    (folder / "reference.py").write_bytes((SUITE / "affine" / "reference.py").read_bytes())
    return load_task(str(folder))


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    made = Referee("cpu")
    yield made
    made.close()


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaDevice]:
    made = CudaDevice(driver=DRIVER, state=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch, referee: Referee) -> None:
    monkeypatch.setattr(bench, "referee_on", lambda _: referee)
    monkeypatch.setattr(arms, "LAUNCH_SECONDS", 0.2)


def program(words: str) -> Program:
    solution = load_task("affine").solution("sm_90a")
    assert solution is not None
    candidate = read_candidate(solution.read_text())
    module = parse_module(candidate.ptx, candidate.ptx_first_line)
    return Program(module, candidate.plan, candidate.text, "sm_90a", words.encode())


def measured(device: CudaDevice, task: LoadedTask, words: str, **options: Any) -> Measured:
    return measure(program(words), task, device, 11, **options)


def test_a_candidate_is_timed_against_the_baseline_and_every_sample_is_kept(
    device: CudaDevice, task: LoadedTask
) -> None:
    found = measured(device, task, "right 500")
    assert found.verdict is None
    timing = found.timing
    assert timing is not None
    (reading,) = timing.readings
    assert (timing.baseline, timing.device, timing.mode, reading.workload) == (
        "torch",
        "Double",
        "quick",
        "gpu",
    )
    assert reading.candidate_ms.p50 == pytest.approx(0.5)
    assert reading.checked
    assert found.note.split(" x ")[1].startswith("torch (")
    kept = json.loads(found.blobs["samples.json"])
    (samples,) = kept["readings"]
    # The baseline runs on this machine's processor: where it is busy, the budget of time allows fewer blocks than 20.
    assert len(samples["blocks"]) == reading.pairs + reading.dropped >= FEWEST
    laps = [lap for block in samples["blocks"] for lap in block["laps"]]
    assert {lap["side"] for lap in laps} == {"A", "B"}
    assert all(lap["ms"] > 0 and lap["at"] > 0 for lap in laps)
    assert len(samples["audited"]) == 2


@pytest.mark.parametrize(
    ("own", "verdict"), [("right 500", "same"), ("right 505", "slower"), ("right 495", "faster")]
)
def test_against_another_candidate_one_percent_is_told_exactly(
    device: CudaDevice, task: LoadedTask, own: str, verdict: str
) -> None:
    found = measured(device, task, own, against=program("right 500"))
    assert found.timing is not None
    assert found.timing.verdict == verdict
    assert found.timing.speedup == pytest.approx(500 / float(own.split()[1]))
    assert found.timing.baseline.startswith("candidate ")


def test_a_candidate_that_is_wrong_while_timed_is_wrong(device: CudaDevice, task: LoadedTask) -> None:
    found = measured(device, task, "wrong 500")
    assert (found.timing, found.verdict) == (None, Verdict.WRONG_OUTPUT)
    assert found.note.startswith("right in check, wrong in a timed run on workload gpu: output y is wrong")
    assert "samples.json" in found.blobs


def test_a_candidate_that_changes_its_input_while_timed_is_wrong(
    device: CudaDevice, task: LoadedTask
) -> None:
    found = measured(device, task, "scribble 500")
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert "changed its input x in a timed run" in found.note


@pytest.mark.parametrize(
    ("words", "verdict", "kind"),
    [("fault 500", Verdict.FAULT, FaultKind.OUT_OF_BOUNDS), ("hang 500", Verdict.HANG, FaultKind.TIMEOUT)],
)
def test_a_fault_or_hang_in_a_lap_is_the_candidates_and_the_next_one_is_timed_at_once(
    device: CudaDevice, task: LoadedTask, words: str, verdict: Verdict, kind: FaultKind
) -> None:
    found = measured(device, task, words)
    assert (found.timing, found.verdict) == (None, verdict)
    assert found.fault is not None
    assert found.fault.kind is kind
    assert found.note.startswith("ran right in check, ")
    after = measured(device, task, "right 500")
    assert after.timing is not None


def test_a_rival_that_faults_is_not_the_candidates_fault(device: CudaDevice, task: LoadedTask) -> None:
    with pytest.raises(
        InputError, match="kernel to time against does not run well: CUDA_ERROR_ILLEGAL_ADDRESS"
    ):
        measured(device, task, "right 500", against=program("fault 500"))
    assert measured(device, task, "right 500").timing is not None


def test_nothing_stays_loaded_or_allocated_from_candidate_to_candidate(
    device: CudaDevice, task: LoadedTask, referee: Referee
) -> None:
    measured(device, task, "right 500")
    worker, judge = device.slot.pid, referee.pid
    assert worker is not None
    assert judge is not None
    files = len(list(Path(f"/proc/{judge}/fd").iterdir()))
    free = device.slot.call(service.memory, seconds=10)
    for words in ("right 500", "wrong 500", "scribble 500"):
        measured(device, task, words)
    assert (device.slot.pid, referee.pid) == (worker, judge)
    assert len(list(Path(f"/proc/{judge}/fd").iterdir())) == files
    assert device.slot.call(service.memory, seconds=10) == free


def test_inputs_are_drawn_ahead_once(
    device: CudaDevice, task: LoadedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(bench, "ahead", lambda task, *_: begun.append(task.task.name))
    fresh = dataclasses.replace(task, digest="0" * 64)
    for _ in range(2):
        ahead(fresh, device, 5)
    assert begun == ["affine"]
