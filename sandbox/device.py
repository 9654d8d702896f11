"""The one protocol behind which every machine stands, and the records that cross it.

Both devices answer alike, so a candidate moves between them. A device raises `LaunchRefused` for a launch it would not accept and
`InfraError` when it cannot tell; whatever a running kernel does wrong is a `Fault` inside the `Outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sandbox.ptx.nodes import Module
from sandbox.ptx.plan import Plan
from tasks.record import Record

Array: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]


class FaultKind(StrEnum):
    """How a launch ended when it did not end well."""

    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    UNWRITTEN_READ = "unwritten_read"
    """Read of a register, or of shared, local, scratch or output memory, that nothing wrote."""
    READ_ONLY_WRITE = "read_only_write"
    """Store to .const or .param memory."""
    DIVERGENT_BARRIER = "divergent_barrier"
    """`bar.sync` or another barrier reached in a way the ISA leaves undefined."""
    NON_CONVERGED = "non_converged"
    """`.sync`/`.aligned` instruction whose named threads did not all come."""
    DEADLOCK = "deadlock"
    """Every thread that is left waits, and nothing can wake it."""
    LIVELOCK = "livelock"
    """Threads spin and the machine's state repeats: it would go on for ever."""
    STEP_LIMIT = "step_limit"
    """The budget of executed instructions or of wall time ran out."""
    TRAP = "trap"
    ASSERT = "assert"
    """`__assertfail` was called."""
    BAD_CALL = "bad_call"
    """Indirect call or branch to something that is not a target; call depth exceeded."""
    ILLEGAL_OPERAND = "illegal_operand"
    """An operand value for which the instruction is undefined, such as a barrier id above 15."""
    TIMEOUT = "timeout"
    """On a real device: a launch did not end within its time."""
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    """On a real device: the chip refused an instruction, such as a tensor copy with a bad coordinate."""
    LAUNCH_FAILURE = "launch_failure"
    """On a real device: a kernel ended abnormally and the driver does not say why."""


HANGS = frozenset({FaultKind.DEADLOCK, FaultKind.LIVELOCK, FaultKind.STEP_LIMIT, FaultKind.TIMEOUT})


class Fault(Record):
    """What went wrong in a running kernel, as exactly as the device can say."""

    kind: FaultKind
    message: str
    """One sentence for a person or a model: what happened, to whom, where."""
    line: int | None = None
    """PTX line, counted from 1 in the candidate file (plan lines included); None when the device cannot tell."""
    source: str | None = None
    """The text of that line, stripped."""
    launch: int = 0
    """Index of the launch in the plan."""
    entry: str = ""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    """First thread concerned."""
    threads: int | None = None
    """How many threads met the same fault at the same instruction; None when not known."""
    space: str | None = None
    """State space of the access: global, shared, local, param, const, reg."""
    buffer: str | None = None
    """Name of the nearest buffer, variable or register; None when there is none."""
    offset: int | None = None
    """Byte offset of the access from the start of that buffer; may be negative or past the end."""
    buffer_bytes: int | None = None
    address: int | None = None
    size: int | None = None
    """Bytes of the access."""
    waiting: tuple[str, ...] = ()
    """For deadlock and livelock: who waits for what, one short phrase each."""


class Notice(Record):
    """Something seen while running that is not a fault: it becomes a warning of the evaluation."""

    kind: str
    """Such as unwritten_read, timer, l2, persistent_state, hazard."""
    message: str
    line: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """A block of global memory handed to a kernel.

    data: contents before the launch, 1-D uint8. `defined` False marks memory nobody has written (outputs, scratch): reading it is an
    unwritten read until the kernel has written it.
    """

    name: str
    data: Bytes
    defined: bool = True
    role: str = "input"
    """input or output."""
    dtype: str = "u8"
    """Of its elements, for tensor maps that do not say their own."""
    shape: tuple[int, ...] = ()
    """Outermost first; empty: as many elements as there are bytes."""


class OnUnwritten(StrEnum):
    """What a device that can see it does at a read of memory or of a register that nothing wrote."""

    FAULT = "fault"
    """End the run with an UNWRITTEN_READ fault: the cause, named at once."""
    POISON = "poison"
    """Go on with `Limits.poison` in every such byte and leave a Notice: what hardware would do, to see whether it matters."""


