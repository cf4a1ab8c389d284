"""Is this data file no part of any commit? Asked by a worker that finds its marker gone, before it deletes its file.

    t=0  Spark runs a task twice; the first attempt's file appears, and the attempt is suspended before its last look
    t=1  the second attempt finds that file under its name and reports it; the transaction lands, its markers go
    t=2  the first attempt wakes up, and its marker is gone: its file is committed now

Markers go when the transaction has ended, when it has landed, or when the file was left out of the commit. Only the log
tells which.
"""

from __future__ import annotations

from ...errors import LakeLatchError
from ...hudi.timeline import TIMELINE, History
from ...storage import Store
from ..entries import Begin, Commit, End, Open
from ..log import metadata_of, read_all


def is_no_part(store: Store, instant: str, path: str) -> bool:
    """True when that is certain. False when a commit names the file, or the log says nothing of its transaction.

    To be asked after the marker was found gone: a landed transaction's entry stands before its first marker goes.
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
    # A log that was made anew may not tell of it any more, and the timeline does.
    shown = store.names(TIMELINE, after=f"{instant}_")
    if not known or any(name.startswith(f"{instant}_") for name in shown):
        return False
    return History(store, TIMELINE).completion_of(instant) is None
