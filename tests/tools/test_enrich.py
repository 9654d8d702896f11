"""What a GPU cannot say of a failure: replayed on the emulator, or asked of compute-sanitizer; never of a hidden workload."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.cuda.wire import BufferSpec, LaunchSpec, Source, Work
from sandbox.device import Buffer, Counts, Fault, FaultKind, Limits, Outcome, Program, Session
from sandbox.emulator.device import EmulatorDevice
from tests.tools.machines import GPU, Blind, Instant, Ran
from tests.tools.test_check_blind import AFFINE, PLAN, SEED, program, read, spoilt
from tests.tools.test_corpus import EXPECTED
from tools import enrich, sanitizer
from tools.check import check
from tools.enrich import enriched
from tools.evaluation import Verdict
from tools.judging import CheckResult

STOPPED = [name for name, want in EXPECTED.items() if want.verdict in (Verdict.FAULT, Verdict.HANG)]


def judged(text: str, device: Blind | Instant | Sick) -> tuple[CheckResult, CheckResult]:
    """What check found, before and after."""
    made = program(text)
    found = check(made, AFFINE, device, SEED)
    return found, enriched(found, made, AFFINE, device, SEED)


class Sick:
    """Every run of at least `size` bytes of output ends in a fault that hardware does not explain."""

    name = "cuda"
    traits = GPU

    def __init__(self, size: int = 0, kind: FaultKind = FaultKind.LAUNCH_FAILURE) -> None:
        self.size, self.kind = size, kind
        self.honest = Instant(AFFINE)

    def load(self, program: Program) -> Session:
        return _Sick(self, self.honest.load(program))


class _Sick:
    def __init__(self, device: Sick, inner: Session) -> None:
        self.device, self.inner = device, inner

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        if buffers["y"].data.size != self.device.size and self.device.size:
            return self.inner.run(axes, buffers, limits)
        contents = {name: buffer.data for name, buffer in buffers.items()}
        return Outcome(contents, Fault(kind=self.device.kind, message="on the GPU: it ended"), Counts())

    def close(self) -> None: ...


@pytest.mark.parametrize("name", STOPPED)
def test_a_fault_gets_its_line_from_a_replay(name: str) -> None:
    before, found = judged(PLAN + read(name), Blind(1))
    assert before.fault is not None
    assert found.fault is not None
    assert before.fault.line is None
    assert found.verdict is before.verdict is EXPECTED[name].verdict
    assert found.fault.kind == EXPECTED[name].why
    assert found.fault.line is not None
    assert found.fault.source == (PLAN + read(name)).split("\n")[found.fault.line - 1].strip()
    assert before.fault.message in found.fault.message
    assert "; replayed on the emulator: " in found.fault.message
    assert "; replayed on the emulator: " in found.summary


@pytest.mark.parametrize("name", ["c51_smem_residue", "c107_type_mismatch", "c122_uninit_reg"])
def test_a_wrong_answer_gets_the_read_that_it_depends_on(name: str) -> None:
    _, found = judged(PLAN + read(name), Blind(1))
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert found.numerics is not None
    assert found.numerics.reason == "residue"
    assert found.numerics.explanation == found.summary
    assert found.fault is not None
    assert found.fault.line is not None
    assert "depends on memory or registers that nothing wrote" in found.summary


def test_a_plain_wrong_answer_stays_as_it_is() -> None:
    before, found = judged(PLAN + read("c03_constant"), Blind(1))
    assert found == before


def test_what_the_emulator_does_not_see_keeps_the_gpu_s_words() -> None:
    before, found = judged(PLAN + read("h01_ok"), Sick())
    assert before.verdict is Verdict.FAULT
    assert found == before


def test_a_plan_that_the_emulator_cannot_run_keeps_the_gpu_s_words() -> None:
    plan = (
        PLAN
        + "//! tensor_maps:\n//!   m: {tensor: x, dims: [n, 1], strides: ['16 * cdiv(n, 4)'], box: [256, 1]}\n"
    )
    before, found = judged(plan + read("c70_illegal"), Sick())
    assert found == before


def test_a_hidden_workload_is_never_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatorDevice, "load", lambda *_: pytest.fail("replayed"))
    hidden = next(each for each in AFFINE.task.workloads if each.name == "secret")
    before, found = judged(PLAN + read("c70_illegal"), Sick(4 * hidden.axes["n"]))
    assert before.verdict is Verdict.FAULT
    assert found == before

    def on_secret(ran: Ran) -> None:
        if ran.after["y"].size == 4 * hidden.axes["n"]:
            spoilt(ran)

    before, found = judged(PLAN + read("c122_uninit_reg"), Instant(AFFINE, on_secret))
    assert before.verdict is Verdict.WRONG_OUTPUT
    assert found == before


def test_the_emulator_s_own_findings_are_left_alone() -> None:
    made = program(PLAN + read("c70_illegal"))
    found = check(made, AFFINE, EmulatorDevice("sm_90a"), SEED)
    assert enriched(found, made, AFFINE, EmulatorDevice("sm_90a"), SEED) is found


def test_a_replay_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrich, "SECONDS", 0.3)
    began = time.monotonic()
    judged(PLAN + read("h01_ok"), Sick())
    assert time.monotonic() - began < 3


REPORT = """<?xml version="1.0" encoding="utf-8"?>
<ComputeSanitizerOutput>
<record><kind>API error</kind><level>Error</level><what><text>error 719</text></what></record>
<record><kind>Precise</kind><level>Error</level>
<what><text>Invalid __global__ write of size 4 bytes</text><space>Global</space><size>4</size>
<direction>Write</direction><address>0x7f0000001000</address></what>
<who><threadIdx><x>3</x><y>0</y><z>0</z></threadIdx><blockIdx><x>7</x><y>1</y><z>0</z></blockIdx></who>
<where><func>k</func><pc>0x60</pc></where></record>
</ComputeSanitizerOutput>
"""


def test_a_report_is_read_field_by_field(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = sanitizer.read(report)
    assert found is not None
    assert (found.thread, found.block, found.address, found.size) == ((3, 0, 0), (7, 1, 0), 0x7F0000001000, 4)
    assert found.text == (
        "write of 4 bytes in global memory at address 0x7f0000001000 by thread (3, 0, 0) of block (7, 1, 0) in k"
    )


@pytest.mark.parametrize(
    "text", ["", "<a", "<ComputeSanitizerOutput/>", "========= Invalid __global__ write", REPORT[:300]]
)
def test_a_report_that_says_nothing_is_no_opinion(tmp_path: Path, text: str) -> None:
    report = tmp_path / "report.xml"
    assert sanitizer.read(report) is None
    report.write_text(text)
    assert sanitizer.read(report) is None


WORK = Work(
    0,
    (LaunchSpec("quiet", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, (), 0),),
    (BufferSpec("y", 16, Source(fill=0), "output"),),
)
TOOL = """#!{python}
import subprocess, sys
words = sys.argv[1:]
report = words[words.index("--save") + 1]
done = subprocess.run(words[words.index("--xml=yes") + 1 :])
open(report, "w").write({report!r}.replace("<func>k<", f"<func>code {{done.returncode}}<"))
"""


def _tool(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder / sanitizer.TOOL
    made.write_text(text)
    made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def ask(seconds: float = 20) -> sanitizer.Opinion | None:
    return sanitizer.asked(
        b"cubin", ("quiet",), WORK, gpu=0, driver="tests.sandbox.cuda.double:Double", seconds=seconds
    )


def test_without_the_tool_there_is_no_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ask() is None


def test_the_tool_runs_the_candidate_once_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real child that loads and launches on the double of a driver; its exit code stands where the tool names the kernel."""
    _tool(tmp_path, TOOL.format(python=sys.executable, report=REPORT), monkeypatch)
    found = ask()
    assert found is not None
    assert found.text.endswith("in code 0")


