"""The command line: `ptxmend`.

Exit codes: 0 done (a candidate was judged, whatever the verdict); 1 what was looked for is not in order (lint findings, doctor);
2 wrong input, or it could not be judged; 130 interrupted, the run is resumable. Bad input never shows a traceback.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError
from io import TextIOWrapper
from typing import Annotated

import typer

from agent.commands import confirm, doctor, evaluate, records, run, tasks
from agent.shadow import check_packages
from tasks.errors import PtxmendError

app = typer.Typer(
    name="ptxmend",
    help="Has a language model write PTX, judges it with real tools, feeds back what they found, and keeps every turn.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("confirm")(confirm.confirm)
app.command("eval")(evaluate.evaluate)
app.add_typer(tasks.app, name="tasks")
app.command("show")(records.show)
app.command("verify")(records.verify)
app.command("record")(records.record)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"ptxmend {version('ptxmend')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):  # what a candidate holds is told in any locale
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        check_packages()
        app()
    except PtxmendError as error:
        print(f"ptxmend: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, CancelledError):
        print("ptxmend: interrupted; `ptxmend resume RUN` continues a run", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
