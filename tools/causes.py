"""The table of causes: what the assembler says → which class of fault it is, and what to do about it.

Contract: `find_cause(message)` gives the first row of `causes.yaml` whose pattern matches the whole text of
a message (never a code number: those move between versions), or the row `OTHER`. A row whose class depends
on more than the message (the source text, the architecture) names a function of `tools.refine`. Hints are
our own words and carry the names found in the message.

Observed with ptxas 13.0.88 and 13.5.37.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tools.refine import REFINE, Refine

Severity = Literal["error", "warning", "info"]

TABLE_FILE = Path(__file__).with_name("causes.yaml")


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table."""

    kind: str
    pattern: re.Pattern[str]
    hint: str = ""
    """A format string over the pattern's named groups."""
    refine: Refine | None = None
    key: tuple[str, ...] | None = None
    """Named groups that tell two messages of this class apart; None: all of them, (): all messages of the
    class are one cause.
    """
    explains: frozenset[str] = frozenset()
    """Classes that are mere consequences when they are reported on the same line."""
    rank: int = 5
    """Lower is nearer to the root: it is reported first."""
    severity: Severity | None = None
    """Set where the tool's own severity misleads."""


OTHER = Cause(
    "other",
    re.compile(r".*", re.DOTALL),
    "The assembler's message names what it did not accept; compare the line "
    "with the instruction's form in the PTX ISA.",
    rank=8,
)
"""The row of messages that the table does not have."""


def _read(row: dict[str, Any]) -> Cause:
    return Cause(
        kind=row["kind"],
        pattern=re.compile(row["pattern"], re.DOTALL),
        hint=row.get("hint", ""),
        refine=REFINE[row["refine"]] if "refine" in row else None,
        key=tuple(row["key"]) if "key" in row else None,
        explains=frozenset(row.get("explains", ())),
        rank=row.get("rank", 5),
        severity=row.get("severity"),
    )


@lru_cache(maxsize=1)
def table() -> tuple[Cause, ...]:
    """All rows, in the order in which they are tried."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows: list[dict[str, Any]] = yaml.load(TABLE_FILE.read_text("utf-8"), Loader=loader)  # noqa: S506 (both are safe loaders)
    return tuple(_read(row) for row in rows)


def find_cause(message: str) -> tuple[Cause, re.Match[str]]:
    """The first row that matches, and the match; `OTHER` when none does."""
    for cause in (*table(), OTHER):
        if match := cause.pattern.fullmatch(message):
            return cause, match
    raise AssertionError("the row OTHER matches every text")
