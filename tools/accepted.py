"""What the assembler accepts without a word, though a reader should know of it.

Contract: `accepted(source, resources, said)` takes a module that assembled and what the assembler said of
it, and gives both together, none of them an error: "warning" for what will likely go wrong or cost time,
"info" for what merely is so. Each class appears once. A rule speaks only where it is sure, or says how sure
it is; it never changes a verdict. Rules are rows of `RULES`, over the parsed module; where our parser
cannot read what ptxas could, the rules over the module are silent and those over the text and the resources
still speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sandbox.ptx.nodes import (
    Block,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Name,
    Statement,
    Variable,
)
from tasks.errors import CandidateError
from tools import initialised, wgmma_order
from tools.causes import Severity
from tools.evaluation import Diagnostic, Resources
from tools.source import Source

PORTABLE_SHARED = 48 << 10
"""Bytes of static shared memory that every ptxas and every launch takes."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing a rule found; `kind` and severity stand in the rule's row."""

    message: str
    hint: str
    line: int | None = None


Rule = Callable[[Module], Iterable[Note]]


def accepted(
    source: Source, resources: tuple[Resources, ...], said: tuple[Diagnostic, ...] = ()
) -> tuple[Diagnostic, ...]:
    """All diagnostics of an accepted module: `said` (by the assembler) first, then ours in the order of
    `RULES`.
    """
    from sandbox.ptx.parser import parse_module

    found = [*said, *_of_text(source), *_of_resources(resources)]
    try:
        module = parse_module(source.text)
    except CandidateError:
        module = None
    if module is not None:
        found += _of_lint(module, source)
        for kind, severity, rule in RULES:
            for note in rule(module):
                line = source.line(note.line) or None
                found.append(
                    Diagnostic(
                        severity=severity,
                        kind=kind,
                        message=note.message,
                        line=note.line,
                        source=line,
                        hint=note.hint,
                    )
                )
                break
    kinds = {item.kind for item in found}
    explained = {less for more, less in EXPLAINS.items() if more in kinds}
    first: dict[str, Diagnostic] = {}
    for item in found:
        first.setdefault(item.kind, item)
    return tuple(item for item in first.values() if item.kind not in explained)


def _of_text(source: Source) -> Iterator[Diagnostic]:
    if sentence := source.non_ascii():
        line = next(
            (
                n
                for n, text in enumerate(source.lines, 1)
                if not text.isascii() and not text.startswith("//!")
            ),
            None,
        )
        if line is not None:
            sentence = source.non_ascii(line)
            yield Diagnostic(
                severity="warning",
                kind="non_ascii",
                message="the text holds a non-ASCII character",
                line=line,
                hint=sentence,
            )


def _of_resources(resources: tuple[Resources, ...]) -> Iterator[Diagnostic]:
    for used in resources:
        if used.spill_stores or used.spill_loads:
            yield Diagnostic(
                severity="warning",
                kind="spill",
                message=f"{used.entry} spills: {used.spill_stores} bytes stored, "
                f"{used.spill_loads} bytes loaded, with {used.registers} registers",
                hint="Registers did not suffice and values go through memory. Keep fewer "
                "values live, use a smaller tile, or raise the limit (.maxnreg, "
                ".maxntid, .minnctapersm).",
            )
        elif used.stack:
            yield Diagnostic(
                severity="warning",
                kind="local_memory",
                message=f"{used.entry} keeps {used.stack} bytes a thread in local memory",
                hint="A .local array, or one indexed by a value not known when assembling, "
                "lives in slow memory. Unroll so that every index is constant, or use "
                "shared memory.",
            )
        if used.shared > PORTABLE_SHARED:
            yield Diagnostic(
                severity="info",
                kind="large_static_shared",
                message=f"{used.entry} declares {used.shared} bytes of static shared memory",
                hint="More than 48 KiB static is accepted by ptxas 13 only. `.extern .shared` "
                "with dynamic_smem in the plan works with every version.",
            )


def _of_lint(module: Module, source: Source) -> Iterator[Diagnostic]:
    from sandbox.ptx.lint import lint

    for notice in lint(module, source.text):
        if notice.kind in LINT_HINTS:
            severity, hint = LINT_HINTS[notice.kind]
            yield Diagnostic(
                severity=severity,
                kind=notice.kind,
                message=notice.message,
                line=notice.line,
                source=notice.source,
                hint=hint,
            )


LINT_HINTS: Mapping[str, tuple[Severity, str]] = {
    "no_entry": (
        "warning",
        "Only a `.visible .entry` can be launched; a .func cannot. Write the kernel as one.",
    ),
    "no_visible_entry": ("info", "Write `.visible` before `.entry`, so that it is found by its name."),
    "misaligned_offset": (
        "warning",
        "An access must lie on a multiple of its whole size, a vector on that of all its elements. Use a narrower "
        "access or an offset that is a multiple of it.",
    ),
}
"""Kinds of the PTX lint on which the assembler is silent, and what to do; its others concern timing."""


def statements(function: Function) -> Iterator[Statement]:
    """The statements of a body in order, those of inner blocks in their place."""
    waiting: list[Iterator[Statement]] = [iter(function.body.statements)] if function.body is not None else []
    while waiting:
        statement = next(waiting[-1], None)
        if statement is None:
            waiting.pop()
        elif isinstance(statement, Block):
            waiting.append(iter(statement.statements))
        else:
            yield statement


def _bodies(module: Module) -> Iterator[tuple[Function, tuple[Statement, ...]]]:
    for function in module.functions:
        if function.body is not None:
            yield function, tuple(statements(function))


def _instructions(module: Module) -> Iterator[Instruction]:
    for _, body in _bodies(module):
        yield from (statement for statement in body if isinstance(statement, Instruction))


