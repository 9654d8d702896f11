"""Where wrong elements lie, said in words that point at the indexing mistake behind them.

Contract: `describe(wrong)` takes a boolean array and answers one phrase. A phrase claims exactly: the set it
names *is* the set of wrong elements. Where no exact phrase fits, it says how many, and between which indices.
`relation` looks for a law that ties what came out to what was expected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

PERIODS = (2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512)
BLOCKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4)
TILES = tuple((rows, columns) for rows in (128, 64, 32, 16, 8) for columns in (256, 128, 64, 32, 16, 8))


def describe(wrong: Mask) -> str:
    """One phrase for the set of True elements of an array of any rank; empty for none."""
    if not wrong.any():
        return ""
    if wrong.all():
        return "every element"
    axes = [index for index, extent in enumerate(wrong.shape) if extent > 1]
    if len(axes) <= 1:
        return _line(wrong.reshape(-1), "element", "index")
    shadows: list[Mask] = [
        np.asarray(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
        for axis in range(wrong.ndim)
    ]
    if _is_product(wrong, shadows):
        return ", ".join(
            _line(shadows[axis], *_axis_name(axis, wrong.ndim)) for axis in axes if not shadows[axis].all()
        )
    if wrong.ndim == 2 and (phrase := _plane(wrong)):
        return phrase
    flat = _line(wrong.reshape(-1), "element", "flat index")
    if not flat.startswith("scattered"):
        return f"{flat} (row-major)"
    spans = {_axis_name(axis, wrong.ndim)[1]: np.flatnonzero(shadows[axis]) for axis in axes}
    bounds = ", ".join(f"{name} {places[0]}..{places[-1]}" for name, places in spans.items())
    return f"scattered: {int(wrong.sum())} of {wrong.size} elements, within {bounds}"


def _axis_name(axis: int, rank: int) -> tuple[str, str]:
    from_end = rank - axis
    return {1: ("column", "column"), 2: ("row", "row")}.get(from_end, (f"axis {axis} index", f"axis {axis}"))


def _is_product(wrong: Mask, shadows: list[Mask]) -> bool:
    return int(wrong.sum()) == int(np.prod([int(shadow.sum()) for shadow in shadows], dtype=np.int64))


def _line(wrong: Mask, noun: str, index: str) -> str:
    """A phrase for one axis: a point, a range, residues, whole blocks, or a count."""
    places = np.flatnonzero(wrong)
    size, first, last = wrong.size, int(places[0]), int(places[-1])
    if len(places) == size:
        return f"every {noun}"
    if len(places) == 1:
        return f"only {noun} {first}" + (" (the last)" if first == size - 1 else "")
    if last - first + 1 == len(places):
        return _range(first, last, size, noun, index)
    kept = np.flatnonzero(~wrong)
    if len(kept) == 1:
        return f"every {noun} but {int(kept[0])}"
    return _residues(wrong, noun, index) or _blocks(wrong, noun) or _scatter(places, size, noun)


def _range(first: int, last: int, size: int, noun: str, index: str) -> str:
    if last < size - 1:
        return f"{noun}s {first} to {last}"
    block = next((block for block in BLOCKS if first % block == 0), 1)
    tail = size - first
    if block > 1 and tail < block and first >= 3 * block:
        return (
            f"every {noun} from {index} {first} on (the last {tail}, after the last whole block of {block})"
        )
    if first == 1:
        return f"every {noun} but the first"
    return f"every {noun} from {index} {first} on" + (f" (a multiple of {block})" if block > 1 else "")


def _residues(wrong: Mask, noun: str, index: str) -> str:
    for period in PERIODS:
        if 2 * period > wrong.size:
            break
        seen = np.zeros((2, period), np.bool_)
        np.logical_or.at(seen, (wrong.astype(np.intp), np.arange(wrong.size) % period), True)
        if not (seen[0] & seen[1]).any():
            where = np.flatnonzero(seen[1])
            if period == 2:
                return f"{'odd' if where[0] else 'even'} {noun}s"
            return f"{noun}s with {index} % {period} in {_numbers(where)}"
    return ""


def _blocks(wrong: Mask, noun: str) -> str:
    for block in BLOCKS:
        if 2 * block > wrong.size:
            continue
        edges = np.arange(0, wrong.size, block)
        counts = np.add.reduceat(wrong.astype(np.int64), edges)
        sizes = _extents(edges, wrong.size)
        if ((counts == 0) | (counts == sizes)).all():
            which = np.flatnonzero(counts)
            return f"whole blocks of {block} {noun}s: blocks {_numbers(which)} of {len(edges)}"
    return ""


def _plane(wrong: Mask) -> str:
    rows, columns = np.arange(wrong.shape[0])[:, None], np.arange(wrong.shape[1])[None, :]
    shapes: tuple[tuple[str, Mask], ...] = (
        ("every element off the diagonal", rows != columns),
        ("the diagonal", rows == columns),
        ("every element above the diagonal", columns > rows),
        ("every element below the diagonal", columns < rows),
        ("elements with row + column odd (a checkerboard)", (rows + columns) % 2 == 1),
        ("elements with row + column even (a checkerboard)", (rows + columns) % 2 == 0),
    )
    for phrase, shape in shapes:
        if np.array_equal(wrong, shape):
            return phrase
    for tile_rows, tile_columns in TILES:
        if tile_rows * 2 > wrong.shape[0] and tile_columns * 2 > wrong.shape[1]:
            continue
        if phrase := _tiles(wrong, tile_rows, tile_columns):
            return phrase
    return ""


def _tiles(wrong: Mask, rows: int, columns: int) -> str:
    down, across = np.arange(0, wrong.shape[0], rows), np.arange(0, wrong.shape[1], columns)
    counts = np.add.reduceat(np.add.reduceat(wrong.astype(np.int64), down, axis=0), across, axis=1)
    sizes = _extents(down, wrong.shape[0])[:, None] * _extents(across, wrong.shape[1])[None, :]
    if not ((counts == 0) | (counts == sizes)).all():
        return ""
    found = np.argwhere(counts)
    shown = ", ".join(f"({row}, {column})" for row, column in found[:8])
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    grid = f"{counts.shape[0]} x {counts.shape[1]}"
    return f"whole tiles of {rows} rows x {columns} columns: tile {shown}{more} of {grid}"


def _extents(edges: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.int64]:
    """Lengths of the blocks that start at `edges`, the last of which stops at `end`."""
    return np.minimum(edges + (edges[1] if len(edges) > 1 else end), end) - edges


def _scatter(places: npt.NDArray[np.intp], size: int, noun: str) -> str:
    return f"scattered: {len(places)} of {size} {noun}s, from {int(places[0])} to {int(places[-1])}"


def _numbers(values: npt.NDArray[np.intp]) -> str:
    """`{0, 2, 4..7}`, at most eight runs."""
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    runs = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in np.split(values, breaks)]
    return "{" + ", ".join(runs[:8]) + (", …" if len(runs) > 8 else "") + "}"


def relation(actual: Floats, reference: Floats, where: Mask) -> tuple[str, float | None]:
    """A law that ties the wrong elements to the expected ones, in words, and got/expected when that is
    constant.
    """
    if int(where.sum()) < 4:
        return "", None
    got, want = actual[where], reference[where]
    usable = np.isfinite(got) & np.isfinite(want)
    if not usable.all():
        return "", None
    if (got == 0).all():
        return "the output is 0", 0.0
    if (got == got[0]).all():
        return f"the output is always {got[0]:.6g}", None
    nonzero = want != 0
    if nonzero.any():
        ratios = got[nonzero] / want[nonzero]
        middle = float(np.median(ratios))
        if np.allclose(ratios, middle, rtol=1e-3, atol=0) and abs(middle - 1) > 1e-2:
            return f"got is {middle:.6g} times expected", middle
    gaps = got - want
    gap = float(np.median(gaps))
    if gap and np.allclose(gaps, gap, rtol=1e-3, atol=1e-6 * float(np.max(np.abs(want)))):
        return f"got is expected {'+' if gap > 0 else '-'} {abs(gap):.6g}", None
    square = actual.ndim == 2 and actual.shape[0] == actual.shape[1]
    if square and np.allclose(actual, reference.T, rtol=1e-2, atol=0):
        return "got is the transpose of expected", None
    return _shift(actual, reference), None


def _shift(actual: Floats, reference: Floats) -> str:
    """Whether every element holds the answer of a neighbour at a fixed distance (an index off by a
    constant).
    """
    got, want = actual.reshape(-1), reference.reshape(-1)
    for distance in (1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64, 128, -128, 256, -256):
        if abs(distance) * 2 > got.size:
            break
        one, other = (
            (got[:-distance], want[distance:]) if distance > 0 else (got[-distance:], want[:distance])
        )
        if np.allclose(one, other, rtol=1e-2, atol=0):
            return f"got[i] is expected[i {'+' if distance > 0 else '-'} {abs(distance)}]"
    return ""
