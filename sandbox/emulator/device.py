"""The emulator as a Device: loads a module, binds a plan, runs its launches and tells what happened.

A session keeps the values of module-scope variables between runs, as hardware does between launches of one
loaded module.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from sandbox.device import Buffer, Counts, Fault, Limits, Notice, Outcome, Program, Traits
from sandbox.emulator import builders as builders
from sandbox.emulator import image as images
from sandbox.emulator.chip import Chip, check_launch, chip_of
from sandbox.emulator.decode import Code
from sandbox.emulator.faults import Stopped
from sandbox.emulator.machine import Machine, Tally
from sandbox.emulator.memory import ROW, Arena, Region, Store
from sandbox.emulator.params import pack
from sandbox.ptx.binding import BoundLaunch, TensorInfo, bind, scratch_bytes
from sandbox.ptx.layout import base_space
from sandbox.ptx.symbols import resolve
from tasks.errors import CannotJudge, LaunchRefused, PtxmendError

SCRATCH_BYTES = 256 << 20
"""Scratch memory of one run; a plan that needs more cannot be judged here."""
FLAGS = {
    "timer": "{} reads a clock; what a kernel computes must not depend on time",
    "l2": "{} steers the L2 cache beyond the access itself, which may colour the timing of later runs",
}
"""Messages of notices about executed instructions, by kind."""


class EmulatorDevice:
    """A machine that runs PTX on NumPy. arch: which chip's residency and limits it has, such as sm_90a."""

    def __init__(self, arch: str = "sm_90a") -> None:
        self.arch = arch
        self.chip = chip_of(arch)

    @property
    def name(self) -> str:
        return "emulator"

    @property
    def traits(self) -> Traits:
        return Traits(masks=True, orders=True, counts=True, timed=False)

    def load(self, program: Program) -> EmulatorSession:
        """Lay out the module's variables. Raises PtxSyntaxError (a name declared twice), LaunchRefused,
        CannotJudge.
        """
        return EmulatorSession(program, self.chip)


