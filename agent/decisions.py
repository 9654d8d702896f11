"""After a turn: which candidate is best, whether to go on, and what the model is told.

Pure in the ledger: the same events lead to the same decision. Order of candidates: rung of the verdict, required families met, depth of
their evidence, then speed: a later candidate is faster only where its interval lies beyond that of the best so far. Among equals the
older stays.

| an episode ends as | when |
| --- | --- |
| target_met | correct, targets met, and the wanted speedup where there is a timing |
| repeated | the same candidate again, in an arm that gives feedback |
| plateau | so many turns without a better candidate |
| turns, tokens, money, seconds | a limit is reached |
| exhausted | the model has no more answers |
| context | the conversation no longer fits the model |
| infra | a turn has no verdict for a reason that is not the candidate's |

Fresh samples (arm `none`) go on after a turn that could not be judged: the next request does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import Arm, RunConfig
from agent.context import EpisodeContext
from agent.models.base import Message
from tools.evaluation import Depth, Diagnostic, Evaluation, Stage, Verdict
from traces.events import EpisodeEnded, Event, Feedback, Judged, TurnEnded
from traces.records import Episode, fold

UNTRUSTED = frozenset({"suspect", "unstable"})
"""Verdicts of timings that decide nothing."""
DEPTHS = {depth: place for place, depth in enumerate(Depth)}

PLACEBO_TEXT = """\
//! launch:
//!   - entry: other
//!     grid: 1
//!     block: 32
//!     args: x
.version 8.0
.target sm_90a
.address_size 64
.visible .entry other(.param .u64 x)
{
    .reg .b32 %r<2>;
    mov.u64 %r1, 0;
    ret;
}
"""
"""A candidate of nobody's, for the first placebo of a task."""


def fixed_placebo(evaluation: Evaluation) -> Evaluation:
    """An evaluation of a candidate that nobody gave, on the task of `evaluation`."""
    complaint = Diagnostic(
        severity="error",
        kind="type_mismatch",
        message="Arguments mismatch for instruction 'mov'",
        line=12,
        source="mov.u64 %r1, 0;",
        hint="The registers of an instruction must have its type's width.",
    )
    return Evaluation(
        task=evaluation.task,
        task_digest=evaluation.task_digest,
        arch=evaluation.arch,
        candidate=None,
        device=evaluation.device,
        verdict=Verdict.ASSEMBLE_ERROR,
        stopped_at=Stage.ASSEMBLE,
        summary="ptxas refuses the PTX: line 12: Arguments mismatch for instruction 'mov'",
        diagnostics=(complaint,),
    )


def quality(evaluation: Evaluation) -> tuple[float, ...]:
    """Orders candidates by all but speed: the larger, the better."""
    required = [target for target in evaluation.targets if target.required]
    return (
        evaluation.verdict.rung,
        evaluation.targets_met,
        sum(target.met for target in required),
        sum(DEPTHS[target.depth] for target in required),
        evaluation.timing is None or evaluation.timing.verdict != "suspect",
    )


def better(new: Evaluation, best: Evaluation) -> bool:
    """Whether a later candidate takes the place of the best so far: readings that overlap decide nothing, and so the older stays."""
    if quality(new) != quality(best):
        return quality(new) > quality(best)
    this, that = new.timing, best.timing
    if this is None or that is None or UNTRUSTED & {this.verdict, that.verdict}:
        return False
    return this.baseline == that.baseline and this.low > that.high


def meets(config: RunConfig, evaluation: Evaluation) -> bool:
    """The target is met, as far as this machine can tell."""
    timing = evaluation.timing
    fast = (
        config.speedup is None
        or timing is None
        or (timing.low >= config.speedup and timing.verdict not in UNTRUSTED)
    )
    return evaluation.verdict is Verdict.CORRECT and evaluation.targets_met and fast


def stop_reason(
    config: RunConfig, episode: Episode, turn: int, evaluation: Evaluation, best_turn: int
) -> tuple[str, str]:
    """(reason, detail) for which an episode ends after a judged turn; ("", "") when it goes on."""
    if config.stop_when_met and meets(config, evaluation):
        return "target_met", ""
    if config.arm is not Arm.NONE and (same := _same(episode, turn)):
        return "repeated", f"the candidate of turn {turn} is that of turn {same}"
    if turn >= config.turns:
        return "turns", f"{config.turns} turns"
    if config.plateau is not None and turn - best_turn >= config.plateau:
        return "plateau", f"no better candidate since turn {best_turn}"
    budget = config.budget
    limits = (
        ("tokens", episode.tokens, budget.tokens, "tokens"),
        ("money", episode.usd, budget.usd, "USD"),
        ("seconds", episode.seconds, budget.seconds, "seconds"),
    )
    for reason, spent, limit, unit in limits:
        if limit is not None and spent >= limit:
            return reason, f"{spent:g} of {limit:g} {unit}"
    return "", ""


