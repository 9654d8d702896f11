"""Bounds of shared and local memory: what is past all variables, between them, and another's."""

import pytest

from sandbox.device import FaultKind
from tests.sandbox.emulator.harness import TID, faulted, good, kernel, output, run

TWO = ".shared .align 4 .b8 first[20];\n.shared .align 16 .b8 second[40];\n"
"""first at 0, a gap from 20 to 32, second from 32 to 72."""
FILL = "mov.u32 %r3, first; mov.u32 %r6, second; mov.u32 %r4, 7;\n"
LOCAL = ".local .align 4 .b8 first[20]; .local .align 16 .b8 second[40];\nmov.u64 %rd5, first;\n"


@pytest.mark.parametrize(
    ("at", "size", "beyond", "words"),
    [
        (72, 4, 40, "just past the end of second"),
        (172, 4, 140, "100 bytes past the end of second"),
        (68, 8, 36, "4 bytes past the end of second"),
        (0xFFFFFFF0, 4, 0xFFFFFFD0, "past the end of second"),
    ],
)
def test_past_all_shared_memory_names_the_nearest_variable(at: int, size: int, beyond: int, words: str):
    value = "%r4" if size == 4 else "%rd1"
    aligned = TWO if size == 4 else TWO.replace("second[40]", "second[44]")
    shift = 0 if size == 4 else 4
    store = f"add.u32 %r5, %r3, {at + shift}; st.shared.b{8 * size} [%r5], {value};"
    fault = faulted(run(kernel(TID + FILL + store, before=aligned), output(128)), FaultKind.OUT_OF_BOUNDS)
    assert (fault.space, fault.buffer, fault.offset) == ("shared", "second", beyond + shift)
    assert words in fault.message


def test_a_pointer_to_one_shared_variable_may_reach_another():
    body = TID + FILL + "st.shared.u32 [%r3+32], %r4; ld.shared.u32 %r5, [%r6];\n"
    got = good(run(kernel(body + "st.global.u32 [%rd3], %r5;", before=TWO), output(128)))
    assert (got == 7).all()


@pytest.mark.parametrize("at", [20, 28])
def test_a_gap_between_shared_variables_holds_nothing(at: int):
    body = TID + FILL
    for place in (*range(0, 20, 4), *range(32, 72, 4)):
        body += f"st.shared.u32 [%r3+{place}], %r4;"
    fault = faulted(
        run(kernel(body + f"\nbar.sync 0; ld.shared.u32 %r5, [%r3+{at}];", before=TWO), output(128)),
        FaultKind.UNWRITTEN_READ,
    )
    assert fault.space == "shared"
    assert fault.buffer == ("first" if at == 20 else "second")
    assert ("just past the end of first" if at == 20 else "4 bytes before second begins") in fault.message


def test_dynamic_shared_memory_that_the_launch_does_not_give_is_named():
    text = kernel(
        TID + "mov.u32 %r3, tile; st.shared.u32 [%r3], %r1;",
        before=TWO + ".extern .shared .align 16 .b8 tile[];\n",
    )
    fault = faulted(run(text, output(128)), FaultKind.OUT_OF_BOUNDS)
    assert (fault.buffer, fault.offset, fault.buffer_bytes) == ("tile", 0, 0)
    good(run(text, output(128), smem=128))


@pytest.mark.parametrize("at", [72, 4096])
def test_past_all_local_memory_names_the_nearest_variable(at: int):
    body = TID + LOCAL + f"st.local.u32 [%rd5+{at}], %r1;"
    fault = faulted(run(kernel(body), output(128)), FaultKind.OUT_OF_BOUNDS)
    assert (fault.space, fault.buffer, fault.offset) == ("local", "second", at - 32)


def test_a_gap_between_local_variables_holds_nothing():
    body = TID + LOCAL
    for place in (*range(0, 20, 4), *range(32, 72, 4)):
        body += f"st.local.u32 [%rd5+{place}], %r1;"
    fault = faulted(run(kernel(body + "ld.local.u32 %r5, [%rd5+24];"), output(128)), FaultKind.UNWRITTEN_READ)
    assert (fault.space, fault.buffer, fault.offset) == ("local", "first", 24)


FUNCTION = (
    ".func touch(.param .b32 how)\n{ .reg .b32 %x<3>; .reg .pred %q<2>; .local .b32 own; "
    "ld.param.b32 %x1, [how]; setp.eq.u32 %q1, %x1, 0;\n@%q1 st.local.u32 [own], %x1;\n"
    "ld.local.u32 %x2, [own]; ret; }\n"
)
CALL = "{{ .param .b32 p; st.param.b32 [p], {0}; call touch, (p); }}\n"


def test_a_function_called_again_finds_nothing_of_what_it_left():
    good(run(kernel(CALL.format(0) * 2, before=FUNCTION), output(4)))
    loop = (
        "mov.u32 %r3, 0;\nL:\n{ .param .b32 p; st.param.b32 [p], %r3; call touch, (p); }\n"
        "add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 2; @%p1 bra L;"
    )
    fault = faulted(run(kernel(loop, before=FUNCTION), output(4)), FaultKind.UNWRITTEN_READ)
    assert fault.buffer == "own"


def test_local_memory_of_a_function_that_returned_is_out_of_bounds():
    stray = ".local .b32 mine; mov.u64 %rd5, mine;\n" + CALL.format(0) + "st.local.u32 [%rd5+16], 1;"
    fault = faulted(run(kernel(stray, before=FUNCTION), output(4)), FaultKind.OUT_OF_BOUNDS)
    assert fault.space == "local"
