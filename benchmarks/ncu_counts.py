"""Do our counts of executed instructions equal those of Nsight Compute, to the last one?

    python -m benchmarks.ncu_counts [--tasks gemm_f16_mma gemm_bf16_async gemm_bf16_wgmma row_sum] [--ncu PATH]

For each task's solution: the counts that `tools.prove` finds on its counting workload, and the counts that ncu finds when the same plan
runs once on the same shape in one process (`--launch`), without our counters. `COMPARED` says which machine opcode stands for a family,
in which of ncu's two metrics, and why the numbers must be equal. Exit code 1 when one differs, or when nothing could be compared.

ncu's names an opcode without modifiers, and gives its instances with their names only as `--print-metric-instances details`.

Source: Nsight Compute, "Metrics Reference": sass__inst_executed_per_opcode counts a warp's execution, whatever its predicate;
sass__thread_inst_executed_true_per_opcode counts the threads whose predicate holds. CLI: --csv --page raw gives a line of names, one of
units, and one for each launch. Needs a GPU and the right to read its counters.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.ptx.candidate import read_candidate
from tasks.registry import LoadedTask, load_task

ARCH = "sm_90a"
WARPS = "sass__inst_executed_per_opcode"
THREADS = "sass__thread_inst_executed_true_per_opcode"
SEED = 977
SECONDS = 300.0
"""Time for one run of ncu, and for a launch under it."""
PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
"""Where ncu may be when it is not on PATH."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a family's count follows from ncu's."""

    opcodes: tuple[str, ...]
    metric: str
    per_count: int
    """Executions that ncu sees for one of ours."""
    why: str


