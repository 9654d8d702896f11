"""The bodies of the three wire formats: what a service sends for one answer, and what it sends for a failure.

Everything is a function of the request's bytes and the reply, so the same request always gets the same
body: two runs of the same episodes, one of them killed and resumed, can be compared byte by byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

CREATED = 1_764_547_200
"""A constant second: bodies must not depend on the clock."""


@dataclass(frozen=True)
class Reply:
    """What the server does with one call."""

    kind: str = "ok"
    """`ok`, a key of FAILURES, or one of `truncated`, `refused`, `malformed` (broken JSON), `empty` (no
    choices), `cut` (connection closed half way), `slow` (never answers); for streams also `stalled` (stops
    half way), `ended` (no final events), `stream_error` (an error event half way)."""
    text: str = "ok"
    reasoning: bool = True
    """Whether the answer carries a reasoning item or thinking blocks."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Further response headers, such as retry-after."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    message: str = ""
    """The error message; may use `{authorization}` to echo what the client sent, as careless services do."""
    code: str = ""
    """The error code of a failure, where the table's own is not wanted."""
    cached: int = 0
    """Input tokens reported as read from the cache."""
    body: str | None = None
    """The whole body, sent with status 200 in place of an answer."""


FAILURES: dict[str, tuple[int, str, str]] = {
    # kind: status, error type as both services name it, error code as OpenAI names it
    "400": (400, "invalid_request_error", "unsupported_parameter"),
    "400_plain": (400, "invalid_request_error", ""),
    "401": (401, "authentication_error", "invalid_api_key"),
    "402": (402, "billing_error", "billing_not_active"),
    "403": (403, "permission_error", "permission_denied"),
    "404": (404, "not_found_error", "model_not_found"),
    "408": (408, "timeout_error", "request_timeout"),
    "409": (409, "conflict_error", "conflict"),
    "413": (413, "request_too_large", "request_too_large"),
    "422": (422, "invalid_request_error", "unprocessable"),
    "429": (429, "rate_limit_error", "rate_limit_exceeded"),
    "quota": (429, "rate_limit_error", "insufficient_quota"),
    "spend_limit": (429, "rate_limit_error", "enforced_spend_limit_reached"),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "500": (500, "api_error", "server_error"),
    "503": (503, "api_error", "server_error"),
    "529": (529, "overloaded_error", "overloaded"),
}


def tokens(text: str) -> int:
    """A stand-in for a tokenizer: four bytes a token, at least one."""
    return max(1, len(text.encode()) // 4)


def identity(prefix: str, raw: bytes) -> str:
    """An id that is a function of the request."""
    return f"{prefix}_{hashlib.sha256(raw).hexdigest()[:24]}"


def failure(path: str, reply: Reply, authorization: str) -> tuple[int, bytes]:
    """Status and body of a failure, in the shape of the service that `path` belongs to."""
    status, kind, code = FAILURES[reply.kind]
    code = reply.code or code
    message = (reply.message or f"scripted {reply.kind}").replace("{authorization}", authorization)
    if path.endswith("/messages"):
        error: dict[str, Any] = {"type": kind, "message": message}
        if reply.kind == "spend_limit" or reply.code:
            error["details"] = {"error_code": code}
        body: dict[str, Any] = {"type": "error", "error": error, "request_id": "req_1"}
    else:
        body = {"error": {"message": message, "type": kind, "param": None, "code": code or None}}
    return status, json.dumps(body).encode()


def _usage(raw: bytes, reply: Reply) -> tuple[int, int, int]:
    return tokens(raw.decode("utf-8", "replace")), tokens(reply.text), 7 if reply.reasoning else 0


def responses(raw: bytes, reply: Reply) -> dict[str, Any]:
    """A Responses API answer: a reasoning item with encrypted content, then the message."""
    request: dict[str, Any] = json.loads(raw)
    put, got, thought = _usage(raw, reply)
    text, cut = reply.text, reply.kind == "truncated"
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    if reply.kind == "refused":
        part = {"type": "refusal", "refusal": text}
    output: list[dict[str, Any]] = []
    if reply.reasoning:
        seal = "gAAAAA" + hashlib.sha256(raw).hexdigest()
        # A field no SDK knows: what is kept verbatim must keep it too.
        output.append(
            {
                "id": identity("rs", raw),
                "type": "reasoning",
                "summary": [],
                "encrypted_content": seal,
                "x_unknown": [None, 1.0],
            }
        )
    output.append(
        {
            "id": identity("msg", raw),
            "type": "message",
            "status": "incomplete" if cut else "completed",
            "content": [part],
            "role": "assistant",
        }
    )
    return {
        "id": identity("resp", raw),
        "object": "response",
        "created_at": CREATED,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.get("instructions"),
        "model": f"{request.get('model')}-2026-01-01",
        "output": [] if reply.kind == "empty" else output,
        "parallel_tool_calls": True,
        "store": request.get("store"),
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": put,
            "input_tokens_details": {"cached_tokens": reply.cached, "cache_write_tokens": 0},
            "output_tokens": got + thought,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": put + got + thought,
        },
    }


