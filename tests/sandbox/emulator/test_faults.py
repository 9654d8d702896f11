"""Every fault the emulator can find, each from a kernel of its own, with what it says."""

import numpy as np
import pytest

from sandbox.device import Buffer, FaultKind, Limits, OnUnwritten
from tasks.errors import CannotJudge, LaunchRefused
from tests.sandbox.emulator.harness import TID, data, faulted, good, kernel, load, output, run, zeros

SHARED = ".shared .align 16 .b8 sm[512];\n"


def test_out_of_bounds_names_buffer_distance_and_thread():
    text = kernel(TID + "add.u64 %rd4, %rd3, 8;\nst.global.u32 [%rd4], %r1;")
    fault = faulted(run(text, output(128)), FaultKind.OUT_OF_BOUNDS)
    assert (fault.line, fault.space, fault.buffer, fault.offset) == (9, "global", "o", 128)
    assert (fault.buffer_bytes, fault.size, fault.threads, fault.thread) == (128, 4, 2, (30, 0, 0))
    assert fault.source == "st.global.u32 [%rd4], %r1;"
    assert fault.entry == "k"


def test_out_of_bounds_before_a_buffer_and_through_a_vector():
    fault = faulted(
        run(kernel(TID + "ld.global.v2.u32 {%r3, %r4}, [%rd1-8];"), zeros(128)), FaultKind.OUT_OF_BOUNDS
    )
    assert (fault.offset, fault.size) == (-8, 8)
    tail = faulted(
        run(kernel(TID + "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1+16];"), zeros(24)),
        FaultKind.OUT_OF_BOUNDS,
    )
    assert (tail.offset, tail.size, tail.buffer_bytes) == (16, 16, 24)


@pytest.mark.parametrize(
    ("space", "body"),
    [
        ("shared", SHARED + "mov.u32 %r3, sm; st.shared.u32 [%r3+512], %r1;"),
        ("local", ".local .b8 lm[8];\nst.local.u32 [lm+16], %r1;"),
        ("const", "mov.u64 %rd5, 4096; ld.const.u32 %r3, [%rd5];"),
        ("global", "mov.u64 %rd5, 4096; ld.u32 %r3, [%rd5];"),
    ],
)
def test_out_of_bounds_in_every_space(space: str, body: str):
    assert faulted(run(kernel(TID + body), output(128)), FaultKind.OUT_OF_BOUNDS).space == space


def test_misaligned():
    fault = faulted(
        run(kernel(TID + "st.global.v2.u32 [%rd3], {%r1, %r1};"), output(256)), FaultKind.MISALIGNED
    )
    assert (fault.thread, fault.threads, fault.offset) == ((1, 0, 0), 16, 4)


def test_unwritten_memory_and_registers():
    fault = faulted(run(kernel(TID + "ld.global.u32 %r3, [%rd3];"), output(128)), FaultKind.UNWRITTEN_READ)
    assert (fault.buffer, fault.offset, fault.threads) == ("o", 0, 32)
    fault = faulted(
        run(kernel(SHARED + TID + "ld.shared.u32 %r3, [sm+4];"), output(128)), FaultKind.UNWRITTEN_READ
    )
    assert (fault.space, fault.buffer, fault.offset) == ("shared", "sm", 4)
    fault = faulted(
        run(kernel(".local .b32 x;\nld.local.u32 %r3, [x];"), output(128)), FaultKind.UNWRITTEN_READ
    )
    assert fault.buffer == "x"
    fault = faulted(run(kernel("add.u32 %r3, %r9, 1;"), output(128)), FaultKind.UNWRITTEN_READ)
    assert (fault.space, fault.buffer, fault.line) == ("reg", "%r9", 7)


def test_a_register_written_under_one_guard_is_unwritten_under_the_other():
    body = TID + "setp.lt.u32 %p1, %r1, 8; @%p1 mov.u32 %r3, 5;\n{} st.global.u32 [%rd3], %r3;"
    good(run(kernel(body.format("@%p1")), output(128)))
    fault = faulted(run(kernel(body.format("@!%p1")), output(128)), FaultKind.UNWRITTEN_READ)
    assert (fault.buffer, fault.thread, fault.threads) == ("%r3", (8, 0, 0), 24)


