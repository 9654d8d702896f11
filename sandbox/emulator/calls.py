"""Calls and returns: parameters are copied between the frames' local memory, or between registers where they
are declared as such.

Source: PTX ISA, "call", "ret", "Device Function Parameters".
"""

from __future__ import annotations

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.access import load, store
from sandbox.emulator.decode import Op
from sandbox.emulator.externs import EXTERNS
from sandbox.emulator.faults import Stopped
from sandbox.emulator.flow import Call
from sandbox.emulator.lanes import WIDTHS, Array, Lanes
from sandbox.emulator.names import Place, Slot
from sandbox.emulator.operands import constant, register_of, whole
from sandbox.emulator.registers import mark_written
from sandbox.emulator.semantics.types import TYPES
from sandbox.emulator.wave import Frame, Wave
from sandbox.ptx.nodes import Immediate, Name, Operand
from tasks.errors import CannotJudge

DEPTH = 64
"""Deepest nesting of calls; a chip's stack of a kibibyte a thread seldom holds more."""


def enter(wave: Wave, lanes: Lanes, op: Op, frame: Frame, pc: int) -> None:
    """Threads call a function; an external one returns at once."""
    call: Call = op.detail
    code = wave.machine.code
    if call.pointer is None:
        parts = [(call.name, lanes)]
    else:
        values = whole(lanes, call.pointer(lanes))
        parts = []
        for value in np.unique(lanes.flat(values)):
            part = lanes.narrowed(values == value)
            assert part is not None
            name = code.by_address.get(int(value))
            if name is None or (call.allowed and name not in call.allowed):
                where = part.locate(0)
                raise Stopped(
                    FaultKind.BAD_CALL,
                    f"{op.name}: {int(value):#x} is not the address of a function that may be called here, "
                    f"{wave.who(where)}",
                    op.line, where, {"threads": part.n},
                )  # fmt: skip
            parts.append((name, part))
    for name, part in parts:
        shape = code.by_name.get(name)
        if shape is None:
            external = EXTERNS.get(name)
            if external is None:
                raise CannotJudge(
                    f"line {op.line}: {name} has no body in this module, and the emulator does not know it"
                )
            arguments = [_argument(operand, part, op, code) for operand in call.arguments]
            result = external(part, op, arguments)
            if result is not None and call.results:
                _deliver(call.results[0], part, op, code, result)
            if op.marks:
                mark_written(op, part)
            wave.add((frame, pc + 1), part.dense())
            continue
        if frame.depth + 1 >= DEPTH:
            where = part.locate(0)
            raise Stopped(
                FaultKind.BAD_CALL,
                f"{op.name}: calls nest deeper than {DEPTH}, {wave.who(where)}",
                op.line,
                where,
            )
        callee = wave.call(frame, op, shape)
        inner = Lanes(wave, callee, part.rows, part.mask)
        _forget(inner)
        for operand, formal in zip(call.arguments, shape.params, strict=True):
            _copy_in(operand, formal, part, inner, op, code)
        wave.add((callee, shape.first_pc), inner.dense())


def _forget(lanes: Lanes) -> None:
    """A function that is called again finds nothing of what it left."""
    wave, frame = lanes.wave, lanes.frame
    if frame.shape.local_bytes:
        threads = lanes.threads()
        own = slice(frame.local_base, frame.local_top)
        shape = (wave.warps * 32, wave.local_stride)
        wave.local.data.reshape(shape)[threads, own] = wave.machine.limits.poison
        if wave.local.written is not None:
            wave.local.written.reshape(shape)[threads, own] = 0
    for mark in lanes.bank.marks.values():
        mark &= ~lanes.dense()


def leave(wave: Wave, lanes: Lanes, op: Op | None, *, everything: bool = False) -> None:
    """Threads return from their function, or end: at the entry's end, and at `exit` anywhere."""
    frame = lanes.frame
    if frame.parent is None or everything:
        if wave.copies:
            from sandbox.emulator.asynccopy import finish

            finish(lanes)
        wave.retire(lanes)
        wave.machine.event()
        if wave.barred:
            from sandbox.emulator.barriers import release

            release(wave)
        return
    call_op = frame.return_op
    call: Call = call_op.detail
    outer = Lanes(wave, frame.parent, lanes.rows, lanes.mask)
    for operand, formal in zip(call.results, frame.shape.results, strict=False):
        _copy_out(operand, formal, lanes, outer, call_op, wave.machine.code)
    if call_op.marks:
        mark_written(call_op, outer)
    wave.add((frame.parent, call_op.pc + 1), outer.dense())


