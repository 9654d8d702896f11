"""Families are counted where they are launched, in the PTX and in the machine code, and what is missing is named exactly."""

import pytest

from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import Launch, Plan
from tasks.errors import InfraError, InputError
from tools import inspect as inspecting
from tools.assemble import assemble
from tools.disassemble import disassemble
from tools.evaluation import Depth
from tools.inspect import inspect

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<40>; .reg .b64 %rd<10>; .reg .f32 %f<40>;"


@pytest.fixture(autouse=True, scope="module")
def private_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXMEND_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def entry(body: str, name: str = "k", tuning: str = "") -> str:
    return f".visible .entry {name}(.param .u64 p) {tuning}\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"


def plan(*entries: str) -> Plan:
    return Plan(
        launches=tuple(Launch(entry=name, grid=("1",), block=("128",), args=("x",)) for name in entries)
    )


def look(text: str, required=(), entries=("k",), arch="sm_90a"):
    assembled = assemble(text, arch)
    assert assembled.assembly.ok, assembled.log
    return inspect(parse_module(text), plan(*entries), assembled.cubin, arch, required)


def by_name(result):
    return {target.family: target for target in result.targets}


LOAD = "ld.param.u64 %rd1,[p]; cvta.to.global.u64 %rd1,%rd1;"
ACCUMULATORS = ",".join(f"%f{index}" for index in range(4))
WGMMA = (
    "wgmma.fence.sync.aligned;\n"
    f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{ACCUMULATORS}}}, %rd2, %rd3, 1, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
)
SET = "mov.u64 %rd2, 1; mov.u64 %rd3, 2; " + " ".join(f"mov.f32 %f{index}, 0f00000000;" for index in range(4))


def test_wgmma_is_found_in_both_and_its_order_is_counted_apart():
    found = by_name(look(HEADER + entry(f"{LOAD} {SET}\n{WGMMA}\nst.global.f32 [%rd1],%f0;"), ["wgmma"]))
    assert (found["wgmma"].depth, found["wgmma"].in_ptx, found["wgmma"].in_sass) == (Depth.IN_SASS, 1, 1)
    assert found["wgmma"].required
    assert found["wgmma"].note == ""
    assert found["wgmma_sync"].in_ptx == 3
    assert not found["wgmma_sync"].required


def test_dropped_setmaxnreg_says_why_and_kept_is_seen():
    body = "setmaxnreg.inc.sync.aligned.u32 64;\nsetmaxnreg.dec.sync.aligned.u32 40;"
    dropped = by_name(look(HEADER + entry(body, tuning=".maxntid 128"), ["setmaxnreg"]))["setmaxnreg"]
    assert (dropped.depth, dropped.in_ptx, dropped.in_sass) == (Depth.IN_PTX, 2, 0)
    assert (
        "1 x setmaxnreg.inc, 1 x setmaxnreg.dec in the PTX (lines 7, 8), 0 in the machine code"
        in dropped.note
    )
    assert "no .minnctapersm or .maxnreg" in dropped.note
    kept = by_name(look(HEADER + entry(body, tuning=".maxntid 128 .minnctapersm 1"), ["setmaxnreg"]))[
        "setmaxnreg"
    ]
    assert (kept.depth, kept.in_sass) == (Depth.IN_SASS, 2)


def test_a_comment_a_string_and_an_entry_not_launched_do_not_count():
    text = (
        HEADER
        + "// wgmma.mma_async.sync.aligned\n/* ldmatrix */\n"
        + entry('.pragma "nounroll"; // mma.sync')
        + entry(f"{LOAD} {SET}\n{WGMMA}\nst.global.f32 [%rd1],%f0;", name="other")
    )
    result = look(text, ["wgmma", "ldmatrix"])
    found = by_name(result)
    assert set(found) == {"wgmma", "ldmatrix"}
    assert found["wgmma"].depth is found["ldmatrix"].depth is Depth.ABSENT
    assert "none in entry k; it stands only in functions that are not launched" in found["wgmma"].note
    assert found["ldmatrix"].note.endswith("is not used: none in entry k")
    assert found["wgmma"].in_sass is None


