"""The GPU device against a driver's double in real worker processes: runs, faults, hangs, deaths, and what comes after them."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from sandbox.cuda.device import CudaDevice
from sandbox.cuda.ledger import health
from sandbox.device import Buffer, FaultKind, Limits, Outcome, Placement, Program
from sandbox.keeper import Keeper
from sandbox.packing import scalar
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import parse_plan
from tasks.errors import CannotJudge, InfraError, LaunchRefused, WorkerLost
from tests.sandbox.cuda.double import BUSY

DRIVER = "tests.sandbox.cuda.double:Double"
N = 1000
LIMITS = Limits(launch_seconds=0.3)


def program(entry: str, *, params: str = "", args: str = "", extra: str = "") -> Program:
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    text = f"{head}.visible .entry {entry}(.param .u64 x, .param .u64 y, .param .u32 n{params}) {{ ret; }}\n"
    plan = f"launch:\n  - {{entry: {entry}, grid: [1], block: [32], args: [x, y, n{args}]{extra}}}\n"
    return Program(parse_module(text), parse_plan(plan), text, "sm_90a", cubin=b"code")


def buffers(n: int = N) -> dict[str, Buffer]:
    x = np.arange(n, dtype=np.uint32).astype(np.uint8)
    return {"x": Buffer("x", x), "y": Buffer("y", np.full(n, 0xFF, np.uint8), role="output")}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[CudaDevice]:
    made = CudaDevice((0,), driver=DRIVER, state=tmp_path / "state")
    yield made
    made.close()


def run(device: CudaDevice, entry: str, limits: Limits = LIMITS, n: int = N) -> Outcome:
    session = device.load(program(entry))
    try:
        return session.run({"n": n}, buffers(n), limits)
    finally:
        session.close()


def honest(device: CudaDevice) -> None:
    outcome = run(device, "copy")
    assert outcome.fault is None
    assert np.array_equal(outcome.buffers["y"], buffers()["x"].data)


def test_a_run_brings_back_every_buffer(device: CudaDevice) -> None:
    honest(device)
    assert device.slot.pid is not None


def test_the_worker_is_light(device: CudaDevice) -> None:
    loaded = set(device.slot.call(eval, "sorted(__import__('sys').modules)", seconds=10))
    assert not loaded & {"numpy", "torch", "pydantic", "sandbox.device"}
    assert "sandbox.cuda.service" in loaded


FAULTS = {
    "fault_illegal_address": FaultKind.OUT_OF_BOUNDS,
    "fault_misaligned_address": FaultKind.MISALIGNED,
    "fault_illegal_instruction": FaultKind.ILLEGAL_INSTRUCTION,
    "fault_assert": FaultKind.ASSERT,
    "fault_launch_failed": FaultKind.LAUNCH_FAILURE,
    "fault_invalid_pc": FaultKind.BAD_CALL,
    "spin": FaultKind.TIMEOUT,
    "past": FaultKind.OUT_OF_BOUNDS,
    "before": FaultKind.OUT_OF_BOUNDS,
}


@pytest.mark.parametrize("entry", FAULTS)
def test_after_a_fault_or_hang_an_honest_candidate_is_right_at_once(device: CudaDevice, entry: str) -> None:
    honest(device)
    outcome = run(device, entry)
    assert outcome.fault is not None
    assert outcome.fault.kind is FAULTS[entry]
    assert outcome.fault.entry == entry
    honest(device)


def test_stores_beside_a_buffer_are_told_with_their_place(device: CudaDevice) -> None:
    for n in (1, 255, 256, N, 70_000):
        past, before = run(device, "past", n=n).fault, run(device, "before", n=n).fault
        assert before is not None
        if n % 256:  # else the next byte is no longer mapped, and a GPU faults
            assert past is not None
            assert (past.buffer, past.offset, past.buffer_bytes) == ("y", n, n)
        assert (before.buffer, before.offset) == ("y", -4)


def test_a_killed_worker_takes_its_children_along(device: CudaDevice) -> None:
    worker = psutil.Process(device.slot.pid)
    run(device, "family")
    deadline = time.monotonic() + 5
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "600"]]


def test_a_worker_that_dies_is_no_verdict(device: CudaDevice) -> None:
    with pytest.raises(WorkerLost, match="SIGKILL"):
        run(device, "die")
    honest(device)


def test_a_driver_that_does_not_return_is_the_candidates_hang(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.cuda.device.CALL_SECONDS", 0.5)
    outcome = run(device, "block")
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.TIMEOUT
    honest(device)


@pytest.mark.parametrize(
    ("entry", "extra", "said"),
    [
        ("greedy", ", block: [1024]", "at most 512 threads"),
        ("copy", ", dynamic_smem: 232000", "1024 static"),
        ("nowhere", "", "no multiprocessor holds"),
        ("copy", ", cluster: [2, 1, 1]", "cannot hold a cluster of 2"),
        ("refused", "", "CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_a_bad_plan_is_named_and_nothing_is_lost(
    device: CudaDevice, entry: str, extra: str, said: str
) -> None:
    honest(device)
    worker = device.slot.pid
    text = program(entry)
    plan = f"launch:\n  - {{entry: {entry}, grid: [2], args: [x, y, n]"
    plan += (extra if "block" in extra else f"{extra}, block: [32]") + "}\n"
    session = device.load(replace(text, plan=parse_plan(plan)))
    with pytest.raises(LaunchRefused, match=said):
        session.run({"n": N}, buffers(), LIMITS)
    honest(device)
    assert device.slot.pid == worker


def test_code_for_another_gpu_is_refused(device: CudaDevice) -> None:
    with pytest.raises(LaunchRefused, match="NO_BINARY_FOR_GPU"):
        device.load(replace(program("copy"), cubin=b"foreign"))
    honest(device)


def test_memory_that_is_not_there_is_no_verdict(device: CudaDevice) -> None:
    with pytest.raises(CannotJudge, match="not enough free memory"):
        run(device, "copy", n=80 << 20)


def test_parameters_lie_where_the_entry_has_them(device: CudaDevice) -> None:
    kinds = {"u8": 7, "s16": -2, "u32": 9, "f32": 1.5, "u64": 1 << 40, "f64": -0.25}
    params = "".join(f", .param .{kind} p{kind}" for kind in kinds) + ", .param .align 64 .b8 map[128]"
    args = "".join(f", {value}" for value in kinds.values()) + ", m"
    made = program("params", params=params, args=args)
    text = "launch:\n  - {entry: params, grid: [1], block: [32], args: [x, y, n" + args + "]}\n"
    text += "tensor_maps:\n  m: {tensor: x, box: [16], dtype: u8}\n"
    session = device.load(replace(made, plan=parse_plan(text)))
    outcome = session.run({"n": N}, buffers(), LIMITS)
    space = outcome.buffers["y"].tobytes()
    x, _, n = struct.unpack_from("<QQI", space)
    assert n == N
    at = 20
    for kind, value in kinds.items():
        raw = scalar(value, kind)
        at = -(-at // len(raw)) * len(raw)
        assert space[at : at + len(raw)] == raw, kind
        at += len(raw)
    at = -(-at // 64) * 64
    assert struct.unpack_from("<Q", space, at)[0] == x
    assert space[at + 8 : at + 11] == b"u8."


def test_module_variables_last_from_run_to_run_and_come_back(device: CudaDevice) -> None:
    session = device.load(program("count"))
    for expected in (1, 2, 3):
        outcome = session.run({"n": N}, buffers(), replace(LIMITS, variables=("calls",)))
        assert int(outcome.variables["calls"].view(np.uint64)[0]) == expected
    session.close()
    device.fresh()
    outcome = session.run({"n": N}, buffers(), replace(LIMITS, variables=("calls",)))
    assert int(outcome.variables["calls"].view(np.uint64)[0]) == 1


def test_what_is_printed_is_capped_and_never_mixed_up(device: CudaDevice) -> None:
    outcome = run(device, "shout", replace(LIMITS, stdout_bytes=30))
    assert outcome.stdout == (b"check: pass\n" * 3)[:30]
    assert outcome.stdout_dropped == 12 * N - 30
    assert run(device, "copy").stdout == b""


def test_buffers_stay_or_move_as_asked(device: CudaDevice) -> None:
    def places(how: Placement) -> bytes:
        made = program("params")
        outcome = device.load(made).run({"n": N}, buffers(), replace(LIMITS, placement=how))
        return outcome.buffers["y"].tobytes()[:16]

    first = places(Placement.ANY)
    assert places(Placement.KEEP) == first
    moved = places(Placement.MOVE)
    assert moved[:8] != first[:8]
    assert moved[8:] != first[8:]
    assert places(Placement.KEEP) == moved


def test_a_gpu_that_fails_its_canary_twice_is_quarantined(
    device: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest(device)
    device.slot._spare.close()  # type: ignore[union-attr]
    device.slot._spare = None
    counter = tmp_path / "sick"
    monkeypatch.setenv(BUSY, str(counter))
    counter.write_text("1")
    run(device, "spin")
    honest(device)  # the first fresh worker was sick, the second well
    device.slot._spare.close()  # type: ignore[union-attr]
    device.slot._spare = None
    counter.write_text("9")
    run(device, "spin")
    for _ in range(2):
        with pytest.raises(InfraError, match="quarantined"):
            run(device, "copy")
    (told,) = health(tmp_path / "state")
    assert told.quarantined
    assert told.counts["killed"] == 2
    assert told.counts["sick"] == 3
    assert told.counts["canary"] == 1


def test_another_gpu_takes_over_from_one_in_quarantine(tmp_path: Path) -> None:
    device = CudaDevice((0, 1), driver=DRIVER, state=tmp_path)
    honest(device)
    assert device.slot.gpu.index == 0
    device.slot._quarantined = "GPU 0 is quarantined"
    outcome = run(device, "copy")
    assert device.slot.gpu.index == 1
    assert [each.kind for each in outcome.notices] == ["host_memory"]
    device.close()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    me = psutil.Process()
    files, children = me.num_fds(), len(me.children(recursive=True))
    device = CudaDevice((0,), driver=DRIVER, state=tmp_path)
    for _ in range(3):
        honest(device)
        run(device, "fault_illegal_address")
    device.close()
    assert len(me.children(recursive=True)) == children
    assert me.num_fds() <= files


def test_memory_stays_bounded_over_many_candidates(device: CudaDevice) -> None:
    honest(device)
    before = psutil.Process().memory_info().rss
    for number in range(60):
        run(device, ("copy", "past", "fault_assert")[number % 3])
    assert psutil.Process().memory_info().rss - before < 30 << 20


def test_locks_are_exclusive_fair_and_freed_by_death(device: CudaDevice, tmp_path: Path) -> None:
    lock = tmp_path / "state" / f"{device.slot.gpu.uuid}.lock"
    with device.shared(), device.shared():
        assert not _exclusive_within(tmp_path, 0.2)
    with device.exclusive():
        honest(device)  # runs go on under the process's own exclusive lock
        assert not _exclusive_within(tmp_path, 0.2)
    assert _exclusive_within(tmp_path, 5)
    holder = Keeper()
    holder.call(_hold, str(lock), seconds=5)
    holder.kill()
    assert _exclusive_within(tmp_path, 5)


def _exclusive_within(state: Path, seconds: float) -> bool:
    keeper = Keeper()
    try:
        keeper.call(_take, str(state / "state"), seconds=seconds + 0.3)
    except WorkerLost:
        return False
    finally:
        keeper.kill()
    return True


def _take(state: str) -> None:
    from sandbox.cuda.locks import GpuLock

    with GpuLock(Path(state), "GPU-0").exclusive():
        pass


def _hold(path: str) -> None:
    import fcntl

    fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)
