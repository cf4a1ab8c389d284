"""Looking at a table: its instants, its file slices, its rows. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import CorruptTableError, InputError, TableError, UnsupportedTableError
from ...hudi.table import TableConfig
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    EARLIEST,
    CommitMetadata,
    History,
    Instant,
    Time,
    Timeline,
    decode_commit,
    file_name,
    has_archive,
    parse,
    read_timeline,
    time_of,
)
from ...storage import Store
from ..log import Commit, CommitLog, Follower, echo, files_of, metadata_of, undone_by
from .partitions import known_partition, some
from .snapshot_cache import View, cold_view

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import FileSlice, Snapshot


T = TypeVar("T")


class Reading:
    """The part of a `Table` that looks.

    Attributes:
        url: the one spelling of its place.
        config: what ``hoodie.properties`` says.
        writable: False for a Hudi table without our log, until ``lakelatch adopt``.
    """

    store: Store
    url: str
    config: TableConfig
    writable: bool
    log: CommitLog
    history: History
    _closed = False

    def _require_open(self) -> None:
        if self._closed:
            raise TableError(f"this handle on {self.url} was closed; open the table again", table=self.url)

    def timeline(self) -> Timeline:
        """The table's instants, from one listing.

        Without commits that a restore has taken back: a publisher who slept meanwhile may have put one there again, and
        who works with it brings its rows back, or loses those that it replaced.
        """
        self._require_open()
        timeline = read_timeline(self.store, self.config)
        undone = timeline.taken_back()
        return timeline.without(undone) if undone else timeline

    def time_of(self, value: Time, what: str = "the time") -> str:
        """A time in any form that is understood (`times`), as the timeline spells it. `InputError` for anything else."""
        return time_of(value, what, utc=self.config.timeline_timezone == "UTC")

    def commits(self, *, after: Time | None = None, until: Time | None = None) -> list[tuple[Instant, CommitMetadata]]:
        """The commits with a completion time after one and up to another, in that order; archived ones too.

        What an incremental reader has to look at. Times in any form that `times` tells; ``after`` None, or Hudi's own
        ``0`` and ``000``, is the beginning.

        Raises:
            InputError: ``after`` or ``until`` is no time.
            UnsupportedTableError: an archive of table version 6 holds some of them.
        """
        first = "" if after is None or after in ("0", "000") else self.time_of(after, "after")
        last = None if until is None else self.time_of(until, "until")
        timeline = self._steadily(lambda timeline: timeline) if self.writable else self.timeline()
        if self.config.layout == 1 and first < (timeline.first_active or "") and has_archive(self.store, self.config):
            raise UnsupportedTableError(
                f"{self.url}: what changed since {first or 'the beginning'} cannot be told: commits before "
                f"{timeline.first_active} are in an archive of table version 6, which this library does not read. Begin with a "
                "snapshot read",
                table=self.url,
            )
        found = {
            each: timeline.metadata(each) for each in timeline.completed_by(completed=last) if each.order[0] > first
        }
        archived = [i for i in self.history.instants().values() if first < i.order[0] and i.action in COMMIT_ACTIONS]
        bodies = self.history.contents(i for i in archived if last is None or i.order[0] <= last)
        for each, body in bodies.items():
            found.setdefault(each, decode_commit(body, name=file_name(each), layout=2, table=self.url))
        return sorted(found.items(), key=lambda item: item[0].order)

    def snapshot(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> Snapshot:
        """The file slices now, or at a past moment: at one after the newest commit those of now.

        Args:
            as_of: commits with requested time T not after this, as Hudi's readers travel in time. Any form that `times`
                tells; a date is its start.
            as_of_completion: commits with completion time C not after this.

        Raises:
            InputError: it is no time, or the table had no commit yet.
        """
        return self.view(as_of=as_of, as_of_completion=as_of_completion).snapshot

    def schema(self) -> pa.Schema | None:
        """The data columns, without Hudi's meta columns; None before the first commit."""
        return self.view().arrow_schema()

    def view(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> View:
        """Snapshot and schema together, of one moment; arguments and errors of `snapshot`."""
        self._require_open()
        requested = None if as_of is None else self.time_of(as_of, "as_of")
        completed = None if as_of_completion is None else self.time_of(as_of_completion, "as_of_completion")
        old = requested is not None or completed is not None

        def past(timeline: Timeline) -> View:
            found = cold_view(self.store, timeline, as_of=requested, as_of_completion=completed, whole=old)
            if old and not len(found.snapshot):
                self._refuse_before_the_first(timeline, requested, completed)
            return found

        if not self.writable:
            return past(self.timeline())
        return self._steadily(past) if old else self._latest()[0]

    def _refuse_before_the_first(self, timeline: Timeline, requested: str | None, completed: str | None) -> None:
        def known(**bounds: str | None) -> tuple[Instant, ...]:
            return timeline.completed_by(**bounds) or timeline.archived_by(**bounds)

        if not known(requested=requested, completed=completed) and (ever := known()):
            first = ever[0]
            raise InputError(
                f"{self.url} had no commit yet at {requested or completed}: the first that is known is {first.requested}"
                + (f", completed at {first.completed}" if first.completed else "")
                + ". Choose a later time (`lakelatch timeline` lists them)",
                table=self.url,
                first=first.requested,
            )

    def _latest(self) -> tuple[View, str]:
        """The view now, and the largest completion time that it holds."""

        def newest(timeline: Timeline) -> tuple[View, str]:
            completion = max((each.completed or each.requested for each in timeline.commits), default=EARLIEST)
            return cold_view(self.store, timeline), completion

        return self._steadily(newest)

    def _steadily(self, look: Callable[[Timeline], T]) -> T:
        """What a look at the timeline gives that no restore interferes with."""
        # The log first: what it holds unpublished is merged, and what lands later is on the timeline or not seen.
        # Listed anew each time, so that commits of engines that bypass the log are seen too.
        while True:
            last, follower = self.log.catch_up().last, self.log.follow(Follower())
            try:
                timeline = self.timeline()
                if any((i.completed or "") > (last.completion if last else EARLIEST) for i in timeline.commits):
                    self.log.catch_up()  # of two that landed while the names were listed, the later one alone may be among them
                found = look(self._whole(timeline, follower))
                if not self._restored_since(follower):
                    return found
            except CorruptTableError:
                if not self._restored_since(follower):
                    raise
            finally:
                self.log.unfollow(follower)

    def _whole(self, timeline: Timeline, follower: Follower) -> Timeline:
        """The timeline with all that the log has and it lacks, and without what the log has taken back.

        Names on the timeline are flushed when an epoch of the log is closed. A power cut before that may have taken any of
        them away, and a writer puts them back; who only reads must not show a state that never was (trap 24).
        """
        shown = {file_name(each) for each in timeline.completed}
        known, lost = self.log.missing(shown, follower.commits)
        undone = {each.requested for commit in known if commit.restores for each in undone_by(commit)}
        timeline = timeline.without(undone) if undone else timeline
        more = {
            instant: echo(commit.schema) if name == commit.echo else metadata_of(self.store, commit)
            for commit, name in lost
            if commit.action in COMMIT_ACTIONS and (instant := parse(name, layout=2))
        }
        return timeline.plus(more) if more else timeline

    def _restored_since(self, follower: Follower) -> bool:
        """A restore takes instants and files away while they are listed: what was seen may be half of each state."""
        self.log.catch_up()
        return not follower.complete or any(commit.restores for commit in follower.commits)

    def read(
        self,
        *,
        partition: str | None = None,
        columns: list[str] | None = None,
        as_of: Time | None = None,
        as_of_completion: Time | None = None,
    ) -> pa.Table:
        """All rows of the table or of one partition as Arrow, without meta columns.

        Args:
            partition: its path (``origin=JFK``), as `snapshot` and ``lakelatch files`` tell it.
            columns: names; all otherwise.
            as_of, as_of_completion: as of `snapshot`.

        Raises:
            InputError: no such partition or column, or no such time.
        """
        self.config.refuse_reading()
        return self._rows(self.view(as_of=as_of, as_of_completion=as_of_completion), partition, columns)

    def _rows(self, view: View, partition: str | None, columns: list[str] | None) -> pa.Table:
        import pyarrow as pa

        schema = view.arrow_schema() or pa.schema([])
        columns = [columns] if isinstance(columns, str) else columns
        if unknown := [c for c in columns or () if c not in schema.names]:
            raise InputError(f"{self.url} has no column {unknown[0]!r}; it has {some(schema.names)}", columns=unknown)
        if partition is not None:
            partition = known_partition(self.store, self.config, view.snapshot, partition)
        wanted = schema if columns is None else pa.schema([schema.field(c) for c in columns])
        parts = [self.read_slice(s, columns=wanted.names) for s in view.snapshot.file_slices(partition)]
        tables = [_shaped(part, wanted) for part in parts]
        return pa.concat_tables(tables) if tables else wanted.empty_table()

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of one file slice; columns that the file does not have yet are left out."""
        import pyarrow.parquet as pq

        from ...hudi.table import META_COLUMNS

        self._require_open()
        self.config.refuse_reading()
        if group.logs:
            from ...hudi.merge import merged_rows

            rows = merged_rows(self.store, self.config, group, columns=columns)
            return rows if meta else rows.select([n for n in rows.column_names if n not in META_COLUMNS])
        with self.store.open(group.path) as stream:
            file = pq.ParquetFile(stream)
            there = file.schema_arrow.names
            wanted = [n for n in there if n not in META_COLUMNS and (columns is None or n in columns)]
            return file.read([*META_COLUMNS, *wanted] if meta else wanted, use_threads=False)

    def _files_of(self, commit: Commit) -> Any:
        return files_of(self.store, commit)

    def _cold_view(self, top: str) -> View:
        return cold_view(self.store, self.timeline(), as_of_completion=top)


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
