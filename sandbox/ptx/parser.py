"""PTX text to the tree of `sandbox.ptx.nodes`.

Contract: `parse_module` raises nothing but PtxSyntaxError; unknown opcodes and modifiers are kept. The parser checks form alone: that
names exist and types agree is ptxas' business and `sandbox.ptx.symbols`'.
Bounds: 1 MiB of text, 120,000 instructions, 64 levels of nesting, and those of `sandbox.ptx.declarations`.

Source: PTX ISA, "Directives", "Syntax".
"""

from __future__ import annotations

from typing import Final

from sandbox.ptx.declarations import LINKAGE, Declarations
from sandbox.ptx.lexer import Kind, tokenize
from sandbox.ptx.nodes import (
    Block,
    Directive,
    Function,
    Guard,
    Instruction,
    Label,
    Module,
    Statement,
    Variable,
)

MAX_INSTRUCTIONS: Final = 120_000
LISTS: Final = frozenset({"branchtargets", "calltargets"})
TUNING: Final = frozenset(
    {
        "maxnreg", "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "noreturn", "pragma",
        "reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters",
        "abi_preserve", "abi_preserve_control", "unified", "language",
    }
)  # fmt: skip
"""Directives that may stand between the head of a function and its body."""


def parse_module(text: str, first_line: int = 1) -> Module:
    """Parse a whole module; `first_line` is the number of its first line in the candidate file. Raises PtxSyntaxError."""
    return _Parser(tokenize(text, first_line)).module()


