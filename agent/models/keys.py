"""Where a key comes from, and how it is kept out of everything that is written down.

A key comes from an explicit argument or from one environment variable; never from a file, never from an
option's value. It is sent to the server that the options name. A server of one's own, named by base URL,
works without: it is sent `NO_KEY`. Whatever a service says is scrubbed before it becomes a record or an
error, because some services echo the key they were sent.
"""

from __future__ import annotations

import os
from typing import Any, cast
from urllib.parse import urlsplit

from tasks.errors import InputError

NO_KEY = "none"
"""Sent where a server needs no key, since the SDKs insist on one."""

SHORTEST = 8
"""Characters; a shorter secret is not scrubbed, since it would tear ordinary words apart."""

MARK = "[key removed]"


def find_key(given: str | None, variable: str, base_url: str | None, model: str) -> str:
    """The key to send; raises InputError naming the variable when the service needs one and none is set."""
    key = given or os.environ.get(variable, "").strip()
    if key:
        return key
    if base_url:
        return NO_KEY
    raise InputError(
        f"{model} needs a key: expected one in the environment variable {variable}, which is not set. "
        f"Set it, name another variable (--api-key-env), or name a server that needs none (--base-url)."
    )


class Scrubber:
    """Removes keys, and passwords in URLs, from texts and JSON; and half characters, which no file can
    hold."""

    def __init__(self, key: str, base_url: str | None = None) -> None:
        secrets = [key, urlsplit(base_url).password if base_url else None]
        self._secrets = [secret for secret in secrets if secret and len(secret) >= SHORTEST]

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def json(self, value: Any) -> Any:
        """A copy of the JSON value without secrets, in keys and in values; the order of keys is kept."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {self.text(name): self.json(item) for name, item in pairs}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in cast("list[Any]", value)]
        return value
