"""Which log files a round of services merges into base files, and which into one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...hudi.timeline import FileSlice

if TYPE_CHECKING:
    from ..session import Session
    from .archive import Keep

# A log compaction writes the log files once more, a compaction the base file too.
_CHEAPER = 10


def compaction_due(session: Session, keep: Keep) -> Callable[[FileSlice], bool]:
    """Whether a file slice with log files is compacted now; else its log files are merged once they are many.

    It is compacted where a log compaction would not be `_CHEAPER` times cheaper, by the bytes on disk: of all log files, also
    of those that were merged, since they lie there until then. And where its oldest log file keeps an archival with these
    bounds waiting, so that no slice is forgotten. Tables with streams know no log compaction, so there each is.
    """
    if session.streams or session.config.for_streams:
        return lambda _slice: True
    commits = sorted(each.requested for each in session.timeline().commits)
    oldest = commits[-keep.most] if len(commits) > keep.most else ""

    def due(each: FileSlice) -> bool:
        size = each.base.size if each.base else 0
        return size < _CHEAPER * sum(log.size for log in each.logs) or min(log.instant for log in each.logs) < oldest

    return due
