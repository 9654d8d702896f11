"""A position in a token list, and constant expressions: what every part of the parser stands on.

Constant expressions follow C: 64-bit integers, the usual precedences, `WARP_SZ`, casts `(.s64)` and `(.u64)`; floating-point ones know
+ - * /. Results of integer operators wrap to 64 bits; a literal keeps its value as written.

Source: PTX ISA, "Constants", "Constant Expressions".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from sandbox.ptx.lexer import Kind, PtxSyntaxError, Tokens
from sandbox.ptx.nodes import Immediate, Span

MAX_NESTING: Final = 64
WARP_SIZE: Final = 32

_PRECEDENCE: Final[Mapping[str, int]] = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
ADDITIVE: Final = 9
MULTIPLICATIVE: Final = 10


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER: Final[Mapping[str, Callable[[int, int], int]]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}
_FLOATING: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def double_bits(value: float) -> int:
    """Raw bits of a double."""
    return int.from_bytes(struct.pack(">d", value), "big")


def _double(bits: int) -> float:
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0]


def _wrap(value: int) -> int:
    if -(1 << 63) <= value < 1 << 64:
        return value
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


class Cursor:
    """A position in a token list."""

    def __init__(self, tokens: Tokens) -> None:
        self.kinds, self.texts = tokens.kinds, tokens.texts
        self.lines, self.columns = tokens.lines, tokens.columns
        self.at = 0
        self.depth = 0

    # -- tokens

    def found(self) -> str:
        """The token here, for a message."""
        if self.kinds[self.at] is Kind.END:
            return "the end of the text"
        text = self.texts[self.at]
        return repr(text if len(text) <= 40 else text[:37] + "...")

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        """Refuse: `expected` names what should stand here."""
        if at is not None:
            self.at = at
        raise PtxSyntaxError(
            f"expected {expected}; found {self.found()}", self.lines[self.at], self.columns[self.at]
        )

    def refuse(self, message: str, at: int | None = None) -> NoReturn:
        """Refuse with a whole sentence."""
        at = self.at if at is None else at
        raise PtxSyntaxError(message, self.lines[at], self.columns[at])

    def take(self, text: str, expected: str) -> None:
        """Step over one punctuation mark."""
        if self.texts[self.at] != text:
            self.fail(f"{text!r} {expected}")
        self.at += 1

    def accept(self, text: str) -> bool:
        """Step over `text` if it stands here."""
        if self.texts[self.at] != text:
            return False
        self.at += 1
        return True

    def word(self, expected: str) -> str:
        """An identifier without dots."""
        text = self.texts[self.at]
        if self.kinds[self.at] is not Kind.WORD or "." in text or "::" in text:
            self.fail(expected)
        self.at += 1
        return text

    def span(self, start: int) -> Span:
        """From token `start` to the last one taken."""
        last = max(self.at - 1, start)
        return Span(
            self.lines[start],
            self.columns[start],
            self.lines[last],
            self.columns[last] + len(self.texts[last]),
        )

    def source(self, start: int) -> str:
        """The tokens from `start` up to here, joined by blanks where words would melt together."""
        parts: list[str] = []
        for text in self.texts[start : self.at]:
            if (
                parts
                and (text[0].isalnum() or text[0] in "_.$%")
                and (parts[-1][-1].isalnum() or parts[-1][-1] in "_$")
            ):
                parts.append(" ")
            parts.append(text)
        return "".join(parts)

    def enter(self) -> None:
        """One level deeper; the caller leaves by `self.depth -= 1`."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.refuse(f"expected at most {MAX_NESTING} levels of nesting; found more")

    # -- constant expressions

    def integer(self, what: str) -> int:
        """A constant expression that must be an integer."""
        start = self.at
        value = self.constant(what)
        if value.kind != "int":
            self.fail(f"an integer for {what}", start)
        return value.value

    def constant(self, what: str) -> Immediate:
        """A whole constant expression."""
        start = self.at
        kind, value = self._ternary(what)
        return Immediate(value, kind, self.source(start), self.span(start))

    def _ternary(self, what: str) -> tuple[str, int]:
        condition = self.binary(what, 1)
        if self.texts[self.at] != "?":
            return condition
        self.enter()
        self.at += 1
        first = self._ternary(what)
        self.take(":", "between the two values of a conditional expression")
        second = self._ternary(what)
        self.depth -= 1
        return first if condition[1] else second

    def binary(self, what: str, least: int) -> tuple[str, int]:
        """Operators of at least precedence `least`; (kind, value) as in Immediate."""
        left = self._unary(what)
        while True:
            operator = self.texts[self.at]
            level = _PRECEDENCE.get(operator, 0) if self.kinds[self.at] is Kind.PUNCT else 0
            if level < least or level == 0:
                return left
            place = self.at
            self.at += 1
            self.enter()
            right = self.binary(what, level + 1)
            self.depth -= 1
            left = self._apply(operator, left, right, place)

    def _apply(
        self, operator: str, left: tuple[str, int], right: tuple[str, int], place: int
    ) -> tuple[str, int]:
        if left[0] == right[0] == "int":
            if operator in "/%" and right[1] == 0:
                self.refuse("division by zero in a constant expression", place)
            return "int", _wrap(_INTEGER[operator](left[1], right[1]))
        if "f32" in (left[0], right[0]) or operator not in _FLOATING:
            self.refuse(f"operator {operator!r} does not apply to these floating-point constants", place)
        a, b = (_double(value) if kind == "f64" else float(value) for kind, value in (left, right))
        try:
            return "f64", double_bits(_FLOATING[operator](a, b))
        except ZeroDivisionError:
            self.refuse("division by zero in a constant expression", place)

    def _unary(self, what: str) -> tuple[str, int]:
        start = self.at
        while self.texts[self.at] in ("-", "+", "~", "!"):
            self.at += 1
        if self.at - start > MAX_NESTING:
            self.refuse(f"expected at most {MAX_NESTING} levels of nesting; found more signs", start)
        kind, value = self._primary(what)
        for sign in reversed(self.texts[start : self.at_sign(start)]):
            if kind == "int":
                value = {"-": -value, "+": value, "~": ~value, "!": int(value == 0)}[sign]
                value = _wrap(value)
            elif sign == "-":
                value ^= 1 << (63 if kind == "f64" else 31)
            elif sign != "+":
                self.refuse(f"{sign!r} does not apply to a floating-point constant", start)
        return kind, value

    def at_sign(self, start: int) -> int:
        """One past the last of the signs that begin at `start`."""
        while self.texts[start] in ("-", "+", "~", "!"):
            start += 1
        return start

    def _primary(self, what: str) -> tuple[str, int]:  # noqa: RET503  (fail never returns)
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind is Kind.INT:
            value = _literal(text)
            if value is None or value >= 1 << 64:
                self.fail(f"an integer of at most 64 bits for {what}")
            self.at += 1
            return "int", value
        if kind is Kind.FLOAT:
            self.at += 1
            if text[:2] in ("0f", "0F"):
                return "f32", int(text[2:], 16)
            if text[:2] in ("0d", "0D"):
                return "f64", int(text[2:], 16)
            return "f64", double_bits(float(text))
        if text == "WARP_SZ":
            self.at += 1
            return "int", WARP_SIZE
        if text == "(":
            self.enter()
            self.at += 1
            if self.texts[self.at] in (".s64", ".u64"):
                cast = self.texts[self.at]
                self.at += 1
                self.take(")", "after a cast")
                inner_kind, value = self._unary(what)
                if inner_kind != "int":
                    self.refuse("a cast applies to integer constants alone")
                value &= (1 << 64) - 1
                if cast == ".s64" and value >> 63:
                    value -= 1 << 64
                result = "int", value
            else:
                result = self._ternary(what)
                self.take(")", "to close the parenthesis")
            self.depth -= 1
            return result
        self.fail(what)


def _literal(text: str) -> int | None:
    digits = text.rstrip("U")
    if len(digits) > 70:
        return None
    if digits[:2] in ("0x", "0X"):
        return int(digits[2:], 16)
    if digits[:2] in ("0b", "0B"):
        return int(digits[2:], 2)
    if len(digits) > 1 and digits[0] == "0":
        return int(digits, 8) if not set(digits) & {"8", "9"} else None
    return int(digits)
