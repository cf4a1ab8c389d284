"""A coordinator: it begins and commits the transactions of the writers that ask it, many in one entry of the log.

    t=0  A, B and C ask to commit; the coordinator has read to slot 7
    t=1  it takes the table's lock, judges A, B and C as if each had come next, and puts commits(A, C) into slot 7
    t=2  it publishes A, and answers A; publishes C, and answers C. B was told to decide for itself

Each is judged as if its writer had come next: by its own isolation level, from its own begin slot, against the log and the
members before it. A request is answered when the entry is on disk. The log is the only authority: a coordinator may die, be
slow, or be one of two; its writers then read in the log what became of them, and others append beside it.

It takes only what it can judge as the writer itself would. It leaves out a request that would have to be merged again, a
transaction whose table settings changed since its begin, and one that began before this handle's recent commits.

Requests to begin need no lock and go in entries of their own, also while the last commits are being published.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ...ahead import Task
from ...conflict import Kind, WriteSet, kind_of
from ...errors import CommitError, LakeLatchError, LockLostError
from ...hudi.timeline import next_label
from ..coordination import ALONE_S, Answer, Question
from ..entries import (
    BeginRequest,
    Commit,
    GroupCommit,
    LogEntry,
    Request,
    echo_of,
    operation,
    singly,
    write_set_of,
)
from ..log import plain_metadata_of
from ..session import refuse_landed
from ..workspace import begun_together, takes
from .validator import CommitValidator

if TYPE_CHECKING:
    from ...conflict import ReadSet
    from ...environment import Event
    from ..entries import Operation
    from ..log import LogState
    from ..session import Session, TableLease
    from .validator import Seen

MEMBERS_MAX = 64  # of one entry
WAITING_MAX = 1024  # that wait for a round
_ENTRY_BYTES = 1 << 20  # of the requests that one entry takes
_TRIES = 3  # leases that end before the entry is appended
# Pauses before a round, while nobody or one waits, as a share of the time of the last round of commits: entries, of which
# the log takes one a request, are few, and each has several members.
_GATHERS_COMMITS, _GATHERS_BEGINS, _PAUSE_S_MAX = 0.25, 0.15, 0.25
_LEASE_S = 2.0  # the least of its leases: a coordinator that dies or is stopped keeps others waiting for as long
_GIVES_WAY_S = 1.0  # the longest that begins wait for an entry of commits
_SEEN_MAX = 8192  # landed commits whose write sets are remembered
_log = logging.getLogger("lakelatch.coordinator")


@dataclass(slots=True)
class CoordinatorWork:
    """The work of a coordinator since it started.

    Attributes:
        begun, committed: transactions; ``begin_entries``, ``commit_entries``: the entries of the log that did it.
        left_out: requests whose writers had to decide for themselves.
        unpublished: commits that have landed and are not on the timeline yet.
    """

    begun: int = 0
    begin_entries: int = 0
    committed: int = 0
    commit_entries: int = 0
    left_out: int = 0
    unpublished: int = 0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A writer that waits for its answer."""

    question: Question
    answer: Callable[[Answer | None], object]

    @property
    def bytes(self) -> int:
        """The size of its request; one to begin is small."""
        return self.question.wanted.size if isinstance(self.question.wanted, Request) else 0


class _Line:
    """Writers that wait for one kind of round, first come first served. The thread of the rounds ends when nobody waits."""

    def __init__(
        self, session: Session, round_: Callable[[Sequence[_Waiting]], None], pause_s: Callable[[], float]
    ) -> None:
        self._env, self._round, self._pause_s = session.env, round_, pause_s
        self._mutex = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._works, self.took_s = False, 0.0

    def join(self, each: _Waiting) -> bool:
        """Wait for the next round. Return False if too many do."""
        with self._mutex:
            if len(self._waiting) >= WAITING_MAX:
                return False
            self._waiting.append(each)
            starts, self._works = not self._works, True
        if starts:
            self._env.thread(self._work, name="lakelatch-coordinator")
        return True

    @property
    def length(self) -> int:
        """The number of those that wait."""
        return len(self._waiting)

    def _work(self) -> None:
        while True:
            # Writers that one round has answered ask again at one time: the first must not get the next round for itself.
            if (pause_s := self._pause_s()) and len(self._waiting) < 2:
                self._env.sleep(min(pause_s, _PAUSE_S_MAX))
            if not (some := self._next()):
                return
            began = self._env.monotonic()
            try:
                self._round(some)
            except Exception:  # noqa: BLE001 - a fault of ours must not end all rounds
                _log.exception("a round of the coordinator failed; its writers go on by themselves")
                for each in some:
                    each.answer(None)
            self.took_s = self._env.monotonic() - began if len(some) > 1 else 0.0

    def _next(self) -> list[_Waiting]:
        with self._mutex:
            some, size = list[_Waiting](), 0
            while self._waiting and len(some) < MEMBERS_MAX:
                size += self._waiting[0].bytes
                if some and size > _ENTRY_BYTES:
                    break
                some.append(self._waiting.popleft())
            self._works = bool(some)
            return some


