"""`ptxmend run` and `ptxmend resume`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent.commands.evaluate import families, numbers
from tasks.errors import InputError

if TYPE_CHECKING:
    from agent.context import Progress
    from agent.runner import RunSummary

Arm = Literal["feedback", "verdict", "diagnostics", "none", "placebo"]


def run(
    model: Annotated[
        str, typer.Option("--model", "-m", help="openai:NAME, anthropic:NAME, recorded:FILE or mailbox:DIR.")
    ],
    task: Annotated[
        list[str] | None, typer.Option("--task", "-t", help="A task or task folder; may be repeated.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="All tasks of a suite.")] = None,
    arm: Annotated[Arm, typer.Option(help="How feedback is given.")] = "feedback",
    turns: Annotated[
        int, typer.Option(help="Answers an episode may take; 1 is single-shot.", min=1, max=1000)
    ] = 4,
    samples: Annotated[int, typer.Option("--samples", "-k", help="Episodes a task.", min=1)] = 1,
    arch: Annotated[str, typer.Option(help="Architecture.")] = "sm_90a",
    require: Annotated[
        list[str] | None, typer.Option(help="Instruction family to require besides the task's own.")
    ] = None,
    all_turns: Annotated[
        bool, typer.Option("--all-turns", help="Do not stop an episode when its target is met.")
    ] = False,
    speedup: Annotated[
        float | None,
        typer.Option(
            help="Speedup over the first baseline that belongs to the target, by the lower end of its interval."
        ),
    ] = None,
    plateau: Annotated[
        int | None, typer.Option(help="End an episode after so many turns without a better kernel.", min=1)
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where kernels run: cuda, emulator, or auto (a GPU when one suits).")
    ] = "auto",
    gpus: Annotated[
        str | None, typer.Option(help="Numbers of the GPUs to use, such as 0,1; all that suit by default.")
    ] = None,
    screen: Annotated[
        bool,
        typer.Option(
            "--screen", help="Check on the emulator first: only what passes there costs time of a GPU."
        ),
    ] = False,
    base_url: Annotated[
        str | None, typer.Option(help="A compatible server, such as http://127.0.0.1:8000/v1.")
    ] = None,
    api: Annotated[
        Literal["responses", "chat"], typer.Option(help="Wire format for openai: models.")
    ] = "responses",
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the key.")] = None,
    effort: Annotated[str | None, typer.Option(help="Reasoning effort, in the service's own word.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    max_output_tokens: Annotated[int | None, typer.Option(help="Longest answer.", min=1)] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens for the whole run.", min=1)] = None,
    budget_usd: Annotated[
        float | None, typer.Option(help="Dollars for the whole run, by the price table.")
    ] = None,
    budget_seconds: Annotated[float | None, typer.Option(help="Wall seconds for the whole run.")] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Version of prompts and feedback: v2, v1, or terse (formula and types alone)."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Your own price table, in the form of agent/prices.yaml.")
    ] = None,
    parallel: Annotated[int, typer.Option(help="Episodes at once.", min=1)] = 8,
    workers: Annotated[int, typer.Option(help="Processes that judge.", min=1)] = 2,
    answer_timeout: Annotated[
        float | None, typer.Option(help="For mailbox: seconds to wait for an answer.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the secret inputs repeatable; leave it out for a real evaluation."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of this run; the time when not given.")] = None,
) -> None:
    """Have a model write kernels, turn after turn, and keep everything. Ctrl-C leaves a run that `resume` continues."""
    from pydantic import ValidationError

    from agent.config import Arm as ConfigArm
    from agent.config import Budget, RunConfig
    from agent.models.factory import ModelOptions
    from tools.devices import resolved

    try:
        config = RunConfig(
            model=model,
            options=ModelOptions(
                base_url=base_url,
                api=api,
                api_key_env=api_key_env,
                effort=effort,
                answer_timeout=answer_timeout,
            ),
            tasks=_tasks(task, suite),
            arch=arch,
            arm=ConfigArm(arm),
            turns=turns,
            samples=samples,
            require=families(require),
            stop_when_met=not all_turns,
            speedup=speedup,
            plateau=plateau,
            device=resolved(device, arch, numbers(gpus)),
            gpus=numbers(gpus),
            screen=screen,
            template=template,
            prices=None if prices is None else str(prices.resolve()),
            temperature=temperature,
            max_output_tokens=max_output_tokens,
            run_budget=Budget(tokens=budget_tokens, usd=budget_usd, seconds=budget_seconds),
            parallel=parallel,
            workers=workers,
            seed=seed,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}; found {first['input']!r}"
        ) from None
    from agent import runner

    _go(lambda progress: runner.run(config, runs, name=name, progress=progress))


def resume(run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/NAME.")]) -> None:
    """Continue a run where it stopped: nothing is asked, paid or judged twice."""
    from agent import runner

    _go(lambda progress: runner.resume(run, progress=progress))


def _tasks(names: list[str] | None, suite: str | None) -> tuple[str, ...]:
    from tasks.registry import list_tasks

    if not names and not suite:
        raise InputError("say what to run: --suite starter, or --task NAME (see `ptxmend tasks list`)")
    return tuple(dict.fromkeys([*(names or ()), *(list_tasks(suite) if suite else ())]))


def _go(work: Callable[[Progress], RunSummary]) -> None:
    """Run with a progress bar, then tell what became of it. Exit code 130 when interrupted before the end."""
    from agent.commands.console import console
    from agent.commands.live import Live
    from agent.commands.story import tell_run
    from traces.store import open_run

    with Live() as live:
        summary = work(live)
    tell_run(open_run(summary.path))
    if summary.stopped:
        console.print(
            f"stopped ({summary.stopped}); continue with: ptxmend resume {summary.path}", markup=False
        )
        raise typer.Exit(130 if summary.stopped.startswith("SIG") else 0)
