"""Words that PTX knows, for naming the nearest one to a word it does not know. Nothing is judged by them.

Source: PTX ISA 9, "Instruction Set" (opcodes) and the type, rounding and scope modifiers of its chapters.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPCODES: frozenset[str] = _words(
    """
    abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt
    brx call clmad clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a
    dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2
    lop3 mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 multimem
    nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt sad selp set
    setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix sub subc suld suq
    sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq vote wgmma wmma xor
    """
)

SECOND_WORDS: dict[str, frozenset[str]] = {
    "wgmma": frozenset({"mma_async", "fence", "commit_group", "wait_group"}),
    "mbarrier": frozenset(
        {
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "test_wait",
            "try_wait",
            "pending_count",
            "expect_tx",
            "complete_tx",
        }
    ),
    "cp": frozenset({"async"}),
    "tcgen05": frozenset(
        {
            "alloc",
            "dealloc",
            "relinquish_alloc_permit",
            "ld",
            "st",
            "wait",
            "cp",
            "shift",
            "mma",
            "commit",
            "fence",
        }
    ),
    "barrier": frozenset({"sync", "arrive", "red", "cluster", "cta"}),
    "griddepcontrol": frozenset({"launch_dependents", "wait"}),
}
"""Opcode → the modifiers that must come first after it."""

MODIFIERS: frozenset[str] = _words(
    """
    a16 a1 acq_rel acquire add aligned all and any approx arrive async b1 b128 b16 b32 b64 b8 bf16
    bf16x2 bfly bulk bulk_group ca cas cg cluster col commit_group const cs cta cv dec down e4m3 e5m2 eq
    exch expect_tx f16 f16x2 f32 f64 fence ftz full ge geu global gpu gt gtu hi idx im2col inc init l1
    le leu lo local lt ltu lu m16n8k16 m16n8k32 m16n8k4 m16n8k8 m8n8 max mbarrier min mma_async nan nc
    ne neu noftz num or param popc pred proxy read red relaxed release rm rn rna rni rmi rp rpi rs row
    rz rzi s16 s32 s64 s8 sat sats satfinite shared shared::cluster shared::cta sync sys tensor tf32
    tile to trans try_wait u16 u32 u64 u8 uni up v2 v4 v8 volatile wait wait_all wait_group wb weak wide
    wrap write wt x1 x2 x4 xor
    """
)

LOOKALIKES: dict[str, str] = {
    "exp": "ex2.approx.f32 after multiplying by log2(e)",
    "exp2": "ex2.approx.f32",
    "log": "lg2.approx.f32 and a multiplication by ln(2)",
    "log2": "lg2.approx.f32",
    "pow": "lg2.approx.f32, mul.f32 and ex2.approx.f32",
    "cmp": "setp",
    "jmp": "bra",
    "br": "bra",
    "load": "ld",
    "store": "st",
    "lds": "ld.shared",
    "sts": "st.shared",
    "ldg": "ld.global",
    "stg": "st.global",
    "syncthreads": "bar.sync 0",
    "mac": "fma or mad",
    "ffma": "fma.rn.f32",
    "fadd": "add.f32",
    "fmul": "mul.f32",
    "imad": "mad.lo.s32",
    "select": "selp",
    "sel": "selp",
    "atomic": "atom",
    "atomicadd": "atom.add",
    "return": "ret",
    "sigmoid": "ex2.approx.f32, add.f32 and rcp.approx.f32",
    "erf": "a polynomial of fma.rn.f32",
    "floor": "cvt.rmi.f32.f32",
    "ceil": "cvt.rpi.f32.f32",
    "round": "cvt.rni.f32.f32",
    "trunc": "cvt.rzi.f32.f32",
}
"""Words of C, of SASS or of other assemblers → what PTX says instead."""

C_NAMES: dict[str, str] = {
    "threadIdx": "%tid",
    "blockIdx": "%ctaid",
    "blockDim": "%ntid",
    "gridDim": "%nctaid",
}
"""Names of CUDA C++ → the special register."""

WORDS_OF_C: frozenset[str] = _words(
    """
    = += -= ++ if else for while do int float double half unsigned char void return const auto struct
    include #include __global__ __device__ __shared__ asm volatile extern template using namespace
    """
)
"""Tokens at which PTX text that is really C stops parsing."""


def nearest(word: str, known: Iterable[str], count: int = 2) -> tuple[str, ...]:
    """Up to `count` known words closest to `word`, best first; empty when none is near."""
    return tuple(difflib.get_close_matches(word, sorted(known), n=count, cutoff=0.6))
