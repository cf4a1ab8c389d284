"""Register a table in AWS Glue's Data Catalog, as Hudi's ``AwsGlueCatalogSyncTool`` does: for Athena, Spark, Trino and Hive.

    lakelatch.glue.sync(table, "analytics")

Reads boto3's own configuration: region, profile, ``AWS_ENDPOINT_URL_GLUE``. Only what differs is changed. A merge-on-read table
becomes three, as with Hudi's tool: ``trips`` and ``trips_rt`` merge log files when read, ``trips_ro`` reads base files alone.

Source of the names: ``AWSGlueCatalogSyncClient``, ``HiveSyncTool`` and ``SparkDataSourceTableUtils`` of Apache Hudi 1.x. Unlike
Hudi's default, times are of type ``timestamp``, and no time of a last commit is noted, so that nothing changes without a change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from .arguments import instance, suggesting, text
from .errors import ConfigError, InputError, StorageError
from .hudi.table import META_COLUMNS, parse_partition_path

if TYPE_CHECKING:
    import pyarrow as pa

    from .hudi.table import TableConfig
    from .occ.table import Table

_HADOOP, _HIVE = "org.apache.hudi.hadoop", "org.apache.hadoop.hive.ql.io.parquet"
_BASE_FILES, _MERGED = f"{_HADOOP}.HoodieParquetInputFormat", f"{_HADOOP}.realtime.HoodieParquetRealtimeInputFormat"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_PART = 4000  # characters of a schema in one parameter, as Hudi cuts it
_CREATED, _DELETED = 100, 25  # partitions in one request, at most
_KEPT = ("Description", "Owner", "Retention", "TargetTable", "ViewOriginalText", "ViewExpandedText")
# Arrow's type -> Hive's and Spark's. What a table stores has no others, beside decimals and nested ones.
_TYPES = {
    "bool": ("boolean", "boolean"),
    "int32": ("int", "integer"),
    "int64": ("bigint", "long"),
    "float": ("float", "float"),
    "double": ("double", "double"),
    "string": ("string", "string"),
    "binary": ("binary", "binary"),
    "date32[day]": ("date", "date"),
}


@dataclass(frozen=True, slots=True)
class Synced:
    """A table of the catalog after `sync`.

    Attributes:
        name: ``database.table``.
        change: what became of its definition.
        added, changed, dropped: partitions, by their values.
    """

    name: str
    change: Literal["created", "changed", "none"]
    added: tuple[tuple[str, ...], ...]
    changed: tuple[tuple[str, ...], ...]
    dropped: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


@suggesting
def sync(
    table: Table, database: str, *, name: str | None = None, dry_run: bool = False, client: Any = None
) -> list[Synced]:
    """Register the table, its columns and partitions in a database of Glue's, or bring them up to date there.

    Descriptions, comments and parameters of others stay. Two calls at once may leave the older state; the next one mends it.

    Args:
        table: an open table.
        database: of Glue; it has to be there.
        name: of the table in Glue; by default the table's own.
        dry_run: only look what would be changed.
        client: boto3's client for Glue; by default one for the default session.

    Returns:
        what was changed, or would be, of each table in the catalog.

    Raises:
        InputError: there is no such database, or its table of this name is another one; nothing was changed.
        ConfigError: boto3 is not installed, or lacks a region or credentials.
        StorageError: Glue refused or did not answer; the next call does the rest.
    """
    from .occ.table import Table

    instance(table, Table, "table", "a table that `lakelatch.open` has returned")
    glue = _Glue(client, text(database, "database").lower(), table.url)
    name = (table.config.name if name is None else text(name, "name")).lower()
    view = table.view()
    if (schema := view.arrow_schema()) is None:
        raise InputError(
            f"{table.url} has no columns yet; register it after its first rows, or create it with a schema"
        )
    paths = view.snapshot.partitions() if table.config.partition_fields else []
    partitions = {_values(path, table.config): f"{_place(table)}/{path}" for path in paths}
    forms = {name: _BASE_FILES}
    if table.config.merge_on_read:
        forms = {name: _MERGED, f"{name}_rt": _MERGED, f"{name}_ro": _BASE_FILES}
    there = {each: glue.table(each) for each in forms}
    wanted = {each: _definition(table, schema, each, form) for each, form in forms.items()}
    for each, old in there.items():
        _refuse_another(table, f"{glue.database}.{each}", old, wanted[each])
    return [_synced(glue, there[each], wanted[each], partitions, dry_run=dry_run) for each in forms]


def _synced(
    glue: _Glue,
    old: dict[str, Any] | None,
    wanted: dict[str, Any],
    partitions: Mapping[tuple[str, ...], str],
    *,
    dry_run: bool,
) -> Synced:
    merged = _merged(old or {}, wanted)
    change: Literal["created", "changed", "none"] = "created" if old is None else "changed"
    if old is not None and all(old.get(key) == value for key, value in merged.items()):
        change = "none"
    there = {} if old is None else glue.partitions(merged["Name"])
    inputs = {
        values: {"Values": list(values), "StorageDescriptor": merged["StorageDescriptor"] | {"Location": place}}
        for values, place in partitions.items()
    }
    added = [values for values in inputs if values not in there]
    changed = [values for values, each in inputs.items() if values in there and not _same(there[values], each)]
    dropped = [values for values in there if values not in inputs]
    if not dry_run:
        named = {"DatabaseName": glue.database, "TableName": merged["Name"]}
        if change != "none":
            glue.ask(f"{'create' if old is None else 'update'}_table", DatabaseName=glue.database, TableInput=merged)
        for some in _batches(added, _CREATED):
            glue.ask("batch_create_partition", **named, PartitionInputList=[inputs[each] for each in some])
        for some in _batches(changed, _CREATED):
            entries = [{"PartitionValueList": list(each), "PartitionInput": inputs[each]} for each in some]
            glue.ask("batch_update_partition", **named, Entries=entries)
        for some in _batches(dropped, _DELETED):
            glue.ask("batch_delete_partition", **named, PartitionsToDelete=[{"Values": list(each)} for each in some])
    return Synced(f"{glue.database}.{merged['Name']}", change, tuple(added), tuple(changed), tuple(dropped))


def _definition(table: Table, schema: pa.Schema, name: str, form: str) -> dict[str, Any]:
    config = table.config
    fields: dict[str, tuple[str, Any, bool]] = dict.fromkeys(META_COLUMNS, ("string", "string", True))
    fields |= {each.name: (*_type(each.type, each.name), each.nullable) for each in schema}
    keys = config.partition_fields
    if keys and not config.plain_partitions:  # their folders hold texts that a key generator made
        fields |= dict.fromkeys(keys, ("string", "string", True))
    columns = [{"Name": each, "Type": hive} for each, (hive, _, _) in fields.items() if each not in keys]
    spark = json.dumps(
        _struct((each, *fields[each][1:]) for each in (*(each for each in fields if each not in keys), *keys)),
        separators=(",", ":"),
        ensure_ascii=False,
    )
    parts = [spark[at : at + _PART] for at in range(0, len(spark), _PART)]
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": [{"Name": each, "Type": fields[each][0]} for each in keys],
        "StorageDescriptor": {
            "Columns": columns,
            "Location": _place(table),
            "InputFormat": form,
            "OutputFormat": f"{_HIVE}.MapredParquetOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": f"{_HIVE}.serde.ParquetHiveSerDe",
                "Parameters": {
                    "serialization.format": "1",
                    "path": _place(table),
                    "hoodie.query.as.ro.table": str(config.merge_on_read and form == _BASE_FILES).lower(),
                },
            },
        },
        "Parameters": {
            "EXTERNAL": "TRUE",
            "hudi.metadata-listing-enabled": str(bool(config.metadata_partitions)).upper(),
            "spark.sql.sources.provider": "hudi",
            "spark.sql.sources.schema.numParts": str(len(parts)),
            **{f"spark.sql.sources.schema.part.{n}": part for n, part in enumerate(parts)},
            **({"spark.sql.sources.schema.numPartCols": str(len(keys))} if keys else {}),
            **{f"spark.sql.sources.schema.partCol.{n}": key for n, key in enumerate(keys)},
        },
    }


def _type(kind: pa.DataType, where: str) -> tuple[str, Any]:
    """Return Hive's type and the JSON of Spark's."""
    import pyarrow.types as types

    if str(kind) in _TYPES:
        return _TYPES[str(kind)]
    if types.is_decimal(kind):
        return (f"decimal({kind.precision},{kind.scale})",) * 2
    if types.is_timestamp(kind):
        return "timestamp", "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_list(kind):
        hive, spark = _type(kind.value_type, where)
        return f"array<{hive}>", {"type": "array", "elementType": spark, "containsNull": True}
    if types.is_map(kind):
        hive, spark = _type(kind.item_type, where)
        made = {"type": "map", "keyType": "string", "valueType": spark, "valueContainsNull": True}
        return f"map<string,{hive}>", made
    if types.is_struct(kind):
        inside = [(each.name, *_type(each.type, f"{where}.{each.name}"), each.nullable) for each in kind.fields]
        told = ",".join(f"{name}:{hive}" for name, hive, _, _ in inside)
        return f"struct<{told}>", _struct((name, spark, null) for name, _, spark, null in inside)
    raise InputError(
        f"column {where!r} is of type {kind}, which Hive does not have; nothing was registered", column=where
    )


def _struct(fields: Iterator[tuple[str, Any, bool]]) -> dict[str, Any]:
    told = [{"name": name, "type": kind, "nullable": null, "metadata": {}} for name, kind, null in fields]
    return {"type": "struct", "fields": told}


def _batches(values: list[tuple[str, ...]], most: int) -> Iterator[list[tuple[str, ...]]]:
    return (values[at : at + most] for at in range(0, len(values), most))


def _values(path: str, config: TableConfig) -> tuple[str, ...]:
    return tuple(_NULL if each is None else each for each in parse_partition_path(path, config).values())


def _place(table: Table) -> str:
    return table.url.rstrip("/")


def _merged(old: Mapping[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the definition with what others have added to that in the catalog: descriptions, comments, parameters."""
    descriptor, stored = wanted["StorageDescriptor"], old.get("StorageDescriptor", {})
    serde, serde_there = descriptor["SerdeInfo"], stored.get("SerdeInfo", {})
    schema = "spark.sql.sources.schema."
    others = {key: value for key, value in old.get("Parameters", {}).items() if not key.startswith(schema)}
    return {key: old[key] for key in _KEPT if old.get(key) is not None} | wanted | {
        "PartitionKeys": _commented(old.get("PartitionKeys", []), wanted["PartitionKeys"]),
        "Parameters": others | wanted["Parameters"],
        "StorageDescriptor": stored | descriptor | {
            "Columns": _commented(stored.get("Columns", []), descriptor["Columns"]),
            "SerdeInfo": serde_there | serde | {"Parameters": serde_there.get("Parameters", {}) | serde["Parameters"]},
        },
    }  # fmt: skip


