"""A condition as a tree of values, and the SQL text for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..arguments import brief, meant
from ..errors import InputError

# Functions -> number of arguments; None: any number.
FUNCTIONS = {
    "abs": 1,
    "coalesce": None,
    "day": 1,
    "isnan": 1,
    "length": 1,
    "lower": 1,
    "month": 1,
    "upper": 1,
    "year": 1,
}
TIMESTAMP = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
# Spark's names of types that a condition can name.
NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    LOCAL_TIMESTAMP: "timestamp_ntz",
}
_SUFFIX = {pa.int8(): "Y", pa.int16(): "S", pa.int64(): "L"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Part of a condition. ``at``: its position in the text that it was parsed from."""

    at: int | None = field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        found: list[Node] = []
        for each in fields(self):
            value = getattr(self, each.name)
            found += [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Node)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A column, or a field inside one. ``kind`` is known once it is bound to a schema."""

    path: tuple[str, ...]
    kind: pa.DataType | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Node):
    """A value of a type; None of type null is NULL."""

    value: Any
    kind: pa.DataType

    def __eq__(self, other: object) -> bool:
        # Compared by text, so that NaN equals itself, and -0.0 is not 0.0.
        return isinstance(other, Literal) and self.kind == other.kind and _literal_text(self) == _literal_text(other)

    def __hash__(self) -> int:
        return hash((_literal_text(self), self.kind))


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """One of `COMPARISONS`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic(Node):
    """``and`` or ``or`` of two parts or more."""

    op: str
    all: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """The negation; null stays null."""

    of: Node


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """The test for null; never null itself."""

    of: Node


@dataclass(frozen=True, slots=True)
class In(Node):
    """Equality with one of the literals; null if it equals none and one of them is null."""

    of: Node
    choices: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like(Node):
    """A match with SQL's pattern, with ``%`` and ``_``."""

    of: Node
    pattern: str
    escape: str = "\\"
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """One of ``+ - * / % div``. ``kind`` is known once it is bound."""

    op: str
    left: Node
    right: Node
    kind: pa.DataType | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """The number with the opposite sign."""

    of: Node


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """The same value in another type; an error if the type has no such value."""

    of: Node
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Call(Node):
    """One of `FUNCTIONS`."""

    name: str
    arguments: tuple[Node, ...]


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, from left to right."""
    # A loop, not recursion: generated conditions have thousands of parts.
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.parts)


def joined(op: str, parts: list[Node], at: int | None = None) -> Node:
    """Return ``and`` or ``or`` of the parts, with nested ones of its own kind flattened; a single part is returned as it is."""
    flat: list[Node] = []
    for each in parts:
        flat += each.all if isinstance(each, Logic) and each.op == op else [each]
    return flat[0] if len(flat) == 1 else Logic(op, tuple(flat), at=at)


def literal(value: Any, at: int | None = None) -> Literal:  # noqa: C901 - one case for each type
    """Return a Python value with the type that Spark gives such a literal. Raises TypeError for a value without one."""
    match value:
        case None:
            return Literal(None, pa.null(), at=at)
        case bool():
            return Literal(value, pa.bool_(), at=at)
        case int() if -(2**63) <= value < 2**63:
            return Literal(int(value), pa.int32() if -(2**31) <= value < 2**31 else pa.int64(), at=at)
        case int():
            return literal(Decimal(int(value)), at)
        case float():
            return Literal(float(value), pa.float64(), at=at)
        case str():
            value.encode()  # half a surrogate pair is no text
            return Literal(str(value), pa.string(), at=at)
        case bytes():
            return Literal(value, pa.binary(), at=at)
        case datetime() if value.tzinfo is None:
            return Literal(value, LOCAL_TIMESTAMP, at=at)
        case datetime():
            return Literal(pa.scalar(value, TIMESTAMP).as_py(), TIMESTAMP, at=at)
        case date():
            return Literal(value, pa.date32(), at=at)
        case Decimal() if value.is_finite():
            # Spark gives 1E+3 scale 0, and counts the zeros before the digits of 0.001.
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            if 0 < exponent <= 38 - len(digits):
                value, exponent = Decimal(int(value)), 0
                digits = value.as_tuple().digits
            scale = -exponent
            precision = max(len(digits), scale)
            if exponent <= 0 and precision <= 38:
                return Literal(value, pa.decimal128(precision, scale), at=at)
    raise TypeError(f"{brief(value)} is no value that a condition can hold")


def type_name(kind: pa.DataType) -> str:
    """Return Spark's name of a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return NAMES.get(kind, str(kind))


