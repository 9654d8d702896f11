"""Run folders: made once, opened by versions that can read them, folded into episodes, and proved whole."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import InputError
from tools.evaluation import Stage, Verdict
from traces.blobs import BlobStore
from traces.events import (
    Admitted,
    Asked,
    CallFailed,
    EpisodeEnded,
    Event,
    Extracted,
    Feedback,
    Judged,
    Requested,
    Responded,
    Tokens,
    TurnEnded,
)
from traces.records import fold
from traces.store import Run, create_run, list_runs, open_run
from traces.verify import references, verify_run


def make(root: Path, name: str | None = "r") -> Run:
    return create_run(root, name=name, config={"turns": 2}, config_digest="c", graph="g", prompts="p")


def events(run: Run, *, arm: str = "feedback") -> list[Event]:
    """An episode of two turns: a fault, then the right answer; one call failed and one was lost on the way."""
    put = run.blobs.put_text
    system, task = put("system"), put("task")
    told: list[Event] = [
        Admitted(
            episode="affine.0",
            task="affine",
            task_digest="t",
            family="map",
            arch="sm_90a",
            arm=arm,
            model="m",
            sample=0,
            turns=2,
            config="c",
            graph="g",
        )
    ]
    messages = (system, task)
    for turn, verdict in enumerate((Verdict.FAULT, Verdict.CORRECT), 1):
        answer, feedback = put(f"answer {turn}"), put(f"feedback {turn}")
        right = verdict is Verdict.CORRECT
        told += [
            Requested(turn=turn, messages=messages),
            Asked(turn=turn, attempt=1),
            Asked(turn=turn, attempt=1),
            CallFailed(turn=turn, attempt=1, error="Unavailable", message="busy", wait=0.1),
            Asked(turn=turn, attempt=2),
            Responded(
                turn=turn,
                attempt=2,
                response=put(f"raw {turn}"),
                message=answer,
                model="m-1",
                finish="stop",
                tokens=Tokens(input=100 * turn, output=10),
                usd=0.5,
                seconds=2.0,
            ),
            Extracted(turn=turn, candidate=put(f"candidate {turn}")),
            Judged(
                turn=turn,
                stage=Stage.CHECK,
                evaluation=put(f"evaluation {turn}"),
                verdict=verdict,
                stopped=not right,
                blobs={"log": put("log")},
                seconds=0.25,
            ),
        ]
        told += [] if right else [Feedback(turn=turn, message=feedback, template="p")]
        told += [TurnEnded(turn=turn, missing=False, verdict=verdict, targets_met=right, best_turn=turn)]
        messages = (*messages, answer, feedback)
    return [*told, EpisodeEnded(reason="target_met", best_turn=2, turns=2)]


def fill(run: Run, told: list[Event]) -> Path:
    with run.ledger("affine.0") as ledger:
        ledger.append(*told)
        return ledger.path


def test_an_episode_is_folded_from_its_events(tmp_path: Path) -> None:
    run = make(tmp_path)
    fill(run, events(run))
    (episode,) = open_run(run.path).episodes()
    assert (episode.id, episode.reason, episode.best_turn, episode.max_turns) == (
        "affine.0",
        "target_met",
        2,
        2,
    )
    assert [turn.verdict for turn in episode.turns] == [Verdict.FAULT, Verdict.CORRECT]
    assert [turn.number for turn in episode.turns] == [1, 2]
    assert (episode.tokens, episode.usd, episode.seconds) == (320, 1.0, 4.5)
    assert [(turn.failed_calls, turn.lost_calls) for turn in episode.turns] == [(1, 1), (1, 1)]
    assert episode.best == episode.turns[1]
    assert run.blobs.text(episode.turns[0].feedback or "") == "feedback 1"
    assert episode.turns[1].feedback is None


def test_a_fold_never_runs_backwards(tmp_path: Path) -> None:
    """Every beginning of a ledger is an episode, and what it tells only grows."""
    run = make(tmp_path)
    told = events(run)
    folded = [fold(told[:length]) for length in range(1, len(told) + 1)]
    assert all(episode.reason is None for episode in folded[:-1])
    counts = [len(episode.turns) for episode in folded]
    assert counts == sorted(counts)
    spent = [episode.tokens for episode in folded]
    assert spent == sorted(spent)
    with pytest.raises(InputError, match="never began"):
        fold(told[1:])


def test_a_run_is_made_once_and_says_what_it_is(tmp_path: Path) -> None:
    run = make(tmp_path)
    assert open_run(run.path).about == run.about
    assert len(run.about.draws) == 64
    with pytest.raises(InputError, match="exists; continue it with"):
        make(tmp_path)
    unnamed = make(tmp_path, None)
    assert set(list_runs(tmp_path)) == {run.path, unnamed.path}
    with pytest.raises(InputError, match="cannot name a run"):
        make(tmp_path, "../outside")
    with pytest.raises(InputError, match="cannot be the id of an episode"):
        run.ledger("../run")
    with pytest.raises(InputError, match="has no episode"):
        run.episode("other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, "has format 99, this version reads up to 1"),
        ({"name": None}, "is not a run's: name"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = make(tmp_path).path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=said):
        open_run(file.parent)
    with pytest.raises(InputError, match="is not a run: cannot read"):
        open_run(tmp_path / "nowhere")


def test_a_run_file_with_more_fields_of_the_same_format_is_read(tmp_path: Path) -> None:
    run = make(tmp_path)
    file = run.path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"later": 1}))
    assert open_run(run.path).about == run.about


def test_one_process_works_on_a_run(tmp_path: Path) -> None:
    run = make(tmp_path)
    code = (
        "from pathlib import Path; from traces.store import open_run\n"
        f"with open_run(Path({str(run.path)!r})).lock(): pass"
    )
    with run.lock():
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is in use by another process" in other.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_blobs_are_verified_whenever_read(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    digest = blobs.put(b"kernel")
    assert blobs.put(b"kernel") == digest
    assert [file.name for file in tmp_path.iterdir()] == [digest]
    assert blobs.get(digest) == b"kernel"
    (tmp_path / digest).write_bytes(b"colonel")
    with pytest.raises(InputError, match=f"is damaged: expected sha256 {digest}, found"):
        BlobStore(tmp_path).get(digest)
    with pytest.raises(InputError, match="cannot be read"):
        blobs.get("0" * 64)
    value = {"z": 1, "a": ["ü", {"y": 0, "b": 0}]}
    assert blobs.text(blobs.put_json(value)) == '{"z": 1, "a": ["ü", {"y": 0, "b": 0}]}'
    assert blobs.json(blobs.put_json(value)) == value


def test_memory_of_a_store_is_bounded_and_only_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.blobs.KEPT", 100)
    blobs = BlobStore(tmp_path)
    texts = [f"{number:040}" for number in range(9)]
    digests = [blobs.put_text(text) for text in texts]
    for digest in digests[:7]:
        (tmp_path / digest).unlink()
    assert [blobs.text(digest) for digest in digests[7:]] == texts[7:]
    with pytest.raises(InputError, match="cannot be read"):
        blobs.get(digests[0])


def test_threads_may_put_the_same_at_the_same_time(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    texts = [f"kernel {number % 10}" for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        digests = list(threads.map(blobs.put_text, texts))
    assert [BlobStore(tmp_path).text(digest) for digest in digests] == texts
    assert len(list(tmp_path.iterdir())) == 10


def test_a_whole_run_has_no_faults(tmp_path: Path) -> None:
    run = make(tmp_path)
    fill(run, events(run))
    assert verify_run(run.path) == ()


def test_every_missing_or_damaged_blob_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    told = events(run)
    fill(run, told)
    named = {digest for event in told for digest in references(event)}
    assert len(named) == 12
    for digest in named:
        kept = (run.path / "blobs" / digest).read_bytes()
        (run.path / "blobs" / digest).unlink()
        assert any(f"blob {digest} is missing" in fault for fault in verify_run(run.path))
        (run.path / "blobs" / digest).write_bytes(kept + b"!")
        assert any(f"expected sha256 {digest}" in fault for fault in verify_run(run.path))
        (run.path / "blobs" / digest).write_bytes(kept)
    assert verify_run(run.path) == ()


def _without(told: list[Event], kind: str, turn: int) -> list[Event]:
    return [event for event in told if (event.kind, getattr(event, "turn", 0)) != (kind, turn)]


@pytest.mark.parametrize(
    ("kind", "turn", "said"),
    [
        ("admitted", 0, "expected the admission of affine.0"),
        ("requested", 1, "no requested before it"),
        ("responded", 1, "no responded before it"),
        ("extracted", 2, "no extracted before it"),
        ("judged", 1, "no judged before it"),
        ("turn_ended", 1, "turn 1 has not ended"),
    ],
)
def test_an_order_that_cannot_have_happened_is_told(tmp_path: Path, kind: str, turn: int, said: str) -> None:
    run = make(tmp_path)
    fill(run, _without(events(run), kind, turn))
    assert any(said in fault for fault in verify_run(run.path)), verify_run(run.path)


def test_a_request_that_does_not_extend_the_last_is_told(tmp_path: Path) -> None:
    run = make(tmp_path)
    told = events(run)
    place = next(n for n, event in enumerate(told) if isinstance(event, Requested) and event.turn == 2)
    told[place] = Requested(turn=2, messages=(run.blobs.put_text("other"),))
    fill(run, told)
    assert any("does not extend the one before it" in fault for fault in verify_run(run.path))


def test_events_after_the_end_and_a_foreign_machine_are_told(tmp_path: Path) -> None:
    run = make(tmp_path)
    told = events(run)
    first = told[0].model_copy(update={"graph": "other"})
    fill(run, [first, *told[1:], Asked(turn=2, attempt=3)])
    faults = " ".join(verify_run(run.path))
    assert "comes after the end" in faults
    assert "admitted under another machine" in faults
