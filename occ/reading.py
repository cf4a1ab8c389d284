"""Looking at a table: its instants, its file slices, its rows. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DamagedTableError
from ..storage import Store
from .clock import EARLIEST
from .commit_log import CommitLog, Follower
from .log_state import Commit
from .properties import TableConfig
from .publish import metadata_of
from .timeline import Timeline, read_timeline
from .view import View, cold_view, with_unpublished

if TYPE_CHECKING:
    import pyarrow as pa

    from .snapshot import FileSlice, Snapshot


class Reading:
    """The part of a `Table` that looks.

    Attributes:
        url: the one spelling of its place.
        config: what ``hoodie.properties`` says.
        writable: False for a Hudi table without our log, until ``lakelatch init --adopt``.
    """

    store: Store
    url: str
    config: TableConfig
    writable: bool
    log: CommitLog

    def timeline(self) -> Timeline:
        """The table's instants, from one listing."""
        return read_timeline(self.store, self.config)

    def snapshot(self, *, as_of: str | None = None, as_of_completion: str | None = None) -> Snapshot:
        """The file slices now, or at a past moment.

        Args:
            as_of: commits with requested time T not after this, as Hudi's readers travel in time.
            as_of_completion: commits with completion time C not after this.
        """
        return self.view(as_of=as_of, as_of_completion=as_of_completion).snapshot

    def schema(self) -> pa.Schema | None:
        """The data columns, without Hudi's meta columns; None before the first commit."""
        return self.view().arrow_schema()

    def view(self, *, as_of: str | None = None, as_of_completion: str | None = None) -> View:
        """Snapshot and schema together, of one moment."""
        if as_of is not None or as_of_completion is not None:
            return cold_view(self.store, self.timeline(), as_of=as_of, as_of_completion=as_of_completion)
        if not self.writable:
            return cold_view(self.store, self.timeline())
        return self._latest()[0]

    def _latest(self) -> tuple[View, str]:
        """The view now, and the largest completion time that it holds."""
        # The log first: what it holds unpublished is merged, and what lands later is on the timeline or not seen.
        # Listed anew each time, so that commits of engines that bypass the log are seen too.
        while True:
            last, follower = self.log.catch_up().last, self.log.follow(Follower())
            try:
                timeline = self.timeline()
                view = with_unpublished(cold_view(self.store, timeline), timeline, last, self._metadata_of)
                if not self._restored_since(follower):
                    return view, last.completion if last else EARLIEST
            except DamagedTableError:
                if not self._restored_since(follower):
                    raise
            finally:
                self.log.unfollow(follower)

    def _restored_since(self, follower: Follower) -> bool:
        """A restore takes instants and files away while they are listed: what was seen may be half of each state."""
        self.log.catch_up()
        return not follower.complete or any(commit.restores for commit in follower.commits)

    def read(
        self,
        *,
        partition: str | None = None,
        columns: list[str] | None = None,
        as_of: str | None = None,
        as_of_completion: str | None = None,
    ) -> pa.Table:
        """All rows of the table or of one partition as Arrow, without meta columns."""
        self.config.refuse_reading()
        return self._rows(self.view(as_of=as_of, as_of_completion=as_of_completion), partition, columns)

    def _rows(self, view: View, partition: str | None, columns: list[str] | None) -> pa.Table:
        import pyarrow as pa

        schema = view.arrow_schema() or pa.schema([])
        wanted = schema if columns is None else pa.schema([schema.field(c) for c in columns])
        parts = [self.read_slice(s, columns=wanted.names) for s in view.snapshot.file_groups(partition)]
        tables = [_shaped(part, wanted) for part in parts]
        return pa.concat_tables(tables) if tables else wanted.empty_table()

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of one file slice; columns that the file does not have yet are left out."""
        import pyarrow.parquet as pq

        from .schema import META_COLUMNS

        self.config.refuse_reading()
        with self.store.open(group.path) as stream:
            file = pq.ParquetFile(stream)
            there = file.schema_arrow.names
            wanted = [n for n in there if n not in META_COLUMNS and (columns is None or n in columns)]
            return file.read([*META_COLUMNS, *wanted] if meta else wanted, use_threads=False)

    def _metadata_of(self, commit: Commit) -> Any:
        return metadata_of(self.store, commit)

    def _cold_view(self, top: str) -> View:
        return cold_view(self.store, self.timeline(), as_of_completion=top)


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
