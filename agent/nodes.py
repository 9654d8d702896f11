"""What each node of the graph does.

Invariants
- A node first looks whether the ledger already tells its outcome, and then repeats it: running a node again costs nothing and
  changes nothing.
- Outcomes reach the ledger before the node returns, so the ledger is never behind a checkpoint.
- What fails for a reason that is not the candidate's makes the turn missing, never wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from langgraph.runtime import Runtime

from agent.config import Arm
from agent.context import EpisodeContext, Foreign
from agent.decisions import decide_turn
from agent.journal import Journaled, on_disk
from agent.models import retry
from agent.models.base import ContextOverflow, Message, ModelError, Refused, Request, Response
from agent.state import State
from tasks.errors import CannotJudge, InfraError, InputError, ToolMissing
from tools.evaluation import Evaluation, Stage, Verdict
from tools.ladder import StageResult
from traces import events
from traces.redact import redact


class Node(Protocol):
    """A node of the graph."""

    def __call__(self, state: State, runtime: Runtime[EpisodeContext]) -> Awaitable[State]: ...


class Halted(Exception):
    """The run stops here and stays resumable; the message is fit to be kept."""


async def propose(state: State, runtime: Runtime[EpisodeContext]) -> State:
    """Ask the model for a candidate, unless the journal has its answer."""
    context = runtime.context
    turn = state.get("turn", 0) + 1
    fresh: State = {"turn": turn, "evaluation": None, "stopped": False, "missing": "", "stop": ""}
    ended = context.journal.find("turn_ended", turn)
    answer = context.journal.answer(turn)
    if answer is None:
        if isinstance(ended, events.TurnEnded):
            return {**fresh, "stopped": True, "missing": ended.reason}
        references = await on_disk(context.journal.request, turn, conversation(context, turn))
        messages = tuple(map(context.journal.message, references))
        request = Request(
            messages=messages,
            episode=context.episode,
            turn=turn,
            attempt=context.journal.failures(turn) + 1,
            task=context.task.task.name,
            arm=context.config.arm,
            sample=context.sample,
            max_output_tokens=context.config.max_output_tokens,
            temperature=context.config.temperature,
        )
        try:
            answer = await _ask(context, request)
        except ModelError as error:
            return {**fresh, "stopped": True, "missing": _unanswered(context, error)}
    if context.journal.find("extracted", turn) is None:
        await on_disk(_extract, context, answer)
    return fresh


def _extract(context: EpisodeContext, answer: events.Responded) -> None:
    """Keep the candidate of an answer, or why there is none."""
    response = context.journal.response(answer)
    found = context.shared.tools.extract(response.text, response.finish)
    candidate = None if found.text is None else context.journal.blobs.put_text(found.text)
    context.journal.ledger.append(
        events.Extracted(turn=answer.turn, candidate=candidate, reason=found.reason)
    )


def conversation(context: EpisodeContext, turn: int) -> tuple[Message, ...]:
    """The request of a turn: that of the turn before, the answer to it, and the feedback, byte for byte."""
    first = context.journal.find("requested", 1)
    if turn == 1 or context.config.arm is Arm.NONE:
        if isinstance(first, events.Requested):
            return tuple(map(context.journal.message, first.messages))
        return context.shared.tools.first_messages(context.task, context.config)
    before = context.journal.find("requested", turn - 1)
    answer = context.journal.answer(turn - 1)
    feedback = context.journal.find("feedback", turn - 1)
    if (
        not isinstance(before, events.Requested)
        or answer is None
        or not isinstance(feedback, events.Feedback)
    ):
        raise InputError(
            f"episode {context.episode}: turn {turn} cannot be asked: turn {turn - 1} is incomplete"
        )
    references = (*before.messages, answer.message, feedback.message)
    return tuple(map(context.journal.message, references))


async def _ask(context: EpisodeContext, request: Request) -> events.Responded:
    shared = context.shared
    if shared.stopping.is_set():
        raise Halted(shared.why)

    async def note(attempt: retry.Attempt) -> None:
        await on_disk(context.journal.failed, request.turn, attempt)

    started = time.monotonic()
    model = Journaled(shared.model, context.journal)
    try:
        answering = retry.respond(model, request, policy=shared.policy, on_attempt=note, stop=shared.stopping)
        response = await (_unless_stopping(context, answering) if model.waits_free else answering)
    except retry.RETRIED as error:
        if shared.stopping.is_set():
            raise Halted(shared.why) from None
        raise error
    if not response.seconds:
        response = response.model_copy(update={"seconds": time.monotonic() - started})
    usd = shared.tools.cost(context.config, response.usage)
    answer = await on_disk(context.journal.record, request, response, usd)
    shared.spend(answer.tokens.total, usd)
    return answer


async def _unless_stopping(context: EpisodeContext, answering: Coroutine[Any, Any, Response]) -> Response:
    """The answer, unless the run stops first: waiting costs nothing there, so asking again loses nothing."""
    shared = context.shared
    waiting, stopped = asyncio.create_task(answering), asyncio.create_task(shared.stopping.wait())
    try:
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise Halted(shared.why)
        return waiting.result()
    finally:
        for task in (waiting, stopped):
            task.cancel()
        await asyncio.gather(waiting, stopped, return_exceptions=True)


def _unanswered(context: EpisodeContext, error: ModelError) -> str:
    """Why a turn has no answer, as `reason: detail`; halts the run where every episode is concerned."""
    said = redact(str(error).encode("utf-8", "replace")).decode()
    if isinstance(error, Refused) and error.fatal:
        context.shared.halt(f"the model refuses every request: {said}")
        raise Halted(said) from None
    if isinstance(error, ContextOverflow):
        return f"context: {said}"
    return f"{'exhausted' if isinstance(error, Refused) else 'infra'}: {said}"


def stage_node(stage: Stage) -> Node:
    """The node that runs one tool of the ladder."""

    async def run_stage(state: State, runtime: Runtime[EpisodeContext]) -> State:
        context = runtime.context
        turn = state.get("turn", 0)
        found = context.journal.find("judged", turn, stage)
        if not isinstance(found, events.Judged):
            ended = context.journal.find("turn_ended", turn)
            if isinstance(ended, events.TurnEnded):
                return {"stopped": True, "missing": ended.reason}
            try:
                found = await _judge(context, turn, stage, state.get("evaluation"))
            except InfraError as error:
                said = redact(str(error).encode("utf-8", "replace")).decode()
                return {"stopped": True, "missing": f"infra: {stage}: {type(error).__name__}: {said}"}
        return {"evaluation": found.evaluation, "stopped": found.stopped}

    run_stage.__name__ = stage.value
    return run_stage


FINAL = (CannotJudge, ToolMissing)
"""Failures that trying again does not mend."""


async def _judge(context: EpisodeContext, turn: int, stage: Stage, sofar: str | None) -> events.Judged:
    """Run a tool, again where that may help, and keep what it found. Raises the last InfraError."""
    extracted = context.journal.find("extracted", turn)
    assert isinstance(extracted, events.Extracted), f"turn {turn} has no extraction"
    job = context.job(turn, extracted.candidate, extracted.reason)
    evaluation = None if sofar is None else context.evaluation(sofar)
    function = context.shared.tools.stages[stage]
    limit = context.config.stage_seconds
    attempt = 0
    while True:
        attempt += 1
        started = time.monotonic()
        try:
            result = await context.shared.judge.call(function, job, evaluation, seconds=limit)
            break
        except InfraError as error:
            final = isinstance(error, FINAL) or attempt >= context.config.stage_attempts
            failed = events.Infra(
                turn=turn,
                where=stage,
                attempt=attempt,
                error=type(error).__name__,
                message=str(error),
                final=final,
            )
            await on_disk(context.journal.ledger.append, failed)
            if context.shared.stopping.is_set():
                raise Halted(context.shared.why) from None
            if final:
                raise
    return await on_disk(_keep, context, turn, stage, result, time.monotonic() - started)


def _keep(
    context: EpisodeContext, turn: int, stage: Stage, result: StageResult, seconds: float
) -> events.Judged:
    """Keep what a tool found. `seconds` counts where the tool itself did not: it includes waiting for a worker."""
    made = result.evaluation
    blobs = context.journal.blobs
    judged = events.Judged(
        turn=turn,
        stage=stage,
        evaluation=blobs.put(made.model_dump_json().encode("utf-8", "surrogatepass")),
        verdict=made.verdict,
        stopped=made.stopped_at is not None or made.verdict is Verdict.NO_CANDIDATE,
        blobs={name: blobs.put(data) for name, data in result.blobs.items()},
        seconds=getattr(made.seconds, stage.value) or seconds,
    )
    context.journal.ledger.append(judged)
    return judged


async def decide(state: State, runtime: Runtime[EpisodeContext]) -> State:
    """End the turn; end the episode, or tell the model what was found."""
    context = runtime.context
    turn = state.get("turn", 0)
    missing = state.get("missing", "")
    fresh = context.journal.find("turn_ended", turn) is None
    if fresh or not _followed(context, turn):
        reference = None if missing else state.get("evaluation")
        evaluation = None if reference is None else context.evaluation(reference)
        await on_disk(_end_turn, context, turn, reference, evaluation, missing)
        if fresh:
            context.shared.progress.turn_judged(context.episode, turn, evaluation, missing)
        if fresh and evaluation is not None and reference is not None and evaluation.candidate is not None:
            known = context.shared.judged.setdefault(context.task.digest, [])
            known.append(Foreign(context.episode, evaluation.candidate, reference))
    ended: Any = context.journal.find("episode_ended")
    return {"stop": ended.reason if isinstance(ended, events.EpisodeEnded) else ""}


def _end_turn(
    context: EpisodeContext, turn: int, reference: str | None, evaluation: Evaluation | None, missing: str
) -> None:
    context.journal.ledger.append(*decide_turn(context, turn, reference, evaluation, missing))


def _followed(context: EpisodeContext, turn: int) -> bool:
    """What comes after a turn is in the ledger, too: a crash may have torn off the end of the one write that tells both."""
    find = context.journal.find
    return find("episode_ended") is not None or find("requested", turn + 1) is not None


__all__ = ["Halted", "conversation", "decide", "propose", "stage_node"]
