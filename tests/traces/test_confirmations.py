"""Records of timings taken again: appended whole, read by versions that can, proved like the rest of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import InputError
from tests.agent.timed import timing
from tests.traces.test_run_folder import make
from tools.evaluation import Verdict
from traces.confirmations import FORMAT, Confirmation, confirmations, confirming, latest
from traces.store import Run
from traces.verify import verify_run


def record(run: Run, name: str = "kernel", **changed: Any) -> Confirmation:
    samples = run.blobs.put_text(f"samples of {name}")
    made = Confirmation(
        candidate=run.blobs.put_text(name),
        task="affine",
        task_digest="t" * 64,
        arch="sm_90a",
        episode="affine.0.0123",
        turn=2,
        in_loop=timing(1.5),
        verdict=Verdict.CORRECT,
        timing=timing(1.4, confirmed=True, samples_sha256=samples),
        seed=7,
        evaluation=run.blobs.put_text("{}"),
        blobs={"samples.json": samples},
    )
    return made.model_copy(update=changed)


def test_records_are_appended_in_order_and_the_newest_counts(tmp_path: Path) -> None:
    run = make(tmp_path)
    assert confirmations(run) == ()
    with confirming(run) as kept:
        first, other = kept.append(record(run)), kept.append(record(run, "other"))
    with confirming(run) as kept:
        assert kept.records == [first, other]
        second = kept.append(record(run, timing=timing(1.3)))
    assert confirmations(run) == (first, other, second)
    assert latest(run) == {(each.task_digest, each.candidate): each for each in (other, second)}
    assert 0 < first.time <= second.time
    assert verify_run(run.path) == ()


def test_two_processes_do_not_write_at_once(tmp_path: Path) -> None:
    run = make(tmp_path)
    with (
        confirming(run),
        pytest.raises(InputError, match="is being written by another process"),
        confirming(run),
    ):
        pass


def test_a_torn_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    run = make(tmp_path)
    with confirming(run) as kept:
        first = kept.append(record(run))
    whole = run.confirmations.read_bytes()
    run.confirmations.write_bytes(whole + whole[: len(whole) // 2])
    assert confirmations(run) == (first,)
    with confirming(run) as kept:
        second = kept.append(record(run, "other"))
    assert confirmations(run) == (first, second)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": FORMAT + 1}, f"line 1 has format {FORMAT + 1}, this version reads up to {FORMAT}"),
        ({"verdict": "perfect"}, "line 1: expected a confirmation, found .*verdict"),
        ({"candidate": None}, "line 1: expected a confirmation"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    run = make(tmp_path)
    with confirming(run) as kept:
        kept.append(record(run))
    line = json.loads(run.confirmations.read_text()) | change
    run.confirmations.write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=words):
        confirmations(run)
    assert any("confirmations.jsonl, line 1" in fault for fault in verify_run(run.path))


def test_fields_of_a_later_minor_version_stop_nobody(tmp_path: Path) -> None:
    run = make(tmp_path)
    with confirming(run) as kept:
        kept.append(record(run))
    line = json.loads(run.confirmations.read_text()) | {"weather": "fine"}
    run.confirmations.write_text(json.dumps(line) + "\n")
    assert len(confirmations(run)) == 1


def test_a_missing_blob_and_foreign_samples_are_found(tmp_path: Path) -> None:
    run = make(tmp_path)
    with confirming(run) as kept:
        kept.append(record(run))
        kept.append(record(run, timing=timing(1.4, samples_sha256="0" * 64)))
    (run.path / "blobs" / confirmations(run)[0].evaluation).unlink()
    faults = "\n".join(verify_run(run.path))
    assert "line 1: blob" in faults
    assert "line 2: the raw samples are not those of the timing" in faults


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (timing(1.5), "agrees"),
        (timing(1.492), "agrees"),
        (timing(1.48), "slower"),
        (timing(1.52), "faster"),
        (timing(1.48, baseline="another"), "untold"),
        (timing(1.48, device="NVIDIA A100"), "untold"),
        (None, "untold"),
    ],
)
def test_luck_shows_where_intervals_do_not_meet(tmp_path: Path, new: Any, said: str) -> None:
    assert record(make(tmp_path), timing=new).said == said
