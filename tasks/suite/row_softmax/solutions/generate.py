"""Writes sm_80.ptx: the same butterfly over a block stands twice in the kernel, once for the maximum and once for the sum."""

from pathlib import Path

HEAD = """\
//! launch:
//!   - entry: row_softmax
//!     grid: m
//!     block: 256
//!     args: x, y, n
// Made by generate.py. One block a row, three passes: maximum, sum of exponentials, quotient.
.version 7.8
.target sm_80
.address_size 64

.visible .entry row_softmax(.param .u64 px, .param .u64 py, .param .u32 pn)
{
  .reg .pred %p<8>;
  .reg .b32 %n, %j, %row, %thread, %lane, %warp, %bits, %other, %slot, %own;
  .reg .b64 %x, %y, %offset, %base, %at;
  .reg .f32 %max, %sum, %v, %inverse;
  .shared .align 4 .f32 partial[8];

  ld.param.u64 %x, [px];
  ld.param.u64 %y, [py];
  ld.param.u32 %n, [pn];
  cvta.to.global.u64 %x, %x;
  cvta.to.global.u64 %y, %y;
  mov.u32 %row, %ctaid.x;
  mov.u32 %thread, %tid.x;
  and.b32 %lane, %thread, 31;
  shr.u32 %warp, %thread, 5;
  mov.u32 %own, partial;
  mad.lo.u32 %own, %warp, 4, %own;
  setp.eq.u32 %p0, %lane, 0;
  mul.wide.u32 %base, %row, %n;
  shl.b64 %base, %base, 2;
  mul.wide.u32 %offset, %thread, 4;
  add.u64 %base, %base, %offset;
  add.u64 %x, %x, %base;
  add.u64 %y, %y, %base;
"""

LOOP = """
  mov.u64 %at, {start};
  mov.u32 %j, %thread;
{label}:
  setp.ge.u32 %p1, %j, %n;
  @%p1 bra {label}_END;
{body}
  add.u64 %at, %at, 1024;
  add.u32 %j, %j, 256;
  bra {label};
{label}_END:
"""

EXPONENTIAL = """\
  ld.global.f32 %v, [%at];
  sub.rn.f32 %v, %v, %max;
  mul.rn.f32 %v, %v, 0f3FB8AA3B;          // log2(e)
  ex2.approx.f32 %v, %v;"""


def block_wide(operation: str, value: str, label: str) -> str:
    """All threads of the block end with `value` combined over the block."""
    lines = []
    for distance in (16, 8, 4, 2, 1):
        lines += [
            f"  mov.b32 %bits, {value};",
            f"  shfl.sync.bfly.b32 %other, %bits, {distance}, 31, -1;",
            "  mov.b32 %v, %other;",
            f"  {operation} {value}, {value}, %v;",
        ]
    lines += [
        f"  @%p0 st.shared.f32 [%own], {value};",
        "  bar.sync 0;",
        "  mov.u32 %slot, partial;",
        f"  ld.shared.f32 {value}, [%slot];",
    ]
    for warp in range(1, 8):
        lines += [f"  ld.shared.f32 %v, [%slot+{4 * warp}];", f"  {operation} {value}, {value}, %v;"]
    lines.append("  bar.sync 0;                             // the slots are used again")
    return "\n".join(lines) + "\n"


def source() -> str:
    """The whole candidate file."""
    return "".join(
        [
            HEAD,
            "\n  mov.f32 %max, 0fFF800000;",
            LOOP.format(
                start="%x", label="MAX", body="  ld.global.f32 %v, [%at];\n  max.f32 %max, %max, %v;"
            ),
            block_wide("max.f32", "%max", "MAX"),
            "\n  mov.f32 %sum, 0f00000000;",
            LOOP.format(start="%x", label="SUM", body=EXPONENTIAL + "\n  add.rn.f32 %sum, %sum, %v;"),
            block_wide("add.rn.f32", "%sum", "SUM"),
            "  rcp.rn.f32 %inverse, %sum;\n  sub.u64 %y, %y, %x;                     // from an input to its output",
            LOOP.format(
                start="%x",
                label="OUT",
                body=EXPONENTIAL
                + "\n  mul.rn.f32 %v, %v, %inverse;\n  add.u64 %offset, %at, %y;\n  st.global.f32 [%offset], %v;",
            ),
            "  ret;\n}\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("sm_80.ptx").write_text(source())
