"""OpenAI's two wire formats through its own SDK: Responses, and Chat Completions for compatible servers.

Invariants (with those of `service`)
- Responses is stateless: `store=False`, encrypted reasoning included, and all output items of a turn go
  back verbatim, as they stood in the JSON that came, in the input of the next turn. So each request's input
  extends the previous one's.
- Chat Completions has no reasoning items: its turns go back as texts, and `native` stays empty.
- Answers are read from the JSON itself, not from the SDK's models, which would add and drop fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import openai

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
from agent.models.service import CONNECT, NO_ANSWER, Json, Service, as_count, as_object, shape

OFFICIAL = "https://api.openai.com/v1"

BILLING_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
CONFIGURATION_CODES = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter", "model_not_found", "invalid_api_key"}
)

RULES = (
    Rule(openai.APIStatusError, ContextOverflow, codes=CONTEXT_CODES),
    Rule(openai.APIStatusError, ContextOverflow, statuses=frozenset({413})),
    Rule(openai.BadRequestError, ContextOverflow, sentences=OVERLONG),
    Rule(openai.APIStatusError, Refused, codes=BILLING_CODES, advice="Check the account's plan and limits."),
    Rule(openai.APIStatusError, Refused, statuses=frozenset({402}), advice="Check the account's billing."),
    Rule(openai.RateLimitError, RateLimited),
    Rule(openai.AuthenticationError, Refused, advice="Check the key, and that it belongs to this service."),
    Rule(openai.PermissionDeniedError, Refused, advice="Check what this key may use."),
    Rule(openai.NotFoundError, Refused, advice="Check the model's name, --base-url and --api."),
    Rule(openai.APIStatusError, Refused, codes=CONFIGURATION_CODES, advice="Check the model's options."),
    Rule(openai.ConflictError, Unavailable),
    Rule(openai.InternalServerError, Unavailable),
    Rule(openai.APIStatusError, Unavailable, statuses=frozenset({408})),
    Rule(openai.APIStatusError, Refused, fatal=False),
    Rule(openai.APIConnectionError, Unavailable),
    Rule(openai.APIResponseValidationError, Garbled),
    Rule(openai.OpenAIError, Refused),
    *TRANSPORT,
)

FAILED: Mapping[str, type[RateLimited] | type[Unavailable]] = {
    "rate_limit_exceeded": RateLimited,
    "server_error": Unavailable,
    "vector_store_timeout": Unavailable,
}
"""Codes of a Responses answer with status `failed` that pass; every other is a refusal of this one
request."""

INCOMPLETE = {"max_output_tokens": FinishReason.LENGTH, "content_filter": FinishReason.REFUSAL}
CHAT_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSAL,
}


class _OpenAI(Service):
    """What both formats share."""

    provider = "openai"
    key_variable = "OPENAI_API_KEY"
    rules = RULES

    def _connect(self, key: str, timeout: float) -> None:
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=self._base_url or OFFICIAL,
            max_retries=0,
            timeout=openai.Timeout(timeout, connect=min(timeout, CONNECT)),
        )

    async def close(self) -> None:
        await self._client.close()

    def _expect(self, body: Any, field: str) -> list[Json]:
        """The list `field` of the answer, with at least one object in it; else Garbled."""
        found: Any = as_object(body).get(field)
        if isinstance(found, list) and found and all(isinstance(item, dict) for item in cast("Any", found)):
            return cast("list[Json]", found)
        raise Garbled(f"{self.name}: expected an answer with a list `{field}`, found {shape(body)}")


class OpenAIResponses(_OpenAI):
    """The Responses API."""

    def _arguments(self, request: Request) -> Json:
        system = [message.content for message in request.messages if message.role == "system"]
        items: list[Json] = []
        for message in request.messages:
            if message.role != "system":
                items += _items(message)
        arguments: Json = {
            "model": self._model,
            "input": items,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if system:
            arguments["instructions"] = "\n\n".join(system)
        if request.max_output_tokens is not None:
            arguments["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None:
            arguments["temperature"] = request.temperature
        if self._effort is not None:
            arguments["reasoning"] = {"effort": self._effort, "summary": "auto"}
        if self._extra:
            arguments["extra_body"] = self._extra
        return arguments

    async def _send(self, arguments: Json) -> Any:
        raw = await self._client.responses.with_raw_response.create(**arguments)
        return raw.http_response.json()

    def _read(self, body: Any, seconds: float) -> Response:
        if as_object(body).get("status") == "failed":
            raise self._failed(as_object(body.get("error")))
        output = self._expect(body, "output")
        status: Any = body.get("status", "completed")
        if status not in ("completed", "incomplete"):
            raise Garbled(f"{self.name}: expected a finished answer, found status {status!r}")
        messages = [item for item in output if item.get("type") == "message"]
        parts: list[Json] = [part for item in messages for part in item.get("content") or []]
        refusals = [part.get("refusal", "") for part in parts if part.get("type") == "refusal"]
        texts = [part.get("text", "") for part in parts if part.get("type") == "output_text"]
        finish = FinishReason.REFUSAL if refusals else FinishReason.STOP
        if status == "incomplete":
            reason = str(as_object(body.get("incomplete_details")).get("reason"))
            finish = INCOMPLETE.get(reason, FinishReason.OTHER)
        reasoning, available = _reasoning(output)
        return Response(
            text="".join(texts or refusals),
            finish=finish,
            usage=_usage(body.get("usage"), "input", "output"),
            model=str(body.get("model") or self._model),
            native=tuple(output),
            reasoning=reasoning,
            reasoning_available=available,
            response_id=str(body.get("id") or ""),
            seconds=seconds,
            raw=body,
        )

    def _failed(self, error: Json) -> RateLimited | Unavailable | Refused:
        code = str(error.get("code") or "")
        text = f"{self.name}: the answer failed: {error.get('message') or 'no message'} ({code or 'no code'})"
        kind = FAILED.get(code)
        return kind(text) if kind else Refused(text, fatal=False)


def _items(message: Message) -> Iterable[Json]:
    """The input items that replay one message."""
    items = list(message.native)
    # An answer cut off while it reasoned ends in a reasoning item; the service refuses one with no follower.
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items or [{"role": message.role, "content": message.content or NO_ANSWER}]


def _reasoning(output: Iterable[Json]) -> tuple[str, Literal["none", "summary", "full", "encrypted"]]:
    items = [item for item in output if item.get("type") == "reasoning"]
    full = [part.get("text", "") for item in items for part in item.get("content") or []]
    summary = [part.get("text", "") for item in items for part in item.get("summary") or []]
    if any(full):
        return "\n\n".join(full), "full"
    if any(summary):
        return "\n\n".join(summary), "summary"
    return "", "encrypted" if any(item.get("encrypted_content") for item in items) else "none"


class OpenAIChat(_OpenAI):
    """Chat Completions: OpenAI's own, and every server that speaks it (vLLM, SGLang, llama.cpp, gateways)."""

    def _arguments(self, request: Request) -> Json:
        arguments: Json = {
            "model": self._model,
            "messages": [{"role": m.role, "content": m.content or NO_ANSWER} for m in request.messages],
        }
        if request.max_output_tokens is not None:
            # OpenAI's reasoning models refuse the old name, many servers know no other.
            field = "max_tokens" if self._base_url else "max_completion_tokens"
            arguments[field] = request.max_output_tokens
        if request.temperature is not None:
            arguments["temperature"] = request.temperature
        if self._effort is not None:
            arguments["reasoning_effort"] = self._effort
        if self._extra:
            arguments["extra_body"] = self._extra
        return arguments

    async def _send(self, arguments: Json) -> Any:
        raw = await self._client.chat.completions.with_raw_response.create(**arguments)
        return raw.http_response.json()

    def _read(self, body: Any, seconds: float) -> Response:
        choice = self._expect(body, "choices")[0]
        message: Any = choice.get("message")
        if not isinstance(message, dict):
            raise Garbled(f"{self.name}: expected a choice with a message, found {shape(choice)}")
        message = cast("Json", message)
        content: Any = message.get("content")
        if isinstance(content, list):  # some gateways answer in parts
            content = "".join(part.get("text", "") for part in cast("list[Json]", content))
        refusal = message.get("refusal")
        finish = CHAT_FINISH.get(str(choice.get("finish_reason")), FinishReason.OTHER)
        reasoning = str(message.get("reasoning_content") or message.get("reasoning") or "")
        return Response(
            text=str(content or refusal or ""),
            finish=FinishReason.REFUSAL if refusal else finish,
            usage=_usage(body.get("usage"), "prompt", "completion"),
            model=str(body.get("model") or self._model),
            reasoning=reasoning,
            reasoning_available="full" if reasoning else "none",
            response_id=str(body.get("id") or ""),
            seconds=seconds,
            raw=body,
        )


def _usage(found: Any, put: str, got: str) -> Usage:
    """Both formats count alike under different names: input includes cached tokens, output includes
    reasoning."""
    usage = as_object(found)
    put_details = as_object(usage.get(f"{put}_tokens_details"))
    got_details = as_object(usage.get(f"{got}_tokens_details"))
    return Usage(
        input=as_count(usage.get(f"{put}_tokens")),
        cached=as_count(put_details.get("cached_tokens")),
        cache_write=as_count(put_details.get("cache_write_tokens")),
        output=as_count(usage.get(f"{got}_tokens")),
        reasoning=as_count(got_details.get("reasoning_tokens")),
    )
