"""What is Anthropic's own: streams that break, thinking that goes back unmodified, cache marks, usage that
adds up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.models.anthropic import DEFAULT_MAX_TOKENS, Anthropic
from agent.models.base import (
    ContextOverflow,
    Garbled,
    Message,
    ModelError,
    RateLimited,
    Refused,
    Unavailable,
    Usage,
)
from tests.agent.models.conftest import MakeRequest
from tests.agent.models.services import SERVICES, ask, fails
from tests.servers.wire import Reply, WireServer

MESSAGES = SERVICES["messages"]
CACHE = {"type": "ephemeral"}


async def sent(request: Any, **options: Any) -> dict[str, Any]:
    """The body that goes out."""
    with WireServer() as server:
        model = Anthropic("m", base_url=server.anthropic_url, api_key="k", **options)
        await model.respond(request)
        await model.close()
        return server.calls[0].body


async def test_the_stable_prefix_and_the_end_are_marked_for_the_cache(make_request: MakeRequest) -> None:
    request = make_request(
        *make_request().messages, Message(role="assistant", content="one"), Message(role="user", content="no")
    )
    body = await sent(request, effort="high", extra={"thinking": {"type": "adaptive"}})
    assert body["stream"] is True
    assert body["max_tokens"] == DEFAULT_MAX_TOKENS
    assert body["system"] == [{"type": "text", "text": "You write PTX.", "cache_control": CACHE}]
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Write the kernel affine.", "cache_control": CACHE}
    ]
    assert body["cache_control"] == CACHE
    assert str(body["messages"][1:]).count("cache_control") == 0
    assert body["output_config"] == {"effort": "high"}
    assert body["thinking"] == {"type": "adaptive"}
    assert "temperature" not in body


async def test_thinking_is_kept_with_its_signature(make_request: MakeRequest) -> None:
    response = await ask(MESSAGES, make_request(), Reply(text="answer"))
    thinking, redacted, text = response.native
    assert thinking["thinking"] == "Let me see.\n"
    assert set(thinking) == {"type", "thinking", "signature"}
    assert thinking["signature"].startswith("Er")
    assert set(redacted) == {"type", "data"}
    assert text == {"type": "text", "text": "answer"}
    assert (response.reasoning, response.reasoning_available) == ("Let me see.\n", "summary")
    bare = await ask(MESSAGES, make_request(), Reply(reasoning=False))
    assert (bare.reasoning, bare.reasoning_available) == ("", "none")


async def test_usage_counts_cached_tokens_as_input(make_request: MakeRequest) -> None:
    with WireServer([Reply(text="x" * 40, cached=20)]) as server:
        model = MESSAGES.model(server)
        response = await model.respond(make_request())
        await model.close()
        fresh = len(server.calls[0].raw) // 4 - 20
    assert response.usage == Usage(input=fresh + 20 + 11, cached=20, cache_write=11, output=17, reasoning=7)


async def test_an_empty_answer_can_be_replayed(make_request: MakeRequest) -> None:
    """The service sends empty text blocks and takes none."""
    response = await ask(MESSAGES, make_request(), Reply(text="", reasoning=False))
    assert response.native == ({"type": "text", "text": ""},)
    turn = Message(role="assistant", content=response.text, native=response.native)
    body = await sent(make_request(*make_request().messages, turn, Message(role="user", content="again")))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "(no answer)"}]


@pytest.mark.parametrize(
    ("reply", "becomes", "fatal"),
    [
        (Reply(kind="stream_error"), Unavailable, None),
        (Reply(kind="stream_error", code="api_error"), Unavailable, None),
        (Reply(kind="stream_error", code="timeout_error"), Unavailable, None),
        (Reply(kind="stream_error", code="rate_limit_error"), RateLimited, None),
        (Reply(kind="stream_error", code="authentication_error"), Refused, True),
        (Reply(kind="stream_error", code="invalid_request_error"), Refused, False),
        (Reply(kind="ended"), Garbled, None),
        (Reply(kind="spend_limit"), Refused, True),
        (Reply(kind="429", code="contract_spend_limit_reached"), Refused, True),
        (Reply(kind="429", code="ramp_limit_exceeded", headers={"retry-after": "3"}), RateLimited, None),
        (Reply(kind="400_plain", code="organization_on_hold"), Refused, True),
        (Reply(kind="400_plain", message="prompt is too long: 9 tokens > 8 maximum"), ContextOverflow, None),
        (Reply(kind="400_plain", code="exceed_context_size_error"), ContextOverflow, None),
        (Reply(kind="400_plain", message="prompt is too long", code="some_other_code"), Refused, False),
    ],
)
async def test_a_failure_of_its_own_kind(
    make_request: MakeRequest, reply: Reply, becomes: type[ModelError], fatal: bool | None
) -> None:
    error = await fails(MESSAGES, make_request(), reply)
    assert type(error) is becomes
    assert getattr(error, "fatal", None) == fatal


async def test_a_stream_that_stalls_is_a_failure_that_passes(make_request: MakeRequest) -> None:
    error = await fails(MESSAGES, make_request(), Reply(kind="stalled"), timeout=0.3)
    assert type(error) is Unavailable


async def test_cancelling_within_a_stream_closes_the_connection(make_request: MakeRequest) -> None:
    with WireServer([Reply(kind="stalled")]) as server:
        model = MESSAGES.model(server)
        task = asyncio.create_task(model.respond(make_request()))
        await asyncio.sleep(0.3)  # long enough to be within the stream; if not, the test is merely weaker
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            while server.open_connections:  # noqa: ASYNC110 (the server runs in threads)
                await asyncio.sleep(0.01)
        await model.close()


async def test_a_profile_or_token_in_the_environment_is_not_used(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "somebody-elses-token")
    with WireServer() as server:
        model = Anthropic("m", base_url=server.anthropic_url, api_key="the-given-key")
        await model.respond(make_request())
        await model.close()
        assert "somebody-elses-token" not in str(server.calls[0].headers)
