"""What a worker holds stays bounded whatever candidates ask for, and a driver that fails by itself costs no later candidate its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sandbox.cuda import service
from sandbox.cuda.device import CudaDevice
from sandbox.cuda.ledger import health
from sandbox.device import Program
from sandbox.ptx.plan import parse_plan
from tasks.errors import CannotJudge, InfraError, LaunchRefused
from tests.sandbox.cuda.test_device import LIMITS, N, buffers, honest, program, run


@pytest.fixture
def device(tmp_path: Path) -> Iterator[CudaDevice]:
    made = CudaDevice((0,), driver="tests.sandbox.cuda.picky:Picky", state=tmp_path / "state")
    yield made
    made.close()


def free(device: CudaDevice) -> int:
    return device.slot.call(service.memory, seconds=10)[0]


def mapped() -> Program:
    made = program("copy", params=", .param .align 64 .b8 map[128]", args=", m")
    plan = "launch: [{entry: copy, grid: [1], block: [32], args: [x, y, n, m]}]\n"
    return replace(made, plan=parse_plan(plan + "tensor_maps: {m: {tensor: x, box: [16], dtype: u8}}"))


@pytest.mark.parametrize("what", ["launch", "map", "function", "memory"])
def test_what_is_refused_holds_no_memory(device: CudaDevice, what: str) -> None:
    honest(device)
    before, worker = 0, device.slot.pid
    for number in range(3 if what == "memory" else 6):
        if number == 1:  # the first one makes what is kept for the others
            before = free(device)
        if what == "memory":
            with pytest.raises(CannotJudge):
                run(device, "copy", n=80 << 20)
            continue
        made = {"launch": program("refused"), "map": mapped(), "function": program("absent")}[what]
        with pytest.raises(LaunchRefused), closing(device.load(made)) as session:
            session.run({"n": N}, buffers(), LIMITS)
    assert free(device) >= before > 0
    honest(device)
    assert device.slot.pid == worker


def test_buffers_come_back_after_a_refused_run(device: CudaDevice) -> None:
    for size in (N, 70_000, 1 << 20):
        with pytest.raises(LaunchRefused):
            run(device, "refused", n=size)
        outcome = run(device, "copy", n=size)
        assert np.array_equal(outcome.buffers["y"], buffers(size)["x"].data)


def test_a_driver_that_fails_by_itself_is_not_asked_again(device: CudaDevice, tmp_path: Path) -> None:
    honest(device)
    worker = device.slot.pid
    with pytest.raises(InfraError, match="CUDA_ERROR_UNKNOWN"):
        run(device, "fault_unknown")
    honest(device)
    assert device.slot.pid != worker
    (told,) = health(tmp_path / "state")
    assert (told.counts["killed"], told.counts["canary"]) == (1, 1)
