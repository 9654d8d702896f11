"""Writes sm_80.ptx: two steps of K, sixteen tensor-core products and their fragments each, written out.

A block of four warps computes 128 x 64 of C, a warp 64 x 32. Tiles of 32 along K are copied asynchronously into a ring of three
slots of shared memory, two tiles ahead of the one that is multiplied.
"""

from pathlib import Path

PITCH = 80
"""Bytes a row of the tiles [128, 32] of A and [64, 32] of B: 16 more than the data, so eight rows lie in different banks."""
B_TILE = 128 * PITCH
SLOT = B_TILE + 64 * PITCH
SLOTS = 3
ROWS, COLUMNS, STEPS = 4, 4, 2
"""Products a warp: 16 rows each, 8 columns each, 16 deep each."""
A_COPIES, B_COPIES = 4, 2
"""Copies of 16 bytes a thread and tile; 32 rows apart."""

HEAD = f"""\
//! launch:
//!   - entry: gemm
//!     grid: cdiv(n, 64), cdiv(m, 128)
//!     block: 128
//!     args: a, b, c, m, n, k
// Made by generate.py. A block computes 128 x 64 of C, each of its four warps 64 x 32; three slots of shared memory along k.
.version 7.8
.target sm_80
.address_size 64

.visible .entry gemm(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pm, .param .u32 pn, .param .u32 pk)
{{
  .reg .pred %p<2>, %in_k, %more;
  .reg .b16 %h;
  .reg .b32 %m, %n, %k, %m0, %n0, %thread, %lane, %warp, %row, %col, %t, %bytes;
  .reg .b32 %kc, %left, %slot, %fill, %put, %get_a, %get_b, %to, %at_a, %at_b;
  .reg .b32 %a_bytes<{A_COPIES}>, %b_bytes<{B_COPIES}>, %a<16>, %b<8>;
  .reg .f32 %c<64>;
  .reg .b64 %a_from<{A_COPIES}>, %b_from<{B_COPIES}>, %out, %down, %wide;
  .shared .align 16 .b8 tiles[{SLOTS * SLOT}];

  ld.param.u64 %a_from0, [pa];
  ld.param.u64 %b_from0, [pb];
  ld.param.u64 %out, [pc];
  ld.param.u32 %m, [pm];
  ld.param.u32 %n, [pn];
  ld.param.u32 %k, [pk];
  cvta.to.global.u64 %a_from0, %a_from0;
  cvta.to.global.u64 %b_from0, %b_from0;
  cvta.to.global.u64 %out, %out;
  mov.u32 %n0, %ctaid.x;
  shl.b32 %n0, %n0, 6;
  mov.u32 %m0, %ctaid.y;
  shl.b32 %m0, %m0, 7;
  mov.u32 %thread, %tid.x;
  and.b32 %lane, %thread, 31;
  shr.u32 %warp, %thread, 5;
  mov.u32 %fill, tiles;

  // What this thread copies: eight elements from column kc on, of rows thread / 4, 32 further down, and so on.
  shr.u32 %row, %thread, 2;
  and.b32 %t, %thread, 3;
  shl.b32 %kc, %t, 3;
  mad.lo.u32 %put, %row, {PITCH}, %fill;
  mad.lo.u32 %put, %t, 16, %put;
  add.u32 %col, %n0, %row;
  add.u32 %row, %m0, %row;
  mul.wide.u32 %down, %k, 64;             // 32 rows
"""

LANES = f"""\

  // Rows of the shared tiles that this lane points ldmatrix at.
  and.b32 %row, %lane, 15;
  and.b32 %t, %warp, 1;
  mad.lo.u32 %row, %t, 64, %row;
  mad.lo.u32 %get_a, %row, {PITCH}, %fill;
  shr.u32 %t, %lane, 4;
  mad.lo.u32 %get_a, %t, 16, %get_a;
  shl.b32 %row, %t, 3;
  and.b32 %t, %lane, 7;
  add.u32 %row, %row, %t;
  shr.u32 %t, %warp, 1;
  mad.lo.u32 %row, %t, 32, %row;
  mad.lo.u32 %get_b, %row, {PITCH}, %fill;
  shr.u32 %t, %lane, 3;
  and.b32 %t, %t, 1;
  mad.lo.u32 %get_b, %t, 16, %get_b;
  add.u32 %get_b, %get_b, {B_TILE};
  mov.u32 %slot, 0;
  mov.u32 %fill, 0;
"""


def places() -> str:
    """Where the thread's copies come from, and how many bytes of each exist."""
    lines = []
    for name, at, end, copies in (("a", "row", "m", A_COPIES), ("b", "col", "n", B_COPIES)):
        lines += [
            f"  mul.wide.u32 %wide, %{at}, %k;",
            "  shl.b64 %wide, %wide, 1;",
            f"  add.u64 %{name}_from0, %{name}_from0, %wide;",
            "  mul.wide.u32 %wide, %kc, 2;",
            f"  add.u64 %{name}_from0, %{name}_from0, %wide;",
        ]
        for i in range(copies):
            if i:
                lines.append(f"  add.u64 %{name}_from{i}, %{name}_from{i - 1}, %down;")
                lines.append(f"  add.u32 %{at}, %{at}, 32;")
            lines.append(f"  setp.lt.u32 %p0, %{at}, %{end};")
            lines.append(f"  selp.b32 %{name}_bytes{i}, 16, 0, %p0;")
    return "\n".join(lines) + "\n"


