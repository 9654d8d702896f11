"""Module-scope variables: where they lie in global and constant memory, and the bytes they begin with.

Source: PTX ISA, "Initializers", "Constant State Space", "Global State Space".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sandbox.emulator.memory import CONST_WINDOW, SHARED_WINDOW, Arena, Region
from sandbox.emulator.names import Place, function_addresses
from sandbox.emulator.operands import constant
from sandbox.emulator.semantics.types import TYPES
from sandbox.ptx.declarations import TYPE_BYTES
from sandbox.ptx.layout import base_space, declarations, place, size_and_align
from sandbox.ptx.nodes import Immediate, Initializer, Module, Variable
from sandbox.ptx.symbols import ModuleSymbols
from tasks.errors import CannotJudge, LaunchRefused

CONST_BYTES = 65_536
GLOBAL_BYTES = 1 << 30


@dataclass(slots=True)
class Image:
    """A module's variables, laid out."""

    variables: list[Variable]
    names: dict[str, int]
    """Identities of the declarations that initialisers may name."""
    functions: dict[str, int]
    """Addresses of the functions that they may name."""
    const: list[Region] = field(default_factory=list[Region])
    const_bytes: int = 0
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    """By identity of the declaration."""


def build(module: Module, symbols: ModuleSymbols) -> Image:
    """Collect the .global and .const variables of a module, those inside functions too."""
    every = list(module.variables)
    for function in module.functions:
        if function.body is not None:
            every.extend(declarations(function.body))
    chosen = [each for each in every if base_space(each) in ("global", "const")]
    names = {each.name: id(each) for each in chosen}
    names.update({each.name: id(each.variable) for each in symbols.variables.values()})
    image = Image(chosen, names, function_addresses(symbols))
    total = 0
    for each in chosen:
        if "extern" in each.linkage and each.init is None and None in each.dims:
            raise LaunchRefused(f"variable {each.name} is extern and nothing defines it")
        total += size_and_align(each)[0]
    for each in place(each for each in chosen if base_space(each) == "const"):
        image.places[id(each.variable)] = Place("const", each.offset, each.size, each.name)
        image.const.append(Region(each.name, each.offset, each.size))
        image.const_bytes = each.offset + each.size
    if image.const_bytes > CONST_BYTES:
        raise LaunchRefused(
            f".const variables take {image.const_bytes} bytes; a module may have {CONST_BYTES}"
        )
    if total > GLOBAL_BYTES:
        raise LaunchRefused(f"module variables take {total} bytes; more than {GLOBAL_BYTES} is refused here")
    return image


def reserve(image: Image, arena: Arena) -> dict[int, Region]:
    """Regions of the .global variables, by identity of the declaration; the first things in an arena, so that
    their addresses never change.
    """
    regions: dict[int, Region] = {}
    for each in image.variables:
        if base_space(each) == "global":
            size, _ = size_and_align(each)
            region = arena.reserve(each.name, size, defined=True, role="variable")
            regions[id(each)] = region
            image.places[id(each)] = Place("global", region.base, size, each.name)
    return regions


def contents(variable: Variable, image: Image) -> npt.NDArray[np.uint8]:
    """The bytes a variable begins with; zero where nothing is said."""
    size, _ = size_and_align(variable)
    data = np.zeros(size, np.uint8)
    if variable.init is None:
        return data
    unit = TYPE_BYTES.get(variable.type, 4)
    dims = [extent if extent is not None else 0 for extent in variable.dims]
    if variable.vector > 1:
        dims.append(variable.vector)
    flat: list[tuple[int, Initializer]] = []
    _spread(variable.init, dims, 0, flat)
    kind = TYPES.get(variable.type)
    for element, value in flat:
        start = element * unit
        if start + unit > size:
            raise LaunchRefused(f"variable {variable.name}: more initial values than elements")
        if isinstance(value, Immediate):
            if kind is None:
                raise CannotJudge(
                    f"variable {variable.name} of type .{variable.type} cannot be initialised here"
                )
            raw = constant(value, kind).tobytes()
        else:
            assert not isinstance(value, tuple)
            raw = _address(value.symbol, value.generic, image) + value.offset
            if value.mask is not None:
                shift = (value.mask & -value.mask).bit_length() - 1
                raw = (raw & value.mask) >> shift
            raw = (raw & ((1 << 8 * unit) - 1)).to_bytes(unit, "little")
        data[start : start + unit] = np.frombuffer(raw, np.uint8)
    return data


def _spread(init: Initializer, dims: list[int], at: int, out: list[tuple[int, Initializer]]) -> None:
    if not isinstance(init, tuple):
        out.append((at, init))
        return
    step = 1
    for extent in dims[1:]:
        step *= extent
    for k, part in enumerate(init):
        _spread(part, dims[1:], at + k * step, out)


def _address(symbol: str, generic: bool, image: Image) -> int:
    found = image.places.get(image.names.get(symbol, 0))
    if found is None:
        if symbol in image.functions:
            return image.functions[symbol]
        raise CannotJudge(f"an initialiser names {symbol}, whose address the emulator cannot give")
    window = {"const": CONST_WINDOW, "shared": SHARED_WINDOW}.get(found.space, 0) if generic else 0
    return found.base + window
