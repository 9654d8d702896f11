"""The parser: what it takes, what it makes of it, and how it refuses."""

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.ptx.cursor import double_bits
from sandbox.ptx.lexer import PtxSyntaxError
from sandbox.ptx.nodes import (
    Address,
    Block,
    Directive,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Name,
    Negative,
    Not,
    Offset,
    Pair,
    Reference,
    Variable,
    Vector,
)
from sandbox.ptx.parser import MAX_INSTRUCTIONS, parse_module
from tests.sandbox.ptx.samples import HEAD, MODULES, module_with

ENTRY = HEAD + ".visible .entry k(.param .u64 x) {\n"


def body(text: str) -> tuple[object, ...]:
    """Statements of a body after its declarations of the sample module."""
    found = parse_module(module_with(text)).functions[-1].body
    assert found is not None
    return found.statements[5:]


def instruction(text: str) -> Instruction:
    found = body(text)[-1]
    assert isinstance(found, Instruction)
    return found


def variable(text: str) -> Variable:
    found = parse_module(HEAD + text).items[-1]
    assert isinstance(found, Variable)
    return found


@pytest.mark.parametrize("text", MODULES)
def test_takes_what_ptxas_takes(text: str) -> None:
    assert parse_module(text).target == ("sm_90a",)
    assert parse_module(text.replace("\n", "\r\n")) == parse_module(text)


def test_header() -> None:
    module = parse_module("// c\n.version 8.0 .target sm_90a, debug\n")
    assert (module.version, module.target, module.address_size, module.items) == (
        (8, 0),
        ("sm_90a", "debug"),
        None,
        (),
    )


def test_operands() -> None:
    assert instruction("@!%p setp.eq.s32 p|_, -%a, 1, !%p;").operands == (
        Pair(Name("p"), Name("_")),
        Negative(Name("%a")),
        Immediate(1, "int"),
        Not(Name("%p")),
    )
    assert instruction("x.y [%b+-8], [16], [%b, {%a, 1}], tab-8, %tid.x;").operands == (
        Address(Name("%b"), -8),
        Address(Immediate(16, "int")),
        Address(Name("%b"), 0, (Vector((Name("%a"), Immediate(1, "int"))),)),
        Offset(Name("tab"), -8),
        Name("%tid", "x"),
    )
    assert instruction("call (%a), f, (%a, -1);").operands == (
        Group((Name("%a"),)),
        Name("f"),
        Group((Name("%a"), Immediate(-1, "int"))),
    )
    assert instruction("ld.global.u32 %a, tab[3];").operands[1] == Address(Name("tab"), 12)
    assert instruction("mov.u64 %b, tab[3];").operands[1] == Offset(Name("tab"), 12)


def test_modifiers_keep_their_colons_and_may_stand_apart() -> None:
    assert instruction("st.async .shared::cluster.mbarrier::complete_tx::bytes.b32 [%a], 1, [%a];").name == (
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6/2*(1<<3)", 24), ("-7/2", -3), ("-7 % 3", -1), ("7 % -3", 1), ("~0", -1), ("!5", 0), ("1?2:3", 2), ("0?2:0?4:5", 5),
        ("WARP_SZ*2", 64), ("0xFFFFFFFFFFFFFFFF", 2**64 - 1), ("(.s64)0xFFFFFFFFFFFFFFFF", -1), ("0b101U", 5), ("017", 15),
        ("1<2&&3", 1), ("1|6^2&3", 5), ("9223372036854775807+9223372036854775807", 2**64 - 2), ("3>=3==1", 1),
    ],
)  # fmt: skip
def test_constant_expressions(text: str, value: int) -> None:
    assert instruction(f"mov.u64 %b, {text};").operands[1] == Immediate(value, "int")


def test_floating_constants() -> None:
    values = [
        each.value for each in instruction("x 1.5, -1.5, 1e3, .5, 1.0+2.0*2.0, 0d3FF0000000000000;").operands
    ]  # type: ignore[union-attr]
    assert values == [double_bits(each) for each in (1.5, -1.5, 1e3, 0.5, 5.0, 1.0)]
    assert instruction("x 0f3F800000, -0F3f800000;").operands == (
        Immediate(0x3F800000, "f32"),
        Immediate(0xBF800000, "f32"),
    )


def test_declarations() -> None:
    assert variable(".visible .global .align 8 .v2 .f32 x[2][3];") == Variable(
        "global", "f32", "x", 2, (2, 3), align=8, linkage=("visible",)
    )
    assert variable(".global .u64 q[] = {x, generic(x)+8, 0xFF00(x)};").init == (
        Reference("x"),
        Reference("x", 8, generic=True),
        Reference("x", mask=0xFF00),
    )
    entry = parse_module(
        HEAD + ".entry k(.param .u64 .ptr .global .align 16 x, .param .align 64 .b8 tm[128]) {}"
    ).functions[0]
    assert entry.params == (
        Variable("param", "u64", "x", attributes=("ptr", "global", "align 16")),
        Variable("param", "b8", "tm", dims=(128,), align=64),
    )


def test_functions_and_tuning() -> None:
    module = parse_module(
        HEAD + '.func (.param .b32 r) f(.param .b32 a);\n.entry k .maxntid 128, 1 .pragma "u"; { ret; }'
    )
    declared, entry = module.functions
    assert isinstance(declared, Function)
    assert declared.body is None
    assert declared.results == (Variable("param", "b32", "r"),)
    assert entry.tuning == (Directive("maxntid", ("128", "1")), Directive("pragma", ('"u"',)))


