"""What the driver's errors say of a kernel, in one sentence each. Hardware names neither line nor thread; nothing here pretends to.

Source: CUDA driver API, "Data types used by CUDA driver" (CUresult).
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.cuda.wire import RedZone, Stop
from sandbox.device import Fault, FaultKind, Program

KINDS: dict[str, tuple[FaultKind, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        FaultKind.OUT_OF_BOUNDS,
        "a load or store went to an address that belongs to no buffer (illegal address)",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        FaultKind.MISALIGNED,
        "a load, store or atomic went to an address that is not a multiple of its size (misaligned address)",
    ),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (
        FaultKind.OUT_OF_BOUNDS,
        "an instruction that works on one state space was given an address of another (invalid address space)",
    ),
    "CUDA_ERROR_INVALID_PC": (
        FaultKind.BAD_CALL,
        "a call or branch went to no instruction (invalid program counter)",
    ),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (FaultKind.BAD_CALL, "the call stack overflowed or was destroyed"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        FaultKind.ILLEGAL_INSTRUCTION,
        "the GPU refused an instruction: an operand value for which it is undefined (illegal instruction)",
    ),
    "CUDA_ERROR_ASSERT": (FaultKind.ASSERT, "a device assertion failed"),
    "CUDA_ERROR_LAUNCH_FAILED": (
        FaultKind.LAUNCH_FAILURE,
        "the kernel ended abnormally: `trap`, or an access outside of shared or local memory (unspecified launch failure)",
    ),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (FaultKind.TIMEOUT, "the driver ended the kernel because it took too long"),
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": (
        FaultKind.LAUNCH_FAILURE,
        "a block ended without freeing the tensor memory it had taken",
    ),
    "CUDA_ERROR_CONTAINED": (FaultKind.LAUNCH_FAILURE, "the kernel ended abnormally (contained error)"),
}


def fault_of(stop: Stop, program: Program) -> Fault:
    """The fault that a stop of the worker stands for."""
    launches = program.plan.launches
    entry = launches[stop.launch].entry if stop.launch < len(launches) else ""
    where = f"{entry} (launch {stop.launch + 1} of {len(launches)})" if len(launches) > 1 else entry
    if stop.code == "TIMEOUT":
        text = f"on the GPU {where} did not end within {stop.seconds:.1f} s and was killed"
        return Fault(kind=FaultKind.TIMEOUT, message=text, launch=stop.launch, entry=entry)
    kind, text = KINDS.get(
        stop.code, (FaultKind.LAUNCH_FAILURE, f"the kernel ended abnormally ({stop.code})")
    )
    return Fault(kind=kind, message=f"on the GPU, in {where}: {text}", launch=stop.launch, entry=entry)


def trespass(zones: Sequence[RedZone], sizes: dict[str, int], program: Program) -> Fault | None:
    """The fault that changed red zones stand for: stores just outside of a buffer."""
    if not zones:
        return None
    zone = min(zones, key=lambda each: (each.offset < 0, abs(each.offset)))
    size = sizes[zone.buffer]
    side = (
        f"{-zone.offset} bytes before its start"
        if zone.offset < 0
        else f"{zone.offset - size} bytes past its end"
    )
    return Fault(
        kind=FaultKind.OUT_OF_BOUNDS,
        message=(
            f"on the GPU, stores went outside of buffer {zone.buffer} ({size} bytes): {zone.count} bytes changed, the first {side}"
        ),
        entry=program.plan.launches[0].entry if len(program.plan.launches) == 1 else "",
        space="global",
        buffer=zone.buffer,
        offset=zone.offset,
        buffer_bytes=size,
    )
