"""One attempt to change a table: its T, from the begin entry to the end.

    begin    append begin(T) to the log; from here T is open and the state at its slot is the snapshot
             heartbeat; then the pending instant, for Hudi's readers
    join     the begin entry is that of a plan, which others may execute at the same time under the same T
    abort    append abort(T) first, then delete the files that markers name, then the pending instant;
             a process that joined a plan only leaves: the plan and its files stay

The lock gives progress, the log gives correctness (docs/protocol.md). An unknown outcome is never treated
as a failure: nothing is deleted then, and the next writer reads the outcome in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...ahead import Task
from ...environment import ran_out
from ...errors import (
    BatchLandedError,
    CommitStateUnknownError,
    ConflictError,
    CorruptTableError,
    InputError,
    LakeLatchError,
    LockLostError,
    RolledBackError,
    StorageError,
)
from ...hudi.timeline import Instant, State, file_name
from ...storage import Outcome
from ...tracing import Trace
from ..entries import UNTOLD, Begin, End, GroupBegin, LogEntry, Loss, Origin
from ..log import Follower, LogState, rolled_back
from ..session import (
    ended_by_others,
    is_over,
    nothing_left,
    of_missing_file,
    refuse_landed,
    reserved_by,
    restored_below,
    undisturbed,
)
from ..turns import BoundedWait
from .begin_entry import BeginEntry

if TYPE_CHECKING:
    from ...conflict import Claim
    from ...hudi.files import FileGroupId
    from ...hudi.timeline import Snapshot
    from ..entries import Operation, Settings
    from ..session import Session, TableLease

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
# These errors already say what became of the transaction.
_TELL = (ConflictError, RolledBackError, BatchLandedError, CommitStateUnknownError)
_log = logging.getLogger("lakelatch.transaction")


class Attempt:
    """One try of a transaction, made by `begin` or `join`. A retry is another attempt.

    Attributes:
        operation: its name as given at begin; ``kind`` is its meaning.
        instant: its requested time T.
        begin_slot: its place in the log; the snapshot is the state there.
        follower: collects the commits since then.
        claim: its rank, and its reservation.
        patience: the budget for all its waiting together.
        lease: of the table's lock, while it is held from one step to the next.
        state: "open", and then how it ended.
        announced_as: the action of its pending instant; "" while that changes.
        lost_on: the file groups on which it lost.
        origin: the batch of a source that it commits, and its note.
        plan: the begin entry that it has joined.
        trace: its span.
    """

    def __init__(
        self,
        session: Session,
        operation: str,
        kind: Operation,
        claim: Claim,
        *,
        instant: str,
        begin_slot: int,
        follower: Follower,
        patience: BoundedWait,
        lease: TableLease | None = None,
        origin: Origin = UNTOLD,
        plan: Begin | None = None,
        trace: Trace,
    ) -> None:
        self.session, self.url, self.operation, self.kind, self.claim = session, session.url, operation, kind, claim
        self.instant, self.begin_slot, self.follower = instant, begin_slot, follower
        self.patience, self.lease, self.origin, self.plan, self.trace = patience, lease, origin, plan, trace
        trace.tell(instant=instant)
        self.state, self.announced_as = "open", kind.action
        self.lost_on: tuple[FileGroupId, ...] = ()
        self._snapshot: Snapshot | None = None
        self._schema_text: tuple[str | None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            f"transaction {self.instant} of {self.url} cannot travel: it belongs to the process that began it. Hand workers its "
            "`file_spec`, or open the table there and begin another one",
            instant=self.instant,
        )

    @classmethod
    def begin(
        cls,
        session: Session,
        operation: str,
        kind: Operation,
        claim: Claim,
        *,
        lease: TableLease | None = None,
        origin: Origin = UNTOLD,
        under: Callable[[Settings], None],
    ) -> Self:
        """Begin, after writers of higher rank with a conflicting reservation. A lease passed in is released at the end.

        ``under`` is called with the settings at each slot tried, which may be newer than the handle's. Its errors are
        passed on, and then nothing was written.

        Raises:
            BatchLandedError: the batch is committed already. Nothing was begun.
            ConflictError: such a writer did not end in time.
        """
        patience, follower = BoundedWait(session), Follower()
        kept = lease is not None  # by the caller, until the end
        # On a far store, check while the begin entry is put: that entry affects no other version or engine.
        checked = Task(session.env, session.refuse_if_unwritable) if session.far and not kind.service else None
        trace = Trace(table=session.url, operation=operation, writer=session.writer)
        wanted = BeginEntry(session, kind, claim, origin.batch, under, lease)
        entry: LogEntry | None = None
        try:
            told = wanted.ask()
            follower = told or follower
            while wanted.found is None and (entry := wanted.append(follower, operation)) is None:
                if wanted.found is not None:
                    follower = session.log.follow_since(wanted.found.slot + 1)
                    break
                assert wanted.before is not None
                wanted.release()  # nobody waits while holding the lock
                with trace.within():
                    _wait_to_begin(session, operation, wanted.before, patience)
        except BaseException as e:
            wanted.release()
            wanted.leave()
            trace.failed(e)
            trace.end("aborted")
            raise
        begun = wanted.found if entry is None else entry.members[0] if isinstance(entry, GroupBegin) else entry
        assert isinstance(begun, Begin)
        made = cls(
            session,
            operation,
            kind,
            claim,
            instant=begun.instant,
            begin_slot=begun.slot,
            follower=follower,
            patience=patience,
            lease=wanted.lease,
            origin=origin,
            trace=trace,
        )
        try:
            with made.explaining():
                if entry is None:  # a begin by another's entry skipped this check
                    refuse_landed(session.url, session.log.state, origin.batch)
                if checked is not None:
                    checked.take()
                # If many begin together, each publishes its own commit, and a reader of the timeline publishes first.
                if not wanted.asked:  # our snapshot may be read from the timeline
                    (session.publish_last if made.lease is None else partial(session.log.publish_last, locked=True))()
                made._announce_pending(wanted.since)
                if not kept and made.lease is not None:
                    made._show_to_neighbours(made.lease)
                if told is not None:  # a coordinator that is heard does it for its writers
                    session.led_until = session.env.monotonic() + 2 * session.settings.heartbeat_interval_s
                else:
                    session.afterwards(session.look_after_others, "cleaning up after others failed")
        except BaseException as e:
            error = made.nothing_landed(e) if made.abort("it could not begin") is not None else e
            if isinstance(e, LockLostError) and not kept:
                return cls.begin(session, operation, kind, claim, origin=origin, under=under)
            if error is not e:
                raise error from e
            raise
        return made

    @classmethod
    def join(cls, session: Session, operation: str, kind: Operation, claim: Claim, plan: Begin) -> Self:
        """Join the execution of a plan, perhaps beside other processes, under its T.

        Raises:
            RolledBackError: another process has executed or cancelled it.
        """
        made = cls(
            session,
            operation,
            kind,
            claim,
            instant=plan.instant,
            begin_slot=plan.slot,
            # Commits made while the plan was computed may conflict too (trap 16).
            follower=session.log.follow_since(plan.planned_at),
            patience=BoundedWait(session),
            plan=plan,
            trace=Trace(table=session.url, operation=operation, writer=session.writer),
        )
        session.heart.start(made.instant, shared=True)
        try:
            # After the first beat: a cleaner that ended the plan before would not have seen it.
            made.check()
            if plan.action != "archive":  # archival has no instant in Hudi
                made._announce(plan.action, "inflight")
        except BaseException:
            made.abort("it could not begin")
            session.cleaner.sweep(made.instant, plan.action)
            raise
        return made

    # --- what it sees ----------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever was committed since."""
        if self._snapshot is None:
            views = self.session.views
            view = self.seen(lambda: views.at(self.begin_slot, self.instant, self.follower))
            self._snapshot, self._schema_text = view.snapshot, (view.schema,)
        return self._snapshot

    @property
    def partitions_seen(self) -> list[str]:
        """The partitions of the snapshot that were asked for; nothing is listed for the answer."""
        return self._snapshot.partitions_seen() if self._snapshot is not None else []

    @property
    def schema_text(self) -> str | None:
        """The table's schema as of the begin slot as Avro JSON; None if it had none yet."""
        if self._schema_text is None:
            views = self.session.views
            self._schema_text = (self.seen(lambda: views.schema_at(self.begin_slot, self.instant, self.follower)),)
        return self._schema_text[0]

    @property
    def has_looked(self) -> bool:
        """True if the snapshot or the schema was read."""
        return self._snapshot is not None or self._schema_text is not None

    def seen(self, look: Callable[[], T]) -> T:
        """Return `look()`; repeat while a restore is still removing instants.

        Raise `ConflictError` if a restore since the begin removed what is read, `RolledBackError` if the transaction
        has ended.
        """

        def lost() -> Exception | None:
            self.session.log.catch_up()
            found = next((commit for commit in self.follower.commits if commit.restores), None)
            return restored_below(self, found) if found else self._ended_by_others()

        found = undisturbed(look, lost, lambda: self.session.timeline().completed)
        self._refuse_partial()
        return found

    @contextmanager
    def explaining(self, *faults: type[Exception]) -> Iterator[None]:
        """Context of reads and writes for the transaction: errors leave it `explained`. ``faults`` are those of an engine."""
        caught: tuple[type[Exception], ...] = (LakeLatchError, OSError, *faults)
        try:
            yield
        except caught as e:
            if (told := self.explained(e, *faults)) is not e:
                raise told from e
            raise
        self._refuse_partial()

    def _refuse_partial(self) -> None:
        """Raise `RolledBackError` if the transaction is known to have ended: a listing may lack files cleaned since.

        Every listing is followed by a read of the log (`ListedLater`), so no request is made here.
        """
        if self.state == "open" and self.instant not in self.session.log.state.open and self.plan is None:
            self.check()

    def explained(self, error: E, *faults: type[Exception]) -> E | LakeLatchError:
        """Return the error, or `RolledBackError` if a rollback of the transaction is its cause, or that of `files_there`.

            t=0  W is suspended, and its heartbeat is silent
            t=1  a cleaner appends rollback(W) and sweeps; a cleaning takes slices of W's snapshot, which nobody else
                 needs
            t=2  W goes on, and its files, its markers or those that it reads are gone

        So read the log before reporting a failure. An error that a retry would meet as well is reported by the retry.
        """
        fails = isinstance(error, (LakeLatchError, OSError, *faults)) and not isinstance(error, _TELL)
        if fails and self.state == "open":
            with suppress(LakeLatchError):  # the log cannot be read either; report the first error
                if (ended := self._ended_by_others()) is not None:
                    ended.__cause__ = error
                    return ended
            with suppress(LakeLatchError):
                # A restore takes files that ours reads, and nothing lands beside it.
                restore = next((each for each in self.follower.commits if each.restores), None)
                told: LakeLatchError | None = None
                if isinstance(error, StorageError | CorruptTableError) and restore is not None:
                    told = restored_below(self, restore)
                elif isinstance(error, StorageError):
                    told = of_missing_file(self.session, error, "this transaction began")
                if told is not None:
                    told.__cause__ = error
                    return told
        return error

    def _ended_by_others(self) -> RolledBackError | None:
        try:
            self.require_in(self.session.log.catch_up())
        except RolledBackError as e:
            # The execution of a plan is also over if another process has committed it.
            return e if self.plan is not None or self.session.landed(self.instant) is None else None
        return None

    # --- guards ----------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise if the attempt is over, or its table was closed."""
        if self.session.closed:
            self.session.require_open()
        if self.state != "open":
            raise is_over(self, self.state)

    def require_in(self, state: LogState) -> None:
        """Raise `RolledBackError` if it has ended by this state of the log."""
        if self.instant in state.open:
            return
        if self.plan is None:
            raise ended_by_others(self)
        raise RolledBackError(
            f"{self.url}: {self.plan.action} {self.instant} is over, because somebody else has executed or cancelled it; "
            "nothing of this execution landed",
            table=self.url,
            instant=self.instant,
        )

    def refuse_given_up(self) -> None:
        """Raise `RolledBackError` if neighbours may take this transaction for failed, and delete its files.

        Either its pending instant is gone, or its heartbeat was once silent for the time-out.
        """
        session = self.session
        silent_s, states = session.heart.longest_silence_s(self.instant), self.kind.announced
        for state in states:
            if session.store.head(self._pending_path(self.announced_as, state)) is None:
                raise rolled_back(session.store, self.instant, "another engine has taken its pending instant away")
        if self.plan is None and states and silent_s >= session.settings.heartbeat_timeout_s:
            raise rolled_back(session.store, self.instant, f"its heartbeat was silent for {silent_s:.0f} s")

    def check(self) -> None:
        """Raise `RolledBackError` if another process has ended it."""
        self.require_open()
        self.require_in(self.session.log.catch_up())

    # --- the pending instant ---------------------------------------------------------------------------------

    def _announce_pending(self, since: Any) -> None:
        """Put the heartbeat and the pending instant. For a write on a far store they are sent now, beside the first marker, and
        arrive before the first data file.

        Where JVM writers share the lock the heartbeat comes first: they take a pending instant without one for a dead writer's.
        ``since``: when nobody could know of it yet, by `HeartbeatSender.now`.
        """
        session, kind = self.session, self.kind
        puts: list[Callable[[], None]]
        puts = [partial(self._announce, kind.action, state) for state in kind.announced]
        record = session.record(self.instant)
        if record is None or kind.service:
            session.heart.start(self.instant)
            for put in puts:
                put()
            return
        if session.lock.shared_with_jvm:
            session.heart.start(self.instant)
        else:
            session.heart.expect(self.instant, since)
            puts.append(self._beat_first)
        record.sends([Task(session.env, put) for put in puts])

    def _beat_first(self) -> None:
        """Write the first heartbeat. Raise `RolledBackError` if it came so late that somebody has ended the transaction.

        Its file would say otherwise: it has appeared behind the sweep.
        """
        session = self.session
        session.heart.start(self.instant)
        if session.heart.longest_silence_s(self.instant) >= session.settings.heartbeat_timeout_s / 2:
            self.require_in(session.log.catch_up())

    def _show_to_neighbours(self, lease: TableLease) -> None:
        """Give the lock of the begin back. A neighbour that begins from here on knows of this transaction.

        Raises `LockLostError` if one may have begun before the pending instant stood there.
        """
        self.arrived()
        lease.ensure_held(fresh=True)
        self.release()

    def arrived(self) -> None:
        """Wait until the pending instant is on the timeline. Raise `StorageError` if it could not be put."""
        if (record := self.session.records.get(self.instant)) is not None:
            record.arrived()

    def announce_as(self, action: str) -> None:
        """Change the pending instant to the commit's action, before the first file of that commit."""
        if action != self.announced_as:
            self.arrived()
            # "": if this fails half-way, the abort deletes the pending instants of every action.
            before, self.announced_as = self.announced_as, ""
            # New before old: at no moment may the files be on the table without a pending instant.
            for state in self.kind.announced:
                self._announce(action, state)
            for state in reversed(self.kind.announced):
                self.session.store.delete(self._pending_path(before, state))
            self.announced_as = action

    def _announce(self, action: str, state: State) -> None:
        # Empty and not flushed, because the begin entry is the record. But a reader takes files older than the first
        # instant it knows for committed ones, so on a young table no file of ours may exist before this does.
        store, path = self.session.store, self._pending_path(action, state)
        put = store.put_if_absent(path, b"", durable=False)
        if put.outcome is Outcome.UNKNOWN and store.head(path) is None:
            raise StorageError(f"{path} could not be written: {put.cause}; nothing landed, try again", path=path)

    def _pending_path(self, action: str, state: State) -> str:
        return f"{self.session.config.timeline_folder}/{file_name(Instant(self.instant, action, state))}"

    # --- the end ---------------------------------------------------------------------------------------------

    def abort(
        self,
        reason: str,
        *,
        abandon: Callable[[], object] = lambda: None,
        lost: Loss | None = None,
        settles: bool = False,
    ) -> bool | None:
        """End without committing; a no-op if it is over. ``abandon`` drops files still being written.

        ``lost``: details kept in the log for an attempt that another writer beat. Return True if this ended it, False
        if the entry could not be written, None if it had ended before. After False the heartbeat is stopped, and the
        next writer rolls it back. ``settles``: it is prepared, and its home has ended.
        """
        if self.state != "open":
            return None
        if (record := self.session.records.get(self.instant)) is not None:
            record.settle()  # or a late put would arrive after the deletion
        record = self.session.records.get(self.instant)
        # Over before the abort entry: the heartbeat stops, so if the entry cannot be written, others see it dead and
        # roll it back.
        self.over("aborted" if self.plan is None else "left")
        abandon()
        if self.plan is not None:
            return None
        ended: bool | None = False
        me = self.session.env.process()

        def build(state: LogState) -> LogEntry | None:
            # Not open: another process has rolled us back, and sweeps; a second end would be ignored.
            if self.instant not in state.open:
                return None
            return End("abort", self.instant, f"{me.host}:{me.pid}", reason, lost=lost)

        try:
            ended = self.session.log.append(build, settles=settles) is not None or None
            # A writer that was ended by force may have noticed late (`OwnRecord`) and put a file after the other's
            # sweep.
            known = record.markers if record is not None else ()
            self.session.cleaner.sweep(self.instant, self.announced_as, known=known)
        except Exception as e:
            if not isinstance(e, LakeLatchError) and not ran_out(e):
                raise
            _log.warning("abort of %s could not be finished; the next writer does it", self.instant, exc_info=True)
        return ended

    def nothing_landed(self, error: BaseException) -> BaseException:
        """Return the error, or one of ours if the process ran out of memory: it says that nothing was committed, if by a note."""
        if ran_out(error):
            return nothing_left(self.url, f"{self.operation} {self.instant}", error)
        if not isinstance(error, LakeLatchError):
            error.add_note(f"{self.url}: {self.operation} {self.instant} was taken back; nothing landed")
        return error

    def over(self, state: str) -> None:
        """End in this state; stop the heartbeat, the follower and the lease."""
        self.state = state
        self.session.heart.stop(self.instant)
        self.session.records.pop(self.instant, None)
        self.session.log.unfollow(self.follower)
        self.release()
        self.trace.end(state)

    def release(self) -> None:
        """Give the lock back, if it is held."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()


def _wait_to_begin(session: Session, operation: str, before: Begin, patience: BoundedWait) -> None:
    over = patience.until(
        lambda state: before.instant not in state.open or not session.reservations.counts(before),
        who=f"{operation} of {session.writer}",
        whom=f"{before.operation} {before.instant} of {before.writer}",
        why=f"it has reserved {before.reserved}",
    )
    if not over:
        raise reserved_by(session.url, operation, before, session.settings.yield_wait_s)
