"""From a run's episodes to a cassette: what was answered, as it was answered, in the order it came."""

from __future__ import annotations

import datetime
from pathlib import Path

from agent.models.base import FinishReason, Message, Response
from agent.models.cassette import Cassette, Entry, Header, request_sha256
from agent.models.record import write_cassette
from tasks.errors import InputError
from traces.store import Run, open_run


def record_run(
    path: Path,
    output: Path,
    *,
    who: str,
    model: str,
    how: str,
    episodes: tuple[str, ...] = (),
    any_arm: bool = False,
) -> Cassette:
    """Write the answers of a run's episodes (all when none is named) to `output`. Samples are numbered anew for each task.

    episodes: ids or their beginnings. any_arm: the answers serve every arm. Raises InputError when one is not there.
    """
    run = open_run(path)
    chosen = [
        each
        for each in run.episodes()
        if not episodes or any(each.id.startswith(begin) for begin in episodes)
    ]
    for begin in episodes:
        if not any(each.id.startswith(begin) for each in chosen):
            raise InputError(f"{path} has no episode {begin!r}; `ptxmend show {path}` lists them")
    entries: list[Entry] = []
    seen: dict[str, int] = {}
    for episode in chosen:
        name = Path(episode.task).name
        sample = seen.get(name, 0)
        seen[name] = sample + 1
        for turn in episode.turns:
            if turn.response is None:
                break
            response = Response.model_validate(run.blobs.json(turn.response))
            entries.append(
                _entry(
                    run, name, "" if any_arm else episode.arm, sample, turn.number, turn.messages, response
                )
            )
    day = datetime.datetime.fromtimestamp(run.about.created, datetime.UTC).date()
    return write_cassette(output, Header(who=who, model=model, recorded=day, how=how), entries)


def _entry(
    run: Run, task: str, arm: str, sample: int, turn: int, messages: tuple[str, ...], response: Response
) -> Entry:
    known = response.usage.input > 0 or response.usage.output > 0
    return Entry(
        task=task,
        arm=arm,
        sample=sample,
        turn=turn,
        text=response.text,
        finish=FinishReason(response.finish),
        usage=response.usage if known else None,
        model=None,
        request_sha256=request_sha256(Message.model_validate(run.blobs.json(each)) for each in messages),
    )
