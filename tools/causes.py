"""The table of causes: what the assembler says → which class of fault it is, and what to do about it.

Contract: `find_cause(message)` gives the first row whose pattern matches the whole text of a message (never a code number: those move between
versions), or the row `OTHER`. A row whose class depends on more than the message (the source text, the architecture) has a `refine`
function that may name a narrower class and a hint of its own. Hints carry the names found in the message; they are our own words.

Observed with ptxas 13.0.88 and 13.5.37.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.source import Source
from tools.syntax import explain_missing_version, explain_parse_error
from tools.vocabulary import LOOKALIKES, MODIFIERS, OPCODES, SECOND_WORDS, nearest


@dataclass(frozen=True, slots=True)
class Refined:
    """What a look at the source made of a message."""

    kind: str
    hint: str


Refine = Callable[[re.Match[str], Source, int | None], Refined | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table."""

    kind: str
    pattern: re.Pattern[str]
    hint: str
    """A format string over the pattern's named groups."""
    refine: Refine | None = None
    key: tuple[str, ...] | None = None
    """Named groups that tell two messages of this class apart; None: all of them, (): all messages of the class are one cause."""
    explains: frozenset[str] = field(default_factory=frozenset[str])
    """Classes that are mere consequences when they are reported on the same line."""
    rank: int = 5
    """Lower is nearer to the root: it is reported first."""
    severity: str | None = None
    """error or info when the tool's own severity misleads."""


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
            f"`{op}` belongs to the architecture-specific feature set. Write `.target {target}a`, with the letter a.",
        )
    if plain and need and _base(target) < _base(need) and _base(source.arch) >= _base(need):
        return Refined(
            "target_too_low",
            f"`{op}` needs `.target {need}`; the module says {target}. Write `.target {source.arch}`.",
        )
    return Refined(
        "wrong_family",
        f"{target} has no `{op}`" + (f"; it exists on {need} only" if need == "sm_90a" else f"; it begins at {need}" if need else "")
        + ". Use the instructions of this architecture"
        + (" (wgmma on sm_90a)" if op.startswith("tcgen05") else " (tcgen05 on sm_100a, mma.sync elsewhere)" if op.startswith("wgmma") else "")
        + ".",
    )  # fmt: skip


