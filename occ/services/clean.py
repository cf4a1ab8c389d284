"""Cleaning: delete the file slices that no retained state sees. `find` decides, `run` carries it out.

A state belongs to a moment, a completion time. Retained are the states of the newest commits, of each open transaction's
begin, of each reader's lease and of each savepoint. A slice that `build` shows at one of them stays.
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
from .planned_service import PlannedService, service_operation

if TYPE_CHECKING:
    from ...hudi.table import TableConfig
    from ...storage import Store
    from ..liveness import ReaderLease
    from ..session import Session
    from .execution import Execution

# Apache Hudi's hoodie.clean.commits.retained.
RETAIN_COMMITS = 10


@dataclass(frozen=True, slots=True)
class Retention:
    """The states that stay readable: those of the newest ``commits`` and of the last ``hours``, if both are given the union.

    The state before the first of these stays too. With 0 commits and no hours only the newest state stays.
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
        """True if only the newest state stays, beside those in use."""
        return self.commits == 0 and self.hours is None

    @property
    def policy(self) -> str:
        """Hudi's name of the policy."""
        return "KEEP_LATEST_BY_HOURS" if self.commits is None else "KEEP_LATEST_COMMITS"

    def earliest(self, completed_s: list[float], now_s: float) -> int:
        """Return the index of the first commit whose state stays; ``completed_s`` are ascending completion times."""
        firsts = []
        if self.commits is not None:
            firsts.append(len(completed_s) - self.commits)
        if self.hours is not None:
            cutoff = int((now_s - self.hours * 3600) * 1000) / 1000
            firsts.append(next((n for n, each in enumerate(completed_s) if each >= cutoff), len(completed_s)))
        return min(max(min(firsts), 0), len(completed_s) - 1)


def find(
    session: Session, state: LogState, retention: Retention, leases: Iterable[ReaderLease]
) -> dict[str, Any] | None:
    """Return the content of a clean as of that state of the log; None if nothing may go.

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
        # The time of a commit from the future (a skewed clock) does not give its age; the store's write time does.
        written = {entry.path: entry.mtime for entry in session.store.list(session.config.timeline_folder)}
        completed_s = [
            min(each, written.get(timeline.path(i), each)) if each > now_s else each
            for each, i in zip(completed_s, commits, strict=True)
        ]
    first = retention.earliest(completed_s, now_s)
    pinned = savepoints(session.store, timeline)
    # One state more: a reader of the first commit's changes compares with the state before it.
    whole = first if retention.newest_alone else max(first - 1, 0)
    moments = set(completions[whole:])
    moments |= set(state.open)  # T of a begin separates the commits in its snapshot from later ones
    moments |= {moment for lease in leases for moment in lease.moments(completions)}
    gone = superseded(list_data_files(session.store), timeline.view(whole=True), session.config, moments)
    # By name: another engine's savepoint lists nothing else.
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
    """Delete the files of a plan that belong to commits on the timeline and to no current slice.

    Our own plans name only such files. The check guards against a damaged or foreign log entry.
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
    """Delete the key ranges of partitions without files. Deleting one too early only costs its next reader time."""
    wanted = {ranges_path(partition) for partition in left}
    for name in store.names(RANGES):
        if (path := f"{RANGES}/{name}") not in wanted:
            store.delete(path)


def superseded(listing: Listing, view: TimelineView, config: TableConfig, moments: Iterable[str]) -> set[str]:
    """Return the paths of committed files that are visible at none of the moments."""
    gone = {group for each in view.replacements for group in each.groups}
    files: list[BaseFile | LogFile] = [*listing.bases, *listing.logs]
    many = Counter(file.group for file in files)
    # A file group with one file, and not replaced, has nothing superseded.
    bases = tuple(f for f in listing.bases if f.group in gone or many[f.group] > 1)
    logs = tuple(f for f in listing.logs if f.group in gone or many[f.group] > 1)
    suspects = Listing(bases, logs)
    counted = (f for f in files if f.group in gone or many[f.group] > 1)
    # The history is read after the timeline was listed: a commit that completed and was archived in between is visible at
    # no moment of that listing, though nothing supersedes it (simulator, seed 970017745). So newer files are not candidates.
    moments = sorted(moments, reverse=True)
    newest = moments[0] if moments else ""
    found = {f.path for f in counted if (view.completion_of(f) or "~") <= newest}
    for moment in moments:
        if not found:
            break
        for each in build(suspects, view, config, as_of_completion=moment).file_slices():
            found -= each.paths
    return found


SERVICE = PlannedService("clean", service_operation("clean", "CLEAN"), run, decided=True)
