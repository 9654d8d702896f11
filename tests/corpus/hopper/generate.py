"""Writes the candidates of this folder: all right answers of gemm_bf16_wgmma, few of which owe anything to wgmma or to a tensor copy.

    python -m tests.corpus.hopper.generate

`manifest.json` says of each what it does and how deep its evidence goes. Decorations stand in front of an ordinary product of one row by
128 columns a block; two candidates are the plain wgmma product of `tests.tools.hopper`, one of them with its copies made useless.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.tools import hopper

FOLDER = Path(__file__).parent
ZEROS, ONES = "0", "0x3F803F80"
"""What the tile of a decoration is filled with: two bfloat16 of 0, or of 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file. wgmma, tma_load: the depths that a truthful judge finds."""

    text: str
    says: str
    wgmma: str
    tma_load: str

    @property
    def met(self) -> bool:
        return self.wgmma == self.tma_load == "load_bearing"


MAPS = '//! tensor_maps:\n//!   map_a: {tensor: a, box: ["64", "64"], swizzle: 128B}\n'


def ordinary(says: str, before: str = "", after: str = "", maps: bool = False) -> str:
    """A product without tensor cores. before: at the start, all 128 threads together; after: once %sum is complete."""
    return f"""\
//! launch:
//!   - entry: gemm
//!     grid: cdiv(n, 128), m
//!     block: 128
//!     args: {"map_a, " if maps else ""}a, b, c, n, k
{MAPS if maps else ""}\
// Made by generate.py. {says}
.version 8.0
.target sm_90a
.address_size 64

.visible .entry gemm({".param .align 64 .b8 map_a[128], " if maps else ""}.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn,
                     .param .u32 pk) .maxntid 128
{{
  .reg .pred %p, %never;
  .reg .b16 %h;
  .reg .b32 %n, %k, %row, %column, %thread, %l, %at, %bar, %t, %u, %a<4>, %b<4>;
  .reg .b64 %pa, %pb, %pc, %map, %wide, %desc;
  .reg .f32 %sum, %x, %y, %zero, %w<4>;
  .shared .align 1024 .b8 tile[8192];
  .shared .align 8 .b64 bar;

  ld.param.u64 %pa, [pa];
  cvta.to.global.u64 %pa, %pa;
  ld.param.u64 %pb, [pb];
  cvta.to.global.u64 %pb, %pb;
  ld.param.u64 %pc, [pc];
  cvta.to.global.u64 %pc, %pc;
  ld.param.u32 %n, [pn];
  ld.param.u32 %k, [pk];
  mov.u32 %thread, %tid.x;
  mov.u32 %row, %ctaid.y;
  mov.u32 %column, %ctaid.x;
  mad.lo.u32 %column, %column, 128, %thread;
{before}
  // c[row, column], eight products at a time.
  setp.ge.u32 %p, %column, %n;
  @%p bra END;
  mul.wide.u32 %wide, %row, %k;
  shl.b64 %wide, %wide, 1;
  add.u64 %pa, %pa, %wide;
  mul.wide.u32 %wide, %column, %k;
  shl.b64 %wide, %wide, 1;
  add.u64 %pb, %pb, %wide;
  mov.f32 %sum, 0f00000000;
  mov.u32 %l, 0;
NEXT:
  ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%pa];
  ld.global.v4.b32 {{%b0, %b1, %b2, %b3}}, [%pb];
{_eight()}\
  add.u64 %pa, %pa, 16;
  add.u64 %pb, %pb, 16;
  add.u32 %l, %l, 8;
  setp.lt.u32 %p, %l, %k;
  @%p bra NEXT;
{after}\
  mul.wide.u32 %wide, %row, %n;
  shl.b64 %wide, %wide, 1;
  add.u64 %pc, %pc, %wide;
  mul.wide.u32 %wide, %column, 2;
  add.u64 %pc, %pc, %wide;
  cvt.rn.bf16.f32 %h, %sum;
  st.global.b16 [%pc], %h;
END:
  ret;
}}
"""


def _eight() -> str:
    """Products of the pairs in %a and %b: the lower half of a word comes first; a bfloat16 is the upper half of a float."""
    lines: list[str] = []
    for word in range(4):
        for part in ("shl.b32 {0}, {1}, 16;", "and.b32 {0}, {1}, 0xFFFF0000;"):
            lines += [
                "  " + part.format("%t", f"%a{word}"),
                "  mov.b32 %x, %t;",
                "  " + part.format("%t", f"%b{word}"),
                "  mov.b32 %y, %t;",
                "  fma.rn.f32 %sum, %x, %y, %sum;",
            ]
    return "\n".join(lines) + "\n"


def filled(word: str) -> str:
    """The tile holds one word all over, visible to wgmma."""
    stores = "\n".join(f"  st.shared.v4.b32 [%at+{16 * i}], {{%t, %t, %t, %t}};" for i in range(4))
    return f"""\
  mov.u32 %at, tile;
  mad.lo.u32 %at, %thread, 64, %at;
  mov.b32 %t, {word};
{stores}
  fence.proxy.async;
  bar.sync 0;
