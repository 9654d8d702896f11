"""The corpus and the solutions judged on a real GPU: the emulator's verdicts, reasons and kinds of fault; and right after each bad one an
honest candidate, judged right at once.
"""

from __future__ import annotations

import time

import pytest

from sandbox.cuda.device import suiting
from tasks.registry import list_tasks, load_task
from tests.tools.test_corpus import EXPECTED, PLAN, SEED, read
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import STAGES, Job

pytestmark = pytest.mark.gpu

DIFFER: dict[str, tuple[Verdict, str]] = {
    "c25_host_scan": (Verdict.CORRECT, "the address lies in the window of the kernel's own shared memory"),
    "c31_discard": (Verdict.CORRECT, "discarded lines are undefined: they may stay as they were"),
    "c61_mbarrier_never": (Verdict.FAULT, "other warps wait on a barrier object that is not made yet"),
}
"""Candidates that hardware may also judge so, and why."""
REASONS = {
    "c107_type_mismatch": {"residue", "values", "nonfinite"},
    "c122_uninit_reg": {"residue", "values", "nonfinite"},
}
"""Where registers that nothing wrote decide, hardware may answer the same every time."""
AT_ONCE = 5.0
"""Seconds for an honest candidate after a bad one: a spare worker waits, and the GPU proves itself by a canary."""


@pytest.fixture(autouse=True)
def _gpu() -> None:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")


def judged(text: str, task: str = "affine", seed: int = SEED) -> Evaluation:
    """Up to check, on the GPU."""
    job = Job(task, "sm_90a", text, seed=seed, device="cuda")
    found: Evaluation | None = None
    for stage, function in STAGES:
        found = function(job, found).evaluation
        if stage is Stage.CHECK or found.stopped_at is not None:
            break
    assert found is not None
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_a_candidate_of_the_corpus(name: str) -> None:
    want = EXPECTED[name]
    found = judged(PLAN + read(name))
    assert found.assembly is not None
    old = tuple(map(int, found.assembly.ptxas.split(".")[:2])) < (13, 5)
    verdict = want.old_ptxas if old and want.old_ptxas is not None else want.verdict
    allowed = {verdict, *([DIFFER[name][0]] if name in DIFFER else [])}
    assert found.verdict in allowed, found.summary
    if found.verdict is want.verdict is Verdict.WRONG_OUTPUT:
        assert found.numerics is not None
        assert found.numerics.reason in REASONS.get(name, {want.why}), found.summary
    if found.verdict is want.verdict and want.verdict in (Verdict.FAULT, Verdict.HANG):
        assert found.fault is not None
        assert found.fault.kind == want.why, found.summary
        assert found.fault.line is not None, found.summary
    if found.verdict is Verdict.CORRECT:
        unseen = {"unwritten_read", "hazard"}  # only the emulator sees these
        assert want.warnings - unseen <= {each.kind for each in found.warnings}
    began = time.monotonic()
    honest = judged(PLAN + read("h01_ok"), seed=SEED + 1)
    assert honest.verdict is Verdict.CORRECT, honest.summary
    assert time.monotonic() - began < AT_ONCE


@pytest.mark.parametrize("name", [each for each in list_tasks() if load_task(each).solution("sm_90a")])
def test_a_solution_is_correct(name: str) -> None:
    path = load_task(name).solution("sm_90a")
    assert path is not None
    found = judged(path.read_text(), name)
    assert found.verdict is Verdict.CORRECT, found.summary


def test_warm_check_of_a_small_candidate_is_quick() -> None:
    text = PLAN + read("h01_ok")
    judged(text, seed=1)
    seconds = [judged(text, seed=seed).seconds.check for seed in range(2, 7)]
    assert sorted(seconds)[2] <= 0.15, seconds
