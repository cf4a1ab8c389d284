"""Files of rows: Parquet, CSV, JSON lines and Arrow IPC, recognised by their extensions, read and written as streams."""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from ...arguments import brief
from ...errors import InputError
from ...storage.local import other_kind
from .text import json_line

if TYPE_CHECKING:
    import pyarrow as pa

STDIN = "-"
_ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_NOT_IN_JSON = ["NaN", "Infinity", "-Infinity"]
_IN_COLUMN = re.compile(r"In CSV column #([0-9]+): (?:Row #[0-9]+: )?(?:CSV conversion error to )?")
FORMATS = ("parquet", "csv", "json", "arrow")


def format_of(path: str, given: str | None) -> str:
    """Return the given format, or else that of the file's extension.

    Raises:
        InputError: neither is one of `FORMATS`.
    """
    if given is not None:
        if given not in FORMATS:
            raise InputError(f"--format {given!r} is none of {', '.join(FORMATS)}")
        return given
    if (found := _ENDINGS.get(Path(path).suffix.lower())) is None:
        what = "standard input" if path == STDIN else repr(path)
        raise InputError(f"the format of {what} is not told by its name; add --format {'|'.join(FORMATS)}")
    return found


# --- reading -----------------------------------------------------------------------------------------------------


def read_rows(path: str, kind: str, known: pa.Schema | None, seen: Callable[[int], None]) -> pa.Table:
    """Return all rows of a file, or of standard input.

    Args:
        path: of the file; ``-`` is standard input.
        kind: one of `FORMATS`.
        known: the table's columns, whose types texts are parsed as; the types of other columns are inferred.
        seen: called with the number of rows of each batch.

    Raises:
        InputError: there is no such file, or its content does not have that format.
    """
    import pyarrow as pa

    name = "standard input" if path == STDIN else path
    batches: list[pa.RecordBatch] = []
    try:
        with opened(path) as source:
            schema, stream = _stream(source, kind, known)
            for batch in stream:
                batches.append(batch)
                seen(batch.num_rows)
    except InputError as e:
        raise InputError(f"{name}: {e}", **e.details) from e
    except (OSError, UnicodeError) as e:
        raise InputError(f"{name} cannot be read: {e}; nothing was written") from e
    except pa.ArrowException as e:
        raise InputError(f"{name} is no {kind} that can be read: {_first_line(e)}; nothing was written") from e
    return pa.Table.from_batches(batches, schema)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file; ``-`` is standard input, which stays open."""
    if path == STDIN:
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb") as source:
            yield source


def _stream(source: IO[bytes], kind: str, known: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa

    if kind == "parquet":
        import pyarrow.parquet as pq

        # Parquet's footer is at the end, so a pipe has to be read whole first.
        file = pq.ParquetFile(source if source.seekable() else pa.BufferReader(source.read()))
        return file.schema_arrow, file.iter_batches()
    if kind == "csv":
        from csv import reader as csv_rows

        from pyarrow import csv

        # An empty cell is null; "" in quotes is an empty text; no word such as NA is null, since it may be a key.
        convert = csv.ConvertOptions(
            column_types=known, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        first = source.readline()
        rest = source if source.seekable() else pa.BufferReader(first + source.read())
        rest.seek(0)
        names = next(csv_rows([first.decode("utf-8-sig", "replace")]), [])
        with _columns_named(names):
            reader = csv.open_csv(
                rest, convert_options=convert, parse_options=csv.ParseOptions(newlines_in_values=True)
            )
        return reader.schema, _named(reader, names)
    if kind == "json":
        table = json_rows(source, known)
        return table.schema, iter(table.to_batches())
    # Arrow has two formats under one extension. Only the file format begins with this magic; the rest is a stream.
    head = source.read(6)
    rest = pa.BufferReader(head + source.read())
    file = pa.ipc.open_file(rest) if head == b"ARROW1" else None
    if file is not None:
        return file.schema, (file.get_batch(n) for n in range(file.num_record_batches))
    stream = pa.ipc.open_stream(rest)
    return stream.schema, iter(stream)


@contextmanager
def _columns_named(names: Sequence[str]) -> Iterator[None]:
    """Raise Arrow's error about a value of a CSV file with the name of its column, where Arrow gives the number."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as e:
        if (found := _IN_COLUMN.match(str(e))) is None or int(found[1]) >= len(names):
            raise
        column, what = names[int(found[1])], str(e)[found.end() :].splitlines()[0].rstrip(".")
        raise InputError(f"column {column!r} is {what}; nothing was written", column=column) from e


