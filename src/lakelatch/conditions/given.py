"""Conditions given as terms or as an expression of pyarrow."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from ..arguments import brief, values_of
from ..errors import InputError
from .implied import Terms
from .sql import refuse_pattern
from .tree import (
    FUNCTIONS,
    LOCAL_TIMESTAMP,
    NAMES,
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
    Negate,
    Node,
    Not,
    joined,
    literal,
    refused,
)

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")
_AMONG = ("in", "not in")


def of_terms(terms: Terms) -> Node:
    """Parse terms such as ``("month", "=", 3)`` and ``("gate", "is null")``, joined by ``and``.

    Raises:
        InputError: they are no terms, or a value cannot be compared.
    """
    if not isinstance(terms, Sequence) or isinstance(terms, str | bytes):
        raise refused(
            f"{brief(terms)} is no condition; give SQL text, or a list as [('month', '=', 3), ('gate', 'is null')]"
        )
    return joined("and", [_of_term(each) for each in terms]) if terms else literal(True)


def _of_term(term: Any) -> Node:
    if not isinstance(term, tuple | list) or len(term) not in (2, 3) or not all(isinstance(s, str) for s in term[:2]):
        raise refused(f"{brief(term)} is no condition; give a list as [('month', '=', 3), ('gate', 'is null')]")
    name, op, *rest = term
    value = rest[0] if rest else None
    column = Column((name,))
    if op not in OPERATORS:
        raise refused(f"no operator {brief(op)} in a condition on {name!r}; known: {', '.join(OPERATORS)}")
    if op in ("is null", "is not null"):
        if value is not None:
            raise refused(f"{op!r} takes no value, but {name!r} was given {brief(value)}")
        return IsNull(column) if op == "is null" else Not(IsNull(column))
    values = values_of(value)
    if value is None or (op in _AMONG) != (values is not None):
        raise refused(
            f"{op!r} cannot compare {name!r} with {brief(value)}: give one value, for 'in' a tuple or another list, set or array "
            "of values, and ask for nulls with 'is null'"
        )
    if values is None:
        return Compare(op, column, _value(value, name))
    if op == "not in" and any(each is None for each in values):
        raise refused(f"'not in' with a null among its values is true for no {name!r}; leave it out")
    choices = tuple(_value(each, name) for each in values)
    found = In(column, choices) if choices else literal(False)
    return Not(found) if op == "not in" else found


def _value(value: Any, name: str) -> Literal:
    try:
        return literal(value.item() if type(value).__module__ == "numpy" else value)
    except (TypeError, ValueError) as e:
        raise refused(f"{name!r} cannot be compared with {brief(value)}; give a plain value of Python") from e


# --- pyarrow -----------------------------------------------------------------------------------------------------

_COMPARE = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_LOGIC = {"and_kleene": "and", "or_kleene": "or"}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*"}
_CALL = {"utf8_lower": "lower", "utf8_upper": "upper", "utf8_length": "length", "coalesce": "coalesce"}
_NAN = literal(float("nan"))
_UNSAFE = (
    "allow_int_overflow",
    "allow_time_truncate",
    "allow_time_overflow",
    "allow_decimal_truncate",
    "allow_float_truncate",
    "allow_invalid_utf8",
)


def of_arrow(expression: pc.Expression) -> Node:
    """Parse an expression of pyarrow; its comparisons get the meaning that they have in SQL.

    Raises:
        InputError: a part of it cannot be expressed in a condition.
    """
    try:
        # An expression does not expose its tree, but its pickled form does.
        serialized = expression.__reduce__()[1][0]
    except (pa.ArrowException, TypeError) as e:
        raise _no_form(expression, "it names no column, or its function cannot be stored") from e
    with pa.ipc.open_file(serialized) as file:
        values = file.get_batch(0)
        said = _in_order(file.schema)
    return _Stored(expression, said, values).node()


def _no_form(expression: Any, what: str) -> InputError:
    return refused(f"the expression {expression} has no form as a condition ({what}); give it as SQL text")


class _Stored:
    """A parser of the pickled form of a pyarrow expression: words in tree order, values in a batch of one row.

    Source: ``Serialize`` in Arrow C++ ``compute/expression.cc``.
    """

    def __init__(self, expression: Any, said: list[tuple[str, str]], values: pa.RecordBatch) -> None:
        self._expression, self._values = expression, values
        self._said: Iterator[tuple[str, str]] = iter(said)

    def _no(self, what: str) -> InputError:
        return _no_form(self._expression, what)

    def node(self) -> Node:
        """Read the next node."""
        found = self._next()
        if not isinstance(found, Node):
            raise self._no("it ends too early")
        return found

    def _next(self) -> Node | tuple[str, dict[str, Any]]:
        word, what = next(self._said)
        match word:
            case "field_ref":
                return Column((what,))
            case "nested_field_ref":
                path = [next(self._said) for _ in range(int(what))]
                if any(each[0] != "field_ref" for each in path):
                    raise self._no("it names a field by its place")
                return Column(tuple(each[1] for each in path))
            case "literal":
                return self._literal(self._values.column(int(what))[0])
            case "options":
                return "options", self._values.column(int(what))[0]
            case "end":
                return "end", {}
            case "call":
                return self._call(what)
        raise self._no(f"it has a {word}")

    def _literal(self, value: pa.Scalar) -> Literal:
        kind = value.type
        if t.is_dictionary(kind):
            return self._literal(value.cast(kind.value_type))
        try:
            if t.is_timestamp(kind):
                kind = LOCAL_TIMESTAMP if kind.tz is None else TIMESTAMP
                return Literal(value.cast(kind).as_py(), kind)
            if t.is_null(kind) or not value.is_valid:
                return literal(None)
            if kind in NAMES or t.is_decimal128(kind):
                return Literal(value.as_py(), kind)
            return literal(value.as_py())
        except (TypeError, ValueError, OverflowError) as e:
            raise self._no(f"a value of type {kind}") from e

    def _call(self, name: str) -> Node:
        parts: list[Node] = []
        options: Any = {}
        while True:
            found = self._next()
            if isinstance(found, Node):
                parts.append(found)
            elif found[0] == "end":
                return self._function(name, parts, options)
            else:
                options = found[1]

    def _function(self, name: str, parts: list[Node], options: Any) -> Node:  # noqa: C901 - one case for each function
        # Conditions always check for overflow, so both forms are the same here.
        plain = name.removesuffix("_checked")
        match plain:
            case _ if plain in _COMPARE:
                return Compare(_COMPARE[plain], *parts)
            case _ if plain in _LOGIC:
                return joined(_LOGIC[plain], parts)
            case _ if plain in _ARITHMETIC:
                return Arithmetic(_ARITHMETIC[plain], *parts)
            case "invert":
                return Not(*parts)
            case "negate":
                return Negate(*parts)
            case "abs":
                return Call("abs", tuple(parts))
            case "is_nan":
                return Compare("=", parts[0], _NAN)  # null for null, as Arrow has it
            case "is_valid":
                return Not(IsNull(*parts))
            case "is_null":
                missing = IsNull(*parts)
                return (
                    joined("or", [missing, Compare("=", parts[0], _NAN)]) if options["nan_is_null"].as_py() else missing
                )
            case "is_in":
                return self._is_in(parts[0], options["value_set"].values, options["null_matching_behavior"].as_py())
            case "cast" if not any(options[flag].as_py() for flag in _UNSAFE):
                return Cast(parts[0], self._cast_type(options["to_type"].type))
            case "match_like":
                pattern = options["pattern"].as_py()
                refuse_pattern(pattern, "\\", str(self._expression))
                return Like(parts[0], pattern, ignore_case=options["ignore_case"].as_py())
            case "starts_with" | "ends_with" | "match_substring" if not options["ignore_case"].as_py():
                return Like(parts[0], _pattern(plain, options["pattern"].as_py()))
            case _ if plain in _CALL and FUNCTIONS[_CALL[plain]] in (None, len(parts)):
                return Call(_CALL[plain], tuple(parts))
        raise self._no(f"its function {name}")

    def _cast_type(self, kind: pa.DataType) -> pa.DataType:
        if kind in NAMES or t.is_decimal128(kind):
            return kind
        raise self._no(f"a cast to {kind}")

    def _is_in(self, of: Node, choices: Any, nulls: int) -> Node:
        known = [self._literal(each) for each in choices if each.is_valid]
        found: Node = In(of, tuple(known)) if known else literal(False)
        # Arrow's result is never null. 0 is MATCH: a null matches a null among the values; 1 is SKIP: a null matches nothing.
        if nulls == 0 and len(known) < len(choices):
            return joined("or", [found, IsNull(of)])
        if nulls in (0, 1):
            return joined("and", [found, Not(IsNull(of))])
        raise self._no("is_in with that way of nulls")


def _pattern(plain: str, piece: str) -> str:
    exact = "".join(f"\\{char}" if char in "%_\\" else char for char in piece)
    return ("" if plain == "starts_with" else "%") + exact + ("" if plain == "ends_with" else "%")


def _in_order(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the schema's metadata in its order and with repetitions, which pyarrow's dictionary loses.

    Source: Arrow's C data interface, where it is the third pointer of ``ArrowSchema``.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    words = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    at = words[2] or 0
    count = _int_at(at) if at else 0
    found, at = [], at + 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            size = _int_at(at)
            pair.append(ctypes.string_at(at + 4, size).decode())
            at += 4 + size
        found.append((pair[0], pair[1]))
    return found


def _int_at(address: int) -> int:
    (value,) = struct.unpack("=i", ctypes.string_at(address, 4))
    return int(value)