def _no_kernel(module: Module) -> Iterator[Note]:
    if not module.functions:
        yield Note(
            "the module holds no function at all",
            "Only the header is there. Write the `.visible .entry` that the launch plan names.",
        )


def _no_address_size(module: Module) -> Iterator[Note]:
    if module.address_size is None:
        yield Note(
            "there is no .address_size",
            "Write `.address_size 64` after `.target`; without it the assembler assumes a size.",
        )


ENDS = frozenset({"ret", "exit", "trap", "bra", "brx"})


def _no_ret(module: Module) -> Iterator[Note]:
    for function, body in _bodies(module):
        last = body[-1] if body else None
        if not (isinstance(last, Instruction) and last.opcode in ENDS and last.guard is None):
            line = last.span.line if isinstance(last, Instruction | Label | Variable) else function.span.line
            yield Note(
                f"{function.name} does not end with ret",
                "The assembler ends it as if `ret;` stood there. Write it.",
                line,
            )


def _endless(module: Module) -> Iterator[Note]:
    leaves = frozenset({"ret", "exit", "trap", "bra", "brx", "call"})
    for _, body in _bodies(module):
        places = {
            statement.name: index for index, statement in enumerate(body) if isinstance(statement, Label)
        }
        for index, statement in enumerate(body):
            if not (
                isinstance(statement, Instruction) and statement.opcode == "bra" and statement.guard is None
            ):
                continue
            target = statement.operands[0] if statement.operands else None
            start = places.get(target.text, index) if isinstance(target, Name) else index
            inside = body[start:index]
            if start < index and not any(
                isinstance(one, Instruction) and one.opcode in leaves for one in inside
            ):
                yield Note(
                    f"the loop from line {body[start].span.line} to line "
                    f"{statement.span.line} has no way out",
                    "Nothing in it branches away or returns: the kernel hangs. Guard the "
                    "jump with a predicate that becomes false.",
                    statement.span.line,
                )


def _decimal(module: Module) -> Iterator[Note]:
    for instruction in _instructions(module):
        if "f32" in instruction.modifiers and any(
            isinstance(one, Immediate) and one.kind == "f64" for one in instruction.operands
        ):
            yield Note(
                "a decimal literal is used as .f32",
                "It is taken as a double and rounded to .f32, which is right. Exact bits "
                "are written 0f3F800000.",
                instruction.span.line,
            )


def _dynamic_shared(module: Module) -> Iterator[Note]:
    for variable in module.variables:
        if variable.space.startswith("shared") and "extern" in variable.linkage:
            yield Note(
                f"{variable.name} is dynamic shared memory",
                "Its size comes from dynamic_smem of the launch plan: give the bytes the kernel uses there.",
                variable.span.line,
            )


def _extern_function(module: Module) -> Iterator[Note]:
    for function in module.functions:
        if "extern" in function.linkage and function.body is None:
            yield Note(
                f"{function.name} is declared extern",
                f"The driver supplies `{function.name}` at run time, if it is vprintf, "
                "malloc, free or __assertfail; nothing else is linked.",
                function.span.line,
            )


def _setmaxnreg(module: Module) -> Iterator[Note]:
    for instruction in _instructions(module):
        if instruction.opcode == "setmaxnreg":
            yield Note(
                "setmaxnreg is kept",
                "The launch bounds let ptxas know the register count at entry, so it "
                "takes effect. Leave them as they are.",
                instruction.span.line,
            )


def _unset(module: Module) -> Iterator[Note]:
    for function, body in _bodies(module):
        for name, line in initialised.never_written(function, body):
            yield Note(
                f"register {name} is read in {function.name}, but nothing writes it",
                f"Its value is whatever was left there. Write `{name}` first, or use the "
                "register that was meant.",
                line,
            )


def _wgmma(kind: str) -> Rule:
    def rule(module: Module) -> Iterator[Note]:
        for _, body in _bodies(module):
            for found in wgmma_order.trouble(body):
                if found.kind == kind:
                    yield Note(found.message, found.hint, found.line)

    return rule


RULES: tuple[tuple[str, Severity, Rule], ...] = (
    ("no_kernel", "warning", _no_kernel),
    ("infinite_loop", "warning", _endless),
    ("wgmma_call_in_flight", "warning", _wgmma("wgmma_call_in_flight")),
    ("wgmma_accumulator_touched", "warning", _wgmma("wgmma_accumulator_touched")),
    ("wgmma_fence_injected", "info", _wgmma("wgmma_fence_injected")),
    ("missing_address_size", "info", _no_address_size),
    ("missing_ret", "info", _no_ret),
    ("driver_function", "info", _extern_function),
    ("dynamic_shared", "info", _dynamic_shared),
    ("setmaxnreg_kept", "info", _setmaxnreg),
    ("decimal_literal", "info", _decimal),
    ("uninitialised_register", "warning", _unset),
)
"""Class, severity, rule; the surest and gravest first."""

REMARKS: frozenset[str] = frozenset(
    {
        "no_visible_entry",
        "missing_address_size",
        "missing_ret",
        "driver_function",
        "dynamic_shared",
        "setmaxnreg_kept",
        "decimal_literal",
    }
)
"""Classes that say what merely is so: diagnostics of severity info, but nothing to be warned of."""

EXPLAINS: Mapping[str, str] = {
    "no_kernel": "no_entry",
    "wgmma_call_in_flight": "wgmma_fence_injected",
    "wgmma_wait_injected": "wgmma_accumulator_touched",
    "dropped_setmaxnreg": "setmaxnreg_kept",
}
"""Class → the class that says less of the same thing, whoever said it."""
