"""Which registers may be read before anything was written to them: definite assignment over a function's
control-flow graph.

A guarded instruction does not surely write. A register is suspect at a read that some path reaches without a
sure write; suspect registers get run-time marks wherever they are written, so a false alarm costs a little
time and never an answer.
"""

from __future__ import annotations

from typing import Any

from sandbox.emulator.names import FrameShape, Slot

_ENDS = frozenset({5, 6})  # RETURN and EXIT of sandbox.emulator.decode, which imports this module


def analyse(ops: list[Any], shape: FrameShape) -> None:
    """Set `checks` and `marks` of a function's ops."""
    first, end = shape.first_pc, shape.end_pc
    if first == end:
        return
    starts = {first}
    for pc in range(first, end):
        op = ops[pc]
        if op.kind in (1, 7):
            starts.update(target for target in targets(op) if first <= target < end)
        if op.kind in (1, 5, 6, 7) and pc + 1 < end:
            starts.add(pc + 1)
    order = sorted(starts)
    ends = dict(zip(order, [*order[1:], end], strict=True))
    everything = (1 << len(shape.bits)) - 1
    formals = 0
    for formal in (*shape.params, *shape.results):
        for register in formal if isinstance(formal, tuple) else (formal,):
            if isinstance(register, Slot):
                formals |= 1 << register.index
    sure: dict[int, int] = {}
    gains: dict[int, int] = {}
    for start in order:
        gain = 0
        for pc in range(start, ends[start]):
            if ops[pc].guard < 0:
                for index in ops[pc].writes:
                    gain |= 1 << index
        gains[start] = gain
    sure[first] = formals
    work = [first]
    while work:
        start = work.pop()
        out = sure[start] | gains[start]
        last = ops[ends[start] - 1]
        after: list[int] = []
        if last.kind in (1, 7):
            after.extend(targets(last))
        if not (last.kind in (1, *_ENDS, 7) and last.guard < 0):
            after.append(ends[start])
        for each in after:
            if not first <= each < end:
                continue
            old = sure.get(each)
            new = out if old is None else old & out
            if new != old:
                sure[each] = new
                work.append(each)
    suspects: set[int] = set()
    for start in order:
        known = sure.get(start, everything)
        for pc in range(start, ends[start]):
            op = ops[pc]
            missing = tuple({index for index in op.reads if not known >> index & 1})
            if missing:
                op.checks = missing
                suspects.update(missing)
            if op.guard < 0:
                for index in op.writes:
                    known |= 1 << index
    if suspects:
        for pc in range(first, end):
            ops[pc].marks = tuple({index for index in ops[pc].writes if index in suspects})


def targets(op: Any) -> tuple[int, ...]:
    """Where a branch may go besides the next instruction."""
    return op.detail.targets if op.kind == 7 else (op.target,)
