"""The table of every scenario: four columns, and whose rows are whose by their keys.

``by`` names the operation that wrote a row last. So a final table tells who was last, and a writer that reads a row before it
changes it tells after whom it came.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

KEY, PARTITION, VALUE, BY = "id", "part", "value", "by"
SCHEMA = pa.schema([(KEY, pa.string()), (PARTITION, pa.string()), (VALUE, pa.int64()), (BY, pa.string())])
FIRST = "first"  # who wrote the rows that are there before
# What a key begins with says what kind of work made the row.
APPENDED, REPLACED, UPSERTED, SHARED = "a-", "r-", "u-", "k-"


def rows_of(keys: Sequence[str], parts: Sequence[str], values: Sequence[int], by: str) -> pa.Table:
    """Rows with these keys, each in its partition and with its value."""
    return pa.table([list(keys), list(parts), list(values), [by] * len(keys)], schema=SCHEMA)


def partition_name(number: int) -> str:
    """The value of the partition column."""
    return f"p{number}"


def shared_key(number: int) -> str:
    """The key of a row that is there before."""
    return f"{SHARED}{number}"


def first_rows(keys: int, partitions: int, balance: int) -> pa.Table:
    """What is in the table before anybody writes: shared rows, and one in each partition at least, which nobody changes."""
    kept = [f"{FIRST}-{part}" for part in range(partitions)]
    return rows_of(
        [*kept, *map(shared_key, range(keys))],
        [partition_name(n % partitions) for n in (*range(partitions), *range(keys))],
        [0] * partitions + [balance] * keys,
        FIRST,
    )


def last_writers(final: pa.Table) -> dict[str, str]:
    """Of each shared row the operation that wrote it last."""
    pairs = zip(final[KEY].to_pylist(), final[BY].to_pylist(), strict=True)
    return {key: by for key, by in pairs if key.startswith(SHARED)}
