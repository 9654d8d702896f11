"""The ladder as the loop and the command line call it: stage by stage, in workers, and on garbage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sandbox.pool import Pool
from tasks.errors import CannotJudge, InputError
from tools import ladder
from tools.evaluation import Evaluation, Stage, StageSeconds, Verdict
from tools.ladder import STAGES, Job, StageResult, evaluate

FOLDER = Path(__file__).parents[1] / "corpus" / "candidates"
PLAN = '//! launch:\n//!   - {entry: k, grid: ["cdiv(n, 256)"], block: [256], args: [x, y, n]}\n'
RIGHT = PLAN + (FOLDER / "h01_ok.ptx").read_text()


def job(text: str | None, **options: object) -> Job:
    return Job(**({"task": "affine", "arch": "sm_90a", "text": text, "seed": 3} | options))  # type: ignore[arg-type]


def timeless(evaluation: Evaluation) -> Evaluation:
    assembly = evaluation.assembly and evaluation.assembly.model_copy(update={"seconds": 0.0})
    return evaluation.model_copy(update={"seconds": StageSeconds(), "assembly": assembly})


def test_a_right_candidate_climbs_to_the_top() -> None:
    result = evaluate(job(RIGHT))
    found = result.evaluation
    assert (found.verdict, found.stopped_at, found.targets_met) == (Verdict.CORRECT, None, True)
    assert found.timing is None
    assert "not timed" in found.summary
    assert result.blobs["candidate.ptx"].decode() == RIGHT
    assert result.blobs["cubin"].startswith(b"\x7fELF")
    assert Evaluation.model_validate_json(found.model_dump_json()) == found


def test_the_same_job_gives_the_same_evaluation() -> None:
    text = PLAN + (FOLDER / "c12_fingerprint.ptx").read_text()
    assert timeless(evaluate(job(text)).evaluation) == timeless(evaluate(job(text)).evaluation)


async def test_stages_run_in_workers_and_agree_with_one_climb() -> None:
    pool = Pool(1, memory_bytes=4 << 30, seconds=120)
    evaluation: Evaluation | None = None
    try:
        for _, stage in STAGES:
            result: StageResult = await pool.call(stage, job(RIGHT), evaluation)
            evaluation = result.evaluation
            assert evaluation.stopped_at is None
    finally:
        await pool.close()
    assert evaluation is not None
    assert timeless(evaluation) == timeless(evaluate(job(RIGHT)).evaluation)


def test_no_text_is_no_candidate_with_the_reason() -> None:
    found = evaluate(job(None, reason="the answer was cut off")).evaluation
    assert (found.verdict, found.stopped_at, found.candidate) == (Verdict.NO_CANDIDATE, Stage.ASSEMBLE, None)
    assert "cut off" in found.summary


def test_a_bad_plan_does_not_hide_what_the_assembler_says() -> None:
    text = (FOLDER / "c106_missing_semicolon.ptx").read_text()
    found = evaluate(job(text)).evaluation
    assert found.verdict is Verdict.BAD_PLAN
    assert found.stopped_at is Stage.ASSEMBLE
    kinds = [each.kind for each in found.diagnostics]
    assert kinds[0] == "bad_plan"
    assert len(kinds) > 1
    assert all(each.hint for each in found.diagnostics)


def test_a_plan_error_names_the_line() -> None:
    text = RIGHT.replace("args: [x, y, n]", "args: [x, z, n]")
    found = evaluate(job(text)).evaluation
    assert found.verdict is Verdict.BAD_PLAN
    assert found.diagnostics[0].line is not None
    assert "z" in found.summary


def test_lines_are_those_of_the_whole_file() -> None:
    text = PLAN + (FOLDER / "c70_illegal.ptx").read_text()
    found = evaluate(job(text)).evaluation
    assert found.fault is not None
    assert found.fault.line is not None
    assert "st.global.f32 [%rd8]" in text.split("\n")[found.fault.line - 1]


def test_what_only_our_reader_refuses_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ladder.parse_module
    monkeypatch.setattr(ladder, "parse_module", lambda text, first_line=1: real("nonsense", first_line))
    ladder._read.cache_clear()
    try:
        with pytest.raises(CannotJudge, match="our own reader"):
            evaluate(job(RIGHT))
    finally:
        ladder._read.cache_clear()


def test_what_a_person_gets_wrong_is_an_input_error() -> None:
    with pytest.raises(InputError, match="emulator"):
        evaluate(job(RIGHT, device="abacus"))
    with pytest.raises(InputError):
        evaluate(job(RIGHT, task="no_such_task"))


STRAIGHT = PLAN + (FOLDER / "h01_ok.ptx").read_text().replace(
    "DONE:", "add.u32 %r9, %r9, 1;\n" * 160_000 + "DONE:"
)
NOISE = random.Random(1).randbytes(1 << 20).decode("latin-1")
GARBAGE = {
    "noise": (NOISE, {Verdict.BAD_PLAN}),
    "noise under a plan": (PLAN + NOISE, {Verdict.ASSEMBLE_ERROR}),
    "empty": ("", {Verdict.BAD_PLAN}),
    "a NUL": (RIGHT.replace("ret;", "\0ret;"), {Verdict.ASSEMBLE_ERROR}),
    "160,000 instructions": (STRAIGHT, {Verdict.ASSEMBLE_ERROR, Verdict.CORRECT}),
    "code in the plan": (RIGHT.replace("cdiv(n, 256)", "__import__('os')"), {Verdict.BAD_PLAN}),
    "a negative grid": (RIGHT.replace("cdiv(n, 256)", "0 - n"), {Verdict.BAD_PLAN, Verdict.LAUNCH_ERROR}),
    "an astronomical grid": (
        RIGHT.replace("cdiv(n, 256)", "n * 10000000000000"),
        {Verdict.BAD_PLAN, Verdict.LAUNCH_ERROR},
    ),
    "a YAML bomb": ("//! a: &a [1,1]\n//! b: &b [*a,*a]\n//! c: [*b,*b]\n" + RIGHT, {Verdict.BAD_PLAN}),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_clearly(name: str) -> None:
    text, verdicts = GARBAGE[name]
    found = evaluate(job(text)).evaluation
    assert found.verdict in verdicts, found.summary[:300]
    assert 0 < len(found.summary) < 2000
