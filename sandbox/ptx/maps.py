"""Tensor maps of a plan, evaluated and held to the rules of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.

Source: CUDA driver API, "Tensor Map Object Management"; PTX ISA, "Tensors".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from sandbox.ptx import limits
from sandbox.ptx.plan import PlanError, TensorMap
from tasks.expressions import ExpressionError, evaluate


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a buffer holds: element type ("f32") and shape, outermost dimension first, contiguous."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundTensorMap:
    """A tensor map with every number known; dimensions innermost first."""

    name: str
    buffer: str
    dtype: str
    element_bytes: int
    dims: tuple[int, ...]
    """Elements."""
    strides: tuple[int, ...]
    """Bytes, for every dimension but the innermost."""
    box: tuple[int, ...]
    """Elements; of an im2col map (channels, pixels)."""
    element_strides: tuple[int, ...]
    swizzle: str
    interleave: str
    l2_promotion: str
    oob_fill: str
    lower: tuple[int, ...] = ()
    """Corners of an im2col map, W first; empty for a tiled one."""
    upper: tuple[int, ...] = ()


def bind_map(
    name: str,
    spec: TensorMap,
    axes: Mapping[str, int],
    tensors: Mapping[str, TensorInfo],
    scratch: Mapping[str, int],
) -> BoundTensorMap:
    """Evaluate and check one map. Raises PlanError."""
    reader = _Map(name, axes)
    info = tensors.get(spec.tensor)
    if info is None and spec.tensor not in scratch:
        known = ", ".join((*tensors, *scratch)) or "none"
        reader.fail(f"tensor: expected a tensor or scratch buffer ({known}); found {spec.tensor}")
    dtype = spec.dtype or (info.dtype if info else None)
    if dtype is None:
        reader.fail("dtype: expected one for a scratch buffer; found none: say what its elements are")
    unit = limits.MAP_DTYPES.get(dtype)
    if unit is None:
        reader.fail(f"dtype: expected one of {', '.join(limits.MAP_DTYPES)}; found {dtype}")
    dims = reader.numbers("dims", spec.dims, 1, limits.MAP_DIM)
    if not dims:
        if info is None:
            reader.fail("dims: expected them for a scratch buffer; found none")
        dims = tuple(reversed(info.shape)) or (1,)
    rank = len(dims)
    if not 1 <= rank <= limits.MAP_RANK:
        reader.fail(
            f"dims: expected 1 to {limits.MAP_RANK} dimensions; found {rank}: give a view by dims and strides"
        )
    stride_unit = 32 if spec.interleave == "32B" else limits.MAP_UNIT
    strides = reader.numbers("strides", spec.strides, stride_unit, limits.MAP_STRIDE - 1)
    if not strides:
        running = unit
        built: list[int] = []
        for extent in dims[:-1]:
            running *= extent
            built.append(running)
        strides = tuple(built)
    reader.count("strides", strides, rank - 1)
    for stride in strides:
        if stride % stride_unit or not 0 < stride < limits.MAP_STRIDE:
            reader.fail(f"strides: expected multiples of {stride_unit} bytes below 2**40; found {stride}")
    corners: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if spec.mode == "im2col":
        box, corners = _im2col(reader, spec, dims)
    else:
        box = reader.numbers("box", spec.box, 1, limits.MAP_BOX)
        reader.count("box", box, rank)
        if spec.lower or spec.upper:
            reader.fail(
                "lower, upper: expected none for a tiled map; found some: leave them out, or say mode: im2col"
            )
    steps = (
        reader.numbers("element_strides", spec.element_strides, 1, limits.MAP_ELEMENT_STRIDE) or (1,) * rank
    )
    reader.count("element_strides", steps, rank)
    _check_layout(reader, spec, dtype, box[0] * unit, rank)
    held = scratch[spec.tensor] if info is None else _bytes_of(info)
    last = (dims[0] - 1) * unit + sum(
        (extent - 1) * stride for extent, stride in zip(dims[1:], strides, strict=True)
    )
    if held is not None and last + unit > held:
        reader.fail(
            f"expected a view inside {spec.tensor} ({held} bytes); found one that ends at byte {last + unit}"
        )
    return BoundTensorMap(
        name, spec.tensor, dtype, unit, dims, strides, box, steps,
        spec.swizzle, spec.interleave, spec.l2_promotion, spec.oob_fill, *corners,
    )  # fmt: skip


def _im2col(
    reader: _Map, spec: TensorMap, dims: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Channels and pixels of one copy, and the two corners."""
    rank = len(dims)
    bound = limits.IM2COL_CORNER.get(rank)
    if bound is None:
        reader.fail(f"mode im2col: expected 3 to {limits.MAP_RANK} dimensions (C, W, ..., N); found {rank}")
    if len(spec.box) != 2:
        reader.fail(
            f"box: expected channels per pixel and pixels per column (mode im2col); found {len(spec.box)} values"
        )
    (channels,) = reader.numbers("box (channels)", spec.box[:1], 1, limits.IM2COL_CHANNELS)
    (pixels,) = reader.numbers("box (pixels)", spec.box[1:], 1, limits.IM2COL_PIXELS)
    lower = reader.numbers("lower", spec.lower, -bound, bound - 1)
    upper = reader.numbers("upper", spec.upper, -bound, bound - 1)
    for what, corner in (("lower", lower), ("upper", upper)):
        reader.count(what, corner, rank - 2)
    for letter, extent, low, high in zip("WHD", dims[1:-1], lower, upper, strict=False):
        if extent + high - low < 1:
            reader.fail(
                f"lower, upper: expected a bounding box of 1 pixel or more in {letter}; found {extent} + {high} - {low} = "
                f"{extent + high - low}"
            )
    return (channels, pixels), (lower, upper)