def _same(episode: Episode, turn: int) -> int | None:
    this = episode.turns[turn - 1].candidate
    earlier = (each.number for each in episode.turns[: turn - 1] if each.candidate == this)
    return None if this is None else next(earlier, None)


def decide_turn(
    context: EpisodeContext, turn: int, reference: str | None, evaluation: Evaluation | None, missing: str
) -> tuple[Event, ...]:
    """The events that end a turn: what the model is told, or why the episode ends."""
    config = context.config
    episode = fold(context.journal.ledger.events)
    best = _best(context, episode)
    best_turn = None if best is None else best.turn
    if evaluation is None or reference is None or best is None:
        ended = TurnEnded(turn=turn, missing=True, reason=missing, best_turn=best_turn)
        reason, _, detail = missing.partition(": ")
        if config.arm is Arm.NONE and reason == "infra" and turn < config.turns:
            return (ended,)
        return ended, EpisodeEnded(reason=reason, detail=detail, best_turn=best_turn, turns=turn)
    ended = TurnEnded(
        turn=turn,
        missing=False,
        verdict=evaluation.verdict,
        targets_met=evaluation.targets_met,
        evaluation=reference,
        best_turn=best_turn,
    )
    reason, detail = stop_reason(config, episode, turn, evaluation, best.turn)
    if reason:
        return ended, EpisodeEnded(reason=reason, detail=detail, best_turn=best_turn, turns=turn)
    if config.arm is Arm.NONE:
        return (ended,)
    return _feedback(context, turn, evaluation, best), ended


@dataclass(frozen=True)
class _Best:
    turn: int
    evaluation: Evaluation
    candidate: str | None


def _best(context: EpisodeContext, episode: Episode) -> _Best | None:
    """The best of the judged turns, the one in progress included."""
    best: _Best | None = None
    last = {event.turn: event for event in context.journal.ledger.events if isinstance(event, Judged)}
    for turn in episode.turns:
        event = last.get(turn.number)
        complete = event is not None and (event.stopped or event.stage is Stage.MEASURE)
        if event is not None and complete and not turn.missing:
            found = _Best(turn.number, context.evaluation(event.evaluation), turn.candidate)
            if best is None or better(found.evaluation, best.evaluation):
                best = found
    return best


def _feedback(context: EpisodeContext, turn: int, evaluation: Evaluation, best: _Best) -> Feedback:
    config = context.config
    shown: Evaluation = evaluation
    placebo = None
    candidate_text = _text(context, evaluation.candidate)
    if config.arm is Arm.PLACEBO:
        shown, candidate_text, placebo = _foreign(context, turn, evaluation)
    own = config.arm is not Arm.PLACEBO
    text = context.shared.tools.render(
        shown,
        arm=(config.arm if own else Arm.FEEDBACK).value,
        turn=turn,
        turns=config.turns,
        best=best.evaluation if own else None,
        best_turn=best.turn if own else None,
        candidate_text=candidate_text,
        best_text=_text(context, best.candidate) if own else None,
        template=config.template,
    )
    message = context.journal.keep_message(Message(role="user", content=text))
    return Feedback(turn=turn, message=message, template=context.shared.tools.prompts, placebo=placebo)


def _text(context: EpisodeContext, candidate: str | None) -> str | None:
    return None if candidate is None else context.journal.blobs.text(candidate)


def _foreign(
    context: EpisodeContext, turn: int, evaluation: Evaluation
) -> tuple[Evaluation, str | None, str]:
    """Another candidate's evaluation on this task, its text, and its reference."""
    known = [
        each
        for each in context.shared.judged.get(context.task.digest, ())
        if each.episode != context.episode and each.candidate != evaluation.candidate
    ]
    if not known:
        return fixed_placebo(evaluation), PLACEBO_TEXT, "fixed"
    chosen = known[context.shared.draw("placebo", context.episode, turn) % len(known)]
    return context.evaluation(chosen.evaluation), _text(context, chosen.candidate), chosen.evaluation