def chat(raw: bytes, reply: Reply) -> dict[str, Any]:
    """A Chat Completions answer, with the reasoning text that vLLM and SGLang add."""
    request: dict[str, Any] = json.loads(raw)
    put, got, thought = _usage(raw, reply)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.kind == "refused":
        message |= {"content": None, "refusal": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = "thinking about it"
    finish = {"truncated": "length", "refused": "stop"}.get(reply.kind, "stop")
    return {
        "id": identity("chatcmpl", raw),
        "object": "chat.completion",
        "created": CREATED,
        "model": f"{request.get('model')}-2026-01-01",
        "choices": []
        if reply.kind == "empty"
        else [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": put,
            "completion_tokens": got + thought,
            "total_tokens": put + got + thought,
            "prompt_tokens_details": {"cached_tokens": reply.cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        },
    }


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def messages(raw: bytes, reply: Reply) -> list[bytes]:
    """The events of a streamed Messages answer: thinking, redacted thinking, then the text in deltas."""
    request: dict[str, Any] = json.loads(raw)
    put, got, thought = _usage(raw, reply)
    usage = {
        "input_tokens": put - reply.cached,
        "cache_creation_input_tokens": 11,
        "cache_read_input_tokens": reply.cached,
        "output_tokens": 1,
    }
    start: dict[str, Any] = {
        "id": identity("msg", raw),
        "type": "message",
        "role": "assistant",
        "model": f"{request.get('model')}-20260101",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if reply.reasoning:
        seal = "Er" + hashlib.sha256(raw).hexdigest()
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": part} for part in ("Let me ", "see.\n")]
        blocks.append((thinking, [*deltas, {"type": "signature_delta", "signature": seal}]))
        blocks.append(({"type": "redacted_thinking", "data": "Em" + seal}, []))
    size = max(1, len(reply.text) // 3)
    parts = [reply.text[at : at + size] for at in range(0, len(reply.text), size)]
    blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in parts]))
    stop = {"truncated": "max_tokens", "refused": "refusal"}.get(reply.kind, "end_turn")
    events = [_event("message_start", {"message": start}), _event("ping", {})]
    for index, (block, deltas) in enumerate(blocks):
        events.append(_event("content_block_start", {"index": index, "content_block": block}))
        events += [_event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        events.append(_event("content_block_stop", {"index": index}))
    final = {
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": got + thought, "output_tokens_details": {"thinking_tokens": thought}},
    }
    events += [_event("message_delta", final), _event("message_stop", {})]
    if reply.kind == "empty":
        return events[1:2]
    if reply.kind == "malformed":
        return [*events[:3], b'event: content_block_delta\ndata: {"type": "content_bl\n\n']
    if reply.kind == "stream_error":
        error = {
            "error": {"type": reply.code or "overloaded_error", "message": reply.message or "Overloaded"}
        }
        return [*events[:4], _event("error", error)]
    if reply.kind == "ended":
        return events[:-2]
    return events
