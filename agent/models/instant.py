"""A scripted model in memory: the double for tests and the load for benchmarks.

Answers come from a function of the request, or from a list indexed by turn, the same for every episode. An
item may be the text of an answer, a whole `Response`, or a `ModelError` to raise. A list shorter than the
turn asked for refuses, so a script never answers more than was written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agent.models.base import FinishReason, ModelError, Refused, Request, Response, Usage

Answer = str | Response | ModelError
Answers = Callable[[Request], Answer] | Sequence[Answer]


class InstantModel:
    """Answers at once, or after `delay` seconds; counts what it was asked."""

    def __init__(
        self, answers: Answers, *, name: str = "instant", delay: float = 0.0, keep: bool = True
    ) -> None:
        self._answers = answers
        self._name = name
        self._delay = delay
        self._keep = keep
        self.calls = 0
        """How often `respond` was called, failures included."""
        self.requests: list[Request] = []
        """Every request in order; stays empty with `keep=False`, for benchmarks that ask a million times."""
        self.closed = False

    waits_free = False

    @property
    def name(self) -> str:
        return self._name

    async def respond(self, request: Request) -> Response:
        self.calls += 1
        if self._keep:
            self.requests.append(request)
        if self._delay:
            await asyncio.sleep(self._delay)
        answer = self._answer(request)
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Response):
            return answer
        words = sum(len(message.content.split()) for message in request.messages)
        usage = Usage(input=words, output=len(answer.split()))
        return Response(text=answer, finish=FinishReason.STOP, model=self._name, usage=usage)

    def _answer(self, request: Request) -> Answer:
        if callable(self._answers):
            return self._answers(request)
        if request.turn > len(self._answers):
            raise Refused(
                f"the script of {self._name} has {len(self._answers)} answers; turn {request.turn} was asked",
                fatal=False,
            )
        return self._answers[request.turn - 1]

    async def close(self) -> None:
        self.closed = True
