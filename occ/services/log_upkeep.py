"""The choice between compaction and log compaction for each slice in a round of services."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...hudi.timeline import FileSlice

if TYPE_CHECKING:
    from ..session import Session
    from .archive import Keep

# A log compaction rewrites only the log files, a compaction the base file too.
_CHEAPER = 10


def compaction_due(session: Session, keep: Keep) -> Callable[[FileSlice], bool]:
    """Return the test whether a slice with log files is compacted now; others get a log compaction once they have many.

    A slice is due if a log compaction would not be `_CHEAPER` times cheaper, by bytes on disk: those of all log files, also
    of merged ones, which stay until the compaction. It is also due if its oldest log file blocks an archival with these bounds,
    so that no slice is forgotten. Tables with streams have no log compaction: each slice is due.
    """
    if session.streams or session.config.for_streams:
        return lambda _slice: True
    commits = sorted(each.requested for each in session.timeline().commits)
    oldest = commits[-keep.most] if len(commits) > keep.most else ""

    def due(each: FileSlice) -> bool:
        size = each.base.size if each.base else 0
        return size < _CHEAPER * sum(log.size for log in each.logs) or min(log.instant for log in each.logs) < oldest

    return due
