"""The same instructions on a real GPU: a kernel per form, random and special sources, results bit for bit.

`python -m tests.sandbox.semantics.hardware [FILTER…]` prints, for every form, on how many lanes hardware
and the semantics differ and the first few of them. It needs a CUDA driver, cuda-bindings and NumPy, nothing
else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from sandbox.emulator.semantics import TYPES, Array, Lowered
from sandbox.ptx.nodes import Immediate, Operand, Pair, Vector
from tests.sandbox.semantics.support import doubles, instruction, integers, lowered, singles

WARPS = 256
THREADS = WARPS * 32


def _register(name: str) -> str:
    """The .reg type that holds a value of PTX type `name`."""
    if name in ("pred", "f32", "f64"):
        return name
    return f"b{max(16, TYPES[name].width)}"


def _bytes(name: str) -> int:
    return TYPES[name].dtype.itemsize


class Names:
    """Registers of one kernel, handed out in the order of the flat operands."""

    def __init__(self, form: Lowered) -> None:
        carried = 1 if form.carry_in else 0
        self.sources = [f"%s{i}" for i in range(len(form.sources))]
        results = len(form.results)
        self.results = [f"%d{i}" for i in range(results)]
        self._left = iter(
            self.results[: results - form.carry_out] + self.sources[: len(self.sources) - carried]
        )

    def write(self, operand: Operand) -> str:
        if isinstance(operand, Immediate):
            next(self._left)
            return str(operand.value)
        if isinstance(operand, Pair):
            return f"{next(self._left)}|{next(self._left)}"
        if isinstance(operand, Vector):
            return "{" + ", ".join(next(self._left) for _ in operand.elements) + "}"
        return next(self._left)


def kernel(text: str, form: Lowered, arch: str = "sm_90a", version: str = "8.6") -> str:
    """A module whose entry `k` runs the instruction once a thread on sources from memory."""
    node, names = instruction(text), Names(form)
    lines = [f".version {version}", f".target {arch}", ".address_size 64"]
    count = len(form.sources) + len(form.results)
    parameters = ", ".join(f".param .u64 p{i}" for i in range(count))
    lines += [f".visible .entry k({parameters})", "{"]
    lines += [".reg .b32 %t, %n, %u<4>;", ".reg .b64 %a, %o;", ".reg .b16 %h;", ".reg .pred %q;"]
    for register, name in zip(names.sources + names.results, form.sources + form.results, strict=True):
        lines.append(f".reg .{_register(name)} {register};")
    lines += [
        "mov.u32 %t, %ctaid.x;",
        "mov.u32 %n, %ntid.x;",
        "mov.u32 %u0, %tid.x;",
        "mad.lo.u32 %t, %t, %n, %u0;",
    ]

    def address(place: int, name: str) -> list[str]:
        return [
            f"ld.param.u64 %a, [p{place}];",
            f"mul.wide.u32 %o, %t, {_bytes(name)};",
            "add.u64 %a, %a, %o;",
        ]

    for place, (register, name) in enumerate(zip(names.sources, form.sources, strict=True)):
        lines += address(place, name)
        if name == "pred":
            lines += ["ld.global.u8 %h, [%a];", f"setp.ne.b16 {register}, %h, 0;"]
        else:
            kind = "u8" if _bytes(name) == 1 else _register(name)
            lines.append(f"ld.global.{kind} {register}, [%a];")
    subtract = node.opcode in ("sub", "subc")
    if form.carry_in:
        carry = names.sources[-1]
        lines.append(f"sub.cc.u32 %u1, 0, {carry};" if subtract else f"add.cc.u32 %u1, {carry}, 0xffffffff;")
    lines.append(f"{node.name} {', '.join(map(names.write, node.operands))};")
    if form.carry_out:
        out = names.results[-1]
        lines += (
            [f"subc.u32 {out}, 0, 0;", f"and.b32 {out}, {out}, 1;"]
            if subtract
            else [f"addc.u32 {out}, 0, 0;"]
        )
    for place, (register, name) in enumerate(zip(names.results, form.results, strict=True)):
        lines += address(place + len(form.sources), name)
        if name == "pred":
            lines += [f"selp.u16 %h, 1, 0, {register};", "st.global.u8 [%a], %h;"]
        else:
            kind = "u8" if _bytes(name) == 1 else _register(name)
            lines.append(f"st.global.{kind} [%a], {register};")
    return "\n".join([*lines, "ret;", "}", ""])


def values(name: str, seed: int) -> Array:
    """[WARPS, 32] sources of a type: special values crossed by shuffling, then random ones."""
    rng = np.random.default_rng(seed)
    kind = TYPES[name]
    if name == "pred":
        flat = rng.integers(0, 2, THREADS).astype(bool)
    elif name == "f32":
        flat = singles(seed, THREADS)
        flat[: THREADS // 2] = rng.choice(singles(seed, 40), THREADS // 2)
    elif name == "f64":
        flat = doubles(seed, THREADS)
        flat[: THREADS // 2] = rng.choice(doubles(seed, 40), THREADS // 2)
    elif kind.kind in ("unsigned", "signed"):
        numbers = np.array(integers(seed, 400, name), dtype=kind.dtype)
        flat = rng.choice(numbers, THREADS)
        flat[: THREADS // 4] = rng.choice(np.arange(70).astype(kind.dtype), THREADS // 4)
    elif kind.element in ("f16", "bf16") or name in ("f16", "bf16"):
        halves = singles(seed, 2 * THREADS)
        codes = rng.integers(0, 2**16, 2 * THREADS).astype(np.uint16)
        with np.errstate(all="ignore"):
            near = (
                halves.astype(np.float16).view(np.uint16)
                if "bf" not in name
                else (halves.view(np.uint32) >> 16).astype(np.uint16)
            )
        codes = np.where(rng.integers(0, 2, 2 * THREADS) == 0, codes, near)
        flat = codes.view(kind.dtype)[:THREADS]
    else:
        flat = np.frombuffer(rng.bytes(THREADS * _bytes(name)), kind.dtype)
        flat = np.where(rng.integers(0, 4, THREADS) == 0, flat & kind.dtype.type(0x4F), flat)
    return np.ascontiguousarray(flat).reshape(WARPS, 32)


def sources_of(text: str, form: Lowered) -> list[Array]:
    """Sources for a form; those that mean something (masks, counts, matrices) get values that are legal."""
    node = instruction(text)
    arrays = [values(name, 11 + place) for place, name in enumerate(form.sources)]
    flat = [
        operand
        for operand in node.operands[1:]
        for _ in range(len(operand.elements) if isinstance(operand, Vector) else 1)
    ]
    for place, operand in enumerate(flat):
        if isinstance(operand, Immediate):
            arrays[place] = np.full_like(arrays[place], operand.value)
    rng = np.random.default_rng(3)
    if form.carry_in:
        arrays[-1] = rng.integers(0, 2, (WARPS, 32)).astype(np.uint32)
    if "sync" in node.modifiers and node.opcode in ("shfl", "vote", "match", "redux", "elect"):
        arrays[-1] = np.full((WARPS, 32), 0xFFFF_FFFF, np.uint32)
    if node.opcode == "match":
        arrays[0] = rng.integers(0, 3, (WARPS, 32)).astype(arrays[0].dtype) * (np.arange(WARPS) % 5 > 0)[
            :, None
        ].astype(arrays[0].dtype)
    if node.opcode == "shfl":
        width = rng.choice([1, 2, 4, 8, 16, 32], (WARPS, 1))
        arrays[2] = np.broadcast_to(
            (32 - width) << 8 | (0 if "up" in node.modifiers else 31), (WARPS, 32)
        ).astype(np.uint32)
    if node.opcode == "fns":
        arrays[1], arrays[2] = arrays[1] & np.uint32(31), rng.integers(-6, 7, (WARPS, 32)).astype(np.int32)
    if node.opcode in ("div", "rem") and arrays[1].dtype.kind in "iu":
        arrays[1] = np.where(arrays[1] == 0, np.ones_like(arrays[1]), arrays[1])
    if node.opcode == "mma":
        for place, name in enumerate(form.sources):
            arrays[place] = _matrix_noise(node.modifiers, name, rng)
    return arrays


def _matrix_noise(modifiers: tuple[str, ...], name: str, rng: np.random.Generator) -> Array:
    if name in ("f32", "f64"):
        return rng.normal(size=(WARPS, 32)).astype(TYPES[name].dtype)
    if name == "f16x2":
        return rng.normal(size=(WARPS, 64)).astype(np.float16).view(np.uint32)
    if name == "bf16x2":
        return (
            (rng.normal(size=(WARPS, 64)).astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(np.uint32)
        )
    if "tf32" in modifiers:
        return rng.normal(size=(WARPS, 32)).astype(np.float32).view(np.uint32)
    if "e4m3" in modifiers or "e5m2" in modifiers:
        return (
            (rng.integers(0x20, 0x44, (WARPS, 128)) | rng.integers(0, 2, (WARPS, 128)) << 7)
            .astype(np.uint8)
            .view(np.uint32)
        )
    return np.frombuffer(rng.bytes(THREADS * 4), TYPES[name].dtype).reshape(WARPS, 32)


class Gpu:
    """The first CUDA device, through the driver interface."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cuda = driver
        self._do(driver.cuInit(0))
        device = self._do(driver.cuDeviceGet(0))
        self._do(driver.cuCtxSetCurrent(self._do(driver.cuDevicePrimaryCtxRetain(device))))

    def _do(self, answer: tuple) -> object:
        if int(answer[0]) != 0:
            raise RuntimeError(str(answer[0]))
        return answer[1] if len(answer) == 2 else None

    def run(self, ptx: str, form: Lowered, sources: list[Array]) -> list[Array]:
        """Results of the entry `k` over all threads."""
        cuda = self.cuda
        module = self._do(cuda.cuModuleLoadData(ptx.encode() + b"\0"))
        function = self._do(cuda.cuModuleGetFunction(module, b"k"))
        results = [np.zeros((WARPS, 32), TYPES[name].dtype) for name in form.results]
        pointers = []
        for array in (*sources, *results):
            array = np.ascontiguousarray(array)
            pointer = self._do(cuda.cuMemAlloc(array.nbytes))
            self._do(cuda.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
            pointers.append(pointer)
        packed = np.array([int(pointer) for pointer in pointers], np.uint64)
        arguments = np.array([packed.ctypes.data + 8 * i for i in range(len(pointers))], np.uint64)
        self._do(cuda.cuLaunchKernel(function, WARPS // 4, 1, 1, 128, 1, 1, 0, 0, arguments.ctypes.data, 0))
        self._do(cuda.cuCtxSynchronize())
        for pointer, result in zip(pointers[len(sources) :], results, strict=True):
            self._do(cuda.cuMemcpyDtoH(result.ctypes.data, pointer, result.nbytes))
        for pointer in pointers:
            self._do(cuda.cuMemFree(pointer))
        self._do(cuda.cuModuleUnload(module))
        return results


def _show(name: str, value: object) -> str:
    bits = (
        np.asarray(value).view(np.dtype(f"u{TYPES[name].dtype.itemsize}"))
        if name != "pred"
        else np.asarray(value)
    )
    return f"{int(bits):#x}" + (f"({value})" if TYPES[name].dtype.kind == "f" else "")


def differences(
    form: Lowered, found: list[Array], wanted: list[Array], sources: list[Array]
) -> Iterator[str]:
    """One line for each result that differs; the bits are compared, NaN payloads too."""
    for place, name in enumerate(form.results):
        mine = np.ascontiguousarray(np.broadcast_to(found[place], (WARPS, 32)))
        theirs = wanted[place]
        word = np.dtype(f"u{TYPES[name].dtype.itemsize}")
        unlike = mine.view(word) != theirs.view(word)
        count = int(unlike.sum())
        if not count:
            continue
        note = ""
        if TYPES[name].dtype.kind == "f":
            both = np.isnan(mine) & np.isnan(theirs)
            payloads = int((unlike & both).sum())
            with np.errstate(all="ignore"):
                gap = np.abs(mine.astype(np.float64) - theirs) / np.spacing(np.abs(theirs)).astype(np.float64)
            worst = float(np.nanmax(np.where(unlike & np.isfinite(gap), gap, 0)))
            note = f", {payloads} of them NaN payloads, finite ones at most {worst:.3g} ULP apart"
            unlike = unlike & ~both if count > payloads else unlike
        yield f"  result {place} ({name}): {count} of {unlike.size} lanes differ{note}"
        for warp, lane in list(zip(*np.nonzero(unlike), strict=True))[:4]:
            given = ", ".join(
                _show(kind, source[warp, lane]) for kind, source in zip(form.sources, sources, strict=True)
            )
            here, there = _show(name, mine[warp, lane]), _show(name, theirs[warp, lane])
            yield f"    {given[:160]} -> here {here}, hardware {there}"


def compare(gpu: Gpu, text: str) -> list[str]:
    """Lines that say where the semantics of a form and the GPU differ; empty when nowhere."""
    form = lowered(text)
    sources = sources_of(text, form)
    wanted = gpu.run(kernel(text, form), form, sources)
    lanes = np.ones((WARPS, 32), bool)
    found = list(form.fn(lanes, *sources) if form.scope == "warp" else form.fn(*sources))
    return list(differences(form, found, wanted, sources))


def main(filters: list[str]) -> None:
    """Compare every form, or those that start with one of the filters."""
    from tests.sandbox.semantics.forms import HOPPER

    gpu, same = Gpu(), 0
    for text in HOPPER:
        if filters and not text.startswith(tuple(filters)):
            continue
        try:
            lines = compare(gpu, text)
        except RuntimeError as error:
            lines = [f"  {error}"]
        same += not lines
        if lines:
            print("\n".join([text, *lines]), flush=True)
    print(f"{same} of {len(HOPPER)} forms agree bit for bit")


if __name__ == "__main__":
    main(sys.argv[1:])
