"""Where the assembler and the disassembler are, and which version they have.

Contract: `find_ptxas` and `find_nvdisasm` look at an explicit path, then the environment (`PTXMEND_PTXAS`,
`PTXMEND_NVDISASM`), then the wheel (`nvidia/cu13/bin`), then `PATH`. A path that is set but unusable is an
error, never a reason to fall through to another tool: a run records which tool judged it. `--version` runs
once per path and modification time.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tasks.errors import ToolMissing

_VERSION_SECONDS = 30.0
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)\b")


@dataclass(frozen=True, slots=True)
class Tool:
    """An external program that was found and that answered `--version`."""

    path: Path
    version: str
    """Such as 13.5.37."""


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    variable: str
    wheel: str


_PTXAS = _Program("ptxas", "PTXMEND_PTXAS", "nvidia-cuda-nvcc")
_NVDISASM = _Program("nvdisasm", "PTXMEND_NVDISASM", "nvidia-cuda-nvdisasm")


def find_ptxas(explicit: Path | None = None) -> Tool:
    """The PTX assembler; `ToolMissing` says how to get it."""
    return _find(_PTXAS, explicit)


def find_nvdisasm(explicit: Path | None = None) -> Tool:
    """The SASS disassembler; `ToolMissing` says how to get it."""
    return _find(_NVDISASM, explicit)


def _find(program: _Program, explicit: Path | None) -> Tool:
    if explicit is not None:
        return _probe(program, explicit, f"{program.name} was given as {explicit}")
    setting = os.environ.get(program.variable)
    if setting:
        return _probe(program, Path(setting), f"{program.variable} is set to {setting}")
    in_wheel = _in_wheel(program.name)
    if in_wheel is not None:
        return _probe(program, in_wheel, f"the wheel {program.wheel} has {in_wheel}")
    on_path = shutil.which(program.name)
    if on_path is not None:
        return _probe(program, Path(on_path), f"PATH has {on_path}")
    raise ToolMissing(
        f"{program.name} was not found: {program.variable} is not set, the wheel "
        f"{program.wheel} is not installed, "
        "and PATH has none. Install it with `pip install "
        f"'{program.wheel}>=13.0,<14'`, or set {program.variable}."
    )


def _in_wheel(name: str) -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    if spec is None or spec.submodule_search_locations is None:
        return None
    for folder in spec.submodule_search_locations:
        candidate = Path(folder) / "cu13" / "bin" / name
        if candidate.is_file():
            return candidate
    return None


def _probe(program: _Program, path: Path, origin: str) -> Tool:
    try:
        path = path.resolve(strict=True)
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise ToolMissing(
            f"{origin}, but there is no such file ({error.strerror}). {_remedy(program)}"
        ) from error
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ToolMissing(f"{origin}, which is not an executable file. {_remedy(program)}")
    return Tool(path, _version(program, path, stamp))


def _remedy(program: _Program) -> str:
    return f"Correct the path, or install the wheel: `pip install '{program.wheel}>=13.0,<14'`."


@lru_cache(maxsize=16)
def _version(program: _Program, path: Path, stamp: int) -> str:
    try:
        done = subprocess.run(
            [str(path), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(
            f"{path} could not be asked for its version: {error}. {_remedy(program)}"
        ) from error
    found = _VERSION.search(done.stdout)
    if found is None:
        raise ToolMissing(
            f"{path} --version was expected to name a version such as V13.5.37; it "
            f"said {done.stdout[:200]!r} "
            f"and exited with {done.returncode}. {_remedy(program)}"
        )
    return found[1]
