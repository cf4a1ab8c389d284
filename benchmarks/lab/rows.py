"""The table of a scenario: four columns, with keys that tell each writer's rows apart; or one wide row filled by many.

``by`` names the operation that wrote a row last. So a final table shows the last writer, and a writer that reads a row before
it changes it knows its predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

KEY, PARTITION, VALUE, BY = "id", "part", "value", "by"
SCHEMA = pa.schema([(KEY, pa.string()), (PARTITION, pa.string()), (VALUE, pa.int64()), (BY, pa.string())])
FIRST = "first"  # the writer of the initial rows
# The prefix of a key is the kind of work that made the row.
APPENDED, REPLACED, UPSERTED, SHARED, EVENT = "a-", "r-", "u-", "k-", "e-"

# The wide table: each writer is a stream, which fills two columns of every row: the time of its newest event, and its writer.
STREAMS = 16


def stream_of(writer: int) -> int:
    """Return the stream that a writer writes."""
    return writer % STREAMS


def stream_columns(stream: int) -> tuple[str, str]:
    """Return the columns of a stream: ordering, and the operation that wrote it."""
    return f"at{stream}", f"by{stream}"


WIDE = pa.schema(
    [SCHEMA.field(KEY), SCHEMA.field(PARTITION)]
    + [
        pa.field(name, kind)
        for stream in range(STREAMS)
        for name, kind in zip(stream_columns(stream), (pa.int64(), pa.string()), strict=True)
    ]
)


def rows_of(keys: Sequence[str], parts: Sequence[str], values: Sequence[int], by: str) -> pa.Table:
    """Return rows with these keys, each in its partition and with its value."""
    return pa.table([list(keys), list(parts), list(values), [by] * len(keys)], schema=SCHEMA)


def partition_name(number: int) -> str:
    """Return the value of the partition column."""
    return f"p{number}"


def shared_key(number: int) -> str:
    """Return the key of an initial row that writers share."""
    return f"{SHARED}{number}"


def first_rows(keys: int, partitions: int, balance: int) -> pa.Table:
    """Return the initial rows: shared ones, and at least one in each partition that nobody changes."""
    kept = [f"{FIRST}-{part}" for part in range(partitions)]
    return rows_of(
        [*kept, *map(shared_key, range(keys))],
        [partition_name(n % partitions) for n in (*range(partitions), *range(keys))],
        [0] * partitions + [balance] * keys,
        FIRST,
    )


def last_writers(final: pa.Table) -> dict[str, str]:
    """Return each shared row's key -> the operation that wrote it last."""
    pairs = zip(final[KEY].to_pylist(), final[BY].to_pylist(), strict=True)
    return {key: by for key, by in pairs if key.startswith(SHARED)}


def widened(narrow: pa.Table) -> pa.Table:
    """Return the same keys as rows of `WIDE` that no stream has written."""
    nulls = [pa.nulls(len(narrow), field.type) for field in WIDE][2:]
    return pa.table([narrow[KEY], narrow[PARTITION], *nulls], schema=WIDE)


def events_of(keys: Sequence[str], parts: Sequence[str], stream: int, at: int, by: str) -> pa.Table:
    """Return one event of a stream for each of these keys."""
    at_column, by_column = stream_columns(stream)
    return pa.table(
        {KEY: list(keys), PARTITION: list(parts), at_column: [at] * len(keys), by_column: [by] * len(keys)},
        schema=pa.schema([WIDE.field(name) for name in (KEY, PARTITION, at_column, by_column)]),
    )


def event_key(stream: int, key: str) -> str:
    """Return the key that `narrowed` gives to a stream's part of a row."""
    return f"{EVENT}{stream}-{key}"


def narrowed(wide: pa.Table) -> pa.Table:
    """Return rows of `WIDE` as rows of `SCHEMA`: one for the key, and one for each stream that has written it."""
    found: list[tuple[str, str, int, str]] = []
    columns = {name: wide[name].to_pylist() for name in WIDE.names}
    for number, (key, part) in enumerate(zip(columns[KEY], columns[PARTITION], strict=True)):
        found.append((key, part, 0, FIRST))
        for stream in range(STREAMS):
            at, by = (columns[name][number] for name in stream_columns(stream))
            if at is not None or by is not None:
                found.append((event_key(stream, key), part, -1 if at is None else at, str(by)))
    return pa.table([list(column) for column in zip(*found, strict=True)] or [[]] * 4, schema=SCHEMA)
