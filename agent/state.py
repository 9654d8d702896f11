"""What the graph carries from node to node: references and small scalars, never a text.

The ledger holds everything else; so a checkpoint is small, and a lost one is rebuilt by walking the graph again over the ledger.
"""

from __future__ import annotations

from typing import TypedDict


class State(TypedDict, total=False):
    """All keys are absent before the first turn."""

    turn: int
    """The turn in progress, from 1."""
    evaluation: str | None
    """Reference to the Evaluation so far; None before the first tool."""
    stopped: bool
    """A tool stopped the candidate, or could not judge it: on to `decide`."""
    missing: str
    """Why this turn has no verdict; empty when it has, or may still have."""
    stop: str
    """Why the episode ends; empty while it goes on."""
