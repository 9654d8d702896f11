"""Run a small PTX text on the emulator: one entry `k`, its parameters given by name."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from sandbox.device import Buffer, Fault, FaultKind, Limits, Outcome, Program
from sandbox.emulator.device import EmulatorDevice, EmulatorSession
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import Launch, Plan, Scratch

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<10>; "
    ".reg .f64 %fd<4>;"
)
TID = "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;\n"
"""%rd1 = o, %r1 = tid, %rd3 = &o[tid]."""


def kernel(body: str, parameters: str = ".param .u64 o", before: str = "") -> str:
    """A module with one entry `k` around a body; the body begins on the line after the head, which is line 7
    with no `before`.
    """
    return f"{HEAD}{before}.visible .entry k({parameters})\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"


def output(size: int) -> dict[str, Buffer]:
    """A buffer `o` that nothing has written."""
    return {"o": Buffer("o", np.full(size, 0x5A, np.uint8), False, "output")}


def zeros(size: int) -> dict[str, Buffer]:
    """A buffer `o` of zeros."""
    return {"o": Buffer("o", np.zeros(size, np.uint8))}


def data(**arrays: np.ndarray) -> dict[str, Buffer]:
    """Defined buffers."""
    return {
        name: Buffer(name, np.ascontiguousarray(array).view(np.uint8).ravel())
        for name, array in arrays.items()
    }


def load(
    text: str,
    grid: tuple[int, ...] = (1,),
    block: tuple[int, ...] = (32,),
    args: tuple[str, ...] = ("o",),
    smem: int = 0,
    scratch: Mapping[str, Scratch] | None = None,
    arch: str = "sm_90a",
    registers: Mapping[str, int] | None = None,
    cooperative: Literal["yes", "no"] = "no",
) -> EmulatorSession:
    launch = Launch(
        entry="k",
        grid=tuple(str(each) for each in grid),
        block=tuple(str(each) for each in block),
        dynamic_smem=str(smem),
        cooperative=cooperative,
        args=args,
    )
    plan = Plan(launches=(launch,), scratch=dict(scratch or {}))
    return EmulatorDevice(arch).load(Program(parse_module(text), plan, text, arch, registers=registers))


def run(
    text: str,
    buffers: Mapping[str, Buffer],
    grid: tuple[int, ...] = (1,),
    block: tuple[int, ...] = (32,),
    args: tuple[str, ...] = ("o",),
    smem: int = 0,
    limits: Limits | None = None,
    arch: str = "sm_90a",
) -> Outcome:
    session = load(text, grid, block, args, smem, arch=arch)
    return session.run({}, buffers, limits or Limits(seconds=20))


def good(outcome: Outcome, dtype: str = "u4", name: str = "o") -> np.ndarray:
    """The buffer of a run that ended well."""
    assert outcome.fault is None, outcome.fault.message
    return outcome.buffers[name].view(dtype)


def faulted(outcome: Outcome, kind: FaultKind) -> Fault:
    """The fault of a run that ended with one."""
    assert outcome.fault is not None
    assert outcome.fault.kind is kind, outcome.fault.message
    return outcome.fault
