"""A table as the source of a streaming query: the changes of commits, by their completion times.

    offset        {"completion": C}: all commits up to C are read; they appear in the order of C, so none is skipped
    a batch       (C1, C2]: each row that these commits wrote, as it is at C2; or with change_feed each change of each commit
    a retry       the same state at C2 gives the same rows; where a cleaning has taken it, the query fails and says so

The reader lives as long as its query, in a Python process beside the driver; it holds no rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as api

from ...errors import InputError
from ...occ.session import kept_from
from ...occ.table import Table
from ...occ.table import open as open_table
from .batch_source import Part
from .source_options import EARLIEST, LATEST, PART_BYTES, Asked, as_spark_takes_them, newest, refuse_other

_AT = "completion"


@dataclass
class FeedPart(api.InputPartition):  # type: ignore[misc]
    """The changes of one commit, which the task reads from the table."""

    url: str
    after: str | None
    until: str
    columns: tuple[str, ...] | None


class StreamReader(api.DataSourceStreamReader):  # type: ignore[misc]
    """The reader of one query. Opens the table at first use."""

    def __init__(self, asked: Asked, schema: pa.Schema) -> None:
        self._asked, self._schema = asked, schema
        self._opened: Table | None = None

    @property
    def _table(self) -> Table:
        if self._opened is None:
            self._opened = table = self._asked.opened()
            refuse_other(self._schema, self._asked.schema(table), table.url)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # it travels to the tasks, which read without it

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        starting, table = self._asked.starting, self._table
        if starting == EARLIEST:
            return {_AT: ""}
        return {_AT: newest(table) if starting == LATEST else table.session.time_of(starting, "starting")}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:  # noqa: N802, ARG002 - Spark's
        """Return the newest commit. Spark passes ``start`` from 4.2 on."""
        return {_AT: max(newest(self._table), start[_AT] if start else "")}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[Any]:
        """Return the parts of a batch, one for each task. Raises `InputError` when a cleaning has outrun it."""
        after, until, table = start[_AT], end[_AT], self._table
        if after >= until:
            return []
        if self._asked.change_feed:
            # Refuses a span whose files a cleaning has deleted.
            table.change_feed(after=after or None, until=until)
            moments = [after, *(instant.order[0] for instant, _ in table.commits(after=after or None, until=until))]
            return [
                FeedPart(self._asked.path, first or None, last, self._asked.columns)
                for first, last in itertools.pairwise(moments)
            ]
        _refuse_cleaned(table, until, after)
        scan = table.changes(after=after or None, until=until, columns=self._asked.columns)
        return [Part(each) for each in scan.parts(PART_BYTES)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in a worker."""
        if isinstance(partition, Part):
            yield from as_spark_takes_them(partition.scan.to_batches(), self._schema)
            return
        with open_table(partition.url) as table:
            feed = table.change_feed(after=partition.after, until=partition.until, columns=partition.columns)
            yield from as_spark_takes_them(feed.to_batches(), self._schema)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: no state is kept for a batch that is done."""

    def stop(self) -> None:
        """Close the table at the end of the query."""
        if self._opened is not None:
            self._opened.close()


def _refuse_cleaned(table: Table, completion: str, start: str) -> None:
    """Raise `InputError` when a cleaning has deleted files of the state that a batch is to read."""
    if (whole_from := kept_from(table.session)) <= completion:
        return
    lost = [instant.order[0] for instant, _ in table.commits(after=start or None, until=completion)]
    raise InputError(
        f"{table.url}: a cleaning has taken files of the state at {completion}, which this batch was to read; every state from "
        f"{whole_from} on is whole. Rows as the {len(lost)} commits from {lost[0]} to {lost[-1]} left them cannot be told. "
        f"Start the query with a new checkpoint (starting={completion!r} goes on behind them; a read tells all rows as they "
        "are now), and let cleanings keep more (retain_hours)",
        table=table.url,
    )
