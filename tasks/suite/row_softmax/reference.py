"""Softmax over the last axis."""

from collections.abc import Mapping

import torch

Tensors = dict[str, torch.Tensor]


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.softmax(inputs["x"].double(), 1)}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.softmax(inputs["x"], 1)}


def magnitude(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    """The exponent x − max carries the rounding of a product by log2(e): its size multiplies the error of every element."""
    x = inputs["x"].double()
    distance = (x - x.amax(1, keepdim=True)).abs()
    return {"y": torch.softmax(x, 1) * (1 + distance)}


torch_softmax = honest
