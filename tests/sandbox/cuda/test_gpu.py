"""Launch attributes, im2col maps and module variables on a real GPU. Needs an H100 or H200; the kernels are assembled everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sandbox.cuda.bound import to_work
from sandbox.cuda.device import CudaDevice, suiting
from sandbox.cuda.wire import BufferSpec, Source
from sandbox.device import Buffer, Device, FaultKind, Limits, Outcome, Program
from sandbox.emulator.device import EmulatorDevice
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import parse_plan
from tasks.errors import LaunchRefused
from tools.assemble import assemble

LIMITS = Limits(launch_seconds=2.0, seconds=20.0)
THREADS = 1024
WIDE, HIGH, CHANNELS = 8, 4, 4

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
BARRIER = (
    HEAD
    + """.visible .entry meet(.param .u64 out, .param .u64 count)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [count];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
  setp.ne.u32 %p, %r1, 0; @%p bra DONE;
  atom.global.add.u32 %r4, [%rd2], 1;
WAIT:
  ld.volatile.global.u32 %r4, [%rd2]; setp.lt.u32 %p, %r4, %r3; @%p bra WAIT;
  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3; st.global.u32 [%rd3], %r4;
DONE:
  ret;
}
"""
)
"""Blocks that wait for all others of the grid: they end only where all are resident at once."""
RANKS = (
    HEAD
    + """.visible .entry ranks(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;
  mad.lo.u32 %r2, %r3, 100, %r2;
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r2;
  ret;
}
"""
)
CALLS = (
    HEAD
    + """.global .align 4 .u32 calls = 41;
