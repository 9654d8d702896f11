"""Where variables lie: sizes, alignments, the param space of an entry, the shared and local memory of a function.

Source: PTX ISA, "Alignment", "Kernel Function Parameters", "Shared State Space"; CUDA C++ programming guide, parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Final

from sandbox.ptx.declarations import TYPE_BYTES
from sandbox.ptx.nodes import (
    Address,
    Block,
    Function,
    Group,
    Instruction,
    Module,
    Name,
    Offset,
    Operand,
    Statement,
    Variable,
    Vector,
)

REMEMBERED: Final = 16
"""Entries whose static memory is kept."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A variable at its place in a space."""

    variable: Variable
    offset: int
    """Bytes from the start of the space; for dynamic shared memory, where the static part ends."""
    size: int
    """Bytes; 0 for an array without extent."""
    align: int
    dynamic: bool = False
    """An extern array of shared memory, whose size the launch gives."""

    @property
    def name(self) -> str:
        return self.variable.name


def base_space(variable: Variable) -> str:
    """The space without `::cta` and the like."""
    return variable.space.partition("::")[0]


def element_count(variable: Variable) -> int:
    """Elements of an array, 1 for a scalar; `[]` counts its initialiser, or nothing."""
    count = 1
    for index, extent in enumerate(variable.dims):
        if extent is None:
            extent = len(variable.init) if index == 0 and isinstance(variable.init, tuple) else 0
        count *= extent
    return count


def size_and_align(variable: Variable) -> tuple[int, int]:
    """(bytes, alignment in bytes)."""
    unit = TYPE_BYTES.get(variable.type, 4) * variable.vector
    return unit * element_count(variable), max(variable.align or 0, unit)


def place(variables: Iterable[Variable]) -> tuple[Placed, ...]:
    """One after another, each at its alignment; extern arrays all begin where the others end."""
    top = 0
    static: list[Placed] = []
    dynamic: list[Variable] = []
    for variable in variables:
        size, align = size_and_align(variable)
        if base_space(variable) == "shared" and ("extern" in variable.linkage or None in variable.dims):
            dynamic.append(variable)
            continue
        offset = -(-top // align) * align
        static.append(Placed(variable, offset, size, align))
        top = offset + size
    for variable in dynamic:
        _, align = size_and_align(variable)
        align = max(align, 16)
        static.append(Placed(variable, -(-top // align) * align, 0, align, dynamic=True))
    return tuple(static)


def param_layout(function: Function) -> tuple[Placed, ...]:
    """Parameters in order with their byte offsets in the param space."""
    return place(function.params)


def statements(block: Block | None) -> Iterator[Statement]:
    """Every statement of a body but blocks themselves, in order, in nested scopes too."""
    pending = [iter(block.statements)] if block is not None else []
    while pending:
        for statement in pending[-1]:
            if isinstance(statement, Block):
                pending.append(iter(statement.statements))
                break
            yield statement
        else:
            pending.pop()


def declarations(block: Block | None) -> Iterator[Variable]:
    """Every variable declared inside a body, in nested scopes too."""
    return (each for each in statements(block) if isinstance(each, Variable))


def instructions(block: Block | None) -> Iterator[Instruction]:
    """Every instruction of a body, in order, in nested scopes too."""
    return (each for each in statements(block) if isinstance(each, Instruction))


def names_in(operands: Iterable[Operand]) -> Iterator[str]:
    """Plain names that operands mention, registers too."""
    for operand in operands:
        if isinstance(operand, Name):
            yield operand.text
        elif isinstance(operand, Vector | Group):
            yield from names_in(operand.elements)
        elif isinstance(operand, Address):
            if isinstance(operand.base, Name):
                yield operand.base.text
            yield from names_in(operand.rest)
        elif isinstance(operand, Offset):
            yield operand.base.text


def reachable(module: Module, entry: Function) -> tuple[Function, ...]:
    """The entry and every function with a body that it can name, directly or through others."""
    bodies = {each.name: each for each in module.functions if each.body is not None and not each.entry}
    found: dict[str, Function] = {}
    pending = [entry]
    while pending:
        function = pending.pop()
        if function.name in found:
            continue
        found[function.name] = function
        for instruction in instructions(function.body):
            if instruction.opcode in ("call", "mov"):
                pending.extend(bodies[name] for name in names_in(instruction.operands) if name in bodies)
    return tuple(found.values())


def shared_layout(module: Module, entry: Function) -> tuple[Placed, ...]:
    """Shared variables that a launch of `entry` has: the module's that its functions name, and their own."""
    functions = reachable(module, entry)
    used = {
        name
        for function in functions
        for each in instructions(function.body)
        for name in names_in(each.operands)
    }
    module_wide = [each for each in module.variables if base_space(each) == "shared" and each.name in used]
    own = [
        each for function in functions for each in declarations(function.body) if base_space(each) == "shared"
    ]
    return place((*module_wide, *own))


def _remembered(function: Callable[[Module, Function], int]) -> Callable[[Module, Function], int]:
    """The function with its last answers kept: trees never change, and a candidate is bound for each of its runs."""
    kept: OrderedDict[tuple[int, int], tuple[Module, Function, int]] = OrderedDict()

    @wraps(function)
    def answer(module: Module, entry: Function) -> int:
        key = (id(module), id(entry))  # as these trees are kept too, no other can have their ids
        found = kept.get(key)
        if found is None:
            found = kept[key] = (module, entry, function(module, entry))
            if len(kept) > REMEMBERED:
                kept.popitem(last=False)
        return found[2]

    return answer


@_remembered
def shared_bytes(module: Module, entry: Function) -> int:
    """Bytes of static shared memory of one block."""
    return max((each.offset + each.size for each in shared_layout(module, entry)), default=0)


@_remembered
def local_bytes(module: Module, entry: Function) -> int:
    """Bytes of .local variables of one thread, those of every function it can call added up."""
    functions = reachable(module, entry)
    local = [
        each for function in functions for each in declarations(function.body) if base_space(each) == "local"
    ]
    return max((each.offset + each.size for each in place(local)), default=0)
