"""Decide whether a data file is part of any commit, for a worker whose marker is gone, before it deletes its file.

    t=0  Spark runs a task twice; the first attempt's file appears, and the attempt is suspended before its last check
    t=1  the second attempt finds that file under its name and reports it; the transaction commits, its markers go
    t=2  the first attempt wakes up, and its marker is gone: its file is committed now

Markers are removed when the transaction has ended, has committed, or has left the file out. Only the log says which.
"""

from __future__ import annotations

from ...errors import LakeLatchError
from ...hudi.timeline import TIMELINE, History
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
