"""Assembling is bounded, cached, truthful about whose fault it is, and always speaks of the candidate's own lines."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import InfraError, InputError, ToolMissing
from tools import cache, oversize
from tools.assemble import assemble
from tools.child import ChildLimits, run_limited
from tools.toolchain import Tool

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
GOOD = HEADER + ".visible .entry k(.param .u64 p)\n{\n    ret;\n}\n"
BAD = HEADER + ".visible .entry k()\n{\n    adds.u32 %r1, 1;\n    ret;\n}\n"


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXMEND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake(folder: Path, body: str, version: str = "13.5.1") -> Tool:
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Tool(path, version)


def test_a_good_module_becomes_a_cubin_with_its_resources():
    result = assemble(GOOD, "sm_90a")
    assert result.assembly.ok
    assert result.cubin is not None
    assert result.cubin.startswith(b"\x7fELF")
    assert result.diagnostics == result.warnings == ()
    (used,) = result.assembly.resources
    assert used.entry == "k"
    assert used.registers is not None
    assert used.registers > 0


def test_lines_are_those_of_the_whole_file_whether_given_whole_or_in_part():
    plan = "//! launch:\n//!   - entry: k\n//!     grid: é ü ∑\n"
    whole = assemble(plan + BAD, "sm_90a").diagnostics[0]
    part = assemble(BAD, "sm_90a", first_line=4).diagnostics[0]
    assert (whole.line, whole.source) == (part.line, part.source) == (9, "adds.u32 %r1, 1;")


def test_crlf_is_counted_like_lf():
    first = assemble(BAD.replace("\n", "\r\n"), "sm_90a").diagnostics[0]
    assert (first.line, first.source) == (6, "adds.u32 %r1, 1;")


def test_spills_and_advice_become_warnings():
    folder = Path(__file__).parent.parent / "corpus" / "assembler"
    spilled = assemble((folder / "SPILL_maxnreg_32__160_live_floats_.ptx").read_text(), "sm_90a")
    assert [each.kind for each in spilled.warnings] == ["spill"]
    dropped = assemble((folder / "WARN_setmaxnreg_ignored_maxntid_only_.ptx").read_text(), "sm_90a")
    assert "dropped_setmaxnreg" in [each.kind for each in dropped.warnings]
    assert dropped.assembly.ok


def test_remarks_are_diagnostics_and_no_warnings():
    text = HEADER.replace(".address_size 64\n", "") + ".entry k() { }\n"
    result = assemble(text, "sm_90a")
    assert {each.kind for each in result.diagnostics} == {
        "no_visible_entry",
        "missing_address_size",
        "missing_ret",
    }
    assert {each.severity for each in result.diagnostics} == {"info"}
    assert result.warnings == ()


def test_an_ordinary_kernel_has_nothing_said_of_it():
    text = HEADER + (
        ".shared .align 8 .b64 bar;\n"
        ".visible .entry k(.param .u64 p)\n{\n"
        ".reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<9>;\n"
        "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1|%p2, %r1, 0;\n"
        "elect.sync %r2|%p1, -1; shfl.sync.down.b32 %r3|%p2, %r1, 1, 31, -1;\n"
        "ld.global.v4.f32 {%f1, %f2, %f3, _}, [%rd1+16]; @!%p1 bra DONE;\n"
        "mov.u32 %r4, bar; mbarrier.init.shared::cta.b64 [%r4], 1; mbarrier.arrive.shared::cta.b64 %rd2, [%r4];\n"
        "WAIT: mbarrier.try_wait.shared::cta.b64 %p2, [%r4], %rd2; @!%p2 bra WAIT;\n"
        "st.global.v2.f32 [%rd1+8], {%f1, %f2}; red.global.add.f32 [%rd1], %f3; st.global.u32 [%rd1], %r3;\n"
        "{ .reg .b32 %r1; mov.b32 %r1, %r2; st.global.u32 [%rd1], %r1; }\n"
        "DONE: bar.sync 0; ret;\n}\n"
    )
    assert assemble(text, "sm_90a").diagnostics == ()


@pytest.mark.parametrize("arch", ["sm_91", "sm_9999", "compute_90", "-o/tmp/x", "sm_90a -v", ""])
def test_an_architecture_that_is_none_is_the_callers_error(arch):
    with pytest.raises(InputError):
        assemble(GOOD, arch)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (HEADER + ".visible .entry k() {\n .reg .b32 %q<2000000000>;\n ret; }", "too_large", 5),
        (
            HEADER + ".visible .entry k() {\n" + " .reg .b32 %q<900000>;\n .reg .b32 %z<0xF0000>;\n ret; }",
            "too_large",
            6,
        ),
        (HEADER + ".global .b8 x[1000000000] = {1};\n.visible .entry k() { ret; }", "too_large", 4),
        (HEADER + ".global .b8 x[100000][100000];\n.visible .entry k() { ret; }", "too_large", 4),
        (HEADER + ".global .b8 x[" + "9" * 500 + "];\n.visible .entry k() { ret; }", "too_large", 4),
        (HEADER + ".visible .entry k() { ret;\0 }", "nul_byte", 4),
        (HEADER + "//" + "x" * (1 << 20), "too_large", None),
        ("\ud800" * 500_000, "too_large", None),
    ],
)
def test_what_would_eat_the_machine_is_refused_without_running(text, kind, line, tmp_path):
    ran = tmp_path / "ran"
    result = assemble(text, "sm_90a", tool=fake(tmp_path, f"touch {ran}"))
    assert [(each.kind, each.line, each.severity) for each in result.diagnostics] == [(kind, line, "error")]
    assert not result.assembly.ok
    assert not ran.exists()


def test_a_comment_that_looks_absurd_is_assembled():
    assert assemble(
        HEADER + "// a[1000000000000] %q<99999999999>\n.visible .entry k() { ret; }", "sm_90a"
    ).assembly.ok


def test_outrunning_the_clock_is_the_texts_fault_and_kills_the_whole_group(tmp_path):
    pids = tmp_path / "pids"
    tool = fake(tmp_path, f"sleep 300 & echo $! > {pids}; wait")
    started = time.monotonic()
    result = assemble(GOOD, "sm_90a", tool=tool, limits=ChildLimits(seconds=0.5))
    assert time.monotonic() - started < 60
    assert [each.kind for each in result.diagnostics] == ["assembler_timeout"]
    assert not result.assembly.ok
    grandchild = int(pids.read_text())
    for _ in range(200):
        if (
            not Path(f"/proc/{grandchild}/stat").exists()
            or " Z " in Path(f"/proc/{grandchild}/stat").read_text()
        ):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the grandchild lives on")


def test_the_real_assembler_meets_its_memory_limit(monkeypatch):
    monkeypatch.setattr(oversize, "REGISTERS", 1 << 60)
    text = HEADER + ".visible .entry k() { .reg .b32 %q<2000000000>; ret; }"
    result = assemble(text, "sm_90a", limits=ChildLimits(memory_bytes=1 << 30))
    assert [each.kind for each in result.diagnostics] == ["assembler_memory"]


def test_a_cubin_beyond_the_file_limit_is_refused():
    text = HEADER + ".global .b8 x[10000000] = {1};\n.visible .entry k() { ret; }"
    result = assemble(text, "sm_90a", limits=ChildLimits(file_bytes=1 << 20))
    assert [each.kind for each in result.diagnostics] == ["assembler_memory"]
    assert result.cubin is None


def test_a_crash_is_told_and_a_kill_from_outside_is_nobodys_verdict(tmp_path):
    crashed = assemble(GOOD, "sm_90a", tool=fake(tmp_path, "kill -SEGV $$"))
    assert [each.kind for each in crashed.diagnostics] == ["assembler_crash"]
    with pytest.raises(InfraError, match="outside killed"):
        assemble(GOOD, "sm_90a", tool=fake(tmp_path, "kill -KILL $$"))
    silent = assemble(GOOD, "sm_90a", tool=fake(tmp_path, "exit 3", "13.5.2"))
    assert [each.kind for each in silent.diagnostics] == ["assembler_crash"]


def test_an_assembler_that_cannot_run_is_infrastructure(tmp_path):
    with pytest.raises(InfraError, match="could not be started"):
        assemble(GOOD, "sm_90a", tool=Tool(tmp_path / "absent", "13.5.1"))
    broken = fake(tmp_path, "echo 'error while loading shared libraries: libz.so' >&2; exit 127")
    with pytest.raises(InfraError, match="could not run"):
        assemble(GOOD, "sm_90a", tool=broken)


def test_a_flood_of_output_is_cut(tmp_path):
    tool = fake(
        tmp_path, "i=0; while [ $i -lt 3000 ]; do printf '%01000d\\n' 0 >&2; i=$((i+1)); done; exit 1"
    )
    result = assemble(GOOD, "sm_90a", tool=tool, limits=ChildLimits(output_bytes=10_000))
    assert len(result.log) == 10_000


def test_the_child_sees_no_environment_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = assemble(GOOD, "sm_90a", tool=fake(tmp_path, "env; pwd; exit 1"))
    assert "sk-secret" not in result.log
    assert "ptxmend-ptxas-" in result.log


def test_limits_hold_from_another_thread_too(tmp_path):
    codes: list[int] = []

    def one(index: int) -> None:
        folder = tmp_path / str(index)
        folder.mkdir()
        codes.append(run_limited(["/bin/sh", "-c", "ulimit -v; ulimit -c"], folder, ChildLimits()).code)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 4


def test_answers_are_kept_by_text_arch_and_version(tmp_path):
    log = tmp_path / "log"
    body = f"echo x >> {log}; echo cubin > candidate.cubin"
    for _ in range(3):
        assert assemble(GOOD, "sm_90a", tool=fake(tmp_path, body)).cubin == b"cubin\n"
    assert assemble("//! another: plan\n//! x\n" + GOOD, "sm_90a", tool=fake(tmp_path, body)).assembly.ok
    assert log.read_text().count("x") == 2
    assemble(GOOD, "sm_100a", tool=fake(tmp_path, body))
    assemble(GOOD, "sm_90a", tool=fake(tmp_path, body, "13.6.0"))
    assert log.read_text().count("x") == 4


def test_troubles_are_not_kept(tmp_path, private_cache):
    assemble(GOOD, "sm_90a", tool=fake(tmp_path, "sleep 9"), limits=ChildLimits(seconds=0.1))
    assert not private_cache.exists() or not any(private_cache.rglob("*.*"))
    assert assemble(GOOD, "sm_90a", tool=fake(tmp_path, "echo cubin > candidate.cubin")).assembly.ok


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_damaged_entry_is_a_miss(damage, private_cache):
    first = assemble(GOOD, "sm_90a")
    (entry,) = [path for path in private_cache.rglob("*") if path.is_file()]
    data = entry.read_bytes()
    entry.write_bytes(damage if damage is not None else data[:-1] + bytes([data[-1] ^ 1]))
    again = assemble(GOOD, "sm_90a")
    assert again.cubin == first.cubin
    assert entry.read_bytes() == data


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_the_cache_gives_back_what_was_put(tmp_path_factory, first, second):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXMEND_CACHE", str(tmp_path_factory.mktemp("cache")))
        key = cache.key_of(first, second)
        assert cache.get(key) is None
        cache.put(key, first)
        assert cache.get(key) == first
        cache.put(key, second)
        assert cache.get(key) == second
    assert cache.key_of(first + b"a", second) != cache.key_of(first, b"a" + second) or not (first or second)


def test_the_cache_is_bounded_and_forgets_the_oldest(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXMEND_CACHE", str(tmp_path))
    keys = [cache.key_of(str(number)) for number in range(10)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(tmp_path / key[:2] / key, (1000 + age, 1000 + age))
    cache.prune(tmp_path, limit=3 * 1032)
    assert [cache.get(key) is not None for key in keys] == [False] * 7 + [True] * 3


def test_many_processes_may_share_the_cache(tmp_path):
    code = (
        "from tools import cache\n"
        "for n in range(300):\n"
        "    key = cache.key_of(str(n % 7)); cache.put(key, str(n % 7).encode() * 999)\n"
        "    assert cache.get(key) in (None, str(n % 7).encode() * 999)\n"
    )
    environment = {**os.environ, "PTXMEND_CACHE": str(tmp_path / "shared")}
    root = Path(__file__).parent.parent.parent
    children = [subprocess.Popen([sys.executable, "-c", code], cwd=root, env=environment) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert not list((tmp_path / "shared").rglob(".new-*"))


def test_a_folder_that_cannot_be_written_is_no_cache_and_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXMEND_CACHE", str(tmp_path / "file" / "below"))
    assert assemble(GOOD, "sm_90a").assembly.ok
    monkeypatch.setenv("PTXMEND_CACHE", "")
    assert assemble(GOOD, "sm_90a").assembly.ok


def test_a_missing_assembler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXMEND_PTXAS", str(tmp_path / "absent"))
    with pytest.raises(ToolMissing, match="pip install"):
        assemble(GOOD, "sm_90a")


@settings(deadline=None, max_examples=25)
@given(st.text(max_size=300), st.booleans())
def test_any_text_is_judged(text, headed):
    result = assemble((HEADER if headed else "") + text, "sm_90a")
    assert result.assembly.ok is (result.cubin is not None)
    assert result.assembly.ok or result.diagnostics[0].severity == "error"
    json.dumps([each.model_dump(mode="json") for each in result.diagnostics])


def test_a_signal_number_is_not_mistaken_for_an_exit_code(tmp_path):
    result = run_limited(["/bin/sh", "-c", "kill -TERM $$"], tmp_path, ChildLimits())
    assert result.code == -signal.SIGTERM
    assert not result.timed_out
