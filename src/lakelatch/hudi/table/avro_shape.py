"""The structure of an Avro schema that another program wrote, and the limits within which it is safe to decode by it.

A decoder obeys the schema: a type that holds itself exhausts the stack, and a type that takes no bytes makes millions of
values of a few bytes. So every schema is checked here before a decoder sees it:

    no type holds itself; types are nested 32 deep at most, with 50,000 of them in all, one counted wherever it is used
    a value takes at least one byte: null stands in unions only, and no record or fixed type is empty
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_DEPTH_MAX = 32
_TYPES_MAX = 50_000
_FIXED_BYTES_MAX = 1 << 16
_TEXT_BYTES_MAX = 1 << 23
_TYPES_IN = ("type", "fields", "items", "values")
_ATTRIBUTES = (*_TYPES_IN, "name", "namespace", "symbols", "size")
_DECIMAL = ("logicalType", "precision", "scale")
_PRIMITIVES = {
    "null": "null",
    "boolean": "boolean",
    "int": "whole number",
    "long": "whole number",
    "float": "number",
    "double": "number",
    "bytes": "bytes",
    "string": "text",
    "enum": "text",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A type with its parts: fields by name, items under ``""``, branches of a union by their number.

    Attributes:
        name: name of a record, without its namespace.
        optional: fields that have a default.
        size: number of types in it, itself included; ``depth`` is how deep they are nested.
        free: True if a value may take no byte.
    """

    kind: str
    parts: Mapping[str, Shape] = field(default_factory=dict)
    name: str = ""
    optional: frozenset[str] = frozenset()
    size: int = 1
    depth: int = 1
    free: bool = False


def read_schema(text: str | bytes) -> Any:
    """Parse a schema from its JSON text. Raises ValueError if it holds itself or is too large."""
    if len(text) > _TEXT_BYTES_MAX:
        raise ValueError(f"a schema of {len(text)} bytes")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError("a schema that is nested too deep") from None
    shape_of(schema)
    return schema


def shape_of(schema: Any) -> Shape:
    """Return the shape of a schema. Raises ValueError as `read_schema`."""
    return _Reader(qualified=False).shape(schema, "", 0)


def decoder_of(text: str | bytes, *, logical: bool) -> tuple[Any, Shape]:
    """Return a schema as fastavro decodes by it, and its shape. Decimals are decimals only if ``logical``, else bytes.

    Dates and times are numbers: Python's own end at the year 9999.

    Raises:
        ValueError: as `read_schema`, or a few bytes could decode to many values.
    """
    import fastavro

    # Anything may stand in a default or a doc string, so fastavro is shown only the attributes that decide how bytes are
    # read.
    bare = _bare(read_schema(text), {*_ATTRIBUTES, *(_DECIMAL if logical else ())})
    try:
        schema = fastavro.parse_schema(bare)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, LookupError, TypeError) as error:
        raise ValueError(f"{error}") from error
    # Once more, as the decoder understands the names in it.
    shape = _Reader(qualified=True).shape(schema, "", 0)
    for each in {id(part): part for part in (Shape("schema", {"": shape}), *_all(shape))}.values():
        if each.kind != "union" and any(part.free for part in each.parts.values()):
            raise ValueError(f"a {each.kind} of values that take no byte")
    return schema, shape


def _bare(schema: Any, kept: Collection[str]) -> Any:
    """Return the schema without attributes that no decoder needs, such as defaults, which may be anything."""
    if isinstance(schema, list):
        return [_bare(each, kept) for each in schema]
    if not isinstance(schema, dict):
        return schema
    decimal = schema.get("logicalType") == "decimal"
    return {
        key: _bare(value, kept) if key in _TYPES_IN else value
        for key, value in schema.items()
        if key in kept and (decimal or key not in _DECIMAL)
    }


def refuse_other(found: Shape, expected: Shape, where: str = "") -> None:
    """Raise ValueError unless a decoder of ``found`` gives values as of ``expected``; it may have further fields."""
    where = where or found.name
    if expected.kind == "union" or found.kind == "union":
        _refuse_other_union(found, expected, where)
    elif found.kind != expected.kind and (found.kind, expected.kind) != ("whole number", "number"):
        raise ValueError(f"{where} is a {found.kind} instead of a {expected.kind}")
    elif expected.kind == "record":
        for name, part in expected.parts.items():
            if name in found.parts:
                refuse_other(found.parts[name], part, f"{where}.{name}")
            elif name not in expected.optional:
                raise ValueError(f"{where} lacks {name}")
    elif "" in expected.parts:
        refuse_other(found.parts[""], expected.parts[""], f"{where}[]")


