"""inspect: which instruction families stand in what is launched, and which of them are left in the machine
code.

Contract: counts come from the parsed module (comments and strings never count) over the entries that the
plan launches and every function they can reach, each function once; then, where a family could be seen
there, from the disassembled cubin. A family is `in_sass` when the machine code of those functions has one
of its opcodes; then executions, not text, prove it (`tools.prove`). The note of a required family that is
missing says exactly what is missing and where. Nothing is disassembled unless a required family, or one
younger than shuffles and atomics, with machine opcodes is in the PTX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sandbox.ptx.families import FAMILIES, Family, families_of_sass, family_of
from sandbox.ptx.layout import instructions, reachable
from sandbox.ptx.nodes import Function, Instruction, Module
from sandbox.ptx.plan import Plan
from tasks.errors import InputError
from tools.disassemble import Sass, disassemble
from tools.evaluation import Depth, Target, Warning_

LINES = 6
"""Lines named in a note, at most."""


@dataclass(frozen=True, slots=True)
class InspectResult:
    """What inspecting gave."""

    targets: tuple[Target, ...]
    """Required families first, in the order asked for; then those merely used, by name."""
    warnings: tuple[Warning_, ...]


def inspect(
    module: Module, plan: Plan, cubin: bytes | None, arch: str, required: Sequence[str]
) -> InspectResult:
    """The evidence for each family that is required or used.

    `InputError` for a required family that does not exist. `cubin` None: nothing is known of the machine
    code.
    """
    wanted = tuple(dict.fromkeys(required))
    for name in wanted:
        if name not in FAMILIES:
            raise InputError(
                f"There is no instruction family {name!r}; there are {', '.join(sorted(FAMILIES))}."
            )
    entries = tuple(dict.fromkeys(launch.entry for launch in plan.launches))
    reached = _launched(module, entries)
    found = _census(function for function in module.functions if function.name in reached)
    elsewhere = _census(function for function in module.functions if function.name not in reached)
    sass: Mapping[str, int] | None = None
    opcodes: frozenset[str] = frozenset()
    if cubin is not None and any(_asks(name, wanted) for name in found):
        code = disassemble(cubin)
        sass = _count_sass(code, reached)
        opcodes = frozenset(one.opcode for name, body in code.items() if name in reached for one in body)
    order = (*wanted, *sorted(set(found) - set(wanted)))
    view = _View(module, entries, found, elsewhere, sass, opcodes, arch)
    targets = tuple(_target(view, name, required=name in wanted) for name in order)
    return InspectResult(targets, tuple(_warnings(view, targets)))


@dataclass(frozen=True, slots=True)
class _View:
    module: Module
    entries: tuple[str, ...]
    found: Mapping[str, tuple[Instruction, ...]]
    elsewhere: Mapping[str, tuple[Instruction, ...]]
    sass: Mapping[str, int] | None
    opcodes: frozenset[str]
    arch: str


HELPERS_UNTIL = 75
"""Families that every architecture below this one has (shuffles, votes, atomics) raise no question of their
own.
"""


def _asks(name: str, wanted: Sequence[str]) -> bool:
    """Whether a family that is in the PTX makes it worth half a second to look at the machine code."""
    family = FAMILIES[name]
    return bool(family.sass) and (name in wanted or family.since >= HELPERS_UNTIL)


def _launched(module: Module, entries: Sequence[str]) -> frozenset[str]:
    """Names of the entries and of every function they can reach."""
    return frozenset(
        function.name
        for entry in module.functions
        if entry.entry and entry.name in entries
        for function in reachable(module, entry)
    )


def _census(functions: Iterator[Function]) -> dict[str, tuple[Instruction, ...]]:
    found: dict[str, list[Instruction]] = {}
    for function in functions:
        for instruction in instructions(function.body):
            family = family_of(instruction)
            if family is not None:
                found.setdefault(family, []).append(instruction)
    return {family: tuple(sites) for family, sites in found.items()}


def _count_sass(code: Sass, reached: frozenset[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, body in code.items():
        if name in reached:
            for one in body:
                for family in families_of_sass(one.opcode):
                    counts[family] = counts.get(family, 0) + 1
    return counts


def _target(view: _View, name: str, *, required: bool) -> Target:
    family = FAMILIES[name]
    sites = view.found.get(name, ())
    in_sass = view.sass.get(name, 0) if view.sass is not None and family.sass else None
    if not sites:
        depth, in_sass = Depth.ABSENT, None
    elif family.sass and not in_sass:
        depth = Depth.IN_PTX
    elif family.sass or view.sass is not None:
        depth = Depth.IN_SASS
    else:
        depth = Depth.IN_PTX
    return Target(
        family=name,
        required=required,
        depth=depth,
        in_ptx=len(sites),
        in_sass=in_sass,
        note=_note(view, family, sites, depth, in_sass),
    )


def _note(
    view: _View, family: Family, sites: Sequence[Instruction], depth: Depth, in_sass: int | None
) -> str:
    if depth is Depth.ABSENT:
        return _absent(view, family)
    names = ", ".join(f"{count} x {name}" for name, count in _tally(sites))
    where = f"{names} in the PTX ({_lines(sites)})"
    if depth is Depth.IN_PTX and view.sass is None:
        return f"{where}; the machine code was not looked at"
    if depth is Depth.IN_PTX:
        return f"{where}, 0 in the machine code: {_why_dropped(view, family, sites)}"
    return _not_native(view, family, sites)


def _absent(view: _View, family: Family) -> str:
    entries = ", ".join(view.entries) or "no entry"
    said = (
        f"{family.title} ({family.name}) is not used: none in "
        f"{'entry' if len(view.entries) == 1 else 'entries'} {entries}"
    )
    other = view.elsewhere.get(family.name, ())
    if other:
        said += f"; it stands only in functions that are not launched ({_lines(other)})"
    return said


def _why_dropped(view: _View, family: Family, sites: Sequence[Instruction]) -> str:
    if family.name == "setmaxnreg":
        bounds = {
            directive.name.lstrip(".")
            for function in view.module.functions
            if function.name in view.entries
            for directive in function.tuning
        }
        missing = [] if "maxntid" in bounds or "reqntid" in bounds else [".maxntid"]
        if not bounds & {"minnctapersm", "maxnreg"}:
            missing.append(".minnctapersm or .maxnreg")
        if missing:
            return (
                f"ptxas dropped it because the entry has no {' and no '.join(missing)}; "
                "add it between the parameters and the body"
            )
    kinds = {word for site in sites for word in site.modifiers}
    if family.name in ("mma_sync", "mma_sp") and kinds & {"s4", "u4", "b1", "e4m3", "e5m2", "sp"}:
        return (
            f"{view.arch} has no such matrix instruction, so ptxas replaced it by "
            "ordinary ones. Use types that it has"
        )
    return "ptxas removed it because nothing depends on what it does. Use its result in the output"


def _not_native(view: _View, family: Family, sites: Sequence[Instruction]) -> str:
    """What to say of instructions that are there, though not natively."""
    eight = {"e4m3", "e5m2"} & {word for site in sites for word in site.modifiers}
    if family.name == "mma_sync" and eight and not any(one.startswith("QMMA") for one in view.opcodes):
        return (
            f"{view.arch} has no fp8 mma.sync: ptxas converts the operands (F2FP) and "
            "multiplies as f16 (HMMA)"
        )
    if not family.sass:
        return "has no machine opcode of its own; counted when it runs"
    return ""


def _warnings(view: _View, targets: Sequence[Target]) -> Iterator[Warning_]:
    for target in targets:
        sites = view.found.get(target.family, ())
        if not sites:
            continue
        line = sites[0].span.line
        if target.in_sass == 0 and target.family != "setmaxnreg":  # that one is told by assemble
            yield Warning_(kind="removed_by_assembler", message=f"{target.family}: {target.note}", line=line)
        elif target.depth is Depth.IN_SASS and target.in_sass is not None and target.note:
            yield Warning_(kind="not_native", message=target.note, line=line)


def _tally(sites: Sequence[Instruction]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for site in sites:
        name = ".".join((site.opcode, *site.modifiers[:1]))
        counts[name] = counts.get(name, 0) + 1
    return list(counts.items())[:4]


def _lines(sites: Sequence[Instruction]) -> str:
    lines = list(dict.fromkeys(site.span.line for site in sites))
    shown = ", ".join(str(line) for line in lines[:LINES])
    return f"line{'s' if len(lines) > 1 else ''} {shown}{' …' if len(lines) > LINES else ''}"
