"""Events fold into the episode they tell; a ledger in an order that cannot have happened is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.evaluation import Stage, Verdict
from traces import events
from traces.ledger import Ledger, read_events
from traces.records import fold
from traces.store import Run, create_run
from traces.verify import verify_run

REF = "a" * 64
ADMITTED = events.Admitted(
    episode="e",
    task="t",
    task_digest="d",
    arch="sm_90a",
    arm="feedback",
    model="m",
    sample=0,
    turns=2,
    config="c",
    graph="g",
)
TURN: tuple[events.Event, ...] = (
    events.Requested(turn=1, messages=(REF,)),
    events.Asked(turn=1, attempt=1),
    events.CallFailed(turn=1, attempt=1, error="Unavailable", message="503", wait=1.0),
    events.Asked(turn=1, attempt=2),
    events.Asked(turn=1, attempt=2),
    events.Responded(
        turn=1,
        attempt=2,
        response=REF,
        message=REF,
        model="m",
        finish="stop",
        tokens=events.Tokens(input=3, output=4),
        usd=0.5,
        seconds=1,
    ),
    events.Extracted(turn=1, candidate=REF),
    events.Judged(
        turn=1,
        stage=Stage.ASSEMBLE,
        evaluation=REF,
        verdict=Verdict.LOAD_ERROR,
        stopped=False,
        blobs={"log": REF},
        seconds=2,
    ),
    events.Judged(turn=1, stage=Stage.CHECK, evaluation=REF, verdict=Verdict.FAULT, stopped=True, seconds=3),
    events.TurnEnded(turn=1, missing=False, verdict=Verdict.FAULT, evaluation=REF, best_turn=1),
    events.EpisodeEnded(reason="turns", best_turn=1, turns=1),
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path, config={"model": "m"}, config_digest="c", graph="g", prompts="p", name="r")


def test_events_fold_into_the_episode_they_tell(tmp_path: Path) -> None:
    with Ledger(tmp_path / "e.jsonl") as ledger:
        ledger.append(ADMITTED, *TURN)
        assert ledger.closed
    read = read_events(tmp_path / "e.jsonl")
    assert [event.seq for event in read] == list(range(len(TURN) + 1))
    episode = fold(read)
    (turn,) = episode.turns
    assert (turn.failed_calls, turn.lost_calls, turn.stages) == (1, 1, (Stage.ASSEMBLE, Stage.CHECK))
    assert (turn.verdict, turn.blobs, turn.tool_seconds) == (Verdict.FAULT, {"log": REF}, 5)
    assert (episode.tokens, episode.usd, episode.seconds, episode.reason, episode.best) == (
        7,
        0.5,
        6.0,
        "turns",
        turn,
    )


def test_a_field_of_a_later_version_does_not_stop_a_reader() -> None:
    told = {**ADMITTED.model_dump(mode="json"), "news": 1}
    assert events.read_event(json.dumps(told)) == ADMITTED


def test_verify_names_what_is_missing_damaged_and_out_of_order(run: Run) -> None:
    kept = run.blobs.put_text("kept")
    with run.ledger("e") as ledger:
        ledger.append(ADMITTED, events.Requested(turn=1, messages=(kept,)))
    assert verify_run(run.path) == ()
    with run.ledger("e") as ledger:
        ledger.append(events.Extracted(turn=1, candidate=REF), events.Requested(turn=2, messages=("b" * 64,)))
    found = "\n".join(verify_run(run.path))
    assert f"blob {REF} is missing" in found
    assert "no responded before it" in found
    assert "turn 1 has not ended" in found
    assert "does not extend the one before it" in found
    (run.path / "blobs" / kept).write_text("bent")
    assert "is damaged" in "\n".join(verify_run(run.path))
