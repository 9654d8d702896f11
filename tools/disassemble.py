"""Cubin to machine instructions, by nvdisasm in a bounded child.

Contract: `disassemble(cubin)` gives, for each function of the cubin, its instructions in order (opcode with
its dotted modifiers, and the guard); what nvdisasm prints is read as JSON, never searched as text. A
function that ptxas keeps inside an entry's section is part of that entry here. nvdisasm costs half a second
to start, so answers are cached by the cubin's digest. A cubin it cannot read is an `InfraError`: it came
from our own assembler, not from the candidate.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import InfraError
from tools import cache
from tools.child import ChildLimits, run_limited
from tools.toolchain import Tool, find_nvdisasm

FLAGS = ("-c", "-json")
LIMITS = ChildLimits(seconds=60.0, output_bytes=256 << 20)


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction."""

    opcode: str
    """With modifiers: HGMMA.64x64x16.F32.BF16."""
    predicate: str = ""
    """Such as @P0 or @!UP1; '' when there is none."""


Sass = Mapping[str, tuple[SassInstruction, ...]]


def disassemble(cubin: bytes, tool: Tool | None = None) -> Sass:
    """Function name → instructions."""
    tool = tool or find_nvdisasm()
    key = cache.key_of("nvdisasm", tool.version, *FLAGS, cubin)
    kept = _unpack(cache.get(key))
    if kept is not None:
        return kept
    folder = Path(tempfile.mkdtemp(prefix="ptxmend-nvdisasm-"))
    try:
        (folder / "candidate.cubin").write_bytes(cubin)
        result = run_limited([str(tool.path), *FLAGS, "candidate.cubin"], folder, LIMITS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if result.timed_out:
        raise InfraError(
            f"{tool.path} did not finish within {LIMITS.seconds:g} s on a cubin of {len(cubin)} bytes."
        )
    if result.code != 0:
        said = (result.stderr or result.stdout)[:300].decode("utf-8", "replace")
        raise InfraError(
            f"{tool.path} ended with code {result.code} on a cubin of {len(cubin)} bytes: {said!r}."
        )
    sass = _read(result.stdout, tool)
    cache.put(key, _pack(sass))
    return sass


def _read(printed: bytes, tool: Tool) -> Sass:
    try:
        _, functions = json.loads(printed)
        return {
            str(function["function-name"]): tuple(
                SassInstruction(str(one["opcode"]), str(one.get("predicate", "")))
                for one in function["sass-instructions"]
            )
            for function in functions
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InfraError(
            f"{tool.path} {tool.version} was expected to print [header, functions] as JSON with opcodes; "
            f"reading it failed: {error!r}. Use the nvdisasm of nvidia-cuda-nvdisasm>=13.0,<14."
        ) from error


def _pack(sass: Sass) -> bytes:
    return json.dumps(
        {name: [[one.opcode, one.predicate] for one in body] for name, body in sass.items()}
    ).encode()


def _unpack(payload: bytes | None) -> Sass | None:
    if payload is None:
        return None
    try:
        kept: dict[str, list[Any]] = json.loads(payload)
        return {
            name: tuple(SassInstruction(str(opcode), str(predicate)) for opcode, predicate in body)
            for name, body in kept.items()
        }
    except (ValueError, TypeError, AttributeError):
        return None
