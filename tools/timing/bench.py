"""One candidate on one GPU, timed: what is loaded where, in which order, and what is kept of it.

The worker that owns the GPU holds the candidate's ring of buffers; the referee holds the inputs, the baselines' ring and the reference.
Preparing takes the GPU's shared lock, timing the exclusive one; what the candidate loaded is unloaded at the end.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sandbox.cuda import service
from sandbox.cuda.bound import to_work
from sandbox.cuda.device import CudaDevice
from sandbox.cuda.faults import fault_of
from sandbox.cuda.slot import Slot
from sandbox.cuda.wire import BufferSpec, Gpu, Load, Source, Stop, Work
from sandbox.device import HANGS, Fault, Program
from tasks.dtypes import DTYPES
from tasks.errors import InfraError
from tasks.expressions import evaluate
from tasks.registry import LoadedTask
from tasks.schema import Workload
from tools.evaluation import Clocks, Reading, Spread, Verdict
from tools.problem import derived
from tools.timing import referee as refereeing
from tools.timing.arms import (
    CALL_SECONDS,
    PREPARE_SECONDS,
    BaselineSide,
    KernelSide,
    RivalSide,
    blamed,
    referee_on,
)
from tools.timing.clocks import Monitor
from tools.timing.referee import Subject, subject_of
from tools.timing.roof import Bound, roof_of
from tools.timing.schedule import EFFORTS, Mode, Record, Side, Stopped, run, sets_for
from tools.timing.statistics import Comparison, compare

SAMPLES = 1
"""Version of `samples.json`."""
ROOM = 0.25
"""Share of the free memory that one side's ring may take."""
POISON = 0xFF
"""Byte that fills outputs when a ring is made."""


class Failed(Exception):
    """The candidate failed while it was timed: verdict, one sentence, and the fault where there was one."""

    def __init__(self, verdict: Verdict, note: str, fault: Fault | None = None) -> None:
        super().__init__(note)
        self.verdict, self.note, self.fault = verdict, note, fault


@dataclass(frozen=True, slots=True)
class _Case:
    """One workload on the machine."""

    workload: Workload
    axes: Mapping[str, int]
    subject: Subject
    specs: Mapping[str, BufferSpec]
    bytes: int
    """Of one buffer set, without scratch."""


