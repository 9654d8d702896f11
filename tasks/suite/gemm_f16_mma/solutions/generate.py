"""Writes sm_80.ptx: two steps of K, eight tensor-core products and their fragments each, written out.

A block of four warps computes 64 x 64 of C, a warp 32 x 32. Tiles of 32 along K go from global memory through registers into
two slots of shared memory: the next tile is on its way while the present one is multiplied.
"""

from pathlib import Path

A_PITCH, B_PITCH = 80, 144
"""Bytes a row of the tiles [64, 32] of A and [32, 64] of B: 16 more than the data, so eight rows lie in different banks."""
B_TILE = 64 * A_PITCH
SLOT = B_TILE + 32 * B_PITCH
ROWS, COLUMNS, STEPS = 2, 4, 2
"""Products a warp: 16 rows each, 8 columns each, 16 deep each."""

HEAD = f"""\
//! launch:
//!   - entry: gemm
//!     grid: cdiv(n, 64), cdiv(m, 64)
//!     block: 128
//!     args: a, b, c, m, n, k
// Made by generate.py. A block computes 64 x 64 of C, each of its four warps 32 x 32; two slots of shared memory along k.
.version 7.8
.target sm_80
.address_size 64

.visible .entry gemm(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pm, .param .u32 pn, .param .u32 pk)
{{
  .reg .pred %p<4>, %in_m<2>, %in_n, %more;
  .reg .b32 %m, %n, %k, %m0, %n0, %thread, %lane, %warp, %row, %col, %t;
  .reg .b32 %ka, %kb, %left, %slot, %other, %put_a, %put_b, %get_a, %get_b, %at_a, %at_b;
  .reg .b32 %u<8>, %v<8>, %a<8>, %b<8>;
  .reg .f32 %c<32>;
  .reg .b64 %a_from<2>, %b_from<2>, %b_step, %out, %down, %wide;
  .shared .align 16 .b8 tiles[{2 * SLOT}];

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
  shl.b32 %m0, %m0, 6;
  mov.u32 %thread, %tid.x;
  and.b32 %lane, %thread, 31;
  shr.u32 %warp, %thread, 5;
  mov.u32 %other, tiles;

  // What this thread brings of A: eight elements of column ka of rows thread / 4 and 32 further down.
  shr.u32 %row, %thread, 2;
  and.b32 %t, %thread, 3;
  shl.b32 %ka, %t, 3;
  mad.lo.u32 %put_a, %row, {A_PITCH}, %other;
  mad.lo.u32 %put_a, %t, 16, %put_a;
  add.u32 %row, %m0, %row;
  setp.lt.u32 %in_m0, %row, %m;
  mul.wide.u32 %wide, %row, %k;
  shl.b64 %wide, %wide, 1;
  add.u64 %a_from0, %a_from0, %wide;
  mul.wide.u32 %wide, %ka, 2;
  add.u64 %a_from0, %a_from0, %wide;
  mul.wide.u32 %wide, %k, 64;             // 32 rows
  add.u64 %a_from1, %a_from0, %wide;
  add.u32 %row, %row, 32;
  setp.lt.u32 %in_m1, %row, %m;

  // What it brings of B: eight columns of rows kb = thread / 8 and 16 further down.
  shr.u32 %kb, %thread, 3;
  and.b32 %t, %thread, 7;
  mad.lo.u32 %put_b, %kb, {B_PITCH}, %other;
  mad.lo.u32 %put_b, %t, 16, %put_b;
  add.u32 %put_b, %put_b, {B_TILE};
  mad.lo.u32 %col, %t, 8, %n0;
  setp.lt.u32 %in_n, %col, %n;
  mul.wide.u32 %wide, %kb, %n;
  shl.b64 %wide, %wide, 1;
  add.u64 %b_from0, %b_from0, %wide;
  mul.wide.u32 %wide, %col, 2;
  add.u64 %b_from0, %b_from0, %wide;
  mul.wide.u32 %b_step, %n, 32;           // 16 rows
  add.u64 %b_from1, %b_from0, %b_step;
  shl.b64 %b_step, %b_step, 1;            // a tile is 32 rows

  // Rows of the shared tiles that this lane points ldmatrix at.
  and.b32 %row, %lane, 15;
  shr.u32 %col, %lane, 4;
  shl.b32 %col, %col, 4;                  // bytes
  and.b32 %t, %warp, 1;
  mad.lo.u32 %t, %t, 32, %row;
  mad.lo.u32 %get_a, %t, {A_PITCH}, %col;
  add.u32 %get_a, %get_a, %other;
  shr.u32 %t, %warp, 1;
  mad.lo.u32 %get_b, %t, 64, %col;        // 32 columns
  mad.lo.u32 %get_b, %row, {B_PITCH}, %get_b;
  add.u32 %get_b, %get_b, %other;
  add.u32 %get_b, %get_b, {B_TILE};
  mov.u32 %slot, 0;
"""


