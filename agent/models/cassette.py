"""The cassette: recorded answers as a file, one JSON object a line.

The first line is the header: format, version, who answered, which model, when, how. Every further line is
one answer, found again by (task, arm, sample, turn); an entry without an arm serves any arm. Reading is
strict and says the line; the key of an entry is unique, and the turns of each (task, arm, sample) run from
1 without a gap.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from agent.models.base import FinishReason, Message, Usage
from tasks.errors import InputError
from tasks.record import Record

FORMAT = "ptxmend-cassette"
VERSION = 1

_Kind = TypeVar("_Kind", bound="Record")

Key = tuple[str, str, int, int]
"""Task, arm, sample, turn."""


class Header(Record):
    """The first line: where the answers come from."""

    format: Literal["ptxmend-cassette"] = FORMAT
    version: Literal[1] = VERSION
    who: str = Field(min_length=1)
    """Who answered: a person, a program, a service."""
    model: str = Field(min_length=1)
    """The model's name, as the one who answered gave it."""
    recorded: datetime.date
    """When."""
    how: str = Field(min_length=1)
    """By which means and under which conditions, in a sentence or two."""


class Entry(Record):
    """One recorded answer."""

    task: str = Field(min_length=1)
    arm: str = ""
    """The arm it was given in; '': serves any arm."""
    sample: int = Field(default=0, ge=0)
    turn: int = Field(ge=1)
    text: str
    """The whole answer as it came, prose and fences included."""
    finish: FinishReason = FinishReason.STOP
    usage: Usage | None = None
    """None: not known."""
    model: str | None = None
    """Where it differs from the header's."""
    request_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """`request_sha256` of the messages it answered; None: not known."""

    @property
    def key(self) -> Key:
        return (self.task, self.arm, self.sample, self.turn)


class Cassette(Record):
    """A whole file."""

    header: Header
    entries: tuple[Entry, ...]


def request_sha256(messages: Iterable[Message]) -> str:
    """The digest of a conversation: roles and texts, nothing of any provider's."""
    plain = [[message.role, message.content] for message in messages]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def find_cassette(name: str) -> Path:
    """The file: a plain word names a cassette that ships with the package, anything else is a path."""
    shipped = Path(str(resources.files("agent").joinpath("cassettes")))
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name) and (path := shipped / f"{name}.jsonl").is_file():
        return path
    try:
        if Path(name).is_file():
            return Path(name)
    except (OSError, ValueError):  # too long for a path, or not one
        pass
    names = ", ".join(sorted(path.stem for path in shipped.glob("*.jsonl"))) or "none"
    raise InputError(f"no cassette {name[:200]!r}: expected a file, or one that ships with ptxmend ({names})")


def read_cassette(path: Path) -> Cassette:
    """Read and check a cassette. Raises InputError naming file, line and what was expected."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the cassette {path}: {error}") from None
    header = _line(Header, lines[0], path, 1)
    entries = [_line(Entry, line, path, n) for n, line in enumerate(lines[1:], 2) if line.strip()]
    cassette = Cassette(header=header, entries=tuple(entries))
    faults = check_entries(cassette.entries)
    if faults:
        raise InputError(f"the cassette {path} contradicts itself: {'; '.join(faults)}")
    return cassette


def _line(kind: type[_Kind], line: str, path: Path, number: int) -> _Kind:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        where = f"{path}, line {number}"
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors())
        expected = f"the header of a {FORMAT} of version {VERSION}" if number == 1 else "a recorded answer"
        raise InputError(f"{where}: expected {expected}, found {line[:80]!r} ({faults})") from None


def check_entries(entries: Sequence[Entry]) -> list[str]:
    """What is wrong between entries: repeated keys, gaps in the turns. Empty: nothing."""
    faults: list[str] = []
    turns: dict[tuple[str, str, int], list[int]] = {}
    for entry in entries:
        turns.setdefault(entry.key[:3], []).append(entry.turn)
    for (task, arm, sample), found in turns.items():
        name = f"task {task}, arm {arm or 'any'}, sample {sample}"
        repeated = sorted({turn for turn in found if found.count(turn) > 1})
        if repeated:
            faults.append(f"{name}: turn {', '.join(map(str, repeated))} is there more than once")
        missing = sorted(set(range(1, max(found) + 1)) - set(found))
        if missing:
            faults.append(f"{name}: turn {', '.join(map(str, missing))} is missing before turn {max(found)}")
    return faults
