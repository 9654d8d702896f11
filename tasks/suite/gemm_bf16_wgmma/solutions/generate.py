"""Writes sm_90a.ptx: a pipeline of tensor copies that feeds two warpgroups, each multiplying with m64n256k16.

A block computes 128 x 256 of C. Warp 8 is the producer: one of its threads copies 64 of K at a time, of A and of B, into a ring of four
slots of shared memory. Warps 0 to 3 and 4 to 7 are the consumers: each multiplies 64 rows of A by all 256 rows of B and keeps its sums in
128 registers a thread. Two barriers a slot: `full` completes when the bytes of both copies are there, `empty` when all eight consumer
warps are done reading. Blocks are numbered so that those that run together share rows of A and of B in L2.

What lies outside of A and B arrives as zeros, and its bytes count like any others; what lies outside of C is not stored.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation" (matrix descriptor, fragment of D), "Swizzling modes"
of tensors, "mbarrier", "Async proxy".
"""

from pathlib import Path

ROWS, COLUMNS, STEP = 128, 256, 64
"""Of the tile of C, and of K at a time; 64 bfloat16 are the 128 bytes of one row of the swizzle."""
SLOTS = 4
CONSUMERS = 2
"""Warpgroups, each with 64 rows."""
A_BYTES, B_BYTES = ROWS * STEP * 2, COLUMNS * STEP * 2
SLOT = A_BYTES + B_BYTES
SWIZZLE_BYTES = 1024
"""Eight rows of 128 bytes: the pattern repeats after them, and every tile begins at a multiple of it."""
SUMS = COLUMNS // 2
"""Registers a thread: 64 x 256 sums over 128 threads."""
GROUP = 16
"""Tiles of rows that are worked on together."""
DESCRIPTOR = 1 << 62 | (SWIZZLE_BYTES >> 4) << 32 | 1 << 16
"""Swizzle of 128 bytes, 1,024 bytes from one group of eight rows to the next; the leading offset means nothing here."""

HEAD = f"""\
//! launch:
//!   - entry: gemm
//!     grid: cdiv(n, {COLUMNS}), cdiv(m, {ROWS})
//!     block: {CONSUMERS * 128 + 32}
//!     dynamic_smem: {SLOTS} * ({ROWS} + {COLUMNS}) * {STEP} * 2 + {SWIZZLE_BYTES}
//!     args: map_a, map_b, c, m, n, k
//! tensor_maps:
//!   map_a:
//!     tensor: a
//!     box: {STEP}, {ROWS}
//!     swizzle: 128B
//!     l2_promotion: 128B
//!   map_b:
//!     tensor: b
//!     box: {STEP}, {COLUMNS}
//!     swizzle: 128B
//!     l2_promotion: 128B
// Made by generate.py. A block computes {ROWS} x {COLUMNS} of C: one warp copies tiles, two warpgroups multiply them.
.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align {SWIZZLE_BYTES} .b8 pool[];

.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 pc, .param .u32 pm, .param .u32 pn,
                     .param .u32 pk) .maxntid {CONSUMERS * 128 + 32} .minnctapersm 1
{{
  .reg .pred %p<2>, %first, %done, %more;
  .reg .b16 %h;
  .reg .b32 %m, %n, %k, %m0, %n0, %thread, %warp, %lane, %t, %u, %w, %across, %down, %left_up, %left_down;
  .reg .b32 %tiles, %full, %empty, %slot, %phase, %at, %bar, %before, %kc;
  .reg .b64 %a, %b, %desc_a, %desc_b, %da, %db, %c, %up, %low, %wide;
  .reg .f32 %s<{SUMS}>;
  .shared .align 8 .b64 bars_full[{SLOTS}];
  .shared .align 8 .b64 bars_empty[{SLOTS}];

  mov.b64 %a, map_a;
  cvta.param.u64 %a, %a;
  mov.b64 %b, map_b;
  cvta.param.u64 %b, %b;
  ld.param.u64 %c, [pc];
  cvta.to.global.u64 %c, %c;
  ld.param.u32 %m, [pm];
  ld.param.u32 %n, [pn];
  ld.param.u32 %k, [pk];
  mov.u32 %thread, %tid.x;
  shr.u32 %warp, %thread, 5;
  and.b32 %lane, %thread, 31;
  mov.u32 %full, bars_full;
  mov.u32 %empty, bars_empty;
  mov.u32 %tiles, pool;
  add.u32 %tiles, %tiles, {SWIZZLE_BYTES - 1};
  and.b32 %tiles, %tiles, -{SWIZZLE_BYTES};

  // One thread makes the barriers and shows them to the copies.
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra READY;
"""

