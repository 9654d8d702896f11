"""What a scripted service sees (`Call`) and how its replies are chosen (`Script`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.servers.formats import Reply


@dataclass(frozen=True)
class Call:
    """One request as it came."""

    number: int
    """From 1, in order of arrival."""
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes
    body: dict[str, Any]

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The user and assistant messages, system messages left out; reasoning items are not messages."""
        items: list[dict[str, Any]] = self.body.get("input") or self.body.get("messages") or []
        return [item for item in items if item.get("role") in ("user", "assistant")]

    @property
    def turn(self) -> int:
        """One more than the answers already in the request."""
        return 1 + sum(item["role"] == "assistant" for item in self.conversation)

    @property
    def first_text(self) -> str:
        """The text of the first user message."""
        content: Any = self.conversation[0]["content"] if self.conversation else ""
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

    def task(self, names: Sequence[str]) -> str:
        """The longest of `names` that stands in the first user message; '' where none does."""
        return max((name for name in names if name in self.first_text), key=len, default="")


Script = Callable[[Call], Reply]


def by_answers(
    answers: Mapping[str, Sequence[str]],
    before: Sequence[Reply] = (),
    every: int = 0,
    kind: str = "500",
    delay: float = 0.0,
) -> Script:
    """A script that uses up `before`, then answers by task and turn; `every` Nth call fails with `kind`."""

    def script(call: Call) -> Reply:
        if call.number <= len(before):
            return before[call.number - 1]
        if every and call.number % every == 0:
            return Reply(kind=kind)
        given = answers.get(
            call.task([name for name in answers if name != "*"]) or "*", ["no answer is scripted"]
        )
        return Reply(text=given[min(call.turn, len(given)) - 1], delay=delay)

    return script
