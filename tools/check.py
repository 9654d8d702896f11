"""check: is the output right, on every workload, whatever the memory held before, launch after launch?

Rules (each closes a way in which a wrong kernel has passed somewhere)
- All workloads of the roles emulate, check and hidden, in this order and within each the cheapest first, with
  inputs from secret seeds; the first that fails is told whole.
- The module stays loaded through all runs, at least `LAUNCHES` of them, each with fresh contents: a counter
  or a cache in module variables is caught. What goes wrong is run again after a reload, to tell state from
  plain error; and each workload runs also as the first launch of a module just loaded.
- Outputs hold one pattern, then another, then the kernel's own last answer, right for a half of the new data
  only: elements never written, and work skipped because "it is already there", show.
- Kernels also run with the first, and with the last, warp of each block and blocks of the grid ahead of the others: a
  missing barrier that goes unseen while all keep in step shows (`race`).
- Inputs must come back unchanged, byte for byte; the reference is computed from a pristine copy.
- A read of memory that nothing wrote is followed up: the kernel runs on with different fillings in such
  places. When the answer depends on them it is wrong (`residue`), else it is a warning.
- A GPU can neither see what was written nor choose an order. There the same data run over two patterns and three residues (the device
  fills shared memory, scratch and red zones), in the loaded module and in a fresh one, at other addresses, and once more than that; other
  data run at the same addresses; a random number of other launches comes before each run. Answers that differ in bits are reported, not
  punished; what is wrong only sometimes is a race (`tools.blame`).
- Faults become verdicts by one table; an `InfraError` of the device is passed on and is never a verdict.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sandbox.device import Device, Placement, Program
from sandbox.ptx.plan import PlanError
from tasks.errors import LaunchRefused
from tasks.schema import Role, Workload
from tools.evaluation import Verdict
from tools.judging import AHEAD, Bench, CheckResult, Stopped, small_variables
from tools.problem import Problem, derived, mixed, named_workloads, problem, threads, work_of
from tools.trial import FILLS, RESIDUES, ZERO, Trial

if TYPE_CHECKING:
    from tasks.registry import LoadedTask

ROLES = (Role.EMULATE, Role.CHECK, Role.HIDDEN)
LAUNCHES = 8
"""Runs of the plan in one loaded module, at the least."""
HEAVY, HEAVY_ON_GPU = 20_000_000, 1_000_000_000
"""FLOPs and bytes of a workload above which it is run a few times only: over patterns, and over an earlier answer."""


def check(program: Program, task: LoadedTask, device: Device, seed: int) -> CheckResult:
    """Judge a program on every workload. Raises InfraError when the device cannot tell."""
    try:
        bench = Bench(program, device, random.Random(derived(seed, "dummies")))
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LOAD_ERROR, f"the module cannot be loaded: {refusal}")
    try:
        visit = _by_orders if device.traits.orders else _by_chance
        for workload, name in named_workloads(task, ROLES):
            bench.names += (name,)
            with threads(work_of(task, task.bind(workload))):
                visit(bench, task, workload, name, seed)
        _often_enough(bench, task, seed)
        return bench.passed()
    except Stopped as stop:
        return stop.result
    except LaunchRefused as refusal:
        return CheckResult(Verdict.LAUNCH_ERROR, f"the launch is refused: {refusal}")
    except PlanError as error:
        return CheckResult(Verdict.BAD_PLAN, f"the launch plan cannot be used: {error}")
    finally:
        bench.close()


def _by_orders(bench: Bench, task: LoadedTask, workload: Workload, name: str, seed: int) -> None:
    """A workload on a device that sees what is written, and chooses orders."""
    first, second = (problem(task, workload, name, derived(seed, name, k)) for k in range(2))
    left = bench.judged(Trial(first, first.filled(FILLS[0]), False, RESIDUES[0]))
    light = work_of(task, first.axes) <= HEAVY
    if light:
        again = bench.fresh(Trial(first, first.filled(FILLS[1]), False, RESIDUES[1]))
        bench.repeated(left, again)
        left = bench.judged(Trial(second, second.filled(FILLS[1]), False, RESIDUES[1]))
        for order, made, fill in zip(AHEAD, (second, first), FILLS, strict=True):
            bench.judged(Trial(made, made.filled(fill), False, RESIDUES[0], order))
        first, second = second, first
    for rows in (False, True) if light and _has_rows(first) else (False,):
        first = mixed(first, second, derived(seed, name, "mixed", rows), rows=rows)
        left = bench.judged(Trial(first, left, True, RESIDUES[1]))
    if bench.unwritten is not None:
        bench.judged(Trial(first, first.filled(ZERO), False, ZERO))


def _by_chance(bench: Bench, task: LoadedTask, workload: Workload, name: str, seed: int) -> None:
    """A workload on a device that does neither."""
    bench.accepted.clear()
    bench.watched = small_variables(bench.program) if len(bench.names) == 1 else ()
    first, second = (problem(task, workload, name, derived(seed, name, k)) for k in range(2))
    light = work_of(task, first.axes) <= HEAVY_ON_GPU
    over = Trial(first, first.filled(FILLS[1]), False, RESIDUES[1])
    before = bench.fresh(over) if light else bench.judged(over)
    elsewhere = Trial(first, first.filled(FILLS[0]), False, RESIDUES[0], placement=Placement.MOVE)
    left = bench.judged(elsewhere)
    bench.repeated(before, left)
    base, other = first, second
    if light:
        there = Trial(second, second.filled(FILLS[1]), False, RESIDUES[1], placement=Placement.KEEP)
        left = bench.judged(there)
        base, other = second, first
    for rows in (False, True) if light and _has_rows(first) else (False,):
        base = mixed(base, other, derived(seed, name, "mixed", rows), rows=rows)
        left = bench.judged(Trial(base, left, True, RESIDUES[1], placement=Placement.KEEP))
    for residue in (ZERO, *RESIDUES) if light else (ZERO,):
        placement = Placement.MOVE if residue == ZERO else Placement.ANY
        again = Trial(first, first.filled(residue), False, residue, placement=placement)
        bench.repeated(before, bench.judged(again))


def _often_enough(bench: Bench, task: LoadedTask, seed: int) -> None:
    """More runs of the first workload, each on new data, until the module has run `LAUNCHES` times."""
    workload, name = named_workloads(task, ROLES)[0]
    for extra in range(LAUNCHES):
        if bench.launches >= LAUNCHES:
            break
        fresh = problem(task, workload, name, derived(seed, name, "extra", extra))
        bench.judged(Trial(fresh, fresh.filled(FILLS[extra % 2]), False, RESIDUES[extra % 2]))


def _has_rows(made: Problem) -> bool:
    return any(tensor.ndim > 1 for tensor in made.inputs.values())
