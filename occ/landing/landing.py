"""The commit protocol of one attempt: lock, decide, append, publish.

    write    put a marker before every data file; one name for each (file group, T), created exclusively
             (before and after, without the lock: wait for writers of higher rank that have reserved the file groups)
    commit   log files, and file groups that are replaced? land an empty commit first (`cover_log_files`);
             take the lock; read the log to its head, with the newest commit published;
             rolled back meanwhile? a conflicting commit? lease still held?
             only outdated merges conflict: give the lock back, merge again (`occ.rebase`), start over
             append commit(T, C), the commit point; slot taken: start over
             (or all of this is done by a coordinator that the handle asks, see `coordinator`)
             publish; give the lock back; remove markers and heartbeat

With neighbours, which read the timeline and no log, the completed instant is the commit point:

    commit   take the lock; import what is completed on the timeline and not in the log; decide as above;
             own pending instants still there? heartbeat never silent? lease still held, says its backend?
             put the completed instant, the commit point; append commit(T, C);
             lease still held? if not: did another engine do anything meanwhile? then do not acknowledge it;
             give the lock back

Begin and abort belong to `Attempt`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...environment import ran_out
from ...errors import (
    CommitError,
    CommitStateUnknownError,
    ConflictError,
    LakeLatchError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
    RolledBackError,
    StorageError,
)
from ...hudi.timeline import next_label, to_epoch_ms
from ...tracing import step
from ..coordination import Question
from ..entries import COVERS, REQUEST_BYTES, Commit, LogEntry, Loss, Origin, Request, echo_of
from ..liveness import delete_announced, list_markers
from ..log import LogState, UndecidedError, attach
from ..rebase import MergeAgain
from ..session import (
    CommitResult,
    clashed,
    ended_by_others,
    log_made_anew,
    lost_against,
    not_shown,
    outcome_unknown,
    refuse_landed,
)
from ..staging import Staged
from ..turns import InTheWay
from ..workspace import Attempt, Workspace
from .validator import CommitValidator
from .yielding import (
    NeighbourInTheWayError,
    merge_again,
    refuse_neighbour_in_the_way,
    wait_for,
    wait_for_neighbour,
    wait_for_outcome,
    yield_to_neighbours,
)

if TYPE_CHECKING:
    from ..session import TableLease

_AT_SLOT = frozenset(("C", "token", "schema", "echo"))  # fields of a commit that are known only at its slot
_log = logging.getLogger("lakelatch.transaction")


class Landing:
    """The end of one attempt.

    Args:
        entry: builds the commit entry, without what is known only at its slot. Default: from the staged changes.
        decided: the decision was made with the plan; commits since then cannot conflict.
        looks_now: list the timeline for commits past the log, even if it was listed a moment ago.

    Attributes:
        result: set once the attempt is committed.
        entry: builds the commit entry, without what is known only at its slot.
        appended: True if this attempt appended its commit entry; False if another execution of the same plan did.
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
        self.entry = entry or (lambda: staged_entry(attempt, workspace.changes))
        self._decided, self._looks_now = decided, looks_now
        # Several processes may execute one plan at once, so no coordinator is asked for such a commit.
        self._executes = entry is not None
        self._asked = False  # a coordinator was asked, and may append this commit at any time
        self._prepared = list[Commit]()  # what this attempt may be in the log as; unknown of a plan
        self._theirs: Commit | None = None  # our commit, in an entry that a coordinator may not have flushed yet
        self._forged = False  # another commit than those prepared is in the log
        self.result: CommitResult | None = None
        self.appended = False
        self._putting = False  # the completed instant, before there is an entry
        self._before: frozenset[tuple[str, str]] | None = (
            None  # what others had begun, if the lease was lost at the put
        )

    def commit(self) -> CommitResult | None:
        """Commit and return the result; None if nothing was staged or others made the same change first.

        Raises the errors of `Transaction.commit`.
        """
        self._attempt.require_open()
        try:
            return self._ended_well()
        except BaseException as e:
            if self.result is not None:  # interrupted after the commit, during cleanup
                self._tell_that_it_landed(e)
                if ran_out(e):
                    self._attempt.session.log.await_readers(self._attempt.instant)
                    _log.warning("%s", e.__notes__[-1], exc_info=True)
                    return self.result
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
        except BaseException as e:  # noqa: BLE001 - raised again unless the commit is in the log
            self._give_up(e)
        self.finish()
        return self.result

    def finish(self) -> None:
        """End the attempt as committed, and remove what it leaves. Nothing of this can fail the commit."""
        attempt = self._attempt
        if self.result is not None:
            attempt.trace.tell(completion=self.result.completion, slot=self.result.slot)
        attempt.session.log.await_readers(attempt.instant)
        record = attempt.session.records.get(attempt.instant)
        if attempt.state == "open":
            attempt.over("committed")
        sweep = partial(
            attempt.session.cleaner.sweep_landed,
            attempt.instant,
            self._workspace.changes.paths(),
            known=record.markers if record is not None and record.complete else None,
        )
        # The commit is in the log, so an error here must not reach the caller; the next cleaning removes the rest.
        attempt.session.afterwards(sweep, f"commit {attempt.instant} has landed but its markers are still there")
        attempt.session.landed_one()

    def _try(self) -> bool:
        """Commit; return False if there is nothing to commit."""
        if not self.ready():
            return False
        with self._attempt.trace.within():
            landed = self._land_or_rebase()
            self._bring_to_disk()
            return landed

    def ready(self) -> bool:
        """Check what is staged, before any lock; return False if there is nothing to commit."""
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
            self._end_without("nothing to commit")
            return False
        workspace.refuse_unclaimed()
        workspace.check_constraints()
        if changes.moves:
            attempt.announce_as("replacecommit")
        return True

    def _give_up(self, error: BaseException) -> None:
        """Abort and raise the error, unless a coordinator has already committed this attempt at its request.

            t=0  W has asked a coordinator, hears nothing and waits for the lock; its wait times out
            t=1  the coordinator's entry is appended, with W among its members
            t=2  W tries to append its abort entry, and reads that it is committed

        Delete W's files only behind its own abort entry. If that entry could not be written, the commit may still
        happen. An interrupt may arrive at any moment, also after the commit; raise it in every case.
        """
        attempt = self._attempt
        if self.result is not None:  # interrupted after the completed instant was put
            attempt.over("committed")
            raise error
        if self._putting and not isinstance(error, LakeLatchError):  # or meanwhile: it may stand there, or still arrive
            attempt.over("unknown")
            unknown = outcome_unknown(attempt, error, asked=False)
            if isinstance(error, Exception):
                raise unknown from error
            error.add_note(str(unknown))
            raise error
        error = attempt.explained(error)
        asked, interrupted = self._asked, not isinstance(error, Exception)
        ended = self.abort(str(error) or type(error).__name__, because=error)
        if ended:
            raise attempt.nothing_landed(error)
        if self._forged or not (asked or interrupted or ran_out(error)):
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
            raise attempt.nothing_landed(error)
        self._bring_to_disk()
        attempt.state, self.result = "committed", found
        if interrupted:
            raise error
        _log.warning("%s has landed all the same: %r", attempt.instant, error)

    def _tell_that_it_landed(self, error: BaseException) -> None:
        attempt, result = self._attempt, self.result
        assert result is not None
        error.add_note(
            f"{attempt.url}: {attempt.operation} {attempt.instant} has landed all the same, at {result.completion}"
        )

    def abort(self, reason: str, *, because: BaseException | None = None) -> bool | None:
        """Abort; a no-op if the attempt is over. Return the result of `Attempt.abort`.

        Args:
            reason: stored in the log.
            because: the error that ended the attempt; for a `ConflictError` the log keeps the details for `Table.why`.
        """
        if because is not None:
            self._attempt.trace.failed(because)
        lost = self._loss(because) if isinstance(because, ConflictError) and self._attempt.state == "open" else None
        return self._attempt.abort(reason, abandon=self._workspace.abandon, lost=lost)

    def _end_without(self, reason: str) -> None:
        """Abort with nothing to commit; raise if it was rolled back, since cleaning may have removed files of its snapshot."""
        if self.abort(reason) is None:
            raise ended_by_others(self._attempt)

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
        """End the attempt with its block: commit, or abort after an error."""
        if error is not None:
            told = self._attempt.explained(error)
            if self.abort(f"{type(told).__name__} in the block", because=told) is not None:
                told = self._attempt.nothing_landed(told)
            if told is not error:
                raise told from error
        elif self._attempt.state == "open":
            self.commit()

    def _land_or_rebase(self) -> bool:
        """Commit, waiting for winners and merging again as needed; return False if nothing is left to commit."""
        while True:
            self.drop_unfinished()
            if self._attempt.session.settings.timeline_first and self._attempt.lease is None:
                yield_to_neighbours(self._attempt, self._workspace)
            try:
                cover_log_files(self._attempt, self._workspace, self._attempt.release)
                self._land()
            except InTheWay as e:
                self._attempt.release()  # nobody waits while holding the lock
                wait_for(self._attempt, e.conflict)
            except NeighbourInTheWayError as e:
                self._attempt.release()
                wait_for_neighbour(self._attempt, self._workspace.changes.write_set().groups, e)
            except UndecidedError as e:
                self._attempt.release()
                wait_for_outcome(self._attempt, e.prepared)
            except MergeAgain as e:
                merge_again(self._attempt, self._workspace, e)
                if self._workspace.changes.empty:
                    self._end_without("others have done the same meanwhile")
                    return False
            else:
                return True

    def _land(self) -> None:
        """Lock, decide, append, publish. Take the lock again if the lease ends before the entry is appended."""
        # before the lock, because it may list the table
        session, schema = self._attempt.session, self._attempt.schema_text
        if not session.settings.timeline_first:
            session.log.look()
        entry = self.entry()
        if not self._executes:
            self._prepared.append(entry)
        if self._by_coordinator(entry):
            return
        expected = entry.placed(completion="", token=0, schema=self._workspace.schema_text or schema)
        with session.log.ready(expected):
            self._land_as(entry)

    def _by_coordinator(self, template: Commit) -> bool:
        """Return whether the handle's coordinator has committed this attempt. Raise what stands in the way, if it is known.

        Not asked for a commit that holds the lock, because the coordinator takes it.
        """
        attempt, session = self._attempt, self._attempt.session
        coordinator = session.asks
        if coordinator is None or self._executes or attempt.lease is not None or session.lock.shared_with_jvm:
            return False
        request = self._request(template)
        if len(request.to_bytes()) > REQUEST_BYTES:
            return False
        self._asked = True
        with step("ask"):
            answer = coordinator.ask(Question(session.log.next_slot, request), session.settings.coordinator_patience_s)
        if answer is None:
            return False
        try:
            state = session.log.take(answer.entries)
        except LakeLatchError as e:  # what the log on the store says is found under the lock
            _log.info("%s: the answer of the coordinator is of no use: %s", session.url, e)
            return False
        if attempt.instant not in state.open:
            found = self._found()
            if found is None:
                return False
            self.result = CommitResult(found.instant, found.completion, found.slot, answer.published)
            return True
        # A conflict stays one, so it needs no lock to be found. On copies: other threads of the handle read on meanwhile.
        if (free := session.lock.free()) is not None:
            self.decide(session.log.catch_up().fork(), free, template)
        return False

    def _request(self, template: Commit) -> Request:
        attempt, workspace, rebase = self._attempt, self._workspace, self._workspace.rebase
        return Request(
            template,
            attempt.begin_slot,
            rebase.slot if rebase else attempt.begin_slot,
            workspace.changes.read_set(),
            self._validator.level,
            attempt.schema_text,
            workspace.schema_text,
        )

    def _land_as(self, template: Commit) -> None:
        attempt, session = self._attempt, self._attempt.session
        give_up = session.env.monotonic() + session.settings.lock_wait_s
        while True:
            try:
                lease = self._lease()
            except LockTimeoutError:
                if self._by_others():
                    return
                # Report the rollback, not the lock timeout.
                attempt.require_in(session.log.state)
                raise
            try:
                if not self._by_others():
                    self._append(lease, template)
                return
            except LakeLatchError as e:
                if self.result is not None:
                    # Its instant is on the timeline, and the next holder of the lock imports it.
                    _log.warning("%s has landed and is not in the log yet: %s", attempt.instant, e)
                    return
                if isinstance(e, RolledBackError):
                    # A commit of ours whose reply was lost also shows as no longer open (trap 20).
                    self.result = self._landed()
                    if self.result is not None:
                        return
                if not isinstance(e, LockLostError):
                    raise
                attempt.release()
                if session.env.monotonic() >= give_up:
                    raise
                _log.warning("%s has not landed yet: %s", attempt.instant, e)
            finally:
                self._give_back(lease)

    def _give_back(self, lease: TableLease) -> None:
        if self.result is not None:
            self._attempt.session.keep_for_clocks(lease, self.result.completion)
        if lease is not self._attempt.lease:
            lease.release()

    def _append(self, lease: TableLease, template: Commit) -> None:
        """Decide, append the entry and publish it, under the lease."""
        session = self._attempt.session
        # `decide` runs under the lease, again at every slot tried: a slot lost to another writer adds a commit to check.
        with step("append"):
            try:
                entry = session.log.append(
                    lambda state: self.decide(state, lease, template),
                    # A JVM writer that shares the lock may have committed while we waited for it.
                    look=self._looks_now or session.lock.shared_with_jvm,
                    first=partial(self._put_first, lease) if session.settings.timeline_first else None,
                )
            except LakeLatchError:
                self._refuse_clash(lease)
                raise
        assert isinstance(entry, Commit)
        self.appended = True
        self._refuse_clash(lease)
        with step("publish"):
            self.publish_result(entry, lease)

    def _lease(self) -> TableLease:
        """The table's lock; no lock for stream events, which cannot conflict with anything worth waiting for."""
        attempt, session = self._attempt, self._attempt.session
        if self._workspace.streams_only and (free := session.lock.free()):
            return free
        return attempt.lease or session.lease(attempt.operation)

    def _by_others(self) -> bool:
        """Return whether a coordinator has committed this attempt at its request."""
        session = self._attempt.session
        if self._asked and self._attempt.instant not in session.log.glance().open:
            session.log.catch_up()
            self.result = self._told()
        return self.result is not None

    def _told(self) -> CommitResult | None:
        """The result, if the commit is in the log since the begin; else None."""
        found = self._found()
        if found is None:
            return None
        self._theirs = found if self._asked else None
        return CommitResult(found.instant, found.completion, found.slot, self.publish(found))

    def _found(self) -> Commit | None:
        """The commit of this attempt in the log since the begin.

        Raises `RolledBackError` if it is not what this writer has prepared: then nothing of that landed.
        """
        attempt, prepared = self._attempt, self._prepared
        found = next((each for each in reversed(attempt.follower.commits) if each.instant == attempt.instant), None)
        # What another engine's timeline tells of it is imported in other words.
        if found is None or not prepared or found.imported or any(_is_the_same(found, each) for each in prepared):
            return found
        self._forged = True
        self.publish(found)  # the sweep keeps the files that the instant names
        raise RolledBackError(
            f"{attempt.url}: another process has committed {attempt.instant} with another content than this writer has "
            "prepared, so somebody with access to the table forges requests. Nothing of ours landed, and its files are "
            "deleted; run the write again",
            table=attempt.url,
            instant=attempt.instant,
        )

    def _bring_to_disk(self) -> None:
        """Make the reported commit durable, even if a coordinator that was not heard appended it.

        t=0  the coordinator's entry can be seen, and is not flushed yet; or its flush fails
        t=1  a member reads it, and reports its commit
        t=2  the power goes, and the entry with it
        """
        if self._theirs is not None:
            self._attempt.session.log.secure(self._theirs)

    def _landed(self) -> CommitResult | None:
        """The result of an attempt that is no longer open; None if it did not commit."""
        session, instant = self._attempt.session, self._attempt.instant
        completion = session.landed(instant)
        if completion is None:
            return None
        return self._told() or CommitResult(instant, completion, session.log.next_slot - 1)

    def decide(self, state: LogState, lease: TableLease, template: Commit) -> LogEntry:
        """Return the commit entry for the next free slot, or raise the reason why there must be none."""
        attempt, workspace, session = self._attempt, self._workspace, self._attempt.session
        attempt.require_in(state)
        refuse_landed(attempt.url, state, attempt.origin.batch)
        if state.settings.timeline_first:  # for the services whose entry comes first; commits look again at their put
            refuse_neighbour_in_the_way(attempt, workspace.changes.write_set().groups)
        if self._decided:
            # Its files or instants may be gone, whatever was committed since: no state that a restore may return to has
            # them.
            completion = next_label(session.env.now(), session.newest(state.top))
            return template.placed(completion=completion, token=lease.token_at(state), schema=None)
        if not attempt.follower.complete:
            raise log_made_anew(attempt)
        rebase, later = workspace.rebase, list(attempt.follower.commits)
        decision = self._validator.decide(
            state,
            attempt.instant,
            later,
            began=attempt.schema_text,
            wanted=workspace.schema_text,
            repeatable=rebase.repeatable(workspace.changes) if rebase else None,
            since=rebase.slot if rebase else 0,
        )
        if lost := decision.lost:
            attempt.lost_on = lost.overlap
            raise InTheWay(lost) if lost.waits else lost_against(attempt, lost)
        if decision.again:
            raise MergeAgain(decision.again, decision.groups, session.log.next_slot)
        schema = decision.schema
        token, now = lease.token_at(state), session.env.now()
        echo, top = echo_of(attempt.instant, schema, later, now, session.newest(state.top))
        return template.placed(completion=next_label(now, top), token=token, schema=schema, echo=echo)

    def _put_first(self, lease: TableLease, entry: Commit) -> None:
        """Put the completed instant, which commits the attempt, after the last checks that its files are not given up."""
        attempt, session = self._attempt, self._attempt.session
        session.refuse_if_unwritable()  # another engine may have given the table what this library cannot keep
        attempt.refuse_given_up()
        refuse_neighbour_in_the_way(attempt, self._workspace.changes.write_set().groups)
        known = session.log.others()
        lease.ensure_held(fresh=True)
        self._putting = True
        session.log.put_first(entry)
        self.result = CommitResult(attempt.instant, entry.completion, -1, True)
        try:
            lease.ensure_held(fresh=True)
        except LockUnavailableError:
            lost = not lease.is_held  # until its end by our clock the lease is kept without an answer
        except LockLostError:
            lost = True
        else:
            lost = False
        self._before = known if lost else None

    def _refuse_clash(self, lease: TableLease) -> None:
        """Do not acknowledge the commit if another engine did anything while it was put and the lease was lost.

            t=0  a JVM sees no lock file, and is paused; ours takes the lock, and asks for it for the last time
            t=1  the JVM creates the file all the same, and plans a compaction, at T=6, of the files that it sees
            t=2  ours puts its instant, with C=5: readers take the compaction for newer, and it lacks our log file

        What they did under the lock is over when we have it again. So there is no clash behind a listing that shows
        nothing new.
        """
        attempt, session, before = self._attempt, self._attempt.session, self._before
        if before is None:
            return
        lease.release()
        again: TableLease | None = None
        try:
            again = session.lease(attempt.operation)
            session.log.pending(now=True)
            news = sorted({requested for requested, _ in session.log.others() - before})
        except LakeLatchError as e:
            self.result = None
            raise clashed(attempt, f"and what they did cannot be told: {e}") from e
        finally:
            if again is not None:
                again.release()
        if news:
            self.result = None
            raise clashed(attempt, f"with {', '.join(news[:3])}")

    def publish_result(self, entry: Commit, lease: TableLease | None = None) -> bool:
        """Publish the entry that commits the attempt, and set the result; return whether it is on the timeline."""
        published = self.publish(entry, lease)
        self.result = CommitResult(entry.instant, entry.completion, entry.slot, published)
        return published

    def publish(self, entry: Commit, lease: TableLease | None = None) -> bool:
        """Put a commit of this table's log on the timeline; False if that failed, and the next writer does it."""
        session = self._attempt.session
        try:
            if not session.log.publish_through(entry, locked=lease is not None and lease.is_held):
                if lease is not None:
                    lease.release()  # the lease has ended; `publish_last` takes the lock again
                session.publish_last()
        except LakeLatchError as e:
            if session.lock.shared_with_jvm:  # JVM writers may commit over what they do not see
                raise not_shown(self._attempt, e) from e
            _log.warning("commit %s has landed but is not on the timeline yet", entry.instant, exc_info=True)
            return False
        return True

    def drop_unfinished(self) -> None:
        """Delete announced files that are not part of the commit: a failed task left them, and they must not become visible."""
        wanted, session, instant = self._workspace.changes.paths(), self._attempt.session, self._attempt.instant
        record = session.records.get(instant)
        known = record is not None and record.complete
        announced = record.markers if record is not None and known else list_markers(session.store, instant)
        delete_announced(session.store, [m for m in announced if m.path not in wanted])
        if record is not None:
            record.markers = [each for each in record.markers if each.path in wanted]


