"""Requests and answers as files: a model is whoever reads a folder and writes into it.

For every turn of an episode the folder gets

    DIR/<episode>/turn-1.request.json     the whole request: messages, task, arm, sample, turn, sha256
    DIR/<episode>/turn-1.request.md       the same to read: what is asked, message by message

and the one who answers writes, beside them, either

    DIR/<episode>/turn-1.answer.md        the answer as text, whole, as a model would give it
    DIR/<episode>/turn-1.answer.json      {"text": "...", "finish": "stop", "model": "...", "usage":
    {"input": 1, "output": 2}}
                                          (text is needed, the rest is not)

Write it under another name and rename it, or in one go: an answer is taken once it is not empty and its
size has stood still over two looks. An answer that cannot be used (not UTF-8, not JSON of that form) is not
taken: `turn-1.problem.md` says why, and the next version of the file is looked at. Looks are 0.2 s apart.

Requests are written anew when a run resumes. An answer that is already there is taken, unless the request
has become another one (its sha256 differs): then the old answer is put aside as `….stale-<sha256>`, since
it answered something else.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from pydantic import Field, ValidationError

from agent.models.base import FinishReason, Request, Response, Unavailable, Usage
from agent.models.cassette import request_sha256
from tasks.errors import InputError
from tasks.record import Record

LOOK = 0.2
"""Seconds between two looks for an answer."""
LARGEST = 4_000_000
"""Bytes; a larger answer is a problem."""


class Answer(Record):
    """The form of `turn-<n>.answer.json`."""

    text: str
    finish: FinishReason = FinishReason.STOP
    usage: Usage = Usage()
    model: str = Field(default="mailbox", min_length=1)
    """Who answered."""


class MailboxModel:
    """Writes requests into a folder and waits for answers there."""

    def __init__(self, folder: Path, *, timeout: float | None = None, look: float = LOOK) -> None:
        """timeout: seconds to wait for an answer, None for ever. Raises InputError when the folder cannot
        be used."""
        self._folder = folder
        self._timeout = timeout
        self._look = look
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot use {folder} as a mailbox: {error}") from None

    waits_free = True

    @property
    def name(self) -> str:
        return f"mailbox:{self._folder}"

    async def respond(self, request: Request) -> Response:
        started = time.monotonic()
        turn = _Turn(self._folder, request)
        try:
            turn.ask()
            while (answer := turn.look()) is None:
                if self._timeout is not None and time.monotonic() - started > self._timeout:
                    raise Unavailable(
                        f"{self.name}: nobody answered within {self._timeout:g} s; expected {turn.answers[0]}"
                    )
                await asyncio.sleep(self._look)
        except OSError as error:
            text = f"{self.name}: {error}"
        else:
            return Response(
                text=answer.text,
                finish=answer.finish,
                usage=answer.usage,
                model=answer.model,
                seconds=time.monotonic() - started,
                raw={"mailbox": turn.stem.name, **answer.model_dump(mode="json", exclude={"text"})},
            )
        raise Unavailable(text)

    async def close(self) -> None:
        """Nothing is held open."""


@dataclass
class _Turn:
    """The files of one turn."""

    folder: Path
    request: Request
    sizes: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    """Size and time of change at the last look."""
    refused: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    """Versions that could not be used."""

    @property
    def stem(self) -> Path:
        # An episode's name becomes one folder's name, whatever it holds.
        episode = quote(self.request.episode, safe="")
        if episode.startswith("."):
            episode = "%2E" + episode[1:]
        return self.folder / (episode or "%") / f"turn-{self.request.turn}"

    def path(self, ending: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{ending}")

    @property
    def answers(self) -> tuple[Path, Path]:
        return self.path("answer.json"), self.path("answer.md")

    def ask(self) -> None:
        """Write the request, and put aside answers to another one."""
        digest = request_sha256(self.request.messages)
        before = self._digest_before()
        if before is not None and before != digest:
            for answer in self.answers:
                if answer.exists():
                    answer.rename(answer.with_name(f"{answer.name}.stale-{before[:12]}"))
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        fields = self.request.model_dump(mode="json", exclude={"messages"})
        messages = [{"role": m.role, "content": m.content} for m in self.request.messages]
        body = {"request_sha256": digest, **fields, "messages": messages}
        _write(self.path("request.md"), self._readable())
        _write(self.path("request.json"), json.dumps(body, ensure_ascii=False, indent=1) + "\n")

    def _digest_before(self) -> str | None:
        try:
            found: Any = json.loads(self.path("request.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        digest: Any = cast("dict[str, Any]", found).get("request_sha256") if isinstance(found, dict) else None
        return digest if isinstance(digest, str) else None

    def _readable(self) -> str:
        request = self.request
        head = (
            f"# Task {request.task or '?'}, arm {request.arm or '?'}, sample {request.sample}, "
            f"turn {request.turn}\n\n"
            f"Write the answer to `{self.answers[1].name}` in this folder, whole, as a model would give it.\n"
        )
        parts = [f"\n---\n\n## {m.role} ({n})\n\n{m.content}\n" for n, m in enumerate(request.messages, 1)]
        return head + "".join(parts)

    def look(self) -> Answer | None:
        """The answer, once it is there and at rest."""
        for path in self.answers:
            try:
                state = path.stat()
            except FileNotFoundError:
                self.sizes.pop(path, None)
                continue
            version = (state.st_size, state.st_mtime_ns)
            rests = self.sizes.get(path) == version
            self.sizes[path] = version
            if not rests or not state.st_size or self.refused.get(path) == version:
                continue
            answer = self._take(path, state.st_size)
            if isinstance(answer, Answer):
                self.path("problem.md").unlink(missing_ok=True)
                return answer
            self.refused[path] = version
            _write(
                self.path("problem.md"),
                f"`{path.name}` cannot be used: {answer}\n\nCorrect it and save it again.\n",
            )
        return None

    def _take(self, path: Path, size: int) -> Answer | str:
        """The answer, or what is wrong with the file."""
        if size > LARGEST:
            return f"it has {size} bytes, more than {LARGEST}."
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            return f"it is not UTF-8: {error}."
        if path.suffix == ".md":
            return Answer(text=text)
        try:
            return Answer.model_validate_json(text)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()
            )
            return f"it has not the expected form ({faults})."


def _write(path: Path, text: str) -> None:
    """Put a file in place in one step: a reader sees all of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8", errors="surrogatepass")
    os.replace(draft, path)
