"""Compare an output with the float64 reference, and say how it differs.

Invariants
- An element fails unless it is shown to be right: tests are written `not (error <= allowed)`, so NaN never
  passes.
- Where the reference is NaN or infinite the output must be so too, in kind and sign; NaN payloads count only
  where the task says so.
- Exact mode: integers bit for bit, floats equal in value to the reference rounded to the output type (so −0
  equals 0).
- The tolerance is the task's (`tasks.schema.Tolerance`): scaled to the data, and besides a bound on the root
  mean square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tasks.dtypes import DTYPES
from tasks.schema import DType, Tolerance
from tools.evaluation import Mismatch
from tools.pattern import Floats, Mask, describe, relation

if TYPE_CHECKING:
    import torch

Reason = Literal["", "values", "unwritten", "precision", "nonfinite"]

EPS = {dtype: facts.eps for dtype, facts in DTYPES.items() if facts.eps}
"""Distance from 1 to the next number of each float type."""
TINY = {dtype: DTYPES[dtype].tiny / eps for dtype, eps in EPS.items()}
"""Smallest normal number: a flushed subnormal is not an error."""
COARSE = EPS[DType.BF16]
"""Wrong results within this relative error look as if computed in too narrow a type."""
MAJORITY = 0.9
ABOVE = math.nextafter(1.0, 2.0)
"""Least error over tolerance of what fails: in exact mode a wrong element may be off by less than the smallest normal number."""
PIECE, LARGE_PIECE = 1 << 16, 1 << 22
"""Elements that are compared at a time: on a CPU they stay in its cache, on a GPU launches do not count."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the root mean square of an output's error is held against.

    count: elements it takes in; scale: the largest of them, by which all are divided; limit: the most it may be.
    """

    count: int
    scale: float
    limit: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one output must be.

    reference: float64, or integers for an integer output. honest: the answer of honest arithmetic in the
    output's own type. magnitude: float64 sum of the absolute terms of each element; None: |reference|. terms:
    number of terms summed.
    """

    dtype: DType
    reference: torch.Tensor
    honest: torch.Tensor
    magnitude: torch.Tensor | None
    tolerance: Tolerance
    terms: int
    exact: bool = False
    nan_payload: bool = False
    yardstick: list[Yardstick | None] = field(
        default_factory=list["Yardstick | None"], repr=False, compare=False
    )
    """Measured when first needed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of one output. error: largest error over its tolerance (≤ 1 when passed; inf for a
    mismatch in kind).
    """

    mismatch: Mismatch | None
    reason: Reason
    error: float

    @property
    def passed(self) -> bool:
        """True when every element is right and the error as a whole is that of honest arithmetic."""
        return self.mismatch is None


def judge(
    got: torch.Tensor,
    want: Expectation,
    *,
    workload: str,
    output: str,
    unwritten: Mask | None = None,
) -> Judgement:
    """Compare `got` (the output's own type and shape) with `want`; `unwritten` marks elements that nothing
    wrote. Only a failure pays for its description.
    """
    passed, error = acceptable(got, want)
    if passed and (unwritten is None or not unwritten.any()):
        return Judgement(None, "", error)
    if want.dtype not in EPS:
        return _integers(got, want, workload, output, unwritten)
    return _floats(got, want, workload, output, unwritten, error)


def acceptable(got: torch.Tensor, want: Expectation) -> tuple[bool, float]:
    """The rule itself: whether an output passes, and its largest error over tolerance (> 1 when it does not).

    All tensors lie on one device, whichever; the work is done piece by piece, so that temporaries do not grow with the output.
    """
    import torch

    if want.dtype not in EPS:
        right = torch.equal(got, want.reference.to(got.dtype))
        return right, 0.0 if right else float("inf")
    if not got.numel():
        return True, 0.0
    yardstick = _yardstick(want)
    sound = torch.ones((), dtype=torch.bool, device=got.device)
    worst, squares = torch.zeros(2, dtype=torch.float64, device=got.device)
    for actual, part in zip(got.reshape(-1).split(_step(got)), _parts(want), strict=True):
        right, error, share = _compared(actual, part, want)
        sound = sound & right.all()
        worst = torch.maximum(worst, share.max())
        if yardstick is not None:
            squares = squares + _squares(part.only(error), yardstick.scale)
    largest = float(worst)
    if not sound:
        return False, max(largest, ABOVE)
    excess = 0.0 if yardstick is None else math.sqrt(float(squares) / yardstick.count) / yardstick.limit
    return (True, min(largest, 1.0)) if excess <= 1 else (False, excess)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the elements of an `Expectation`, in one dimension and in float64."""

    reference: torch.Tensor
    narrow: torch.Tensor
    """The reference rounded to the output's type, in that type."""
    rounded: torch.Tensor
    """The same in float64."""
    honesty: torch.Tensor
    """Error of the honest answer."""
    magnitude: torch.Tensor
    counted: torch.Tensor | None
    """Elements where all of these are finite, whose error the root mean square takes in; None for every one."""

    def only(self, values: torch.Tensor) -> torch.Tensor:
        """Values, with 0 where an element does not count."""
        return values if self.counted is None else values.masked_fill(~self.counted, 0.0)


