"""A whole kernel of tensor-core instructions: cp.async in two stages, ldmatrix, mma.sync, against NumPy."""

import numpy as np
import pytest

from sandbox.device import Outcome
from tests.sandbox.emulator.harness import HEAD, data, good, output, run


def gemm(m: int, n: int, k: int) -> str:
    """C (m × n, f32) = A (m × k, f16) · B (k × n, f16); 128 threads make 64 × 64 of C, a warp 16 rows of it."""
    accumulators = [f"%f{i}" for i in range(32)]
    copy = (
        "cp.async.cg.shared.global [%r20], [%rd20], 16; cp.async.cg.shared.global [%r21], [%rd21], 16;\n"
        f"cp.async.commit_group; add.u64 %rd20, %rd20, 32; add.u64 %rd21, %rd21, {32 * n};\n"
        "xor.b32 %r20, %r20, 4096; xor.b32 %r21, %r21, 4096;\n"
    )
    text = [
        HEAD + ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)\n{",
        ".reg .pred %p<4>; .reg .b32 %r<80>; .reg .b64 %rd<40>; .reg .f32 %f<32>; .shared .align 8192 .b8 sm[8192];",
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; mov.u32 %r1, %tid.x;",
        "mov.u32 %r2, %ctaid.y; shl.b32 %r2, %r2, 6; mov.u32 %r3, %ctaid.x; shl.b32 %r3, %r3, 6;",
        # where this thread copies: row tid/2 of A, half tid%2; row tid/8 of B, part tid%8
        f"shr.u32 %r4, %r1, 1; add.u32 %r5, %r2, %r4; mul.lo.u32 %r5, %r5, {2 * k}; and.b32 %r6, %r1, 1;",
        "shl.b32 %r6, %r6, 4; add.u32 %r5, %r5, %r6; cvt.u64.u32 %rd4, %r5; add.u64 %rd20, %rd1, %rd4;",
        f"shr.u32 %r7, %r1, 3; mul.lo.u32 %r8, %r7, {2 * n}; shl.b32 %r9, %r3, 1; add.u32 %r8, %r8, %r9;",
        "and.b32 %r10, %r1, 7; shl.b32 %r10, %r10, 4; add.u32 %r8, %r8, %r10; cvt.u64.u32 %rd5, %r8;",
        "add.u64 %rd21, %rd2, %rd5; mov.u32 %r11, sm; shl.b32 %r12, %r1, 4; add.u32 %r20, %r11, %r12;",
        "add.u32 %r21, %r20, 2048;",
        # where this lane's matrix rows begin
        "shr.u32 %r13, %r1, 5; and.b32 %r14, %r1, 31; and.b32 %r15, %r14, 15; shr.u32 %r16, %r14, 4;",
        "shl.b32 %r17, %r13, 4; add.u32 %r17, %r17, %r15; shl.b32 %r17, %r17, 5; shl.b32 %r18, %r16, 4;",
        "add.u32 %r17, %r17, %r18; add.u32 %r30, %r11, %r17; shl.b32 %r19, %r15, 7; add.u32 %r19, %r19, %r18;",
        "add.u32 %r31, %r11, %r19; add.u32 %r31, %r31, 2048; mov.u32 %r32, 0;",
        *(f"mov.f32 {each}, 0f00000000;" for each in accumulators),
        copy,
        f"LOOP: add.u32 %r32, %r32, 16; setp.lt.u32 %p1, %r32, {k}; @!%p1 bra LAST;",
        copy,
        "cp.async.wait_group 1; bra READY;",
        "LAST: cp.async.wait_all;",
        "READY: bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r40, %r41, %r42, %r43}, [%r30];",
    ]
    for j in range(4):
        text.append(
            f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r50, %r51, %r52, %r53}}, [%r31+{32 * j}];"
        )
        for half in range(2):
            four = ", ".join(accumulators[8 * j + 4 * half :][:4])
            text.append(
                f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{four}}}, {{%r40, %r41, %r42, %r43}}, "
                f"{{%r5{2 * half}, %r5{2 * half + 1}}}, {{{four}}};"
            )
    text += [
        "bar.sync 0; xor.b32 %r30, %r30, 4096; xor.b32 %r31, %r31, 4096; @%p1 bra LOOP;",
        "shr.u32 %r60, %r14, 2; and.b32 %r61, %r14, 3; shl.b32 %r62, %r13, 4; add.u32 %r62, %r62, %r60;",
        f"add.u32 %r62, %r62, %r2; mul.lo.u32 %r63, %r62, {n}; shl.b32 %r64, %r61, 1; add.u32 %r63, %r63, %r64;",
        "add.u32 %r63, %r63, %r3; mul.wide.u32 %rd6, %r63, 4; add.u64 %rd7, %rd3, %rd6;",
    ]
    for j in range(8):
        a, b, c, d = accumulators[4 * j : 4 * j + 4]
        text.append(f"st.global.v2.f32 [%rd7+{32 * j}], {{{a}, {b}}};")
        text.append(f"st.global.v2.f32 [%rd7+{32 * j + 32 * n}], {{{c}, {d}}};")
    return "\n".join([*text, "ret;\n}\n"])


def multiply(m: int, n: int, k: int) -> tuple[Outcome, np.ndarray]:
    """The outcome and what it should be; small integers make every sum exact."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-4, 5, (m, k)).astype("f2"), rng.integers(-4, 5, (k, n)).astype("f2")
    buffers = {**data(a=a, b=b), "c": output(4 * m * n)["o"]}
    outcome = run(gemm(m, n, k), buffers, (n // 64, m // 64), (128,), ("a", "b", "c"))
    return outcome, a.astype("f4") @ b.astype("f4")


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 16), (128, 192, 80)])
def test_gemm(m: int, n: int, k: int):
    outcome, expected = multiply(m, n, k)
    assert (good(outcome, "f4", "c").reshape(m, n) == expected).all()
    mma = sum(count for (_, _, name), count in outcome.counts.by_site.items() if name.startswith("mma."))
    assert mma == (m // 16) * (n // 8) * (k // 16)
    assert not outcome.notices
