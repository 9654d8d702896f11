"""The rules of check on the real emulator: how often it launches, what it hides, whom it blames."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from sandbox.device import HANGS, Buffer, FaultKind, Limits, Outcome, Program, Session, Traits
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from tasks.errors import CannotJudge, LaunchRefused
from tasks.registry import load_task
from tasks.schema import Role
from tools.check import LAUNCHES, check
from tools.evaluation import Verdict
from tools.judging import FAULT_VERDICT, CheckResult
from tools.problem import derived, mixed, named_workloads, problem

AFFINE = load_task("affine")
HEAD = """\
//! launch:
//!   - {entry: k, grid: ["cdiv(n, 256)"], block: [256], args: [x, y, n]}
.version 8.0
.target sm_90a
.address_size 64
%s
.visible .entry k(.param .u64 px, .param .u64 py, .param .u32 pn)
{
  .reg .pred %%p<8>; .reg .b32 %%r<16>; .reg .f32 %%f<8>; .reg .b64 %%rd<8>;
  ld.param.u64 %%rd1, [px]; ld.param.u64 %%rd2, [py]; ld.param.u32 %%r1, [pn];
  mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x; mov.u32 %%r4, %%tid.x;
  mad.lo.u32 %%r5, %%r2, %%r3, %%r4;
  setp.ge.u32 %%p1, %%r5, %%r1; @%%p1 bra DONE;
  mul.wide.u32 %%rd5, %%r5, 4; add.u64 %%rd6, %%rd1, %%rd5; add.u64 %%rd7, %%rd2, %%rd5;
  %s
DONE:
  ret;
}
"""
RIGHT = "ld.global.f32 %f1, [%rd6]; fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000; st.global.f32 [%rd7], %f2;"


class Watched:
    """A device that counts, and that may fail at one run: a real emulator inside."""

    name = "emulator"

    def __init__(self, fail_at: int = 0, error: Exception | None = None) -> None:
        self.inner = EmulatorDevice("sm_90a")
        self.fail_at, self.error = fail_at, error
        self.sessions: list[list[dict[str, bytes]]] = []

    @property
    def traits(self) -> Traits:
        return EmulatorDevice().traits

    def load(self, program: Program) -> Session:
        if self.error is not None and not self.fail_at:
            raise self.error
        self.sessions.append([])
        return _Watching(self, self.inner.load(program))


class _Watching:
    def __init__(self, device: Watched, inner: Session) -> None:
        self.device, self.inner, self.seen = device, inner, device.sessions[-1]

    def run(self, axes: Mapping[str, int], buffers: Mapping[str, Buffer], limits: Limits) -> Outcome:
        seen = self.seen
        seen.append({name: buffer.data.tobytes() for name, buffer in buffers.items()})
        if self.device.error is not None and len(seen) == self.device.fail_at:
            raise self.device.error
        return self.inner.run(axes, buffers, limits)

    def close(self) -> None:
        self.inner.close()


def run(body: str = RIGHT, variables: str = "", device: Watched | None = None, seed: int = 5) -> CheckResult:
    text = HEAD % (variables, body)
    candidate = read_candidate(text)
    module = parse_module(candidate.ptx, candidate.ptx_first_line)
    program = Program(module, candidate.plan, text, "sm_90a")
    return check(program, AFFINE, device or Watched(), seed)


def test_the_module_stays_loaded_for_all_launches_and_contents_are_fresh() -> None:
    device = Watched()
    result = run(device=device)
    assert result.verdict is Verdict.CORRECT
    assert result.numerics is not None
    assert result.numerics.deterministic is True
    assert result.numerics.max_error is not None
    assert result.numerics.max_error <= 1
    longest, *others = sorted(device.sessions, key=len, reverse=True)
    assert len(longest) >= LAUNCHES
    assert len(others) == len(result.numerics.workloads)
    contents = [(each["x"], each["y"]) for each in longest]
    assert len(set(contents)) == len(contents)


def test_inputs_are_secret() -> None:
    one, other = Watched(), Watched()
    run(device=one, seed=1)
    run(device=other, seed=2)
    assert not {each["x"] for each in one.sessions[0] if len(each["x"]) > 64} & {
        each["x"] for each in other.sessions[0]
    }


def test_hidden_workloads_are_not_named() -> None:
    result = run()
    assert result.numerics is not None
    hidden = [name for name in result.numerics.workloads if name.startswith("hidden-")]
    secret = {workload.name for workload in AFFINE.workloads(Role.HIDDEN)}
    assert hidden
    assert not secret & set(result.numerics.workloads)


def test_every_kind_of_fault_has_a_verdict() -> None:
    assert set(FAULT_VERDICT) == set(FaultKind)
    assert {kind for kind, verdict in FAULT_VERDICT.items() if verdict is Verdict.HANG} == HANGS


def test_what_the_device_cannot_tell_is_no_verdict() -> None:
    with pytest.raises(CannotJudge, match="lacks"):
        run(device=Watched(3, CannotJudge("lacks a wing")))


@pytest.mark.parametrize(("at", "verdict"), [(0, Verdict.LOAD_ERROR), (1, Verdict.LAUNCH_ERROR)])
def test_refusals_are_told_apart(at: int, verdict: Verdict) -> None:
    result = run(device=Watched(at, LaunchRefused("too big")))
    assert result.verdict is verdict
    assert "too big" in result.summary


def test_a_cache_of_the_last_input_is_state() -> None:
    body = f"""
  ld.volatile.global.u32 %r6, [calls]; bar.warp.sync -1;
  setp.ge.u32 %p2, %r6, 1000; @%p2 bra DONE;
  setp.ne.u32 %p3, %r5, 0; @%p3 bra COUNTED; add.u32 %r7, %r6, 300; st.volatile.global.u32 [calls], %r7;