def test_poison_goes_on_and_leaves_one_notice_a_site():
    body = SHARED + TID + "ld.shared.u32 %r3, [sm];\nadd.u32 %r3, %r3, %r9;\nst.global.u32 [%rd3], %r3;"
    outcome = run(kernel(body), output(128), limits=Limits(on_unwritten=OnUnwritten.POISON, poison=0x11))
    assert (good(outcome) == 0x22222222).all()
    assert [(each.kind, each.line) for each in outcome.notices] == [
        ("unwritten_read", 9),
        ("unwritten_read", 10),
    ]


def test_constant_memory_is_read_only():
    text = kernel(
        "mov.u64 %rd5, tab; cvta.const.u64 %rd5, %rd5; mov.u32 %r3, 0; st.u32 [%rd5], %r3;",
        before=".const .u32 tab = 7;\n",
    )
    assert faulted(run(text, output(128)), FaultKind.READ_ONLY_WRITE).buffer == "tab"


@pytest.mark.parametrize(
    "body",
    [
        "setp.lt.u32 %p1, %r1, 16; @%p1 bar.sync 0;",
        "setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.sync 0; bra B;\nA: bar.sync 0;\nB:",
    ],
)
def test_divergent_barrier(body: str):
    faulted(run(kernel(TID + body), output(128)), FaultKind.DIVERGENT_BARRIER)


def test_threads_that_exited_are_not_waited_for_but_it_is_noted():
    text = kernel(TID + "setp.lt.u32 %p1, %r1, 40; @%p1 bra D; bar.sync 0; st.global.u32 [%rd3], %r1;\nD:")
    outcome = run(text, zeros(512), block=(128,))
    assert (good(outcome)[40:] == np.arange(40, 128)).all()
    assert [each.kind for each in outcome.notices] == ["hazard"]


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("setp.lt.u32 %p1, %r1, 16; @%p1 bra D; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; bra E;\n"
         "D: bar.sync 0;\nE:", "0-15"),
        ("setp.lt.u32 %p1, %r1, 31; @%p1 bra D; bar.sync 0; bra.uni E;\nD: mov.u32 %r3, 0;\n"
         "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3]; bar.sync 0;\nE:", "31"),
    ],
)  # fmt: skip
def test_threads_that_never_come_to_a_warp_wide_instruction(body: str, missing: str):
    fault = faulted(run(kernel(SHARED + TID + body), output(128)), FaultKind.NON_CONVERGED)
    assert f"lanes {missing}" in fault.message


def test_matrix_instructions_go_on_without_exited_threads_but_it_is_noted():
    body = (
        TID
        + "setp.ge.u32 %p1, %r1, 24; @%p1 bra D;\n"
        + (
            "mov.u32 %r3, 0x50005; movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r3; st.global.u32 [%rd3], %r4;\nD:"
        )
    )
    outcome = run(kernel(body), zeros(128))
    assert good(outcome)[:24].tolist() == [0x50005, 0x50005, 0x50005, 0] * 6  # the exited lanes give zeros
    assert [(each.kind, each.line) for each in outcome.notices] == [("hazard", 9)]


def test_clocks_and_cache_steering_are_noted_where_executed():
    body = (
        TID
        + "mov.u32 %r3, %clock;\nprefetch.global.L2 [%rd1];\n"
        + "setp.ne.u32 %p1, %r1, %r1; @%p1 mov.u64 %rd5, %globaltimer;"
    )
    outcome = run(kernel(body), output(128))
    assert sorted((each.kind, each.line) for each in outcome.notices) == [("l2", 9), ("timer", 8)]