def test_scopes_labels_and_lists() -> None:
    assert body(
        "L: { .reg .b32 t<4>; ret; } t: .branchtargets L, M; M: p: .callprototype _ (.param .b32 _);"
    ) == (
        Label("L"),
        Block((Variable("reg", "b32", "t", range=4), Instruction("ret", (), ()))),
        Label("t"),
        Directive("branchtargets", ("L", "M")),
        Label("M"),
        Label("p"),
        Directive("callprototype", ("_(.param .b32 _)",)),
    )


def test_spans_count_from_the_first_line_of_the_file() -> None:
    module = parse_module(HEAD + ".entry k() {\n  add.u32\n %r1, %r1, 1;\n}", first_line=11)
    block = module.functions[0].body
    assert block is not None
    span = block.statements[0].span
    assert (span.line, span.column, span.end_line, span.end_column) == (15, 3, 16, 14)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, (".version", "end of the text")),
        ("Here is PTX", 1, 1, (".version", "Here")),
        ("```ptx\n", 1, 1, ("Markdown",)),
        (".version 8\n", 1, 10, ("8.0",)),
        (".version 8.0\n.visible", 2, 1, (".target", ".visible")),
        (ENTRY + "add.f32 %f1, %f1 %f2;\n}", 5, 18, ("';' or ','", "%f2")),
        (ENTRY + "ret\n}", 6, 1, ("';' or ','", "'}'")),
        (ENTRY + "ret;\n", 6, 1, ("'}'", "end of the text")),
        (ENTRY + "ld.u32 %r1, [%r1+%r2];}", 5, 18, ("constant offset", "%r2")),
        (ENTRY + "add.f32 %f1, %f1, 1.0f;}", 5, 22, ("number", "'f'")),
        (ENTRY + "mov.u32 %r1, 5/0;}", 5, 15, ("division by zero",)),
        (ENTRY + "mov.f32 %f1, 1.0<<2;}", 5, 17, ("'<<'",)),
        (ENTRY + "mov.u64 %r1, 0x1FFFFFFFFFFFFFFFF;}", 5, 14, ("64 bits",)),
        (ENTRY + "a\0b", 5, 2, ("NUL byte at offset",)),
        (ENTRY + "mov.u32 é, 1;}", 5, 9, ("U+00E9", "ASCII")),
        (ENTRY + "/* never", 5, 1, ("*/",)),
        (ENTRY + ".maxntid 1;}", 5, 1, ("an instruction",)),
        (ENTRY + ".reg .q32 %r;}", 5, 6, ("a type", ".q32")),
        (HEAD + ".global .align 3 .u32 x;", 4, 16, ("power of two", "3")),
        (HEAD + ".global .u32 x[-1];", 4, 16, ("0 or more", "-1")),
        (HEAD + ".visible ret;", 4, 10, (".entry",)),
    ],
)  # fmt: skip
def test_refusals_say_where_what_and_found(text: str, line: int, column: int, words: tuple[str, ...]) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse_module(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.line, copy.column) == (str(caught.value), line, column)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "//" + " " * (1 << 20), "bytes of PTX"),
        (ENTRY + "ret;" * (MAX_INSTRUCTIONS + 1) + "}", "instructions"),
        (ENTRY + "{" * 100_000, "nesting"),
        (ENTRY + "x " + "(" * 50_000, "nesting"),
        (ENTRY + "x " + "{" * 50_000, "nesting"),
        (ENTRY + "x " + "-" * 200_000 + "1;}", "nesting"),
        (ENTRY + "x " + "1?1:" * 20_000 + "1;}", "nesting"),
        (HEAD + ".global .b8 x[] = " + "{" * 50_000, "nesting"),
        (ENTRY + ".reg .b32 %q<2000000000>;}", "registers in all ranges"),
        (ENTRY + ".reg .b32 %q<99999>, %r<2>;}", "registers in all ranges"),
        (HEAD + ".global .b8 x[67108865];", ".global"),
        (HEAD + ".global .b8 x[9999999999][9999999999];", ".global"),
        (HEAD + ".shared .b64 x[2097153];", ".shared"),
        (ENTRY + ".local .b8 x[16777217];}", ".local"),
        (HEAD + ".const .b8 x[720897];", ".const"),
    ],
)  # fmt: skip
def test_too_much_is_refused(text: str, words: str) -> None:
    with pytest.raises(PtxSyntaxError, match=words):
        parse_module(text)


PIECES = (
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    ";",
    ":",
    ",",
    ".",
    "@",
    "!",
    "%",
    "|",
    "+",
    "-",
    "0x",
    "1.",
    '"',
    "/*",
    "\0",
    "\n",
    "_",
    "é",
)


def refusal(text: str) -> PtxSyntaxError | None:
    try:
        parse_module(text)
    except PtxSyntaxError as error:
        return error
    return None


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_modules_are_taken_or_refused(data: st.DataObject) -> None:
    """Nothing but PtxSyntaxError comes out, whatever is cut, doubled or put in."""
    text = data.draw(st.sampled_from(MODULES))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 12)))
        doubled = text[start:stop] * 2
        piece = data.draw(st.one_of(st.text(max_size=6), st.sampled_from(PIECES), st.just(doubled)))
        text = text[:start] + piece + text[stop:]
    error = refusal(text)
    if error is not None:
        assert error.line >= 1
        assert error.column >= 1
        assert re.search("expected|constant|apply|division", str(error))


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=300))
def test_any_text_is_taken_or_refused(text: str) -> None:
    for whole in (text, HEAD + text, module_with(text)):
        error = refusal(whole)
        assert error is None or error.line >= 1
