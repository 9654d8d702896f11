"""What holds for every service: real SDKs against a real server on loopback, one set of expectations for
all three formats."""

from __future__ import annotations

import asyncio
import itertools
import json
import traceback
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
    Response,
    Unavailable,
)
from agent.models.retry import respond
from tests.agent.models.conftest import MakeRequest
from tests.agent.models.services import KEY, SERVICES, Service, ask, fails
from tests.servers.wire import Reply, WireServer


@pytest.fixture(params=list(SERVICES))
def service(request: pytest.FixtureRequest) -> Service:
    return SERVICES[request.param]


async def test_an_answer(service: Service, make_request: MakeRequest) -> None:
    with WireServer([Reply(text="Grüße\n```ptx\n.version 8.0\n```\n", cached=4)]) as server:
        model = service.model(server)
        response = await model.respond(make_request(max_output_tokens=123, temperature=0.5))
        await model.close()
        await model.close()
        (call,) = server.calls
    assert response.text == "Grüße\n```ptx\n.version 8.0\n```\n"
    assert response.finish == FinishReason.STOP
    assert response.model.startswith("m-2026")
    assert response.response_id
    assert response.seconds > 0
    assert (response.usage.cached, response.usage.reasoning) == (4, 7)
    assert response.usage.input > response.usage.cached
    assert response.usage.output >= response.usage.reasoning
    assert json.loads(response.model_dump_json())["text"] == response.text
    assert call.path.split("?")[0] == service.path
    assert call.body["temperature"] == 0.5
    assert 123 in (call.body.get("max_output_tokens"), call.body.get("max_tokens"))
    assert KEY in call.headers["authorization"]


@pytest.mark.parametrize(
    ("kind", "finish"), [("truncated", FinishReason.LENGTH), ("refused", FinishReason.REFUSAL)]
)
async def test_how_an_answer_ended(
    service: Service, make_request: MakeRequest, kind: str, finish: FinishReason
) -> None:
    response = await ask(service, make_request(), Reply(kind=kind, text="as far as it"))
    assert (response.finish, response.text) == (finish, "as far as it")


FAILURES: list[tuple[str, type[ModelError], bool | None]] = [
    # reply, what it becomes, and for a refusal whether it concerns every episode
    ("429", RateLimited, None),
    ("500", Unavailable, None),
    ("503", Unavailable, None),
    ("529", Unavailable, None),
    ("408", Unavailable, None),
    ("409", Unavailable, None),
    ("cut", Unavailable, None),
    ("malformed", Garbled, None),
    ("empty", Garbled, None),
    ("401", Refused, True),
    ("402", Refused, True),
    ("403", Refused, True),
    ("404", Refused, True),
    ("400_plain", Refused, False),
    ("422", Refused, False),
    ("413", ContextOverflow, None),
]


@pytest.mark.parametrize(("kind", "becomes", "fatal"), FAILURES, ids=[kind for kind, *_ in FAILURES])
async def test_a_failure_becomes_ours(
    service: Service, make_request: MakeRequest, kind: str, becomes: type[ModelError], fatal: bool | None
) -> None:
    error = await fails(service, make_request(), Reply(kind=kind, message="what the service says"))
    assert type(error) is becomes
    assert getattr(error, "fatal", None) == fatal
    assert str(error).startswith(("openai:m: ", "anthropic:m: "))
    if kind[0].isdigit():
        assert "what the service says" in str(error)
        assert kind[:3] in str(error)


@pytest.mark.parametrize("kind", ["429", "503"])
async def test_retry_after_is_passed_on(service: Service, make_request: MakeRequest, kind: str) -> None:
    error = await fails(service, make_request(), Reply(kind=kind, headers={"retry-after-ms": "1500"}))
    assert isinstance(error, RateLimited | Unavailable)
    assert error.retry_after == 1.5
    error = await fails(service, make_request(), Reply(kind=kind))
    assert isinstance(error, RateLimited | Unavailable)
    assert error.retry_after is None


async def test_silence_is_a_failure_that_passes(service: Service, make_request: MakeRequest) -> None:
    error = await fails(service, make_request(), Reply(kind="slow"), timeout=0.2)
    assert type(error) is Unavailable


async def test_an_answer_past_its_deadline_is_a_failure_that_passes(
    service: Service, make_request: MakeRequest
) -> None:
    error = await fails(service, make_request(), Reply(kind="slow"), deadline=0.2)
    assert type(error) is Unavailable


async def test_a_server_that_is_not_there(service: Service, make_request: MakeRequest) -> None:
    with WireServer() as server:
        model = service.model(server)
    with pytest.raises(Unavailable):
        await model.respond(make_request())
    await model.close()


@pytest.mark.parametrize(
    "body",
    ["", "null", "[]", "7", '"text"', "{}", "<html>hello</html>", '{"choices": [null], "output": [3]}'],
)
async def test_a_success_that_is_no_answer_is_garbled(
    service: Service, make_request: MakeRequest, body: str
) -> None:
    assert type(await fails(service, make_request(), Reply(body=body))) is Garbled


