"""The typed result of judging one candidate. Everything downstream reads these fields; nothing searches log text.

`Evaluation` is also the JSON of `ptxmend eval --json`. Fields may be added; the meaning of an existing one changes only with `FORMAT`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sandbox.device import Fault, Record

FORMAT = 1
"""Version of the evaluation record."""


class Verdict(StrEnum):
    """Where a candidate stopped, in ladder order."""

    NO_CANDIDATE = "no_candidate"
    BAD_PLAN = "bad_plan"
    ASSEMBLE_ERROR = "assemble_error"
    LOAD_ERROR = "load_error"
    LAUNCH_ERROR = "launch_error"
    FAULT = "fault"
    HANG = "hang"
    WRONG_OUTPUT = "wrong_output"
    CORRECT = "correct"

    @property
    def rung(self) -> int:
        """0 for no_candidate … 8 for correct; a higher rung is a better candidate."""
        return list(Verdict).index(self)


class Stage(StrEnum):
    """The tools of the ladder, in order."""

    ASSEMBLE = "assemble"
    INSPECT = "inspect"
    CHECK = "check"
    PROVE = "prove"
    MEASURE = "measure"


class Depth(StrEnum):
    """How far the evidence for one instruction family goes."""

    ABSENT = "absent"
    IN_PTX = "in_ptx"
    """In an entry that is launched, but not in its machine code: removed or dropped by ptxas; or, where `in_sass` is None, the machine
    code was not looked at."""
    IN_SASS = "in_sass"
    """In the machine code, but it never ran."""
    EXECUTED = "executed"
    LOAD_BEARING = "load_bearing"
    """With its effect removed the answer changes."""


class Diagnostic(Record):
    """One thing the assembler, the parser or the plan reader said."""

    severity: Literal["error", "warning", "info"]
    kind: str
    """Class from the table of causes, such as unknown_instruction."""
    message: str
    """As the tool said it."""
    line: int | None = None
    """Line of the candidate file, from 1; None when the tool gave none."""
    source: str | None = None
    """The text of that line, stripped."""
    hint: str = ""
    """What to do about it, from our table of causes."""


class Resources(Record):
    """What ptxas said an entry uses."""

    entry: str
    registers: int | None = None
    spill_stores: int = 0
    """Bytes."""
    spill_loads: int = 0
    stack: int = 0
    """Bytes of local memory a thread."""
    shared: int = 0
    """Bytes of static shared memory a block."""
    barriers: int = 0


class Assembly(Record):
    """What assembling gave."""

    ok: bool
    arch: str
    ptxas: str
    """Version, such as 13.5.37."""
    resources: tuple[Resources, ...] = ()
    seconds: float = 0.0
    cubin_sha256: str | None = None


class Warning_(Record):
    """Something a reader must know of a candidate whatever its verdict."""

    kind: str
    """timer, l2, stdout, persistent_state, unwritten_read, dropped_setmaxnreg, input_mutated, hazard, …"""
    message: str
    line: int | None = None


class Target(Record):
    """The evidence for one instruction family, required or merely used."""

    family: str
    required: bool
    depth: Depth
    executed: int | None = None
    """Executions counted on the emulated workload (a thread for per-thread instructions, a warp or warpgroup for collective ones);
    None when it was not run."""
    share: float | None = None
    """Share of the task's required work that these executions did, where the family defines work; None elsewhere."""
    in_ptx: int = 0
    """Occurrences in the PTX of launched entries and what they call."""
    in_sass: int | None = None
    """Occurrences in their machine code; None when not disassembled."""
    met: bool = False
    """True when a required family reached `load_bearing`, or `executed` where nothing can be knocked out (barriers, fences)."""
    knocked_out: str = ""
    """What became of the answer without the instruction: changed, unchanged, fault, hang, or '' when not tried."""
    note: str = ""
    """What is missing, exactly."""


class Mismatch(Record):
    """Where and how an output differs from the reference, on one workload."""

    workload: str
    output: str
    wrong: int
    """Elements beyond tolerance."""
    total: int
    unwritten: int = 0
    """Elements the kernel never wrote."""
    nan: int = 0
    """Elements NaN where the reference is not."""
    inf: int = 0
    first: tuple[int, ...] | None = None
    """Index of the first wrong element."""
    got: float | None = None
    expected: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: int | None = None
    """In units of the last place of the output type."""
    pattern: str = ""
    """Where the wrong elements lie, in words: which rows, columns, tiles, residues."""
    ratio: float | None = None
    """got / expected where it is (nearly) the same for all wrong elements."""


