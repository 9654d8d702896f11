"""Kernels with Hopper's own instructions, to try the judge with: a real wgmma product, and a product that merely shows wgmma.

The real one computes C = A Bᵀ a tile of 64 x 64 a block: one thread loads both operands by tensor copies (128-byte swizzle) into shared
memory, a warpgroup multiplies them, 16 of the 64 columns of a step at a time. It is as simple as such a kernel can be, and not fast.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" (matrix descriptor, accumulator fragment), "cp.async.bulk.tensor".
"""

from __future__ import annotations

from tasks.registry import load_task

TILE, STEP = 64, 64
BYTES = TILE * STEP * 2
DESCRIPTOR = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
"""128-byte swizzle; 1,024 bytes between groups of eight rows; the leading offset is not used."""

PLAN = f"""\
//! launch:
//!   - entry: gemm
//!     grid: cdiv(n, {TILE}), cdiv(m, {TILE})
//!     block: 128
//!     args: map_a, map_b, c, m, n, k
//! tensor_maps:
//!   map_a: {{tensor: a, box: ["{STEP}", "{TILE}"], swizzle: 128B}}
//!   map_b: {{tensor: b, box: ["{STEP}", "{TILE}"], swizzle: 128B}}
"""


def gemm() -> str:
    """A candidate for gemm_bf16_async that multiplies by wgmma and loads by tensor copies."""
    sums = ", ".join(f"%acc{i}" for i in range(32))
    lines = [
        ".version 8.0",
        ".target sm_90a",
        ".address_size 64",
        ".visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 c,",
        "                     .param .u32 m, .param .u32 n, .param .u32 k) .maxntid 128",
        "{",
        f".shared .align 1024 .b8 tile_a[{BYTES}];",
        f".shared .align 1024 .b8 tile_b[{BYTES}];",
        ".shared .align 8 .b64 full;",
        ".reg .f32 %acc<32>; .reg .b64 %rd<16>; .reg .b32 %r<32>; .reg .b16 %h; .reg .pred %p<8>;",
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;",
        "ld.param.u64 %rd0, [c]; cvta.to.global.u64 %rd0, %rd0;",
        "ld.param.u32 %r3, [m]; ld.param.u32 %r4, [n]; ld.param.u32 %r5, [k];",
        "mov.b64 %rd1, map_a; mov.b64 %rd2, map_b; cvta.param.u64 %rd1, %rd1; cvta.param.u64 %rd2, %rd2;",
        f"shl.b32 %r1, %r1, 6; shl.b32 %r2, %r2, 6;  // first column, first row of the tile ({TILE} each)",
        "mov.u32 %r6, tile_a; mov.u32 %r7, tile_b; mov.u32 %r8, full;",
        "setp.eq.u32 %p0, %r0, 0;",
        "@%p0 mbarrier.init.shared.b64 [%r8], 1;",
        "@%p0 fence.proxy.async;",
        "bar.sync 0;",
        f"shr.u32 %r9, %r6, 4; cvt.u64.u32 %rd3, %r9; or.b64 %rd3, %rd3, {DESCRIPTOR};",
        f"shr.u32 %r9, %r7, 4; cvt.u64.u32 %rd4, %r9; or.b64 %rd4, %rd4, {DESCRIPTOR};",
        *(f"mov.f32 %acc{i}, 0f00000000;" for i in range(32)),
        "mov.u32 %r10, 0; mov.u32 %r11, 0;  // column of k, parity",
        "STEPS:",
        f"@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {2 * BYTES};",
        "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r6], [%rd1, {%r10, %r2}], [%r8];",
        "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r7], [%rd2, {%r10, %r1}], [%r8];",
        "WAIT:",
        "mbarrier.try_wait.parity.shared.b64 %p1, [%r8], %r11;",
        "@!%p1 bra WAIT;",
        "wgmma.fence.sync.aligned;",
    ]
    for part in range(STEP // 16):
        lines += [
            f"add.u64 %rd5, %rd3, {2 * part}; add.u64 %rd6, %rd4, {2 * part};",
            f"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{sums}}}, %rd5, %rd6, 1, 1, 1, 0, 0;",
        ]
    lines += [
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "bar.sync 0;",
        "xor.b32 %r11, %r11, 1;",
        f"add.u32 %r10, %r10, {STEP};",
        "setp.lt.u32 %p2, %r10, %r5;",
        "@%p2 bra STEPS;",
        "and.b32 %r12, %r0, 31; shr.u32 %r13, %r0, 5; shl.b32 %r13, %r13, 4;",
        "shr.u32 %r14, %r12, 2; add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r2;  // row",
        "and.b32 %r14, %r12, 3; shl.b32 %r14, %r14, 1; add.u32 %r14, %r14, %r1;  // column",
    ]
    for index in range(32):
        row, column = 8 * (index >> 1 & 1), 8 * (index >> 2) + (index & 1)
        lines += [
            f"add.u32 %r15, %r13, {row}; add.u32 %r16, %r14, {column};",
            "setp.lt.u32 %p3, %r15, %r3; setp.lt.and.u32 %p3, %r16, %r4, %p3;",
            "mul.wide.u32 %rd7, %r15, %r4; cvt.u64.u32 %rd8, %r16; add.u64 %rd7, %rd7, %rd8;",
            "shl.b64 %rd7, %rd7, 1; add.u64 %rd7, %rd0, %rd7;",
            f"cvt.rn.bf16.f32 %h, %acc{index};",
            "@%p3 st.global.b16 [%rd7], %h;",
        ]
    return PLAN + "\n".join([*lines, "ret;", "}", ""])


DECORATION = """
    .reg .f32 %wg<4>; .reg .b64 %wd; .reg .pred %wnever; .reg .u32 %wz; .reg .f32 %wzero;
    mov.u64 %wd, {descriptor};
    mov.f32 %wg0, 0f00000000; mov.f32 %wg1, %wg0; mov.f32 %wg2, %wg0; mov.f32 %wg3, %wg0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%wg0, %wg1, %wg2, %wg3}}, %wd, %wd, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {use}
"""
USES = {
    "unused": "setp.eq.f32 %wnever, %wg0, 0f7F123456; @%wnever trap;",
    "times zero": """mov.u32 %wz, %tid.z; cvt.rn.f32.u32 %wzero, %wz; mul.f32 %wg0, %wg0, %wzero;
    setp.gt.f32 %wnever, %wg0, 0f3F800000; @%wnever exit;""",
}


def decorated(use: str) -> str:
    """The mma.sync solution of gemm_bf16_async behind a wgmma whose result comes to nothing. use: a key of `USES`."""
    path = load_task("gemm_bf16_async").solution("sm_90a")
    assert path is not None
    text = path.read_text().replace(".target sm_80", ".target sm_90a")
    version = text.index(".version")
    text = text[:version] + ".version 8.0" + text[text.index("\n", version) :]
    body = text.index("\n{", text.index(".entry")) + 2
    return text[:body] + DECORATION.format(descriptor=DESCRIPTOR, use=USES[use]) + text[body:]
