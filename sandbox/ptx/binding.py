"""A plan meets a module, a workload's axes and its tensors: launches with every number known.

`PlanError` says that plan and module contradict each other or that an extent makes no sense; `LaunchRefused` that no device would take
the launch. Both are decided here, before anything runs, for every device alike.

Source: CUDA driver API, cuLaunchKernelEx; limits in `sandbox.ptx.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sandbox.ptx import limits
from sandbox.ptx.layout import Placed, local_bytes, param_layout, shared_bytes
from sandbox.ptx.maps import BoundTensorMap, TensorInfo, bind_map
from sandbox.ptx.nodes import Function, Module
from sandbox.ptx.plan import Launch, Plan, PlanError, float_literal
from tasks.errors import LaunchRefused
from tasks.expressions import ExpressionError, evaluate

Dim3: TypeAlias = tuple[int, int, int]

__all__ = [
    "BoundArg",
    "BoundLaunch",
    "BoundTensorMap",
    "PointerArg",
    "ScalarArg",
    "TensorInfo",
    "TensorMapArg",
    "bind",
    "scratch_bytes",
]

_INTEGERS: Final = {f"{letter}{bits}": (letter, bits) for letter in "bsu" for bits in (8, 16, 32, 64)}
_FLOATS: Final = frozenset({"f16", "bf16", "f32", "f64"})
_FLOAT_OF_BITS: Final = {"b16": "f16", "b32": "f32", "b64": "f64"}
_POINTERS: Final = frozenset({"u64", "b64", "s64"})
_MAP_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class PointerArg:
    """The address of a buffer (input, output or scratch)."""

    buffer: str
    offset: int
    """Byte offset in the param space."""
    size: int


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number; `type` is the PTX type to write it as, without dot."""

    value: int | float
    type: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A tensor map: by value when `by_value`, else the address of a copy in device memory."""

    map: BoundTensorMap
    by_value: bool
    offset: int
    size: int


BoundArg: TypeAlias = PointerArg | ScalarArg | TensorMapArg


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """One launch, every number known. `cluster` is (1, 1, 1) when there is none."""

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_smem: int
    args: tuple[BoundArg, ...]
    cooperative: bool = False
    """The grid must be resident at once."""


def bind(
    plan: Plan, module: Module, *, axes: Mapping[str, int], tensors: Mapping[str, TensorInfo]
) -> tuple[BoundLaunch, ...]:
    """Check a plan against a module and evaluate it. tensors: inputs and outputs by name. Raises PlanError, LaunchRefused."""
    scratch = scratch_bytes(plan, axes)
    for kind, names in (("scratch buffer", plan.scratch), ("tensor map", plan.tensor_maps)):
        for name in names:
            if name in tensors or name in axes:
                raise PlanError(
                    f"{kind} {name}: expected a name of its own; found the name of a tensor or an axis"
                )
    maps = {name: bind_map(name, each, axes, tensors, scratch) for name, each in plan.tensor_maps.items()}
    binder = _Binder(module, axes, tensors, scratch, maps)
    launches = tuple(binder.launch(each, index) for index, each in enumerate(plan.launches))
    threads = sum(math.prod(each.grid) * math.prod(each.block) for each in launches)
    if threads > limits.RUN_THREADS:
        raise LaunchRefused(
            f"expected at most {limits.RUN_THREADS} threads in all launches of a plan; found {threads}: launch fewer blocks"
        )
    return launches


def scratch_bytes(plan: Plan, axes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each scratch buffer. Raises PlanError."""
    sizes: dict[str, int] = {}
    for name, each in plan.scratch.items():
        sizes[name] = size = _number(each.bytes, axes, f"scratch {name}: bytes", None)
        if size < 1:
            raise PlanError(f"scratch {name}: expected 1 byte or more; found {each.bytes} = {size}")
    if sum(sizes.values()) > limits.SCRATCH_BYTES:
        raise PlanError(
            f"scratch: expected at most {limits.SCRATCH_BYTES} bytes in all; found {sum(sizes.values())}: use smaller buffers"
        )
    return sizes


def _number(text: str, axes: Mapping[str, int], what: str, line: int | None) -> int:
    try:
        return evaluate(text, axes)
    except ExpressionError as error:
        raise PlanError(f"{what}: {error}", line) from None


