"""Why a text does not parse, beyond the token at which the assembler stopped.

Contract: each function gives (class, hint) and never fails; the hint quotes the line to mend, which for a
missing `;` is the one before.
"""

from __future__ import annotations

import re

from tools.source import Source
from tools.vocabulary import WORDS_OF_C

_TUNING = frozenset(
    {
        ".maxntid",
        ".reqntid",
        ".minnctapersm",
        ".maxnctapersm",
        ".maxnreg",
        ".reqnctapercluster",
        ".explicitcluster",
    }
)
_ADJACENT = re.compile(r"(%[\w.$]+|\]|\d)\s+(%[\w.$]+|\[)")


def explain_missing_version(source: Source) -> tuple[str, str]:
    """Class and hint for a module that does not begin with a usable `.version`."""
    number, code = source.first_code()
    if not code:
        return "empty_module", "There is no PTX at all. Give the whole module, beginning with `.version`."
    if code.startswith("```"):
        return (
            "markdown_fence",
            f"Line {number} is a Markdown fence, which is no PTX. Give the module without fences.",
        )
    if code.startswith(".version"):
        return "malformed_version", f"`{code}` is no version. Write major and minor, as in `.version 8.0`."
    if source.looks_like_directive(code):
        return (
            "missing_version",
            f"`{code}` comes first (line {number}). Write `.version 8.0` (or later) before it.",
        )
    return (
        "prose_before_module",
        f"Line {number} is not PTX: {code[:60]!r}. Begin with `.version`; put remarks behind `//`.",
    )


def explain_parse_error(near: str, source: Source, line: int | None) -> tuple[str, str]:
    """Class and hint for `Parsing error near 'near'` at a line."""
    if near == "":
        return _early_end(source)
    code = source.code(line)
    number, before = source.previous_code(line) if line is not None else (0, "")
    if "```" in code:
        return "markdown_fence", f"Line {line} is a Markdown fence, which is no PTX. Remove it."
    if near in _TUNING:
        return (
            "misplaced_directive",
            f"`{near}` stands between the parameter list and the opening brace of the entry, not inside it.",
        )
    if near == "f" and re.search(r"\d\.\d*f\b", code):
        return "float_suffix", "A literal such as 1.0f is C. Write 1.0, or the bits: 0f3F800000."
    if near.startswith(".version") or near.startswith(".target"):
        return "repeated_header", f"`{near}` may stand once, at the top. Remove the second."
    if re.search(r"\[[^\]]*(?:\*|\+\s*%)", code) and near.startswith(("*", "%")):
        return (
            "address_expression",
            "An address in brackets is one register or name plus a constant. Compute "
            "the rest before, with mad or add.",
        )
    if re.search(rf"\b0{re.escape(near)}\b", code) and re.match(r"[fFdD][0-9A-Fa-f]+$", near):
        return "float_literal", f"`0{near}` needs all its digits: eight after 0f, sixteen after 0d."
    if code.startswith(near) and _unended(before):
        return "missing_semicolon", f"`;` is missing at the end of line {number}: `{before[-80:]}`."
    if near in WORDS_OF_C or re.match(r"(?:for|if|while|int|float|else)\b", code):
        return (
            "not_ptx",
            f"This is C, not PTX: `{code[:80]}`. Write it with setp, bra, labels and "
            "three-operand instructions.",
        )
    if _ADJACENT.search(code) and near.startswith(("%", "[")):
        return "missing_comma", f"A comma is missing before `{near}`: `{code[:80]}`."
    if near == ".param" and ".param" in code:
        return "missing_comma", "A comma is missing between two parameters."
    if re.search(rf"\.(?:reg|shared|global|local|const|param)\s+{re.escape(near)}", code):
        return (
            "unknown_type",
            f"`{near}` is no type of PTX. It has .b8 to .b128, .u8 to .u64, .s8 to "
            ".s64, .f16 to .f64 and .pred.",
        )
    if near == "}" and source.balance() < 0:
        return "extra_brace", "There are more closing braces than opening ones. Remove one."
    return (
        "syntax_error",
        f"The statement is not PTX from `{near[:40]}` on: `{code[:80]}`. Check "
        "commas, brackets and the end of the line before.",
    )


def _early_end(source: Source) -> tuple[str, str]:
    tail = source.tail()
    if tail.endswith((";", "}", "{", ":")) and source.balance() > 0:
        return (
            "missing_brace",
            f"{source.balance()} opening brace(s) have no closing one. End the function with `}}`.",
        )
    return "truncated", f"The text ends in the middle of a statement: `{tail[-60:]}`. Give the whole module."


def _unended(code: str) -> bool:
    return (
        bool(code)
        and not code.endswith((";", "{", "}", ":", ",", "(", ")"))
        and not code.startswith(("@!", "//", "."))
    )