class Order(StrEnum):
    """In which order a device that can choose lets the warps of a block go on. Every order is one that hardware may take."""

    TOGETHER = "together"
    """As nearly in step as their paths allow."""
    FIRST_ALONE = "first_alone"
    """The first warp of each block that can go on goes alone until it waits, early blocks before late ones, and asynchronous copies
    land at once: what needs a barrier and has none shows."""
    LAST_ALONE = "last_alone"
    """The same with the last warp, and late blocks before early ones."""


class Placement(StrEnum):
    """Where a device with real addresses puts buffers."""

    ANY = "any"
    KEEP = "keep"
    """Where the last run had them: other data at the same addresses shows what is cached by address."""
    MOVE = "move"
    """Elsewhere: the same data at other addresses."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a device can see and choose; check, prove and measure ask no more of it."""

    masks: bool
    """Outcomes tell which bytes were written."""
    orders: bool
    """Runs follow `Limits.order`, and reads of memory nothing wrote end as faults (`Limits.on_unwritten`)."""
    counts: bool
    """Outcomes count executed instructions."""
    timed: bool
    """Its seconds mean something."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets and modes of one run."""

    steps: int = 4_000_000_000
    """Thread-instructions over all launches."""
    seconds: float = 60.0
    """Wall time over all launches."""
    stdout_bytes: int = 65_536
    """Bytes of vprintf output kept; the rest is counted and dropped."""
    on_unwritten: OnUnwritten = OnUnwritten.FAULT
    poison: int = 0xA5
    """Byte that fills registers, shared and local memory that nothing wrote."""
    order: Order = Order.TOGETHER
    launch_seconds: float = 10.0
    """Wall time of one launch on a real device, after which it counts as hung."""
    placement: Placement = Placement.ANY
    dummies: int = 0
    """Harmless launches of the harness before the first, on a real device: they shift whatever counts launches."""
    variables: tuple[str, ...] = ()
    """Module-scope .global variables whose contents to bring back in `Outcome.variables`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Executed instructions of one run, exact.

    by_site: (entry or function name, line, full instruction name) -> executions. One execution is one thread for a per-thread
    instruction and one warp for a warp-wide one (`mma`, `ldmatrix`, every `.aligned`); `wgmma` counts per warpgroup.
    """

    by_site: Mapping[tuple[str, int, str], int] = field(default_factory=dict[tuple[str, int, str], int])
    threads: int = 0
    """Thread-instructions in all."""
    bytes_by_site: Mapping[tuple[str, int, str], int] = field(default_factory=dict[tuple[str, int, str], int])
    """Bytes that copies moved whose size stands in a register, where a device counts them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a plan left behind."""

    buffers: Mapping[str, Bytes]
    """Contents of every buffer afterwards (also when a fault ended the run)."""
    fault: Fault | None
    counts: Counts
    notices: tuple[Notice, ...] = ()
    stdout: bytes = b""
    """What vprintf printed, capped; never read as a result."""
    stdout_dropped: int = 0
    variables: Mapping[str, Bytes] = field(default_factory=dict[str, Bytes])
    """Contents of the module variables that `Limits.variables` names, but those that the assembler dropped because nothing uses them."""
    written: Mapping[str, npt.NDArray[np.bool_]] | None = None
    """Per buffer, per byte: stored to by the kernel; None on a device that cannot see it."""
    seconds: float = 0.0
    """Wall seconds of the run on this device; on the emulator it says nothing about a GPU."""


@dataclass(frozen=True, slots=True)
class Program:
    """A candidate, ready to load: its tree, its plan and, for a real device, its machine code."""

    module: Module
    plan: Plan
    text: str
    """The candidate's text, for the source lines of faults."""
    arch: str
    """Such as sm_90a."""
    cubin: bytes | None = None
    registers: Mapping[str, int] | None = None
    """Entry → 32-bit registers a thread takes, as the assembler reports them; None when not known, and residency is then estimated."""


class Session(Protocol):
    """A loaded module. Module-scope variables keep their values from run to run, as on hardware."""

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        """Run every launch of the plan, in order.

        axes: values of the task's axes, for the plan's expressions and scalar arguments. buffers: inputs and outputs by name; scratch
        is made by the session from the plan. Raises LaunchRefused, PlanError, InfraError.
        """
        ...

    def close(self) -> None:
        """Free what the session holds; safe to call twice."""
        ...


class Device(Protocol):
    """A machine that runs PTX."""

    @property
    def name(self) -> str:
        """`emulator`, or `cuda:0`."""
        ...

    @property
    def traits(self) -> Traits:
        """What it can see and choose."""
        ...

    def load(self, program: Program) -> Session:
        """Load a module. Raises LaunchRefused when it cannot be loaded, InfraError when the device is not well."""
        ...