COUNTED:
  {RIGHT}"""
    result = run(body.replace("bar.warp.sync -1;", ""), ".global .align 4 .u32 calls = 0;")
    assert result.verdict is Verdict.WRONG_OUTPUT
    assert result.numerics is not None
    assert result.numerics.reason == "state"
    assert "right again after a reload" in result.summary


def test_an_unwritten_read_that_does_not_matter_is_a_warning() -> None:
    result = run(f"mul.lo.u32 %r9, %r8, 0; add.u32 %r5, %r5, %r9; {RIGHT}")
    assert result.verdict is Verdict.CORRECT
    assert [warning.kind for warning in result.warnings] == ["unwritten_read"]
    assert result.warnings[0].line == 15


def test_accumulating_into_the_output_is_residue_and_names_the_line() -> None:
    result = run(
        "ld.global.f32 %f1, [%rd6]; ld.global.f32 %f3, [%rd7]; "
        "add.f32 %f2, %f1, %f3; st.global.f32 [%rd7], %f2;"
    )
    assert result.verdict is Verdict.WRONG_OUTPUT
    assert result.numerics is not None
    assert result.numerics.reason == "residue"
    assert result.fault is not None
    assert (result.fault.kind, result.fault.buffer, result.fault.line) == (FaultKind.UNWRITTEN_READ, "y", 15)


def test_a_mismatch_is_told_whole() -> None:
    result = run(
        "ld.global.f32 %f1, [%rd6]; fma.rn.f32 %f2, %f1, 0f40800000, 0f40000000; st.global.f32 [%rd7], %f2;"
    )
    assert result.numerics is not None
    assert result.numerics.reason == "values"
    mismatch = result.numerics.mismatches[0]
    assert mismatch.first == (0,)
    assert mismatch.ratio == pytest.approx(2)
    assert mismatch.pattern == "every element; there got is 2 times expected"
    assert mismatch.max_ulp is not None
    assert mismatch.unwritten == mismatch.nan == 0


def test_mixed_inputs_are_half_new_and_still_what_the_task_draws() -> None:
    workload, name = named_workloads(AFFINE, (Role.CHECK,))[-1]
    one, two = (problem(AFFINE, workload, name, derived(1, k)) for k in range(2))
    both = mixed(one, two, 3, rows=False)
    kept = both.inputs["x"] == one.inputs["x"]
    assert 0.4 < kept.double().mean() < 0.6 or kept.numel() < 100
    assert bool((kept | (both.inputs["x"] == two.inputs["x"]) | both.inputs["x"].isnan()).all())


def _on_the_hidden_shape(statement: str) -> CheckResult:
    """A right kernel that also does this where n is the hidden workload's."""
    (secret,) = AFFINE.workloads(Role.HIDDEN)
    disguised = secret.axes["n"] ^ 0x5555  # the source line is told, and must not tell the number itself
    return run(f"{RIGHT} xor.b32 %r9, %r1, 0x5555; setp.eq.u32 %p2, %r9, {disguised}; @%p2 {statement}")


def test_a_failure_on_a_hidden_shape_tells_nothing_of_it() -> None:
    (secret,) = AFFINE.workloads(Role.HIDDEN)
    for statement in ("st.global.f32 [%rd7+1073741824], %f2;", "st.global.f32 [%rd7], %f1;", "trap;"):
        result = _on_the_hidden_shape(statement)
        assert result.verdict in (Verdict.FAULT, Verdict.WRONG_OUTPUT), statement
        told = f"{result.summary} {result.numerics} {result.fault} {result.warnings} {result.stdout}"
        assert "hidden-1" in told
        n = secret.axes["n"]
        assert not {str(n), str(n - 1), str(4 * n), str(n // 256)} & set(re.findall(r"\d+", told))


def test_blocks_that_overwrite_each_other_are_a_race() -> None:
    """Every block also writes into the next block's elements: right while all blocks keep in step."""
    result = run(
        "add.u32 %r6, %r5, 256; setp.ge.u32 %p2, %r6, %r1; mov.f32 %f3, 0f00000000;"
        f" @!%p2 st.global.f32 [%rd7+1024], %f3; {RIGHT}"
    )
    assert result.verdict is Verdict.WRONG_OUTPUT
    assert result.numerics is not None
    assert result.numerics.reason == "race"
