"""What a refused text says at a line: for hints alone, since text that the assembler refuses may not parse.

Contract: every look-up answers with something (an empty string or set when it finds nothing), and never
raises on any text. Lines are split at `\\n` only, as the assembler counts them, and count from 1.
"""

from __future__ import annotations

import re
from functools import cached_property

_RANGE = re.compile(r"(%?[A-Za-z_$][\w$]*)\s*<\s*(\d{1,9})\s*>")
_DECLARED = re.compile(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+([^;{}]*)")
_WORD = re.compile(r"%?[A-Za-z_$][\w$]*")
_COMMENT = re.compile(r"//[^\n]*")
_NOT_DIRECTIVE_START = re.compile(r"\s*\.\s*[a-z]")


class Source:
    """A candidate's text, and the architecture it is assembled for."""

    def __init__(self, text: str, arch: str) -> None:
        self.text = text
        self.arch = arch
        self.lines: tuple[str, ...] = tuple(text.split("\n"))

    def line(self, number: int | None) -> str:
        """The text of a line, stripped; '' outside the text."""
        if number is None or not 1 <= number <= len(self.lines):
            return ""
        return self.lines[number - 1].strip()

    def code(self, number: int | None) -> str:
        """A line without its `//` comment, stripped."""
        return _COMMENT.sub("", self.line(number)).strip()

    def previous_code(self, number: int) -> tuple[int, str]:
        """The nearest line before `number` that holds code, and its number; (0, '') when there is none."""
        for candidate in range(min(number, len(self.lines) + 1) - 1, 0, -1):
            if code := self.code(candidate):
                return candidate, code
        return 0, ""

    def instruction_with(self, number: int | None, token: str) -> str:
        """The statement on a line that holds `token`, without `;`."""
        for statement in self.code(number).split(";"):
            if token and token in statement:
                return re.sub(r"^(?:[{}]\s*|[A-Za-z_$][\w$]*:(?!:)\s*)+", "", statement.strip())
        return ""

    def dotted(self, number: int | None, opcode: str) -> str:
        """The whole dotted name in which an opcode stands on a line: `wgmma.load.sync`; the opcode alone when
        not found.
        """
        found = re.search(rf"(?<![\w.%]){re.escape(opcode)}(?:\.[\w:]+)+", self.code(number))
        return found[0] if found else opcode

    def operands(self, statement: str) -> tuple[str, ...]:
        """The operands of a statement, split at commas outside braces, brackets and parentheses."""
        body = re.sub(r"^(?:@!?\S+\s+)?[\w.:]+\s*", "", statement)
        parts: list[str] = []
        depth, start = 0, 0
        for index, character in enumerate(body):
            depth += (character in "{[(") - (character in "}])")
            if character == "," and depth == 0:
                parts.append(body[start:index].strip())
                start = index + 1
        last = body[start:].strip()
        return (*parts, last) if last else tuple(parts)

    def registers_in(self, statement: str) -> tuple[str, ...]:
        """The register-like names of a statement, each once, in order; without the opcode's parts."""
        return tuple(dict.fromkeys(re.findall(r"%[A-Za-z_$][\w$]*", statement)))

    def register_type(self, name: str) -> str:
        """The type a register was declared with, without dot; '' when it is no declared register."""
        if name in self._registers:
            return self._registers[name]
        ranged = re.fullmatch(r"(.*?)(\d+)", name)
        return self._registers.get(f"{ranged[1]}<>", "") if ranged else ""

    def register_ranges(self) -> tuple[tuple[str, int], ...]:
        """(stem, count) of each `%stem<count>`."""
        return tuple((match[1], int(match[2])) for match in _RANGE.finditer(self._bare))

    def identifiers(self) -> frozenset[str]:
        """Every word that follows no dot and stands in code."""
        return self._identifiers

    @cached_property
    def _bare(self) -> str:
        return _COMMENT.sub("", self.text)

    @cached_property
    def _identifiers(self) -> frozenset[str]:
        seen: dict[str, int] = {}
        for match in _WORD.finditer(self._bare):
            if match.start() == 0 or self._bare[match.start() - 1] != ".":
                seen[match[0]] = seen.get(match[0], 0) + 1
            if len(seen) > 4000:
                break
        return frozenset(seen)

    @cached_property
    def _registers(self) -> dict[str, str]:
        types: dict[str, str] = {}
        for declaration in _DECLARED.finditer(self._bare):
            for name in declaration[2].split(","):
                ranged = _RANGE.fullmatch(name.strip())
                types[f"{ranged[1]}<>" if ranged else name.strip()] = declaration[1]
        return types

    def first_code(self) -> tuple[int, str]:
        """The first line that is neither blank nor a comment, and its number; (0, '') when there is none."""
        for number in range(1, len(self.lines) + 1):
            if code := self.code(number):
                return number, code
        return 0, ""

    def looks_like_directive(self, code: str) -> bool:
        """Whether a line starts like `.version`."""
        return _NOT_DIRECTIVE_START.match(code) is not None

    def balance(self) -> int:
        """Opening minus closing braces outside comments."""
        return self._bare.count("{") - self._bare.count("}")

    def tail(self) -> str:
        """The last line of code."""
        return self.previous_code(len(self.lines) + 1)[1]

    def non_ascii(self, line: int | None = None) -> str:
        """A sentence naming the first non-ASCII character, from `line` on if given; '' when there is none."""
        offset = 0
        for number, text in enumerate(self.lines, start=1):
            if not text.isascii() and (line is None or number >= line):
                column = next(index for index, character in enumerate(text) if not character.isascii())
                byte = offset + len(text[:column].encode("utf-8", "surrogatepass"))
                character = text[column]
                return (
                    f"{character!a} (U+{ord(character):04X}) stands in line {number}, column "
                    f"{column + 1}, byte {byte}: "
                    "PTX is ASCII, and ptxas before 13.5 refuses others even in a comment. "
                    "Write a plain ASCII character."
                )
            offset += len(text.encode("utf-8", "surrogatepass")) + 1
        return ""