PLACE = f"""\
  fence.mbarrier_init.release.cluster;
  fence.proxy.async;
READY:
  bar.sync 0;

  // The tile of this block: {GROUP} tiles of rows by all of the columns, then the next {GROUP}.
  mov.u32 %across, %nctaid.x;
  mov.u32 %down, %nctaid.y;
  mov.u32 %t, %ctaid.y;
  mov.u32 %u, %ctaid.x;
  mad.lo.u32 %t, %t, %across, %u;         // number of the block
  mul.lo.u32 %u, %across, {GROUP};
  div.u32 %m0, %t, %u;                    // number of the group
  mul.lo.u32 %u, %m0, %u;
  sub.u32 %t, %t, %u;                     // number in the group
  mul.lo.u32 %m0, %m0, {GROUP};
  sub.u32 %down, %down, %m0;
  min.u32 %down, %down, {GROUP};          // tiles of rows in the group
  div.u32 %n0, %t, %down;
  mul.lo.u32 %u, %n0, %down;
  sub.u32 %t, %t, %u;
  add.u32 %m0, %m0, %t;
  mul.lo.u32 %m0, %m0, {ROWS};
  mul.lo.u32 %n0, %n0, {COLUMNS};
  mov.u32 %slot, 0;
  setp.lt.u32 %p0, %warp, {4 * CONSUMERS};
  @%p0 bra CONSUME;

  // The producer. A slot is free at first: the phase before the first one counts as complete.
  setp.ne.u32 %p0, %lane, 0;
  @%p0 bra END;
  prefetch.tensormap [%a];
  prefetch.tensormap [%b];
  mov.u32 %phase, 1;
  mov.u32 %kc, 0;
FILL:
  mad.lo.u32 %bar, %slot, 8, %empty;
FREE:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%bar], %phase;
  @!%p0 bra FREE;
  mad.lo.u32 %bar, %slot, 8, %full;
  mad.lo.u32 %at, %slot, {SLOT}, %tiles;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {SLOT};
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [%a, {{%kc, %m0}}], [%bar];
  add.u32 %at, %at, {A_BYTES};
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [%b, {{%kc, %n0}}], [%bar];
  add.u32 %slot, %slot, 1;
  setp.eq.u32 %p0, %slot, {SLOTS};
  selp.b32 %slot, 0, %slot, %p0;
  @%p0 xor.b32 %phase, %phase, 1;
  add.u32 %kc, %kc, {STEP};
  setp.lt.u32 %more, %kc, %k;
  @%more bra FILL;
  bra END;

  // The consumers. A descriptor is the place in units of 16 bytes, with what is the same for all tiles.
CONSUME:
  shr.u32 %u, %warp, 2;                   // number of the warpgroup: 64 rows of A further down for each
  shr.u32 %t, %tiles, 4;
  mad.lo.u32 %u, %u, {64 * STEP * 2 >> 4}, %t;
  cvt.u64.u32 %desc_a, %u;
  or.b64 %desc_a, %desc_a, {DESCRIPTOR};
  add.u32 %t, %t, {A_BYTES >> 4};
  cvt.u64.u32 %desc_b, %t;
  or.b64 %desc_b, %desc_b, {DESCRIPTOR};
  mov.u32 %phase, 0;
  mov.u32 %kc, 0;
  mov.u32 %before, %empty;
  setp.eq.u32 %first, %lane, %lane;
"""

MULTIPLY = f"""\
MULTIPLY:
  mad.lo.u32 %bar, %slot, 8, %full;
FILLED:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%bar], %phase;
  @!%p0 bra FILLED;
  mul.wide.u32 %wide, %slot, {SLOT >> 4};
  add.u64 %da, %desc_a, %wide;
  add.u64 %db, %desc_b, %wide;
  wgmma.fence.sync.aligned;
"""

