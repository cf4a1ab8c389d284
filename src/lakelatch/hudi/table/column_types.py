"""Columns: the types that a table can hold, and the changes that a commit may make to them.

A table that this library writes has nullable columns, except those declared otherwise at creation: a column that is added
later has no value in older rows. Only the table's schema says so (`required_columns`); its files do not. A type that one of
the readers cannot hold, or reads as another, is refused with a way out.

`avro_schema` translates types to the Avro that commits carry.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...arguments import brief
from ...errors import InputError
from .type_names import KNOWN, type_of

if TYPE_CHECKING:
    import pyarrow as pa

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
_RESERVED = "_hoodie_"
# Columns that a scan of Spark has beside those of the file; with one of the same name rows are lost or a query fails.
_SPARKS = ("_metadata", "_tmp_metadata_row_index")
_OURS = "_lakelatch_"  # columns that writes add for themselves on the way
_DEPTH_MAX = 32  # before Python's stack ends; what is stored is read back by `avro_shape`, which allows less
Stored = Callable[["pa.DataType", str], "pa.DataType"]
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def storable(schema: pa.Schema, *, known: Container[str] = ()) -> pa.Schema:
    """Return the data columns in the plain types that are stored; cast rows to it before writing them.

    Meta columns are left out, everything becomes nullable, and types that differ only in memory (large, view and
    dictionary forms, small and unsigned integers, other time units) become the one form that readers share.

    Args:
        known: columns that the table has already, whose fields keep the names that they have.

    Raises:
        InputError: a name or type that the readers cannot hold.
    """
    import pyarrow as pa

    refuse_names(schema, known=known)
    return pa.schema(
        [
            pa.field(field.name, _plain(field.type, field.name), nullable=True)
            for field in schema
            if field.name not in META_COLUMNS
        ]
    )


def declared(schema: pa.Schema) -> pa.Schema:
    """Return `storable`, keeping columns that are not nullable so.

    Raises:
        InputError: also for a field inside a column that is not nullable, which is not kept.
    """
    required = required_columns(schema)
    for field in schema:
        if field.name in META_COLUMNS:
            continue
        if inside := [path for path, each in fields_inside(field.type, field.name) if not each.nullable]:
            raise InputError(
                f"Column {inside[0]!r} is declared not null, which is kept for whole columns only. Declare it nullable",
                column=inside[0],
            )
    return with_required(storable(schema), required)


def required_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that are not nullable."""
    return tuple(field.name for field in schema if not field.nullable and field.name not in META_COLUMNS)


def with_required(schema: pa.Schema, required: Container[str]) -> pa.Schema:
    """Return the schema with these columns not nullable."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(field.nullable and field.name not in required) for field in schema])


def optional(schema: pa.Schema) -> pa.Schema:
    """Return the schema with everything in it nullable, at every depth."""
    import pyarrow as pa

    return pa.schema([_optional(field) for field in schema])


def _optional(field: pa.Field) -> pa.Field:
    import pyarrow as pa
    import pyarrow.types as types

    kind = field.type
    if types.is_struct(kind):
        kind = pa.struct([_optional(each) for each in map(kind.field, range(kind.num_fields))])
    elif types.is_list(kind):
        kind = pa.list_(_optional(kind.value_field))
    elif types.is_map(kind):
        kind = pa.map_(kind.key_type, _optional(kind.item_field))
    return field.with_type(kind).with_nullable(True)


def refuse_names(schema: pa.Schema, *, known: Container[str] = ()) -> None:
    """Raise `InputError` for a name that a column, or a field inside one, cannot have, or that two of them share.

    ``known``: columns whose inner fields are not checked, as in `storable`.
    """
    seen: dict[str, str] = {}
    for field in schema:
        if field.name in META_COLUMNS:
            continue
        inside = () if field.name in known else fields_inside(field.type, field.name)
        for path, each in ((field.name, field), *inside):
            _refuse_name(path, each.name)
            if other := seen.get(path.lower()):
                ignoring = "" if other == path else " for Spark, which ignores case"
                raise InputError(
                    f"Columns {other!r} and {path!r} have the same name{ignoring}. Rename one", column=path
                )
            # Spark ignores case in names, so two columns that differ only in case cannot both be read there.
            seen[path.lower()] = path


def fields_inside(kind: pa.DataType, where: str) -> Iterator[tuple[str, pa.Field]]:
    """Yield the fields inside a type, at every depth, each with its path.

    Raises:
        InputError: they are nested deeper than any reader follows.
    """
    import pyarrow.types as types

    if where.count(".") > _DEPTH_MAX:
        raise InputError(f"Column {where.partition('.')[0]!r} is nested too deep. Store it flat, or as text")
    if types.is_dictionary(kind):
        yield from fields_inside(kind.value_type, where)
        return
    inside: list[tuple[str, pa.Field]] = []
    if types.is_struct(kind):
        inside = [(each.name, each) for each in map(kind.field, range(kind.num_fields))]
    elif types.is_map(kind):
        inside = [
            # Arrow's map keys are never nullable, which is nothing that the user declared.
            ("key", kind.key_field.with_name("key").with_nullable(True)),
            ("value", kind.item_field.with_name("value")),
        ]
    elif _is_list(kind):
        inside = [("element", kind.value_field.with_name("element"))]
    for name, each in inside:
        yield f"{where}.{name}", each
        yield from fields_inside(each.type, f"{where}.{name}")


def _refuse_name(path: str, name: str) -> None:
    lower = name.lower()
    keeper = (
        "Hudi"
        if lower.startswith(_RESERVED)
        else "Spark"
        if lower in _SPARKS
        else "this library"
        if lower.startswith(_OURS)
        else None
    )
    if keeper:
        raise InputError(
            f"Column {path!r} has a name that {keeper} keeps for itself. Rename it, for example to {near_name(name)!r}",
            column=path,
        )
    if not _AVRO_NAME.fullmatch(name):
        raise InputError(
            f"Column {path!r} has a name that Avro cannot hold: letters, digits and underscores, not beginning with a "
            f"digit. Rename it, for example to {near_name(name)!r}",
            column=path,
        )


def near_name(name: str) -> str:
    """Return a name close to this one that a column can have."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_") or "column"
    return f"_{plain}" if plain[0] in "0123456789" else plain


