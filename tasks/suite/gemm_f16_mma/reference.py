"""Matrix product of float16 matrices with a float32 result."""

from collections.abc import Mapping

import numpy as np
import torch

Tensors = dict[str, torch.Tensor]


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"].double() @ inputs["b"].double()}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"].float() @ inputs["b"].float()}


def magnitude(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"].double().abs() @ inputs["b"].double().abs()}


def custom_inputs(axes: Mapping[str, int], rng: np.random.Generator) -> Tensors:
    """Nearly all of every sum lies in the last eight of its k terms."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    a[:, : max(k - 8, 0)] *= 2.0**-12
    return {"a": torch.from_numpy(a).half(), "b": torch.from_numpy(b).half()}


def torch_matmul(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": torch.mm(inputs["a"], inputs["b"], out_dtype=torch.float32)}
