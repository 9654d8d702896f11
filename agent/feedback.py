"""What a model reads after a turn: the truth of its `Evaluation`, bounded in size, with the best kernel kept in view.

Invariants
- A pure function of its arguments: old evaluations can be rendered again under another template.
- At most `MAX_CHARACTERS`; lists are cut with a count of what was left out.
- Nothing of hidden workloads but their existence; no secret seed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from agent.prompts import DEFAULT, environment
from tools.evaluation import Diagnostic, Evaluation, Mismatch, Verdict
from tools.explain import where

MAX_CHARACTERS = 8_000
MAX_DIAGNOSTICS = 8
MAX_MISMATCHES = 3
MAX_WARNINGS = 5
MAX_DIFF_LINES = 60
MAX_LINE = 300

VERDICTS: Mapping[Verdict, str] = {
    Verdict.NO_CANDIDATE: "no kernel found in the answer",
    Verdict.BAD_PLAN: "the launch plan cannot be used",
    Verdict.ASSEMBLE_ERROR: "it does not assemble",
    Verdict.LOAD_ERROR: "it assembles but cannot be loaded",
    Verdict.LAUNCH_ERROR: "the launch is refused",
    Verdict.FAULT: "it crashes",
    Verdict.HANG: "it never ends",
    Verdict.WRONG_OUTPUT: "it runs, but the output is wrong",
    Verdict.CORRECT: "correct",
}


def render(
    evaluation: Evaluation,
    *,
    arm: str,
    turn: int,
    turns: int,
    candidate_text: str | None = None,
    best: Evaluation | None = None,
    best_turn: int | None = None,
    best_text: str | None = None,
    template: str = DEFAULT,
) -> str:
    """The user message that follows turn `turn`.

    arm: `verdict` gives the verdict alone, `diagnostics` everything but speed, any other everything. best: the best evaluation so far,
    this turn's included; its turn and its text.
    """
    words = VERDICTS[evaluation.verdict]
    if (
        evaluation.verdict is Verdict.CORRECT
        and not evaluation.targets_met
        and any(t.required for t in evaluation.targets)
    ):
        words = "correct, but required instructions are missing"
    closing = "Answer with the whole corrected file in one fenced code block."
    templates = environment(template)
    if arm == "verdict":
        return templates.get_template("verdict.md.j2").render(
            turn=turn, turns=turns, verdict=words, closing=closing
        )
    shown = [_diagnostic(each) for each in evaluation.diagnostics[:MAX_DIAGNOSTICS]]
    numerics = evaluation.numerics
    text = templates.get_template("feedback.md.j2").render(
        turn=turn,
        turns=turns,
        verdict=words,
        summary=_clip(evaluation.summary, 1_500),
        diagnostics=shown,
        more_diagnostics=len(evaluation.diagnostics) - len(shown),
        fault=evaluation.fault,
        mismatches=[_mismatch(each) for each in numerics.mismatches[:MAX_MISMATCHES]] if numerics else [],
        targets=[target for target in evaluation.targets if target.required],
        warnings=evaluation.warnings[:MAX_WARNINGS],
        timing="" if arm == "diagnostics" else _timing(evaluation),
        best=_best(evaluation, turn, candidate_text, best, best_turn, best_text),
        closing=closing,
    )
    return _tidy(text, closing)


def _clip(text: str, length: int = MAX_LINE) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _diagnostic(diagnostic: Diagnostic) -> dict[str, str]:
    return {
        "place": f"line {diagnostic.line}, " if diagnostic.line else "",
        "severity": diagnostic.severity,
        "message": _clip(diagnostic.message),
        "source": _clip(diagnostic.source or "", 160),
        "hint": _clip(diagnostic.hint, 500),
    }


def _mismatch(mismatch: Mismatch) -> str:
    """One output on one workload, with everything that tells a cause."""
    facts = [f"workload {mismatch.workload}: {where(mismatch)}"]
    if mismatch.unwritten:
        facts.append(f"{mismatch.unwritten} elements were never written")
    if mismatch.nan or mismatch.inf:
        facts.append(f"{mismatch.nan} are NaN and {mismatch.inf} infinite where they should not be")
    if mismatch.ratio is not None:
        facts.append(f"every wrong element is {mismatch.ratio:.6g} times what it should be")
    if mismatch.max_ulp is not None and mismatch.max_ulp < 10_000:
        facts.append(f"off by at most {mismatch.max_ulp} units in the last place")
    return "; ".join(facts)


def _timing(evaluation: Evaluation) -> str:
    timing = evaluation.timing
    if timing is None:
        return ""
    return (
        f"{timing.candidate_ms:.4g} ms against {timing.baseline_ms:.4g} ms of {timing.baseline} on {timing.device}: "
        f"{timing.speedup:.3f} times as fast (95 % interval {timing.low:.3f} to {timing.high:.3f})."
    )


def _best(
    evaluation: Evaluation,
    turn: int,
    text: str | None,
    best: Evaluation | None,
    best_turn: int | None,
    best_text: str | None,
) -> dict[str, Any] | None:
    """What to say of the best turn: nothing when it is this one."""
    if best is None or best_turn is None or best_turn == turn:
        return None
    regressed = best.verdict.rung > evaluation.verdict.rung or (
        best.targets_met and not evaluation.targets_met
    )
    advice = (
        f"Your file of turn {best_turn} got further than this one."
        if regressed
        else f"Your file of turn {best_turn} got as far."
    )
    if best.verdict is Verdict.CORRECT and regressed:
        advice = (
            f"Your file of turn {best_turn} was right: start from it again and change only what must change."
        )
    return {
        "turn": best_turn,
        "verdict": VERDICTS[best.verdict],
        "targets_met": best.targets_met,
        "advice": advice,
        "diff": _diff(best_text, text) if regressed and best_text and text else "",
    }


def _diff(old: str, new: str) -> str:
    """What changed from the best kernel to this one, as the lines that differ."""
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), "best", "this turn", n=1, lineterm="")
    )[2:]
    if len(lines) > MAX_DIFF_LINES:
        return ""
    return "\n".join(_clip(line, 160) for line in lines)


def _tidy(text: str, closing: str) -> str:
    """No more than one blank line in a row, and never longer than MAX_CHARACTERS; the closing sentence always stands."""
    lines: list[str] = []
    for line in text.strip().split("\n"):
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    tidy = "\n".join(lines)
    if len(tidy) <= MAX_CHARACTERS:
        return tidy + "\n"
    return tidy[: MAX_CHARACTERS - len(closing) - 40].rstrip() + "\n… (cut)\n\n" + closing + "\n"
