"""Candidate files and launch plans."""

import hashlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.plan import Launch, PlanError, Scratch, TensorMap, parse_plan

BARE = """launch:
  - entry: gemm
    grid: cdiv(N, 128), cdiv(M, 128)
    block: 384
    cluster: 2, 1, 1
    dynamic_smem: 4 * (128 + 256) * 64 * 2 + 1024
    args: map_a, C, M, 1.5, -3, 2 * M
tensor_maps:
  map_a:
    tensor: A
    box: 64, 128
    swizzle: 128B
scratch:
  partial:
    bytes: 4 * M * N
    init: zero
"""


def comments(text: str) -> str:
    return "".join(f"//! {line}\n" for line in text.splitlines())


def test_bare_lists() -> None:
    plan = parse_plan(BARE, first_line=5)
    assert plan.launches == (
        Launch(
            entry="gemm",
            grid=("cdiv(N, 128)", "cdiv(M, 128)"),
            block=("384",),
            cluster=("2", "1", "1"),
            dynamic_smem="4 * (128 + 256) * 64 * 2 + 1024",
            args=("map_a", "C", "M", "1.5", "-3", "2 * M"),
            line=6,
        ),
    )
    assert plan.tensor_maps == {"map_a": TensorMap(tensor="A", box=("64", "128"), swizzle="128B")}
    assert plan.scratch == {"partial": Scratch(bytes="4 * M * N", init="zero")}


def test_a_cooperative_launch_and_an_im2col_map() -> None:
    plan = parse_plan(
        "launch: {entry: k, grid: 1, block: 1, cooperative: yes}\n"
        "tensor_maps:\n  image: {tensor: x, mode: im2col, box: '64, 128', lower: '-1, -pad', upper: '-1, -1'}\n"
    )
    assert plan.launches[0].cooperative == "yes"
    image = plan.tensor_maps["image"]
    assert (image.mode, image.box, image.lower, image.upper) == (
        "im2col",
        ("64", "128"),
        ("-1", "-pad"),
        ("-1", "-1"),
    )


