"""Decide whether a data file is part of any commit, for a worker whose marker is gone, before it deletes its file.

    t=0  Spark runs a task twice; the first attempt's file appears, and the attempt is suspended before its last check
    t=1  the second attempt finds that file under its name and reports it; the transaction commits, its markers go
    t=2  the first attempt wakes up, and its marker is gone: its file is committed now

Markers are removed when the transaction has ended, has committed, or has left the file out. Only the log says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...errors import CorruptTableError, LakeLatchError
from ...hudi.files import BaseFile, LogFile, join
from ...hudi.timeline import COMMIT_ACTIONS, TIMELINE, History, Timeline, decode_container, file_name
from ...storage import Store
from ..entries import Begin, Commit, End, Open
from ..log import metadata_of, read_all


def is_no_part(store: Store, instant: str, path: str) -> bool:
    """True if the file certainly belongs to no commit; False if one names it, or the log does not know its transaction.

    Call it after the marker was found gone: a transaction's commit entry exists before its first marker is removed.
    """
    known = False
    try:
        for entry in read_all(store):
            commit = entry.last if isinstance(entry, Open) else entry
            if isinstance(commit, Commit) and commit.instant == instant:
                return all(path not in stat.paths for stat in metadata_of(store, commit).stats)
            known = known or (isinstance(entry, Begin | End) and entry.instant == instant)
    except LakeLatchError:
        return False
    # A replaced log may have forgotten the commit; the timeline has it.
    shown = store.names(TIMELINE, after=f"{instant}_")
    if not known or any(name.startswith(f"{instant}_") for name in shown):
        return False
    return History(store, TIMELINE).completion_of(instant) is None


# Data files that were gone when the commits around them were archived, and are back (`archived`).
#
# Our readers skip them, but other engines count their rows, so they have to go. But one may have been deleted by mistake,
# and restored from a backup. So a file goes only if it was never committed, or if a clean says that it has deleted it.


def returned_files(store: Store, timeline: Timeline, files: Iterable[BaseFile | LogFile]) -> list[str]:
    """The paths of the files to delete."""
    noted, first = timeline.archived_files(), timeline.first_landed or ""
    back = [f for f in files if noted is not None and f.instant < first and noted.counts(f) is False]
    if not back:
        return []
    archived = History(store, timeline.config.timeline_folder).instants().values()
    landed = {each.requested for each in archived if each.action in COMMIT_ACTIONS}
    oldest = min(landed, default=first)
    cleaned = _cleaned(store, timeline) if any(file.instant in landed for file in back) else set()
    return [f.path for f in back if f.path in cleaned or (f.instant > oldest and f.instant not in landed)]


def _cleaned(store: Store, timeline: Timeline) -> set[str]:
    """Paths deleted by the cleans on the timeline and in the archive, of any engine."""
    history = History(store, timeline.config.timeline_folder)
    bodies = history.contents(each for each in history.instants().values() if each.action == "clean")
    for each in timeline.completed:
        if each.action == "clean" and (stored := store.get(timeline.path(each))):
            bodies[each] = stored.body
    found: set[str] = set()
    for each, body in bodies.items():
        with suppress(CorruptTableError):  # `check` reports it
            content = decode_container(body, "HoodieCleanMetadata", name=file_name(each))
            for partition, gone in content["partitionMetadata"].items():
                found.update(join(partition, path.rpartition("/")[2]) for path in gone["successDeleteFiles"])
    return found
