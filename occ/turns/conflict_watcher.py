"""Detect conflicts while a transaction works, so that work that cannot commit ends at once: check before each data file.

The marker comes before the check. Of two writers that announce one file group at the same time, the second to announce
therefore sees the first; in the other order both might check and see nothing. Spark's tasks announce by themselves: the
driver checks for them, by their markers.

Two things end a transaction early, before its commit would:

- a *commit* since its begin, if the commit check would refuse for the same reason. That cannot be a false alarm;
- an *open* transaction of higher rank at work on the same file groups, if our work there could not be merged again.

An unreadable object or an unavailable lock ends nothing: the commit check decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ...errors import CommitError, LakeLatchError
from ...hudi.files import BaseFile, FileGroupId, LogFile
from ..entries import OFF
from ..liveness import list_markers
from ..session import Saved, beaten_early, ended_by_others, lost_early
from .rivals import Rival, TurnTaker, before, is_alive, overlap_of, rivals, strangers

_STRANGERS_EVERY_S = 1.0
_log = logging.getLogger("lakelatch.waiting")


class ConflictWatcher:
    """The conflict watch of one attempt. Safe to share between threads: writers, a job's watcher.

    Costs no request while the setting is ``off``, or once its transaction is at its commit (`close`).
    """

    def __init__(self, txn: TurnTaker) -> None:
        self._txn, self._session = txn, txn.session
        self._mutex = threading.Lock()
        self._opened: set[FileGroupId] = set()
        self._aimed: frozenset[FileGroupId] = frozenset()
        self._merges = self._by_tasks = self._closed = False
        self._error: CommitError | None = None
        self._began = self._session.env.monotonic()
        self._strangers_at: float | None = None
        self._seen_strangers: list[Rival] = []

    @property
    def idle(self) -> bool:
        """True if there is nothing to check."""
        settings = self._session.settings
        # stream events do not conflict by file groups
        over = self._closed or self._txn.has_lock or bool(settings.streams)
        return over or settings.early_conflict_detection == OFF

    @property
    def merges(self) -> bool:
        """True if our writes can be merged again, so that no open transaction is a reason to end."""
        return self._session.settings.rebase and (self._merges or self._txn.merges)

    def begin(self, *, merges: bool) -> None:
        """Begin a write; ``merges``: it can be done again on others' changes of its file groups."""
        self._began = self._session.env.monotonic()
        self._merges |= merges

    def aim(self, groups: frozenset[FileGroupId]) -> None:
        """Declare the file groups about to be written."""
        self._aimed |= groups

    def targets_wanted(self) -> bool:
        """Return whether finding the target file groups in advance is worth it."""
        return bool(before(self._txn)) or bool(self._foreign())

    @contextmanager
    def announcing(self, group: FileGroupId) -> Iterator[None]:
        """Context of putting a data file's marker; raises afterwards if its transaction must end.

        Raises:
            ConflictError: another writer has committed or goes first, and both cannot stand.
            RolledBackError: another process has ended the transaction.
        """
        if self.idle:
            yield
            return
        yield
        with self._mutex:
            self._opened.add(group)
        self.look()
        self.refuse_if_beaten()

    def look_for_tasks(self) -> None:
        """Check on behalf of a job whose tasks write the files; raises like `announcing`."""
        self._by_tasks = True
        self.look()
        self.refuse_if_beaten()

    def refuse_if_beaten(self) -> None:
        """Raise the error found by the checks so far; not after `close`."""
        if self._error is not None and not self._closed:
            raise self._error

    def look(self) -> None:
        """Check once. The error found is kept, and raised by the working thread."""
        with self._mutex:
            if self._error is not None or self.idle:
                return
            try:
                # The certain reasons first: a rollback and a commit are facts, an open rival may still abort.
                self._error = self._ended() or self._lost_already() or self._beaten()
            except LakeLatchError as e:
                _log.warning(
                    "%s: who else is at work is not known, so %s goes on: %s", self._txn.url, self._txn.instant, e
                )

    def close(self) -> None:
        """Stop; from here the commit check decides."""
        self._closed = True

    def _ended(self) -> CommitError | None:
        ended = self._txn.instant not in self._session.log.catch_up().open
        return ended_by_others(self._txn) if ended and not self._closed else None

    def _lost_already(self) -> CommitError | None:
        # Groups that are only aimed at may stay unwritten in the end. If ours can be merged again, they are no reason
        # to end it.
        mine = frozenset(self._opened) if self.merges else self._mine()
        conflict = self._txn.lost_already(mine, merges=self.merges)
        if conflict is None:
            return None
        self._txn.lost_on = conflict.overlap
        return lost_early(self._txn, conflict, self._saved())

    def _beaten(self) -> CommitError | None:
        if self.merges:
            return None
        found = [*rivals(self._txn, older_only=True), *self._foreign()]
        mine = self._mine() if found else frozenset()
        for rival in found:
            overlap = overlap_of(rival, mine, bucketed=self._session.settings.bucket_count is not None)
            if overlap and is_alive(self._session, rival, self._txn.instant):
                self._txn.lost_on = overlap
                return beaten_early(self._txn, rival, overlap, self._saved())
        return None

    def _foreign(self) -> list[Rival]:
        now = self._session.env.monotonic()
        if self._strangers_at is None or now - self._strangers_at >= _STRANGERS_EVERY_S:
            self._strangers_at, self._seen_strangers = now, strangers(self._session, self._txn.instant)
        return self._seen_strangers

    def _mine(self) -> frozenset[FileGroupId]:
        mine = self._aimed | self._opened
        return mine | self._of_tasks() if self._by_tasks else mine

    def _of_tasks(self) -> frozenset[FileGroupId]:
        paths = [marker.path for marker in list_markers(self._session.store, self._txn.instant)]
        files = [BaseFile.at(path, 0) or LogFile.at(path, 0) for path in paths]
        return frozenset(file.group for file in files if file is not None)

    def _saved(self) -> Saved:
        """The work left, in bytes of file slices, and its seconds at the pace so far."""
        begun = self._opened | (self._of_tasks() if self._by_tasks else frozenset())
        left = self._txn.size_of(self._aimed - begun)
        done, spent_s = self._txn.size_of(begun), self._session.env.monotonic() - self._began
        pace = done / spent_s if done and spent_s > 0 else self._session.merged_bytes_s
        return Saved(left / pace, left, spent_s)


class Watchful(TurnTaker, Protocol):
    """A transaction with a watcher; after it begins again the watcher is another one."""

    @property
    def watcher(self) -> ConflictWatcher: ...
