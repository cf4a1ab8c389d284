"""The check that each key is in its bucket: a bucket index looks it up nowhere else.

With another number of buckets than its files were written with, a table would hold rows where no writer finds them: an upsert
would add a second row for the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...errors import ConfigError
from ...hudi.files import StoredParquet, bucket_of
from ...hudi.merge import logged_rows
from ...hudi.table import TableConfig, bucket_ids, key_parts, shown
from ...hudi.timeline import FileSlice

if TYPE_CHECKING:
    from ...storage import Store


def refuse_misplaced(store: Store, config: TableConfig, slices: Iterable[FileSlice], buckets: int | None) -> None:
    """Raise `ConfigError` if an index of so many buckets would miss rows. Reads the keys up to the first wrong one.

    The simple index (None) finds each row anywhere.
    """
    if buckets is None:
        return
    seen: dict[tuple[str, int], FileSlice] = {}
    for each in slices:
        bucket = bucket_of(each.file_id)
        other = each if bucket is None else seen.setdefault((each.partition, bucket), each)
        if bucket is None or bucket >= buckets or other is not each:
            problem = f"file group {each.group} is none of {buckets} buckets" + ("" if other is each else " by itself")
        else:
            problem = wrong_keys(store, config, each, buckets) or ""
        if problem:
            raise ConfigError(
                f"{store.url} cannot have bucket_count={buckets}: {problem}, so upserts would not find its rows and write them a "
                "second time. Nothing was changed. Make a table with so many buckets and write the rows there; "
                "bucket_count=None (the simple index) goes with any files",
                table=store.url,
                setting="bucket_count",
                path=min(each.paths),
            )


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
