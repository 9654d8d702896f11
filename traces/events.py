"""What happened in an episode: versioned events, one JSON line each, the truth from which everything is folded.

Invariants
- An event is complete when written; nothing is ever changed or taken back. `seq` counts from 0 without a gap.
- Texts are references (sha256 into the run's blobs); events hold small scalars.
- `key` says what an event is about. A ledger holds one event per key, except `asked`, `call_failed` and `infra`, which may repeat: so a
  node that runs again after a crash finds what it wrote before.
- Writers are strict, readers loose: unknown fields and fields with defaults do not stop an older or newer minor reader; a higher
  `FORMAT` in `run.json` does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tasks.record import Record
from tools.evaluation import Stage, Verdict

FORMAT = 1
"""Version of run folders and of their events."""


class Tokens(Record):
    """Tokens, normalised: `input` includes cached ones, `output` includes reasoning."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Input and output, which include all the others."""
        return self.input + self.output


class _Event(Record):
    seq: int = -1
    """Place in the ledger, from 0; -1 until appended."""
    time: float = 0.0
    """Seconds since 1970, when it was appended."""

    @property
    def key(self) -> tuple[str | int, ...] | None:
        """What this event is about; None when such events may repeat."""
        return (self.kind,)  # type: ignore[attr-defined]


class _OfTurn(_Event):
    turn: int
    """From 1."""

    @property
    def key(self) -> tuple[str | int, ...] | None:
        return (self.kind, self.turn)  # type: ignore[attr-defined]


class Admitted(_Event):
    """An episode exists. Always the first event."""

    kind: Literal["admitted"] = "admitted"
    format: int = FORMAT
    episode: str
    task: str
    task_digest: str
    family: str = ""
    arch: str
    arm: str
    model: str
    sample: int
    turns: int
    """At most."""
    config: str
    """Digest of the configuration."""
    graph: str
    """Fingerprint of the machine."""


class Requested(_OfTurn):
    """What is asked in a turn. Its messages begin with those of the turn before, byte for byte, except in fresh samples."""

    kind: Literal["requested"] = "requested"
    messages: tuple[str, ...]
    """References, in order."""


class Asked(_OfTurn):
    """A call goes out now. One without `responded` or `call_failed` for its attempt was in flight at a crash: perhaps paid, lost."""

    kind: Literal["asked"] = "asked"
    attempt: int

    @property
    def key(self) -> None:
        return None


class CallFailed(_OfTurn):
    """A call brought no answer."""

    kind: Literal["call_failed"] = "call_failed"
    attempt: int
    error: str
    """Class of the error."""
    message: str
    wait: float | None = None
    """Seconds until the next attempt; None when there is none."""

    @property
    def key(self) -> None:
        return None


class Responded(_OfTurn):
    """An answer, journaled before anything uses it."""

    kind: Literal["responded"] = "responded"
    attempt: int
    response: str
    """Reference to the whole answer as JSON."""
    message: str
    """Reference to the assistant message that goes back in later requests."""
    model: str
    """As the service named it."""
    finish: str
    tokens: Tokens
    usd: float | None
    """None: the model has no known price."""
    seconds: float
    reasoning_available: str = "none"
    response_id: str = ""


class Extracted(_OfTurn):
    """The candidate in the answer."""

    kind: Literal["extracted"] = "extracted"
    candidate: str | None
    """Reference to its text; None when there is none."""
    reason: str = ""
    """Why there is none."""


class Judged(_OfTurn):
    """A tool of the ladder said what it found."""

    kind: Literal["judged"] = "judged"
    stage: Stage
    evaluation: str
    """Reference to the Evaluation so far, as JSON."""
    verdict: Verdict
    stopped: bool
    """No later tool is run."""
    blobs: dict[str, str] = {}
    """File name → reference."""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str | int, ...]:
        return (self.kind, self.turn, self.stage)


class Infra(_OfTurn):
    """Judging failed for a reason that is not the candidate's."""

    kind: Literal["infra"] = "infra"
    where: str
    """The stage."""
    attempt: int
    error: str
    message: str
    final: bool
    """No further attempt."""

    @property
    def key(self) -> None:
        return None


class Feedback(_OfTurn):
    """What the model is told after this turn."""

    kind: Literal["feedback"] = "feedback"
    message: str
    """Reference to the user message."""
    template: str
    placebo: str | None = None
    """For the placebo arm: reference of the foreign evaluation it was rendered from, or `fixed`."""


class TurnEnded(_OfTurn):
    """A turn is over."""

    kind: Literal["turn_ended"] = "turn_ended"
    missing: bool
    """It has no verdict for a reason that is not the candidate's."""
    reason: str = ""
    """Why it is missing."""
    verdict: Verdict | None = None
    targets_met: bool = False
    evaluation: str | None = None
    best_turn: int | None = None
    """The best turn so far; None when no turn has a verdict."""


class EpisodeEnded(_Event):
    """An episode is over. Always the last event."""

    kind: Literal["episode_ended"] = "episode_ended"
    reason: str
    """Such as target_met, turns, tokens, money, seconds, plateau, repeated, exhausted, context, infra."""
    detail: str = ""
    best_turn: int | None = None
    turns: int = 0


Event = Annotated[
    Admitted
    | Requested
    | Asked
    | CallFailed
    | Responded
    | Extracted
    | Judged
    | Infra
    | Feedback
    | TurnEnded
    | EpisodeEnded,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


def read_event(line: bytes | str) -> Event:
    """One line of a ledger. Raises pydantic's ValidationError."""
    return _ADAPTER.validate_json(line, extra="ignore")
