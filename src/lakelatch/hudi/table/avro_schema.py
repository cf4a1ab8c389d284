"""Column types between Arrow and the Avro JSON that commits carry.

Source: schemas in commits that Hudi 0.14 to 1.2 wrote.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...arguments import brief
from ...errors import CorruptTableError, InputError
from .avro_shape import read_schema, shape_of
from .column_types import META_COLUMNS, optional, refuse_dropped, required_columns, storable

if TYPE_CHECKING:
    import pyarrow as pa


# Attribute of a schema: the names of dropped columns. Avro's readers, and so Hudi's, pass over attributes that they do not know.
_DROPPED = "lakelatch.dropped"
_META_FIELDS = [{"name": name, "type": ["null", "string"], "default": None} for name in META_COLUMNS]


def to_avro(schema: pa.Schema, table: str, dropped: Collection[str] = ()) -> str:
    """Return the Avro JSON of the data columns, named as the JVM names its records. A nullable column is ``["null", type]``
    with default null, any other the bare type.

    ``dropped``: the columns that were dropped from the table, which the schema remembers.

    Raises:
        InputError: a name or type that the readers cannot hold, or a dropped name.
    """
    refuse_dropped(schema, dropped)
    # Avro names hold letters, digits and underscores, and do not begin with a digit.
    record = re.sub(r"[^A-Za-z0-9_]", "_", table) or "table"
    if record[0].isdigit():
        record = f"_{record}"
    namespace = f"hoodie.{record}"
    columns = _avro_fields(storable(schema, known=schema.names), f"{namespace}.{record}_record")
    required = required_columns(schema)
    columns = [
        {"name": each["name"], "type": each["type"][1]} if each["name"] in required else each for each in columns
    ]
    head: dict[str, Any] = {"type": "record", "name": f"{record}_record", "namespace": namespace}
    if dropped:
        head[_DROPPED] = sorted(dropped)
    # A schema that cannot be read back would make the commit, and with it the table, unreadable for everybody.
    _refuse_unreadable(head, columns)
    return json.dumps({**head, "fields": columns}, separators=(",", ":"))


def dropped_columns(text: str) -> tuple[str, ...]:
    """Return the columns that were dropped from the table of a commit's Avro JSON, those inside columns by their paths."""
    try:
        found = read_schema(text).get(_DROPPED)
    except (AttributeError, ValueError):  # it is no schema of columns, which `from_avro` tells
        return ()
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _refuse_unreadable(head: dict[str, Any], columns: list[dict[str, Any]]) -> None:
    """Raise `InputError` for columns that `from_avro`, or a reader of log files, refuses later."""
    try:
        shape_of({**head, "fields": [*_META_FIELDS, *columns]})
    except ValueError as error:
        # The error names no column, so try each alone to find the culprit.
        for each in columns:
            try:
                shape_of({**head, "fields": [each]})
            except ValueError as one:
                raise InputError(
                    f"Column {each['name']!r} is more than readers of a schema follow ({one}). Store it flat, or as text",
                    column=each["name"],
                ) from error
        raise InputError(f"The columns are more than readers of a schema follow ({error}). Have fewer") from error


def with_meta_columns(schema: pa.Schema, table: str) -> str:
    """Return `to_avro` with Hudi's meta columns in front: the schema that the blocks of a log file declare.

    All columns are nullable, as in base files; only the table's schema says which are not.
    """
    record = json.loads(to_avro(optional(schema), table))
    record["fields"][:0] = _META_FIELDS
    return json.dumps(record, separators=(",", ":"))


def from_avro(text: str) -> pa.Schema:
    """Return the Arrow schema of a commit's Avro JSON. A field that may be null is nullable, at every depth. Reads more types
    than `to_avro` writes.

    Raises:
        CorruptTableError: the text is no Avro record schema.
    """
    import pyarrow as pa

    try:
        schema = read_schema(text)
        if schema["type"] != "record":  # then nobody has looked at its fields
            raise ValueError(f"{brief(schema['type'])} in place of a record")
        return pa.schema(_arrow_fields(schema, {}))
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise CorruptTableError(
            f"The schema in a commit cannot be understood ({error!r}). Look at the commit with `lakelatch timeline`",
            schema=text,
        ) from error


