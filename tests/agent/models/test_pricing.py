"""Prices: what a response costs, and when nothing can be said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models.base import Usage
from agent.models.pricing import Price, load_prices
from tasks.errors import InputError

SONNET = "anthropic:claude-sonnet-4-5"


def test_a_response_is_priced_part_by_part() -> None:
    price = Price(input=3.0, cached=0.3, cache_write=3.75, output=15.0)
    usage = Usage(input=1_000_000, cached=600_000, cache_write=100_000, output=200_000, reasoning=150_000)
    assert price.cost(usage) == pytest.approx(0.3 * 3.0 + 0.6 * 0.3 + 0.1 * 3.75 + 0.2 * 15.0)


def test_without_prices_of_their_own_cached_tokens_cost_as_much_as_others() -> None:
    assert (
        Price(input=2.0, output=0.0).cost(Usage(input=1_000_000, cached=900_000, cache_write=50_000)) == 2.0
    )


COUNTS = st.integers(0, 10**7)


@settings(deadline=None, max_examples=60)
@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_response_never_costs_less_with_more_tokens(put: int, cached: int, written: int, got: int) -> None:
    price = Price(input=3.0, cached=0.3, cache_write=3.75, output=15.0)
    usage = Usage(input=put + cached + written, cached=cached, cache_write=written, output=got)
    cost = price.cost(usage)
    assert cost >= 0
    for name in ("input", "output"):
        assert price.cost(usage.model_copy(update={name: getattr(usage, name) + 1000})) >= cost


@pytest.mark.parametrize(
    ("spec", "base_url"),
    [
        ("recorded:demo", None),
        ("mailbox:/tmp/box", None),
        ("openai:llama", "http://127.0.0.1:8000/v1"),
        ("openai:gpt-5", "http://localhost:8000/v1"),
        ("anthropic:any", "http://[::1]:8000"),
    ],
)
def test_what_runs_here_is_free(spec: str, base_url: str | None) -> None:
    assert load_prices().cost(spec, Usage(input=10, output=10), base_url) == 0.0


@pytest.mark.parametrize(
    ("spec", "base_url"),
    [
        ("openai:gpt-5", "https://gateway.example.org/v1"),
        ("openai:gpt-5", "http://10.0.0.7:8000/v1"),
        ("openai:gpt-5-pro", None),
        ("openai:no-such-model", None),
        (SONNET + "-something-else", None),
    ],
)
def test_an_unknown_model_has_no_price(spec: str, base_url: str | None) -> None:
    assert load_prices().cost(spec, Usage(input=10, output=10), base_url) is None


def test_a_dated_name_has_the_price_of_its_family() -> None:
    prices = load_prices()
    assert prices.price(SONNET) is not None
    assert prices.price(SONNET + "-20250929") == prices.price(SONNET)


def test_every_shipped_price_says_where_and_when_and_none_hides_another() -> None:
    prices = load_prices().prices
    assert len(prices) >= 5
    names: list[str] = []
    for entry in prices:
        assert entry.source.startswith("https://")
        assert entry.price.cached is not None
        assert entry.price.cached < entry.price.input < entry.price.output
        for pattern in entry.models:
            name = pattern.replace("*", "x")
            assert load_prices().entry(name) == entry
            names.append(name)
    assert len(set(names)) == len(names)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "prices:\n- models: ['openai:*@gateway.example.org']\n  as_of: 2026-01-01\n  source: contract\n"
        "  price: {input: 1, output: 2}\n"
    )
    prices = load_prices(path)
    usage = Usage(input=1_000_000, output=1_000_000)
    assert prices.cost("openai:any", usage, "https://gateway.example.org/v1") == 3.0
    assert prices.cost("openai:any", usage) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prices: [", "not YAML"),
        ("[]", "not a price file"),
        ("prices:\n- models: []\n", "prices.0.models"),
        (
            "prices: [{models: [a], as_of: 2026-01-01, source: s, price: {input: -1, output: 1}}]",
            "prices.0.price.input",
        ),
        (
            "prices: [{models: [a], as_of: 2026-01-01, source: s, price: {input: .nan, output: 1}}]",
            "prices.0.price.input",
        ),
        ("prices: !!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        load_prices(path)
    with pytest.raises(InputError, match="cannot read"):
        load_prices(tmp_path / "none.yaml")