class Bench:
    """The candidate, loaded, and what has been measured of it. Raises LaunchRefused when it cannot be loaded."""

    def __init__(
        self,
        program: Program,
        task: LoadedTask,
        device: CudaDevice,
        seed: int,
        mode: Mode,
        against: Program | None,
    ) -> None:
        self._program, self._task, self._device = program, task, device
        self._seed, self._against = seed, against
        self._mode: Mode = mode
        self.readings: list[Reading] = []
        self._samples: list[dict[str, Any]] = []
        self._started = time.monotonic()
        self._rivals: CudaDevice | None = None
        self._loaded: list[tuple[Slot, int, int]] = []
        """Worker, its generation, module."""
        self.gpu: Gpu = device.slot.gpu
        self._referee = referee_on(f"cuda:{self.gpu.index}")
        self._monitor = Monitor(self.gpu.uuid)

    def timed(self, workloads: list[Workload]) -> None:
        """Take every reading. Raises Failed, InfraError."""
        info = self._referee.info()
        if info.uuid not in ("", self.gpu.uuid):
            raise InfraError(
                f"expected the referee on GPU {self.gpu.uuid}, found it on {info.uuid}: let CUDA_VISIBLE_DEVICES be the same for all"
            )
        with self._device.shared():
            cases = [self._case(workload) for workload in workloads]
            module = self._load(self._device.slot, self._program)
            rival = None
            if self._against is not None:
                self._rivals = self._device.beside()
                with blamed():
                    rival = self._load(self._rivals.slot, self._against)
        with self._device.exclusive():
            for case in cases:
                side = KernelSide(self._device.slot, self._work(self._program, module, case))
                try:
                    for other, name in self._others(case, rival):
                        self._read(case, side, other, name)
                finally:
                    side.close()

    def _others(self, case: _Case, rival: int | None) -> list[tuple[Side, str]]:
        """What to time against, with names. rival: the module of the candidate that stands for the baselines."""
        if rival is not None and self._against is not None and self._rivals is not None:
            with blamed():
                work = self._work(self._against, rival, case)
            return [(RivalSide(KernelSide(self._rivals.slot, work)), named(self._against))]
        names = list(self._task.task.baselines)[: 1 if self._mode == "quick" else None]
        return [(BaselineSide(self._referee, case.subject, name), name) for name in names]

    def clocks(self) -> Clocks:
        """What the card was like."""
        own = {self._device.slot.pid, self._referee.pid}
        if self._rivals is not None:
            own.add(self._rivals.slot.pid)
        return self._monitor.summary({each for each in own if each is not None})

    def blobs(self) -> dict[str, bytes]:
        """`samples.json`: every lap of every reading."""
        if not self._samples:
            return {}
        held = {
            "format": SAMPLES,
            "task": self._task.task.name,
            "task_digest": self._task.digest,
            "mode": self._mode,
            "gpu": asdict(self.gpu),
            "readings": self._samples,
        }
        return {"samples.json": json.dumps(held, separators=(",", ":")).encode()}

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started

    def close(self) -> None:
        """Unload what was loaded, unless its worker is gone."""
        for slot, generation, handle in self._loaded:
            if slot.pid is not None and slot.generation == generation:
                with suppress(InfraError):
                    slot.call(service.unload, handle, seconds=CALL_SECONDS)
        self._loaded.clear()
        if self._rivals is not None:
            self._rivals.close()
            self._rivals = None

    def _case(self, workload: Workload) -> _Case:
        task = self._task
        subject = subject_of(task, workload, timed_seed(self._seed, workload))
        prepared = self._referee.prepare(subject)
        axes = task.bind(workload)
        shapes = task.shapes(axes)
        specs: dict[str, BufferSpec] = {}
        for name in task.task.inputs:
            source = Source(handle=prepared.handles[name])
            dtype, shape = str(task.task.inputs[name].dtype), shapes[name]
            specs[name] = BufferSpec(name, prepared.sizes[name], source, "input", False, dtype, shape)
        for name, tensor in task.task.outputs.items():
            size = int(np.prod(shapes[name], dtype=np.int64)) * DTYPES[tensor.dtype].bytes
            specs[name] = BufferSpec(
                name, size, Source(fill=POISON), "output", False, str(tensor.dtype), shapes[name]
            )
        return _Case(workload, axes, subject, specs, sum(each.bytes for each in specs.values()))

    def _load(self, slot: Slot, program: Program) -> int:
        entries = tuple(dict.fromkeys(each.entry for each in program.plan.launches))
        assert program.cubin is not None, "a program for a GPU has machine code"
        load = Load(program.cubin, entries, variables(program))
        handle = slot.call(service.load, load, seconds=CALL_SECONDS).handle
        self._loaded.append((slot, slot.generation, handle))
        return handle

    def _work(self, program: Program, module: int, case: _Case) -> Work:
        return to_work(program, module, case.axes, case.specs)

    def _read(self, case: _Case, side: KernelSide, other: Side, name: str) -> None:
        """One reading, and the judgement of the timed runs drawn for it."""
        task, gpu = self._task, self.gpu
        free, _ = self._device.slot.call(service.memory, seconds=CALL_SECONDS)
        largest = max(case.bytes, sum(each.bytes for each in side.work.buffers))
        sets = sets_for(case.bytes, gpu.l2_bytes, int(free * ROOM * case.bytes / max(largest, 1)))
        order = derived(self._seed, case.workload.name, name, "order")
        changed: list[str] = []

        def audit(which: int) -> None:
            handles = side.exported(which, tuple(case.specs))
            given = {each: handles[each] for each in task.task.inputs}
            taken = {each: handles[each] for each in task.task.outputs}
            changed.extend(self._referee.call(refereeing.snapshot, case.subject, given, taken))

        self._referee.call(refereeing.forget, case.subject)
        try:
            record = run(
                side,
                other,
                effort=EFFORTS[self._mode],
                sets=sets,
                seed=order,
                watch=self._monitor,
                audit=audit,
            )
        except Stopped as stopped:
            raise self._stopped(stopped.stop, case) from None
        work = task.task.work
        roof, bound = roof_of(
            gpu,
            flops=evaluate(work.flops, case.axes),
            moved=evaluate(work.bytes, case.axes),
            dtypes=[each.dtype for each in (*task.task.inputs.values(), *task.task.outputs.values())],
            set_bytes=case.bytes,
            sets=sets,
            window=record.window,
        )
        found = compare(record.timed(), order, roof_ms=roof)
        judged = self._referee.call(refereeing.judge, case.subject)
        note = other.note if isinstance(other, BaselineSide) else ""
        self._keep(case, name, record, found, roof, bound, note)
        if changed:
            raise Failed(
                Verdict.WRONG_OUTPUT,
                f"right in check, but on workload {case.workload.name} it changed its input {changed[0]} in a timed run",
            )
        for each in judged:
            if not each.passed:
                raise Failed(
                    Verdict.WRONG_OUTPUT,
                    f"right in check, wrong in a timed run on workload {case.workload.name}: {each.text}",
                )

    def _stopped(self, stop: Stop, case: _Case) -> Failed:
        """What a stop in a timed lap makes of the candidate; its worker is not used again."""
        self._device.slot.end(stop.code)
        fault = fault_of(stop, self._program)
        verdict = Verdict.HANG if fault.kind in HANGS else Verdict.FAULT
        ended = "hung" if verdict is Verdict.HANG else "faulted"
        text = f"ran right in check, {ended} while timed on workload {case.workload.name}: {fault.message}"
        return Failed(verdict, text, fault)

    def _keep(
        self,
        case: _Case,
        name: str,
        record: Record,
        found: Comparison,
        roof: float,
        bound: Bound,
        note: str,
    ) -> None:
        blocks = record.timed()
        self.readings.append(
            Reading(
                workload=case.workload.name,
                baseline=name,
                verdict=found.verdict,
                speedup=found.speedup,
                low=found.low,
                high=found.high,
                floor=found.floor,
                margin=found.margin,
                candidate_ms=spread([ms for each in blocks for ms in each.candidate]),
                baseline_ms=spread([ms for each in blocks for ms in each.baseline]),
                pairs=found.blocks,
                dropped=found.dropped,
                window=record.window,
                roof_ms=roof,
                bound=bound,
                checked=bool(record.audited),
            )
        )
        kept = {
            "workload": case.workload.name,
            "axes": dict(case.axes),
            "baseline": name,
            "baseline_runs": note or "one graph a window",
            "comparison": asdict(found),
            **asdict(record),
        }
        self._samples.append(kept)


