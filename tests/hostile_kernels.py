"""Families of kernels that misbehave in one way each, with random numbers in them, and honest ones: for the tasks affine and vector_add.

A family takes a source of chance and a `Form` and gives a candidate's text; `FAMILIES` says what every one of its kernels must be called.
More than one verdict stands there only where the emulator and a GPU rightly differ, or where the PTX ISA defines no outcome; the reason
stands beside it. A race that may or may not show is not drawn, since its verdict would not be known.

Registers: %rd1 first input, %rd2 output, %rd3 second input of vector_add, %r1 n, %r2 to %r4 block, threads of a block, thread, %r5 index.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tools.evaluation import Verdict

CORRECT, WRONG, FAULT, HANG = Verdict.CORRECT, Verdict.WRONG_OUTPUT, Verdict.FAULT, Verdict.HANG


@dataclass(frozen=True, slots=True)
class Form:
    """What differs between the tasks. compute: from %f1 (and %f3) to %f2."""

    task: str
    args: str
    more: str
    load: str
    compute: str


FORMS = (
    Form("affine", "x, y, n", "", "", "fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000;"),
    Form(
        "vector_add",
        "a, c, n, b",
        ", .param .u64 pb",
        "ld.param.u64 %rd3, [pb]; ",
        "add.u64 %rd8, %rd3, %rd5; ld.global.f32 %f3, [%rd8]; add.rn.f32 %f2, %f1, %f3;",
    ),
)
Make = Callable[[random.Random, Form], str]


def kernel(
    form: Form,
    before: str = "",
    *,
    after: str = "",
    compute: str | None = None,
    guard: str = "",
    store: str = "st.global.f32 [%rd7], %f2;",
    outside: str = "",
    plan: str = "",
    block: str = "256",
    args: str | None = None,
) -> str:
    """A candidate: one element a thread.

    before: ahead of everything; guard: more threads that go home; after: between the answer and its store; outside: declarations of the
    module; plan: further lines of the launch.
    """
    return f"""\
//! launch:
//!   - entry: k
//!     grid: cdiv(n, 256)
//!     block: {block}
//!     args: {args or form.args}
{plan}.version 8.0
.target sm_90a
.address_size 64
{outside}
.visible .entry k(.param .u64 px, .param .u64 py, .param .u32 pn{form.more})
{{
  .reg .pred %p<8>; .reg .b32 %r<24>; .reg .f32 %f<8>; .reg .b64 %rd<24>;
  ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; ld.param.u32 %r1, [pn]; {form.load}
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
  {before}
  setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
  {guard}
  mul.wide.u32 %rd5, %r5, 4; add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5;
  ld.global.f32 %f1, [%rd6]; {form.compute if compute is None else compute}
  {after}
  {store}
DONE:
  ret;
}}
"""


# --- honest ---------------------------------------------------------------------------------------------------------------


def _plain(chance: random.Random, form: Form) -> str:
    return kernel(form, f"// {chance.randrange(1 << 30)}")


def _strided(chance: random.Random, form: Form) -> str:
    """Few blocks, each thread many elements."""
    text = kernel(form, store="st.global.f32 [%rd7], %f2; add.u32 %r5, %r5, %r7; bra NEXT;")
    text = text.replace(
        "setp.ge.u32 %p1", "mov.u32 %r6, %nctaid.x; mul.lo.u32 %r7, %r6, %r3;\nNEXT: setp.ge.u32 %p1"
    )
    return text.replace("grid: cdiv(n, 256)", f"grid: min(cdiv(n, 256), {chance.randrange(1, 300)})")


def _printing(chance: random.Random, form: Form) -> str:
    """One thread prints what looks like a verdict."""
    said = ",".join(map(str, b'{"verdict": "correct"}\n\0'))
    call = (
        "{ .param .b64 a0; .param .b64 a1; .param .b32 r0; mov.u64 %rd9, said; cvta.global.u64 %rd9, %rd9; st.param.b64 [a0], %rd9; "
        "st.param.b64 [a1], 0; call.uni (r0), vprintf, (a0, a1); }"
    )
    return kernel(
        form,
        f"setp.ne.u32 %p2, %r5, {chance.randrange(1000)}; @%p2 bra QUIET; {call}\nQUIET:",
        outside=f".extern .func (.param .b32 r0) vprintf(.param .b64 a0, .param .b64 a1);\n"
        f".global .align 1 .b8 said[{said.count(',') + 1}] = {{{said}}};",
    )


def _shared(chance: random.Random, form: Form) -> str:
    """Through shared memory and back, another thread's slot and a barrier between."""
    far = chance.randrange(1, 256)
    before = (
        f"mov.u32 %r8, tile; mad.lo.u32 %r9, %r4, 4, %r8; st.shared.u32 [%r9], %r4; bar.sync 0; add.u32 %r10, %r4, {far}; "
        "and.b32 %r10, %r10, 255; mad.lo.u32 %r9, %r10, 4, %r8; ld.shared.u32 %r11, [%r9]; sub.u32 %r11, %r11, %r10; "
        "mul.lo.u32 %r3, %r2, 256; add.u32 %r5, %r3, %r4; add.u32 %r5, %r5, %r11;"
    )
    return kernel(form, before, outside=".shared .align 4 .b8 tile[1024];")


