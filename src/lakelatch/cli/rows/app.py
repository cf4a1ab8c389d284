"""``lakelatch read``, ``sql``, ``upsert``, ``insert``, ``delete`` and ``diff``: the commands about rows and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Url
from ..outcome import plainly

Limit = Annotated[
    int | None, typer.Option("-n", "--limit", min=0, help="So many rows at most; 20 in a table, else all.")
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="table, csv, json, parquet or arrow; as FILE ends.")
]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the rows to a file.")]
Lines = Annotated[bool, typer.Option("--json", help="Print each row as a line of JSON.")]
File = Annotated[
    str, typer.Argument(metavar="FILE", help="Parquet, CSV, JSON lines or Arrow IPC; - is standard input.")
]
FileFormat = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="parquet, csv, json or arrow; as FILE ends.")
]
Missing = Annotated[str, typer.Option(help="Columns that the file lacks: refuse, or null.")]
NewColumns = Annotated[str, typer.Option(help="Columns that the table lacks: refuse, or add.")]
Zone = Annotated[str | None, typer.Option(help="Of times that name none, as UTC or Europe/Rome.")]
SourceBatch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="SOURCE:NUMBER",
        help="Only if no batch of that source with this number or a larger one has landed.",
    ),
]
State = Annotated[
    str, typer.Argument(metavar="T", help="Requested time, as `lakelatch timeline` prints it, or a date.")
]


@plainly
def read(
    url: Url,
    *,
    columns: Annotated[str, typer.Option(metavar="A,B", help="Only these columns.")] = "",
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that meet this condition.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Only this partition, as origin=JFK; repeatable.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(metavar="T", help="As of a past requested time, or a date.")] = None,
    read_optimized: Annotated[
        bool, typer.Option("--read-optimized", help="Base files only, without what log files have changed since.")
    ] = False,
    limit: Limit = None,
    format: Format = None,  # noqa: A002
    output: Output = None,
    json: Lines = False,
) -> None:
    """Print the rows of a table, or write them to a file."""
    from .read import read as command

    command(
        url, columns=columns, where=where, partitions=partition or [], as_of=as_of, read_optimized=read_optimized,
        limit=limit, kind=format, output=output, json=json,
    )  # fmt: skip


@plainly
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In DuckDB's dialect.")],
    *,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME=URL", help="A table and its name there; repeatable.")
    ] = None,
    limit: Limit = None,
    format: Format = None,  # noqa: A002
    output: Output = None,
    json: Lines = False,
) -> None:
    """Query tables with DuckDB, which reads of them what the query needs. `pip install duckdb` first."""
    from .read import sql as command

    command(query, tables=table or [], limit=limit, kind=format, output=output, json=json)


@plainly
def upsert(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    missing: Missing = "refuse",
    new_columns: NewColumns = "refuse",
    zone: Zone = None,
    batch: SourceBatch = None,
    json: Json = False,
) -> None:
    """Write the rows of a file: they replace those with the same key, and new keys are inserted."""
    from .write import write

    write("upsert", url, file, kind=format, missing=missing, new_columns=new_columns, zone=zone, batch=batch, json=json)


@plainly
def insert(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    missing: Missing = "refuse",
    new_columns: NewColumns = "refuse",
    zone: Zone = None,
    batch: SourceBatch = None,
    json: Json = False,
) -> None:
    """Add the rows of a file; keys that the table has already are not looked up, but in a table with buckets."""
    from .write import write

    write("insert", url, file, kind=format, missing=missing, new_columns=new_columns, zone=zone, batch=batch, json=json)


@plainly
def delete(
    url: Url,
    file: File,
    *,
    format: FileFormat = None,  # noqa: A002
    batch: SourceBatch = None,
    json: Json = False,
) -> None:
    """Delete the rows whose keys are in a file; its other columns are not looked at."""
    from .write import write

    write("delete", url, file, kind=format, missing="refuse", new_columns="refuse", zone=None, batch=batch, json=json)


@plainly
def diff(
    url: Url,
    before: State,
    after: State,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="So many of the rows at most.")] = 20,
    json: Lines = False,
) -> None:
    """Print which rows were added (+), changed (~) and removed (-) between two states, by partition and record key."""
    from .diff import diff as command

    command(url, before, after, limit=limit, json=json)


COMMANDS = (read, sql, upsert, insert, delete, diff)
