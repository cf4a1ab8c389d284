"""Which file slices may go: those that no state worth keeping sees. Decided here, carried out in `services`.

A state is that of a moment, a completion time. Kept are those of the newest commits, of every open transaction's
begin, of every reader's lease and of every savepoint. Whatever `build` shows at one of them stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arguments import number
from ...errors import ConfigError
from ...hudi.files import BaseFile, Listing, LogFile, list_data_files
from ...hudi.timeline import TimelineView, build, is_time, to_epoch_ms
from ..entries import RANGES, by_partition, ranges_path
from ..log import LogState
from ..session import savepoints

if TYPE_CHECKING:
    from ...hudi.table import TableConfig
    from ...storage import Store
    from ..liveness import Lease
    from ..session import Session
    from .execution import Execution

# Apache Hudi's hoodie.clean.commits.retained.
RETAIN_COMMITS = 10


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays readable: the states of the newest ``commits``, and of the last ``hours``; where both are given, of both.

    And the state before the first of these, but where 0 commits and no hours are asked for: then the newest state alone.
    """

    commits: int | None = RETAIN_COMMITS
    hours: float | None = None

    def __post_init__(self) -> None:
        if self.commits is None and self.hours is None:
            raise ConfigError("say how much stays readable: a number of commits, hours, or both")
        if self.commits is not None:  # the newest state always stays
            number(self.commits, "retain_commits", least=0, whole=True, error=ConfigError)
        if self.hours is not None:
            number(self.hours, "retain_hours", least=0, error=ConfigError)

    @property
    def newest_alone(self) -> bool:
        """Whether no state stays but the newest, and those that somebody needs."""
        return self.commits == 0 and self.hours is None

    @property
    def policy(self) -> str:
        """Hudi's name of it."""
        return "KEEP_LATEST_BY_HOURS" if self.commits is None else "KEEP_LATEST_COMMITS"

    def earliest(self, completed_s: list[float], now_s: float) -> int:
        """The index of the first commit whose state stays, of the times when commits completed, in that order."""
        firsts = []
        if self.commits is not None:
            firsts.append(len(completed_s) - self.commits)
        if self.hours is not None:
            cutoff = int((now_s - self.hours * 3600) * 1000) / 1000
            firsts.append(next((n for n, each in enumerate(completed_s) if each >= cutoff), len(completed_s)))
        return min(max(min(firsts), 0), len(completed_s) - 1)


def find(session: Session, state: LogState, retention: Retention, leases: Iterable[Lease]) -> dict[str, Any] | None:
    """The content of a clean as of that state of the log; None when nothing may go.

    ``leases`` must have been listed after the state was read.
    """
    timeline = session.timeline()
    commits = timeline.commits
    if not commits:
        return None
    completions = [each.completed or each.requested for each in commits]
    now_s = session.env.now()
    completed_s = [to_epoch_ms(each) / 1000 if is_time(each) else math.inf for each in completions]
    if retention.hours is not None and completed_s[-1] > now_s:
        # Of a commit from the future nobody can tell by its time how old it is; when its instant was written, the store can.
        written = {entry.path: entry.mtime for entry in session.store.list(session.config.timeline_folder)}
        completed_s = [
            min(each, written.get(timeline.path(i), each)) if each > now_s else each
            for each, i in zip(completed_s, commits, strict=True)
        ]
    first = retention.earliest(completed_s, now_s)
    pinned = savepoints(session.store, timeline)
    # The one before too: whoever reads the first one's changes needs it.
    whole = first if retention.newest_alone else max(first - 1, 0)
    moments = set(completions[whole:])
    moments |= set(state.open)  # T of a begin lies between what its snapshot holds and what it does not
    moments |= {moment for lease in leases for moment in lease.moments(completions)}
    gone = superseded(list_data_files(session.store), timeline.view(whole=True), session.config, moments)
    # By name: what another engine keeps is known by nothing else.
    kept = {(partition, name) for each in pinned for partition, names in each.files.items() for name in names}
    slices = {
        partition: left
        for partition, names in by_partition(gone).items()
        if (left := [name for name in names if (partition, name) not in kept])
    }
    if not slices:
        return None
    earliest = {"T": commits[first].requested, "C": completions[whole], "action": commits[first].action}
    return {"slices": slices, "earliest": earliest, "last": commits[-1].requested, "policy": retention.policy}


def run(execution: Execution) -> None:
    """Delete the files of a plan: those that still are of commits that the timeline knows, and of no slice of today.

    Both are true of all that is planned here, for good; but a log entry is no more than a file that others may write.
    """
    session = execution.session
    timeline, listing = session.timeline(), list_data_files(session.store)
    view = timeline.view(whole=True)
    live = {path for each in build(listing, view, session.config).file_slices() for path in each.paths}

    def known(path: str) -> bool:
        file = BaseFile.at(path, 0) or LogFile.at(path, 0)
        return file is not None and path not in live and view.completion_of(file) is not None

    execution.delete_files(known)
    _forget_partitions(session.store, {each.partition for each in listing.bases if each.path in live})


def _forget_partitions(store: Store, left: set[str]) -> None:
    """Key ranges of partitions without files go. Gone too early they cost their next reader some time."""
    wanted = {ranges_path(partition) for partition in left}
    for name in store.names(RANGES):
        if (path := f"{RANGES}/{name}") not in wanted:
            store.delete(path)


def superseded(listing: Listing, view: TimelineView, config: TableConfig, moments: Iterable[str]) -> set[str]:
    """Paths of committed files that are seen at none of the moments."""
    gone = {group for each in view.replacements for group in each.groups}
    files: list[BaseFile | LogFile] = [*listing.bases, *listing.logs]
    many = Counter(file.group for file in files)
    # Of a file group with one file that nothing has replaced there is nothing to find.
    bases = tuple(f for f in listing.bases if f.group in gone or many[f.group] > 1)
    logs = tuple(f for f in listing.logs if f.group in gone or many[f.group] > 1)
    suspects = Listing(bases, logs)
    counted = (f for f in files if f.group in gone or many[f.group] > 1)
    # The history is read later than the timeline was listed: what has landed and been archived in between is seen at no
    # moment of that listing, and is superseded by nothing (simulator, seed 970017745).
    moments = sorted(moments, reverse=True)
    newest = moments[0] if moments else ""
    found = {f.path for f in counted if (view.completion_of(f) or "~") <= newest}
    for moment in moments:
        if not found:
            break
        for each in build(suspects, view, config, as_of_completion=moment).file_slices():
            found -= each.paths
    return found
