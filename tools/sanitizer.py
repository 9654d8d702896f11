"""A second opinion on a fault from NVIDIA's compute-sanitizer, where it is on the PATH: who touched which address.

It adds to what is told of a fault and never to a verdict. The candidate runs once more, on one workload, in a process of its own under
the tool's memcheck; what is read back is the tool's XML (`--xml`), field by field, never its prose. Time, file sizes and the process
group are bounded; whatever goes wrong, there is simply no opinion.

Source: Compute Sanitizer user manual, "Command Line Options" (`--tool`, `--save`, `--xml`, `--print-limit`).
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.cuda import service
from sandbox.cuda.wire import Load, Run, Work
from tasks.errors import InfraError
from tools.child import ChildLimits, run_limited

TOOL = "compute-sanitizer"
MOST_BYTES = 1 << 20
"""Of a report that is read."""
ADDRESS_SPACE = 1 << 46
"""A GPU driver maps far more than it uses."""
CARRIED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Environment variables that say which GPU a number means."""

Point = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Opinion:
    """The first error of a report; None for what it does not say."""

    text: str
    """In one phrase, as made from the fields."""
    block: Point | None = None
    thread: Point | None = None
    address: int | None = None
    size: int | None = None
    space: str | None = None


def asked(
    cubin: bytes, entries: tuple[str, ...], work: Work, *, gpu: int, driver: str, seconds: float
) -> Opinion | None:
    """What the tool says of one run; None when it is not there, is late, or has nothing to say."""
    tool = shutil.which(TOOL)
    if tool is None or seconds <= 0:
        return None
    with tempfile.TemporaryDirectory(prefix="ptxmend-sanitizer-") as name:
        folder = Path(name)
        report, order = folder / "report.xml", folder / "order"
        order.write_bytes(
            pickle.dumps((Load(cubin, entries), Run(work, launch_seconds=seconds), gpu, driver))
        )
        carried = {key: os.environ[key] for key in CARRIED if key in os.environ}
        paths = [os.path.abspath(each) for each in sys.path]  # the child works in another folder
        code = (
            f"import os, sys; sys.path[:] = {paths!r}; os.environ.update({carried!r}); "
            "from tools.sanitizer import main; main(sys.argv[1])"
        )
        options = ("--tool", "memcheck", "--print-limit", "1", "--save", str(report), "--xml=yes")
        argv = (tool, *options, sys.executable, "-c", code, str(order))
        try:
            run_limited(argv, folder, ChildLimits(seconds=seconds, memory_bytes=ADDRESS_SPACE))
        except InfraError:
            return None
        return read(report)


def main(order: str) -> None:
    """In the child: run what was ordered, once."""
    load, run, gpu, driver = pickle.loads(Path(order).read_bytes())  # noqa: S301 - from our own parent
    service.start(gpu, driver)
    module = service.load(load).handle
    service.run(replace(run, work=replace(run.work, module=module)))


def read(report: Path) -> Opinion | None:
    """The first error with a place in a report."""
    try:
        with report.open("rb") as file:
            root = ET.fromstring(file.read(MOST_BYTES))  # noqa: S314 - written by the tool, which runs no code of the candidate's
    except (OSError, ET.ParseError):
        return None
    for record in root.iter("record"):
        what = record.find("what")
        if what is not None and _word(record, "level") in ("", "Error") and record.find("who") is not None:
            return _opinion(record, what)
    return None


def _opinion(record: ET.Element, what: ET.Element) -> Opinion:
    thread, block = _point(record.find("who/threadIdx")), _point(record.find("who/blockIdx"))
    address, size, space = _number(what, "address"), _number(what, "size"), _word(what, "space") or None
    words = [_word(what, "direction").lower() or "an access"]
    if size is not None:
        words.append(f"of {size} bytes")
    if space is not None:
        words.append(f"in {space.lower()} memory")
    if address is not None:
        words.append(f"at address 0x{address:x}")
    if thread is not None and block is not None:
        words.append(f"by thread {thread} of block {block}")
    if entry := _word(record, "where/func"):
        words.append(f"in {entry}")
    return Opinion(" ".join(words), block, thread, address, size, space)


def _word(element: ET.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()[:200]


def _number(element: ET.Element, path: str) -> int | None:
    try:
        return int(_word(element, path), 0)
    except ValueError:
        return None


def _point(element: ET.Element | None) -> Point | None:
    if element is None:
        return None
    x, y, z = (_number(element, axis) for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)
