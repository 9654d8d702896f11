"""From a run's episodes to a cassette: what was answered, as it was answered, in the order it came."""

from __future__ import annotations

import datetime
from pathlib import Path

from agent.models.base import FinishReason, Message, Response
from agent.models.cassette import Cassette, Entry, Header, request_sha256
from agent.models.record import write_cassette
from tasks.errors import InputError
from traces.records import Turn
from traces.store import Run, open_run


def record_run(
    paths: tuple[Path, ...],
    output: Path,
    *,
    who: str,
    model: str,
    how: str,
    episodes: tuple[str, ...] = (),
    any_arm: bool = False,
) -> Cassette:
    """Write the answers of runs' episodes (all when none is named) to `output`, dated by the first run.

    Samples are numbered anew for each task, in the order of the runs. episodes: ids or their beginnings. any_arm: the answers serve
    every arm. Raises InputError when an episode is not there.
    """
    runs = [open_run(path) for path in paths]
    chosen = [
        (run, each)
        for run in runs
        for each in run.episodes()
        if not episodes or any(each.id.startswith(begin) for begin in episodes)
    ]
    for begin in episodes:
        if not any(each.id.startswith(begin) for _, each in chosen):
            named = ", ".join(str(path) for path in paths)
            raise InputError(f"{named}: no episode {begin!r}; `ptxmend show RUN` lists them")
    entries: list[Entry] = []
    for run, episode in chosen:
        name = Path(episode.task).name
        sample = sum(entry.task == name and entry.turn == 1 for entry in entries)
        for turn in episode.turns:
            if turn.response is None:
                break
            arm = "" if any_arm else episode.arm
            entries.append(_entry(run, name, arm, sample, turn))
    day = datetime.datetime.fromtimestamp(runs[0].about.created, datetime.UTC).date()
    return write_cassette(output, Header(who=who, model=model, recorded=day, how=how), entries)


def _entry(run: Run, task: str, arm: str, sample: int, turn: Turn) -> Entry:
    response = Response.model_validate(run.blobs.json(turn.response or ""))
    known = response.usage.input > 0 or response.usage.output > 0
    messages = (Message.model_validate(run.blobs.json(each)) for each in turn.messages)
    return Entry(
        task=task,
        arm=arm,
        sample=sample,
        turn=turn.number,
        text=response.text,
        finish=FinishReason(response.finish),
        usage=response.usage if known else None,
        request_sha256=request_sha256(messages),
    )
