"""Writing a cassette from the answers of a run.

What is written is what `read_cassette` takes: it is checked before, and read back and compared after, then
put in place under its name in one step, so a cassette is whole or not there. Entries are sorted, so equal
answers make equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from agent.models.base import Request, Response
from agent.models.cassette import Cassette, Entry, Header, check_entries, read_cassette, request_sha256
from tasks.errors import InputError


def entry(request: Request, response: Response, *, any_arm: bool = False) -> Entry:
    """One answer as it is recorded; with `any_arm` it will serve every arm."""
    known = response.usage.input > 0 or response.usage.output > 0
    return Entry(
        task=request.task,
        arm="" if any_arm else request.arm,
        sample=request.sample,
        turn=request.turn,
        text=response.text,
        finish=response.finish,
        usage=response.usage if known else None,
        model=response.model,
        request_sha256=request_sha256(request.messages),
    )


def write_cassette(path: Path, header: Header, entries: Iterable[Entry]) -> Cassette:
    """Write, read back, and return what a player will see. Raises InputError: nothing to write, repeated or
    missing turns."""
    listed = sorted(entries, key=lambda entry: entry.key)
    if not listed:
        raise InputError(f"nothing to record in {path}: expected at least one answer")
    faults = check_entries(listed)
    if faults:
        raise InputError(f"cannot record {path}: {'; '.join(faults)}")
    # The model's name stands in the header; an entry repeats it only where it differs.
    plain = [e.model_copy(update={"model": None}) if e.model == header.model else e for e in listed]
    lines = [header.model_dump_json(), *(e.model_dump_json(exclude_none=True) for e in plain)]
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text("\n".join(lines) + "\n", "utf-8")
        written = read_cassette(draft)
        if written != Cassette(header=header, entries=tuple(plain)):
            raise InputError(f"cannot record {path}: an answer does not survive being written and read back")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return written