def _commented(there: Sequence[Mapping[str, Any]], wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {each["Name"]: each for each in there}
    return [{**known.get(each["Name"], {}), **each} for each in wanted]


def _same(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a partition of the catalog has the place and columns wanted."""
    ours, theirs = wanted["StorageDescriptor"], there.get("StorageDescriptor", {})
    return all(theirs.get(key) == ours[key] for key in ("Location", "Columns", "InputFormat"))


def _refuse_another(table: Table, name: str, old: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> None:
    if old is None:
        return
    place = old.get("StorageDescriptor", {}).get("Location", "")
    keys, ours = ([each["Name"] for each in one.get("PartitionKeys", [])] for one in (old, wanted))
    if place.rstrip("/").replace("s3a://", "s3://") != _place(table) or keys != ours:
        raise InputError(
            f"Glue's table {name} is at {place or 'no place'}, partitioned by {', '.join(keys) or 'nothing'}, so it is not "
            f"{table.url}; nothing was changed. Register this one under another name, or drop that one first",
            table=table.url,
        )


class _Glue:
    """Requests to one database."""

    def __init__(self, client: Any, database: str, table: str) -> None:
        self.database, self._table = database, table
        try:
            import boto3
            from botocore import exceptions
        except ImportError as e:
            raise ConfigError(f"Glue needs {e.name}; run pip install 'lakelatch[glue]'") from e
        self._errors = exceptions
        self._client = client or self._tried("connect", lambda: boto3.client("glue"))
        self.ask("get_database", Name=database)

    def table(self, name: str) -> dict[str, Any] | None:
        found = self.ask("get_table", missing_ok=True, DatabaseName=self.database, Name=name)
        return found["Table"] if found else None

    def partitions(self, name: str) -> dict[tuple[str, ...], dict[str, Any]]:
        pages = self._client.get_paginator("get_partitions").paginate(DatabaseName=self.database, TableName=name)
        found = self._tried("get_partitions", lambda: [each for page in pages for each in page["Partitions"]])
        return {tuple(each["Values"]): each for each in found}

    def ask(self, request: str, *, missing_ok: bool = False, **arguments: Any) -> Any:
        answer = self._tried(request, lambda: getattr(self._client, request)(**arguments), missing_ok=missing_ok)
        if errors := (answer or {}).get("Errors"):
            detail = errors[0].get("ErrorDetail", {})
            raise self._failed(f"{request} for {len(errors)} partitions: {detail.get('ErrorMessage') or errors[0]}")
        return answer

    def _tried(self, request: str, do: Callable[[], Any], *, missing_ok: bool = False) -> Any:
        try:
            return do()
        except self._errors.ClientError as e:
            if e.response["Error"]["Code"] != "EntityNotFoundException":
                raise self._failed(f"{request}: {e}") from e
            if missing_ok:
                return None
            raise InputError(
                f"Glue has no database {self.database!r}, or it went meanwhile; make it first: aws glue create-database "
                f"--database-input Name={self.database}",
                table=self._table,
            ) from e
        except (self._errors.NoRegionError, self._errors.NoCredentialsError, self._errors.ProfileNotFound) as e:
            raise ConfigError(f"boto3 cannot ask Glue: {e}; set AWS_DEFAULT_REGION and the credentials") from e
        except self._errors.BotoCoreError as e:
            raise self._failed(f"{request}: {e}") from e

    def _failed(self, why: str) -> StorageError:
        return StorageError(
            f"Glue did not do {why}. The table itself is as it was; in the catalog some of its changes may be made, and the "
            "next sync makes the rest",
            table=self._table,
        )