"""


COPIED = """\
  // A tile of A, for nobody.
  mov.u32 %bar, bar;
  mov.u32 %at, tile;
  setp.eq.u32 %p, %thread, 0;
  mov.b64 %map, map_a;
  cvta.param.u64 %map, %map;
  @%p mbarrier.init.shared::cta.b64 [%bar], 1;
  @%p fence.mbarrier_init.release.cluster;
  @%p fence.proxy.async;
  bar.sync 0;
  mov.u32 %t, 0;
  @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 8192;
  @%p cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [%map, {%t, %row}], [%bar];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra WAIT;
"""

PRODUCT = f"""\
  mov.u32 %at, tile;
  shr.u32 %at, %at, 4;
  cvt.u64.u32 %desc, %at;
  or.b64 %desc, %desc, {hopper.DESCRIPTOR};
  mov.f32 %w0, 0f00000000;
  mov.f32 %w1, 0f00000000;
  mov.f32 %w2, 0f00000000;
  mov.f32 %w3, 0f00000000;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%w0, %w1, %w2, %w3}}, %desc, %desc, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
"""

KEPT = """\
  setp.eq.f32 %never, %w0, 0f7F123456;
  @%never trap;
"""
"""Nothing but this number, which no product here comes to, makes a difference."""

TIMES_ZERO = """\
  mov.u32 %t, %ctaid.z;                   // 0, which the assembler cannot know
  cvt.rn.f32.u32 %zero, %t;
  fma.rn.f32 %sum, %w0, %zero, %sum;