def test_discarded_bytes_hold_nothing():
    discard = "setp.ne.u32 %p1, %r1, 0; @!%p1 discard.global.L2 [%rd1], 128; bar.warp.sync -1;\n"
    outcome = run(kernel(TID + discard), {"o": Buffer("o", np.ones(512, np.uint8))})
    assert (outcome.buffers["o"] != 1).sum() == 128
    assert outcome.written is not None
    assert not outcome.written["o"].any()
    read = run(
        kernel(TID + discard + "ld.global.u32 %r3, [%rd3];"), {"o": Buffer("o", np.ones(512, np.uint8))}
    )
    assert faulted(read, FaultKind.UNWRITTEN_READ).buffer == "o"
    again = "st.global.u32 [%rd3], %r1; ld.global.u32 %r3, [%rd3]; ld.global.u32 %r4, [%rd1+128];"
    stored = run(kernel(TID + discard + again), {"o": Buffer("o", np.ones(512, np.uint8))})
    assert good(stored)[:32].tolist() == list(range(32))
    assert stored.written is not None
    assert stored.written["o"].tolist() == [True] * 128 + [False] * 384


def test_a_warp_wide_instruction_must_name_its_own_thread():
    text = kernel(TID + "shfl.sync.idx.b32 %r2, %r1, 0, 31, 1;")
    assert faulted(run(text, output(128)), FaultKind.ILLEGAL_OPERAND).thread == (1, 0, 0)


def test_deadlock_says_who_waits_for_what():
    fault = faulted(
        run(kernel(TID + "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 256;"), output(128), block=(256,)),
        FaultKind.DEADLOCK,
    )
    assert "32 of 256 threads came to barrier 1" in fault.waiting[0]


def test_an_empty_loop_is_a_livelock():
    assert faulted(run(kernel("L: bra L;"), output(128)), FaultKind.LIVELOCK).line == 7


def test_a_flag_nobody_sets_is_a_livelock_that_names_the_flag():
    text = kernel(TID + "L: ld.volatile.global.u32 %r2, [%rd1+8]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;")
    fault = faulted(run(text, zeros(128), grid=(3,)), FaultKind.LIVELOCK)
    assert "o, byte 8" in fault.waiting[0]


def test_a_lock_nobody_releases_is_a_livelock():
    text = kernel(TID + "L: atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;")
    faulted(run(text, zeros(128)), FaultKind.LIVELOCK)


def test_an_mbarrier_that_never_completes_is_a_livelock():
    body = (
        ".shared .align 8 .b64 mb;\n" + TID + "mov.u32 %r3, mb; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;\n"
        "mbarrier.init.shared::cta.b64 [%r3], 1; mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r3], "
        "4096;\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W;"
    )
    assert "mb, byte 0" in faulted(run(kernel(body), output(128)), FaultKind.LIVELOCK).message


GRID_BARRIER = (
    "mov.u32 %r8, %nctaid.x; setp.ne.u32 %p2, %r1, 0; @%p2 bra W; atom.global.add.u32 %r3, [%rd1], 1;\n"
    "W: ld.volatile.global.u32 %r4, [%rd1]; setp.lt.u32 %p1, %r4, %r8; @%p1 bra W;"
)


def test_a_grid_barrier_hangs_exactly_where_the_chip_cannot_hold_the_grid():
    text = kernel(TID + GRID_BARRIER)
    good(run(text, zeros(16), grid=(264,), block=(1024,)))
    fault = faulted(run(text, zeros(16), grid=(265,), block=(1024,)), FaultKind.LIVELOCK)
    assert "1 block of 265 is not resident" in fault.message
    faulted(run(text, zeros(16), grid=(217,), block=(1024,), arch="sm_80"), FaultKind.LIVELOCK)


@pytest.mark.parametrize(("registers", "holds"), [(32, 264), (40, 132), (64, 132)])
def test_registers_that_the_assembler_counted_decide_how_many_blocks_are_resident(registers: int, holds: int):
    text = kernel(TID + GRID_BARRIER)
    for grid, ends in ((holds, True), (holds + 1, False)):
        session = load(text, (grid,), (1024,), registers={"k": registers, "other": 255})
        outcome = session.run({}, zeros(16), Limits(seconds=20))
        if ends:
            good(outcome)
        else:
            faulted(outcome, FaultKind.LIVELOCK)


