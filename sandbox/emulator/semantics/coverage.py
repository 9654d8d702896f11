"""Which instructions have a meaning here, for pages and reports that list what the emulator knows."""

from __future__ import annotations

from sandbox.emulator.semantics.registry import LOWERINGS


def opcodes() -> tuple[str, ...]:
    """Opcodes with at least one lowering, sorted; `lower` says for a given form whether it is known."""
    return tuple(sorted(LOWERINGS))
