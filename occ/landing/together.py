"""Commits that wait land together: the holder of the lock commits for those who wait for it, in one entry of the log.

    leader   holds the lock, has read to slot 7; finds requests of A and B      A, B   wait for the lock
             A overlaps with nothing since A's begin: taken
             B overlaps with A: left out
             puts commits(leader, A) into slot 7, gives the lock back           A      gets the lock, reads slot 7: landed
                                                                                B      gets it, decides on its own: it has lost

Each member is judged as if its writer had come next: by its own isolation level, from its own begin slot, against the log and the
members before it. What becomes of it is said by the log alone, and nobody tells it but its own look at the log.

A leader takes only what it can judge as its writer would. Not what would have to be merged again, not a transaction since whose
begin the settings have changed, and none that began before what this handle remembers of the log: these commit by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...conflict import Conflict, Verdict, WriteSet
from ...errors import CommitError, LakeLatchError
from ...hudi.timeline import next_label
from ..entries import REQUEST_BYTES, Commit, GroupCommit, Request, echo_of, operation, write_set_of
from ..log import LogState, plain_metadata_of
from ..session import refuse_landed
from .requests import put_request, read_requests
from .validator import CommitValidator

if TYPE_CHECKING:
    from ...conflict import ReadSet
    from ..entries import Operation
    from ..session import Session
    from ..workspace import Attempt, Workspace

_log = logging.getLogger("lakelatch.transaction")


class Waiter:
    """The wait of one attempt for the table's lock, with its request.

    Attributes:
        waited: the lock was busy when it was asked for last, so others may wait for it as well.
        asked: a request of this attempt may stand beside the log or in memory, so that others may land it.
    """

    def __init__(self, attempt: Attempt, workspace: Workspace, isolation: str | None) -> None:
        self._attempt, self._workspace, self._isolation = attempt, workspace, isolation
        self._line = attempt.session.in_line
        self._paths: list[str] = []
        self._sent: list[str] = []
        self._unsent: tuple[str, bytes] | None = None  # in memory only, as long as others of the handle go first
        self.waited = self.asked = False
        self._template: Commit | None = None

    def begin(self, template: Commit) -> None:
        """The lock is about to be asked for, for this commit."""
        self.waited, self._template = False, template
        self._line.enter(self._attempt.instant)

    def ends(self) -> None:
        """It waits no longer, and does not hold the lock."""
        self._line.leave(self._attempt.instant)

    def __call__(self) -> bool:
        """Called while the lock is busy: the first time a request is put. Then whether there is nothing to wait for any more."""
        attempt = self._attempt
        try:
            if not self.waited:
                self.waited = True
                self._ask()
                return False
            if attempt.instant not in attempt.session.log.glance(waits=True).open:
                return True
            self._send()
            return False
        except (LakeLatchError, ValueError, TypeError) as e:  # it waits on, as without
            _log.info("%s: %s waits for the lock: %s", attempt.url, attempt.instant, e)
            return False

    def _ask(self) -> None:
        attempt, rebase, template = self._attempt, self._workspace.rebase, self._template
        assert template is not None
        changes = self._workspace.changes
        request = Request(
            template,
            len(self._paths),
            attempt.begin_slot,
            rebase.slot if rebase else attempt.begin_slot,
            changes.read_set(),
            self._isolation,
            attempt.schema_text,
            self._workspace.schema_text,
        )
        body = request.to_bytes()
        if len(body) > REQUEST_BYTES:
            return
        self.asked = True
        self._paths.append(request.path)
        self._unsent = request.path, body
        self._line.ask(replace(request, size=len(body)))
        self._send()

    def _send(self) -> None:
        """Beside the log, for other processes, unless another thread of this handle comes to the lock before."""
        if self._unsent is not None and self._line.is_first(self._attempt.instant):
            (path, body), self._unsent = self._unsent, None
            self._sent.append(path)
            put_request(self._attempt.session.store, path, body)

    def over(self) -> None:
        """Its outcome is known: its requests go."""
        for path in self._paths:
            self._line.withdraw(path)
        session, sent = self._attempt.session, self._sent
        if sent:  # nobody is misled by one that stays; whoever sweeps after this transaction removes it
            session.afterwards(lambda: _delete(session, sent), "requests stay")


def _delete(session: Session, paths: list[str]) -> None:
    for path in paths:
        try:
            session.store.delete(path)
        except LakeLatchError:
            _log.debug("request %s stays", path, exc_info=True)


class Gathered:
    """What a leader found to be asked of it under one lease."""

    def __init__(self, session: Session, own: str) -> None:
        self._session, self._own = session, own
        self._requests: list[Request] | None = None

    def with_others(self, state: LogState, mine: Commit) -> Commit | GroupCommit:
        """The entry for the next free slot: the leader's own commit, and behind it those of others that may land now."""
        session, slot = self._session, self._session.log.next_slot
        try:
            if self._requests is None:
                newest = state.newest[0] if state.newest else None
                wanted = state.open.keys() - {self._own}
                self._requests = read_requests(
                    session.store, session.env, wanted, newest, session.in_line.asked(wanted)
                )
            if not self._requests:
                return mine
            members = [replace(mine, slot=slot)]  # as they will stand in that slot
            trial = state.fork()
            trial.apply(members[0])
            for each in self._requests:
                try:
                    found = self._judged(each, trial, members)
                except LakeLatchError as e:  # of this one alone, as a side object that is gone
                    _log.info("%s: the request of %s is passed over: %s", session.url, each.instant, e)
                    continue
                if found is not None:
                    members.append(replace(found, slot=slot, place=len(members)))
                    trial.apply(members[-1])
        except LakeLatchError as e:
            _log.info("%s: %s commits for nobody else: %s", session.url, self._own, e)
            return mine
        return GroupCommit(tuple(members)) if len(members) > 1 else mine

    def _judged(self, asked: Request, state: LogState, members: Sequence[Commit]) -> Commit | None:
        """The commit of that request behind those members; None when it may not land, or its writer has to see to it."""
        session, begin = self._session, state.open.get(asked.instant)
        landed = session.log.recent.since(asked.base)
        if begin is None or landed is None or begin.slot != asked.base or begin.plan is not None:
            return None
        # C is not known yet, and without one it has no name.
        template = replace(asked.commit, completion=asked.instant)
        label, announced = template.operation, begin.operation
        told = label == announced or (announced == "UPSERT" and label in ("INSERT", "DELETE"))  # `Staged.label`
        if state.settled > asked.base or not told or template.writer != begin.writer:
            return None
        try:
            refuse_landed(session.url, state, template.batch)
            changes = Requested(
                asked, write_set_of(session.store, template, plain_metadata_of(session.store, template))
            )
        except (CommitError, KeyError, TypeError, ValueError):
            return None
        validator = CommitValidator(
            session.store,
            changes,
            state.settings,
            isolation=asked.isolation,
            priority=begin.priority,
            counts=session.reservations.counts,
        )
        later = [*landed, *members]
        schema = validator.decide(
            state, asked.instant, later, began=asked.began, wanted=asked.wanted, since=asked.since
        )
        if isinstance(schema, Conflict | Verdict):
            return None
        now = session.env.now()
        echo, top = echo_of(asked.instant, schema, later, now, state.top)
        entry = template.placed(completion=next_label(now, top), token=members[0].token, schema=schema, echo=echo)
        return entry if session.log.can_publish(entry) else None


class Requested:
    """The changes of a request, as `CommitValidator` asks for them."""

    def __init__(self, request: Request, writes: WriteSet) -> None:
        self.operation: Operation = operation(request.commit.operation.lower())
        self._reads, self._writes = request.reads, writes

    def write_set(self) -> WriteSet:
        """File groups created, changed or replaced, and the region claimed."""
        return self._writes

    def read_set(self) -> ReadSet:
        """What the result depends on."""
        return self._reads
