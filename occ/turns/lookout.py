"""Looks out for conflicts while a transaction works, so that work which cannot land ends at once.

    direct          a look before each data file, when its marker stands
    transactional   the same, with the table's lock held from before the marker until after the look
    async           a look with each heartbeat; a file only asks what the last one found

The marker stands before the look. Of two writers that announce one file group at the same time, the second to announce
therefore sees the first; the other way round both might look and see nothing. Spark's tasks announce by themselves: the
driver looks for them, at their markers.

Two things end a transaction early, before its commit would:

- what has *landed* since its begin, if the commit check would say the same of it. That cannot be a false alarm;
- one that is *open*, goes first and is at work on the same file groups, if what ours does there could not be merged again.

What cannot be read, or the lock that cannot be had, ends nothing: the commit check decides what lands.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from ...errors import CommitError, LakeLatchError, LockError
from ...hudi.files import BaseFile, BaseName, FileGroupId, LogFile, base_file_name, join
from ..entries import ASYNC, OFF, TRANSACTIONAL
from ..liveness import Io, announce_all, list_markers
from ..session import Saved, beaten_early, ended_by_others, lost_early
from ..staging import token
from .rivals import Rival, before, is_alive, overlap_of, rivals, strangers
from .turn_taker import TurnTaker

_STRANGERS_EVERY_S = 1.0
_log = logging.getLogger("lakelatch.waiting")


class Lookout:
    """Looks for one attempt. Safe to share between the threads that write, the heartbeat's, and one that watches a job.

    Costs no request while the setting is ``off``, or once its transaction is at its commit (`close`).
    """

    def __init__(self, txn: TurnTaker) -> None:
        self._txn, self._session = txn, txn.session
        self._mutex = threading.Lock()
        self._opened: set[FileGroupId] = set()
        self._aimed: frozenset[FileGroupId] = frozenset()
        self._announced: frozenset[FileGroupId] = frozenset()
        self._merges = self._by_tasks = self._closed = False
        self._error: CommitError | None = None
        self._began = self._session.env.monotonic()
        self._strangers_at: float | None = None
        self._seen_strangers: list[Rival] = []

    @property
    def mode(self) -> str:
        """The table's setting, ``off`` where there is nothing to look for."""
        settings = self._session.settings
        idle = self._closed or self._txn.has_lock or bool(settings.streams)  # those do not conflict by file groups
        return OFF if idle else settings.early_conflict_detection

    @property
    def merges(self) -> bool:
        """Whether what ours writes can be merged again, so that no open transaction is a reason to end it."""
        return self._session.settings.rebase and (self._merges or self._txn.merges)

    def begin(self, *, merges: bool) -> None:
        """A write begins; ``merges``: it can be done again on what others make of its file groups."""
        self._began = self._session.env.monotonic()
        self._merges |= merges
        if self.mode == ASYNC:
            self._session.rounds.setdefault(self._txn.instant, self.look)

    def aim(self, groups: frozenset[FileGroupId]) -> None:
        """These file groups are about to be written; under ``transactional`` others see that from now on."""
        self._aimed |= groups
        if self.mode != TRANSACTIONAL:
            return
        # Under the name that the first task would give it. A marker without a file goes at the commit.
        names = {group: base_file_name(BaseName(group.file_id, token(0), self._txn.instant)) for group in groups}
        files: list[tuple[str, Io]] = [(join(group.partition, names[group]), "MERGE") for group in sorted(groups)]
        markers = announce_all(self._session.store, self._txn.instant, files, desk=self._session.desk)
        if (record := self._session.records.get(self._txn.instant)) is not None:
            record.markers += markers
        self._announced |= groups

    def targets_wanted(self) -> bool:
        """Whether it is worth finding out at the beginning which file groups a write is about to change."""
        return self.mode == TRANSACTIONAL or bool(before(self._txn)) or bool(self._strangers())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The table's lock is held inside, under ``transactional`` and if it can be had."""
        try:
            lease = self._session.lease("early conflict detection") if self.mode == TRANSACTIONAL else None
        except LockError as e:
            _log.warning("%s: %s looks without the lock: %s", self._txn.url, self._txn.instant, e)
            lease = None
        try:
            yield
        finally:
            if lease is not None:
                lease.release()  # one that was lost meanwhile is no error: nothing lands under it

    @contextmanager
    def announcing(self, group: FileGroupId) -> Iterator[None]:
        """Around the marker of a data file; raises afterwards if its transaction must end.

        Raises:
            ConflictError: another one has landed or goes first, and both cannot stand.
            RolledBackError: somebody has ended the transaction.
        """
        if self.mode == OFF:
            yield
            return
        known = self.merges or group in self._announced
        with nullcontext() if known else self.locked():
            yield
            with self._mutex:
                self._opened.add(group)
            if self.mode == ASYNC:
                self._session.rounds.setdefault(self._txn.instant, self.look)
            else:
                self.look()
        self.refuse_if_beaten()

    def look_for_tasks(self) -> None:
        """A look from beside a job whose tasks write the files; raises as `announcing`."""
        self._by_tasks = True
        if self.mode == ASYNC:
            self._session.rounds.setdefault(self._txn.instant, self.look)
        elif self.mode != OFF:
            self.look()
        self.refuse_if_beaten()

    def refuse_if_beaten(self) -> None:
        """Raise what the looks so far have found; at its commit no more."""
        if self._error is not None and not self._closed:
            raise self._error

    def look(self) -> None:
        """Look once. What is found stays, and is raised by the thread that works."""
        with self._mutex:
            if self._error is not None or self.mode == OFF:
                return
            try:
                self._error = self._ended() or self._lost_already() or self._beaten()
            except LakeLatchError as e:
                _log.warning(
                    "%s: who else is at work is not known, so %s goes on: %s", self._txn.url, self._txn.instant, e
                )

    def close(self) -> None:
        """From here the commit check decides."""
        self._closed = True

    def _ended(self) -> CommitError | None:
        ended = self._txn.instant not in self._session.log.catch_up().open
        return ended_by_others(self._txn) if ended and not self._closed else None

    def _lost_already(self) -> CommitError | None:
        # What ours only aims at it may leave alone in the end. If it could be merged again, that is no reason to end it.
        mine = frozenset(self._opened) if self.merges else self._mine()
        conflict = self._txn.lost_already(mine, merges=self.merges)
        if conflict is None:
            return None
        self._txn.lost_on = conflict.overlap
        return lost_early(self._txn, conflict, self._saved())

    def _beaten(self) -> CommitError | None:
        if self.merges:
            return None
        found = [*rivals(self._txn, older_only=True), *self._strangers()]
        mine = self._mine() if found else frozenset()
        for rival in found:
            overlap = overlap_of(rival, mine, bucketed=self._session.settings.bucket_count is not None)
            if overlap and is_alive(self._session, rival, self._txn.instant):
                self._txn.lost_on = overlap
                return beaten_early(self._txn, rival, overlap, self._saved())
        return None

    def _strangers(self) -> list[Rival]:
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
        """What is left of the work, in bytes of file slices, and how long it would take at the pace so far."""
        begun = self._opened | (self._of_tasks() if self._by_tasks else frozenset())
        left = self._txn.size_of(self._aimed - begun)
        done, spent_s = self._txn.size_of(begun), self._session.env.monotonic() - self._began
        pace = done / spent_s if done and spent_s > 0 else self._session.merged_bytes_s
        return Saved(left / pace, left, spent_s)


class Watchful(TurnTaker, Protocol):
    """A transaction with a lookout, another one after it has begun anew."""

    @property
    def lookout(self) -> Lookout: ...
