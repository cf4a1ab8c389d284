"""The commit of a transaction over several tables: one decision, in the log of the last of them, the home.

    t=0  take the locks in the order of the tables, validate in each; merge again or wait where that is needed, without locks
    t=1  append prepare(T, home) to every log but the home's: from here no commit goes behind it there
    t=2  append commit(T, C) to the home's log, the commit point of all
    t=3  append commit(T, C) behind each prepare entry; publish; give the locks back

A coordinator that dies before t=2 has committed nothing: the next writer of such a table ends the transaction in the
home, then in its table. After t=2 the next writer appends what is missing (`occ.session.settling`). A coordinator that gives
up ends the transaction in the home first, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ...ahead import in_order
from ...environment import ran_out
from ...errors import CommitStateUnknownError, LakeLatchError, StorageError
from ..entries import Commit, Partner, Prepare
from ..log import LogState, UndecidedError
from ..rebase import MergeAgain
from ..session import (
    CommitResult,
    TableLease,
    lost_against,
    outcome_not_everywhere,
    outcome_unknown,
    put_outcome,
)
from ..turns import InTheWay
from .landing import cover_log_files
from .yielding import merge_again, merges_under_lock, wait_for, wait_for_outcome

if TYPE_CHECKING:
    from ..workspace import Attempt, Workspace
    from .landing import Landing


class Participant(NamedTuple):
    """One table of the transaction."""

    attempt: Attempt
    workspace: Workspace
    landing: Landing


class SeveralLanding:
    """The end of one attempt over several tables.

    Args:
        participants: in the order of their URLs, which is the same for all writers; the last is the home.
    """

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._all, self._home = participants, participants[-1]
        self._several = tuple(Partner(each.attempt.url, each.attempt.instant) for each in participants)
        self._prepared: dict[str, Prepare] = {}  # by URL
        self._at = self._home  # the table that is worked on, which an error is about
        self._env = self._home.attempt.session.env
        self._at_once = len(participants) if any(each.attempt.session.far for each in participants) else 1
        self._deciding = False  # the home's entry may be in its log

    def commit(self) -> None:
        """Commit in all tables, or in none. Raises the errors of `Transaction.commit`."""
        try:
            for each in self._all:
                self._at = each
                each.workspace.changes.empty_too = True
                each.landing.ready()
            while not self._try():
                pass
        except BaseException as e:  # noqa: BLE001 - raised again
            self._give_up(e)
        for each in self._all:
            each.landing.finish()

    def _try(self) -> bool:
        """Commit; False: something had to be waited for or merged again first, and all is decided again."""
        try:
            for each in self._all:
                self._at = each
                cover_log_files(each.attempt, each.workspace, self._release)
            with ExitStack() as held:
                templates = [self._template(each) for each in self._all]
                leases = [self._lease(each, held) for each in self._all]
                self._validate(templates, leases)
                self._land(templates, leases)
        # Once a table is prepared its writers wait for us, so that we wait for nobody.
        except UndecidedError as e:
            if self._prepared:
                raise
            self._release()
            wait_for_outcome(self._at.attempt, e.prepared)
        except InTheWay as e:
            if self._prepared:
                raise lost_against(self._at.attempt, e.conflict) from None
            self._release()
            wait_for(self._at.attempt, e.conflict)
        except MergeAgain as e:
            if self._prepared:
                raise lost_against(self._at.attempt, e.conflicts[0]) from None
            if merges_under_lock(self._at.attempt, self._at.workspace):
                self._keep_locks()
            merge_again(self._at.attempt, self._at.workspace, e)
        else:
            return True
        return False

    def _template(self, each: Participant) -> Commit:
        self._at = each
        each.landing.drop_unfinished()
        each.attempt.session.log.look()  # before the lock, because it may list
        return replace(each.landing.entry(), several=self._several)

    def _lease(self, each: Participant, held: ExitStack) -> TableLease:
        self._at = each
        if each.attempt.lease is not None:
            return each.attempt.lease
        lease = each.attempt.session.lease(f"{each.attempt.operation} over {len(self._all)} tables")
        held.callback(lease.release)
        return lease

    def _validate(self, templates: Sequence[Commit], leases: Sequence[TableLease]) -> None:
        """Find what is in the way before any log is written to."""
        reads = [each.attempt.session.log.catch_up for each in self._all]
        states = list(in_order(self._env, reads, self._at_once))
        for each, state, lease, template in zip(self._all, states, leases, templates, strict=True):
            self._at = each
            if state.prepared:
                raise UndecidedError(each.attempt.url, next(iter(state.prepared.values())))
            # On a copy: other threads of the handle read on meanwhile.
            each.landing.decide(state.fork(), lease, template)

    def _keep_locks(self) -> None:
        """Take all locks, in order, and keep them to the commit, within bounds."""
        self._release()
        for each in self._all:
            session = each.attempt.session
            each.attempt.lease = session.lease(
                f"{each.attempt.operation}, merging again", max_hold_s=session.settings.lock_wait_s / 2
            )

    def _release(self) -> None:
        for each in self._all:
            each.attempt.release()

    def _land(self, templates: Sequence[Commit], leases: Sequence[TableLease]) -> None:
        """Prepare, decide, settle and publish, under the leases."""

        def decided(state: LogState, at: int) -> Commit:
            commit = self._all[at].landing.decide(state, leases[at], templates[at])
            assert isinstance(commit, Commit)
            return commit

        home = len(self._all) - 1
        for at, each in enumerate(self._all[:-1]):
            self._at = each
            entry = each.attempt.session.log.append(lambda state, at=at: Prepare(decided(state, at)))  # type: ignore[misc]
            assert isinstance(entry, Prepare)
            self._prepared[each.attempt.url] = entry
        self._at, self._deciding = self._home, True
        commit = self._home.attempt.session.log.append(lambda state: decided(state, home))
        assert isinstance(commit, Commit)
        self._home.landing.result = CommitResult(commit.instant, commit.completion, commit.slot, published=False)
        calls: list[Callable[[], object]] = [partial(self._home.landing.publish_result, commit, leases[home])]
        calls += [partial(self._settle, each) for each in self._all[:-1]]
        deque(in_order(self._env, calls, self._at_once), 0)  # they depend on the home's entry alone

    def _settle(self, each: Participant) -> None:
        """Append the outcome behind the prepare entry, and publish. The home has committed."""
        attempt, landing = each.attempt, each.landing
        session, prepared = attempt.session, self._prepared[attempt.url]
        commit = put_outcome(session, prepared, landed=True, reason="")
        if isinstance(commit, Commit):
            landing.publish_result(commit)
        else:  # by others
            completion = session.landed(attempt.instant)
            assert completion is not None, "an outcome against that of the home"
            landing.result = CommitResult(attempt.instant, completion, session.log.next_slot - 1)

    def _give_up(self, error: BaseException) -> None:
        """End the transaction in all tables and raise the error, unless the home has committed, or may have.

            t=0  X is prepared in A; its commit entry in B, the home, gets no answer
            t=1  X appends its abort entry in A; its commit entry lands in B

        So the home is ended first, and nothing is ended anywhere while its outcome is unknown.
        """
        home, at = self._home, self._at
        if isinstance(error, LakeLatchError):
            error.about(at.attempt.url)
        told, reason = at.attempt.explained(error), str(error) or type(error).__name__
        ended: bool | None = None
        if home.landing.result is None and not (self._deciding and isinstance(error, CommitStateUnknownError)):
            ended = home.landing.abort(reason, because=told if at is home else None)
            if ended is None and self._deciding:
                self._find_result()
        if home.landing.result is not None:
            self._tell_that_it_landed(error)
        if home.attempt.state == "open":
            self._leave_open(error, error)
        if ended is False and self._deciding and not isinstance(error, LakeLatchError):
            # Not an answer of the log: it may have come behind the home's entry.
            self._leave_open(error, outcome_unknown(home.attempt, error, asked=False))
        for each in self._all[:-1]:
            if each.attempt.url not in self._prepared:
                each.landing.abort(reason, because=told if each is at else None)
            elif ended is False:  # the home is still open: who finds both silent ends it there first
                each.attempt.over("aborted")
            else:
                each.attempt.abort(reason, abandon=each.workspace.abandon, settles=True)
        if isinstance(told, CommitStateUnknownError):  # about an entry that counts for nothing without the home's
            raise StorageError(
                f"{at.attempt.url}: no answer while a transaction over several tables was prepared ({told}). It has not landed "
                f"in {home.attempt.url}, which decides, so nothing of it lands; a retry is safe",
                table=at.attempt.url,
                instant=at.attempt.instant,
            ) from error
        raise at.attempt.nothing_landed(told)

    def _leave_open(self, error: BaseException, told: BaseException) -> NoReturn:
        """End as one of which nobody knows whether it has landed, and raise ``told``, an interrupt with it as a note."""
        for each in self._all:
            each.attempt.over("unknown")
        if isinstance(error, Exception):
            raise told
        error.add_note(str(told))
        raise error

    def _tell_that_it_landed(self, error: BaseException) -> NoReturn:
        """Raise the error of a transaction whose home has committed; others settle what is missing."""
        home = self._home.attempt
        for each in self._all:
            each.attempt.over("committed")
        if isinstance(error, LakeLatchError) or ran_out(error):
            raise outcome_not_everywhere(home.url, home.instant, error) from error
        error.add_note(f"{home.url}: transaction {home.instant} over several tables has landed all the same")
        raise error

    def _find_result(self) -> None:
        """Find the home's commit if it has landed although an error, such as an interrupt, came instead of the answer."""
        attempt = self._home.attempt
        completion = attempt.session.landed(attempt.instant)
        if completion is not None:
            self._home.landing.result = CommitResult(
                attempt.instant, completion, attempt.session.log.next_slot - 1, False
            )
