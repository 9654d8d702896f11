"""y = 2x + 1."""

from collections.abc import Mapping

import torch

Tensors = dict[str, torch.Tensor]


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": 2.0 * inputs["x"].double() + 1.0}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": 2.0 * inputs["x"] + 1.0}


def torch_affine(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.add(torch.ones((), device=inputs["x"].device), inputs["x"], alpha=2)}
