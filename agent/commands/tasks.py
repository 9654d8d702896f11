"""`ptxmend tasks`: what can be asked."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List, show and lint tasks.", no_args_is_help=True)


@app.command("list")
def list_(suite: Annotated[str | None, typer.Option(help="Only this suite.")] = None) -> None:
    """List the packaged tasks, easiest first."""
    from rich.table import Table

    from agent.commands.console import console
    from tasks.registry import list_tasks, load_task

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("task", "suite", "level", "family", "inputs → outputs", "required instructions"):
        table.add_column(column)
    for name in list_tasks(suite):
        task = load_task(name).task
        rule = task.targets.get("any") or next(iter(task.targets.values()), None)
        types = [" ".join(t.dtype.value for t in tensors.values()) for tensors in (task.inputs, task.outputs)]
        needs = ", ".join((*rule.all, *(" or ".join(rule.any) for _ in rule.any[:1]))) if rule else "-"
        table.add_row(name, task.suite, str(task.difficulty), task.family, " → ".join(types), needs)
    console.print(table)


@app.command()
def show(
    task: Annotated[str, typer.Argument(help="Name of a task, or a task folder.")],
    arch: Annotated[str, typer.Option(help="Architecture.")] = "sm_90a",
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print exactly what a model is told first.")
    ] = False,
    solution: Annotated[bool, typer.Option("--solution", help="Print our own passing candidate.")] = False,
) -> None:
    """Show a task: what is asked, on which shapes, how it is judged."""
    from agent.commands.console import console
    from agent.prompts import first_messages
    from tasks.errors import InputError
    from tasks.registry import load_task

    loaded = load_task(task)
    if solution:
        path = loaded.solution(arch)
        if path is None:
            raise InputError(f"task {loaded.task.name} has no solution for {arch}")
        typer.echo(path.read_text(), nl=False)
        return
    if prompt:
        for message in first_messages(loaded, arch):
            typer.echo(f"--- {message.role}\n{message.content}")
        return
    from rich.table import Table

    record, rule = loaded.task, loaded.targets_for(arch)
    console.print(record.name, style="bold", end="  ")
    head = f"{record.title}  (suite {record.suite}, level {record.difficulty})"
    console.print(f"{head}\n\n{record.description}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for column in ("workload", "roles", "axes", "inputs", "exact"):
        table.add_column(column)
    for each in loaded.workloads():
        axes = ", ".join(f"{name}={value}" for name, value in each.axes.items())
        roles = ", ".join(role.value for role in each.roles)
        table.add_row(each.name, roles, axes, each.inputs.kind, "yes" if each.exact else "")
    console.print(table)
    console.print(
        f"\nRequired on {arch}: {', '.join(rule.all) or 'nothing'}{' and one of ' + ', '.join(rule.any) if rule.any else ''}"
    )
    console.print(f"Work: {record.work.flops} FLOP, {record.work.bytes} bytes.  Folder: {loaded.folder}")


@app.command()
def lint(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tasks or task folders; all packaged ones when none is given.")
    ] = None,
    solutions: Annotated[
        bool, typer.Option("--solutions", help="Also run the tasks' own solutions.")
    ] = False,
) -> None:
    """Refuse tasks that a wrong answer would pass. Exit code 1 when one is refused."""
    from agent.commands.console import console
    from tasks.registry import list_tasks, load_task
    from tools.lint import lint_task

    refused = False
    for name in names or list_tasks():
        findings = lint_task(load_task(name), solutions=solutions)
        bad = any(finding.severity == "error" for finding in findings)
        refused = refused or bad
        console.print(f"{name}: " + ("[red]refused[/]" if bad else "[green]sound[/]"))
        for finding in findings:
            console.print(f"  {finding.severity} {finding.kind}: {finding.message}", markup=False)
    if refused:
        raise typer.Exit(1)
