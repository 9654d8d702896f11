"""Copies of a module in which one instruction family has no effect: what does the answer owe to it?

All instructions of the family lose their effect at once, and nothing else changes: what waits for a copy still sees it complete, what
counts arrivals still counts them. If the answer stays right, the family was decoration.

| family | what stands in its place |
| --- | --- |
| mma_sync, mma_sp | the sum that went in comes out |
| wgmma | nothing; zeros where the sum was to start anew |
| ldmatrix | zeros |
| cp_async | the same copy with a source size of 0: it fills zeros |
| tma_load | the same copy from far outside of the tensor: it fills zeros and completes |
| bulk_copy | into shared memory: a copy of zeros; out of it: nothing |
| stmatrix, tma_store, tma_reduce, red | nothing |
| atom | nothing happens, 0 is read |
| shfl, redux | each lane gets its own value |
| vote, match | nobody, nothing |

Families that only order or prepare (barriers, fences, elections, register hand-over) have no copy: that they ran is all there is to prove.

Source: PTX ISA, the sections of the instructions; "Tensors", out-of-bound access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sandbox.ptx.families import family_of
from sandbox.ptx.nodes import (
    Address,
    Block,
    Function,
    Immediate,
    Instruction,
    Module,
    Name,
    Operand,
    Pair,
    Statement,
    Variable,
    Vector,
)
from tools.instrument import fresh

ZERO = Immediate(0, "int")
FAR = Immediate(0x3FFF0000, "int")
"""A coordinate outside of any tensor that is timed here, and inside of the 32 bits of a coordinate."""
ZEROS_BYTES = 232_448
"""As much as shared memory can take."""


class NoCopy(Exception):
    """The effect of an instruction of this form cannot be removed; the message names the form."""


Rule = Callable[[Instruction, str], Sequence[Statement]]
"""(instruction, name of an array of zeros) → what stands in its place."""


def knocked_out(module: Module, family: str) -> Module:
    """The module without the family's effect. Raises NoCopy; KeyError for a family without a rule."""
    rule, zeros = RULES[family], fresh(module)
    items = tuple(
        replace(item, body=_block(item.body, family, rule, zeros))
        if isinstance(item, Function) and item.body is not None
        else item
        for item in module.items
    )
    if family != "bulk_copy":
        return replace(module, items=items)
    array = Variable("global", "b8", zeros, dims=(ZEROS_BYTES,), align=128)
    first = next(index for index, item in enumerate(items) if isinstance(item, Function))
    return replace(module, items=(*items[:first], array, *items[first:]))


def _block(block: Block, family: str, rule: Rule, zeros: str) -> Block:
    made: list[Statement] = []
    for statement in block.statements:
        if isinstance(statement, Block):
            made.append(_block(statement, family, rule, zeros))
        elif isinstance(statement, Instruction) and family_of(statement) == family:
            made.extend(rule(statement, zeros))
        else:
            made.append(statement)
    return replace(block, statements=tuple(made))


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _moves(instruction: Instruction, pairs: Sequence[tuple[Operand, Operand]], kind: str) -> list[Statement]:
    """One move a pair, under the instruction's guard; sinks (`_`) get none."""
    return [
        Instruction("mov", (kind,), (target, source), instruction.guard, instruction.span)
        for target, source in pairs
        if target != Name("_")
    ]


def _mma(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    sums = _elements(instruction.operands[0])
    before = _elements(instruction.operands[3])
    if len(sums) != len(before):
        raise NoCopy(f"{instruction.name}, whose sums go in and out in different types")
    kind = "b64" if "f64" in instruction.modifiers else "b32"
    return _moves(instruction, list(zip(sums, before, strict=True)), kind)


def _wgmma(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    if len(instruction.operands) < 4:
        raise NoCopy(instruction.name)
    scale = instruction.operands[3]  # behind both matrices: whether to add to the sums or to start anew
    clear = [(each, ZERO) for each in _elements(instruction.operands[0])]
    if isinstance(scale, Immediate):
        return [] if scale.value else _moves(instruction, clear, "b32")
    assert isinstance(scale, Name)
    return [
        Instruction("selp", ("b32",), (target, target, ZERO, scale), instruction.guard, instruction.span)
        for target, _ in clear
    ]


def _zero_words(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    return _moves(instruction, [(each, ZERO) for each in _elements(instruction.operands[0])], "b32")


def _cp_async(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    target, source, size, *more = instruction.operands
    policy = more[-1:] if "L2::cache_hint" in instruction.modifiers else []
    return [replace(instruction, operands=(target, source, size, ZERO, *policy))]


def _tma_load(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    target, tensor, *more = instruction.operands
    if not isinstance(tensor, Address) or not tensor.rest or not isinstance(tensor.rest[0], Vector):
        raise NoCopy(instruction.name)
    first = tensor.rest[0]
    away = replace(first, elements=(FAR, *first.elements[1:]))
    return [replace(instruction, operands=(target, replace(tensor, rest=(away, *tensor.rest[1:])), *more))]


def _bulk_copy(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    if instruction.modifiers[2] == "global":  # cp.async.bulk.global…: out of shared memory
        return []
    if instruction.modifiers[3] != "global":
        raise NoCopy(instruction.name)
    target, _, *more = instruction.operands
    return [replace(instruction, operands=(target, Address(Name(zeros)), *more))]


def _nothing(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    return []


def _bulk_reduce(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    if not any("bulk_group" in each for each in instruction.modifiers):
        raise NoCopy(instruction.name)
    return []


def _own(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    target, source = instruction.operands[:2]
    if isinstance(target, Pair):
        there = Instruction("setp", ("eq", "u32"), (target.second, ZERO, ZERO), instruction.guard)
        return [*_moves(instruction, [(target.first, source)], "b32"), there]
    return _moves(instruction, [(target, source)], "b32")


def _nobody(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    target = instruction.operands[0]
    if isinstance(target, Pair):
        none = Instruction("setp", ("ne", "u32"), (target.second, ZERO, ZERO), instruction.guard)
        return [*_moves(instruction, [(target.first, ZERO)], "b32"), none]
    if "pred" in instruction.modifiers:
        return [Instruction("setp", ("ne", "u32"), (target, ZERO, ZERO), instruction.guard)]
    return _moves(instruction, [(target, ZERO)], "b32")


def _atomic(instruction: Instruction, zeros: str) -> Sequence[Statement]:
    if instruction.opcode == "red":
        return []
    bits = next((each[1:] for each in reversed(instruction.modifiers) if each[1:].isdigit()), "")
    if bits not in ("32", "64"):
        raise NoCopy(instruction.name)
    return _moves(instruction, [(each, ZERO) for each in _elements(instruction.operands[0])], f"b{bits}")


RULES: dict[str, Rule] = {
    "mma_sync": _mma,
    "mma_sp": _mma,
    "wgmma": _wgmma,
    "ldmatrix": _zero_words,
    "cp_async": _cp_async,
    "tma_load": _tma_load,
    "bulk_copy": _bulk_copy,
    "stmatrix": _nothing,
    "tma_store": _nothing,
    "tma_reduce": _nothing,
    "bulk_reduce": _bulk_reduce,
    "shfl": _own,
    "redux": _own,
    "vote": _nobody,
    "match": _nobody,
    "atomic": _atomic,
}
"""Family → how its instructions lose their effect."""
