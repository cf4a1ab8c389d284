"""Random conditions and rows, and what a condition says of one row by the plainest code there is."""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from lakelatch.conditions.tree import (
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
    joined,
    literal,
)

INNER = pa.struct([("m", pa.int32()), ("q", pa.string())])
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int32()),
        ("b", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("r", pa.string()),
        ("d", pa.date32()),
        ("t", TIMESTAMP),
        ("p", pa.decimal128(10, 2)),
        ("w", pa.decimal128(20, 6)),
        ("ok", pa.bool_()),
        ("n", INNER),
    ]
)
_TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "a%b",
    "a_b",
    "a\\b",
    "ä",
    "Ä",
    "straße",
    "ΟΔΟΣ",
    "\U0001f600",
    "\uffff",
    "'",
    '"',
    "{}",
    "%s",
    "a\nb",
    "x y",
    "-1",
    "12",
    "İ",
    "Z",
    "\U00010400",
    "Ǆ",
    "NULL",
]
_PATTERNS = [
    "%",
    "a%",
    "%b",
    "_",
    "__",
    "a_b",
    "a\\_b",
    "%\\%%",
    "",
    "%\U0001f600",
    "A%",
    "%ß%",
    "ä",
    "a\\\\b",
    "%\n%",
    "{}",
    "ο%σ",
]
_DAYS = [
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 15),
    date(1899, 12, 31),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2020, 2, 29),
    date(9999, 12, 31),
]
_TIMES = [
    datetime(1, 1, 1, 0, 0, 0, 1),
    datetime(1582, 10, 14, 23, 59, 59),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2020, 2, 29, 12, 30, 0, 500),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_VALUES: dict[Any, list[Any]] = {
    pa.int32(): [0, 1, -1, 2, 3, 7, 10, 100, 2**31 - 1, -(2**31)],
    pa.int64(): [0, 1, -1, 5, 2**31, -(2**40), 2**53 + 1, 2**63 - 1, -(2**63)],
    pa.float64(): [0.0, -0.0, 1.0, -1.5, 0.1, 1e308, -1e-300, math.inf, -math.inf, math.nan, 2.0**53, 3.0],
    pa.float32(): [0.0, -0.0, 1.0, -1.5, float(np.float32(0.1)), math.inf, math.nan, 16777216.0],
    pa.string(): _TEXTS,
    pa.date32(): _DAYS,
    TIMESTAMP: [each.replace(tzinfo=UTC) for each in _TIMES],
    LOCAL_TIMESTAMP: _TIMES,
    pa.bool_(): [True, False],
    pa.decimal128(10, 2): [
        Decimal(each) for each in ("0.00", "1.00", "-1.00", "0.10", "12345678.99", "-99999999.99", "3.00")
    ],
    pa.decimal128(20, 6): [
        Decimal(each) for each in ("0.000000", "1.000000", "-1.500000", "0.100000", "99999999999999.999999")
    ],
}


def rows(rng: random.Random, number: int) -> pa.Table:
    """A table of `SCHEMA` with odd values and nulls."""
    columns = []
    for field in SCHEMA:
        if t.is_struct(field.type):
            one = lambda: None if rng.random() < 0.2 else {"m": _one(rng, pa.int32()), "q": _one(rng, pa.string())}  # noqa: E731
            columns.append(pa.array([one() for _ in range(number)], field.type))
        else:
            columns.append(pa.array([_one(rng, field.type) for _ in range(number)], field.type))
    return pa.table(columns, schema=SCHEMA)


def _one(rng: random.Random, kind: pa.DataType) -> Any:
    return None if rng.random() < 0.15 else rng.choice(_VALUES[kind])


def small(rng: random.Random, number: int) -> pa.Array:
    """Small numbers, so that they meet."""
    return pa.array([rng.choice([None, 0, 1, 2, 3, 5]) for _ in range(number)], pa.int32())


