"""Screening: the emulator judges first, and what it refuses costs no GPU. A double that counts its programs stands for the GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sandbox.device import Fault, FaultKind, Program, Session, Traits
from sandbox.emulator.device import EmulatorDevice
from tasks.errors import CannotJudge, PtxmendError
from tasks.registry import load_task
from tools import devices, ladder
from tools.evaluation import Evaluation, Stage, Verdict
from tools.judging import CheckResult
from tools.ladder import Job, evaluate


@dataclass
class Gpu:
    """Runs programs as the emulator does, and counts them."""

    inner: EmulatorDevice = field(default_factory=lambda: EmulatorDevice("sm_90a"))
    loaded: int = 0

    @property
    def name(self) -> str:
        return "cuda"

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    def load(self, program: Program) -> Session:
        self.loaded += 1
        return self.inner.load(program)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda arch, gpus: made)
    return made


def judged(text: str, **settings: Any) -> Evaluation:
    return evaluate(Job("vector_add", "sm_90a", text, seed=3, device="cuda", **settings)).evaluation


def solution() -> str:
    path = load_task("vector_add").solution("sm_90a")
    assert path is not None
    return path.read_text()


WRONG = ("add.rn.f32 %u0, %u0, %v0", "sub.rn.f32 %u0, %u0, %v0")


def test_what_passes_on_the_emulator_is_judged_on_the_gpu(gpu: Gpu) -> None:
    told = judged(solution(), screen=True)
    assert (told.verdict, told.device) == (Verdict.CORRECT, "cuda")
    assert gpu.loaded


def test_what_the_emulator_refuses_costs_no_gpu(gpu: Gpu) -> None:
    told = judged(solution().replace(*WRONG), screen=True)
    assert (told.verdict, told.device, told.stopped_at) == (Verdict.WRONG_OUTPUT, "emulator", Stage.CHECK)
    assert not gpu.loaded
    unscreened = judged(solution().replace(*WRONG))
    assert (unscreened.verdict, unscreened.device) == (Verdict.WRONG_OUTPUT, "cuda")
    assert gpu.loaded


@pytest.mark.parametrize(
    "found",
    [
        CannotJudge("an instruction that the emulator does not know"),
        CheckResult(
            Verdict.HANG, "out of steps", fault=Fault(kind=FaultKind.STEP_LIMIT, message="out of steps")
        ),
    ],
    ids=["unknown", "slow"],
)
def test_what_the_emulator_cannot_judge_goes_to_the_gpu(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, found: PtxmendError | CheckResult
) -> None:
    real = ladder.checking.check

    def check(program: Any, task: Any, device: Any, seed: int) -> CheckResult:
        if device is gpu:
            return real(program, task, device, seed)
        if isinstance(found, PtxmendError):
            raise found
        return found

    monkeypatch.setattr(ladder.checking, "check", check)
    told = judged(solution(), screen=True)
    assert (told.verdict, told.device) == (Verdict.CORRECT, "cuda")
    assert gpu.loaded
