"""With what a run was made: versions, facts of the machine, and the assembler. Written into `run.json` once."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import import_module, metadata

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
    "cuda-bindings",
    "nvidia-ml-py",
)


def versions() -> dict[str, str]:
    """Package → version, for those that decide a run."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine(device: str, arch: str, numbers: tuple[int, ...] = ()) -> dict[str, str]:
    """What it runs on, with the GPUs that it uses; memory in bytes."""
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": str(os.cpu_count()),
        "memory": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        **(gpus(arch, numbers) if device == "cuda" else {}),
    }


def gpus(arch: str, numbers: tuple[int, ...] = ()) -> dict[str, str]:
    """The GPUs that kernels for an architecture run on, by number; all that suit when none is named."""
    from sandbox.cuda import device

    wanted = numbers or device.suiting(arch)
    return {
        f"gpu {each.index}": f"{each.name}, {each.uuid}, capability {each.capability[0]}.{each.capability[1]}, "
        f"{each.memory_bytes} bytes, driver {driver() or '?'}, CUDA {each.driver}"
        for each in device.gpus()
        if each.index in wanted
    }


def driver() -> str:
    """Version of the NVIDIA driver, such as 580.159.04; '' where NVML or its library is not there."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        return str(nvml.nvmlSystemGetDriverVersion())
    except Exception:  # no library, or no driver
        return ""


def ptxas() -> dict[str, str]:
    """Path and version of the assembler; empty where there is none."""
    from tools.toolchain import find_ptxas

    try:
        tool = find_ptxas()
    except InfraError:
        return {}
    return {"path": str(tool.path), "version": tool.version}
