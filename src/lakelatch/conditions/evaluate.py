"""Evaluation of a bound condition on rows, as in Spark's ANSI mode: three-valued logic, and an overflow is an error.

A value is an array or, if it is the same in every row, a scalar. Rows that the left side of ``and`` or ``or`` has decided are
null for any operation on the right side that could fail, so that ``n <> 0 and 1 / n > 2`` works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from ..errors import InputError
from .tree import (
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
    text,
    type_name,
    walk,
)

_WHOLE = r"^[+-]?[0-9]+$"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?Infinity$|^NaN$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(Z|[+-]\d{2}:\d{2})?)?", re.ASCII)
_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def mask_of(node: Node, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Return a mask of the rows for which the bound condition is true; without nulls.

    A column that the rows do not have is null in all of them: their file is older than the column.

    Raises:
        InputError: a value has no result, for example a division by zero.
    """
    found = pc.fill_null(_Evaluation(rows).of(node), fill_value=False)
    if isinstance(found, pa.Scalar):
        found = pa.repeat(found.cast(pa.bool_()), rows.num_rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def values_of(node: Node, rows: pa.Table) -> pa.ChunkedArray:
    """Return the value of a bound expression in each row; errors as of `mask_of`."""
    found = _Evaluation(rows).of(node)
    if isinstance(found, pa.Scalar):
        found = pa.array([found.as_py()], found.type).take(pa.array(np.zeros(rows.num_rows, np.int64)))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def value_of(node: Node) -> Literal:
    """Return the value of an expression that reads no column. Raises `InputError` if it has none."""
    found = _Evaluation(None).of(node)
    value = found if isinstance(found, pa.Scalar) else found[0]
    return Literal(_python(value), value.type, at=node.at)


def _python(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError) as e:
        raise InputError(f"{value} is beyond the years 1 to 9999, which a value in a condition can have") from e


class _Evaluation:
    def __init__(self, rows: pa.Table | pa.RecordBatch | None) -> None:
        self._rows = rows

    def of(self, node: Node, active: Any = None) -> Any:  # noqa: C901 - one case for each node
        """Return the value in each row; in rows that are not ``active`` it does not matter."""
        match node:
            case Column(path=path, kind=kind):
                return self._column(path, kind)
            case Literal(value=value, kind=kind):
                return pa.scalar(value, kind)
            case Compare(op=op, left=left, right=right):
                return _compared(op, self.of(left, active), self.of(right, active))
            case Logic(op=op, all=parts):
                return self._logic(op, parts, active)
            case Not(of=of):
                return pc.invert(self.of(of, active))
            case IsNull(of=of):
                return pc.is_null(self.of(of, active))
            case In(of=of, choices=choices):
                return _among(self.of(of, active), choices)
            case Like():
                return self._like(node, active)
            case Arithmetic(op=op, left=left, right=right):
                a, b = _only(self.of(left, active), active), _only(self.of(right, active), active)
                return self._attempt(node, lambda: _calculated(op, a, b, node.kind))
            case Negate(of=of):
                value = _only(self.of(of, active), active)
                kind = value.type
                negate = pc.negate_checked if t.is_integer(kind) else pc.negate
                return self._attempt(node, lambda: negate(value))
            case Cast(of=of, kind=kind):
                value = _only(self.of(of, active), active)
                return self._attempt(node, lambda: _cast(value, kind))
            case Call(name="coalesce", arguments=arguments):
                return self._coalesced(arguments, active)
            case Call(name=name, arguments=arguments):
                value = _only(self.of(arguments[0], active), active)
                return self._attempt(node, lambda: _CALLS[name](value))
        raise AssertionError(node)

    def _attempt(self, node: Node, calculate: Callable[[], Any]) -> Any:
        try:
            return calculate()
        except (pa.ArrowException, ValueError, OverflowError) as e:
            why = str(e).splitlines()[0]
            if self._rows is None:
                raise InputError(f"{text(node)} has no value ({why})") from e
            raise InputError(
                f"{text(node)} has no result in some row ({why}); leave such rows out first, as in n <> 0 and 1 / n > 2"
            ) from e

    def _column(self, path: tuple[str, ...], kind: pa.DataType | None) -> Any:
        if self._rows is None or path[0] not in self._rows.schema.names:
            return pa.scalar(None, kind)
        column: Any = self._rows.column(path[0])
        for name in path[1:]:
            fields = [column.type.field(n).name for n in range(column.type.num_fields)]
            if name not in fields:
                return pa.scalar(None, kind)
            column = pc.struct_field(column, [fields.index(name)])
        if t.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column if column.type == kind or kind is None else column.cast(kind)

    def _logic(self, op: str, parts: Sequence[Node], active: Any) -> Any:
        combine = pc.and_kleene if op == "and" else pc.or_kleene
        found = self.of(parts[0], active)
        for each in parts[1:]:
            within = active
            if any(map(_can_fail, walk(each))):
                # Only rows that the parts so far leave undecided may raise; null is undecided too.
                open_ = found if op == "and" else pc.invert(found)
                open_ = pc.fill_null(open_, fill_value=True)
                within = open_ if active is None else pc.and_(open_, active)
            found = combine(found, self.of(each, within))
        return found

    def _coalesced(self, arguments: Sequence[Node], active: Any) -> Any:
        found = self.of(arguments[0], active)
        for each in arguments[1:]:
            # A later argument may only fail in rows that still need it.
            missing = pc.is_null(found)
            found = pc.coalesce(found, self.of(each, missing if active is None else pc.and_(missing, active)))
        return found

    def _like(self, node: Like, active: Any) -> Any:
        value, pattern = self.of(node.of, active), node.pattern
        if node.ignore_case:
            value, pattern = _CALLS["lower"](value), pattern.lower()
        return pc.match_substring_regex(value, _regex(pattern, node.escape))


def _can_fail(node: Node) -> bool:
    return isinstance(node, Arithmetic | Negate | Cast) or (isinstance(node, Call) and node.name == "abs")


def _only(value: Any, active: Any) -> Any:
    """Return the value in active rows, null elsewhere."""
    if active is None:
        return value
    return pc.if_else(active, value, pa.scalar(None, value.type))


# --- comparison --------------------------------------------------------------------------------------------------


def _compared(op: str, a: Any, b: Any) -> Any:
    """Compare as Spark does: NaN equals itself and exceeds every number, -0.0 is 0.0, texts compare by their UTF-8 bytes."""
    if op == "<=>":
        # This operator is never null: two nulls are equal, a null and a value are not.
        either, both = pc.or_(pc.is_null(a), pc.is_null(b)), pc.and_(pc.is_null(a), pc.is_null(b))
        if t.is_null(a.type):
            return both
        return pc.if_else(either, both, _compared("=", a, b))
    if t.is_null(a.type):
        return pa.scalar(None, pa.bool_())
    if not t.is_floating(a.type):
        return _COMPARE[op](a, b)
    if op in (">", ">="):
        a, b, op = b, a, "<" if op == ">" else "<="
    if isinstance(b, pa.Scalar) and b.is_valid and b.as_py() == b.as_py():
        # Arrow agrees for a constant that is not NaN, and needs no search for NaN.
        return _COMPARE[op](a, b)
    a_nan, b_nan = pc.is_nan(a), pc.is_nan(b)
    match op:
        case "=":
            return pc.or_(pc.equal(a, b), pc.and_(a_nan, b_nan))
        case "!=":
            return pc.invert(pc.or_(pc.equal(a, b), pc.and_(a_nan, b_nan)))
        case "<":
            return pc.or_(pc.less(a, b), pc.and_(pc.invert(a_nan), b_nan))
        case _:
            return pc.or_(pc.less_equal(a, b), b_nan)


def _among(value: Any, choices: Sequence[Literal]) -> Any:
    kind = value.type
    known = [each.value for each in choices if each.value is not None]
    if t.is_null(kind) or t.is_floating(kind):
        # `is_in` does not follow Spark for NaN and -0.0, so floats are compared one by one.
        equal = [_compared("=", value, pa.scalar(each.value, kind)) for each in choices]
        return reduce(pc.or_kleene, equal)
    found = pc.is_in(value, value_set=pa.array(known, kind))
    if len(known) < len(choices):  # a null among the choices might be equal
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _regex(pattern: str, escape: str) -> str:
    """Return RE2 for a pattern of ``like``."""
    found, rest = [], iter(pattern)
    for char in rest:
        if char == escape:
            found.append(_exactly(next(rest)))
        else:
            found.append({"%": ".*", "_": "."}.get(char) or _exactly(char))
    return f"(?s)\\A{''.join(found)}\\z"


def _exactly(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}"


# --- arithmetic --------------------------------------------------------------------------------------------------


def _calculated(op: str, a: Any, b: Any, kind: pa.DataType | None) -> Any:
    whole = t.is_integer(a.type)
    match op:
        case "+":
            return (pc.add_checked if whole else pc.add)(a, b).cast(kind)
        case "-":
            return (pc.subtract_checked if whole else pc.subtract)(a, b).cast(kind)
        case "*":
            return (pc.multiply_checked if whole else pc.multiply)(a, b).cast(kind)
    _refuse_zero(a, b)
    if op == "div":
        return pc.divide_checked(a, b)
    if op == "/":
        return pc.divide(a, b)
    if whole:
        # The smallest integer divided by -1 overflows; the remainder is 0 by 1 as well.
        b = pc.if_else(pc.equal(b, pa.scalar(-1, b.type)), pa.scalar(1, b.type), b)
        return pc.subtract(a, pc.multiply(pc.divide(a, b), b))
    return _remainder(a, b)


def _refuse_zero(a: Any, b: Any) -> None:
    found = pc.and_(pc.is_valid(a), pc.equal(b, pa.scalar(0, b.type)))
    if (found if isinstance(found, pa.Scalar) else pc.any(found)).as_py():
        raise ValueError("division by zero")


def _remainder(a: Any, b: Any) -> Any:
    rows = max((len(each) for each in (a, b) if not isinstance(each, pa.Scalar)), default=1)
    a, b = (pa.repeat(each, rows) if isinstance(each, pa.Scalar) else each for each in (a, b))
    # Arrow has no remainder. `fmod` gives it the sign of the dividend, as Spark does.
    with np.errstate(invalid="ignore"):
        found = np.fmod(pc.fill_null(a, 0).to_numpy(), pc.fill_null(b, 1).to_numpy())
    return pc.if_else(
        pc.and_(pc.is_valid(a), pc.is_valid(b)), pa.array(found, a.type, from_pandas=False), pa.scalar(None, a.type)
    )


# --- casts -------------------------------------------------------------------------------------------------------


def _cast(value: Any, kind: pa.DataType) -> Any:
    given = value.type
    if t.is_string(given):
        return _read(value, kind)
    if t.is_floating(given) and t.is_integer(kind):
        return pc.trunc(value).cast(kind)
    if t.is_decimal(given) and t.is_integer(kind):
        whole = pc.round(value, 0, "towards_zero") if given.scale else value
        return whole.cast(pa.decimal128(38, 0)).cast(kind)
    if t.is_decimal(given) and t.is_floating(kind):
        # Arrow's own conversion is not always the nearest number.
        return value.cast(pa.string()).cast(pa.float64()).cast(kind, safe=False)
    if t.is_decimal(given) and t.is_decimal(kind):
        if kind.scale < given.scale:
            # Round in a wider type: rounding up may need one more digit, which Arrow does not check.
            value = pc.round(value.cast(pa.decimal256(76, given.scale)), kind.scale, "half_towards_infinity")
        return value.cast(kind)
    if t.is_integer(given) and t.is_decimal(kind):
        return value.cast(pa.decimal128(19, 0)).cast(kind)
    if t.is_floating(kind):
        return value.cast(kind, safe=False)
    if given == TIMESTAMP and t.is_date(kind):
        # The zone is dropped first: the day of a timestamp is its day in UTC.
        return pc.floor_temporal(value.cast(pa.int64()).cast(LOCAL_TIMESTAMP), unit="day").cast(kind)
    if t.is_timestamp(given) and t.is_date(kind):
        return pc.floor_temporal(value, unit="day").cast(kind)
    if t.is_timestamp(given) and t.is_timestamp(kind):
        return value.cast(pa.int64()).cast(kind)
    return value.cast(kind)


def _read(value: Any, kind: pa.DataType) -> Any:
    if t.is_timestamp(kind):
        if not isinstance(value, pa.Scalar):
            raise ValueError("only a text in the condition itself is read as a time")
        return pa.scalar(_time(value.as_py(), zoned=kind.tz is not None), kind)
    # Arrow reads other forms than Spark does, so the form is checked first.
    pattern = _WHOLE if t.is_integer(kind) else _DAY if t.is_date(kind) else _DECIMAL
    fits = pc.fill_null(pc.match_substring_regex(value, pattern), fill_value=True)
    if (fits if isinstance(fits, pa.Scalar) else pc.all(fits)).as_py() is False:
        wrong = value if isinstance(value, pa.Scalar) else value.filter(pc.invert(fits))[0]
        raise ValueError(f"{wrong.as_py()!r} is no {type_name(kind)}")
    return pc.replace_substring_regex(value, r"^\+", "").cast(kind)


def _time(text_: str | None, *, zoned: bool) -> datetime | None:
    if text_ is None:
        return None
    found = _TIME.fullmatch(text_)
    if found is None:
        raise ValueError(f"{text_!r} is no time such as 2026-11-24 09:30:00, with Z or +02:00 behind it if need be")
    day, clock, zone = found.groups()
    moment = datetime.fromisoformat(f"{day}T{_full(clock)}")
    if zone is None:
        return moment.replace(tzinfo=UTC) if zoned else moment
    moment = datetime.fromisoformat(f"{moment.isoformat()}{'+00:00' if zone == 'Z' else zone}").astimezone(UTC)
    if not zoned:
        raise ValueError(f"{text_!r} names a time zone, which a timestamp_ntz has not")
    return moment


def _full(clock: str | None) -> str:
    whole, _, fraction = (clock or "00:00").partition(".")
    return f"{whole}{':00' if whole.count(':') == 1 else ''}.{fraction:0<6}"


# --- functions ---------------------------------------------------------------------------------------------------


def _each_text(change: Callable[[str], str], ascii_only: Any) -> Callable[[Any], Any]:
    """Return a function over texts: Arrow's if all are ASCII, else Python's, which handles "ß" and a final sigma."""

    def changed(value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            return pa.scalar(None if value.as_py() is None else change(value.as_py()), pa.string())
        if pc.all(pc.string_is_ascii(value)).as_py() is not False:
            return ascii_only(value)
        return pa.array([None if each is None else change(each) for each in value.to_pylist()], pa.string())

    return changed


def _absolute(value: Any) -> Any:
    return pc.abs_checked(value) if t.is_integer(value.type) else pc.abs(value)


_CALLS: dict[str, Callable[[Any], Any]] = {
    "abs": _absolute,
    "day": lambda value: pc.day(value).cast(pa.int32()),
    "isnan": lambda value: pc.fill_null(pc.is_nan(value), fill_value=False),
    "length": pc.utf8_length,
    "lower": _each_text(str.lower, pc.ascii_lower),
    "month": lambda value: pc.month(value).cast(pa.int32()),
    "upper": _each_text(str.upper, pc.ascii_upper),
    "year": lambda value: pc.year(value).cast(pa.int32()),
}
