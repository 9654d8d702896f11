"""What the names of a module stand for, function by function.

    resolve(module) -> ModuleSymbols
        .variables   name -> Placed        module-scope variables; offsets are within their own space
        .functions   name -> FunctionSymbols
    FunctionSymbols
        .params, .results   tuple[Placed]  with byte offsets of the param space
        .registers   tuple[Register]       every register, shadowed ones too; `.id` is its index, unique in the function
        .variables   tuple[Placed]         shared, local, param … variables of the body
        .labels      name -> Label         labels of the body (PTX lets nested scopes have their own; the first wins here)
        .root        Scope                 the scope of the parameters; `.children` follow the order of nested blocks
        .shared      tuple[Placed]         the whole shared memory of a launch of this function (extern arrays last)
    Scope.find(name) -> Register | Placed | Label | Function | Directive | None   looks outwards

`%r<8>` makes `%r0` … `%r7` on demand: a range costs nothing until it is used. A name declared twice in one scope is a PtxSyntaxError.

Source: PTX ISA, "Identifiers", "Parameterized Variable Names", "Special Registers".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sandbox.ptx.layout import Placed, base_space, declarations, param_layout, place, shared_layout
from sandbox.ptx.lexer import PtxSyntaxError
from sandbox.ptx.nodes import Block, Directive, Function, Label, Module, Span, Variable

SPECIAL_REGISTERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("%tid", "%ntid", "%ctaid", "%nctaid"), "v4.u32"),
    **dict.fromkeys(("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"), "v4.u32"),
    **dict.fromkeys(("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid"), "u32"),
    **dict.fromkeys(("%cluster_ctarank", "%cluster_nctarank"), "u32"),
    "%is_explicit_cluster": "pred",
    "%gridid": "u64",
    **dict.fromkeys(("%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"), "u32"),
    **dict.fromkeys(("%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"), "u32"),
    **dict.fromkeys(("%clock64", "%globaltimer"), "u64"),
    **{f"%pm{number}": "u32" for number in range(8)},
    **{f"%pm{number}_64": "u64" for number in range(8)},
    **{f"%envreg{number}": "b32" for number in range(32)},
    **dict.fromkeys(
        ("%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap"), "b32"
    ),
    **{f"%reserved_smem_offset_{number}": "b32" for number in range(2)},
    **dict.fromkeys(("%total_smem_size", "%aggr_smem_size", "%dynamic_smem_size"), "u32"),
    "%current_graph_exec": "u64",
}
"""Special register → type; `v4.u32` ones are read by component."""


LISTS: Final = frozenset({"branchtargets", "calltargets", "callprototype"})
"""Directives that the label before them names."""


@dataclass(frozen=True, slots=True)
class Register:
    """One register of a function."""

    id: int
    """Unique within the function."""
    name: str
    type: str
    vector: int = 1


Meaning: TypeAlias = Register | Placed | Label | Function | Directive


@dataclass(slots=True)
class Scope:
    """Names of one block and, through `parent`, of those around it."""

    parent: Scope | None
    registers: list[Register]
    """Of the whole function, shared by all its scopes."""
    names: dict[str, Meaning] = field(default_factory=dict[str, Meaning])
    ranges: dict[str, tuple[int, str, int]] = field(default_factory=dict[str, tuple[int, str, int]])
    """Prefix → (count, type, vector) of `%r<n>`."""
    children: list[Scope] = field(default_factory=list["Scope"])

    def find(self, name: str) -> Meaning | None:
        """What `name` means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name) or scope._numbered(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def _numbered(self, name: str) -> Register | None:
        if not self.ranges:
            return None
        prefix = name.rstrip("0123456789")
        for cut in range(len(prefix), len(name)):
            known = self.ranges.get(name[:cut])
            digits = name[cut:]
            if known and len(digits) < 7 and int(digits) < known[0] and (digits == "0" or digits[0] != "0"):
                return self.add_register(name, known[1], known[2])
        return None

    def add_register(self, name: str, kind: str, vector: int) -> Register:
        """A new register of this scope."""
        made = Register(len(self.registers), name, kind, vector)
        self.registers.append(made)
        self.names[name] = made
        return made

    def declare(self, name: str, meaning: Meaning, span: Span) -> None:
        """Take a name into this scope. Raises PtxSyntaxError when it is there already."""
        if name in self.names:
            raise PtxSyntaxError(
                f"expected a new name; found {name}, which this scope declares already",
                span.line,
                span.column,
            )
        self.names[name] = meaning


@dataclass(frozen=True, slots=True)
class FunctionSymbols:
    """Names of one entry or function; see the module's docstring."""

    function: Function
    params: tuple[Placed, ...]
    results: tuple[Placed, ...]
    root: Scope
    variables: tuple[Placed, ...]
    labels: Mapping[str, Label]
    shared: tuple[Placed, ...]

    @property
    def registers(self) -> tuple[Register, ...]:
        """Registers known so far: single ones, and those of ranges that were looked up."""
        return tuple(self.root.registers)


@dataclass(frozen=True, slots=True)
class ModuleSymbols:
    """Names of a module."""

    variables: Mapping[str, Placed]
    functions: Mapping[str, FunctionSymbols]


def resolve(module: Module) -> ModuleSymbols:
    """Resolve every name a module declares. Raises PtxSyntaxError for a duplicate."""
    outer = Scope(None, [])
    defined = {each.name for each in module.variables if "extern" not in each.linkage}
    kept = [each for each in module.variables if "extern" not in each.linkage or each.name not in defined]
    variables: dict[str, Placed] = {}
    for space in dict.fromkeys(base_space(each) for each in kept):
        for placed in place(each for each in kept if base_space(each) == space):
            variables[placed.name] = placed
    for item in module.items:
        if isinstance(item, Variable):
            if "extern" in item.linkage and item.name in outer.names.keys() | defined:
                continue
            outer.declare(item.name, variables[item.name], item.span)
        elif isinstance(item, Function):
            known = outer.names.get(item.name)
            if isinstance(known, Function) and None in (known.body, item.body):
                if item.body is not None:
                    outer.names[item.name] = item
                continue
            outer.declare(item.name, item, item.span)
    functions = {
        each.name: _function(module, each, outer)
        for each in outer.names.values()
        if isinstance(each, Function)
    }
    return ModuleSymbols(variables, functions)


def _function(module: Module, function: Function, outer: Scope) -> FunctionSymbols:
    root = Scope(outer, [])
    params, results = param_layout(function), place(function.results)
    for placed in (*params, *results):
        if base_space(placed.variable) == "reg":
            root.add_register(placed.name, placed.variable.type, placed.variable.vector)
        elif placed.name != "_":
            root.declare(placed.name, placed, placed.variable.span)
    inner = list(declarations(function.body))
    shared = shared_layout(module, function)
    at: dict[int, Placed] = {id(each.variable): each for each in shared}
    for space in dict.fromkeys(base_space(each) for each in inner):
        if space not in ("reg", "shared"):
            at.update({id(each.variable): each for each in place(v for v in inner if base_space(v) == space)})
    labels: dict[str, Label] = {}
    if function.body is not None:
        _block(function.body, root, at, labels)
    body_variables = tuple(at[id(each)] for each in inner if id(each) in at)
    return FunctionSymbols(function, params, results, root, body_variables, labels, shared)


def _block(block: Block, parent: Scope, at: Mapping[int, Placed], labels: dict[str, Label]) -> None:
    scope = Scope(parent, parent.registers)
    parent.children.append(scope)
    pending: Label | None = None
    for statement in block.statements:
        if isinstance(statement, Variable):
            _declare(statement, scope, at)
        elif isinstance(statement, Label):
            scope.declare(statement.name, statement, statement.span)
            labels.setdefault(statement.name, statement)
        elif isinstance(statement, Block):
            _block(statement, scope, at, labels)
        elif isinstance(statement, Directive) and pending is not None and statement.name in LISTS:
            scope.names[pending.name] = statement
            labels.pop(pending.name, None)
        pending = statement if isinstance(statement, Label) else None


def _declare(variable: Variable, scope: Scope, at: Mapping[int, Placed]) -> None:
    name, span = variable.name, variable.span
    if variable.range is not None:
        if name in scope.ranges:
            raise PtxSyntaxError(
                f"expected a new name; found {name}<…>, which this scope declares already",
                span.line,
                span.column,
            )
        scope.ranges[name] = (variable.range, variable.type, variable.vector)
    elif base_space(variable) == "reg":
        scope.declare(name, Register(len(scope.registers), name, variable.type, variable.vector), span)
        found = scope.names[name]
        assert isinstance(found, Register)
        scope.registers.append(found)
    else:
        scope.declare(name, at[id(variable)], span)
