"""The progress of a run in the terminal: a bar with verdict counts, cost and time left; plain lines where there is no terminal."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from agent.commands.console import STYLES, console, plain
from tools.evaluation import Evaluation, Verdict
from traces.store import Run


class Live:
    """An `agent.context.Progress`; a context manager around the run."""

    def __init__(self) -> None:
        self._turns = Counter[str]()
        self._tasks: dict[str, str] = {}
        self._cost = ""
        self._plain = not console.is_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("episodes"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[verdicts]}"),
            TextColumn("{task.fields[cost]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=self._plain,
        )
        self._row = self._bar.add_task("", total=None, verdicts="", cost="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def run_started(self, run: Run, episodes: int, done: int) -> None:
        self._bar.update(self._row, total=episodes, completed=done)
        console.print(f"run {run.path}: {episodes} episodes" + (f", {done} ended before" if done else ""))

    def episode_started(self, episode: str, task: str, sample: int) -> None:
        self._tasks[episode] = task + (f" #{sample}" if sample else "")

    def turn_judged(self, episode: str, turn: int, evaluation: Evaluation | None, reason: str) -> None:
        self._turns[evaluation.verdict.value if evaluation else "missing"] += 1
        counts = " ".join(
            f"[{STYLES[verdict]}]{verdict.value} {self._turns[verdict.value]}[/]"
            for verdict in Verdict
            if self._turns[verdict.value]
        )
        missing = f" [dim]missing {self._turns['missing']}[/]" if self._turns["missing"] else ""
        self._bar.update(self._row, verdicts=counts + missing)
        name = self._tasks.get(episode, episode)
        if evaluation is None:
            console.print(f"  {name}  turn {turn}  [dim]missing[/]  {escape(_short(reason))}", soft_wrap=True)
            return
        style = STYLES[evaluation.verdict]
        console.print(
            f"  {name}  turn {turn}  [{style}]{evaluation.verdict.value}[/]  ", end="", soft_wrap=True
        )
        console.print(_short(evaluation.summary), markup=False, soft_wrap=True)

    def episode_ended(self, episode: str, reason: str, detail: str) -> None:
        self._bar.advance(self._row)
        if reason not in ("target_met", "turns"):
            console.print(
                f"  {self._tasks.get(episode, episode)}  ended: {reason}  {_short(detail)}",
                markup=False,
                soft_wrap=True,
            )

    def spent(self, tokens: int, usd: float) -> None:
        self._bar.update(self._row, cost=f"{tokens:,} tokens" + (f" ${usd:.2f}" if usd else ""))

    def stopping(self, reason: str) -> None:
        console.print(f"stopping after the steps in hand: {reason}", markup=False)


def _short(text: str, width: int = 110) -> str:
    line = plain(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"
