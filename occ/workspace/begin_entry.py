"""Build the begin entry of one transaction for every slot tried; and one entry for several that asked a coordinator.

A request to a coordinator is a hint; the log alone says which transactions have begun. A transaction begins at most once:

- The entry names the id of each request, also if its writer appends it, and a coordinator skips ids it has read. It remembers
  the ids of this epoch, so a request counts only in the epoch that it names; the first entry of the next one names the open
  ones.
- A writer that gives up aborts, because a coordinator may begin it at any time: it begins, unless it has begun, and appends
  its abort entry. If that fails now, what was begun is found silent and rolled back, as after a crash.

A coordinator skips requests made under other settings, and all requests while any transaction holds a reservation.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import LakeLatchError
from ...hudi.timeline import EARLIEST, next_label
from ..coordination import ALONE_S, Question
from ..entries import Begin, BeginRequest, End, GroupBegin, LogEntry
from ..log import Follower, LogState
from ..session import refuse_landed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...conflict import Claim
    from ..entries import Batch, Operation, Settings
    from ..session import Session, TableLease

_log = logging.getLogger("lakelatch.transaction")


class _NeedsLockError(Exception):
    """The begin entry needs the table's lock."""


class BeginEntry:
    """The builder passed to `CommitLog.append`.

    Attributes:
        before: the open transaction to wait for, if that is why nothing was built.
        found: our own begin, if a coordinator's entry contains it.
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
        self._asked = ""  # the id of the request; "" without one

    def ask(self) -> Follower | None:
        """Let the handle's coordinator begin it, if it has one.

        Return what follows the commits since; None if it has not begun. One that was not heard may begin it later.
        """
        session, log = self._session, self._session.log
        coordinator, state = session.asks, log.state
        if coordinator is None or self.takes_lock or self._kind.service or self._claim.reserved is not None:
            return None
        self._under(state.settings)
        self._asked = self._asked or session.env.uuid().replace("-", "")
        wanted = BeginRequest(log.epoch, state.settled, replace(self._begin(state), instant=EARLIEST))
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
        return GroupBegin((mine,)) if self._asked else mine

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
        """Give up. A coordinator that was asked may have begun it, or may do so at any time, so begin it and abort."""
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

    @property
    def asked(self) -> bool:
        """True if a coordinator may have begun it, or may yet."""
        return bool(self._asked)

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

    def _finds_itself(self, state: LogState) -> bool:
        """Return whether a coordinator began it. If that begin was ended before we saw it, begin again under another id."""
        self.found = state.asked.get(self._asked)
        if self.found is not None and self.found.instant not in state.open:
            self.found, self._asked = None, ""
        return self.found is not None

    def _alone(self, state: LogState) -> LogEntry | None:
        self.found = state.asked.get(self._asked)
        return GroupBegin((self._begin(state),)) if self.found is None else None


def begun_together(begins: Sequence[Begin], now: float) -> GroupBegin:
    """Return the entry that begins all these; the T of the first is given, and those of the others follow it."""
    members = [begins[0]]
    for each in begins[1:]:
        members.append(replace(each, instant=next_label(now, members[-1].instant)))
    return GroupBegin(tuple(members))


def takes(state: LogState, epoch: int, request: BeginRequest) -> bool:
    """Return whether a coordinator at this state may begin the transaction of the request."""
    # A copy, because other threads may read on.
    if any(begin.reserved for begin in list(state.open.values())):
        return False
    # Ids of earlier epochs are unknown here, so their transactions might begin twice.
    return request.epoch == epoch and request.settled == state.settled and request.asked not in state.asked