class _Parser(Declarations):
    def module(self) -> Module:
        self.begin_declarations()
        self.instructions = 0
        version = self._version()
        target: tuple[str, ...] = ()
        address_size: int | None = None
        items: list[Variable | Function | Directive] = []
        while self.kinds[self.at] is not Kind.END:
            text = self.texts[self.at]
            if text == ".target":
                if target:
                    self.refuse("expected one .target directive; found another")
                target = self._target()
            elif not target and text != ".address_size" and self.kinds[self.at] is not Kind.DWARF:
                self.fail(".target (such as .target sm_90a) after .version")
            elif text == ".address_size":
                self.at += 1
                place = self.at
                address_size = self.integer("32 or 64 after .address_size")
                if address_size not in (32, 64):
                    self.fail("32 or 64 after .address_size", place)
            else:
                self._item(items)
        if not target:
            self.fail(".target (such as .target sm_90a) after .version")
        return Module(version, target, address_size, tuple(items))

    def _version(self) -> tuple[int, int]:
        if self.texts[self.at] != ".version":
            self.fail(".version major.minor (such as .version 8.0) before anything else")
        self.at += 1
        major, dot, minor = self.texts[self.at].partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal() and len(major) < 5 and len(minor) < 5):
            self.fail("a version such as 8.0 after .version")
        self.at += 1
        return int(major), int(minor)

    def _target(self) -> tuple[str, ...]:
        self.at += 1
        result = [self.word("a target such as sm_90a after .target")]
        while self.accept(","):
            result.append(self.word("a target option after ','"))
        return tuple(result)

    # -- module level

    def _item(self, items: list[Variable | Function | Directive]) -> None:
        start = self.at
        linkage: list[str] = []
        while self.kinds[self.at] is Kind.DIRECTIVE and self.texts[self.at][1:] in LINKAGE:
            linkage.append(self.texts[self.at][1:])
            self.at += 1
        text = self.texts[self.at]
        if text in (".entry", ".func"):
            items.append(self._function(tuple(linkage), start))
        elif self.at_space():
            items.extend(self.declaration(tuple(linkage)))
            self.take(";", "after the declaration")
        elif linkage:
            self.fail(".entry, .func or a variable after the linkage directive")
        else:
            directive = self._directive()
            if directive is None:
                self.fail("a declaration, .entry, .func or a module directive")
            items.append(directive)

    def _function(self, linkage: tuple[str, ...], start: int) -> Function:
        entry = self.texts[self.at] == ".entry"
        self.at += 1
        tuning: list[Directive] = []
        while self.kinds[self.at] is Kind.DIRECTIVE:
            tuning.append(self._tuning())
        results = self._formals() if self.texts[self.at] == "(" and not entry else ()
        name = self.word("the name of the function")
        params = self._formals() if self.texts[self.at] == "(" else ()
        while self.kinds[self.at] is Kind.DIRECTIVE:
            tuning.append(self._tuning())
        body: Block | None = None
        if self.texts[self.at] == "{":
            body = self._block()
        elif not self.accept(";"):
            self.fail("'{', ';' or a directive such as .maxntid after the head of the function")
        return Function(name, entry, params, results, linkage, tuple(tuning), body, self.span(start))

    def _formals(self) -> tuple[Variable, ...]:
        self.at += 1
        result: list[Variable] = []
        if self.accept(")"):
            return ()
        while True:
            if not self.at_space():
                self.fail(".param or .reg before a parameter")
            result.extend(self.declaration(formal=True))
            if not self.accept(","):
                break
        self.take(")", "or ',' in the parameter list")
        return tuple(result)

    def _tuning(self) -> Directive:
        start = self.at
        name = self.texts[self.at][1:]
        if name == "attribute":
            text = self.attribute()
            return Directive("attribute", (text.partition("(")[2][:-1].strip(),), self.span(start))
        if name not in TUNING:
            self.fail("'{', ';' or one of ." + ", .".join(sorted(TUNING)))
        self.at += 1
        arguments: list[str] = []
        if self.kinds[self.at] in (Kind.INT, Kind.STRING) or self.texts[self.at] in ("(", "WARP_SZ"):
            arguments.append(self._argument())
            while self.accept(","):
                arguments.append(self._argument())
            if name == "pragma":
                self.take(";", "after .pragma")
        return Directive(name, tuple(arguments), self.span(start))

    def _argument(self) -> str:
        if self.kinds[self.at] is Kind.STRING:
            self.at += 1
            return self.texts[self.at - 1]
        return str(self.integer("a number or a string"))

    # -- statements

    def _block(self) -> Block:
        start = self.at
        self.enter()
        self.at += 1
        statements: list[Statement] = []
        while self.texts[self.at] != "}":
            self._statement(statements)
        self.at += 1
        self.depth -= 1
        return Block(tuple(statements), self.span(start))

    def _statement(self, out: list[Statement]) -> None:
        at = self.at
        kind, text = self.kinds[at], self.texts[at]
        if kind is Kind.WORD:
            if self.texts[at + 1] == ":":
                self.at = at + 1
                if "." in text:
                    self.fail("a label without dots before ':'", at)
                out.append(Label(text, self.span(at)))
                self.at = at + 2
            else:
                out.append(self._instruction(at, None))
        elif text == "@":
            self.at = at + 1
            negated = self.accept("!")
            guard = Guard(self.name(), negated)
            if self.kinds[self.at] is not Kind.WORD:
                self.fail("an instruction after the guard")
            out.append(self._instruction(at, guard))
        elif text == "{":
            out.append(self._block())
        elif kind is Kind.DIRECTIVE and (self.at_space() or text[1:] in LINKAGE):
            linkage: list[str] = []
            while self.texts[self.at][1:] in LINKAGE:
                linkage.append(self.texts[self.at][1:])
                self.at += 1
            if not self.at_space():
                self.fail("a variable after the linkage directive")
            out.extend(self.declaration(tuple(linkage)))
            self.take(";", "after the declaration")
        else:
            directive = self._directive() if kind in (Kind.DIRECTIVE, Kind.DWARF) else None
            if directive is None:
                self.fail("an instruction, a declaration, a label or '}'")
            out.append(directive)

    def _instruction(self, start: int, guard: Guard | None) -> Instruction:
        opcode, *modifiers = self.texts[self.at].split(".")
        if not opcode[0].isalpha():
            self.fail("an instruction, a declaration, a label or '}'")
        self.instructions += 1
        if self.instructions > MAX_INSTRUCTIONS:
            self.refuse(f"expected at most {MAX_INSTRUCTIONS} instructions in a module; found more")
        self.at += 1
        while self.kinds[self.at] is Kind.DIRECTIVE:
            modifiers.append(self.texts[self.at][1:])
            self.at += 1
        self.opcode = opcode
        operands = self.operands()
        if self.texts[self.at] != ";":
            self.fail(f"';' or ',' after {opcode} and its operands")
        self.at += 1
        return Instruction(opcode, tuple(modifiers), operands, guard, self.span(start))

    # -- directives kept as text

    def _directive(self) -> Directive | None:
        """A directive that is neither a declaration nor a function, or None when there is none of that name."""
        start = self.at
        if self.kinds[start] is Kind.DWARF:
            self.at += 1
            return Directive("@@", (self.texts[start][2:].strip(),), self.span(start))
        name = self.texts[start][1:]
        reader = {
            "loc": self._loc, "file": self._file, "section": self._section, "pragma": self._listed,
            "branchtargets": self._listed, "calltargets": self._listed, "alias": self._listed,
            "callprototype": self._prototype,
        }.get(name) if self.kinds[start] is Kind.DIRECTIVE else None  # fmt: skip
        if reader is None:
            return None
        self.at += 1
        arguments = reader()
        return Directive(name, arguments, self.span(start))

    def _listed(self) -> tuple[str, ...]:
        result: list[str] = []
        while True:
            if self.kinds[self.at] not in (Kind.WORD, Kind.STRING):
                self.fail("a name or a string")
            result.append(self.texts[self.at])
            self.at += 1
            if not self.accept(","):
                break
        self.take(";", "or ',' after the list")
        return tuple(result)

    def _prototype(self) -> tuple[str, ...]:
        start = self.at
        while self.texts[self.at] != ";":
            if self.kinds[self.at] is Kind.END or self.texts[self.at] in ("{", "}"):
                self.fail("';' after .callprototype")
            self.at += 1
        text = self.source(start)
        self.at += 1
        return (text,)

    def _loc(self) -> tuple[str, ...]:
        result = [str(self._plain("file index")), str(self._plain("line")), str(self._plain("column"))]
        while self.texts[self.at] == "," and self.texts[self.at + 1] in ("function_name", "inlined_at"):
            self.at += 1
            begin = self.at
            if self.texts[begin] == "function_name":
                self.at += 1
                self.word("a label after function_name")
                if self.accept("+"):
                    self._plain("an offset")
            else:
                self.at += 1
                for what in ("file index", "line", "column"):
                    self._plain(what)
            result.append(" ".join(self.texts[begin : self.at]))
        return tuple(result)

    def _plain(self, what: str) -> str:
        if self.kinds[self.at] is not Kind.INT:
            self.fail(f"a number ({what})")
        self.at += 1
        return self.texts[self.at - 1]

    def _file(self) -> tuple[str, ...]:
        result = [self._plain("file index")]
        if self.kinds[self.at] is not Kind.STRING:
            self.fail("a file name in quotes")
        result.append(self.texts[self.at])
        self.at += 1
        while self.texts[self.at] == ",":
            self.at += 1
            result.append(self._plain("a time or size"))
        return tuple(result)

    def _section(self) -> tuple[str, ...]:
        if self.kinds[self.at] not in (Kind.DIRECTIVE, Kind.WORD):
            self.fail("the name of a section")
        result = [self.texts[self.at]]
        self.at += 1
        self.take("{", "after the name of the section")
        begin = self.at
        while self.texts[self.at] != "}":
            if self.kinds[self.at] is Kind.END or self.texts[self.at] == "{":
                self.fail("'}' to close the section")
            self.at += 1
        result.extend(self.texts[begin : self.at])
        self.at += 1
        return tuple(result)
