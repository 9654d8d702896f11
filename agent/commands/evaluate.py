"""`ptxmend eval`: judge one file."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tasks.errors import InputError

if TYPE_CHECKING:
    from tools.evaluation import Evaluation

MAX_BYTES = 16_000_000
"""More than any candidate may have, so that its own limit is what refuses it."""


def evaluate(
    file: Annotated[
        Path,
        typer.Argument(
            help="Candidate: PTX with its launch plan in leading //! lines; - reads standard input."
        ),
    ],
    task: Annotated[
        str, typer.Option("--task", "-t", help="Name of a task (see `ptxmend tasks list`), or a task folder.")
    ],
    arch: Annotated[str, typer.Option(help="Architecture to assemble for.")] = "sm_90a",
    require: Annotated[
        list[str] | None,
        typer.Option(help="Instruction family to require besides the task's own; may be repeated."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the inputs; a secret one is drawn when not given.", min=0)
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to run: cuda, emulator, or auto (a GPU when one suits).")
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
    against: Annotated[
        Path | None, typer.Option(help="Time against this candidate instead of the task's baselines.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Time as long as a published figure needs, not only a quick reading."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evaluation record as JSON.")] = False,
) -> None:
    """Judge one candidate. Exit code 0 when judged, whatever the verdict; 2 when it could not be judged."""
    text = _read(file)
    from tools.devices import resolved
    from tools.ladder import Job
    from tools.ladder import evaluate as climb

    job = Job(
        task=task,
        arch=arch,
        text=text,
        require=families(require),
        seed=secrets.randbits(62) if seed is None else seed,
        device=resolved(device, arch, numbers(gpus)),
        gpus=numbers(gpus),
        screen=screen,
        mode="full" if full else "quick",
        against=None if against is None else _read(against),
    )
    evaluation = climb(job).evaluation
    if as_json:
        typer.echo(_legible(evaluation).model_dump_json(indent=2))
        return
    from agent.commands.story import tell_evaluation

    tell_evaluation(evaluation, text)


def families(names: list[str] | None) -> tuple[str, ...]:
    """What `--require` names. Raises InputError for a family that does not exist."""
    from sandbox.ptx.families import FAMILIES

    for name in names or ():
        if name not in FAMILIES:
            raise InputError(
                f"--require: no instruction family is called {name!r}; there are: {', '.join(FAMILIES)}"
            )
    return tuple(names or ())


def numbers(text: str | None) -> tuple[int, ...]:
    """What `--gpus` names. Raises InputError."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"--gpus: expected numbers separated by commas, such as 0,1; found {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))


def _legible(evaluation: Evaluation) -> Evaluation:
    """The same with bytes that are no UTF-8 spelled out, since JSON cannot hold them."""

    def spelled(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, dict):
            return {key: spelled(each) for key, each in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [spelled(each) for each in cast("list[Any]", value)]
        return value

    return type(evaluation).model_validate(spelled(evaluation.model_dump()))


def _read(file: Path) -> str:
    """The file's text as it stands: a candidate is judged byte for byte. Bytes that are no UTF-8 stay visible as escapes."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES) if str(file) == "-" else _bytes(file)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    return data.decode("utf-8", "surrogateescape")


def _bytes(file: Path) -> bytes:
    with file.open("rb") as handle:
        return handle.read(MAX_BYTES)
