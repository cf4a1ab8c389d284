"""Build the begin entry of one transaction for every slot tried, and group begins of several transactions.

With group commit on a far store, a writer that lost a slot asks the next one to begin its transaction too:

    A, B, C  put their begin entries into slot 7; A's is done               A  has begun
    B, C     put their requests, read slot 7, list the requests
    B        puts begins(B, C) into slot 8                                  B  has begun
    C        loses slot 8, reads it, and finds itself there                 C  has begun, as of slot 8

A request is a hint; the log alone says which transactions have begun. A transaction begins at most once:

- The entry names the id of each request, also of its own writer's, and a leader skips ids it has read. It remembers the
  ids of this epoch, so a request counts only in the epoch that it names; the first entry of the next one names the open
  ones.
- A writer that gives up aborts, because others may begin it at any time: it begins, unless it has begun, and appends
  its abort entry. If that fails now, what was begun is found silent and rolled back, as after a crash.

A leader skips requests made under other settings, and all requests while any transaction holds a reservation. The same
requests go to a coordinator as messages (`occ.landing.coordinator`), which is a leader without a begin of its own.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import LakeLatchError, StorageError
from ...hudi.timeline import EARLIEST, next_label
from ..coordination import ALONE_S, Question
from ..entries import BEGINS, Begin, BeginRequest, End, GroupBegin, LogEntry
from ..log import Follower, LogState
from ..session import refuse_landed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...conflict import Claim
    from ..entries import Batch, Operation, Settings
    from ..session import Session, TableLease

MEMBERS_MAX = 64  # transactions of one entry
_LOOKS = 4  # reads of the log, waiting for the entry of an earlier request
_log = logging.getLogger("lakelatch.transaction")


class _NeedsLockError(Exception):
    """The begin entry needs the table's lock."""


