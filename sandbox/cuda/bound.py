"""From a program and its buffers to what the worker is sent: every number known, every parameter at its place."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.cuda.wire import BufferSpec, LaunchSpec, MapSpec, Param, Source, Work
from sandbox.device import Program
from sandbox.packing import scalar
from sandbox.ptx.binding import (
    BoundArg,
    BoundLaunch,
    BoundTensorMap,
    PointerArg,
    ScalarArg,
    TensorInfo,
    bind,
    scratch_bytes,
)

POISON = 0xA5
"""Byte in scratch buffers that a plan does not ask to be zero, unless a run says another."""


def to_work(
    program: Program,
    module: int,
    axes: Mapping[str, int],
    specs: Mapping[str, BufferSpec],
    *,
    poison: int = POISON,
) -> Work:
    """The plan bound to these axes and buffers. Raises PlanError, LaunchRefused."""
    known = {name: TensorInfo(each.dtype, each.shape or (each.bytes,)) for name, each in specs.items()}
    plan = program.plan
    launches = bind(plan, program.module, axes=axes, tensors=known)
    scratch = [
        BufferSpec(
            name, size, Source(fill=0 if plan.scratch[name].init == "zero" else poison), "scratch", back=False
        )
        for name, size in scratch_bytes(plan, axes).items()
    ]
    maps: dict[str, MapSpec] = {}
    made = tuple(_launch(each, maps) for each in launches)
    return Work(module, made, (*specs.values(), *scratch), tuple(maps.values()))


def _launch(bound: BoundLaunch, maps: dict[str, MapSpec]) -> LaunchSpec:
    params = tuple(_param(each, maps) for each in bound.args)
    return LaunchSpec(
        entry=bound.entry,
        grid=bound.grid,
        block=bound.block,
        cluster=bound.cluster,
        shared=bound.dynamic_smem,
        params=params,
        param_bytes=max((each.offset + each.size for each in params), default=0),
        cooperative=bound.cooperative,
    )


def _param(argument: BoundArg, maps: dict[str, MapSpec]) -> Param:
    if isinstance(argument, PointerArg):
        return Param(argument.offset, argument.size, "pointer", name=argument.buffer)
    if isinstance(argument, ScalarArg):
        return Param(argument.offset, argument.size, "bytes", scalar(argument.value, argument.type))
    maps.setdefault(argument.map.name, _map(argument.map))
    kind = "map" if argument.by_value else "map_pointer"
    return Param(argument.offset, argument.size, kind, name=argument.map.name)


def _map(bound: BoundTensorMap) -> MapSpec:
    return MapSpec(
        name=bound.name,
        buffer=bound.buffer,
        dtype=bound.dtype,
        dims=bound.dims,
        strides=bound.strides,
        box=bound.box,
        element_strides=bound.element_strides,
        swizzle=bound.swizzle,
        interleave=bound.interleave,
        l2_promotion=bound.l2_promotion,
        oob_fill=bound.oob_fill,
        lower=bound.lower,
        upper=bound.upper,
    )
