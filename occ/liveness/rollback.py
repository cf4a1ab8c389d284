"""Failed writers: decide who is dead, end its transaction, then delete its files. In that order.

    t=0  W is slow; a cleaner takes it for dead
    t=1  the cleaner appends rollback(W): from here W cannot commit, whatever it does
    t=2  the cleaner deletes the files that W's markers name, the markers, the pending instant, the heartbeat last
    t=3  W wakes up, reads the log, finds itself rolled back, and reports it

Without step 1 first, W could commit between 0 and 2 and lose committed files. Nobody deletes files of a transaction,
its own writer included, before the log says that it did not commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ...ahead import in_order
from ...environment import Environment
from ...errors import LakeLatchError, LockTimeoutError, TableNotFoundError
from ...hudi.files import BaseFile, LogFile, list_data_files
from ...hudi.timeline import COMMIT_ACTIONS, COMPLETED_AS, Instant, Timeline, decode_commit, file_name, parse
from ...storage import Store, is_far
from ..entries import SIDES, Begin, Commit, End, LogEntry, Prepare
from ..log import CommitLog, LogState, UndecidedError, metadata_of
from .heartbeat import HEARTBEATS, HeartbeatObserver, heartbeat_path
from .late_files import returned_files
from .markers import Left, Marker, delete_announced, instants_with_markers, left_by, remove
from .removal import delete_data_file

# The actions of a transaction's pending instants.
_PENDING = ("commit", "deltacommit", "replacecommit", "clean", "clustering", "compaction", "logcompaction", "restore")
_PLANNED = (
    "clustering",
    "compaction",
    "logcompaction",
)  # plans that others wait for, undecided until they commit
_OTHERS = 16  # with more open transactions each handle checks less often
_AT_ONCE = 16  # reads of others' heartbeats, on a store with long round trips
_log = logging.getLogger("lakelatch.rollback")


class Releasable(Protocol):
    """A lease of the table's lock."""

    def release(self) -> object: ...