@pytest.mark.parametrize(("registers", "holds"), [(32, 264), (64, 132)])
def test_a_cooperative_grid_that_cannot_be_resident_is_refused_and_not_hung(registers: int, holds: int):
    text = kernel(TID + GRID_BARRIER)
    fitting = load(text, (holds,), (1024,), registers={"k": registers}, cooperative="yes")
    good(fitting.run({}, zeros(16), Limits(seconds=20)))
    larger = load(text, (holds + 1,), (1024,), registers={"k": registers}, cooperative="yes")
    with pytest.raises(LaunchRefused, match=f"resident at once, {holds} blocks .* found {holds + 1}"):
        larger.run({}, zeros(16), Limits(seconds=20))


def test_budgets():
    endless = kernel("mov.u32 %r3, 0;\nL: add.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;")
    fault = faulted(run(endless, output(128), limits=Limits(steps=100_000)), FaultKind.STEP_LIMIT)
    assert fault.line == 8
    faulted(run(endless, output(128), limits=Limits(seconds=0.2)), FaultKind.STEP_LIMIT)


def test_trap_and_assert():
    fault = faulted(run(kernel(TID + "setp.gt.u32 %p1, %r1, 20; @%p1 trap;"), output(128)), FaultKind.TRAP)
    assert (fault.thread, fault.threads) == ((21, 0, 0), 11)
    before = (
        ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 "
        "s);\n"
        ".global .align 1 .b8 why[4] = {110, 111, 33, 0};\n"
    )
    body = (
        "mov.u64 %rd5, why; mov.u32 %r3, 1; mov.u64 %rd6, 1;\n"
        "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s; st.param.b64 [m], "
        "%rd5; st.param.b64 [f], %rd5;\n"
        "st.param.b32 [l], %r3; st.param.b64 [n], %rd5; st.param.b64 [s], %rd6; call.uni __assertfail, (m, "
        "f, l, n, s); }"
    )
    assert "`no!`" in faulted(run(kernel(body, before=before), output(128)), FaultKind.ASSERT).message


def test_illegal_operands():
    body = TID + "mov.u32 %r3, 16; barrier.sync %r3;"
    assert "barrier 16" in faulted(run(kernel(body), output(128)), FaultKind.ILLEGAL_OPERAND).message
    body = TID + "mov.u32 %r3, 33; bar.sync 1, %r3;"
    assert "33" in faulted(run(kernel(body), output(128)), FaultKind.ILLEGAL_OPERAND).message


def test_what_it_does_not_know_matters_only_where_a_thread_gets():
    body = (
        TID
        + "setp.ne.u32 %p1, %r1, %r1; @!%p1 bra D;\nwgmma.fence.sync.aligned;\nD: st.global.u32 [%rd3], %r1;"
    )
    good(run(kernel(body), output(128)))
    with pytest.raises(CannotJudge, match=r"line 7.*wgmma\.fence\.sync\.aligned"):
        run(kernel("wgmma.fence.sync.aligned;"), output(128))


def test_launches_no_chip_takes():
    with pytest.raises(LaunchRefused, match="1024 threads"):
        run(kernel(""), output(4), block=(32, 64))
    with pytest.raises(LaunchRefused, match="232448 bytes"):
        run(kernel(""), output(4), smem=232_449)


def test_module_variables_last_from_run_to_run_and_are_noted():
    session = load(
        kernel(
            TID + "atom.global.add.u32 %r3, [count], 1; st.global.u32 [%rd3], %r3;",
            before=".global .u32 count = 5;\n",
        )
    )
    first = session.run({}, output(128), Limits())
    second = session.run({}, output(128), Limits())
    assert good(first)[0] == 5
    assert good(second)[0] == 37
    assert [each.kind for each in first.notices] == ["persistent_state"]


def test_inputs_may_be_written_and_written_bytes_are_told():
    outcome = run(kernel(TID + "st.global.u8 [%rd3+1], %r1;"), data(o=np.zeros(32, "u4")))
    assert outcome.written is not None
    assert outcome.written["o"].reshape(32, 4).tolist() == [[False, True, False, False]] * 32