class Numerics(Record):
    """What check found over all workloads it ran."""

    workloads: tuple[str, ...]
    """Names of those run (hidden ones are named `hidden-k`)."""
    passed: bool
    mismatches: tuple[Mismatch, ...] = ()
    inputs_mutated: tuple[str, ...] = ()
    """Inputs whose bytes changed."""
    reason: Literal[
        "",
        "values",
        "unwritten",
        "precision",
        "nonfinite",
        "replay",
        "state",
        "residue",
        "race",
        "address",
        "input_mutated",
        "timed",
    ] = ""
    """Why it failed, in one word; timed: right in check, wrong in a timed run."""
    explanation: str = ""
    max_error: float | None = None
    """Largest error over tolerance of all elements, ≤ 1 when passed."""
    deterministic: bool | None = None


class Spread(Record):
    """Times of one side of a comparison, in milliseconds of one run of the whole plan."""

    p10: float
    p50: float
    p90: float


class Reading(Record):
    """A candidate against one baseline on one workload: paired, interleaved, with its own noise floor."""

    workload: str
    baseline: str
    verdict: Literal["faster", "slower", "same", "unstable", "suspect"]
    """faster, slower: the interval lies beyond 1 by more than the noise allows; same: it does not; unstable: too many blocks were lost
    to throttling or clock changes; suspect: faster than the hardware can be."""
    speedup: float
    """baseline time / candidate time: exp of the median paired log ratio."""
    low: float
    high: float
    """95 % interval, moving-block bootstrap."""
    floor: float
    """|log ratio| of both sides paired against themselves within the same schedule."""
    margin: float = 0.0
    """|log ratio| that the interval had to clear for faster or slower: a fixed least, or twice the floor."""
    candidate_ms: Spread
    baseline_ms: Spread
    pairs: int
    dropped: int = 0
    """Blocks left out for throttling or a clock that moved."""
    window: int = 1
    """Runs of the plan in one timed window."""
    roof_ms: float | None = None
    """No honest run is shorter: the task's FLOPs and bytes at the chip's peaks; None when those are not known."""
    bound: Literal["", "memory", "arithmetic", "launch"] = ""
    """What holds the roof there; '' when it is not known."""
    checked: bool = True
    """The output of a randomly chosen timed run was compared with the reference."""


class Clocks(Record):
    """The state of the GPU over a measurement, from NVML; None where it does not tell."""

    sm_mhz: tuple[int, int] | None = None
    """Lowest and highest clock seen."""
    memory_mhz: tuple[int, int] | None = None
    temperature_c: tuple[int, int] | None = None
    power_w: tuple[float, float] | None = None
    throttle: tuple[str, ...] = ()
    """Reasons seen, by NVML's names."""
    locked: bool = False
    """Always False: ptxmend leaves the clocks as they are."""
    others: int | None = None
    """Processes of others that had the GPU open meanwhile."""
    persistence: bool | None = None
    """Persistence mode was on."""
    ecc: bool | None = None
    """Memory errors were being corrected, which costs bandwidth on some cards."""
    mig: bool | None = None
    """The GPU was partitioned."""


class Timing(Record):
    """Speedups with their provenance; absent (None in the evaluation) where there is no GPU.

    speedup, low, high: geometric mean over the workloads against `baseline`, the task's first; lower bounds combine to `low`.
    """

    baseline: str
    speedup: float
    low: float
    high: float
    candidate_ms: float
    """Median, on the last workload."""
    baseline_ms: float
    verdict: Literal["faster", "slower", "same", "unstable", "suspect"] = "same"
    device: str
    """Name of the GPU."""
    uuid: str = ""
    driver: str = ""
    mode: Literal["quick", "full"] = "quick"
    """quick steers a loop; only full readings are published."""
    confirmed: bool = False
    """Measured again in a fresh process, with new seeds and addresses."""
    readings: tuple[Reading, ...] = ()
    clocks: Clocks = Clocks()
    samples_sha256: str | None = None
    """Of the file of all raw samples (`samples.json` among the evaluation's blobs)."""
    seconds: float = 0.0


class StageSeconds(Record):
    """Wall seconds of each tool on this machine."""

    assemble: float = 0.0
    inspect: float = 0.0
    check: float = 0.0
    prove: float = 0.0
    measure: float = 0.0


class Evaluation(Record):
    """What is known of one candidate on one task."""

    format: int = FORMAT
    task: str
    task_digest: str
    arch: str
    candidate: str | None
    """sha256 of the candidate's text; None when there was none."""
    device: str
    """Where the verdict comes from: `emulator` also for a candidate for a GPU that was screened out there."""
    verdict: Verdict
    stopped_at: Stage | None = None
    """The tool at which it stopped; None when it passed all or never started."""
    summary: str
    """One sentence."""
    diagnostics: tuple[Diagnostic, ...] = ()
    assembly: Assembly | None = None
    fault: Fault | None = None
    numerics: Numerics | None = None
    targets: tuple[Target, ...] = ()
    targets_met: bool = False
    """Every required family reached the depth this machine can prove (and the verdict is correct)."""
    warnings: tuple[Warning_, ...] = ()
    timing: Timing | None = None
    stdout: str = ""
    """What the kernel printed, capped; never read as a result."""
    seconds: StageSeconds = StageSeconds()
