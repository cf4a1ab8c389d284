"""The check that stored rows have the keys and partitions that our writers would give them.

Where they differ, a write adds a second row for the key. The properties do not decide it: with one record key field and
several partition fields, JVM Hudi makes the key ``id:1`` or ``1``, depending on its version and an option of the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InputError, UnsupportedTableError
from ...hudi.files import torn_is_told
from ...hudi.merge import logged_rows
from ...hudi.table import META_COLUMNS, PROPERTIES_PATH, RECORD_KEY, TableConfig, partition_paths, record_keys
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
