"""How things look in the terminal: one console, one colour for each verdict and depth."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from tools.evaluation import Depth, Target, Verdict

PIPED_WIDTH = 160
"""Columns where nobody watches: a log and `grep` want whole lines."""

console = Console(
    highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
)

STYLES: Mapping[Verdict, str] = {
    Verdict.NO_CANDIDATE: "magenta",
    Verdict.BAD_PLAN: "magenta",
    Verdict.ASSEMBLE_ERROR: "red",
    Verdict.LOAD_ERROR: "red",
    Verdict.LAUNCH_ERROR: "red",
    Verdict.FAULT: "red",
    Verdict.HANG: "red",
    Verdict.WRONG_OUTPUT: "yellow",
    Verdict.CORRECT: "green",
}
MISSING = Text("missing", "dim")


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def plain(text: str) -> str:
    """The text with control characters spelled out: what a model wrote must not steer a terminal."""
    return text.translate(_CONTROLS)


def verdict_text(verdict: Verdict | None) -> Text:
    """A verdict in its colour; None is a turn that was not judged."""
    return MISSING.copy() if verdict is None else Text(verdict.value, STYLES[verdict])


def verdict_row(verdicts: list[Verdict | None]) -> Text:
    """The verdicts of an episode's turns, in order."""
    return Text(" → ").join(verdict_text(verdict) for verdict in verdicts)


def targets_text(targets: tuple[Target, ...]) -> Text:
    """Required families with the depth each reached."""
    required = [target for target in targets if target.required]
    if not required:
        return Text("none asked", "dim")
    parts = [
        Text(
            f"{target.family} {target.depth.value}",
            "green" if target.met else "red" if target.depth is Depth.ABSENT else "yellow",
        )
        for target in required
    ]
    return Text(", ").join(parts)


def seconds_text(seconds: float) -> str:
    """A duration a person reads at a glance."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
