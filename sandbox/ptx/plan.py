"""The launch plan: what a candidate asks to be launched, as data that is parsed and never evaluated.

A plan is the YAML in a candidate's leading `//!` lines. Lists may be written bare, separated by commas, or as YAML lists of strings
or numbers. Expressions follow `tasks.expressions`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tasks.errors import CandidateError


class PlanError(CandidateError):
    """A launch plan that cannot be used; says where, what was expected, what was found, what to do.

    line: 1-based line in the candidate file, or None.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Launch(_Plain):
    """One kernel launch; every extent is an expression over the task's axes."""

    entry: str
    grid: tuple[str, ...]
    """1 to 3 expressions, x first."""
    block: tuple[str, ...]
    cluster: tuple[str, ...] = ()
    """Empty when the launch asks for no cluster."""
    dynamic_smem: str = "0"
    """Bytes."""
    args: tuple[str, ...] = ()
    """Names of inputs, outputs, axes, scratch buffers or tensor maps, or integer/float literals, one for each `.param` in order."""
    line: int | None = None
    """Line of the candidate file where this launch begins."""


class TensorMap(_Plain):
    """A view for cuTensorMapEncodeTiled or Im2col; lists are innermost dimension first, as in the driver API."""

    tensor: str
    """Name of an input, output or scratch buffer."""
    box: tuple[str, ...]
    dims: tuple[str, ...] = ()
    """Empty: the tensor's own shape, innermost first."""
    strides: tuple[str, ...] = ()
    """Bytes, for every dimension but the innermost; empty: contiguous."""
    element_strides: tuple[str, ...] = ()
    swizzle: Literal["none", "32B", "64B", "128B"] = "none"
    interleave: Literal["none", "16B", "32B"] = "none"
    l2_promotion: Literal["none", "64B", "128B", "256B"] = "none"
    oob_fill: Literal["none", "nan"] = "none"
    dtype: str | None = None
    """None: the tensor's own."""


class Scratch(_Plain):
    """A global buffer of the candidate's own, fresh for every run of the plan."""

    bytes: str
    init: Literal["none", "zero"] = "none"
    """none: holds nothing defined until the kernel writes it."""


class Plan(_Plain):
    """All launches, in order on one stream, and what they need."""

    launches: tuple[Launch, ...]
    tensor_maps: dict[str, TensorMap] = {}
    scratch: dict[str, Scratch] = {}
