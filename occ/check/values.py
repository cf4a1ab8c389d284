"""The deep check of the conditions that no row may break (the setting ``check``). Memory: one slice's columns of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import LakeLatchError
from ...hudi.table import META_COLUMNS, RECORD_KEY, TableConfig, from_avro
from ...hudi.timeline import FileSlice
from ...streams import slice_rows
from ..entries import Settings, value_checks
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store


def check_values(
    store: Store,
    config: TableConfig,
    settings: Settings,
    slices: Iterable[FileSlice],
    schema: str | None,
    out: Findings,
) -> None:
    """Report rows that break a check, log files merged; ``schema``: the table's, as Avro JSON."""
    if not settings.check or schema is None:
        return
    try:
        checks = value_checks(settings.check, from_avro(schema))
    except (LakeLatchError, ValueError, KeyError, TypeError) as e:
        out.unchecked.append(f"the checks of the table ({str(e).partition('. ')[0]})")
        return
    columns = [RECORD_KEY, *dict.fromkeys(name for each in checks for name in each.columns)]
    count, first = dict.fromkeys(settings.check, 0), dict[str, tuple[str, str]]()
    for slice_ in slices:
        path = slice_.path if slice_.base else min(slice_.paths)
        try:
            rows = _rows(store, config, settings, slice_, columns)
            for each in checks:
                if (broken := each.those(rows)).num_rows:
                    count[each.sql] += broken.num_rows
                    first.setdefault(each.sql, (path, each.shown(broken)))
        except (pa.ArrowException, OSError, LakeLatchError, KeyError) as e:  # another check reports the broken file
            out.unchecked.append(f"the checks of the rows of {path}: {str(e).partition('. ')[0]}")
    for sql, (path, shown) in first.items():
        out.add(
            "check-broken",
            path,
            f"{count[sql]:,} rows break the check {sql!r}: {shown}",
            "give these rows other values, or drop the check (`lakelatch settings`)",
        )


def _rows(store: Store, config: TableConfig, settings: Settings, each: FileSlice, columns: Iterable[str]) -> pa.Table:
    if each.logs:
        return slice_rows(store, config, settings.streams, each, columns=[c for c in columns if c not in META_COLUMNS])
    with store.open(each.path) as stream:
        file = pq.ParquetFile(stream)
        return file.read([name for name in columns if name in file.schema_arrow.names], use_threads=False)
