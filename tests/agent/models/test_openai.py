"""What is OpenAI's own: the stateless Responses conversation, the two formats' fields, failures told by
code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.models.base import (
    ContextOverflow,
    FinishReason,
    Garbled,
    Message,
    ModelError,
    RateLimited,
    Refused,
    Unavailable,
    Usage,
)
from agent.models.openai import OpenAIChat, OpenAIResponses
from tests.agent.models.conftest import MakeRequest
from tests.agent.models.services import SERVICES, ask, fails
from tests.servers.wire import Reply, WireServer

RESPONSES, CHAT = SERVICES["responses"], SERVICES["chat"]


async def sent(kind: type[OpenAIResponses | OpenAIChat], request: Any, **options: Any) -> dict[str, Any]:
    """The body that goes out."""
    with WireServer() as server:
        model = kind("m", base_url=server.openai_url, api_key="k", **options)
        await model.respond(request)
        await model.close()
        return server.calls[0].body


async def test_responses_keeps_no_state_at_the_service(make_request: MakeRequest) -> None:
    body = await sent(OpenAIResponses, make_request(), effort="high", extra={"service_tier": "flex"})
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "You write PTX."
    assert body["input"] == [{"role": "user", "content": "Write the kernel affine."}]
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["service_tier"] == "flex"
    assert not {"previous_response_id", "temperature", "max_output_tokens"} & body.keys()


async def test_chat_sends_plain_messages(make_request: MakeRequest) -> None:
    request = make_request(
        *make_request().messages,
        Message(role="assistant", content="one"),
        Message(role="user", content="wrong"),
        Message(role="assistant", content=""),
        Message(role="user", content="wrong again"),
        max_output_tokens=9,
    )
    body = await sent(OpenAIChat, request, effort="low", extra={"top_k": 3})
    assert [message["role"] for message in body["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert all(message["content"] for message in body["messages"])
    assert (body["max_tokens"], body["reasoning_effort"], body["top_k"]) == (9, "low", 3)
    assert "max_completion_tokens" not in body


async def test_encrypted_reasoning_is_kept_as_it_came(make_request: MakeRequest) -> None:
    response = await ask(RESPONSES, make_request(), Reply(text="t"))
    reasoning, message = response.native
    assert list(reasoning) == ["id", "type", "summary", "encrypted_content", "x_unknown"]
    assert reasoning["x_unknown"] == [None, 1.0]
    assert message["content"][0]["annotations"] == []
    assert response.reasoning_available == "encrypted"
    assert response.native == tuple(response.raw["output"])
    assert (await ask(RESPONSES, make_request(), Reply(reasoning=False))).reasoning_available == "none"


async def test_an_answer_cut_off_while_reasoning_can_be_replayed(make_request: MakeRequest) -> None:
    """A reasoning item without a follower is refused by the service, so it does not go back."""
    lonely = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x"}
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    body = {"id": "r", "model": "m", "output": [lonely], **cut}
    response = await ask(RESPONSES, make_request(), Reply(body=json.dumps(body)))
    assert (response.text, response.finish, response.native) == ("", FinishReason.LENGTH, (lonely,))
    turn = Message(role="assistant", content=response.text, native=response.native)
    body = await sent(
        OpenAIResponses, make_request(*make_request().messages, turn, Message(role="user", content="again"))
    )
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("item", "text", "available"),
    [
        (
            {"summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "x"},
            "short",
            "summary",
        ),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "long"}]}, "long", "full"),
        ({"summary": None, "content": None}, "", "none"),
    ],
)
async def test_reasoning_that_can_be_read_is_read(
    make_request: MakeRequest, item: dict[str, Any], text: str, available: str
) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]}
    body = {"id": "r", "status": "completed", "output": [{"type": "reasoning", **item}, message]}
    response = await ask(RESPONSES, make_request(), Reply(body=json.dumps(body)))
    assert (response.text, response.reasoning, response.reasoning_available) == ("t", text, available)
    assert response.usage == Usage()
    assert response.model == "m"


async def test_chat_reads_reasoning_parts_and_odd_ends(make_request: MakeRequest) -> None:
    response = await ask(CHAT, make_request(), Reply(text="t"))
    assert (response.reasoning, response.reasoning_available) == ("thinking about it", "full")
    assert response.native == ()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "eos"}], "usage": None}
    response = await ask(CHAT, make_request(), Reply(body=json.dumps(body)))
    assert (response.text, response.finish) == ("ab", FinishReason.OTHER)
    silent = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    response = await ask(CHAT, make_request(), Reply(body=json.dumps(silent)))
    assert (response.text, response.finish) == ("", FinishReason.LENGTH)


@pytest.mark.parametrize("service", [RESPONSES, CHAT], ids=["responses", "chat"])
@pytest.mark.parametrize(
    ("reply", "becomes", "fatal"),
    [
        (Reply(kind="context", message="any words"), ContextOverflow, None),
        (Reply(kind="400_plain", code="exceed_context_size_error"), ContextOverflow, None),
        # vLLM repeats the status where the code should be, so its sentence has to do.
        (
            Reply(kind="400_plain", code="400", message="This model's maximum context length is 64 tokens"),
            ContextOverflow,
            None,
        ),
        # A code there is, and it is another one: the sentence does not count.
        (Reply(kind="400", message="maximum context length", code="invalid_prompt"), Refused, False),
        (Reply(kind="400"), Refused, True),
        (Reply(kind="400_plain", code="unsupported_value"), Refused, True),
        (Reply(kind="quota"), Refused, True),
    ],
)
async def test_a_code_decides(
    service: Any, make_request: MakeRequest, reply: Reply, becomes: type[ModelError], fatal: bool | None
) -> None:
    error = await fails(service, make_request(), reply)
    assert type(error) is becomes
    assert getattr(error, "fatal", None) == fatal


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        ("server_error", Unavailable),
        ("rate_limit_exceeded", RateLimited),
        ("invalid_prompt", Refused),
        (None, Refused),
    ],
)
async def test_an_answer_that_failed_on_the_way(
    make_request: MakeRequest, code: str | None, becomes: type[ModelError]
) -> None:
    body = {"id": "r", "status": "failed", "output": [], "error": {"code": code, "message": "sorry"}}
    error = await fails(RESPONSES, make_request(), Reply(body=json.dumps(body)))
    assert type(error) is becomes
    assert getattr(error, "fatal", False) is False
    assert "sorry" in str(error)


async def test_an_answer_that_is_not_finished_is_garbled(make_request: MakeRequest) -> None:
    body = {"id": "r", "status": "in_progress", "output": [{"type": "message", "content": []}]}
    assert type(await fails(RESPONSES, make_request(), Reply(body=json.dumps(body)))) is Garbled
    nothing = {"choices": [{"message": "text", "finish_reason": "stop"}]}
    assert type(await fails(CHAT, make_request(), Reply(body=json.dumps(nothing)))) is Garbled


async def test_a_page_of_html_is_shortened(make_request: MakeRequest) -> None:
    error = await fails(CHAT, make_request(), Reply(kind="503", message="<p>\n " * 5000))
    assert len(str(error)) < 1000
    assert "\n" not in str(error)


async def test_half_a_character_does_not_spoil_the_record(make_request: MakeRequest) -> None:
    body = '{"choices": [{"message": {"content": "a\\ud800b"}, "finish_reason": "stop"}]}'
    response = await ask(CHAT, make_request(), Reply(body=body))
    assert response.text == "a\ufffdb"
    response.model_dump_json()
