"""Proof and speed in words for a model: what was shown, what is missing, and how far the roof is."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.device import HANGS, Fault
from tools.evaluation import Depth, Reading, Target, Timing
from tools.timing.roof import reached

NEAR = 0.85
"""Share of the roof above which there is nothing left to say of it."""


def proof(target: Target) -> str:
    """One required family: reached or not, the evidence, and what is missing."""
    state = "reached" if target.met else "not reached"
    facts = [_depth(target)]
    if target.executed:
        facts.append(f"executed {target.executed:,} times")
    if target.share is not None:
        facts.append(f"{target.share:.0%} of the work")
    note = f". {target.note}" if target.note else ""
    advice = ""
    if target.knocked_out == "unchanged" and not target.met:
        advice = ". What it computes must reach the output"
    return f"`{target.family}`: {state} ({', '.join(filter(None, facts))}){note}{advice}"


def _depth(target: Target) -> str:
    match target.depth:
        case Depth.LOAD_BEARING:
            return "load-bearing: without it the answer changes"
        case Depth.EXECUTED:
            return "decorative" if target.knocked_out == "unchanged" else ""
        case Depth.IN_SASS:
            return "in the machine code" if target.executed is None else "in the machine code, never executed"
        case Depth.IN_PTX:
            return "in the PTX only"
        case Depth.ABSENT:
            return "absent"


def speed(timing: Timing) -> str:
    """The reading, what it is worth, and what is left to gain."""
    said = [
        f"{timing.candidate_ms:.4g} ms against {timing.baseline_ms:.4g} ms of {timing.baseline} on {timing.device}: "
        f"{timing.speedup:.3f} times as fast (95 % interval {timing.low:.3f} to {timing.high:.3f})."
    ]
    if timing.verdict == "same":
        said.append("That is the same within noise.")
    elif timing.verdict == "unstable":
        said.append("The card was too restless for this to count.")
    elif timing.verdict == "suspect":
        said.append(
            "That is faster than the hardware can do this work, so some of it is skipped: do all of it."
        )
    if timing.readings and timing.verdict != "suspect":
        said += _room(timing.readings[-1])
    return " ".join(said)


def _room(reading: Reading) -> Sequence[str]:
    """How far the candidate is from what bounds it."""
    found = reached(reading)
    if found is None:
        return ()
    peak, share, bound = found
    if share >= NEAR:
        return (f"It reaches {share:.0%} of the {bound} roof: little is left to gain.",)
    return (f"It reaches {share:.0%} of the {bound} roof ({peak:.4g} ms at the chip's peak).",)


def faster(best: Timing | None, this: Timing | None) -> str:
    """That an earlier kernel is faster, beyond both intervals; '' where that is not known."""
    if best is None or this is None or best.baseline != this.baseline or best.low <= this.high:
        return ""
    return f"is faster ({best.speedup:.3f} times {best.baseline}, this one {this.speedup:.3f})"


def hint(fault: Fault | None) -> str:
    """What to look at where a hang has no place; '' where more is known, or nothing helps."""
    if fault is None or fault.kind not in HANGS or fault.line is not None or fault.waiting:
        return ""
    return (
        "No machine could say where it hangs. Look first at barriers that not every thread reaches, at mbarrier phases and expected "
        "byte counts, and at loops whose exit may never come true."
    )
