"""Instruction families: the one registry that prompts, inspection, proof and scores read.

A family says how its PTX is spelled, which machine opcodes it becomes, where it exists, who executes it together and how much work one
execution does. Waiting and committing leave code even when the operation they wait for is gone, so they never count for it.

Source: PTX ISA, the sections of the instructions; opcodes were read from what ptxas 13.x makes for sm_80, sm_90a and sm_100a.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from sandbox.ptx.nodes import Immediate, Instruction

Collective: TypeAlias = Literal["thread", "warp", "warpgroup"]


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution does."""

    flops: int = 0
    """Multiplications and additions, 2·M·N·K of a shape; of the dense shape for sparse ones."""
    bytes: int = 0
    """Bytes moved."""


@dataclass(frozen=True, slots=True)
class Family:
    """One instruction family."""

    name: str
    title: str
    ptx: str
    """Regular expression that the whole dotted name of an instruction matches from its start."""
    sass: tuple[str, ...]
    """Regular expressions over machine opcodes; empty when ptxas gives it no opcode of its own, so that PTX is all the evidence."""
    since: int
    """First architecture: 90 for sm_90."""
    collective: Collective
    """Who executes one instruction together; counts are in these units."""
    how: str
    """One line that tells a model what it is for."""
    arch_specific: bool = False
    """Needs the `a` (or `f`) variant of its architecture."""
    only: tuple[int, ...] = ()
    """Architectures that have it, when later ones do not; empty: `since` and all later."""
    work: Callable[[Instruction], Work | None] | None = None
    """Work of one execution by its collective; None for the family, or for one instruction, where text alone does not tell."""

    def matches(self, instruction: Instruction) -> bool:
        """Whether the instruction is of this family."""
        return family_of(instruction) == self.name

    def available(self, arch: str) -> bool:
        """Whether a target such as `sm_90a` has it."""
        found = re.fullmatch(r"sm_(\d+)([af]?)", arch)
        if found is None:
            return False
        number = int(found[1])
        if self.arch_specific and not found[2]:
            return False
        return number in self.only if self.only else number >= self.since


_SHAPE: Final = re.compile(r"m(\d+)n(\d+)k(\d+)")
_DATACENTER: Final = (100, 103, 107, 110)
"""Architectures with tensor memory."""


def _matmul(instruction: Instruction) -> Work | None:
    for modifier in instruction.modifiers:
        found = _SHAPE.fullmatch(modifier)
        if found:
            return Work(flops=2 * int(found[1]) * int(found[2]) * int(found[3]))
    return None


def _third_operand(instruction: Instruction) -> Work | None:
    """Copies that name their bytes in the third operand."""
    operands = instruction.operands
    size = operands[2] if len(operands) > 2 else None
    return Work(bytes=size.value) if isinstance(size, Immediate) and size.kind == "int" else None


