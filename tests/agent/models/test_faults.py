"""Reading retry-after, and the shape of the table."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models import anthropic, openai
from agent.models.faults import retry_after
from agent.models.keys import MARK, NO_KEY, Scrubber, find_key
from tasks.errors import InputError

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Tue, 01 Dec 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 01 Dec 2026 12:01:00 -0000"}, 60.0),
        ({"retry-after": "Tue, 99 Dec 2026 12:01:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6))
def test_a_date_says_the_same_as_its_seconds(seconds: int) -> None:
    then = datetime.fromtimestamp(NOW.timestamp() + seconds, UTC)
    assert retry_after({"retry-after": format_datetime(then, usegmt=True)}, NOW) == seconds


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=40))
def test_any_header_is_read_without_failing(text: str) -> None:
    found = retry_after({"retry-after": text, "retry-after-ms": text}, NOW)
    assert found is None or found >= 0


@pytest.mark.parametrize("rules", [openai.RULES, anthropic.RULES], ids=["openai", "anthropic"])
def test_no_row_hides_a_later_one(rules: tuple[openai.Rule, ...]) -> None:
    """A row without conditions must not stand above a row of a subclass, which could then never fit."""
    for index, rule in enumerate(rules):
        if rule.codes or rule.statuses or rule.sentences:
            continue
        hidden = [later.error.__name__ for later in rules[index + 1 :] if issubclass(later.error, rule.error)]
        assert not hidden, f"{rule.error.__name__} hides {hidden}"


def test_a_key_comes_from_the_argument_then_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", " from-environment ")
    assert find_key("given", "SOME_KEY", None, "m") == "given"
    assert find_key(None, "SOME_KEY", None, "m") == "from-environment"
    assert find_key(None, "SOME_KEY", "http://localhost", "m") == "from-environment"


def test_without_a_key_a_named_server_gets_none_and_a_service_is_an_input_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", "  ")
    assert find_key(None, "SOME_KEY", "http://localhost", "m") == NO_KEY
    with pytest.raises(InputError, match="SOME_KEY"):
        find_key(None, "SOME_KEY", None, "m")


def test_scrubbing_reaches_every_corner_and_keeps_order_and_words() -> None:
    scrub = Scrubber("sk-secret-value", "http://user:hunter22@host/v1")
    body = {"b": ["x sk-secret-value y", {"sk-secret-value": None}], "a": 1.5, "c": "hunter22"}
    assert list(scrub.json(body)) == ["b", "a", "c"]
    assert scrub.json(body) == {"b": [f"x {MARK} y", {MARK: None}], "a": 1.5, "c": MARK}
    assert Scrubber(NO_KEY).text("none of these") == "none of these"


def test_half_characters_are_replaced_and_halves_that_meet_are_joined() -> None:
    assert Scrubber("").json({"t": "a\ud800b \ud83d\ude00 é"}) == {"t": "a\ufffdb \U0001f600 é"}
