"""prove: did the target instructions run, how often, how much of the work did they do, and does the answer depend on them?

Contract
- Counts are exact: the emulator's own, or counters put before each instruction (`tools.instrument`) where a device cannot count. A family
  reaches `executed` when it is in the machine code *and* ran; text alone, or code that never ran, proves nothing.
- A required family that has an effect reaches `load_bearing` when a copy without that effect (`tools.knockout`) gives a wrong answer on
  the same inputs. A copy that faults or hangs proves nothing, nor does one that still gives the right answer.
- Families that only order or prepare are met once they ran.
- Counts and copies run on a small named workload, never on a hidden one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sandbox.device import HANGS, Counts, Device, OnUnwritten, Outcome, Program
from sandbox.ptx.families import FAMILIES, family_of
from sandbox.ptx.layout import instructions
from sandbox.ptx.limits import MAP_DTYPES
from sandbox.ptx.nodes import Instruction, Module
from sandbox.ptx.plan import Plan, PlanError
from sandbox.ptx.printer import print_module
from tasks.errors import CannotJudge, InfraError, LaunchRefused
from tasks.expressions import evaluate
from tasks.schema import Role, TargetRule
from tools.assemble import assemble
from tools.check import HEAVY, ROLES
from tools.evaluation import Depth, Target
from tools.instrument import Instrumented, instrument
from tools.knockout import RULES, NoCopy, knocked_out
from tools.problem import Problem, derived, named_workloads, problem, work_of
from tools.trial import FILLS, RESIDUES, Trial, compared, limits_of

if TYPE_CHECKING:
    from tasks.registry import LoadedTask

LINES = 6
"""Lines named in a note, at most."""
TENSOR_COPIES = frozenset({"tma_load", "tma_store", "tma_reduce"})

Without = Literal["", "changed", "unchanged", "fault", "hang"]
"""What became of the answer without a family; '' when that could not be tried."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one family did in a run. dead: lines with an instruction of the family that never ran."""

    executed: int
    flops: float
    bytes: float
    dead: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """What proving gave."""

    targets: tuple[Target, ...]
    workload: str
    """On which it was counted."""


def prove(program: Program, task: LoadedTask, device: Device, seed: int, targets: Sequence[Target]) -> Proof:
    """The evidence for the families of a candidate that check passed. Raises CannotJudge, InfraError."""
    made = _problem(task, seed)
    copies = _copies(program, device, [each for each in targets if each.required])
    counts = _counted(copies, made, device)
    used = usage(program.module, counts, _tensor_bytes(program.plan, made)) if counts is not None else None
    flops, total = evaluate(task.task.work.flops, made.axes), evaluate(task.task.work.bytes, made.axes)
    found: list[Target] = []
    for target in targets:
        if used is None:
            note = f"{target.note}; it could not be counted" if target.note else "it could not be counted"
            found.append(target.model_copy(update={"note": note}))
            continue
        proven = executed(target, used.get(target.family), flops, total)
        if proven.required and proven.depth is Depth.EXECUTED:
            proven = _weighed(proven, copies, made, task, device, seed)
        found.append(proven)
    return Proof(tuple(found), made.label)


def met(rule: TargetRule, extra: Sequence[str], targets: Sequence[Target]) -> bool:
    """Every family of `all` and of `extra` is met, and one of `any` when that is given."""
    reached = {target.family for target in targets if target.met}
    wanted = {*rule.all, *extra}
    return wanted <= reached and (not rule.any or bool(reached & set(rule.any)))


def usage(module: Module, counts: Counts, tensor_bytes: int | None = None) -> dict[str, Usage]:
    """Family → what it did, for every family that stands in the module. tensor_bytes: of one tensor copy, where they are all alike."""
    sites: dict[str, list[tuple[tuple[str, int, str], Instruction]]] = {}
    for function in module.functions:
        for instruction in instructions(function.body):
            family = family_of(instruction)
            if family is not None:
                site = (function.name, instruction.span.line, instruction.name)
                sites.setdefault(family, []).append((site, instruction))
    return {family: _usage(family, found, counts, tensor_bytes) for family, found in sites.items()}


