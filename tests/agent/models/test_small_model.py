"""A real model behind the real SDKs: its answers are hopeless, the wire is whole. Needs the extra
`smallmodel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from agent.models.base import ContextOverflow, FinishReason, Message, Response
from agent.models.factory import ModelOptions, make_model
from agent.models.pricing import load_prices
from agent.models.retry import respond
from tests.agent.models.conftest import MakeRequest
from tests.servers.small_model import CONTEXT, missing, small_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"the extra 'smallmodel' is not installed: {missing()}"),
]

# How the three formats are reached, and whether the server tells a cut answer (its Responses does not).
WAYS: dict[str, tuple[str, str, Literal["responses", "chat"], bool]] = {
    "responses": ("openai:smollm2", "/v1", "responses", False),
    "chat": ("openai:smollm2", "/v1", "chat", True),
    "messages": ("anthropic:smollm2", "", "responses", True),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with small_model() as url:
        assert url.startswith("http://127.0.0.1:")
        yield url


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest, address: str) -> tuple[str, ModelOptions, bool]:
    spec, path, api, tells = WAYS[request.param]
    return spec, ModelOptions(base_url=address + path, api=api), tells


async def test_three_turns(way: tuple[str, ModelOptions, bool], make_request: MakeRequest) -> None:
    spec, options, _ = way
    model = make_model(spec, options)
    conversation = list(make_request().messages)
    responses: list[Response] = []
    for turn in (1, 2, 3):
        request = make_request(*conversation, turn=turn, max_output_tokens=24, temperature=0.0)
        response = await respond(model, request)
        responses.append(response)
        conversation.append(Message(role="assistant", content=response.text, native=response.native))
        conversation.append(Message(role="user", content="ptxas: fatal: missing .version. Write it again."))
    await model.close()
    for response in responses:
        assert response.text.strip()
        assert 0 < response.usage.output <= 24
        assert response.usage.cached <= response.usage.input
        assert response.model == "smollm2"
        assert response.seconds > 0
        assert Response.model_validate_json(response.model_dump_json()) == response
    sizes = [response.usage.input for response in responses]
    assert sizes == sorted(set(sizes)), "each turn reads more than the one before"
    assert responses[-1].usage.cached > responses[0].usage.input // 2, "the prefix is found again"
    assert load_prices().cost(spec, responses[-1].usage, options.base_url) == 0.0


async def test_an_answer_cut_at_the_limit(
    way: tuple[str, ModelOptions, bool], make_request: MakeRequest
) -> None:
    spec, options, tells = way
    model = make_model(spec, options)
    request = make_request(
        Message(role="user", content="Count from one to one hundred."), max_output_tokens=5
    )
    response = await model.respond(request)
    await model.close()
    assert response.usage.output == 5
    assert response.finish == (FinishReason.LENGTH if tells else FinishReason.STOP)


async def test_a_prompt_that_does_not_fit(
    way: tuple[str, ModelOptions, bool], make_request: MakeRequest
) -> None:
    spec, options, _ = way
    model = make_model(spec, options)
    with pytest.raises(ContextOverflow):
        await model.respond(make_request(Message(role="user", content="mov.u32 " * CONTEXT)))
    await model.close()