@dataclass(frozen=True, slots=True)
class _Binder:
    module: Module
    axes: Mapping[str, int]
    tensors: Mapping[str, TensorInfo]
    scratch: Mapping[str, int]
    maps: Mapping[str, BoundTensorMap]

    def launch(self, launch: Launch, index: int) -> BoundLaunch:
        where = f"launch {index + 1} ({launch.entry})"
        entry = self._entry(launch, where)
        grid = self._extents(launch.grid, f"{where}: grid", launch.line)
        block = self._extents(launch.block, f"{where}: block", launch.line)
        asked = self._extents(launch.cluster, f"{where}: cluster", launch.line) if launch.cluster else None
        smem = _number(launch.dynamic_smem, self.axes, f"{where}: dynamic_smem", launch.line)
        if smem < 0:
            raise PlanError(f"{where}: dynamic_smem: expected 0 bytes or more; found {smem}", launch.line)
        args = self._args(launch, entry, where)
        _check_shape(where, grid, block)
        _check_directives(where, entry, block)
        cluster = _cluster(where, entry, grid, asked)
        self._check_memory(where, entry, smem)
        return BoundLaunch(launch.entry, grid, block, cluster, smem, args, launch.cooperative == "yes")

    def _entry(self, launch: Launch, where: str) -> Function:
        entries = {each.name: each for each in self.module.functions if each.entry}
        found = entries.get(launch.entry)
        if found is None:
            listed = ", ".join(entries) or "none"
            func = any(each.name == launch.entry for each in self.module.functions)
            what = "a .func of that name, which cannot be launched" if func else "no such name"
            raise PlanError(
                f"{where}: expected an .entry of the module ({listed}); found {what}: name one of them",
                launch.line,
            )
        if found.body is None:
            raise PlanError(
                f"{where}: expected an .entry with a body; found a declaration alone", launch.line
            )
        return found

    def _extents(self, texts: tuple[str, ...], what: str, line: int | None) -> Dim3:
        values = [_number(text, self.axes, what, line) for text in texts]
        for text, value in zip(texts, values, strict=True):
            if value < 1:
                raise PlanError(f"{what}: expected 1 or more; found {text} = {value}", line)
        x, y, z = (*values, 1, 1)[:3]
        return x, y, z

    def _args(self, launch: Launch, entry: Function, where: str) -> tuple[BoundArg, ...]:
        params = param_layout(entry)
        if len(params) != len(launch.args):
            declared = ", ".join(f".{each.variable.type} {each.name}" for each in params) or "none"
            raise PlanError(
                f"{where}: expected {len(params)} args for the parameters ({declared}); "
                f"found {len(launch.args)} ({', '.join(launch.args) or 'none'}): give one for each, in order",
                launch.line,
            )
        if params and params[-1].offset + params[-1].size > limits.PARAM_BYTES:
            raise LaunchRefused(
                f"{where}: expected at most {limits.PARAM_BYTES} bytes of parameters; "
                f"found {params[-1].offset + params[-1].size}"
            )
        return tuple(
            self._arg(text, param, f"{where}: arg {number} ({text}) for parameter {param.name}", launch.line)
            for number, (text, param) in enumerate(zip(launch.args, params, strict=True), 1)
        )

    def _arg(self, text: str, param: Placed, where: str, line: int | None) -> BoundArg:
        variable = param.variable
        shown = f".{variable.type}" + "".join(f"[{'' if each is None else each}]" for each in variable.dims)
        scalar = not variable.dims and variable.vector == 1
        if text in self.maps:
            if param.size == _MAP_BYTES:
                return TensorMapArg(self.maps[text], True, param.offset, param.size)
            if scalar and variable.type in _POINTERS:
                return TensorMapArg(self.maps[text], False, param.offset, param.size)
            raise PlanError(
                f"{where}: a tensor map needs `.param .align 64 .b8 name[128]` (by value) or `.param .u64`; found {shown}",
                line,
            )
        if text in self.tensors or text in self.scratch:
            if scalar and variable.type in _POINTERS:
                return PointerArg(text, param.offset, param.size)
            raise PlanError(f"{where}: a buffer needs an 8-byte pointer, `.param .u64`; found {shown}", line)
        literal = float_literal(text)
        if not scalar:
            raise PlanError(f"{where}: {self._known(text)} needs a scalar parameter; found {shown}", line)
        if "ptr" in variable.attributes:
            raise PlanError(f"{where}: expected a buffer for a .ptr parameter; found a number", line)
        if literal is not None:
            kind = _FLOAT_OF_BITS.get(variable.type, variable.type)
            if kind not in _FLOATS:
                raise PlanError(f"{where}: a float literal needs .f32 or .f64; found {shown}", line)
            return ScalarArg(literal, kind, param.offset, param.size)
        return self._integer(text, param, where, shown, line)

    def _known(self, text: str) -> str:
        return f"axis {text}" if text in self.axes else f"the number {text}"

    def _integer(self, text: str, param: Placed, where: str, shown: str, line: int | None) -> ScalarArg:
        try:
            value = evaluate(text, self.axes)
        except ExpressionError as error:
            names = ", ".join((*self.tensors, *self.scratch, *self.maps, *self.axes)) or "none"
            if text.isidentifier():
                raise PlanError(
                    f"{where}: expected a tensor, scratch buffer, tensor map, axis ({names}) or a number; found {text}",
                    line,
                ) from None
            raise PlanError(f"{where}: {error}", line) from None
        kind = param.variable.type
        if kind in _FLOATS and text not in self.axes:
            return ScalarArg(float(value), kind, param.offset, param.size)
        if kind not in _INTEGERS:
            raise PlanError(f"{where}: an integer needs .u32, .s32, .u64 or the like; found {shown}", line)
        letter, bits = _INTEGERS[kind]
        low = 0 if letter == "u" else -(1 << (bits - 1))
        high = (1 << (bits - 1)) - 1 if letter == "s" else (1 << bits) - 1
        if not low <= value <= high:
            raise PlanError(f"{where}: expected {low} to {high} for {shown}; found {value}", line)
        return ScalarArg(value, kind, param.offset, param.size)

    def _check_memory(self, where: str, entry: Function, dynamic: int) -> None:
        static = shared_bytes(self.module, entry)
        if static + dynamic > limits.SHARED_BYTES:
            raise LaunchRefused(
                f"{where}: expected at most {limits.SHARED_BYTES} bytes of shared memory in a block; found "
                f"{static + dynamic} ({static} static + {dynamic} dynamic): use less"
            )
        local = local_bytes(self.module, entry)
        if local > limits.LOCAL_BYTES:
            raise LaunchRefused(
                f"{where}: expected at most {limits.LOCAL_BYTES} bytes of .local memory in a thread; found {local}"
            )
        resident = local * limits.RESIDENT_THREADS * limits.MULTIPROCESSORS
        if resident > limits.LOCAL_TOTAL_BYTES:
            raise LaunchRefused(
                f"{where}: {local} bytes of .local memory a thread take {resident} bytes for all resident threads; "
                f"expected at most {limits.LOCAL_TOTAL_BYTES}: use less .local memory"
            )


