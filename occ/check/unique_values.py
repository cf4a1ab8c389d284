"""The check of unique constraints, run when a constraint is set, by a restore and by a deep check.

Nulls are never equal, as in SQL. Memory: the columns of the constraint, for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import LakeLatchError
from ...hudi.table import META_COLUMNS, RECORD_KEY, TableConfig, from_avro, python_rows
from ...hudi.timeline import FileSlice
from ...streams import slice_rows
from ..entries import Settings, name_of, value_checks
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store


OTHER_KEY = "_lakelatch_other_key"
_SHOWN = 3


def check_unique(store: Store, settings: Settings, slices: Iterable[FileSlice], out: Findings) -> None:
    """Report values that break a unique constraint of the table, across all partitions."""
    bases = [each for each in slices if each.base is not None and each.base.extension == "parquet"]
    for constraint in settings.unique_constraints:
        try:
            same = repeated([rows for each in bases if (rows := _read(store, each, constraint))], constraint)
        except (
            pa.ArrowException,
            OSError,
            LakeLatchError,
            KeyError,
        ) as e:  # another check reports the broken file
            first = str(e).partition(". ")[0]
            out.unchecked.append(f"the unique constraint on {name_of(constraint)}: {first}")
            continue
        if same.num_rows:
            out.add(
                "duplicate-values",
                bases[0].path,
                f"{same.num_rows} values under the unique constraint on {name_of(constraint)} stand in more than one row: "
                f"{shown_values(same, constraint)}",
                "give these rows other values, or drop the constraint (`lakelatch settings`)",
            )


def _read(store: Store, each: FileSlice, constraint: Sequence[str]) -> pa.Table | None:
    with store.open(each.path) as stream:
        file = pq.ParquetFile(stream)
        # Written before the table had these columns.
        if not {RECORD_KEY, *constraint} <= {*file.schema_arrow.names}:
            return None
        return file.read([RECORD_KEY, *constraint], use_threads=False)


def repeated(pieces: Sequence[pa.Table], constraint: Sequence[str]) -> pa.Table:
    """Return the values that occur in several rows, each with two of their keys."""
    if not pieces:
        return pa.table({RECORD_KEY: pa.array([], pa.string())})
    rows = with_values(pa.concat_tables(pieces, promote_options="permissive"), constraint)
    asked = [(RECORD_KEY, "min"), (RECORD_KEY, "max"), (RECORD_KEY, "count")]
    counted = rows.group_by(list(constraint)).aggregate(asked)
    several = counted.filter(pc.greater(counted.column(f"{RECORD_KEY}_count"), 1))
    chosen = several.select([f"{RECORD_KEY}_min", f"{RECORD_KEY}_max", *constraint])
    return chosen.rename_columns([RECORD_KEY, OTHER_KEY, *constraint])


def with_values(rows: pa.Table, constraint: Iterable[str]) -> pa.Table:
    """Return the rows without a null in the constraint's columns."""
    for name in constraint:
        if rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
    return rows


def shown_values(same: pa.Table, constraint: Sequence[str]) -> str:
    """Return some rows of `repeated`'s result, for a message."""
    few = python_rows(same.slice(0, _SHOWN))
    return "; ".join(
        f"{', '.join(f'{name}={row[name]!r}' for name in constraint)} in rows {row[RECORD_KEY]!r} and {row[OTHER_KEY]!r}"
        for row in few
    )


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
