"""A ledger cut anywhere, with or without checkpoints, leads to the same end; what a model is asked never changes."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.config import Arm, RunConfig
from agent.models.base import FinishReason, Request, Response, Usage
from agent.models.instant import InstantModel
from agent.runner import Parts, resume, run
from tests.agent.doubles import TOOLS, Inline
from traces.events import Responded
from traces.ledger import read_events
from traces.store import open_run
from traces.verify import verify_run

NATIVE = (
    {
        "type": "reasoning",
        "id": "r",
        "encrypted_content": "gAAAAAB_sk-abcdefghijklmnop0123456789",
        "a": [{"z": 1, "b": 2}],
    },
)
VERDICTS = ("assemble_error", "fault", "correct")


def answer(request: Request) -> Response:
    text = f"verdict: {VERDICTS[request.turn - 1]} targets: yes"
    return Response(
        text=text,
        finish=FinishReason.STOP,
        model="m",
        native=NATIVE,
        usage=Usage(input=5, output=5),
        response_id="1",
        seconds=1.5,
    )


def parts(model: InstantModel) -> Parts:
    return Parts(tools=TOOLS, model=model, judge=Inline())


def config(**changed: Any) -> RunConfig:
    settings: dict[str, Any] = {"model": "instant:x", "tasks": ("affine",), "turns": 3, "seed": 1}
    return RunConfig(**(settings | changed))


def told(path: Path) -> list[dict[str, Any]]:
    """Events without what depends on the clock, and without calls that a crash repeats."""
    return [
        event.model_dump(mode="json", exclude={"time", "seconds", "seq"})
        for file in sorted(path.glob("episodes/*.jsonl"))
        for event in read_events(file)
        if event.kind != "asked"
    ]


@pytest.mark.parametrize("arm", [Arm.FEEDBACK, Arm.NONE])
def test_cut_after_any_event_and_without_checkpoints_it_ends_the_same(tmp_path: Path, arm: Arm) -> None:
    calm = run(config(arm=arm), tmp_path, name="calm", parts=parts(InstantModel(answer))).path
    (ledger,) = calm.glob("episodes/*.jsonl")
    lines = ledger.read_bytes().splitlines(keepends=True)
    for length in range(len(lines)):
        path = tmp_path / f"cut-{length}"
        shutil.copytree(calm, path)
        for file in path.glob("checkpoints.sqlite*"):
            file.unlink()
        (path / "episodes" / ledger.name).write_bytes(b"".join(lines[:length]) + lines[length][:-5])
        model = InstantModel(answer)
        summary = resume(path, parts=parts(model))
        assert summary.ended == 1
        assert told(path) == told(calm), f"cut after {length} events"
        journaled = sum(b'"kind":"responded"' in line for line in lines[:length])
        assert model.calls == 3 - journaled
        assert verify_run(path) == ()


def test_every_request_begins_with_the_one_before_it_natively_too(tmp_path: Path) -> None:
    model = InstantModel(answer)
    path = run(config(), tmp_path, name="x", parts=parts(model)).path
    sent = [[message.model_dump_json() for message in request.messages] for request in model.requests]
    assert [len(each) for each in sent] == [2, 4, 6]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    assert model.requests[1].messages[2].native == NATIVE
    assert str(list(model.requests[1].messages[2].native[0])) == str(list(NATIVE[0])), "keys keep their order"
    opened = open_run(path)
    (ledger,) = path.glob("episodes/*.jsonl")
    first = next(event for event in read_events(ledger) if isinstance(event, Responded))
    assert '"z": 1, "b": 2' in opened.blobs.text(first.response)


def test_fresh_samples_ask_the_same_each_time(tmp_path: Path) -> None:
    model = InstantModel(answer)
    run(config(arm=Arm.NONE), tmp_path, name="x", parts=parts(model))
    assert len(model.requests) == 3
    assert len({str(request.messages) for request in model.requests}) == 1