def _refuse_other_union(found: Shape, expected: Shape, where: str) -> None:
    allowed = _branches(expected)
    for branch in _branches(found):
        same = [each for each in allowed if each.kind == branch.kind]
        if not same:
            raise ValueError(f"{where} may be a {branch.kind}")
        refuse_other(branch, same[0], where)


def _branches(shape: Shape) -> list[Shape]:
    return list(shape.parts.values()) if shape.kind == "union" else [shape]


def _all(shape: Shape) -> Iterator[Shape]:
    yield shape
    for part in shape.parts.values():
        yield from _all(part)


class _Reader:
    """One pass over a schema. If it is ``qualified``, all names in it are full."""

    def __init__(self, *, qualified: bool) -> None:
        self._qualified = qualified
        self._named: dict[str, Shape | None] = {}  # None: is being read

    def shape(self, schema: Any, namespace: str, depth: int) -> Shape:
        if depth > _DEPTH_MAX:
            raise ValueError(f"types nested more than {_DEPTH_MAX} deep")
        found = self._shape(schema, namespace, depth)
        if found.size > _TYPES_MAX or found.depth > _DEPTH_MAX:
            raise ValueError(f"{found.size} types, nested {found.depth} deep")
        return found

    def _shape(self, schema: Any, namespace: str, depth: int) -> Shape:
        if isinstance(schema, str):
            return self._called(schema, namespace)
        if isinstance(schema, list):
            return self._of("union", {str(n): self.shape(each, namespace, depth + 1) for n, each in enumerate(schema)})
        if not isinstance(schema, dict):
            raise ValueError(f"{schema!r} in place of a type")  # noqa: TRY004 - all that is refused is a ValueError
        match schema.get("type"):
            case "array" | "map" as kind:
                part = schema.get("items" if kind == "array" else "values")
                return self._of(kind, {"": self.shape(part, namespace, depth + 1)})
            case "record" | "error" | "fixed" | "enum" as kind:
                return self._named_type(kind, schema, namespace, depth)
            case inner:
                return self.shape(inner, namespace, depth + 1)

    def _of(self, kind: str, parts: dict[str, Shape]) -> Shape:
        return Shape(kind, parts, size=_size(parts), depth=_depth(parts))

    def _called(self, name: str, namespace: str) -> Shape:
        if name in _PRIMITIVES and name != "enum":
            return Shape(_PRIMITIVES[name], free=name == "null")
        for each in (name,) if self._qualified else (f"{namespace}.{name}", name):
            if each in self._named:
                if (found := self._named[each]) is None:
                    raise ValueError(f"type {name} holds itself")
                return found
        raise ValueError(f"type {name!r} is not known")

    def _named_type(self, kind: str, schema: dict[str, Any], namespace: str, depth: int) -> Shape:
        full, namespace = _full_name(schema, namespace)
        short = full.rpartition(".")[2]
        names = [full] if self._qualified else [full, short]
        # The name is known, as None, while its own fields are read: that is how a type that holds itself is found.
        self._named |= dict.fromkeys(names)
        found = Shape(_PRIMITIVES["enum"])
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or not 0 < size <= _FIXED_BYTES_MAX:
                raise ValueError(f"fixed type {short} of {size!r} bytes")
            found = Shape("fixed bytes")
        elif kind != "enum":
            found = self._record(short, schema, namespace, depth)
        self._named |= dict.fromkeys(names, found)
        return found

    def _record(self, name: str, schema: dict[str, Any], namespace: str, depth: int) -> Shape:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(each, dict) and isinstance(each.get("name"), str) for each in fields
        ):
            raise ValueError(f"record {name} without fields")
        parts = {each["name"]: self.shape(each.get("type"), namespace, depth + 1) for each in fields}
        if len(parts) < len(fields):
            raise ValueError(f"record {name} with two fields of one name")
        optional = frozenset(each["name"] for each in fields if "default" in each)
        return Shape("record", parts, name, optional, _size(parts), _depth(parts), free=not parts)


def _size(parts: Mapping[str, Shape]) -> int:
    return 1 + sum(each.size for each in parts.values())


def _depth(parts: Mapping[str, Shape]) -> int:
    return 1 + max((each.depth for each in parts.values()), default=0)


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return a named type's full name, and the namespace of the names in it."""
    name, space = schema.get("name"), schema.get("namespace", namespace) or ""
    if not (isinstance(name, str) and isinstance(space, str)):
        raise ValueError("a type without a name")  # noqa: TRY004
    if "." in name:
        return name, name.rpartition(".")[0]
    return f"{space}.{name}" if space else name, space