def condition(rng: random.Random, depth: int) -> Node:
    """A random one, true, false or null for each row; or an error."""
    deeper = depth > 0
    roll = rng.random()
    if deeper and roll < 0.35:
        parts = [condition(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        return joined(rng.choice(["and", "or"]), parts)
    if deeper and roll < 0.5:
        return Not(condition(rng, depth - 1))
    if roll < 0.55:
        return Column(("ok",))
    if roll < 0.62:
        return IsNull(value(rng, rng.choice(["number", "text", "day"]), depth - 1))
    if roll < 0.72:
        of = value(rng, "text", depth - 1)
        return Like(of, rng.choice(_PATTERNS), ignore_case=rng.random() < 0.3)
    if roll < 0.76:
        return Call("isnan", (Column((rng.choice("xyf"),)),))
    family = rng.choice(["number", "number", "number", "text", "day", "truth"])
    if roll < 0.86 and family != "truth":
        name, kind = rng.choice([each for each in _COLUMNS[family] if each[1] is not None])
        choices = tuple(_plain(rng, kind) if rng.random() < 0.9 else literal(None) for _ in range(rng.randint(1, 4)))
        return In(Column(name), choices)
    op = rng.choice(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    return Compare(op, value(rng, family, depth - 1), value(rng, family, depth - 1))


_COLUMNS: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {
    "number": [((each.name,), each.type) for each in SCHEMA if each.name in "ijbxyfpw"] + [(("n", "m"), pa.int32())],
    "text": [(("s",), pa.string()), (("r",), pa.string()), (("n", "q"), pa.string())],
    "day": [(("d",), pa.date32()), (("t",), TIMESTAMP)],
    "truth": [(("ok",), pa.bool_())],
}


def _plain(rng: random.Random, kind: pa.DataType) -> Literal:
    value = rng.choice(_VALUES[kind])
    if kind in (pa.float32(), pa.int64()) or t.is_decimal(kind):
        return literal(value)
    return Literal(value, kind)


def value(rng: random.Random, family: str, depth: int) -> Node:
    """A column, a literal, or something calculated."""
    roll = rng.random()
    if family == "truth":
        return Literal(rng.random() < 0.5, pa.bool_()) if roll < 0.5 else Column(("ok",))
    if depth > 0 and roll < 0.3:
        match family:
            case "number":
                return _calculated(rng, depth)
            case "text":
                return Call(rng.choice(["lower", "upper"]), (value(rng, "text", depth - 1),))
            case _:
                return Cast(value(rng, "day", depth - 1), rng.choice([pa.date32(), TIMESTAMP]))
    if roll < 0.65:
        return Column(rng.choice(_COLUMNS[family])[0])
    if roll > 0.97:
        return literal(None)
    return _plain(rng, rng.choice(_COLUMNS[family])[1])


def _calculated(rng: random.Random, depth: int) -> Node:
    roll = rng.random()
    if roll < 0.5:
        # Numbers that seldom overflow.
        names = rng.choice([["i", "j"], ["x", "y", "f"], ["p"], ["i", "p"], ["i", "x"]])
        left = Column((rng.choice(names),))
        right = rng.choice(
            [Column((rng.choice(names),)), literal(rng.choice([1, 2, 3])), literal(rng.choice([1.5, Decimal("0.5")]))]
        )
        return Arithmetic(rng.choice(["+", "-", "*", "/", "%"]), left, right)
    if roll < 0.6:
        return Call("length", (value(rng, "text", depth - 1),))
    if roll < 0.7:
        return Call(rng.choice(["year", "month", "day"]), (value(rng, "day", 0),))
    if roll < 0.8:
        return Call("coalesce", tuple(value(rng, "number", 0) for _ in range(2)))
    if roll < 0.9:
        return Cast(
            Column((rng.choice("ijbxfpw"),)), rng.choice([pa.int64(), pa.float64(), pa.decimal128(38, 3), pa.int32()])
        )
    return rng.choice([Negate, lambda of: Call("abs", (of,))])(Column((rng.choice("ixp"),)))


# --- one row, by hand --------------------------------------------------------------------------------------------


class NoResult(Exception):
    """An overflow, or a division by zero."""


def said(node: Node, row: dict[str, Any]) -> Any:
    """The value of a bound condition in one row: True, False or None."""
    match node:
        case Column(path=path, kind=kind):
            found: Any = row
            for name in path:
                found = None if found is None else found[name]
            return _in_kind(found, kind)
        case Literal(value=value, kind=kind):
            return _in_kind(value, kind)
        case Logic(op=op, all=parts):
            left = said(parts[0], row)
            for each in parts[1:]:
                left = _both(op, left, lambda each=each: said(each, row))
            return left
        case Not(of=of):
            inner = said(of, row)
            return None if inner is None else not inner
        case IsNull(of=of):
            return said(of, row) is None
        case Compare(op=op, left=left, right=right):
            return _order(op, said(left, row), said(right, row))
        case In(of=of, choices=choices):
            answers = [_order("=", said(of, row), said(each, row)) for each in choices]
            return True if True in answers else None if None in answers else False
        case Like(of=of, pattern=pattern, escape=escape, ignore_case=ignore_case):
            value = said(of, row)
            if value is None:
                return None
            if ignore_case:
                value, pattern = value.lower(), pattern.lower()
            return _like(value, pattern, escape)
        case Negate(of=of):
            value = said(of, row)
            return None if value is None else _fits(-value, node_kind(of))
        case Arithmetic(op=op, left=left, right=right, kind=kind):
            return _calculate(op, said(left, row), said(right, row), node_kind(left), kind)
        case Cast(of=of, kind=kind):
            value = said(of, row)
            return None if value is None else _cast(value, node_kind(of), kind)
        case Call(name="coalesce", arguments=arguments):
            return next((v for each in arguments if (v := said(each, row)) is not None), None)
        case Call(name=name, arguments=(of,)):
            return _call(name, said(of, row), node_kind(of))
    raise AssertionError(node)


def node_kind(node: Node) -> pa.DataType:
    match node:
        case Column(kind=kind) | Literal(kind=kind) | Cast(kind=kind) | Arithmetic(kind=kind):
            return kind
        case Negate(of=of) | Call(name="abs" | "coalesce" | "lower" | "upper", arguments=(of, *_)):
            return node_kind(of)
        case Call(name="isnan") | Compare() | Logic() | Not() | IsNull() | In() | Like():
            return pa.bool_()
        case Call():
            return pa.int32()
    raise AssertionError(node)


def _in_kind(value: Any, kind: pa.DataType | None) -> Any:
    if value is not None and kind == pa.float32():
        return float(np.float32(value))
    return value


def _both(op: str, left: Any, right: Any) -> Any:
    decided = op == "or"
    if left is decided:
        return decided
    other = right()
    if other is decided:
        return decided
    return None if left is None or other is None else not decided


def _order(op: str, a: Any, b: Any) -> Any:
    if op == "<=>":
        return a is None and b is None if a is None or b is None else _order("=", a, b)
    if a is None or b is None:
        return None
    if isinstance(a, float):
        keys: tuple[Any, Any] = (
            (math.isnan(a), 0.0 if math.isnan(a) else a),
            (math.isnan(b), 0.0 if math.isnan(b) else b),
        )
    elif isinstance(a, str):
        keys = a.encode(), b.encode()
    else:
        keys = a, b
    x, y = keys
    return {"=": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]


def _like(value: str, pattern: str, escape: str) -> bool:
    found, at = "", 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            found += re.escape(pattern[at])
        else:
            found += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    return re.fullmatch(found, value, re.DOTALL) is not None


def _fits(value: Any, kind: pa.DataType) -> Any:
    if t.is_integer(kind) and not -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1):
        raise NoResult(value)
    if t.is_decimal(kind) and abs(value) >= Decimal(10) ** (kind.precision - kind.scale):
        raise NoResult(value)
    return float(np.float32(value)) if kind == pa.float32() else value


def _calculate(op: str, a: Any, b: Any, kind: pa.DataType, result: pa.DataType) -> Any:
    if a is None or b is None:
        return None
    if op in ("/", "%", "div") and b == 0:
        raise NoResult
    if t.is_floating(kind):
        real = np.float32 if kind == pa.float32() else np.float64
        with np.errstate(all="ignore"):
            x, y = real(a), real(b)
            return float(
                {
                    "+": lambda: x + y,
                    "-": lambda: x - y,
                    "*": lambda: x * y,
                    "/": lambda: x / y,
                    "%": lambda: np.fmod(x, y),
                }[op]()
            )
    match op:
        case "+":
            return _fits(a + b, result)
        case "-":
            return _fits(a - b, result)
        case "*":
            return _fits(a * b, result)
        case "div":
            return _fits(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), result)
        case _:
            return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _cast(value: Any, kind: pa.DataType, to: pa.DataType) -> Any:
    if t.is_integer(to):
        if isinstance(value, float) and not math.isfinite(value):
            raise NoResult
        return _fits(int(value), to)
    if t.is_floating(to):
        with np.errstate(all="ignore"):
            return float(np.float32(float(value))) if to == pa.float32() else float(value)
    if t.is_decimal(to):
        return _fits(Decimal(value).quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP), to)
    if t.is_date(to):
        return value.date() if isinstance(value, datetime) else value
    if t.is_timestamp(to):
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        return value.replace(tzinfo=UTC if to.tz else None)
    return str(value)


def _call(name: str, value: Any, kind: pa.DataType) -> Any:
    if name == "isnan":
        return value is not None and math.isnan(value)
    if value is None:
        return None
    match name:
        case "abs":
            return _fits(abs(value), kind)
        case "lower":
            return value.lower()
        case "upper":
            return value.upper()
        case "length":
            return len(value)
    return getattr(value, name)
