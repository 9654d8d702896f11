"""Names, layout and lint."""

import pytest

from sandbox.ptx.lexer import PtxSyntaxError
from sandbox.ptx.lint import lint
from sandbox.ptx.nodes import Directive, Function, Label
from sandbox.ptx.parser import parse_module
from sandbox.ptx.symbols import SPECIAL_REGISTERS, Placed, Register, resolve
from tests.sandbox.ptx.samples import HEAD

TEXT = (
    HEAD
    + """
.extern .shared .align 16 .b8 dyn[];
.shared .align 4 .b8 wide[6];
.shared .b64 unused;
.global .f32 table[2][3];
.func (.param .b32 r) f(.param .b32 a, .param .b64 b) { .shared .b16 of_f; ret; }
.visible .entry k(.param .u8 p, .param .u64 q, .param .align 64 .b8 m[128])
{
    .reg .b32 %r<4>, single;
    .shared .b64 bar;
    mov.b32 %r1, wide; mov.b32 %r2, dyn; call f;
    { .reg .f32 %r<2>; INNER: mov.b32 %r1, 0; }
    lists: .branchtargets OUTER;
OUTER:
    ret;
}
"""
)


def test_names_find_their_meaning_from_the_inside_out() -> None:
    symbols = resolve(parse_module(TEXT)).functions["k"]
    outer = symbols.root.children[0]
    inner = outer.children[0]
    first, second = outer.find("%r1"), inner.find("%r1")
    assert isinstance(first, Register)
    assert isinstance(second, Register)
    assert (first.type, second.type) == ("b32", "f32")
    assert first.id != second.id
    assert outer.find("%r1") is first
    shared_with_outer = inner.find("%r3")
    assert isinstance(shared_with_outer, Register)
    assert shared_with_outer is outer.find("%r3")
    assert outer.find("%r4") is None
    assert outer.find("%r01") is None
    assert outer.find("%x") is None
    assert isinstance(outer.find("single"), Register)
    assert isinstance(outer.find("table"), Placed)
    assert isinstance(outer.find("f"), Function)
    assert isinstance(outer.find("lists"), Directive)
    assert isinstance(outer.find("OUTER"), Label)
    assert outer.find("INNER") is None
    assert isinstance(inner.find("INNER"), Label)
    assert set(symbols.labels) == {"INNER", "OUTER"}


def test_layout_of_parameters_and_shared_memory() -> None:
    symbols = resolve(parse_module(TEXT)).functions["k"]
    assert [(each.name, each.offset, each.size) for each in symbols.params] == [
        ("p", 0, 1),
        ("q", 8, 8),
        ("m", 64, 128),
    ]
    places = {each.name: (each.offset, each.size, each.dynamic) for each in symbols.shared}
    assert places == {
        "wide": (0, 6, False),
        "bar": (8, 8, False),
        "of_f": (16, 2, False),
        "dyn": (32, 0, True),
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (".entry k() {\nL: ret;\nL: ret;\n}", 6),
        (".entry k() {\n.reg .b32 a;\n.reg .b64 a;\n}", 6),
        (".entry k() {\n.reg .b32 a<3>;\n.reg .b64 a<4>;\n}", 6),
        (".entry k() {}\n.entry k() {}", 5),
        (".global .u32 x;\n.shared .u32 x;", 5),
    ],
)
def test_a_name_is_declared_once_in_a_scope(text: str, line: int) -> None:
    with pytest.raises(PtxSyntaxError, match="declares already") as caught:
        resolve(parse_module(HEAD + text))
    assert caught.value.line == line


def test_declarations_ahead_of_definitions_are_no_duplicates() -> None:
    symbols = resolve(
        parse_module(HEAD + ".func f(); .extern .global .u32 x; .func f() { ret; } .global .u32 x;")
    )
    assert symbols.functions["f"].function.body is not None


def test_special_registers_have_types() -> None:
    assert SPECIAL_REGISTERS["%tid"] == "v4.u32"
    assert SPECIAL_REGISTERS["%clock64"] == "u64"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("mov.u64 %b, %globaltimer;", "timer"),
        ("mov.u32 %a, %clock;", "timer"),
        ("nanosleep.u32 100;", "timer"),
        ("createpolicy.fractional.L2::evict_last.b64 %b, 1.0;", "l2"),
        ("ld.global.L2::cache_hint.f32 %f, [%b], %b;", "l2"),
        ("ld.global.L1::evict_last.f32 %f, [%b];", "l2"),
        ("prefetch.global.L2 [%b];", "l2"),
        ("cp.async.bulk.prefetch.L2.global [%b], 256;", "l2"),
        ("discard.global.L2 [%b], 128;", "l2"),
        ("applypriority.global.L2::evict_normal [%b], 128;", "l2"),
        ("mov.u64 %b, %gridid;", "state"),
        ("call (%a), vprintf, (%b, %b);", "stdout"),
        ("call (%b), malloc, (%b);", "heap"),
        ("ld.global.v4.f32 {%f, %f, %f, %f}, [%b+4];", "misaligned_offset"),
    ],
)
def test_lint_names_what_ptxas_lets_pass(line: str, kind: str) -> None:
    text = f"{HEAD}// %clock64 in a comment is nothing\n.visible .entry k()\n{{\n    {line}\n}}\n"
    (found,) = lint(parse_module(text, first_line=11), text, first_line=11)
    assert (found.kind, found.line, found.source) == (kind, 17, line)


@pytest.mark.parametrize(
    "line", ["ld.global.v4.f32 {%f, %f, %f, %f}, [%b+16];", "prefetch.tensormap [%b];", "st.global.L1::no_allocate.b32 [%b], 1;", "ret;"]
)  # fmt: skip
def test_lint_lets_honest_code_be(line: str) -> None:
    text = f"{HEAD}.visible .entry k() {{ {line} }}"
    assert lint(parse_module(text), text) == ()


def test_lint_of_modules_that_cannot_be_launched() -> None:
    hidden, empty = HEAD + ".entry k() { ret; }", HEAD + ".func f() { ret; }"
    assert [each.kind for each in lint(parse_module(hidden), hidden)] == ["no_visible_entry"]
    assert [each.kind for each in lint(parse_module(empty), empty)] == ["no_entry"]