TURN = f"""\
  wgmma.commit_group.sync.aligned;
  // All but these products are done: the slot before is free, one arrival a warp.
  wgmma.wait_group.sync.aligned 1;
  setp.ne.or.u32 %p0, %lane, 0, %first;
  @!%p0 mbarrier.arrive.shared::cta.b64 _, [%before];
  mad.lo.u32 %before, %slot, 8, %empty;
  setp.ne.u32 %first, %lane, %lane;
  add.u32 %slot, %slot, 1;
  setp.eq.u32 %p0, %slot, {SLOTS};
  selp.b32 %slot, 0, %slot, %p0;
  @%p0 xor.b32 %phase, %phase, 1;
  add.u32 %kc, %kc, {STEP};
  setp.lt.u32 %more, %kc, %k;
  @%more bra MULTIPLY;
  wgmma.wait_group.sync.aligned 0;
"""

PLACES_OF_C = """\

  // Lane l of a warp holds columns 2 (l mod 4) and the next, 8 further, and so on, of the rows l / 4 and l / 4 + 8 of the warp's 16.
  shr.u32 %t, %lane, 2;
  mad.lo.u32 %t, %warp, 16, %t;
  add.u32 %t, %t, %m0;                    // row
  and.b32 %u, %lane, 3;
  mad.lo.u32 %u, %u, 2, %n0;              // column
  mul.wide.u32 %up, %t, %n;
  cvt.u64.u32 %wide, %u;
  add.u64 %up, %up, %wide;
  shl.b64 %up, %up, 1;
  add.u64 %up, %c, %up;
  mul.wide.u32 %low, %n, 16;              // 8 rows
  add.u64 %low, %up, %low;
  sub.u32 %u, %n, %u;                     // columns from here to the edge, negative outside
  setp.lt.u32 %p0, %t, %m;
  selp.b32 %left_up, %u, 0, %p0;
  add.u32 %t, %t, 8;
  setp.lt.u32 %p0, %t, %m;
  selp.b32 %left_down, %u, 0, %p0;
  and.b32 %t, %n, 1;
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra ODD;
"""


def barriers() -> str:
    """One arrival and the bytes of two copies fill a slot; one arrival of each consumer warp empties it."""
    lines: list[str] = []
    for slot in range(SLOTS):
        lines.append(f"  mbarrier.init.shared::cta.b64 [%full+{8 * slot}], 1;")
        lines.append(f"  mbarrier.init.shared::cta.b64 [%empty+{8 * slot}], {4 * CONSUMERS};")
    return "\n".join(lines) + "\n"


def products() -> str:
    """64 of K: four products 16 deep, 32 bytes further along the swizzled rows each time."""
    sums = ", ".join(f"%s{i}" for i in range(SUMS))
    lines: list[str] = []
    for part in range(STEP // 16):
        if part:
            lines += ["  add.u64 %da, %da, 2;", "  add.u64 %db, %db, 2;"]
        lines.append(
            f"  wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.bf16.bf16\n    {{{sums}}},\n    %da, %db, 1, 1, 1, 0, 0;"
        )
    return "\n".join(lines) + "\n"


def store() -> str:
    """The sums, two neighbours at once where rows of C begin at multiples of four bytes."""
    pairs: list[str] = []
    singles: list[str] = []
    for pair in range(SUMS // 2):
        rows, column = ("up", "low")[pair % 2], 8 * (pair // 2)
        left = ("left_up", "left_down")[pair % 2]
        pairs += [
            f"  cvt.rn.bf16x2.f32 %w, %s{2 * pair + 1}, %s{2 * pair};",
            f"  setp.gt.s32 %p0, %{left}, {column};",
            f"  @%p0 st.global.b32 [%{rows}+{2 * column}], %w;",
        ]
        for inner in range(2):
            singles += [
                f"  cvt.rn.bf16.f32 %h, %s{2 * pair + inner};",
                f"  setp.gt.s32 %p0, %{left}, {column + inner};",
                f"  @%p0 st.global.b16 [%{rows}+{2 * (column + inner)}], %h;",
            ]
    return "\n".join([*pairs, "  ret;", "ODD:", *singles, "END:", "  ret;", "}", ""])


def source() -> str:
    """The whole candidate file."""
    clear = "".join(f"  mov.f32 %s{i}, 0f00000000;\n" for i in range(SUMS))
    return "".join([HEAD, barriers(), PLACE, clear, MULTIPLY, products(), TURN, PLACES_OF_C, store()])


if __name__ == "__main__":
    Path(__file__).with_name("sm_90a.ptx").write_text(source())
