"""Anthropic's Messages API through its own SDK, always streamed, since long answers time out otherwise.

Invariants
- The SDK never retries; every exception of its leaves as a ModelError by the table `RULES`. A stream that
  breaks or ends before its stop reason is no answer.
- Content blocks go back as they came: thinking with its signature, redacted thinking, text. Only empty text
  blocks are left out, which the service sends but does not take.
- Three cache breakpoints: after the system prompt and after the first user message (shared by all samples
  of a task), by marks that never move; and after the last block, by the request's own `cache_control`. So
  each request's messages extend the previous one's byte by byte.
- `Usage.input` counts cached tokens too, as everywhere here; the service reports them apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

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
from agent.models.faults import CONTEXT_CODES, OVERLONG, TRANSPORT, Rule, classify
from agent.models.keys import Scrubber, find_key

Json = dict[str, Any]

OFFICIAL = "https://api.anthropic.com"
"""Given explicitly, so that the SDK does not look for another in the environment: the options tell all."""

DEFAULT_MAX_TOKENS = 32_000
"""The service insists on a limit; this one is sent where the request names none."""

NO_ANSWER = "(no answer)"
"""Stands for an assistant turn that has nothing to replay, so that user and assistant still alternate."""

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


class Anthropic:
    """Claude models, and servers that speak /v1/messages."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "ANTHROPIC_API_KEY",
        base_url: str | None = None,
        timeout: float = 600.0,
        deadline: float = 3600.0,
        effort: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """timeout: longest silence in seconds; deadline: longest answer in seconds; extra: further body
        fields."""
        self._model = model
        self._deadline = deadline
        self._effort = effort
        self._extra = dict(extra or {})
        key = find_key(api_key, api_key_env, base_url, self.name)
        self._scrub = Scrubber(key, base_url)
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=base_url or OFFICIAL,
            max_retries=0,
            timeout=anthropic.Timeout(timeout, connect=min(timeout, 15.0)),
        )

    @property
    def name(self) -> str:
        return f"anthropic:{self._model}"

    async def respond(self, request: Request) -> Response:
        arguments = self._arguments(request)
        failure = None
        try:
            started = time.monotonic()
            async with asyncio.timeout(self._deadline):
                message = await self._send(arguments)
            return self._read(self._scrub.json(message), time.monotonic() - started)
        except Exception as error:
            failure = classify(error, RULES, self.name, self._scrub)
            if failure is None:
                raise
        raise failure

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

    def _read(self, message: Json, seconds: float) -> Response:
        stop = message.get("stop_reason")
        if stop is None:
            raise Garbled(f"{self.name}: expected a stop reason, found a stream that ended before it")
        blocks: list[Json] = message["content"]
        reasoning, available = _reasoning(blocks)
        return Response(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            finish=FINISH.get(stop, FinishReason.OTHER),
            usage=_usage(message.get("usage") or {}),
            model=str(message.get("model") or self._model),
            native=tuple(blocks),
            reasoning=reasoning,
            reasoning_available=available,
            response_id=str(message.get("id") or ""),
            seconds=seconds,
            raw=message,
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


def _usage(usage: Mapping[str, Any]) -> Usage:
    fresh, read, written, output = (
        int(usage.get(name) or 0)
        for name in (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        )
    )
    details: Mapping[str, Any] = usage.get("output_tokens_details") or {}
    return Usage(
        input=fresh + read + written,
        cached=read,
        cache_write=written,
        output=output,
        reasoning=int(details.get("thinking_tokens") or 0),
    )