def _named(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _columns_named(names):
        yield from batches


def json_rows(source: Iterable[bytes], known: pa.Schema | None) -> pa.Table:
    """Parse lines of one JSON object each; texts become times, decimals, bytes and NaN where the table has such a column."""
    import json

    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise InputError(f"line {number} is no JSON: {getattr(e, 'msg', e)}; nothing was written") from e
            if not isinstance(row, dict):
                hint = (
                    "; of an array write each row on a line of its own (jq -c '.[]')" if isinstance(row, list) else ""
                )
                raise InputError(f"line {number} is no JSON object, which a row has to be{hint}; nothing was written")
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    arrays = [
        _of_json(
            [row.get(name) for row in rows], name, known.field(name).type if known and name in known.names else None
        )
        for name in names
    ]
    return pa.Table.from_arrays(arrays, names=list(names))


def _of_json(values: list[Any], name: str, kind: pa.DataType | None) -> pa.Array:
    import pyarrow as pa

    from ...occ.incoming import array_of

    if kind is None:
        return array_of(values, None, name)
    if pa.types.is_floating(kind):
        values = [float(each) if each in _NOT_IN_JSON else each for each in values]
    texts = all(isinstance(each, str) for each in values if each is not None)

    def converted(some: list[Any]) -> pa.Array:
        if texts and pa.types.is_binary(kind):
            return pa.array([None if each is None else base64.b64decode(each, validate=True) for each in some], kind)
        return pa.array(some, pa.string()).cast(kind) if texts else pa.array(some, kind)

    try:
        return converted(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
        for row, each in enumerate(values):
            try:
                converted([each])
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise InputError(
                    f"column {name!r} is {kind} and cannot hold {brief(each)} in row {row}; nothing was written",
                    column=name,
                ) from e
        raise InputError(f"column {name!r} is {kind}: {_first_line(e)}; nothing was written", column=name) from e


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


# --- writing -----------------------------------------------------------------------------------------------------


def write_rows(path: str, kind: str, rows: pa.RecordBatchReader, seen: Callable[[int], None]) -> int:
    """Write a stream of rows to a file, which appears whole or not at all. Return their number."""
    target = Path(path)
    if kind_there := other_kind(path):  # the finished file would replace it
        raise InputError(f"{path} cannot be written: it is {kind_there}; name another file, or leave -o out")
    # Beside the target, because a rename cannot cross file systems; the process id separates two commands at once.
    half = target.with_name(f".{target.name}.{os.getpid()}")
    written = 0
    try:
        with _writer(half, kind, rows.schema) as write:
            for batch in rows:
                write(batch)
                written += batch.num_rows
                seen(batch.num_rows)
        half.replace(target)
    except OSError as e:
        raise InputError(
            f"{path} cannot be written: {os.strerror(e.errno) if e.errno else type(e).__name__}; name another file"
        ) from e
    finally:
        half.unlink(missing_ok=True)
    return written


@contextmanager
def _writer(path: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    import pyarrow as pa

    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, schema) as writer:
            yield writer.write_batch
    elif kind == "csv":
        with csv_writer(path, schema) as writer:
            yield writer.write_batch
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            yield writer.write_batch
    else:
        from ...hudi.table import python_rows

        with path.open("w", encoding="utf-8") as file:
            yield lambda batch: file.writelines(json_line(row) + "\n" for row in python_rows(batch))


def csv_writer(sink: Any, schema: pa.Schema) -> Any:
    """Return a writer of CSV that `read_rows` reads back unchanged.

    Raises:
        InputError: a column holds lists or structs, which CSV has not.
    """
    import pyarrow as pa
    from pyarrow import csv

    if nested := [field.name for field in schema if pa.types.is_nested(field.type)]:
        raise InputError(f"column {nested[0]!r} is {schema.field(nested[0]).type}, which CSV cannot hold; leave it out with "
                         "--columns, or take --format json or parquet", column=nested[0])  # fmt: skip
    return csv.CSVWriter(sink, schema)
