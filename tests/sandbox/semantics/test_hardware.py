"""Every form of the table is real PTX, keeps the promises of a lowering, and, on a GPU, does what the GPU
does."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from sandbox.emulator.semantics import TYPES
from tests.sandbox.semantics.forms import HOPPER
from tests.sandbox.semantics.hardware import WARPS, Gpu, compare, kernel, sources_of
from tests.sandbox.semantics.support import lowered
from tools.toolchain import find_ptxas

APPROXIMATE = (
    "div.approx",
    "div.full",
    "rcp.approx",
    "sqrt.approx",
    "rsqrt.approx",
    "sin.",
    "cos.",
    "lg2.",
    "ex2.",
    "tanh.",
)
BEYOND_THE_ISA = ("bfe.u64", "bfe.s64", "bfi.b64")
"""Sources above 255, which the ISA does not allow, are reduced here and not on an H200."""


def test_every_form_assembles(tmp_path: Path) -> None:
    entries = [kernel(text, lowered(text)).partition(".visible ") for text in HOPPER]
    whole = entries[0][0] + "".join(
        f".visible {entry.replace(' k(', f' k{i}(', 1)}" for i, (_, _, entry) in enumerate(entries)
    )
    source = tmp_path / "forms.ptx"
    source.write_text(whole)
    command = [
        str(find_ptxas().path),
        "-arch=sm_90a",
        "-O0",
        str(source),
        "-o",
        str(tmp_path / "forms.cubin"),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr[:2000]


def test_every_form_keeps_the_promises() -> None:
    lanes = np.random.default_rng(1).integers(0, 2, (WARPS, 32)).astype(bool)
    for text in HOPPER:
        form = lowered(text)
        sources = sources_of(text, form)
        for source in sources:
            source.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = form.fn(lanes, *sources) if form.scope == "warp" else form.fn(*sources)
        for result, name in zip(results, form.results, strict=True):
            assert result.dtype == TYPES[name].dtype, text
            assert np.broadcast_shapes(result.shape, (WARPS, 32)) == (WARPS, 32), text


@pytest.mark.gpu
def test_hardware_agrees_bit_for_bit(gpu: Gpu) -> None:
    excused = (*APPROXIMATE, *BEYOND_THE_ISA)
    judged = [text for text in HOPPER if not text.startswith(excused)]
    assert [(text, lines) for text in judged if (lines := compare(gpu, text))] == []


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    """The first GPU; skips where there is none."""
    try:
        return Gpu()
    except Exception as error:  # a missing driver is told in many ways
        pytest.skip(f"no CUDA device: {error}")
