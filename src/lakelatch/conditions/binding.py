"""Binding of a condition to a schema: find its columns, check its types and add the casts that Spark would add.

The rules are those of Spark's ANSI mode. A condition is refused where Spark would decide per value at run time (a text column
compared with a number), or would silently lose digits (decimals beyond 38).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as t

from ..errors import InputError
from .evaluate import value_of
from .tree import (
    FUNCTIONS,
    LOCAL_TIMESTAMP,
    TIMESTAMP,
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Logic,
    Negate,
    Node,
    Not,
    no_column,
    refused,
    text,
    type_name,
)

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_CASTS: tuple[tuple[str, str], ...] = (
    # (from, to). A cast to the same type is always possible.
    ("integer", "integer"),
    ("integer", "floating"),
    ("integer", "decimal"),
    ("integer", "string"),
    ("boolean", "integer"),
    ("boolean", "string"),
    ("floating", "floating"),
    ("floating", "integer"),
    ("decimal", "integer"),
    ("decimal", "floating"),
    ("decimal", "decimal"),
    ("string", "integer"),
    ("string", "floating"),
    ("string", "date"),
    ("date", "string"),
    ("date", "timestamp"),
    ("timestamp", "date"),
    ("timestamp", "timestamp"),
)


def bind(node: Node, schema: pa.Schema, said: str | None = None) -> Node:
    """Return the condition over columns of this schema, with every cast explicit.

    Args:
        said: the text that it was parsed from, to mark the position of a mistake.

    Raises:
        InputError: a column is unknown, or types do not match.
    """
    bound, kind = _Binder(schema, said).bind(node)
    if not (t.is_boolean(kind) or t.is_null(kind)):
        raise refused(f"{text(node)} is a {type_name(kind)}, and no condition that is true or false", said, node.at)
    return Literal(None, pa.bool_()) if t.is_null(kind) else bound


def bind_value(node: Node, schema: pa.Schema, said: str | None = None) -> tuple[Node, pa.DataType]:
    """Return the value over columns of this schema, and its type; arguments and errors of `bind`."""
    return _Binder(schema, said).bind(node)


class _Binder:
    def __init__(self, schema: pa.Schema, said: str | None) -> None:
        self._schema, self._said = schema, said

    def bind(self, node: Node) -> tuple[Node, pa.DataType]:
        """Return the node over typed operands, and its own type."""
        bound, kind = self._bind(node)
        return self._folded(bound), kind

    def _folded(self, node: Node) -> Node:
        """Replace a cast of a literal by a literal, so that a value that does not fit the type is refused now."""
        if not (isinstance(node, Cast | Negate) and isinstance(node.of, Literal)):
            return node
        try:
            return value_of(node)
        except InputError as e:
            raise refused(str(e.args[0]), self._said, node.at if node.at is not None else node.of.at) from e

    def _as(self, node: Node, kind: pa.DataType, to: pa.DataType, at: int | None = None) -> Node:
        """Return the node in another type."""
        if kind == to:
            return node
        if isinstance(node, Literal) and node.value is None:
            return Literal(None, to, at=node.at)
        return self._folded(Cast(node, to, at=node.at if at is None else at))

    def _bind(self, node: Node) -> tuple[Node, pa.DataType]:  # noqa: C901 - one case for each node
        match node:
            case Literal(kind=kind):
                return node, kind
            case Column():
                return self._column(node)
            case Compare(op=op, left=left, right=right):
                (left, a), (right, b) = self.bind(left), self.bind(right)
                left, right = self._same((left, right), (a, b), node)
                return Compare(op, left, right, at=node.at), pa.bool_()
            case Logic(op=op, all=parts):
                return Logic(op, tuple(map(self._truth, parts)), at=node.at), pa.bool_()
            case Not(of=of):
                return Not(self._truth(of), at=node.at), pa.bool_()
            case IsNull(of=of):
                return IsNull(self.bind(of)[0], at=node.at), pa.bool_()
            case In(of=of, choices=choices):
                return self._in(node, of, choices)
            case Like(of=of):
                of, kind = self.bind(of)
                if not (t.is_string(kind) or t.is_null(kind)):
                    raise self._no(node, "like wants a text", kind)
                return replace(node, of=self._as(of, kind, pa.string())), pa.bool_()
            case Arithmetic():
                return self._arithmetic(node)
            case Negate(of=of):
                of, kind = self.bind(of)
                if not _number(kind):
                    raise self._no(node, "minus wants a number", kind)
                return Negate(of, at=node.at), kind
            case Cast(of=of, kind=to):
                of, kind = self.bind(of)
                read = isinstance(of, Literal) and t.is_string(kind) and t.is_timestamp(to)
                if not read and not _can_cast(kind, to):
                    raise self._no(node, f"a condition casts nothing to {type_name(to)} from", kind)
                return self._as(of, kind, to, node.at), to
            case Call(name=name, arguments=arguments):
                return self._call(node, name, [self.bind(each) for each in arguments])
        raise AssertionError(node)

    def _no(self, node: Node, what: str, *kinds: pa.DataType) -> InputError:
        names = " and ".join(map(type_name, kinds))
        return refused(f"{what} {names}" if what.endswith("from") else f"{what}, not {names}", self._said, node.at)

    def _column(self, node: Column) -> tuple[Node, pa.DataType]:
        fields: Any = self._schema
        kind: Any = None
        for depth, name in enumerate(node.path):
            known = [each.name for each in fields] if fields is not None else []
            if name not in known:
                raise no_column(node.path[: depth + 1], known, self._said, node.at)
            kind = next(each.type for each in fields if each.name == name)
            # A dictionary is only a way of storing the values.
            kind = kind.value_type if t.is_dictionary(kind) else kind
            fields = [kind.field(n) for n in range(kind.num_fields)] if t.is_struct(kind) else None
        kind = _plain(kind)
        return Column(node.path, kind, at=node.at), kind

    def _truth(self, node: Node) -> Node:
        bound, kind = self.bind(node)
        if not (t.is_boolean(kind) or t.is_null(kind)):
            raise self._no(node, "and, or and not want what is true or false", kind)
        return self._as(bound, kind, pa.bool_())

    def _same(self, nodes: tuple[Node, ...], kinds: tuple[pa.DataType, ...], whole: Node) -> tuple[Node, ...]:
        """Return the nodes in one type in which they can be compared."""
        found = self._common(nodes, kinds)
        if found is None or not _ordered(found):
            names = " with ".join(dict.fromkeys(map(type_name, kinds)))
            if names in map(type_name, kinds):
                names = f"values of type {names}"
            way = "cast one of them" if found is None else "only null can be asked for"
            raise refused(f"a condition cannot compare {names} ({way})", self._said, whole.at)
        return tuple(self._as(n, k, found) for n, k in zip(nodes, kinds, strict=True))

    def _common(self, nodes: tuple[Node, ...], kinds: tuple[pa.DataType, ...]) -> pa.DataType | None:
        found: pa.DataType | None = pa.null()
        texts = [t.is_string(kind) and isinstance(node, Literal) for node, kind in zip(nodes, kinds, strict=True)]
        for node, kind, is_text in zip(nodes, kinds, texts, strict=True):
            # A text literal takes the type of what it is compared with, so it has no say here.
            if is_text and not all(texts):
                continue
            found = _wider(found, _as_operand(node, kind, any(map(t.is_decimal, kinds))))
            if found is None:
                return None
        if any(texts) and not all(texts):
            # A text literal that is compared with a date or a time is read as one.
            if t.is_null(found) or t.is_string(found):
                return pa.string()
            return found if t.is_date(found) or t.is_timestamp(found) else None
        return found

    def _in(self, node: In, of: Node, choices: tuple[Literal, ...]) -> tuple[Node, pa.DataType]:
        bound, kind = self.bind(of)
        nodes = (bound, *choices)
        kinds = (kind, *(each.kind for each in choices))
        same = self._same(nodes, kinds, node)
        return In(same[0], tuple(each for each in same[1:] if isinstance(each, Literal)), at=node.at), pa.bool_()

    def _arithmetic(self, node: Arithmetic) -> tuple[Node, pa.DataType]:
        (left, a), (right, b) = self.bind(node.left), self.bind(node.right)
        op = node.op
        if not (_number(a) and _number(b)):
            raise self._no(node, f"{op} wants numbers", a, b)
        # Beside a decimal Spark gives whole numbers the precision of their type, or of the literal's digits.
        decimal = t.is_decimal(a) or t.is_decimal(b)
        operands = _as_operand(left, a, decimal), _as_operand(right, b, decimal)
        kind: pa.DataType | None
        if op == "div":
            if not (t.is_integer(a) and t.is_integer(b)):
                raise self._no(node, "div wants whole numbers", a, b)
            operand = kind = pa.int64()
        elif all(map(t.is_decimal, operands)):
            kind = _of_decimals(op, *operands)
            if kind is None:
                what = f"{op} of {type_name(operands[0])} and {type_name(operands[1])}"
                raise refused(f"{what} has no exact form in a condition; cast one to double", self._said, node.at)
            sides = [self._as(n, k, o) for n, k, o in zip((left, right), (a, b), operands, strict=True)]
            return Arithmetic(op, sides[0], sides[1], kind, at=node.at), kind
        elif op == "/":
            operand = kind = pa.float64()
        else:
            operand = kind = _wider(*operands)
        assert kind is not None
        left, right = self._as(left, a, operand), self._as(right, b, operand)
        return Arithmetic(op, left, right, kind, at=node.at), kind

    def _call(self, node: Call, name: str, given: list[tuple[Node, pa.DataType]]) -> tuple[Node, pa.DataType]:
        if FUNCTIONS[name] not in (None, len(given)):
            raise refused(f"{name} takes {FUNCTIONS[name]} argument, not {len(given)}", self._said, node.at)
        nodes, kinds = tuple(n for n, _ in given), tuple(k for _, k in given)
        kind = kinds[0]
        match name:
            case "lower" | "upper" | "length" if t.is_string(kind):
                return Call(name, nodes, at=node.at), pa.int32() if name == "length" else kind
            case "abs" if _number(kind):
                return Call(name, nodes, at=node.at), kind
            case "isnan" if t.is_floating(kind):
                return Call(name, nodes, at=node.at), pa.bool_()
            case "year" | "month" | "day" if t.is_date(kind) or t.is_timestamp(kind):
                days = tuple(self._as(n, k, pa.date32()) for n, k in given)
                return Call(name, days, at=node.at), pa.int32()
            case "coalesce":
                found: pa.DataType | None = pa.null()
                decimal = any(map(t.is_decimal, kinds))
                for each, each_kind in given:
                    found = _wider(found, _as_operand(each, each_kind, decimal)) if found is not None else None
                if found is not None and _ordered(found):
                    cast = tuple(self._as(n, k, found) for n, k in given)
                    return Call(name, cast, at=node.at), found
        raise self._no(node, f"{name} cannot take this: it has another type than it needs", *kinds)


def _number(kind: pa.DataType) -> bool:
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))


def _ordered(kind: pa.DataType) -> bool:
    """Return whether two values of this type can be compared."""
    return bool(
        _number(kind)
        or any(test(kind) for test in (t.is_boolean, t.is_string, t.is_binary, t.is_date, t.is_timestamp, t.is_null))
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the one form of types that differ only in memory or in their unit."""
    if t.is_large_string(kind) or getattr(t, "is_string_view", t.is_large_string)(kind):
        return pa.string()
    if t.is_large_binary(kind) or getattr(t, "is_binary_view", t.is_large_binary)(kind):
        return pa.binary()
    if t.is_date(kind):
        return pa.date32()
    if t.is_timestamp(kind):
        return LOCAL_TIMESTAMP if kind.tz is None else TIMESTAMP
    return kind


