"""The wgmma solution without a Hopper GPU: its pipeline and its stores run on the emulator, its index arithmetic against a model.

The emulator has neither wgmma nor tensor copies. So the real kernel runs with a copy replaced by the bytes it credits to its barrier, and
a product by an addition of one to each sum: whatever the barriers, the order of blocks and the stores do wrong shows as another answer, a
deadlock or a fault. What lies where in shared memory is modelled here from the PTX ISA, apart from the generator.
"""

from __future__ import annotations

import re
import runpy
from typing import Any

import numpy as np
import pytest

from sandbox.cuda.device import suiting
from sandbox.device import Buffer, Limits, Order, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from sandbox.ptx.printer import print_module
from tasks.registry import load_task
from tools.assemble import assemble
from tools.disassemble import disassemble
from tools.evaluation import Depth, Evaluation, Verdict
from tools.instrument import instrument
from tools.knockout import knocked_out
from tools.ladder import STAGES, Job, Stage

TASK = "gemm_bf16_wgmma"
FOLDER = load_task(TASK).folder / "solutions"
GENERATOR: dict[str, Any] = runpy.run_path(str(FOLDER / "generate.py"))
TEXT = (FOLDER / "sm_90a.ptx").read_text()
ROWS, COLUMNS, STEP, SLOT = (GENERATOR[name] for name in ("ROWS", "COLUMNS", "STEP", "SLOT"))


def test_the_committed_solution_is_what_its_generator_writes() -> None:
    assert GENERATOR["source"]() == TEXT


def test_it_assembles_without_advice_or_spills_and_so_do_its_counted_and_knocked_out_copies() -> None:
    module = parse_module(read_candidate(TEXT).ptx)
    counted = instrument(module)
    assert counted is not None
    for each in (module, counted.module, knocked_out(module, "wgmma"), knocked_out(module, "tma_load")):
        made = assemble(print_module(each), "sm_90a")
        assert made.assembly.ok
        assert {note.kind for note in made.diagnostics} == {"dynamic_shared"}
        (used,) = made.assembly.resources
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)