class EmulatorSession:
    """A loaded module."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self.program = program
        self.chip = chip
        self.lines = program.text.split("\n")
        module = program.module
        self.symbols = resolve(module)
        self.image = images.build(module, self.symbols)
        images.reserve(self.image, Arena())  # places only: initialisers may name addresses
        self.kept: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}
        const = np.zeros(max(ROW, -(-self.image.const_bytes // ROW) * ROW), np.uint8)
        for each in self.image.variables:
            data = images.contents(each, self.image)
            if base_space(each) == "const":
                start = self.image.places[id(each)].base
                const[start : start + len(data)] = data
            else:
                self.kept[id(each)] = data
        self.const = Store(const, None)
        self.codes: dict[str, Code] = {}

    def close(self) -> None:
        """Free what the session holds."""
        self.codes.clear()
        self.kept.clear()

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        """Run every launch of the plan, in order. Raises LaunchRefused, PlanError, CannotJudge."""
        started = time.monotonic()
        plan, module = self.program.plan, self.program.module
        if plan.tensor_maps:
            raise CannotJudge(
                f"the plan has tensor maps ({', '.join(plan.tensor_maps)}), and the emulator does not make "
                "them yet; "
                "this candidate needs a real GPU"
            )
        tensors = {name: TensorInfo("u8", (buffer.data.nbytes,)) for name, buffer in buffers.items()}
        launches = bind(plan, module, axes=axes, tensors=tensors)
        arena = Arena()
        variables = images.reserve(self.image, arena)
        regions = {
            name: arena.reserve(name, buffer.data.nbytes, defined=buffer.defined, role=buffer.role)
            for name, buffer in buffers.items()
        }
        scratch = self._reserve_scratch(axes, arena)
        arena.build()
        for identity, region in variables.items():
            arena.bytes_of(region)[:] = self.kept[identity]
        for name, region in regions.items():
            arena.bytes_of(region)[:] = buffers[name].data
        for name, region in scratch.items():
            if not region.defined:
                arena.bytes_of(region)[:] = limits.poison
            regions[name] = region
        tally = Tally(limits, started + limits.seconds)
        fault: Fault | None = None
        used: list[Code] = []
        for number, launch in enumerate(launches):
            machine = self._machine(launch, arena, regions, tally, number + 1)
            if machine.code not in used:
                used.append(machine.code)
                for op in machine.code.ops:
                    op.count = 0
            try:
                with np.errstate(all="ignore"):
                    machine.run()
            except Stopped as stopped:
                fault = self._fault(stopped, machine, number, launch.entry)
                break
            except PtxmendError:
                raise
            except MemoryError as error:
                raise CannotJudge(f"launch of {launch.entry}: the emulator ran out of memory") from error
            except Exception as error:  # a defect of ours must never look like the candidate's
                raise CannotJudge(
                    f"launch of {launch.entry}: the emulator itself failed near line {machine.line()}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        for identity, region in variables.items():
            self.kept[identity] = arena.bytes_of(region).copy()
        for op in (op for code in used for op in code.ops if op.flag and op.count):
            tally.notices.setdefault((op.flag, op.line), FLAGS[op.flag].format(op.name))
        return Outcome(
            buffers={name: arena.bytes_of(regions[name]).copy() for name in buffers},
            fault=fault,
            counts=Counts(_counts(used), tally.steps),
            notices=tuple(
                Notice(kind=kind, message=message, line=line, source=self._source(line))
                for (kind, line), message in tally.notices.items()
            ),
            stdout=bytes(tally.stdout),
            stdout_dropped=tally.stdout_dropped,
            variables=self._variables(limits.variables),
            written={name: arena.written_of(regions[name]).astype(np.bool_) for name in buffers},
            seconds=time.monotonic() - started,
        )

    def _reserve_scratch(self, axes: Mapping[str, int], arena: Arena) -> dict[str, Region]:
        out: dict[str, Region] = {}
        sizes = scratch_bytes(self.program.plan, axes)
        if sum(sizes.values()) > SCRATCH_BYTES:
            raise CannotJudge(
                f"the plan asks for {sum(sizes.values())} bytes of scratch; the emulator gives {SCRATCH_BYTES}: "
                "judge it on a GPU, or ask for less"
            )
        for name, size in sizes.items():
            zero = self.program.plan.scratch[name].init == "zero"
            out[name] = arena.reserve(name, size, defined=zero, role="scratch")
        return out

    def _variables(self, names: tuple[str, ...]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        held = {each.name: self.kept[id(each)] for each in self.image.variables if id(each) in self.kept}
        return {name: held[name].copy() for name in names}

    def _code(self, entry: str) -> Code:
        found = self.codes.get(entry)
        if found is None:
            found = self.codes[entry] = Code(self.symbols, entry, self.image.places)
        return found

    def _machine(
        self, launch: BoundLaunch, arena: Arena, regions: Mapping[str, Region], tally: Tally, grid_id: int
    ) -> Machine:
        code = self._code(launch.entry)
        clusters = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        check_launch(
            self.chip,
            launch.entry,
            launch.grid,
            launch.block,
            code.dynamic_base + launch.dynamic_smem,
            clusters,
        )
        if clusters > 1:
            raise CannotJudge(
                f"launch of {launch.entry}: the emulator runs no clusters of more than one block yet; found "
                f"{launch.cluster}"
            )
        param = pack(launch, code, regions)
        machine = Machine(
            code,
            self.chip,
            arena,
            (self.const, self.image.const),
            (Store(param, None), code.spaces.params),
            launch.grid,
            launch.block,
            launch.dynamic_smem,
            tally,
            grid_id,
            (self.program.registers or {}).get(launch.entry),
        )
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if launch.cooperative and blocks > machine.resident:
            raise LaunchRefused(
                f"launch of {launch.entry}: a cooperative grid must be resident at once, {machine.resident} blocks on this "
                f"chip; found {blocks}: launch fewer, or blocks that take fewer registers or less shared memory"
            )
        return machine

    def _source(self, line: int | None) -> str | None:
        return self.lines[line - 1].strip() if line is not None and 1 <= line <= len(self.lines) else None

    def _fault(self, stopped: Stopped, machine: Machine, launch: int, entry: str) -> Fault:
        wave = machine.current.wave if machine.current is not None else None
        lane = stopped.lane
        return Fault(
            kind=stopped.kind,
            message=stopped.message,
            line=stopped.line,
            source=self._source(stopped.line),
            launch=launch,
            entry=entry,
            block=wave.block_coordinates(lane[0]) if wave is not None and lane is not None else None,
            thread=wave.thread_coordinates(lane) if wave is not None and lane is not None else None,
            **stopped.details,
        )


def _counts(codes: list[Code]) -> dict[tuple[str, int, str], int]:
    out: dict[tuple[str, int, str], int] = {}
    for code in codes:
        for op in code.ops:
            if op.count:
                key = (op.function, op.line, op.name)
                out[key] = out.get(key, 0) + op.count
    return out
