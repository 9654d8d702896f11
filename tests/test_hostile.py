"""The generator of hostile candidates knows the verdicts, as the emulator's judgement shows; its runner counts what went wrong."""

from __future__ import annotations

import random

import pytest

from tests.hostile import PACK, Hostile, Part, Share, candidates, judge_all, judged, told
from tests.hostile_kernels import FAMILIES, FORMS, HONEST_KERNELS
from tools.evaluation import Verdict


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_family_gets_the_verdict_it_is_made_for(kind: str) -> None:
    make, expected = FAMILIES[kind]
    for seed, form in enumerate(FORMS):
        text = make(random.Random(seed), form)
        found = judged(Hostile(kind, text, expected, form.task), "emulator", seed)
        assert found.verdict in expected, found.summary


@pytest.mark.parametrize("number", range(len(HONEST_KERNELS)))
def test_honest_kernels_are_right_in_every_dress(number: int) -> None:
    form = FORMS[number % len(FORMS)]
    text = HONEST_KERNELS[number](random.Random(number), form)
    found = judged(Hostile("honest", text, frozenset(), form.task), "emulator", 1)
    assert found.verdict is Verdict.CORRECT, found.summary


def test_a_sample_is_judged_as_it_must_be() -> None:
    for number, hostile in enumerate(candidates(20_261_201, 25)):
        found = judged(hostile, "emulator", number)
        assert found.verdict in hostile.expected, f"{hostile.kind}: {found.summary}"


def test_a_seed_gives_the_same_candidates_and_one_of_four_is_honest() -> None:
    first, again = list(candidates(3, 400)), list(candidates(3, 600))[:400]
    assert first == again
    assert first != list(candidates(4, 400))
    for at in range(0, 400, PACK):
        assert any(each.kind == "honest" for each in first[at : at + PACK])
    kinds = {each.kind for each in first}
    assert len(kinds & set(FAMILIES)) > len(FAMILIES) // 2
    assert {each.task for each in first} == {form.task for form in FORMS}
    assert "heap" not in kinds
    assert any(each.kind == "heap" for each in candidates(3, 400, device_heap=True))


def test_the_runner_judges_in_a_process_of_its_own_and_tells_of_memory() -> None:
    parts, died = judge_all([Share(5, 3, "emulator", 60.0)])
    summary = told(parts, died)
    assert (summary["judged"], summary["wrong"], summary["lost"], summary["died"]) == (3, 0, 0, 0)
    (part,) = parts
    assert [done for done, _, _ in part.memory] == [1, 3]
    assert part.memory[0][1] > 20


def test_a_wrong_verdict_and_a_lost_one_are_told() -> None:
    parts, died = judge_all([Share(5, 2, "no such device", 60.0)])
    summary = told(parts, died)
    assert (summary["judged"], summary["lost"]) == (2, 2)
    assert "no such device" in parts[0].lost[0]
    grown = Part(1, memory=[(1, 100, 50), (50, 200, 60), (100, 250, 55)])
    assert grown.growth == (50, -5)
