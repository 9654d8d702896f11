"""What Nsight Compute prints is read, and compared with our counts; on a GPU the two are equal."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import ncu_counts as ncu
from benchmarks.ncu_counts import COMPARED, THREADS, WARPS, compared, instances, read_csv, table
from sandbox.cuda.device import suiting
from sandbox.ptx.families import FAMILIES, families_of_sass

RAW = f"""\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "gemm" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","{WARPS}","{THREADS}"
"","","","","","","","","","","","inst","inst"
"0","4242","python3.12","127.0.0.1","gemm","1","7","(128, 1, 1)","(1, 2, 1)","0","9.0","1,300 (HGMMA: 1,024; LDSM: 272; UTMALDG: 4)","20000 (LDGSTS: 4096; SHFL: 64)"
"1","4242","python3.12","127.0.0.1","gemm","1","7","(128, 1, 1)","(1, 2, 1)","0","9.0","8 (HGMMA: 8)","n/a"
"""  # noqa: E501
DETAILS = f"""\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","python3","127.0.0.1","row_sum(float *, int)","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics","{WARPS}","inst","40 (SHFL: 40)"
"0","1","python3","127.0.0.1","row_sum(float *, int)","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics","smsp__cycles_active.avg","cycle","12.5"
"""  # noqa: E501


def test_the_raw_page_is_read_launch_after_launch() -> None:
    found = read_csv(RAW)
    assert found == {
        "gemm": {
            WARPS: Counter(HGMMA=1032, LDSM=272, UTMALDG=4),
            THREADS: Counter(LDGSTS=4096, SHFL=64),
        }
    }


def test_the_details_page_is_read_too() -> None:
    assert read_csv(DETAILS) == {"row_sum": {WARPS: Counter(SHFL=40)}}


@pytest.mark.parametrize("cell", ["", "n/a", "0"])
def test_what_ncu_could_not_tell_is_nothing(cell: str) -> None:
    assert instances(cell) == Counter()


def test_instances_without_names_are_refused() -> None:
    with pytest.raises(ValueError, match="OPCODE: COUNT; found '1024'"):
        instances("1300 (1024; 276)")
    with pytest.raises(ValueError, match="print-metric-instances details"):
        instances("1300")
    with pytest.raises(ValueError, match="expected a table of ncu"):
        read_csv("==ERROR== The user does not have permission to access NVIDIA GPU Performance Counters")


def test_counts_are_compared_in_our_units() -> None:
    ours = {"wgmma": 258, "ldmatrix": 271, "cp_async": 4096, "tma_load": 4, "mbarrier": 99, "shfl": 0}
    rows = {row.family: row for row in compared("t", ours, read_csv(RAW))}
    assert set(rows) == {"wgmma", "ldmatrix", "cp_async", "tma_load"}
    assert {name for name, row in rows.items() if not row.equal} == {"ldmatrix"}
    assert (rows["wgmma"].ncu, rows["ldmatrix"].ncu) == (258, 272)
    (odd,) = compared("t", {"wgmma": 258}, {"gemm": {WARPS: Counter(HGMMA=1033)}})
    assert (odd.ncu, odd.equal) == (-1, False)
    assert "DIFFER LDSM" in table(list(rows.values()))


def test_rules_agree_with_the_registry_of_families() -> None:
    for family, rule in COMPARED.items():
        collective = FAMILIES[family].collective
        assert rule.metric == (THREADS if family == "cp_async" else WARPS)
        assert rule.per_count == (4 if collective == "warpgroup" else 1)
        assert all(family in families_of_sass(opcode) for opcode in rule.opcodes)


def test_our_counts_come_from_the_proof() -> None:
    assert ncu.our_counts("row_sum", "emulator") == {"shfl": 8 * 8 * 5}  # rows, warps a row, halvings
    products = 64 * 64 * 64 // (16 * 8 * 16)
    assert ncu.our_counts("gemm_f16_mma", "emulator")["mma_sync"] == products


def test_ncu_is_asked_for_the_kernels_of_the_plan_alone() -> None:
    asked = ncu.command("ncu", "histogram", 3, Path("log"))
    assert asked[asked.index("--kernel-name") + 1] == "regex:^(clear|histogram)$"
    assert asked[-7:] == [
        sys.executable,
        "-m",
        "benchmarks.ncu_counts",
        "--launch",
        "histogram",
        "--gpu",
        "3",
    ]


def test_what_ncu_looks_at_runs_the_plan_once() -> None:
    """In a process of its own, on the double of a GPU: all but the kernel itself."""
    call = (
        "from benchmarks.ncu_counts import launch; launch('row_sum', 0, 'tests.sandbox.cuda.double:Double')"
    )
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_ncu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ncu, "PLACES", ())
    with pytest.raises(SystemExit, match="say --ncu PATH"):
        ncu.find_ncu(None)
    assert ncu.find_ncu("/elsewhere/ncu") == "/elsewhere/ncu"


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["gemm_f16_mma", "gemm_bf16_async", "gemm_bf16_wgmma", "row_sum"])
def test_counts_equal_those_of_ncu(task: str) -> None:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")
    rows = compared(task, ncu.our_counts(task, "cuda"), ncu.ncu_counts(ncu.find_ncu(None), task, 0))
    assert rows
    assert all(row.equal for row in rows), table(rows)
