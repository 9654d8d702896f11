"""From an SDK's exception to our tree of ModelErrors: one kind of table, read by every adapter.

A table is a tuple of `Rule`s; the first that fits decides. A rule fits by the exception's class, and where
classes do not tell (one SDK has no class for 408; both report an exhausted budget as a rate limit) by
status or by the service's own error code. Only services that send no code at all (vLLM, SGLang, and
Anthropic for an overlong prompt) are judged by a sentence.

The resulting error never holds the SDK's exception, neither as cause nor as context: that one carries the
request, and with it the key. What it said is scrubbed and shortened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from agent.models.base import Garbled, ModelError, RateLimited, Refused, Unavailable
from agent.models.keys import Scrubber

LONGEST_MESSAGE = 600
"""Characters of a service's message that are kept; a gateway may answer with a whole page of HTML."""

CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
"""What services call a conversation that does not fit: OpenAI and vLLM; llama.cpp."""

OVERLONG = (
    "maximum context length",  # OpenAI's sentence, kept by vLLM
    "longer than the model's context length",  # SGLang
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, when the prompt and max_tokens together do not fit
)


@dataclass(frozen=True)
class Rule:
    """One row: which exceptions, and what they are to us."""

    error: type[BaseException]
    becomes: type[ModelError]
    codes: frozenset[str] = frozenset()
    """Fits only these codes or types of error, as the service names them; empty: any."""
    statuses: frozenset[int] = frozenset()
    """Fits only these HTTP statuses; empty: any."""
    sentences: tuple[str, ...] = ()
    """Fits only messages with one of these, and only where the service sent no code of its own."""
    fatal: bool = True
    """For Refused: whether every other request would be refused too."""
    advice: str = ""
    """What to do, in a sentence."""

    def fits(self, error: BaseException) -> bool:
        if not isinstance(error, self.error):
            return False
        if self.codes and not self.codes & codes(error):
            return False
        if self.statuses and getattr(error, "status_code", None) not in self.statuses:
            return False
        if not self.sentences:
            return True
        text = str(error).lower()
        return not own_code(error) and any(sentence in text for sentence in self.sentences)


UNREADABLE = "Expected an answer in the form that the service documents."

TRANSPORT = (
    # A stream can break after the SDK has handed it out; then the errors are the transport's own.
    Rule(httpx2.TransportError, Unavailable),
    Rule(TimeoutError, Unavailable, advice="No whole answer came before the deadline."),
    Rule(httpx2.DecodingError, Garbled),
    # An answer of the wrong shape trips whoever reads it, the SDKs too: broken JSON is a ValueError, a
    # missing field a LookupError, text in place of an object an AttributeError.
    *(
        Rule(kind, Garbled, advice=UNREADABLE)
        for kind in (ValueError, LookupError, AttributeError, TypeError, RuntimeError)
    ),
)
"""Ends every table: what is raised below the SDKs, and by reading what came."""


def own_code(error: BaseException) -> str:
    """The service's own error code, '' where it sent none; a repeated HTTP status is not a code."""
    for attribute in ("error_code", "code"):
        code = getattr(error, attribute, None)
        if isinstance(code, str) and code and not code.isdigit():
            return code
    return ""


def codes(error: BaseException) -> frozenset[str]:
    """The error code and the error type, where the service sent them."""
    kind = getattr(error, "type", None)
    return frozenset(name for name in (own_code(error), kind) if isinstance(name, str) and name)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait as the service named them, never negative; None where it named none that can be read.

    Reads `retry-after-ms`, then `retry-after` as seconds or as an HTTP date (RFC 9110 section 10.2.3).
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def classify(error: BaseException, rules: Sequence[Rule], model: str, scrub: Scrubber) -> ModelError | None:
    """The ModelError that `error` is; None when no rule fits, which means a defect of ours: let it through.

    Raise the result outside the `except` block, so that the SDK's exception does not travel along as context.
    """
    if isinstance(error, ModelError):
        return error
    rule = next((rule for rule in rules if rule.fits(error)), None)
    if rule is None:
        return None
    message = _message(error, rule, model, scrub)
    response: Any = getattr(error, "response", None)
    if rule.becomes in (RateLimited, Unavailable):
        headers: Mapping[str, str] = response.headers if response is not None else {}
        return rule.becomes(message, retry_after(headers))  # pyright: ignore[reportCallIssue]
    if rule.becomes is Refused:
        return Refused(message, fatal=rule.fatal)
    return rule.becomes(message)


def _message(error: BaseException, rule: Rule, model: str, scrub: Scrubber) -> str:
    said = " ".join(scrub.text(str(getattr(error, "api_message", None) or error)).split()) or "no message"
    if len(said) > LONGEST_MESSAGE:
        said = said[:LONGEST_MESSAGE] + " …"
    facts = [type(error).__name__]
    if error.__cause__ is not None:  # "Connection error." says nothing; what the transport raised does
        facts.append(" ".join(scrub.text(repr(error.__cause__)).split())[:LONGEST_MESSAGE])
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        facts.append(f"status {status}")
    facts += sorted(scrub.text(code) for code in codes(error))
    request = getattr(error, "request_id", None)
    if isinstance(request, str):
        facts.append(f"request {scrub.text(request)}")
    text = f"{model}: {said} ({', '.join(facts)})"
    return f"{text}. {rule.advice}" if rule.advice else text
