"""The error for a data file that is not there when it is read: another program has deleted it, or a cleaning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import CorruptTableError, LakeLatchError, StorageError
from ...hudi.files import BaseFile, LogFile

if TYPE_CHECKING:
    from .session import Session


@contextmanager
def files_there(session: Session, since: str) -> Iterator[None]:
    """Raise the error that says why, if a read in the block misses a data file.

    Args:
        session: of the table.
        since: the call, in words, after which a cleaning may have deleted a file of the state that is read.

    Raises:
        CorruptTableError: the newest state needs the file.
        StorageError: an older state does.
    """
    try:
        yield
    except StorageError as e:
        if (told := of_missing_file(session, e, since)) is None:
            raise
        raise told from e


def of_missing_file(session: Session, error: StorageError, since: str) -> LakeLatchError | None:
    """Return the error of `files_there` for an error of the store; None if no data file is missing."""
    root = session.store.uri("").removeprefix("file://")
    path = str(error.details.get("path") or "").removeprefix(root).lstrip("/")
    file = BaseFile.at(path, 0) or LogFile.at(path, 0)
    if file is None or session.store.head(path) is not None:
        return None
    timeline = session.timeline()
    first = timeline.first_active
    if first is not None and file.instant >= first and all(each.requested != file.instant for each in timeline.commits):
        return None  # no commit has it: it is what could not be written
    return missing(session, path, since)


def missing(session: Session, path: str, since: str) -> LakeLatchError:
    """Return the error of `files_there` for that data file, which is not there."""
    file = BaseFile.at(path, 0) or LogFile.at(path, 0)
    assert file is not None
    newest = session.view().snapshot.get(file.group)
    if newest is None or path not in newest.paths:
        return StorageError(
            f"{path} of {session.url} is not there any more: a cleaning has taken it since {since}, or another program. Read "
            "again, keep more commits when you clean, or read in a block of `Table.pinned`",
            path=path,
            instant=file.instant,
            table=session.url,
        )
    return CorruptTableError(
        f"{path} of {session.url}, which commit {file.instant} wrote, is not there: another program has deleted it, and with it "
        f"rows of partition {file.partition!r}. Nothing landed. Put it back from a copy, as an older version in the bucket; or "
        "`restore` a savepoint; or give its rows up: `overwrite` replaces the partition, and what is left in it. Other "
        "partitions can be read and written; `lakelatch check` names all such files",
        path=path,
        instant=file.instant,
        table=session.url,
    )
