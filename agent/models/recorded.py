"""Answers of an earlier run, played back: the embedded default, and a double for tests.

`recorded:FILE` plays a file, `recorded:NAME` a cassette that ships with the package, such as
`recorded:demo`. Nothing is invented: a turn that was not recorded is refused and ends its episode, not the
run. The prompt may differ from the one the answer was given to (prompts get better); that is noted in
`raw["request_matched"]`, which is None where the recording does not say.
"""

from __future__ import annotations

from agent.models.base import Refused, Request, Response, Usage
from agent.models.cassette import Cassette, Entry, find_cassette, read_cassette, request_sha256


class RecordedModel:
    """Plays a cassette."""

    def __init__(self, name: str) -> None:
        """name: a file, or the name of a packaged cassette. Raises InputError when it cannot be played."""
        self._name = name
        self.cassette: Cassette = read_cassette(find_cassette(name))
        self._entries = {entry.key: entry for entry in self.cassette.entries}

    waits_free = False

    @property
    def name(self) -> str:
        return f"recorded:{self._name}"

    async def respond(self, request: Request) -> Response:
        entry = self._find(request)
        header = self.cassette.header
        matched = None
        if entry.request_sha256 is not None:
            matched = entry.request_sha256 == request_sha256(request.messages)
        raw = {
            "cassette": self._name,
            "who": header.who,
            "recorded": header.recorded.isoformat(),
            "how": header.how,
            "request_sha256": entry.request_sha256,
            "request_matched": matched,
        }
        return Response(
            text=entry.text,
            finish=entry.finish,
            usage=entry.usage or Usage(),
            model=entry.model or header.model,
            raw=raw,
        )

    async def close(self) -> None:
        """Nothing is held open."""

    def _find(self, request: Request) -> Entry:
        for arm in (request.arm, ""):
            entry = self._entries.get((request.task, arm, request.sample, request.turn))
            if entry is not None:
                return entry
        raise Refused(
            f"{self.name}: no recorded answer for task {request.task}, arm {request.arm or 'any'}, "
            f"sample {request.sample}, turn {request.turn}; {self._there(request.task)}",
            fatal=False,
        )

    def _there(self, task: str) -> str:
        """What is recorded, for the one who looks for more."""
        last: dict[tuple[str, int], int] = {}
        for entry in self.cassette.entries:
            if entry.task == task:
                place = (entry.arm, entry.sample)
                last[place] = max(last.get(place, 0), entry.turn)
        if last:
            places = [f"arm {arm or 'any'} sample {sample} to turn {n}" for (arm, sample), n in last.items()]
            return f"recorded for this task: {', '.join(places)}"
        return (
            f"recorded tasks: {', '.join(sorted({entry.task for entry in self.cassette.entries})) or 'none'}"
        )
