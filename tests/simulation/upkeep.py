"""Processes that keep a table in order while others write it, and that read it under a lease; and what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelatch.errors import (
    CommitStateUnknownError,
    ConfigError,
    ConflictError,
    InputError,
    LakeLatchError,
    LockError,
    LockLostError,
    RolledBackError,
    StorageError,
    UnsupportedTableError,
)
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.entries import Commit, LogEntry
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.services.registry import is_decided
from lakelatch.occ.services.scheduling import Executed
from lakelatch.occ.session import kept_from
from lakelatch.occ.session.snapshot_cache import cold_view
from lakelatch.occ.table.table import Table

from .history import Anomaly, State, Story
from .scheduler import SimProcess
from .shape import LOCKS, NO_LOCK
from .store import Gone

if TYPE_CHECKING:
    from .world import World

# How often each is done.
_ACTS = {
    "clean": 4, "plan_clean": 2, "cluster": 2, "plan_clustering": 2, "execute": 4, "cancel": 1,
    "savepoint": 3, "delete_savepoint": 1, "restore": 2, "sweep": 1, "archive": 3, "plan_archive": 1,
}  # fmt: skip
_ACTS_OF_LOG_FILES = _ACTS | {"compact": 8, "plan_compaction": 5}
_ACTS_OF_APPENDS = _ACTS_OF_LOG_FILES | {"compact_logs": 8, "plan_log_compaction": 4}
_REFUSALS = (ConflictError, InputError, RolledBackError, UnsupportedTableError)  # nothing of it has landed
_ERRORS = (*_REFUSALS, CommitStateUnknownError, LockError, StorageError)  # any other says something that is not so
_LANDS_AS = {"savepoint": "SAVEPOINT", "delete_savepoint": "SAVEPOINT_DELETE", "restore": "RESTORE"}


@dataclass
class Call:
    """One thing that a keeper did; ``outcome`` stays "cut off" when it died. ``completion``: of what landed by it."""

    what: str
    writer: str
    outcome: str = "cut off"
    completion: str | None = None


@dataclass
class Reading:
    """What somebody has read under a lease."""

    completion: str
    state: State
    past: bool


class Upkeep:
    """Of one schedule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[Call] = []
        self.readings: list[Reading] = []
        self.executed: Counter[str] = Counter()  # by how many it was told to have been

    # --- table services ---------------------------------------------------------------------------------------

    def keep(self, process: SimProcess) -> None:
        world = self.world
        luck = world.scheduler.random
        for table in self._turns(process, 3):
            world.scheduler.pause(luck.random() * 0.5)
            acts = _ACTS_OF_LOG_FILES if world.shape.merge_on_read else _ACTS
            if (
                world.shape.appends and not world.shape.streams
            ):  # whose log files have real bytes, and are not of streams
                acts = _ACTS_OF_APPENDS
            if world.shape.mix == "buckets":
                acts = acts | {"buckets": 12}
            what = luck.choices(list(acts), list(acts.values()))[0]
            call = Call(what, table.writer)
            self.calls.append(call)
            world.scheduler.note(what)
            try:
                call.completion = getattr(self, f"_{what}")(table)
                call.outcome = "done"
            except _ERRORS as e:
                call.outcome = "refused" if isinstance(e, _REFUSALS) else "unknown"
                world.scheduler.note(f"{what} {call.outcome}: {e}"[:200])

    def _turns(self, process: SimProcess, most: int) -> Iterator[Table]:
        """The table, one to so many times; never when it cannot be opened."""
        table = self.world.open_table(process)
        if table is not None:
            for _ in range(self.world.scheduler.random.randint(1, most)):
                yield table
            table.close()

    def _clean(self, table: Table) -> str | None:
        luck = self.world.scheduler.random
        return self._told(table.clean(retain_commits=luck.randint(1, 2), wait=luck.random() < 0.2))

    def _plan_clean(self, table: Table) -> None:
        table.plan_clean(retain_commits=self.world.scheduler.random.randint(1, 2))

    def _cluster(self, table: Table) -> str | None:
        return self._told(table.cluster())

    def _compact(self, table: Table) -> str | None:
        return self._told(table.compact())

    def _plan_compaction(self, table: Table) -> None:
        table.plan_compaction()

    def _compact_logs(self, table: Table) -> str | None:
        return self._told(table.compact_logs(min_logs=2))

    def _plan_log_compaction(self, table: Table) -> None:
        table.plan_log_compaction(min_logs=2)

    def _plan_clustering(self, table: Table) -> None:
        table.plan_clustering()

    def _execute(self, table: Table) -> str | None:
        plans = table.plans()
        return self._told(table.execute(self.world.scheduler.random.choice(plans).instant)) if plans else None

    def _buckets(self, table: Table) -> None:
        table.change_buckets(self.world.scheduler.random.randint(1, 3))

    def _archive(self, table: Table) -> None:
        least = self.world.scheduler.random.randint(1, 3)
        table.archive(keep_min=least, keep_max=least)

    def _plan_archive(self, table: Table) -> None:
        table.plan_archive(keep_min=1, keep_max=1)

    def _cancel(self, table: Table) -> None:
        plans = [each for each in table.plans() if not is_decided(each.operation)]
        if plans:
            table.cancel_plan(self.world.scheduler.random.choice(plans).instant)

    def _savepoint(self, table: Table) -> str | None:
        luck = self.world.scheduler.random
        commits = table.timeline().commits[-3:]
        made = table.savepoint(luck.choice((None, *(each.requested for each in commits))))
        return made.shown.completed

    def _delete_savepoint(self, table: Table) -> None:
        if made := table.savepoints():
            table.delete_savepoint(self.world.scheduler.random.choice(made).instant)

    def _restore(self, table: Table) -> str | None:
        commits = table.timeline().commits[-4:]
        with suppress(UnsupportedTableError, ConfigError):  # it has other buckets, or is older than all that stays
            return table.restore(self.world.scheduler.random.choice(commits).requested).completion
        return None

    def _sweep(self, table: Table) -> None:
        table.rollback_failed_writes(wait=self.world.scheduler.random.random() < 0.5)

    def _told(self, done: Executed | None) -> str | None:
        if done is None:
            return None
        self.executed[done.instant] += done.mine
        return done.completion

    def administer(self, process: SimProcess) -> None:
        """Changes the lock and other settings while everybody works, and cleans."""
        world = self.world
        luck = world.scheduler.random
        for table in self._turns(process, 2):
            what = luck.choice(("lock", "lock", "settings", "clean"))
            try:
                if what == "lock":
                    url = luck.choice((NO_LOCK, *LOCKS))
                    world.scheduler.note(f"sets the lock to {url}")
                    table.set_lock(url)
                elif what == "settings":
                    table.change_settings(lock_wait_s=luck.choice((5.0, 20.0)))
                else:
                    table.rollback_failed_writes(wait=luck.random() < 0.5)
            except LakeLatchError as e:
                world.scheduler.note(f"{what} failed: {e}"[:160])
            world.scheduler.pause(luck.random() * 0.5)

    # --- readers ----------------------------------------------------------------------------------------------

    def read(self, process: SimProcess) -> None:
        """Reads file by file, slowly; what was read before a look that finds the lease in force was read whole."""
        world = self.world
        luck = world.scheduler.random
        for table in self._turns(process, 2):
            with suppress(LockLostError, InputError, StorageError):
                past = luck.choice(table.timeline().commits[-4:]).completed if luck.random() < 0.4 else None
                with table.pinned(as_of_completion=past) as view:
                    state = State()
                    for each in view.snapshot.file_slices():
                        table.env.sleep(luck.random() * luck.choice((0.05, 0.5, 3.0)))
                        try:
                            state |= world.read_slice(table, each)
                        except Gone as e:
                            table.env.sleep(2 * table.settings.heartbeat_interval_s)  # so that it has beaten, or not
                            view.check()
                            raise Anomaly(f"a reader of {view.completion} has a lease, and {e.path} is gone") from e
                    view.check()
                    self.readings.append(Reading(view.completion, state, past is not None))

    # --- the end ----------------------------------------------------------------------------------------------

    def finish(self, table: Table) -> None:
        """Nothing is pending any more, and what may go has gone."""
        for plan in table.plans():
            with suppress(ConflictError):  # it could never land, and is cancelled
                self._told(table.execute(plan.instant))
        # The least: a file whose put arrived again after its clean goes with the next one that keeps no more than that.
        table.clean(retain_commits=1, wait=True)
        table.rollback_failed_writes()

    def check_all(self, table: Table) -> None:
        """`lakelatch check` finds nothing."""
        report = check(table.store)
        if not report.sound(strict=True):
            raise Anomaly(f"check finds {[each.message for each in report.findings]}")

    def judge(self, table: Table, entries: list[LogEntry], story: Story) -> None:
        """Raises `Anomaly` where what was told, read or kept is not as the log says."""
        commits = [e for e in entries if isinstance(e, Commit)]
        self._judge_calls(commits)
        landed = {c.completion: c.instant for c in commits} | {c: t for t, c, _ in self.world.ground}
        for reading in self.readings:
            taken_back = landed[reading.completion] in story.undone
            if reading.state != story.states[reading.completion] and not (reading.past and taken_back):
                raise Anomaly(
                    f"at {reading.completion} a reader saw {reading.state}, not {story.states[reading.completion]}"
                )
        if self.calls:
            self._judge_kept(table, story)

    def _judge_calls(self, commits: list[Commit]) -> None:
        landed = {c.completion: c for c in commits}
        for call in self.calls:
            if call.completion is not None and call.completion not in landed:
                raise Anomaly(f"{call.what} was told that it has landed at {call.completion}, and it has not")
        # Who was cut off until the log had forgotten it is told so little of a savepoint that it may be wrong.
        forgotten = any(path.startswith(LOG) for path in self.world.objects.taken_away)
        for what, operation in () if forgotten else _LANDS_AS.items():
            there = Counter(c.writer for c in commits if c.operation == operation)
            for writer, count in there.items():
                told = [c for c in self.calls if (c.what, c.writer) == (what, writer)]
                if count > sum(c.outcome != "refused" for c in told):
                    raise Anomaly(f"a {what} of {writer} has landed, and it was told otherwise: {told}")
        if twice := [instant for instant, count in self.executed.items() if count > 1]:
            raise Anomaly(f"several executions of {twice} were told that theirs has landed")

    def _judge_kept(self, table: Table, story: Story) -> None:
        """States that no cleaning has been decided for, and those of savepoints, are whole."""
        timeline = table.timeline()
        first, kept = kept_from(table.session), {each.instant for each in table.savepoints()}
        for each in timeline.commits:
            if (each.completed or "") >= first or each.requested in kept:
                state = self.world.content(
                    cold_view(table.store, timeline, as_of_completion=each.completed, whole=True).snapshot
                )
                # An echo, which repeats a schema, completes before its commit and changes no row.
                at = max(completed for completed in story.states if completed <= (each.completed or ""))
                if state != (was := story.states[at]):
                    raise Anomaly(
                        f"the state of {each.requested} is {state}, and it was {was}; "
                        f"kept are those from {first} on and of {sorted(kept)}"
                    )
