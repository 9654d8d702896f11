"""What the adapters of services share: key, deadline, the way out of an error, and reading foreign JSON.

Invariants of every service
- One request, one attempt: the SDK's own retries are off. Every exception leaves as a ModelError by the
  adapter's `rules`.
- Nothing that came is looked at before it is scrubbed, so no key reaches a Response or an error's message.
- The server is the one given, or the official one. The environment is asked for the key alone; the SDKs
  themselves read proxies and custom headers there too.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from agent.models.base import Request, Response
from agent.models.faults import Rule, classify
from agent.models.keys import Scrubber, find_key

Json = dict[str, Any]

NO_ANSWER = "(no answer)"
"""Stands for an assistant turn that has nothing to replay, so that user and assistant still alternate."""

CONNECT = 15.0
"""Seconds to wait for a connection, at most."""


class Service(ABC):
    """A Model behind an SDK."""

    provider: ClassVar[str]
    key_variable: ClassVar[str]
    """Where the key is looked for when no other variable is named."""
    rules: ClassVar[tuple[Rule, ...]]

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        deadline: float = 3600.0,
        effort: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """timeout: the longest silence, seconds. deadline: the longest answer, seconds. extra: further
        fields of the request's body. Raises InputError when a key is needed and none is set."""
        self._model = model
        self._base_url = base_url
        self._deadline = deadline
        self._effort = effort
        self._extra = dict(extra or {})
        key = find_key(api_key, api_key_env or self.key_variable, base_url, self.name)
        self._scrub = Scrubber(key, base_url)
        self._connect(key, timeout)

    waits_free = False

    @property
    def name(self) -> str:
        return f"{self.provider}:{self._model}"

    async def respond(self, request: Request) -> Response:
        arguments = self._arguments(request)
        try:
            started = time.monotonic()
            async with asyncio.timeout(self._deadline):
                body = self._scrub.json(await self._send(arguments))
            return self._read(body, time.monotonic() - started)
        except Exception as error:
            failure = classify(error, self.rules, self.name, self._scrub)
            if failure is None:
                raise
        # Outside the except block: the SDK's exception must not come along as context.
        raise failure

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def _connect(self, key: str, timeout: float) -> None:
        """Make the SDK's client, with its retries off."""

    @abstractmethod
    def _arguments(self, request: Request) -> Json:
        """The SDK call's arguments."""

    @abstractmethod
    async def _send(self, arguments: Json) -> Any:
        """The service's answer as JSON."""

    @abstractmethod
    def _read(self, body: Any, seconds: float) -> Response:
        """The answer as ours. Raises Garbled, or any error of reading, when it is none."""


def as_object(found: Any) -> Json:
    """A JSON object, {} where something else came."""
    return cast("Json", found) if isinstance(found, dict) else {}


def as_count(found: Any) -> int:
    """A number of tokens, 0 where something else came."""
    return found if isinstance(found, int) and found > 0 else 0


def shape(found: Any) -> str:
    """The beginning of what came, for an error message."""
    text = repr(found)
    return text if len(text) <= 300 else text[:300] + " …"
