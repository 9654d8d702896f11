"""Functions the system gives to a kernel: `vprintf` and `__assertfail`; others are not for this machine.

Source: CUDA C++ Programming Guide, "Formatted Output", "Assertion"; PTX Writer's Guide to Interoperability,
"System Calls".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from sandbox.device import FaultKind
from sandbox.emulator.access import load
from sandbox.emulator.decode import Op
from sandbox.emulator.faults import Stopped, several
from sandbox.emulator.lanes import Array, Lanes
from tasks.errors import CannotJudge

External: TypeAlias = Callable[[Lanes, Op, list[Array]], "Array | None"]
TEXT_LIMIT = 4096
_FORMAT = re.compile(rb"%([-+ #0]*)(\d*|\*)(\.\d*)?(hh|h|ll|l|z|j|t)?([diouxXeEfFgGaAcsp%])")


def _text(lanes: Lanes, op: Op, address: int) -> bytes:
    """The zero-terminated string at a generic address, as the one thread of `lanes` sees it."""
    out = bytearray()
    while len(out) < TEXT_LIMIT:
        byte = int(load("generic", lanes, np.array([address + len(out)], np.uint64), 1, 1, op.site)[0][0])
        if not byte:
            break
        out.append(byte)
    return bytes(out)


def _single(lanes: Lanes, position: int) -> Lanes:
    warp, lane = lanes.locate(position)
    mask = np.zeros((1, 32), np.bool_)
    mask[0, lane] = True
    return Lanes(lanes.wave, lanes.frame, np.array([warp]), mask)


def _vprintf(lanes: Lanes, op: Op, arguments: list[Array]) -> Array:
    """int vprintf(const char *format, const void *arguments); arguments lie packed at their natural
    alignment.
    """
    machine = lanes.wave.machine
    formats: dict[int, bytes] = {}
    for position in range(lanes.n):
        if machine.stdout_full():
            machine.stdout_dropped += 1
            continue
        one = _single(lanes, position)
        address = int(arguments[0][position])
        text = formats.get(address)
        if text is None:
            text = formats[address] = _text(one, op, address)
        machine.print_bytes(_format(text, int(arguments[1][position]), one, op))
    return np.ones(lanes.n, np.uint32)


def _format(text: bytes, base: int, one: Lanes, op: Op) -> bytes:
    at = 0

    def fetch(size: int) -> bytes:
        nonlocal at
        at = -(-at // size) * size
        raw = load("generic", one, np.array([base + at], np.uint64), size, 1, op.site)[0]
        at += size
        return raw.tobytes()

    def replace(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, kind = match.groups()
        if kind == b"%":
            return b"%"
        if width == b"*":
            width = str(struct.unpack("<i", fetch(4))[0]).encode()
        width = str(min(int(width or 0), 256)).encode() if width else b""
        precision = b"." + str(min(int(precision[1:] or 0), 256)).encode() if precision else b""
        spec = b"%" + flags + width + precision
        if kind in b"eEfFgGaA":
            value = struct.unpack("<d", fetch(8))[0]
            return value.hex().encode() if kind in b"aA" else (spec + kind) % value
        if kind == b"s":
            return (spec + b"s") % _text(one, op, struct.unpack("<Q", fetch(8))[0])
        if kind == b"c":
            return (b"%" + flags + width + b"c") % (fetch(4)[0],)
        if kind == b"p":
            return b"0x%x" % struct.unpack("<Q", fetch(8))[0]
        wide = length in (b"ll", b"l", b"z", b"j", b"t")
        signed = kind in b"di"
        value = int.from_bytes(fetch(8 if wide else 4), "little", signed=signed)
        return (spec + (b"d" if kind in b"diu" else kind)) % value

    return _FORMAT.sub(replace, text)


def _assertfail(lanes: Lanes, op: Op, arguments: list[Array]) -> None:
    """void __assertfail(const void *message, const void *file, uint32 line, const void *function, size_t
    charSize).
    """
    one = _single(lanes, 0)
    message = _text(one, op, int(arguments[0][0])).decode("utf-8", "replace") if arguments else ""
    raise Stopped(
        FaultKind.ASSERT,
        f"assertion `{message}` failed, {lanes.wave.who(lanes.locate(0))}; {several(lanes.n, 'thread')} here",
        op.line,
        lanes.locate(0),
        {"threads": lanes.n},
    )


def _heap(lanes: Lanes, op: Op, arguments: list[Array]) -> Array:
    raise CannotJudge(
        f"line {op.line}: the emulator has no device heap (malloc, free); this candidate needs a real GPU"
    )


EXTERNS: Mapping[str, External] = {
    "vprintf": _vprintf,
    "__assertfail": _assertfail,
    "malloc": _heap,
    "free": _heap,
}
"""By the name a module declares."""
