"""What a launch is given: contents of buffers, and the param space with addresses and tensor maps in their places.

Source: CUDA driver API, "Tensor Map Object Management"; PTX ISA, "Kernel Function Parameter Attributes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.cuda.driver import Driver, DriverError, pointer
from sandbox.cuda.wire import BufferSpec, MapSpec, Param, Work
from tasks.errors import LaunchRefused


@dataclass(frozen=True, slots=True)
class ParamSpace:
    """Parameters of one launch. offsets: where each begins."""

    data: bytes
    offsets: tuple[int, ...]


def furnish(driver: Driver, spec: BufferSpec, address: int) -> None:
    """Give a buffer its contents."""
    source = spec.source
    if source.data is not None:
        driver.write(address, source.data)
    elif source.handle is not None:
        theirs = driver.attach(source.handle)
        try:
            driver.copy(address, theirs, spec.bytes)
            driver.settle()
        finally:
            driver.detach(theirs)
    else:
        driver.fill(address, source.fill or 0, spec.bytes)


def param_spaces(
    driver: Driver, work: Work, addresses: Mapping[str, int], copies: dict[str, int]
) -> list[ParamSpace]:
    """Of every launch, with buffers at these addresses. Raises LaunchRefused for a tensor map the driver does not encode.

    copies: tensor map → its copy in device memory, for kernels that take its address; made here, to be freed by the caller, also when
    this raises.
    """
    maps = {each.name: each for each in work.maps}
    encoded: dict[str, bytes] = {}

    def bytes_of(spec: MapSpec) -> bytes:
        if spec.name not in encoded:
            try:
                encoded[spec.name] = driver.encode(spec, addresses[spec.buffer])
            except DriverError as error:
                raise LaunchRefused(
                    f"tensor map {spec.name}: the driver does not encode it ({error})"
                ) from None
        return encoded[spec.name]

    def value(param: Param) -> bytes:
        if param.kind == "bytes":
            return param.value
        if param.kind == "pointer":
            return pointer(addresses[param.name])
        raw = bytes_of(maps[param.name])
        if param.kind == "map":
            return raw
        if param.name not in copies:
            copies[param.name] = driver.alloc(len(raw))
            driver.write(copies[param.name], raw)
        return pointer(copies[param.name])

    made: list[ParamSpace] = []
    for launch in work.launches:
        space = bytearray(launch.param_bytes)
        for param in launch.params:
            space[param.offset : param.offset + param.size] = value(param)
        made.append(ParamSpace(bytes(space), tuple(param.offset for param in launch.params)))
    return made
