"""What a response costs, from a table of list prices that users edit or replace.

The file (`agent/prices.yaml`, or one of the user's own) maps patterns of model names to USD per million
tokens. The first entry with a matching pattern decides. A name is `provider:model` as on the command line;
a server named by base URL adds its host, `openai:llama@example.org`, so that somebody else's prices are
never taken for it. What runs on this machine (a loopback server, recordings, mailboxes) costs nothing. A
model that no entry names has no price: its cost is None, not zero.
"""

from __future__ import annotations

import datetime
import fnmatch
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.models.base import Usage
from tasks.errors import InputError

MILLION = 1_000_000


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Price(_Record):
    """USD per million tokens."""

    input: float = Field(ge=0)
    """Tokens neither read from nor written to a cache."""
    output: float = Field(ge=0)
    """Tokens written, reasoning included."""
    cached: float | None = Field(default=None, ge=0)
    """Tokens read from a cache; None: as `input`."""
    cache_write: float | None = Field(default=None, ge=0)
    """Tokens written to a cache; None: as `input`."""

    def cost(self, usage: Usage) -> float:
        """USD of one response."""
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        micro = (
            fresh * self.input
            + usage.cached * cached
            + usage.cache_write * written
            + usage.output * self.output
        )
        return micro / MILLION


FREE = Price(input=0.0, output=0.0)


class PriceEntry(_Record):
    """One row of the table."""

    models: tuple[str, ...] = Field(min_length=1)
    """Patterns of `provider:model` or `provider:model@host`; `*` stands for any characters."""
    as_of: datetime.date
    """When the price was read from `source`."""
    source: str
    """Where the price was read."""
    price: Price
    note: str = ""

    def names(self, key: str) -> bool:
        return any(fnmatch.fnmatchcase(key, pattern) for pattern in self.models)


class PriceList(_Record):
    """A price file."""

    prices: tuple[PriceEntry, ...]

    def entry(self, spec: str, base_url: str | None = None) -> PriceEntry | None:
        """The entry that prices this model, None where none does."""
        key = f"{spec}@{urlsplit(base_url).hostname}" if base_url else spec
        return next((entry for entry in self.prices if entry.names(key)), None)

    def price(self, spec: str, base_url: str | None = None) -> Price | None:
        """What this model charges; None: unknown. An entry of the user's own beats what is free by its
        place."""
        entry = self.entry(spec, base_url)
        if entry is not None:
            return entry.price
        return FREE if _is_free(spec, base_url) else None

    def cost(self, spec: str, usage: Usage, base_url: str | None = None) -> float | None:
        """USD of one response; None: the model has no price here."""
        price = self.price(spec, base_url)
        return None if price is None else price.cost(usage)


def _is_free(spec: str, base_url: str | None) -> bool:
    if spec.partition(":")[0] in ("recorded", "mailbox", "instant"):
        return True
    host = (urlsplit(base_url).hostname or "") if base_url else ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def load_prices(path: Path | None = None) -> PriceList:
    """The user's own file, or the one that ships. Raises InputError saying what is wrong and where."""
    if path is None:
        text, name = resources.files("agent").joinpath("prices.yaml").read_text("utf-8"), "agent/prices.yaml"
    else:
        name = str(path)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the price file {name}: {error}") from None
    try:
        return PriceList.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InputError(f"{name} is not YAML: {error}") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise InputError(f"{name} is not a price file: {faults}. agent/prices.yaml shows the form.") from None