async def test_it_recovers_through_the_retry_policy(service: Service, make_request: MakeRequest) -> None:
    script = [
        Reply(kind="429", headers={"retry-after": "0"}),
        Reply(kind="500"),
        Reply(kind="malformed"),
        Reply(kind="cut"),
        Reply(text="at last"),
    ]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with WireServer(script) as server:
        model = service.model(server)
        response = await respond(model, make_request(), sleep=sleep)
        await model.close()
        assert len(server.calls) == 5
        assert len({call.raw for call in server.calls}) == 1, "each attempt sends the same bytes"
    assert response.text == "at last"
    assert waits[0] == 0.0
    assert all(wait > 0 for wait in waits[1:])


async def test_three_turns_extend_each_other_byte_for_byte(
    service: Service, make_request: MakeRequest
) -> None:
    """Each request's conversation starts with the bytes of the previous one, and native items come back
    untouched."""
    conversation = list(make_request().messages)
    natives: list[tuple[dict[str, Any], ...]] = []
    with WireServer([Reply(text=f"answer {n}") for n in range(1, 4)]) as server:
        model = service.model(server)
        for turn in (1, 2, 3):
            response = await model.respond(make_request(*conversation, turn=turn))
            natives.append(response.native)
            # As after a crash: what was journaled as JSON comes back from JSON.
            kept = Response.model_validate_json(response.model_dump_json())
            assert kept.native == response.native
            conversation.append(Message(role="assistant", content=kept.text, native=kept.native))
            conversation.append(Message(role="user", content=f"feedback {turn}"))
        await model.close()
        calls = server.calls
    parts = [conversation_bytes(call.raw, service.messages) for call in calls]
    for before, after in itertools.pairwise(parts):
        assert after.startswith(before[:-1] + b",")
    sent = json.loads(parts[2])
    for native in natives[:2]:
        for item in native:
            flat = [*sent, *(block for message in sent for block in blocks(message))]
            assert item in flat
    if service.path != "/v1/chat/completions":
        assert all(len(native) >= 2 for native in natives)


def blocks(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def conversation_bytes(raw: bytes, field: str) -> bytes:
    """The bytes of a field's array in a JSON body, as they were sent."""
    text = raw.decode()
    mark = f'"{field}":'
    start = text.index(mark) + len(mark)
    start += len(text[start:]) - len(text[start:].lstrip())
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()


async def test_cancelling_closes_the_connection(service: Service, make_request: MakeRequest) -> None:
    with WireServer([Reply(kind="slow")]) as server:
        model = service.model(server)
        task = asyncio.create_task(model.respond(make_request()))
        async with asyncio.timeout(10):
            while not server.calls:  # noqa: ASYNC110 (the server runs in threads)
                await asyncio.sleep(0.01)
        assert server.open_connections == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            while server.open_connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await model.close()


async def test_many_at_once_share_a_client(service: Service, make_request: MakeRequest) -> None:
    with WireServer(lambda call: Reply(text=call.first_text[-3:])) as server:
        model = service.model(server)
        requests = [make_request(Message(role="user", content=f"number {n:03}")) for n in range(40)]
        responses = await asyncio.gather(*[model.respond(request) for request in requests])
        await model.close()
    assert [response.text for response in responses] == [f"{n:03}" for n in range(40)]


ECHOES = [
    Reply(text=f"your key is {KEY}", message="unused"),
    Reply(kind="401", message="Incorrect key {authorization}"),
    Reply(kind="400_plain", message="Bad request with {authorization}"),
    Reply(kind="429", message="Slow down {authorization}"),
    Reply(kind="500", message="Trace: {authorization}"),
    Reply(kind="context", message="{authorization} is too long"),
    Reply(kind="404", message="x", code=KEY),
    Reply(body=f'{{"error": "{KEY}"}}'),
]


@pytest.mark.parametrize("reply", ECHOES, ids=[reply.kind for reply in ECHOES])
async def test_a_key_that_a_service_echoes_goes_nowhere(
    service: Service, make_request: MakeRequest, reply: Reply
) -> None:
    with WireServer([reply]) as server:
        model = service.model(server)
        (outcome,) = await asyncio.gather(model.respond(make_request()), return_exceptions=True)
        await model.close()
        assert KEY in server.calls[0].headers["authorization"]
    if isinstance(outcome, Response):
        assert KEY not in outcome.model_dump_json()
        return
    assert isinstance(outcome, ModelError)
    assert KEY not in "".join(traceback.format_exception(outcome))
    assert KEY not in repr(vars(outcome))
    # The SDK's exception carries the request, and with it the key.
    assert (outcome.__context__, outcome.__cause__) == (None, None)


async def test_a_server_without_keys_gets_none_of_ours(
    service: Service, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    with WireServer([Reply(text="none of your business")]) as server:
        model = service.model(server, api_key=None)
        response = await model.respond(make_request())
        await model.close()
        assert server.calls[0].headers["authorization"] == "Bearer none"
    assert response.text == "none of your business"
