"""Plans meet modules: what is bound, what contradicts, what no device would take."""

import pytest

from sandbox.ptx.binding import (
    BoundLaunch,
    BoundTensorMap,
    PointerArg,
    ScalarArg,
    TensorInfo,
    TensorMapArg,
    bind,
    scratch_bytes,
)
from sandbox.ptx.parser import parse_module
from sandbox.ptx.plan import PlanError, parse_plan
from tasks.errors import LaunchRefused
from tests.sandbox.ptx.samples import HEAD

TENSORS = {
    "x": TensorInfo("f32", (1000,)),
    "A": TensorInfo("bf16", (256, 128)),
    "image": TensorInfo("f16", (2, 8, 16, 64)),
}
"""`image`: N, H, W, C."""
AXES = {"n": 1000, "big": 2**31, "neg": -1, "zero": 0}
PARAMS = ".param .u64 x, .param .u32 n"


def launch(
    params: str = PARAMS,
    args: str = "x, n",
    *,
    tuning: str = "",
    body: str = "ret;",
    top: str = "",
    rest: str = "",
    **extent: str,
) -> tuple[BoundLaunch, ...]:
    module = parse_module(f"{HEAD}{top}\n.visible .entry k({params}) {tuning} {{ {body} }}")
    values = {"entry": "k", "grid": "cdiv(n, 256)", "block": "256", "args": args, **extent}
    text = "launch:\n  - " + "\n    ".join(f"{key}: {value}" for key, value in values.items()) + "\n" + rest
    return bind(parse_plan(text), module, axes=AXES, tensors=TENSORS)


def test_a_launch_is_bound() -> None:
    (found,) = launch(cluster="2", dynamic_smem="n * 4")
    assert (found.grid, found.block, found.cluster, found.dynamic_smem) == (
        (4, 1, 1),
        (256, 1, 1),
        (2, 1, 1),
        4000,
    )
    assert found.args == (PointerArg("x", 0, 8), ScalarArg(1000, "u32", 8, 4))


def test_a_launch_is_cooperative_when_it_says_so() -> None:
    assert [launch(cooperative=said)[0].cooperative for said in ("yes", "no")] == [True, False]
    assert not launch()[0].cooperative


def image(spec: str) -> BoundTensorMap:
    (found,) = launch(
        ".param .align 64 .b8 m[128]",
        "map",
        rest=f"tensor_maps:\n  map: {{tensor: image, {spec}}}\n",
    )
    (argument,) = found.args
    assert isinstance(argument, TensorMapArg)
    return argument.map


