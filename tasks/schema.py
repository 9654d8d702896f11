"""What a task is: frozen records read from `task.yaml`, and nothing that runs.

A task folder holds `task.yaml` (this schema), `reference.py` (see `tasks.registry`) and `solutions/<arch>.ptx`.
Shapes, work and tolerance terms are expressions over the axes (`tasks.expressions`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from tasks.record import Record

TASK_FORMAT = 1
"""Version of the `task.yaml` format."""


class DType(StrEnum):
    """Element types a tensor may have. Bytes and torch or NumPy names are in `tasks.dtypes`."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    S8 = "s8"
    U8 = "u8"
    S16 = "s16"
    S32 = "s32"
    U32 = "u32"
    S64 = "s64"
    U64 = "u64"


class Role(StrEnum):
    """What a workload is for."""

    EMULATE = "emulate"
    """Small: run first, and on the emulator also for counts."""
    CHECK = "check"
    """Several shapes, odd ones too."""
    MEASURE = "measure"
    """The size that is timed."""
    HIDDEN = "hidden"
    """Never named to the model."""


class Tensor(Record):
    """An input or output: contiguous, row-major."""

    shape: tuple[str, ...]
    """Expressions over axes, outermost first."""
    dtype: DType
    description: str = ""


class Inputs(Record):
    """How the tensors of one workload are filled.

    kind: normal (mean, std), uniform (low, high), integers (low, high inclusive; exact in every dtype), wide (log-uniform magnitudes
    2^low … 2^high with random sign), special (normal with NaN, ±Inf, ±0 and subnormals strewn in), ramp, or custom: the task's
    `reference.py` makes them.
    """

    kind: Literal["normal", "uniform", "integers", "wide", "special", "ramp", "custom"] = "normal"
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0


class Workload(Record):
    """A task with its axes bound and its inputs described; the seed is drawn anew for each evaluation."""

    name: str
    roles: tuple[Role, ...]
    axes: dict[str, int]
    inputs: Inputs = Inputs()
    exact: bool = False
    """Outputs must equal the reference bit for bit (small integers through a linear operator, or integer tasks)."""


class TargetRule(Record):
    """Instruction families a candidate must use on one architecture: every one of `all`, and one of `any` when given."""

    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()


class Work(Record):
    """What the computation itself costs, as expressions over axes."""

    flops: str
    bytes: str


class Tolerance(Record):
    """Error allowed per element, scaled to the data (design §6.3).

    |y − r| ≤ factor · (eps(output) · |r| + eps(accumulate) · sqrt(terms) · magnitude) + tiny, where magnitude is the reference's own
    sum of absolute terms (|r| when the task gives none). Besides, the root-mean-square error must stay within `rms_ratio` times that
    of the honest low-precision answer, plus a floor.
    """

    accumulate: DType = DType.F32
    terms: str = "1"
    """Number of terms summed into one element, as an expression."""
    factor: float = 4.0
    rms_ratio: float = 4.0


class Task(Record):
    """A computation to implement."""

    format: int = TASK_FORMAT
    name: str
    suite: str
    title: str
    description: str
    """What is computed, in words and formulas, for a person and for a model."""
    family: str
    """Operator family, for splits and scores: elementwise, reduction, gemm, attention …"""
    tags: tuple[str, ...] = ()
    difficulty: int = Field(default=1, ge=1, le=5)
    axes: dict[str, int | None]
    """Axis → constant, or None where the workload binds it."""
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    targets: dict[str, TargetRule] = {}
    """Architecture → rule; the key "any" holds for every architecture without a rule of its own."""
    tolerance: Tolerance = Tolerance()
    nan_payload: bool = False
    """True when NaN payloads must match too; else any NaN equals any NaN."""
    work: Work
    workloads: tuple[Workload, ...]
    baselines: dict[str, str] = {}
    """Name → function of `reference.py` that is timed against (needs a GPU)."""
    extra: dict[str, Any] = {}
