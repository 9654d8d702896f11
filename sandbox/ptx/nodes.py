"""The syntax tree of a PTX module: frozen records, each with the span it came from.

Invariants
- The tree holds syntax alone: a `Name` may be a register, a variable, a label or a function; `sandbox.ptx.symbols` tells which.
- Unknown opcodes and modifiers are kept as they are; knowing instructions is the business of the readers of the tree.
- Spans never take part in comparison, so `parse(print_module(m)) == m`.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Instruction Operands", "Directives".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands in the text; lines and columns count from 1, `end_column` is one past the last character."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier: `%r1`, `%tid.x`, `DONE`, `smem`; `component` is the selector after it (`x`, `b0`), '' if none.

    A special register keeps its dimension as component: `%tid.x` is `Name("%tid", "x")`.
    """

    text: str
    component: str = ""
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal or constant expression, evaluated.

    `value` is a Python int (as written, sign kept) for kind "int"; the raw IEEE bits for kinds "f32" (`0f…`) and "f64" (`0d…` and
    decimal literals such as `1.0`, whose bits are those of the double).
    """

    value: int
    kind: str
    text: str = field(default="", compare=False)
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Offset:
    """`name + offset` or `name - offset` outside brackets, as in `mov.u64 %rd1, table+8`."""

    base: Name
    offset: int
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c, d}`; elements may themselves be any operand, `_` is `Name("_")`."""

    elements: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; `base` is a name, or an immediate for an absolute address.

    `rest` holds what follows a comma inside the brackets, as in the tensor address `[%rd1, {%r1, %r2}]`.
    """

    base: Name | Immediate
    offset: int = 0
    rest: tuple[Operand, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """A predicate operand that is negated: `!%p1`."""

    operand: Name
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Negative:
    """An operand with a minus sign before a register (`-%r1`), which some instructions allow."""

    operand: Name
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations joined by a bar: `%p1|%p2` of `setp`, `%r1|%p1` of `shfl.sync` and `match`."""

    first: Name
    second: Name
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A parenthesised list, as in the results and arguments of `call (r), f, (a, b)`."""

    elements: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


Operand: TypeAlias = Name | Immediate | Offset | Vector | Address | Not | Negative | Pair | Group


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate before an instruction: `@%p1` or `@!%p1`."""

    register: Name
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@p opcode.mod.mod operands;` `modifiers` are the dotted parts after the first, `::` kept: ("shared::cta", "u32")."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def name(self) -> str:
        """The whole dotted name, as in `ld.global.f32`."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Label:
    """`name:` before a statement."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Reference:
    """The address of a symbol inside an initialiser: `sym`, `sym+8`, `generic(sym)`, or one byte of it `0xFF00(sym)`."""

    symbol: str
    offset: int = 0
    generic: bool = False
    mask: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


Initializer: TypeAlias = "Immediate | Reference | tuple[Initializer, ...]"


@dataclass(frozen=True, slots=True)
class Variable:
    """A declaration in any state space, also `.reg` and `.param`.

    `space` has no dot: reg, param, const, global, local, shared (with `::cta` and the like kept), tex. `type` is without dot ("f32", "b8").
    """

    space: str
    type: str
    name: str
    vector: int = 1
    """1, 2, 4 or 8 for none, .v2, .v4, .v8."""
    dims: tuple[int | None, ...] = ()
    """Array extents; None for `[]`."""
    range: int | None = None
    """n of `%r<n>`, which declares %r0 … %r(n-1); None when a single name."""
    align: int | None = None
    """Bytes from `.align`; None when not given."""
    init: Initializer | None = None
    linkage: tuple[str, ...] = ()
    """Of extern, visible, weak, common; without dots."""
    attributes: tuple[str, ...] = ()
    """`.ptr .global .align 16`, `.attribute(.managed)` and the like, as written, without leading dots."""
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive statement kept with its arguments as text: .pragma, .loc, .file, .branchtargets, .callprototype, .section, .alias …"""

    name: str
    arguments: tuple[str, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ … }`, which opens a scope."""

    statements: tuple[Statement, ...]
    span: Span = field(default=NOWHERE, compare=False)


Statement: TypeAlias = Instruction | Label | Variable | Directive | Block


@dataclass(frozen=True, slots=True)
class Function:
    """A `.entry` or `.func`; `body` is None for a declaration."""

    name: str
    entry: bool
    params: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    linkage: tuple[str, ...] = ()
    tuning: tuple[Directive, ...] = ()
    """Performance directives between the head and the body: maxntid, reqntid, minnctapersm, maxnreg, reqnctapercluster, noreturn …"""
    body: Block | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    """A whole PTX file."""

    version: tuple[int, int]
    target: tuple[str, ...]
    """As written: ("sm_90a",) or ("sm_90a", "debug")."""
    address_size: int | None
    """32, 64, or None when the directive is missing."""
    items: tuple[Variable | Function | Directive, ...]
    """Module-level declarations in order."""

    @property
    def functions(self) -> tuple[Function, ...]:
        """Entries and functions, declarations too, in order."""
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Module-scope variables in order."""
        return tuple(item for item in self.items if isinstance(item, Variable))
