"""Answers, exactly once: what was paid is on the disk before it is used, and is never asked for again.

Keyed by (episode, turn, attempt). Attempts are counted by their outcome: one that was in flight at a crash has none and is asked again
under its number, and the ledger then shows both calls.

Everything that writes here blocks until it is on the disk; nodes call it through `on_disk`, one write of an episode at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from agent.models.base import Message, Request, Response
from agent.models.retry import Attempt
from traces.blobs import BlobStore
from traces.events import Asked, CallFailed, Event, Requested, Responded, Tokens
from traces.ledger import Ledger

T = TypeVar("T")


async def on_disk(write: Callable[..., T], *arguments: Any) -> T:
    """Do what waits for the disk in a thread, so that other episodes go on meanwhile.

    A caller that is cancelled still waits for its end: a ledger is never closed under a write.
    """
    work = asyncio.get_running_loop().run_in_executor(None, write, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        work.exception()
        raise


class Journal:
    """One episode's ledger and the blobs it refers to."""

    def __init__(self, ledger: Ledger, blobs: BlobStore) -> None:
        self.ledger = ledger
        self.blobs = blobs

    def answer(self, turn: int) -> Responded | None:
        """The journaled answer of a turn."""
        found = self.ledger.find("responded", turn)
        return found if isinstance(found, Responded) else None

    def response(self, answer: Responded) -> Response:
        """The answer itself."""
        return Response.model_validate(self.blobs.json(answer.response))

    def failures(self, turn: int) -> int:
        """Attempts of a turn that brought no answer."""
        return sum(event.kind == "call_failed" and event.turn == turn for event in self.ledger.events)

    def request(self, turn: int, messages: tuple[Message, ...]) -> tuple[str, ...]:
        """Note what a turn asks; returns the references of its messages."""
        references = tuple(self.keep_message(message) for message in messages)
        self.ledger.append(Requested(turn=turn, messages=references))
        return references

    def asking(self, turn: int, attempt: int) -> None:
        """Note that a call goes out."""
        self.ledger.append(Asked(turn=turn, attempt=attempt))

    def failed(self, turn: int, attempt: Attempt) -> None:
        """Note that a call brought no answer."""
        self.ledger.append(
            CallFailed(
                turn=turn,
                attempt=attempt.number,
                error=type(attempt.error).__name__,
                message=str(attempt.error),
                wait=attempt.wait,
            )
        )

    def record(self, request: Request, response: Response, usd: float | None) -> Responded:
        """Keep an answer; it is on the disk when this returns."""
        message = Message(role="assistant", content=response.text, native=response.native)
        answer = Responded(
            turn=request.turn,
            attempt=self.failures(request.turn) + 1,
            response=self.blobs.put_json(response.model_dump(mode="json")),
            message=self.keep_message(message),
            model=response.model,
            finish=response.finish,
            tokens=Tokens(**response.usage.model_dump()),
            usd=usd,
            seconds=response.seconds,
            reasoning_available=response.reasoning_available,
            response_id=response.response_id,
        )
        self.ledger.append(answer)
        return answer

    def keep_message(self, message: Message) -> str:
        """Keep a message; native items keep the order of their keys, since they go back verbatim."""
        return self.blobs.put(message.model_dump_json().encode("utf-8"))

    def message(self, reference: str) -> Message:
        """The message kept under a reference."""
        return Message.model_validate_json(self.blobs.get(reference))

    def find(self, *key: Any) -> Event | None:
        """The event about this, None when it has not happened."""
        return self.ledger.find(*key)


class Journaled:
    """A Model that notes every call before it goes out."""

    def __init__(self, model: Any, journal: Journal) -> None:
        self._model = model
        self._journal = journal

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def waits_free(self) -> bool:
        return self._model.waits_free

    async def respond(self, request: Request) -> Response:
        await on_disk(self._journal.asking, request.turn, request.attempt)
        return await self._model.respond(request)

    async def close(self) -> None:
        """The model belongs to the runner."""
