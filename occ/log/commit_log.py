"""The commit log on the store, the source of truth. Append at the first free slot, after reading every earlier one.

    t=0  A and B have read slots 0..6 and want slot 7
    t=1  A's put-if-absent of slot 7 is done
    t=2  B's is lost; B reads slot 7, sees A's entry, checks again against it, and tries slot 8

A missing reply is not an answer. The put may still arrive, so a writer in doubt repeats the same bytes at the same slot
until the store says what stands there. Single entries are never deleted, because a zombie's put would succeed on an
emptied slot. Every read to the head and every put checks for a newer epoch: if the log was replaced while a writer
slept, what it reads in the old epoch does not count, and an entry it puts there is read by nobody (`python -m
tests.model --traces` prints the schedules).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ...environment import Environment
from ...errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LakeLatchError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from ...hudi.timeline import COMMIT_ACTIONS, CommitMetadata, Instant
from ...storage import Durable, Outcome, Put, Store, is_far, secured
from ..entries import (
    Batches,
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    Import,
    Landed,
    LogEntry,
    Open,
    Settings,
    Single,
    at_slot,
    decode,
    encode,
    singly,
)
from .epochs import (
    commits_since,
    epochs,
    first_slot,
    landed_at,
    outcome_of,
    read_all,
    read_epoch,
    refuse_obstacle,
    slot_names,
    slot_path,
)
from .foreign_commits import ForeignCommits
from .imports import completed_name, imported, refuse_planned_rollback, refuse_skipped
from .publisher import Publisher, files_only, metadata_of
from .read_ahead import ReadAhead
from .state import LogState
from .undecided import refuse_undecided
from .unknown_outcome import OutcomeGuard

EPOCH_SLOTS = 1000  # the most entries that a cold reader reads
_RECENT, _RECENT_FILES = 256, 4096  # commits, and files that they name
_KNOWN, _KNOWN_BYTES = 1024, 8 << 20  # entries that are told to others, and their bytes
_PATIENCE_S = 60.0
_LOOKS_MAX = 5  # for completed instants that vanish between listing and reading
_SEEN_S = 1.0  # the longest that a warm reader may miss commits that other engines made past the log
_log = logging.getLogger("lakelatch.log")


class _ReplacedError(Exception):
    """The log was replaced while we slept; entries read from the old epoch may be a zombie's."""


class Follower:
    """The list of commits since a transaction began, extended as they are read."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.complete = True  # False: the log was replaced meanwhile, and its commits are not known


class Recent:
    """The newest commits that a coordinator's handle has read. Bounded, because each may name many files."""

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque()
        self._files, self._from = 0, 0

    def begin_at(self, slot: int) -> None:
        """Forget everything; commits before this slot are unknown."""
        self._commits.clear()
        self._files, self._from = 0, slot

    def add(self, commit: Commit) -> None:
        """Add the next commit."""
        self._commits.append(commit)
        self._files += _size(commit)
        while len(self._commits) > _RECENT or (self._files > _RECENT_FILES and self._commits):
            gone = self._commits.popleft()
            self._files -= _size(gone)
            self._from = gone.slot + 1

    def since(self, slot: int) -> list[Commit] | None:
        """The commits from that slot on; None if some of them are forgotten."""
        return [each for each in self._commits if each.slot >= slot] if slot >= self._from else None


class RecentFiles:
    """The files of the newest commits that a handle has read, by T, as far as their entries name them. Bounded."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, dict[str, Any]]] = {}
        self._files = 0

    def add(self, commit: Commit) -> None:
        """Add the next commit."""
        if commit.metadata is None or "held" in commit.metadata:
            return
        self._kept[commit.instant] = commit.completion, files_only(commit.metadata)
        self._files += _size(commit)
        while self._files > _RECENT_FILES:
            _, gone = self._kept.pop(next(iter(self._kept)))
            self._files -= 1 + len(gone["stats"])

    def of(self, instant: str, completion: str) -> dict[str, Any] | None:
        """Return the files of the commit with that T and C; None if they are not known."""
        found = self._kept.get(instant)
        return found[1] if found is not None and found[0] == completion else None


def _size(commit: Commit) -> int:
    return 1 + len((commit.metadata or {}).get("stats", ()))


class KnownEntries:
    """The newest entries of the log as bytes, for writers that read it through another handle's memory. Bounded.

    Safe to share between threads; nobody who asks waits for a request of the handle. Nobody is told of an entry that may not
    count, whoever has put it:

        t=0  coordinators P and Q are suspended; their epoch is closed, and its folder removed
        t=1  P puts commits(A) into a slot that is empty now, and Q reads it before it looks for a newer epoch (trap 18)
        t=2  A asks Q, and must not hear that it has landed
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._certain = (0, 0)  # epoch and slot of the first that may not count
        self._doubtful = list[tuple[LogEntry, int]]()  # own entries until they are confirmed, with their epochs
        self._entries: deque[tuple[tuple[int, int], str, bytes]] = deque()
        self._bytes = 0

    def add(self, epoch: int, slot: int, path: str, body: bytes) -> None:
        """Add the next entry."""
        with self._mutex:
            self._entries.append(((epoch, slot), path, body))
            self._bytes += len(body)
            while len(self._entries) > _KNOWN or self._bytes > _KNOWN_BYTES:
                self._bytes -= len(self._entries.popleft()[2])

    def since(self, slot: int) -> tuple[tuple[str, bytes], ...]:
        """Path and bytes of the entries from that slot on, for `CommitLog.take`; none if some of them are forgotten."""
        with self._mutex:
            found = list(takewhile(lambda each: each[0][1] >= slot, reversed(self._entries)))
            end = self._certain
        if not found or found[-1][0][1] != slot:
            return ()
        return tuple((path, body) for at, path, body in reversed(found) if at < end)

    def certify(self, epoch: int, slot: int) -> None:
        """Note that all before that slot count: after they were read or put, the epoch was seen to be the newest."""
        with self._mutex:
            self._certain = max(self._certain, (epoch, slot))

    def doubt(self, entry: LogEntry, epoch: int) -> None:
        """Note that an own entry has been put there, which may not count."""
        with self._mutex:
            self._doubtful.append((entry, epoch))

    def epoch_of(self, entry: LogEntry) -> int | None:
        """Forget the doubt about an own entry and return the epoch that it was put into; None if there was none."""
        with self._mutex:
            found = next((each for each in self._doubtful if each[0] is entry), None)
            if found is not None:
                self._doubtful.remove(found)
            return None if found is None else found[1]

    def forget(self) -> None:
        """Forget all entries: the log was replaced, and what was read may be a zombie's."""
        with self._mutex:
            self._entries.clear()
            self._bytes = 0


