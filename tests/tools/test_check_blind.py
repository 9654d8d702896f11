"""check on a device that sees neither what is written nor who runs first: the verdicts and reasons that the emulator gives."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from sandbox.device import HANGS, Fault, Placement, Program
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.registry import list_tasks, load_task
from tests.tasks.mutants import MUTANTS, RACES, Mutant
from tests.tools.machines import Blind, Instant, Ran
from tests.tools.test_corpus import EXPECTED, PLAN, read
from tools import blame
from tools.check import LAUNCHES, check
from tools.evaluation import Verdict
from tools.judging import DUMMIES, CheckResult
from tools.problem import named_workloads, problem
from tools.trial import FILLS, RESIDUES, ZERO, Trial, limits_of, masked

SEED = 977
AFFINE = load_task("affine")
HARDWARE = {"row_sum-barrier_for_one_warp"}
"""Bugs that hardware may not fault on: to the emulator such a barrier is undefined."""
JUDGED = (Verdict.WRONG_OUTPUT, Verdict.FAULT, Verdict.HANG, Verdict.LAUNCH_ERROR)
BAD = {name: want for name, want in EXPECTED.items() if want.verdict in JUDGED}
SLOW = (
    "row_softmax",
    "rms_norm",
    "gelu",
    "histogram-step_of_the_grid",
    "histogram-blocks",
    "histogram-not_atomic",
)
"""Starts of names of bugs that are left out here: judging them takes long, and others are of their kind."""
QUICK = [
    mutant
    for mutant in MUTANTS
    if mutant.verdict in JUDGED and not mutant.name.startswith(SLOW) and mutant.name not in HARDWARE
]


def program(text: str) -> Program:
    candidate = read_candidate(text)
    return Program(parse_module(candidate.ptx, candidate.ptx_first_line), candidate.plan, text, "sm_90a")


H01 = program(PLAN + read("h01_ok"))


def reason(found: CheckResult) -> str:
    return "" if found.numerics is None else found.numerics.reason


@pytest.mark.parametrize("name", BAD)
def test_a_bad_candidate_of_the_corpus_is_told_as_the_emulator_tells_it(name: str) -> None:
    want = BAD[name]
    found = check(program(PLAN + read(name)), AFFINE, Blind(1), SEED)
    assert found.verdict is want.verdict, found.summary
    if want.verdict is Verdict.WRONG_OUTPUT:
        assert reason(found) == want.why, found.summary
    if want.verdict in (Verdict.FAULT, Verdict.HANG):
        assert found.fault is not None
        assert found.workload
        assert (found.fault.kind in HANGS) is (want.verdict is Verdict.HANG)


def test_a_good_candidate_passes() -> None:
    found = check(H01, AFFINE, Blind(1), SEED)
    assert found.verdict is Verdict.CORRECT
    assert found.numerics is not None
    assert found.numerics.deterministic is True


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    found = check(program(mutant.text), load_task(mutant.task), Blind(2), SEED)
    assert found.verdict is mutant.verdict, found.summary
    if "nothing wrote" in mutant.says:
        assert reason(found) == "residue"
    if "never written" in mutant.says:
        assert reason(found) == "unwritten"


@pytest.mark.parametrize("mutant", RACES, ids=lambda mutant: mutant.name)
def test_a_missing_barrier_that_shows_in_some_runs_is_a_race(mutant: Mutant) -> None:
    found = check(program(mutant.text), load_task(mutant.task), Blind(3), SEED)
    assert (found.verdict, reason(found)) == (Verdict.WRONG_OUTPUT, "race"), found.summary
    assert found.numerics is not None
    assert found.numerics.deterministic is False


def spoilt(ran: Ran) -> None:
    ran.after["y"][-4:] = np.frombuffer(struct.pack("<f", 12345.0), np.uint8)


def by_address(ran: Ran) -> None:
    if ran.place % 3 == 2:
        spoilt(ran)


def by_launch(ran: Ran) -> None:
    if ran.number >= 9:
        spoilt(ran)


def cached_by_address(ran: Ran) -> None:
    """Answers what it answered before where the addresses are those of before."""
    if ran.kept.get("place") == ran.place and ran.kept["y"].size == ran.after["y"].size:
        ran.after["y"][:] = ran.kept["y"]
    ran.kept.update(place=ran.place, y=ran.after["y"].copy())


def by_residue(ran: Ran) -> None:
    if ran.limits.poison == ZERO:
        spoilt(ran)


def by_old_output(ran: Ran) -> None:
    old = ran.before["y"].data.view(np.float32)
    ran.after["y"].view(np.float32)[:] += np.where(np.isnan(old), np.float32(3), np.float32(7))


def half_unwritten(ran: Ran) -> None:
    count = ran.after["y"].size // 8 * 4
    ran.after["y"][count:] = ran.before["y"].data[count:]


def by_luck(ran: Ran) -> None:
    if LUCK.random() < 0.3:
        spoilt(ran)


def skips_what_looks_done(ran: Ran) -> None:
    if ran.before["y"].data[:4].tobytes() not in (bytes([fill]) * 4 for fill in (*FILLS, ZERO, *RESIDUES)):
        ran.after["y"][:] = ran.before["y"].data


def writes_its_input(ran: Ran) -> None:
    ran.after["x"][0] ^= 1


LUCK = random.Random(5)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (by_address, "address"),
        (by_launch, "state"),
        (cached_by_address, "state"),
        (by_residue, "residue"),
        (by_old_output, "residue"),
        (half_unwritten, "unwritten"),
        (by_luck, "race"),
        (skips_what_looks_done, "replay"),
        (writes_its_input, "input_mutated"),
        (spoilt, "values"),
    ],
)
def test_each_reason_is_an_experiment(spoil, why: str) -> None:  # type: ignore[no-untyped-def]
    found = check(H01, AFFINE, Instant(AFFINE, spoil), SEED)
    assert (found.verdict, reason(found)) == (Verdict.WRONG_OUTPUT, why), found.summary
    assert found.summary


def test_experiments_end_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "SECONDS", 0.0)
    device = Instant(AFFINE, spoilt)
    found = check(H01, AFFINE, device, SEED)
    assert reason(found) == "values"
    assert device.runs == 2


def test_bits_that_vary_are_reported_and_not_punished() -> None:
    def last_bit(ran: Ran) -> None:
        ran.after["y"].view(np.uint32)[0] ^= ran.place & 1

    found = check(H01, AFFINE, Instant(AFFINE, last_bit), SEED)
    assert found.verdict is Verdict.CORRECT
    assert found.numerics is not None
    assert found.numerics.deterministic is False


@pytest.mark.parametrize(
    ("declared", "writes"),
    [
        ("", ""),
        ("", "st.global.u32 [calls], 1;"),
        (" = 7", "ld.global.u32 %r12, [calls]; add.u32 %r12, %r12, 1; st.global.u32 [calls], %r12;"),
    ],
)
def test_a_module_variable_that_a_kernel_writes_is_warned_of(declared: str, writes: str) -> None:
    text = (PLAN + read("h01_ok")).replace(".visible", f".global .u32 calls{declared};\n.visible", 1)
    found = check(program(text.replace("ret;", f"{writes} ret;")), AFFINE, Blind(), SEED)
    assert found.verdict is Verdict.CORRECT
    warned = [each for each in found.warnings if each.kind == "persistent_state"]
    assert len(warned) == bool(writes)
    assert all("calls" in each.message for each in warned)


@pytest.mark.parametrize("task", ["vector_add", "row_softmax", "histogram", "gemm_f16_mma"])
def test_every_task_has_every_experiment(task: str) -> None:
    loaded = load_task(task)
    solution = loaded.solution("sm_90a")
    assert solution is not None
    device = Instant(loaded)
    found = check(program(solution.read_text()), loaded, device, SEED)
    assert found.verdict is Verdict.CORRECT
    assert found.numerics is not None
    workloads = len(found.numerics.workloads)
    assert device.loads == 1 + workloads
    assert device.runs >= LAUNCHES
    placements, residues, dummies = (set(column) for column in zip(*device.asked, strict=True))
    assert placements == set(Placement)
    assert residues == {*RESIDUES, ZERO}
    assert dummies == set(range(DUMMIES + 1))


def test_unwritten_elements_are_told_by_two_patterns_even_where_one_equals_the_answer() -> None:
    workload, name = named_workloads(AFFINE, ("emulate",))[0]  # type: ignore[arg-type]
    made = problem(AFFINE, workload, name, 4)
    trial = Trial(made, made.filled(FILLS[1]), False, RESIDUES[0])
    right = made.expected["y"].honest.numpy().view(np.uint8).copy()
    right[:4] = FILLS[1]  # an answer that equals the pattern in one run
    first, second = right.copy(), right.copy()
    first[-4:], second[-4:] = FILLS[1], FILLS[0]
    outcomes = (_outcome({"y": first}), _outcome({"y": second}))
    written = masked(trial, outcomes[0], trial.twin, outcomes[1]).written
    assert written is not None
    assert written["y"].reshape(-1, 4).all(axis=1).tolist() == [True] * 999 + [False]


def test_a_hang_on_the_first_workload_is_waited_for_little_more_than_a_second() -> None:
    for task in map(load_task, list_tasks("starter")):
        workload, name = named_workloads(task, ("emulate",))[0]  # type: ignore[arg-type]
        assert limits_of(problem(task, workload, name, 1), H01).launch_seconds < 3


def _outcome(buffers):  # type: ignore[no-untyped-def]
    from sandbox.device import Counts, Outcome

    return Outcome(buffers, None, Counts())


def test_a_hidden_workload_is_not_named_by_a_failure() -> None:
    secret = [workload for workload, name in named_workloads(AFFINE, ("hidden",)) if name != workload.name]  # type: ignore[arg-type]
    shape = secret[0].axes["n"]

    def on_secret(ran: Ran) -> None:
        if ran.after["y"].size == 4 * shape:
            spoilt(ran)

    found = check(H01, AFFINE, Instant(AFFINE, on_secret), SEED)
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert found.workload == ""
    assert str(shape) not in found.summary
    assert secret[0].name not in found.summary.split()


def test_faults_are_kept_as_the_device_tells_them() -> None:
    found = check(program(PLAN + read("c70_illegal")), AFFINE, Blind(), SEED)
    assert isinstance(found.fault, Fault)
    assert found.fault.line is None
    assert found.workload == "small"