class Coordinator:
    """The coordinator of one table, with a handle of its own. Safe to share between threads.

    Attributes:
        work: what it has done.
    """

    def __init__(self, session: Session) -> None:
        session.require_log()
        self._session, self._known = session, session.log.remember()
        self._commits = _Line(session, self._commit, lambda: _GATHERS_COMMITS * self._commits.took_s)
        self._begins = _Line(session, self._begin, lambda: _GATHERS_BEGINS * self._commits.took_s)
        self.work = CoordinatorWork()
        self._seen: Seen = {}
        self._seen_under: tuple[int, int] = (0, 0)  # epoch and settings of what was seen
        self._tried = 0  # the slot that was tried last
        self._crowded_at = session.env.monotonic()  # when several were at work (monotonic)
        self._ahead: Task[TableLease] | None = None  # a lease for the next round of commits
        self._first: Event | None = None  # set when begins may be put

    def ask(self, question: Question, answer: Callable[[Answer | None], object]) -> None:
        """Take a question; ``answer`` is called once or more, on another thread. None: ask later, or decide for yourself."""
        line = self._begins if isinstance(question.wanted, BeginRequest) else self._commits
        if not line.join(_Waiting(question, answer)):
            answer(None)

    @property
    def waiting(self) -> int:
        """The number of questions that wait for a round."""
        return self._begins.length + self._commits.length

    # --- begins ----------------------------------------------------------------------------------------------

    def _begin(self, waiting: Sequence[_Waiting]) -> None:
        session, log = self._session, self._session.log

        def build(state: LogState) -> LogEntry | None:
            if len(waiting) > 1 or any(not each.waits for each in list(state.open.values())):
                self._crowded_at = session.env.monotonic()
            if state.settings.timeline_first:
                return None
            wanted = (each.question.wanted for each in waiting)
            # One that was asked twice begins once.
            found = {
                each.asked: each for each in wanted if isinstance(each, BeginRequest) and takes(state, log.epoch, each)
            }
            if not found:
                return None
            begins = [each.begin for each in found.values()]
            begins[0] = replace(begins[0], instant=session.next_instant(state.top))
            return begun_together(begins, session.env.now())

        entry: LogEntry | None = None
        if (first := self._first) is not None:
            first.wait(_GIVES_WAY_S)
        try:
            entry = log.append(build, publishes=False, confirms=False)
        except LakeLatchError as e:
            _log.warning("%s: nobody was begun by the coordinator: %s", session.url, e)
        if entry is not None:
            self.work.begin_entries += 1
            self.work.begun += len(singly(entry))
        session.afterwards(session.look_after_others, "cleaning up after others failed", long=True)
        alone = session.env.monotonic() - self._crowded_at > ALONE_S

        def answer() -> None:
            if entry is not None:
                log.confirm(entry)  # if it does not count, nobody is told of it
            for each in waiting:
                self._tell(each, alone=alone)

        # The next round need not wait for that.
        session.env.thread(answer, name="lakelatch-coordinator-answers")

    # --- commits ---------------------------------------------------------------------------------------------

    def _commit(self, waiting: Sequence[_Waiting]) -> None:
        session = self._session
        members: Sequence[Commit] = ()
        try:
            entry = self._land(waiting)
            if entry is not None and session.log.confirm(entry):
                members = [each for each in singly(entry) if isinstance(each, Commit)]
        except LakeLatchError as e:
            _log.warning("%s: nothing was committed by the coordinator: %s", session.url, e)
        self.work.left_out += len(waiting) - len(members)
        self.work.committed += len(members)
        self.work.commit_entries += bool(members)
        self.work.unpublished = len(members)
        taken = {each.instant for each in members}
        of: dict[str, list[_Waiting]] = {}
        for each in waiting:
            assert isinstance(each.question.wanted, Request)
            of.setdefault(each.question.wanted.instant, []).append(each)
            if each.question.wanted.instant not in taken:
                self._tell(each)
        if not members:
            return
        self._go_first()
        try:
            for commit in session.log.publish_in_turn(members):
                self.work.unpublished -= 1
                for each in of.pop(commit.instant):
                    self._tell(each)
        except LakeLatchError as e:  # the next to append publishes the rest
            _log.warning("%s: commits have landed and are not on the timeline yet: %s", session.url, e)
            for commit in members:
                for each in of.pop(commit.instant, ()):
                    self._tell(each, published=False)
        if self._ahead is not None and not self._ahead.ended:
            self._let_begin()  # others hold the lock

    def _land(self, waiting: Sequence[_Waiting]) -> LogEntry | None:
        """Append one entry with the commits of all that pass, under a lease of the table's lock."""
        session, ahead, self._ahead = self._session, self._ahead, None
        try:
            for _ in range(_TRIES):
                session.log.look()
                if ahead is None and self._leaves_to_writers():
                    return None
                lease = self._lease(f"committing for {len(waiting)}") if ahead is None else ahead.take()
                ahead = None
                try:
                    if self._leaves_to_writers():  # since it was taken
                        return None
                    with suppress(LockLostError):
                        return session.log.append(partial(self._entry, lease, waiting), look=False, confirms=False)
                finally:
                    session.afterwards(lease.release, "the lock could not be given back")
            return None
        finally:
            self._let_begin()

    def _leaves_to_writers(self) -> bool:
        session = self._session
        return bool(session.settings.timeline_first or session.lock.shared_with_jvm)

    def _lease(self, why: str) -> TableLease:
        return self._session.lease(why, lease_s=max(_LEASE_S, self._session.settings.coordinator_patience_s))

    def _go_first(self) -> None:
        """Take the lock for those that wait already, and have begins wait for their entry.

        t=0  an entry is published: the writers that it answers ask to begin, while others have been waiting to commit
        t=1  a begin takes the next slot of the log, and the commits wait for a request to the store, and so does the next begin
        """
        if self._commits.length and self._session.log.publishes_at_once:  # else publication takes long
            self._first = self._session.env.event()
            self._ahead = Task(self._session.env, partial(self._lease, "committing for others"))

    def _let_begin(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first.set()

    def _entry(self, lease: TableLease, waiting: Sequence[_Waiting], state: LogState) -> LogEntry | None:
        session, slot = self._session, self._session.log.next_slot
        token, members, trial = lease.token_at(state), list[Commit](), state.fork()
        self._forget(state, slot)
        for wanted in (each.question.wanted for each in waiting):
            assert isinstance(wanted, Request)
            try:
                found = _judged(session, wanted, trial, members, token, self._seen)
            except LakeLatchError as e:  # concerns this request alone, such as a side object that is gone
                _log.info("%s: the request of %s is passed over: %s", session.url, wanted.instant, e)
                continue
            if found is not None:
                members.append(replace(found, slot=slot, place=len(members)))
                trial.apply(members[-1])
        return None if not members else GroupCommit(tuple(members)) if len(members) > 1 else members[0]

    def _forget(self, state: LogState, slot: int) -> None:
        """Forget what was judged at a slot that others have taken, and all of another log or under other settings.

        t=0  A and B are judged for slot 7, B behind A, whose write set is kept as that of (7, 0)
        t=1  another writer's entry takes slot 7, and B is judged again for slot 8: against that entry, not against A
        """
        under = self._session.log.epoch, state.settled
        if under != self._seen_under or len(self._seen) > _SEEN_MAX:
            self._seen_under, self._seen = under, {}
        for where in [each for each in self._seen if each[0] >= self._tried]:
            del self._seen[where]
        self._tried = slot

    def _tell(self, each: _Waiting, *, published: bool = True, alone: bool = False) -> None:
        each.answer(Answer(self._known.since(each.question.slot), published, alone))


def _judged(
    session: Session,
    asked: Request,
    state: LogState,
    members: Sequence[Commit],
    token: int,
    seen: Seen,
) -> Commit | None:
    """Return the request's commit, placed behind those members; None if its writer must decide for itself.

    ``state``: the log, and the members. ``seen``: see `CommitValidator`.
    """
    begin, landed = state.open.get(asked.instant), session.log.recent.since(asked.base)
    if begin is None or landed is None or begin.slot != asked.base or begin.plan is not None:
        return None
    # C is not known yet. The begin time stands in, because a commit without a completion time has no name.
    template = replace(asked.commit, completion=asked.instant)
    label, announced = template.operation, begin.operation
    told = label == announced or (announced == "UPSERT" and label in ("INSERT", "DELETE"))  # `Staged.label`
    if state.settled > asked.base or not told or template.writer != begin.writer:
        return None
    try:
        refuse_landed(session.url, state, template.batch)
        writes = write_set_of(session.store, template, plain_metadata_of(session.store, template))
        changes = _Requested(asked, writes, streams=bool(state.settings.streams))
    except (CommitError, KeyError, TypeError, ValueError):
        return None
    validator = CommitValidator(
        session.store,
        changes,
        state.settings,
        isolation=asked.isolation,
        priority=begin.priority,
        counts=session.reservations.counts,
        seen=seen,
    )
    later = [*landed, *members]
    decision = validator.decide(state, asked.instant, later, began=asked.began, wanted=asked.wanted, since=asked.since)
    if not decision.commits:
        return None
    schema = decision.schema
    now = session.env.now()
    echo, top = echo_of(asked.instant, schema, later, now, state.top)
    entry = template.placed(completion=next_label(now, top), token=token, schema=schema, echo=echo)
    return entry if session.log.can_publish(entry) else None


class _Requested:
    """The changes of a request, in the form that `CommitValidator` expects."""

    def __init__(self, request: Request, writes: WriteSet, *, streams: bool) -> None:
        self.operation: Operation = operation(request.commit.operation.lower())
        self._reads, self._writes = request.reads, writes
        # Rows of a table with streams are events, unless they replace all.
        self.streams_only = streams and kind_of(request.commit.operation) is not Kind.OVERWRITE
        # only asked for when the settings differ from those at begin; such requests are left out
        self.placed_by = ()

    def write_set(self) -> WriteSet:
        """The file groups created, changed or replaced, and the region claimed."""
        return self._writes

    def read_set(self) -> ReadSet:
        """The data that the result depends on."""
        return self._reads
