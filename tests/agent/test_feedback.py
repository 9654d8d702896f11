"""What a model reads is the truth of its evaluation: every verdict, each thing once, never too long."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from agent.feedback import (
    MAX_CHARACTERS,
    MAX_DIAGNOSTICS,
    MAX_DIFF_LINES,
    MAX_MISMATCHES,
    MAX_WARNINGS,
    VERDICTS,
    render,
)
from sandbox.device import Fault, FaultKind
from tasks.errors import InputError
from tasks.registry import load_task
from tools import ladder
from tools.evaluation import (
    Depth,
    Diagnostic,
    Evaluation,
    Mismatch,
    Numerics,
    Target,
    Timing,
    Verdict,
    Warning_,
)
from tools.ladder import Job

CLOSING = "Answer with the whole corrected file in one fenced code block."


@cache
def solution(task: str) -> str:
    path = load_task(task).solution("sm_90a")
    assert path is not None
    return path.read_text()


def changed(task: str, *pairs: tuple[str, str]) -> str:
    text = solution(task)
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


VARIANTS: dict[str, tuple[str, tuple[tuple[str, str], ...], Verdict]] = {
    "unknown instruction": ("vector_add", (("add.rn.f32 %u1", "addd.f32 %u1"),), Verdict.ASSEMBLE_ERROR),
    "undeclared": ("vector_add", (("%v<4>", "%w<4>"),), Verdict.ASSEMBLE_ERROR),
    "bad plan": ("vector_add", (("args: a, b, c, n", "args: a, b, z, n"),), Verdict.BAD_PLAN),
    "launch": ("vector_add", (("block: 256", "block: 2560"),), Verdict.LAUNCH_ERROR),
    "fault": ("row_sum", (("[%x];", "[%x+4096];"),), Verdict.FAULT),
    "hang": ("row_sum", (("  bar.sync 0;", "SPIN:\n  bra SPIN;"),), Verdict.HANG),
    "wrong": ("row_sum", (("setp.lt.u32 %p3, %j, 8", "setp.lt.u32 %p3, %j, 7"),), Verdict.WRONG_OUTPUT),
    "twice": (
        "vector_add",
        (("add.rn.f32 %u0, %u0, %v0", "sub.rn.f32 %u0, %u0, %v0"),),
        Verdict.WRONG_OUTPUT,
    ),
    "unwritten": ("row_sum", (("  st.global.f32 [%y], %sum;\n", ""),), Verdict.WRONG_OUTPUT),
    "correct": ("row_sum", (), Verdict.CORRECT),
}


@cache
def judged(name: str) -> Evaluation:
    task, pairs, _ = VARIANTS[name]
    return ladder.evaluate(Job(task, "sm_90a", changed(task, *pairs), seed=3)).evaluation


@cache
def without_a_candidate() -> Evaluation:
    job = Job("row_sum", "sm_90a", None, reason="The answer is truncated: it stops at the token limit.")
    return ladder.evaluate(job).evaluation


def told(evaluation: Evaluation, **options: Any) -> str:
    return render(evaluation, **({"arm": "feedback", "turn": 2, "turns": 4} | options))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_verdict_is_told_with_its_cause(name: str) -> None:
    evaluation = judged(name)
    assert evaluation.verdict is VARIANTS[name][2], evaluation.summary
    text = told(evaluation)
    assert text.startswith(f"## Turn 2 of 4: {VERDICTS[evaluation.verdict]}\n")
    assert text.endswith(f"\n{CLOSING}\n")
    assert "\n\n\n" not in text
    assert len(text) <= MAX_CHARACTERS
    for diagnostic in evaluation.diagnostics:
        if diagnostic.severity == "error":
            assert text.count(diagnostic.message) == 1
            assert diagnostic.hint in text
            assert str(diagnostic.line) in text
    if evaluation.fault:
        assert text.count(evaluation.fault.message) == 1
        assert f"Line {evaluation.fault.line}: `{evaluation.fault.source}`" in text
    if not evaluation.diagnostics:
        assert text.count(evaluation.summary) == 1


def test_all_verdicts_have_words() -> None:
    assert set(VERDICTS) == set(Verdict)
    assert len(set(VERDICTS.values())) == len(Verdict)


def test_the_reason_why_there_is_no_kernel_is_told() -> None:
    text = told(without_a_candidate())
    assert VERDICTS[Verdict.NO_CANDIDATE] in text
    assert "truncated: it stops at the token limit" in text


def test_a_candidate_that_was_only_assembled_is_not_called_correct() -> None:
    made = ladder.assemble(Job("row_sum", "sm_90a", solution("row_sum"), seed=3)).evaluation
    assert VERDICTS[Verdict.LOAD_ERROR] in told(made)


def test_a_wrong_output_names_place_and_values_once() -> None:
    text = told(judged("wrong"))
    assert text.count("first y[0] = ") == 1
    assert "Where the output is wrong" not in text, "nothing is left to say there"


def test_an_output_never_written_is_said_once() -> None:
    assert told(judged("unwritten")).count("are never written") == 1


def test_facts_that_the_summary_lacks_are_told_of_the_same_mismatch() -> None:
    evaluation = judged("wrong")
    assert evaluation.numerics is not None
    first = evaluation.numerics.mismatches[0].model_copy(update={"ratio": 2.0, "max_ulp": None})
    numerics = evaluation.numerics.model_copy(update={"mismatches": (first,)})
    text = told(evaluation.model_copy(update={"numerics": numerics}))
    assert f"- workload {first.workload}: every wrong element is 2 times what it should be\n" in text
    assert text.count("first y[0] = ") == 1


def test_a_missing_target_is_said_of_a_correct_kernel() -> None:
    job = Job("vector_add", "sm_90a", solution("vector_add"), require=("mma_sync",), seed=3)
    evaluation = ladder.evaluate(job).evaluation
    assert (evaluation.verdict, evaluation.targets_met) == (Verdict.CORRECT, False)
    text = told(evaluation)
    assert "correct, but required instructions are missing" in text
    assert "`mma_sync`: not reached (absent" in text
    note = next(each.note for each in evaluation.targets if each.required)
    assert text.count(note) == 1


def test_the_verdict_arm_says_nothing_more() -> None:
    for name in VARIANTS:
        evaluation = judged(name)
        text = told(
            evaluation, arm="verdict", best=judged("correct"), best_turn=1, best_text="x", candidate_text="y"
        )
        assert text.split() == f"Turn 2 of 4: {VERDICTS[evaluation.verdict]}. {CLOSING}".split()


def test_only_the_diagnostics_arm_hides_the_speed() -> None:
    timing = Timing(
        baseline="torch", speedup=1.2345, low=1.1, high=1.3, candidate_ms=2.0, baseline_ms=2.5, device="GPU"
    )
    evaluation = judged("correct").model_copy(update={"timing": timing})
    assert "1.234 times as fast" in told(evaluation)
    hidden = told(evaluation, arm="diagnostics")
    assert "Speed" not in hidden
    assert "times as fast" not in hidden
    assert told(judged("fault"), arm="diagnostics") == told(judged("fault"))


def diagnostic(severity: Any, number: int, **more: Any) -> Diagnostic:
    return Diagnostic(
        severity=severity, kind=f"kind_{number}", message=f"{severity} no {number}.", line=number + 1, **more
    )


def test_errors_come_first_and_information_only_without_them() -> None:
    mixed = tuple(diagnostic(("info", "warning", "error")[n % 3], n) for n in range(9))
    base = judged("unknown instruction")
    text = told(base.model_copy(update={"diagnostics": mixed}))
    assert "info no" not in text
    assert text.index("error no 8") < text.index("warning no 1")
    calm = told(base.model_copy(update={"diagnostics": mixed[:2]}))
    assert calm.index("warning no 1") < calm.index("info no 0")


def test_long_lists_are_cut_with_a_count() -> None:
    many = tuple(diagnostic("info", n) for n in range(30)) + tuple(diagnostic("error", n) for n in range(20))
    text = told(judged("unknown instruction").model_copy(update={"diagnostics": many}))
    assert text.count("error no") == MAX_DIAGNOSTICS
    assert f"… and {20 - MAX_DIAGNOSTICS} more." in text


def test_a_warning_that_a_diagnostic_told_is_not_told_again() -> None:
    said = diagnostic("info", 4)
    warnings = (Warning_(kind="kind_4", message="again", line=5), Warning_(kind="timer", message="the clock"))
    text = told(judged("correct").model_copy(update={"diagnostics": (said,), "warnings": warnings}))
    assert "again" not in text
    assert "timer: the clock" in text


def test_long_source_lines_are_clipped() -> None:
    line = "mov.b32 %r0, %r1; " * 5_000
    fault = judged("fault").fault
    assert fault is not None
    evaluation = judged("fault").model_copy(update={"fault": fault.model_copy(update={"source": line})})
    (shown,) = [each for each in told(evaluation).split("\n") if each.startswith("Line ")]
    assert len(shown) < 225
    assert shown.endswith("…`")


def test_an_absurd_evaluation_stays_bounded_and_keeps_the_end() -> None:
    long = "word " * 4_000
    evaluation = judged("fault").model_copy(
        update={
            "summary": long,
            "diagnostics": tuple(
                Diagnostic(severity="error", kind="x", message=f"{n} {long}", line=n, source=long, hint=long)
                for n in range(1, 5_000)
            ),
            "fault": Fault(
                kind=FaultKind.DEADLOCK, message="other " + long, source=long, line=1, waiting=(long,) * 500
            ),
            "numerics": Numerics(
                workloads=("a",),
                passed=False,
                mismatches=tuple(
                    Mismatch(workload=long, output="y", wrong=n, total=9, pattern=long) for n in range(200)
                ),
            ),
            "targets": tuple(
                Target(family=f"f{n}", required=True, depth=Depth.ABSENT, note=long) for n in range(300)
            ),
            "warnings": tuple(Warning_(kind="k", message=long, line=n) for n in range(300)),
        }
    )
    text = told(evaluation, best=judged("correct"), best_turn=1, best_text=long, candidate_text=long)
    assert len(text) <= MAX_CHARACTERS
    assert text.startswith("## Turn 2 of 4: it crashes\n")
    assert text.endswith(f"\n\n{CLOSING}\n")
    assert text.count("- workload") <= MAX_MISMATCHES
    assert text.count("- k (line") <= MAX_WARNINGS


def test_the_best_kernel_stays_in_view_though_the_diff_does_not_fit() -> None:
    long = "a message of the assembler " * 40
    many = tuple(
        Diagnostic(severity="error", kind="x", message=f"{n} {long}", source=long, hint=long)
        for n in range(50)
    )
    old = "".join(f"  mov.u32 %a{n}, {n}; // {'x' * 150}\n" for n in range(25))
    new = old.replace("mov.u32", "add.u32")
    text = told(
        judged("unknown instruction").model_copy(update={"diagnostics": many}),
        best=judged("correct"),
        best_turn=1,
        best_text=old,
        candidate_text=new,
    )
    assert len(text) <= MAX_CHARACTERS
    assert "(cut)" not in text
    assert "Your file of turn 1 was right: start from it again" in text


@pytest.mark.parametrize("name", ["fault", "wrong", "hang"])
def test_a_regression_shows_what_was_changed(name: str) -> None:
    text = told(
        judged(name),
        candidate_text=changed("row_sum", *VARIANTS[name][1]),
        best=judged("correct"),
        best_turn=1,
        best_text=solution("row_sum"),
    )
    assert "Best so far: turn 1, correct" in text
    assert "Your file of turn 1 was right: start from it again and change only what must change." in text
    old, new = VARIANTS[name][1][0]
    changes = text[text.index("```diff") :]
    assert any(line.startswith("-") and old.strip() in line for line in changes.split("\n"))
    assert any(line.startswith("+") and new.split("\n")[-1].strip() in line for line in changes.split("\n"))


def test_a_turn_that_got_further_before_is_named_even_when_it_was_wrong() -> None:
    text = told(judged("fault"), candidate_text="a", best=judged("wrong"), best_turn=1, best_text="b")
    assert "Your file of turn 1 got further than this one." in text
    assert "was right" not in text


def test_nothing_is_said_of_the_best_when_it_is_this_turn() -> None:
    text = told(judged("wrong"), candidate_text="a", best=judged("wrong"), best_turn=2, best_text="a")
    assert "Best so far" not in text


def test_no_difference_is_shown_where_none_was_lost_or_none_can_be() -> None:
    equal = told(judged("wrong"), candidate_text="a", best=judged("wrong"), best_turn=1, best_text="b")
    assert "got as far" in equal
    assert "```diff" not in equal
    nothing = told(
        without_a_candidate(), candidate_text=None, best=judged("correct"), best_turn=1, best_text="b"
    )
    assert "was right" in nothing
    assert "```diff" not in nothing
    other = "\n".join(f"line {n}" for n in range(MAX_DIFF_LINES + 1))
    rewritten = told(
        judged("fault"), candidate_text=other, best=judged("correct"), best_turn=1, best_text="b"
    )
    assert "```diff" not in rewritten


def test_kernels_too_long_to_compare_are_not_compared() -> None:
    old = "\n".join(f"mov.u32 %r{n}, {n};" for n in range(160_000))
    options: dict[str, Any] = {"best": judged("correct"), "best_turn": 1, "best_text": old}
    text = told(judged("fault"), candidate_text=old.replace("%r9,", "%q9,"), **options)
    assert "```diff" not in text


def test_feedback_is_a_function_of_its_arguments() -> None:
    options: dict[str, Any] = {
        "best": judged("correct"),
        "best_turn": 1,
        "best_text": "b",
        "candidate_text": "a",
    }
    again = Evaluation.model_validate_json(judged("fault").model_dump_json())
    assert told(again, **options) == told(judged("fault"), **options)


def test_an_unknown_template_is_refused() -> None:
    with pytest.raises(InputError, match=r"no templates are called 'v99'; there are: .*v1"):
        told(judged("fault"), template="v99")
