"""The registry of instruction families: spellings, machine opcodes, work."""

import pytest

from sandbox.ptx.families import FAMILIES, Work, families_of_sass, family_of, family_of_name
from sandbox.ptx.layout import instructions
from sandbox.ptx.nodes import Instruction
from sandbox.ptx.parser import parse_module
from tests.sandbox.ptx.samples import module_with

NAMES = [
    "cp_async",
    "ldmatrix",
    "stmatrix",
    "mma_sync",
    "mma_sp",
    "wgmma",
    "wgmma_sync",
    "tma_load",
    "tma_store",
    "tma_reduce",
    "tma_prefetch",
    "bulk_copy",
    "bulk_reduce",
    "mbarrier",
    "cluster",
    "mapa",
    "setmaxnreg",
    "elect",
    "fence_proxy",
    "redux",
    "shfl",
    "vote",
    "match",
    "atomic",
    "griddepcontrol",
    "st_async",
    "tcgen05_mma",
    "tcgen05_ld",
    "tcgen05_st",
    "tcgen05_cp",
    "tcgen05_alloc",
    "tcgen05_commit",
]


def one(text: str) -> Instruction:
    (found,) = instructions(parse_module(module_with(text)).functions[-1].body)
    return found


def test_every_family_is_there_and_explains_itself() -> None:
    assert sorted(FAMILIES) == sorted(NAMES)
    assert all(name == each.name and each.title and each.how for name, each in FAMILIES.items())


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("cp.async.cg.shared.global", "cp_async"),
        ("cp.async.commit_group", None),
        ("cp.async.wait_group", None),
        ("cp.async.bulk.commit_group", None),
        ("cp.async.bulk.wait_group.read", None),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64", "mbarrier"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", "tma_load"),
        ("cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes", "tma_load"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "tma_store"),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global", "tma_prefetch"),
        ("cp.async.bulk.prefetch.L2.global", None),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group", "tma_reduce"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "bulk_reduce"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "bulk_copy"),
        ("cp.async.bulk.global.shared::cta.bulk_group", "bulk_copy"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma_sync"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma_sp"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "wgmma"),
        ("wgmma.fence.sync.aligned", "wgmma_sync"),
        ("fence.mbarrier_init.release.cluster", "mbarrier"),
        ("fence.proxy.async.shared::cta", "fence_proxy"),
        ("fence.acq_rel.gpu", None),
        ("barrier.cluster.arrive.release.aligned", "cluster"),
        ("barrier.sync.aligned", None),
        ("red.async.relaxed.cluster.global.add.u32", "st_async"),
        ("red.global.add.f32", "atomic"),
        ("redux.sync.add.s32", "redux"),
        ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05_mma"),
        ("tcgen05.wait::ld.sync.aligned", None),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32", "tcgen05_alloc"),
        ("add.f32", None),
    ],
)
def test_spellings(name: str, family: str | None) -> None:
    assert family_of_name(name) == family
    opcode, *modifiers = name.split(".")
    assert family_of(Instruction(opcode, tuple(modifiers), ())) == family


@pytest.mark.parametrize(
    ("opcode", "families"),
    [
        ("LDGSTS.E.BYPASS.128", ("cp_async",)), ("LDSM.16.MT88.4", ("ldmatrix",)), ("STSM.16.M88.4", ("stmatrix",)),
        ("HMMA.16816.F32.BF16", ("mma_sync",)), ("HMMA.SP.16832.F32", ("mma_sp",)), ("IMMA.16832.S8.S8", ("mma_sync",)),
        ("HGMMA.64x64x16.F32.BF16", ("wgmma",)), ("HGMMA.SP.64x64x32.F32.BF16", ("wgmma",)),
        ("WARPGROUP.DEPBAR.LE", ("wgmma_sync",)), ("UTMALDG.2D.MULTICAST", ("tma_load",)), ("UTMASTG.2D", ("tma_store",)),
        ("UTMAREDG.2D.ADD", ("tma_reduce",)), ("UBLKCP.S.G", ("bulk_copy",)), ("UBLKRED.G.S.ADD.F32.RN", ("bulk_reduce",)),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", ("mbarrier",)), ("USETMAXREG.DEALLOC.CTAPOOL", ("setmaxnreg",)),
        ("ATOMS.ARRIVE.64", ("mbarrier",)), ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU", ("atomic",)), ("RED.E.ADD", ("atomic",)),
        ("REDUX.SUM.S32", ("redux",)), ("REDAS.ADD", ("st_async",)), ("UTCHMMA.2CTA", ("tcgen05_mma",)),
        ("LDTM.x8", ("tcgen05_ld",)), ("FFMA", ()), ("LDG.E.128", ()), ("MATCH.ANY", ("match",)), ("VOTEU.ANY", ("vote",)),
    ],
)  # fmt: skip
def test_machine_opcodes(opcode: str, families: tuple[str, ...]) -> None:
    assert families_of_sass(opcode) == families


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%a}, {%a}, {%a}, {%a};", Work(flops=4096)),
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%a}, %b, %b, 1, 1, 1, 0, 0;", Work(flops=2 * 64 * 256 * 16)),
        ("cp.async.cg.shared.global [%a], [%b], 16;", Work(bytes=16)),
        ("cp.async.bulk.global.shared::cta.bulk_group [%b], [%a], 1024;", Work(bytes=1024)),
        ("cp.async.bulk.global.shared::cta.bulk_group [%b], [%a], %a;", None),
    ],
)  # fmt: skip
def test_work_of_one_execution(text: str, work: Work | None) -> None:
    found = one(text)
    family = family_of(found)
    assert family is not None
    measure = FAMILIES[family].work
    assert measure is not None
    assert measure(found) == work


@pytest.mark.parametrize(
    ("family", "arch", "there"),
    [
        ("wgmma", "sm_90a", True), ("wgmma", "sm_90", False), ("wgmma", "sm_100a", False), ("tma_load", "sm_90", True),
        ("tma_load", "sm_80", False), ("mma_sync", "sm_120a", True), ("tcgen05_mma", "sm_100a", True),
        ("tcgen05_mma", "sm_120a", False), ("setmaxnreg", "sm_100f", True), ("cp_async", "compute_80", False),
    ],
)  # fmt: skip
def test_where_a_family_exists(family: str, arch: str, there: bool) -> None:
    assert FAMILIES[family].available(arch) is there
