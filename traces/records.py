"""Turns and episodes, folded from events. Everything downstream reads these, never the lines of a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.errors import InputError
from tasks.record import Record
from tools.evaluation import Stage, Verdict
from traces.events import Admitted, EpisodeEnded, Event, Tokens


class Turn(Record):
    """One request, its answer, and what became of it. References are sha256 of blobs."""

    number: int
    """From 1."""
    messages: tuple[str, ...] = ()
    """The request, message by message."""
    response: str | None = None
    """The whole answer; None: there is none."""
    message: str | None = None
    """The assistant message."""
    model: str = ""
    finish: str = ""
    tokens: Tokens = Tokens()
    usd: float | None = None
    """None: there is no answer, or no known price."""
    model_seconds: float = 0.0
    failed_calls: int = 0
    lost_calls: int = 0
    """Calls in flight at a crash: perhaps paid, never seen."""
    candidate: str | None = None
    reason: str = ""
    """Why there is no candidate."""
    evaluation: str | None = None
    """The last Evaluation of this turn."""
    verdict: Verdict | None = None
    """None: not judged (yet), or missing."""
    targets_met: bool = False
    stages: tuple[Stage, ...] = ()
    """Tools that ran."""
    blobs: dict[str, str] = {}
    """What the tools left: name → reference."""
    tool_seconds: float = 0.0
    feedback: str | None = None
    """The user message that followed; None after the last turn."""
    placebo: str | None = None
    ended: bool = False
    missing: bool = False
    missing_reason: str = ""


class Episode(Record):
    """The turns of one (task, model, arm, sample)."""

    id: str
    task: str
    task_digest: str
    family: str
    arch: str
    arm: str
    model: str
    sample: int
    max_turns: int
    config: str
    graph: str
    turns: tuple[Turn, ...] = ()
    reason: str | None = None
    """Why it ended; None: it has not."""
    detail: str = ""
    best_turn: int | None = None
    started: float = 0.0
    """Seconds since 1970."""
    ended: float | None = None

    @property
    def best(self) -> Turn | None:
        """The best turn so far."""
        return None if self.best_turn is None else self.turns[self.best_turn - 1]

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(turn.tokens.total for turn in self.turns)

    @property
    def usd(self) -> float:
        """Known cost of all answers."""
        return sum(turn.usd or 0.0 for turn in self.turns)

    @property
    def seconds(self) -> float:
        """Worked: waiting for the model and for the tools, not for a place."""
        return sum(turn.model_seconds + turn.tool_seconds for turn in self.turns)


def fold(events: Iterable[Event]) -> Episode:
    """The episode that these events tell. Raises InputError when they do not begin with an admission."""
    admitted: Admitted | None = None
    ended: EpisodeEnded | None = None
    best: int | None = None
    turns: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event, Admitted):
            admitted = event
        elif isinstance(event, EpisodeEnded):
            ended = event
            best = event.best_turn
        else:
            turn = turns.setdefault(event.turn, {"number": event.turn})
            _tell(turn, event)
            if event.kind == "turn_ended":
                best = event.best_turn
    if admitted is None:
        raise InputError("a ledger without an admission; the episode never began")
    return Episode(
        id=admitted.episode,
        task=admitted.task,
        task_digest=admitted.task_digest,
        family=admitted.family,
        arch=admitted.arch,
        arm=admitted.arm,
        model=admitted.model,
        sample=admitted.sample,
        max_turns=admitted.turns,
        config=admitted.config,
        graph=admitted.graph,
        turns=tuple(Turn(**turns[number]) for number in sorted(turns)),
        reason=ended.reason if ended else None,
        detail=ended.detail if ended else "",
        best_turn=best,
        started=admitted.time,
        ended=ended.time if ended else None,
    )


def _tell(turn: dict[str, Any], event: Event) -> None:
    match event.kind:
        case "requested":
            turn["messages"] = event.messages
        case "asked":
            turn["lost_calls"] = turn.get("lost_calls", 0) + 1
        case "call_failed":
            turn["lost_calls"] = max(turn.get("lost_calls", 0) - 1, 0)
            turn["failed_calls"] = turn.get("failed_calls", 0) + 1
        case "responded":
            turn["lost_calls"] = max(turn.get("lost_calls", 0) - 1, 0)
            turn |= event.model_dump(include={"response", "message", "model", "finish", "usd"})
            turn |= {"tokens": event.tokens, "model_seconds": event.seconds}
        case "extracted":
            turn |= {"candidate": event.candidate, "reason": event.reason}
        case "judged":
            turn |= {"evaluation": event.evaluation, "blobs": {**turn.get("blobs", {}), **event.blobs}}
            turn["stages"] = (*turn.get("stages", ()), event.stage)
            turn["tool_seconds"] = turn.get("tool_seconds", 0.0) + event.seconds
        case "feedback":
            turn |= {"feedback": event.message, "placebo": event.placebo}
        case "turn_ended":
            turn |= {"ended": True, "missing": event.missing, "missing_reason": event.reason}
            turn |= {"verdict": event.verdict, "targets_met": event.targets_met}
        case _:
            pass
