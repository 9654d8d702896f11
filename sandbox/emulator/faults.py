"""The exception by which a running kernel ends, and the words with which the machine names threads and
addresses.

`Stopped` never leaves the emulator: a session turns it into the `Fault` of its Outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sandbox.device import FaultKind


@dataclass(slots=True)
class Stopped(Exception):
    """A fault on its way out; `lane` is the wave's (warp, lane) of the first thread concerned."""

    kind: FaultKind
    message: str
    line: int | None = None
    lane: tuple[int, int] | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of `sandbox.device.Fault`, ready to be filled in."""


def coordinates(index: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    """(x, y, z) of a linear index, x fastest."""
    x, y, _ = extents
    return index % x, index // x % y, index // (x * y)


def several(count: int, noun: str) -> str:
    """`1 thread`, `12 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
