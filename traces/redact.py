"""What must never reach a disk, and the one function that sees to it.

`redact` is called by `traces.disk`, through which every byte of a run goes. It removes
- the values of environment variables whose names say that they hold a secret, and of values given to `protect`, plainly,
  as JSON spells them, JSON in JSON included, and as a URL spells them;
- what is a key by its form: `sk-…` where a word begins (signed and encrypted items are long URL-safe base64, in which it may stand by
  chance), and the values of `Authorization` and `x-api-key` headers.
It is idempotent, so what is read back and written again keeps its hash.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import quote

MARK = b"[redacted]"
SHORTEST = 8
"""Bytes; a shorter value is no key, and removing it would tear ordinary words apart."""

_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
_FORMS = re.compile(
    rb"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,}"
    rb"|(?i:(?P<head>(?:authorization|x-api-key)\\*[\"']?\s*[:=]\s*\\*[\"']?(?:(?:bearer|basic)\s+)?))[A-Za-z0-9._~+/=-]{8,}"
)
_HINTS = (b"sk-", b"authorization", b"x-api-key")
"""Every form holds one of these in lower case."""
_protected: set[str] = set()


def protect(value: str) -> None:
    """Have `value` removed from everything written from now on by this process."""
    if len(value) >= SHORTEST:
        _protected.add(value)


def redact(data: bytes) -> bytes:
    """`data` without secrets."""
    values = _values(frozenset(_named()) | _protected)
    if values is not None:
        data = values.sub(MARK, data)
    small = data.lower()
    if any(hint in small for hint in _HINTS):  # the pattern is slow, and its words are rare
        data = _FORMS.sub(lambda found: (found["head"] or b"") + MARK, data)
    return data


def _named() -> Iterator[str]:
    """Values of variables that are secrets by their name; a path to a file of keys is none."""
    for name in os.environ:
        if _is_secret(name):
            value = os.environ[name]
            if len(value.strip()) >= SHORTEST and not os.path.exists(value):
                yield value.strip()


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return _NAME.search(name) is not None


@lru_cache(maxsize=4)
def _values(secrets: frozenset[str]) -> re.Pattern[bytes] | None:
    spelled = {
        form
        for secret in secrets
        for once in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        for form in (secret, once, json.dumps(once)[1:-1], quote(secret, safe=""))
    }
    longest_first = sorted(
        (form.encode("utf-8", "surrogateescape") for form in spelled), key=len, reverse=True
    )
    return re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None
