"""The rows of a commit that another has hidden without having read them, from the files where they still are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import CorruptTableError, InputError
from ...hudi.files import BaseFile, LogFile
from ...hudi.merge import widened
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice, skipped

if TYPE_CHECKING:
    import pyarrow as pa

    from ..session import Session

_COMMIT_TIME, _, _RECORD_KEY, _PARTITION_PATH, _ = META_COLUMNS
_IDENTITY = [_PARTITION_PATH, _RECORD_KEY]


@dataclass(frozen=True, slots=True)
class LostRows:
    """The rows of one commit that readers do not see, although it has committed.

    Attributes:
        instant: T of the commit.
        hidden_by: T of the commits that hide them.
        paths: the files that have the rows.
        rows: those to write again, with the table's columns. Rows that the commit deleted are not known.
        newer: number of rows left out because a later commit has written their keys.
    """

    instant: str
    hidden_by: tuple[str, ...]
    paths: tuple[str, ...]
    rows: pa.Table
    newer: int


def lost_rows(
    session: Session, instant: str, current: Callable[[list[str], list[str]], Iterable[pa.RecordBatch]]
) -> LostRows:
    """See `Table.lost_rows`. ``current`` returns these columns of the table's rows in these partitions, which exist."""
    import pyarrow as pa

    timeline = session.timeline()
    commits = [(each, timeline.metadata(each)) for each in timeline.commits]
    folder, config = timeline.config.timeline_folder, session.config
    found = skipped(commits, lambda name: session.store.body(f"{folder}/{name}"), merge_on_read=config.merge_on_read)
    found = [each for each in found if each.lost == instant]
    if not found:
        known = any(each.requested == instant for each in timeline.commits)
        why = "no commit hides rows of it" if known else "its instant is not on the active timeline"
        raise InputError(f"{session.url}: nothing of {instant} is lost: {why}. Nothing was written", instant=instant)
    paths = sorted({each.path for each in found})
    slices = [_slice_of(session, path) for path in paths]
    columns = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *(session.schema() or ())])
    tables = [_written_by(session.read_slice(each, meta=True), instant) for each in slices]
    rows = pa.concat_tables([widened(each, columns) for each in tables])  # columns may have changed since
    later, newer, keys = {instant, *(each.kept for each in found)}, set[tuple[str, str]](), _keys(rows)
    lost = set(keys)
    there = {each.partition for each in session.snapshot().file_slices()}
    partitions = sorted({each.partition for each in slices} & there)
    for batch in current([*_IDENTITY, _COMMIT_TIME], partitions) if partitions else ():
        written = zip(_keys(batch), batch.column(_COMMIT_TIME).to_pylist(), strict=True)
        newer.update(key for key, at in written if key in lost and (at > instant or at in later))
    left = rows.filter(pa.array([key not in newer for key in keys], pa.bool_()))
    hidden_by = tuple(sorted({each.kept for each in found}))
    return LostRows(instant, hidden_by, tuple(paths), left.drop_columns(list(META_COLUMNS)), len(newer))


def _keys(rows: pa.Table | pa.RecordBatch) -> list[tuple[str, str]]:
    return list(zip(*(rows.column(name).to_pylist() for name in _IDENTITY), strict=True))


def _slice_of(session: Session, path: str) -> FileSlice:
    entry = session.store.head(path)
    if entry is None:
        raise CorruptTableError(f"{session.url}: {path} had the lost rows, and a cleaning has taken it", path=path)
    if (base := BaseFile.at(path, entry.size)) is not None:
        return FileSlice(base.group, base)
    log = LogFile.at(path, entry.size)
    assert log is not None, path  # `skipped` names no other files
    return FileSlice(log.group, None, (log,))


def _written_by(rows: pa.Table, instant: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows[_COMMIT_TIME], instant))
