"""How an attempt lands, or ends without: lock, decide, append, publish. This file is the protocol.

    write    a marker before every data file; one name for each (file group, T), created exclusively
             (at both ends: whoever outranks us and has reserved the place is waited for, without the lock)
    commit   take the lock; read the log to its head, with the newest commit published;
             rolled back meanwhile? a candidate in our way? lease still held?
             only outdated merges in our way: give the lock back, merge again (`occ.rebase`), all of this again
             append commit(T, C): the one moment that counts; slot taken: all of this again
             (where the lock was busy, others wait for it with their commits ready: these go into the same entry, `together`)
             publish; give the lock back; remove markers and heartbeat

Begin and abort are those of the attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...conflict import Conflict, Verdict
from ...errors import (
    CommitError,
    CommitStateUnknownError,
    ConflictError,
    LakeLatchError,
    LockLostError,
    LockTimeoutError,
    RolledBackError,
)
from ...hudi.timeline import next_label, to_epoch_ms
from ...tracing import step
from ..entries import Commit, GroupCommit, LogEntry, Loss, echo_of
from ..liveness import delete_announced, list_markers
from ..log import LogState, attach
from ..rebase import MergeAgain
from ..session import CommitResult, log_made_anew, lost_against, outcome_unknown, refuse_landed
from ..turns import InTheWay
from .requests import is_flushed, note_flushed
from .together import Gathered, Waiter
from .yielding import merge_again, wait_for

if TYPE_CHECKING:
    from ..session import TableLease
    from ..staging import Staged
    from ..workspace import Attempt, Workspace
    from .validator import CommitValidator

_log = logging.getLogger("lakelatch.transaction")


class Landing:
    """The end of one attempt.

    Args:
        entry: gives the commit entry, but for what is only known at its slot; otherwise what is staged.
        decided: it was decided when it was planned, so that nothing that has landed since is in its way.
        looks_now: for commits past the log, whenever it looked last.

    Attributes:
        result: once it has landed.
        appended: whether this attempt appended its commit entry, and not another execution of the same plan.
    """

    def __init__(
        self,
        attempt: Attempt,
        workspace: Workspace,
        validator: CommitValidator,
        *,
        entry: Callable[[], Commit] | None = None,
        decided: bool = False,
        looks_now: bool = False,
    ) -> None:
        self._attempt, self._workspace, self._validator = attempt, workspace, validator
        self._entry = entry or (lambda: staged_entry(attempt, workspace.changes))
        self._decided, self._looks_now = decided, looks_now
        # Plans are executed by several at once, and commit by themselves.
        self._waiter = None if entry else Waiter(attempt, workspace, validator.level)
        self._gathered: Gathered | None = None
        self._theirs: Commit | None = None  # ours, in an entry that somebody else has appended
        self.result: CommitResult | None = None
        self.appended = False

    def commit(self) -> CommitResult | None:
        """Land, and return how. None when nothing was staged, or others have done the same meanwhile.

        Errors are those of `Transaction.commit`.
        """
        self._attempt.require_open()
        try:
            return self._ended_well()
        except BaseException as e:
            if self.result is not None:  # an interrupt in the little that is left to do then
                self._tell_that_it_landed(e)
            raise

    def _ended_well(self) -> CommitResult | None:
        attempt = self._attempt
        try:
            if not self._try():
                return None
        except CommitStateUnknownError as e:
            attempt.trace.failed(e)
            attempt.over("unknown")
            raise
        except BaseException as e:  # noqa: BLE001 - it is raised unless all has landed
            self._give_up(e)
        finally:
            if self._waiter is not None and attempt.state != "unknown":
                self._waiter.over()
        if self.result is not None:
            attempt.trace.tell(completion=self.result.completion, slot=self.result.slot)
        record = attempt.session.records.get(attempt.instant)
        if attempt.state == "open":
            attempt.over("committed")
        sweep = partial(
            attempt.session.cleaner.sweep_landed,
            attempt.instant,
            self._workspace.changes.paths(),
            known=record.markers if record is not None and record.complete else None,
        )
        # It has landed; the next cleaning finds what is left.
        attempt.session.afterwards(sweep, f"commit {attempt.instant} has landed but its markers are still there")
        attempt.session.landed_one()
        return self.result

    def _try(self) -> bool:
        """Land; False: there is nothing to land."""
        attempt, workspace, changes = self._attempt, self._workspace, self._workspace.changes
        workspace.close_files()
        attempt.arrived()
        if workspace.failed:
            raise CommitError(
                f"{attempt.url}: a write of {attempt.instant} failed half-way ({workspace.failed}), and a file of it may "
                "appear late; nothing landed. Run the transaction again",
                table=attempt.url,
                instant=attempt.instant,
            )
        if changes.empty:
            self.abort("nothing to commit")
            return False
        workspace.refuse_unclaimed()
        workspace.check_constraints()
        if changes.moves:
            attempt.announce_as("replacecommit")
        with attempt.trace.within():
            landed = self._land_or_rebase()
            self._bring_to_disk()
            return landed

    def _give_up(self, error: BaseException) -> None:
        """End it, and raise the error, unless somebody who had been asked to has landed it already.

            t=0  W waits for the lock, with its request beside the log; its patience ends
            t=1  the holder's entry lands, with W among its members
            t=2  W wants to append its abort entry, and reads that it has landed

        So its files are deleted only behind an abort entry of its own. Could that not be written, then it may still land.
        An interrupt may come at any moment, also when its entry is in the log; it is raised whatever became of that.
        """
        attempt = self._attempt
        asked, interrupted = self._waiter is not None and self._waiter.asked, not isinstance(error, Exception)
        ended = self.abort(str(error) or type(error).__name__, because=error)
        if ended:
            attempt.tell_that_nothing_landed(error)
        if ended or not (asked or interrupted):
            raise error
        attempt.state = "unknown"
        try:
            if ended is False:
                raise outcome_unknown(attempt, error, asked=asked) from error
            found = self._landed()
        except CommitStateUnknownError as e:
            if not interrupted:
                raise
            error.add_note(str(e))
            raise error from None
        if found is None:
            attempt.state = "aborted"
            raise error
        self._bring_to_disk()
        attempt.state, self.result = "committed", found
        if interrupted:
            raise error
        _log.warning("%s has landed all the same, by the entry of another writer: %s", attempt.instant, error)

    def _tell_that_it_landed(self, error: BaseException) -> None:
        attempt, result = self._attempt, self.result
        assert result is not None
        error.add_note(
            f"{attempt.url}: {attempt.operation} {attempt.instant} has landed all the same, at {result.completion}"
        )

    def abort(self, reason: str, *, because: BaseException | None = None) -> bool | None:
        """End without landing; does nothing when it is over already. Returns what `Attempt.abort` does.

        Args:
            reason: stored in the log.
            because: the error that ended it; of a `ConflictError` the log keeps what `Table.why` tells.
        """
        if because is not None:
            self._attempt.trace.failed(because)
        lost = self._loss(because) if isinstance(because, ConflictError) and self._attempt.state == "open" else None
        return self._attempt.abort(reason, abandon=self._workspace.abandon, lost=lost)

    def _loss(self, error: ConflictError) -> Loss:
        attempt, workspace, session = self._attempt, self._workspace, self._attempt.session
        rebase = workspace.rebase
        lost = Loss.of(
            error.details,
            workspace.changes.write_set(),
            workspace.changes.read_set(),
            isolation=self._validator.isolation(session.settings),
            took_s=max(session.env.now() - to_epoch_ms(attempt.instant) / 1000, 0.0),
            rounds=rebase.round if rebase else 0,
            merges=rebase is not None,
        )
        return lost.with_files(workspace.changes.stats).bounded(attempt.lost_on)

    def leave(self, error: BaseException | None) -> None:
        """The block in which it was worked on is over: commit, or abort after an error."""
        if error is not None:
            if self.abort(f"{type(error).__name__} in the block", because=error):
                self._attempt.tell_that_nothing_landed(error)
        elif self._attempt.state == "open":
            self.commit()

    def _land_or_rebase(self) -> bool:
        """Landed, after waiting for whom goes first, and merging again what others changed; False: nothing is left."""
        while True:
            self._drop_unfinished()
            try:
                self._land()
            except InTheWay as e:
                self._attempt.release()  # nobody waits with the lock in hand
                wait_for(self._attempt, e.conflict)
            except MergeAgain as e:
                merge_again(self._attempt, self._workspace, e)
                if self._workspace.changes.empty:
                    self.abort("others have done the same meanwhile")
                    return False
            else:
                return True

    def _land(self) -> None:
        """Lock, decide, append, publish. Takes the lock again when the lease ends before the entry is in."""
        session, schema = self._attempt.session, self._attempt.schema_text  # before the lock: it may list the table
        session.log.look()
        entry = self._entry()
        expected = entry.placed(completion="", token=0, schema=self._workspace.schema_text or schema)
        try:
            with session.log.ready(expected):
                self._land_as(entry)
        finally:
            if self._waiter is not None:
                self._waiter.ends()

    def _land_as(self, template: Commit) -> None:
        attempt, session = self._attempt, self._attempt.session
        give_up = session.env.monotonic() + session.settings.lock_wait_s
        while True:
            try:
                lease = self._lease(template)
            except LockTimeoutError:
                if self._by_others():
                    return
                # Who was rolled back waits no longer, and the lock is not to blame.
                attempt.require_in(session.log.state)
                raise
            try:
                if self._by_others():
                    return
                # Everything in `decide` runs under the lease and again at every slot tried.
                with step("append"):
                    entry = session.log.append(
                        lambda state, lease=lease: self._decide(state, lease, template),  # type: ignore[misc]
                        look=self._looks_now,
                    )
                assert isinstance(entry, Commit | GroupCommit)
                members = entry.members if isinstance(entry, GroupCommit) else (entry,)
                entry = members[0]
                if len(members) > 1:
                    session.in_line.has_flushed(entry)
                    note_flushed(session.store, entry)
                self.appended = True
                with step("publish"):
                    published = self._publish(entry)
                self.result = CommitResult(attempt.instant, entry.completion, entry.slot, published)
                if published and len(members) > 1 and session.far:
                    # Each would wait for those before it, and the next holder of the lock for all. They may do it all the same.
                    rest = partial(session.log.publish_behind, members)
                    session.afterwards(
                        rest, "commits that have landed with ours are not on the timeline yet", long=True
                    )
                return
            except RolledBackError:
                # Not open any more, which is also how our own commit looks whose reply was lost (trap 20).
                self.result = self._landed()
                if self.result is None:
                    raise
                return
            except LockLostError as e:
                attempt.release()
                if session.env.monotonic() >= give_up:
                    raise
                _log.warning("%s has not landed yet: %s", attempt.instant, e)
            finally:
                if lease is not attempt.lease:
                    lease.release()

    def _lease(self, template: Commit) -> TableLease:
        """The table's lock; none for events of streams, which conflict with nothing that would be worth waiting for."""
        attempt, session, waiter = self._attempt, self._attempt.session, self._waiter
        self._gathered = None
        if self._workspace.streams_only and (free := session.lock.free()):
            return free
        if waiter is None or not session.settings.group_commit or session.lock.shared_with_jvm:
            return attempt.lease or session.lease(attempt.operation)
        waiter.begin(template)
        lease = attempt.lease or session.lease(attempt.operation, waiting=waiter)
        if waiter.waited or lease is attempt.lease:  # others may be waiting
            self._gathered = Gathered(session, attempt.instant)
        return lease

    def _by_others(self) -> bool:
        """Whether somebody else has landed it, as it had asked for."""
        session = self._attempt.session
        if self._waiter is not None and self._waiter.asked and self._attempt.instant not in session.log.glance().open:
            session.log.catch_up()
            self.result = self._told()
        return self.result is not None

    def _told(self) -> CommitResult | None:
        """How it has landed, if that was not long ago."""
        found = self._attempt.session.log.recent.find(self._attempt.instant)
        if found is None:
            return None
        self._theirs = found if found.place else None
        return CommitResult(found.instant, found.completion, found.slot, self._publish(found))

    def _bring_to_disk(self) -> None:
        """What is told to have landed survives a power cut, also where it was somebody else who put it into the log."""
        if (theirs := self._theirs) is None:
            return
        session = self._attempt.session
        first = session.log.recent.first_of(theirs)
        if not session.in_line.is_flushed(first) and not is_flushed(session.store, session.env, first):
            session.log.secure(theirs)

    def _landed(self) -> CommitResult | None:
        """How it has landed that is not open any more; None: it has not."""
        session, instant = self._attempt.session, self._attempt.instant
        completion = session.landed(instant)
        if completion is None:
            return None
        return self._told() or CommitResult(instant, completion, session.log.next_slot - 1)

    def _decide(self, state: LogState, lease: TableLease, template: Commit) -> LogEntry:
        """The commit entry for the next free slot, or the reason why there must not be one."""
        attempt, workspace, session = self._attempt, self._workspace, self._attempt.session
        attempt.require_in(state)
        refuse_landed(attempt.url, state, attempt.batch)
        if self._decided:
            # Its files or instants may be gone, whatever has landed since. They are in no state that anybody may go back to.
            completion = next_label(session.env.now(), state.top)
            return template.placed(completion=completion, token=lease.token_at(state), schema=None)
        if not attempt.follower.complete:
            raise log_made_anew(attempt)
        rebase, later = workspace.rebase, attempt.follower.commits
        schema = self._validator.decide(
            state,
            attempt.instant,
            later,
            began=attempt.schema_text,
            wanted=workspace.schema_text,
            repeatable=rebase.repeatable(workspace.changes) if rebase else None,
            since=rebase.slot if rebase else 0,
        )
        if isinstance(schema, Conflict):
            attempt.lost_on = schema.overlap
            raise InTheWay(schema) if schema.waits else lost_against(attempt, schema)
        if isinstance(schema, Verdict):
            raise MergeAgain(schema.again, schema.groups, session.log.next_slot)
        token, now = lease.token_at(state), session.env.now()
        echo, top = echo_of(attempt.instant, schema, later, now, state.top)
        mine = template.placed(completion=next_label(now, top), token=token, schema=schema, echo=echo)
        return self._gathered.with_others(state, mine) if self._gathered and state.settings.group_commit else mine

    def _publish(self, entry: Commit) -> bool:
        try:
            self._attempt.session.log.publish_through(entry)
        except LakeLatchError:
            _log.warning("commit %s has landed but is not on the timeline yet", entry.instant, exc_info=True)
            return False
        return True

    def _drop_unfinished(self) -> None:
        """Files that were announced but are no part of the commit: a failed task's, which must not become visible."""
        wanted, session, instant = self._workspace.changes.paths(), self._attempt.session, self._attempt.instant
        record = session.records.get(instant)
        known = record is not None and record.complete
        announced = record.markers if record is not None and known else list_markers(session.store, instant)
        delete_announced(session.store, [m for m in announced if m.path not in wanted])
        if record is not None:
            record.markers = [each for each in record.markers if each.path in wanted]


def staged_entry(attempt: Attempt, changes: Staged) -> Commit:
    """The entry that commits what is staged, but for what is only known at its slot."""
    session = attempt.session
    return attach(
        session.store,
        Commit(
            attempt.instant,
            "",
            attempt.announced_as,
            changes.label,
            session.writer,
            0,
            changes.write_set().region,
            blind=changes.read_set().blind,
            batch=attempt.batch,
        ),
        changes.metadata(None),
        changes.values(),
        inline_bytes=session.inline_bytes,
    )