_TABLE: Final = (
    Family(
        "cp_async", "asynchronous copy, global to shared", r"cp\.async\.(ca|cg)\b", (r"LDGSTS\b",), 80, "thread",
        "copies 4, 8 or 16 bytes a thread into shared memory without registers; commit_group and wait_group order it",
        work=_third_operand,
    ),
    Family(
        "ldmatrix", "matrix load from shared memory", r"ldmatrix\b", (r"LDSM\b",), 75, "warp",
        "a warp loads 8x8 tiles from shared memory straight into the fragment layout of mma",
    ),
    Family(
        "stmatrix", "matrix store to shared memory", r"stmatrix\b", (r"STSM\b",), 90, "warp",
        "a warp stores accumulator fragments to shared memory as 8x8 tiles",
    ),
    Family(
        "mma_sp", "sparse warp matrix multiply", r"mma\.sp\b", (r"[HIQDBO]MMA\.(.*\.)?SP\b",), 80, "warp",
        "mma with a 2:4 sparse A operand and its metadata register", work=_matmul,
    ),
    Family(
        "mma_sync", "warp matrix multiply", r"mma\.sync\b", (r"[HIQDBO]MMA\b(?!.*\.SP\b)",), 70, "warp",
        "a warp multiplies register fragments on the tensor cores, such as m16n8k16", work=_matmul,
    ),
    Family(
        "wgmma", "warpgroup matrix multiply", r"wgmma\.mma_async\b", (r"[HQIB]GMMA\b",), 90, "warpgroup",
        "four warps multiply tiles read from shared memory through descriptors, accumulators in registers",
        arch_specific=True, only=(90,), work=_matmul,
    ),
    Family(
        "wgmma_sync", "order of warpgroup multiplies", r"wgmma\.(fence|commit_group|wait_group)\b", (r"WARPGROUP\b",),
        90, "warpgroup", "fence before the first wgmma, commit_group after a batch, wait_group before reading results",
        arch_specific=True, only=(90,),
    ),
    Family(
        "tma_load", "tensor copy, global to shared", r"cp\.async\.bulk\.tensor\.(?:[\w:]+\.)*?shared::\w+\.global\b",
        (r"UTMALDG\b",), 90, "thread",
        "one thread asks for a box of a tensor map; its bytes arrive in shared memory and credit an mbarrier",
    ),
    Family(
        "tma_store", "tensor copy, shared to global", r"cp\.async\.bulk\.tensor\.(?:[\w:]+\.)*?global\.shared::cta\b",
        (r"UTMASTG\b",), 90, "thread", "one thread writes a box of shared memory to a tensor map; bulk groups track it",
    ),
    Family(
        "tma_reduce", "tensor reduction, shared to global", r"cp\.reduce\.async\.bulk\.tensor\b", (r"UTMAREDG\b",), 90,
        "thread", "as a tensor store, but adding (or min, max, and …) into global memory",
    ),
    Family(
        "tma_prefetch", "tensor prefetch into L2", r"cp\.async\.bulk\.prefetch\.tensor\b", (r"UTMAPF\b",), 90, "thread",
        "brings a box of a tensor map into L2 before it is loaded",
    ),
    Family(
        "bulk_copy", "bulk copy of contiguous bytes", r"cp\.async\.bulk\.(?:global|shared::\w+)\b", (r"UBLKCP\b",), 90,
        "thread", "one thread moves a run of bytes (a multiple of 16) between global and shared memory",
        work=_third_operand,
    ),
    Family(
        "bulk_reduce", "bulk reduction of contiguous bytes", r"cp\.reduce\.async\.bulk\.(?!tensor\b)", (r"UBLKRED\b",),
        90, "thread", "one thread adds a run of shared memory elements into global or another block's shared memory",
        work=_third_operand,
    ),
    Family(
        "mbarrier", "memory barrier object", r"(mbarrier\b|fence\.mbarrier_init\b|cp\.async\.mbarrier\b)",
        (r"SYNCS\b", r"ARRIVES\b", r"ATOMS\.ARRIVE\b"), 80, "thread",
        "a 64-bit object in shared memory on which threads and asynchronous copies arrive and others wait, by phase parity",
    ),
    Family(
        "cluster", "cluster barrier", r"barrier\.cluster\b", (r"UCGABAR_(ARV|WAIT)\b",), 90, "thread",
        "arrive and wait of all threads of a cluster of blocks",
    ),
    Family(
        "mapa", "address in another block of the cluster", r"mapa\b", (), 90, "thread",
        "turns an address of this block's shared memory into that of the same place in another block of the cluster",
    ),
    Family(
        "setmaxnreg", "register reallocation", r"setmaxnreg\b", (r"USETMAXREG\b",), 90, "warp",
        "producer warps give registers back (.dec) and consumers take them (.inc); ptxas drops it unless .maxntid stands "
        "with .minnctapersm or .maxnreg", arch_specific=True,
    ),
    Family(
        "elect", "election of one lane", r"elect\.sync\b", (r"ELECT\b",), 90, "warp",
        "picks one lane of a converged warp, for work that one thread issues",
    ),
    Family(
        "fence_proxy", "fence between proxies", r"fence\.proxy\b", (r"FENCE\.VIEW\.ASYNC\b", r"UTMACCTL\.IV\b"), 90,
        "thread", "makes ordinary writes to shared memory visible to asynchronous copies and wgmma, and the reverse",
    ),
    Family(
        "redux", "warp reduction", r"redux\.sync\b", (r"C?REDUX\b",), 80, "warp",
        "reduces one 32-bit integer a lane over a warp in one instruction",
    ),
    Family(
        "shfl", "warp shuffle", r"shfl\.sync\b", (r"SHFL\b",), 30, "warp",
        "exchanges registers between the lanes of a warp (up, down, bfly, idx)",
    ),
    Family(
        "vote", "warp vote", r"vote\.sync\b", (r"VOTEU?\b",), 30, "warp", "all, any, uni or ballot of a predicate over a warp"
    ),
    Family(
        "match", "warp match", r"match\.(any|all)\.sync\b", (r"MATCH\b",), 70, "warp",
        "finds the lanes of a warp that hold the same value",
    ),
    Family(
        "st_async", "asynchronous store to the cluster", r"(st|red)\.async\b", (r"STAS\b", r"REDAS\b"), 90, "thread",
        "stores or reduces into another block's shared memory and credits an mbarrier there",
    ),
    Family(
        "atomic", "atomic operation", r"(atom|red)\b", (r"ATOM[GS]?\b(?!\.ARRIVE)", r"REDG?\b"), 30, "thread",
        "reads, changes and writes memory indivisibly; red gives no value back",
    ),
    Family(
        "griddepcontrol", "dependency between grids", r"griddepcontrol\b", (r"PREEXIT\b", r"ACQBULK\b"), 90, "thread",
        "launch_dependents lets the next grid start early; wait holds until the one before has finished",
    ),
    Family(
        "tcgen05_mma", "tensor-memory matrix multiply", r"tcgen05\.mma\b", (r"UTC[HQIO]MMA\b",), 100, "thread",
        "one thread multiplies tiles of shared (or tensor) memory into an accumulator in tensor memory",
        arch_specific=True, only=_DATACENTER,
    ),
    Family(
        "tcgen05_ld", "load from tensor memory", r"tcgen05\.ld\b", (r"LDTM\b",), 100, "warp",
        "a warp reads its 32 lanes of tensor memory into registers; tcgen05.wait::ld before use",
        arch_specific=True, only=_DATACENTER,
    ),
    Family(
        "tcgen05_st", "store to tensor memory", r"tcgen05\.st\b", (r"STTM\b",), 100, "warp",
        "a warp writes registers to its 32 lanes of tensor memory; tcgen05.wait::st before others use them",
        arch_specific=True, only=_DATACENTER,
    ),
    Family(
        "tcgen05_cp", "copy from shared to tensor memory", r"tcgen05\.cp\b", (r"UTCCP\b",), 100, "thread",
        "copies scale factors or operands from shared memory to tensor memory", arch_specific=True, only=_DATACENTER,
    ),
    Family(
        "tcgen05_alloc", "allocation of tensor memory", r"tcgen05\.(alloc|dealloc|relinquish_alloc_permit)\b",
        (r"UTCATOMSWS\b", r"UVIRTCOUNT\b"), 100, "warp",
        "one warp takes tensor memory columns (a power of two, 32 or more) and must free them before the block ends",
        arch_specific=True, only=_DATACENTER,
    ),
    Family(
        "tcgen05_commit", "completion of tensor-memory operations", r"tcgen05\.commit\b", (r"UTCBAR\b",), 100, "thread",
        "makes an mbarrier track the tcgen05 operations issued before", arch_specific=True, only=_DATACENTER,
    ),
)  # fmt: skip

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({each.name: each for each in _TABLE})
"""Family by name. Where spellings overlap the earlier one holds."""

_PTX: Final = tuple((each.name, re.compile(each.ptx)) for each in _TABLE)
_SASS: Final = tuple((each.name, tuple(re.compile(text) for text in each.sass)) for each in _TABLE)


def family_of(instruction: Instruction) -> str | None:
    """The family of a PTX instruction, or None."""
    return family_of_name(instruction.name)


@lru_cache(maxsize=8192)
def family_of_name(name: str) -> str | None:
    """The family of a whole dotted name such as `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`, or None."""
    return next((family for family, pattern in _PTX if pattern.match(name)), None)


@lru_cache(maxsize=8192)
def families_of_sass(opcode: str) -> tuple[str, ...]:
    """The families that a machine opcode such as `HGMMA.64x64x16.F32.BF16` shows; often none."""
    return tuple(name for name, patterns in _SASS if any(pattern.match(opcode) for pattern in patterns))
