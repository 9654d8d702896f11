"""What a model reads first: who it is and what is asked. Rendered from versioned templates, byte for byte the same for every arm.

Templates live in `agent/templates/<version>/`: `v2` tells all that a careful writer needs (`v1` does too, with fewer words of proof and
hangs); `terse` gives the formula and the types alone,
so that everything else must come from feedback. A change of wording is a new version, and `digest` tells two of them apart whatever
their names say. Nothing secret enters: hidden workloads are never named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agent.models.base import Message
from sandbox.ptx.families import FAMILIES
from tasks.dtypes import DTYPES
from tasks.errors import InputError
from tasks.schema import Role

if TYPE_CHECKING:
    from tasks.registry import LoadedTask

TEMPLATES = Path(__file__).parent / "templates"
DEFAULT = "v2"

PTX_VERSIONS = {80: "7.0", 90: "8.0", 100: "8.6", 103: "8.8", 120: "8.7"}
"""Architecture number → least `.version` with all of its instructions (PTX ISA, release notes)."""
NEWEST = "9.0"
"""Highest `.version` that every ptxas of CUDA 13 reads."""


@lru_cache(maxsize=8)
def environment(version: str) -> Environment:
    """The templates of one version. Raises InputError for an unknown version."""
    folder = TEMPLATES / version
    if not (folder / "task.md.j2").is_file():
        known = ", ".join(sorted(path.parent.name for path in TEMPLATES.glob("*/task.md.j2")))
        raise InputError(f"no templates are called {version!r}; there are: {known}")
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=False,
        lstrip_blocks=False,
        keep_trailing_newline=False,
        autoescape=False,  # noqa: S701 - the output is Markdown for a model, not HTML
    )


@lru_cache(maxsize=8)
def digest(version: str = DEFAULT) -> str:
    """sha256 over all files of a template version."""
    environment(version)
    total = hashlib.sha256()
    for path in sorted((TEMPLATES / version).iterdir()):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def version_of(found: str) -> str | None:
    """The template version that has this digest; None when this installation has none such."""
    versions = sorted(path.parent.name for path in TEMPLATES.glob("*/task.md.j2"))
    return next((version for version in versions if digest(version) == found), None)


def first_messages(
    task: LoadedTask, arch: str, version: str = DEFAULT, require: Sequence[str] = ()
) -> tuple[Message, Message]:
    """The system message and the task message, the prefix of every request of an episode.

    require: families asked for besides the task's own.
    """
    templates = environment(version)
    record, rule = task.task, task.targets_for(arch)
    number = int("".join(filter(str.isdigit, arch)) or 0)
    least = max((known for known in PTX_VERSIONS if known <= number), default=80)
    user = templates.get_template("task.md.j2").render(
        task=record,
        arch=arch,
        version=PTX_VERSIONS[least],
        newest=NEWEST,
        shapes=_shapes(task),
        tolerance=_tolerance(task),
        required=[FAMILIES[name] for name in dict.fromkeys((*rule.all, *require))],
        any_of=[f"`{name}` ({FAMILIES[name].title})" for name in rule.any],
        example=_example(version).replace("sm_90a", arch),
    )
    system = templates.get_template("system.md.j2").render(arch=arch)
    return Message(role="system", content=system.strip()), Message(role="user", content=user.strip() + "\n")


def _example(version: str) -> str:
    """The worked example of a version; '' when it shows none."""
    path = TEMPLATES / version / "example.ptx"
    return path.read_text() if path.is_file() else ""


def _shapes(task: LoadedTask) -> list[str]:
    """Axes of the workloads that are no secret, each once."""
    found: dict[str, None] = {}
    for workload in task.workloads():
        if Role.HIDDEN not in workload.roles:
            axes = ", ".join(f"{name} = {value}" for name, value in workload.axes.items())
            found[axes or "as above"] = None
    return list(found)


def _tolerance(task: LoadedTask) -> str:
    """The rule for errors, in words."""
    rule = task.task.tolerance
    outputs = {tensor.dtype for tensor in task.task.outputs.values()}
    exact = any(workload.exact for workload in task.task.workloads)
    if all(DTYPES[dtype].eps == 0 for dtype in outputs):
        return "Results must be exact."
    words = (
        f"Errors are judged against a float64 reference and may be about {rule.factor:g} rounding steps of the output type plus those of "
        f"{rule.accumulate.value} accumulation; arithmetic in a narrower type fails."
    )
    return words + (" Some inputs are such that the result must be exact." if exact else "")