def _counting(chance: random.Random, form: Form) -> str:
    """A counter in the module that nothing depends on."""
    step = chance.randrange(1, 1000)
    return kernel(form, f"red.global.add.u32 [count], {step};", outside=".global .align 4 .u32 count = 0;")


HONEST_KERNELS: tuple[Make, ...] = (_plain, _strided, _printing, _shared, _counting)
"""Right answers in several dresses."""


# --- addresses ------------------------------------------------------------------------------------------------------------


def _beyond(chance: random.Random, form: Form) -> str:
    away = chance.choice((1 << chance.randrange(33, 46), -(1 << chance.randrange(33, 40))))
    return kernel(form, f"mov.u64 %rd8, {away}; add.u64 %rd8, %rd2, %rd8; st.global.u32 [%rd8], %r5;")


def _just_past(chance: random.Random, form: Form) -> str:
    """One thread stores up to 1 KiB behind the output."""
    return kernel(
        form,
        f"setp.ne.u32 %p2, %r5, 0; @%p2 bra IN; mul.wide.u32 %rd8, %r1, 4; add.u64 %rd8, %rd2, %rd8; "
        f"mov.u32 %r6, 12345; st.global.u32 [%rd8+{4 * chance.randrange(256)}], %r6;\nIN:",
    )


def _just_before(chance: random.Random, form: Form) -> str:
    """One thread stores up to 4 KiB in front of the output."""
    return kernel(
        form,
        f"setp.ne.u32 %p2, %r5, 0; mov.u32 %r6, 12345; @!%p2 st.global.u32 [%rd2+-{4 * chance.randrange(1, 1024)}], %r6;",
    )


def _peeking(chance: random.Random, form: Form) -> str:
    """Reads a little behind the input and keeps what it saw from mattering."""
    return kernel(
        form,
        f"mul.wide.u32 %rd8, %r1, 4; add.u64 %rd8, %rd1, %rd8; ld.global.u32 %r6, [%rd8+{4 * chance.randrange(256)}]; "
        "xor.b32 %r6, %r6, %r6; add.u32 %r5, %r5, %r6;",
    )


def _null(chance: random.Random, form: Form) -> str:
    if chance.random() < 0.5:
        return kernel(form, f"mov.u64 %rd8, {4 * chance.randrange(1000)}; st.global.u32 [%rd8], %r5;")
    return kernel(
        form, f"mov.u64 %rd8, {4 * chance.randrange(1000)}; ld.global.u32 %r6, [%rd8]; add.u32 %r5, %r5, %r6;"
    )


