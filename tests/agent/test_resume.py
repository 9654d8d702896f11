"""Kill -9 at random moments: nothing is lost, nothing that was journaled is asked again."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.doubles import ROOT
from tests.agent.runs import SAMPLES, TURNS
from traces.ledger import read_events
from traces.records import Episode
from traces.store import Run, open_run
from traces.verify import verify_run

ANSWERS = {
    task: [
        f"verdict: {verdict} targets: yes\n// {task}"
        for verdict in ("assemble_error", "fault", "wrong_output", "correct")
    ]
    for task in ("affine", "vector_add")
}
PLANNED = 2 * SAMPLES * TURNS
KILLS = 30
KEY = "a-key-of-mine-0123456789"


class Server:
    """The scripted service in a process of its own, so that it outlives what is killed."""

    def __init__(self, folder: Path, delay: float) -> None:
        (folder / "answers.json").write_text(json.dumps(ANSWERS))
        self._calls = folder / "calls.jsonl"
        options = [
            "--answers",
            str(folder / "answers.json"),
            "--calls",
            str(self._calls),
            "--delay",
            str(delay),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.wire", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["openai"]

    @property
    def calls(self) -> int:
        return len(self._calls.read_bytes().splitlines()) if self._calls.exists() else 0

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, delay=0.04)
    yield made
    made.close()


class Child:
    """A process that works on a run."""

    def __init__(self, talk: subprocess.Popen[str], root: Path, name: str, url: str) -> None:
        assert talk.stdin is not None
        assert talk.stdout is not None
        print(root, name, url, file=talk.stdin, flush=True)
        self._out = talk.stdout
        self.pid = int(self._out.readline())

    def send(self, number: int) -> None:
        """The child is reaped by its parent, which tells us; until then its id is its own."""
        if self.running:
            os.kill(self.pid, number)

    @property
    def running(self) -> bool:
        return not select.select([self._out], [], [], 0)[0]

    def wait(self) -> int:
        return int(self._out.readline())


Start = Callable[[Path, str, str], Child]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    talk = subprocess.Popen(
        [sys.executable, "-m", "tests.agent.runs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=ROOT,
        env=environment,
    )
    yield lambda root, name, url: Child(talk, root, name, url)
    talk.communicate()


def normal(run: Run, episode: Episode) -> dict[str, Any]:
    """An episode without what depends on the clock or on who was killed."""
    told = episode.model_dump(mode="json", exclude={"started", "ended"})
    for turn in told["turns"]:
        for key in ("model_seconds", "tool_seconds", "lost_calls", "response"):
            del turn[key]
        evaluation = run.blobs.json(turn["evaluation"])
        del evaluation["seconds"]
        turn["evaluation"] = evaluation
        turn["messages"] = [run.blobs.text(each) for each in turn["messages"]]
    return told


def traces(path: Path) -> list[dict[str, Any]]:
    run = open_run(path)
    return [normal(run, episode) for episode in run.episodes()]


@pytest.mark.timeout(240)
def test_a_run_killed_thirty_times_ends_as_an_undisturbed_one(
    tmp_path: Path, server: Server, start: Start
) -> None:
    """Also: calls = turns + calls in flight at a kill, and the ledgers show exactly those."""
    began = time.monotonic()
    assert start(tmp_path, "calm", server.url).wait() == 0
    undisturbed = time.monotonic() - began
    assert server.calls == PLANNED

    rng = random.Random(20)
    killed = 0
    journaled: set[tuple[str, int]] = set()
    answers: dict[tuple[str, int], str] = {}
    round_ = 0
    before = server.calls
    while killed < KILLS:
        name = f"killed-{round_}"
        path = tmp_path / name
        process = start(tmp_path, name, server.url)
        _wait_for_work(path, process, undisturbed)
        time.sleep(rng.uniform(0.0, 0.35))
        process.send(signal.SIGKILL)
        code = process.wait()
        killed += code == -signal.SIGKILL
        done = code == 0
        _same_answers(path, answers, journaled)
        if done:
            round_ += 1
            _finished(path, tmp_path / "calm")
            answers.clear()
            journaled.clear()
    while start(tmp_path, f"killed-{round_}", server.url).wait() != 0:
        pass
    _same_answers(tmp_path / f"killed-{round_}", answers, journaled)
    _finished(tmp_path / f"killed-{round_}", tmp_path / "calm")
    runs = [open_run(tmp_path / f"killed-{number}") for number in range(round_ + 1)]
    lost = sum(turn.lost_calls for run in runs for episode in run.episodes() for turn in episode.turns)
    paid = server.calls - before
    assert PLANNED * len(runs) <= paid <= PLANNED * len(runs) + lost
    assert lost <= 3 * killed, "only calls in flight at a kill may be asked again"


def _wait_for_work(path: Path, process: Child, most: float) -> None:
    """Until the process has written something new, so that kills fall into work and not into imports."""
    size = _size(path)
    end = time.monotonic() + 20 * most
    while process.running and _size(path) == size and time.monotonic() < end:
        time.sleep(0.005)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("episodes/*.jsonl"))


def _same_answers(path: Path, answers: dict[tuple[str, int], str], journaled: set[tuple[str, int]]) -> None:
    """An answer that was journaled once is the same for ever, and no call went out for it afterwards."""
    for ledger in path.glob("episodes/*.jsonl"):
        seen: set[int] = set()
        for event in read_events(ledger):
            if event.kind == "responded":
                key = (ledger.stem, event.turn)
                assert answers.setdefault(key, event.response) == event.response
                journaled.add(key)
                seen.add(event.turn)
            elif event.kind == "asked":
                assert event.turn not in seen, "a journaled answer was asked for again"
    for episode, turn in journaled:
        assert answers[episode, turn]


def _finished(path: Path, calm: Path) -> None:
    assert verify_run(path) == ()
    assert traces(path) == traces(calm)
    key = KEY.encode()
    assert not [file for file in path.rglob("*") if file.is_file() and key in file.read_bytes()]


def test_a_signal_lets_the_superstep_end_and_the_run_goes_on(
    tmp_path: Path, server: Server, start: Start
) -> None:
    process = start(tmp_path, "drained", server.url)
    _wait_for_work(tmp_path / "drained", process, 1.0)
    time.sleep(0.1)
    process.send(signal.SIGTERM)
    assert process.wait() == 3
    run = open_run(tmp_path / "drained")
    drained = Counter(turn.lost_calls for episode in run.episodes() for turn in episode.turns)
    assert set(drained) == {0}, "a drained run leaves no call unanswered"
    assert start(tmp_path, "drained", server.url).wait() == 0
    assert server.calls == PLANNED
    assert verify_run(run.path) == ()


def test_a_run_whose_checkpoints_are_lost_goes_on_from_its_ledgers(
    tmp_path: Path, server: Server, start: Start
) -> None:
    process = start(tmp_path, "lost", server.url)
    _wait_for_work(tmp_path / "lost", process, 1.0)
    time.sleep(0.25)
    process.send(signal.SIGKILL)
    process.wait()
    for file in (tmp_path / "lost").glob("checkpoints.sqlite*"):
        file.write_bytes(b"not a database")
    assert start(tmp_path, "lost", server.url).wait() == 0
    assert verify_run(tmp_path / "lost") == ()
    assert start(tmp_path, "calm", server.url).wait() == 0
    assert traces(tmp_path / "lost") == traces(tmp_path / "calm")
