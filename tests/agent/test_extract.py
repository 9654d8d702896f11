"""Whatever a model wraps around its kernel, the kernel comes back as it was; and half a kernel never does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.extract import extract
from agent.models.base import FinishReason

PLAN = "//! launch:\n//!   - {entry: k, grid: 1, block: 32, args: x}\n"
PTX = ".version 8.0\n.target sm_90a\n.address_size 64\n\n.visible .entry k(.param .u64 p)\n{\n  ret;\n}\n"
KERNEL = PLAN + PTX
DRAFT = KERNEL.replace("ret;", "exit;")
CUT = KERNEL[: KERNEL.index("ret;")]


def fenced(text: str, fence: str = "```", tag: str = "ptx") -> str:
    return f"{fence}{tag}\n{text}{fence}\n"


@pytest.mark.parametrize("tag", ["", "ptx", "asm", "cuda", "PTX", " ptx", "c++", "ptx title=kernel.ptx"])
@pytest.mark.parametrize("fence", ["```", "````", "``````", "~~~", "~~~~~"])
def test_any_fence_is_read(fence: str, tag: str) -> None:
    found = extract(f"Here it is.\n\n{fenced(KERNEL, fence, tag)}\nIt uses one warp {{as asked}}.\n")
    assert (found.text, found.reason, found.truncated) == (KERNEL, "", False)


@pytest.mark.parametrize(
    "answer",
    [
        KERNEL,
        f"The file:\n\n{KERNEL}\nThat is all.\n",
        "\ufeff" + KERNEL,
        "\ufeff" + fenced(KERNEL).replace("\n", "\r\n"),
        KERNEL.replace("\n", "\r"),
        "   " + fenced(KERNEL).replace("\n```", "\n  ```"),
        fenced(KERNEL) + "  \n",
        fenced("\n\n" + KERNEL + "\n\n"),
    ],
    ids=["bare", "prose", "bom", "crlf", "cr", "indented", "spaces", "blank-lines"],
)
def test_wrappings_fall_away(answer: str) -> None:
    assert extract(answer).text == KERNEL


@pytest.mark.parametrize(
    "answer",
    [
        fenced(DRAFT) + "On second thought:\n" + fenced(KERNEL),
        fenced(KERNEL) + "Run it so:\n" + fenced("nvcc --help\n", tag="sh"),
        fenced("int main();\n", tag="c") + fenced(DRAFT, "~~~") + fenced(KERNEL),
        fenced(PLAN) + "and the module:\n" + fenced(PTX),
        fenced(DRAFT) + fenced(PLAN) + fenced(PTX),
        "```ptx\n" + CUT + "\nNo, again:\n" + fenced(KERNEL),
        "````markdown\nMy answer:\n" + fenced(KERNEL) + "````\n",
        "~~~md\n" + fenced(KERNEL) + "~~~\n",
    ],
    ids=["draft", "shell", "three", "own-plan", "draft-then-parts", "given-up", "quoted", "tildes-around"],
)
def test_the_last_kernel_is_the_answer(answer: str) -> None:
    assert extract(answer).text == KERNEL


def test_a_plan_is_not_joined_to_a_kernel_that_has_one() -> None:
    assert extract(fenced("//! launch: []\n") + fenced(KERNEL)).text == KERNEL


def test_shorter_or_other_fences_do_not_close() -> None:
    odd = KERNEL.replace("ret;", "ret;\n```\n~~~")
    assert extract(fenced(odd, "````")).text == odd


def test_an_unclosed_block_that_is_whole_is_taken_unless_the_service_cut_it() -> None:
    assert extract("```ptx\n" + KERNEL).text == KERNEL
    cut = extract("```ptx\n" + KERNEL, FinishReason.LENGTH)
    assert (cut.text, cut.truncated) == (None, True)
    assert "token limit" in cut.reason


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.OTHER])
@pytest.mark.parametrize("before", ["", fenced(DRAFT)], ids=["alone", "after-a-draft"])
def test_a_block_that_stops_in_its_middle_is_truncated(before: str, finish: FinishReason) -> None:
    found = extract(before + "```ptx\n" + CUT, finish)
    assert (found.text, found.truncated) == (None, True)
    assert "truncated" in found.reason


def test_a_closed_block_stands_though_the_prose_after_it_was_cut() -> None:
    assert extract(fenced(KERNEL) + "It works beca", FinishReason.LENGTH).text == KERNEL


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_bare_kernel_without_an_end_is_truncated(finish: FinishReason) -> None:
    found = extract(CUT.replace("}", ""), finish)
    assert (found.text, found.truncated) == (None, True)


@pytest.mark.parametrize(
    ("answer", "finish", "says", "truncated"),
    [
        ("", FinishReason.STOP, "empty", False),
        (" \r\n\t", FinishReason.STOP, "empty", False),
        ("", FinishReason.LENGTH, "token limit", True),
        ("", FinishReason.REFUSAL, "declined", False),
        ("I cannot help with that.", FinishReason.REFUSAL, "declined", False),
        ("I think you should use CUDA.", FinishReason.STOP, "no code block", False),
        ("I was thinking and", FinishReason.LENGTH, "no code block", True),
        (fenced("int x;\n", tag="c"), FinishReason.STOP, "no .version", False),
        (fenced(PLAN) + fenced("int x;\n"), FinishReason.STOP, "(2)", False),
        (fenced("int x;\n"), FinishReason.LENGTH, "cut off", True),
        (PLAN, FinishReason.STOP, "no .version line", False),
    ],
)
def test_no_kernel_has_a_reason(answer: str, finish: FinishReason, says: str, truncated: bool) -> None:
    found = extract(answer, finish)
    assert found.text is None
    assert says in found.reason
    assert found.truncated is truncated


@pytest.mark.parametrize("alphabet", ["`~\n a", "`", "//!. \n{}", " ", "\r", "\x00\udc80\u2028"])
def test_a_megabyte_of_junk_is_read_through(alphabet: str) -> None:
    junk = "".join(random.Random(7).choices(alphabet, k=1_000_000))
    assert extract(junk).text is None
    assert extract(junk + "\n\n" + fenced(KERNEL, "~" * 40)).text == KERNEL


LINES = st.text(
    st.characters(blacklist_characters="\n\r`~\ufeff", blacklist_categories=["Cs"]), max_size=40
).filter(lambda line: ".version" not in line)
PROSE = st.lists(LINES, max_size=4).map(lambda lines: "".join(line + "\n" for line in lines))
BODIES = st.lists(LINES, max_size=6).map(
    lambda lines: KERNEL + "".join(line + "\n" for line in lines) + "}\n"
)
FENCES = st.one_of(st.integers(3, 9).map("`".__mul__), st.integers(3, 9).map("~".__mul__))


@settings(deadline=None, max_examples=150)
@given(before=PROSE, body=BODIES, after=PROSE, fence=FENCES, tag=st.sampled_from(["", "ptx", "asm"]))
def test_a_wrapped_candidate_comes_back_byte_for_byte(
    before: str, body: str, after: str, fence: str, tag: str
) -> None:
    assert extract(before + fenced(body, fence, tag) + after).text == body
