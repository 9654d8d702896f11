"""The launch plan: what a candidate asks to be launched, as data that is parsed and never evaluated.

A plan is the YAML in a candidate's leading `//!` lines. Lists may be written bare, separated by commas, or as YAML
lists of strings or numbers. Expressions follow `tasks.expressions`. YAML anchors, aliases and tags are refused, so that
sixteen kilobytes stay sixteen kilobytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NoReturn, TypeVar, get_args

import yaml

from tasks.errors import CandidateError
from tasks.expressions import ExpressionError, parse
from tasks.record import Record

MAX_BYTES: Final = 16 << 10
MAX_LAUNCHES: Final = 64
MAX_TENSOR_MAPS: Final = 64
MAX_SCRATCH: Final = 32
MAX_DEPTH: Final = 8
MAX_ARGS: Final = 256


class PlanError(CandidateError):
    """A launch plan that cannot be used; says where, what was expected, what was found, what to do.

    line: 1-based line in the candidate file, or None.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return PlanError, (str(self), self.line)


class Launch(Record):
    """One kernel launch; every extent is an expression over the task's axes."""

    entry: str
    grid: tuple[str, ...]
    """1 to 3 expressions, x first."""
    block: tuple[str, ...]
    cluster: tuple[str, ...] = ()
    """Empty when the launch asks for no cluster."""
    dynamic_smem: str = "0"
    """Bytes."""
    cooperative: Literal["yes", "no"] = "no"
    """yes: every block of the grid is resident at once, so that a barrier across the grid ends; a larger grid is refused."""
    args: tuple[str, ...] = ()
    """Names of inputs, outputs, axes, scratch buffers or tensor maps, integer or float literals, or expressions over
    axes; one for each `.param`, in order."""
    line: int | None = None
    """Line of the candidate file where this launch begins."""


class TensorMap(Record):
    """A view for cuTensorMapEncodeTiled or Im2col; lists are innermost dimension first, as in the driver API."""

    tensor: str
    """Name of an input, output or scratch buffer."""
    box: tuple[str, ...]
    """Elements of one copy, for every dimension; of an im2col map channels per pixel and pixels per column."""
    mode: Literal["tiled", "im2col"] = "tiled"
    lower: tuple[str, ...] = ()
    """Im2col: lower corner of the pixels' bounding box, as offsets in W, H, D; empty for a tiled map."""
    upper: tuple[str, ...] = ()
    """Im2col: upper corner, as offsets from the tensor's far end."""
    dims: tuple[str, ...] = ()
    """Empty: the tensor's own shape, innermost first."""
    strides: tuple[str, ...] = ()
    """Bytes, for every dimension but the innermost; empty: contiguous."""
    element_strides: tuple[str, ...] = ()
    swizzle: Literal["none", "32B", "64B", "128B"] = "none"
    interleave: Literal["none", "16B", "32B"] = "none"
    l2_promotion: Literal["none", "64B", "128B", "256B"] = "none"
    oob_fill: Literal["none", "nan"] = "none"
    dtype: str | None = None
    """None: the tensor's own."""


class Scratch(Record):
    """A global buffer of the candidate's own, fresh for every run of the plan."""

    bytes: str
    init: Literal["none", "zero"] = "none"
    """none: holds nothing defined until the kernel writes it."""


class Plan(Record):
    """All launches, in order on one stream, and what they need."""

    launches: tuple[Launch, ...]
    tensor_maps: dict[str, TensorMap] = {}
    scratch: dict[str, Scratch] = {}


_IDENTIFIER: Final = re.compile(r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)", re.ASCII)
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)"
)
_EXAMPLE: Final = "write it as\n//! launch:\n//!   - entry: kernel\n//!     grid: cdiv(n, 256)\n//!     block: 256\n//!     args: x, y, n"
Kind = TypeVar("Kind", bound=Record)


def float_literal(text: str) -> float | None:
    """The value of a float literal (`1.5`, `-1e-6`, `inf`, `nan`), or None when the text is none."""
    return float(text) if _FLOAT.fullmatch(text) else None


