"""Anthropic's Messages API through its own SDK, always streamed, since long answers time out otherwise.

Invariants (with those of `service`)
- A stream that breaks, or ends before its stop reason, is no answer.
- Content blocks go back as they came: thinking with its signature, redacted thinking, text. Only empty text
  blocks are left out, which the service sends but does not take.
- Three cache breakpoints: after the system prompt and after the first user message (shared by all samples
  of a task), by marks that never move; and after the last block, by the request's own `cache_control`. So
  each request's messages extend the previous one's byte by byte.
- `Usage.input` counts cached tokens too, as everywhere here; the service reports them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import anthropic

from agent.models.base import (
    ContextOverflow,
    FinishReason,
    Garbled,
    Message,
    RateLimited,
    Refused,
    Request,
    Response,
    Unavailable,
    Usage,
)
from agent.models.faults import CONTEXT_CODES, OVERLONG, TRANSPORT, Rule
from agent.models.service import CONNECT, NO_ANSWER, Json, Service, as_count, as_object

OFFICIAL = "https://api.anthropic.com"

DEFAULT_MAX_TOKENS = 32_000
"""The service insists on a limit; this one is sent where the request names none."""

CACHE: Json = {"type": "ephemeral"}

RULES = (
    Rule(anthropic.ContentTooLargeError, ContextOverflow),
    Rule(anthropic.APIStatusError, ContextOverflow, codes=CONTEXT_CODES),
    Rule(anthropic.BadRequestError, ContextOverflow, sentences=OVERLONG),
    # Rate limits in class, exhausted budgets in fact: they do not pass by waiting. (A ramp limit does.)
    Rule(anthropic.EnforcedSpendLimitReachedError, Refused, advice="Raise the spend limit."),
    Rule(anthropic.ContractSpendLimitReachedError, Refused, advice="Raise the spend limit."),
    Rule(anthropic.RateLimitError, RateLimited),
    Rule(
        anthropic.AuthenticationError, Refused, advice="Check the key, and that it belongs to this service."
    ),
    Rule(anthropic.PaymentRequiredError, Refused, advice="Check the account's billing."),
    Rule(anthropic.PermissionDeniedError, Refused, advice="Check what this key may use."),
    Rule(anthropic.OrganizationOnHoldError, Refused),
    Rule(anthropic.NotFoundError, Refused, advice="Check the model's name and --base-url."),
    Rule(anthropic.ConflictError, Unavailable),
    Rule(anthropic.RequestTimeoutError, Unavailable),
    Rule(anthropic.HTTPNotImplementedError, Refused),
    Rule(anthropic.InternalServerError, Unavailable),
    # An error event within a stream comes with status 200 and its type alone.
    Rule(anthropic.APIStatusError, RateLimited, codes=frozenset({"rate_limit_error"})),
    Rule(
        anthropic.APIStatusError,
        Unavailable,
        codes=frozenset({"overloaded_error", "api_error", "timeout_error"}),
    ),
    Rule(anthropic.APIStatusError, Refused, codes=frozenset({"authentication_error", "billing_error"})),
    Rule(anthropic.APIStatusError, Refused, fatal=False),
    Rule(anthropic.APIConnectionError, Unavailable),
    Rule(anthropic.APIResponseValidationError, Garbled),
    Rule(anthropic.RetryableError, Unavailable),
    Rule(anthropic.AnthropicError, Refused),
    *TRANSPORT,
)

FINISH = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
}


class Anthropic(Service):
    """Claude models, and servers that speak /v1/messages."""

    provider = "anthropic"
    key_variable = "ANTHROPIC_API_KEY"
    rules = RULES

    def _connect(self, key: str, timeout: float) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=self._base_url or OFFICIAL,
            max_retries=0,
            timeout=anthropic.Timeout(timeout, connect=min(timeout, CONNECT)),
        )

    async def close(self) -> None:
        await self._client.close()

    def _arguments(self, request: Request) -> Json:
        system = [message.content for message in request.messages if message.role == "system"]
        messages: list[Json] = []
        for message in request.messages:
            if message.role == "user" and not messages:
                messages.append({"role": "user", "content": [_text(message.content, cached=True)]})
            elif message.role != "system":
                messages.append({"role": message.role, "content": _content(message)})
        arguments: Json = {
            "model": self._model,
            "max_tokens": request.max_output_tokens or DEFAULT_MAX_TOKENS,
            "messages": messages,
            "cache_control": CACHE,
        }
        if system:
            arguments["system"] = [_text("\n\n".join(system), cached=True)]
        if self._effort is not None:
            arguments["output_config"] = {"effort": self._effort}
        extra = dict(self._extra)
        if request.temperature is not None:
            extra.setdefault("temperature", request.temperature)  # the SDK has no argument for it
        if extra:
            arguments["extra_body"] = extra
        return arguments

    async def _send(self, arguments: Json) -> Json:
        """The accumulated message as JSON; Garbled when the stream ends early or makes no sense."""
        async with self._client.messages.stream(**arguments) as stream:
            started = False
            async for event in stream:
                started = started or event.type == "message_start"
            if not started:
                raise Garbled(f"{self.name}: expected a stream that starts with message_start, found none")
            return stream.current_message_snapshot.to_dict(mode="json")

    def _read(self, body: Json, seconds: float) -> Response:
        stop = body.get("stop_reason")
        if stop is None:
            raise Garbled(f"{self.name}: expected a stop reason, found a stream that ended before it")
        blocks: list[Json] = body["content"]
        reasoning, available = _reasoning(blocks)
        return Response(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            finish=FINISH.get(stop, FinishReason.OTHER),
            usage=_usage(as_object(body.get("usage"))),
            model=str(body.get("model") or self._model),
            native=tuple(blocks),
            reasoning=reasoning,
            reasoning_available=available,
            response_id=str(body.get("id") or ""),
            seconds=seconds,
            raw=body,
        )


def _text(text: str, *, cached: bool = False) -> Json:
    return (
        {"type": "text", "text": text, "cache_control": CACHE} if cached else {"type": "text", "text": text}
    )


def _content(message: Message) -> list[Json]:
    """The blocks of one message; an empty text is nothing that the service would take."""
    blocks = [block for block in message.native if block.get("type") != "text" or block.get("text")]
    return blocks or [_text(message.content or NO_ANSWER)]


def _reasoning(blocks: Iterable[Json]) -> tuple[str, Literal["none", "summary", "full", "encrypted"]]:
    """A signed thinking block is a summary of what the service keeps; a server that signs nothing shows all
    of it."""
    thinking = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
    text = "\n\n".join(block["thinking"] for block in thinking if block.get("thinking"))
    if text:
        return text, "summary" if any(block.get("signature") for block in thinking) else "full"
    return "", "encrypted" if thinking else "none"


def _usage(usage: Json) -> Usage:
    read = as_count(usage.get("cache_read_input_tokens"))
    written = as_count(usage.get("cache_creation_input_tokens"))
    details = as_object(usage.get("output_tokens_details"))
    return Usage(
        input=as_count(usage.get("input_tokens")) + read + written,
        cached=read,
        cache_write=written,
        output=as_count(usage.get("output_tokens")),
        reasoning=as_count(details.get("thinking_tokens")),
    )