def _check_shape(where: str, grid: Dim3, block: Dim3) -> None:
    for what, extents, most in (("grid", grid, limits.GRID), ("block", block, limits.BLOCK)):
        for letter, extent, limit in zip("xyz", extents, most, strict=True):
            if extent > limit:
                raise LaunchRefused(f"{where}: {what}: expected at most {limit} in {letter}; found {extent}")
    if math.prod(block) > limits.BLOCK_THREADS:
        raise LaunchRefused(
            f"{where}: block: expected at most {limits.BLOCK_THREADS} threads; found {math.prod(block)}"
        )


def _directive(entry: Function, name: str) -> Dim3 | None:
    for each in entry.tuning:
        if each.name == name and each.arguments:
            x, y, z = (*(int(text) for text in each.arguments), 1, 1)[:3]
            return x, y, z
    return None


def _check_directives(where: str, entry: Function, block: Dim3) -> None:
    required = _directive(entry, "reqntid")
    if required is not None and required != block:
        raise LaunchRefused(
            f"{where}: .reqntid says block {required}; the plan asks for {block}: make them agree"
        )
    most = _directive(entry, "maxntid")
    if most is not None and math.prod(block) > math.prod(most):
        raise LaunchRefused(
            f"{where}: .maxntid allows {math.prod(most)} threads in a block; the plan asks for {math.prod(block)}"
        )


def _cluster(where: str, entry: Function, grid: Dim3, asked: Dim3 | None) -> Dim3:
    required = _directive(entry, "reqnctapercluster")
    if required is not None and asked is not None and required != asked:
        raise LaunchRefused(
            f"{where}: .reqnctapercluster says {required}; the plan asks for {asked}: make them agree"
        )
    cluster = asked or required or (1, 1, 1)
    if math.prod(cluster) > limits.CLUSTER_BLOCKS:
        raise LaunchRefused(
            f"{where}: cluster: expected at most {limits.CLUSTER_BLOCKS} blocks; found {math.prod(cluster)}"
        )
    most = _directive(entry, "maxclusterrank")
    if most is not None and math.prod(cluster) > most[0]:
        raise LaunchRefused(f"{where}: .maxclusterrank allows {most[0]} blocks; found {math.prod(cluster)}")
    for letter, blocks, part in zip("xyz", grid, cluster, strict=True):
        if blocks % part:
            raise LaunchRefused(
                f"{where}: expected a grid that is a multiple of the cluster; found {blocks} blocks in {letter} "
                f"for clusters of {part}"
            )
    return cluster
