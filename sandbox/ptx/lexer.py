"""Text to tokens, and the error that says where text is not PTX.

One compiled expression finds every token; tokens live in parallel lists, so that a megabyte costs about a second. A dotted word such
as `ld.global.f32` or `%tid.x` is one token. Comments, white space and the `#` lines of a preprocessor vanish. Columns count characters.

Source: PTX ISA, "Syntax" (source format, comments, identifiers, constants).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tasks.errors import CandidateError

MAX_BYTES: Final = 1 << 20
MAX_TOKENS: Final = 1_000_000


class PtxSyntaxError(CandidateError):
    """Text that is not PTX, or is more than we read; `line` and `column` count from 1 in the candidate file."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.args[0], self.line, self.column)


def _rebuild(message: str, line: int, column: int) -> PtxSyntaxError:
    """Errors cross process borders; the message already holds its place."""
    error = PtxSyntaxError("", line, column)
    error.args = (message,)
    return error


class Kind(IntEnum):
    """What a token is."""

    END = 0
    WORD = 1
    """`add.u32`, `%r1`, `DONE`, `%tid.x`: an identifier and the dotted parts that touch it."""
    DIRECTIVE = 2
    """`.reg`, `.shared::cta`: the dot included."""
    INT = 3
    FLOAT = 4
    STRING = 5
    PUNCT = 6
    DWARF = 7
    """A whole `@@` line of old debug information."""


_TOKEN: Final = re.compile(
    r"""
      (?P<skip>(?:[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/|\#[^\n]*)+)
    | (?P<w>(?:[A-Za-z]|[_$%](?=[\w$])|_)[\w$]*(?:(?:\.|::)[\w$]+)*)
    | (?P<f>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|[0-9]+[eE][+-]?[0-9]+
        |[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?(?![\w$:]))
    | (?P<d>\.[\w$]+(?:::[\w$]+)*)
    | (?P<i>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?)
    | (?P<s>"[^"\n]*")
    | (?P<dwarf>@@[^\n]*)
    | (?P<p><<|>>|<=|>=|==|!=|&&|\|\||[{}()\[\],;:+\-*%&|^~!?<>=@]|/(?!\*))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS: Final = {
    "w": Kind.WORD,
    "d": Kind.DIRECTIVE,
    "f": Kind.FLOAT,
    "i": Kind.INT,
    "s": Kind.STRING,
    "dwarf": Kind.DWARF,
    "p": Kind.PUNCT,
}
_NUMBERS: Final = (Kind.INT, Kind.FLOAT)


@dataclass(slots=True)
class Tokens:
    """Parallel lists, one entry a token; the last is END, where the text ends."""

    kinds: list[Kind]
    texts: list[str]
    lines: list[int]
    columns: list[int]


def tokenize(text: str, first_line: int = 1) -> Tokens:
    """Split PTX text. Raises PtxSyntaxError for too much text, a NUL, or a character that begins no token."""
    _check_size(text, first_line)
    tokens = Tokens([], [], [], [])
    add_kind, add_text = tokens.kinds.append, tokens.texts.append
    add_line, add_column = tokens.lines.append, tokens.columns.append
    line, line_start, position, number_end = first_line, 0, 1 if text.startswith("\ufeff") else 0, -1
    find_newline, match, end = text.find, _TOKEN.match, len(text)
    next_newline = find_newline("\n", 0)
    while position < end:
        found = match(text, position)
        if found is None:
            raise _strange(text, position, line, position - line_start + 1)
        group = found.lastgroup
        stop = found.end()
        if group == "skip":
            while -1 < next_newline < stop:
                line += 1
                line_start = next_newline + 1
                next_newline = find_newline("\n", line_start)
        else:
            assert group is not None
            kind = _KINDS[group]
            if position == number_end and kind in (Kind.WORD, Kind.INT, Kind.FLOAT):
                raise PtxSyntaxError(
                    "expected a number (12, 0x1F, 0f3F800000, 0d3FF0000000000000, 1.5) to end here; "
                    f"found {found.group()[:20]!r} stuck to it",
                    line,
                    position - line_start + 1,
                )
            add_kind(kind)
            add_text(found.group())
            add_line(line)
            add_column(position - line_start + 1)
            if kind in _NUMBERS:
                number_end = stop
        position = stop
    if len(tokens.kinds) > MAX_TOKENS:
        raise PtxSyntaxError(
            f"expected at most {MAX_TOKENS} tokens in a module; found {len(tokens.kinds)}", first_line, 1
        )
    add_kind(Kind.END)
    add_text("")
    add_line(line)
    add_column(position - line_start + 1)
    return tokens


def _check_size(text: str, first_line: int) -> None:
    if len(text) > MAX_BYTES or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES
    ):
        raise PtxSyntaxError(
            f"expected at most {MAX_BYTES} bytes of PTX; found more ({len(text)} characters)", first_line, 1
        )
    nul = text.find("\0")
    if nul >= 0:
        line = first_line + text.count("\n", 0, nul)
        column = nul - (text.rfind("\n", 0, nul) + 1) + 1
        raise PtxSyntaxError(
            f"expected text; found a NUL byte at offset {nul}: remove it, PTX is plain text", line, column
        )


def _strange(text: str, position: int, line: int, column: int) -> PtxSyntaxError:
    if text.startswith("/*", position):
        return PtxSyntaxError(
            "expected */ to close the comment that begins here; found the end of the text", line, column
        )
    if text[position] == '"':
        return PtxSyntaxError('expected a closing " on the same line; found its end', line, column)
    if text.startswith("```", position):
        return PtxSyntaxError("expected PTX; found a Markdown fence (```): give the code alone", line, column)
    what = repr(text[position])
    if not text[position].isascii():
        what += f" (U+{ord(text[position]):04X}): outside comments PTX is ASCII"
    return PtxSyntaxError(f"expected a PTX token; found {what}", line, column)
