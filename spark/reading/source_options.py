"""The options of ``format("lakelatch")``, checked, and the schemas of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import ConfigError, InputError
from ...occ.table import Table
from ...occ.table import open as open_table
from ..versions import spark_schema
from .columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "lakelatch"
PART_BYTES = 32 << 20  # of base files for each task
_OF_BOTH = ("path", "columns")
_OF_READ = (*_OF_BOTH, "where", "as_of", "as_of_completion", "read_optimized")
_OF_STREAM = (*_OF_BOTH, "starting", "change_feed")
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Asked:
    """The checked options of a read or stream."""

    path: str
    columns: tuple[str, ...] | None
    where: str | None = None
    as_of: str | None = None
    as_of_completion: str | None = None
    read_optimized: bool = False
    starting: str = EARLIEST
    change_feed: bool = False
    streams: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], *, streams: bool | None) -> Asked:
        """Check the options. ``streams`` None: not yet known which of the two it is."""
        given = {name.lower(): value for name, value in options.items()}
        known = {*_OF_READ, *_OF_STREAM} if streams is None else _OF_STREAM if streams else _OF_READ
        if unknown := sorted(set(given) - set(known)):
            where = {None: "a read or stream", False: "spark.read", True: "spark.readStream"}[streams]
            raise ConfigError(
                f'format("{NAME}") has no option {unknown[0]!r} for {where}; it has {", ".join(sorted(known))}. Credentials '
                "come from the environment; lakelatch.spark.open(spark, url, storage=...) takes them as arguments"
            )
        if not given.get("path"):
            raise ConfigError(f'format("{NAME}") needs the table: .load("s3://bucket/flights")')
        columns = given.get("columns")
        return cls(
            given["path"],
            None if columns is None else tuple(name.strip() for name in columns.split(",")),
            given.get("where"),
            given.get("as_of"),
            given.get("as_of_completion"),
            _flag(given, "read_optimized"),
            given.get("starting", EARLIEST),
            _flag(given, "change_feed"),
            bool(streams) or not {*given}.isdisjoint({*_OF_STREAM} - {*_OF_BOTH}),
        )

    def opened(self) -> Table:
        """Open the table; the caller closes it."""
        return open_table(self.path)

    def schema(self, table: Table) -> pa.Schema:
        """Return the columns of the rows."""
        if table.schema() is None:
            raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
        if self.change_feed:
            return table.change_feed(after=newest(table), columns=self.columns).schema
        return table.read(
            columns=self.columns, where=self.where, as_of=self.as_of, as_of_completion=self.as_of_completion
        ).schema


def newest(table: Table) -> str:
    """Return the completion time of the newest commit; "" where there is none."""
    return max((each.order[0] for each in table.timeline().commits), default="")


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {name}={given[name]!r} is neither true nor false")
    return value == "true"


def in_arrow(schema: StructType) -> pa.Schema:
    """Return the schema in which Spark takes batches."""
    return arrow_schema(schema)


def as_spark_takes_them(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches in exactly this schema, including names inside lists and maps."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()


def refuse_other(given: pa.Schema, known: pa.Schema, url: str) -> None:
    """Raise `InputError` for a schema of the user's that is not a part of the table's."""
    ours = {field.name: field.type for field in in_arrow(spark_schema(known))}
    for field in given:
        if field.name not in ours:
            raise InputError(f"{url} has no column {field.name!r}; it has {', '.join(ours)}", column=field.name)
        if ours[field.name] != field.type:
            raise InputError(
                f"column {field.name!r} of {url} is {ours[field.name]} and not {field.type}; leave `schema` out, and cast later",
                column=field.name,
            )