def stand_in(text: str) -> str:
    """The kernel as the emulator can run it: pointers for maps, credited bytes for copies, one more in each sum for a product."""
    text = re.sub(r"//! tensor_maps:\n(//!   .*\n)+", "", text)
    text = text.replace("args: map_a, map_b,", "args: a, b,")
    text = re.sub(r"\.param \.align 64 \.b8 (map_\w)\[128\]", r".param .u64 \1", text)
    text = re.sub(r"mov\.b64 (%\w), (map_\w);\n  cvta\.param\.u64 .*", r"ld.param.u64 \1, [\2];", text)
    text = re.sub(r"  prefetch\.tensormap .*\n", "", text)
    credit = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], {};"
    sizes = iter((GENERATOR["A_BYTES"], GENERATOR["B_BYTES"]))
    text, copies = re.subn(r"cp\.async\.bulk\.tensor\.2d.*;", lambda _: credit.format(next(sizes)), text)
    one = "\n".join(f"  add.f32 %s{i}, %s{i}, 0f3F800000;" for i in range(GENERATOR["SUMS"]))
    first, *others = re.findall(r"  wgmma\.mma_async[^;]*;\n", text)
    assert (copies, len(others)) == (2, STEP // 16 - 1)
    text = text.replace(first, one + "\n", 1)
    return re.sub(r"  wgmma\.[^;]*;\n", "", text)


def bfloat16(data: np.ndarray) -> np.ndarray:
    return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(128, 256, 512), (1, 1, 8), (33, 7, 64), (130, 259, 136), (129, 514, 328), (2180, 260, 16)],
)
@pytest.mark.parametrize("order", Order)
def test_pipeline_blocks_and_stores_on_the_emulator(m: int, n: int, k: int, order: Order) -> None:
    text = stand_in(TEXT)
    candidate = read_candidate(text)
    program = Program(parse_module(candidate.ptx, candidate.ptx_first_line), candidate.plan, text, "sm_90a")
    buffers = {
        "a": Buffer("a", np.zeros(2 * m * k, np.uint8)),
        "b": Buffer("b", np.zeros(2 * n * k, np.uint8)),
        "c": Buffer("c", np.full(2 * m * n, 0xFF, np.uint8), defined=False, role="output"),
    }
    done = EmulatorDevice("sm_90a").load(program).run({"m": m, "n": n, "k": k}, buffers, Limits(order=order))
    assert done.fault is None, done.fault
    assert not done.notices
    found = bfloat16(done.buffers["c"]).reshape(m, n)
    assert (found == -(-k // STEP)).all()


# --- where things lie: PTX ISA, "Strides", "Swizzling modes", "Matrix descriptor format", "Register fragments and shared memory layouts"


def swizzled(address: np.ndarray) -> np.ndarray:
    """128-byte swizzle: the 16-byte part of an address (bits 4 to 6) is mixed with the number of its row of 128 bytes (7 to 9)."""
    return address ^ ((address >> 7 & 7) << 4)


def tensor_copy(shared: np.ndarray, at: int, box: np.ndarray) -> None:
    """A box of [rows, 64] 16-bit elements arrives."""
    rows, columns = np.indices(box.shape)
    shared[swizzled(at + 128 * rows + 2 * columns) // 2] = box


def operand(shared: np.ndarray, descriptor: int, rows: int) -> np.ndarray:
    """[rows, 16] as wgmma reads it, K-major."""
    start, stride, mode = (
        (descriptor & 0x3FFF) << 4,
        (descriptor >> 32 & 0x3FFF) << 4,
        descriptor >> 62,
    )
    assert mode == 1, "128-byte swizzle"
    assert descriptor >> 49 & 7 == 0, "base offset"
    row, column = np.indices((rows, 16))
    return shared[swizzled(start + (row // 8) * stride + (row % 8) * 128 + 2 * column) // 2]


def fragment(thread: int, register: int) -> tuple[int, int]:
    """(row, column) of the sum that a register of a thread of a warpgroup holds."""
    warp, lane = divmod(thread, 32)
    return (
        16 * warp + lane // 4 + 8 * (register // 2 % 2),
        8 * (register // 4) + 2 * (lane % 4) + register % 2,
    )


def test_descriptors_read_what_the_copies_wrote() -> None:
    """Every product of a slot, from the numbers in the text: 64 x 16 of A and 256 x 16 of B, in order along k."""
    rng = np.random.default_rng(7)
    tiles = 5 * 1024
    shared = np.zeros(1 << 17, np.uint16)
    a = rng.integers(0, 1 << 16, (ROWS, STEP), np.uint16)
    b = rng.integers(0, 1 << 16, (COLUMNS, STEP), np.uint16)
    slot = tiles + 1 * SLOT
    tensor_copy(shared, slot, a)
    (further,) = re.findall(r"add\.u32 %at, %at, (\d+);", TEXT)
    tensor_copy(shared, slot + int(further), b)
    (same,) = set(re.findall(r"or\.b64 %desc_\w, %desc_\w, (\d+);", TEXT))
    (per_group,) = re.findall(r"mad\.lo\.u32 %u, %u, (\d+), %t;", TEXT)
    (to_b,) = re.findall(r"add\.u32 %t, %t, (\d+);\n  cvt\.u64\.u32 %desc_b", TEXT)
    (per_slot,) = re.findall(r"mul\.wide\.u32 %wide, %slot, (\d+);", TEXT)
    steps = re.findall(r"add\.u64 %d[ab], %d[ab], (\d+);", TEXT)
    assert len(steps) == 2 * (STEP // 16 - 1)
    for group in range(GENERATOR["CONSUMERS"]):
        da = (tiles // 16 + group * int(per_group) | int(same)) + int(per_slot)
        db = (tiles // 16 + int(to_b) | int(same)) + int(per_slot)
        for part in range(STEP // 16):
            if part:
                da, db = da + int(steps[2 * part - 2]), db + int(steps[2 * part - 1])
            along = slice(16 * part, 16 * part + 16)
            assert (operand(shared, da, 64) == a[64 * group : 64 * group + 64, along]).all()
            assert (operand(shared, db, COLUMNS) == b[:, along]).all()


def test_a_slot_ends_inside_of_what_a_descriptor_can_name_and_of_shared_memory() -> None:
    size = GENERATOR["SLOTS"] * SLOT + GENERATOR["SWIZZLE_BYTES"]
    assert size + 1024 <= 232_448 <= 1 << 18
    assert SLOT % GENERATOR["SWIZZLE_BYTES"] == GENERATOR["A_BYTES"] % GENERATOR["SWIZZLE_BYTES"] == 0


@pytest.mark.parametrize("odd", [False, True])
def test_every_sum_is_stored_once_where_its_fragment_says(odd: bool) -> None:
    """The stores of the text, thread by thread, against the fragment of the PTX ISA."""
    even, single = TEXT.split("ODD:")
    pattern = (
        r"cvt\.rn\.bf16\.f32 %h, %s(\d+);\n  setp\.gt\.s32 %p0, %left_(\w+), (\d+);\n  @%p0 st\.global\.b16 \[%(\w+)\+(\d+)\], %h;"
        if odd
        else r"cvt\.rn\.bf16x2\.f32 %w, %s(\d+), %s(\d+);\n  setp\.gt\.s32 %p0, %left_(\w+), (\d+);\n"
        r"  @%p0 st\.global\.b32 \[%(\w+)\+(\d+)\], %w;"
    )
    seen = np.zeros((64, COLUMNS), int)
    for found in re.findall(pattern, single if odd else even):
        *registers, half, guard, base, offset = found
        assert (half, base) in (("up", "up"), ("down", "low"))
        assert int(offset) == 2 * int(guard)
        below = 8 * (base == "low")
        for inner, register in enumerate(
            reversed(registers)
        ):  # the last one goes to the lower half of a word
            for thread in range(128):
                lane = thread % 32
                place = (
                    thread // 32 * 16 + lane // 4 + below,
                    2 * (lane % 4) + int(guard) + inner,
                )
                assert place == fragment(thread, int(register))
                seen[place] += 1
    assert (seen == 1).all()


def test_the_machine_code_multiplies_on_warpgroups_without_local_memory() -> None:
    cubin = assemble(read_candidate(TEXT).ptx, "sm_90a").cubin
    assert cubin is not None
    (code,) = disassemble(cubin).values()
    names = [each.opcode for each in code]
    assert sum(name.startswith("HGMMA.64x256x16.F32.BF16") for name in names) == STEP // 16
    assert not [name for name in names if name.startswith(("LDL", "STL"))]


@pytest.mark.gpu
def test_on_a_gpu_both_targets_bear_the_load() -> None:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")
    found: Evaluation | None = None
    for stage, function in STAGES:
        if stage is Stage.MEASURE or (found is not None and found.stopped_at is not None):
            break
        found = function(Job(TASK, "sm_90a", TEXT, seed=977, device="cuda"), found).evaluation
    assert found is not None
    assert (found.verdict, found.targets_met) == (Verdict.CORRECT, True), found.summary
    targets = {each.family: each for each in found.targets if each.required}
    assert {name: each.depth for name, each in targets.items()} == dict.fromkeys(
        ("wgmma", "tma_load"), Depth.LOAD_BEARING
    )
    assert (targets["wgmma"].share or 0) >= 0.99