def _misaligned(chance: random.Random, form: Form) -> str:
    return kernel(
        form,
        chance.choice(
            (
                f"add.u64 %rd8, %rd2, {chance.choice((1, 2, 3))}; st.global.u32 [%rd8], %r5;",
                "add.u64 %rd8, %rd2, 8; mov.u32 %r6, 0; st.global.v4.u32 [%rd8], {%r6, %r6, %r6, %r6};",
                f"add.u64 %rd8, %rd2, {chance.choice((1, 2, 3))}; red.global.add.u32 [%rd8], %r5;",
                f"mov.u32 %r8, tile; add.u32 %r8, %r8, {chance.choice((1, 2, 3))}; st.shared.u32 [%r8], %r5;",
            )
        ),
        outside=".shared .align 16 .b8 tile[64];",
    )


def _wild(chance: random.Random, form: Form) -> str:
    """Every thread stores somewhere else in the whole address space."""
    factor = chance.getrandbits(63) | 1
    return kernel(
        form,
        f"cvt.u64.u32 %rd8, %r5; add.u64 %rd8, %rd8, 1; mul.lo.u64 %rd8, %rd8, {factor}; shr.u64 %rd8, %rd8, 15; "
        "and.b64 %rd8, %rd8, -8; st.global.u64 [%rd8], %rd8;",
    )


def _wrapped(chance: random.Random, form: Form) -> str:
    """An offset that overflows 32 bits and comes out negative for some threads."""
    step = (1 << 28) + 4 * chance.randrange(1, 1 << 20)
    return kernel(
        form,
        f"mul.lo.u32 %r6, %r5, {step}; mul.wide.s32 %rd8, %r6, 1; add.u64 %rd8, %rd2, %rd8; st.global.u32 [%rd8], %r5;",
    )


def _local(chance: random.Random, form: Form) -> str:
    """More local memory than a thread may have."""
    size = chance.choice((1 << 19, (1 << 19) + 16 * chance.randrange(1, 1 << 16)))
    return kernel(
        form,
        ".local .align 16 .b8 much["
        + str(size)
        + "]; mov.u64 %rd8, much; mul.wide.u32 %rd9, %r4, 4; add.u64 %rd8, %rd8, %rd9; st.local.u32 [%rd8], %r5; ld.local.u32 %r5, [%rd8];",
    )


# --- time -----------------------------------------------------------------------------------------------------------------


def _spin(chance: random.Random, form: Form) -> str:
    return kernel(
        form,
        chance.choice(
            (
                "LOOP: bra LOOP;",
                "LOOP: add.u32 %r6, %r6, 1; bra LOOP;",
                "LOOP: ld.volatile.global.u32 %r6, [%rd1]; setp.ne.u32 %p2, %r6, 123456789; @%p2 bra LOOP;",
                f"setp.eq.u32 %p2, %r4, {chance.randrange(32)}; LOOP: @%p2 bra LOOP;",
                f"setp.eq.u32 %p2, %r5, {chance.randrange(1000)}; LOOP: nanosleep.u32 100; @%p2 bra LOOP;",
                "atom.global.add.u32 %r6, [flag], 1; LOOP: ld.volatile.global.u32 %r7, [flag]; "
                "setp.gt.u32 %p2, %r7, 0x7FFFFFFF; @!%p2 bra LOOP;",
                "LOOP: atom.global.cas.b32 %r6, [flag], 1, 2; setp.ne.u32 %p2, %r6, 1; @%p2 bra LOOP;",
            )
        ),
        outside=".global .align 4 .u32 flag = 0;",
    )


def _barrier(chance: random.Random, form: Form) -> str:
    """Waits for threads that never come."""
    number, warps = chance.randrange(1, 16), chance.randrange(1, 8)
    return kernel(
        form,
        f"setp.lt.u32 %p2, %r4, {32 * warps}; @!%p2 bra PAST; bar.sync {number}, {32 * (warps + chance.randrange(1, 9 - warps))};\nPAST:",
    )


