"""The ladder on a real GPU: corpus, solutions, Hopper's own instructions, and counts against the emulator's. Needs an H100 or H200."""

from __future__ import annotations

import pytest

from sandbox.cuda.device import suiting
from sandbox.emulator.device import EmulatorDevice
from tasks.registry import list_tasks, load_task
from tests.tools import hopper
from tests.tools.test_corpus import EXPECTED, PLAN, read
from tools import prove
from tools.evaluation import Depth, Evaluation, Target, Verdict
from tools.ladder import STAGES, Job, Stage, _climbing, _program

pytestmark = pytest.mark.gpu

DIFFER = {
    "c25_host_scan": (
        Verdict.FAULT,
        Verdict.CORRECT,
    ),  # the address lies in the window of the kernel's own shared memory
    "c61_mbarrier_never": (
        Verdict.HANG,
        Verdict.FAULT,
    ),  # other warps wait on a barrier object that is not made yet
    "c31_discard": (Verdict.WRONG_OUTPUT, Verdict.CORRECT),  # what is undefined may stay as it was
}
"""Corpus candidates that hardware may judge otherwise than the emulator."""


@pytest.fixture(autouse=True)
def _gpu() -> None:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")


def judged(text: str, task: str = "affine", require: tuple[str, ...] = ()) -> Evaluation:
    """All stages but the timing."""
    job = Job(task, "sm_90a", text, require=require, seed=977, device="cuda")
    found: Evaluation | None = None
    for stage, function in STAGES:
        if stage is Stage.MEASURE or (found is not None and found.stopped_at is not None):
            break
        found = function(job, found).evaluation
    assert found is not None
    return found


def target(found: Evaluation, family: str) -> Target:
    return next(each for each in found.targets if each.family == family)


@pytest.mark.parametrize("name", EXPECTED)
def test_corpus(name: str) -> None:
    want = EXPECTED[name]
    found = judged(PLAN + read(name), require=(want.require,) if want.require else ())
    new = found.assembly is not None and tuple(map(int, found.assembly.ptxas.split(".")[:2])) >= (13, 5)
    verdict = want.verdict if new or want.old_ptxas is None else want.old_ptxas
    assert found.verdict in DIFFER.get(name, (verdict,)), found.summary
    if want.depth is not None and found.verdict is Verdict.CORRECT:
        assert target(found, want.require).depth is want.depth
    for kind in {"timer", "l2", "stdout"} & want.warnings:
        assert kind in {each.kind for each in found.warnings}
    if found.verdict in (Verdict.FAULT, Verdict.HANG):
        after = judged(PLAN + read("h01_ok"))
        assert after.verdict is Verdict.CORRECT, after.summary


@pytest.mark.parametrize("name", list_tasks("starter"))
def test_solutions_are_correct_and_counted_as_the_emulator_counts(name: str) -> None:
    path = load_task(name).solution("sm_90a")
    assert path is not None
    found = judged(path.read_text(), name)
    assert (found.verdict, found.targets_met) == (Verdict.CORRECT, True), found.summary
    for each in load_task(name).targets_for("sm_90a").all:
        assert target(found, each).depth is Depth.LOAD_BEARING
    job = Job(name, "sm_90a", path.read_text(), seed=977, device="emulator")
    sofar = found.model_copy(
        update={"targets": tuple(each.model_copy(update={"depth": Depth.IN_SASS}) for each in found.targets)}
    )
    _, candidate, module = _climbing(job, sofar)
    proof = prove.prove(
        _program(job, candidate, module), load_task(name), EmulatorDevice("sm_90a"), 977, sofar.targets
    )
    assert [each.executed for each in proof.targets] == [each.executed for each in found.targets]


def test_a_real_wgmma_bears_load() -> None:
    found = judged(hopper.gemm(), "gemm_bf16_async", ("wgmma", "tma_load"))
    assert found.verdict is Verdict.CORRECT, found.summary
    for family in ("wgmma", "tma_load"):
        assert (target(found, family).depth, target(found, family).knocked_out) == (
            Depth.LOAD_BEARING,
            "changed",
        )
    assert target(found, "wgmma").share == pytest.approx(1, abs=0.01)
    assert target(found, "tma_load").share == pytest.approx(0.8)  # the rest of the bytes is the output


@pytest.mark.parametrize("use", hopper.USES)
def test_a_decorative_wgmma_stops_at_executed(use: str) -> None:
    found = judged(hopper.decorated(use), "gemm_bf16_async", ("wgmma",))
    assert found.verdict is Verdict.CORRECT, found.summary
    seen = target(found, "wgmma")
    assert (seen.depth, seen.knocked_out, seen.met) == (Depth.EXECUTED, "unchanged", False)
    assert target(found, "mma_sync").depth is Depth.LOAD_BEARING
