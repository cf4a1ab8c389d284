"""Group commit: the holder of the lock also commits for writers waiting for it, in one log entry.

    leader   holds the lock, has read to slot 7; finds requests of A and B      A, B   wait for the lock
             A overlaps with nothing since A's begin: taken
             B overlaps with A: left out
             puts commits(leader, A) into slot 7, gives the lock back           A      gets it, reads slot 7: committed
                                                                                B      gets it, decides, has lost

Each member is judged as if its writer had come next: by its own isolation level, from its own begin slot, against the
log and the members before it. Only the log says what became of a member; each member reads it there.

A leader takes only what it can judge as the writer itself would. It leaves out a request that would have to be merged
again, a transaction whose table settings changed since its begin, and one that began before this handle's recent
commits. Their writers commit by themselves.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...conflict import WriteSet
from ...errors import CommitError, LakeLatchError
from ...hudi.timeline import next_label
from ..coordination import Question
from ..entries import REQUEST_BYTES, Commit, GroupCommit, Request, echo_of, operation, write_set_of
from ..log import LogState, plain_metadata_of
from ..session import refuse_landed
from .requests import put_request, read_requests
from .validator import CommitValidator, Seen

if TYPE_CHECKING:
    from ...conflict import ReadSet
    from ..coordination import Answer
    from ..entries import Operation
    from ..session import Session
    from ..workspace import Attempt, Workspace

_AT_SLOT = frozenset(("C", "token", "schema", "echo"))  # fields of a commit that are known only at its slot
_log = logging.getLogger("lakelatch.transaction")


def request_of(attempt: Attempt, workspace: Workspace, template: Commit, isolation: str | None, number: int) -> Request:
    """Return the request to commit what is staged; ``number`` tells it from others of the attempt."""
    rebase = workspace.rebase
    return Request(
        template,
        number,
        attempt.begin_slot,
        rebase.slot if rebase else attempt.begin_slot,
        workspace.changes.read_set(),
        isolation,
        attempt.schema_text,
        workspace.schema_text,
    )


def is_what_was_asked(commit: Commit, asked: Commit) -> bool:
    """Return whether a commit of the log has the content of a prepared one.

    t=0  W asks for its commit; a hostile process asks for another one under W's T, of files that it has made up
    t=1  a leader takes that one, which overlaps with nothing
    t=2  W reads that its T is committed, and its own files are in no commit
    """
    given, wanted = (
        {name: value for name, value in each.fields().items() if name not in _AT_SLOT} for each in (commit, asked)
    )
    return given == wanted or json.loads(json.dumps(given)) == json.loads(json.dumps(wanted))


class GroupCommitFollower:
    """The wait of one attempt for the table's lock, with its request.

    Attributes:
        waited: the lock was busy at the last acquire, so other writers may be waiting too.
        asked: the commits that others were asked for, beside the log, in memory or by a message, and may append.
    """

    def __init__(self, attempt: Attempt, workspace: Workspace, isolation: str | None) -> None:
        self._attempt, self._workspace, self._isolation = attempt, workspace, isolation
        self._line = attempt.session.in_line
        self._paths: list[str] = []
        self._sent: list[str] = []
        # in memory only, as long as other threads of the handle are ahead in line
        self._unsent: tuple[str, bytes] | None = None
        self.waited, self.asked = False, list[Commit]()
        self._template: Commit | None = None

    def ask_coordinator(self, template: Commit) -> Answer | None:
        """Ask the handle's coordinator for this commit; None if nothing was asked or heard."""
        attempt = self._attempt
        session = attempt.session
        request = request_of(attempt, self._workspace, template, self._isolation, len(self.asked))
        if session.coordinator is None or len(request.to_bytes()) > REQUEST_BYTES:
            return None
        self.asked.append(template)
        return session.coordinator.ask(
            Question(session.log.next_slot, request), session.settings.coordinator_patience_s
        )

    def begin(self, template: Commit) -> None:
        """Prepare to ask for the lock, for this commit."""
        self.waited, self._template = False, template
        self._line.enter(self._attempt.instant)

    def ends(self) -> None:
        """Leave the line: the attempt no longer waits and does not hold the lock."""
        self._line.leave(self._attempt.instant)

    def __call__(self) -> bool:
        """Called while the lock is busy. Put a request at the first call; later return True once waiting is pointless."""
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
        except (LakeLatchError, ValueError, TypeError) as e:  # it waits on, as it would without a request
            _log.info("%s: %s waits for the lock: %s", attempt.url, attempt.instant, e)
            return False

    def _ask(self) -> None:
        assert self._template is not None
        request = request_of(self._attempt, self._workspace, self._template, self._isolation, len(self._paths))
        body = request.to_bytes()
        if len(body) > REQUEST_BYTES:
            return
        self.asked.append(self._template)
        self._paths.append(request.path)
        self._unsent = request.path, body
        self._line.ask(replace(request, size=len(body)))
        self._send()

    def _send(self) -> None:
        """Put the request beside the log for other processes, unless another thread of this handle is ahead in line."""
        if self._unsent is not None and self._line.is_first(self._attempt.instant):
            (path, body), self._unsent = self._unsent, None
            self._sent.append(path)
            put_request(self._attempt.session.store, path, body)

    def over(self) -> None:
        """Remove the requests; the outcome is known."""
        for path in self._paths:
            self._line.withdraw(path)
        session, sent = self._attempt.session, self._sent
        if sent:  # a request left behind misleads nobody; the sweep after this transaction removes it
            session.afterwards(lambda: _delete(session, sent), "requests stay")