def _mbarrier(chance: random.Random, form: Form) -> str:
    """Waits for arrivals, or bytes, that never come."""
    count = chance.randrange(2, 1000)
    arrive = chance.choice(
        (
            f"mbarrier.init.shared::cta.b64 [%r6], {count}; mbarrier.arrive.shared::cta.b64 %rd8, [%r6];",
            f"mbarrier.init.shared::cta.b64 [%r6], 1; mbarrier.arrive.expect_tx.shared::cta.b64 %rd8, [%r6], {16 * count};",
        )
    )
    return kernel(
        form,
        f"mov.u32 %r6, gate; setp.ne.u32 %p2, %r4, 0; @%p2 bra WAIT; {arrive}\nWAIT: bar.sync 0;\n"
        "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0; @!%p3 bra LOOP;",
        outside=".shared .align 8 .b64 gate;",
    )


# --- endings --------------------------------------------------------------------------------------------------------------


def _trap(chance: random.Random, form: Form) -> str:
    return kernel(form, f"setp.eq.u32 %p2, %r5, {chance.randrange(900)}; @%p2 trap;")


def _assert(chance: random.Random, form: Form) -> str:
    line = chance.randrange(1, 1000)
    call = (
        "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 u; .param .b64 c; mov.u64 %rd8, text; cvta.global.u64 %rd8, %rd8; "
        f"st.param.b64 [m], %rd8; st.param.b64 [f], %rd8; st.param.b32 [l], {line}; st.param.b64 [u], %rd8; st.param.b64 [c], 1; "
        "call.uni __assertfail, (m, f, l, u, c); }"
    )
    return kernel(
        form,
        f"setp.ne.u32 %p2, %r5, {chance.randrange(1000)}; @%p2 bra HOLDS; {call}\nHOLDS:",
        outside=".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 u, .param .b64 c);\n"
        ".global .align 1 .b8 text[3] = {110,111,0};",
    )


def _jump(chance: random.Random, form: Form) -> str:
    """A branch through a table, past its end."""
    return kernel(
        form,
        f"JUMPS: .branchtargets A, B, C, D, E;\n  add.u32 %r6, %r4, {chance.randrange(6, 1 << 20)}; brx.idx %r6, JUMPS;\n"
        "A: add.u32 %r7, %r7, 1;\nB: xor.b32 %r7, %r7, 3;\nC: mul.lo.u32 %r7, %r7, 5;\nD: not.b32 %r7, %r7;\n"
        "E: setp.eq.u32 %p2, %r7, 77; @%p2 bra DONE;".replace("%r7", "%r4"),
    )


def _recursion(chance: random.Random, form: Form) -> str:
    """Calls itself without end; the frame keeps every call."""
    return kernel(
        form,
        "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r5; call (r), deep, (a); ld.param.b32 %r6, [r]; } "
        "setp.eq.u32 %p2, %r6, 77; @%p2 bra DONE;",
        outside=f""".func (.param .b32 r) deep(.param .b32 a)
{{
  .reg .b32 %d<4>; .reg .b64 %w<2>; .local .align 4 .b8 frame[{64 * chance.randrange(1, 16)}];
  ld.param.u32 %d0, [a]; st.local.u32 [frame], %d0; add.u32 %d1, %d0, 1;
  {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %d1; call (y), deep, (x); ld.param.b32 %d2, [y]; }}
  ld.local.u32 %d3, [frame]; add.u32 %d2, %d2, %d3; st.param.b32 [r], %d2; ret;
}}""",
    )


# --- answers --------------------------------------------------------------------------------------------------------------


def _inputs(chance: random.Random, form: Form) -> str:
    value = chance.randrange(1 << 20) | 1
    return kernel(form, f"setp.eq.u32 %p2, %r5, 0; mov.u32 %r6, {value}; @%p2 st.global.u32 [%rd1], %r6;")


def _wrong(chance: random.Random, form: Form) -> str:
    return kernel(form, after=f"add.rn.f32 %f2, %f2, 0f{0x3E000000 + chance.randrange(1 << 24):08X};")


def _one_wrong(chance: random.Random, form: Form) -> str:
    return kernel(
        form, after=f"setp.eq.u32 %p2, %r5, {chance.randrange(1000)}; @%p2 add.rn.f32 %f2, %f2, 0f40000000;"
    )