COMPARED: Mapping[str, Rule] = {
    "mma_sync": Rule(("HMMA",), WARPS, 1, "a warp executes one HMMA for one mma of the shapes m16n8k8 and m16n8k16"),
    "ldmatrix": Rule(("LDSM",), WARPS, 1, "a warp executes one LDSM for one ldmatrix"),
    "wgmma": Rule(("HGMMA",), WARPS, 4, "each of the four warps of a warpgroup executes the HGMMA"),
    "shfl": Rule(("SHFL",), WARPS, 1, "a warp executes one SHFL for one shfl.sync"),
    "redux": Rule(("REDUX", "CREDUX"), WARPS, 1, "a warp executes one REDUX for one redux.sync"),
    "cp_async": Rule(("LDGSTS",), THREADS, 1, "both count the threads whose guard holds"),
    "tma_load": Rule(("UTMALDG",), WARPS, 1, "one thread asks, behind a branch: its warp executes one UTMALDG"),
}  # fmt: skip
"""Family → rule. Others have no opcode of their own to count: ptxas makes votes, barriers and atomics for its own ends too."""


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison."""

    task: str
    family: str
    ours: int
    ncu: int
    """What ncu found, in our units; -1 where it is no multiple of one of ours."""
    rule: Rule

    @property
    def equal(self) -> bool:
        return self.ours == self.ncu


# --- what ncu prints ------------------------------------------------------------------------------------------------------

_INSTANCES = re.compile(r"[^()]*\((?P<parts>.*)\)\s*", re.DOTALL)
_PART = re.compile(r"\s*(?P<name>[A-Za-z][\w.]*)\s*:\s*(?P<count>[\d,.]+)\s*")


def read_csv(text: str) -> dict[str, dict[str, Counter[str]]]:
    """Kernel → metric → opcode → count, over all its launches; both of ncu's CSV pages are understood.

    Lines before the header (`==PROF== …`) are passed over. Raises ValueError when there is no table, or instances come without names.
    """
    csv.field_size_limit(1 << 30)
    lines = text.splitlines()
    start = next(
        (k for k, line in enumerate(lines) if '"Kernel Name"' in line or "Kernel Name," in line), None
    )
    if start is None:
        raise ValueError(f"expected a table of ncu with a column 'Kernel Name'; found: {text.strip()[-500:]}")
    found: dict[str, dict[str, Counter[str]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if not (row.get("ID") or "").strip().isdigit():
            continue  # the line of units, or what ncu says at the end
        kernel = found.setdefault(row["Kernel Name"].split("(")[0].strip(), {})
        if row.get("Metric Name"):
            told = {row["Metric Name"]: row.get("Metric Value") or ""}
        else:
            told = {name: value for name, value in row.items() if name in (WARPS, THREADS)}
        for name, value in told.items():
            if name in (WARPS, THREADS):
                kernel.setdefault(name, Counter()).update(instances(value or ""))
    return found


def instances(cell: str) -> Counter[str]:
    """The opcodes of a cell such as `1,300 (HMMA: 1,024; LDSM: 276)`; empty where ncu could not tell. Raises ValueError."""
    if not cell.strip() or cell.strip().lower() in ("n/a", "nan", "0"):
        return Counter()
    whole = _INSTANCES.fullmatch(cell)
    if whole is None:
        raise ValueError(
            f"expected counts by opcode, as with --print-metric-instances details; found {cell[:200]!r}"
        )
    made: Counter[str] = Counter()
    for part in whole["parts"].split(";"):
        one = _PART.fullmatch(part)
        if one is None:
            raise ValueError(f"expected OPCODE: COUNT; found {part.strip()[:80]!r} in {cell[:200]!r}")
        number = one["count"].replace(",", "")
        made[one["name"]] += round(float(number))
    return made


def compared(
    task: str, ours: Mapping[str, int], theirs: Mapping[str, Mapping[str, Counter[str]]]
) -> list[Row]:
    """A row for every family that ran and that a rule covers. theirs: of the kernels of the plan alone."""
    rows: list[Row] = []
    for family, count in sorted(ours.items()):
        rule = COMPARED.get(family)
        if rule is None or not count:
            continue
        seen = sum(
            kernel.get(rule.metric, Counter())[opcode]
            for kernel in theirs.values()
            for opcode in rule.opcodes
        )
        exact, rest = divmod(seen, rule.per_count)
        rows.append(Row(task, family, count, -1 if rest else exact, rule))
    return rows


# --- the two sides --------------------------------------------------------------------------------------------------------


def solution(task: LoadedTask) -> str:
    """The text of its solution. Raises SystemExit."""
    path = task.solution(ARCH)
    if path is None:
        raise SystemExit(f"{task.task.name} has no solution for {ARCH}")
    return path.read_text(encoding="utf-8")


def our_counts(name: str, device: str) -> dict[str, int]:
    """Family → executions, as the ladder proves them. Raises SystemExit when the solution does not get so far."""
    from tools.evaluation import Evaluation, Stage
    from tools.ladder import STAGES, Job

    job = Job(name, ARCH, solution(load_task(name)), seed=SEED, device=device)
    found: Evaluation | None = None
    for stage, function in STAGES:
        if stage is Stage.MEASURE:
            break
        found = function(job, found).evaluation
        if found.stopped_at is not None:
            raise SystemExit(f"{name}: the solution is not proven: {found.summary}")
    assert found is not None
    return {each.family: each.executed for each in found.targets if each.executed is not None}


def launch(name: str, gpu: int, driver: str | None = None) -> None:
    """Run a solution's plan once on its counting workload, in this process: what ncu looks at. driver: for tests."""
    from sandbox.cuda import service
    from sandbox.cuda.bound import to_work
    from sandbox.cuda.device import DRIVER
    from sandbox.cuda.wire import BufferSpec, Load, Run, Source
    from sandbox.device import Program
    from sandbox.ptx.parser import parse_module
    from tasks.schema import Role
    from tools.assemble import assemble
    from tools.problem import named_workloads, problem
    from tools.trial import FILLS

    task = load_task(name)
    candidate = read_candidate(solution(task))
    cubin = assemble(candidate.ptx, ARCH).cubin
    if cubin is None:
        raise SystemExit(f"{name}: the solution does not assemble")
    module = parse_module(candidate.ptx, candidate.ptx_first_line)
    program = Program(module, candidate.plan, candidate.text, ARCH, cubin)
    workload, label = named_workloads(task, (Role.EMULATE,))[0]
    made = problem(task, workload, label, SEED)
    specs: dict[str, BufferSpec] = {}
    for buffer in made.buffers(made.filled(FILLS[0])).values():
        role = "output" if buffer.role == "output" else "input"
        source = Source(data=buffer.data.tobytes())
        specs[buffer.name] = BufferSpec(
            buffer.name, buffer.data.nbytes, source, role, True, buffer.dtype, buffer.shape
        )
    service.start(gpu, driver or DRIVER)
    handle = service.load(Load(cubin, tuple(entries(name)))).handle
    ran = service.run(Run(to_work(program, handle, made.axes, specs), launch_seconds=SECONDS))
    if ran.stop is not None:
        raise SystemExit(f"{name}: the launch stopped: {ran.stop.code}")