def _step(tensor: torch.Tensor) -> int:
    return PIECE if tensor.device.type == "cpu" else LARGE_PIECE


def _parts(want: Expectation) -> Iterator[_Part]:
    import torch

    step = _step(want.reference)
    references = want.reference.reshape(-1).split(step)
    honests = want.honest.reshape(-1).split(step)
    magnitudes = references if want.magnitude is None else want.magnitude.reshape(-1).split(step)
    for exact, honest, size in zip(references, honests, magnitudes, strict=True):
        reference, narrow = exact.to(torch.float64), exact.to(honest.dtype)
        rounded = narrow.to(torch.float64)
        honesty = honest.to(torch.float64) - reference
        finite = torch.isfinite(honesty + (rounded - reference))
        counted = None if bool(finite.all()) else finite
        yield _Part(reference, narrow, rounded, honesty, size.to(torch.float64).abs(), counted)


def _compared(
    got: torch.Tensor, part: _Part, want: Expectation
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which elements are right, their errors, and their errors over tolerance (infinite for a mismatch in kind)."""
    import torch

    actual = got.to(torch.float64)
    same = actual == part.rounded
    if part.counted is not None:
        nan = torch.isnan(part.rounded)
        both = torch.isnan(actual) & nan
        if want.nan_payload:
            kind = _kind(got)
            both &= got.contiguous().view(kind) == part.narrow.contiguous().view(kind)
        same |= both
    error = (actual - part.reference).abs_()
    if want.exact:
        right, allowed = same, torch.full_like(error, TINY[want.dtype])
    else:
        allowed = _allowed(part, want)
        near = error <= allowed
        if part.counted is not None:
            near &= torch.isfinite(part.reference)
        right = same | near
    share = (error / allowed).masked_fill_(same, 0.0)
    return right, error, torch.where(torch.isnan(share), float("inf"), share)


def _allowed(part: _Part, want: Expectation) -> torch.Tensor:
    """|y − r| ≤ factor · (eps(output) · |r| + eps(accumulate) · sqrt(terms) · magnitude) + tiny."""
    gathered, factor = _gathered(want), want.tolerance.factor
    if want.magnitude is None:
        return part.magnitude.mul(factor * (EPS[want.dtype] + gathered)).add_(TINY[want.dtype])
    size = part.reference.abs().mul_(EPS[want.dtype])
    return size.add_(part.magnitude, alpha=gathered).mul_(factor).add_(TINY[want.dtype])


def _gathered(want: Expectation) -> float:
    return EPS.get(want.tolerance.accumulate, 0.0) * math.sqrt(max(want.terms, 1))


def _squares(values: torch.Tensor, scale: float) -> torch.Tensor:
    """Sum of squares of values over a scale."""
    import torch

    scaled = values if scale == 1.0 else values / scale
    return torch.dot(scaled, scaled)


def _yardstick(want: Expectation) -> Yardstick | None:
    """Measured once for each expectation."""
    if not want.yardstick:
        want.yardstick.append(None if want.exact else _measured(want))
    return want.yardstick[0]


def _measured(want: Expectation) -> Yardstick | None:
    """Root mean square of the honest answer's error, and a floor of about one rounding; None when nothing is finite."""
    import torch

    scale = 1.0
    if want.dtype is DType.F64:  # the squares of narrower types are numbers as they are
        scale = max(float(part.only(part.reference).abs().max()) for part in _parts(want)) or 1.0
    count = 0
    sums = torch.zeros(3, dtype=torch.float64, device=want.reference.device)
    for part in _parts(want):
        count += part.reference.numel() if part.counted is None else int(part.counted.sum())
        rows = (part.reference, part.magnitude, part.honesty)
        sums = sums + torch.stack([_squares(part.only(each), scale) for each in rows])
    if not count:
        return None
    size, magnitude, honesty = (math.sqrt(float(each) / count) for each in sums)
    floor = EPS[want.dtype] * size + _gathered(want) * magnitude / 2 + TINY[want.dtype] / scale
    return Yardstick(count, scale, want.tolerance.rms_ratio * honesty + floor)


def _integers(
    got: torch.Tensor, want: Expectation, workload: str, output: str, unwritten: Mask | None
) -> Judgement:
    actual, reference = got.cpu().numpy(), want.reference.cpu().numpy().astype(got.cpu().numpy().dtype)
    missing = np.zeros(actual.shape, np.bool_) if unwritten is None else unwritten
    wrong = (actual != reference) | missing
    if not wrong.any():
        return Judgement(None, "", 0.0)
    error = np.abs(actual.astype(np.float64) - reference.astype(np.float64))
    there, here = reference.astype(np.float64), actual.astype(np.float64)
    mismatch = _mismatch(workload, output, here, there, wrong, missing)
    most = int(error[wrong].max())
    return Judgement(
        mismatch.model_copy(update={"max_ulp": most}),
        "unwritten" if _most(missing, wrong) else "values",
        float("inf"),
    )


def _floats(
    got: torch.Tensor, want: Expectation, workload: str, output: str, unwritten: Mask | None, excess: float
) -> Judgement:
    """The description of a failure. excess: the error that `acceptable` found."""
    actual: Floats = got.double().cpu().numpy()
    reference: Floats = want.reference.double().cpu().numpy()
    missing = np.zeros(actual.shape, np.bool_) if unwritten is None else unwritten
    compared = [
        _compared(some, part, want)
        for some, part in zip(got.reshape(-1).split(_step(got)), _parts(want), strict=True)
    ]
    right, error, share = (
        np.concatenate([each[which].cpu().numpy() for each in compared]).reshape(actual.shape)
        for which in range(3)
    )
    wrong = ~right | missing
    if wrong.any():
        mismatch = _mismatch(workload, output, actual, reference, wrong, missing)
        ulps = _ulps(got, want.reference.to(got.dtype), wrong)
        reason = _reason(actual, reference, error, wrong, missing, want)
        largest = float(share.max(initial=ABOVE))
        return Judgement(mismatch.model_copy(update={"max_ulp": ulps}), reason, largest)
    mismatch = _mismatch(workload, output, actual, reference, error > 0, missing)
    ulps = _ulps(got, want.reference.to(got.dtype), error > 0)
    pattern = (
        f"each element is within tolerance, but the error as a whole is {excess:.3g} times what is allowed"
    )
    return Judgement(mismatch.model_copy(update={"max_ulp": ulps, "pattern": pattern}), "precision", excess)


def _reason(
    actual: Floats, reference: Floats, error: Floats, wrong: Mask, missing: Mask, want: Expectation
) -> Reason:
    special = ~np.isfinite(reference)
    if not (wrong & ~special).any():
        return "nonfinite"
    if _most(missing, wrong):
        return "unwritten"
    near = error <= COARSE * np.abs(reference)
    overflow = np.isinf(actual) & (np.abs(reference) > 65504) & (np.sign(actual) == np.sign(reference))
    if not want.exact and _most(near | overflow, wrong):
        return "precision"
    if _most(~np.isfinite(actual) & ~special, wrong):
        return "nonfinite"
    return "values"


def _most(part: Mask, wrong: Mask) -> bool:
    return bool((part & wrong).sum() >= MAJORITY * wrong.sum())


def _mismatch(
    workload: str, output: str, actual: Floats, reference: Floats, wrong: Mask, missing: Mask
) -> Mismatch:
    first = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    with np.errstate(all="ignore"):
        error = np.abs(actual - reference)[wrong]
        finite = error[np.isfinite(error)]
        relative = (error / np.abs(reference[wrong]))[np.isfinite(error) & (reference[wrong] != 0)]
    written = wrong & ~missing
    with np.errstate(all="ignore"):
        law, ratio = relation(actual, reference, written)
    pattern = describe(wrong)
    if pattern != "every element" and np.array_equal(wrong, ~np.isfinite(reference)):
        pattern = "exactly where the reference is NaN or infinite"
    return Mismatch(
        workload=workload,
        output=output,
        wrong=int(wrong.sum()),
        total=int(wrong.size),
        unwritten=int(missing.sum()),
        nan=int((np.isnan(actual) & ~np.isnan(reference)).sum()),
        inf=int((np.isinf(actual) & ~np.isinf(reference)).sum()),
        first=first,
        got=None if missing[first] else float(actual[first]),
        expected=float(reference[first]),
        max_abs=float(finite.max()) if finite.size else None,
        max_rel=float(relative.max()) if relative.size else None,
        pattern=f"{pattern}; there {law}" if law else pattern,
        ratio=ratio,
    )


def _ordered(values: torch.Tensor) -> npt.NDArray[Any]:
    """The bit patterns of a float tensor as signed integers."""
    return values.contiguous().view(_kind(values)).cpu().numpy().astype(np.int64)


def _kind(values: torch.Tensor) -> torch.dtype:
    """The signed integers as wide as these floats."""
    import torch

    return {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]


def _ulps(got: torch.Tensor, rounded: torch.Tensor, wrong: Mask) -> int | None:
    """Largest distance in units of the last place among wrong finite elements; None when there are none."""

    def rank(values: torch.Tensor) -> npt.NDArray[np.int64]:
        bits = _ordered(values)
        lowest = -(1 << (8 * values.element_size() - 1))
        return np.where(bits < 0, lowest - bits, bits)

    import torch

    finite = wrong & torch.isfinite(got).cpu().numpy() & torch.isfinite(rounded).cpu().numpy()
    if not finite.any():
        return None
    one, other = rank(got)[finite], rank(rounded)[finite]
    return max(abs(int(a) - int(b)) for a, b in zip(*_extremes(one, other), strict=True))


def _extremes(
    one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The pairs among which the largest distance is, found in floats so that 64-bit ranks cannot overflow."""
    distance = np.abs(one.astype(np.float64) - other.astype(np.float64))
    keep = distance >= distance.max() * (1 - 1e-9)
    return one[keep][:16], other[keep][:16]