.visible .entry call(.param .u64 out)
{
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  atom.global.add.u32 %r1, [calls], 1; st.global.u32 [%rd1], %r1;
  ret;
}
"""
)
"""A variable that is not .visible."""
PIXELS = (
    HEAD
    + f""".visible .entry pixels(.param .align 64 .b8 image[128], .param .u64 out)
{{
  .reg .pred %p; .reg .b16 %h<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<2>;
  .shared .align 128 .b8 tile[{WIDE * HIGH * CHANNELS * 4}];
  .shared .align 8 .b64 bar;
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar; mov.b64 %rd1, image;
  setp.ne.u32 %p, %r1, 0; @%p bra WAIT;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%r3], {WIDE * HIGH * CHANNELS * 4};
  mov.u32 %r4, 0; mov.u32 %r5, -1; mov.b16 %h0, 0;
  cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
    [%r2], [%rd1, {{%r4, %r5, %r4, %r4}}], [%r3], {{%h0, %h0}};
WAIT:
  bar.sync 0;
TRY:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%r3], 0; @!%p bra TRY;
  ld.param.u64 %rd2, [out];
  shl.b32 %r6, %r1, 2; add.u32 %r7, %r2, %r6; ld.shared.f32 %f1, [%r7];
  cvt.u64.u32 %rd3, %r6; add.u64 %rd2, %rd2, %rd3; st.global.f32 [%rd2], %f1;
  ret;
}}
"""
)
"""One im2col copy of all pixels, from the lower corner (-1, 0) on."""

IM2COL = (
    f"launch: {{entry: pixels, grid: 1, block: {WIDE * HIGH * CHANNELS}, args: 'map, out'}}\n"
    f"tensor_maps: {{map: {{tensor: image, mode: im2col, box: '{CHANNELS}, {WIDE * HIGH}', "
    "lower: '-1, 0', upper: '-1, 0'}}\n"
)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[CudaDevice]:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")
    made = CudaDevice(suiting("sm_90a")[:1], state=tmp_path)
    yield made
    made.close()


def program(text: str, plan: str) -> Program:
    made = assemble(text, "sm_90a")
    assert made.cubin is not None, made.diagnostics
    return Program(parse_module(text), parse_plan(plan), text, "sm_90a", made.cubin)


def run(
    device: Device, text: str, plan: str, size: int, limits: Limits = LIMITS, **inputs: Buffer
) -> Outcome:
    session = device.load(program(text, plan))
    try:
        output = Buffer("out", np.full(size, 0xFF, np.uint8), False, "output")
        return session.run({}, {"out": output, **inputs}, limits)
    finally:
        session.close()


def cooperative(blocks: int) -> str:
    return (
        f"launch: {{entry: meet, grid: {blocks}, block: {THREADS}, args: 'out, count', cooperative: yes}}\n"
        "scratch: {count: {bytes: 4, init: zero}}\n"
    )


def meeting(device: Device, blocks: int) -> None:
    outcome = run(device, BARRIER, cooperative(blocks), 4 * blocks)
    assert outcome.fault is None, outcome.fault
    assert (outcome.buffers["out"].view(np.uint32) == blocks).all()


@pytest.mark.parametrize("text", [BARRIER, RANKS, CALLS, PIXELS], ids=["barrier", "ranks", "calls", "pixels"])
def test_the_kernels_assemble(text: str) -> None:
    assert assemble(text, "sm_90a").cubin


def test_the_worker_is_told_of_cooperative_launches_and_corners() -> None:
    specs = {
        name: BufferSpec(name, 512, Source(fill=0), "input", dtype="f32", shape=(1, HIGH, WIDE, CHANNELS))
        for name in ("image", "out")
    }
    (view,) = to_work(program(PIXELS, IM2COL), 1, {}, specs).maps
    assert (view.box, view.lower, view.upper) == ((CHANNELS, WIDE * HIGH), (-1, 0), (-1, 0))
    together = program(BARRIER, cooperative(3))
    alone = program(BARRIER, cooperative(3).replace("yes", "no"))
    assert [to_work(each, 1, {}, specs).launches[0].cooperative for each in (together, alone)] == [
        True,
        False,
    ]


def test_on_the_emulator_a_cooperative_grid_meets_or_is_refused() -> None:
    meeting(EmulatorDevice(), 132)
    with pytest.raises(LaunchRefused, match="must be resident at once"):
        run(EmulatorDevice(), BARRIER, cooperative(2000), 8000)


@pytest.mark.gpu
def test_a_cooperative_grid_meets_or_is_refused(device: CudaDevice) -> None:
    blocks = device.slot.gpu.multiprocessors
    meeting(device, blocks)
    worker = device.slot.pid
    with pytest.raises(LaunchRefused, match="must be resident at once"):
        run(device, BARRIER, cooperative(blocks * 8), 32 * blocks)
    meeting(device, blocks)
    assert device.slot.pid == worker


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_clusters_have_the_size_asked_for(device: CudaDevice, size: int) -> None:
    plan = f"launch: {{entry: ranks, grid: 32, block: 32, cluster: {size}, args: out}}\n"
    outcome = run(device, RANKS, plan, 128)
    assert outcome.fault is None, outcome.fault
    assert outcome.buffers["out"].view(np.uint32).tolist() == [100 * size + rank % size for rank in range(32)]


@pytest.mark.gpu
def test_variables_that_are_not_visible_are_found(device: CudaDevice) -> None:
    session = device.load(program(CALLS, "launch: {entry: call, grid: 1, block: 1, args: out}\n"))
    limits = Limits(launch_seconds=2.0, variables=("calls",))
    for expected in (42, 43):
        output = Buffer("out", np.zeros(4, np.uint8), False, "output")
        outcome = session.run({}, {"out": output}, limits)
        assert outcome.fault is None, outcome.fault
        assert outcome.variables["calls"].view(np.uint32).tolist() == [expected]


@pytest.mark.gpu
def test_an_im2col_copy_brings_the_pixels_between_its_corners(device: CudaDevice) -> None:
    image = np.arange(1, 1 + HIGH * WIDE * CHANNELS, dtype=np.float32).reshape(1, HIGH, WIDE, CHANNELS)
    given = Buffer("image", image.view(np.uint8).ravel(), dtype="f32", shape=image.shape)
    outcome = run(device, PIXELS, IM2COL, image.nbytes, image=given)
    assert outcome.fault is None, outcome.fault
    moved = np.zeros_like(image)
    moved[:, :, 1:] = image[:, :, :-1]  # one column to the right, zeros where the box leaves the image
    assert np.array_equal(outcome.buffers["out"].view(np.float32), moved.ravel())


@pytest.mark.gpu
def test_a_grid_that_only_hopes_to_be_resident_hangs_and_the_next_one_is_right(device: CudaDevice) -> None:
    blocks = device.slot.gpu.multiprocessors
    plan = cooperative(blocks * 8).replace(", cooperative: yes", "")
    outcome = run(device, BARRIER, plan, 32 * blocks, Limits(launch_seconds=0.5))
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.TIMEOUT
    meeting(device, blocks)
