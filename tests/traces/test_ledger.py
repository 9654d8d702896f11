"""Ledgers: what was acknowledged is read back, what was torn is not, and nothing is ever written twice or by two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import InputError
from tools.evaluation import Stage, Verdict
from traces.events import Admitted, Asked, Event, Extracted, Judged, Requested, TurnEnded, read_event
from traces.ledger import Ledger, read_events

EVENTS: tuple[Event, ...] = (
    Admitted(
        episode="e",
        task="affine",
        task_digest="t",
        arch="sm_90a",
        arm="feedback",
        model="instant",
        sample=0,
        turns=3,
        config="c",
        graph="g",
    ),
    Requested(turn=1, messages=("a" * 64, "b" * 64)),
    Asked(turn=1, attempt=1),
    Asked(turn=1, attempt=1),
    Extracted(turn=1, candidate=None, reason="zwei\nZeilen, ein \u2028 und ein \x85"),
    Judged(turn=1, stage=Stage.CHECK, evaluation="d" * 64, verdict=Verdict.FAULT, stopped=True),
    TurnEnded(turn=1, missing=False, verdict=Verdict.FAULT),
)


def written(path: Path) -> list[Event]:
    with Ledger(path, clock=lambda: 7.0) as ledger:
        for event in EVENTS:
            ledger.append(event)
        return list(ledger.events)


def test_events_come_back_numbered_and_timed(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    kept = written(path)
    assert [event.seq for event in kept] == list(range(len(EVENTS)))
    assert {event.time for event in kept} == {7.0}
    assert read_events(path) == tuple(kept)
    with Ledger(path) as again:
        assert again.events == kept
        assert again.find("judged", 1, Stage.CHECK) == kept[5]
        assert not again.closed


def test_an_event_about_the_same_thing_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    written(path)
    before = path.read_bytes()
    with Ledger(path) as ledger:
        ledger.append(*(event for event in EVENTS if event.key is not None))
        assert path.read_bytes() == before
        ledger.append(Asked(turn=1, attempt=2), Asked(turn=1, attempt=2))
    assert [event.kind for event in read_events(path)][-2:] == ["asked", "asked"]


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(min_value=0), junk=st.binary(max_size=20))
def test_wherever_a_write_was_torn_the_whole_lines_before_it_stay(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "e.jsonl"
    kept = written(path)
    data = path.read_bytes()
    cut %= len(data) + 1
    torn = data[:cut] + junk.replace(b"\n", b"")
    path.write_bytes(torn)
    whole = data[:cut].count(b"\n")
    assert read_events(path) == tuple(kept[:whole])
    with Ledger(path, clock=lambda: 7.0) as ledger:
        assert ledger.events == kept[:whole]
        for event in EVENTS[whole:]:
            ledger.append(event)
    assert path.read_bytes() == data


def test_a_damaged_line_before_the_last_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:2], b'{"kind": "nonsense"}\n', *lines[3:])))
    with pytest.raises(InputError, match="line 3: expected an event, found"):
        read_events(path)
    path.write_bytes(b"".join((*lines[:2], *lines[3:])))
    with pytest.raises(InputError, match="line 3: expected event 2, found event 3"), Ledger(path):
        pass


def test_a_ledger_has_one_writer_and_any_number_of_readers(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    with Ledger(path) as ledger:
        ledger.append(EVENTS[0])
        code = f"from pathlib import Path; from traces.ledger import Ledger; Ledger(Path({str(path)!r}))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.getcwd())
        assert other.returncode == 1
        assert "is being written by another process" in other.stderr
        assert len(read_events(path)) == 1
    with Ledger(path) as ledger:
        assert len(ledger.events) == 1


def test_a_line_of_a_newer_version_with_more_fields_is_read(tmp_path: Path) -> None:
    line = EVENTS[1].model_dump_json()[:-1] + ', "later": {"any": "thing"}}'
    assert read_event(line) == EVENTS[1]
