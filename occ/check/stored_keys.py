"""The check that stored rows have the keys and partitions that our writers would give them.

Where they differ, a write adds a second row for the key. The properties do not decide it: with one record key field and
several partition fields, JVM Hudi makes the key ``id:1`` or ``1``, depending on its version and an option of the writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import ConfigError, InputError, UnsupportedTableError
from ...hudi.files import StoredParquet, bucket_of, torn_is_told
from ...hudi.merge import logged_rows, merged_rows
from ...hudi.table import (
    META_COLUMNS,
    PROPERTIES_PATH,
    RECORD_KEY,
    TableConfig,
    bucket_ids,
    key_parts,
    partition_paths,
    record_keys,
    shown,
    with_time_column,
)
from ...hudi.timeline import FileSlice

if TYPE_CHECKING:
    from ...storage import Store


_PARTITION = META_COLUMNS[3]
_ROWS = 1024


def refuse_other_keys(store: Store, config: TableConfig, slices: Sequence[FileSlice]) -> None:
    """Raise `UnsupportedTableError` if rows in the oldest or newest file group have other keys or partition paths."""
    in_order = sorted(slices, key=lambda each: each.instant)
    for each in in_order[:1] + in_order[1:][-1:]:
        rows = _some_rows(store, config, each)
        try:
            keys, paths = record_keys(rows, config.record_key_fields), partition_paths(rows, config)
        except InputError:  # there is no row, or one that our writers would refuse
            continue
        for column, made in ((RECORD_KEY, keys), (_PARTITION, paths)):
            stored = rows.column(column).combine_chunks()
            wrong = pc.index(pc.equal(stored, made), pa.scalar(value=False)).as_py()
            if wrong >= 0:
                raise UnsupportedTableError(
                    f"{store.url}: a row of {min(each.paths)} has the {column} {stored[wrong].as_py()!r}, and written here it "
                    f"would have {made[wrong].as_py()!r} by {PROPERTIES_PATH} (key generator {config.keygen}), so a key would "
                    "stand twice. Nothing was changed. Write the table with Hudi, or a copy of its rows into a new table",
                    table=store.url,
                    feature="record_keys",
                )


def refuse_other_times(store: Store, config: TableConfig, slices: Iterable[FileSlice]) -> None:
    """Raise `UnsupportedTableError` if a row is in another partition than its time tells: reads by the time would miss it."""
    if not config.time_unit:
        return
    source, made = config.time_source, config.time_column
    for each in slices:
        rows = merged_rows(store, config, each, columns=[source, made])
        if made not in rows.column_names:
            rows = rows.append_column(made, pa.nulls(rows.num_rows, pa.string()))
        try:
            with_time_column(rows, config)
        except InputError as e:
            raise UnsupportedTableError(
                f"{store.url} is partitioned by {', '.join(config.partitioned_by)}, and another writer has not computed that in "
                f"file group {each.group}: {e}. Write a copy of its rows into a new table",
                table=store.url,
                feature="time_partitions",
            ) from e


def _some_rows(store: Store, config: TableConfig, each: FileSlice) -> pa.Table:
    """Return the first rows of the slice's base file, or those of its log files: keys, and the fields they derive from."""
    columns = [RECORD_KEY, _PARTITION, *dict.fromkeys((*config.record_key_fields, *config.partition_fields))]
    if each.base is None:
        found = logged_rows(store, each.logs, columns)
        return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})
    with store.open(each.path) as stream, torn_is_told(store, each.path):
        batches = pq.ParquetFile(stream).iter_batches(_ROWS, columns=columns, use_threads=False)
        first = next(batches, None)
        return pa.table({}) if first is None else pa.Table.from_batches([first])


# The check that each key is in its bucket: a bucket index looks it up nowhere else.
#
# With another number of buckets than its files were written with, a table would hold rows where no writer finds them: an upsert
# would add a second row for the key.


def refuse_misplaced(store: Store, config: TableConfig, slices: Iterable[FileSlice], buckets: int | None) -> None:
    """Raise `ConfigError` if an index of so many buckets would miss rows. Reads the keys up to the first wrong one.

    The simple index (None) finds each row anywhere.
    """
    if buckets is None:
        return
    for each, problem in misplaced(store, config, slices, buckets):
        raise ConfigError(
            f"{store.url} cannot have bucket_count={buckets}: {problem}, so upserts would not find its rows and write them a "
            "second time. Nothing was changed. Make a table with so many buckets and write the rows there; "
            "bucket_count=None (the simple index) goes with any files",
            table=store.url,
            setting="bucket_count",
            path=min(each.paths),
        )


def misplaced(
    store: Store, config: TableConfig, slices: Iterable[FileSlice], buckets: int
) -> Iterator[tuple[FileSlice, str]]:
    """Yield the slices that are not one of so many buckets, each with a sentence that says why. Reads the keys of the others."""
    seen: dict[tuple[str, int], FileSlice] = {}
    for each in slices:
        bucket = bucket_of(each.file_id)
        other = each if bucket is None else seen.setdefault((each.partition, bucket), each)
        if bucket is None or bucket >= buckets or other is not each:
            yield (
                each,
                f"file group {each.group} is none of {buckets} buckets" + ("" if other is each else " by itself"),
            )
        elif problem := wrong_keys(store, config, each, buckets):
            yield each, problem


def wrong_keys(store: Store, config: TableConfig, each: FileSlice, buckets: int) -> str | None:
    """Return a sentence about keys in a slice's files that belong to another bucket, or None."""
    fields = config.record_key_fields
    if not fields:
        return None
    found = logged_rows(store, each.logs, fields)
    if each.base is not None:
        with store.open(each.path) as stream:
            found.append(StoredParquet(store, each.path, stream).read(list(fields), use_threads=False))
    rows = pa.concat_tables(found, promote_options="permissive")
    if not rows.num_rows:
        return None
    parts = key_parts(rows, fields)
    wrong = bucket_ids(parts, buckets) != bucket_of(each.file_id)
    if not wrong.any():
        return None
    keys = parts[0].filter(pa.array(wrong))
    return f"{np.count_nonzero(wrong)} of {len(wrong)} keys in {each.group} ({shown(keys)}) belong to other buckets"


def wrong_by_footer(config: TableConfig, each: FileSlice, keys: Sequence[str], buckets: int) -> str | None:
    """Return as `wrong_keys`, from the footer's smallest and largest key. Only keys of one field can be judged so."""
    bucket, fields = bucket_of(each.file_id), config.record_key_fields
    if len(fields) != 1 or bucket is None:
        return None
    # The JVM's complex key generator writes the field's name before the value, in some versions also for a single field.
    values = [key for key in keys if key and not key.startswith(f"{fields[0]}:")]
    found = bucket_ids([pa.array(values, pa.string())], buckets)
    wrong = [key for key, its in zip(values, found.tolist(), strict=True) if its != bucket]
    return f"key {wrong[0]!r} in {each.path} does not belong to its bucket {bucket} of {buckets}" if wrong else None
