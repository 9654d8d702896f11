"""The harness's own kernels, as PTX that any GPU since sm_80 takes; the driver compiles them once a worker.

- `canary`: writes a known number for every thread, and is read back: the GPU does what it is told.
- `hold`: one thread lets time pass, so that what is queued behind it starts without gaps.
- `stain`: fills shared memory, which keeps what the last kernel left there; a block takes all of a multiprocessor's shared memory.
- `nothing`: does nothing, and is counted by whatever counts launches.

Source: PTX ISA, "Special Registers" (%globaltimer), "Shared State Space".
"""

from __future__ import annotations

from typing import Final

CANARY_THREADS: Final = 4096
CANARY_FACTOR: Final = 2_654_435_761
STAIN_THREADS: Final = 1024
STAIN_ROUNDS: Final = 4
"""Blocks a multiprocessor is given, so that each gets one whatever the order they are handed out in."""

PTX: Final = f"""\
.version 7.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 space[];

.visible .entry canary(.param .u64 out, .param .u32 seed)
{{
    .reg .u64 %to, %at;
    .reg .u32 %i, %block, %size, %value;
    ld.param.u64 %to, [out];
    ld.param.u32 %value, [seed];
    mov.u32 %i, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mad.lo.u32 %i, %block, %size, %i;
    mad.lo.u32 %value, %i, {CANARY_FACTOR}, %value;
    mul.wide.u32 %at, %i, 4;
    add.u64 %at, %at, %to;
    st.global.u32 [%at], %value;
    ret;
}}

.visible .entry hold(.param .u64 nanoseconds)
{{
    .reg .u64 %start, %now, %limit;
    .reg .pred %more;
    ld.param.u64 %limit, [nanoseconds];
    mov.u64 %start, %globaltimer;
WAIT:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %more, %now, %limit;
    @%more bra WAIT;
    ret;
}}

.visible .entry stain(.param .u32 bytes, .param .u32 word)
{{
    .reg .u32 %i, %step, %bytes, %word, %base, %at;
    .reg .pred %more;
    ld.param.u32 %bytes, [bytes];
    ld.param.u32 %word, [word];
    mov.u32 %base, space;
    mov.u32 %i, %tid.x;
    shl.b32 %i, %i, 4;
    mov.u32 %step, %ntid.x;
    shl.b32 %step, %step, 4;
    setp.lt.u32 %more, %i, %bytes;
    @!%more bra DONE;
FILL:
    add.u32 %at, %base, %i;
    st.shared.v4.u32 [%at], {{%word, %word, %word, %word}};
    add.u32 %i, %i, %step;
    setp.lt.u32 %more, %i, %bytes;
    @%more bra FILL;
DONE:
    ret;
}}

.visible .entry nothing()
{{
    ret;
}}
"""


def canary_answer(index: int, seed: int) -> int:
    """What thread `index` of `canary` must have written."""
    return (index * CANARY_FACTOR + seed) & 0xFFFFFFFF