def parse_plan(yaml_text: str, first_line: int = 1) -> Plan:
    """Read a plan; `first_line` is the number of the text's first line in the candidate file. Raises PlanError."""
    size = len(yaml_text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise PlanError(f"launch plan: expected at most {MAX_BYTES} bytes; found {size}", first_line)
    root = _compose(yaml_text, first_line)
    reader = _Reader(first_line)
    top = reader.mapping(root, "the launch plan", ("launch", "tensor_maps", "scratch"), ("launch",))
    launches = top["launch"]
    entries = launches.value if isinstance(launches, yaml.SequenceNode) else [launches]
    if not 1 <= len(entries) <= MAX_LAUNCHES:
        reader.fail(launches, f"launch: expected 1 to {MAX_LAUNCHES} launches; found {len(entries)}")
    maps = reader.named(top.get("tensor_maps"), "tensor_maps", MAX_TENSOR_MAPS)
    scratch = reader.named(top.get("scratch"), "scratch", MAX_SCRATCH)
    for name in maps.keys() & scratch.keys():
        reader.fail(maps[name], f"{name} names both a tensor map and a scratch buffer: give one another name")
    return Plan(
        launches=tuple(reader.launch(node) for node in entries),
        tensor_maps={
            name: reader.record(node, f"tensor map {name}", TensorMap) for name, node in maps.items()
        },
        scratch={
            name: reader.record(node, f"scratch buffer {name}", Scratch) for name, node in scratch.items()
        },
    )


class _Loader(yaml.SafeLoader):
    """Composes plain YAML alone; nothing is ever constructed from it."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Refused("expected plain YAML; found an anchor or alias (& or *): write values out", event)
        if getattr(event, "tag", None) is not None:
            raise _Refused("expected plain YAML; found a tag (!): write plain text and numbers", event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(f"expected at most {MAX_DEPTH} levels of nesting; found more", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Refused(Exception):
    def __init__(self, message: str, event: Any) -> None:
        super().__init__(message)
        self.line = int(event.start_mark.line)


def _compose(text: str, first_line: int) -> yaml.Node:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except _Refused as error:
        raise PlanError(f"launch plan: {error}", first_line + error.line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise PlanError(f"launch plan, line {line}: expected YAML; {problem}: {_EXAMPLE}", line) from None
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise PlanError(f"launch plan: expected YAML; {reason}: {_EXAMPLE}", first_line) from None
    if root is None:
        raise PlanError(f"launch plan: expected a key 'launch'; found nothing: {_EXAMPLE}", first_line)
    return root


class _Reader:
    """Turns YAML nodes into records; knows the line of each."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line

    def line(self, node: yaml.Node) -> int:
        return self.first_line + node.start_mark.line

    def fail(self, node: yaml.Node, message: str) -> NoReturn:
        line = self.line(node)
        raise PlanError(f"launch plan, line {line}: {message}", line)

    def mapping(
        self, node: yaml.Node, what: str, known: Iterable[str] | None, required: Iterable[str] = ()
    ) -> dict[str, yaml.Node]:
        """Keys and values of a mapping; `known` None takes any identifier."""
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{what}: expected keys and values; found {_kind(node)}: {_EXAMPLE}")
        result: dict[str, yaml.Node] = {}
        known = None if known is None else tuple(known)
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.fail(key_node, f"{what}: expected a plain key; found {_kind(key_node)}")
            if key in result:
                self.fail(key_node, f"{what}: key {key!r} is given twice: keep one")
            if known is not None and key not in known:
                near = difflib.get_close_matches(key, known, 1, 0.5)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                self.fail(key_node, f"{what}: expected one of {', '.join(known)}; found {key[:60]!r}{hint}")
            if known is None and not _IDENTIFIER.fullmatch(key):
                self.fail(key_node, f"{what}: expected a name; found {key[:60]!r}")
            result[key] = value
        for key in required:
            if key not in result:
                self.fail(
                    node, f"{what}: expected the key {key!r}; found {', '.join(result) or 'none'}: {_EXAMPLE}"
                )
        return result

    def named(self, node: yaml.Node | None, what: str, most: int) -> Mapping[str, yaml.Node]:
        if node is None or _empty(node):
            return {}
        result = self.mapping(node, what, None)
        if len(result) > most:
            self.fail(node, f"{what}: expected at most {most}; found {len(result)}")
        return result

    def launch(self, node: yaml.Node) -> Launch:
        return self.record(node, "launch", Launch).model_copy(update={"line": self.line(node)})

    def record(self, node: yaml.Node, what: str, model: type[Kind]) -> Kind:
        """A record of the plan, each value read by the type of its field."""
        fields = {name: field for name, field in model.model_fields.items() if name != "line"}
        required = [name for name, field in fields.items() if field.is_required()]
        values: dict[str, Any] = {}
        for name, value in self.mapping(node, what, fields, required).items():
            label = f"{what}: {name}"
            choices = get_args(fields[name].annotation)
            if fields[name].annotation == tuple[str, ...]:
                values[name] = self.items(value, label, name)
            elif name in ("entry", "tensor", "dtype"):
                values[name] = self.identifier(value, label)
            elif name in ("bytes", "dynamic_smem"):
                values[name] = self.expression(value, self.text(value, label), label)
            else:
                values[name] = text = self.text(value, label)
                if text not in choices:
                    self.fail(value, f"{label}: expected one of {', '.join(choices)}; found {text[:60]!r}")
        for name in required:
            if values[name] == ():
                self.fail(node, f"{what}: {name}: expected at least one expression; found none")
        return model(**values)

    def text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.fail(node, f"{what}: expected one value; found {_kind(node)}")
        return str(node.value).strip()

    def identifier(self, node: yaml.Node, what: str) -> str:
        text = self.text(node, what)
        if not _IDENTIFIER.fullmatch(text):
            self.fail(node, f"{what}: expected a name; found {text[:60]!r}")
        return text

    def items(self, node: yaml.Node, what: str, field: str) -> tuple[str, ...]:
        """A bare comma list, a YAML list, or one value."""
        parts_given = node.value if isinstance(node, yaml.SequenceNode) else [node]
        text = ", ".join(self.text(item, what) for item in parts_given)
        if not text:
            return ()
        parts = _split(text)
        most = {"args": MAX_ARGS, "grid": 3, "block": 3, "cluster": 3}.get(field, 5)
        if len(parts) > most:
            self.fail(node, f"{what}: expected at most {most} values; found {len(parts)}")
        return tuple(
            part if field == "args" and self._is_argument(part) else self.expression(node, part, what)
            for part in parts
        )

    @staticmethod
    def _is_argument(text: str) -> bool:
        return bool(_IDENTIFIER.fullmatch(text)) or float_literal(text) is not None

    def expression(self, node: yaml.Node, text: str, what: str) -> str:
        try:
            return parse(text).text
        except ExpressionError as error:
            self.fail(node, f"{what}: {error}")


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "keys and values"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return repr(str(node.value)[:60]) if node.value else "nothing"


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.value


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside parentheses."""
    parts: list[str] = []
    depth = start = 0
    for index, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return parts
