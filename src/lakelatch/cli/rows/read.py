"""``lakelatch read`` and ``sql``.

JSON: one line a row, an object of its columns; times are ISO 8601, decimals are texts, bytes base64, and NaN is a text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...arguments import text
from ...errors import ConfigError, InputError
from ..output import Waiting, count_text, say
from .files import FORMATS, csv_writer, format_of, write_rows
from .text import json_line, print_rows

if TYPE_CHECKING:
    import pyarrow as pa

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
    url: str, *, columns: str, where: str | None, partitions: Sequence[str], as_of: str | None, read_optimized: bool,
    limit: int | None, kind: str | None, output: str | None, json: bool,
) -> None:  # fmt: skip
    """Print or write the rows of a table."""
    import lakelatch

    kind = _kind(kind, output, json=json)
    with lakelatch.open(url) as table:
        scan = table.read(
            columns=[each.strip() for each in columns.split(",")] if columns else None,
            where=where,
            partitions=list(partitions) or None,
            as_of=as_of,
            read_optimized=read_optimized,
        )
        _give(scan.to_batches(), limit, kind, output)


def sql(
    query: str, *, tables: Sequence[str], limit: int | None, kind: str | None, output: str | None, json: bool
) -> None:
    """Print or write the result of a query over tables."""
    import lakelatch

    from ...occ.scan.as_dataset import ScanDataset

    try:
        import duckdb
    except ImportError as e:
        raise ConfigError("lakelatch sql needs DuckDB, which is not installed: pip install duckdb") from e
    kind = _kind(kind, output, json=json)
    text(query, "query", empty=True)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(duckdb.connect(config=_CLOSED))
            # Before any table is opened: a refused query sends no request.
            _refuse_more_than_a_query(connection.extract_statements(query))
            for name, url in map(_named, tables):
                connection.register(name, ScanDataset(stack.enter_context(lakelatch.open(url)).read()))
            # Inside the block: DuckDB pulls batches from the tables while the result is written, so they must stay
            # open.
            _give(connection.sql(query).to_arrow_reader(10_000), limit, kind, output)
        except duckdb.Error as e:
            raise InputError(f"DuckDB refuses the query: {str(e).strip().rstrip('.')}") from e


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
