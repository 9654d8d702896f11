"""Proof that a run's folder is whole: every reference resolves, every hash agrees, events come in an order that can have happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.errors import InputError
from traces.confirmations import confirmations
from traces.events import (
    Admitted,
    EpisodeEnded,
    Event,
    Extracted,
    Feedback,
    Judged,
    Requested,
    Responded,
    TurnEnded,
)
from traces.ledger import read_events
from traces.store import Run, open_run


def verify_run(path: Path) -> tuple[str, ...]:
    """What is wrong with a run, one sentence each; empty when it is whole. Raises InputError when it is no run."""
    run = open_run(path)
    return tuple(_faults(run))


def references(event: Event) -> tuple[str, ...]:
    """Every blob that an event names."""
    match event:
        case Requested():
            return event.messages
        case Responded():
            return (event.response, event.message)
        case Extracted():
            return (event.candidate,) if event.candidate else ()
        case Judged():
            return (event.evaluation, *event.blobs.values())
        case Feedback():
            return (event.message,) if event.placebo in (None, "fixed") else (event.message, event.placebo)
        case TurnEnded():
            return (event.evaluation,) if event.evaluation else ()
        case _:
            return ()


def _faults(run: Run) -> Iterator[str]:
    known: set[str] = set()
    for file in sorted((run.path / "blobs").iterdir()):
        if file.name.startswith("."):
            continue
        try:
            run.blobs.get(file.name)
            known.add(file.name)
        except InputError as error:
            yield str(error)
    for episode in run.episode_ids():
        path = run.path / "episodes" / f"{episode}.jsonl"
        try:
            events = read_events(path)
        except InputError as error:
            yield str(error)
            continue
        for event in events:
            for digest in references(event):
                if digest not in known:
                    yield f"{path}, event {event.seq} ({event.kind}): blob {digest} is missing or damaged"
        yield from (f"{path}, {fault}" for fault in _disorder(run, episode, events))
    yield from _unconfirmed(run, known)


def _unconfirmed(run: Run, known: set[str]) -> Iterator[str]:
    """What is wrong with the records of timings taken again."""
    try:
        records = confirmations(run)
    except InputError as error:
        yield str(error)
        return
    for number, record in enumerate(records, 1):
        for digest in (record.candidate, record.evaluation, *record.blobs.values()):
            if digest not in known:
                yield f"{run.confirmations}, line {number}: blob {digest} is missing or damaged"
        samples = record.timing and record.timing.samples_sha256
        if samples and samples not in record.blobs.values():
            yield f"{run.confirmations}, line {number}: the raw samples are not those of the timing"


NEEDS = {
    "responded": "requested",
    "extracted": "responded",
    "judged": "extracted",
    "feedback": "judged",
}
"""Event of a turn → one of the same turn that must come before it."""


def _disorder(run: Run, episode: str, events: tuple[Event, ...]) -> Iterator[str]:
    if not events:
        return
    first = events[0]
    if first.kind != "admitted" or first.episode != episode:
        yield f"event 0: expected the admission of {episode}, found {first.kind}"
    if first.kind == "admitted" and first.graph != run.about.graph:
        yield "event 0: admitted under another machine than the run's"
    seen: set[tuple[str | int, ...]] = set()
    turn = 0
    before: tuple[str, ...] = ()
    for event in events:
        at = f"event {event.seq} ({event.kind})"
        if event.key is not None and event.key in seen:
            yield f"{at}: happened twice"
        if event.seq and event.kind == "admitted":
            yield f"{at}: admitted again"
        if ("episode_ended",) in seen:
            yield f"{at}: comes after the end"
        if event.key is not None:
            seen.add(event.key)
        if isinstance(event, Admitted | EpisodeEnded):
            continue
        if event.turn not in (turn, turn + 1):
            yield f"{at}: turn {event.turn} after turn {turn}"
        if event.turn == turn + 1 and turn and ("turn_ended", turn) not in seen:
            yield f"{at}: turn {turn} has not ended"
        turn = max(turn, event.turn)
        needed = NEEDS.get(event.kind)
        if needed and not any(key[:2] == (needed, event.turn) for key in seen):
            yield f"{at}: no {needed} before it"
        if event.kind == "requested":
            if first.kind == "admitted" and first.arm != "none" and event.messages[: len(before)] != before:
                yield f"{at}: the request does not extend the one before it"
            before = event.messages
