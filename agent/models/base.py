"""What a model is to the loop: one request in, one response out, and typed failures.

A model never retries; `agent.models.retry` does, by the class of the error. Provider-native items
(encrypted reasoning, signed thinking blocks) travel as opaque JSON in `Response.native` and go back
verbatim in the `Message` that replays that turn.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Protocol

from tasks.errors import InfraError
from tasks.record import Record


class ModelError(InfraError):
    """A model's service failed; never a candidate's verdict. Subclasses tell the retry policy what to do."""


class RateLimited(ModelError):
    """Asked to slow down. retry_after: seconds the service named, or None."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(ModelError):
    """A passing failure: connection, timeout, 5xx, overload. Retried. retry_after: seconds the service
    named, or None."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Garbled(ModelError):
    """The service answered with something that is not an answer (broken JSON, no choices). Retried; it may
    have been billed."""


class Refused(ModelError):
    """Will not get better by asking again: authentication, permission, spend limit, not found, bad request.
    Ends the run at once where it concerns every episode (`fatal`)."""

    def __init__(self, message: str, fatal: bool = True) -> None:
        super().__init__(message)
        self.fatal = fatal


class ContextOverflow(ModelError):
    """The conversation no longer fits the model. Ends the episode, not the run."""


class FinishReason(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"
    """Cut off at the token limit: the answer is truncated."""
    REFUSAL = "refusal"
    OTHER = "other"


class Message(Record):
    """One message of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: str
    native: tuple[dict[str, Any], ...] = ()
    """For assistant messages: the provider's own output items, returned verbatim; empty elsewhere."""


class Usage(Record):
    """Tokens of one response, normalised: `input` includes cached ones, `output` includes reasoning."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


class Request(Record):
    """Everything a model needs for one turn."""

    messages: tuple[Message, ...]
    episode: str
    turn: int
    """From 1."""
    attempt: int = 1
    """From 1; counts retries of this turn."""
    task: str = ""
    arm: str = ""
    sample: int = 0
    max_output_tokens: int | None = None
    temperature: float | None = None


class Response(Record):
    """What a model answered."""

    text: str
    finish: FinishReason
    usage: Usage = Usage()
    model: str
    """As the service named it."""
    native: tuple[dict[str, Any], ...] = ()
    reasoning: str = ""
    """Reasoning text or summary where the provider gives one."""
    reasoning_available: Literal["none", "summary", "full", "encrypted"] = "none"
    response_id: str = ""
    seconds: float = 0.0
    raw: dict[str, Any] = {}
    """The provider's whole answer, for the trace."""


class Model(Protocol):
    """Who answers."""

    @property
    def name(self) -> str:
        """As given on the command line, such as `openai:gpt-5` or `recorded:demo`."""
        ...

    @property
    def waits_free(self) -> bool:
        """Whether giving up on an answer loses nothing: it costs no money and can be asked for again."""
        ...

    async def respond(self, request: Request) -> Response:
        """Answer one request. Raises a ModelError; never retries."""
        ...

    async def close(self) -> None:
        """Free connections; safe to call twice."""
        ...
