"""Simple comparisons that a bound condition implies: for pruning by statistics, and for the reads that a transaction claims.

Every row that meets the condition meets all of them. A part without a simple form is left out, so more is read and claimed
than necessary, never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.types as t

from .tree import Cast, Column, Compare, In, IsNull, Literal, Logic, Node, Not, joined, walk

Terms = Sequence[tuple[Any, ...]]  # comparisons of columns with values, all of which hold

_TURNED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def terms_of(node: Node) -> tuple[tuple[Any, ...], ...]:
    """Return terms as ``("amount", "<", 10)``; operators are ``= != < <= > >= in``, ``is null`` and ``is not null``."""
    found = [term for each in conjuncts(_pushed(node, negated=False)) for term in _term(each)]
    return tuple(dict.fromkeys(found))


def about(node: Node, names: Sequence[str]) -> Node | None:
    """Return the conjunction of the parts that read only these columns; None if there are none."""
    parts = [
        each for each in conjuncts(_pushed(node, negated=False)) if columns_of(each) and columns_of(each) <= {*names}
    ]
    return joined("and", parts) if parts else None


def columns_of(node: Node) -> set[str]:
    """Return the columns that are read; of a nested one the outermost."""
    return {each.path[0] for each in walk(node) if isinstance(each, Column)}


def paths_of(node: Node) -> set[tuple[str, ...]]:
    """Return the columns that are read, with the fields inside nested ones."""
    return {each.path for each in walk(node) if isinstance(each, Column)}


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts that all have to be true."""
    if isinstance(node, Logic) and node.op == "and":
        for each in node.all:
            yield from conjuncts(each)
    else:
        yield node


def _pushed(node: Node, *, negated: bool) -> Node:
    """Return a node that is true for the same rows, with ``not`` moved down as far as possible."""
    match node:
        case Not(of=of):
            return _pushed(of, negated=not negated)
        case Logic(op=op, all=parts):
            turned = {"and": "or", "or": "and"}[op] if negated else op
            return joined(turned, [_pushed(each, negated=negated) for each in parts])
        case Compare(op=op, left=left, right=right) if negated and op in _OPPOSITE:
            # With a null both forms are null, so neither is true; ``<=>`` has no opposite.
            return Compare(_OPPOSITE[op], left, right)
    return Not(node) if negated else node


def _term(node: Node) -> list[tuple[Any, ...]]:
    match node:
        case Column(path=(name,), kind=kind) if kind is not None and t.is_boolean(kind):
            return [(name, "=", True)]
        case Not(of=Column(path=(name,), kind=kind)) if kind is not None and t.is_boolean(kind):
            return [(name, "=", False)]
        case IsNull(of=Column(path=(name,))):
            return [(name, "is null")]
        case Not(of=IsNull(of=Column(path=(name,)))):
            return [(name, "is not null")]
        case Compare(op=op, left=Literal() as value, right=right):
            return _comparison(_TURNED[op], right, value)
        case Compare(op=op, left=left, right=Literal() as value):
            return _comparison(op, left, value)
        case In(of=of, choices=choices):
            column = _name(of)
            # A null among the choices never makes the condition true.
            values = tuple(each.value for each in choices if each.value is not None)
            return [(column, "in", values)] if column is not None else []
        case Logic(op="or", all=parts):
            return _either([_term(each) for each in parts])
    return []


def _comparison(op: str, of: Node, value: Literal) -> list[tuple[Any, ...]]:
    name = _name(of)
    if name is None:
        return []
    if value.value is None:
        return [(name, "is null")] if op == "<=>" else []
    return [(name, "=" if op == "<=>" else op, value.value)]


def _name(of: Node) -> str | None:
    """Return the column whose statistics bound this, or None. Only a cast to a wider type of its kind keeps the order of
    values.
    """
    if isinstance(of, Cast) and isinstance(of.of, Column) and _widens(of.of.kind, of.kind):
        of = of.of
    return of.path[0] if isinstance(of, Column) and len(of.path) == 1 else None


def _either(alternatives: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Return one ``in`` for alternatives about one column: ``a = 1 or a in (2, 3)``."""
    values: list[Any] = []
    names = set()
    for each in alternatives:
        if len(each) != 1 or each[0][1] not in ("=", "in"):
            return []
        name, op, value = each[0]
        names.add(name)
        values += value if op == "in" else [value]
    return [(names.pop(), "in", tuple(values))] if len(names) == 1 else []


def _widens(kind: Any, to: Any) -> bool:
    if t.is_integer(kind) and t.is_integer(to):
        return bool(to.bit_width > kind.bit_width)
    both = t.is_decimal(kind) and t.is_decimal(to)
    return bool(both and to.scale >= kind.scale and to.precision - to.scale >= kind.precision - kind.scale)
