"""Proof and speed as a model reads them, and as a person does in the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from agent.commands import speed as panel
from agent.commands import story
from agent.evidence import hint, proof, speed
from agent.feedback import render
from agent.prompts import DEFAULT
from sandbox.device import Fault, FaultKind
from tests.agent.timed import timing
from tools.evaluation import Clocks, Depth, Evaluation, Target, Verdict
from tools.measure import told as told_by_measure
from tools.prove import weighed

BASE = Evaluation(
    task="affine",
    task_digest="t",
    arch="sm_90a",
    candidate="c",
    device="cuda",
    verdict=Verdict.CORRECT,
    summary="correct on 8 workloads",
)


def target(**more: Any) -> Target:
    return Target(**({"family": "wgmma", "required": True, "depth": Depth.EXECUTED, "executed": 4096} | more))


def timed(**more: Any) -> Evaluation:
    made = timing(more.pop("speedup", 1.5), **more)
    return BASE.model_copy(
        update={"timing": made, "summary": f"{BASE.summary}; {told_by_measure(made.readings)}"}
    )


def feedback(evaluation: Evaluation, **more: Any) -> str:
    return render(evaluation, **({"arm": "feedback", "turn": 2, "turns": 4} | more))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            target(depth=Depth.LOAD_BEARING, met=True, share=1.0, knocked_out="changed"),
            "`wgmma`: reached (load-bearing: without it the answer changes, executed 4,096 times, 100% of the work)",
        ),
        (target(met=True), "`wgmma`: reached (executed 4,096 times)"),
        (
            weighed(target(share=1.0), "unchanged", "small"),
            "`wgmma`: not reached (decorative, executed 4,096 times, 100% of the work). without wgmma the output on small does not "
            "change: its result is not used, or comes to nothing. What it computes must reach the output",
        ),
        (
            weighed(target(), "hang", "small"),
            "`wgmma`: not reached (executed 4,096 times). wgmma ran, but without it the kernel does not end, so it is not shown that "
            "the answer depends on it",
        ),
        (
            target(depth=Depth.IN_SASS, executed=0, note="dead code at line 9"),
            "`wgmma`: not reached (in the machine code, never executed). dead code at line 9",
        ),
        (target(depth=Depth.IN_PTX, executed=None), "`wgmma`: not reached (in the PTX only)"),
        (target(depth=Depth.ABSENT, executed=None), "`wgmma`: not reached (absent)"),
    ],
)
def test_a_family_is_told_with_its_evidence(found: Target, words: str) -> None:
    assert proof(found) == words
    text = feedback(BASE.model_copy(update={"targets": (found,)}))
    assert f"### Target instructions\n\n- {words}\n" in text


def test_a_note_that_the_summary_holds_is_not_said_again() -> None:
    found = weighed(target(), "unchanged", "small")
    text = feedback(
        BASE.model_copy(update={"targets": (found,), "summary": f"targets not met: {found.note}"})
    )
    assert text.count(found.note) == 1
    assert "decorative" in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {},
            "0.4 ms against 0.6 ms of torch on NVIDIA H200: 1.500 times as fast (95 % interval 1.495 to 1.505).",
        ),
        ({}, "It reaches 63% of the memory roof (0.252 ms at the chip's peak)."),
        ({"speedup": 2.2}, "It reaches 92% of the memory roof: little is left to gain."),
        ({"speedup": 1.001, "verdict": "same"}, "That is the same within noise."),
        ({"verdict": "unstable"}, "The card was too restless for this to count."),
        ({"speedup": 9.0, "verdict": "suspect"}, "some of it is skipped: do all of it."),
    ],
)
@pytest.mark.parametrize("template", [DEFAULT, "v1", "terse"])
def test_speed_is_told_once_with_what_it_is_worth(more: dict[str, Any], words: str, template: str) -> None:
    text = feedback(timed(**more), template=template)
    assert text.count(words) == 1
    assert text.count(f"{more.get('speedup', 1.5):.3f}") == 1, "the summary leaves it to its section"


def test_a_roof_that_clever_arithmetic_lowered_is_told_as_the_peak() -> None:
    made = timing(1.0)
    reading = made.readings[0].model_copy(update={"bound": "arithmetic", "roof_ms": 0.225})
    told = speed(made.model_copy(update={"readings": (reading,)}))
    assert "reaches 50% of the arithmetic roof (0.3 ms at the chip's peak)" in told
    nothing = reading.model_copy(update={"bound": "launch"})
    assert "roof" not in speed(made.model_copy(update={"readings": (nothing,)}))


def test_the_diagnostics_arm_learns_nothing_of_speed() -> None:
    best = timed(speedup=1.7)
    text = feedback(
        timed(), arm="diagnostics", best=best, best_turn=1, best_text="old\n", candidate_text="new\n"
    )
    for word in ("1.5", "1.7", "torch", "fast", "roof"):
        assert word not in text


def test_a_slower_revision_is_sent_back_to_the_faster_kernel() -> None:
    given = {"best_turn": 1, "best_text": "fast\n", "candidate_text": "slow\n"}
    text = feedback(timed(), best=timed(speedup=1.7), **given)
    assert "Your file of turn 1 is faster (1.700 times torch, this one 1.500): start from it again." in text
    assert "-fast\n+slow" in text
    level = feedback(timed(), best=timed(speedup=1.505), **given)
    assert "got as far" in level, "intervals that overlap tell nothing"
    assert "-fast" not in level


def test_a_hang_without_a_place_says_where_to_look_first() -> None:
    bare = Fault(kind=FaultKind.TIMEOUT, message="on the GPU k did not end within 2.0 s and was killed")
    hung = BASE.model_copy(
        update={"verdict": Verdict.HANG, "summary": f"small: {bare.message}", "fault": bare}
    )
    text = feedback(hung)
    assert text.count(bare.message) == 1
    assert "No machine could say where it hangs. Look first at barriers" in text
    placed = bare.model_copy(update={"line": 9, "source": "bar.sync 0;", "waiting": ("warp 1 waits",)})
    text = feedback(hung.model_copy(update={"fault": placed}))
    assert "No machine could say" not in text
    assert "Line 9: `bar.sync 0;`\n- warp 1 waits" in text
    assert hint(bare.model_copy(update={"kind": FaultKind.MISALIGNED})) == ""


# --- for a person -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_a_timing_fits_the_terminal_with_its_warnings(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    screen = Console(width=width, highlight=False)
    monkeypatch.setattr(panel, "console", screen)
    monkeypatch.setattr(story, "console", screen)
    made = timing(0.65, mode="full", clocks=Clocks(sm_mhz=(1200, 1980), throttle=("sw_power_cap",)))
    first = made.readings[0]
    weak = first.model_copy(update={"workload": "wide", "dropped": 9, "floor": 0.006, "checked": False})
    with screen.capture() as taken:
        story.tell_evaluation(
            BASE.model_copy(update={"timing": made.model_copy(update={"readings": (first, weak)})})
        )
    lines = taken.get().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(line.strip("│ ") for line in lines).split())
    for words in (
        "speed (full reading)",
        "0.650 x torch (0.645 to 0.655, 95 %) slower",
        "bench torch 0.650 0.645 to 0.655 0.9231 ms 0.6 ms 27% memory 0.10%",
        "! the card was held back: sw_power_cap",
        "! wide against torch: 9 of 49 blocks were dropped",
        "! wide against torch: a side against itself differs by 0.60%",
        "! wide against torch: no output of a timed run was compared with the reference",
        "NVIDIA H200, CUDA 13.0, SM 1200 to 1980 MHz, 80 blocks in 0.4 s",
    ):
        assert words in text


@pytest.mark.parametrize("said", ["unstable", "suspect", "same"])
def test_a_verdict_that_is_no_figure_is_explained(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    screen = Console(width=120, highlight=False)
    monkeypatch.setattr(panel, "console", screen)
    with screen.capture() as taken:
        panel.tell_timing(timing(1.0, verdict=said))
    assert f"{said}: {panel.MEANINGS[said]}" in taken.get()


def _shown(monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    screen = Console(width=200, highlight=False)
    monkeypatch.setattr(panel, "console", screen)
    with screen.capture() as taken:
        panel.tell_timing(timing(1.5, **more))
    return taken.get()


def test_a_sound_reading_says_what_makes_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _shown(monkeypatch)
    assert "no throttling seen, 40 blocks in 0.4 s, outputs of timed runs checked" in text
    assert "!" not in text


def test_a_card_that_does_not_tell_is_not_one_that_ran_free(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _shown(monkeypatch, clocks=Clocks())
    assert "! the card's clocks could not be read: throttling would not be seen" in text
    assert "no throttling seen" not in text
    unchecked = timing(1.5).readings[0].model_copy(update={"checked": False})
    text = _shown(monkeypatch, readings=(unchecked,))
    assert "outputs of timed runs checked" not in text
    assert "! no output of a timed run was compared with the reference" in text