def ahead(task: LoadedTask, device: CudaDevice, workloads: Sequence[Workload], seed: int) -> None:
    """Start the referee and make inputs in a thread; what fails there fails again, and is told, when it is needed."""
    referee = referee_on(f"cuda:{device.slot.gpu.index}")

    def work() -> None:
        with suppress(Exception):
            for workload in workloads:
                referee.call(
                    refereeing.draw,
                    subject_of(task, workload, timed_seed(seed, workload)),
                    seconds=PREPARE_SECONDS,
                )

    threading.Thread(target=work, name="referee ahead", daemon=True).start()


def timed_seed(seed: int, workload: Workload) -> int:
    """Of a timed workload's inputs: not those of check."""
    return derived(seed, workload.name, "timed")


def spread(values: list[float]) -> Spread:
    """Percentiles of one side's times."""
    p10, p50, p90 = np.quantile(values, [0.1, 0.5, 0.9])
    return Spread(p10=float(p10), p50=float(p50), p90=float(p90))


def named(program: Program) -> str:
    """How a candidate that stands for the baseline is called."""
    return f"candidate {hashlib.sha256(program.text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def variables(program: Program) -> tuple[str, ...]:
    """Module variables that a kernel can write: they get their first values back before every lap."""
    return tuple(
        each.name
        for each in program.module.variables
        if each.space == "global" and "extern" not in each.linkage
    )