def executed(target: Target, used: Usage | None, flops: int, moved: int) -> Target:
    """The target with its executions and their share of the task's work; met when it ran and nothing more is to be shown."""
    ran = used.executed if used is not None else 0
    depth = Depth.EXECUTED if target.depth is Depth.IN_SASS and ran else target.depth
    share = None
    if used is not None and used.flops and flops:
        share = min(used.flops / flops, 1.0)  # padding does more than the task needs
    elif used is not None and used.bytes and moved:
        share = min(used.bytes / moved, 1.0)
    reached = depth is Depth.EXECUTED and target.family not in RULES
    return target.model_copy(
        update={
            "depth": depth,
            "executed": ran,
            "share": share,
            "met": target.required and reached,
            "note": _note(target, used, ran),
        }
    )


def weighed(target: Target, without: Without, where: str, reason: str = "") -> Target:
    """The target with what became of the answer without it. where: the workload; reason: why it could not be tried."""
    name = target.family
    if without == "changed":
        update = {"depth": Depth.LOAD_BEARING, "met": target.required, "knocked_out": without}
        return target.model_copy(update=update)
    told = {
        "unchanged": f"without {name} the output on {where} does not change: its result is not used, or comes to nothing",
        "fault": f"{name} ran, but without it the kernel faults, so it is not shown that the answer depends on it",
        "hang": f"{name} ran, but without it the kernel does not end, so it is not shown that the answer depends on it",
        "": f"{name} ran; it could not be tried without it ({reason})",
    }[without]
    note = f"{told}; {target.note}" if target.note else told
    # What cannot be tried is not held against the candidate.
    return target.model_copy(
        update={"met": target.required and not without, "knocked_out": without, "note": note}
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    counted: Program | None
    """What to run for counting; None when it cannot be counted."""
    counters: Instrumented | None
    """How to read it; None where the device counts by itself."""
    without: Mapping[str, Program | str]
    """Family → the copy without it, or why there is none."""


def _copies(program: Program, device: Device, required: Sequence[Target]) -> _Copies:
    """Everything that must be assembled, side by side."""
    need_code = device.traits.timed
    instrumented = None if device.traits.counts else instrument(program.module)

    def built(module: Module) -> Program | str:
        if not need_code:
            return replace(program, module=module, cubin=None)
        result = assemble(print_module(module), program.arch)
        if result.cubin is None:
            return "the copy does not assemble"
        return replace(program, module=module, cubin=result.cubin)

    def without(family: str) -> Program | str:
        try:
            return built(knocked_out(program.module, family))
        except NoCopy as form:
            return f"there is no rule for {form}"

    families = [each.family for each in required if each.family in RULES and each.depth is Depth.IN_SASS]
    with ThreadPoolExecutor(max_workers=4) as pool:
        counting = pool.submit(built, instrumented.module) if instrumented is not None else None
        copies = dict(zip(families, pool.map(without, families), strict=True))
        counted = counting.result() if counting is not None else program
    if isinstance(counted, str) or (instrumented is None and not device.traits.counts):
        return _Copies(None, None, copies)
    return _Copies(counted, instrumented, copies)


def _counted(copies: _Copies, made: Problem, device: Device) -> Counts | None:
    """Exact counts of one run; None when the candidate cannot be counted."""
    if copies.counted is None:
        return None
    counters = copies.counters
    names = () if counters is None else (counters.variable,)
    outcome = _run(copies.counted, device, made, names)
    if outcome is None or outcome.fault is not None:
        return None
    if counters is None:
        return outcome.counts
    if counters.variable not in outcome.variables:
        raise InfraError(
            f"the counted copy has lost its counters {counters.variable}; please report the kernel"
        )
    return counters.counts(outcome.variables[counters.variable].tobytes())


def _run(program: Program, device: Device, made: Problem, variables: tuple[str, ...] = ()) -> Outcome | None:
    """One run of a copy on a problem; None when it cannot be loaded or launched."""
    limits = replace(
        limits_of(made, program), on_unwritten=OnUnwritten.POISON, poison=RESIDUES[1], variables=variables
    )
    try:
        session = device.load(program)
        try:
            return session.run(made.axes, made.buffers(made.filled(FILLS[0])), limits)
        finally:
            session.close()
    except (LaunchRefused, PlanError):
        return None


def _weighed(
    target: Target, copies: _Copies, made: Problem, task: LoadedTask, device: Device, seed: int
) -> Target:
    """What the answer owes to a family: tried on the problem, and where it is unchanged on a larger one too."""
    copy = copies.without.get(target.family)
    if copy is None:
        return target
    if isinstance(copy, str):
        return weighed(target, "", made.label, copy)
    without: Without = ""
    for problem_ in (made, *_larger(made, task, seed)):
        without = _without(copy, device, problem_)
        if without != "unchanged":
            break
    return weighed(target, without, made.label, "the copy cannot be launched")


def _without(copy: Program, device: Device, made: Problem) -> Without:
    outcome = _run(copy, device, made)
    if outcome is None:
        return ""
    if outcome.fault is not None:
        return "hang" if outcome.fault.kind in HANGS else "fault"
    trial = Trial(made, made.filled(FILLS[0]), False, RESIDUES[1])
    return "changed" if compared(trial, outcome)[0] else "unchanged"


def _problem(task: LoadedTask, seed: int) -> Problem:
    chosen = named_workloads(task, (Role.EMULATE,)) or named_workloads(task, ROLES)
    if not chosen:
        raise CannotJudge(f"task {task.task.name} has no workload to count instructions on; give it one")
    workload, name = chosen[0]
    return problem(task, workload, name, derived(seed, name, 0))


def _larger(made: Problem, task: LoadedTask, seed: int) -> Iterable[Problem]:
    """The largest workload that is named and not heavy, unless it is the one at hand."""
    named = [
        (workload, name)
        for workload, name in named_workloads(task, (Role.EMULATE, Role.CHECK))
        if work_of(task, task.bind(workload)) <= HEAVY
    ]
    if named:
        workload, name = max(named, key=lambda each: work_of(task, task.bind(each[0])))
        if name != made.name:
            yield problem(task, workload, name, derived(seed, name, 0))


def _tensor_bytes(plan: Plan, made: Problem) -> int | None:
    """Bytes of one tensor copy, where all maps of the plan have boxes of one size."""
    sizes: set[int | None] = set()
    for each in plan.tensor_maps.values():
        tensors = {**made.task.task.inputs, **made.task.task.outputs}
        own = tensors.get(each.tensor)
        unit = MAP_DTYPES.get(each.dtype or (str(own.dtype) if own is not None else ""))
        sizes.add(None if unit is None else unit * math.prod(evaluate(text, made.axes) for text in each.box))
    return sizes.pop() if len(sizes) == 1 else None


def _usage(
    family: str,
    found: Sequence[tuple[tuple[str, int, str], Instruction]],
    counts: Counts,
    tensor_bytes: int | None,
) -> Usage:
    work_of_one = FAMILIES[family].work
    ran, flops, moved = 0, 0.0, 0.0
    for site, instruction in dict(found).items():  # several alike on one line share one count
        times = counts.by_site.get(site, 0)
        ran += times
        work = work_of_one(instruction) if work_of_one is not None else None
        if work is not None:
            flops += times * work.flops
            moved += times * work.bytes
        moved += counts.bytes_by_site.get(site, 0)
        if family in TENSOR_COPIES and tensor_bytes is not None:
            moved += times * tensor_bytes
    dead = {site[1] for site, _ in found if not counts.by_site.get(site, 0)}
    return Usage(ran, flops, moved, tuple(sorted(dead)))


def _note(target: Target, used: Usage | None, ran: int) -> str:
    if target.depth is not Depth.IN_SASS or used is None:
        return target.note
    if not ran:
        return f"{target.family} is in the machine code but never ran: dead code at {_lines(used.dead)}"
    if used.dead:
        return f"ran {ran} times; never ran at {_lines(used.dead)}"
    return target.note


def _lines(lines: Sequence[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:LINES])
    return f"line{'s' if len(lines) > 1 else ''} {shown}" + (" …" if len(lines) > LINES else "")
