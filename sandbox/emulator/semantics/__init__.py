"""What each register-to-register PTX instruction computes, as pure functions on NumPy arrays.

Contract: `lower(instruction)` reads the modifiers once and gives a `Lowered` whose `fn` maps source arrays
to result arrays, or None when the instruction is not one of these (memory, control flow, unknown, or a form
the assembler refuses). The machine that calls them owns registers, memory, guards and control flow.

- Arrays have shape [W, 32] (warps, lanes) and the dtype of their PTX type (`TYPES`); immediates may be 0-d
  or [1, 1].
- A negated predicate operand (`!%p`) arrives negated; `-%r` arrives negated. A result narrower than its
  register is extended by the machine: with sign for signed types, with zeros for the others.
- Values the ISA leaves open are chosen once, in the module that computes them, and said there.

Compared with an H200, lane by lane and bit by bit, every form of `tests/sandbox/semantics/forms.py` agrees
but the approximate functions, which stay within the errors the ISA states, and 64-bit bfe and bfi of
positions above 255, which the ISA excludes.

`coverage.opcodes()` lists the opcodes that have a lowering.
"""

from __future__ import annotations

from sandbox.emulator.semantics.registry import lower
from sandbox.emulator.semantics.types import TYPES, Array, Lowered, Scope, Type

__all__ = ["TYPES", "Array", "Lowered", "Scope", "Type", "lower"]
