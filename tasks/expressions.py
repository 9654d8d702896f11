"""Integer expressions over a task's axes: `cdiv(M, 128) * 2`.

Grammar: integers (decimal, hex), axis names, `+ - * // %`, unary minus, `min(a, b, …)`, `max(a, b, …)`, `cdiv(a, b)`, parentheses.
Python's own parser gives the tree and this module walks it; nothing is ever evaluated as Python.

Invariants: text is at most 500 characters, trees at most 32 deep, every intermediate value within ±2**63. `//` and `%` round as
Python's do (towards minus infinity); `cdiv(a, b)` is the ceiling of a / b.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tasks.errors import InputError

MAX_LENGTH: Final = 500
MAX_DEPTH: Final = 32
MAX_VALUE: Final = 2**63
GRAMMAR: Final = (
    "integers, axis names, + - * // %, unary minus, min(), max(), cdiv() and parentheses "
    "(nothing else, no other calls, no text)"
)


class ExpressionError(InputError):
    """An expression that cannot be read or has no value; the message says column, expected and found.

    column: 1-based column within the expression, or None.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column


def _cdiv(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., int], int, int]]] = {
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "cdiv": (_cdiv, 2, 2),
}
"""Name → (function, least arguments, most arguments)."""
_ALPHABET: Final = re.compile(r"[0-9A-Za-z_+\-*/%(), \t\n]*")
_DIVIDING: Final = (ast.FloorDiv, ast.Mod)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: `text` as written, `names` the axes it reads."""

    text: str
    names: frozenset[str]
    _tree: ast.expr

    def evaluate(self, axes: Mapping[str, int]) -> int:
        """The value with the given axes. Raises ExpressionError for an unknown axis, a division by zero or a value beyond ±2**63."""
        return _value(self._tree, self.text, axes)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read an expression. Raises ExpressionError."""
    stripped = text.strip()
    if not stripped:
        raise ExpressionError(f"expected an expression made of {GRAMMAR}; found nothing", 1)
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"expected at most {MAX_LENGTH} characters in an expression; found {len(text)}", MAX_LENGTH + 1
        )
    allowed = _ALPHABET.match(stripped)
    if allowed is None or allowed.end() != len(stripped):
        end = allowed.end() if allowed else 0
        raise _refuse(stripped, end + 1, repr(stripped[end]))
    if stripped.count("(") > MAX_DEPTH * 2:
        raise ExpressionError(f"expected at most {MAX_DEPTH * 2} parentheses in an expression; found more", 1)
    stripped = re.sub(r"[\t\n]", " ", stripped)
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = getattr(error, "offset", None) or 1
        found = repr(stripped[column - 1 :][:20]) if column <= len(stripped) else "the end"
        raise _refuse(stripped, column, found) from None
    names: set[str] = set()
    _check(tree, stripped, names, 1)
    return Expression(stripped, frozenset(names), tree)


def evaluate(text: str, axes: Mapping[str, int]) -> int:
    """The value of `text` with the given axes. Raises ExpressionError."""
    return parse(text).evaluate(axes)


def _refuse(text: str, column: int, found: str) -> ExpressionError:
    return ExpressionError(
        f"expression {_shown(text)}, column {column}: expected {GRAMMAR}; found {found}", column
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _check(node: ast.expr, text: str, names: set[str], depth: int) -> None:
    column = node.col_offset + 1
    if depth > MAX_DEPTH:
        raise ExpressionError(
            f"expression {_shown(text)}, column {column}: nested deeper than {MAX_DEPTH} levels", column
        )
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            if value > MAX_VALUE:
                raise ExpressionError(
                    f"expression {_shown(text)}, column {column}: {value} is beyond 2**63", column
                )
        case ast.Name(id=name):
            if name in _FUNCTIONS:
                raise _refuse(text, column, f"{name} without its arguments")
            names.add(name)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, text, names, depth + 1)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            _check(left, text, names, depth + 1)
            _check(right, text, names, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            _, least, most = _FUNCTIONS[name]
            if not least <= len(arguments) <= most:
                wanted = str(least) if least == most else f"{least} to {most}"
                raise _refuse(text, column, f"{name} with {len(arguments)} arguments instead of {wanted}")
            for argument in arguments:
                _check(argument, text, names, depth + 1)
        case _:
            segment = ast.get_source_segment(text, node) or text
            raise _refuse(text, column, _shown(segment))


def _value(node: ast.expr, text: str, axes: Mapping[str, int]) -> int:
    column = node.col_offset + 1
    match node:
        case ast.Constant(value=int() as constant):
            return constant
        case ast.Name(id=name):
            if name not in axes:
                known = ", ".join(sorted(axes)) or "none"
                raise ExpressionError(
                    f"expression {_shown(text)}, column {column}: expected an axis ({known}); found {name}",
                    column,
                )
            return _bounded(int(axes[name]), text, column)
        case ast.UnaryOp(op=operator, operand=operand):
            inner = _value(operand, text, axes)
            return _bounded(-inner if isinstance(operator, ast.USub) else inner, text, column)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _value(left, text, axes), _value(right, text, axes)
            if isinstance(operator, _DIVIDING) and second == 0:
                raise ExpressionError(f"expression {_shown(text)}, column {column}: division by zero", column)
            return _bounded(_OPERATORS[type(operator)](first, second), text, column)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            values = [_value(argument, text, axes) for argument in arguments]
            if name == "cdiv" and values[1] == 0:
                raise ExpressionError(f"expression {_shown(text)}, column {column}: division by zero", column)
            return _bounded(_FUNCTIONS[name][0](*values), text, column)
        case _:
            raise AssertionError("a checked expression holds only checked nodes")


def _bounded(value: int, text: str, column: int) -> int:
    if abs(value) > MAX_VALUE:
        raise ExpressionError(
            f"expression {_shown(text)}, column {column}: the value is beyond 2**63", column
        )
    return value
