"""parse(print(tree)) is the tree, for samples and for trees made at random."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.ptx.nodes import (
    Address,
    Block,
    Directive,
    Function,
    Group,
    Guard,
    Immediate,
    Instruction,
    Label,
    Module,
    Name,
    Negative,
    Not,
    Offset,
    Pair,
    Reference,
    Variable,
    Vector,
)
from sandbox.ptx.parser import parse_module
from sandbox.ptx.printer import print_instruction, print_module
from tests.sandbox.ptx.samples import MODULES


@pytest.mark.parametrize("text", MODULES)
def test_samples_survive(text: str) -> None:
    module = parse_module(text)
    printed = print_module(module)
    assert parse_module(printed) == module
    assert print_module(parse_module(printed)) == printed


def test_canonical_text() -> None:
    found = Instruction(
        "ld", ("global", "f32"), (Name("%f1"), Address(Name("%rd1"), -4)), Guard(Name("%p1"), True)
    )
    assert print_instruction(found) == "@!%p1 ld.global.f32 %f1, [%rd1+-4];"


words = st.from_regex(r"[%$_]?[a-z][a-z0-9_$]{0,6}", fullmatch=True).filter(lambda word: word != "generic")
names = st.builds(Name, words, st.sampled_from(["", "x", "b0", "h1"]))
plain = st.builds(Name, words)
integers = st.builds(Immediate, st.integers(-(2**63), 2**64 - 1), st.just("int"))
floats = st.one_of(
    st.builds(Immediate, st.integers(0, 2**32 - 1), st.just("f32")),
    st.builds(Immediate, st.integers(0, 2**64 - 1), st.just("f64")),
)
offsets = st.integers(-(2**31), 2**31)
leaves = st.one_of(
    names, integers, floats, st.builds(Offset, plain, offsets), st.builds(Not, names), st.builds(Negative, names),
    st.builds(Pair, names, names),
)  # fmt: skip
vectors = st.builds(Vector, st.lists(leaves, min_size=1, max_size=4).map(tuple))
operands = st.one_of(
    leaves,
    vectors,
    st.builds(Address, names, offsets, st.lists(st.one_of(names, vectors), max_size=2).map(tuple)),
    st.builds(Address, integers),
)
modifiers = st.lists(
    st.sampled_from(["f32", "shared::cta", "2d", "x4", "m16n8k16", "L2::128B"]), max_size=4
).map(tuple)
guards = st.none() | st.builds(Guard, names, st.booleans())
opcodes = st.sampled_from(["add", "ld", "mma", "invented"])
instructions = st.builds(Instruction, opcodes, modifiers, st.lists(operands, max_size=5).map(tuple), guards)
groups = st.builds(Group, st.lists(st.one_of(names, integers), max_size=3).map(tuple))
calls = st.builds(
    lambda uni, result, callee, arguments: Instruction("call", uni, (*result, callee, *arguments)),
    st.sampled_from([(), ("uni",)]),
    st.lists(groups, max_size=1),
    plain,
    st.lists(groups, max_size=1),
)
initial = st.recursive(
    st.one_of(
        integers, floats, st.builds(Reference, words, offsets, st.booleans(), st.none() | st.just(0xFF00))
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
variables = st.builds(
    Variable,
    st.sampled_from(["global", "const", "shared", "shared::cta"]),
    st.sampled_from(["b8", "u32", "f64", "bf16x2"]),
    words,
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple),
    st.none(),
    st.sampled_from([None, 1, 16, 128]),
    st.none() | initial,
    st.sampled_from([(), ("extern",), ("visible",)]),
    st.sampled_from([(), ("attribute(.managed)",)]),
)
registers = st.builds(
    Variable,
    st.just("reg"),
    st.sampled_from(["pred", "b32", "f64"]),
    words,
    range=st.none() | st.integers(0, 99),
)
directives = st.sampled_from(
    [
        Directive("pragma", ('"nounroll"',)),
        Directive("branchtargets", ("A", "B")),
        Directive("loc", ("1", "2", "3", "inlined_at 1 2 3")),
        Directive("callprototype", ("(.param .b32 _)_(.param .b8 _[4])",)),
    ]
)
statements = st.recursive(
    st.one_of(instructions, calls, st.builds(Label, words), registers, variables, directives),
    lambda inner: st.builds(Block, st.lists(inner, max_size=4).map(tuple)),
    max_leaves=8,
)
formals = st.builds(
    Variable,
    st.just("param"),
    st.sampled_from(["u64", "b8"]),
    words,
    dims=st.sampled_from([(), (128,)]),
    align=st.sampled_from([None, 64]),
    attributes=st.sampled_from([(), ("ptr", "global", "align 16")]),
)
tuning = st.sampled_from(
    [
        Directive("maxntid", ("128", "1")),
        Directive("noreturn"),
        Directive("pragma", ('"x"',)),
        Directive("attribute", (".unified(1,2)",)),
    ]
)
functions = st.builds(
    Function,
    words,
    st.booleans(),
    st.lists(formals, max_size=3).map(tuple),
    linkage=st.sampled_from([(), ("visible",), ("weak",)]),
    tuning=st.lists(tuning, max_size=2).map(tuple),
    body=st.none() | st.builds(Block, st.lists(statements, max_size=6).map(tuple)),
)
modules = st.builds(
    Module,
    st.tuples(st.integers(1, 9), st.integers(0, 9)),
    st.sampled_from([("sm_90a",), ("sm_80", "debug")]),
    st.sampled_from([None, 64]),
    st.lists(st.one_of(variables, functions), max_size=4).map(tuple),
)


@settings(deadline=None, max_examples=200)
@given(modules)
def test_printing_and_parsing_are_inverse(module: Module) -> None:
    assert parse_module(print_module(module)) == module