@pytest.mark.parametrize(
    "text",
    [
        'launch:\n  - {entry: k, grid: ["cdiv(n, 256)"], block: [256], args: [x, y, n]}',
        "launch:\n  - {entry: k, grid: [cdiv(n, 256)], block: 256, args: 'x, y, n'}",
        "launch:\n  - entry: k\n    grid: cdiv(n, 256)\n    block: 256  # threads\n    args:\n      - x\n      - y\n      - n",
        "launch:\n  entry: k\n  grid: cdiv(n, 256)\n  block: 256\n  args: x, y, n",
        'launch: [{"entry": "k", "grid": "cdiv(n, 256)", "block": 256, "args": ["x", "y", "n"]}]',
    ],
)
def test_every_way_to_write_a_list_means_the_same(text: str) -> None:
    (launch,) = parse_plan(text).launches
    assert (launch.entry, launch.grid, launch.block, launch.args) == (
        "k",
        ("cdiv(n, 256)",),
        ("256",),
        ("x", "y", "n"),
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "launch"),
        ("a: 1", 1, "expected one of launch"),
        ("tensor_maps: {}", 1, "'launch'"),
        ("launch: []", 1, "1 to 64"),
        ("launch: [{entry: k, grid: [\"__import__('os')\"], block: 1}]", 1, r"cdiv\(\)"),
        ("launch:\n - {entry: k, gird: 1, block: 1}", 2, "did you mean 'grid'"),
        ("launch:\n - {entry: k, grid: 1}", 2, "'block'"),
        ("launch:\n - {entry: k, grid: '', block: 1}", 2, "at least one"),
        ("launch:\n - {entry: k, grid: '1,2,3,4', block: 1}", 2, "at most 3"),
        ("launch:\n - entry: k\n   grid: 1\n   grid: 2\n   block: 1", 4, "twice"),
        ("launch: &a [*a]", 1, "anchor or alias"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nlaunch: *b", 1, "anchor or alias"),
        ("launch: !!python/object/apply:os.system [x]", 1, "tag"),
        ("launch: " + "[" * 5000, 1, "nesting"),
        ("launch: " + "{a: " * 3000, 1, "nesting"),
        ("launch:\n\t- x", 2, "YAML"),
        ("launch: {", 1, "YAML"),
        ("launch: [{entry: k k, grid: 1, block: 1}]", 1, "a name"),
        ("launch: [{entry: k, grid: 1, block: 1, cooperative: maybe}]", 1, "cooperative: expected one of yes, no; found 'maybe'"),
        ("launch: [{entry: k, grid: 1, block: 1}]\ntensor_maps: {m: {tensor: A, box: 1, mode: tile}}", 2, "tiled, im2col"),
        ("launch: [{entry: k, grid: 1, block: 1}]\nscratch: {p: {bytes: 4, init: ones}}", 2, "none, zero"),
        ("launch: [{entry: k, grid: 1, block: 1}]\nscratch: {p: {bytes: 4}}\ntensor_maps: {p: {tensor: A, box: 1}}", 3, "both"),
        ("launch: [{entry: k, grid: 1, block: 1}]\nscratch: {" + ",".join(f"p{k}: {{bytes: 4}}" for k in range(33)) + "}", 2, "at most 32"),
        ("launch: [" + ",".join(["{entry: k, grid: 1, block: 1}"] * 65) + "]", 1, "1 to 64"),
        ("launch: [{entry: k, grid: 1, block: 1, args: 'a;b'}]", 1, "args"),
        ("launch: [1]", 1, "keys and values"),
        ("? [a]\n: 1", 1, "plain key"),
        ("--- {launch: 1}\n--- {launch: 2}", 2, "YAML"),
        ("#" * (17 << 10), 1, "bytes"),
    ],
)  # fmt: skip
def test_unusable_plans_say_what_to_do(text: str, line: int, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        parse_plan(text)
    assert caught.value.line == line
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.line) == (str(caught.value), line)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, len(BARE)), st.integers(0, 10), st.text(max_size=6))
def test_damaged_plans_are_taken_or_refused(start: int, length: int, piece: str) -> None:
    reason = None
    try:
        parse_plan(BARE[:start] + piece + BARE[start + length :])
    except PlanError as error:
        reason = str(error)
    assert (
        reason is None or "expected" in reason or "twice" in reason or "both" in reason or "beyond" in reason
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_candidate_is_taken_apart(newline: str, mark: str) -> None:
    text = mark + ("// made by hand\n\n" + comments(BARE) + "// more\n.version 8.0\n").replace("\n", newline)
    found = read_candidate(text)
    assert found.text == text
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert found.plan.launches[0].line == 4
    assert found.ptx_first_line == 3 + len(BARE.splitlines())
    assert found.ptx.splitlines() == ["// more", ".version 8.0"]


def test_comments_may_stand_between_plan_lines() -> None:
    found = read_candidate(
        "//! launch:\n// first\n\n//!  - entry: k\n//!    grid: 1\n  //!    block: 1\n.version 8.0"
    )
    assert found.plan.launches[0].line == 4
    assert (found.ptx, found.ptx_first_line) == (".version 8.0", 7)


def test_errors_carry_the_line_of_the_file() -> None:
    with pytest.raises(PlanError) as caught:
        read_candidate("// c\n\n//! launch:\n//!  - entry: k\n//!    grid: 1 1\n//!    block: 1\n")
    assert caught.value.line == 5


@pytest.mark.parametrize(
    ("text", "line"), [("", 1), (".version 8.0", 1), (".version 8.0\n//! launch:\n", 2), ("//!", 1)]
)
def test_a_missing_plan_is_said(text: str, line: int) -> None:
    with pytest.raises(PlanError, match="launch") as caught:
        read_candidate(text)
    assert caught.value.line == line