def _requires_target(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    what, need = match["what"], match["need"]
    if _base(source.arch) < _base(need):
        return Refined(
            "wrong_family",
            f"`{what}` begins at {need}; the kernel is assembled for {source.arch}, which has not got it. Do without it.",
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
    near = nearest(word, MODIFIERS)
    written = source.instruction_with(line, f".{word}")
    return Refined(
        "unknown_modifier",
        f"`.{word}` is no modifier of PTX" + (f" (in `{written}`)" if written else "") + ". "
        + (f"Did you mean {' or '.join(f'`.{name}`' for name in near)}? " if near else "") + "Remove it or use one the instruction has.",
    )  # fmt: skip


def _shape_hint(shape: str, written: str, n: int) -> str:
    if written.startswith("wgmma"):
        low, high = max(8, n // 8 * 8), min(256, (n // 8 + 1) * 8)
        return (
            f"wgmma has no shape {shape}: M is 64, N a multiple of 8 from 8 to 256 (near: n{low}, n{high}), and K is 32 bytes of the "
            "element type (k16 for f16 and bf16, k8 for tf32, k32 for 8-bit)."
        )
    return (
        f"`{shape}` is no shape of this instruction with these types. mma.sync has m16n8k16 and m16n8k8 for f16 and bf16, m16n8k8 and "
        "m16n8k4 for tf32, m16n8k32 and m16n8k16 for 8-bit integers, m8n8k4 for f64."
    )


def _illegal_shape(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    return Refined("illegal_shape", _shape_hint(match["shape"], match["op"], 0))


def _unknown_symbol(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    name = match["symbol"]
    if ranged := re.fullmatch(r"(.*?)(\d+)", name):
        for stem, count in source.register_ranges():
            if stem == ranged[1]:
                return Refined(
                    "undeclared_register",
                    f"`{name}` lies outside its range: `{stem}<{count}>` declares {stem}0 to {stem}{count - 1}. "
                    f"Write `{stem}<{int(ranged[2]) + 1}>` or use a declared register.",
                )
    near = nearest(name, source.identifiers() - {name})
    also = f" Did you mean {' or '.join(f'`{other}`' for other in near)}?" if near else ""
    if name.startswith("%"):
        return Refined(
            "undeclared_register",
            f"No register `{name}` is declared in this scope. Declare it with .reg.{also}",
        )
    instruction = source.instruction_with(line, name)
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
        return Refined(
            "setmaxnreg_value",
            f"`{op}` takes a multiple of 8 from 24 to 256; {got} is not. Use {int(got) // 8 * 8} or {int(got) // 8 * 8 + 8}.",
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
            "wgmma.mma_async takes: accumulator vector, A (descriptor .b64 or four .b32), B descriptor .b64, scale-d (a predicate or 0/1), "
            "imm-scale-a, imm-scale-b (1 or -1), and for f16 and bf16 also imm-trans-a (descriptor A only) and imm-trans-b. Count them.",
        )
    if op.startswith("mbarrier") and re.search(r"\.b32\b", written):
        return Refined("mbarrier_type", f"mbarrier objects are 64-bit: write `.b64` in `{written}`.")
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
        declared = [(name, source.register_type(name)) for name in operands if source.register_type(name)]
        if any(kind == "pred" for _, kind in declared) and "pred" not in types:
            bad = next(name for name, kind in declared if kind == "pred")
            return Refined(
                "predicate_as_value",
                f"`{bad}` is a predicate and cannot be a number. Turn it into one with `selp.u32 %r, 1, 0, {bad};`.",
            )
        told = ", ".join(f"{name} is .{kind}" for name, kind in declared)
        if told:
            return Refined(
                "type_mismatch",
                f"`{mnemonic[0]}` wants operands of type and size `.{types[-1] if types else '?'}`; {told}. Change the registers or the type; "
                "an untyped move between same-sized registers is `mov.b32` or `mov.b64`; a float register takes a literal such as 0f3F800000 or 1.0.",
            )
    return None


def _vector(match: re.Match[str], source: Source, line: int | None) -> Refined | None:
    op = match["op"]
    if op.startswith("wgmma"):
        return Refined(
            "wgmma_vector_size",
            "The accumulator of wgmma must list N/2 .f32 registers (N/4 .b32 for a .f16 result): m64n64 has 32. Count them.",
        )
    if "tensor" in op:
        return Refined(
            "tma_coordinates",
            f"`{op}` takes as many .s32 coordinates in braces as its dimension says: .2d two, .3d three. Count them.",
        )
    return None


def _row(kind: str, pattern: str, hint: str, **rest: object) -> Cause:
    return Cause(kind, re.compile(pattern, re.DOTALL), hint, **rest)  # type: ignore[arg-type]


OPERAND_TROUBLE = frozenset(
    "argument_mismatch operand_type operand_count type_mismatch predicate_as_value wgmma_operands mbarrier_type vector_size "
    "predicate_expected".split()
)

TABLE: tuple[Cause, ...] = (
    # the header, the target and the version
    _row("missing_version", r"Missing \.version directive.*", "Begin the module with `.version`, then `.target`, then `.address_size 64`.",
         refine=lambda match, source, line: Refined(*explain_missing_version(source)), rank=0),
    _row("missing_target", r"Missing \.target directive.*", "Write `.target` and the architecture on the line after `.version`.", rank=0),
    _row("version_too_new", r"Unsupported \.version (?P<version>\S+); current version is '(?P<limit>[^']+)'",
         "This ptxas knows PTX up to {limit}; the module says {version}. Write `.version {limit}` or lower.", rank=0),
    _row("unknown_target", r"Unsupported \.target '(?P<target>[^']+)'", "There is no architecture {target}. Write `.target` with the one the task asks for.", rank=0),
    _row("unknown_arch", r"Value '(?P<arch>[^']+)' is not defined for option 'gpu-name'",
         "ptxas knows no architecture {arch}: ask for one that exists, such as sm_80, sm_90a or sm_100a.", rank=0),
    _row("arch_mismatch", r"PTX with \.target '(?P<target>[^']+)' cannot be compiled for architecture '(?P<arch>[^']+)'",
         "Code for {target} runs on {target} only, and the kernel is assembled for {arch}. Write `.target {arch}` and use only what {arch} has.", rank=0),
    _row("target_above_arch", r"SM version specified by \.target is higher than default SM version assumed",
         "`.target` is newer than the architecture the kernel is assembled for. Lower `.target` to it.", rank=0),
    _row("wrong_family", r"Instruction '(?P<op>[^']+)' cannot be compiled for architecture '(?P<arch>[^']+)'",
         "{arch} has no `{op}`: it belongs to another architecture's own set. On sm_100a the matrix multiply is tcgen05.mma.", key=("arch",), rank=0),
    _row("not_on_target", r"Instruction '(?P<op>[^']+)' not supported on \.target '(?P<target>[^']+)'", "", refine=_not_on_target, key=(), rank=0),
    _row("target_too_low", r"(?:Feature|Modifier|Instruction|Type) '(?P<what>[^']+)' requires \.target (?P<need>sm_\w+) or higher", "",
         refine=_requires_target, key=(), rank=0),
    _row("version_too_low", r"(?:Feature|Modifier|Instruction|Type|Target) '(?P<what>[^']+)' requires PTX ISA \.version (?P<need>[\d.]+) or later",
         "`{what}` needs PTX {need}. Write `.version {need}` or later at the top.", key=(), rank=1),
    _row("version_too_low", r"PTX \.version (?P<version>[\d.]+) does not support \.target (?P<target>\w+)",
         "`.target {target}` needs a later `.version` than {version}. Raise it.", key=(), rank=1),
    _row("sync_required", r"Instruction '(?P<op>[^']+)' without '\.sync' is not supported.*",
         "Write `{op}.sync` and give the member mask, 0xffffffff for a whole warp, as the last operand (`vote`, `shfl`).", explains=OPERAND_TROUBLE),
    _row("debug_target", r"Debug information not found in presence of \.target debug", "Remove `, debug` from the `.target` line."),
    _row("address_32_bit", r"Program uses 32-bit address on line '(?P<line>\d+)' which is conflicting.*",
         "A 32-bit register is used as a generic or global address. Addresses are 64-bit: hold the address in a `.b64` register and use the .u64 form.", key=(), rank=0, severity="error"),
    _row("address_32_bit", r"\s*32-Bit (?:compilation|ABI).*", "Use `.address_size 64` and 64-bit registers for every address.", key=(), rank=0),
    _row("address_size_32", r"\s*64 Bit host architecture.*mismatches with \.address_size of 32 bits", "Write `.address_size 64`.", key=(), rank=0, severity="error"),
    # the text
    _row("non_ascii", r"Unexpected non-ASCII character encountered on line (?P<line>\d+)", "Use ASCII only.",
         refine=lambda match, source, line: Refined("non_ascii", source.non_ascii(int(match["line"]))), rank=0),
    _row("nul_byte", r"Unexpected EOF encountered on line (?P<line>\d+)", "The text ends early, or a NUL byte stands in it. Write the whole module as plain ASCII.", rank=0),
    _row("syntax_error", r"Parsing error near '(?P<near>.*)': syntax error", "",
         refine=lambda match, source, line: Refined(*explain_parse_error(match["near"], source, line)), rank=1),
    # names
    _row("invented_instruction", r"Not a name of any known instruction: '(?P<op>[^']+)'", "", refine=_unknown_instruction,
         explains=OPERAND_TROUBLE | {"unknown_modifier", "modifier_required"}, rank=2),
    _row("unknown_modifier", r"Unknown modifier '\.?(?P<modifier>[^']+)'", "", refine=_unknown_modifier,
         explains=OPERAND_TROUBLE | {"modifier_required"}, rank=2),
    _row("undeclared_function", r"Call to '(?P<symbol>[^']+)' requires call prototype",
         "No function `{symbol}` is declared. Define `.func {symbol}` before the entry, or do the work in line.", explains=frozenset({"undeclared_symbol", "undeclared_register"}), rank=2),
    _row("undeclared_symbol", r"Unknown symbol '(?P<symbol>[^']+)'", "", refine=_unknown_symbol, explains=OPERAND_TROUBLE, rank=2),
    _row("duplicate_label", r"Duplicate definition of label '(?P<symbol>[^']+)'", "The label `{symbol}` stands twice in one function. Give the second its own name, and mend the branches to it."),
    _row("duplicate_function", r"Duplicate definition of function '(?P<symbol>[^']+)'", "Two functions are called `{symbol}`. Remove or rename one."),
    _row("duplicate_variable", r"Duplicate definition of (?:variable|parameter) '(?P<symbol>[^']+)'",
         "`{symbol}` is declared twice in one scope (a range such as `%r<8>` declares %r0 to %r7). Remove or rename one."),
    # operands
    _row("special_register_operand", r"Special register argument not allowed for instruction '(?P<op>[^']+)'",
         "`{op}` cannot read a special register such as %tid.x. Move it into a .u32 register first: `mov.u32 %r, %tid.x;`.", rank=3),
    _row("address_register", r"Illegal to use symbol '(?P<symbol>[^']+)' of type \.(?P<type>\w+) as address operand.*",
         "`{symbol}` is .{type}; an address must be an integer register, .b64 for global and generic, .b32 or .b64 for shared."),
    _row("label_expected", r"Label expected for argument (?P<index>\d+) of instruction '(?P<op>[^']+)'", "`{op}` jumps to a label name, not to a register or number."),
    _row("predicate_expected", r"Predicate expression expected", "The guard after @ must be a declared `.pred` register. Make one with setp."),
    _row("setmaxnreg_value", r"Argument \d+ of instruction '(?P<op>setmaxnreg[^']*)': value '(?P<got>[^']*)' out of range, expected to be in range (?P<want>.+)",
         "`{op}` takes a multiple of 8 in {want}; {got} is not."),
    _row("operand_value", r"Argument (?P<index>\d+) of instruction '(?P<op>[^']+)': unexpected value '(?P<got>[^']*)', expected to be (?P<want>.+)", "", refine=_value_expected),
    _row("operand_value", r"Argument (?P<index>\d+) of instruction '(?P<op>[^']+)': value '(?P<got>[^']*)' out of range, expected to be in range (?P<want>.+)",
         "Operand {index} of `{op}` must lie in {want}; {got} does not."),
    _row("barrier_number", r"Barrier number '(?P<got>[^']*)' out of range, expected to be in range (?P<want>.+)",
         "A block has 16 named barriers, 0 to 15; {got} is none of them."),
    _row("vector_size", r"(?:Argument \d+ of instruction '(?P<op>[^']+)': )Argument vector size mismatch", "`{op}` takes another number of elements in braces here. Count them.", refine=_vector),
    _row("vector_size", r"Argument vector size mismatch for instruction '(?P<op>[^']+)'", "`{op}` takes another number of registers in braces, as its shape, `.x4` or `.v4` says. Count them.", refine=_vector),
    _row("vector_size", r"Vector of size (?P<count>\d+) is expected for argument (?P<index>\d+) of instruction '(?P<op>[^']+)'",
         "Operand {index} of `{op}` must be a list of {count} registers in braces.", key=("op",)),
    _row("vector_expected", r"(?P<what>Result|Argument) vector expected", "A `.v2` or `.v4` access takes as many registers in braces: `{{%f1, %f2}}`.", explains=OPERAND_TROUBLE),
    _row("vector_width", r"Illegal vector size: (?P<count>\d+)", "Vectors have 2 or 4 elements (8 for 256-bit accesses); {count} is none.", explains=OPERAND_TROUBLE),
    _row("argument_mismatch", r"Arguments mismatch for instruction '(?P<op>[^']+)'",
         "The number, kind (register, immediate, address in brackets, vector in braces) or type of the operands of `{op}` is not what its modifiers ask for. Compare each with the instruction's form.", refine=_mismatch),
    _row("operand_type", r"Illegal operand type to instruction '(?P<op>[^']+)'", "An operand of `{op}` is of a kind it does not take. An address must name something declared, in brackets."),
    _row("illegal_types", r"Unexpected instruction types specified for '(?P<op>[^']+)'",
         "`{op}` has no form with these types: bitwise operations and shl take .b types, mul and mad of integers need .lo, .hi or .wide, and mma takes certain combinations only."),
    # modifiers
    _row("illegal_shape", r"Illegal matrix shape '\.?(?P<shape>[^']+)' for instruction '(?P<op>[^']+)'", "", refine=_illegal_shape),
    _row("modifier_required", r"Rounding modifier(?: or '\.approx' modifier)? required for instruction '(?P<op>[^']+)'",
         "`{op}` needs a rounding modifier: `.rn` for float results, `.rni` or `.rzi` from float to integer (or `.approx` where there is one). Example: `{op}.rn.f32`."),
    _row("rounding_modifier", r"Illegal rounding modifier for instruction '(?P<op>[^']+)'",
         "From float to integer `{op}` takes .rni, .rzi, .rmi or .rpi; to float it takes .rn, .rz, .rm or .rp, and only where precision is lost."),
    _row("modifier_required", r"'?(?P<modifier>\.?[\w ]+?)'? modifier required for instruction '(?P<op>[^']+)'(?: with type '(?P<type>[^']+)')?",
         "`{op}` cannot be written without its {modifier} modifier. Add it."),
    _row("modifier_space", r"Modifier '(?P<modifier>[^']+)' cannot be applied to '(?P<space>[^']+)' space", "`{modifier}` has no meaning in {space} memory. Remove it or use another space."),
    _row("illegal_modifier", r"(?:Illegal|Unexpected|Incorrect) .*modifier.* '?(?P<modifier>\.[\w:]+)?'?.*", "A modifier does not fit this instruction. Compare it with the instruction's form."),
    # declarations
    _row("constant_overflow", r"Constant overflow.*", "The number does not fit in 64 bits. Write a smaller one."),
    _row("incomplete_type", r"Non-external variable '(?P<symbol>[^']+)' has incomplete type", "`{symbol}` has no size. Give it a positive extent, or declare it `.extern .shared .align 16 .b8 {symbol}[];` and ask for dynamic_smem in the plan."),
    _row("alignment", r"Alignment must be a power of two", "`.align` takes 1, 2, 4, 8, 16 and so on."),
    _row("initializer", r"No initial value is allowed for '(?P<symbol>[^']+)' in this state space", "Only .global and .const variables can be initialised. Store into `{symbol}` at run time.", explains=frozenset({"initializer_type"})),
    _row("initializer_type", r"Initial value type mismatch", "The initialiser must be of the variable's type, such as 0f3F800000 or 1.0 for .f32."),
    _row("unresolved_extern_function", r"Unresolved extern function '(?P<symbol>[^']+)'",
         "`{symbol}` is declared extern and nothing is linked in. Write its body, or do without it (only vprintf, malloc, free and __assertfail come with the driver)."),
    _row("unresolved_extern_variable", r"Unresolved extern variable '(?P<symbol>[^']+)' in whole program.*",
         "`{symbol}` is declared extern, but there is no other module: it became an ordinary variable of unset contents. Pass a buffer as a parameter instead."),
    # resources
    _row("too_much_shared", r"Entry function '(?P<entry>[^']+)' uses too much shared data \((?P<got>0x[0-9a-f]+) bytes, (?P<limit>0x[0-9a-f]+) max\)",
         "{entry} declares {got_dec} bytes of static shared memory; {arch} allows {limit_dec}. Use smaller tiles or fewer stages."),
    _row("too_many_parameters", r"Entry function '(?P<entry>[^']+)' uses too much parameter space \((?P<got>0x[0-9a-f]+) bytes, (?P<limit>0x[0-9a-f]+) max\).*",
         "{entry} takes {got_dec} bytes of parameters; {limit_dec} are allowed. Pass a pointer to a buffer instead."),
    _row("maxnreg_adjusted", r"For entry (?P<entry>\S+) adjusting per thread register count of (?P<got>\d+) to lower bound of (?P<limit>\d+)",
         "`.maxnreg {got}` on {entry} is below what the machine allows; {limit} was used. Write a multiple of 8 of at least {limit}, or remove it."),
    _row("register_target", r".*Insufficient registers \((?P<got>\d+)\) to compile.*", "The function gets {got} registers, too few for its accumulators. Raise `.maxnreg`, lower the threads of a block, or use a smaller tile.", key=()),
    # advice about performance, and target advice
    _row("dropped_setmaxnreg", r".*'setmaxnreg' ignored.*",
         "ptxas dropped setmaxnreg because it cannot tell the register count at entry. Add `.maxntid` together with `.minnctapersm 1` or `.maxnreg` to the entry.", key=(), rank=6),
    _row("wgmma_serialized_divergent", r".*wgmma\.mma_async instructions are serialized.*divergent.*",
         "The wgmma lies behind a branch that ptxas cannot prove uniform, so each waits for the one before. Branch on a warp-uniform value (the warpgroup index through shfl.sync) and keep fence, multiplies, commit and wait together in it.", key=(), rank=6),
    _row("wgmma_serialized", r".*wgmma\.mma_async instructions are serialized.*",
         "Each wgmma waits for the one before. Keep fence, multiplies, commit and wait in one uniform region, call no function between them, and do not touch the accumulators before the wait.", key=(), rank=6),
    _row("wgmma_fence_injected", r".*warpgroup\.arrive is injected.*", "ptxas put in a wgmma.fence itself. Write `wgmma.fence.sync.aligned;` before the first wgmma.mma_async and after every write of its registers.", key=(), rank=6),
    _row("wgmma_wait_injected", r".*(?:warpgroup\.wait|wgmma\.wait_group) is injected.*",
         "The accumulators are read while the multiply may still run, so ptxas put in a wait. Write `wgmma.commit_group.sync.aligned;` and `wgmma.wait_group.sync.aligned 0;` before the first use.", key=(), rank=6),
    _row("multicast_advisory", r"Advisory: '\.multicast::cluster' modifier.*", "Multicast is fast on architecture-specific targets only. Write `.target sm_90a` (or sm_100a) instead of the plain one.", rank=6),
    _row("mma_sp_advisory", r"Advisory: Modifier '\.sp::ordered_metadata' should be used.*", "Write `mma.sp::ordered_metadata` instead of `mma.sp`; the plain form may become slow.", rank=6),
    _row("advisory", r"Advisory: .*|.*Potential Performance Loss.*", "This is slower than it need be, or will be on other hardware; the message says which form to use.", rank=7),
    _row("assembler_memory", r".*(?:[Mm]emory allocation failure|out of memory|bad_alloc).*", "Assembling took more memory than allowed. Declare fewer and smaller registers and arrays.", rank=0),
    _row("assembler_crash", r".*[Ii]nternal (?:compiler )?error.*", "The assembler itself failed on this text. Write the marked part differently and more simply.", rank=0),
)  # fmt: skip

OTHER = _row(
    "other",
    r".*",
    "The assembler's message names what it did not accept; compare the line with the instruction's form.",
)


def find_cause(message: str) -> tuple[Cause, re.Match[str]]:
    """The first row that matches, and the match; `OTHER` when none does."""
    for cause in TABLE:
        if match := cause.pattern.fullmatch(message):
            return cause, match
    match = OTHER.pattern.fullmatch(message)
    assert match is not None
    return OTHER, match
