"""`mbarrier` objects in shared memory, without transactions of bulk copies (those count bytes through
complete_tx all the same).

The 64-bit word, opaque to kernels: bits 0–19 pending arrivals, 20–39 expected arrivals, 40–61 tx-count (two's
complement), 62 set in every valid object, 63 the phase. A phase ends when pending arrivals and tx-count are
both zero.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.access import load, store
from sandbox.emulator.atomics import update
from sandbox.emulator.decode import WAITING, Decoder, Op, builds
from sandbox.emulator.faults import Stopped
from sandbox.emulator.lanes import Array, Lanes
from sandbox.emulator.operands import Reader, Unsupported, addresses, reader, whole, writer
from sandbox.ptx.nodes import Address, Immediate, Instruction

MOST = (1 << 20) - 1
VALID = 1 << 62
_COUNT = np.uint64(MOST)
_TX = np.uint64((1 << 22) - 1)


def fields(word: Array) -> tuple[Array, Array, Array, Array]:
    """(pending, expected, tx, phase) as int64."""
    pending = (word & _COUNT).astype(np.int64)
    expected = (word >> np.uint64(20) & _COUNT).astype(np.int64)
    tx = (word >> np.uint64(40) & _TX).astype(np.int64)
    tx -= (tx >> 21) << 22
    return pending, expected, tx, (word >> np.uint64(63)).astype(np.int64)


def compose(pending: Array, expected: Array, tx: Array, phase: Array) -> Array:
    """The inverse of `fields`, ending the phase where it is complete."""
    done = (pending == 0) & (tx == 0)
    phase = np.where(done, phase ^ 1, phase)
    pending = np.where(done, expected, pending)
    low = pending.astype(np.uint64) | expected.astype(np.uint64) << np.uint64(20)
    high = tx.astype(np.uint64) & _TX
    return low | high << np.uint64(40) | np.uint64(VALID) | phase.astype(np.uint64) << np.uint64(63)


def change(
    space: str, lanes: Lanes, where: Array, op: Op, *, arrivals: Array, tx: Array, drop: bool = False
) -> Array:
    """Arrive and move the tx-count at each lane's object, one lane after another; gives the words before."""
    position = {"bad": False}

    def step(old: Array, count: Array, more: Array) -> Array:
        pending, expected, now, phase = fields(old)
        if (old >> np.uint64(62) & np.uint64(1) == 0).any() or (pending < count).any():
            position["bad"] = True
        left = np.maximum(pending - count, 0)
        if drop:
            expected = np.maximum(expected - count, 0)
        return compose(left, expected, now + more, phase)

    old = update(space, lanes, where, "u64", "cas", step, [arrivals, tx], op.site)
    if position["bad"]:
        at = lanes.locate(0)
        raise Stopped(
            FaultKind.ILLEGAL_OPERAND,
            f"{op.name}: the mbarrier was not initialised, or more threads arrive than its phase still "
            f"expects, {lanes.wave.who(at)}",
            op.line,
            at,
            {"space": "shared", "address": int(where[0]), "threads": lanes.n},
        )
    return old


def arrive(space: str, lanes: Lanes, where: Array, count: Array, op: Op) -> Array:
    """Plain arrivals."""
    return change(space, lanes, where, op, arrivals=count, tx=np.zeros(lanes.n, np.int64))


def _space(instruction: Instruction) -> str:
    return "shared" if any(part.startswith("shared") for part in instruction.modifiers) else "generic"


@builds("mbarrier")
def mbarrier(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    """init, inval, arrive, arrive_drop, expect_tx, complete_tx, test_wait, try_wait, pending_count."""
    action = instruction.modifiers[0]
    maker = _MAKERS.get(action)
    if maker is None:
        raise Unsupported(f"mbarrier.{action}")
    maker(decoder, instruction, op)


def _init(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    space, where = addresses(decoder, instruction.operands[0], _space(instruction))
    count = reader(decoder, instruction.operands[1], "u32")

    def run(lanes: Lanes) -> None:
        counts = lanes.flat(whole(lanes, count(lanes))).astype(np.int64)
        if ((counts < 1) | (counts > MOST)).any():
            at = lanes.locate(0)
            raise Stopped(
                FaultKind.ILLEGAL_OPERAND,
                f"{op.name}: the expected count must be 1 to {MOST}, found {int(counts[0])}, "
                f"{lanes.wave.who(at)}",
                op.line,
                at,
            )
        zero = np.zeros(lanes.n, np.int64)
        store(space, lanes, where(lanes), 8, [compose(counts, counts, zero, zero)], op.site)

    op.run = run


def _inval(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    space, where = addresses(decoder, instruction.operands[0], _space(instruction))
    op.run = lambda lanes: store(space, lanes, where(lanes), 8, [np.zeros(lanes.n, np.uint64)], op.site)


def _count(decoder: Decoder, operand: object) -> Reader:
    return reader(decoder, operand, "u32")  # type: ignore[arg-type]


def _arrive(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    operands = list(instruction.operands)
    write = None if isinstance(operands[0], Address) else writer(decoder, operands.pop(0), "b64")
    space, where = addresses(decoder, operands.pop(0), _space(instruction))
    expecting = "expect_tx" in instruction.modifiers
    amount = _count(decoder, operands[0] if operands else Immediate(1, "int"))
    drop = instruction.modifiers[0] == "arrive_drop"

    def run(lanes: Lanes) -> None:
        values = lanes.flat(whole(lanes, amount(lanes))).astype(np.int64)
        one, none = np.ones(lanes.n, np.int64), np.zeros(lanes.n, np.int64)
        arrivals, tx = (one, values) if expecting else (values, none)
        old = change(space, lanes, where(lanes), op, arrivals=arrivals, tx=tx, drop=drop)
        if write is not None:
            write(lanes, lanes.spread(old), True)

    op.run = run


def _tx(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    space, where = addresses(decoder, instruction.operands[0], _space(instruction))
    amount = _count(decoder, instruction.operands[1])
    sign = 1 if instruction.modifiers[0] == "expect_tx" else -1

    def run(lanes: Lanes) -> None:
        values = lanes.flat(whole(lanes, amount(lanes))).astype(np.int64) * sign
        change(space, lanes, where(lanes), op, arrivals=np.zeros(lanes.n, np.int64), tx=values)

    op.run = run


def _wait(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    write = writer(decoder, instruction.operands[0], "pred")
    space, where = addresses(decoder, instruction.operands[1], _space(instruction))
    parity = "parity" in instruction.modifiers
    token = reader(decoder, instruction.operands[2], "u32" if parity else "u64")
    op.spins = WAITING

    def run(lanes: Lanes) -> None:
        word = load(space, lanes, where(lanes), 8, 1, op.site)[0]
        value = lanes.flat(whole(lanes, token(lanes)))
        phase = word >> np.uint64(63)
        before = value & np.uint32(1) if parity else value >> np.uint64(63)
        if write is not None:
            write(lanes, lanes.spread(phase != before), True)

    op.run = run


def _pending(decoder: Decoder, instruction: Instruction, op: Op) -> None:
    write = writer(decoder, instruction.operands[0], "u32")
    state = reader(decoder, instruction.operands[1], "u64")

    def run(lanes: Lanes) -> None:
        if write is not None:
            write(lanes, (state(lanes) & _COUNT).astype(np.uint32), True)

    op.run = run


_MAKERS = {
    "init": _init,
    "inval": _inval,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": _tx,
    "complete_tx": _tx,
    "test_wait": _wait,
    "try_wait": _wait,
    "pending_count": _pending,
}
