"""Declarations of variables and their initialisers, with bounds on what a module may ask for.

Source: PTX ISA, "State Spaces, Types, and Variables", "Variables", "Kernel Function Parameters".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sandbox.ptx.lexer import Kind
from sandbox.ptx.nodes import Immediate, Initializer, Reference, Variable
from sandbox.ptx.operands import Operands

SPACES: Final = frozenset({"reg", "sreg", "param", "const", "global", "local", "shared", "tex"})
LINKAGE: Final = frozenset({"extern", "visible", "weak", "common"})
TYPE_BYTES: Final[Mapping[str, int]] = {
    "pred": 1,
    **{f"{letter}{bits}": bits // 8 for letter in "bsu" for bits in (8, 16, 32, 64)},
    **{"b128": 16, "f16": 2, "f16x2": 4, "f32": 4, "f64": 8, "bf16": 2, "bf16x2": 4, "tf32": 4},
    **{"e4m3": 1, "e5m2": 1, "e4m3x2": 2, "e5m2x2": 2, "s16x2": 4, "u16x2": 4, "s8x4": 4, "u8x4": 4},
    **{"texref": 8, "samplerref": 8, "surfref": 8},
}
"""Bytes of one element in memory, and the list of the types a declaration may have."""
VECTORS: Final[Mapping[str, int]] = {"v2": 2, "v4": 4, "v8": 8}
MAX_REGISTER_RANGE: Final = 100_000
"""Registers declared by `%r<n>` in one module, all together."""
MAX_SPACE_BYTES: Final[Mapping[str, int]] = {
    "global": 64 << 20,
    "const": 11 * (64 << 10),
    "shared": 16 << 20,
    "local": 16 << 20,
    "param": 16 << 20,
}
"""Bytes a module may declare in a space; above it the text is refused before any tool spends memory on it."""


class Declarations(Operands):
    """Reads declarations."""

    def begin_declarations(self) -> None:
        """Nothing declared so far."""
        self.ranged = 0
        self.element_bytes = {}
        self.space_bytes = dict.fromkeys(MAX_SPACE_BYTES, 0)

    def at_space(self) -> bool:
        """Whether a declaration begins here."""
        text = self.texts[self.at]
        return self.kinds[self.at] is Kind.DIRECTIVE and text[1:].partition("::")[0] in SPACES

    def declaration(self, linkage: tuple[str, ...] = (), formal: bool = False) -> list[Variable]:
        """`.space .align 8 .v2 .f32 a, b[4] = {…}` without the semicolon; a formal parameter is one name without initialiser."""
        start = self.at
        space = self.texts[self.at][1:]
        self.at += 1
        kind, vector, align, attributes = self._head()
        result = [self._declarator(space, kind, vector, align, attributes, linkage, formal, start)]
        while not formal and self.accept(","):
            result.append(self._declarator(space, kind, vector, align, attributes, linkage, formal, self.at))
        return result

    def _head(self) -> tuple[str, int, int | None, tuple[str, ...]]:
        kind, vector, align = "", 1, None
        attributes: list[str] = []
        while self.kinds[self.at] is Kind.DIRECTIVE:
            word = self.texts[self.at][1:]
            if word == "align":
                self.at += 1
                size = self._alignment(self.at)
                if "ptr" in attributes:
                    attributes.append(f"align {size}")
                else:
                    align = size
                continue
            if word == "attribute":
                attributes.append(self.attribute())
                continue
            if word in VECTORS:
                vector = VECTORS[word]
            elif not kind and word in TYPE_BYTES:
                kind = word
            elif kind and (word == "ptr" or word.partition("::")[0] in SPACES):
                attributes.append(word)
            else:
                self.fail("a type (.b32, .u64, .f32, .pred …), a vector (.v2, .v4), .align or .ptr")
            self.at += 1
        if not kind:
            self.fail("a type (.b32, .u64, .f32, .pred …)")
        return kind, vector, align, tuple(attributes)

    def _alignment(self, place: int) -> int:
        if self.kinds[self.at] is not Kind.INT:
            self.fail("a number of bytes after .align")
        size = self.integer("an alignment in bytes")
        if size < 1 or size & (size - 1) or size > 1 << 20:
            self.refuse(f"expected a power of two after .align; found {size}", place)
        return size

    def attribute(self) -> str:
        """`.attribute(.managed)` as text."""
        start = self.at
        self.at += 1
        self.take("(", "after .attribute")
        depth = 1
        while depth:
            if self.kinds[self.at] is Kind.END or self.texts[self.at] == ";":
                self.fail("')' to close .attribute")
            depth += {"(": 1, ")": -1}.get(self.texts[self.at], 0)
            self.at += 1
        return self.source(start)[1:]

    def _declarator(
        self,
        space: str,
        kind: str,
        vector: int,
        align: int | None,
        attributes: tuple[str, ...],
        linkage: tuple[str, ...],
        formal: bool,
        start: int,
    ) -> Variable:
        place = self.at
        name = self.word("a name to declare")
        count: int | None = None
        if not formal and self.accept("<"):
            if self.kinds[self.at] is not Kind.INT:
                self.fail("the number of registers, as in %r<8>")
            _, count = self.binary("a number of registers", 9)
            self.take(">", "after the number of registers")
            self.ranged += count
            if self.ranged > MAX_REGISTER_RANGE:
                self.refuse(
                    f"expected at most {MAX_REGISTER_RANGE} registers in all ranges; {name}<{count}> makes {self.ranged}",
                    place,
                )
        dims = self._dims()
        init: Initializer | None = None
        if not formal and self.accept("="):
            init = self._initializer()
        variable = Variable(
            space, kind, name, vector, dims, count, align, init, linkage, attributes, self.span(start)
        )
        self._charge(variable, place)
        if dims:
            self.element_bytes[name] = TYPE_BYTES[kind] * vector
        return variable

    def _dims(self) -> tuple[int | None, ...]:
        dims: list[int | None] = []
        while self.accept("["):
            if self.accept("]"):
                dims.append(None)
                continue
            place = self.at
            extent = self.integer("an array extent")
            if extent < 0:
                self.refuse(f"expected an array extent of 0 or more; found {extent}", place)
            dims.append(extent)
            self.take("]", "after the array extent")
            if len(dims) > 16:
                self.refuse("expected at most 16 array dimensions; found more")
        return tuple(dims)

    def _charge(self, variable: Variable, place: int) -> None:
        space = variable.space.partition("::")[0]
        most = MAX_SPACE_BYTES.get(space)
        if most is None:
            return
        size = TYPE_BYTES[variable.type] * variable.vector * (variable.range or 1)
        for extent in variable.dims:
            size *= extent if extent is not None else 1
        self.space_bytes[space] += size
        if self.space_bytes[space] > most:
            self.refuse(
                f"expected at most {most} bytes of .{space} variables in a module; "
                f"{variable.name} makes {self.space_bytes[space]}",
                place,
            )

    def _initializer(self) -> Initializer:
        if self.texts[self.at] == "{":
            self.enter()
            self.at += 1
            parts: list[Initializer] = []
            if self.texts[self.at] != "}":
                parts.append(self._initializer())
                while self.accept(","):
                    if self.texts[self.at] == "}":
                        break
                    parts.append(self._initializer())
            self.take("}", "or ',' in an initialiser")
            self.depth -= 1
            return tuple(parts)
        start = self.at
        if self.kinds[self.at] is Kind.WORD and self.texts[self.at] != "WARP_SZ":
            return self._reference(start, None)
        value = self.constant("an initial value (a number, a symbol or {…})")
        if value.kind == "int" and self.texts[self.at] == "(":
            self.at += 1
            reference = self._reference(start, value)
            self.take(")", "after the symbol whose byte is taken")
            return Reference(
                reference.symbol, reference.offset, reference.generic, value.value, self.span(start)
            )
        return value

    def _reference(self, start: int, mask: Immediate | None) -> Reference:
        del mask
        generic = self.texts[self.at] == "generic" and self.texts[self.at + 1] == "("
        if generic:
            self.at += 2
        symbol = self.word("a symbol")
        offset = self._offset()
        if generic:
            self.take(")", "after generic(symbol")
            offset += self._offset()
        return Reference(symbol, offset, generic, None, self.span(start))