class BeginEntry:
    """The builder passed to `CommitLog.append`.

    Attributes:
        before: the open transaction to wait for, if that is why nothing was built.
        found: our own begin, if another writer's entry contains it.
        lease: of the table's lock: from the caller, or taken by `append`, because neighbours know of a begin only under it.
    """

    def __init__(
        self,
        session: Session,
        kind: Operation,
        claim: Claim,
        batch: Batch | None,
        under: Callable[[Settings], None],
        lease: TableLease | None = None,
    ) -> None:
        self.lease = lease
        self._session, self._kind, self._claim, self._batch, self._under = session, kind, claim, batch, under
        self.before: Begin | None = None
        self.found: Begin | None = None
        self._asked = ""  # the id of the request; "" if none was put
        self._tried = False
        self._at_ms = 0
        self._paths: list[str] = []  # of the requests

    def ask(self) -> Follower | None:
        """Ask others to begin it: the handle's coordinator, or with group commit the next that appends.

        Return what follows the commits since; None if it has not begun.
        """
        if self.takes_lock:
            return None
        since = self._ask_coordinator()
        if since is None:
            self._ask_first()
        return since

    def _ask_coordinator(self) -> Follower | None:
        """Let the handle's coordinator begin it, if it has one.

        Return what follows the commits since; None if it has not begun. One that was not heard may begin it later.
        """
        session, log = self._session, self._session.log
        coordinator, state = session.asks, log.state
        if coordinator is None or not self._is_plain:
            return None
        self._under(state.settings)
        wanted = self._request(log.epoch, state.settled, self._begin(state))
        if not wanted.fits:
            return None
        since = log.follow(Follower())  # before the question, as another thread may take the answer
        try:
            answer = coordinator.ask(Question(log.next_slot, wanted), state.settings.coordinator_patience_s)
            if answer is not None and answer.alone:
                session.alone_until = session.env.monotonic() + ALONE_S
            if answer is not None and self._finds_itself(log.take(answer.entries)):
                assert self.found is not None
                began = self.found.slot
                del since.commits[: bisect_right(since.commits, began, key=lambda commit: commit.slot)]
                return since
        except LakeLatchError as e:  # the log on the store says what became of it
            _log.info("%s: the answer of the coordinator is of no use: %s", session.url, e)
        log.unfollow(since)
        return None

    def _ask_first(self) -> None:
        """With group commit, put a request before the first try, and let earlier requests go first."""
        log, state = self._session.log, self._session.log.state
        if len(state.newest) < 2 or not self._gathers(state):
            return
        self._under(state.settings)
        try:
            epoch, settled = log.epoch, state.settled
            if not self._ask(epoch, settled, self._begin(state)):
                return
            mine = self._at_ms, self._asked
            if not any(_order(each) < mine for each in self._others(state, epoch)):
                return
            for _ in range(_LOOKS):
                if self._asked in log.glance(waits=True).asked:
                    return
        except StorageError as e:  # it begins by itself
            _log.info("%s: nobody was asked to begin a transaction: %s", self._session.url, e)

    def __call__(self, state: LogState) -> LogEntry | None:
        """Return the entry for the next free slot, or None; then `before` or `found` is the reason.

        Raises:
            BatchLandedError: the batch is committed already.
            ConfigError: the arguments contradict the settings at that slot.
            _NeedsLockError: the table has got neighbours meanwhile.
        """
        session, claim = self._session, self._claim
        if state.settings.timeline_first and self.lease is None:
            raise _NeedsLockError
        self.before = None
        self._under(state.settings)
        if self._finds_itself(state):
            return None
        refuse_landed(session.url, state, self._batch)
        # In the same step as the begin entry, so that there is no gap between the reservation check and the snapshot.
        first = None if self._kind.service else session.reservations.first_in_the_way(state, claim)
        self.before = state.open[first.instant] if first else None
        if self.before is not None:
            return None
        mine = self._begin(state)
        # A lost slot shows that many begin now; with group commit they begin together from then on.
        crowded, self._tried = self._tried, True
        if not self._asked and not (crowded and self._gathers(state)):
            return mine
        return self._with_others(state, mine)

    @property
    def takes_lock(self) -> bool:
        """True if the lock is held, or will be for the begin."""
        return self.lease is not None or self._session.settings.timeline_first

    def append(self, follower: Follower, operation: str) -> LogEntry | None:
        """Append the entry, with neighbours under the table's lock and after an import of their commits."""
        session = self._session
        while True:
            timeline_first = session.settings.timeline_first
            if self.lease is None and timeline_first:
                self.lease = session.lease(f"beginning {operation}")
            try:
                return session.log.append(self, follower=follower, publishes=False, look=timeline_first or None)
            except _NeedsLockError:
                continue

    def release(self) -> None:
        """Give the lock back, if it is held."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()

    def leave(self) -> None:
        """Give up. After a request, others may have begun the transaction or may do so at any time, so begin it and abort."""
        if not self._asked:
            return
        session, me = self._session, self._session.env.process()
        try:
            entry = session.log.append(self._alone, publishes=False)
            begun = self.found if entry is None else entry.members[0] if isinstance(entry, GroupBegin) else None
            if begun is None:
                return
            end = End("abort", begun.instant, f"{me.host}:{me.pid}", "it could not begin")
            session.log.append(lambda state: end if end.instant in state.open else None)
        except LakeLatchError:
            _log.warning(
                "%s: who asked to begin could not end itself; the next writer does it", session.url, exc_info=True
            )
        finally:
            self.over()

    @property
    def asked(self) -> bool:
        """True if others may have begun it, or may yet."""
        return bool(self._asked)

    def over(self) -> None:
        """Delete the requests after the begin. A request left behind begins nothing, and is deleted in the next epoch."""
        paths, self._paths = self._paths, []
        if paths:
            self._session.afterwards(lambda: _delete(self._session, paths), "requests to begin stay")

    def _begin(self, state: LogState) -> Begin:
        # T is picked again at every slot tried. An earlier T could be smaller than that of a commit in our snapshot,
        # and readers take the larger T of two files of a group (trap 1).
        session, kind, claim = self._session, self._kind, self._claim
        return Begin(
            session.next_instant(state.top),
            kind.action,
            kind.hudi_name,
            session.writer,
            session.env.process(),
            priority=session.priority,
            reserved=claim.reserved,
            first=claim.age,
            asked=self._asked,
        )

    @property
    def _is_plain(self) -> bool:
        return not self._kind.service and self._claim.reserved is None

    def _gathers(self, state: LogState) -> bool:
        session = self._session
        return self._is_plain and session.far and state.settings.group_commit and not session.lock.shared_with_jvm

    def _finds_itself(self, state: LogState) -> bool:
        """Return whether another writer began it. If that begin was ended before we saw it, begin again under another id."""
        self.found = state.asked.get(self._asked)
        if self.found is not None and self.found.instant not in state.open:
            self.found, self._asked = None, ""
        return self.found is not None

    def _alone(self, state: LogState) -> LogEntry | None:
        self.found = state.asked.get(self._asked)
        return GroupBegin((self._begin(state),)) if self.found is None else None

    def _with_others(self, state: LogState, mine: Begin) -> LogEntry:
        """Return an entry that begins the requested transactions too; first put the own request, if it is not there."""
        epoch, others = self._session.log.epoch, list[BeginRequest]()
        if self._gathers(state) and self._ask(epoch, state.settled, mine):
            others = self._others(state, epoch)
        return begun_together(
            [replace(mine, asked=self._asked), *(each.begin for each in others)], self._session.env.now()
        )

    def _request(self, epoch: int, settled: int, mine: Begin) -> BeginRequest:
        if not self._asked:
            self._asked = self._session.env.uuid().replace("-", "")
            self._at_ms = int(self._session.env.now() * 1000)
        return BeginRequest(epoch, settled, self._at_ms, replace(mine, asked=self._asked, instant=EARLIEST, slot=-1))

    def _ask(self, epoch: int, settled: int, mine: Begin) -> bool:
        request = self._request(epoch, settled, mine)
        if request.path in self._paths:
            return True
        if not request.fits:
            return False
        self._paths.append(request.path)
        # Best effort: without it the next leader just does not begin us.
        with suppress(LakeLatchError):
            self._session.store.put_if_absent(request.path, b"", durable=False)
        return True

    def _others(self, state: LogState, epoch: int) -> list[BeginRequest]:
        """The requests that the entry may begin too."""
        session = self._session
        try:
            names = session.store.names(BEGINS, recursive=True)
        except LakeLatchError as e:
            _log.info("%s: requests to begin were not listed: %s", session.url, e)
            return []
        found: dict[str, BeginRequest] = {}
        old: list[str] = []
        for name in names:
            request = BeginRequest.of(name)
            if request is None:
                continue
            if takes(state, epoch, request):
                found.setdefault(request.asked, request)
            elif request.epoch < epoch:
                old.append(request.path)
        if old:
            session.afterwards(lambda: _delete(session, old), "old requests to begin stay")
        found.pop(self._asked, None)
        return sorted(found.values(), key=_order)[: MEMBERS_MAX - 1]


def begun_together(begins: Sequence[Begin], now: float) -> GroupBegin:
    """Return the entry that begins all these; the T of the first is given, and those of the others follow it."""
    members = [begins[0]]
    for each in begins[1:]:
        members.append(replace(each, instant=next_label(now, members[-1].instant)))
    return GroupBegin(tuple(members))


def takes(state: LogState, epoch: int, request: BeginRequest) -> bool:
    """Return whether a leader at this state may begin the transaction of the request."""
    # A copy, because other threads may read on.
    if any(begin.reserved for begin in list(state.open.values())):
        return False
    # Ids of earlier epochs are unknown here, so their transactions might begin twice.
    return request.epoch == epoch and request.settled == state.settled and request.asked not in state.asked


def _order(request: BeginRequest) -> tuple[int, str]:
    return request.at_ms, request.asked


def _delete(session: Session, paths: list[str]) -> None:
    for path in paths:
        session.store.delete(path)