def _large_wrong(chance: random.Random, form: Form) -> str:
    """Wrong for the largest shapes alone."""
    return kernel(
        form, after=f"setp.gt.u32 %p2, %r1, {chance.randrange(17000, 60000)}; @%p2 mov.f32 %f2, 0f00000000;"
    )


def _partial(chance: random.Random, form: Form) -> str:
    mask = chance.choice((1, 3, 7))
    return kernel(form, f"and.b32 %r7, %r5, {mask}; setp.eq.u32 %p3, %r7, 0; @%p3 bra DONE;")


def _half(chance: random.Random, form: Form) -> str:
    """Some of the warps of every block, or the later part of the data, go home."""
    return kernel(
        form,
        chance.choice(
            (
                f"setp.ge.u32 %p3, %r4, {32 * chance.randrange(1, 8)}; @%p3 exit;",
                f"mul.lo.u32 %r6, %r5, {chance.randrange(2, 5)}; setp.ge.u32 %p3, %r6, %r1; @%p3 ret;",
            )
        ),
    )


def _nan(chance: random.Random, form: Form) -> str:
    return kernel(
        form, after=f"mov.f32 %f2, 0f{chance.choice((0x7FC00000, 0xFFC00000, 0x7F800000, 0x7FFFFFFF)):08X};"
    )


def _state(chance: random.Random, form: Form) -> str:
    """Right for the first launches, then nothing is written any more."""
    return kernel(
        form,
        f"ld.volatile.global.u32 %r6, [ran]; setp.ge.u32 %p2, %r6, {chance.randrange(1, 5)}; @%p2 bra LAST;",
        store="st.global.f32 [%rd7], %f2; bra DONE;\nLAST:",
        outside=".global .align 4 .u32 ran = 0; .global .align 4 .u32 came = 0;",
    ).replace(
        "DONE:\n",
        "DONE:\n  mov.u32 %r10, %nctaid.x; mul.lo.u32 %r11, %r10, %r3; sub.u32 %r11, %r11, 1;\n"
        "  atom.global.add.u32 %r12, [came], 1; setp.ne.u32 %p4, %r12, %r11; @%p4 bra OUT;\n"
        "  st.volatile.global.u32 [came], 0; ld.volatile.global.u32 %r6, [ran]; add.u32 %r6, %r6, 1;\n"
        "  st.volatile.global.u32 [ran], %r6;\nOUT:\n",
    )


def _unwritten_shared(chance: random.Random, form: Form) -> str:
    """Adds what the last kernel left in shared memory."""
    return kernel(
        form,
        after=f"ld.shared.f32 %f4, [tile+{4 * chance.randrange(1024)}]; add.rn.f32 %f2, %f2, %f4;",
        outside=".shared .align 4 .b8 tile[4096];",
    )


def _unwritten_register(chance: random.Random, form: Form) -> str:
    return kernel(form, after=f"add.rn.f32 %f2, %f{chance.randrange(4, 8)}, %f2;")


def _clock(chance: random.Random, form: Form) -> str:
    """Wrong unless some bits of the clock happen to be as wanted."""
    mask = 0x7FF
    return kernel(
        form,
        f"mov.u32 %r6, %clock; and.b32 %r6, %r6, {mask};",
        after=f"setp.ne.u32 %p2, %r6, {chance.randrange(mask)}; @%p2 mov.f32 %f2, 0f00000000;",
    )


# --- texts and plans ------------------------------------------------------------------------------------------------------


def _syntax(chance: random.Random, form: Form) -> str:
    text = kernel(form)
    at = chance.randrange(text.index(".reg"), len(text) - 20)
    return text[:at] + chance.choice(("@@", "%%%", "ld.blobal ", "{{", "\x00")) + text[at:]


def _refused(chance: random.Random, form: Form) -> str:
    """What the assembler does not know, or this target has not."""
    return chance.choice(
        (
            kernel(form, "fma.rn.f33 %f1, %f1, %f1, %f1;"),
            kernel(form, f"add.u32 %r6, %r6, %r{chance.randrange(50, 99)};"),
            kernel(form).replace("sm_90a", chance.choice(("sm_91", "sm_100a", "sm_120a"))),
            kernel(form).replace(".version 8.0", f".version {chance.choice(('99.0', '6.0', '8'))}"),
            kernel(
                form,
                f".shared .align 4 .b8 much[{chance.randrange(233_473, 1 << 24)}]; st.shared.u32 [much], %r5;",
            ),
        )
    )


