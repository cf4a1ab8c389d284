"""A round of services: run those that are due, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import LakeLatchError
from ...hudi.timeline import FileSlice
from .archive import Archival
from .scheduling import Executed

if TYPE_CHECKING:
    from ..session import Session
    from .archive import Keep

Service = Callable[[], Executed | Archival | None]


@dataclass(frozen=True, slots=True)
class ServiceRound:
    """The outcome of a round of services. A service in none of the three was not due.

    Attributes:
        done: results by service name: compact, compact_logs, cluster, clean, archive.
        failed: errors by service name; the next round tries these services again.
        not_begun: the services left out because ``stop`` ended the round.
    """

    done: Mapping[str, Executed | Archival]
    failed: Mapping[str, LakeLatchError]
    not_begun: tuple[str, ...]


def run_round(services: Mapping[str, Service], stop: Callable[[], bool]) -> ServiceRound:
    """Run the services in their order; one that fails does not stop the next ones.

    Args:
        services: each returns None, or an archival of nothing, when it is not due.
        stop: called before each service; True or an exception ends the round.
    """
    done: dict[str, Executed | Archival] = {}
    failed: dict[str, LakeLatchError] = {}
    names = list(services)
    for at, name in enumerate(names):
        if stop():
            return ServiceRound(done, failed, tuple(names[at:]))
        try:
            outcome = services[name]()
        except LakeLatchError as e:
            failed[name] = e
        else:
            if outcome and not (isinstance(outcome, Archival) and not outcome.instants):
                done[name] = outcome
    return ServiceRound(done, failed, ())


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
