"""Imports every module that registers builders, so that importing this one completes `decode.BUILDERS`."""

from sandbox.emulator import asynccopy, atomics, flow, mbarrier, plain, transfer

__all__ = ["asynccopy", "atomics", "flow", "mbarrier", "plain", "transfer"]
