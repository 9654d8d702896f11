"""The printer against the real assembler: printed text becomes the same machine code, byte for byte."""

import subprocess
from pathlib import Path

import pytest

from sandbox.ptx.parser import parse_module
from sandbox.ptx.printer import print_module
from tests.sandbox.ptx.samples import ASSEMBLING
from tools.toolchain import find_ptxas


def cubin(text: str, folder: Path) -> bytes:
    source, out = folder / "sample.ptx", folder / "sample.cubin"
    source.write_text(text)
    command = [find_ptxas().path, "-arch=sm_90a", "-o", out, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


@pytest.mark.parametrize("text", ASSEMBLING)
def test_printing_changes_no_machine_code(text: str, tmp_path: Path) -> None:
    assert cubin(print_module(parse_module(text)), tmp_path) == cubin(text, tmp_path)
