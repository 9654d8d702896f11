"""`ptxmend confirm`: the winners of a run, timed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.evaluate import numbers

if TYPE_CHECKING:
    from agent.winners import Winner
    from tasks.errors import InfraError
    from traces.confirmations import Confirmation


def confirm(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/NAME.")],
    task: Annotated[
        list[str] | None, typer.Option("--task", "-t", help="Only winners of this task; may be repeated.")
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", help="Only so many of a task, the fastest first.", min=1)
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Numbers of the GPUs to use, such as 0,1; all that suit by default.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were confirmed before.")] = False,
) -> None:
    """Judge and time each episode's best kernel again: fresh processes, new inputs, new addresses, full readings."""
    from agent.commands.console import console
    from agent.commands.speed import tell_confirmations
    from agent.confirmation import confirm as confirming
    from agent.winners import winners
    from traces.confirmations import latest
    from traces.store import open_run

    opened = open_run(run)
    chosen = winners(opened, task or (), top)
    watch = _Lines()
    try:
        confirming(opened, chosen, watch, gpus=numbers(gpus), again=again)
    except KeyboardInterrupt:
        console.print(
            f"interrupted; what is confirmed is kept, go on with: ptxmend confirm {run}", markup=False
        )
        raise typer.Exit(130) from None
    known = latest(opened)
    asked = [known.get((each.episode.task_digest, each.candidate)) for each in chosen]
    tell_confirmations([each for each in asked if each is not None])
    console.print(f"kept in {opened.confirmations}", markup=False)
    if watch.failures:
        console.print(
            f"{watch.failures} could not be judged; try again with: ptxmend confirm {run}", markup=False
        )
        raise typer.Exit(2)


class _Lines:
    """A `Watch` that says one line each."""

    def __init__(self) -> None:
        self.failures = 0

    def begun(self, winner: Winner, gpu: int) -> None:
        self._say(f"{winner.episode.id} turn {winner.turn.number}: on GPU {gpu} …")

    def done(self, winner: Winner, record: Confirmation) -> None:
        self._say(f"{winner.episode.id} turn {winner.turn.number}: {record.note}")

    def failed(self, winner: Winner, error: InfraError) -> None:
        self.failures += 1
        self._say(f"{winner.episode.id} turn {winner.turn.number}: not judged: {error}")

    def _say(self, text: str) -> None:
        from agent.commands.console import console, plain

        console.print(f"  {plain(text)}", markup=False, style="dim")
