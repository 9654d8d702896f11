"""Devices by name: what this machine has, and the one that a job asks for.

Invariants
- A GPU is used only for an architecture that it runs; what was found is said where nothing suits.
- One CUDA device a process and set of GPUs, kept from candidate to candidate and closed at exit. Workers are started as programs of
  their own, so no device is ever inherited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sandbox.cuda.device import CudaDevice
from sandbox.cuda.device import gpus as known_gpus
from sandbox.cuda.device import suiting as suitable
from sandbox.device import Device
from sandbox.emulator.device import EmulatorDevice
from tasks.errors import InputError

EMULATOR, CUDA, AUTO = "emulator", "cuda", "auto"


def device(name: str, arch: str, gpus: tuple[int, ...] = ()) -> Device:
    """The device of a name. gpus: those to use; empty: all that suit. Raises InputError when it is not there."""
    make = DEVICES.get(name)
    if make is None:
        raise InputError(f"device {name!r} is not known; use one of: {', '.join(DEVICES)}")
    return make(arch, gpus)


def resolved(name: str, arch: str, gpus: tuple[int, ...] = ()) -> str:
    """The device that a name stands for: `auto` is a GPU when one runs this architecture, else the emulator.

    Raises InputError when that device, or one of the GPUs asked for, is not there.
    """
    if name == AUTO:
        name = CUDA if suitable(arch) else EMULATOR
    if name not in DEVICES:
        raise InputError(f"device {name!r} is not known; use {AUTO} or one of: {', '.join(DEVICES)}")
    if name == CUDA:
        usable(arch, gpus)
    elif gpus:
        raise InputError(f"{_asked(gpus)} needs --device cuda, but kernels run on the {name}; {_found(arch)}")
    return name


def usable(arch: str, gpus: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Numbers of the GPUs to use: those asked for, else all that suit.

    Raises InputError when one is not there or does not run the architecture.
    """
    suiting = suitable(arch)
    wanted = gpus or suiting
    if wanted and set(wanted) <= set(suiting):
        return wanted
    what = _asked(gpus) if gpus else "--device cuda"
    raise InputError(
        f"{what} needs a GPU that runs {arch}; {_found(arch)}; without one use --device emulator"
    )


@lru_cache(maxsize=4)
def cuda_device(gpus: tuple[int, ...]) -> CudaDevice:
    """This process's workers on these GPUs."""
    return CudaDevice(gpus)


def _asked(gpus: tuple[int, ...]) -> str:
    return f"--gpus {','.join(map(str, gpus))}"


def _found(arch: str) -> str:
    """The GPUs of this machine, in words."""
    suiting = suitable(arch)
    there = [
        f"{each.index}: {each.name}, capability {each.capability[0]}.{each.capability[1]}"
        + ("" if each.index in suiting else f" (does not run {arch})")
        for each in known_gpus()
    ]
    return f"found {'; '.join(there) or 'no GPU'}"


DEVICES: dict[str, Callable[[str, tuple[int, ...]], Device]] = {
    EMULATOR: lambda arch, gpus: EmulatorDevice(arch),
    CUDA: lambda arch, gpus: cuda_device(usable(arch, gpus)),
}
"""Name → how to have it for an architecture and a choice of GPUs."""
