"""The harness's own kernels: the assembler takes them, and on the emulator they do what the worker relies on."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from sandbox.cuda import kernels
from sandbox.device import Buffer, Limits, Outcome, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import parse_plan
from tools.assemble import assemble

SHARED = 232_448


def run(launches: str, size: int, text: str = kernels.PTX, **axes: int) -> Outcome:
    program = Program(parse_module(text), parse_plan(launches), text, "sm_90a")
    buffers = {"out": Buffer("out", np.full(size, 0x5A, np.uint8), role="output")}
    outcome = EmulatorDevice("sm_90a").load(program).run(axes, buffers, Limits(seconds=20))
    assert outcome.fault is None, outcome.fault
    return outcome


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_assembler_takes_them(arch: str) -> None:
    assert assemble(kernels.PTX, arch).cubin


@pytest.mark.parametrize("seed", [0, 7, 0xFFFFFFFF])
def test_the_canary_writes_what_is_expected_of_every_thread(seed: int) -> None:
    text = f"launch: {{entry: canary, grid: {kernels.CANARY_THREADS // 256}, block: 256, args: 'out, seed'}}"
    outcome = run(text, 4 * kernels.CANARY_THREADS, seed=seed)
    found = outcome.buffers["out"].view(np.uint32).tolist()
    assert found == [kernels.canary_answer(index, seed) for index in range(kernels.CANARY_THREADS)]
    assert len(set(found)) == kernels.CANARY_THREADS


@pytest.mark.parametrize("size", [16, 4096, 16_400, SHARED])
def test_the_stain_fills_all_shared_memory_it_is_given(size: int) -> None:
    """A copy of the kernel that sums what it left there: every word, once."""
    summing = (
        "DONE:\n    bar.sync 0;\n    .reg .u64 %sums;\n    .reg .u32 %got;\n    ld.param.u64 %sums, [sums];\n"
        "    mov.u32 %i, %tid.x;\n    shl.b32 %i, %i, 2;\n"
        "EACH:\n    setp.ge.u32 %more, %i, %bytes;\n    @%more bra OUT;\n    add.u32 %at, %base, %i;\n"
        "    ld.shared.u32 %got, [%at];\n    atom.global.add.u32 %got, [%sums], %got;\n    add.u32 %i, %i, 4096;\n    bra EACH;\n"
        "OUT:\n    ret;"
    )
    text = kernels.PTX.replace("DONE:\n    ret;", summing)
    text = text.replace("stain(.param .u32 bytes", "stain(.param .u64 sums, .param .u32 bytes")
    assert text.count("sums]") == 2
    whole = f"launch: {{entry: stain, grid: 1, block: {kernels.STAIN_THREADS}, dynamic_smem: given, args: 'out, given, 1'}}"
    before = struct.unpack("<I", bytes([0x5A]) * 4)[0]
    (total,) = run(whole, 4, text, given=size).buffers["out"].view(np.uint32)
    assert int(total) - before == size // 4


def test_the_hold_lets_the_time_asked_for_pass() -> None:
    def steps(nanoseconds: int) -> int:
        return run("launch: {entry: hold, grid: 1, block: 1, args: ns}", 4, ns=nanoseconds).counts.threads

    assert steps(0) < steps(50_000) < steps(500_000)


def test_nothing_leaves_everything_as_it_was() -> None:
    assert run("launch: {entry: nothing, grid: 1, block: 32}", 4).buffers["out"].tolist() == [0x5A] * 4
