"""The order that asynchronous warpgroup multiplies need, read along the text of one function.

Contract: looks at a body in textual order, from the first `wgmma.mma_async` to the next `wgmma.wait_group`;
newer assemblers mend what is found here without saying so, and it costs the overlap that wgmma is for.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": registers of a wgmma must not be
accessed before wait_group, and a wgmma.fence must precede the first wgmma.mma_async and follow other writes
of its registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox.ptx.nodes import Instruction, Statement, Vector
from tools.initialised import names_in


@dataclass(frozen=True, slots=True)
class Trouble:
    """One departure from the order."""

    kind: str
    message: str
    hint: str
    line: int


def trouble(body: Sequence[Statement]) -> Iterator[Trouble]:
    """Departures in textual order."""
    fenced = False
    in_flight: dict[str, int] = {}
    for one in body:
        if not isinstance(one, Instruction):
            continue
        word = one.modifiers[0] if one.modifiers else ""
        line = one.span.line
        if one.opcode == "wgmma" and word == "fence":
            fenced = True
        elif one.opcode == "wgmma" and word == "mma_async":
            if not fenced:
                yield Trouble(
                    "wgmma_fence_injected",
                    "wgmma.mma_async stands before any wgmma.fence",
                    "Write `wgmma.fence.sync.aligned;` before the first wgmma.mma_async and "
                    "after every write of its registers.",
                    line,
                )
                fenced = True
            if one.operands and isinstance(one.operands[0], Vector):
                in_flight |= {name.text: line for name in names_in(one.operands[0])}
        elif one.opcode == "wgmma" and word == "wait_group":
            in_flight = {}
        elif in_flight and one.opcode == "call":
            yield Trouble(
                "wgmma_call_in_flight",
                f"a function is called while the wgmma of line {next(iter(in_flight.values()))} is in flight",
                "The accumulators cannot stay in flight over a call, so the multiply is "
                "waited for. Call before the fence or after wgmma.wait_group.",
                line,
            )
            in_flight = {}
        elif in_flight:
            touched = [
                name.text for operand in one.operands for name in names_in(operand) if name.text in in_flight
            ]
            if touched:
                yield Trouble(
                    "wgmma_accumulator_touched",
                    f"{one.name} touches {touched[0]}, which the wgmma of line "
                    f"{in_flight[touched[0]]} is still writing",
                    "Accumulators may be touched only after wgmma.wait_group; until then the "
                    "multiplies are serialised or the value is wrong. Move the wait before "
                    "it.",
                    line,
                )
                in_flight = {}