class FailedWriteCleaner:
    """The cleaner of dead transactions and of leftovers. One per table handle.

    Attributes:
        settles: gives a prepared commit of a dead writer the outcome of its transaction; False: it has none yet.
    """

    def __init__(
        self, store: Store, log: CommitLog, env: Environment, timeline_folder: str, *, lease: Callable[..., Releasable]
    ) -> None:
        self._lease = lease
        self._store, self._log, self._env, self._timeline = store, log, env, timeline_folder
        self._watch = HeartbeatObserver(store, env)
        self._at_once = _AT_ONCE if is_far(store.url) else 1
        self._looked_at: float | None = None
        self.settles: Callable[[Prepare], bool] = lambda _: False

    def look(self, mine: Iterable[str], *, at_most_every_s: float = 0.0) -> list[str]:
        """Roll back every transaction found dead, except ``mine``; return their instants.

        ``at_most_every_s``: pause since the last call; if it is given, a heartbeat is not read more often than its
        writer beats.
        """
        now = self._env.monotonic()
        # Many handles watch the same transactions. Each checks less often, so that their number does not raise the
        # reads per transaction.
        every_s = at_most_every_s * max(1.0, len(self._log.state.open) / _OTHERS)
        if self._looked_at is not None and now - self._looked_at < every_s:
            return []
        self._looked_at = now
        state = self._log.catch_up()
        self._watch.keep_only(set(state.open))
        others = [begin for begin in list(state.open.values()) if begin.instant not in mine and not begin.waits]
        timeout_s = state.settings.heartbeat_timeout_s
        every_s = state.settings.heartbeat_interval_s if at_most_every_s else 0.0
        looks = [partial(self._watch.is_dead, begin, timeout_s=timeout_s, every_s=every_s) for begin in others]
        dead = [b for b, is_dead in zip(others, in_order(self._env, looks, self._at_once), strict=True) if is_dead]
        # A thread that beats for others waits for no lock.
        wait_s = 0.0 if at_most_every_s else None
        return [b.instant for b in dead if self._roll_back_dead(b, wait_s)]

    def _roll_back_dead(self, begin: Begin, wait_s: float | None) -> bool:
        try:
            return self.roll_back(begin, reason="its heartbeat stopped", wait_s=wait_s)
        except LakeLatchError as e:
            if begin.instant not in self._log.state.prepared:
                raise
            # Its home is not to be reached; the other dead ones are ended all the same.
            _log.warning("%s: prepared %s could not be settled: %s", self._store.url, begin.instant, e)
            return False

    def roll_back(
        self,
        begin: Begin,
        *,
        reason: str,
        wait_s: float | None = None,
        kind: str = "rollback",
        without_home: bool = False,
    ) -> bool:
        """End one open transaction and remove its leftovers. False if it ended by itself meanwhile. A prepared one is settled.

        With neighbours under the table's lock, after an import: the transaction has committed if its completed instant is
        on the timeline. False too if the lock was not had within ``wait_s``, by default the time of the settings.
        ``without_home``: end a prepared one also if the table whose log decides is not there.
        """
        me = self._env.process()

        def build(state: LogState) -> LogEntry | None:
            if begin.instant not in state.open:
                return None
            return End(kind, begin.instant, f"{me.host}:{me.pid}", reason)

        # The entry before the sweep: until it is in the log, the writer may still commit.
        if self._log.state.settings.timeline_first:
            try:
                lease = self._lease(wait_s=wait_s)
            except LockTimeoutError:
                return False
            try:
                ended = self._log.append(build, look=True)
            finally:
                lease.release()
        else:
            try:
                ended = self._log.append(build)
            except UndecidedError as e:  # its home says what becomes of it
                try:
                    return self.settles(e.prepared)
                except TableNotFoundError:
                    if not without_home:
                        raise
                ended = self._log.append(build, settles=True)
        if ended is None:
            return False
        _log.info("rolled back %s of %s: %s", begin.instant, begin.writer, reason)
        # A rebase may have changed the action of the pending instant.
        self.sweep(begin.instant, "" if begin.action == "commit" else begin.action)
        return True

    def end_if_left(self, plan: Begin) -> bool:
        """End a plan that nobody executes, observed for the time-out; True: it is over.

        Spares a plan with an inflight instant and no heartbeat: another engine may be executing it, without a sign of
        life.
        """
        timeout_s = self._log.state.settings.heartbeat_timeout_s
        inflight = f"{self._timeline}/{file_name(Instant(plan.instant, plan.action, 'inflight'))}"
        try:
            if plan.action not in _PLANNED or not self._watch.is_dead(plan, timeout_s=timeout_s):
                return False
            if self._store.head(heartbeat_path(plan.instant)) is None and self._store.head(inflight) is not None:
                return False
            self.roll_back(plan, reason="nobody executes this plan")
        except LakeLatchError:  # it must not end the work of the waiting caller
            _log.warning("%s: plan %s could not be ended; tried again", self._store.url, plan.instant, exc_info=True)
            return False
        return True

    def sweep(self, instant: str, action: str = "", *, known: Collection[Marker] = ()) -> int:
        """Delete the leftovers of an ended transaction; return the number of data files. Idempotent, by any process.

        If it did not commit, delete everything, including files whose marker another sweep has taken (``known``, from
        its own writer); if it did, its markers and its heartbeat.
        """
        outcome = self._log.outcome(instant)
        if outcome == "commit":
            self.sweep_landed(instant)
        elif outcome == "undone":
            self._sweep_undone(instant)
        elif outcome in ("rollback", "abort") and self._ended_for_sure(instant):
            delete_announced(self._store, known)
            return self._sweep_dead(instant, action)
        return 0  # foreign, alive, or perhaps archived: must not be touched

    def _ended_for_sure(self, instant: str, told: dict[str, str] | None = None) -> bool:
        """Return whether a transaction not shown as committed by the newest epoch and the timeline really is not.

        They do not cover one older than the active timeline: an archived commit looks the same (trap 5). Then only an
        entry of its end counts. ``told`` caches the answers of the whole log, for a caller with many questions.
        """
        if instant in self._log.state.ended:
            return True
        # Only commits count: a restore or savepoint stays when the commits around it are archived.
        shown = (parse(name, layout=2) for name in self._store.names(self._timeline))
        times = [i.requested for i in shown if i and COMPLETED_AS.get(i.action, i.action) in COMMIT_ACTIONS]
        if not times or instant >= min(times):
            return True
        told = {} if told is None else told
        if not told:
            for entry in self._log.entries():
                if isinstance(entry, Commit | End):
                    told.setdefault(entry.instant, entry.kind)
        return told.get(instant) in ("rollback", "abort")

    def _sweep_dead(self, instant: str, action: str) -> int:
        deleted = self._delete_announced(instant)
        self._withdraw(instant, action)
        for side in self._store.list(SIDES):
            if side.name.startswith(f"{instant}-"):
                self._store.delete(side.path)
        # Last, because a later sweep finds this transaction by it. Then once more for a late worker's markers.
        self._store.delete(heartbeat_path(instant))
        return deleted + self._delete_announced(instant)

    def _withdraw(self, instant: str, action: str) -> None:
        for act in (action,) if action in _PENDING else _PENDING:
            for state in ("inflight", "requested"):
                self._store.delete(f"{self._timeline}/{file_name(Instant(instant, act, state))}")

    def _sweep_undone(self, instant: str) -> None:
        """Clean up after an undone commit, except its data files, which a reader may need (`remove_undone`)."""
        left = left_by(self._store, instant)
        remove(self._store, left.markers, lists=left.lists)
        self._withdraw(instant, "")
        self._store.delete(heartbeat_path(instant))

    def _delete_announced(self, instant: str) -> int:
        left = left_by(self._store, instant)
        delete_announced(self._store, left.markers, lists=left.lists)
        return len(left.markers)

    def sweep_landed(
        self, instant: str, files: Collection[str] | None = None, *, known: Sequence[Marker] | None = None
    ) -> None:
        """Clean up after a commit: its markers and heartbeat, and announced files that are not part of it (``files``).

        Those were deleted before it committed, but a late task may have brought one of an earlier round of a rebase
        back since, and readers refuse two files of one file group and T. ``known``: its markers, if no other process
        ran a task of it; they need not be listed then.
        """
        left = left_by(self._store, instant) if known is None else Left(list(known), [])
        if left.markers and files is None:
            files = self._files_of(instant)
        delete_announced(self._store, [m for m in left.markers if files is not None and m.path not in files])
        # The heartbeat last: if this is interrupted, the next sweep finds the transaction by it.
        remove(self._store, left.markers, lists=left.lists)
        self._store.delete(heartbeat_path(instant))

    def _files_of(self, instant: str) -> set[str] | None:
        """Data files of a commit on the timeline; None if it is not there."""
        for name in self._store.names(self._timeline, after=f"{instant}_"):
            found, stored = parse(name, layout=2), self._store.get(f"{self._timeline}/{name}")
            if found is None or stored is None or found.requested != instant:
                return None
            return {path for stat in decode_commit(stored.body, name=name, layout=2).stats for path in stat.paths}
        return None

    def sweep_leftovers(self, mine: Iterable[str]) -> int:
        """Sweep every transaction that left markers or a heartbeat and is over: dead cleaners, late workers.

        Returns the number of data files deleted.
        """
        left = {*instants_with_markers(self._store), *self._store.names(HEARTBEATS)}
        return sum(self.sweep(instant) for instant in sorted(left - set(mine)))

    def sweep_strays(self, timeline: Timeline, mine: Iterable[str]) -> int:
        """Delete what arrived after a sweep: late pending instants, side objects, data files without marker.

        Lists every data file, so only a cleaning requested by a user calls it. Files unknown to the log are foreign or
        of archived commits, and stay. Returns the number of data files deleted.
        """
        state, taken_back = self._log.state, timeline.taken_back()
        undone = self._undone(state, timeline)
        for shown in timeline.completed:
            # Published late, after it was taken back. Instants of a restore that is still running leave in its own
            # order.
            leaves = state.ended.get(shown.requested) == "undone" and shown.requested not in taken_back
            if (name := file_name(shown)) in undone and not leaves:
                self._store.delete(f"{self._timeline}/{name}")
        landed = {instant.requested for instant in timeline.completed}
        found: dict[str, list[str]] = {instant.requested: [] for instant in timeline.pending}
        for side in self._store.list(SIDES):
            found.setdefault(side.name.partition("-")[0], [])
        listing = list_data_files(self._store)
        files: list[BaseFile | LogFile] = [*listing.bases, *listing.logs]
        for file in files:
            found.setdefault(file.instant, []).append(file.path)
        names = {file_name(instant) for instant in timeline.completed}
        deleted = self._sweep_unnamed(names, {t: paths for t, paths in found.items() if t in landed and paths})
        for path in returned_files(self._store, timeline, files):
            deleted += delete_data_file(self._store, path)
        told: dict[str, str] = {}
        for instant in sorted(found.keys() - landed - set(mine)):
            outcome = self._log.outcome(instant)
            if outcome == "undone":
                self._sweep_undone(instant)
            elif outcome in ("rollback", "abort") and self._ended_for_sure(instant, told):
                deleted += sum(delete_data_file(self._store, path, instant=instant) for path in found[instant])
                deleted += self._sweep_dead(instant, "")
        return deleted

    def _undone(self, state: LogState, timeline: Timeline) -> set[str]:
        """Names of instants that were taken back. Only the log knows of a deleted savepoint, perhaps in an older epoch.

        Nothing else is taken from the log as it is now: a restore unknown to ``state`` is still running.
        """
        undone = set(state.undone)
        if any(each.action == "savepoint" for each in timeline.completed):
            deleted = (e for e in self._log.entries() if isinstance(e, Commit) and e.operation == "SAVEPOINT_DELETE")
            undone.update(name for e in deleted for name in e.undone)
        return undone

    def _sweep_unnamed(self, shown: Collection[str], files: Mapping[str, list[str]]) -> int:
        """Delete files that the commits do not name, left by a failed task or a superseded round.

        Only commits that are ``shown`` count: an entry put into a removed epoch may be of another round.
        """
        deleted = 0
        for entry in self._log.entries():
            if isinstance(entry, Commit) and entry.instant in files and entry.shown in shown:
                named = {path for stat in metadata_of(self._store, entry).stats for path in stat.paths}
                for path in files[entry.instant]:
                    if path not in named:
                        deleted += delete_data_file(self._store, path, instant=entry.instant)
        return deleted

    def wait_s(self, mine: Iterable[str], *, since: float, action: str = "") -> float:
        """Seconds until the last of the silent transactions could be found dead; 0 if there is none.

        Only those with that ``action``, if given. A writer with a sign of life after ``since`` (monotonic) is not
        waited for, or a living writer would keep its watcher for ever.
        """
        state = self._log.catch_up()
        others = [
            b.instant for b in state.open.values() if b.instant not in mine and not b.waits and action in ("", b.action)
        ]
        silent = {instant: self._watch.silent_for(instant) for instant in others}
        return max(
            (
                state.settings.heartbeat_timeout_s - seconds
                for instant, seconds in silent.items()
                if not self._watch.has_beaten(instant, since=since)
            ),
            default=0.0,
        )
