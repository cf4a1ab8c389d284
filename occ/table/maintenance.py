"""What people ask of a table besides reading and writing rows: table services, savepoints, restore, readers' leases."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, cast

from ...errors import InputError, UnsupportedTableError
from ...hudi.timeline import Time
from ..liveness import Leases, PinnedView, reading
from ..services import (
    RETAIN_COMMITS,
    SMALL_BYTES,
    TARGET_BYTES,
    Archival,
    Executed,
    Find,
    Keep,
    Restored,
    Retention,
    Savepoint,
    Sizes,
    archive,
    cancel,
    clustering,
    compaction,
    delete_savepoint,
    execute,
    finish_decided,
    perform,
    remove_undone,
    restore,
    savepoint,
    schedule,
)
from ..services import clean as cleaning
from ..session import known_partition, several

if TYPE_CHECKING:
    from ..log import Begin, LogState
    from .table import Table


class Maintenance:
    """The part of a `Table` that keeps it in order. Everything here runs while writers and readers work."""

    leases: Leases

    def _ours(self) -> Table:
        table = cast("Table", self)
        table._require_open()
        table._require_log()
        return table

    def _known(self, partitions: Iterable[str] | None) -> list[str] | None:
        table, wanted = self._ours(), several(partitions)
        if not wanted:
            return wanted
        snapshot = table.snapshot()
        return [known_partition(table.store, table.config, snapshot, each) for each in wanted]

    # --- cleaning --------------------------------------------------------------------------------------------

    def plan_clean(
        self, *, retain_commits: int | None = None, retain_hours: float | None = None, wait: bool = False
    ) -> str | None:
        """Decide which superseded file slices go; anybody may `execute` it then. Returns T, None when none may go.

        Args:
            retain_commits: the states of so many newest commits stay readable; 10 when neither is given, as in Hudi.
            retain_hours: those of the last hours stay; with both, whatever either of them keeps.
            wait: watch readers' leases for the table's time-out, so that those of readers who died keep nothing.
        """
        table = self._ours()
        commits = RETAIN_COMMITS if retain_commits is None and retain_hours is None else retain_commits
        retention = Retention(commits, retain_hours)
        table._refuse_if_unwritable(rows=False)
        finish_decided(table)
        if wait:
            _watch_readers(table)
        timeout_s = table.settings.heartbeat_timeout_s

        def find(state: LogState) -> dict[str, object] | None:
            return cleaning.find(table, state, retention, table.leases.alive(timeout_s=timeout_s))

        begin = schedule(table, "clean", find)
        return begin.instant if begin else None

    def clean(
        self, *, retain_commits: int | None = None, retain_hours: float | None = None, wait: bool = False
    ) -> Executed | None:
        """Delete superseded file slices, and files of replaced file groups; None when none may go.

        Never one that an open transaction, a reader's lease or a savepoint needs. Arguments as of `plan_clean`.
        """
        planned = self.plan_clean(retain_commits=retain_commits, retain_hours=retain_hours, wait=wait)
        remove_undone(table := self._ours(), table.leases)
        return execute(table, planned) if planned else None

    # --- archival --------------------------------------------------------------------------------------------

    def plan_archive(self, *, keep_min: int | None = None, keep_max: int | None = None) -> str | None:
        """Decide which old instants leave the active timeline; anybody may `execute` it then. Returns T, or None.

        Args:
            keep_min: so many newest commits stay at least; 20 when neither is given, as in Hudi.
            keep_max: with so many commits or fewer nothing is done; ``keep_min`` and 10 more, as in Hudi.
        """
        keep = Keep.asked(keep_min, keep_max)
        return self._plan_archive(keep.least)[0] if self._has_old(keep) else None

    def _has_old(self, keep: Keep) -> bool:
        table = self._ours()
        table._refuse_if_unwritable()
        if table.config.raw.get("hoodie.timeline.history.path", "history") != "history":
            raise UnsupportedTableError(
                f"{table.url} has its archived timeline in a folder of another name than history; archive it with Hudi",
                table=table.url,
            )
        table.rollback_failed_writes()
        return len(table.timeline().commits) > keep.most

    def _plan_archive(self, least: int) -> tuple[str | None, str]:
        table, why = self._ours(), ""
        finish_decided(table)

        def find(state: LogState) -> dict[str, object] | None:
            nonlocal why
            leases = table.leases.alive(timeout_s=table.settings.heartbeat_timeout_s)
            content, why = archive.find(table, state, least, leases)
            return content

        begin = schedule(table, "archive", find)
        return begin.instant if begin else None, why

    def archive(self, *, keep_min: int | None = None, keep_max: int | None = None) -> Archival:
        """Move old instants from the active timeline into the history, where Hudi's readers look for them.

        Never one that an open transaction, a reader's lease, a savepoint or a cleaning that has not run needs; the answer
        says what was in the way. Arguments as of `plan_archive`.
        """
        keep, table = Keep.asked(keep_min, keep_max), self._ours()
        number, why = 0, f"there are no more than {keep.most} commits"
        planned, why = self._plan_archive(keep.least) if self._has_old(keep) else (None, why)
        while planned:
            with suppress(InputError):  # somebody else was quicker
                number += execute(table, planned).files
            planned, why = self._plan_archive(keep.least)
        return Archival(number, table.timeline().first_active, why)

    # --- clustering ------------------------------------------------------------------------------------------

    def plan_clustering(
        self,
        *,
        small_bytes: int = SMALL_BYTES,
        target_bytes: int = TARGET_BYTES,
        partitions: Iterable[str] | None = None,
    ) -> str | None:
        """Decide which small files are joined; anybody may `execute` it then. Returns T, None when there are too few."""
        table, find = self._clustering(small_bytes, target_bytes, partitions)
        begin = schedule(table, "cluster", find)
        return begin.instant if begin else None

    def _clustering(self, small_bytes: int, target_bytes: int, partitions: Iterable[str] | None) -> tuple[Table, Find]:
        table = self._ours()
        table._refuse_if_unwritable()
        sizes, wanted = Sizes(small_bytes, target_bytes), self._known(partitions)
        return table, lambda state: clustering.find(table, state, sizes, wanted)

    def cluster(
        self,
        *,
        small_bytes: int = SMALL_BYTES,
        target_bytes: int = TARGET_BYTES,
        partitions: Iterable[str] | None = None,
    ) -> Executed | None:
        """Join the small files of each partition, in this process; None when there are too few."""
        table, find = self._clustering(small_bytes, target_bytes, partitions)
        return perform(table, "cluster", find)

    # --- compaction ------------------------------------------------------------------------------------------

    def plan_compaction(self, *, partitions: Iterable[str] | None = None) -> str | None:
        """Decide which log files are merged into base files; anybody may `execute` it then. Returns T, None when there are none.

        Raises:
            UnsupportedTableError: how to merge them is not known here, or the rows cannot be written here.
        """
        table, find = self._compaction(partitions)
        begin = schedule(table, "compact", find)
        return begin.instant if begin else None

    def _compaction(self, partitions: Iterable[str] | None) -> tuple[Table, Find]:
        table = self._ours()
        table._refuse_if_unwritable(rows=False)
        wanted = self._known(partitions)
        return table, lambda state: compaction.find(table, state, wanted)

    def compact(self, *, partitions: Iterable[str] | None = None) -> Executed | None:
        """Merge the log files of a merge-on-read table into base files, in this process; None when there are none."""
        table, find = self._compaction(partitions)
        return perform(table, "compact", find)

    # --- plans -----------------------------------------------------------------------------------------------

    def plans(self) -> list[Begin]:
        """Plans that nobody has finished, oldest first."""
        table = self._ours()
        return [begin for begin in list(table.log.catch_up().open.values()) if begin.plan is not None]

    def execute(self, instant: str) -> Executed:
        """Execute a pending plan, whoever made it. Several may at once: one lands, and all are told which.

        Raises:
            InputError: there is no such plan.
            ConflictError: a commit since the plan is in its way, so that it can never land; it has been cancelled.
        """
        table = self._ours()
        return execute(table, instant)

    def cancel_plan(self, instant: str, *, reason: str = "asked to") -> bool:
        """End a pending plan; False when it has landed or ended meanwhile."""
        table = self._ours()
        return cancel(table, instant, reason=reason)

    # --- savepoints ------------------------------------------------------------------------------------------

    def savepoint(self, instant: Time | None = None, *, comment: str = "") -> Savepoint:
        """The state of a commit (T; the newest one otherwise) stays readable until the savepoint is deleted.

        Raises:
            InputError: no such commit, it has a savepoint already, or files of its state have been cleaned away.
        """
        table = self._ours()
        table._refuse_if_unwritable()
        return savepoint(table, None if instant is None else table.time_of(instant, "instant"), comment)

    def savepoints(self) -> list[Savepoint]:
        """All savepoints, in order of their commits."""
        table = cast("Table", self)
        return cleaning.savepoints(table.store, table.timeline())

    def delete_savepoint(self, instant: Time) -> None:
        """Cleanings no longer keep that state. `InputError` when there is no such savepoint."""
        table = self._ours()
        delete_savepoint(table, table.time_of(instant, "instant"))

    def restore(self, instant: Time) -> Restored:
        """The table has the state of that commit (T) again; every later commit is taken back for good.

        Writers that are open meanwhile lose, and what they run again sees the restored table. Readers of other engines
        that have begun may miss files; readers with a lease do not.

        Raises:
            InputError: no such commit, its state is not whole any more, or a later one has a savepoint.
        """
        table = self._ours()
        table._refuse_if_unwritable()
        return restore(table, table.time_of(instant, "instant"), table.leases)

    # --- readers ---------------------------------------------------------------------------------------------

    def pinned(self, *, as_of_completion: Time | None = None) -> AbstractContextManager[PinnedView]:
        """A state of the table whose files stay while the block lasts: that of now, or of a past completion time.

        A time after the newest commit is now.

        Raises:
            StorageError: the lease could not be written; who may not write is covered by retention only.
            InputError: that past state has been cleaned, or it is no time.
            LockLostError: at the end of the block, when the lease has ended meanwhile; read again.
        """
        table = self._ours()
        past = None if as_of_completion is None else table.time_of(as_of_completion, "as_of_completion")
        return reading(table, as_of_completion=past)


def _watch_readers(table: Table) -> None:
    since, timeout_s = table.env.monotonic(), table.settings.heartbeat_timeout_s
    while True:
        alive = table.leases.alive(timeout_s=timeout_s)
        remaining = table.leases.wait_s(alive, since=since, timeout_s=timeout_s)
        if remaining <= 0:
            return
        table.env.sleep(min(remaining, max(table.settings.heartbeat_interval_s / 2, 0.05)))