def _delete(session: Session, paths: list[str]) -> None:
    for path in paths:
        try:
            session.store.delete(path)
        except LakeLatchError:
            _log.debug("request %s stays", path, exc_info=True)


class GroupCommitBatch:
    """The requests that a leader finds under one lease."""

    def __init__(self, session: Session, own: str) -> None:
        self._session, self._own = session, own
        self._requests: list[Request] | None = None

    def with_others(self, state: LogState, mine: Commit) -> Commit | GroupCommit:
        """Return the entry for the next free slot: the leader's commit, then the commits of others that may be in it."""
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
            members = [replace(mine, slot=slot)]  # numbered as they will stand in that slot
            trial = state.fork()
            trial.apply(members[0])
            take_in(session, self._requests, trial, members, slot=slot, token=mine.token)
        except LakeLatchError as e:
            _log.info("%s: %s commits for nobody else: %s", session.url, self._own, e)
            return mine
        return GroupCommit(tuple(members)) if len(members) > 1 else mine


def take_in(
    session: Session,
    requests: Sequence[Request],
    trial: LogState,
    members: list[Commit],
    *,
    slot: int,
    token: int,
    seen: Seen | None = None,
) -> None:
    """Add the requests that may commit to the members of that slot's entry, and to the state that they make."""
    for each in requests:
        try:
            found = _judged(session, each, trial, members, token, seen)
        except LakeLatchError as e:  # concerns this request alone, such as a side object that is gone
            _log.info("%s: the request of %s is passed over: %s", session.url, each.instant, e)
            continue
        if found is not None:
            members.append(replace(found, slot=slot, place=len(members)))
            trial.apply(members[-1])


def _judged(
    session: Session,
    asked: Request,
    state: LogState,
    members: Sequence[Commit],
    token: int,
    seen: Seen | None = None,
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
        changes = Requested(asked, write_set_of(session.store, template, plain_metadata_of(session.store, template)))
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


class Requested:
    """The changes of a request, in the form that `CommitValidator` expects."""

    def __init__(self, request: Request, writes: WriteSet) -> None:
        self.operation: Operation = operation(request.commit.operation.lower())
        self._reads, self._writes = request.reads, writes
        # only asked for when the settings differ from those at begin; such requests are left out
        self.streams_only = False

    def write_set(self) -> WriteSet:
        """The file groups created, changed or replaced, and the region claimed."""
        return self._writes

    def read_set(self) -> ReadSet:
        """The data that the result depends on."""
        return self._reads
