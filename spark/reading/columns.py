"""Convert schemas between Spark and Arrow; record key and bucket as native Spark expressions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ...arguments import brief
from ...errors import InputError
from ...hudi.table import META_COLUMNS, TableConfig, refuse_key_type, refuse_names
from ...occ.staging import NEW
from ..versions import active_jvm, column_of, expression_of

_ENCODED = frozenset({"variant", "geometry", "geography"})


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, times in UTC.

    Raises:
        InputError: a column of a type that Hudi's readers cannot hold, with the way out.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        name = field.dataType.typeName()
        if odd := _ENCODED & set(_type_names(field.dataType)):
            raise InputError(
                f"column {field.name!r} is or holds {min(odd).upper()}, of which Arrow shows how Spark encodes it; cast it to "
                "text; nothing was written",
                column=field.name,
            )
        if name == "timestamp_ntz":
            raise InputError(
                f"column {field.name!r} is TIMESTAMP_NTZ, which Hudi's readers cannot hold; cast it: "
                f"df.withColumn({field.name!r}, col({field.name!r}).cast('timestamp'))",
                column=field.name,
            )
    try:
        # Versions without this parameter always used UTC.
        named = "timezone" in inspect.signature(to_arrow_schema).parameters
        return to_arrow_schema(schema, **({"timezone": "UTC"} if named else {}))
    except Exception as error:
        raise InputError(
            f"the rows have a column type that cannot be stored: {error}; cast it or leave it out"
        ) from error


def is_plain(rows: Any, zone: str | None = None) -> bool:
    """Return whether the rows are none of Spark's, so that plain Python writes them.

    Raises:
        InputError: a ``zone`` for a DataFrame.
    """
    if not any(each.__module__.partition(".")[0] == "pyspark" for each in type(rows).__mro__):
        return True
    if zone is not None:
        raise InputError(
            f"zone={zone!r}: times of a DataFrame have the zone of its session; leave it out. Nothing was written"
        )
    return False


def refuse_no_frame(rows: Any, url: str) -> None:
    """Raise `InputError` for anything but a DataFrame of a classic session, or for the rows of a streaming query."""
    from pyspark.sql import DataFrame

    kind = type(rows)
    if not isinstance(rows, DataFrame) or not hasattr(rows, "_jdf"):
        raise InputError(
            f"{url}: {kind.__module__}.{kind.__name__} is no DataFrame of a classic Spark session; make one with "
            "spark.createDataFrame(...), or give pandas, polars, Arrow or a list; nothing was written"
        )
    if rows.isStreaming:
        raise InputError(
            f"{url}: these are the rows of a streaming query, which come in batches; hand each over with "
            'writeStream.foreachBatch(table.sink("upsert")); nothing was written'
        )


def at_the_door(rows: Any, url: str) -> Any:
    """Return the rows without Hudi's own columns, which those of a read with ``meta=True`` have.

    Call it before any job: Spark itself takes some of these names for another column, or for two.

    Raises:
        InputError: not a DataFrame; a name that no column can have, or that two have when case is ignored.
    """
    refuse_no_frame(rows, url)
    own = [name for name in rows.columns if name in META_COLUMNS]
    try:
        refuse_names(pa.schema([(each.name, _names_in(each.dataType)) for each in rows.schema.fields]))
    except InputError as error:
        raise InputError(f"{url}: {error}; nothing was written", **error.details) from None
    return rows.drop(*own) if own else rows


def _type_names(kind: Any) -> Iterator[str]:
    yield kind.typeName()
    parts = [each.dataType for each in kind.fields] if kind.typeName() == "struct" else []
    for part in (*parts, *(getattr(kind, name, None) for name in ("elementType", "keyType", "valueType"))):
        if part is not None:
            yield from _type_names(part)


def _names_in(kind: Any) -> pa.DataType:
    """Return the names of a Spark type's fields as a type of Arrow; Spark's own conversion fails on some of them."""
    match kind.typeName():
        case "struct":
            return pa.struct([(each.name, _names_in(each.dataType)) for each in kind.fields])
        case "array":
            return pa.list_(_names_in(kind.elementType))
        case "map":
            return pa.map_(pa.string(), _names_in(kind.valueType))
    return pa.string()


def refuse_missing(schema: pa.Schema, config: TableConfig, *, delete: bool = False) -> None:
    """Raise `InputError` before any job when columns that the table needs are missing or cannot be keys."""
    wanted = [*config.record_key_fields]
    if not delete:
        wanted += config.placed_by
        wanted += config.ordered_by
    lower = [name.lower() for name in schema.names]
    used = [*config.record_key_fields, *config.partition_fields, *config.newer_by]
    if twice := [n for n in used if lower.count(n.lower()) > 1]:
        raise InputError(
            f"the rows have more than one column {twice[0]!r}, for Spark, which ignores case; table {config.name} needs one. "
            "Rename or drop the other; nothing was written",
            columns=twice,
        )
    if missing := [n for n in wanted if n not in schema.names]:
        raise InputError(
            f"the rows have no column {', '.join(repr(n) for n in missing)}, which table {config.name} needs as record "
            f"key, partition or ordering field; their columns are {', '.join(schema.names)}",
            columns=missing,
        )
    for name in config.record_key_fields:
        refuse_key_type(name, schema.field(name).type)


def refuse_no_condition(condition: Any, url: str, what: str, way: str) -> None:
    """Raise `InputError` for an empty condition, which would mean every row."""
    empty = (
        not condition.strip() if isinstance(condition, str) else isinstance(condition, list | tuple) and not condition
    )
    if condition is None or empty:
        raise InputError(
            f"no condition says which rows of {url} are to be {what} ({brief(condition)}); nothing was written. Give SQL text "
            f"or a Column, {way}"
        )


def with_time_column(rows: Any, config: TableConfig) -> Any:
    """Return rows that have the time by which the table is partitioned with the column that is computed from it."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    source, made, unit = config.time_source, config.time_column, config.time_unit
    kinds = {each.name: each.dataType.typeName() for each in rows.schema.fields}
    if not unit or made in kinds or kinds.get(source) not in ("date", "timestamp"):
        return rows
    day = F.col(quoted(source))
    hour: Any = F.lit(0)
    if kinds[source] == "timestamp":
        # Not Spark's own days and hours, which are of the session's time zone. The quotients are exact.
        micros = F.unix_micros(day)
        hours = ((micros - F.pmod(micros, F.lit(_HOUR))) / F.lit(_HOUR)).cast("int")
        hour = F.pmod(hours, F.lit(24))
        day = F.date_add(F.lit("1970-01-01").cast("date"), ((hours - hour) / F.lit(24)).cast("int"))
    text = F.substring(day.cast("string"), 1, {"months": 7, "years": 4}.get(unit, 10))
    if unit == "hours":
        text = F.concat(text, F.lit("-"), F.lpad(hour.cast("string"), 2, "0"))
    return rows.withColumn(made, text)