def cover_log_files(attempt: Attempt, workspace: Workspace, release: Callable[[], None]) -> None:
    """Land an empty commit of a larger T first, if a compaction by Hudi's JVM could pass over log files of this attempt.

        t=1  ours commits a log file with T=6, as a replacecommit; the newest deltacommit has T=5
        t=2  the JVM compacts the file group, and skips the blocks of that log file: it reads up to the largest T among
             completed commits, deltacommits and rollbacks, and does not count replacecommits (1.2.0, tried)

    ``release`` gives back every lock that is held, since the empty commit takes the table's.
    """
    session, follower = attempt.session, attempt.follower
    if attempt.announced_as != "replacecommit" or not workspace.changes.logs:
        return
    counted = (each for each in follower.commits if each.action in ("commit", "deltacommit"))
    if follower.complete and any(each.instant > attempt.instant for each in counted):
        return
    release()
    changes = Staged("upsert", merge_on_read=True)
    changes.empty_too = True
    claim, origin = replace(attempt.claim, reserved=None), Origin(note={COVERS: attempt.instant})
    covering = Attempt.begin(session, "upsert", changes.operation, claim, origin=origin, under=lambda _: None)
    validator = CommitValidator.of(session, changes, session.settings)
    try:
        Landing(covering, Workspace(covering, changes), validator).commit()
    except CommitStateUnknownError as e:
        raise StorageError(
            f"{attempt.url}: {attempt.instant} does not land: the empty commit {covering.instant}, which has to stand before it "
            f"on a table with log files, got no answer ({e}). Nothing of ours landed; a retry is safe",
            table=attempt.url,
            instant=attempt.instant,
        ) from e


def staged_entry(attempt: Attempt, changes: Staged) -> Commit:
    """The entry that commits the staged changes, without what is known only at its slot."""
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
            changes.region,
            blind=changes.blind,
            batch=attempt.origin.batch,
        ),
        changes.metadata(None, attempt.origin.extra),
        changes.values(),
        inline_bytes=session.inline_bytes,
    )


def _is_the_same(commit: Commit, prepared: Commit) -> bool:
    """Return whether a commit of the log has the content of a prepared one.

    t=0  W asks for its commit; a hostile process asks for another one under W's T, of files that it has made up
    t=1  a coordinator takes that one, which overlaps with nothing
    t=2  W reads that its T is committed, and its own files are in no commit
    """
    given, wanted = (
        {name: value for name, value in each.fields().items() if name not in _AT_SLOT} for each in (commit, prepared)
    )
    return given == wanted or json.loads(json.dumps(given)) == json.loads(json.dumps(wanted))