@functools.cache  # here and below: not at import time, which must not load Arrow
def _simple_types() -> dict[pa.DataType, Any]:
    """Return the Avro type of each column type that is stored and has no parts. `from_avro` reads the same table."""
    import pyarrow as pa

    return {
        pa.bool_(): "boolean",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
        pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    }


@functools.cache
def _primitives() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {"null": pa.null()} | {each: kind for kind, each in _simple_types().items() if isinstance(each, str)}


@functools.cache
def _logical_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    ours = {each["logicalType"]: kind for kind, each in _simple_types().items() if isinstance(each, dict)}
    # Other writers have more.
    return ours | {
        "timestamp-millis": pa.timestamp("ms", "UTC"),
        "local-timestamp-micros": pa.timestamp("us"),
        "local-timestamp-millis": pa.timestamp("ms"),
        "time-millis": pa.time32("ms"),
        "time-micros": pa.time64("us"),
    }


# --- plain Arrow to Avro -----------------------------------------------------------------------------------------


def _avro_fields(fields: Any, namespace: str) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": ["null", _avro(field.type, field.name, namespace)], "default": None}
        for field in fields
    ]


def _avro(kind: pa.DataType, name: str, namespace: str) -> Any:
    """Translate a type; ``namespace`` keeps the names of nested records and fixed types apart, as the JVM does it."""
    import pyarrow.types as types

    if (simple := _simple_types().get(kind)) is not None:
        return simple
    if types.is_decimal(kind):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if types.is_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, name, namespace)]}
    if types.is_map(kind):
        return {"type": "map", "values": ["null", _avro(kind.item_type, name, namespace)]}
    assert types.is_struct(kind), kind
    children = [kind.field(at) for at in range(kind.num_fields)]
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": _avro_fields(children, f"{namespace}.{name}"),
    }


def decimal_bytes(precision: int) -> int:
    """Return the bytes of the fixed type that holds every decimal of this precision, as Spark computes it."""
    return (int("9" * precision).bit_length() + 1 + 7) // 8


# --- Avro to Arrow -----------------------------------------------------------------------------------------------


def _arrow_fields(record: Any, named: dict[str, Any]) -> list[pa.Field]:
    import pyarrow as pa

    return [pa.field(field["name"], *_arrow_part(field["type"], named)) for field in record["fields"]]


def _arrow_part(kind: Any, named: dict[str, Any]) -> tuple[pa.DataType, bool]:
    """Return the type, and True if it may be null."""
    return _arrow(kind, named), kind == "null" or (isinstance(kind, list) and "null" in kind)


def _arrow(kind: Any, named: dict[str, Any]) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        if len(branches) != 1:
            raise ValueError(f"union {kind}")
        return _arrow(branches[0], named)
    if isinstance(kind, str):
        return named[kind] if kind in named else _primitives()[kind]
    if kind.get("logicalType") == "decimal":
        found = pa.decimal128(kind["precision"], kind.get("scale", 0))
    elif (logical := _logical_types().get(str(kind.get("logicalType")))) is not None:
        found = logical
    else:
        found = _arrow_complex(kind, named)
    # Later fields may refer to a named type by its short or its full name instead of repeating it.
    if "name" in kind:
        named[kind["name"]] = named[f"{kind.get('namespace', '')}.{kind['name']}".lstrip(".")] = found
    return found


def _arrow_complex(kind: Mapping[str, Any], named: dict[str, Any]) -> pa.DataType:
    import pyarrow as pa

    match kind["type"]:
        case "record":
            return pa.struct(_arrow_fields(kind, named))
        case "array":
            return pa.list_(pa.field("element", *_arrow_part(kind["items"], named)))
        case "map":
            return pa.map_(pa.string(), pa.field("value", *_arrow_part(kind["values"], named)))
        case "enum":
            return pa.string()
        case "fixed":
            return pa.binary(kind["size"])
        case inner:
            return _arrow(inner, named)
