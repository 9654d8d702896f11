"""Requests as the loop makes them, for every test of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.models.base import Message, Request

MakeRequest = Callable[..., Request]


@pytest.fixture
def make_request() -> MakeRequest:
    """A request of turn `turn`; further fields of Request by name."""

    def make(*messages: Message, turn: int = 1, **fields: Any) -> Request:
        first = (
            Message(role="system", content="You write PTX."),
            Message(role="user", content="Write the kernel affine."),
        )
        defaults: dict[str, Any] = {"episode": "e1", "task": "affine", "arm": "feedback", "turn": turn}
        return Request(messages=messages or first, **(defaults | fields))

    return make