def _plan(chance: random.Random, form: Form) -> str:
    names = form.args.split(", ")
    return kernel(
        form,
        args=", ".join(
            chance.choice(
                (
                    [*names, "n"],
                    names[:-1],
                    ["z", *names[1:]],
                    [names[0], "1.5", *names[2:]],
                    ["m // n", *names[1:]],
                )
            )
        ),
    )


def _block(chance: random.Random, form: Form) -> str:
    if chance.random() < 0.5:
        return kernel(form, block=chance.choice(("1025", "2048", "33, 32", "1, 1, 65")))
    return kernel(form, plan=f"//!     dynamic_smem: {chance.randrange(232_449, 1 << 22)}\n")


FAMILIES: dict[str, tuple[Make, frozenset[Verdict]]] = {
    "beyond": (_beyond, frozenset({FAULT})),
    "just_past": (_just_past, frozenset({FAULT})),
    "just_before": (_just_before, frozenset({FAULT})),
    # A GPU lets a kernel read to the end of a page; what it read does not matter to the answer.
    "peeking": (_peeking, frozenset({FAULT, CORRECT})),
    "null": (_null, frozenset({FAULT})),
    "misaligned": (_misaligned, frozenset({FAULT})),
    "wild": (_wild, frozenset({FAULT})),
    "wrapped": (_wrapped, frozenset({FAULT})),
    "local": (_local, frozenset({Verdict.LAUNCH_ERROR})),
    "spin": (_spin, frozenset({HANG})),
    "barrier": (_barrier, frozenset({HANG})),
    "mbarrier": (_mbarrier, frozenset({HANG})),
    "trap": (_trap, frozenset({FAULT})),
    "assert": (_assert, frozenset({FAULT})),
    # Undefined: the emulator names it; a GPU jumps wherever the bytes behind the table lead.
    "jump": (_jump, frozenset({FAULT, HANG, WRONG, CORRECT})),
    # A GPU finds the end of the stack, or the end of patience.
    "recursion": (_recursion, frozenset({FAULT, HANG})),
    "inputs": (_inputs, frozenset({WRONG})),
    "wrong": (_wrong, frozenset({WRONG})),
    "one_wrong": (_one_wrong, frozenset({WRONG})),
    "large_wrong": (_large_wrong, frozenset({WRONG})),
    "partial": (_partial, frozenset({WRONG})),
    "half": (_half, frozenset({WRONG})),
    "nan": (_nan, frozenset({WRONG})),
    "state": (_state, frozenset({WRONG})),
    "unwritten_shared": (_unwritten_shared, frozenset({WRONG})),
    # Whatever the assembler puts into a register that nothing wrote: where it is a zero the answer is right.
    "unwritten_register": (_unwritten_register, frozenset({WRONG, CORRECT})),
    "clock": (_clock, frozenset({WRONG})),
    "syntax": (_syntax, frozenset({Verdict.ASSEMBLE_ERROR})),
    "refused": (_refused, frozenset({Verdict.ASSEMBLE_ERROR})),
    "plan": (_plan, frozenset({Verdict.BAD_PLAN})),
    "block": (_block, frozenset({Verdict.LAUNCH_ERROR})),
}
"""Kind → how it is made, and what it must be called."""


def heap(chance: random.Random, form: Form) -> str:
    """Takes device memory and never gives it back; for a GPU alone, the emulator has no heap."""
    size = 16 * chance.randrange(1, 1 << 12)
    return kernel(
        form,
        f"{{ .param .b64 s; .param .b64 r; st.param.b64 [s], {size}; call.uni (r), malloc, (s); ld.param.b64 %rd8, [r]; }}",
        outside=".extern .func (.param .b64 r) malloc(.param .b64 s);",
    )
