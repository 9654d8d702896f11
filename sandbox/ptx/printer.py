"""The tree back to canonical text: one statement a line, four blanks a scope; `parse_module(print_module(m)) == m`.

Constants print as their values: an integer in decimal, f32 and f64 as raw bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox.ptx.nodes import (
    Address,
    Block,
    Directive,
    Function,
    Group,
    Immediate,
    Initializer,
    Instruction,
    Label,
    Module,
    Name,
    Negative,
    Not,
    Offset,
    Operand,
    Pair,
    Reference,
    Statement,
    Variable,
    Vector,
)


def print_module(module: Module) -> str:
    """Canonical PTX text of a module, ending in a line feed."""
    lines = [f".version {module.version[0]}.{module.version[1]}", f".target {', '.join(module.target)}"]
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    for item in module.items:
        lines.append("")
        if isinstance(item, Variable):
            lines.append(print_variable(item) + ";")
        elif isinstance(item, Directive):
            lines.append(_directive(item))
        else:
            lines.extend(_function(item))
    return "\n".join(lines) + "\n"


def print_instruction(instruction: Instruction) -> str:
    """One instruction with its guard and semicolon."""
    guard = instruction.guard
    head = "" if guard is None else f"@{'!' if guard.negated else ''}{print_operand(guard.register)} "
    operands = ", ".join(print_operand(each) for each in instruction.operands)
    return f"{head}{instruction.name}{' ' if operands else ''}{operands};"


def print_operand(operand: Operand) -> str:
    """One operand."""
    match operand:
        case Name(text, component):
            return f"{text}.{component}" if component else text
        case Immediate():
            return _immediate(operand)
        case Offset(base, offset):
            return print_operand(base) + _offset(offset)
        case Vector(elements):
            return "{" + ", ".join(map(print_operand, elements)) + "}"
        case Group(elements):
            return "(" + ", ".join(map(print_operand, elements)) + ")"
        case Address(base, offset, rest):
            # An absolute address has no offset of its own in text: the parser folds it.
            inner = print_operand(base) + (_offset(offset) if offset else "")
            return "[" + ", ".join((inner, *map(print_operand, rest))) + "]"
        case Not(inner):
            return "!" + print_operand(inner)
        case Negative(inner):
            return "-" + print_operand(inner)
        case Pair(first, second):
            return f"{print_operand(first)}|{print_operand(second)}"


def print_variable(variable: Variable) -> str:
    """A declaration without its semicolon."""
    parts = [f".{each}" for each in variable.linkage]
    parts.append(f".{variable.space}")
    parts.extend(f".{each}" for each in variable.attributes if each.startswith("attribute"))
    if variable.align is not None:
        parts.append(f".align {variable.align}")
    if variable.vector > 1:
        parts.append(f".v{variable.vector}")
    parts.append(f".{variable.type}")
    parts.extend(f".{each}" for each in variable.attributes if not each.startswith("attribute"))
    name = variable.name + (f"<{variable.range}>" if variable.range is not None else "")
    name += "".join(f"[{'' if each is None else each}]" for each in variable.dims)
    parts.append(name)
    text = " ".join(parts)
    return text if variable.init is None else f"{text} = {_initializer(variable.init)}"


def _immediate(value: Immediate) -> str:
    if value.kind == "f32":
        return f"0f{value.value:08X}"
    if value.kind == "f64":
        return f"0d{value.value:016X}"
    return str(value.value)


def _offset(offset: int) -> str:
    # ptxas takes `+-4` everywhere, `-4` not after a register.
    return f"+{offset}"


def _initializer(init: Initializer) -> str:
    if isinstance(init, tuple):
        return "{" + ", ".join(map(_initializer, init)) + "}"
    if isinstance(init, Immediate):
        return _immediate(init)
    return _reference(init)


def _reference(reference: Reference) -> str:
    text = f"generic({reference.symbol})" if reference.generic else reference.symbol
    if reference.offset:
        text += _offset(reference.offset)
    return text if reference.mask is None else f"{reference.mask}({text})"


def _function(function: Function) -> Iterator[str]:
    head = [f".{each}" for each in function.linkage]
    head.append(".entry" if function.entry else ".func")
    if function.results:
        head.append(f"({_formals(function.results)})")
    head.append(function.name)
    yield " ".join(head) + f"({_formals(function.params)})"
    for each in function.tuning:
        yield _tuning(each)
    if function.body is None:
        yield ";"
    else:
        yield from _block(function.body, "")


def _formals(formals: Iterable[Variable]) -> str:
    return ", ".join(map(print_variable, formals))


def _tuning(directive: Directive) -> str:
    if directive.name == "attribute":
        return f".attribute({', '.join(directive.arguments)})"
    text = f".{directive.name} {', '.join(directive.arguments)}".rstrip()
    return text + ";" if directive.name == "pragma" and directive.arguments else text


def _directive(directive: Directive) -> str:
    arguments = directive.arguments
    if directive.name == "@@":
        return f"@@{' '.join(arguments)}"
    if directive.name == "section":
        return f".section {arguments[0]} {{ {' '.join(arguments[1:])} }}"
    if directive.name == "loc":
        return f".loc {' '.join(arguments[:3])}" + "".join(f", {each}" for each in arguments[3:])
    if directive.name == "file":
        return f".file {' '.join(arguments[:2])}" + "".join(f", {each}" for each in arguments[2:])
    return f".{directive.name} {', '.join(arguments)};"


def _block(block: Block, indent: str) -> Iterator[str]:
    yield indent + "{"
    for statement in block.statements:
        yield from _statement(statement, indent)
    yield indent + "}"


def _statement(statement: Statement, indent: str) -> Iterator[str]:
    inner = indent + "    "
    match statement:
        case Instruction():
            yield inner + print_instruction(statement)
        case Label(name):
            yield f"{indent}{name}:"
        case Variable():
            yield inner + print_variable(statement) + ";"
        case Directive():
            yield inner + _directive(statement)
        case Block():
            yield from _block(statement, inner)
