"""The change feed: the inserts, updates and deletes of each commit, row by row, in the order of completion times.

For each commit the file groups that it wrote are compared before and after it. So the feed needs no help from the writer and
works on both table types, also for commits of Hudi's JVM writers; but it needs the states in between, which a cleaning may
have deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...arguments import suggesting
from ...errors import InputError
from ...hudi.table import RECORD_KEY, python_rows
from ...hudi.timeline import Snapshot, Time
from ..entries import Commit, note_in
from ..session import files_there
from .difference import Difference, between
from .held import held
from .of_table import COMPLETION, wanted_of

if TYPE_CHECKING:
    from ...hudi.timeline import CommitMetadata, Instant
    from ..session import Session

CHANGE, INSTANT, WRITER, NOTE = "_change", "_commit_instant", "_commit_writer", "_commit_note"
INSERT, BEFORE, AFTER, DELETE = "insert", "update_before", "update_after", "delete"
_TOLD = (CHANGE, COMPLETION, INSTANT, WRITER, NOTE)
_MOVES_ONLY = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})  # operations that move rows and change none


@suggesting
class ChangeFeed:
    """The changes of a span of commits, read lazily. Made by `Table.change_feed`.

    Memory: the rows of one file group before and after a commit, and the rows of a partition that moved.

    Attributes:
        schema: ``_change``, ``_commit_completion`` (C), ``_commit_instant`` (T), ``_commit_writer`` and
            ``_commit_note`` (JSON; null without one), then the data columns.
        completion: the newest C of the span; pass it as ``after`` to the next call.
    """

    def __init__(
        self,
        session: Session,
        commits: Sequence[tuple[Instant, CommitMetadata]],
        start: Snapshot,
        columns: Sequence[str] | None,
        schema: pa.Schema | None,
        *,
        since: str | None,
        completion: str | None,
    ) -> None:
        self._session, self._commits, self._start, self._since = session, commits, start, since
        wanted = wanted_of(session, schema, columns, None)
        if taken := [name for name in wanted.columns if name in _TOLD]:
            raise InputError(
                f"{session.url} has a column {taken[0]} of its own, under which changes are told; rename it"
            )
        self._wanted = wanted_of(session, schema, [*dict.fromkeys([RECORD_KEY, *wanted.columns])], None)
        self._columns = wanted.columns
        self.completion = completion
        self.schema = pa.schema([*(pa.field(name, pa.string()) for name in _TOLD), *wanted.schema])

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the changes as a stream of Arrow batches, commit by commit.

        Raises:
            StorageError: a cleaning has deleted a file meanwhile; begin again at the last completion time that you have
                seen. Earlier batches are right.
            CorruptTableError: another program has deleted a file.
        """
        return pa.RecordBatchReader.from_batches(
            self.schema, (batch for rows in self._tables() for batch in rows.to_batches())
        )

    def to_arrow(self) -> pa.Table:
        """Return all changes as an Arrow table."""
        return pa.Table.from_batches(list(self.to_batches()), self.schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all changes as dictionaries, with values as in `Scan.to_pylist`."""
        return python_rows(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the changes through Arrow's C stream interface."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ChangeFeed of {self._session.url}: {len(self._commits)} commits; not read yet>"

    def _tables(self) -> Iterator[pa.Table]:
        self._session.require_open()
        writers = _writers(self._session) if self._commits else {}
        before = self._start
        with held(self._session, self._since), files_there(self._session, "the feed was begun"):
            for instant, metadata in self._commits:
                after = before.after(metadata, instant.requested, instant.order[0])
                if not (metadata.compacted or (metadata.operation or "").upper() in _MOVES_ONLY):
                    places = {stat.partition for stat in metadata.stats} | set(metadata.replaced)
                    writer, note = writers.get(instant.requested), _text_of(note_in(metadata.extra))
                    for each in between(self._session, before, after, self._wanted, places):
                        yield self._told(each, (instant.order[0], instant.requested, writer, note))
                before = after

    def _told(self, each: Difference, commit: tuple[str | None, ...]) -> pa.Table:
        rows = [rows.select(list(self._columns)) for rows in (each.before, each.after) if rows is not None]
        both, count = pa.concat_tables(rows), each.rows
        # Interleave: each row before the change is followed by the same row after it.
        if len(rows) == 2:
            both = both.take(pa.array(np.arange(2 * count).reshape(2, count).T.ravel()))
        kinds = {"added": [INSERT], "removed": [DELETE], "changed": [BEFORE, AFTER]}[each.kind]
        columns = [pa.array(kinds * count, pa.string())]
        for value in commit:
            columns.append(pa.repeat(pa.scalar(value, pa.string()), both.num_rows))
        return pa.Table.from_arrays([*columns, *both.columns], schema=self.schema)


def change_feed(
    session: Session, *, after: Time | None, until: Time | None, columns: Sequence[str] | None, whole_from: str
) -> ChangeFeed:
    """See `Table.change_feed`; states are whole from the C ``whole_from`` on, since no cleaning has touched them."""
    commits = session.commits(after=after, until=until)
    first = None if after is None or after in ("0", "000") else session.time_of(after, "after")
    since = None
    # ``whole=False``: the check against ``whole_from`` below covers all commits of the span.
    view = session.view(as_of_completion=until, whole=False) if commits else session.view()
    start, schema = Snapshot(), view.arrow_schema()
    if commits and first is not None and session.commits(until=first):
        start, since = session.view(as_of_completion=first, whole=False).snapshot, first
    # The state before a commit must be whole too, except before the table's first commit, which follows nothing.
    if commits and (commits[0][0].order[0] < whole_from or (since and commits[0][0].order[0] == whole_from)):
        seen = [instant.order[0] for instant, _ in commits if instant.order[0] <= whole_from]
        raise InputError(
            f"{session.url}: what commits up to {seen[-1]} have changed cannot be told row by row, as states between them have "
            f"been cleaned; begin with `read`, and go on with after={seen[-1]!r} or later",
            table=session.url,
        )
    last = commits[-1][0].order[0] if commits else first
    return ChangeFeed(session, commits, start, columns, schema, since=since, completion=last)


def _writers(session: Session) -> dict[str, str]:
    """Return the writer of each commit that the log still has, by T."""
    if not session.writable:
        return {}
    return {each.instant: each.writer for each in session.log.entries() if isinstance(each, Commit)}


def _text_of(note: Mapping[str, str]) -> str | None:
    return json.dumps(note, ensure_ascii=False, sort_keys=True) if note else None
