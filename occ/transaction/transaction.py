"""One writer's attempt to change a table: begin, stage, commit, abort. This file is the protocol.

    begin    append begin(T) to the log; from here T is open and the state at its slot is the snapshot
             heartbeat; then the pending instant, for Hudi's readers
    write    a marker before every data file; one name for each (file group, T), created exclusively
             (at both ends: whoever outranks us and has reserved the place is waited for, without the lock)
    commit   take the lock; read the log to its head, with the newest commit published;
             rolled back meanwhile? a candidate in our way? lease still held?
             only outdated merges in our way: give the lock back, merge again (rebase.py), all of this again
             append commit(T, C): the one moment that counts; slot taken: all of this again
             publish; give the lock back; remove markers and heartbeat
    abort    append abort(T) first, then delete what the markers name, then the pending instant

The lock gives progress, the log gives correctness (docs/protocol.md). An outcome that is not known is never treated
as a failure: nothing is deleted then, and whoever comes next reads the outcome in the log.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...conflict import Claim, Conflict, Reservation, Verdict
from ...errors import CommitError, CommitStateUnknownError, LakeLatchError, LockLostError, RolledBackError
from ...hudi.timeline import next_label, refuse_clock
from ..liveness import delete_announced, list_markers
from ..log import Begin, Commit, End, LogEntry, LogState, attach, echo_of
from ..rebase import MergeAgain
from ..session import CommitResult, log_made_anew, lost_against
from ..turns import InTheWay
from . import row_writes
from .yielding import Yielding

if TYPE_CHECKING:
    import pyarrow as pa

    from ..session import Session, TableLease
    from .workspace import Terms

_log = logging.getLogger("lakelatch.transaction")


class Transaction(Yielding):
    """Made by `Table.transaction`. Leaving the block commits; an exception in it aborts.

    Not to be shared between threads for writing its outcome; workers only need `file_spec`.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        lock_first: bool = False,
        isolation: str | None = None,
        reserved: Reservation | None = None,
        first: int | None = None,
    ) -> None:
        claim = Claim("", first, session.priority, reserved or None)
        super().__init__(session, name, isolation=isolation, claim=claim)
        self.result: CommitResult | None = None
        if lock_first:
            # Bounded, so that others' waits do not run out: whoever holds it longer goes on without, and validates.
            self._lease = session.lease(f"{name}, from its beginning", max_hold_s=session.settings.lock_wait_s / 2)
        try:
            self._begin()
        except BaseException:
            self._release()
            raise

    # --- begin -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        session, action = self.session, self.changes.operation.action
        before: Begin | None = None

        def build(state: LogState) -> LogEntry | None:
            nonlocal before
            before = self._first_in_the_way(state)
            if before is not None:
                return None
            # T is picked anew at every slot tried. One picked earlier could be smaller than that of a commit that our
            # snapshot holds, and readers take the larger T of two files of a group (trap 1).
            now = session.env.now()
            refuse_clock(now, state.top, session.url, trusted=session.clock_is_right)
            instant = next_label(now, state.top, trusted=session.clock_is_right)
            return Begin(
                instant,
                action,
                self.changes.operation.hudi_name,
                session.writer,
                session.env.process(),
                priority=session.priority,
                reserved=self.claim.reserved,
                first=self.claim.age,
            )

        while (entry := session.log.append(build, follower=self._follower)) is None:
            assert before is not None
            self._wait_to_begin(before)
        assert isinstance(entry, Begin)
        self.instant, self.begin_slot = entry.instant, entry.slot
        try:
            session.heart.start(self.instant)
            for state in self.changes.operation.announced:
                self._announce(self._pending_path(action, state))
            session.look_after_others()
        except BaseException:
            self.abort("it could not begin")
            raise

    def begin_anew(self, reserved: Reservation | None) -> None:
        """In place of one that is over and had done nothing: with a T of its own and a fresh snapshot."""
        claim = replace(self.claim, reserved=reserved)
        super().__init__(self.session, self.operation, isolation=self._isolation, claim=claim)
        try:
            self._begin()
        except BaseException:
            self._state = "aborted"
            raise

    # --- rows, in plain Python -----------------------------------------------------------------------------------

    def upsert(self, rows: pa.Table) -> None:
        """Rows replace those with the same key in the same partition; new keys are inserted. Rebased by itself.

        Raises:
            InputError: a key occurs twice and the table has no ordering field, a column is missing or of another type.
        """
        self._refuse_merge("upsert")
        row_writes.upsert(self, rows)

    def delete(self, keys: pa.Table) -> None:
        """The rows with these keys are gone: the key columns, and the partition columns where they are known."""
        self._refuse_merge("delete")
        row_writes.delete(self, keys)

    def delete_where(self, where: Terms, *, partition: str | None = None) -> None:
        """The rows that meet all of these conditions (as in `reads`) are gone, also ones that others add meanwhile.

        Raises:
            InputError: there is no condition (`delete_all` is the word for that), or no such ``partition`` (its path).
        """
        self._refuse_merge("delete_where")
        row_writes.delete_where(self, where, partition)

    def delete_all(self, *, partition: str | None = None) -> None:
        """All rows of the table or of a partition are gone, also ones that others add meanwhile."""
        self._refuse_merge("delete_all")
        row_writes.delete_all(self, partition)

    # --- commit ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `RolledBackError` when somebody has ended this transaction: stop before more work is wasted."""
        self.require_open()
        self._require_in(self.session.log.catch_up())

    def commit(self) -> CommitResult | None:
        """The transaction has landed when this returns, and is on the timeline unless ``published`` is False.

        None when nothing was staged, or others have done the same meanwhile. On any error but `CommitStateUnknownError`
        nothing of it landed and its files are gone or will be; it is then over, and a retry needs a new transaction.

        Raises:
            ConflictError: another writer won; names it, the overlap and the next step.
            RolledBackError: somebody ended this transaction, because its heartbeat had stopped.
            LockTimeoutError: the lock was busy for the whole wait.
            CommitStateUnknownError: no answer from the store; look before you delete anything.
        """
        self.require_open()
        try:
            self._close_files()
            if self._failed:
                raise CommitError(
                    f"{self.url}: a write of {self.instant} failed half-way ({self._failed}), and a file of it may appear late; "
                    "nothing landed. Run the transaction again",
                    table=self.url,
                    instant=self.instant,
                )
            if self.changes.empty:
                self.abort("nothing to commit")
                return None
            self._check_constraints()
            if self.changes.moves:
                self._announce_as("replacecommit")
            if not self._land_or_rebase():
                return None
        except CommitStateUnknownError:
            self._over("unknown")
            raise
        except BaseException as e:
            self.abort(str(e) or type(e).__name__)
            raise
        self._over("committed")
        try:
            self.session.cleaner.sweep_landed(self.instant, self.changes.paths())
        except LakeLatchError:  # it has landed; the next cleaning finds what is left
            _log.warning("commit %s has landed but its markers are still there", self.instant, exc_info=True)
        return self.result

    def _land_or_rebase(self) -> bool:
        """Landed, after waiting for whom goes first, and merging again what others changed; False: nothing is left."""
        while True:
            self._drop_unfinished()
            try:
                self._land()
            except InTheWay as e:
                self._release()  # nobody waits with the lock in hand
                self._wait_for(e.conflict)
            except MergeAgain as e:
                self._merge_again(e)
                if self.changes.empty:
                    self.abort("others have done the same meanwhile")
                    return False
            else:
                return True

    def _land(self) -> None:
        """Lock, decide, append, publish. Takes the lock again when the lease ends before the entry is in."""
        session = self.session
        self._schema_seen()  # before the lock: it may list the table
        session.log.look()
        template = self._template()
        expected = template.placed(completion="", token=0, schema=self._schema or self._schema_seen())
        with session.log.ready(expected):
            self._land_as(template)

    def _land_as(self, template: Commit) -> None:
        session = self.session
        give_up = session.env.monotonic() + session.settings.lock_wait_s
        while True:
            lease = self._lease or session.lease(self.operation)
            try:
                # Everything in `decide` runs under the lease and again at every slot tried.
                entry = session.log.append(
                    lambda state, lease=lease: self._decide(state, lease, template),  # type: ignore[misc]
                    look=self._looks_now,
                )
                assert isinstance(entry, Commit)
                self.result = CommitResult(self.instant, entry.completion, entry.slot, self._publish(entry))
                return
            except RolledBackError:
                # Not open any more, which is also how our own commit looks whose reply was lost (trap 20).
                completion = session.landed(self.instant)
                if completion is None:
                    raise
                self.result = CommitResult(self.instant, completion, session.log.next_slot - 1)
                return
            except LockLostError as e:
                self._release()
                if session.env.monotonic() >= give_up:
                    raise
                _log.warning("%s has not landed yet: %s", self.instant, e)
            finally:
                if lease is not self._lease:
                    lease.release()

    def _template(self) -> Commit:
        """The commit entry, but for what is only known at its slot."""
        session = self.session
        return attach(
            session.store,
            Commit(
                self.instant,
                "",
                self._announced_as,
                self.changes.operation.hudi_name,
                session.writer,
                0,
                self.changes.write_set().region,
                blind=self.changes.read_set().blind,
            ),
            self.changes.metadata(None),
            self.changes.values(),
        )

    def _decide(self, state: LogState, lease: TableLease, template: Commit) -> LogEntry:
        """The commit entry for the next free slot, or the reason why there must not be one."""
        self._require_in(state)
        if not self._follower.complete:
            raise log_made_anew(self)
        rebase = self._rebase
        schema = self._judge.decide(
            state,
            self.instant,
            self._follower.commits,
            began=self._schema_seen(),
            wanted=self._schema,
            repeatable=rebase.repeatable(self.changes) if rebase else None,
            since=rebase.slot if rebase else 0,
        )
        if isinstance(schema, Conflict):
            self.lost_on = schema.overlap
            raise InTheWay(schema) if schema.waits else lost_against(self, schema)
        if isinstance(schema, Verdict):
            raise MergeAgain(schema.again, schema.groups, self.session.log.next_slot)
        token, now = lease.token_at(state), self.session.env.now()
        echo, top = echo_of(self.instant, schema, self._follower.commits, now, state.top)
        return template.placed(completion=next_label(now, top), token=token, schema=schema, echo=echo)

    def _publish(self, entry: Commit) -> bool:
        try:
            self.session.log.publish_last()
        except LakeLatchError:
            _log.warning("commit %s has landed but is not on the timeline yet", entry.instant, exc_info=True)
            return False
        return True

    def _drop_unfinished(self) -> None:
        """Files that were announced but are no part of the commit: a failed task's, which must not become visible."""
        wanted = self.changes.paths()
        store = self.session.store
        delete_announced(store, [m for m in list_markers(store, self.instant) if m.path not in wanted])

    # --- abort -----------------------------------------------------------------------------------------------

    def abort(self, reason: str = "asked to") -> None:
        """The transaction has ended without landing and its files are deleted. Does nothing when it is over already.

        When the end cannot be written now, the heartbeat stops and the next writer rolls the transaction back.
        """
        if self._state != "open":
            return
        self._over("aborted")
        for file in self._open_files:
            file.abandon()
        me = self.session.env.process()

        def build(state: LogState) -> LogEntry | None:
            # Not open: somebody has rolled us back, and sweeps; a second end would say nothing.
            return End("abort", self.instant, f"{me.host}:{me.pid}", reason) if self.instant in state.open else None

        try:
            self.session.log.append(build)
            self.session.cleaner.sweep(self.instant, self._announced_as)
        except LakeLatchError:
            _log.warning("abort of %s could not be finished; the next writer does it", self.instant, exc_info=True)

    def _over(self, state: str) -> None:
        self._state = state
        self.session.heart.stop(self.instant)
        self.session.log.unfollow(self._follower)
        self._release()

    # --- the block -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc is not None:
            self.abort(f"{type(exc).__name__} in the block")
        elif self._state == "open":
            self.commit()
