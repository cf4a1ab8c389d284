"""What a schedule beside another engine is judged by, besides the rest: who puts completed instants, and what is noticed.

A completed instant is put under the lock. A process whose lease has ended while it was paused between its last look and
that put, a request that arrives when its sender has given up, and a stranger that was silent for longer than its kind
wait may each hide a commit: no lock excludes that, and Hudi's own writers do not either. From there on the contract is
broken, and two rules are left: none of ours commits on, once it has had the lock after a commit was hidden; and of ours
that was put behind its lease and is hidden, nobody was told that it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelatch.hudi.timeline import COMMIT_ACTIONS, TIMELINE, decode_commit, parse, skipped
from lakelatch.occ.entries.entries import Commit

from .history import Anomaly, Attempt
from .shape import SHARED_LOCK
from .strangers import READS_S, SILENT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakelatch.hudi.timeline import Instant, Timeline
    from lakelatch.hudi.timeline.lineage import Skipped
    from lakelatch.occ.entries.entries import LogEntry

    from .scheduler import SimProcess
    from .world import World


class UnnoticedError(Anomaly):
    """One of ours has gone on behind a hidden commit, or was told that it is committed, and is hidden."""


class Neighbourhood:
    """Of one schedule.

    Attributes:
        foreign: T of the strangers' transactions.
        broken: how the contract was; "" if it holds.
    """

    def __init__(self, world: World) -> None:
        self._world, self._lock = world, world.lock_servers[SHARED_LOCK]
        self.foreign: set[str] = set()
        self.broken = ""
        self._silent_s: dict[str, float] = {}
        self._reading: dict[str, tuple[SimProcess, float]] = {}  # since its begin
        self._hidden: tuple[float, str] | None = None  # since when a commit is, and which
        self._behind: set[str] = set()  # T of ours that were put behind their lease

    def begins(self, process: SimProcess, attempt: Attempt, instant: str) -> None:
        """A stranger has taken its T."""
        attempt.instant = instant
        self.foreign.add(instant)
        self._reading[instant] = process, self._world.scheduler.now

    def has_read(self, instant: str) -> None:
        """It has read the timeline, or has ended."""
        self._reading.pop(instant, None)

    def is_reading(self, *, before: str) -> bool:
        """Whether a living stranger with a smaller T may not have read the timeline yet."""
        return any(each < before and not process.dead for each, (process, _) in self._reading.items())

    def _was_long_read(self, before: str) -> bool:
        """Whether one with a smaller T has been about to read for longer than ours wait for it."""
        began = (since for each, (_, since) in self._reading.items() if each < before)
        return any(self._world.scheduler.now - since >= READS_S for since in began)

    def was_silent(self, instant: str, seconds: float) -> None:
        """The longest time between two beats of a stranger that commits."""
        self._silent_s[instant] = seconds

    def made(self, path: str) -> None:
        """An object has appeared."""
        instant = parse(path.rpartition("/")[2], layout=2) if path.startswith(TIMELINE) else None
        process = self._world.objects.by
        if instant is None or process is None:
            return
        commits = instant.state == "completed" and instant.action in COMMIT_ACTIONS
        excludes = instant.requested in self.foreign or instant.action == "rollback"  # who begins relies on the lock
        if not commits and not (excludes and instant.state == "requested"):
            return
        scheduler = self._world.scheduler
        has_lock = self._lock.has(process, scheduler.now)
        if commits and has_lock and instant.requested not in self.foreign:
            self._refuse_hidden(instant, self._lock.last[process].since)
        if not has_lock:
            tenure = self._lock.last.get(process)
            if scheduler.current is not None and (tenure is None or tenure.over):
                scheduler.violation = Anomaly(f"{path} was put by {process.name}, which has given the lock back")
            self._break(f"{path} was put behind a lease")
            if commits and instant.requested not in self.foreign:
                self._behind.add(instant.requested)
        elif commits and instant.requested not in self.foreign and self._was_long_read(instant.requested):
            self._break(f"{path} was put over one that was paused before it had read the timeline")
        elif commits and self._silent_s.get(instant.requested, 0.0) >= SILENT_S:
            self._break(f"{path} was put by one that was silent for long")
        if commits and self.broken and self._hidden is None and (found := self._all_skipped()):
            self._hidden = scheduler.now, f"{found[0].kept} hides {found[0].lost}"

    def judge_told(self, attempts: Iterable[Attempt]) -> None:
        """Raise `UnnoticedError` if one was told that it is committed, was put behind its lease, and is hidden."""
        lost = {each.lost: each.kept for each in self._all_skipped()}
        for each in attempts:
            if (
                each.outcome == "committed"
                and each.instant in self._behind & lost.keys()
                and lost[each.instant] in self.foreign
            ):
                raise UnnoticedError(
                    f"{each.name} was told that it is committed, and {lost[each.instant]} hides {each.instant}"
                )

    def judge(self, entries: Iterable[LogEntry], timeline: Timeline) -> None:
        """Raise `Anomaly` unless the log has imported each commit of another engine."""
        entered = {each.instant for each in entries if isinstance(each, Commit) and each.imported}
        shown = {each.requested for each in timeline.commits} & self.foreign
        if missing := shown - entered:
            raise Anomaly(f"{sorted(missing)} of another engine are on the timeline, and the log has not imported them")
        self._world.also["commits of another engine"] += len(shown)

    def _break(self, how: str) -> None:
        self.broken = self.broken or how
        self._world.scheduler.note(f"  the contract is broken: {how}")

    def _refuse_hidden(self, instant: Instant, since: float) -> None:
        if self._hidden is not None and self._hidden[0] < since:
            self._world.scheduler.violation = UnnoticedError(
                f"{instant.requested} was committed, and nobody has noticed that {self._hidden[1]}"
            )

    def _all_skipped(self) -> Sequence[Skipped]:
        """The commits that others hide, as the chains of versions of their file groups tell."""
        stored = self._world.objects.stored
        names = [path.rpartition("/")[2] for path in stored if path.startswith(TIMELINE)]
        done = [(name, each) for name in names if (each := parse(name, layout=2)) and each.action in COMMIT_ACTIONS]
        bodies = [(each, name, stored[f"{TIMELINE}/{name}"].body) for name, each in done if each.completed]
        commits = [(each, decode_commit(body, name=name, layout=2)) for each, name, body in bodies]
        return skipped(commits, lambda _: None, merge_on_read=False)
