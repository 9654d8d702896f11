"""From a model's answer to one candidate file, or the reason why there is none.

Rules
- Fences of backticks or tildes, with any tag or none, closed by a fence of the same kind that is as long. Line ends and a byte order
  mark are normalised first. PTX holds no fences, so one with a tag inside a block begins a new block: an answer quoted as a whole, or a
  draft that was given up, does not swallow what follows.
- The last complete block that holds PTX (a `.version` line) is the answer: models draft first and decide last. A block that holds only
  the `//!` plan is joined with the PTX block after it.
- Without fences, the text from its first `//!` or `.version` line to the last `}` is taken.
- An answer that stops inside its block is refused as truncated, never judged: half a kernel says nothing about the model's PTX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.models.base import FinishReason

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$")
_VERSION = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_PLAN = re.compile(r"^[ \t]*//!", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BEGIN = re.compile(r"^[ \t]*(?://!|\.version\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in an answer."""

    text: str | None
    """The candidate file, ending in one newline; None when there is none."""
    reason: str
    """Why there is none, for the person and the model; '' when there is one."""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    closed: bool


def normalise(text: str) -> str:
    """The text without byte order mark, with line feeds alone as line ends and no halves of characters (which no file can hold)."""
    whole = _SURROGATE.sub("\ufffd", text)
    return whole.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def extract(text: str, finish: FinishReason = FinishReason.STOP) -> Extraction:
    """Find the candidate in an answer. finish: why the answer ended, as the service said."""
    text = normalise(text)
    cut = finish is FinishReason.LENGTH
    if not text.strip():
        return _none(
            "The answer was cut off at the token limit before any text."
            if cut
            else _refusal(finish, "The answer is empty."),
            cut,
        )
    found = _blocks(text)
    blocks = _joined(found)
    kernels = [block for block in blocks if _VERSION.search(block.text)]
    complete = [block for block in kernels if block.closed or (not cut and block.text.rstrip().endswith("}"))]
    if complete and complete[-1] is kernels[-1]:
        return _found(complete[-1].text)
    if kernels:
        where = "at the token limit" if cut else "inside its code block, which is never closed"
        return _none(
            f"The answer is truncated: it stops {where}. Give the whole file, shorter if it must be.", True
        )
    if blocks:
        return _none(
            f"None of the code blocks ({len(found)}) holds PTX: no .version line."
            + (" The answer was cut off at the token limit." if cut else ""),
            cut,
        )
    return _bare(text, finish)


def _bare(text: str, finish: FinishReason) -> Extraction:
    begin = _BEGIN.search(text)
    if begin is None or not _VERSION.search(text):
        reason = "The answer holds no code block and no .version line. Give one fenced block with the //! plan and the PTX."
        return _none(_refusal(finish, reason), finish is FinishReason.LENGTH)
    end = text.rfind("}")
    if finish is FinishReason.LENGTH or end < begin.start():
        return _none("The answer is truncated: the PTX stops before its end. Give the whole file.", True)
    return _found(text[begin.start() : end + 1])


def _refusal(finish: FinishReason, otherwise: str) -> str:
    return "The model declined to answer." if finish is FinishReason.REFUSAL else otherwise


def _found(text: str) -> Extraction:
    return Extraction(text.strip("\n") + "\n", "")


def _none(reason: str, truncated: bool) -> Extraction:
    return Extraction(None, reason, truncated)


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks in order; the last, and those that another begins in, are open."""
    blocks: list[_Block] = []
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match and fence and match[1].startswith(fence) and not match[2].strip():
            blocks.append(_Block("\n".join(lines), True))
            fence = ""
        elif match and (not fence or match[2].strip()):
            if fence:
                blocks.append(_Block("\n".join(lines), False))
            fence, lines = match[1], []
        elif fence:
            lines.append(line)
    if fence:
        blocks.append(_Block("\n".join(lines), False))
    return blocks


def _joined(blocks: list[_Block]) -> list[_Block]:
    """Plans that stand in a block of their own, put in front of the PTX that follows them."""
    joined: list[_Block] = []
    plan = ""
    for block in blocks:
        has_plan, has_code = bool(_PLAN.search(block.text)), bool(_VERSION.search(block.text))
        if has_plan and not has_code:
            plan = block.text
        elif has_code and not has_plan and plan:
            joined.append(_Block(plan + "\n" + block.text, block.closed))
        else:
            joined.append(block)
    return joined or blocks
