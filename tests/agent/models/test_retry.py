"""The retry policy: by class, with counts of its own for each, and a stop that ends a wait."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models.base import (
    ContextOverflow,
    Garbled,
    ModelError,
    RateLimited,
    Refused,
    Request,
    Unavailable,
)
from agent.models.instant import Answer, InstantModel
from agent.models.retry import Attempt, Policy, respond
from tests.agent.models.conftest import MakeRequest


class Sleeps:
    """Records how long it was asked to sleep, and does not."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


def in_turn(*answers: Answer) -> InstantModel:
    """A model whose nth call gets the nth answer."""
    left = list(answers)
    return InstantModel(lambda _: left.pop(0))


async def test_the_first_answer_is_returned_without_a_wait(make_request: MakeRequest) -> None:
    sleeps = Sleeps()
    response = await respond(in_turn("yes"), make_request(), sleep=sleeps)
    assert response.text == "yes"
    assert sleeps.asked == []


@pytest.mark.parametrize(
    ("named", "waited"), [(3.5, 3.5), (0.0, 0.0), (119.0, 119.0), (7200.0, 120.0), (-5.0, 0.0)]
)
@pytest.mark.parametrize("kind", [RateLimited, Unavailable])
async def test_what_the_service_names_is_waited_up_to_the_cap(
    make_request: MakeRequest, kind: type[RateLimited], named: float, waited: float
) -> None:
    sleeps = Sleeps()
    model = in_turn(kind("slow down", retry_after=named), "yes")
    assert (await respond(model, make_request(), sleep=sleeps)).text == "yes"
    assert sleeps.asked == [waited]


async def test_without_a_named_wait_it_grows_exponentially_with_jitter(make_request: MakeRequest) -> None:
    sleeps = Sleeps()
    model = in_turn(*[RateLimited("slow down") for _ in range(9)], "yes")
    await respond(model, make_request(), sleep=sleeps)
    assert len(sleeps.asked) == 9
    for n, seconds in enumerate(sleeps.asked):
        assert min(2.0**n, 120.0) <= seconds <= min(2.0**n + 1, 120.0)


@pytest.mark.parametrize(
    "error",
    [Refused("no"), Refused("no", fatal=False), ContextOverflow("too long"), ModelError("?")],
    ids=lambda error: type(error).__name__,
)
async def test_what_will_not_get_better_is_raised_at_once(
    make_request: MakeRequest, error: ModelError
) -> None:
    model, sleeps, told = in_turn(error, "never"), Sleeps(), list[Attempt]()

    async def tell(attempt: Attempt) -> None:
        told.append(attempt)

    with pytest.raises(type(error)) as caught:
        await respond(model, make_request(), sleep=sleeps, on_attempt=tell)
    assert caught.value is error
    assert model.calls == 1
    assert sleeps.asked == []
    assert told == [Attempt(1, error, None)]


@pytest.mark.parametrize(
    ("kind", "field"),
    [(Unavailable, "unavailable"), (Garbled, "garbled"), (RateLimited, "rate_limited")],
)
async def test_attempts_are_bounded_and_the_error_itself_is_raised(
    make_request: MakeRequest, kind: type[ModelError], field: str
) -> None:
    errors = [kind(str(n)) for n in range(9)]
    model = in_turn(*errors)
    with pytest.raises(kind) as caught:
        await respond(model, make_request(), policy=Policy(**{field: 4}), sleep=Sleeps())
    assert model.calls == 4
    assert caught.value is errors[3]


async def test_each_class_has_its_own_count(make_request: MakeRequest) -> None:
    policy = Policy(rate_limited=9, unavailable=2, garbled=2)
    model = in_turn(*[RateLimited("busy")] * 3, Unavailable("down"), Garbled("?"), RateLimited("busy"), "yes")
    assert (await respond(model, make_request(), policy=policy, sleep=Sleeps())).text == "yes"
    assert model.calls == 7


async def test_attempt_numbers_go_out_and_every_failure_is_told(make_request: MakeRequest) -> None:
    told: list[Attempt] = []

    async def tell(attempt: Attempt) -> None:
        told.append(attempt)

    first, second = RateLimited("busy", retry_after=2.0), Unavailable("down", retry_after=1.0)
    model = in_turn(first, second, "yes")
    await respond(model, make_request(attempt=5), on_attempt=tell, sleep=Sleeps())
    assert [request.attempt for request in model.requests] == [5, 6, 7]
    assert told == [Attempt(5, first, 2.0), Attempt(6, second, 1.0)]


async def test_a_stop_ends_the_wait_and_the_failure_is_told_once(make_request: MakeRequest) -> None:
    stop, told = asyncio.Event(), list[Attempt]()

    async def tell(attempt: Attempt) -> None:
        told.append(attempt)
        stop.set()

    error = RateLimited("busy", retry_after=100.0)
    model = in_turn(error, "never")
    with pytest.raises(RateLimited) as caught:
        await asyncio.wait_for(respond(model, make_request(), stop=stop, on_attempt=tell), 10)
    assert caught.value is error
    assert model.calls == 1
    assert told == [Attempt(1, error, 100.0)]


async def test_cancelling_while_it_waits_cancels(make_request: MakeRequest) -> None:
    model = in_turn(RateLimited("busy", retry_after=100.0))
    task = asyncio.create_task(respond(model, make_request()))
    await asyncio.sleep(0.05)
    assert model.calls == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_a_call_in_flight_cancels_and_asks_no_more(make_request: MakeRequest) -> None:
    model = InstantModel(["never"], delay=100.0)
    task = asyncio.create_task(respond(model, make_request(), sleep=Sleeps()))
    await asyncio.sleep(0.05)
    assert model.calls == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.calls == 1


async def test_an_error_that_is_not_a_models_is_not_retried(make_request: MakeRequest) -> None:
    def answers(_: Request) -> Any:
        raise KeyError("a bug")

    model = InstantModel(answers)
    with pytest.raises(KeyError):
        await respond(model, make_request(), sleep=Sleeps())
    assert model.calls == 1


ERRORS = st.sampled_from([RateLimited, Unavailable, Garbled, Refused, ContextOverflow])


@settings(deadline=None, max_examples=60)
@given(kinds=st.lists(ERRORS, max_size=12), limit=st.integers(1, 4))
def test_the_law_of_the_policy(kinds: list[type[ModelError]], limit: int) -> None:
    """It asks on exactly until a class has failed `limit` times, or one that is never retried came."""
    policy = Policy(rate_limited=limit, unavailable=limit, garbled=limit)
    expected, seen = 0, dict[type[ModelError], int]()
    for kind in kinds:
        expected += 1
        seen[kind] = seen.get(kind, 0) + 1
        if kind in (Refused, ContextOverflow) or seen[kind] >= limit:
            break
    else:
        expected += 1  # the call that answers
    model = in_turn(*[kind("scripted") for kind in kinds], "yes")
    request = Request(messages=(), episode="e", turn=1)

    async def ask() -> None:
        with contextlib.suppress(ModelError):
            await respond(model, request, policy=policy, sleep=Sleeps())

    asyncio.run(ask())
    assert model.calls == expected
