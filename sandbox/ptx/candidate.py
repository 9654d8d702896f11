"""A candidate file taken apart: the launch plan in its leading `//!` lines, and the PTX after them.

Line numbers are always those of the whole file. A byte-order mark, CRLF, blank lines and plain `//` comments before and among the plan
lines are fine. `text` is kept exactly as given, and `sha256` is of its UTF-8 bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sandbox.ptx.plan import Plan, PlanError, parse_plan

_MARK = "//!"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One PTX module with its launch plan."""

    text: str
    """The whole file, as given."""
    plan: Plan
    ptx: str
    """What follows the last line of the plan."""
    ptx_first_line: int
    """1-based line of the file on which `ptx` begins."""
    sha256: str
    """Of the whole file, hexadecimal."""


def read_candidate(text: str) -> Candidate:
    """Take a candidate file apart. Raises PlanError when the plan is missing or unusable."""
    lines = text.removeprefix("\ufeff").split("\n")
    plan_lines: list[str] = []
    last = 0
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r").strip(" \t")
        if line.startswith(_MARK):
            plan_lines.extend([""] * (number - 1 - len(plan_lines)))
            plan_lines.append(line[len(_MARK) :])
            last = number
        elif line and not line.startswith("//"):
            break
    if not last:
        raise _missing(lines)
    first = next(number for number, line in enumerate(plan_lines, 1) if line.strip() or number == last)
    plan = parse_plan("\n".join(plan_lines[first - 1 :]), first)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Candidate(text, plan, "\n".join(lines[last:]), last + 1, digest)


def _missing(lines: list[str]) -> PlanError:
    found = "none"
    line = 1
    for number, raw in enumerate(lines, 1):
        if raw.lstrip().startswith(_MARK):
            found, line = f"one only on line {number}, after other text: move the plan to the top", number
            break
    return PlanError(
        "no launch plan: expected leading lines such as\n//! launch:\n//!   - entry: kernel\n//!     grid: cdiv(n, 256)\n"
        f"//!     block: 256\n//!     args: x, y, n\nbefore .version; found {found}",
        line,
    )
