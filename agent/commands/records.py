"""`ptxmend show`, `verify` and `record`: reading what was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasks.errors import InputError


def show(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/NAME.")],
    episode: Annotated[
        str | None, typer.Argument(help="Episode id, the beginning of one, or a task's name.")
    ] = None,
    code: Annotated[bool, typer.Option("--code", help="Also print each turn's PTX.")] = False,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Also print what the model was told each turn.")
    ] = False,
) -> None:
    """Tell the story of a run, or of one episode's turns."""
    from agent.commands.console import console
    from agent.commands.story import tell_episode, tell_run
    from traces.store import open_run

    opened = open_run(run)
    if episode is None:
        tell_run(opened)
        for each in opened.episodes():
            console.print(
                f"  {each.id}  {each.task.rsplit('/', 1)[-1]}  {each.reason or 'open'}",
                markup=False,
                style="dim",
            )
        return
    chosen = [
        e for e in opened.episodes() if e.id.startswith(episode) or e.task.rsplit("/", 1)[-1] == episode
    ]
    if not chosen:
        raise InputError(f"{run} has no episode or task {episode!r}; `ptxmend show {run}` lists them")
    for each in chosen:
        tell_episode(opened, each, code=code, prompts=prompts)


def verify(run: Annotated[Path, typer.Argument(help="Folder of a run.")]) -> None:
    """Prove that everything a run refers to is there and unchanged. Exit code 1 when not."""
    from agent.commands.console import console
    from traces.verify import verify_run

    problems = verify_run(run)
    for problem in problems:
        console.print(f"  {problem}", markup=False)
    console.print(f"{run}: {len(problems)} problems" if problems else f"{run}: whole", markup=False)
    if problems:
        raise typer.Exit(1)


def record(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs whose answers to keep.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Cassette file to write (.jsonl).")],
    who: Annotated[str, typer.Option(help="Who answered: a person, a program, a service.")],
    model: Annotated[str, typer.Option(help="The model's name, as the one who answered gave it.")],
    how: Annotated[str, typer.Option(help="By which means and under which conditions.")],
    episode: Annotated[
        list[str] | None, typer.Option(help="Only these episodes (ids or beginnings); may be repeated.")
    ] = None,
    any_arm: Annotated[
        bool,
        typer.Option(
            "--any-arm", help="Let the answers serve every arm, not only the one they were given in."
        ),
    ] = False,
) -> None:
    """Write the answers of runs as a cassette that `recorded:FILE` plays."""
    from agent.commands.console import console
    from agent.recording import record_run

    cassette = record_run(
        tuple(runs), output, who=who, model=model, how=how, episodes=tuple(episode or ()), any_arm=any_arm
    )
    console.print(f"{output}: {len(cassette.entries)} answers")
