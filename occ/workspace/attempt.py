"""One attempt to change a table: its T, from the begin entry to the end.

    begin    append begin(T) to the log; from here T is open and the state at its slot is the snapshot
             heartbeat; then the pending instant, for Hudi's readers
    join     the begin entry is that of a plan, which others may execute at the same time under the same T
    abort    append abort(T) first, then delete what the markers name, then the pending instant;
             whoever has joined a plan just leaves: the plan and its files stay

The lock gives progress, the log gives correctness (docs/protocol.md). An outcome that is not known is never treated
as a failure: nothing is deleted then, and whoever comes next reads the outcome in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...ahead import Task
from ...errors import InputError, LakeLatchError, RolledBackError, StorageError
from ...hudi.timeline import Instant, State, file_name
from ...storage import Outcome
from ...tracing import Trace
from ..entries import Begin, End, GroupBegin, LogEntry, Loss
from ..log import Follower, LogState
from ..session import ended_by_others, is_over, refuse_landed, reserved_by, restored_below, undisturbed
from ..turns import BoundedWait
from .begin_entry import BeginEntry

if TYPE_CHECKING:
    from ...conflict import Claim
    from ...hudi.files import FileGroupId
    from ...hudi.timeline import Snapshot
    from ..entries import Batch, Operation
    from ..session import Session, TableLease

T = TypeVar("T")
_log = logging.getLogger("lakelatch.transaction")


class Attempt:
    """Made by `begin` or `join`. One that was begun anew is another attempt.

    Attributes:
        operation: its name as it was begun; ``kind`` tells what that means.
        instant: its requested time T.
        begin_slot: its place in the log; the snapshot is the state there.
        follower: collects what has landed since then.
        claim: its rank among others, and what it has reserved.
        patience: for all its waiting together.
        lease: of the table's lock, while it is held from one step to the next.
        state: "open", and then how it ended.
        announced_as: the action of its pending instant; "" while that changes.
        lost_on: the file groups on which it lost.
        batch: which it lands.
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
        batch: Batch | None = None,
        plan: Begin | None = None,
        trace: Trace,
    ) -> None:
        self.session, self.url, self.operation, self.kind, self.claim = session, session.url, operation, kind, claim
        self.instant, self.begin_slot, self.follower = instant, begin_slot, follower
        self.patience, self.lease, self.batch, self.plan, self.trace = patience, lease, batch, plan, trace
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
        batch: Batch | None = None,
    ) -> Self:
        """Begin, after those who have reserved the place and go first. A lease that is handed in is released at the end.

        Raises:
            BatchLandedError: the batch has landed. Nothing was begun.
            ConflictError: one of them has not ended within the time that is waited.
        """
        patience, follower = BoundedWait(session), Follower()
        # On a far store beside the begin entry, which changes nothing that another version or engine goes by.
        checked = Task(session.env, session.refuse_if_unwritable) if session.far and not kind.service else None
        trace = Trace(table=session.url, operation=operation, writer=session.writer)
        wanted = BeginEntry(session, kind, claim, batch)
        try:
            if lease is None:
                wanted.ask_first()
            while (entry := session.log.append(wanted, follower=follower, publishes=False)) is None:
                if wanted.found is not None:
                    follower = session.log.follow_from(wanted.found.slot + 1)
                    break
                assert wanted.before is not None
                if lease is not None:
                    lease.release()  # nobody waits with the lock in hand
                    lease = None
                with trace.within():
                    _wait_to_begin(session, operation, wanted.before, patience)
        except BaseException as e:
            if lease is not None:
                lease.release()
            wanted.leave()
            trace.failed(e)
            trace.end("aborted")
            raise
        begun = wanted.found if entry is None else entry.members[0] if isinstance(entry, GroupBegin) else entry
        assert isinstance(begun, Begin)
        wanted.over()
        made = cls(
            session,
            operation,
            kind,
            claim,
            instant=begun.instant,
            begin_slot=begun.slot,
            follower=follower,
            patience=patience,
            lease=lease,
            batch=batch,
            trace=trace,
        )
        try:
            if entry is None:  # nobody has asked that for it
                refuse_landed(session.url, session.log.state, batch)
            if checked is not None:
                checked.take()
            if (
                not wanted.asked
            ):  # where many begin, each publishes its own, and who lists the timeline publishes before
                session.log.publish_last()  # our snapshot may be read from the timeline
            session.heart.start(made.instant)
            made._announce_pending()
            session.afterwards(session.look_after_others, "cleaning up after others failed")
        except BaseException as e:
            if made.abort("it could not begin"):
                made.tell_that_nothing_landed(e)
            raise
        return made

    @classmethod
    def join(cls, session: Session, operation: str, kind: Operation, claim: Claim, plan: Begin) -> Self:
        """Become one of perhaps several that execute the same plan, under its T.

        Raises:
            RolledBackError: somebody else has executed or cancelled it.
        """
        made = cls(
            session,
            operation,
            kind,
            claim,
            instant=plan.instant,
            begin_slot=plan.slot,
            # What landed while the plan was computed is a candidate too (trap 16).
            follower=session.log.follow_since(plan.planned_at),
            patience=BoundedWait(session),
            plan=plan,
            trace=Trace(table=session.url, operation=operation, writer=session.writer),
        )
        session.heart.start(made.instant, shared=True)
        try:
            made.check()  # after the first beat, which somebody who has ended the plan since would not find
            if plan.action != "archive":  # Hudi has no instant of it
                made._announce(plan.action, "inflight")
        except BaseException:
            made.abort("it could not begin")
            session.cleaner.sweep(made.instant, plan.action)
            raise
        return made

    # --- what it sees ----------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever has landed since."""
        if self._snapshot is None:
            views = self.session.views
            self._snapshot = self.seen(lambda: views.at(self.begin_slot, self.instant, self.follower)).snapshot
        return self._snapshot

    @property
    def partitions_seen(self) -> list[str]:
        """The partitions of the snapshot that somebody has asked for; nothing is listed for the answer."""
        return self._snapshot.partitions_seen() if self._snapshot is not None else []

    @property
    def schema_text(self) -> str | None:
        """The table's schema as of the begin slot as Avro JSON, None when it had none yet."""
        if self._schema_text is None:
            views = self.session.views
            self._schema_text = (self.seen(lambda: views.schema_at(self.begin_slot, self.instant, self.follower)),)
        return self._schema_text[0]

    @property
    def has_looked(self) -> bool:
        """Whether somebody has asked for the snapshot or the schema."""
        return self._snapshot is not None or self._schema_text is not None

    def seen(self, look: Callable[[], T]) -> T:
        """What the look gives; `ConflictError` when a restore since the begin takes away what is looked at."""

        def lost() -> Exception | None:
            self.session.log.catch_up()
            found = next((commit for commit in self.follower.commits if commit.restores), None)
            return restored_below(self, found) if found else None

        return undisturbed(look, lost, lambda: self.session.timeline().completed)

    # --- guards ----------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise when it is over, or its table was closed."""
        self.session.require_open()
        if self.state != "open":
            raise is_over(self, self.state)

    def require_in(self, state: LogState) -> None:
        """Raise `RolledBackError` when the log says that it has ended."""
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

    def check(self) -> None:
        """Raise `RolledBackError` when somebody has ended it."""
        self.require_open()
        self.require_in(self.session.log.catch_up())

    # --- the pending instant ---------------------------------------------------------------------------------

    def _announce_pending(self) -> None:
        """Put the pending instant. On a far store of a write it is on its way then, and stands before the first data file.

        The heartbeat stands before it: JVM writers take a pending instant without one for a dead writer's.
        """
        session, kind = self.session, self.kind
        puts = [partial(self._announce, kind.action, state) for state in kind.announced]
        record = session.record(self.instant)
        if record is None or kind.service:
            for put in puts:
                put()
        else:
            record.sends([Task(session.env, put) for put in puts])

    def arrived(self) -> None:
        """The pending instant stands when this returns. Raises `StorageError` when it could not be put."""
        if (record := self.session.records.get(self.instant)) is not None:
            record.arrived()

    def announce_as(self, action: str) -> None:
        """The pending instant has the action that the commit will have; before the first file of that commit."""
        if action != self.announced_as:
            self.arrived()
            # "": should this fail half-way, the abort deletes what stands there of any action.
            before, self.announced_as = self.announced_as, ""
            for state in self.kind.announced:
                self._announce(action, state)
            for state in reversed(self.kind.announced):
                self.session.store.delete(self._pending_path(before, state))
            self.announced_as = action

    def _announce(self, action: str, state: State) -> None:
        # Empty and not flushed: the begin entry is the record. But a reader takes files older than the first instant
        # it knows for committed ones, so on a young table nothing of ours may exist before this does.
        store, path = self.session.store, self._pending_path(action, state)
        put = store.put_if_absent(path, b"", durable=False)
        if put.outcome is Outcome.UNKNOWN and store.head(path) is None:
            raise StorageError(f"{path} could not be written: {put.cause}; nothing landed, try again", path=path)

    def _pending_path(self, action: str, state: State) -> str:
        return f"{self.session.config.timeline_folder}/{file_name(Instant(self.instant, action, state))}"

    # --- the end ---------------------------------------------------------------------------------------------

    def abort(
        self, reason: str, *, abandon: Callable[[], object] = lambda: None, lost: Loss | None = None
    ) -> bool | None:
        """End without landing. Does nothing when it is over already; ``abandon`` leaves what is still being written.

        ``lost`` is what the log keeps of one that another writer beat. Returns whether it has ended by this; None when it had
        ended before, by whatever entry.

        When the end cannot be written now, the heartbeat has stopped and the next writer rolls it back.
        """
        if self.state != "open":
            return None
        if (record := self.session.records.get(self.instant)) is not None:
            record.settle()  # or a late put would follow the deletion
        record = self.session.records.get(self.instant)
        self.over("aborted" if self.plan is None else "left")
        abandon()
        if self.plan is not None:
            return None
        ended: bool | None = False
        me = self.session.env.process()

        def build(state: LogState) -> LogEntry | None:
            # Not open: somebody has rolled us back, and sweeps; a second end would say nothing.
            if self.instant not in state.open:
                return None
            return End("abort", self.instant, f"{me.host}:{me.pid}", reason, lost=lost)

        try:
            ended = self.session.log.append(build) is not None or None
            # Who was ended by force has perhaps not noticed it (`OwnRecord`), and put a file behind the other's sweep.
            known = record.markers if record is not None else ()
            self.session.cleaner.sweep(self.instant, self.announced_as, known=known)
        except LakeLatchError:
            _log.warning("abort of %s could not be finished; the next writer does it", self.instant, exc_info=True)
        return ended

    def tell_that_nothing_landed(self, error: BaseException) -> None:
        """A note of the error that ended it says so, unless it is one of ours, which says so itself."""
        if not isinstance(error, LakeLatchError):
            error.add_note(f"{self.url}: {self.operation} {self.instant} was taken back; nothing landed")

    def over(self, state: str) -> None:
        """It has ended so; heartbeat, follower and lease go."""
        self.state = state
        self.session.heart.stop(self.instant)
        self.session.records.pop(self.instant, None)
        self.session.log.unfollow(self.follower)
        self.release()
        self.trace.end(state)

    def release(self) -> None:
        """Give the lock back, where it is held."""
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