def copy() -> str:
    """Starts the copies of the next tile into the slot at %fill; what lies outside of A and B arrives as zeros."""
    lines = ["  setp.lt.u32 %in_k, %kc, %k;", "  add.u32 %to, %put, %fill;"]
    for name, first, copies in (("a", 0, A_COPIES), ("b", B_TILE, B_COPIES)):
        for i in range(copies):
            lines += [
                f"  selp.b32 %bytes, %{name}_bytes{i}, 0, %in_k;",
                f"  cp.async.cg.shared.global [%to+{first + 32 * PITCH * i}], [%{name}_from{i}], 16, %bytes;",
                f"  add.u64 %{name}_from{i}, %{name}_from{i}, 64;",
            ]
    lines += ["  cp.async.commit_group;", "  add.u32 %kc, %kc, 32;", *turn("fill")]
    return "\n".join(lines) + "\n"


def turn(slot: str) -> list[str]:
    """The slot after this one in the ring."""
    return [
        f"  add.u32 %{slot}, %{slot}, {SLOT};",
        f"  setp.eq.u32 %p0, %{slot}, {SLOTS * SLOT};",
        f"  selp.b32 %{slot}, 0, %{slot}, %p0;",
    ]


def multiply() -> str:
    """32 of K out of the slot at %slot, added to the warp's 64 x 32 of C."""
    lines = ["  add.u32 %at_a, %get_a, %slot;", "  add.u32 %at_b, %get_b, %slot;"]
    for step in range(STEPS):
        for name, count in (("a", ROWS), ("b", COLUMNS // 2)):
            for i in range(count):
                registers = ", ".join(f"%{name}{4 * i + r}" for r in range(4))
                offset = 16 * i * PITCH + 32 * step
                lines.append(
                    f"  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{registers}}}, [%at_{name}+{offset}];"
                )
        for i in range(ROWS):
            for j in range(COLUMNS):
                c = ", ".join(f"%c{4 * (COLUMNS * i + j) + r}" for r in range(4))
                a = ", ".join(f"%a{4 * i + r}" for r in range(4))
                b = f"%b{2 * j}, %b{2 * j + 1}"
                lines.append(
                    f"  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};"
                )
    return "\n".join([*lines, *turn("slot")]) + "\n"


def store() -> str:
    """The warp's part of C; lane l holds two neighbours of row l / 4 and two of the row 8 further down, and so on."""
    text = """
  and.b32 %t, %warp, 1;
  mad.lo.u32 %row, %t, 64, %m0;
  shr.u32 %t, %lane, 2;
  add.u32 %row, %row, %t;
  shr.u32 %t, %warp, 1;
  mad.lo.u32 %col, %t, 32, %n0;
  and.b32 %t, %lane, 3;
  mad.lo.u32 %col, %t, 2, %col;
  mul.wide.u32 %wide, %row, %n;
  shl.b64 %wide, %wide, 1;
  add.u64 %out, %out, %wide;
  mul.wide.u32 %wide, %col, 2;
  add.u64 %out, %out, %wide;
  mul.wide.u32 %down, %n, 16;             // 8 rows
"""
    lines = []
    for half in range(2 * ROWS):
        lines.append("  setp.lt.u32 %p0, %row, %m;")
        for j in range(COLUMNS):
            for inner in range(2):
                register = 4 * (COLUMNS * (half // 2) + j) + 2 * (half % 2) + inner
                lines += [
                    f"  add.u32 %t, %col, {8 * j + inner};",
                    "  setp.lt.and.u32 %p1, %t, %n, %p0;",
                    f"  cvt.rn.bf16.f32 %h, %c{register};",
                    f"  @%p1 st.global.b16 [%out+{16 * j + 2 * inner}], %h;",
                ]
        lines += ["  add.u32 %row, %row, 8;", "  add.u64 %out, %out, %down;"]
    return text + "\n".join(lines[:-2]) + "\n  ret;\n}\n"


def source() -> str:
    """The whole candidate file."""
    clear = "".join(f"  mov.f32 %c{i}, 0f00000000;\n" for i in range(4 * ROWS * COLUMNS))
    return "".join(
        [
            HEAD,
            places(),
            LANES,
            clear,
            "\n  // The first two tiles.\n",
            copy(),
            copy(),
            "  mov.u32 %left, %k;\nTILE:\n",
            "  cp.async.wait_group 1;                  // this thread's part of the tile is here\n",
            "  bar.sync 0;                             // everyone's is, and the slot before it is free\n",
            copy(),
            multiply(),
            "  setp.gt.u32 %more, %left, 32;\n  sub.u32 %left, %left, 32;\n  @%more bra TILE;\n",
            "  cp.async.wait_group 0;\n",
            store(),
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("sm_80.ptx").write_text(source())
