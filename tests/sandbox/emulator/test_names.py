"""Names that blocks declare anew, labels before directives, vector registers, and every special register."""

import pytest

from sandbox.device import FaultKind
from sandbox.ptx.lexer import PtxSyntaxError
from sandbox.ptx.symbols import SPECIAL_REGISTERS
from tasks.errors import CannotJudge
from tests.sandbox.emulator.harness import TID, faulted, good, kernel, load, output, run


def test_variables_of_one_name_in_two_blocks_are_two():
    def block(at: int) -> str:
        return (
            f"{{ .local .align 4 .b32 v; .const .align 4 .b32 c = {at + 7}; .global .align 4 .b32 g = {at}; "
            f"ld.const.u32 %r2, [c]; ld.global.u32 %r3, [g]; add.u32 %r2, %r2, %r3; st.local.u32 [v], %r2;"
        )

    body = (
        f"ld.param.u64 %rd1, [o];\n{block(100)}\n{block(200)} ld.local.u32 %r4, [v]; "
        "st.global.u32 [%rd1+4], %r4; }\n"
        "ld.local.u32 %r4, [v]; st.global.u32 [%rd1], %r4; }"
    )
    assert good(run(kernel(body), output(8), block=(1,))).tolist() == [207, 407]


def test_a_label_before_a_pragma_is_a_label():
    body = TID + (
        'mov.u32 %r2, 0;\nAGAIN:\n.pragma "nounroll";\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 5;\n'
        "@%p1 bra AGAIN; st.global.u32 [%rd3], %r2;"
    )
    assert (good(run(kernel(body), output(128))) == 5).all()


def test_vector_registers_of_a_range_are_known_by_element():
    body = (
        ".reg .v2 .b32 %v<3>; ld.param.u64 %rd1, [o];\n"
        "mov.b32 %v2.x, 5; mov.b32 %v2.y, 6; add.u32 %v1.y, %v2.x, %v2.y;\n"
        "st.global.v2.b32 [%rd1], %v2; st.global.b32 [%rd1+8], %v1.y;"
    )
    assert good(run(kernel(body), output(12), block=(1,))).tolist() == [5, 6, 11]
    fault = faulted(
        run(kernel(body.replace("%v1.y;", "%v1.x;")), output(12), block=(1,)), FaultKind.UNWRITTEN_READ
    )
    assert fault.buffer == "%v1.x"


def test_every_special_register_can_be_read():
    lines: list[str] = []
    for name, kind in SPECIAL_REGISTERS.items():
        element = kind.rpartition(".")[2]
        if element == "pred":
            lines.append(f"mov.pred %p1, {name};")
        else:
            part = ".y" if kind.startswith("v4") else ""
            lines.append(f"mov.{element} {'%rd4' if element.endswith('64') else '%r2'}, {name}{part};")
    good(run(kernel("\n".join(lines)), output(4)))


def test_a_name_declared_twice_is_refused():
    with pytest.raises(PtxSyntaxError, match=r"%f1|%twice"):
        load(kernel(".reg .b32 %twice; .reg .b32 %twice;"))


def test_a_range_of_variables_is_not_taken_for_registers():
    with pytest.raises(CannotJudge, match="v<4>"):
        run(kernel(".local .b32 v<4>;"), output(4))


def test_parameters_of_calls_shadow_by_block():
    before = (
        ".func (.param .b32 r) twice(.param .b32 a)\n{ .reg .b32 %x<3>; ld.param.b32 %x1, [a]; "
        "add.u32 %x2, %x1, %x1; st.param.b32 [r], %x2; ret; }\n"
    )
    one = (
        "{{ .param .b32 a; .param .b32 r; st.param.b32 [a], {0}; call (r), twice, (a); "
        "ld.param.b32 %r2, [r]; st.global.u32 [%rd1+{1}], %r2; }}\n"
    )
    body = "ld.param.u64 %rd1, [o];\n" + one.format(21, 0) + one.format(50, 4)
    assert good(run(kernel(body, before=before), output(8), block=(1,))).tolist() == [42, 100]
