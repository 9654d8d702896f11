"""What a model reads after a turn: the truth of its `Evaluation`, bounded in size, with the best kernel kept in view.

Invariants
- A pure function of its arguments: old evaluations can be rendered again under another template.
- At most `MAX_CHARACTERS`; lists are cut with a count of what was left out, and the best kernel's line stands to the last.
- Each thing is said once: sections leave out what the summary says.
- Nothing of hidden workloads but their existence; no secret seed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from agent.evidence import faster, hint, proof, speed
from agent.prompts import DEFAULT, environment
from sandbox.device import Fault
from tools.evaluation import Diagnostic, Evaluation, Mismatch, Target, Verdict, Warning_
from tools.explain import where
from tools.measure import told as told_by_measure

MAX_CHARACTERS = 8_000
MAX_DIAGNOSTICS = 8
MAX_MISMATCHES = 3
MAX_WARNINGS = 5
MAX_DIFF_LINES = 60
MAX_DIFFED_LINES = 6_000
"""Of both kernels together; comparing takes time that grows with the square."""
MAX_LINE = 300
MAX_SOURCE = 200
MAX_SUMMARY = 1_500
MAX_TARGETS = 12

FULLNESS = ((MAX_DIAGNOSTICS, True), (MAX_DIAGNOSTICS, False), (3, False), (1, False))
"""Diagnostics and whether the diff is shown, fullest first; the first that fits is given."""

VERDICTS: Mapping[Verdict, str] = {
    Verdict.NO_CANDIDATE: "no kernel found in the answer",
    Verdict.BAD_PLAN: "the launch plan cannot be used",
    Verdict.ASSEMBLE_ERROR: "it does not assemble",
    Verdict.LOAD_ERROR: "it assembles but cannot be loaded",
    Verdict.LAUNCH_ERROR: "the launch is refused",
    Verdict.FAULT: "it crashes",
    Verdict.HANG: "it does not end, or not within its budget",
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
    timed = arm != "diagnostics"
    best_words = _best(evaluation, turn, candidate_text, best, best_turn, best_text, timed=timed)
    if evaluation.timing is not None:  # it has a section of its own, or is kept from the model
        short = evaluation.summary.removesuffix(f"; {told_by_measure(evaluation.timing.readings)}")
        evaluation = evaluation.model_copy(update={"summary": short})
    targets = _targets(evaluation)
    shown, tidy = _shown(evaluation.diagnostics), ""
    for most, with_diff in FULLNESS:
        told = [_diagnostic(each) for each in shown[:most]]
        text = templates.get_template("feedback.md.j2").render(
            turn=turn,
            turns=turns,
            verdict=words,
            summary=_summary(evaluation, shown[:most]),
            diagnostics=told,
            more_diagnostics=len(shown) - len(told),
            fault=_fault(evaluation),
            mismatches=_mismatches(evaluation),
            fault_hint=hint(evaluation.fault),
            targets=targets,
            proofs=[proof(each) for each in targets],
            warnings=_warnings(evaluation, shown[:most]),
            timing=speed(evaluation.timing) if timed and evaluation.timing is not None else "",
            best=best_words and (best_words if with_diff else best_words | {"diff": ""}),
            closing=closing,
        )
        tidy = _tidied(text)
        if len(tidy) <= MAX_CHARACTERS:
            return tidy
    return _cut(tidy, closing)


def _shown(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Errors first, then warnings; mere information only where there is no error."""
    errors = [each for each in diagnostics if each.severity == "error"]
    warnings = [each for each in diagnostics if each.severity == "warning"]
    return errors + warnings + ([] if errors else [each for each in diagnostics if each.severity == "info"])


def _summary(evaluation: Evaluation, shown: Sequence[Diagnostic]) -> str:
    """The sentence of the evaluation, unless a diagnostic that is shown says the same with its place and its hint."""
    if any(len(each.message) <= MAX_LINE and each.message in evaluation.summary for each in shown):
        return ""
    return _clip(evaluation.summary, MAX_SUMMARY)


def _fault(evaluation: Evaluation) -> Fault | None:
    """The fault, without the sentence that the summary says already; None when nothing is left."""
    fault = evaluation.fault
    if fault is None:
        return None
    facts: list[str] = []
    if fault.message not in _clip(evaluation.summary, MAX_SUMMARY):
        facts.append(_clip(fault.message, MAX_SUMMARY))
    if fault.source:
        place = f"Line {fault.line}: " if fault.line else ""
        facts.append(f"{place}`{_clip(fault.source, MAX_SOURCE)}`")
    if not facts and not fault.waiting:
        return None
    waiting = tuple(_clip(phrase) for phrase in fault.waiting)
    return fault.model_copy(
        update={"message": "\n".join(facts) or "Who waits for what:", "source": None, "waiting": waiting}
    )


