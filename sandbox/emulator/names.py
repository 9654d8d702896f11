"""What the machine makes of the names of a function: registers become slots of a bank, variables places in
memory, labels program counters. What a name stands for is the business of `sandbox.ptx.symbols`.

Shared variables of the module, the entry and every `.func` are laid out together, the dynamic (extern) part
last; local variables and the parameters of calls live in a thread's local memory.

Invariants
- Declarations, labels and targets are known by identity, for blocks may declare one name anew; a module
  outlives everything made of it.

Source: PTX ISA, "State Spaces", "Parameter State Space".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sandbox.emulator.memory import Region
from sandbox.emulator.semantics.types import TYPES
from sandbox.ptx.layout import Placed, base_space, declarations, place
from sandbox.ptx.nodes import Block, Directive, Function, Instruction, Label
from sandbox.ptx.symbols import FunctionSymbols, ModuleSymbols, Register, Scope
from tasks.errors import CannotJudge

COMPONENTS = "xyzw"
CARRY = Register(-1, "CC.CF", "u32")
"""The condition code as a register of each function; PTX code cannot name it."""
FUNCTION_BASE = 0x0000_5000_0000
"""Address of the first function; the next ones follow every 16 bytes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One scalar register of a function's bank; a vector register has several."""

    index: int
    bits: int
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """A variable with an address: `space` is the one its plain name is used in; `base` counts from the start
    of that space, for local memory from the start of the frame.
    """

    space: str
    base: int
    size: int
    name: str


Meaning: TypeAlias = "Slot | tuple[Slot, ...] | Place | Label | Function | Directive"


@dataclass(slots=True)
class FrameShape:
    """What one activation of a function holds: registers by number, and its own local memory."""

    symbols: FunctionSymbols
    places: dict[int, Place]
    """By identity of the declaration."""
    bits: list[int] = field(default_factory=list[int])
    """Of each slot."""
    register_names: list[str] = field(default_factory=list[str])
    slots: dict[int, tuple[Slot, ...]] = field(default_factory=dict[int, tuple[Slot, ...]])
    """By id of the register; made when first used."""
    positions: dict[int, int] = field(default_factory=dict[int, int])
    """Program counters of labels, by identity."""
    local: list[Region] = field(default_factory=list[Region])
    local_bytes: int = 0
    first_pc: int = 0
    end_pc: int = 0
    params: list[Meaning] = field(default_factory=list["Meaning"])
    results: list[Meaning] = field(default_factory=list["Meaning"])

    @property
    def function(self) -> Function:
        return self.symbols.function

    def slots_of(self, register: Register) -> tuple[Slot, ...]:
        """The slots of a register, one for each element."""
        found = self.slots.get(register.id)
        if found is None:
            known = TYPES.get(register.type)
            bits = known.width if known else 32
            parts = [f".{each}" for each in COMPONENTS[: register.vector]] if register.vector > 1 else [""]
            first = len(self.bits)
            found = tuple(Slot(first + k, bits, register.name + part) for k, part in enumerate(parts))
            self.slots[register.id] = found
            self.bits += [bits] * len(found)
            self.register_names += [each.name for each in found]
        return found


class Names:
    """The names of one block, as the machine takes them."""

    def __init__(self, scope: Scope, shape: FrameShape) -> None:
        self.scope = scope
        self.shape = shape

    def find(self, name: str) -> Meaning | None:
        """What a name means here; None also for a variable that the launched entry does not have."""
        found = CARRY if name == CARRY.name else self.scope.find(name)
        if isinstance(found, Register):
            slots = self.shape.slots_of(found)
            return slots if found.vector > 1 else slots[0]
        if isinstance(found, Placed):
            return self.shape.places.get(id(found.variable))
        return found

    def position(self, name: str) -> int | None:
        """Program counter of a label."""
        return self.shape.positions.get(id(self.scope.find(name)))


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction of the flattened module with the scope it stands in."""

    instruction: Instruction
    scope: Names
    shape: FrameShape


class Spaces:
    """The param and shared space of an entry, and where variables of all its functions lie."""

    def __init__(self, entry: FunctionSymbols, images: Mapping[int, Place]) -> None:
        self.places = dict(images)
        self.params = [Region(each.name, each.offset, each.size) for each in entry.params]
        self.param_bytes = max((each.end for each in self.params), default=0)
        self.shared: list[Region] = []
        self.dynamic = False
        """Whether an extern array names the dynamic part."""
        self.dynamic_name = "dynamic shared memory"
        self.dynamic_base = 0
        for each in entry.params:
            self.places[id(each.variable)] = Place("param", each.offset, each.size, each.name)
        for each in entry.shared:
            self.places[id(each.variable)] = Place("shared", each.offset, each.size, each.name)
            self.dynamic_base = max(self.dynamic_base, each.offset + each.size)
            if each.dynamic:
                self.dynamic, self.dynamic_name = True, each.name
            else:
                self.shared.append(Region(each.name, each.offset, each.size))


def flatten(symbols: FunctionSymbols, places: Mapping[int, Place], lines: list[Line]) -> FrameShape:
    """Append a function's instructions to `lines`, whose indices are the program counters, and give its
    frame. places: of variables outside the frame, by identity of the declaration. Raises CannotJudge.
    """
    function = symbols.function
    shape = FrameShape(symbols, dict(places), first_pc=len(lines))
    inner = list(declarations(function.body))
    for each in inner:
        if each.range is not None and base_space(each) != "reg":
            raise CannotJudge(
                f"line {each.span.line}: the emulator knows ranges such as {each.name}<{each.range}> of "
                f"registers only; this one is in .{each.space}"
            )
    formals = () if function.entry else (*function.params, *function.results)
    framed = [each for each in formals if base_space(each) != "reg"]
    framed += [each for each in inner if base_space(each) in ("local", "param")]
    for each in place(framed):
        shape.places[id(each.variable)] = Place("local", each.offset, each.size, each.name)
        shape.local.append(Region(each.name, each.offset, each.size))
        shape.local_bytes = each.offset + each.size
    for placed, kept in ((symbols.params, shape.params), (symbols.results, shape.results)):
        for each in placed:
            if base_space(each.variable) != "reg":
                kept.append(shape.places[id(each.variable)])
                continue
            found = Names(symbols.root, shape).find(each.name)
            assert found is not None
            kept.append(found)
    if function.body is not None:
        _walk(function.body, symbols.root.children[0], shape, lines)
    shape.end_pc = len(lines)
    return shape


def _walk(block: Block, scope: Scope, shape: FrameShape, lines: list[Line]) -> None:
    names = Names(scope, shape)
    children = iter(scope.children)
    for statement in block.statements:
        if isinstance(statement, Label):
            shape.positions[id(statement)] = len(lines)
        elif isinstance(statement, Instruction):
            lines.append(Line(statement, names, shape))
        elif isinstance(statement, Block):
            _walk(statement, next(children), shape, lines)


def functions_of(symbols: ModuleSymbols) -> list[FunctionSymbols]:
    """Device functions, declared ones too, in order."""
    return [each for each in symbols.functions.values() if not each.function.entry]


def function_addresses(symbols: ModuleSymbols) -> dict[str, int]:
    """Address of every device function, by name."""
    return {each.function.name: FUNCTION_BASE + 16 * k for k, each in enumerate(functions_of(symbols))}
