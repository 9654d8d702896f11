"""Reads of registers that nothing wrote: marks kept only for the registers that `definite` could not
clear.
"""

from __future__ import annotations

import numpy as np

from sandbox.device import FaultKind, OnUnwritten
from sandbox.emulator.decode import Op
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Lanes


def mark_written(op: Op, lanes: Lanes) -> None:
    """The op's suspect destinations now hold something in these lanes."""
    for index in op.marks:
        mark = lanes.bank.mark(index)
        if lanes.rows is None:
            if lanes.mask is None:
                mark[:] = True
            else:
                mark |= lanes.mask
        elif lanes.mask is None:
            mark[lanes.rows] = True
        else:
            mark[lanes.rows] |= lanes.mask


def check_defined(op: Op, lanes: Lanes, registers: tuple[int, ...]) -> None:
    """Fault, or note, when an active lane reads one of `registers` unwritten."""
    for index in registers:
        bad = lanes.flat(~lanes.part(lanes.bank.mark(index)))
        if not bad.any():
            continue
        position = int(np.flatnonzero(bad)[0])
        where = lanes.locate(position)
        name = op.shape.register_names[index]
        count = int(np.count_nonzero(bad))
        who = f"{lanes.wave.who(where)}; {several(count, 'thread')} here"
        message = f"{op.name} reads register {name}, which nothing wrote, {who}"
        machine = lanes.wave.machine
        if machine.limits.on_unwritten is OnUnwritten.POISON:
            machine.notice("unwritten_read", message, op.line)
            continue
        raise Stopped(
            FaultKind.UNWRITTEN_READ,
            message,
            op.line,
            where,
            {"space": "reg", "buffer": name, "threads": count},
        )