def refuse_no_columns(names: Iterable[str], what: str) -> None:
    """Raise `InputError` if no column can have one of these names, or if two of them are the same to Spark: no row could be
    written.

    ``what`` names them in messages; the same column may be named twice.
    """
    import pyarrow as pa

    given = list(dict.fromkeys(names))
    try:
        for name in given:
            _refuse_name(name, name)
        refuse_names(pa.schema([(name, pa.string()) for name in given]))
    except InputError as e:
        inside = ". A field inside a struct is no column: copy it to one of its own" if "." in str(e.column) else ""
        raise InputError(f"{what}: no row could be written. {e}{inside}", column=e.column) from None


def widen(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return ``old`` with the columns, and the fields inside them, that only ``new`` has, each at the end, nullable.

    Raises:
        InputError: ``new`` drops a column, or gives it a type that the old one does not hold; the message names all of them.
    """
    import pyarrow as pa

    # Compared as they are stored: rows may come as large texts or small integers, which is no change of the table.
    before, after = storable(old, known=old.names), storable(new, known=old.names)
    dropped = [field.name for field in before if field.name not in after.names]
    grown = with_new_fields(before, after)
    retyped = [
        f"{field.name} from {before.field(field.name).type} to {after.field(field.name).type}"
        for field in grown
        if field.name in after.names and not is_held(after.field(field.name).type, field.type)
    ]
    problems = []
    if dropped:
        problems.append(f"lack {_list(dropped)} (keep such columns, with nulls if need be)")
    if retyped:
        problems.append(f"change the type of {_list(retyped)} (cast to the table's type)")
    if problems:
        raise InputError(
            f"The rows {' and '.join(problems)}. A table's columns can only be added to",
            dropped=dropped,
            retyped=retyped,
        )
    wide = pa.schema([*grown, *(field for field in after if field.name not in before.names)])
    return storable(wide, known=[field.name for field in before if field == wide.field(field.name)])


def with_new_fields(schema: pa.Schema, given: pa.Schema, stored: Stored = lambda kind, _name: kind) -> pa.Schema:
    """Return the schema with the fields that only structs inside the columns of ``given`` have.

    ``stored`` makes the type of such a field, of its type in ``given`` and the name of its column.
    """
    import pyarrow as pa

    kinds = {each.name: each.type for each in given}

    def grown(field: pa.Field) -> pa.Field:
        if field.name not in kinds:
            return field
        return field.with_type(grown_by(field.type, kinds[field.name], lambda kind: stored(kind, field.name)))

    return pa.schema([grown(each) for each in schema])


def grown_by(
    old: pa.DataType, new: pa.DataType, stored: Callable[[pa.DataType], pa.DataType] = lambda kind: kind
) -> pa.DataType:
    """Return ``old`` with the fields that only the structs of ``new`` have, each at the end of its struct.

    Parts of other types stay as they are in ``old``. ``stored`` makes the type of an added field.
    """
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_dictionary(new):
        return grown_by(old, new.value_type, stored)
    if types.is_struct(old) and types.is_struct(new):
        given = {each.name: each.type for each in new}
        kept = [
            each.with_type(grown_by(each.type, given[each.name], stored)) if each.name in given else each
            for each in old
        ]
        known = {each.name for each in old}
        return pa.struct([*kept, *(pa.field(n, stored(kind)) for n, kind in given.items() if n not in known)])
    if types.is_list(old) and _is_list(new):
        return pa.list_(old.value_field.with_type(grown_by(old.value_type, new.value_type, stored)))
    if types.is_map(old) and types.is_map(new):
        return pa.map_(old.key_type, old.item_field.with_type(grown_by(old.item_type, new.item_type, stored)))
    return old


def is_held(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of ``narrow`` is one of ``wide``, has the same text, and needs no check to become it."""
    import pyarrow as pa

    return bool(narrow.equals(wide) or (narrow.equals(pa.int32()) and wide.equals(pa.int64())))


def can_become(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a column's type may change so: no value changes, and every reader shows a file of the one as the other.

    Not so float to double: Hudi's readers make 0.1 of a float 0.1, and those of Parquet 0.10000000149011612. Nor a decimal
    with more digits: Spark and Hudi on it fail on a condition with a number that the older files cannot hold. Inside structs,
    lists and maps nothing becomes another type, because Hudi's JVM reader fails on it; structs may get fields at their end.
    """
    import pyarrow as pa

    return is_held(old, new) or (old.equals(pa.int32()) and new.equals(pa.float64())) or _is_part(old, new)


def _is_part(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether ``new`` is ``old`` with more fields in its structs, each after those that are there."""
    import pyarrow.types as types

    if types.is_struct(old) and types.is_struct(new):
        first = list(new)[: old.num_fields]
        return [each.name for each in old] == [each.name for each in first] and all(
            _is_part(each.type, its.type) for each, its in zip(old, first, strict=True)
        )
    if types.is_list(old) and types.is_list(new):
        return _is_part(old.value_type, new.value_type)
    if types.is_map(old) and types.is_map(new):
        return _is_part(old.item_type, new.item_type)
    return bool(old.equals(new))


def refuse_grown_maps(old: pa.Schema, new: pa.Schema) -> None:
    """Raise `InputError` where a struct inside a map has got a field: in a merge-on-read table Hudi 1.2.0 then fails on
    conditions on that field.
    """
    for field in old:
        if field.name in new.names and _has_other_map(field.type, new.field(field.name).type):
            raise InputError(
                f"Column {field.name!r} has maps, and inside them no field can be added to a merge-on-read table: Hudi's JVM "
                "reader fails on conditions on it. Add a column",
                column=field.name,
            )


def _has_other_map(old: pa.DataType, new: pa.DataType) -> bool:
    import pyarrow.types as types

    if types.is_struct(old) and types.is_struct(new):
        return any(_has_other_map(each.type, its.type) for each, its in zip(old, new, strict=False))
    if types.is_list(old) and types.is_list(new):
        return _has_other_map(old.value_type, new.value_type)
    return types.is_map(old) and not old.equals(new)


def with_column(schema: pa.Schema, name: str, kind: pa.DataType | str) -> pa.Schema:
    """Return the schema with one more column at its end, or one more field at the end of a struct inside a column.

    Args:
        name: of the column; or a path: ``address.zip``, ``stops.element.at`` in a list, ``marks.value.note`` in a map.
        kind: a type, or its name in Spark or Arrow.

    Raises:
        InputError: the name is taken, nothing has fields at that path, or no table can hold such a name or type.
    """
    import pyarrow as pa

    new = _field(name, kind)
    if name in META_COLUMNS:
        raise InputError(f"Column {name!r} is one of Hudi's own, which every row has; choose another name", column=name)
    outer, _, inner = name.rpartition(".")
    if outer:
        new = declared(pa.schema([new.with_name(inner)])).field(0)
        return _with_part(schema, outer, lambda kind: _with_field(kind, new, outer))
    if name in schema.names:
        raise InputError(f"There is a column {name!r} already, of type {schema.field(name).type}", column=name)
    refuse_names(pa.schema([*schema, new]), known=schema.names)
    return pa.schema([*storable(schema, known=schema.names), *declared(pa.schema([new]))])


def _with_field(kind: pa.DataType, new: pa.Field, where: str) -> pa.DataType:
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        raise InputError(
            f"Column {where!r} of type {kind} has no fields, so none is added to it. Those of structs in a list are named "
            f"{where}.element.{new.name}, and in a map {where}.value.{new.name}",
            column=where,
        )
    fields = [*map(kind.field, range(kind.num_fields))]
    if same := [each for each in fields if each.name == new.name]:
        raise InputError(
            f"There is a field {where}.{new.name} already, of type {same[0].type}", column=f"{where}.{new.name}"
        )
    return pa.struct([*fields, new])


def without_column(schema: pa.Schema, name: str) -> pa.Schema:
    """Return the schema without a column, or without a field of a struct inside one, by its path as in `with_column`.

    Raises:
        InputError: there is no such column or field, or no other beside it.
    """
    import pyarrow as pa

    outer, _, inner = name.rpartition(".")
    if outer:
        return _with_part(schema, outer, lambda kind: _without_field(kind, inner, name))
    _refuse_alone(schema.names, name, name)
    return pa.schema([each for each in schema if each.name != name])


def _without_field(kind: pa.DataType, name: str, path: str) -> pa.DataType:
    import pyarrow as pa

    fields = [*kind] if pa.types.is_struct(kind) else []
    _refuse_alone([each.name for each in fields], name, path)
    return pa.struct([each for each in fields if each.name != name])


def _refuse_alone(names: list[str], name: str, path: str) -> None:
    if name not in names:
        raise InputError(f"There is no column {path!r}; there are {_list(names) or 'no fields'}", column=path)
    if len(names) == 1:
        raise InputError(f"Column {path!r} is the only one there, and nothing would be left without it", column=path)


def refuse_dropped(schema: pa.Schema, dropped: Collection[str]) -> None:
    """Raise `InputError` for a column, or a field inside one, that has the name of a dropped one.

    Files from before the drop have that column, and every reader would show its values again.
    """
    gone = {each.lower(): each for each in dropped}  # Spark ignores case in names, so in files too
    for field in schema if gone else ():
        for path, _ in ((field.name, field), *fields_inside(field.type, field.name)):
            if path.lower() in gone:
                raise InputError(
                    f"Column {gone[path.lower()]!r} was dropped from the table, and its name is taken for good: files from "
                    "before still have its values. Leave it out, or choose another name",
                    column=path,
                )


def with_wider(schema: pa.Schema, name: str, kind: pa.DataType | str) -> pa.Schema:
    """Return the schema with another type for one column, given as in `with_column`.

    Raises:
        InputError: there is no such column, or not every reader shows the values that are there in that type.
    """
    import pyarrow as pa

    new = _field(name, kind)
    if name not in schema.names:
        if name.partition(".")[0] in schema.names:
            raise InputError(
                f"{name!r} is inside a column, where types stay as they are, because Hudi's JVM reader fails on files of two. "
                "Add a field for such values",
                column=name,
            )
        raise InputError(f"There is no column {name!r}; there are {_list(schema.names)}", column=name)
    old, wanted = schema.field(name).type, declared(pa.schema([new])).field(name).type
    if old.equals(wanted) or not can_become(old, wanted):
        raise InputError(
            f"Column {name!r} of type {old} cannot become {wanted}: only an int may become a bigint or a double. Readers do not "
            "agree on what others become, or fail; write such values to a new column",
            column=name,
        )
    return storable(schema.set(schema.get_field_index(name), new.with_type(wanted)), known=schema.names)


def _with_part(schema: pa.Schema, path: str, change: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """Return the schema with the type at that path changed."""
    first, *rest = path.split(".")
    if first not in schema.names:
        raise InputError(f"There is no column {first!r}; there are {_list(schema.names)}", column=path)
    place = schema.get_field_index(first)
    wide = schema.set(place, schema.field(place).with_type(_changed(schema.field(place).type, rest, first, change)))
    return storable(wide, known=[name for name in schema.names if name != first])


def _changed(
    kind: pa.DataType, path: Sequence[str], where: str, change: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as types

    if not path:
        return change(kind)
    first, *rest = path
    below = f"{where}.{first}"
    if types.is_struct(kind) and kind.get_field_index(first) >= 0:
        return pa.struct(
            [
                each.with_type(_changed(each.type, rest, below, change)) if each.name == first else each
                for each in map(kind.field, range(kind.num_fields))
            ]
        )
    if types.is_list(kind) and first == "element":
        return pa.list_(kind.value_field.with_type(_changed(kind.value_type, rest, below, change)))
    if types.is_map(kind) and first == "value":
        return pa.map_(kind.key_type, kind.item_field.with_type(_changed(kind.item_type, rest, below, change)))
    parts = [name for path, each in fields_inside(kind, where) for name in [each.name] if path == f"{where}.{name}"]
    has = f"it has {_list(parts)}" if parts else f"it is of type {kind}"
    raise InputError(f"Column {where!r} has no part {first!r}; {has}", column=below)


def _field(name: str, kind: pa.DataType | str) -> pa.Field:
    import pyarrow as pa

    try:
        if not isinstance(name, str):  # pyarrow takes bytes
            raise TypeError(name)
        return pa.field(name, type_of(kind) if isinstance(kind, str) else kind)
    except (TypeError, ValueError) as e:
        raise InputError(
            f"{brief(name)} of type {brief(kind)} is no column: a name is a text, and a type is one of Arrow's, as pa.int64(), "
            f"or the name of one ({KNOWN})",
            column=str(name),
        ) from e


def _list(names: list[str]) -> str:
    return ", ".join(names)


# --- Arrow to plain Arrow ----------------------------------------------------------------------------------------


def _plain(kind: pa.DataType, where: str) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as types

    for tests, plain in (
        (("is_boolean",), pa.bool_()),
        (("is_int8", "is_int16", "is_int32", "is_uint8", "is_uint16"), pa.int32()),
        (("is_int64", "is_uint32", "is_uint64"), pa.int64()),
        (("is_float16", "is_float32"), pa.float32()),
        (("is_float64",), pa.float64()),
        (("is_string", "is_large_string", "is_string_view"), pa.string()),
        (("is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"), pa.binary()),
        (("is_date32", "is_date64"), pa.date32()),
    ):
        # The oldest supported pyarrow has no views.
        if any(getattr(types, test, _never)(kind) for test in tests):
            return plain
    if types.is_dictionary(kind):
        return _plain(kind.value_type, where)
    # No reader has decimals of more than 38 digits.
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if types.is_struct(kind) and kind.num_fields:
        children = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([pa.field(child.name, _plain(child.type, f"{where}.{child.name}")) for child in children])
    if _is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type, f"{where}.element")))
    if types.is_map(kind):
        if not pa.types.is_string(_plain(kind.key_type, f"{where}.key")):
            raise _refused(kind, where, "Avro maps have text keys; convert the keys to text")
        return pa.map_(pa.string(), _plain(kind.item_type, f"{where}.value"))
    raise _refused(kind, where, _way_out(kind))


def _never(_kind: object) -> bool:
    return False


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or views)


