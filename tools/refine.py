"""What a look at the source adds to a message: a narrower class, and a hint with the names and numbers of the
line.

Contract: a function gets the match of its row's pattern, the source and the line (None where the tool gave
none), and answers with class and hint, or None to leave the row's own. It never raises on any text.
`tools/causes.yaml` names them without the underscore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox.ptx.symbols import SPECIAL_REGISTERS
from tools.source import Source
from tools.syntax import explain_missing_version, explain_parse_error
from tools.vocabulary import C_NAMES, LOOKALIKES, MODIFIERS, OPCODES, SECOND_WORDS, nearest


@dataclass(frozen=True, slots=True)
class Refined:
    """What a look at the source made of a message."""

    kind: str
    hint: str


Refine = Callable[[re.Match[str], Source, int | None], Refined | None]


def _names(op: str) -> str:
    return op.split(" with ")[0]


NEEDS: dict[str, str] = {"wgmma": "sm_90a", "setmaxnreg": "sm_90a", "tcgen05": "sm_100a"}
"""Opcodes that only architecture-specific targets have → the first of them."""


def _base(target: str) -> int:
    found = re.match(r"sm_(\d+)", target)
    return int(found[1]) if found else 0


def _not_on_target(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op, target = _names(match["op"]), match["target"]
    need = NEEDS.get(op.split(".")[0], "")
    plain = target.rstrip("af") == target
    if plain and need and _base(target) == _base(need):
        return Refined(
            "missing_arch_suffix",
            f"`{op}` belongs to the architecture-specific feature set. Write `.target "
            f"{target}a`, with the letter a.",
        )
    if plain and need and _base(target) < _base(need) and _base(source.arch) >= _base(need):
        return Refined(
            "target_too_low",
            f"`{op}` needs `.target {need}`; the module says {target}. Write `.target {source.arch}`.",
        )
    return Refined(
        "wrong_family",
        f"{target} has no `{op}`"
        + (f"; it exists on {need} only" if need == "sm_90a" else f"; it begins at {need}" if need else "")
        + ". Use the instructions of this architecture"
        + (
            " (wgmma on sm_90a)"
            if op.startswith("tcgen05")
            else " (tcgen05 on sm_100a, mma.sync elsewhere)"
            if op.startswith("wgmma")
            else ""
        )
        + ".",
    )


def _requires_target(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    what, need = match["what"], match["need"]
    if _base(source.arch) < _base(need):
        return Refined(
            "wrong_family",
            f"`{what}` begins at {need}; the kernel is assembled for {source.arch}, "
            "which has not got it. Do without it.",
        )
    return Refined(
        "target_too_low",
        f"`{what}` needs `.target {need}` or higher. Write `.target {source.arch}` at the top of the module.",
    )


def _unknown_instruction(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op = match["op"]
    written = source.dotted(line, op)
    if op in SECOND_WORDS:
        second = ", ".join(f"`{op}.{word}`" for word in sorted(SECOND_WORDS[op]))
        near = nearest(written.removeprefix(f"{op}."), SECOND_WORDS[op], 1)
        return Refined(
            "invented_instruction",
            f"There is no `{written}`. `{op}` exists as {second}"
            + (f"; nearest is `{op}.{near[0]}`." if near else "."),
        )
    if op.lower() in LOOKALIKES:
        return Refined("unknown_instruction", f"PTX has no `{op}`; it says {LOOKALIKES[op.lower()]}.")
    near = nearest(op, OPCODES)
    return Refined(
        "unknown_instruction",
        f"PTX has no instruction `{op}`. "
        + (
            f"Did you mean {' or '.join(f'`{name}`' for name in near)}?"
            if near
            else "Build it from instructions that exist."
        ),
    )


def _unknown_modifier(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    word = match["modifier"]
    if shape := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word):
        return Refined(
            "illegal_shape", _shape_hint(word, source.instruction_with(line, f".{word}"), int(shape[2]))
        )
    near = nearest(word, MODIFIERS - {word})
    written = source.instruction_with(line, f".{word}")
    return Refined(
        "unknown_modifier",
        f"`.{word}` is no modifier of PTX"
        + (f" (in `{written}`)" if written else "")
        + ". "
        + (f"Did you mean {' or '.join(f'`.{name}`' for name in near)}? " if near else "")
        + "Remove it or use one the instruction has.",
    )


def _shape_hint(shape: str, written: str, n: int) -> str:
    if written.startswith("wgmma"):
        low, high = max(8, n // 8 * 8), min(256, (n // 8 + 1) * 8)
        return (
            f"wgmma has no shape {shape}: M is 64, N a multiple of 8 from 8 to 256 "
            f"(near: n{low}, n{high}), and K is 32 bytes of the "
            "element type (k16 for f16 and bf16, k8 for tf32, k32 for 8-bit)."
        )
    return (
        f"`{shape}` is no shape of this instruction with these types. mma.sync "
        "has m16n8k16 and m16n8k8 for f16 and bf16, m16n8k8 and "
        "m16n8k4 for tf32, m16n8k32 and m16n8k16 for 8-bit integers, m8n8k4 for f64."
    )


def _illegal_shape(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    return Refined("illegal_shape", _shape_hint(match["shape"], match["op"], 0))


def _unknown_symbol(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    name = match["symbol"]
    if name in OPCODES and line is not None and source.code(line).startswith(name):
        number, before = source.previous_code(line)
        return Refined(
            "unfinished_statement",
            f"The statement of line {number} does not end: `{before[-80:]}`. Finish it with `;`.",
        )
    if ranged := re.fullmatch(r"(.*?)(\d{1,9})", name):
        for stem, count in source.register_ranges():
            if stem == ranged[1]:
                return Refined(
                    "undeclared_register",
                    f"`{name}` lies outside its range: `{stem}<{count}>` declares {stem}0 to "
                    f"{stem}{count - 1}. "
                    f"Write `{stem}<{int(ranged[2]) + 1}>` or use a declared register.",
                )
    if source.register_type(f"%{name}"):
        return Refined("undeclared_register", f"`{name}` lacks its percent sign: the register is `%{name}`.")
    if name in C_NAMES:
        return Refined(
            "undeclared_symbol",
            f"`{name}` is C. In PTX it is the special register {C_NAMES[name]}.x (.y, .z).",
        )
    near = nearest(name, (source.identifiers() | frozenset(SPECIAL_REGISTERS)) - {name})
    also = f" Did you mean {' or '.join(f'`{other}`' for other in near)}?" if near else ""
    if name.startswith("%"):
        return Refined(
            "undeclared_register",
            f"No register `{name}` is declared in this scope. Declare it with .reg.{also}",
        )
    instruction = source.instruction_with(line, name)
    if re.match(rf"@!?{re.escape(name)}(?![\w$])", instruction):
        return Refined("undeclared_register", f"The guard `@{name}` names no declared .pred register.{also}")
    if re.match(r"(@!?\S+\s+)?(bra|brx)\b", instruction):
        return Refined(
            "undeclared_label",
            f"No label `{name}:` exists in this function. Add it, or branch to one that exists.{also}",
        )
    if re.match(r"(@!?\S+\s+)?ld\.param\b", instruction):
        return Refined(
            "undeclared_param",
            f"The entry has no parameter `{name}`; load one from its own parameter list.{also}",
        )
    return Refined(
        "undeclared_symbol",
        f"Nothing named `{name}` is declared before this line. Declare it, or correct the name.{also}",
    )


def _value_expected(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op, got, want = match["op"], match["got"], match["want"]
    if op.startswith("setmaxnreg"):
        near = int(got) // 8 * 8 if re.fullmatch(r"[0-9]{1,9}", got) else 24
        return Refined(
            "setmaxnreg_value",
            f"`{op}` takes a multiple of 8 from 24 to 256; {got} is not. Use {near} or {near + 8}.",
        )
    if op == "cp.async":
        return Refined(
            "cp_async_size",
            f"cp.async copies {want} bytes here, not {got}: `.cg` takes 16 only, `.ca` takes 4, 8 or 16.",
        )
    return Refined("operand_value", f"Operand {match['index']} of `{op}` must be {want}; {got} stands there.")


def _mismatch(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op = match["op"]
    written = source.instruction_with(line, _names(op))
    if "with floating" in op or op.startswith("wgmma.mma_async"):
        return Refined(
            "wgmma_operands",
            "wgmma.mma_async takes: accumulator vector, A (descriptor .b64 or four "
            ".b32), B descriptor .b64, scale-d (a predicate or 0/1), "
            "imm-scale-a, imm-scale-b (1 or -1), and for f16 and bf16 also "
            "imm-trans-a (descriptor A only) and imm-trans-b. Count them.",
        )
    declared = [
        (name, source.register_type(name))
        for name in source.registers_in(written)
        if source.register_type(name)
    ]
    told = ", ".join(f"{name} is .{kind}" for name, kind in declared)
    if op == "mbarrier.init":
        return Refined(
            "mbarrier_operands",
            "mbarrier.init takes an address and a count of type .u32, and the object is .b64: "
            f"`mbarrier.init.shared::cta.b64 [%r1], 1;`. {told}.",
        )
    mnemonic = re.match(r"(?:@!?\S+\s+)?[\w.:]+", written)
    arity = {
        "add": 3,
        "sub": 3,
        "mul": 3,
        "min": 3,
        "max": 3,
        "and": 3,
        "or": 3,
        "xor": 3,
        "shl": 3,
        "shr": 3,
        "mov": 2,
        "fma": 4,
        "mad": 4,
        "selp": 4,
    }
    if mnemonic is not None and op.split(".")[0] in arity:
        operands = source.operands(written)
        expected = arity[op.split(".")[0]]
        if len(operands) != expected:
            return Refined(
                "operand_count",
                f"`{mnemonic[0]}` takes {expected} operands; `{written}` has {len(operands)}.",
            )
        types = re.findall(r"\.([a-z]+\d+(?:x2)?|pred)\b", mnemonic[0])
        if any(kind == "pred" for _, kind in declared) and "pred" not in types:
            bad = next(name for name, kind in declared if kind == "pred")
            return Refined(
                "predicate_as_value",
                f"`{bad}` is a predicate and cannot be a number. Turn it into one with "
                f"`selp.u32 %r, 1, 0, {bad};`.",
            )
        kind = types[-1] if types else ""
        literal = next(
            (one for one in operands if re.fullmatch(r"-?(?:0[fFdD][0-9a-fA-F]+|[0-9.]+)", one)), ""
        )
        is_float = "." in literal or literal.lstrip("-")[:2].lower() in ("0f", "0d")
        if literal and is_float is not bool(re.match(r"b?f\d", kind)) and not re.match(r"b\d", kind):
            wanted = "an integer such as 1" if is_float else "1.0 or 0f3F800000"
            return Refined(
                "literal_type",
                f"`{literal}` is no literal of type .{kind} in `{written[:80]}`. Write {wanted}.",
            )
        if "wide" in mnemonic[0]:
            return Refined(
                "type_mismatch",
                f"`{mnemonic[0]}` multiplies two .{kind} operands into a result twice as wide; {told}.",
            )
        if told:
            return Refined(
                "type_mismatch",
                f"`{mnemonic[0]}` wants operands of type and size "
                f"`.{types[-1] if types else '?'}`; {told}. Change the registers or the "
                "type; "
                "an untyped move between same-sized registers is `mov.b32` or `mov.b64`; "
                "a float register takes a literal such as 0f3F800000 or 1.0.",
            )
    if told:
        return Refined(
            "argument_mismatch",
            f"The operands of `{written[:80]}` do not fit its modifiers in number, kind (register, "
            f"immediate, address in brackets, vector in braces) or type: {told}. Compare each with its form.",
        )
    return None


def _vector(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op = match["op"]
    if op.startswith("wgmma"):
        return Refined(
            "wgmma_vector_size",
            "The accumulator of wgmma must list N/2 .f32 registers (N/4 .b32 for a "
            ".f16 result): m64n64 has 32. Count them.",
        )
    if "tensor" in op:
        return Refined(
            "tma_coordinates",
            f"`{op}` takes as many .s32 coordinates in braces as its dimension says: "
            ".2d two, .3d three. Count them.",
        )
    return None


def _missing_version(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    return Refined(*explain_missing_version(source))


def _non_ascii(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    sentence = source.non_ascii(int(match["line"]))
    return Refined("non_ascii", sentence) if sentence else None


def _parse_error(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    return Refined(*explain_parse_error(match["near"], source, line))


REFINE: Mapping[str, Refine] = {
    "missing_version": _missing_version,
    "non_ascii": _non_ascii,
    "parse_error": _parse_error,
    "not_on_target": _not_on_target,
    "requires_target": _requires_target,
    "unknown_instruction": _unknown_instruction,
    "unknown_modifier": _unknown_modifier,
    "illegal_shape": _illegal_shape,
    "unknown_symbol": _unknown_symbol,
    "value_expected": _value_expected,
    "mismatch": _mismatch,
    "vector": _vector,
}