def test_functions_that_an_entry_reaches_count_once():
    helper = (
        ".func (.reg .b32 out) helper(.reg .b32 in) { .reg .b32 %q; redux.sync.add.s32 %q, in, -1; add.u32 out, %q, 1; ret; }\n"
        ".func (.reg .b32 out) twice(.reg .b32 in) { .reg .b32 %q; call (%q), helper, (in); call (out), helper, (%q); ret; }\n"
        ".func (.reg .b32 out) unused(.reg .b32 in) { mov.b32 out, in; ret; }\n".replace(
            "elect.sync out|_, -1;", "mov.b32 out, in;"
        )
    )
    body = f"{LOAD} ld.global.u32 %r1,[%rd1]; call (%r2), twice, (%r1); st.global.u32 [%rd1],%r2;"
    found = by_name(look(HEADER + helper + entry(body) + entry(body, "b"), ["redux"], ("k", "b")))
    assert found["redux"].in_ptx == 1
    assert found["redux"].depth is Depth.IN_SASS


def test_what_ptxas_removes_is_in_ptx_only_and_warned_of():
    body = "redux.sync.add.s32 %r1, %r2, -1;"
    result = look(HEADER + entry("mov.u32 %r2,%tid.x; " + body), ["redux"])
    target = by_name(result)["redux"]
    assert (target.depth, target.in_ptx, target.in_sass) == (Depth.IN_PTX, 1, 0)
    assert "nothing depends on what it does" in target.note
    assert [(each.kind, each.line) for each in result.warnings] == [("removed_by_assembler", 7)]


def test_fp8_multiplication_on_hopper_is_said_not_to_be_native():
    text = HEADER.replace("8.0", "8.4") + entry(
        f"{LOAD} mov.u32 %r1,%tid.x;\nmma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%f1,%f2,%f3,%f4},{%r1,%r1,%r1,%r1},{%r1,%r1},{%f1,%f2,%f3,%f4}; st.global.f32 [%rd1],%f1;".replace(
            "{%f1,%f2,%f3,%f4};", "{0f00000000,0f00000000,0f00000000,0f00000000};"
        )
    )
    result = look(text, ["mma_sync"])
    target = by_name(result)["mma_sync"]
    assert target.depth is Depth.IN_SASS
    assert "no fp8 mma.sync" in target.note
    assert [each.kind for each in result.warnings] == ["not_native"]


def test_plain_helpers_are_listed_without_disassembling(monkeypatch):
    def refuse(*_):
        raise AssertionError("no question needs the machine code")

    monkeypatch.setattr(inspecting, "disassemble", refuse)
    body = f"{LOAD} mov.u32 %r1,%tid.x;\natom.global.add.u32 %r2,[%rd1],%r1; shfl.sync.idx.b32 %r3,%r2,0,31,-1; st.global.u32 [%rd1],%r3;"
    found = by_name(look(HEADER + entry(body), ["wgmma"]))
    assert found["atomic"].in_ptx == found["shfl"].in_ptx == 1
    assert found["atomic"].in_sass is None
    assert "not looked at" in found["atomic"].note
    monkeypatch.undo()
    assert by_name(look(HEADER + entry(body), ["atomic"]))["atomic"].depth is Depth.IN_SASS


def test_without_a_cubin_the_machine_code_is_not_claimed():
    text = HEADER + entry(f"{LOAD} {SET}\n{WGMMA}\nst.global.f32 [%rd1],%f0;")
    target = by_name(inspect(parse_module(text), plan("k"), None, "sm_90a", ["wgmma"]))["wgmma"]
    assert (target.depth, target.in_sass) == (Depth.IN_PTX, None)


def test_required_families_come_first_and_must_exist():
    text = HEADER + entry(f"{LOAD} {SET}\n{WGMMA}\nst.global.f32 [%rd1],%f0;")
    assert [each.family for each in look(text, ["tma_load", "wgmma", "tma_load"]).targets][:2] == [
        "tma_load",
        "wgmma",
    ]
    with pytest.raises(InputError, match="no instruction family 'wgma'"):
        look(text, ["wgma"])


def test_disassembly_gives_opcodes_and_guards_by_function():
    text = (
        HEADER + entry(f"{LOAD} ld.global.u32 %r1,[%rd1]; setp.eq.u32 %p1,%r1,3; @%p1 trap;") + entry("", "b")
    )
    cubin = assemble(text, "sm_90a").cubin
    assert cubin is not None
    sass = disassemble(cubin)
    assert set(sass) == {"k", "b"}
    assert any(one.opcode.startswith("LDG") for one in sass["k"])
    assert any(one.predicate.startswith("@") for one in sass["k"])
    assert disassemble(cubin) == sass


def test_a_cubin_that_is_none_is_infrastructure():
    with pytest.raises(InfraError, match="nvdisasm"):
        disassemble(b"\x7fELF no")
