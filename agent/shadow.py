"""Whether the packages that were imported are ptxmend's own.

`agent`, `tools` and `tasks` are common names: a folder of the same name in the working directory, or another distribution, may stand in
front of them. The command line asks here before anything else.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tasks.errors import InputError

PACKAGES = ("agent", "traces", "tools", "sandbox", "tasks")
MARKS = {
    "agent": "graph.py",
    "traces": "ledger.py",
    "tools": "ladder.py",
    "sandbox": "device.py",
    "tasks": "schema.py",
}
"""A file that each of our packages holds."""


def check_packages(home: Path | None = None) -> None:
    """Raise InputError, naming the file in the way, unless all packages lie side by side in one place.

    home: the folder they should be in; None: the one this file is in.
    """
    home = (home or Path(__file__).resolve().parent.parent).resolve()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found is None or found.parent.parent != home or not (found.parent / MARKS[name]).is_file():
            where = (
                f"{found} stands in its place"
                if found
                else "it was not found, or a folder without __init__.py hides it"
            )
            raise InputError(
                f"ptxmend's package {name!r} should be in {home}, but {where}. Rename or leave that folder, or take it off PYTHONPATH."
            )