def _check_layout(reader: _Map, spec: TensorMap, dtype: str, inner: int, rank: int) -> None:
    """inner: bytes of the box along the innermost dimension."""
    span = limits.SWIZZLE_SPAN[spec.swizzle]
    if spec.mode == "tiled" and spec.interleave == "none" and inner % limits.MAP_UNIT:
        reader.fail(f"box: expected an inner row of a multiple of {limits.MAP_UNIT} bytes; found {inner}")
    if spec.interleave == "none" and span and inner > span:
        reader.fail(f"box: swizzle {spec.swizzle} takes an inner row of at most {span} bytes; found {inner}")
    if spec.interleave != "none" and rank < 3:
        reader.fail(f"interleave: expected 3 dimensions or more; found {rank}")
    if spec.interleave == "32B" and spec.swizzle != "32B":
        reader.fail(f"interleave 32B: expected swizzle 32B; found {spec.swizzle}")
    if spec.oob_fill == "nan" and dtype not in limits.FLOAT_DTYPES:
        reader.fail(f"oob_fill: expected a floating-point dtype for nan; found {dtype}")


def _bytes_of(info: TensorInfo) -> int | None:
    unit = limits.MAP_DTYPES.get(info.dtype)
    if unit is None:
        return None
    for extent in info.shape:
        unit *= extent
    return unit


@dataclass(frozen=True, slots=True)
class _Map:
    name: str
    axes: Mapping[str, int]

    def fail(self, message: str) -> NoReturn:
        raise PlanError(f"tensor map {self.name}: {message}")

    def numbers(self, what: str, texts: tuple[str, ...], low: int, high: int) -> tuple[int, ...]:
        result: list[int] = []
        for text in texts:
            try:
                value = evaluate(text, self.axes)
            except ExpressionError as error:
                self.fail(f"{what}: {error}")
            if not low <= value <= high:
                self.fail(f"{what}: expected {low} to {high}; found {text} = {value}")
            result.append(value)
        return tuple(result)

    def count(self, what: str, values: tuple[int, ...], rank: int) -> None:
        if len(values) != rank:
            self.fail(f"{what}: expected {rank} values, innermost first; found {len(values)}")
