"""The referee in a real child process, on the CPU: its inputs, baselines, laps, snapshots and judgements."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sandbox.keeper import Keeper
from tasks.dtypes import to_bytes
from tasks.errors import InputError
from tasks.registry import load_task
from tools.timing import prepared, referee
from tools.timing.referee import Subject, subject_of


def subject(workload: str, seed: int = 7) -> Subject:
    task = load_task("affine")
    return subject_of(task, next(each for each in task.workloads() if each.name == workload), seed)


SMALL = subject("odd")


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    yield made
    made.kill()


def file(tmp_path: Path, name: str, tensor: torch.Tensor) -> bytes:
    """Memory of the candidate's worker, as the machine without a GPU shares it."""
    path = tmp_path / name
    path.write_bytes(to_bytes(tensor).tobytes())
    return str(path).encode()


def test_inputs_are_the_tasks_own_and_come_from_the_childs_memory(keeper: Keeper) -> None:
    info = keeper.call(referee.start, "cpu", seconds=60)
    assert info.torch == torch.__version__
    given_out = keeper.call(referee.prepare, "cpu", SMALL, seconds=60)
    task = load_task("affine")
    workload = next(each for each in task.workloads() if each.name == "odd")
    wanted = to_bytes(task.make_inputs(workload, 7)["x"])
    assert given_out.sizes == {"x": 4 * 1023}
    given = np.frombuffer(Path(given_out.handles["x"].decode()).read_bytes(), np.uint8)
    assert np.array_equal(given, wanted)
    assert f"/proc/{keeper.pid}/" in given_out.handles["x"].decode()
    assert keeper.pid != os.getpid()


def test_inputs_stay_for_the_life_of_the_process_whatever_seed_comes(keeper: Keeper) -> None:
    one = keeper.call(referee.prepare, "cpu", SMALL, seconds=60)
    other = keeper.call(referee.prepare, "cpu", subject("odd", 8), seconds=60)
    assert one == other


def test_right_outputs_pass_and_wrong_ones_are_told_with_their_error(keeper: Keeper, tmp_path: Path) -> None:
    task = load_task("affine")
    inputs = {"x": _inputs(keeper)}
    right = task.honest(inputs, {"n": 1023})["y"]
    wrong = right.clone()
    wrong[500] += abs(wrong[500]) * 0.01 + 1
    given = {"x": file(tmp_path, "x", inputs["x"])}
    for name, tensor in (("right", right), ("wrong", wrong)):
        changed = keeper.call(
            referee.snapshot, "cpu", SMALL, given, {"y": file(tmp_path, name, tensor)}, seconds=60
        )
        assert changed == ()
    first, second = keeper.call(referee.judge, "cpu", SMALL, seconds=60)
    assert first.passed
    assert first.error <= 1
    assert (second.passed, second.text.split(":")[0]) == (False, "output y is wrong")
    assert second.error > 1
    assert keeper.call(referee.judge, "cpu", SMALL, seconds=60) == ()


def test_an_unwritten_output_does_not_pass(keeper: Keeper, tmp_path: Path) -> None:
    poisoned = torch.full((1023,), -1, dtype=torch.int32).view(torch.float32)
    keeper.call(referee.snapshot, "cpu", SMALL, {}, {"y": file(tmp_path, "y", poisoned)}, seconds=60)
    (judged,) = keeper.call(referee.judge, "cpu", SMALL, seconds=60)
    assert not judged.passed


def test_a_changed_input_is_named(keeper: Keeper, tmp_path: Path) -> None:
    touched = _inputs(keeper)
    touched[1022] = 0.5
    changed = keeper.call(referee.snapshot, "cpu", SMALL, {"x": file(tmp_path, "x", touched)}, {}, seconds=60)
    assert changed == ("x",)
    keeper.call(referee.forget, "cpu", SMALL, seconds=60)
    assert keeper.call(referee.judge, "cpu", SMALL, seconds=60) == ()


def test_laps_of_a_baseline_take_time_in_proportion_to_their_runs(keeper: Keeper) -> None:
    crowd = subject("crowd")
    keeper.call(referee.ring, "cpu", crowd, 4, seconds=60)
    assert keeper.call(referee.capture, "cpu", crowd, "torch", 2, seconds=60) == ""
    one = min(keeper.call(referee.lap, "cpu", crowd, "torch", 3, 1, seconds=60) for _ in range(20))
    four = min(keeper.call(referee.lap, "cpu", crowd, "torch", 2, 4, seconds=60) for _ in range(20))
    assert 0 < one < four


def test_a_killed_child_makes_all_it_needs_again(keeper: Keeper) -> None:
    before = Path(keeper.call(referee.prepare, "cpu", SMALL, seconds=60).handles["x"].decode()).read_bytes()
    keeper.kill()
    again = keeper.call(referee.prepare, "cpu", subject("odd", 8), seconds=60)
    assert Path(again.handles["x"].decode()).read_bytes() != before  # a fresh process, fresh inputs


def test_a_workload_that_does_not_exist_is_the_callers_mistake(keeper: Keeper) -> None:
    with pytest.raises(InputError, match="no workload called 'nope'"):
        keeper.call(referee.prepare, "cpu", dataclasses.replace(SMALL, workload="nope"), seconds=60)


def test_workloads_beyond_the_memory_set_apart_go_least_recently_used_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(referee, "_STATES", {})
    referee.start("cpu")
    state = referee._STATES["cpu"]
    state.keep = 40_000
    for name in ("odd", "one", "odd", "special"):
        handles = referee.prepare("cpu", subject(name)).handles
        assert Path(handles["x"].decode()).exists()
    assert [workload for _, workload in state.workloads] == ["special"]
    referee.release("cpu")
    assert not state.workloads
    assert not Path(handles["x"].decode()).exists()


def test_the_reference_falls_back_to_the_cpu_where_the_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("affine")
    asked: list[str] = []

    def refuse_meta(inputs: dict[str, torch.Tensor], axes: object) -> dict[str, torch.Tensor]:
        asked.append(inputs["x"].device.type)
        if inputs["x"].device.type == "meta":
            raise RuntimeError("not implemented for this device")
        return {"y": 2 * inputs["x"].double() + 1}

    monkeypatch.setattr(task._module, "reference", refuse_meta)
    inputs = {"x": torch.ones(3)}
    reference, *_ = prepared.answers(task, inputs, {"n": 3}, "cpu")
    assert reference["y"].tolist() == [3, 3, 3]
    with pytest.raises(Exception, match="not implemented"):
        prepared.answers(task, {"x": torch.ones(3, device="meta")}, {"n": 3}, "cpu")
    assert asked == ["cpu", "meta"]


def _inputs(keeper: Keeper) -> torch.Tensor:
    handles = keeper.call(referee.prepare, "cpu", SMALL, seconds=60).handles
    data = bytearray(Path(handles["x"].decode()).read_bytes())
    return torch.frombuffer(data, dtype=torch.float32).clone()
