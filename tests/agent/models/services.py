"""The three adapters, each with its way to the scripted server, and one attempt against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agent.models.anthropic import Anthropic
from agent.models.base import Model, ModelError, Request, Response
from agent.models.openai import OpenAIChat, OpenAIResponses
from tests.servers.wire import Reply, WireServer

KEY = "sk-recognisable-0123456789abcdef"


class Service(NamedTuple):
    """One adapter, and where it finds the server."""

    make: Callable[..., Model]
    url: Callable[[WireServer], str]
    path: str
    messages: str
    """The field of the request's body that holds the conversation."""

    def model(self, server: WireServer, **options: Any) -> Model:
        options = {"api_key": KEY, "timeout": 20.0} | options
        return self.make("m", base_url=self.url(server), **options)


SERVICES = {
    "responses": Service(OpenAIResponses, lambda s: s.openai_url, "/v1/responses", "input"),
    "chat": Service(OpenAIChat, lambda s: s.openai_url, "/v1/chat/completions", "messages"),
    "messages": Service(Anthropic, lambda s: s.anthropic_url, "/v1/messages", "messages"),
}


async def ask(service: Service, request: Request, *script: Reply, **options: Any) -> Response:
    """One attempt against a server that replies by `script`."""
    with WireServer(list(script)) as server:
        model = service.model(server, **options)
        try:
            return await model.respond(request)
        finally:
            await model.close()
            assert len(server.calls) == 1, "a model never retries"


async def fails(service: Service, request: Request, *script: Reply, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(service, request, *script, **options)
    return caught.value
