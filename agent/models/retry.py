"""When to ask a model again: one policy, by the class of the error.

| error | what happens |
| --- | --- |
| RateLimited | waits what the service named (at most `longest_wait`), else exponential with jitter |
| Unavailable | the same, fewer attempts |
| Garbled | the same, fewest attempts, since each may have been billed |
| Refused, ContextOverflow, anything else | raised at once |

Each class has its own count of attempts, so a busy hour does not use up the patience meant for a broken
service. The error that ends it is raised as it is. Nothing here journals: `on_attempt` is told of every
failure before the wait, and the attempt number goes out with the request. A set stop event ends the wait
and raises the last error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from agent.models.base import Garbled, Model, ModelError, RateLimited, Request, Response, Unavailable

RETRIED = (RateLimited, Unavailable, Garbled)


@dataclass(frozen=True)
class Policy:
    """How patient to be. Attempts count the first one too."""

    rate_limited: int = 30
    unavailable: int = 6
    garbled: int = 3
    first_wait: float = 1.0
    """Seconds before the second attempt, where the service named none; doubles each time, plus up to as
    much again."""
    longest_wait: float = 120.0
    """Seconds; caps both the exponential wait and what a service may ask for."""

    def attempts(self, error: BaseException) -> int:
        """How many failures of this error's class end the asking."""
        limits = {RateLimited: self.rate_limited, Unavailable: self.unavailable, Garbled: self.garbled}
        return next((limit for kind, limit in limits.items() if isinstance(error, kind)), 1)


@dataclass(frozen=True)
class Attempt:
    """One failed attempt, for the journal."""

    number: int
    """As in the request that failed; from 1."""
    error: ModelError
    wait: float | None
    """Seconds until the next attempt; None when there is none."""


OnAttempt = Callable[[Attempt], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


def _kind(error: ModelError) -> type[ModelError]:
    return next((kind for kind in RETRIED if isinstance(error, kind)), ModelError)


def _error(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ModelError), error  # only these are retried
    return error


@dataclass
class _Turn:
    """One call of `respond`: tenacity's strategies, which share the failures counted by class."""

    policy: Policy
    on_attempt: OnAttempt | None
    stopping: asyncio.Event | None
    number: int
    """Of the attempt in flight."""
    failures: Counter[type[ModelError]] = field(default_factory=Counter[type[ModelError]])
    told: ModelError | None = None
    """The failure that `on_attempt` heard of last."""

    @property
    def stopped(self) -> bool:
        return self.stopping is not None and self.stopping.is_set()

    def stop(self, state: RetryCallState) -> bool:
        error = _error(state)
        return self.stopped or self.failures[_kind(error)] >= self.policy.attempts(error)

    def wait(self, state: RetryCallState) -> float:
        error = _error(state)
        named = error.retry_after if isinstance(error, RateLimited | Unavailable) else None
        if named is not None:
            return min(max(named, 0.0), self.policy.longest_wait)
        first = self.policy.first_wait
        return wait_exponential_jitter(multiplier=first, max=self.policy.longest_wait, jitter=first)(state)

    async def before_sleep(self, state: RetryCallState) -> None:
        await self.tell(_error(state), state.next_action.sleep if state.next_action else None)

    async def tell(self, error: ModelError, wait: float | None) -> None:
        self.told = error
        if self.on_attempt is not None:
            await self.on_attempt(Attempt(self.number, error, wait))

    async def sleep(self, seconds: float) -> None:
        if self.stopping is None:
            await asyncio.sleep(seconds)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), seconds)


async def respond(
    model: Model,
    request: Request,
    *,
    policy: Policy | None = None,
    on_attempt: OnAttempt | None = None,
    stop: asyncio.Event | None = None,
    sleep: Sleep | None = None,
) -> Response:
    """Ask until there is an answer or the policy gives up; raises the last ModelError.

    The first attempt carries `request.attempt`, later ones count up from it, so that a resumed turn goes on
    counting. `on_attempt` is awaited after each failure, before the wait. `sleep` replaces the wait itself
    in tests. An attempt in flight is never interrupted by `stop`; cancel the task for that.
    """
    turn = _Turn(policy or Policy(), on_attempt, stop, request.attempt)
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(RETRIED),
            wait=turn.wait,
            stop=turn.stop,
            before_sleep=turn.before_sleep,
            sleep=sleep or turn.sleep,
            reraise=True,
        ):
            with attempt:
                if turn.told is not None and turn.stopped:
                    raise turn.told
                turn.number = request.attempt + attempt.retry_state.attempt_number - 1
                try:
                    return await model.respond(request.model_copy(update={"attempt": turn.number}))
                except ModelError as error:
                    turn.failures[_kind(error)] += 1
                    raise
    except ModelError as error:
        if error is not turn.told:  # one that was told before a wait that `stop` ended is not told twice
            await turn.tell(error, None)
        raise
    raise AssertionError("unreachable: tenacity either returns or raises")