class HandedEntries:
    """Entries that another process has read, in place of reads of the store (`ReadAhead`)."""

    def __init__(self, entries: Iterable[tuple[str, bytes]]) -> None:
        self._bodies = dict(entries)

    def body(self, epoch: int, slot: int) -> bytes | None:
        """Return the bytes of an entry; None if nothing was told of it."""
        return self._bodies.get(slot_path(epoch, slot))


class CommitLog:
    """One reader and appender of a table's log. Safe to share between threads; not to be used after fork.

    Args:
        timeline: publishes commits. Every append first publishes the newest commit, so all older ones are there
            already. A new handle checks the whole epoch once, because a power cut may have removed names that were not
            flushed.
        epoch_slots: the number of entries after which an epoch is closed.

    Attributes:
        recent: the newest commits that were read; ``recent_files`` their files.
        known: the newest entries, if the handle is that of a coordinator (`remember`).
        epoch: the newest one; ``first_slot`` is its first slot, ``next_slot`` the first free one.
        restore: the newest restore that was read.
        closed: the newest epoch that this handle closed itself; -1 if none.
    """

    def __init__(self, store: Store, env: Environment, timeline: Publisher, *, epoch_slots: int = EPOCH_SLOTS) -> None:
        self._store, self._env, self._timeline, self._epoch_slots = store, env, timeline, epoch_slots
        self._mutex = threading.RLock()
        self._followers: list[Follower] = []
        self.recent, self.recent_files = Recent(), RecentFiles()
        self.known: KnownEntries | None = None
        self._published = -1
        self._unverified: list[Commit] | None = []
        self._foreign = ForeignCommits(self, env, timeline.since)
        self._doubt = OutcomeGuard(store.url)
        self._far = is_far(store.url)
        self._met: tuple[str, bytes] | None = None  # the entry that took the slot we tried
        self._appended = -1  # the slot of our last entry
        self._alone = False  # our last entry directly followed one that we had read or put
        self.state = LogState()
        self.epoch = self.next_slot = self.first_slot = 0
        self.closed = -1
        self.restore: Commit | None = None

    # --- reading ---------------------------------------------------------------------------------------------

    def catch_up(self) -> LogState:
        """Read to the head and return the state there. Raise `TableNotFoundError` if there is no log."""
        return self._read_on(surely=True)

    def glance(self) -> LogState:
        """Return the state at a free slot, the head unless the log was replaced. For callers that decide nothing by it."""
        return self._read_on(surely=False)

    def take(self, told: Iterable[tuple[str, bytes]]) -> LogState:
        """Read on by entries that another process has read, and return the state behind them. For callers of `glance`.

        Those of another epoch, and those that this handle has read, change nothing.
        """
        with self._mutex:
            return self._read_on(surely=False, read=HandedEntries(told)) if self.epoch else self.state

    def remember(self) -> KnownEntries:
        """Keep the newest commits and entries from here on: those of others are judged, and entries told to them."""
        with self._mutex:
            self.known = self.known or KnownEntries()
            return self.known

    def _read_on(self, *, surely: bool, read: ReadAhead | HandedEntries | None = None) -> LogState:
        """Read to a free slot; with ``surely``, make certain that it is the head and that the log was not replaced."""
        with self._mutex:
            if not self.epoch:
                self._start_at_newest_epoch()
            read = read or self._reader()
            while True:
                path = slot_path(self.epoch, self.next_slot)
                body = read.body(self.epoch, self.next_slot)
                if (
                    body is None
                    and isinstance(read, HandedEntries)
                    and (self.state.closed or self.next_slot == self.first_slot)
                ):
                    read = ReadAhead(
                        self._store, self._env
                    )  # how the next epoch begins is looked up, if it was not told
                    continue
                if body is not None:
                    entry = decode(body, path)
                    if self.next_slot == self.first_slot and not isinstance(entry, Open):
                        if self._newest_epoch() > self.epoch or first_slot(self._store, self.epoch) < self.next_slot:
                            self._start_at_newest_epoch()  # our epoch is being removed; or a zombie's close led us here
                            continue
                        raise CorruptTableError(
                            f"{self._store.url}: the commit log begins in the middle, with {path}; entries before it were "
                            "deleted. `lakelatch adopt URL LOCK` rebuilds it when no writer is active",
                            table=self._store.url,
                        )
                    if self.state.closed and body != self._opening():
                        # `adopt` has replaced the log; or some of what we read was a zombie's
                        self._start_at_newest_epoch()
                        continue
                    self._apply(entry, path, body)
                    continue
                if not (surely or self.state.closed or self.next_slot == self.first_slot):
                    return self.state
                # A free slot is the head only in the newest epoch, and after a close only while the next one has not
                # begun. Elsewhere the log was replaced while we slept, and entries read there may be a zombie's:
                # neither publish nor decide by them.
                if epochs(self._store, since=self.epoch if self.state.closed else self.epoch + 1):
                    if self._store.body(path) is None:
                        self._start_at_newest_epoch()
                elif not (self.state.closed and self._open_epoch(path)):
                    return self._certified()

    def _certified(self) -> LogState:
        if self.known is not None:
            self.known.certify(self.epoch, self.next_slot)
        return self.state

    def _reader(self) -> ReadAhead:
        met, self._met = self._met, None
        return ReadAhead(self._store, self._env, met)

    def _opening(self) -> bytes:
        return encode(self.state.carried(self.next_slot), self.epoch, self.next_slot, "")

    def _open_epoch(self, path: str) -> bool:
        """Put the first entry of the epoch after a closed one; return False if this reader may not write."""
        try:
            self.state.settings.refuse_older_versions(self._store.url)
            self._insist(path, self._opening())
        # any other opener puts the same bytes
        except (StorageError, UnsupportedTableError, CommitStateUnknownError) as e:
            _log.debug("epoch %d stays unopened: %s", self.epoch, e)
            return False
        return True

    def _start_at_newest_epoch(self) -> None:
        newest, slots, gone = self._newest_epoch(), list[str](), 0
        while newest != gone and not (slots := slot_names(self._store, newest)):
            gone, newest = newest, self._newest_epoch()  # if it was removed while we slept, there is a newer one
        if not slots:
            refuse_obstacle(self._store)
            raise TableNotFoundError(
                f"{self._store.url} has no commit log; it is read-only until `lakelatch adopt URL LOCK`",
                table=self._store.url,
            )
        self._refuse_hole(newest, [int(name) for name in slots])
        for follower in self._followers:
            follower.complete = False
        # Keep the known settings: threads that share the handle read them without the mutex.
        self.state, self._published, self._unverified = LogState(settings=self.state.settings), -1, []
        self.epoch, self.next_slot = newest, int(slots[0])
        self.first_slot = self.next_slot
        self.recent.begin_at(self.first_slot)
        self._appended = -1
        if self.known is not None:
            self.known.forget()

    def _refuse_hole(self, epoch: int, slots: list[int]) -> None:
        """Raise `CorruptTableError` if reported entries stand behind a missing one.

            t=0  A's entry 7 is seen, and its flush fails; before A can rewrite it, B appends 8 and flushes it
            t=1  the power goes; the disk has 8 and not 7

        A writer that took 7 for the head would append there, and then read B's entry, decided on another history. Begin
        entries alone do no harm: nobody was told of them, their names need not be on disk, and their writers died with
        the power cut.
        """
        hole = next((slot for slot, there in enumerate(slots, slots[0]) if slot != there), None)
        if hole is None or self._store.body(slot_path(epoch, hole)) is not None or epochs(self._store, since=epoch + 1):
            return  # the entry arrived, or another epoch did, during the listing
        behind = (slot_path(epoch, slot) for slot in slots if slot > hole)
        if all(
            isinstance(decode(body, path), Begin | GroupBegin)
            for path in behind
            if (body := self._store.body(path)) is not None
        ):
            return
        raise CorruptTableError(
            f"{self._store.url}: the commit log lacks {slot_path(epoch, hole)} and has entries behind it, as a failing disk and "
            "a power cut leave it. Restore the entry, or rebuild the log with `lakelatch adopt URL LOCK` when no writer "
            "is active",
            path=slot_path(epoch, hole),
            table=self._store.url,
        )

    def _newest_epoch(self) -> int:
        # Never list older epochs, or every commit would pay for the table's age.
        return max(epochs(self._store, since=self.epoch + 1), default=self.epoch)

    def _apply(self, entry: LogEntry, path: str, body: bytes) -> None:
        if self.known is not None:
            self.known.add(self.epoch, entry.slot, path, body)
        if isinstance(entry, Open):
            self._foreign.epoch_begins(entry.top)
            if self._unverified is not None:  # its closer has published the previous epoch's commits and flushed them
                self._unverified = [each for each in self._unverified if each.undone]
        landed = list[Commit]()
        for each in singly(entry):
            self.state.apply(each)
            if isinstance(each, Commit) and self.state.last is each:
                landed.append(each)
        if landed:
            self._have_landed(landed)
        if isinstance(entry, Close):
            self.epoch, self.first_slot = self.epoch + 1, entry.slot + 1
        self.next_slot = entry.slot + 1

    def _have_landed(self, commits: list[Commit]) -> None:
        """Add the commits of one entry, all at once: other threads read the followers without the mutex, slot by slot."""
        for follower in self._followers:
            follower.commits.extend(commits)
        for commit in commits:
            if commit.restores:
                self.restore = commit
            self.recent_files.add(commit)
            if self.known is not None:
                self.recent.add(commit)
            else:
                self.recent.begin_at(commit.slot + 1)
            if self._unverified is not None:
                self._unverified.append(commit)
            elif commit.undone:
                # must be taken off the timeline; a late put, also ours, may have published one
                self._unverified = [commit]

    def follow(self, other: Follower) -> Follower:
        """Return a follower that starts with the commits of ``other`` and goes on collecting."""
        with self._mutex:
            follower = Follower()
            follower.commits.extend(other.commits)
            follower.complete = other.complete
            self._followers.append(follower)
            return follower

    def follow_head(self) -> Follower:
        """Return a follower of the commits behind the head as of now."""
        with self._mutex:
            self.catch_up()
            self._followers.append(follower := Follower())
            return follower

    def follow_since(self, slot: int) -> Follower:
        """Return a follower that starts with every commit from that slot on and goes on collecting."""
        with self._mutex:
            self.catch_up()
            follower = Follower()
            found = commits_since(self._store, slot)
            follower.complete = found is not None
            follower.commits.extend(c for c in found or () if c.slot < self.next_slot)
            self._followers.append(follower)
            return follower

    def unfollow(self, follower: Follower) -> None:
        """Stop collecting for a transaction that is over."""
        with self._mutex:
            if follower in self._followers:
                self._followers.remove(follower)

    # --- appending -------------------------------------------------------------------------------------------

    def append(
        self,
        build: Callable[[LogState], LogEntry | None],
        *,
        follower: Follower | None = None,
        look: bool | None = None,
        publishes: bool = True,
        confirms: bool = True,
        first: Callable[[Commit], object] | None = None,
        settles: bool = False,
    ) -> LogEntry | None:
        """Append the entry that ``build`` makes of the state at the head; return it with its slot.

        ``build`` runs again at every slot tried, so its checks and times are never older than the slot. It may raise,
        or return None to append nothing.

        Args:
            follower: starts to collect right after the entry.
            look: check the timeline for commits past the log. True: at every slot; None: now and then; False: not here,
                the caller has called `look`. If JVM writers share the table's lock, True is for its holder, the only
                one that may publish the commits that others left.
            publishes: False for an entry that is no commit, if the caller publishes the newest commit before it reads
                the table. Saves a request between two slots on a far store.
            confirms: False if the caller calls `confirm` with the entry, before anybody is told of it or relies on it. The
                next entry need not wait for that then.
            first: with neighbours, called with the entry of a commit of rows before it is appended: puts the completed
                instant, which makes it committed. From then on the entry is appended whatever slot it takes, and needs no
                decision. A service changes no row, so its instant follows its entry.
            settles: the entry is the outcome of a prepared commit, known from its home.

        With neighbours, ``look`` also imports the commits that the log does not know, before ``build`` is called.

        Raises:
            UndecidedError: a prepared commit has no outcome yet, and this entry must not go behind it or end it.
            CommitStateUnknownError: the store gave no answer for a minute, or none about the outcome of an entry in
                doubt. The entry may be in the log, or may still arrive.
        """
        with self._mutex, OutcomeGuard(self._store.url) as self._doubt:
            again, unread = False, first is None and self._may_be_at_head()
            while True:
                surely = again or not self._far or self._unverified is not None
                if not unread:
                    before = self.next_slot
                    self._read_on(surely=surely)
                    self._alone = self.next_slot == before
                try:
                    entry, again = (
                        self._propose(build, look=look, publishes=publishes, surely=surely, settles=settles),
                        False,
                    )
                except _ReplacedError:
                    again, unread = True, False
                    continue
                except Exception:
                    if not unread:
                        raise
                    unread = False  # commits since then may change the answer
                    continue
                if entry is None:
                    if not unread:
                        return None
                    unread = False
                    continue
                unread = False
                if first is not None and isinstance(entry, Commit) and entry.action in COMMIT_ACTIONS:
                    first(entry)
                    return self._append_decided(entry)
                put = self._put(entry, confirms=confirms)
                if put is None or isinstance(put, Import):
                    continue
                if follower is not None:
                    self._followers.append(follower)
                if look or not self.state.settings.timeline_first:  # else others may commit while the epoch is closed
                    self._close_if_full()
                return put

    def confirm(self, entry: LogEntry) -> bool:
        """Return whether an entry counts that a coordinator has appended without ``confirms``. Holds no mutex meanwhile.

            t=0  it puts begins(A, B) into slot 7, and commits(C) into slot 8
            t=1  it reads that its epoch is the newest, asked after the put into 7: so 7 counts, whatever becomes of 8

        What stands before an entry that counts does too. It is asked for the epoch of the put, because another thread may have
        gone on to a newer one meanwhile, where larger slots count. False also if that is not known: then the log on the store
        says what became of the entry's members.
        """
        assert self.known is not None
        epoch = self.known.epoch_of(entry)
        try:
            counts = epoch is not None and not epochs(self._store, since=epoch + 1)
        except StorageError:
            return False
        if epoch is not None and counts:
            self.known.certify(epoch, entry.slot + 1)
            return True
        with self._mutex:
            if self.epoch == epoch:
                self.epoch = 0
        return False

    def _put(self, entry: LogEntry, *, confirms: bool = True) -> LogEntry | None:
        """Put the entry at the free slot, and read it; None if another took the slot, or the log was replaced."""
        self._refuse_unopened(self.state)
        epoch, slot = self.epoch, self.next_slot
        path, body = slot_path(epoch, slot), encode(entry, epoch, slot, self._env.uuid())
        if not self._insist(path, body, entry):
            return None
        entry = at_slot(entry, slot)
        counts = False  # it, and those before it
        if not confirms and self.known is not None:
            self.known.doubt(entry, epoch)
        elif not (counts := not self._newest_epoch_is_not(epoch)):
            self._doubt.about(f"log entry {path}", getattr(entry, "instant", ""))
            # Members of a group have an outcome each, which their writers look up; its first alone does not decide.
            if isinstance(entry, GroupCommit) or not self._counts(entry):
                self.epoch = 0
                return None
        self._appended = slot
        self._apply(entry, path, body)
        if counts:
            self._certified()
        return entry

    def _append_decided(self, commit: Commit) -> Commit:
        """Append the entry of a commit whose instant is on the timeline, unless others have committed meanwhile.

            t=0  P asks for its lease, and is paused; its lease ends
            t=1  another engine commits to the same file group, and the next of ours imports that
            t=2  P puts its instant: one of the two hides the other

        No later import would compare P's commit if P appended its entry. So P leaves it to the next holder of the lock.
        """
        last = self.state.last
        while commit.instant in self.state.open and self.state.last is last:
            if (put := self._put(commit)) is not None:
                assert isinstance(put, Commit)
                self._close_if_full()
                return put
            self._read_on(surely=True)
        # The lease had ended: the next holder of the lock has imported it, or does.
        return replace(commit, slot=self.next_slot - 1)

    def _may_be_at_head(self) -> bool:
        """Return whether the next slot is probably free: on a far store, while nobody else appends.

        The put then replaces the read and saves a request, because put-if-absent succeeds only on a free slot. Only an
        entry may come of an unread slot: if ``build`` raises or returns None, read first and build again.
        """
        known = self.epoch and not self.state.closed and self.next_slot > self.first_slot
        return bool(known and self._far and self._alone and self._unverified is None)

    def _propose(
        self,
        build: Callable[[LogState], LogEntry | None],
        *,
        look: bool | None,
        publishes: bool,
        surely: bool,
        settles: bool,
    ) -> LogEntry | None:
        """Return the entry to append at the free slot.

        Without ``surely``, the slot may not be the head; check for a newer epoch before publishing or concluding
        anything. A proposal concludes nothing. After its put the newest epoch is read in any case; if it is still this
        one, it was so all the time, and everything read of it counts.

        Raises:
            _ReplacedError: this epoch is not the newest any more.
        """
        try:
            self.state.settings.refuse_older_versions(self._store.url)
            # Either may read on, so before publishing.
            if look and self.state.settings.timeline_first:
                if (found := self._to_import()) is not None:
                    return found
            elif look is not False:
                self._foreign.look(now=bool(look))
            if publishes or not self._far:
                if not surely and not self._is_published():
                    self._refuse_replaced()
                self._publish_newest(locked=bool(look))
            state = self.state
            entry = build(state)
            if state.prepared and not settles:
                refuse_undecided(self._store.url, state, entry)
            foreign = self._foreign.found and not self.state.settings.timeline_first
            if foreign and not isinstance(entry, End | None):  # ending a transaction is always safe
                raise self._foreign.error(self._store.url)
        except _ReplacedError:
            raise
        except Exception:
            if not surely:
                self._refuse_replaced()
            raise
        if entry is None and not surely:
            self._refuse_replaced()
        return entry

    def _to_import(self) -> Import | None:
        """Return the entry that imports what is completed on the timeline and not in the log. Under the table's lock only."""
        folder, missed = self._timeline.folder, 0
        while True:
            shown = self._timeline.since(self._foreign.listed_from)
            self._foreign.judge(shown)
            if not (new := self._foreign.unknown(shown)):
                return None
            bodies = {each: self._store.body(f"{folder}/{completed_name(each)}") for each in new}
            there = {each: body for each, body in bodies.items() if body is not None}
            if len(there) == len(new):
                break
            # Another engine has rolled it back meanwhile; or this process was paused, and others have imported it and taken
            # it back by a restore.
            missed += 1
            if missed == _LOOKS_MAX:
                lacking = next(each for each in new if each not in there)
                raise CorruptTableError(
                    f"{self._store.url}: {completed_name(lacking)} is listed on the timeline and is not there when it is read, "
                    f"{missed} times. Nothing was written; a retry is safe",
                    table=self._store.url,
                    instant=lacking.requested,
                )
        entry = imported(self._store, there, self.state, self._timeline.standing)
        contents = {
            each.instant: metadata_of(self._store, each) for each in entry.members if each.action in COMMIT_ACTIONS
        }
        if contents:
            merge_on_read = self._timeline.merge_on_read
            refuse_skipped(self._store, folder, contents, self._commits_since, merge_on_read=merge_on_read)
        return entry

    def _commits_since(self, requested: str) -> list[tuple[Instant, CommitMetadata]]:
        found = [each for each in self._timeline.since(requested) if each.action in COMMIT_ACTIONS and each.completed]
        return [(each, content) for each in found if (content := self._timeline.content(each)) is not None]

    def put_first(self, commit: Commit) -> None:
        """Put the completed instant of a commit that has no entry yet: with neighbours, this makes it committed.

        Raises:
            RolledBackError: another engine rolls it back.
            CommitStateUnknownError: the store gave no answer; it may be committed.
        """
        refuse_planned_rollback(self._store, self._timeline.folder, commit.instant, self._foreign.planned)
        try:
            self._timeline.publish(commit, unseen=True, durable=True)
        except StorageError as e:
            raise CommitStateUnknownError(
                f"{self._store.url}: no answer when {commit.shown} was put on the timeline ({e}). It may have landed or may "
                "still land, so nothing was deleted; the next holder of the lock reads which",
                table=self._store.url,
                instant=commit.instant,
            ) from e

    def pending(self, *, now: bool = False) -> list[Instant]:
        """Return the pending instants of other engines as of the last listing; ``now``: list the timeline."""
        with self._mutex:
            if now:
                self._foreign.look(now=True)
            return self._foreign.pending

    def others(self) -> frozenset[tuple[str, str]]:
        """Return T and state of all that the last listing shows of other engines and the log does not have."""
        with self._mutex:
            foreign = self._foreign
            pending = [(each.requested, each.state) for each in (*foreign.pending, *foreign.planned)]
            return frozenset([*pending, *((each, "completed") for each in (*foreign.found, *foreign.rollbacks))])

    def is_unknown(self, instant: Instant) -> bool:
        """Return whether an instant on the timeline is neither in the log nor older than its epoch."""
        with self._mutex:
            return self._foreign.is_unknown(instant)

    def has_committed(self, instant: str) -> bool:
        """Return whether the transaction of another engine with that T has committed, as of the last listing."""
        with self._mutex:
            return self.state.ended.get(instant) == "commit" or instant in self._foreign.found

    @property
    def newest_shown(self) -> str:
        """The largest time in the log and, with neighbours, in the last listing of the timeline."""
        return max(self.state.top, self._foreign.newest)

    def _refuse_replaced(self) -> None:
        if self._newest_epoch() != self.epoch:
            raise _ReplacedError
        self._certified()

    def _refuse_unopened(self, state: LogState) -> None:
        if state.closed:
            raise StorageError(
                f"{self._store.url}: the next epoch of the commit log could not be opened; nothing landed. Make the table's "
                ".hoodie folder writable and try again",
                table=self._store.url,
            )

    def ready(self, commit: Commit) -> AbstractContextManager[None]:
        """Prepare to publish this commit of ours, before the lock is taken, so that nobody waits for that work."""
        return self._timeline.ready(commit)

    def publish_through(self, commit: Commit, *, locked: bool = True) -> bool:
        """Publish that commit and those before it; the ones behind it in its entry are published by their own writers.

        ``locked``: under the lease that it was appended with. Result and errors are those of `publish_last`.
        """
        with self._mutex:
            newest = self.state.newest
            behind = [each.instant for each in newest[:-1]]
            if commit.instant not in behind or self._unverified is not None or newest[-1].slot == self._published:
                return self.publish_last(locked=locked, looked=locked)
            self._publish_all(newest[: behind.index(commit.instant) + 1])
            return True

    def publish_in_turn(self, members: Sequence[Commit]) -> Iterator[Commit]:
        """Publish the commits of this handle's newest entry, in their order; yield each once it is on the timeline.

        Holds no mutex, so that others may begin meanwhile.
        """
        if self.publishes_at_once:
            yield from self._timeline.publish_at_once(members, unseen=True)
        else:
            for each in members:
                self._timeline.publish(each, unseen=each.side is None)
                yield each
        with self._mutex:
            if self.state.newest and self.state.newest[-1].slot == members[-1].slot:
                self._published = members[-1].slot

    @property
    def publishes_at_once(self) -> bool:
        """True if one instant of an entry on the timeline does not show that those before it are there."""
        return self._far and self.state.settings.publish_at_once

    def _publish_all(self, commits: Sequence[Commit], *, unseen: bool = False) -> None:
        if self.publishes_at_once:
            deque(self._timeline.publish_at_once(commits), maxlen=0)
        else:
            self._timeline.publish_all(commits, unseen=unseen)

    def can_publish(self, commit: Commit) -> bool:
        """Return whether a commit that another writer prepared can be encoded for the timeline."""
        return self._timeline.can_publish(commit)

    def publish_last(self, *, locked: bool = False, looked: bool = False) -> bool:
        """Publish the newest commits, those of one entry, unless this handle has seen them on the timeline.

            t=0  P's commit entry is in the log; P dies before it is on the timeline, and its lease ends
            t=1  a JVM writer, which reads no log, takes the lock and commits over the same files
            t=2  the next of ours publishes P's commit: readers lose the rows of one of the two, and both stand

        So commits left by others are not published over a known foreign commit. If JVM writers share the table's lock,
        check for one again under that lock; without ``locked``, return False if the commits are not there yet.
        ``looked``: that check was made under the same lease, right before the newest entry, if it is ours.

        Raises:
            UnsupportedTableError: another engine has committed, and the newest commits were not on the timeline before.
        """
        with self._mutex:
            there = self._publish_newest(locked=locked, looked=looked)
            if not there and self._foreign.found:
                raise self._foreign.error(self._store.url, left=self.state.last)
            return there

    def _publish_newest(self, *, locked: bool = False, looked: bool = False) -> bool:
        if self.state.settings.timeline_first:
            self._keep_away()
            return True
        while self._unverified is not None:
            if not self._verify(self._unverified, locked=locked):
                return False
        while True:
            newest = self.state.newest  # re-read: verifying may have read on
            if not newest or newest[-1].slot == self._published:
                return True
            ours, shared = newest[-1].slot == self._appended, bool(self.state.settings.shared_with_jvm)
            if shared and not (ours and looked):
                if all(self._timeline.shows(each) for each in newest):
                    break
                if locked:
                    self._foreign.look(now=True)  # may read on
                if self._foreign.found or not locked:
                    return False
                if self.state.newest is not newest:
                    continue
            elif not ours and self._foreign.found:
                return False
            self._publish_all(newest, unseen=len(newest) > 1)
            break
        self._published = newest[-1].slot
        return True

    def _keep_away(self) -> None:
        """Settle the timeline with neighbours: every commit of rows was there first; those of services may be missing.

        Instants that a restore or an archival of ours has taken off may have been put back by a late publisher.
        """
        if undone := [each for each in self._unverified or () if each.undone]:
            self._timeline.keep_away(undone)
        for each in (*(self._unverified or ()), *self.state.newest):
            if each.action not in COMMIT_ACTIONS:
                self._timeline.publish(each)
        self._unverified = None
        self._published = self.state.newest[-1].slot if self.state.newest else -1

    def _is_published(self) -> bool:
        last, several = self.state.last, len(self.state.newest) > 1
        if last is not None and last.slot != self._published and not (several and self.publishes_at_once):
            self._published = last.slot if self._timeline.shows(last) else self._published
        return last is None or last.slot == self._published

    def missing(self, names: Collection[str], since: Sequence[Commit]) -> tuple[list[Commit], list[tuple[Commit, str]]]:
        """Return the commits that a timeline of these names may not show as the log has them, and the names it lacks.

        Covers this epoch only, and only the newest entry once this handle has verified the epoch. ``since``: the
        commits since the handle first read the log.
        """
        with self._mutex:
            told = {(c.slot, c.place): c for c in (*(self._unverified or ()), *since, *self.state.newest)}
            commits = [told[where] for where in sorted(told)]
        return commits, self._timeline.missing(commits, names)

    def look(self, *, now: bool = False) -> list[str]:
        """Return T of commits since the epoch was opened that are on the timeline and not in the log.

        ``now``: list the timeline; otherwise return the last result unless a new listing is due. A committer calls this
        before it takes the lock, so that writers waiting for the lock do not wait for the listing too.
        """
        with self._mutex:
            if now:
                self.catch_up()
            self._foreign.look(now=now)  # may read on, so before publishing
            if now and not self._foreign.found:
                self._publish_newest()
            return self._foreign.found

    def past_the_log(self) -> tuple[list[str], frozenset[str]]:
        """Return T of commits since the epoch was opened that the log lacks, of other engines' restores, and of their rollbacks.

        At most a second old. A restore counts while it is under way.
        """
        with self._mutex:
            self._foreign.look(every_s=_SEEN_S)
            restores = [each.requested for each in self._foreign.pending if each.action == "restore"]
            ahead = [each for each in self._foreign.ahead if each in self.state.open]
            return [*self._foreign.found, *restores, *ahead], self.rollbacks

    def await_readers(self, instant: str) -> None:
        """Wait, if this commit is on the timeline and its entry could not be appended, until every handle looks there again.

        t=0  A's instant is put, which commits it; the disk is full, so its entry is not appended
        t=1  A's caller is told that it has landed, and asks B, whose last look at the timeline was before t=0
        """
        if self.state.settings.timeline_first and instant in self.state.open:
            self._env.sleep(_SEEN_S)

    def lists_the_timeline(self) -> None:
        """Note that the caller lists the timeline itself, so that the next listing is due a second later."""
        self._foreign.postpone()

    @property
    def rollbacks(self) -> frozenset[str]:
        """T of the rollbacks of other engines that this handle has seen so far."""
        return frozenset(self._foreign.rollbacks)

    def _verify(self, commits: list[Commit], *, locked: bool = False) -> bool:
        last, known = self.state.last, len(commits)

        def may(shown: list[Instant]) -> bool:
            # may read on: commits added by that are still to be verified, a restore above all
            self._foreign.judge(shown)
            return not self._foreign.found and (locked or not self.state.settings.shared_with_jvm)

        if not self._timeline.reconcile(commits[:known] or self.state.newest, may):
            return self._unverified is not commits
        if self._unverified is commits:  # else the log was replaced while we read on, and the new one is to be verified
            self._published = last.slot if last is not None else -1
            self._unverified = commits[known:] or None
        return True

    def _insist(self, path: str, body: bytes, entry: LogEntry | None = None) -> bool:
        """Return True if these bytes stand at the path, False if others do. Repeat until the store says which."""
        deadline, pause, in_doubt, unflushed = self._env.monotonic() + _PATIENCE_S, 0.05, "", False
        # A begin lost in a power cut died with its writer, and the next entry flushes the names before it.
        durable: Durable = "bytes" if isinstance(entry, Begin) else True
        while True:
            try:
                put = self._store.put_if_absent(path, body, durable=durable)
                if put.outcome is Outcome.LOST and (stored := self._store.get(path)) is not None:
                    if stored.body != body:
                        self._met, self._alone = (path, stored.body), False
                        return False
                    # Our own put that got no answer, or the same bytes of another writer. It can be seen, but may not
                    # be on disk.
                    put = self._write_anew(path) if unflushed else self._store.secure(path)
                unflushed = unflushed or put.unflushed
            except StorageError as e:
                if not in_doubt:
                    raise  # the store says that nothing was written, and no earlier try can have written
                in_doubt = str(e)
            else:
                if put.done:
                    return True
                in_doubt = put.cause or "no answer"
            if entry is not None:
                self._doubt.about(f"log entry {path}", getattr(entry, "instant", ""))
            if self._env.monotonic() >= deadline:
                raise CommitStateUnknownError(
                    f"{self._store.url}: no answer to the log entry {path} for {_PATIENCE_S:g} s ({in_doubt}). It may have "
                    "landed or may still land, so nothing was deleted; `lakelatch timeline` shows what became of it",
                    table=self._store.url,
                    instant=getattr(entry, "instant", None),
                )
            self._env.sleep(pause * (0.5 + self._env.random()))
            pause = min(pause * 2, 2.0)

    def secure(self, commit: Commit) -> None:
        """Bring the entry of a commit that another writer appended to disk.

        Raises:
            CommitStateUnknownError: the store gave no answer for a minute. The commit is in the log, and a power cut
                may remove it.
        """
        deadline, pause, unflushed = self._env.monotonic() + _PATIENCE_S, 0.05, False
        while True:
            try:
                for epoch in reversed(epochs(self._store)):
                    path = slot_path(epoch, commit.slot)
                    put = self._write_anew(path) if unflushed else secured(self._store, path)
                    if put.done:
                        return
                    unflushed = unflushed or put.unflushed
                    if put.outcome is not Outcome.LOST:
                        break
                else:
                    return  # its epoch was closed and then removed, and a closed epoch is on disk
                cause = put.cause or "no answer"
            except StorageError as e:
                cause = str(e)
            if self._env.monotonic() >= deadline:
                raise CommitStateUnknownError(
                    f"{self._store.url}: {commit.instant} has landed by another writer's entry, which for {_PATIENCE_S:g} s "
                    f"could not be brought to disk ({cause}); a power cut may take it away. `lakelatch timeline` shows it",
                    table=self._store.url,
                    instant=commit.instant,
                )
            self._env.sleep(pause * (0.5 + self._env.random()))
            pause = min(pause * 2, 2.0)

    def _write_anew(self, path: str) -> Put:
        """Rewrite the entry at the path and those before it: a failed flush may have dropped any of them.

        t=0  W appends its begin entry, whose name need not be flushed, and its commit entry behind it
        t=1  the flush of the folder fails, and the kernel drops both names; only the commit entry is rewritten
        t=2  the power goes; the log has a hole where the begin entry was, and ends there for every reader
        """
        folder, _, last = path.rpartition("/")
        for name in self._store.names(folder):
            if name < last and (put := secured(self._store, f"{folder}/{name}")).outcome is Outcome.UNKNOWN:
                return put
        return secured(self._store, path)  # LOST if the epoch has been pruned meanwhile

    def _newest_epoch_is_not(self, epoch: int) -> bool:
        try:
            return self._newest_epoch() != epoch
        except StorageError:
            return True  # then `_counts` raises: the outcome is unknown

    def _counts(self, entry: LogEntry) -> bool:
        """Return whether our entry counts although its epoch is not the newest.

        Either the epoch was closed after our entry, or the log was replaced and nobody reads the entry. The newest
        epoch says which: by the state that it opened with, by its own entries, and by the timeline, read after it.
        """
        fresh = LogState()
        for found in read_epoch(self._store, self._newest_epoch()):
            fresh.apply(found)
        return fresh.counts(entry, lambda instant: self._landed(fresh, instant))

    def _close_if_full(self) -> None:
        if self.next_slot - self.first_slot >= self._epoch_slots:
            try:
                self.close_epoch()
            except LakeLatchError:  # our entry is in the log all the same; the next appender closes
                _log.warning("%s: epoch %d could not be closed yet", self._store.url, self.epoch, exc_info=True)

    def close_epoch(self) -> None:
        """Close the epoch at the next free slot, unless another writer takes it. The next reader opens the new epoch.

        First settle everything that the next epoch ignores: all commits are published and durable, and none is foreign.
        """
        with self._mutex:
            slot, epoch = self.next_slot, self.epoch
            there = self._publish_newest()
            self._foreign.look(now=True)
            if self._foreign.found:
                if self.state.settings.timeline_first:
                    return  # the next holder of the lock imports them, and closes
                raise self._foreign.error(self._store.url)
            if not there or self.state.closed or (self.epoch, self.next_slot) != (epoch, slot):
                return  # closed already, or new entries came: the next appender closes
            # Durable before the close: the next epoch does not verify these names again, and a power cut would lose
            # them for good.
            self._timeline.secure()
            closing = Close(pending=self._foreign.at_work) if self.state.settings.timeline_first else Close()
            if self._store.put_if_absent(slot_path(epoch, slot), encode(closing, epoch, slot, self._env.uuid())).done:
                self.closed = epoch

    def take_over(
        self,
        settings: Settings,
        top: Callable[[], str],
        batches: Callable[[Batches], Iterable[Landed]],
        overlaps: Callable[[Commit], bool] = lambda _: False,
    ) -> tuple[Commit, ...]:
        """Continue the log in a new epoch with these settings, with no open transaction and no foreign commit.

        Args:
            top: returns the largest time on the timeline; called once nothing can commit any more.
            batches: returns the committed batches, by this log and by the timeline; called then too.
            overlaps: return whether an unpublished commit changed what a foreign commit changed.

        Returns the commits left out because they overlap: they do not count, and no reader of the timeline has seen
        them.
        """
        with self._mutex:
            while True:
                self.catch_up()
                left = self._publish_beside(overlaps)
                state = self.state  # publishing may have read on
                state.settings.refuse_older_versions(self._store.url)
                self._refuse_unopened(state)
                closing, slot = self.epoch, self.next_slot
                self._timeline.secure()
                if not self._insist(slot_path(closing, slot), encode(Close(), closing, slot, self._env.uuid())):
                    continue
                # another opener carried the epoch on, so close that one; or the log was replaced long ago
                if epochs(self._store, since=closing + 1):
                    continue
                # Nothing can be added before the close any more, so this state is final.
                last, said = None if left else state.last, Batches(state.batches)
                said.take_back(each.instant for each in left)
                at_work = self._foreign.at_work if settings.timeline_first else ()
                opening = Open(
                    max(state.top, top()),
                    0,
                    settings,
                    (),
                    last,
                    slot + 1,
                    batches=tuple(batches(said)),
                    pending=at_work,
                )
                opened = self._insist(slot_path(closing + 1, slot + 1), encode(opening, closing + 1, slot + 1, ""))
                if opened and not self._newest_epoch_is_not(closing + 1):
                    return left

    def _publish_beside(self, overlaps: Callable[[Commit], bool]) -> tuple[Commit, ...]:
        """Publish the commits that do not overlap with foreign ones; return ours that do."""
        self._foreign.look(now=True)  # may read on
        commits = self._unverified or list(self.state.newest)
        left = tuple(each for each in commits if not self._timeline.shows(each) and overlaps(each))
        self._timeline.reconcile([each for each in commits if each not in left])
        return left

    # --- history ---------------------------------------------------------------------------------------------

    def outcome(self, instant: str) -> str | None:
        """``open``, ``commit``, ``undone`` (by a restore), ``rollback`` or ``abort``; None if it is not a transaction
        of ours.

        Reads the newest epoch first, then the timeline. A transaction not open in the epoch can no longer commit, and
        every commit before the newest entry is on the timeline or was taken back.
        """
        with self._mutex:
            state = self.catch_up()
            if instant in state.open:
                return "open"
            if instant in state.ended:
                return state.ended[instant]
            if self._landed(state, instant) is not None:
                return "commit"
            # A T larger than every time in the log is foreign.
            return outcome_of(self._store, instant) if instant <= state.top else None

    def entries(self) -> Iterator[Single]:
        """Every entry of every remaining epoch, oldest first."""
        return read_all(self._store)

    def landed(self, instant: str) -> str | None:
        """The completion time of a committed transaction, else None."""
        with self._mutex:
            return self._landed(self.catch_up(), instant) or landed_at(self._store, instant)

    def _landed(self, state: LogState, instant: str) -> str | None:
        for each in state.newest:
            if each.instant == instant:
                return each.completion
        return self._timeline.completion_of(instant)