def fetch() -> str:
    """The thread's part of the next tile, from global memory into registers; zeros outside of A and B."""
    lines = ["  setp.lt.and.u32 %p0, %ka, %k, %in_m0;", "  setp.lt.and.u32 %p1, %ka, %k, %in_m1;"]
    lines += [
        "  setp.lt.and.u32 %p2, %kb, %k, %in_n;",
        "  add.u32 %t, %kb, 16;",
        "  setp.lt.and.u32 %p3, %t, %k, %in_n;",
    ]
    lines += [f"  mov.b32 %{name}{i}, 0;" for name in "uv" for i in range(8)]
    for number, (name, source) in enumerate(
        (("u", "a_from0"), ("u", "a_from1"), ("v", "b_from0"), ("v", "b_from1"))
    ):
        registers = ", ".join(f"%{name}{4 * (number % 2) + i}" for i in range(4))
        lines.append(f"  @%p{number} ld.global.v4.b32 {{{registers}}}, [%{source}];")
    lines += ["  add.u32 %ka, %ka, 32;", "  add.u32 %kb, %kb, 32;"]
    lines += [f"  add.u64 %a_from{i}, %a_from{i}, 64;" for i in range(2)]
    lines += [f"  add.u64 %b_from{i}, %b_from{i}, %b_step;" for i in range(2)]
    return "\n".join(lines) + "\n"


def put() -> str:
    """The registers of `fetch` into the slot at %slot."""
    return f"""\
  add.u32 %at_a, %put_a, %slot;
  add.u32 %at_b, %put_b, %slot;
  st.shared.v4.b32 [%at_a], {{%u0, %u1, %u2, %u3}};
  st.shared.v4.b32 [%at_a+{32 * A_PITCH}], {{%u4, %u5, %u6, %u7}};
  st.shared.v4.b32 [%at_b], {{%v0, %v1, %v2, %v3}};
  st.shared.v4.b32 [%at_b+{16 * B_PITCH}], {{%v4, %v5, %v6, %v7}};
"""


def multiply() -> str:
    """32 of K out of the slot at %slot, added to the warp's 32 x 32 of C."""
    lines = ["  add.u32 %at_a, %get_a, %slot;", "  add.u32 %at_b, %get_b, %slot;"]
    for step in range(STEPS):
        for i in range(ROWS):
            registers = ", ".join(f"%a{4 * i + r}" for r in range(4))
            offset = 16 * i * A_PITCH + 32 * step
            lines.append(f"  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{registers}}}, [%at_a+{offset}];")
        for j in range(COLUMNS // 2):
            registers = ", ".join(f"%b{4 * j + r}" for r in range(4))
            offset = 16 * step * B_PITCH + 32 * j
            lines.append(
                f"  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{registers}}}, [%at_b+{offset}];"
            )
        for i in range(ROWS):
            for j in range(COLUMNS):
                c = ", ".join(f"%c{4 * (COLUMNS * i + j) + r}" for r in range(4))
                a = ", ".join(f"%a{4 * i + r}" for r in range(4))
                b = f"%b{2 * j}, %b{2 * j + 1}"
                lines.append(
                    f"  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};"
                )
    return "\n".join(lines) + "\n"


def store() -> str:
    """The warp's part of C; lane l holds two neighbours of row l / 4 and two of the row 8 further down."""
    text = """
  and.b32 %t, %warp, 1;
  mad.lo.u32 %row, %t, 32, %m0;
  shr.u32 %t, %lane, 2;
  add.u32 %row, %row, %t;
  shr.u32 %t, %warp, 1;
  mad.lo.u32 %col, %t, 32, %n0;
  and.b32 %t, %lane, 3;
  mad.lo.u32 %col, %t, 2, %col;
  mul.wide.u32 %wide, %row, %n;
  shl.b64 %wide, %wide, 2;
  add.u64 %out, %out, %wide;
  mul.wide.u32 %wide, %col, 4;
  add.u64 %out, %out, %wide;
  mul.wide.u32 %down, %n, 32;             // 8 rows
"""
    lines = []
    for half in range(2 * ROWS):
        lines.append("  setp.lt.u32 %p0, %row, %m;")
        for j in range(COLUMNS):
            first = 4 * (COLUMNS * (half // 2) + j) + 2 * (half % 2)
            lines.append(f"  add.u32 %t, %col, {8 * j};")
            lines.append("  setp.lt.and.u32 %p1, %t, %n, %p0;")
            lines.append(f"  @%p1 st.global.v2.f32 [%out+{32 * j}], {{%c{first}, %c{first + 1}}};")
        lines += ["  add.u32 %row, %row, 8;", "  add.u64 %out, %out, %down;"]
    return text + "\n".join(lines[:-2]) + "\n  ret;\n}\n"


def source() -> str:
    """The whole candidate file."""
    clear = "".join(f"  mov.f32 %c{i}, 0f00000000;\n" for i in range(32))
    return "".join(
        [
            HEAD,
            clear,
            "\n  // The first tile.\n",
            fetch(),
            put(),
            "  mov.u32 %left, %k;\n  bar.sync 0;\nTILE:\n",
            fetch(),
            multiply(),
            f"  sub.u32 %slot, {SLOT}, %slot;           // the other slot: everyone is done with it\n",
            put(),
            "  bar.sync 0;\n",
            "  setp.gt.u32 %more, %left, 32;\n  sub.u32 %left, %left, 32;\n  @%more bra TILE;\n",
            store(),
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("sm_80.ptx").write_text(source())
