"""What the names of a function stand for: registers, variables with their place in memory, labels, functions.

Registers of nested scopes shadow those outside and get numbers of their own. Shared variables of the module,
the entry and every `.func` are laid out together, the dynamic (extern) part last; local variables and the
parameters of calls live in a thread's local memory.

Source: PTX ISA, "State Spaces", "Parameterized Variable Names", "Parameter State Space".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from sandbox.emulator.memory import Region
from sandbox.emulator.semantics.types import TYPES
from sandbox.ptx.layout import base_space, shared_layout, size_and_align
from sandbox.ptx.nodes import Block, Directive, Function, Instruction, Label, Module, Variable

COMPONENTS = "xyzw"


@dataclass(frozen=True, slots=True)
class Register:
    """One scalar register of a function."""

    index: int
    bits: int
    name: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A variable with an address: `space` is the one its plain name is used in; `base` counts from the start
    of that space.
    """

    space: str
    base: int
    size: int
    name: str


@dataclass(slots=True)
class LabelAt:
    """A label; `pc` is set once the body has been flattened."""

    name: str
    pc: int = -1


@dataclass(frozen=True, slots=True)
class Callee:
    """A function by name."""

    function: Function


Meaning: TypeAlias = "Register | tuple[Register, ...] | Placed | LabelAt | Callee | Directive"


@dataclass(slots=True)
class Layout:
    """A space being filled, variable after variable."""

    top: int = 0
    regions: list[Region] = field(default_factory=list[Region])

    def place(self, variable: Variable, space: str) -> Placed:
        size, align = size_and_align(variable)
        base = -(-self.top // align) * align
        self.top = base + size
        self.regions.append(Region(variable.name, base, size))
        return Placed(space, base, size, variable.name)


class Scope:
    """Names of one block and, behind it, of the blocks around it."""

    def __init__(self, parent: Scope | None, frame: FrameShape | None) -> None:
        self.parent = parent
        self.frame = frame
        self.names: dict[str, Meaning] = {}
        self.ranges: dict[str, tuple[int, str]] = {}

    def find(self, name: str) -> Meaning | None:
        """What a name means here."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is None and scope.ranges:
                found = scope.numbered(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def numbered(self, name: str) -> Meaning | None:
        for cut in range(len(name) - 1, 0, -1):
            digits = name[cut:]
            if not digits.isdigit():
                return None
            known = self.ranges.get(name[:cut])
            if known and int(digits) < known[0] and (digits == "0" or digits[0] != "0"):
                assert self.frame is not None
                made = self.names[name] = self.frame.register(name, known[1])
                return made
        return None

    def declare_register(self, variable: Variable) -> None:
        """Take a `.reg` declaration into this scope."""
        if variable.range is not None:
            self.ranges[variable.name] = (variable.range, variable.type)
            return
        assert self.frame is not None
        if variable.vector > 1:
            parts = tuple(
                self.frame.register(f"{variable.name}.{COMPONENTS[k]}", variable.type)
                for k in range(variable.vector)
            )
            self.names[variable.name] = parts
        else:
            self.names[variable.name] = self.frame.register(variable.name, variable.type)


@dataclass(slots=True)
class FrameShape:
    """What one activation of a function holds: registers by number, and its own local memory."""

    function: Function
    bits: list[int] = field(default_factory=list[int])
    register_names: list[str] = field(default_factory=list[str])
    local: Layout = field(default_factory=Layout)
    first_pc: int = 0
    end_pc: int = 0
    params: list[Meaning] = field(default_factory=list["Meaning"])
    results: list[Meaning] = field(default_factory=list["Meaning"])

    def register(self, name: str, type_name: str) -> Register:
        known = TYPES.get(type_name)
        made = Register(len(self.bits), known.width if known else 32, name)
        self.bits.append(made.bits)
        self.register_names.append(name)
        return made


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction of the flattened module with the scope it stands in."""

    instruction: Instruction
    scope: Scope
    shape: FrameShape


class Spaces:
    """Layouts that an entry's functions share."""

    def __init__(self, module: Module, entry: Function) -> None:
        self.params = Layout()
        self.shared: dict[int, Placed] = {}
        """By identity of the declaration; only those a launch of the entry has."""
        self.shared_regions: list[Region] = []
        self.dynamic_name = "dynamic shared memory"
        self.dynamic_base = 0
        for each in shared_layout(module, entry):
            self.shared[id(each.variable)] = Placed("shared", each.offset, each.size, each.name)
            self.dynamic_base = max(self.dynamic_base, each.offset + each.size)
            if each.dynamic:
                self.dynamic_name = each.name
            else:
                self.shared_regions.append(Region(each.name, each.offset, each.size))


def flatten(function: Function, outer: Scope, spaces: Spaces, lines: list[Line]) -> FrameShape:
    """Append a function's instructions to `lines`, whose indices are the program counters, and give its
    frame.
    """
    shape = FrameShape(function, first_pc=len(lines))
    top = Scope(outer, shape)
    for formals, kept in ((function.params, shape.params), (function.results, shape.results)):
        for formal in formals:
            if base_space(formal) == "reg":
                top.declare_register(formal)
            elif function.entry:
                top.names[formal.name] = spaces.params.place(formal, "param")
            else:
                top.names[formal.name] = shape.local.place(formal, "local")
            found = top.names.get(formal.name)
            if found is not None:
                kept.append(found)
    if function.body is not None:
        _walk(function.body, Scope(top, shape), shape, spaces, lines)
    shape.end_pc = len(lines)
    return shape


def _walk(block: Block, scope: Scope, shape: FrameShape, spaces: Spaces, lines: list[Line]) -> None:
    for statement in block.statements:
        if isinstance(statement, Label):
            scope.names[statement.name] = LabelAt(statement.name)
    pending: str | None = None
    for statement in block.statements:
        if isinstance(statement, Label):
            label = scope.names[statement.name]
            assert isinstance(label, LabelAt)
            label.pc = len(lines)
            pending = statement.name
            continue
        if isinstance(statement, Instruction):
            lines.append(Line(statement, scope, shape))
        elif isinstance(statement, Block):
            _walk(statement, Scope(scope, shape), shape, spaces, lines)
        elif isinstance(statement, Variable):
            declare(statement, scope, shape, spaces)
        elif statement.name in ("branchtargets", "calltargets", "callprototype") and pending is not None:
            scope.names[pending] = statement
        pending = None


def declare(variable: Variable, scope: Scope, shape: FrameShape, spaces: Spaces) -> None:
    """Give a variable declared inside a function its place."""
    space = base_space(variable)
    if space == "reg":
        scope.declare_register(variable)
    elif space == "shared":
        placed = spaces.shared.get(id(variable))
        if placed is not None:
            scope.names[variable.name] = placed
    elif space in ("local", "param"):
        for name in numbered_names(variable):
            one = Variable("local", variable.type, name, variable.vector, variable.dims, None, variable.align)
            scope.names[name] = shape.local.place(one, "local")


def numbered_names(variable: Variable) -> Iterator[str]:
    """The names a declaration makes: one, or `name0` … when it has a range."""
    if variable.range is None:
        yield variable.name
    else:
        yield from (f"{variable.name}{k}" for k in range(variable.range))


def functions_with_bodies(module: Module) -> list[Function]:
    """Device functions that can be called, in order."""
    return [each for each in module.functions if not each.entry and each.body is not None]
