"""The ladder: from a candidate's text to an `Evaluation`, one tool after the other.

Invariants
- Each stage is a function of (job, evaluation so far) alone, importable and picklable: it may run in any
  process.
- The first failure ends the climb: `stopped_at` is set, and its verdict is the answer.
- Until a stage has said otherwise a verdict is below `correct`.
- An `InfraError` passes through: it is not an answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sandbox.device import Device, FaultKind, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.binding import TensorInfo, bind
from sandbox.ptx.candidate import Candidate, read_candidate
from sandbox.ptx.lexer import PtxSyntaxError
from sandbox.ptx.lint import lint
from sandbox.ptx.nodes import Module
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import PlanError
from tasks.errors import CannotJudge, InfraError, InputError, LaunchRefused
from tasks.registry import LoadedTask, load_task
from tasks.schema import TargetRule
from tools import check as checking
from tools import inspect as inspecting
from tools import measure as measuring
from tools import prove as proving
from tools.assemble import AssembleResult
from tools.assemble import assemble as assemble_text
from tools.devices import EMULATOR, device
from tools.enrich import enriched
from tools.evaluation import Diagnostic, Evaluation, Numerics, Stage, Verdict, Warning_
from tools.problem import named_workloads
from tools.timing.schedule import Mode

PLAN_HINT = "Put the launch plan in leading `//!` lines; entry names and `args` must be those of the PTX."


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate to judge.

    text None: there was none, for `reason`. require: families asked for besides the task's own. seed: secret,
    for the inputs. device: `emulator` or `cuda`.
    """

    task: str
    arch: str
    text: str | None
    reason: str = ""
    require: tuple[str, ...] = ()
    seed: int = 0
    device: str = EMULATOR
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs to use; empty: all that suit the architecture."""
    mode: Mode = "quick"
    """How much a timing may cost: quick steers a loop, full is published."""
    against: str | None = None
    """Text of another candidate to time against in the place of the task's baselines."""
    screen: bool = False
    """Check on the emulator first: only what passes there, or cannot be judged there, costs time of a GPU."""
    ahead: bool = True
    """This process will time it too: what that needs is begun while it checks."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """The evaluation after a stage, and files worth keeping: name → contents."""

    evaluation: Evaluation
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


StageFunction = Callable[[Job, Evaluation | None], StageResult]


@dataclass(frozen=True, slots=True)
class _Read:
    """What our own reader made of a text: a candidate, its module, or why not."""

    candidate: Candidate | None
    module: Module | None
    plan_error: PlanError | None
    syntax_error: PtxSyntaxError | None


def assemble(job: Job, evaluation: Evaluation | None = None) -> StageResult:
    """Read the plan, assemble with ptxas, and check that plan and module fit. Starts an evaluation."""
    started = time.monotonic()
    task = load_task(job.task)
    _device(job)  # a device that does not exist is said before any work
    if job.text is None:
        return StageResult(_blank(job, task, Verdict.NO_CANDIDATE, f"no candidate: {job.reason}"))
    read = _read(job.text)
    result = _assembled(job.text, job.arch)
    if result.assembly.ok and read.syntax_error is not None:
        raise CannotJudge(
            f"ptxas accepts this PTX, our own reader does not: {read.syntax_error}; please report the kernel"
        )
    error = read.plan_error or _misfit(read, task)
    diagnostics = result.diagnostics
    if error is not None:
        diagnostics = (_plan_diagnostic(job.text, error), *diagnostics)
        made = _blank(job, task, Verdict.BAD_PLAN, f"the launch plan cannot be used: {error}")
    elif not result.assembly.ok:
        first = next((each for each in diagnostics if each.severity == "error"), None)
        made = _blank(job, task, Verdict.ASSEMBLE_ERROR, _assembler_says(first))
    else:
        made = _blank(job, task, Verdict.LOAD_ERROR, "assembled, not yet run", stopped=False)
    blobs = {"candidate.ptx": _bytes(job.text), "ptxas.log": result.log.encode()}
    if result.cubin is not None:
        blobs["cubin"] = result.cubin
    made = made.model_copy(
        update={"diagnostics": diagnostics, "assembly": result.assembly, "warnings": result.warnings}
    )
    return StageResult(_clocked(made, Stage.ASSEMBLE, started), blobs)


def inspect(job: Job, evaluation: Evaluation | None) -> StageResult:
    """Find the target families in the PTX and in the machine code, and what a reader must be warned of."""
    started = time.monotonic()
    sofar, candidate, module = _climbing(job, evaluation)
    rule = _rule(load_task(job.task), job.arch)
    required = tuple(dict.fromkeys((*rule.all, *rule.any, *job.require)))
    cubin = _assembled(candidate.text, job.arch).cubin
    found = inspecting.inspect(module, candidate.plan, cubin, job.arch, required)
    warnings = _merged(sofar.warnings, found.warnings, _linted(candidate, module))
    made = sofar.model_copy(update={"targets": found.targets, "warnings": warnings})
    return StageResult(_clocked(made, Stage.INSPECT, started))


def check(job: Job, evaluation: Evaluation | None) -> StageResult:
    """Run every workload and compare. Raises InfraError when the device cannot tell."""
    started = time.monotonic()
    sofar, candidate, module = _climbing(job, evaluation)
    program, task = _program(job, candidate, module), load_task(job.task)
    result, told_by = _screened(job, program, task), EMULATOR
    if result is None:
        machine, told_by = _device(job), job.device
        if job.ahead:
            measuring.ahead(task, machine, job.seed, mode=job.mode)
        result = enriched(checking.check(program, task, machine, job.seed), program, task, machine, job.seed)
    made = sofar.model_copy(
        update={
            "device": told_by,
            "verdict": result.verdict,
            "stopped_at": None if result.verdict is Verdict.CORRECT else Stage.CHECK,
            "summary": result.summary,
            "numerics": result.numerics,
            "fault": result.fault,
            "warnings": _merged(sofar.warnings, result.warnings),
            "stdout": result.stdout,
        }
    )
    return StageResult(_clocked(made, Stage.CHECK, started))


def prove(job: Job, evaluation: Evaluation | None) -> StageResult:
    """Count what ran, and decide whether the targets are met."""
    started = time.monotonic()
    sofar, candidate, module = _climbing(job, evaluation)
    task = load_task(job.task)
    proof = proving.prove(_program(job, candidate, module), task, _device(job), job.seed, sofar.targets)
    targets = proof.targets
    rule = _rule(task, job.arch)
    reached = sofar.verdict is Verdict.CORRECT and proving.met(rule, job.require, targets)
    wanted = [target for target in targets if target.required]
    summary = sofar.summary
    if wanted and reached:
        summary += "; targets met: " + ", ".join(each.family for each in wanted if each.met)
    elif wanted:
        summary += "; targets not met: " + "; ".join(
            each.note or each.family for each in wanted if not each.met
        )
    made = sofar.model_copy(update={"targets": targets, "targets_met": reached, "summary": summary})
    return StageResult(_clocked(made, Stage.PROVE, started))


def measure(job: Job, evaluation: Evaluation | None) -> StageResult:
    """Time it, where the device can; a candidate that fails while it is timed stops here."""
    started = time.monotonic()
    sofar, candidate, module = _climbing(job, evaluation)
    found = measuring.measure(
        _program(job, candidate, module),
        load_task(job.task),
        _device(job),
        job.seed,
        mode=job.mode,
        against=None if job.against is None else _rival(job, job.against),
    )
    made = sofar.model_copy(update={"timing": found.timing, "summary": f"{sofar.summary}; {found.note}"})
    if found.verdict is not None:
        failed = {
            "verdict": found.verdict,
            "stopped_at": Stage.MEASURE,
            "summary": found.note,
            "fault": found.fault,
            "targets_met": False,
            "numerics": _spoilt(sofar, found) if found.verdict is Verdict.WRONG_OUTPUT else sofar.numerics,
        }
        made = made.model_copy(update=failed)
    return StageResult(_clocked(made, Stage.MEASURE, started), found.blobs)


STAGES: tuple[tuple[Stage, StageFunction], ...] = (
    (Stage.ASSEMBLE, assemble),
    (Stage.INSPECT, inspect),
    (Stage.CHECK, check),
    (Stage.PROVE, prove),
    (Stage.MEASURE, measure),
)
"""All tools, in order."""


def evaluate(job: Job) -> StageResult:
    """Climb until a stage stops. Raises InfraError when the candidate cannot be judged, InputError for a bad
    task.
    """
    evaluation: Evaluation | None = None
    blobs: dict[str, bytes] = {}
    for _, stage in STAGES:
        result = stage(job, evaluation)
        evaluation = result.evaluation
        blobs |= result.blobs
        if evaluation.stopped_at is not None:
            break
    assert evaluation is not None
    return StageResult(evaluation, blobs)


@lru_cache(maxsize=16)
def _read(text: str) -> _Read:
    try:
        candidate = read_candidate(text)
    except PlanError as error:
        return _Read(None, None, error, None)
    try:
        return _Read(candidate, parse_module(candidate.ptx, candidate.ptx_first_line), None, None)
    except PtxSyntaxError as error:
        return _Read(candidate, None, None, error)


@lru_cache(maxsize=16)
def _assembled(text: str, arch: str) -> AssembleResult:
    candidate = _read(text).candidate
    if candidate is None:
        return assemble_text(text, arch)
    return assemble_text(candidate.ptx, arch, first_line=candidate.ptx_first_line)


def _misfit(read: _Read, task: LoadedTask) -> PlanError | None:
    """The first reason why the plan does not fit the module on some workload; None when it fits or cannot be
    told.
    """
    if read.candidate is None or read.module is None:
        return None
    tensors = {**task.task.inputs, **task.task.outputs}
    for workload, name in named_workloads(task, checking.ROLES):
        if name != workload.name:
            continue  # a hidden shape: check tells of it, without its numbers
        axes = task.bind(workload)
        shapes = task.shapes(axes)
        infos = {name: TensorInfo(str(each.dtype), shapes[name]) for name, each in tensors.items()}
        try:
            bind(read.candidate.plan, read.module, axes=axes, tensors=infos)
        except PlanError as error:
            return error
        except LaunchRefused:
            return None  # told by the device, as a launch error
    return None


def _climbing(job: Job, evaluation: Evaluation | None) -> tuple[Evaluation, Candidate, Module]:
    """What a later stage starts from; InputError when an earlier one stopped or never ran."""
    read = _read(job.text) if job.text is not None else None
    if evaluation is None or evaluation.stopped_at is not None or read is None:
        raise InputError("a stage of the ladder was called for a candidate that an earlier stage stopped")
    if read.candidate is None or read.module is None:
        raise InputError("a stage of the ladder was called for a candidate that could not be read")
    return evaluation, read.candidate, read.module


def _device(job: Job) -> Device:
    return device(job.device, job.arch, job.gpus)


def _screened(job: Job, program: Program, task: LoadedTask) -> checking.CheckResult | None:
    """What the emulator holds against a candidate for a GPU; None when it passes there, cannot be judged there, or is not asked."""
    if not job.screen or job.device == EMULATOR:
        return None
    try:
        found = checking.check(program, task, EmulatorDevice(job.arch), job.seed)
    except InfraError:
        return None
    # A budget that ran out tells nothing of a machine that is a million times as fast.
    slow = found.fault is not None and found.fault.kind is FaultKind.STEP_LIMIT
    return None if found.verdict is Verdict.CORRECT or slow else found


def _program(job: Job, candidate: Candidate, module: Module) -> Program:
    result = _assembled(candidate.text, job.arch)
    registers = {
        each.entry: each.registers for each in result.assembly.resources if each.registers is not None
    }
    return Program(module, candidate.plan, candidate.text, job.arch, result.cubin, registers)


def _spoilt(sofar: Evaluation, found: measuring.Measured) -> Numerics | None:
    """What check found, with what a timed run then showed."""
    if sofar.numerics is None:
        return None
    return sofar.numerics.model_copy(update={"passed": False, "reason": "timed", "explanation": found.note})


def _rival(job: Job, text: str) -> Program:
    """Another candidate, to be timed against. Raises InputError when it cannot be used."""
    read = _read(text)
    if read.candidate is None or read.module is None:
        raise InputError(
            f"the candidate to time against cannot be read: {read.plan_error or read.syntax_error}"
        )
    if _assembled(text, job.arch).cubin is None:
        raise InputError(f"the candidate to time against does not assemble for {job.arch}")
    return _program(job, read.candidate, read.module)


def _rule(task: LoadedTask, arch: str) -> TargetRule:
    return task.targets_for(arch)


def _linted(candidate: Candidate, module: Module) -> tuple[Warning_, ...]:
    notices = lint(module, candidate.ptx, candidate.ptx_first_line)
    return tuple(Warning_(kind=each.kind, message=each.message, line=each.line) for each in notices)


def _merged(*groups: tuple[Warning_, ...]) -> tuple[Warning_, ...]:
    """All warnings, each kind and line once."""
    seen: dict[tuple[str, int | None], Warning_] = {}
    for group in groups:
        for warning in group:
            seen.setdefault((warning.kind, warning.line), warning)
    return tuple(seen.values())


def _blank(job: Job, task: LoadedTask, verdict: Verdict, summary: str, *, stopped: bool = True) -> Evaluation:
    return Evaluation(
        task=task.task.name,
        task_digest=task.digest,
        arch=job.arch,
        candidate=None if job.text is None else hashlib.sha256(_bytes(job.text)).hexdigest(),
        device=job.device,
        verdict=verdict,
        stopped_at=Stage.ASSEMBLE if stopped else None,
        summary=summary,
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _plan_diagnostic(text: str, error: PlanError) -> Diagnostic:
    lines = text.split("\n")
    line = error.line
    source = lines[line - 1].strip()[:400] if line is not None and 0 < line <= len(lines) else None
    return Diagnostic(
        severity="error", kind="bad_plan", message=str(error), line=line, source=source, hint=PLAN_HINT
    )


def _assembler_says(first: Diagnostic | None) -> str:
    if first is None:
        return "ptxas refuses the PTX"
    at = f"line {first.line}: " if first.line is not None else ""
    return f"ptxas refuses the PTX: {at}{first.message}"


def _clocked(evaluation: Evaluation, stage: Stage, started: float) -> Evaluation:
    seconds = evaluation.seconds.model_copy(update={stage.value: time.monotonic() - started})
    return evaluation.model_copy(update={"seconds": seconds})
