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

from dataclasses import dataclass
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
    wrote.
    """
    if want.dtype not in EPS:
        return _integers(got, want, workload, output, unwritten)
    return _floats(got, want, workload, output, unwritten)


def acceptable(got: torch.Tensor, want: Expectation) -> tuple[bool, float]:
    """Whether `judge` would pass this output, and the largest error over tolerance; on whatever device the tensors are."""
    import torch

    if want.dtype not in EPS:
        right = torch.equal(got, want.reference.to(got.dtype))
        return right, 0.0 if right else float("inf")
    actual, reference = got.to(torch.float64), want.reference.to(torch.float64)
    rounded = reference.to(got.dtype).to(torch.float64)
    same = (actual == rounded) | (torch.isnan(actual) & torch.isnan(rounded))
    if want.nan_payload:
        kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        kind = kinds[got.element_size()]
        alike = got.contiguous().view(kind) == reference.to(got.dtype).contiguous().view(kind)
        same &= ~torch.isnan(rounded) | alike
    error, finite = (actual - reference).abs(), torch.isfinite(reference)
    if want.exact:
        return bool(same.all()), 0.0 if bool(same.all()) else float("inf")
    rule = want.tolerance
    size = reference.abs()
    magnitude = size if want.magnitude is None else want.magnitude.to(torch.float64)
    gathered = EPS.get(rule.accumulate, 0.0) * float(np.sqrt(max(want.terms, 1))) * magnitude
    allowed = rule.factor * (EPS[want.dtype] * size + gathered) + TINY[want.dtype]
    right = same | (finite & (error <= allowed))
    share = torch.where(same, torch.zeros_like(error), error / allowed)
    worst = float(torch.nan_to_num(share, nan=float("inf")).max()) if share.numel() else 0.0
    if not bool(right.all()):
        return False, max(worst, 1.0)
    honest = want.honest.to(torch.float64)
    counted = finite & torch.isfinite(actual) & torch.isfinite(honest)
    if not bool(counted.any()):
        return True, min(worst, 1.0)
    scale = float(size[counted].max()) or 1.0

    def rms(values: torch.Tensor) -> float:
        return float(torch.sqrt(torch.mean(torch.square(values[counted] / scale))))

    floor = EPS[want.dtype] * rms(reference) + rms(gathered) / 2 + TINY[want.dtype] / scale
    excess = rms(actual - reference) / (rule.rms_ratio * rms(honest - reference) + floor)
    return (True, min(worst, 1.0)) if excess <= 1 else (False, excess)


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
    got: torch.Tensor, want: Expectation, workload: str, output: str, unwritten: Mask | None
) -> Judgement:
    import torch

    actual: Floats = got.to(torch.float64).cpu().numpy()
    reference: Floats = want.reference.to(torch.float64).cpu().numpy()
    rounded: Floats = want.reference.to(got.dtype).to(torch.float64).cpu().numpy()
    missing = np.zeros(actual.shape, np.bool_) if unwritten is None else unwritten
    with np.errstate(all="ignore"):
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        if want.nan_payload:
            same &= ~np.isnan(rounded) | (_ordered(got) == _ordered(want.reference.to(got.dtype)))
        error = np.abs(actual - reference)
        allowed = np.zeros_like(reference) if want.exact else _allowed(reference, want)
        right = same if want.exact else same | (np.isfinite(reference) & (error <= allowed))
        wrong = ~right | missing
        worst = np.where(same, 0.0, error / np.where(allowed > 0, allowed, TINY[want.dtype]))
        largest = float(np.max(np.where(np.isnan(worst), np.inf, worst), initial=0.0))
    if wrong.any():
        mismatch = _mismatch(workload, output, actual, reference, wrong, missing)
        ulps = _ulps(got, want.reference.to(got.dtype), wrong)
        reason = _reason(actual, reference, error, wrong, missing, want)
        return Judgement(mismatch.model_copy(update={"max_ulp": ulps}), reason, max(largest, 1.0))
    if want.exact or (excess := _rms_excess(actual, reference, want)) <= 1:
        return Judgement(None, "", min(largest, 1.0))
    mismatch = _mismatch(workload, output, actual, reference, error > 0, missing)
    ulps = _ulps(got, want.reference.to(got.dtype), error > 0)
    pattern = (
        f"each element is within tolerance, but the error as a whole is {excess:.3g} times what is allowed"
    )
    return Judgement(mismatch.model_copy(update={"max_ulp": ulps, "pattern": pattern}), "precision", excess)


def _allowed(reference: Floats, want: Expectation) -> Floats:
    """|y − r| ≤ factor · (eps(output) · |r| + eps(accumulate) · sqrt(terms) · magnitude) + tiny."""
    rule = want.tolerance
    size = np.abs(reference)
    gathered = EPS.get(rule.accumulate, 0.0) * np.sqrt(max(want.terms, 1)) * _magnitude(reference, want)
    return rule.factor * (EPS[want.dtype] * size + gathered) + TINY[want.dtype]


def _rms_excess(actual: Floats, reference: Floats, want: Expectation) -> float:
    """Root mean square error over what is allowed: that of the honest answer, and a floor of about one
    rounding.
    """
    import torch

    honest: Floats = want.honest.to(torch.float64).cpu().numpy()
    finite = np.isfinite(reference) & np.isfinite(actual) & np.isfinite(honest)
    if not finite.any():
        return 0.0
    scale = float(np.max(np.abs(reference[finite]))) or 1.0

    def rms(values: Floats) -> float:
        return float(np.sqrt(np.mean(np.square(values[finite] / scale))))

    gathered = (
        EPS.get(want.tolerance.accumulate, 0.0)
        * np.sqrt(max(want.terms, 1))
        * rms(_magnitude(reference, want))
    )
    floor = EPS[want.dtype] * rms(reference) + gathered / 2 + TINY[want.dtype] / scale
    with np.errstate(invalid="ignore"):  # infinite elements were judged before, one by one
        error, honesty = actual - reference, honest - reference
    return rms(error) / (want.tolerance.rms_ratio * rms(honesty) + floor)


def _magnitude(reference: Floats, want: Expectation) -> Floats:
    return np.abs(reference) if want.magnitude is None else want.magnitude.double().cpu().numpy()


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
    import torch

    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(kinds[values.element_size()]).cpu().numpy().astype(np.int64)


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
