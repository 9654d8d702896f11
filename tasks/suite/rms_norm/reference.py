"""RMS norm over the last axis."""

from collections.abc import Mapping

import torch

Tensors = dict[str, torch.Tensor]

EPSILON = 1e-5


def _normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + EPSILON) * w


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": _normalised(inputs["x"].double(), inputs["w"].double())}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": _normalised(inputs["x"].float(), inputs["w"].float()).bfloat16()}


def torch_rms_norm(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.nn.functional.rms_norm(inputs["x"], (axes["n"],), inputs["w"], EPSILON)}