def test_a_tool_that_is_late_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, "#!/bin/sh\nsleep 30\n", monkeypatch)
    began = time.monotonic()
    assert ask(0.5) is None
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("kind", ["timer", "l2", "state"])
def test_what_steers_timings_is_warned_of_on_every_device(kind: str) -> None:
    """The ladder's inspect reads the text: a GPU's evaluation carries the same warnings as the emulator's."""
    from tools.ladder import Job, _linted, _read

    lines = {
        "timer": [
            "mov.u64 %rd8, %globaltimer;",
            "mov.u32 %r9, %clock;",
            "mov.u64 %rd8, %clock64;",
            "nanosleep.u32 20;",
        ],
        "l2": [
            "createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0;",
            "ld.global.L1::evict_last.f32 %f3, [%rd6];",
            "ld.global.L2::evict_last.v8.f32 {%f3,%f4,%f5,%f6,%f7,%f8,%f9,%f10}, [%rd6];",
            "discard.global.L2 [%rd7], 128;",
        ],
        "state": ["mov.u64 %rd8, %gridid;"],
    }[kind]
    for line in lines:
        text = (PLAN + read("h01_ok")).replace("DONE:", f"  {line}\nDONE:")
        assert line in text
        found = _read(Job("affine", "sm_90a", text, device="cuda").text or "")
        assert found.candidate is not None
        assert found.module is not None, line
        warned = [each for each in _linted(found.candidate, found.module) if each.kind == kind]
        assert [each.line for each in warned] == [text.split("\n").index(f"  {line}") + 1], line
