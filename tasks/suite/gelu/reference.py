"""GELU in its exact form; the tolerance has room for the tanh form."""

from collections.abc import Mapping

import torch

Tensors = dict[str, torch.Tensor]


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.nn.functional.gelu(inputs["x"].double())}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.nn.functional.gelu(inputs["x"].float(), approximate="tanh").half()}


def magnitude(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    """|y|, and in float32 steps the distance between the two accepted forms, doubled for approximate tanh and exp instructions."""
    x = inputs["x"].double()
    exact, tanh = torch.nn.functional.gelu(x), torch.nn.functional.gelu(x, approximate="tanh")
    forms = (exact - tanh).abs() + 2.0**-11 * x.abs().clamp(max=4.0)
    return {"y": exact.abs() + forms * 2.0**23}


def torch_gelu(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"y": torch.nn.functional.gelu(inputs["x"])}
