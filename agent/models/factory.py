"""From `provider:name` on the command line to a Model.

The SDKs load here, on first use, since importing them costs seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agent.models.base import Model
from tasks.errors import InputError
from tasks.record import Record


class ModelOptions(Record):
    """How to reach and use a model; part of a run's frozen configuration, so it never holds a key."""

    base_url: str | None = None
    """A compatible server, such as http://127.0.0.1:8000/v1; None: the service's own address. The key that
    is set goes there: name another with `api_key_env`."""
    api: Literal["responses", "chat"] = "responses"
    """For openai: which of its two wire formats."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None: OPENAI_API_KEY or ANTHROPIC_API_KEY."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds of silence after which a request counts as failed."""
    deadline: float = Field(default=3600.0, gt=0)
    """Seconds after which an answer counts as failed, however lively."""
    effort: str | None = None
    """Reasoning effort, by the service's own word; None: its default."""
    extra: dict[str, Any] = {}
    """Further fields of the request body, as the service names them, such as {"top_p": 0.9}."""
    answer_timeout: float | None = Field(default=None, gt=0)
    """For mailbox: seconds to wait for an answer; None: for ever."""


BASE_URLS = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""Provider: the variable in which its own SDK looks for another server."""

Make = Callable[[str, ModelOptions], Model]


def _service(options: ModelOptions) -> dict[str, Any]:
    return options.model_dump(include={"api_key_env", "base_url", "timeout", "deadline", "effort", "extra"})


def _openai(name: str, options: ModelOptions) -> Model:
    from agent.models.openai import OpenAIChat, OpenAIResponses

    kind = OpenAIChat if options.api == "chat" else OpenAIResponses
    return kind(name, **_service(options))


def _anthropic(name: str, options: ModelOptions) -> Model:
    from agent.models.anthropic import Anthropic

    return Anthropic(name, **_service(options))


def _recorded(name: str, options: ModelOptions) -> Model:
    from agent.models.recorded import RecordedModel

    return RecordedModel(name)


def _mailbox(name: str, options: ModelOptions) -> Model:
    from agent.models.mailbox import MailboxModel

    return MailboxModel(Path(name), timeout=options.answer_timeout)


PROVIDERS: dict[str, tuple[str, Make]] = {
    "openai": ("openai:NAME      OpenAI, or with --base-url any server that speaks its formats", _openai),
    "anthropic": ("anthropic:NAME   Anthropic, or with --base-url a compatible server", _anthropic),
    "recorded": ("recorded:FILE    answers of an earlier run; recorded:demo ships with ptxmend", _recorded),
    "mailbox": ("mailbox:DIR      requests and answers as files, for a person or any program", _mailbox),
}
"""Provider: how it is written, with what it is; and what makes it."""


def with_environment(spec: str, options: ModelOptions) -> ModelOptions:
    """The options with the server that the environment names, where none is given; freeze and price these."""
    variable = BASE_URLS.get(spec.partition(":")[0], "")
    named = os.environ.get(variable, "").strip()
    return options if options.base_url or not named else options.model_copy(update={"base_url": named})


def make_model(spec: str, options: ModelOptions | None = None) -> Model:
    """The model that `spec` names. Raises InputError: unknown form, missing key, unreadable cassette."""
    provider, colon, name = spec.partition(":")
    if not colon or not name or provider not in PROVIDERS:
        forms = "\n".join(f"  {form}" for form, _ in PROVIDERS.values())
        raise InputError(f"unknown model {spec!r}; expected one of\n{forms}")
    return PROVIDERS[provider][1](name, with_environment(spec, options or ModelOptions()))