_HOUR = 3_600_000_000


def partition_columns(schema: pa.Schema, fields: Sequence[str]) -> list[Any]:
    """Return the columns to shuffle by: null and empty text are one partition, so they have to be one value.

    Texts are compared by their bytes, as folders are, whatever the collation of the rows' column.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    return [
        F.nullif(F.col(quoted(n)).cast("string"), F.lit(""))
        if pa.types.is_string(schema.field(n).type)
        else F.col(quoted(n))
        for n in fields
    ]


def bucket_column(fields: Sequence[str], buckets: int) -> Any:
    """Return Hudi's bucket of a row without leaving the JVM; equals `record_keys.bucket_ids` of `hudi.table`.

    Null where a key is null.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    mask = F.lit(0xFFFFFFFF)
    total = F.lit(1).cast("bigint")
    for name in fields:
        one = _java_hash(F.col(quoted(name)).cast("string")).cast("bigint")
        # 64-bit sums cut to 32: Java's int wraps round, Spark's would raise.
        total = (total * F.lit(31).cast("bigint") + one).bitwiseAND(mask)
    return (total.bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(buckets)).cast("int")


def _java_hash(text: Any) -> Any:
    """Return ``String.hashCode`` of a text column.

    It is built from the method calls that Spark's own encoders consist of. Spark takes its public ``reflect`` for
    non-deterministic, so that would need a column of its own in the shuffle and would keep the scan before it out of the
    generated code.
    """
    jvm = active_jvm()
    none = jvm.PythonUtils.toSeq([])
    string = jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName("java.lang.String"))
    integer = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
    expression = expression_of(text)
    for method, kind in (("toString", string), ("hashCode", integer)):
        expression = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke(
            expression, method, kind, none, none, True, True, True
        )
    return column_of(expression)


def key_column(fields: Sequence[str]) -> Any:
    """Return the record key as text, as `record_keys.record_keys` of `hudi.table` makes it."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    if len(fields) == 1:
        return F.col(quoted(fields[0])).cast("string")
    pieces: list[Any] = []
    for number, name in enumerate(fields):
        pieces += [F.lit(f"{',' if number else ''}{name}:"), F.col(quoted(name)).cast("string")]
    return F.concat(*pieces)


def slot_column(fields: Sequence[str], slots: int) -> Any:
    """Return the number of a new file group for each record key, below ``slots``; equal keys get the same."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    return F.concat(F.lit(NEW), F.pmod(F.xxhash64(key_column(fields)), F.lit(slots)).cast("string"))


def spelled(name: str, names: Sequence[str]) -> str:
    """Return a column as the table spells it: Spark's analyser takes it in any case, and leaves it as the query spells it."""
    return name if name in names else next((each for each in names if each.lower() == name.lower()), name)


def quoted(name: str) -> str:
    """Return a column's name quoted for Spark's expressions, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