def test_an_im2col_map_has_corners_and_counts_pixels() -> None:
    found = image("mode: im2col, box: '32, n + 24', lower: '-1, neg * 2', upper: '1, 0', swizzle: 64B")
    assert (found.dims, found.strides) == ((64, 16, 8, 2), (128, 2048, 16384))
    assert (found.box, found.lower, found.upper) == ((32, 1024), (-1, -2), (1, 0))
    assert image(
        "mode: im2col, box: '8, 1', lower: '127, 0', upper: '-128, -7', dims: '64, 256, 8, 1', strides: '16, 16, 16'"
    ).lower == (127, 0)
    tiled = image("box: '64, 1, 1, 1'")
    assert (tiled.lower, tiled.upper) == ((), ())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("box: '64, 1, 1, 1', lower: '0, 0'", "none for a tiled map"),
        ("mode: im2col, box: '64, 1, 1, 1', lower: '0, 0', upper: '0, 0'", "channels per pixel and pixels per column"),
        ("mode: im2col, box: '257, 1', lower: '0, 0', upper: '0, 0'", "channels.*1 to 256"),
        ("mode: im2col, box: '64, 1025', lower: '0, 0', upper: '0, 0'", "pixels.*1 to 1024"),
        ("mode: im2col, box: '64, 1', upper: '0, 0'", "lower: expected 2 values"),
        ("mode: im2col, box: '64, 1', lower: '0, 0', upper: 0", "upper: expected 2 values"),
        ("mode: im2col, box: '64, 1', lower: '-129, 0', upper: '0, 0'", "lower: expected -128 to 127"),
        ("mode: im2col, box: '64, 1', lower: '0, 0', upper: '0, 128'", "upper: expected -128 to 127"),
        ("mode: im2col, box: '64, 1', lower: '0, 0', upper: '-16, 0'", r"1 pixel or more in W; found 16 \+ -16 - 0 = 0"),
        ("mode: im2col, box: '64, 1', lower: '0, 4', upper: '0, -4'", "1 pixel or more in H"),
        ("mode: im2col, box: '64, 1', dims: '64, 16', lower: 0, upper: 0", "3 to 5 dimensions.*found 2"),
        ("mode: im2col, box: '64, 1', lower: '0, 0', upper: '0, 0', swizzle: 64B", "at most 64 bytes; found 128"),
    ],
)  # fmt: skip
def test_im2col_maps_are_held_to_the_rules(spec: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        image(spec)


@pytest.mark.parametrize(("rank", "bound"), [(3, 32768), (4, 128), (5, 16)])
def test_a_corner_is_bounded_by_the_rank(rank: int, bound: int) -> None:
    def corner(low: int) -> BoundTensorMap:
        dims, strides = ["8", "1", "1", "1", "1"][:rank], ["16"] * (rank - 1)
        lower, upper = [low] * (rank - 2), [max(low, 0)] * (rank - 2)
        lists = {"dims": dims, "strides": strides, "lower": lower, "upper": upper}
        text = ", ".join(f"{key}: '{', '.join(map(str, value))}'" for key, value in lists.items())
        return image(f"mode: im2col, box: '8, 1', {text}")

    assert corner(-bound).lower == (-bound,) * (rank - 2)
    assert corner(bound - 1).upper == (bound - 1,) * (rank - 2)
    for low in (-bound - 1, bound):
        with pytest.raises(PlanError, match=f"expected -{bound} to {bound - 1}"):
            corner(low)


def test_every_kind_of_argument_finds_its_place() -> None:
    (found,) = launch(
        ".param .u8 a, .param .u64 .ptr .global b, .param .f32 c, .param .f64 d, .param .align 64 .b8 m[128], .param .u64 p, "
        ".param .b32 e, .param .s16 f, .param .f32 g, .param .u64 s",
        "n % 7, x, 1.5, -2.5e3, map, map, 0.5, -3, 2, tmp",
        rest="tensor_maps:\n  map: {tensor: A, box: '64, 8', swizzle: 128B}\nscratch:\n  tmp: {bytes: 4 * n}\n",
    )
    assert [(each.offset, each.size) for each in found.args] == [
        (0, 1), (8, 8), (16, 4), (24, 8), (64, 128), (192, 8), (200, 4), (204, 2), (208, 4), (216, 8),
    ]  # fmt: skip
    scalars = [(each.value, each.type) for each in found.args if isinstance(each, ScalarArg)]
    assert scalars == [(6, "u8"), (1.5, "f32"), (-2500.0, "f64"), (0.5, "f32"), (-3, "s16"), (2.0, "f32")]
    maps = [each for each in found.args if isinstance(each, TensorMapArg)]
    assert [each.by_value for each in maps] == [True, False]
    assert (maps[0].map.dims, maps[0].map.strides, maps[0].map.box) == ((128, 256), (256,), (64, 8))
    assert (maps[0].map.dtype, maps[0].map.element_bytes, maps[0].map.swizzle) == ("bf16", 2, "128B")
    assert found.args[-1] == PointerArg("tmp", 216, 8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entry": "other"}, r"\.entry of the module \(k\)"),
        ({"args": "x"}, r"expected 2 args .*\.u64 x, \.u32 n.*found 1 \(x\)"),
        ({"args": "x, x"}, "8-byte pointer"),
        ({"args": "x, zz"}, "expected a tensor"),
        ({"args": "x, 1.5"}, "float literal needs"),
        ({"args": "x, neg"}, "expected 0 to 4294967295"),
        ({"args": "x, 4294967296"}, "expected 0 to 4294967295"),
        ({"params": ".param .u64 .ptr x, .param .u32 n", "args": "5, n"}, r"\.ptr"),
        ({"params": ".param .u32 x, .param .u32 n"}, "8-byte pointer"),
        ({"params": ".param .u64 x, .param .f32 n"}, r"needs \.u32"),
        ({"params": ".param .u64 x, .param .b8 n[4]"}, "scalar parameter"),
        ({"grid": "zero"}, "1 or more"),
        ({"block": "neg"}, "1 or more"),
        ({"block": "m"}, "axis"),
        ({"cluster": "0"}, "1 or more"),
        ({"dynamic_smem": "neg"}, "0 bytes or more"),
        ({"rest": "scratch:\n  x: {bytes: 4}\n"}, "name of its own"),
        ({"rest": "scratch:\n  t: {bytes: zero}\n"}, "1 byte or more"),
        ({"rest": "scratch:\n  t: {bytes: big * 3}\n"}, "at most 4294967296"),
    ],
)  # fmt: skip
def test_contradictions_are_plan_errors(changes: dict[str, str], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        launch(**changes)


def test_a_func_cannot_be_launched() -> None:
    with pytest.raises(PlanError, match="cannot be launched"):
        launch(top=".func f() { ret; }", entry="f")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block": "1025"}, "1024"),
        ({"block": "32, 33"}, "1024 threads"),
        ({"block": "1, 1, 65"}, "64 in z"),
        ({"grid": "big"}, "in x"),
        ({"grid": "1, 65536"}, "in y"),
        ({"grid": "2147483647, 100", "block": "1024"}, "threads in all launches"),
        ({"tuning": ".reqntid 128"}, r"\.reqntid"),
        ({"tuning": ".maxntid 16, 8"}, r"\.maxntid allows 128"),
        ({"cluster": "4, 4, 2", "grid": "4, 4, 2"}, "16 blocks"),
        ({"cluster": "3"}, "multiple of the cluster"),
        ({"tuning": ".reqnctapercluster 4", "cluster": "2"}, r"\.reqnctapercluster"),
        ({"tuning": ".maxclusterrank 2", "cluster": "4"}, r"\.maxclusterrank"),
        ({"dynamic_smem": "232449"}, "232448"),
        ({"dynamic_smem": "232448", "body": ".shared .b32 s; ret;"}, "4 static"),
        ({"dynamic_smem": "232448", "top": ".shared .b32 s;", "body": ".reg .b32 r; ld.shared.b32 r, [s];"}, "4 static"),
        ({"body": ".local .b8 l[524288]; ret;"}, "524272"),
        ({"body": ".local .b8 l[500000]; ret;"}, "resident"),
    ],
)  # fmt: skip
def test_what_no_device_takes_is_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(LaunchRefused, match=words):
        launch(**changes)


