"""Every message has a class and a hint of its own, from either version of the assembler alike."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.assemble import assemble, explain
from tools.causes import TABLE_FILE, find_cause, table
from tools.diagnose import DIAGNOSTICS, diagnose, read_resources
from tools.source import Source
from tools.toolchain import find_ptxas

CORPUS = Path(__file__).parent.parent / "corpus" / "assembler"
PINS: dict[str, list[str]] = json.loads((CORPUS / "kinds.json").read_text())
HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"


@pytest.fixture(autouse=True, scope="module")
def private_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXMEND_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@cache
def recorded(version: str) -> dict[str, dict]:
    return json.loads((CORPUS / f"ptxas_{version}.json").read_text())


def text_of(name: str) -> str:
    return (CORPUS / (re.sub(r"\W", "_", name, flags=re.ASCII) + ".ptx")).read_text("utf-8")


def said(version: str, name: str):
    record = recorded(version)[name]
    return explain(record["out"], Source(text_of(name), record["arch"]), ok=record["rc"] == 0)


@pytest.mark.parametrize("version", ["13.0", "13.5"])
@pytest.mark.parametrize("name", sorted(PINS))
def test_each_module_has_its_class_from_what_either_version_printed(version, name):
    diagnostics = said(version, name)
    assert [each.kind for each in diagnostics] == PINS[name]
    refused = recorded(version)[name]["rc"] != 0
    assert (diagnostics[0].severity == "error") is refused
    for each in diagnostics:
        assert each.kind != "other"
        assert len(each.hint) > 20
        assert (
            each.line is None
            or each.source == text_of(name).split("\n")[each.line - 1].strip()
            or not each.source
        )


def test_the_corpus_is_whole_and_its_classes_are_distinct():
    assert len(PINS) == len(recorded("13.0")) == len(recorded("13.5")) == 72
    first = [kinds[0] for kinds in PINS.values()]
    shared = {kind for kind in first if first.count(kind) > 1}
    assert shared == {"version_too_low", "illegal_shape", "dropped_setmaxnreg", "setmaxnreg_kept"}


@pytest.mark.parametrize(
    "name", [name for name in sorted(PINS) if not name.startswith("unknown_arch_option")]
)
def test_the_real_assembler_says_what_was_recorded(name):
    tool = find_ptxas()
    if not tool.version.startswith("13.5."):
        pytest.skip(f"the pins are of 13.5, ptxas is {tool.version}")
    result = assemble(text_of(name), recorded("13.5")[name]["arch"], tool=tool)
    assert [each.kind for each in result.diagnostics] == PINS[name]
    assert result.assembly.ok is (recorded("13.5")[name]["rc"] == 0)


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("missing_semicolon", 33, ["line 32", "add.f32 %f3, %f1, %f2"]),
        ("undeclared_register", 32, ["%f<4>", "%f3", "%f<10>"]),
        ("unknown_instruction", 32, ["`add`"]),
        ("invented_instruction(wgmma.load)", 10, ["wgmma.mma_async"]),
        ("missing_a_suffix(.target sm_90, wgmma)", 72, [".target sm_90a", "75", "98"]),
        ("wgmma_bad_N(m64n60k16)", 10, ["n56", "n64"]),
        ("too_much_static_smem(>227K)", None, ["262144", "232448"]),
        ("version_too_low(7.8 for wgmma)", 45, [".version 8.0"]),
        ("wrong_operand_count", 32, ["3 operands", "has 2"]),
        ("type_mismatch_f32_op_on_b64", 32, ["%rd2 is .b64"]),
        ("type_mismatch_u64_addr_is_b32", 33, ["64-bit"]),
        ("non_ascii_comment", 1, ["U+00AB", "column 4", "byte 3"]),
        ("setmaxnreg bad value(41)", 10, ["40", "48"]),
        ("prose_before", 1, ["Here is the kernel"]),
    ],
)
def test_hints_carry_the_names_and_lines_of_the_text(name, line, words):
    first = said("13.0", name)[0]
    assert first.line == line
    for word in words:
        assert word in first.hint


OBSERVED = [
    ("bra %r1;", "label_expected"),
    ("@%r1 bra L; L:", "predicate_expected"),
    ("ld.f32 %f1,[%f2];", "address_register"),
    ("mad.lo.s32 %r1,%ctaid.x,%ntid.x,%tid.x;", "special_register_operand"),
    ("cvt.s32.f32 %r1,%f2;", "modifier_required"),
    ("cvt.rn.s32.f32 %r1,%f2;", "rounding_modifier"),
    ("div.f32 %f1,%f2,%f3;", "modifier_required"),
    ("rsqrt.f32 %f1,%f2;", "modifier_required"),
    ("mul.s32 %r1,%r2,%r3;", "illegal_types"),
    ("shfl.bfly.b32 %r1,%r2,1,31;", "sync_required"),
    ("atom.global.add.f16 %h1,[%rd1],%h2;", "modifier_required"),
    ("exp.f32 %f1,%f2;", "unknown_instruction"),
    ("ld.global.v4.f32 %f1,[%rd1];", "vector_expected"),
    ("mov.b32 %r1, {%h1,%h2,%h3};", "vector_width"),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2},[%r3];", "vector_size"),
    ("for (int i=0;i<3;i++) { }", "not_ptx"),
    ("%r1 = %r2 + %r3;", "not_ptx"),
    ("call foo, (%r1);", "undeclared_function"),
    ("ld.shared.f32 %f1,[smem];", "undeclared_symbol"),
    ("mov.u32 %r1, 99999999999999999999;", "constant_overflow"),
    (".shared .f32 s[0];", "incomplete_type"),
    (".shared .align 3 .f32 s[4];", "alignment"),
    (".reg .foo %z;", "unknown_type"),
    (".shared .f32 s[4] = {1,2,3,4};", "initializer"),
    ("ld.volatile.const.f32 %f1,[%rd1];", "modifier_space"),
    ("tcgen05.wait::ld.sync.aligned;", "wrong_family"),
    ("setmaxnreg.inc.sync.aligned.u32 300;", "setmaxnreg_value"),
    ("é add.f32 %f1,%f2,%f3;", "non_ascii"),
    ("add.f32 %f1,%f2,%f3 // no semi", "missing_semicolon"),
    ("add.f32 %f1,%f2,", "unfinished_statement"),
    ("```", "markdown_fence"),
    ("cvta.to.global.u32 %r1,%r2;", "address_32_bit"),
    ("fence.proxy.foo;", "unknown_modifier"),
    ("ld.global.f32 %f1, [rd1];", "undeclared_register"),
    ("mov.u32 %r1, threadIdx.x;", "undeclared_symbol"),
    ("@p1 bra L; L:", "undeclared_register"),
    ("ld.global.u32 %r1, [%rd1 + %rd2];", "address_expression"),
    ("ld.global.u32 %r1, [%rd1*4];", "address_expression"),
    ("mov.f32 %f1, 0f3F8;", "float_literal"),
    ("mov.f32 %f1, 1;", "literal_type"),
    ("add.s32 %r1, %r2, 1.5;", "literal_type"),
    ("mul.wide.s32 %r1,%r2,4;", "type_mismatch"),
    ("bar.sync 0, 33;", "barrier_threads"),
    ("atom.global.max.f32 %f1,[%rd1],%f2;", "operation_type"),
    ("fence.proxy.async.shared;", "state_space"),
    ("ld.acquire.global.u32 %r1,[%rd1];", "scope_required"),
    ("membar;", "modifier_required"),
    ("elect.sync %r1,-1;", "predicate_output"),
    ("st.param.u64 [p],%rd1;", "parameter_write"),
    ("neg.u32 %r1,%r2;", "illegal_types"),
    ("griddepcontrol;", "modifier_required"),
    ("mov.b64 {%r1,%r2},%rd1,%rd2;", "operand_count"),
    ("{" * 60000, "nested_too_deeply"),
]


@pytest.mark.parametrize(("statement", "kind"), OBSERVED, ids=[statement[:30] for statement, _ in OBSERVED])
def test_faults_beyond_the_corpus_have_classes_too(statement, kind):
    text = (
        HEADER + ".visible .entry k(.param .u64 p)\n{\n"
        ".reg .pred %p<4>; .reg .b32 %r<40>; .reg .b64 %rd<10>; .reg .f32 %f<9>; .reg .b16 %h<4>; .reg .f64 %d<4>;\n"
        f"{statement}\nret;\n}}\n"
    )
    result = assemble(text, "sm_90a")
    assert not result.assembly.ok
    assert result.diagnostics[0].kind == kind
    assert "other" not in {each.kind for each in result.diagnostics}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            ".version 8.0\n.target sm_90a, debug\n.address_size 64\n.visible .entry k() { ret; }",
            "debug_target",
        ),
        (".version 8.0\n.target sm_90a\n.address_size 32\n.visible .entry k() { ret; }", "address_size_32"),
        (HEADER + ".visible .entry k() { .reg .b32 %r<2>; mov.u32 %r1, 1; mov.u3", "truncated"),
        (HEADER + "__global__ void k() { }", "not_ptx"),
        (HEADER + ".visible .entry k(.param .u64 a .param .u64 b) { ret; }", "missing_comma"),
        (HEADER + ".visible .entry k(.param .b8 a[5000]) { ret; }", "too_many_parameters"),
        (HEADER + HEADER + ".visible .entry k() { ret; }", "repeated_header"),
        (".target sm_90a\n.version 8.0\n.visible .entry k() { ret; }", "missing_version"),
        (".version 8\n.target sm_90a\n.visible .entry k() { ret; }", "malformed_version"),
        (HEADER + ".visible .entry k() { ret; }\n}", "extra_brace"),
        (HEADER + ".visible .entry k() { ret; }\n.visible .entry k() { ret; }", "duplicate_function"),
        (
            "//! launch:\n//!   - entry: k\n" + HEADER + ".visible .entry k() { ret; }\n```\n",
            "markdown_fence",
        ),
    ],
)
def test_faults_of_a_whole_module_have_classes(text, kind):
    result = assemble(text, "sm_90a")
    assert not result.assembly.ok
    assert result.diagnostics[0].kind == kind


def test_rows_are_reachable_and_hints_name_only_groups_that_exist():
    assert TABLE_FILE.is_file()
    for cause in table():
        assert cause.hint or cause.refine is not None
        filled = dict.fromkeys(cause.pattern.groupindex, "1") | {
            "arch": "a",
            "op": "o",
            "got_dec": "1",
            "limit_dec": "2",
        }
        cause.hint.format_map(filled)


def test_code_numbers_are_not_what_is_matched():
    log = "ptxas info    : (C{}) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n"
    kinds = {diagnose(log.format(number), Source("", "sm_90a"))[0].kind for number in (7508, 1, 99999)}
    assert kinds == {"dropped_setmaxnreg"}


def test_a_message_nobody_has_seen_is_kept_as_it_is():
    (only,) = diagnose("ptxas k.ptx, line 2; error   : The moon is full\n", Source("a\nb\n", "sm_90a"))
    assert (only.kind, only.message, only.line, only.source) == ("other", "The moon is full", 2, "b")
    assert find_cause("The moon is full")[0].kind == "other"


def test_one_cause_is_told_once_and_the_abort_never():
    source = Source("\n".join("x" * 3 for _ in range(30)), "sm_90a")
    log = "".join(f"ptxas k.ptx, line {line}; error   : Unknown symbol '%q1'\n" for line in (3, 7, 3, 9))
    (only,) = diagnose(log + "ptxas fatal   : Ptx assembly aborted due to errors\n", source)
    assert only.line == 3
    assert "2 more line(s): 7, 9" in only.hint


def test_the_number_of_diagnostics_is_bounded():
    log = "".join(f"ptxas k.ptx, line {n}; error   : Unknown symbol 'q{n}x'\n" for n in range(1, 9999))
    assert len(diagnose(log, Source("", "sm_90a"))) == DIAGNOSTICS


def test_resources_are_read_for_each_entry():
    (used,) = read_resources(recorded("13.5")["SPILL(maxnreg 32, 160 live floats)"]["out"])
    assert used.entry == "k"
    assert (used.registers, used.barriers, used.shared) == (32, 1, 0)
    assert (used.stack, used.spill_stores, used.spill_loads) == (1168, 1376, 1556)
    (used,) = read_resources(recorded("13.0")["too_much_static_smem(>48K)"]["out"])
    assert used.shared == 65536


@settings(deadline=None, max_examples=60)
@given(
    st.text(max_size=200),
    st.sampled_from(
        [
            "Parsing error near '{}': syntax error",
            "Unknown symbol '{}'",
            "Arguments mismatch for instruction '{}'",
            "Not a name of any known instruction: '{}'",
            "Unknown modifier '.{}'",
            "Unexpected non-ASCII character encountered on line 1",
            "Missing .version directive at start of file '{}'",
            "Argument 1 of instruction 'setmaxnreg.{}': unexpected value 'x', expected to be multiple of 8",
            "{}",
        ]
    ),
    st.text(max_size=20),
    st.integers(0, 12),
)
def test_no_text_and_no_message_makes_it_fail(text, message, word, line):
    log = f"ptxas k.ptx, line {line}; error   : {message.format(word)}\n"
    for each in diagnose(log, Source(text, "sm_90a")):
        assert each.hint
