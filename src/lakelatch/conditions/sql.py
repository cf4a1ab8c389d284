"""The parser of SQL text. sqlglot reads Spark's grammar; syntax without a node in `tree` is refused at its position.

The parser is sqlglot, not DuckDB or Substrait, because it knows Spark's literals, quotes and precedence, reports the position
of each name, and is pure Python without dependencies. DuckDB parses its own dialect (a double quote begins a name there) and
resolves functions by its own rules; Substrait is no text, and its Python producers need one of these parsers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any

import pyarrow as pa

from ..arguments import meant
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
    joined,
    literal,
    refused,
)

_TEXT_MAX = 1 << 20
_SUSPECT = re.compile(r"\w\(|(?<![\w.])`?[st]`?\.[`\w]", re.IGNORECASE)
_COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NullSafeEQ": "<=>"}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div"}
_CALLS = {
    "Lower": "lower",
    "Upper": "upper",
    "Length": "length",
    "Abs": "abs",
    "Coalesce": "coalesce",
    "IsNan": "isnan",
    "Year": "year",
    "Month": "month",
    "Day": "day",
}
_NUMERAL = re.compile(r"(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)(BD|[LSYDF]|)", re.IGNORECASE)
_WHOLE = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_KINDS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": LOCAL_TIMESTAMP,
    "TIMESTAMP_NTZ": LOCAL_TIMESTAMP,
}


def parse(text: str) -> Node:
    """Parse SQL text into a condition, by the rules of Spark.

    Raises:
        InputError: it is no condition, or uses syntax that is not supported; names line and column.
    """
    from sqlglot.errors import SqlglotError

    if not text.strip():
        raise refused("the condition is empty; say which rows, as amount < 10")
    if len(text) > _TEXT_MAX:
        raise refused(f"a condition of {len(text)} characters is too long ({_TEXT_MAX} at most)")
    try:
        dialect, condition = _dialect()
        read = [each for each in dialect.parse_into(condition, text) if each is not None]
        if len(read) != 1:
            raise refused("this is more than one statement, or none; give one condition", text)
        return _Reader(text).node(read[0])
    except SqlglotError as e:
        raise _syntax(text, e) from e
    except RecursionError as e:
        raise refused("the condition is nested too deeply; write it flatter", text[:200]) from e


def computes(text: str, columns: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a text reads as an expression: over ``s.x`` or ``t.x``, or as a function call.

    A column that is nearly one of these counts, so that a misspelled expression is found too. Prose is none, nor are ``Berlin
    (Mitte)``, ``item(s)`` and ``t.co/abc``, which name none of them.

    Args:
        text: a value to be stored.
        columns: paths of the columns that an expression may name there.
    """
    # Most values are prose, which need not be parsed.
    if not _SUSPECT.search(text) or len(text) > _TEXT_MAX:
        return False
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    dialect, condition = _dialect()
    try:
        read = dialect.parse_into(condition, text)
    except (SqlglotError, RecursionError):
        return False
    if len(read) != 1 or read[0] is None:
        return False
    known = list(columns)

    def names(e: Any) -> bool:
        # The last part may be misspelled; the parts before it must match, ignoring case.
        parts = [part.name for part in e.parts]
        here = [path for path in known if [each.lower() for each in parts[: len(path) - 1]] == list(path[:-1])]
        return any(len(parts) >= len(path) and meant(parts[len(path) - 1], [path[-1]]) for path in here)

    for e in read[0].walk():
        if isinstance(e, exp.Column) and len(known[0]) > 1 and names(e):
            return True
        if isinstance(e, exp.Func) and not isinstance(e, exp.Binary | exp.Unary):
            used = list(e.find_all(exp.Column))
            if any(map(names, used)) or not (used or isinstance(e, exp.Anonymous)):
                return True
    return False


@cache
def _dialect() -> tuple[Any, Any]:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

    return Dialect.get_or_raise("spark"), exp.Condition