def _scope(op: Op, code: object) -> object:
    return code.lines[op.pc].scope  # type: ignore[attr-defined]


def _register_value(operand: Operand, lanes: Lanes, bits: int, op: Op, code: object) -> Array | None:
    """The value of a register or literal argument in the register form of `bits`; None when it is a
    variable.
    """
    if isinstance(operand, Immediate):
        return whole(lanes, constant(operand, TYPES["pred" if bits == 1 else f"b{bits}"]))
    found = register_of(operand, _scope(op, code))  # type: ignore[arg-type]
    if found is None:
        return None
    value = lanes.read(found.index)
    return value if found.bits == bits else value.astype(WIDTHS[bits])


def _placed(operand: Operand, op: Op, code: object) -> Place:
    found = _scope(op, code).find(operand.text) if isinstance(operand, Name) else None  # type: ignore[attr-defined]
    if not isinstance(found, Place):
        raise CannotJudge(f"line {op.line}: an argument of {op.name} is neither a register nor a variable")
    return found


def _copy_in(operand: Operand, formal: object, caller: Lanes, callee: Lanes, op: Op, code: object) -> None:
    if isinstance(formal, Slot):
        value = _register_value(operand, caller, formal.bits, op, code)
        if value is None:
            raise CannotJudge(f"line {op.line}: {op.name} passes a variable to a register parameter")
        callee.write(formal.index, value, False)
        return
    assert isinstance(formal, Place)
    start = np.full(callee.n, formal.base + callee.frame.local_base, np.uint64)
    bits = formal.size * 8
    value = _register_value(operand, caller, bits, op, code) if bits <= 64 else None
    if value is not None:
        store("local", callee, start, formal.size, [callee.flat(value)], op.site)
        return
    source = _placed(operand, op, code)
    transfer(caller, source.base, callee, formal.base, min(source.size, formal.size))


def _copy_out(operand: Operand, formal: object, callee: Lanes, caller: Lanes, op: Op, code: object) -> None:
    found = register_of(operand, _scope(op, code))  # type: ignore[arg-type]
    if isinstance(formal, Slot):
        value = callee.read(formal.index)
        if found is not None:
            caller.write(
                found.index, value if found.bits == formal.bits else value.astype(WIDTHS[found.bits]), False
            )
        return
    assert isinstance(formal, Place)
    if found is not None:
        start = np.full(callee.n, formal.base + callee.frame.local_base, np.uint64)
        value = caller.spread(load("local", callee, start, formal.size, 1, op.site)[0])
        caller.write(found.index, value.astype(WIDTHS[found.bits]), True)
        return
    target = _placed(operand, op, code)
    transfer(callee, formal.base, caller, target.base, min(target.size, formal.size))


def transfer(source: Lanes, base: int, target: Lanes, to: int, size: int) -> None:
    """Copy bytes, written or not, between two frames' local memory of the same threads."""
    wave = source.wave
    local = wave.local
    at = source.threads() * wave.local_stride
    columns = np.arange(size)
    reading = at[:, None] + (base + source.frame.local_base + columns)
    writing = at[:, None] + (to + target.frame.local_base + columns)
    local.data[writing] = local.data[reading]
    if local.written is not None:
        local.written[writing] = local.written[reading]


def _argument(operand: Operand, lanes: Lanes, op: Op, code: object) -> Array:
    """An argument of an external function as flat unsigned values."""
    value = _register_value(operand, lanes, 64, op, code)
    if value is not None:
        return lanes.flat(value)
    source = _placed(operand, op, code)
    start = np.full(lanes.n, source.base + lanes.frame.local_base, np.uint64)
    return load("local", lanes, start, source.size, 1, op.site)[0]


def _deliver(operand: Operand, lanes: Lanes, op: Op, code: object, value: Array) -> None:
    found = register_of(operand, _scope(op, code))  # type: ignore[arg-type]
    if found is not None:
        lanes.write(found.index, lanes.spread(value).astype(WIDTHS[found.bits]), True)
        return
    target = _placed(operand, op, code)
    start = np.full(lanes.n, target.base + lanes.frame.local_base, np.uint64)
    store("local", lanes, start, target.size, [value.astype(f"u{target.size}")], op.site)
