"""One sentence for each way in which an output is wrong; the same words for a person and for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox.device import Fault
from tools.evaluation import Mismatch


@dataclass(frozen=True, slots=True)
class _Case:
    mismatch: Mismatch | None
    mutated: tuple[str, ...]
    workload: str
    before: int
    fault: Fault | None
    orders: bool


def explain(
    reason: str,
    mismatches: Sequence[Mismatch],
    mutated: tuple[str, ...],
    workload: str,
    before: int,
    fault: Fault | None,
    *,
    orders: bool = True,
) -> str:
    """A sentence that names the exact cause.

    reason: as in Numerics. before: launches of the loaded module before the wrong one. fault: the read of
    memory that nothing wrote. orders: the device chose in which order warps and blocks went on.
    """
    case = _Case(mismatches[0] if mismatches else None, mutated, workload, before, fault, orders)
    return _SENTENCES[reason](case)


def where(mismatch: Mismatch) -> str:
    """`y[3, 4] = 1.5 instead of 2.5`, and how many and which elements are wrong."""
    index = ", ".join(str(place) for place in mismatch.first or ())
    return (
        f"{mismatch.wrong} of {mismatch.total} elements of {mismatch.output} are wrong ({mismatch.pattern}); "
        f"first {mismatch.output}[{index}] = {_number(mismatch.got)} instead of {_number(mismatch.expected)}"
    )


def _number(value: float | None) -> str:
    return "nothing (never written)" if value is None else f"{value:.8g}"


def _place(fault: Fault | None) -> str:
    if fault is not None:
        return fault.message
    return "it changes with what shared memory, scratch or the output held before the launch"


def _values(case: _Case) -> str:
    assert case.mismatch is not None
    return f"on workload {case.workload}, {where(case.mismatch)}"


def _unwritten(case: _Case) -> str:
    assert case.mismatch is not None
    found = case.mismatch
    return (
        f"on workload {case.workload}, {found.unwritten} of {found.total} elements of {found.output} "
        f"are never written ({found.pattern})"
    )


def _precision(case: _Case) -> str:
    return f"close, but further off than the task allows, as arithmetic in too narrow a type gives: {_values(case)}"


def _nonfinite(case: _Case) -> str:
    return f"NaN or infinity is not as in the reference: {_values(case)}"


def _race(case: _Case) -> str:
    if not case.orders:
        return (
            "right in some runs, wrong in others, on the same data, at the same addresses, over the same memory: threads race, as when a "
            f"barrier, a fence or an atomic is missing between what one writes and another reads or writes; {_values(case)}"
        )
    seen = f" {_place(case.fault)};" if case.fault is not None else ""
    return (
        "right when warps and blocks keep in step, wrong when one runs ahead, as it may: a barrier is missing "
        f"between what one warp, or block, writes and another reads or writes;{seen} {_values(case)}"
    )


def _state(case: _Case) -> str:
    return (
        f"right in {_launches(case.before)}, wrong in the next, right again after a reload: "
        f"the kernel keeps state in module variables from launch to launch; {_values(case)}"
    )


def _address(case: _Case) -> str:
    return (
        "right where buffers lie at some addresses, wrong at others, on the same data: it computes with addresses (only their low bits, or "
        f"an alignment beyond the 256 bytes that buffers have); {_values(case)}"
    )


def _launches(number: int) -> str:
    return "the first launch" if number == 1 else f"the first {number} launches"


def _replay(case: _Case) -> str:
    return (
        "right over fresh memory, wrong where the output still held the answer to other inputs: the kernel "
        f"skips work that it takes for done; {_values(case)}"
    )


def _residue(case: _Case) -> str:
    return (
        f"the answer depends on memory or registers that nothing wrote: {_place(case.fault)}; {_values(case)}"
    )


def _input_mutated(case: _Case) -> str:
    names = ", ".join(case.mutated)
    return (
        f"the kernel overwrote its input {names} on workload {case.workload}; inputs must come back unchanged"
    )


_SENTENCES: dict[str, Callable[[_Case], str]] = {
    "values": _values,
    "unwritten": _unwritten,
    "precision": _precision,
    "nonfinite": _nonfinite,
    "state": _state,
    "replay": _replay,
    "residue": _residue,
    "race": _race,
    "address": _address,
    "input_mutated": _input_mutated,
}