def test_limits_themselves_are_allowed() -> None:
    launch(block="32, 32", tuning=".maxntid 1024", dynamic_smem="232448", cluster="4, 4", grid="4, 4")
    launch(dynamic_smem="232448", top=".shared .b32 unused;")
    (found,) = launch(tuning=".reqntid 256 .reqnctapercluster 2")
    assert found.cluster == (2, 1, 1)


def test_scratch_is_measured() -> None:
    text = "launch: [{entry: k, grid: 1, block: 1}]\nscratch: {a: {bytes: 4 * n}, b: {bytes: 16, init: zero}}"
    assert scratch_bytes(parse_plan(text), AXES) == {"a": 4000, "b": 16}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tensor: B, box: 64", "tensor: expected"),
        ("tensor: tmp, box: 64", "dtype"),
        ("tensor: tmp, box: 64, dtype: f32", "dims"),
        ("tensor: A, box: '64, 8', dtype: q4", "dtype: expected one of"),
        ("tensor: A, box: 64", "box: expected 2 values"),
        ("tensor: A, box: '257, 8'", "1 to 256"),
        ("tensor: A, box: '0, 8'", "1 to 256"),
        ("tensor: A, box: '4, 8'", "multiple of 16 bytes"),
        ("tensor: A, box: '128, 8', swizzle: 128B", "at most 128 bytes"),
        ("tensor: A, box: '64, 8', strides: 250", "multiples of 16"),
        ("tensor: A, box: '64, 8', strides: 256 * 2", "inside A"),
        ("tensor: A, box: '64, 8', dims: '128, 257'", "inside A"),
        ("tensor: A, box: '64, 8', element_strides: '1, 9'", "1 to 8"),
        ("tensor: A, box: '64, 8', interleave: 16B", "3 dimensions"),
        ("tensor: tmp, box: '64, 8', dims: '64, 8', dtype: u8, oob_fill: nan", "floating-point"),
        ("tensor: A, dims: '8,1,1,1,1,1', box: 1", "at most 5"),
    ],
)  # fmt: skip
def test_tensor_maps_are_held_to_the_rules(spec: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        launch(rest=f"tensor_maps:\n  map: {{{spec}}}\nscratch:\n  tmp: {{bytes: 4096}}\n")
