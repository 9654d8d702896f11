"""Memory in all spaces: widths, vectors, atomics, asynchronous copies, matrix moves."""

import numpy as np
import pytest

from sandbox.device import FaultKind, Limits
from tests.sandbox.emulator.harness import TID, data, faulted, good, kernel, output, run, zeros

TWO = ".param .u64 o, .param .u64 i"
SHARED = ".shared .align 16 .b8 sm[1024];\n"
ROW = (
    "mov.u32 %r3, sm; shl.b32 %r4, %r1, 4; add.u32 %r5, %r3, %r4; ld.param.u64 %rd7, [i]; mul.wide.u32 "
    "%rd8, %r1, 16; "
    "add.u64 %rd9, %rd7, %rd8; add.u64 %rd11, %rd1, %rd8;\n"
)
"""%r5 = &sm[16 tid], %rd9 = i + 16 tid, %rd11 = o + 16 tid."""


def test_vector_add_over_many_waves():
    body = (
        "ld.param.u64 %rd1, [o]; ld.param.u64 %rd2, [a]; ld.param.u64 %rd3, [b]; ld.param.u32 %r9, [n];\n"
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1; "
        "setp.ge.s32 %p1, %r4, %r9;\n"
        "@%p1 bra D; mul.wide.s32 %rd4, %r4, 4; add.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd3, %rd4; add.s64 "
        "%rd7, %rd1, %rd4;\n"
        "ld.global.nc.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; add.rn.f32 %f3, %f1, %f2; st.global.f32 "
        "[%rd7], %f3;\nD:"
    )
    count = 300_001
    a, b = np.random.default_rng(1).standard_normal((2, count), np.float32)
    text = kernel(body, ".param .u64 o, .param .u64 a, .param .u64 b, .param .u32 n")
    outcome = run(
        text,
        {**output(4 * count), **data(a=a, b=b)},
        (-(-count // 128),),
        (128,),
        ("o", "a", "b", str(count)),
    )
    assert (good(outcome, "f4") == a + b).all()
    assert outcome.written is not None
    assert outcome.written["o"].all()
    assert sum(n for (_, _, name), n in outcome.counts.by_site.items() if name == "add.rn.f32") == count


def test_loads_extend_and_stores_narrow():
    body = TID + (
        "ld.param.u64 %rd7, [i]; ld.global.s8 %r3, [%rd7]; ld.global.u8 %r4, [%rd7]; ld.global.s16 %r5, "
        "[%rd7+2]; ld.global.b16 %r6, [%rd7+2];\n"
        "ld.global.s32 %rd8, [%rd7+4]; st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+4], %r4; "
        "st.global.u32 [%rd1+8], %r5;\n"
        "st.global.u32 [%rd1+12], %r6; st.global.u64 [%rd1+16], %rd8; st.global.u8 [%rd1+24], %r5; "
        "st.global.u8 [%rd1+25], 255;"
    )
    source = np.array([0xFE, 0, 0xFC, 0xFF, 0xFB, 0xFF, 0xFF, 0xFF], np.uint8)
    got = good(run(kernel(body, TWO), {**output(28), **data(i=source)}, args=("o", "i"), block=(1,)), "u1")
    assert got[:24].view("i4").tolist() == [-2, 254, -4, 0xFFFC, -5, -1]
    assert got[24:26].tolist() == [0xFC, 255]


@pytest.mark.parametrize(
    ("vector", "kind", "regs"), [("v2", "b64", 2), ("v4", "u32", 4), ("v2", "u16", 2), ("v4", "u8", 4)]
)
def test_vectors(vector: str, kind: str, regs: int):
    width = int(kind[1:]) // 8
    bank = {8: "%rd2", 4: "%r2", 2: "%h", 1: "%h"}[width]
    names = ", ".join(f"{bank}{k}" for k in range(regs))
    size = width * regs
    body = (
        "ld.param.u64 %rd1, [o]; ld.param.u64 %rd2, [i]; mov.u32 %r1, %tid.x; "
        f"mul.wide.u32 %rd3, %r1, {size}; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;\n"
        f"ld.global.{vector}.{kind} {{{names}}}, [%rd5]; st.{vector}.{kind} [%rd4], {{{names}}};"
    )
    source = np.random.default_rng(2).integers(0, 256, 32 * size, np.uint8)
    assert (
        good(run(kernel(body, TWO), {**output(32 * size), **data(i=source)}, args=("o", "i")), "u1") == source
    ).all()


def test_generic_addresses_reach_every_space_at_once():
    body = (
        SHARED
        + ".local .b32 lm;\n"
        + TID
        + "mov.u32 %r3, sm; cvt.u64.u32 %rd5, %r3; cvta.shared.u64 %rd5, %rd5; mov.u64 %rd6, lm; "
        "cvta.local.u64 %rd6, %rd6; mov.u64 %rd7, tab; cvta.const.u64 %rd7, %rd7; st.shared.u32 [sm], 11; "
        "st.local.u32 [lm], %r1;\n"
        "and.b32 %r4, %r1, 3; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1; setp.eq.u32 %p3, %r4, 2; "
        "selp.b64 %rd8, %rd5, %rd1, %p1;\n"
        "selp.b64 %rd8, %rd6, %rd8, %p2; selp.b64 %rd8, %rd7, %rd8, %p3; ld.u32 %r5, [%rd8]; "
        "isspacep.shared %p4, %rd8; bar.warp.sync -1;\n"
        "selp.u32 %r6, 1000, 0, %p4; add.u32 %r5, %r5, %r6; st.u32 [%rd3], %r5;"
    )
    got = good(run(kernel(body, before=".const .u32 tab = 33;\n"), data(o=np.full(32, 44, "u4"))))
    index = np.arange(32)
    assert (got == np.select([index % 4 == 0, index % 4 == 1, index % 4 == 2], [1011, index, 33], 44)).all()


def test_initialised_variables():
    before = (
        ".global .align 4 .u32 tab[2][3] = {{1, 2}, {4, 5, 6}};\n.global .align 8 .u64 where = tab;\n"
        ".const .align 4 .f32 half[2] = {0f3F000000, 2.0};\n"
    )
    body = (
        "ld.param.u64 %rd1, [o]; ld.global.u64 %rd2, [where]; ld.global.u32 %r1, [%rd2+4]; ld.global.u32 "
        "%r2, [%rd2+8]; ld.global.u32 %r3, [tab+20];\n"
        "ld.const.f32 %f1, [half+4]; cvt.rzi.u32.f32 %r4, %f1; st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};"
    )
    assert good(run(kernel(body, before=before), output(16), block=(1,))).tolist() == [2, 0, 6, 2]


def _atomic(
    operation: str, kind: str, values: np.ndarray, start: int, spread: int
) -> tuple[np.ndarray, np.ndarray]:
    bank = {"u32": "%r2", "s32": "%r2", "b32": "%r2", "u64": "%rd2", "f32": "%f", "f64": "%fd"}[kind]
    size = int(kind[1:]) // 8
    body = (
        "ld.param.u64 %rd1, [o]; ld.param.u64 %rd7, [i]; ld.param.u64 %rd8, [c]; mov.u32 %r1, %tid.x; "
        "mul.wide.u32 %rd9, %r1, "
        f"{size}; add.u64 %rd10, %rd7, %rd9; add.u64 %rd11, %rd1, %rd9; rem.u32 %r3, %r1, {spread}; "
        f"mul.wide.u32 %rd12, %r3, {size};\n"
        f"add.u64 %rd13, %rd8, %rd12; ld.global.{kind} {bank}1, [%rd10]; atom.global.{operation}.{kind} "
        f"{bank}2, [%rd13], {bank}1;\n"
        f"st.global.{kind} [%rd11], {bank}2;"
    )
    text = kernel(body, ".param .u64 o, .param .u64 i, .param .u64 c")
    cells = np.full(spread, start, values.dtype)
    outcome = run(
        text, {**output(values.nbytes), **data(i=values, c=cells)}, args=("o", "i", "c"), block=(len(values),)
    )
    return good(outcome, values.dtype.str), outcome.buffers["c"].view(values.dtype)


@pytest.mark.parametrize("spread", [1, 3, 50])
@pytest.mark.parametrize(
    ("operation", "kind"),
    [("add", "u32"), ("add", "u64"), ("add", "f32"), ("add", "f64"), ("min", "s32"), ("max", "u32"),
     ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32"), ("inc", "u32"), ("dec", "u32")],
)  # fmt: skip
def test_atomics_behave_as_one_thread_after_another(operation: str, kind: str, spread: int):
    rng = np.random.default_rng(3)
    dtype = {"s": "i4", "f": f"f{int(kind[1:]) // 8}"}.get(kind[0], f"u{int(kind[1:]) // 8}")
    values = (
        rng.standard_normal(150).astype(dtype) if kind[0] == "f" else rng.integers(0, 12, 150).astype(dtype)
    )
    olds, cells = _atomic(operation, kind, values, 5, spread)
    step = {
        "add": lambda old, b: old + b, "min": min, "max": max,
        "and": lambda old, b: old & b, "or": lambda old, b: old | b,
        "xor": lambda old, b: old ^ b, "exch": lambda old, b: b,
        "inc": lambda old, b: 0 if old >= b else old + 1,
        "dec": lambda old, b: b if old == 0 or old > b else old - 1,
    }[operation]  # fmt: skip
    state = np.full(spread, 5, dtype)
    for thread, value in enumerate(values):
        cell = thread % spread
        assert olds[thread] == state[cell], thread
        state[cell] = step(state[cell], value)
    assert (cells == state).all()


def test_compare_and_swap_and_packed_sums():
    body = TID + (
        "add.u32 %r3, %r1, 1; atom.global.cas.b32 %r2, [%rd1+128], %r1, %r3; st.global.u32 [%rd3], %r2; "
        "mov.b32 %r5, 0x3C004000;\n"
        "red.global.add.noftz.f16x2 [%rd1+132], %r5; mov.b32 %r6, 0x3F804000; atom.global.add.noftz.bf16x2 "
        "%r7, [%rd1+136], %r6;"
    )
    got = good(run(kernel(body), zeros(140)))
    assert got[:32].tolist() == list(range(32))
    assert got[32] == 32
    assert got[33:34].view("f2").tolist() == [64.0, 32.0]
    assert (got[34] >> 16, got[34] & 0xFFFF) == (0x4200, 0x4280)


COPY = (
    SHARED
    + TID
    + ROW
    + "cp.async.ca.shared.global [%r5], [%rd9], 16;\ncp.async.commit_group;\n{wait}\nbar.sync 0; "
    "ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r5]; st.global.v4.u32 [%rd11], {{%r10, %r11, %r12, "
    "%r13}};"
)


@pytest.mark.parametrize(
    "wait", ["cp.async.wait_group 0;", "cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 1;"]
)
def test_asynchronous_copies_arrive_at_the_wait(wait: str):
    source = np.arange(128, dtype="u4")
    buffers = {**output(512), **data(i=source)}
    assert (good(run(kernel(COPY.format(wait=wait), TWO), buffers, args=("o", "i"))) == source).all()


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_a_copy_not_waited_for_is_not_there(wait: str):
    buffers = {**output(512), **data(i=np.arange(128, dtype="u4"))}
    fault = faulted(
        run(kernel(COPY.format(wait=wait), TWO), buffers, args=("o", "i")), FaultKind.UNWRITTEN_READ
    )
    assert (fault.space, fault.buffer) == ("shared", "sm")


def test_a_short_source_is_filled_with_zeros_and_not_read():
    body = (
        SHARED + TID + ROW + "min.u32 %r6, %r1, 8; sub.u32 %r6, 8, %r6; shl.b32 %r6, %r6, 1; "
        "cp.async.cg.shared.global.L2::128B [%r5], [%rd9], 16, %r6;\n"
        "cp.async.wait_all; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5]; st.global.v4.u32 [%rd11], "
        "{%r10, %r11, %r12, %r13};"
    )
    source = np.arange(
        1, 129, dtype=np.uint8
    )  # eight rows: threads from the eighth on read nothing, which lies outside
    got = good(run(kernel(body, TWO), {**output(512), **data(i=source)}, args=("o", "i")), "u1").reshape(
        32, 16
    )
    for thread in range(32):
        size = 2 * (8 - min(thread, 8))
        assert got[thread].tolist() == [*source[16 * thread : 16 * thread + size], *([0] * (16 - size))]


def test_a_stale_tile_is_seen_when_the_wrong_group_is_waited_for():
    """Two stages, one buffer: waiting for all but one group shows the first copy only."""
    body = (
        SHARED + TID + ROW + "cp.async.ca.shared.global [%r5], [%rd9], 16; cp.async.commit_group;\n"
        "cp.async.ca.shared.global [%r5], [%rd9+512], 16; cp.async.commit_group; cp.async.wait_group 1;\n"
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5]; st.global.v4.u32 [%rd11], {%r10, %r11, %r12, "
        "%r13};"
    )
    source = np.arange(256, dtype="u4")
    assert (
        good(run(kernel(body, TWO), {**output(512), **data(i=source)}, args=("o", "i"))) == source[:128]
    ).all()


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_and_stmatrix(number: int, transposed: bool):
    names = ", ".join(f"%r2{k}" for k in range(number))
    flip = ".trans" if transposed else ""
    body = (
        SHARED
        + TID
        + ROW
        + "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd9]; st.shared.v4.u32 [%r5], {%r10, %r11, %r12, "
        "%r13}; bar.warp.sync -1;\n"
        f"ldmatrix.sync.aligned.m8n8.x{number}{flip}.shared.b16 {{{names}}}, [%r5]; mul.lo.u32 %r30, %r1, "
        f"{4 * number}; cvt.u64.u32 %rd12, %r30; add.u64 %rd13, %rd1, %rd12;\n"
        + "".join(f"st.global.u32 [%rd13+{4 * k}], %r2{k};\n" for k in range(number))
        + f"add.u32 %r31, %r5, 512; stmatrix.sync.aligned.m8n8.x{number}{flip}.shared.b16 [%r31], "
        f"{{{names}}}; bar.warp.sync -1;\n"
        f"setp.ge.u32 %p1, %r1, {8 * number}; @%p1 bra D; ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, "
        f"[%r31]; st.global.v4.u32 [%rd11+{128 * number}], {{%r10, %r11, %r12, %r13}};\nD:"
    )
    source = np.arange(256, dtype="u2")
    got = good(run(kernel(body, TWO), {**output(256 * number), **data(i=source)}, args=("o", "i")), "u2")
    tiles = source.reshape(4, 8, 8)[:number]
    seen = tiles.transpose(0, 2, 1) if transposed else tiles
    fragments = got[: 64 * number].reshape(32, number, 2)
    for lane in range(32):
        for tile in range(number):
            column = 2 * (lane % 4)
            assert fragments[lane, tile].tolist() == seen[tile, lane // 4, column : column + 2].tolist()
    assert (got[64 * number :].reshape(number, 8, 8) == tiles).all()


def test_shared_memory_of_blocks_is_apart_and_dynamic_memory_follows_static():
    body = (
        ".shared .align 4 .u32 st[4];\n"
        + TID
        + "mov.u32 %r2, %ctaid.x; mov.u32 %r3, st; mov.u32 %r4, dyn; sub.u32 %r5, %r4, %r3; st.shared.u32 "
        "[%r4+60], %r2; "
        "bar.sync 0; ld.shared.u32 %r6, [dyn+60]; mov.u32 %r7, %dynamic_smem_size; setp.ne.u32 %p1, %r1, 0; "
        "@%p1 bra D;\n"
        "mul.wide.u32 %rd5, %r2, 16; add.u64 %rd6, %rd1, %rd5; st.global.v4.u32 [%rd6], {%r6, %r5, %r7, "
        "%r2};\nD:"
    )
    text = kernel(body, before=".extern .shared .align 16 .b8 dyn[];\n")
    got = good(run(text, output(16 * 40), grid=(40,), smem=64)).reshape(40, 4)
    assert got.tolist() == [[b, 16, 64, b] for b in range(40)]
    fault = faulted(run(text, output(16 * 40), grid=(40,), smem=32), FaultKind.OUT_OF_BOUNDS)
    assert (fault.space, fault.buffer, fault.offset, fault.buffer_bytes) == ("shared", "dyn", 60, 32)


def test_barriers_by_number_count_and_reduction():
    body = (
        SHARED + TID + "setp.lt.u32 %p1, %r1, 64; and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0; @%p1 bra C;\n"
        "st.shared.u32 [sm], 77; bar.arrive 3, 128; bra R;\nC: bar.sync 3, 128; ld.shared.u32 %r7, [sm];\n"
        "R: bar.red.popc.u32 %r3, 1, %p2; "
        "bar.red.or.pred %p3, 0, %p2; bar.red.and.pred %p4, 0, %p2; selp.u32 %r4, 100, 0, %p3; selp.u32 "
        "%r5, 1000, 0, %p4; add.u32 %r3, %r3, %r4; "
        "add.u32 %r3, %r3, %r5; @!%p1 bra D; add.u32 %r3, %r3, %r7;\nD: st.global.u32 [%rd3], %r3;"
    )
    got = good(run(kernel(body), output(512), block=(128,)))
    assert got.tolist() == [241] * 64 + [164] * 64


def test_the_barrier_of_a_cluster_of_one_block():
    body = (
        SHARED + TID + "mov.u32 %r9, 0; mov.u32 %r3, sm; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4; "
        "xor.b32 %r6, %r4, 508;\n"
        "add.u32 %r6, %r6, %r3;\nL: add.u32 %r7, %r1, %r9; st.shared.u32 [%r5], %r7;\n"
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ld.shared.u32 %r8, "
        "[%r6];\n"
        "barrier.cluster.arrive; add.u32 %r9, %r9, 1; barrier.cluster.wait; setp.lt.u32 %p1, %r9, 3; @%p1 "
        "bra L;\n"
        "st.global.u32 [%rd3], %r8;"
    )
    assert (good(run(kernel(body), output(512), block=(128,))) == np.arange(127, -1, -1) + 2).all()


def test_mbarrier_hands_over_between_producers_and_consumers():
    body = (
        ".shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 4 .u32 box;\n"
        + TID
        + "mov.u32 %r3, full; mov.u32 %r4, empty; mov.u32 %r9, 0; "
        "mov.u32 %r10, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra X; mbarrier.init.shared::cta.b64 [%r3], 1; "
        "mbarrier.init.shared::cta.b64 [%r4], 32; st.shared.u32 [box], 0;\n"
        "X: bar.sync 0; setp.lt.u32 %p2, %r1, 32; @%p2 bra C; setp.ne.u32 %p1, %r1, 32; @%p1 bra D;\n"
        "P: and.b32 %r11, %r9, 1; xor.b32 %r11, %r11, 1;\n"
        "PW: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], %r11; @!%p3 bra PW;\n"
        "add.u32 %r9, %r9, 1; mul.lo.u32 %r12, %r9, %r9; st.shared.u32 [box], %r12; "
        "mbarrier.arrive.shared::cta.b64 _, [%r3]; setp.lt.u32 %p4, %r9, 10; @%p4 bra P; bra D;\n"
        "C: and.b32 %r11, %r9, 1;\nCW: mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r3], %r11; @!%p3 "
        "bra CW;\n"
        "ld.shared.u32 %r12, [box]; add.u32 %r10, %r10, %r12; mbarrier.arrive.shared::cta.b64 %rd9, [%r4]; "
        "add.u32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 10; @%p4 bra C;\n"
        "st.global.u32 [%rd3], %r10;\nD:"
    )
    assert (good(run(kernel(body), output(128), block=(64,))) == sum(k * k for k in range(1, 11))).all()


def test_printf():
    before = (
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n"
        ".global .align 1 .b8 fmt[16] = {37, 100, 32, 37, 46, 50, 102, 32, 37, 115, 33, 10, 0};\n"
    )
    body = (
        ".local .align 8 .b8 args[24];\n"
        + TID
        + "mov.u64 %rd5, fmt; mov.u64 %rd6, args; cvta.local.u64 %rd6, %rd6; st.local.u32 [args], %r1; "
        "mov.b64 %rd8, 0d3FF8000000000000; st.local.b64 [args+8], %rd8; add.u64 %rd9, %rd5, 11; "
        "st.local.u64 [args+16], %rd9; setp.gt.u32 %p1, %r1, 1; @%p1 bra D;\n"
        "{ .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %rd5; st.param.b64 [v], %rd6; "
        "call.uni (r), vprintf, (f, v); ld.param.b32 %r3, [r]; }\nD:"
    )
    text = kernel(body, before=before)
    assert run(text, output(4)).stdout == b"0 1.50 \n!\n1 1.50 \n!\n"
    capped = run(text, output(4), limits=Limits(stdout_bytes=5))
    assert (capped.stdout, capped.stdout_dropped) == (b"0 1.5", 6)


def test_special_registers():
    body = (
        "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 "
        "%r4, %r2, %r3, %r1; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %nctaid.x; "
        "mov.u32 %r7, %ctaid.x; mad.lo.u32 %r5, %r5, %r6, %r7; mov.u32 %r8, %ntid.y; mul.lo.u32 %r9, %r3, "
        "%r8; mad.lo.u32 %r10, %r5, %r9, %r4; mul.wide.u32 %rd2, %r10, 16; "
        "add.u64 %rd3, %rd1, %rd2; mov.u32 %r11, %laneid; mov.u32 %r12, %warpid; mov.u32 %r13, "
        "%lanemask_lt; mov.u32 %r14, WARP_SZ; st.global.v4.u32 [%rd3], {%r11, %r12, %r13, %r14};"
    )
    got = good(run(kernel(body), output(16 * 6 * 60), grid=(3, 2), block=(20, 3))).reshape(6, 60, 4)
    index = np.arange(60)
    assert (got[:, :, 0] == index % 32).all()
    assert (got[:, :, 1] == index // 32).all()
    assert (got[:, :, 2] == (1 << (index % 32)) - 1).all()
    assert (got[:, :, 3] == 32).all()


def test_clocks_go_on():
    body = (
        "ld.param.u64 %rd1, [o]; mov.u64 %rd2, %clock64; nanosleep.u32 20; mov.u64 %rd3, %clock64;\n"
        "setp.gt.u64 %p1, %rd3, %rd2; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1], %r1;"
    )
    assert good(run(kernel(body), output(4)))[0] == 1
