"""``lakelatch read`` and ``sql``.

JSON: one line a row, an object of its columns; times are ISO 8601, decimals are texts, bytes base64, and NaN is a text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...arguments import text
from ...errors import ConfigError, InputError
from ..options import Lines, Url
from ..output import Waiting, count_text, say
from .files import FORMATS, csv_writer, format_of, write_rows
from .text import json_line, print_rows

if TYPE_CHECKING:
    import pyarrow as pa

Limit = Annotated[
    int | None, typer.Option("-n", "--limit", min=0, help="So many rows at most; 20 in a table, else all.")
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="table, csv, json, parquet or arrow; as FILE ends.")
]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the rows to a file.")]

_SHOWN = 20
# A query reads the named tables only: no file, URL, extension or variable of this process.
_CLOSED: dict[str, Any] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}


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
    import lakelatch

    kind = _kind(format, output, json=json)
    with lakelatch.open(url) as table:
        scan = table.read(
            columns=[each.strip() for each in columns.split(",")] if columns else None,
            where=where,
            partitions=partition or None,
            as_of=as_of,
            read_optimized=read_optimized,
        )
        _give(scan.to_batches(), limit, kind, output)


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
    import lakelatch

    from ...occ.scan.as_dataset import ScanDataset

    try:
        import duckdb
    except ImportError as e:
        raise ConfigError("lakelatch sql needs DuckDB, which is not installed: pip install duckdb") from e
    kind = _kind(format, output, json=json)
    text(query, "query", empty=True)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(duckdb.connect(config=_CLOSED))
            # Before any table is opened: a refused query sends no request.
            _refuse_more_than_a_query(connection.extract_statements(query))
            for name, url in map(_named, table or []):
                connection.register(name, ScanDataset(stack.enter_context(lakelatch.open(url)).read()))
            # Inside the block: DuckDB pulls batches from the tables while the result is written, so they must stay
            # open.
            _give(connection.sql(query).to_arrow_reader(10_000), limit, kind, output)
        except duckdb.Error as e:
            hint = "; tables are named with --table NAME=URL" if isinstance(e, duckdb.CatalogException) else ""
            raise InputError(f"DuckDB refuses the query: {str(e).strip().rstrip('.')}{hint}") from e


def _refuse_more_than_a_query(statements: Sequence[Any]) -> None:
    """Raise `InputError` unless these are one statement that reads. Nothing has run yet.

    DuckDB makes several of one PIVOT, and leaves their texts empty.
    """
    whole = statements if any(each.query for each in statements) else statements[-1:]
    kinds = [each.type.name for each in whole]
    if len(kinds) != 1 or kinds[0] not in ("SELECT", "EXPLAIN"):
        told = " and ".join(kinds).replace("_", " ") or "no statement"
        raise InputError(
            f"lakelatch sql runs one select, over tables named with --table NAME=URL, and this is {told}; nothing was run. To "
            "write a result to a file give -o FILE; tables are changed by `lakelatch upsert` and `lakelatch delete`"
        )


def _named(table: str) -> tuple[str, str]:
    name, equals, url = table.partition("=")
    if not (name and equals and url):
        raise InputError(f"--table {table!r} is not NAME=URL, as flights=s3://lake/flights")
    return name, url


def _kind(kind: str | None, output: str | None, *, json: bool) -> str:
    """Return the output format: "table", or a format of files."""
    if json:
        if output is not None or kind not in (None, "json"):
            raise InputError("--json prints lines; give it without -o and --format, or take --format json -o FILE")
        return "json"
    if output is not None:
        return format_of(output, kind)
    if kind in (None, "table"):
        return "table"
    if kind not in ("csv", "json"):
        binary = kind in FORMATS
        raise InputError(
            f"--format {kind} is binary; name a file with -o FILE" if binary
            else f"--format {kind!r} is none of table, {', '.join(FORMATS)}"
        )  # fmt: skip
    return str(kind)


def _give(rows: pa.RecordBatchReader, limit: int | None, kind: str, output: str | None) -> None:
    import pyarrow as pa

    if kind == "json" and (twice := [name for name in rows.schema.names if rows.schema.names.count(name) > 1]):
        raise InputError(
            f"two columns of the result are called {twice[0]!r}, and an object of JSON holds one; name them apart, as in "
            "select a.v as v, b.v as other"
        )
    if output is not None:
        with _counted("written") as seen:
            written = write_rows(output, kind, _first(rows, limit), seen)
        say(f"{count_text(written, 'row')} in {output}")
    elif kind == "table":
        shown = _SHOWN if limit is None else limit
        # One row more than is printed, to know whether there are more.
        found = pa.Table.from_batches(_first(rows, shown + 1), rows.schema)
        print_rows(found.slice(0, min(shown, found.num_rows)))
        say()
        more = found.num_rows > shown
        say(f"the first {count_text(shown, 'row')}; --limit shows more" if more else count_text(found.num_rows, "row"))
    elif kind == "csv":
        with csv_writer(sys.stdout.buffer, rows.schema) as writer:
            for batch in _first(rows, limit):
                writer.write_batch(batch)
    else:
        from ...hudi.table import python_rows

        for batch in _first(rows, limit):
            for row in python_rows(batch):
                sys.stdout.write(json_line(row) + "\n")


def _first(rows: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    import pyarrow as pa

    def some() -> Iterator[pa.RecordBatch]:
        left = limit
        while left is None or left > 0:
            batch = next(iter(islice(rows, 1)), None)
            if batch is None:
                return
            yield batch if left is None else batch.slice(0, min(left, batch.num_rows))
            left = left if left is None else left - batch.num_rows

    return pa.RecordBatchReader.from_batches(rows.schema, some())


@contextmanager
def _counted(what: str) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr: how many rows so far."""
    rows = 0
    with Waiting(f"0 rows {what}") as tell:

        def seen(more: int) -> None:
            nonlocal rows
            rows += more
            tell(f"{rows:,} rows {what}")

        yield seen
