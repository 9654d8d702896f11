"""A loaded module, and what stands between a launch and the GPU: a bad plan is named here and never launched.

Source: CUDA driver API, "Execution Control" (cuFuncGetAttribute, cuFuncSetAttribute, cuLaunchKernelEx), "Occupancy".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from sandbox.cuda.driver import Driver, DriverError, Geometry
from sandbox.cuda.wire import Attributes, Gpu, LaunchSpec, Load
from tasks.errors import CannotJudge, InfraError, LaunchRefused

PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters holds."""
KERNEL_FAULTS = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_CONTAINED",
    }
)
"""Errors that a kernel brings about; all of them end the context."""
REFUSALS = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "CUDA_ERROR_INVALID_SOURCE",
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
        "CUDA_ERROR_FUNCTION_NOT_LOADED",
    }
)
"""Errors that say the module or the launch was not acceptable; nothing has run."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A module variable. first: address of a copy of its first contents."""

    address: int
    first: int
    bytes: int


@dataclass
class Module:
    """A loaded module."""

    load: Load
    handle: int
    functions: dict[str, int]
    attributes: dict[str, Attributes]
    variables: tuple[Variable, ...] = ()
    """Those that `load` names, but the ones that the assembler dropped because nothing uses them."""


def load(driver: Driver, wanted: Load) -> Module:
    """Load machine code, and keep the first contents of the variables asked for before anything can change them. Raises DriverError;
    nothing is held then.
    """
    handle = driver.load(wanted.cubin)
    kept: list[Variable] = []
    try:
        functions = {name: driver.function(handle, name) for name in wanted.entries}
        attributes = {name: driver.attributes(each) for name, each in functions.items()}
        for name in wanted.variables:
            found = driver.variable(handle, name)
            if found is not None and found[1]:
                address, size = found
                kept.append(Variable(address, driver.alloc(size), size))
                driver.copy(kept[-1].first, address, size)
    except DriverError:
        with suppress(DriverError):
            _forget(driver, handle, kept)
        raise
    return Module(wanted, handle, functions, attributes, tuple(kept))


def unload(driver: Driver, module: Module) -> None:
    """Unload a module, with what was kept for it."""
    _forget(driver, module.handle, module.variables)


def restore(driver: Driver, module: Module) -> None:
    """Give the module's variables their first contents; queued on the stream."""
    for each in module.variables:
        driver.copy(each.address, each.first, each.bytes)


def _forget(driver: Driver, handle: int, variables: Iterable[Variable]) -> None:
    for each in variables:
        driver.free(each.first)
    driver.unload(handle)


def admit(
    driver: Driver, gpu: Gpu, module: Module, launch: LaunchSpec, allowed: set[tuple[int, int, bool]]
) -> Geometry:
    """Check a launch against what the function takes and the GPU holds, and allow it. Raises LaunchRefused that names the reason."""
    about, function = module.attributes[launch.entry], module.functions[launch.entry]
    threads, clusters = math.prod(launch.block), math.prod(launch.cluster)
    where = f"launch of {launch.entry}"
    if threads > about.max_threads:
        raise LaunchRefused(
            f"{where}: its {about.registers} registers a thread allow blocks of at most {about.max_threads} threads; "
            f"found {threads}: use fewer threads, or bound the registers with .maxntid"
        )
    if about.shared + launch.shared > gpu.shared_optin:
        raise LaunchRefused(
            f"{where}: a block of this GPU takes at most {gpu.shared_optin} bytes of shared memory; found "
            f"{about.shared} static + {launch.shared} dynamic"
        )
    geometry = Geometry(launch.grid, launch.block, launch.cluster, launch.shared, launch.cooperative)
    key = (function, launch.shared, clusters > PORTABLE_CLUSTER)
    try:
        if key not in allowed:
            driver.allow(function, launch.shared, clusters > PORTABLE_CLUSTER)
            allowed.add(key)
        blocks = driver.resident_blocks(function, threads, launch.shared)
        fits = clusters == 1 or driver.resident_clusters(function, geometry) > 0
    except DriverError as error:
        raise refused(error, where) from None
    if not blocks:
        raise LaunchRefused(
            f"{where}: no multiprocessor holds a block of {threads} threads with {about.registers} registers each and "
            f"{about.shared + launch.shared} bytes of shared memory"
        )
    if not fits:
        raise LaunchRefused(
            f"{where}: this GPU cannot hold a cluster of {clusters} such blocks at once: make the cluster smaller, or its "
            "blocks take less shared memory"
        )
    if launch.cooperative and math.prod(launch.grid) > blocks * gpu.multiprocessors:
        raise LaunchRefused(
            f"{where}: a cooperative grid must be resident at once, {blocks * gpu.multiprocessors} blocks here; found "
            f"{math.prod(launch.grid)}: launch fewer, or blocks that take fewer registers or less shared memory"
        )
    return geometry


def refused(error: DriverError, what: str) -> LaunchRefused | InfraError:
    """What a driver error in loading or launching makes of the candidate, or of us."""
    if error.name in REFUSALS:
        return LaunchRefused(f"{what}: {error}")
    return broken(error)


def broken(error: DriverError) -> InfraError:
    """A driver call of our own failed."""
    if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
        return CannotJudge(
            f"the GPU has not enough free memory ({error}): use a smaller workload or an emptier GPU"
        )
    return InfraError(f"the GPU's driver failed by itself: {error}")
