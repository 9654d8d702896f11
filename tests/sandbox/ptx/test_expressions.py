"""Expressions over axes: values equal Python's, and nothing but the grammar gets in."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.expressions import MAX_VALUE, ExpressionError, evaluate, parse

AXES = {"M": 7168, "N": 5120, "n": 1000}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("256", 256), ("0x10", 16), ("cdiv(n, 256)", 4), ("cdiv(M, 128) * 2", 112), ("-n // 256", -4), ("-7 % 3", 2),
        ("min(M, N, n)", 1000), ("max(M, N)", 7168), ("4 * (128 + 256) * 64 * 2 + 1024", 197632), ("  n ", 1000),
        ("+n - -n", 2000), ("cdiv(0, 5)", 0), ("2 + 3 * 4", 14),
    ],
)  # fmt: skip
def test_values(text: str, value: int) -> None:
    assert evaluate(text, AXES) == value


def test_names_are_known_before_evaluation() -> None:
    assert parse("cdiv(M, 128) * N + M").names == {"M", "N"}


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "1.5", "a b", "a**2", "a/2", "f(1)", "max", "cdiv(1)", "cdiv(1,2,3)", "min(1)", "min(*M)", "min(M, key=N)",
        "__import__('os')", "().__class__", "M.real", "M[0]", "lambda: 1", "M if N else 1", "[M]", "(M, N)", "M == N",
        "M and N", "~M", "not M", "'x'", "True + 'a'", "M := 3", "1 << 70", "9" * 30, "9" * 501, "(" * 70 + "1" + ")" * 70,
        "-" * 400 + "1", "1_", "é", "M\0", "(" * 200, "007", "None", "x; y", "cdiv(M, N",
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"expected|nested|beyond") as caught:
        evaluate(text, AXES)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("text", ["M // 0", "M % (n - 1000)", "cdiv(M, 0)"])
def test_division_by_zero_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="division by zero"):
        evaluate(text, AXES)


def test_values_stay_within_bounds() -> None:
    assert evaluate("9223372036854775807 + 1", {}) == MAX_VALUE
    with pytest.raises(ExpressionError, match="beyond"):
        evaluate("9223372036854775807 * 3 // 3", {})


texts = st.recursive(
    st.one_of(st.integers(0, 99).map(str), st.sampled_from(["M", "N", "n"])),
    lambda inner: st.one_of(
        st.builds(
            lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner
        ),
        st.builds(lambda a: f"-{a}", inner),
        st.builds(lambda f, a, b: f"{f}({a}, {b})", st.sampled_from(["min", "max", "cdiv"]), inner, inner),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(texts, st.integers(1, 50), st.integers(-50, 50))
def test_agrees_with_python(text: str, first: int, second: int) -> None:
    axes = {"M": first, "N": second, "n": 3}
    scope = {"__builtins__": {}, "min": min, "max": max, "cdiv": lambda a, b: -(-a // b), **axes}
    try:
        wanted = eval(text, scope)
    except ZeroDivisionError:
        wanted = None
    if wanted is None:
        with pytest.raises(ExpressionError, match="zero"):
            evaluate(text, axes)
    else:
        assert evaluate(text, axes) == wanted
        assert not math.isnan(wanted)


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet="()+-*/%, 0159axMNcdivmn_.\n", max_size=40))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    reason = ""
    try:
        value = evaluate(text, AXES)
    except ExpressionError as error:
        reason = str(error)
    else:
        assert isinstance(value, int)
        return
    assert any(word in reason for word in ("expected", "beyond", "division", "nested"))
