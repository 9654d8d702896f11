"""The referee on a real GPU: memory between processes, graphs, and a baseline timed against itself."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from tasks.registry import load_task
from tools.problem import work_of
from tools.timing import referee
from tools.timing.arms import BaselineSide, Referee
from tools.timing.clocks import Monitor
from tools.timing.referee import Subject, subject_of
from tools.timing.schedule import EFFORTS, run
from tools.timing.statistics import compare


def _gpu() -> bool:
    try:
        return int(importlib.import_module("cuda.bindings.driver").cuInit(0)[0]) == 0
    except Exception:
        return False


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not _gpu(), reason="needs a GPU and its driver")]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Referee, Referee]]:
    made = Referee("cuda:0"), Referee("cuda:0")
    yield made
    for each in made:
        each.close()


def subject(task: str, workload: str, seed: int = 7) -> Subject:
    loaded = load_task(task)
    return subject_of(loaded, next(each for each in loaded.workloads() if each.name == workload), seed)


def test_memory_crosses_between_processes_byte_for_byte(pair: tuple[Referee, Referee]) -> None:
    one, other = pair
    same, changed = subject("affine", "odd"), subject("affine", "odd", 8)
    mine = one.prepare(same)
    assert other.call(referee.snapshot, same, mine.handles, {}) == ()
    other.call(referee.release)
    assert other.call(referee.snapshot, changed, mine.handles, {}) == ("x",)
    other.call(referee.release)


def test_uuid_and_clocks_are_those_of_one_card(pair: tuple[Referee, Referee]) -> None:
    info = pair[0].info()
    monitor = Monitor(info.uuid)
    assert monitor.sees, f"NVML does not know {info.uuid}"
    monitor.look()
    clocks = monitor.summary([pair[0].pid or 0])
    assert clocks.sm_mhz is not None
    assert clocks.power_w is not None


@pytest.mark.parametrize("task", ["affine", "gemm_bf16_async"])
def test_a_baseline_against_itself_is_the_same(pair: tuple[Referee, Referee], task: str) -> None:
    loaded = load_task(task)
    largest = max(loaded.workloads(), key=lambda each: work_of(loaded, loaded.bind(each)))
    what = subject(task, largest.name)
    sides = [BaselineSide(each, what, "torch") for each in pair]
    for each in pair:
        each.prepare(what)
    info = pair[0].info()
    record = run(*sides, effort=EFFORTS["full"], sets=4, seed=1, watch=Monitor(info.uuid))
    found = compare(record.timed(), 1)
    print(task, found, f"{record.seconds:.2f} s, window {record.window}, {len(record.rough)} laps to warm up")
    assert [side.note for side in sides] == ["", ""], "the baseline runs as a graph"
    assert found.verdict == "same"
    assert found.floor <= 0.002
    assert found.high / found.low < 1.003
