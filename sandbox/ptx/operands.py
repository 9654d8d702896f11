"""Operands of instructions.

Source: PTX ISA, "Instruction Operands".
"""

from __future__ import annotations

from sandbox.ptx.cursor import ADDITIVE, MULTIPLICATIVE, Cursor
from sandbox.ptx.lexer import Kind
from sandbox.ptx.nodes import (
    Address,
    Group,
    Immediate,
    Name,
    Negative,
    Not,
    Offset,
    Operand,
    Pair,
    Span,
    Vector,
)


class Operands(Cursor):
    """Reads operands."""

    opcode = ""
    """Of the instruction being read: `call` takes groups, `mov` takes addresses as values."""
    element_bytes: dict[str, int]
    """Of every variable declared so far, for `array[3]`."""

    def operands(self) -> tuple[Operand, ...]:
        """A comma list up to, not including, the semicolon; groups are allowed, as `call` has them."""
        if self.texts[self.at] == ";":
            return ()
        if self.texts[self.at] == "}" or self.kinds[self.at] is Kind.END:
            self.fail("';' or ',' to go on with the instruction before")
        result = [self.operand()]
        while self.texts[self.at] == ",":
            self.at += 1
            result.append(self.operand())
        return tuple(result)

    def name(self) -> Name:
        """An identifier with its component, if any."""
        at = self.at
        if self.kinds[at] is not Kind.WORD:
            self.fail("a name")
        text = self.texts[at]
        line, column = self.lines[at], self.columns[at]
        self.at = at + 1
        span = Span(line, column, line, column + len(text))
        if "." in text:
            base, _, component = text.partition(".")
            return Name(base, component, span)
        return Name(text, "", span)

    def operand(self) -> Operand:  # noqa: RET503  (fail never returns)
        """One operand."""
        at = self.at
        kind, text = self.kinds[at], self.texts[at]
        if kind is Kind.WORD and text != "WARP_SZ":
            following = self.texts[at + 1]
            if following in (",", ";", "}", ")", "]"):
                return self.name()
            return self._named(following)
        if text == "{":
            return self._vector()
        if text == "[":
            return self._address()
        after = self.texts[at + 1] if kind is not Kind.END else ""
        if text in ("!", "-") and self.kinds[at + 1] is Kind.WORD and after != "WARP_SZ":
            self.at += 1
            inner = self.name()
            return (Not if text == "!" else Negative)(inner, self.span(at))
        if text == "(" and self._groups():
            return self._group()
        if kind in (Kind.INT, Kind.FLOAT) or text in ("-", "+", "~", "!", "(", "WARP_SZ"):
            return self.constant("an operand")
        self.fail("an operand (register, constant, symbol, [address] or {vector})")

    def _groups(self) -> bool:
        """Whether the parenthesis here opens a list of names, and not a constant expression."""
        if self.opcode == "call":
            return True
        kind, text = self.kinds[self.at + 1], self.texts[self.at + 1]
        return text == ")" or (kind is Kind.WORD and text != "WARP_SZ")

    def _named(self, following: str) -> Operand:
        start = self.at
        first = self.name()
        if following == "|":
            self.at += 1
            return Pair(first, self.name(), self.span(start))
        if following in ("+", "-"):
            offset = self._offset()
            return Offset(first, offset, self.span(start))
        if following == "[" and first.text in self.element_bytes:
            self.at += 1
            offset = self.integer("an index into the array") * self.element_bytes[first.text]
            self.take("]", "after the index")
            if self.opcode == "mov":
                return Offset(first, offset, self.span(start))
            return Address(first, offset, (), self.span(start))
        return first

    def _offset(self) -> int:
        """`+ 8 - 4 …` after a name."""
        total = 0
        while self.texts[self.at] in ("+", "-"):
            sign = 1 if self.texts[self.at] == "+" else -1
            self.at += 1
            place = self.at
            kind, value = self.binary("a constant offset in bytes", MULTIPLICATIVE)
            if kind != "int":
                self.fail("an integer offset in bytes", place)
            total += sign * value
        return total

    def _vector(self) -> Vector:
        start = self.at
        self.enter()
        self.at += 1
        elements = [self.operand()]
        while self.accept(","):
            elements.append(self.operand())
        self.take("}", "or ',' in a vector operand")
        self.depth -= 1
        return Vector(tuple(elements), self.span(start))

    def _group(self) -> Group:
        start = self.at
        self.enter()
        self.at += 1
        elements: list[Operand] = []
        if self.texts[self.at] != ")":
            elements.append(self.operand())
            while self.accept(","):
                elements.append(self.operand())
        self.take(")", "or ',' in a parenthesised list")
        self.depth -= 1
        return Group(tuple(elements), self.span(start))

    def _address(self) -> Address:
        start = self.at
        self.enter()
        self.at += 1
        base: Name | Immediate
        offset = 0
        if self.kinds[self.at] is Kind.WORD and self.texts[self.at] != "WARP_SZ":
            base = self.name()
            if self.texts[self.at] in ("+", "-"):
                offset = self._offset()
        else:
            place = self.at
            kind, value = self.binary("a register, a symbol or a constant as an address", ADDITIVE)
            if kind != "int":
                self.fail("an integer address", place)
            base = Immediate(value, "int", self.source(place), self.span(place))
        rest: list[Operand] = []
        while self.accept(","):
            rest.append(self.operand())
        self.take("]", "to close the address (registers cannot be added to each other there)")
        self.depth -= 1
        return Address(base, offset, tuple(rest), self.span(start))