# --- text --------------------------------------------------------------------------------------------------------


def text(node: Node) -> str:
    """Return SQL that Spark and `parse` read as this condition."""
    written = _text(node)
    # The outermost pair of parentheses is redundant.
    return written[1:-1] if isinstance(node, Compare | Logic | In | Like | Arithmetic | Not | IsNull) else written


def _text(node: Node) -> str:  # noqa: C901 - one case for each node
    match node:
        case Column(path=path):
            return ".".join("`" + name.replace("`", "``") + "`" for name in path)
        case Literal():
            return _literal_text(node)
        case Compare(op=op, left=left, right=right) | Arithmetic(op=op, left=left, right=right):
            return f"({_text(left)} {op} {_text(right)})"
        case Logic(op=op, all=parts):
            return "(" + f" {op} ".join(map(_text, parts)) + ")"
        case Not(of=IsNull(of=of)):
            return f"({_text(of)} is not null)"
        case Not(of=of):
            return f"(not {_text(of)})"
        case IsNull(of=of):
            return f"({_text(of)} is null)"
        case In(of=of, choices=choices):
            return f"({_text(of)} in ({', '.join(map(_text, choices))}))"
        case Like(of=of, pattern=pattern, escape=escape, ignore_case=ignore_case):
            word = "ilike" if ignore_case else "like"
            escaping = "" if escape == "\\" else f" escape {_quoted(escape)}"
            return f"({_text(of)} {word} {_quoted(pattern)}{escaping})"
        case Negate(of=of):
            return f"(- {_text(of)})"
        case Cast(of=of, kind=kind):
            return f"cast({_text(of)} as {type_name(kind)})"
        case Call(name=name, arguments=arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
    raise AssertionError(node)


def _literal_text(node: Literal) -> str:
    value, kind = node.value, node.kind
    if value is None:
        return "null" if pa.types.is_null(kind) else f"cast(null as {type_name(kind)})"
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return _signed(str(value) + _SUFFIX.get(kind, ""))
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
                return f"cast('{name}' as {type_name(kind)})"
            return _signed(f"{value!r}{'D' if kind == pa.float64() else 'F'}")
        case str():
            return _quoted(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            word = "timestamp_ntz" if value.tzinfo is None else "timestamp"
            return f"{word} '{value.replace(tzinfo=None).isoformat(' ', 'microseconds')}{zone}'"
        case date():
            return f"date '{value.isoformat()}'"
        case Decimal():
            plain = _signed(f"{value:f}BD")
            natural = literal(value).kind
            return plain if kind == natural else f"cast({plain} as {type_name(kind)})"
    raise AssertionError(node)


def _signed(number: str) -> str:
    return f"({number})" if number.startswith("-") else number


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SHOWN = 60  # characters to each side of the position


def refused(what: str, text: str | None = None, at: int | None = None) -> InputError:
    """Return the error; it marks the position if the condition was given as text."""
    if text is None:
        return InputError(what)
    if at is None:
        return InputError(f"{what}, in {text!r}", condition=text)
    at = min(at, len(text))
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    shown_from = max(start, at - _SHOWN)
    shown = text[shown_from : end if end >= 0 else len(text)][: 2 * _SHOWN].expandtabs(1)
    position = at - start + 1
    return InputError(
        f"{what}, at line {line}, column {position}:\n  {shown}\n  {' ' * (at - shown_from)}^",
        condition=text,
        line=line,
        position=position,
    )


def no_column(path: tuple[str, ...], known: list[str], text: str | None, at: int | None) -> InputError:
    """Return the error for an unknown column, with the likeliest names that exist."""
    name, inside = path[-1], ".".join(path[:-1])
    where = f"column {inside!r} has no field {name!r}" if inside else f"there is no column {name!r}"
    every = f"there are {', '.join(known[:20])}{' and more' if len(known) > 20 else ''}" if known else "it has none"
    hint = meant(name, known) or every
    return refused(f"{where} ({hint})", text, at)