"""

NEVER = f"""\
  setp.ne.u32 %p, %k, 12345679;           // always: k is a multiple of 8
  @%p bra ON;
{filled(ONES)}{PRODUCT}{KEPT}\
ON:
"""


DECORATIONS = (
    (
        "unused_wgmma",
        "The result of a wgmma is kept alive and not used.",
        filled(ZEROS) + PRODUCT + KEPT,
        "",
        "executed",
        "absent",
    ),
    (
        "zeroed_wgmma",
        "The result of a wgmma, 16, is multiplied by zero and added.",
        filled(ONES) + PRODUCT,
        TIMES_ZERO,
        "executed",
        "absent",
    ),
    (
        "wgmma_of_zeros",
        "The result of a wgmma of zeros is added.",
        filled(ZEROS) + PRODUCT,
        "  add.rn.f32 %sum, %sum, %w0;\n",
        "executed",
        "absent",
    ),
    ("never_wgmma", "A wgmma behind a branch that is never taken.", NEVER, "", "in_sass", "absent"),
    ("unread_copy", "A tensor copy whose data nobody reads.", COPIED, "", "absent", "executed"),
    (
        "decorative_both",
        "A wgmma of a tile that a tensor copy brought, multiplied by zero and added.",
        COPIED + PRODUCT,
        TIMES_ZERO,
        "executed",
        "executed",
    ),
)
"""Name, what it says, what stands before and after the product, depths of wgmma and tma_load."""


def overwritten() -> str:
    """The plain wgmma product whose threads write both tiles themselves once the tensor copies have come."""
    lines = [
        "// The same tiles once more: thread t brings parts t, t + 128 and so on, of 16 bytes, in their swizzled places.",
    ]
    for tile, pointer, first, rows in (("%r6", "%rd10", "%r2", "%r3"), ("%r7", "%rd11", "%r1", "%r4")):
        for part in range(4):
            lines += [
                f"add.u32 %r20, %r0, {128 * part}; shr.u32 %r21, %r20, 3; and.b32 %r22, %r20, 7;  // row, part of it",
                f"add.u32 %r23, %r21, {first}; shl.b32 %r24, %r22, 3; add.u32 %r24, %r24, %r10;",
                f"setp.lt.u32 %p5, %r23, {rows}; setp.lt.and.u32 %p5, %r24, %r5, %p5;",
                "mul.wide.u32 %rd12, %r23, %r5; cvt.u64.u32 %rd13, %r24; add.u64 %rd12, %rd12, %rd13; shl.b64 %rd12, %rd12, 1;",
                f"add.u64 %rd12, {pointer}, %rd12;",
                "mov.b32 %r25, 0; mov.b32 %r26, 0; mov.b32 %r27, 0; mov.b32 %r28, 0;",
                "@%p5 ld.global.v4.b32 {%r25, %r26, %r27, %r28}, [%rd12];",
                "and.b32 %r23, %r21, 7; xor.b32 %r22, %r22, %r23; shl.b32 %r21, %r21, 7; mad.lo.u32 %r21, %r22, 16, %r21;",
                f"add.u32 %r21, %r21, {tile};",
                "st.shared.v4.b32 [%r21], {%r25, %r26, %r27, %r28};",
            ]
    lines += ["fence.proxy.async;", "bar.sync 0;", ""]
    text = hopper.gemm()
    for old, new in (
        ("args: map_a, map_b, c,", "args: map_a, map_b, a, b, c,"),
        ("map_b[128], .param .u64 c,", "map_b[128], .param .u64 a, .param .u64 b, .param .u64 c,"),
        (
            "ld.param.u64 %rd0, [c];",
            "ld.param.u64 %rd10, [a]; ld.param.u64 %rd11, [b];\nld.param.u64 %rd0, [c];",
        ),
        ("@!%p1 bra WAIT;\n", "@!%p1 bra WAIT;\n" + "\n".join(lines)),
        ("bar.sync 0;\nxor.b32 %r11", "fence.proxy.async;\nbar.sync 0;\nxor.b32 %r11"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def candidates() -> dict[str, Candidate]:
    """Name → candidate."""
    made = {
        "plain_wgmma": Candidate(
            hopper.gemm(),
            "A product by wgmma on tiles that tensor copies bring, as simple as it gets.",
            "load_bearing",
            "load_bearing",
        ),
        "overwritten_copy": Candidate(
            overwritten(),
            "The same, but ordinary stores write over what the tensor copies brought.",
            "load_bearing",
            "executed",
        ),
    }
    for name, says, before, after, wgmma, tma_load in DECORATIONS:
        made[name] = Candidate(ordinary(says, before, after, COPIED in before), says, wgmma, tma_load)
    return made


def manifest() -> str:
    """What stands in manifest.json."""
    told = {
        name: {
            "task": "gemm_bf16_wgmma",
            "says": each.says,
            "verdict": "correct",
            "depths": {"wgmma": each.wgmma, "tma_load": each.tma_load},
            "targets_met": each.met,
        }
        for name, each in candidates().items()
    }
    return json.dumps(told, indent=2) + "\n"


if __name__ == "__main__":
    for name, each in candidates().items():
        (FOLDER / f"{name}.ptx").write_text(each.text)
    (FOLDER / "manifest.json").write_text(manifest())