def _targets(evaluation: Evaluation) -> list[Target]:
    required = [target for target in evaluation.targets if target.required][:MAX_TARGETS]
    summary = _clip(evaluation.summary, MAX_SUMMARY)
    return [
        each.model_copy(update={"note": "" if each.note in summary else _clip(each.note, 500)})
        for each in required
    ]


def _warnings(evaluation: Evaluation, shown: Sequence[Diagnostic]) -> list[Warning_]:
    """Warnings that no diagnostic told before."""
    told = {(each.kind, each.line) for each in shown}
    kept = [each for each in evaluation.warnings if (each.kind, each.line) not in told]
    return [each.model_copy(update={"message": _clip(each.message, 500)}) for each in kept[:MAX_WARNINGS]]


def _mismatches(evaluation: Evaluation) -> list[str]:
    numerics, summary = evaluation.numerics, _clip(evaluation.summary, MAX_SUMMARY)
    found = [_mismatch(each, summary) for each in (numerics.mismatches if numerics else ())]
    return [_clip(each, 500) for each in found[:MAX_MISMATCHES] if each]


def _clip(text: str, length: int = MAX_LINE) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _diagnostic(diagnostic: Diagnostic) -> dict[str, str]:
    return {
        "place": f"line {diagnostic.line}, " if diagnostic.line else "",
        "severity": diagnostic.severity,
        "message": _clip(diagnostic.message),
        "source": _clip(diagnostic.source or "", MAX_SOURCE),
        "hint": _clip(diagnostic.hint, 500),
    }


def _mismatch(mismatch: Mismatch, summary: str) -> str:
    """One output on one workload, with everything that tells a cause and is not in the summary; '' when nothing is left."""
    sentence = where(mismatch)
    facts = [] if sentence in summary else [sentence]
    if mismatch.unwritten and "never written" not in summary:
        facts.append(f"{mismatch.unwritten} elements were never written")
    if mismatch.nan > mismatch.unwritten or mismatch.inf:
        facts.append(f"{mismatch.nan} are NaN and {mismatch.inf} infinite where they should not be")
    if mismatch.ratio is not None:
        facts.append(f"every wrong element is {mismatch.ratio:.6g} times what it should be")
    if mismatch.max_ulp is not None and mismatch.max_ulp < 10_000:
        facts.append(f"off by at most {mismatch.max_ulp} units in the last place")
    return f"workload {mismatch.workload}: {'; '.join(facts)}" if facts else ""


def _best(
    evaluation: Evaluation,
    turn: int,
    text: str | None,
    best: Evaluation | None,
    best_turn: int | None,
    best_text: str | None,
    *,
    timed: bool,
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
    slower = faster(best.timing, evaluation.timing) if timed and not regressed else ""
    if slower:
        advice = f"Your file of turn {best_turn} {slower}: start from it again."
    if best.verdict is Verdict.CORRECT and regressed:
        advice = (
            f"Your file of turn {best_turn} was right: start from it again and change only what must change."
        )
    return {
        "turn": best_turn,
        "verdict": VERDICTS[best.verdict],
        "targets_met": best.targets_met,
        "advice": advice,
        "diff": _diff(best_text, text) if (regressed or slower) and best_text and text else "",
    }


def _diff(old: str, new: str) -> str:
    """What changed from the best kernel to this one, as the lines that differ."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MAX_DIFFED_LINES:
        return ""
    lines = list(difflib.unified_diff(before, after, "best", "this turn", n=1, lineterm=""))[2:]
    if len(lines) > MAX_DIFF_LINES:
        return ""
    return "\n".join(_clip(line, 160) for line in lines)


def _tidied(text: str) -> str:
    """No more than one blank line in a row, none at an end."""
    lines: list[str] = []
    for line in text.strip().split("\n"):
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def _cut(text: str, closing: str) -> str:
    """At most MAX_CHARACTERS; the closing sentence always stands."""
    return text[: MAX_CHARACTERS - len(closing) - 40].rstrip() + "\n… (cut)\n\n" + closing + "\n"