def _way_out(kind: pa.DataType) -> str:
    import pyarrow.types as types

    if types.is_timestamp(kind):
        return (
            'one reader fails on times without a zone; say which zone they are in (`zone="UTC"` in `upsert`, or a cast to '
            "timestamp('us', 'UTC'))"
        )
    if types.is_time(kind) or types.is_duration(kind):
        return "store it as int64 with the unit in its name"
    if types.is_null(kind):
        return "it holds nulls only; cast it to the type that it is meant to have, or leave it out"
    return "convert it, for example to text"


def _refused(kind: pa.DataType, where: str, way_out: str) -> InputError:
    return InputError(f"Column {where!r} has type {kind}, which is not stored: {way_out}", column=where, type=str(kind))


def python_value(value: pa.Scalar) -> Any:
    """Return the value as Python has it, also inside structs and lists. A date or time outside Python's range is a number."""
    import pyarrow as pa

    try:
        return value.as_py()
    except (ValueError, OverflowError):
        # One value out of Python's range fails the whole struct or list, so go inside and convert the others.
        match value:
            case pa.StructScalar():
                return {name: python_value(each) for name, each in value.items()}
            case pa.ListScalar():  # maps too
                return [python_value(each) for each in value.values]
            case pa.DictionaryScalar():
                return python_value(value.value)
            case _:
                return value.value


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, with values as `python_value` gives them."""
    try:
        return list(rows.to_pylist())
    except (ValueError, OverflowError):
        columns = ([python_value(each) for each in column] for column in rows.columns)
        return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_numbers(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers in place of dates and times, which Python's own types cannot all hold."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return as_numbers(kind.value_type)
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    if types.is_timestamp(kind) or types.is_time64(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([each.with_type(as_numbers(each.type)) for each in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_numbers(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(as_numbers(kind.item_type)))
    return kind
