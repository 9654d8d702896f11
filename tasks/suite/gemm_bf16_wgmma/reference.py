"""Matrix product of bfloat16 matrices, the second one transposed, with a bfloat16 result."""

from collections.abc import Mapping

import numpy as np
import torch

Tensors = dict[str, torch.Tensor]


def reference(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"].double() @ inputs["b"].double().T}


def honest(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": (inputs["a"].float() @ inputs["b"].float().T).bfloat16()}


def magnitude(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"].double().abs() @ inputs["b"].double().abs().T}


def custom_inputs(axes: Mapping[str, int], rng: np.random.Generator) -> Tensors:
    """Nearly all of every sum lies in the last eight of its k terms."""
    m, n, k = axes["m"], axes["n"], axes["k"]
    a, b = rng.normal(size=(m, k)), rng.normal(size=(n, k))
    a[:, : max(k - 8, 0)] *= 2.0**-12
    return {"a": torch.from_numpy(a).bfloat16(), "b": torch.from_numpy(b).bfloat16()}


def torch_matmul(inputs: Tensors, axes: Mapping[str, int]) -> Tensors:
    return {"c": inputs["a"] @ inputs["b"].T}