def _syntax(text: str, error: Any) -> InputError:
    first = error.errors[0] if getattr(error, "errors", None) else {}
    if "line" not in first:
        unclosed = str(error).startswith("Error tokenizing")
        why = "a text, a name or a comment in it does not end" if unclosed else str(error).splitlines()[0]
        return refused(f"no condition can be read ({why})", text)
    lines = text.split("\n")
    before = sum(len(line) + 1 for line in lines[: first["line"] - 1])
    # sqlglot reports the column of the token's last character.
    at = before + max(0, first["col"] - max(1, len(first.get("highlight") or "")))
    what = first["description"]
    if what.startswith("Required keyword"):
        what = "something is missing here"
    elif what.startswith("Invalid expression"):
        what = "this was not expected here (a name that is a word of SQL wants backticks)"
    return refused(what[:1].lower() + what[1:], text, at)


class _Reader:
    """A translator of sqlglot's tree into nodes of `tree`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def node(self, e: Any) -> Node:
        """Return the node for an expression of sqlglot."""
        if e is None:
            raise refused("something is missing in the condition", self._text)
        name = type(e).__name__
        at = _place(e)
        if name in _COMPARISONS:
            # Spark reads a = b < c from the left, and sqlglot compares b with c first.
            if not {type(e.this).__name__, type(e.expression).__name__}.isdisjoint(_COMPARISONS):
                raise refused("comparisons side by side want parentheses", self._text, at)
            if type(e.expression).__name__ == "Not":
                raise refused("not wants parentheses here", self._text, _place(e.expression))
            return Compare(_COMPARISONS[name], self.node(e.this), self.node(e.expression), at=at)
        if name == "NullSafeNEQ":
            return Not(Compare("<=>", self.node(e.this), self.node(e.expression), at=at), at=at)
        if name in ("And", "Or"):
            return joined(name.lower(), [self.node(each) for each in _chain(e)], at)
        if name in _ARITHMETIC:
            return Arithmetic(_ARITHMETIC[name], self.node(e.this), self.node(e.expression), at=at)
        if name in _CALLS:
            return self._call(_CALLS[name], e, at)
        read: Callable[[Any, int | None], Node] | None = getattr(self, f"_{name.lower()}", None)
        if read is None:
            raise self._no(e, at)
        return read(e, at)

    def _no(self, e: Any, at: int | None) -> InputError:
        name = type(e).__name__
        what = {
            "Anonymous": f"the function {e.name!r}" if name == "Anonymous" else "",
            "Block": "a second statement",
            "Placeholder": "a placeholder",
            "Select": "a query",
            "Subquery": "a query",
            "Case": "case",
            "DPipe": "||",
            "Concat": "texts side by side (write one, with \\' for a quote)",
            "Interval": "an interval",
            "Bracket": "an element of a list or map",
        }.get(name, e.sql_name().lower() if hasattr(e, "sql_name") else e.key or name)
        return refused(
            f"{what} has no form in a condition; there are comparisons, and, or, not, in, between, like, is null, "
            f"arithmetic, cast and {', '.join(sorted(FUNCTIONS))}",
            self._text,
            at,
        )

    def _paren(self, e: Any, _at: int | None) -> Node:
        return self.node(e.this)

    def _column(self, e: Any, at: int | None) -> Node:
        if any(type(part).__name__ != "Identifier" for part in e.parts) or e.args.get("join_mark"):
            raise self._no(e.parts[-1], at)
        return Column(tuple(part.name for part in e.parts), at=at)

    def _dot(self, e: Any, at: int | None) -> Node:
        above, field = self.node(e.this), e.expression
        if not isinstance(above, Column) or type(field).__name__ != "Identifier":
            raise self._no(e, at)
        return Column((*above.path, field.name), at=at)

    def _literal(self, e: Any, at: int | None) -> Node:
        if e.is_string:
            return self._value(lambda: literal(e.this, at), at)
        return self._value(lambda: _number(self._numeral(e) or e.this, at), at)

    def _value(self, make: Callable[[], Literal], at: int | None) -> Literal:
        try:
            return make()
        except (TypeError, ValueError, ArithmeticError) as e:
            raise refused("this is no value that a condition can hold", self._text, at) from e

    def _rawstring(self, e: Any, at: int | None) -> Node:
        return self._value(lambda: literal(e.this, at), at)

    def _hexstring(self, e: Any, at: int | None) -> Node:
        digits = str(e.this)
        return self._value(lambda: literal(bytes.fromhex("0" * (len(digits) % 2) + digits), at), at)

    def _boolean(self, e: Any, at: int | None) -> Node:
        return literal(bool(e.this), at)

    def _null(self, _e: Any, at: int | None) -> Node:
        return literal(None, at)

    def _not(self, e: Any, at: int | None) -> Node:
        return Not(self.node(e.this), at=at)

    def _is(self, e: Any, at: int | None) -> Node:
        kind = type(e.expression).__name__
        if kind == "Null":
            return IsNull(self.node(e.this), at=at)
        if kind == "Boolean":
            return Compare("<=>", self.node(e.this), self.node(e.expression), at=at)
        raise refused("behind is stands null, true or false", self._text, _place(e.expression))

    def _between(self, e: Any, at: int | None) -> Node:
        if e.args.get("symmetric"):
            raise self._no(e, at)
        of = self.node(e.this)
        low, high = self.node(e.args["low"]), self.node(e.args["high"])
        return Logic("and", (Compare(">=", of, low, at=at), Compare("<=", of, high, at=at)), at=at)

    def _in(self, e: Any, at: int | None) -> Node:
        if not e.expressions or any(v for k, v in e.args.items() if k not in ("this", "expressions")):
            raise refused("in wants values in parentheses, at least one", self._text, at)
        of, choices = self.node(e.this), [self.node(each) for each in e.expressions]
        literals = tuple(each for each in choices if isinstance(each, Literal))
        if other := [each for each in choices if not isinstance(each, Literal)]:
            raise refused("in wants plain values; compare with columns by = and or", self._text, other[0].at)
        return In(of, literals, at=at)

    def _like(self, e: Any, at: int | None, escape: str = "\\") -> Node:
        pattern = self.node(e.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise refused("like wants its pattern as text", self._text, pattern.at or at)
        refuse_pattern(pattern.value, escape, self._text, pattern.at)
        found = Like(self.node(e.this), pattern.value, escape, type(e).__name__ == "ILike", at=at)
        return Not(found, at=at) if e.args.get("negate") else found

    _ilike = _like

    def _escape(self, e: Any, at: int | None) -> Node:
        char = self.node(e.expression)
        if type(e.this).__name__ not in ("Like", "ILike"):
            raise self._no(e, at)
        if not isinstance(char, Literal) or not isinstance(char.value, str):
            raise refused("escape wants one character", self._text, char.at)
        return self._like(e.this, at, char.value)

    def _neg(self, e: Any, at: int | None) -> Node:
        # The smallest bigint is out of range without its sign.
        if (numeral := self._numeral(e.this)) is not None:
            return self._value(lambda: _number(f"-{numeral}", at), at)
        return Negate(self.node(e.this), at=at)

    def _cast(self, e: Any, at: int | None) -> Node:
        if (numeral := self._numeral(e)) is not None:
            return self._value(lambda: _number(numeral, at), at)
        if any(v for k, v in e.args.items() if k not in ("this", "to")):
            raise refused("try_cast and casts with a format have no form in a condition", self._text, at)
        of, kind = self.node(e.this), self._kind(e.args["to"], at)
        if not isinstance(of, Literal):
            return Cast(of, kind, at=at)
        if of.value is None:
            return Literal(None, kind, at=at)
        # A typed literal such as date '2026-11-24' arrives as a cast. It is evaluated now, to report a bad one at its
        # position.
        if not isinstance(of.value, Decimal if pa.types.is_decimal(kind) else str):
            return Cast(of, kind, at=at)
        try:
            return value_of(Cast(of, kind, at=at))
        except InputError as error:
            raise refused(error.args[0], self._text, at) from error

    def _numeral(self, e: Any) -> str | None:
        """Return a number as it is written, with its type suffix, which sqlglot turns into a cast; None for anything else."""
        suffixed = type(e).__name__ in ("Cast", "TryCast")
        inner = e.this if suffixed else e
        if type(inner).__name__ != "Literal":
            return None
        start, end = inner.meta.get("start"), inner.meta.get("end")
        if start is None:  # sqlglot turns 1.5BD into a cast of a text without a position
            return f"{inner.this}BD" if suffixed and inner.is_string else None
        written = self._text[start : end + 1]
        if inner.is_string or suffixed != written[-1:].isalpha():
            return None
        return written

    _trycast = _cast

    def _kind(self, to: Any, at: int | None) -> pa.DataType:
        name = to.this.name if hasattr(to.this, "name") else str(to.this)
        if name == "DECIMAL":
            numbers = [int(each.name) for each in to.expressions]
            precision, scale = [*numbers, 10, 0][:2] if not numbers else [*numbers, 0][:2]
            if not 1 <= precision <= 38 or not 0 <= scale <= precision:
                raise refused(f"there is no type decimal({precision},{scale})", self._text, at)
            return pa.decimal128(precision, scale)
        if name not in _KINDS or to.args.get("nested"):
            raise refused(f"a condition knows no cast to {to.sql(dialect='spark').lower()}", self._text, at)
        return _KINDS[name]

    def _call(self, name: str, e: Any, at: int | None) -> Node:
        given = [each for each in (e.this, *e.expressions) if each is not None]
        if len(given) < 1 or any(v for k, v in e.args.items() if k not in ("this", "expressions", "binary")):
            raise self._no(e, at)
        # sqlglot wraps the argument of year, month and day in a conversion of its own.
        inner = [each.this if type(each).__name__ == "TsOrDsToDate" else each for each in given]
        return Call(name, tuple(map(self.node, inner)), at=at)


def _chain(e: Any) -> list[Any]:
    """Return the parts of ``a and b and c`` in a loop: there may be too many for recursion."""
    kind, parts = type(e), []
    while type(e) is kind:
        parts.append(e.expression)
        e = e.this
    return [e, *reversed(parts)]


def _place(e: Any) -> int | None:
    """Return the position of the first character of an expression, or None."""
    waiting, found = [e], None
    for _ in range(200):  # a bound on the work; a very long expression gets an approximate position
        if not waiting:
            break
        each = waiting.pop(0)
        start = each.meta.get("start")
        if start is not None and (found is None or start < found):
            found = int(start)
        waiting += each.iter_expressions()
    return found


def _number(text: str, at: int | None) -> Literal:
    digits, letters = ((found := _NUMERAL.fullmatch(text)) and found.groups()) or (text, "")
    match letters.upper():
        case "BD":
            return literal(Decimal(digits), at)
        case "D" | "F" as letter:
            return _double(digits, pa.float64() if letter == "D" else pa.float32(), at)
        case "":
            if "e" in digits.lower():
                return _double(digits, pa.float64(), at)
            return literal(Decimal(digits) if "." in digits else int(digits), at)
        case letter:
            return Literal(pa.scalar(int(digits), _WHOLE[letter]).as_py(), _WHOLE[letter], at=at)


def _double(digits: str, kind: pa.DataType, at: int | None) -> Literal:
    value = pa.scalar(float(digits), kind).as_py()
    if not isfinite(value):
        raise ValueError(f"{digits} is too large")
    return Literal(value, kind, at=at)


def refuse_pattern(pattern: str, escape: str, text: str | None = None, at: int | None = None) -> None:
    """Raise `InputError` for a pattern that has no meaning in Spark."""
    if len(escape) != 1 or escape in "%_":
        raise refused(f"escape wants one character that is no wildcard, not {escape!r}", text, at)
    rest = iter(pattern)
    for char in rest:
        if char == escape and (follows := next(rest, "")) not in ("%", "_", escape):
            raise refused(
                f"in the pattern {pattern!r} {escape!r} stands before "
                f"{repr(follows) if follows else 'its end'}; it may stand before %, _ and itself",
                text,
                at,
            )
        if char == escape and not follows:
            raise refused(f"the pattern {pattern!r} ends with its escape character", text, at)