def _as_operand(node: Node, kind: pa.DataType, decimal: bool) -> pa.DataType:
    """Return the type of an operand: beside a decimal a whole number is a decimal of as many digits as it may have."""
    if not decimal or not t.is_integer(kind):
        return kind
    if isinstance(node, Literal):
        return pa.decimal128(len(str(abs(node.value))), 0)
    return pa.decimal128(_DIGITS[kind], 0)


def _wider(a: pa.DataType | None, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds values of both, None if there is none."""
    if a is None or a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    if _number(a) and _number(b):
        if t.is_decimal(a) and t.is_decimal(b):
            scale = max(a.scale, b.scale)
            digits = max(a.precision - a.scale, b.precision - b.scale) + scale
            return pa.decimal128(digits, scale) if digits <= 38 else None
        if t.is_integer(a) and t.is_integer(b):
            return max(a, b, key=lambda kind: _DIGITS.get(kind, 99))
        return pa.float64()
    if (t.is_date(a) or t.is_timestamp(a)) and (t.is_date(b) or t.is_timestamp(b)):
        return TIMESTAMP if TIMESTAMP in (a, b) else LOCAL_TIMESTAMP
    return None


def _of_decimals(op: str, a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return Spark's type of the result; None if it would round."""
    if op in ("+", "-"):
        scale = max(a.scale, b.scale)
        digits = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    elif op == "*":
        digits, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else None


def _can_cast(kind: pa.DataType, to: pa.DataType) -> bool:
    if kind == to or t.is_null(kind):
        return True
    return any(getattr(t, f"is_{a}")(kind) and getattr(t, f"is_{b}")(to) for a, b in _CASTS)
