"""The commit log on the store: what counts. Appended only at the first free slot, after reading every earlier one.

    t=0  A and B have read slots 0..6 and want slot 7
    t=1  A's put-if-absent of slot 7 is done
    t=2  B's is lost; B reads slot 7, sees A's entry, checks again against it, and tries slot 8

Absence is no answer. A put whose reply was lost may land later, so a writer in doubt repeats the same bytes at the
same slot until the store says what stands there. Single entries are never deleted, because a zombie's put would
succeed on a slot that somebody has emptied. The newest epoch is looked up at every head and after every put: if the
log was replaced below a sleeping writer, what it reads there counts for nothing, and its entry stands where nobody
reads (`python -m tests.model --traces` prints the schedules).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from ...environment import Environment
from ...errors import (
    CommitStateUnknownError,
    CorruptTableError,
    LakeLatchError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from ...hudi.timeline import Instant
from ...storage import Durable, Outcome, Put, Store, is_far, secured
from ..entries import (
    Batches,
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
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
    slot_names,
    slot_path,
)
from .foreign_commits import Strangers
from .publisher import Publisher
from .read_ahead import ReadAhead
from .state import LogState
from .unknown_outcome import OutcomeGuard

EPOCH_SLOTS = 1000  # a cold reader reads at most so many entries
_RECENT, _RECENT_FILES = 256, 4096  # commits, and files that they name
_PATIENCE_S = 60.0
_SEEN_S = 1.0  # a warm reader may be so late with what other engines did past the log
_log = logging.getLogger("lakelatch.log")


class _ReplacedError(Exception):
    """The log was replaced while we slept, and what was read of it may be a zombie's."""


