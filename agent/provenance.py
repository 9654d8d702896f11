"""With what a run was made: versions, facts of the machine, and the assembler. Written into `run.json` once."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import metadata

from tasks.errors import InfraError

PACKAGES = (
    "ptxmend",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "openai",
    "anthropic",
    "pydantic",
    "torch",
    "numpy",
)


def versions() -> dict[str, str]:
    """Package → version, for those that decide a run."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine() -> dict[str, str]:
    """What it runs on; memory in bytes."""
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": str(os.cpu_count()),
        "memory": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }


def ptxas() -> dict[str, str]:
    """Path and version of the assembler; empty where there is none."""
    from tools.toolchain import find_ptxas

    try:
        tool = find_ptxas()
    except InfraError:
        return {}
    return {"path": str(tool.path), "version": tool.version}
