"""prove: did the target instructions run, how often, and how much of the work did they do?

Contract: from exact counts of one emulated workload to the `Target` records that inspect began. A family
reaches `executed` when it is in the machine code *and* ran; text alone, or code that never ran, proves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.device import Counts
from sandbox.ptx.families import FAMILIES, family_of
from sandbox.ptx.layout import instructions
from sandbox.ptx.nodes import Instruction, Module
from tasks.expressions import evaluate
from tasks.schema import TargetRule, Work
from tools.evaluation import Depth, Target

PROVABLE = Depth.EXECUTED
"""The depth that the emulator can prove, and that a required family must reach."""
LINES = 6
"""Lines named in a note, at most."""
ORDER = list(Depth)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one family did in a run. dead: lines with an instruction of the family that never ran."""

    executed: int
    flops: float
    bytes: float
    dead: tuple[int, ...]


def prove(
    targets: Sequence[Target], module: Module, counts: Counts, work: Work, axes: Mapping[str, int]
) -> tuple[Target, ...]:
    """The targets with executions, share of the task's work on these axes, depth and what is missing."""
    used = usage(module, counts)
    total = Work(flops=str(evaluate(work.flops, axes)), bytes=str(evaluate(work.bytes, axes)))
    return tuple(
        _proven(target, used.get(target.family), int(total.flops), int(total.bytes)) for target in targets
    )


def met(rule: TargetRule, extra: Sequence[str], targets: Sequence[Target]) -> bool:
    """Every family of `all` and of `extra` is met, and one of `any` when that is given."""
    reached = {target.family for target in targets if target.met}
    wanted = {*rule.all, *extra}
    return wanted <= reached and (not rule.any or bool(reached & set(rule.any)))


def usage(module: Module, counts: Counts) -> dict[str, Usage]:
    """Family → what it did, for every family that stands in the module."""
    sites: dict[str, list[tuple[int, Instruction, int]]] = {}
    for function in module.functions:
        for instruction in instructions(function.body):
            family = family_of(instruction)
            if family is not None:
                line = instruction.span.line
                ran = counts.by_site.get((function.name, line, instruction.name), 0)
                sites.setdefault(family, []).append((line, instruction, ran))
    return {family: _usage(family, found) for family, found in sites.items()}


def _usage(family: str, found: Sequence[tuple[int, Instruction, int]]) -> Usage:
    work_of = FAMILIES[family].work
    executed, flops, moved = 0, 0.0, 0.0
    counted: set[tuple[int, str]] = set()
    for line, instruction, ran in found:
        if (line, instruction.name) in counted:  # several alike on one line share one count
            continue
        counted.add((line, instruction.name))
        executed += ran
        if work_of is not None and (work := work_of(instruction)) is not None:
            flops += ran * work.flops
            moved += ran * work.bytes
    return Usage(executed, flops, moved, tuple(sorted({line for line, _, ran in found if not ran})))


def _proven(target: Target, used: Usage | None, flops: int, moved: int) -> Target:
    executed = used.executed if used is not None else 0
    depth = target.depth
    if depth is Depth.IN_SASS and executed:
        depth = Depth.EXECUTED
    share = None
    if used is not None and used.flops and flops:
        share = min(used.flops / flops, 1.0)  # padding does more than the task needs
    elif used is not None and used.bytes and moved:
        share = min(used.bytes / moved, 1.0)
    reached = ORDER.index(depth) >= ORDER.index(PROVABLE)
    return target.model_copy(
        update={
            "depth": depth,
            "executed": executed,
            "share": share,
            "met": target.required and reached,
            "note": _note(target, used, executed),
        }
    )


def _note(target: Target, used: Usage | None, executed: int) -> str:
    if target.depth is not Depth.IN_SASS or used is None:
        return target.note
    if not executed:
        return f"{target.family} is in the machine code but never ran: dead code at {_lines(used.dead)}"
    if used.dead:
        return f"ran {executed} times; never ran at {_lines(used.dead)}"
    return target.note


def _lines(lines: Sequence[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:LINES])
    return f"line{'s' if len(lines) > 1 else ''} {shown}" + (" …" if len(lines) > LINES else "")
