"""A module made runnable for one entry: a flat list of `Op`s whose indices are the program counters.

Every instruction is specialised once, into a closure over its operands. What the machine does not know
becomes an op that raises `CannotJudge` when a thread reaches it, so dead code never matters. A
definite-assignment analysis finds the registers that some path may read before anything was written; only
those carry run-time marks.

Builders of single opcodes register themselves in `BUILDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sandbox.emulator.definite import analyse
from sandbox.emulator.lanes import Lanes
from sandbox.emulator.memory import Site
from sandbox.emulator.names import (
    FrameShape,
    Line,
    Place,
    Slot,
    Spaces,
    flatten,
    function_addresses,
    functions_of,
)
from sandbox.emulator.operands import Unsupported, register_of
from sandbox.ptx.nodes import Function, Instruction, Name, Offset
from sandbox.ptx.symbols import ModuleSymbols
from tasks.errors import CannotJudge

Run: TypeAlias = Callable[[Lanes], None]

PLAIN, BRANCH, SYNC, BARRIER, CALL, RETURN, EXIT, INDIRECT = range(8)
"""Kinds of op: what the scheduler has to do besides calling `run`."""

LOOKING, WAITING = 16, 256
"""Heat that a plain load, or a volatile one, an atomic or a test of an mbarrier, gives to the loop it stands
in.
"""


def nothing(lanes: Lanes) -> None:
    """An instruction without an effect the machine can show."""


CLOCKS = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})


def flag_of(instruction: Instruction) -> str:
    """`timer` for a read of a clock, `l2` for what steers the second-level cache beyond this access; else
    ''.
    """
    if any(isinstance(operand, Name) and operand.text in CLOCKS for operand in instruction.operands):
        return "timer"
    mods = instruction.modifiers
    steered = any(part.startswith("L2::evict") or part == "L2::cache_hint" for part in mods)
    if steered or instruction.opcode in ("applypriority", "createpolicy", "discard"):
        return "l2"
    return "l2" if instruction.opcode == "prefetch" and "L2" in mods else ""


class Op:
    """One decoded instruction."""

    __slots__ = (
        "checks", "collective", "count", "detail", "flag", "function", "guard", "kind", "line", "marks",
        "name", "negated", "pc", "reads", "run", "shape", "site", "spins", "target", "writes",
    )  # fmt: skip

    def __init__(self, pc: int, line: Line) -> None:
        instruction = line.instruction
        self.pc = pc
        self.kind = PLAIN
        self.run: Run = nothing
        self.name = instruction.name
        self.line = instruction.span.line
        self.function = line.shape.function.name
        self.shape = line.shape
        self.guard = -1
        """Register of the guard, or -1."""
        self.negated = False
        self.collective = False
        """Counts once a warp."""
        self.count = 0
        self.flag = flag_of(line.instruction)
        """Kind of the notice that executing this leaves; '' for none."""
        self.target = -1
        """Where a branch goes."""
        self.detail: Any = None
        """What the scheduler needs of a SYNC, BARRIER, CALL or INDIRECT op."""
        self.spins = 0
        """How likely a thread that executes this in a loop waits for another: 0, LOOKING or WAITING, as
        heat.
        """
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.checks: tuple[int, ...] = ()
        self.marks: tuple[int, ...] = ()
        self.site = Site(self.name, self.line, self.function, pc)


Builder: TypeAlias = Callable[["Decoder", Instruction, Op], None]
BUILDERS: dict[str, Builder] = {}


def builds(*opcodes: str) -> Callable[[Builder], Builder]:
    """Register a builder for opcodes."""

    def register(builder: Builder) -> Builder:
        for opcode in opcodes:
            BUILDERS[opcode] = builder
        return builder

    return register


class Code:
    """One entry and all device functions, decoded."""

    def __init__(self, symbols: ModuleSymbols, entry: str, images: Mapping[int, Place]) -> None:
        """images: places of .global and .const variables, by identity of the declaration."""
        self.spaces = Spaces(symbols.functions[entry], images)
        self.lines: list[Line] = []
        bodies = [each for each in functions_of(symbols) if each.function.body is not None]
        self.shapes = [
            flatten(each, self.spaces.places, self.lines) for each in (symbols.functions[entry], *bodies)
        ]
        self.by_name = {shape.function.name: shape for shape in self.shapes}
        self.addresses = function_addresses(symbols)
        self.by_address = {address: name for name, address in self.addresses.items()}
        self.dynamic_base = self.spaces.dynamic_base
        self.ops: list[Op] = []
        for pc, line in enumerate(self.lines):
            self.ops.append(Decoder(self, line, pc).op)
        for shape in self.shapes:
            analyse(self.ops, shape)

    @property
    def thread_bytes(self) -> int:
        """Memory a thread takes here: registers of the entry, local memory and its marks."""
        return sum(max(8, each) for each in self.shapes[0].bits) // 8 + 2 * self.shapes[0].local_bytes + 16

    @property
    def registers(self) -> int:
        """A guess at the 32-bit registers a thread of the entry needs: those it names, which an assembler
        often halves.
        """
        bits = sum(max(32, each) for each in self.shapes[0].bits if each > 1)
        return min(255, max(16, bits // 64))


class Decoder:
    """The making of one op."""

    def __init__(self, code: Code, line: Line, pc: int) -> None:
        self.code = code
        self.scope = line.scope
        self.shape: FrameShape = line.shape
        self.line = line
        self.op = Op(pc, line)
        instruction = line.instruction
        try:
            if instruction.guard is not None:
                guard = register_of(instruction.guard.register, self.scope)
                if guard is None or guard.bits != 1:
                    raise Unsupported(f"guard {instruction.guard.register.text}")
                self.op.guard, self.op.negated = guard.index, instruction.guard.negated
                self.op.reads.append(guard.index)
            builder = BUILDERS.get(instruction.opcode) or BUILDERS["*"]
            builder(self, instruction, self.op)
        except Unsupported as reason:
            self._refuse(str(reason))
        except (KeyError, IndexError, ValueError) as reason:
            self._refuse(f"{type(reason).__name__}: {reason}")

    def _refuse(self, why: str) -> None:
        op, text = self.op, self.line.instruction.name
        op.kind, op.collective, op.detail = PLAIN, False, None
        op.writes = []

        def run(lanes: Lanes) -> None:
            raise CannotJudge(
                f"line {op.line}: the emulator does not execute `{text}` ({why}); a thread reached it, so "
                "this candidate needs a "
                "real GPU"
            )

        op.run = run

    # What builders ask

    def reads(self, register: Slot) -> None:
        self.op.reads.append(register.index)

    def writes(self, register: Slot) -> None:
        self.op.writes.append(register.index)

    def address_constant(self, operand: Name | Offset) -> int | None:
        """The address of a variable or function that a name stands for; None when it is neither, or local to
        the thread.
        """
        base, offset = (operand.base, operand.offset) if isinstance(operand, Offset) else (operand, 0)
        found = self.scope.find(base.text)
        if isinstance(found, Place) and found.space != "local":
            return found.base + offset
        if isinstance(found, Function):
            return self.code.addresses[found.name] + offset
        return None

    def local_offset(self, operand: Name | Offset) -> int | None:
        """The offset of a local variable in its frame; None when the name is not one."""
        base, offset = (operand.base, operand.offset) if isinstance(operand, Offset) else (operand, 0)
        found = self.scope.find(base.text)
        return found.base + offset if isinstance(found, Place) and found.space == "local" else None

    def label(self, name: str) -> int:
        """Program counter of a label."""
        found = self.scope.position(name)
        if found is None:
            raise Unsupported(f"there is no label {name}")
        return found
