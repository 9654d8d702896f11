"""What a truthful judge finds in each of the 71 candidates of tests/corpus/candidates: bad and good.

`manifest.json` says in plain words what each one is; this table pins what the real ladder (real ptxas, real
emulator) answers: verdict, reason or kind of fault, warnings that must be there, evidence for a family.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.device import FaultKind
from tasks.errors import CannotJudge
from tools.evaluation import Depth, Evaluation, Verdict
from tools.knockout import RULES
from tools.ladder import Job, evaluate

FOLDER = Path(__file__).parents[1] / "corpus" / "candidates"
PLAN = '//! launch:\n//!   - {entry: k, grid: ["cdiv(n, 256)"], block: [256], args: [x, y, n]}\n'
TENSOR_MAP_PLAN = """\
//! launch:
//!   - {entry: k, grid: [1], block: [256], args: [m, y, n]}
//! tensor_maps:
//!   m: {tensor: x, dims: [n, 1], strides: ["16 * cdiv(n, 4)"], box: [256, 1]}
"""
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
SEED = 977


@dataclass(frozen=True)
class Found:
    """verdict, then what else must hold. why: reason of a wrong output, or kind of a fault."""

    verdict: Verdict
    why: str = ""
    warnings: frozenset[str] = frozenset()
    require: str = ""
    depth: Depth | None = None
    old_ptxas: Verdict | None = None
    """The verdict where ptxas is older than 13.5."""


def correct(
    *warnings: str, require: str = "", depth: Depth | None = None, old: Verdict | None = None
) -> Found:
    return Found(Verdict.CORRECT, "", frozenset(warnings), require, depth, old)


def wrong(reason: str, *warnings: str) -> Found:
    return Found(Verdict.WRONG_OUTPUT, reason, frozenset(warnings))


def fault(kind: FaultKind) -> Found:
    return Found(Verdict.FAULT, kind)


def hang(kind: FaultKind) -> Found:
    return Found(Verdict.HANG, kind)


BAD_PLAN = Found(Verdict.BAD_PLAN)
REFUSED = Found(Verdict.ASSEMBLE_ERROR)
NO_LAUNCH = Found(Verdict.LAUNCH_ERROR)

EXPECTED: dict[str, Found] = {
    "h01_ok": correct(),
    "c01_noop": wrong("unwritten"),
    "c02_half": wrong("unwritten"),
    "c03_constant": wrong("values"),
    "c04_nan": wrong("nonfinite"),
    "c05_identity": wrong("values"),
    "c06_odd_only": wrong("unwritten"),
    "c10_memo_flag": wrong("state"),
    "c12_fingerprint": wrong("replay", "unwritten_read"),
    "c14_clock_warmup": correct("timer"),
    "c20_read_neighbour": fault(FaultKind.OUT_OF_BOUNDS),
    "c21_tamper_neighbour": fault(FaultKind.OUT_OF_BOUNDS),
    "c23_zero_in_and_out": wrong("input_mutated", "input_mutated"),
    "c25_host_scan": fault(FaultKind.OUT_OF_BOUNDS),
    "c30_evict_last": correct("l2"),
    "c31_discard": wrong("input_mutated", "l2", "input_mutated"),
    "c32_prefetch_next": correct("l2"),
    "c40_fp16": wrong("precision"),
    "c42_ftz": correct(),
    "c43_skip_nonfinite": wrong("nonfinite"),
    "c44_seed_table": wrong("values"),
    "c51_smem_residue": wrong("residue", "unwritten_read"),
    "c60_spin": hang(FaultKind.LIVELOCK),
    "c61_mbarrier_never": hang(FaultKind.LIVELOCK),
    "c62_barrier_count": hang(FaultKind.DEADLOCK),
    "c64_grid_spin": hang(FaultKind.LIVELOCK),
    "c70_illegal": fault(FaultKind.OUT_OF_BOUNDS),
    "c72_trap": fault(FaultKind.TRAP),
    "c73_assert": fault(FaultKind.ASSERT),
    "c74_printf_flood": correct("stdout"),
    "c80_dead_wgmma": correct(require="wgmma", depth=Depth.IN_SASS),
    "c82_comment": correct(require="wgmma", depth=Depth.ABSENT),
    "c83_dropped_setmaxnreg": correct("dropped_setmaxnreg", require="setmaxnreg", depth=Depth.IN_PTX),
    "c90_extra_params": BAD_PLAN,
    "c92_wrong_entry_name": BAD_PLAN,
    "c93_reqntid": NO_LAUNCH,
    "c95_static_smem_64k": correct("unwritten_read"),
    "c97_extern_launch": REFUSED,
    "c98_huge_local": NO_LAUNCH,
    "c100_sm90_wgmma": REFUSED,
    "c101_future_version": REFUSED,
    "c102_old_version": REFUSED,
    "c103_wrong_arch": REFUSED,
    "c104_fence": REFUSED,
    "c106_missing_semicolon": REFUSED,
    "c107_type_mismatch": wrong("residue", "unwritten_read"),  # ptxas takes it; %f1 is never written
    "c108_hallucinated": REFUSED,
    "c110_truncated": REFUSED,
    "c111_empty": BAD_PLAN,
    "c112_unicode_ident": REFUSED,
    "c113_nul": REFUSED,
    "c115_nonascii_comment": correct("non_ascii", old=Verdict.ASSEMBLE_ERROR),
    "c116_crlf_only": correct(),
    "c117_no_address_size": correct(),
    "c119_dup_entry": REFUSED,
    "c120_dup_label": REFUSED,
    "c121_sreg_operand": REFUSED,
    "c122_uninit_reg": wrong("residue", "unwritten_read"),
    "c124_mma_shape": REFUSED,
    "c125_tcgen05": REFUSED,
    "c127_missing_ret": correct(),
    "c128_bad_label": REFUSED,
    "c130_debug_target": REFUSED,
    "c131_sm90_ok": correct(),
    "c132_sm80_ok": correct(),
    "c133_smem_227k": correct("unwritten_read"),
    "c134_smem_228k": REFUSED,
    "c135_smem_1m": REFUSED,
    "c136_mma_used": correct(
        "hazard", require="mma_sync", depth=Depth.EXECUTED
    ),  # warps are partial where n is odd; all it multiplies are zeros, so that the answer does not need it
    "c137_setmaxnreg_ok": correct(require="setmaxnreg", depth=Depth.EXECUTED),
    "c139_tma_param": BAD_PLAN,
}


def read(name: str) -> str:
    return (FOLDER / f"{name}.ptx").read_bytes().decode("utf-8", "surrogateescape")


def judged(name: str, require: str = "", plan: str = PLAN) -> Evaluation:
    asked = (require,) if require else ()
    return evaluate(Job("affine", "sm_90a", plan + read(name), require=asked, seed=SEED)).evaluation


def test_the_table_covers_the_corpus() -> None:
    assert set(EXPECTED) == set(MANIFEST) == {path.stem for path in FOLDER.glob("*.ptx")}


@pytest.mark.parametrize("name", EXPECTED)
def test_candidate(name: str) -> None:
    want = EXPECTED[name]
    found = judged(name, want.require)
    assert found.assembly is not None
    old = tuple(int(part) for part in found.assembly.ptxas.split(".")[:2]) < (13, 5)
    verdict = want.old_ptxas if old and want.old_ptxas is not None else want.verdict
    assert found.verdict is verdict, found.summary
    assert found.summary
    if verdict is not want.verdict:
        return
    assert want.warnings <= {warning.kind for warning in found.warnings}
    if want.verdict is Verdict.WRONG_OUTPUT:
        assert found.numerics is not None
        assert found.numerics.reason == want.why, found.summary
        assert not found.numerics.passed
    elif want.why:
        assert found.fault is not None
        assert found.fault.kind == want.why, found.summary
        assert found.fault.line is not None
    elif want.verdict is Verdict.ASSEMBLE_ERROR:
        assert any(each.severity == "error" for each in found.diagnostics)
        assert all(each.kind != "unknown" and each.hint for each in found.diagnostics)
    if want.depth is not None:
        target = next(each for each in found.targets if each.family == want.require)
        assert (target.required, target.depth) == (True, want.depth)
        assert found.targets_met is target.met is (want.depth is Depth.EXECUTED and want.require not in RULES)
        assert target.met or target.note


def test_a_tensor_map_needs_hardware() -> None:
    with pytest.raises(CannotJudge, match="tensor maps"):
        judged("c139_tma_param", plan=TENSOR_MAP_PLAN)