def entries(name: str) -> list[str]:
    """Kernels that the plan of a task's solution launches."""
    plan = read_candidate(solution(load_task(name))).plan
    return list(dict.fromkeys(each.entry for each in plan.launches))


def command(ncu: str, name: str, gpu: int, log: Path) -> list[str]:
    """What runs ncu around `launch`."""
    kernels = "|".join(map(re.escape, entries(name)))
    return [
        ncu, "--target-processes", "all", "--clock-control", "none", "--csv", "--page", "raw",
        "--print-metric-instances", "details", "--print-units", "base", "--metrics", f"{WARPS},{THREADS}",
        "--kernel-name", f"regex:^({kernels})$", "--log-file", str(log),
        sys.executable, "-m", "benchmarks.ncu_counts", "--launch", name, "--gpu", str(gpu),
    ]  # fmt: skip


def ncu_counts(ncu: str, name: str, gpu: int) -> dict[str, dict[str, Counter[str]]]:
    """What ncu finds. Raises SystemExit with what it printed when it finds nothing."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        done = subprocess.run(
            command(ncu, name, gpu, log), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        text = log.read_text(errors="replace") if log.exists() else ""
    try:
        return read_csv(text)
    except ValueError as error:
        raise SystemExit(
            f"{name}: ncu ended with {done.returncode}: {error}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}"
        ) from None


def find_ncu(given: str | None) -> str:
    """Where ncu is. Raises SystemExit."""
    found = given or shutil.which("ncu")
    for place in () if found else PLACES:
        root, *parts = Path(place).parts
        match = sorted(Path(root).glob(str(Path(*parts))))
        found = found or (str(match[-1]) if match else None)
    if found is None:
        raise SystemExit("ncu is not on PATH nor where CUDA puts it: say --ncu PATH")
    return found


def table(rows: Sequence[Row]) -> str:
    """All rows, readable."""
    lines = [f"{'task':18} {'family':10} {'ours':>14} {'ncu':>14}        opcode   why"]
    lines += [
        f"{row.task:18} {row.family:10} {row.ours:14,} {row.ncu:14,}  {'equal' if row.equal else 'DIFFER'} "
        f"{'/'.join(row.rule.opcodes):8} {row.rule.why}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Compare and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument(
        "--tasks", nargs="+", default=["gemm_f16_mma", "gemm_bf16_async", "gemm_bf16_wgmma", "row_sum"]
    )
    options.add_argument("--ncu", default=None)
    options.add_argument("--gpu", type=int, default=0)
    options.add_argument("--device", default="cuda", help="whose counts are ours: cuda, or emulator")
    options.add_argument("--launch", metavar="TASK", help="run one solution once, and nothing else")
    asked = options.parse_args()
    if asked.launch:
        launch(asked.launch, asked.gpu)
        return 0
    ncu = find_ncu(asked.ncu)
    rows: list[Row] = []
    bare: list[str] = []
    for name in asked.tasks:
        found = compared(name, our_counts(name, asked.device), ncu_counts(ncu, name, asked.gpu))
        rows += found
        bare += [] if found else [name]
    print(table(rows))
    for name in bare:
        print(f"{name}: nothing that a rule covers ran")
    return int(bool(bare) or not all(row.equal for row in rows))


if __name__ == "__main__":
    sys.exit(main())
