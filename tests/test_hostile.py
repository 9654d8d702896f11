"""The generator of hostile candidates knows the verdicts: a few of each kind, judged by the emulator."""

from __future__ import annotations

import random

import pytest

from tests.hostile import FAMILIES, Hostile, candidates, judged


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_family_gets_the_verdict_it_is_made_for(kind: str) -> None:
    make, expected = FAMILIES[kind]
    for seed in range(2):
        found = judged(Hostile(kind, make(random.Random(seed)), expected), "emulator", seed)
        assert found.verdict in expected, found.summary


def test_a_seed_gives_the_same_candidates_and_honest_ones_are_among_them() -> None:
    first, again = list(candidates(3, 60)), list(candidates(3, 60))
    assert first == again
    assert sum(each.kind == "honest" for each in first) >= 10