class Follower:
    """Collects the commits that land after its transaction began."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.complete = True  # False: the log was replaced meanwhile, and what it held is not known


class Recent:
    """The commits that a handle has read last, where commits land together; a few, because each may name many files."""

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque()
        self._files, self._from = 0, 0

    def begin_at(self, slot: int) -> None:
        """Nothing is known of what landed before that slot."""
        self._commits.clear()
        self._files, self._from = 0, slot

    def add(self, commit: Commit) -> None:
        """The next one has landed."""
        self._commits.append(commit)
        self._files += _size(commit)
        while len(self._commits) > _RECENT or (self._files > _RECENT_FILES and self._commits):
            gone = self._commits.popleft()
            self._files -= _size(gone)
            self._from = gone.slot + 1

    def since(self, slot: int) -> list[Commit] | None:
        """What has landed from that slot on; None where that is not known any more."""
        return [each for each in self._commits if each.slot >= slot] if slot >= self._from else None

    def first_of(self, commit: Commit) -> Commit | None:
        """The first commit of the same entry, whose writer has appended it."""
        return next((each for each in self._commits if each.slot == commit.slot and not each.place), None)

    def find(self, instant: str) -> Commit | None:
        """The commit of that transaction, if it is one of these."""
        return next((each for each in reversed(self._commits) if each.instant == instant), None)


def _size(commit: Commit) -> int:
    return 1 + len((commit.metadata or {}).get("stats", ()))


class CommitLog:
    """One reader and appender of a table's log. Safe to share between threads; not to be used after fork.

    Args:
        timeline: publishes. Asked before every append for the newest commit: every appender does so, hence all older
            ones are there already. Asked once for the whole epoch by a new handle, because a power cut may have taken
            names away that nobody had secured yet.
        epoch_slots: an epoch is closed when it has so many entries.

    Attributes:
        recent: the commits that were read last.
        epoch: the newest one; ``first_slot`` is where it begins, ``next_slot`` the first free one.
        restore: the newest restore that was read.
        closed: the newest epoch that was closed here, and by nobody else; -1: none was.
    """

    def __init__(self, store: Store, env: Environment, timeline: Publisher, *, epoch_slots: int = EPOCH_SLOTS) -> None:
        self._store, self._env, self._timeline, self._epoch_slots = store, env, timeline, epoch_slots
        self._mutex = threading.RLock()
        self._followers: list[Follower] = []
        self.recent = Recent()
        self._published = -1
        self._unverified: list[Commit] | None = []
        self._strangers = Strangers(self, env, timeline.since)
        self._doubt = OutcomeGuard(store.url)
        self._far = is_far(store.url)
        self._met: tuple[str, bytes] | None = None  # the entry that has just taken the slot of ours
        self._appended = -1  # the slot of the last entry of ours
        self._alone = False  # the last entry of ours came right after one that we had read, or put
        self.state = LogState()
        self.epoch = self.next_slot = self.first_slot = 0
        self.closed = -1
        self.restore: Commit | None = None

    # --- reading ---------------------------------------------------------------------------------------------

    def catch_up(self) -> LogState:
        """Read to the head and return the state there. Raises `TableNotFoundError` when there is no log."""
        return self._read_on(surely=True)

    def glance(self, *, waits: bool = False) -> LogState:
        """The state at a free slot, which is the head unless the log was replaced: for those who act on nothing that it says.

        ``waits``: for one who waits anyway, and spares requests rather than time.
        """
        return self._read_on(surely=False, waits=waits)

    def _read_on(self, *, surely: bool, waits: bool = False) -> LogState:
        """The same; without ``surely`` to a free slot, which is the head unless the log was replaced while we slept."""
        with self._mutex:
            if not self.epoch:
                self._start_at_newest_epoch()
            read, self._met = ReadAhead(self._store, self._env, self._met, hurried=not waits), None
            while True:
                path = slot_path(self.epoch, self.next_slot)
                body = read.body(self.epoch, self.next_slot)
                if body is not None:
                    entry = decode(body, path)
                    if self.next_slot == self.first_slot and not isinstance(entry, Open):
                        if self._newest_epoch() > self.epoch or first_slot(self._store, self.epoch) < self.next_slot:
                            self._start_at_newest_epoch()  # ours is being removed; or a zombie's close led us here
                            continue
                        raise CorruptTableError(
                            f"{self._store.url}: the commit log begins in the middle, with {path}; entries before it were "
                            "deleted. `lakelatch adopt URL LOCK` rebuilds it when no writer is active",
                            table=self._store.url,
                        )
                    if self.state.closed and body != self._opening():
                        self._start_at_newest_epoch()  # taken over; or some of what we have read was a zombie's
                        continue
                    self._apply(entry)
                    continue
                if not (surely or self.state.closed or self.next_slot == self.first_slot):
                    return self.state
                # A free slot is the head only in the newest epoch, and after a close only while the next one has not begun.
                # Elsewhere the log was replaced while we slept, and what stands where we read may be a zombie's: neither
                # publish nor decide anything by it.
                if epochs(self._store, since=self.epoch if self.state.closed else self.epoch + 1):
                    if self._store.body(path) is None:
                        self._start_at_newest_epoch()
                elif not (self.state.closed and self._open_epoch(path)):
                    return self.state

    def _opening(self) -> bytes:
        return encode(self.state.carried(self.next_slot), self.epoch, self.next_slot, "")

    def _open_epoch(self, path: str) -> bool:
        """Put the first entry of the epoch that follows a closed one; False for readers who may not write."""
        try:
            self.state.settings.refuse_older_versions(self._store.url)
            self._insist(path, self._opening())
        except (StorageError, UnsupportedTableError, CommitStateUnknownError) as e:  # one that is there is the same
            _log.debug("epoch %d stays unopened: %s", self.epoch, e)
            return False
        return True

    def _start_at_newest_epoch(self) -> None:
        newest, slots, gone = self._newest_epoch(), list[str](), 0
        while newest != gone and not (slots := slot_names(self._store, newest)):
            gone, newest = newest, self._newest_epoch()  # there is a newer one if it was removed while we slept
        if not slots:
            raise TableNotFoundError(
                f"{self._store.url} has no commit log; it is read-only until `lakelatch adopt URL LOCK`",
                table=self._store.url,
            )
        self._refuse_hole(newest, [int(name) for name in slots])
        for follower in self._followers:
            follower.complete = False
        # With the settings known so far: threads that share the handle look at them without the mutex.
        self.state, self._published, self._unverified = LogState(settings=self.state.settings), -1, []
        self.epoch, self.next_slot = newest, int(slots[0])
        self.first_slot = self.next_slot
        self.recent.begin_at(self.first_slot)
        self._appended = -1

    def _refuse_hole(self, epoch: int, slots: list[int]) -> None:
        """Raise `CorruptTableError` when entries that somebody was told of stand behind one that is missing.

            t=0  A's entry 7 is seen, and its flush fails; before A can write it anew, B appends 8, whose flush does not fail
            t=1  the power goes; the disk has 8 and not 7

        Whoever took 7 for the head would append there, and then read what B had decided on another history. Begin entries
        alone tell nobody anything: their names need not be on disk, and who made them died with the cut.
        """
        hole = next((slot for slot, there in enumerate(slots, slots[0]) if slot != there), None)
        if hole is None or self._store.body(slot_path(epoch, hole)) is not None or epochs(self._store, since=epoch + 1):
            return  # it came, or another epoch did, while they were listed
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
        # Older epochs than ours are of no interest, or every commit would pay for the table's age.
        return max(epochs(self._store, since=self.epoch + 1), default=self.epoch)

    def _apply(self, entry: LogEntry) -> None:
        if isinstance(entry, Open):
            self._strangers.epoch_begins(entry.top)
            if self._unverified is not None:  # who closed the epoch has published what it held, and brought it to disk
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
        """The commits of one entry, all at once: other threads look at what followers have without the mutex, slot by slot."""
        for follower in self._followers:
            follower.commits.extend(commits)
        for commit in commits:
            if commit.restores:
                self.restore = commit
            if self.state.settings.group_commit:
                self.recent.add(commit)
            else:
                self.recent.begin_at(commit.slot + 1)
            if self._unverified is not None:
                self._unverified.append(commit)
            elif commit.undone:
                self._unverified = [commit]  # takes them back; one of them may have been published late, by us too

    def follow(self, other: Follower) -> Follower:
        """A follower that has seen what ``other`` has, and goes on collecting."""
        with self._mutex:
            follower = Follower()
            follower.commits.extend(other.commits)
            follower.complete = other.complete
            self._followers.append(follower)
            return follower

    def follow_since(self, slot: int) -> Follower:
        """A follower that has seen every commit from that slot on, and goes on collecting."""
        with self._mutex:
            self.catch_up()
            follower = Follower()
            found = commits_since(self._store, slot)
            follower.complete = found is not None
            follower.commits.extend(c for c in found or () if c.slot < self.next_slot)
            self._followers.append(follower)
            return follower

    def follow_from(self, slot: int) -> Follower:
        """The same without a request to the store, where this handle remembers what has landed since that slot."""
        with self._mutex:
            known = self.recent.since(slot)
            if known is None:
                return self.follow_since(slot)
            follower = Follower()
            follower.commits.extend(known)
            self._followers.append(follower)
            return follower

    def unfollow(self, follower: Follower) -> None:
        """The transaction is over; stop collecting for it."""
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
    ) -> LogEntry | None:
        """Append what ``build`` makes of the state at the head; returns the entry with its slot.

        ``build`` runs again at every slot tried, so its checks and its times are never older than the slot. It may
        raise, or return None to append nothing. ``follower`` starts to collect right after the entry. ``look``: for commits
        past the log, at every slot; None: now and then; False: not here, `look` has been called. Where JVM writers share the
        table's lock, True is for who holds it: nobody else publishes what others have left. ``publishes``: False
        for an entry that is no commit, when the caller publishes the newest one before it looks at the table. Then a far store
        has one request less between two slots.

        Raises:
            CommitStateUnknownError: the store gave no answer for a minute, or none when it was asked what became of an entry that
                was in doubt; that one may have landed, or may still land.
        """
        with self._mutex, OutcomeGuard(self._store.url) as self._doubt:
            again, unread = False, self._may_be_at_head()
            while True:
                surely = again or not self._far or self._unverified is not None
                if not unread:
                    before = self.next_slot
                    self._read_on(surely=surely)
                    self._alone = self.next_slot == before
                try:
                    entry, again = self._propose(build, look=look, publishes=publishes, surely=surely), False
                except _ReplacedError:
                    again, unread = True, False
                    continue
                except Exception:
                    if not unread:
                        raise
                    unread = False  # what has landed since may say otherwise
                    continue
                if entry is None:
                    if not unread:
                        return None
                    unread = False
                    continue
                unread = False
                epoch, slot = self.epoch, self.next_slot
                body = encode(entry, epoch, slot, self._env.uuid())
                if not self._insist(slot_path(epoch, slot), body, entry):
                    continue
                entry = at_slot(entry, slot)
                if self._newest_epoch_is_not(epoch):
                    self._doubt.about(f"log entry {slot_path(epoch, slot)}", getattr(entry, "instant", ""))
                    # One that holds several is not judged by its first: each has an outcome, and its writer looks for it.
                    if isinstance(entry, GroupCommit) or not self._counts(entry):
                        self.epoch = 0
                        continue
                self._appended = slot
                self._apply(entry)
                if follower is not None:
                    self._followers.append(follower)
                self._close_if_full()
                return entry

    def _may_be_at_head(self) -> bool:
        """Whether the next slot is most likely free: on a far store, while nobody else appends.

        The put tells as well as a reading does, since it is done only where nothing stands, and spares one request. Nothing
        but an entry comes of it: whoever would raise or give nothing reads first.
        """
        known = self.epoch and not self.state.closed and self.next_slot > self.first_slot
        return bool(known and self._far and self._alone and self._unverified is None)

    def _propose(
        self, build: Callable[[LogState], LogEntry | None], *, look: bool | None, publishes: bool, surely: bool
    ) -> LogEntry | None:
        """What to append at the free slot.

        Not ``surely`` at the head: then the newest epoch is looked up here, before anything is published or concluded. A
        proposal is no conclusion. After its put the newest epoch is looked up in any case; if that is still this one, it
        was so all the time, and everything that was read of it counts.

        Raises:
            _ReplacedError: this epoch is not the newest any more.
        """
        try:
            self.state.settings.refuse_older_versions(self._store.url)
            if look is not False:
                self._strangers.look(now=bool(look))  # may read on, so before publishing
            if publishes or not self._far:
                if not surely and not self._is_published():
                    self._refuse_replaced()
                self._publish_newest(locked=bool(look))
            state = self.state
            self._refuse_unopened(state)
            entry = build(state)
            if self._strangers.found and not isinstance(entry, End | None):  # to end a transaction is always safe
                raise self._strangers.error(self._store.url)
        except _ReplacedError:
            raise
        except Exception:
            if not surely:
                self._refuse_replaced()
            raise
        if entry is None and not surely:
            self._refuse_replaced()
        return entry

    def _refuse_replaced(self) -> None:
        if self._newest_epoch() != self.epoch:
            raise _ReplacedError

    def _refuse_unopened(self, state: LogState) -> None:
        if state.closed:
            raise StorageError(
                f"{self._store.url}: the next epoch of the commit log could not be opened; nothing landed. Make the table's "
                ".hoodie folder writable and try again",
                table=self._store.url,
            )

    def ready(self, commit: Commit) -> AbstractContextManager[None]:
        """Before the lock is taken, so that nobody waits for it: all that can be done to publish this commit of ours."""
        return self._timeline.ready(commit)

    def publish_through(self, commit: Commit, *, locked: bool = True) -> bool:
        """Put that commit, and those before it, on the timeline; those behind it in its entry have writers of their own.

        ``locked``: by the lease under which it was appended. Result and errors are those of `publish_last`.
        """
        with self._mutex:
            newest = self.state.newest
            behind = [each.instant for each in newest[:-1]]
            if commit.instant not in behind or self._unverified is not None or newest[-1].slot == self._published:
                return self.publish_last(locked=locked, looked=locked)
            self._timeline.publish_all(newest[: behind.index(commit.instant) + 1])
            return True

    def publish_behind(self, members: Sequence[Commit]) -> None:
        """Put all but the first of one entry on the timeline; for who has put the first there, and holds no mutex meanwhile."""
        for each in members[1:]:
            self._timeline.publish(each, unseen=each.side is None)

    def can_publish(self, commit: Commit) -> bool:
        """Whether what that commit says can be said on the timeline; somebody else has prepared it."""
        return self._timeline.can_publish(commit)

    def publish_last(self, *, locked: bool = False, looked: bool = False) -> bool:
        """Put the newest commits, those of one entry, on the timeline, unless this handle has seen them there.

            t=0  P's commit entry is in the log; P dies before it is on the timeline, and its lease ends
            t=1  a JVM writer, which reads no log, takes the lock and commits over the same files
            t=2  the next of ours publishes P's commit: readers lose the rows of one of the two, and both stand

        So what others have left is not published over a foreign commit that is known. Where JVM writers share the table's
        lock, it is looked for once more, under that lock: False when the commits are not there and ``locked`` is false.
        ``looked``: that was done, under the same lease, right before the newest entry, if it is ours.

        Raises:
            UnsupportedTableError: another engine has committed, and the newest commits were not on the timeline before.
        """
        with self._mutex:
            there = self._publish_newest(locked=locked, looked=looked)
            if not there and self._strangers.found:
                raise self._strangers.error(self._store.url, left=self.state.last)
            return there

    def _publish_newest(self, *, locked: bool = False, looked: bool = False) -> bool:
        while self._unverified is not None:
            if not self._verify(self._unverified, locked=locked):
                return False
        while True:
            newest = self.state.newest  # after that, which may have read on
            if not newest or newest[-1].slot == self._published:
                return True
            ours, shared = newest[-1].slot == self._appended, bool(self.state.settings.shared_with_jvm)
            if shared and not (ours and looked):
                if all(self._timeline.shows(each) for each in newest):
                    break
                if locked:
                    self._strangers.look(now=True)  # may read on
                if self._strangers.found or not locked:
                    return False
                if self.state.newest is not newest:
                    continue
            elif not ours and self._strangers.found:
                return False
            self._timeline.publish_all(newest, unseen=len(newest) > 1)
            break
        self._published = newest[-1].slot
        return True

    def _is_published(self) -> bool:
        last = self.state.last
        if last is not None and last.slot != self._published and self._timeline.shows(last):
            self._published = last.slot
        return last is None or last.slot == self._published

    def missing(self, names: Collection[str], since: Sequence[Commit]) -> tuple[list[Commit], list[tuple[Commit, str]]]:
        """The commits that a timeline of these names may not show as the log has them, and what of them it lacks.

        Of this epoch alone, and no more than the newest once this handle has verified it. ``since``: what has landed since
        the handle looked at the log first.
        """
        with self._mutex:
            told = {(c.slot, c.place): c for c in (*(self._unverified or ()), *since, *self.state.newest)}
            commits = [told[where] for where in sorted(told)]
        return commits, self._timeline.missing(commits, names)

    def look(self, *, now: bool = False) -> list[str]:
        """Requested times of commits since the epoch was opened that are on the timeline and not in the log.

        As seen ``now``, or at the last look if the next is not due. A committer asks before it takes the lock, or
        everybody who waits for that would wait for the look.
        """
        with self._mutex:
            if now:
                self.catch_up()
            self._strangers.look(now=now)  # may read on, so before publishing
            if now and not self._strangers.found:
                self._publish_newest()
            return self._strangers.found

    def past_the_log(self) -> tuple[list[str], frozenset[str]]:
        """What other engines have done that the log does not tell: T of commits since the epoch was opened, and of rollbacks.

        As seen no more than a second ago.
        """
        with self._mutex:
            self._strangers.look(every_s=_SEEN_S)
            return list(self._strangers.found), self.rollbacks

    def lists_the_timeline(self) -> None:
        """The caller does, and sees by itself what other engines have done: the next look is due a second later."""
        self._strangers.postpone()

    @property
    def rollbacks(self) -> frozenset[str]:
        """T of the rollbacks of other engines that this handle has seen so far."""
        return frozenset(self._strangers.rollbacks)

    def _verify(self, commits: list[Commit], *, locked: bool = False) -> bool:
        last, known = self.state.last, len(commits)

        def may(shown: list[Instant]) -> bool:
            self._strangers.judge(shown)  # may read on: what it adds is still to be verified, a restore above all
            return not self._strangers.found and (locked or not self.state.settings.shared_with_jvm)

        if not self._timeline.reconcile(commits[:known] or self.state.newest, may):
            return self._unverified is not commits
        if self._unverified is commits:  # else the log was made anew while we read on, and that one is to be verified
            self._published = last.slot if last is not None else -1
            self._unverified = commits[known:] or None
        return True

    def _insist(self, path: str, body: bytes, entry: LogEntry | None = None) -> bool:
        """True when these bytes stand at the path; False when others do. Repeats until the store says which."""
        deadline, pause, in_doubt, unflushed = self._env.monotonic() + _PATIENCE_S, 0.05, "", False
        # A begin that a power cut takes away died with its writer, and the next entry secures the names before it.
        durable: Durable = "bytes" if isinstance(entry, Begin) else True
        while True:
            try:
                put = self._store.put_if_absent(path, body, durable=durable)
                if put.outcome is Outcome.LOST and (stored := self._store.get(path)) is not None:
                    if stored.body != body:
                        self._met, self._alone = (path, stored.body), False
                        return False
                    # Ours that got no answer, or the same of another's; and what can be seen may be on no disk.
                    put = self._write_anew(path) if unflushed else self._store.secure(path)
                unflushed = unflushed or put.unflushed
            except StorageError as e:
                if not in_doubt:
                    raise  # the store says that nothing was written, and no earlier try can have been
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
        """The entry of that commit, which somebody else has appended, is on disk when this returns.

        Raises:
            CommitStateUnknownError: the store gave no answer for a minute. It has landed, and a power cut may take it away.
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
                    return  # its epoch was closed, and has gone since: everything in it was on disk before
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
        """The entry at the path and those before it are written anew: a flush that failed may have dropped any of them.

        t=0  W appends its begin entry, whose name need not be flushed, and its commit entry behind it
        t=1  the flush of the folder fails, and the kernel drops both names; only the commit entry is written anew
        t=2  the power goes; the log has a hole where the begin entry was, and ends there for every reader
        """
        folder, _, last = path.rpartition("/")
        for name in self._store.names(folder):
            if name < last and (put := secured(self._store, f"{folder}/{name}")).outcome is Outcome.UNKNOWN:
                return put
        return secured(self._store, path)  # LOST when the epoch has been pruned meanwhile

    def _newest_epoch_is_not(self, epoch: int) -> bool:
        try:
            return self._newest_epoch() != epoch
        except StorageError:
            return True  # then `_counts` says that nobody knows

    def _counts(self, entry: LogEntry) -> bool:
        """Whether our entry counts although the newest epoch is not the one that it stands in.

        Somebody closed the epoch after our entry, or the log was made anew and it stands where nobody reads. The newest
        epoch says which: by the state that it was opened with, by its own entries, and by the timeline, read after it.
        """
        fresh = LogState()
        for found in read_epoch(self._store, self._newest_epoch()):
            fresh.apply(found)
        return fresh.counts(entry, lambda instant: self._landed(fresh, instant))

    def _close_if_full(self) -> None:
        if self.next_slot - self.first_slot >= self._epoch_slots:
            try:
                self.close_epoch()
            except LakeLatchError:  # our entry has landed all the same; the next appender closes
                _log.warning("%s: epoch %d could not be closed yet", self._store.url, self.epoch, exc_info=True)

    def close_epoch(self) -> None:
        """End the epoch at the next free slot, if nobody takes it first. The next reader opens the new one.

        Everything that the next epoch does not look at any more is settled before: published and on disk for good, and
        no stranger's commit among it.
        """
        with self._mutex:
            slot, epoch = self.next_slot, self.epoch
            there = self._publish_newest()
            self._strangers.look(now=True)
            if self._strangers.found:
                raise self._strangers.error(self._store.url)
            if not there or self.state.closed or (self.epoch, self.next_slot) != (epoch, slot):
                return  # it is closed, or read on meanwhile: the next appender closes
            self._timeline.secure()
            if self._store.put_if_absent(slot_path(epoch, slot), encode(Close(), epoch, slot, self._env.uuid())).done:
                self.closed = epoch

    def take_over(
        self,
        settings: Settings,
        top: Callable[[], str],
        batches: Callable[[Batches], Iterable[Landed]],
        overlaps: Callable[[Commit], bool] = lambda _: False,
    ) -> tuple[Commit, ...]:
        """The log goes on in a new epoch with these settings, in which nothing is open and no commit is a stranger's.

        Args:
            top: the largest time that the timeline shows, read when nothing can land any more.
            batches: which have landed, by what this log says and by the timeline; likewise.
            overlaps: whether a commit that is not on the timeline yet has changed what a stranger's has.

        Returns the commits that were left out for that: they count for nothing, and were shown to no reader of the timeline.
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
                if epochs(self._store, since=closing + 1):  # carried on by somebody, then that closes; or long gone
                    continue
                # All that counts stands before the close.
                last, said = None if left else state.last, Batches(state.batches)
                said.take_back(each.instant for each in left)
                opening = Open(max(state.top, top()), 0, settings, (), last, slot + 1, batches=tuple(batches(said)))
                opened = self._insist(slot_path(closing + 1, slot + 1), encode(opening, closing + 1, slot + 1, ""))
                if opened and not self._newest_epoch_is_not(closing + 1):
                    return left

    def _publish_beside(self, overlaps: Callable[[Commit], bool]) -> tuple[Commit, ...]:
        """Publish what can be published beside strangers' commits; returns those of ours that cannot."""
        self._strangers.look(now=True)  # may read on
        commits = self._unverified or list(self.state.newest)
        left = tuple(each for each in commits if not self._timeline.shows(each) and overlaps(each))
        self._timeline.reconcile([each for each in commits if each not in left])
        return left

    # --- history ---------------------------------------------------------------------------------------------

    def outcome(self, instant: str) -> str | None:
        """``open``, ``commit``, ``undone`` (by a restore), ``rollback`` or ``abort``; None for one that is not ours.

        The newest epoch first, then the timeline: who is not open in it can no longer land, and every commit but those of
        the newest entry is on the timeline, or was taken back.
        """
        with self._mutex:
            state = self.catch_up()
            if instant in state.open:
                return "open"
            if instant in state.ended:
                return state.ended[instant]
            if self._landed(state, instant) is not None:
                return "commit"
            # Larger than every time in the log: begun by a stranger.
            return outcome_of(self._store, instant) if instant <= state.top else None

    def entries(self) -> Iterator[Single]:
        """Every entry of every epoch that is still there, oldest first."""
        return read_all(self._store)

    def landed(self, instant: str) -> str | None:
        """The completion time of a transaction that has landed, else None."""
        with self._mutex:
            return self._landed(self.catch_up(), instant) or landed_at(self._store, instant)

    def _landed(self, state: LogState, instant: str) -> str | None:
        for each in state.newest:
            if each.instant == instant:
                return each.completion
        return self._timeline.completion_of(instant)
