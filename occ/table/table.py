"""A table: open, look, change. The front door of the library."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...conflict import refuse_contradiction
from ...environment import SYSTEM, Environment
from ...errors import (
    ConfigError,
    CorruptTableError,
    InputError,
    LakeLatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from ...hudi.files import not_hudi
from ...hudi.table import TableConfig
from ...hudi.timeline import History, read_timeline
from ...storage import Store, open_store
from ..liveness import FailedWriteCleaner, HeartbeatSender, Leases, Pruner
from ..log import EPOCH_SLOTS, LOG, CommitLog, LogEntry, LogState, OutcomeGuard, Publisher, Setting, Settings
from ..services import remove_undone, take_archived_away
from ..session import Reading, TableLease, TableLock, ViewCache, forgotten, settled
from ..staging import operation as refuse_unknown
from ..transaction import Bounds, Contention, RunResult, Transaction, lay_floor
from ..transaction import run as run_again
from ..turns import Asked, Reservations, reservation_of
from .maintenance import Maintenance

if TYPE_CHECKING:
    import pyarrow as pa

    from ..staging import FileSpec

PROPERTIES = ".hoodie/hoodie.properties"
T = TypeVar("T")
_log = logging.getLogger("lakelatch")


class Table(Reading, Maintenance):
    """One handle on one table; safe to share between threads, and a context manager. Made by `open`.

    Attributes:
        url: the one spelling of its place.
        config: what ``hoodie.properties`` says.
        writable: False for a Hudi table without our log, until ``lakelatch adopt``.
    """

    def __init__(
        self, store: Store, *, env: Environment = SYSTEM, writer: str = "", epoch_slots: int = EPOCH_SLOTS
    ) -> None:
        self.store, self.env, self.url = store, env, store.url
        process = env.process()
        self.writer = writer or f"{process.host}:{process.pid}"
        self._properties = b""
        self.config = self._read_config()
        self.config.refuse_opening()
        self.writable = bool(store.folders(LOG))
        self.contention = Contention()
        self.priority, self.clock_is_right = 0, False
        self.history = History(store, self.config.timeline_folder)
        if self.writable:
            publisher = Publisher(store, env, self.config.timeline_folder)
            self.log = CommitLog(store, env, publisher, epoch_slots=epoch_slots)
            self.log.catch_up()
            self._lock = TableLock(self.log, store, env, self.writer)
            self.cleaner = FailedWriteCleaner(store, self.log, env, self.config.timeline_folder)
            self.pruner = Pruner(store, self.log, self.cleaner, publisher)
            self.leases = Leases(store, env)
            self.heart = HeartbeatSender(
                store, env, interval_s=self.settings.heartbeat_interval_s, after=self._after_beats
            )
            self.reservations = Reservations(self)
            self.views = ViewCache(self.log, self._cold_view, self._files_of)
            self._swept = False

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings that all writers of the table share, as of the last look at the log."""
        self._require_log()
        return self.log.state.settings

    @property
    def lock(self) -> TableLock:
        """The table's lock: its provider, taking it, changing it."""
        self._require_open()
        self._require_log()
        return self._lock

    # --- changing --------------------------------------------------------------------------------------------

    def transaction(
        self,
        operation: str = "upsert",
        *,
        lock_first: bool = False,
        isolation: str | None = None,
        reserve: Asked | None = None,
        first: int | None = None,
    ) -> Transaction:
        """Begin a transaction; leave its block to commit.

        Args:
            operation: insert, bulk_insert, upsert, delete, insert_overwrite, insert_overwrite_table or
                delete_partition. It names the instant's action, and says whether the table was read.
            lock_first: take the table's lock before the snapshot and keep it to the commit: cannot lose, and nobody
                else commits meanwhile. For short transactions on a contended table; `run` does it by itself.
            isolation: a stronger level than the table's, for this one.
            reserve: keep others from landing there until this one has ended: ``"table"``, or a list of partition paths,
                file slices of a snapshot, or (partition, file id). Begins when older ones that reserved the same have
                ended. For long work; docs/starvation.md says who waits for whom.
            first: begin slot of the first attempt of the same work, by which reservations are ranked; `run` carries it.

        Raises:
            InputError: no such partition or file group to reserve.
            ConflictError: what others have reserved was not free within ``yield_wait_s``.
            UnsupportedTableError: the table cannot be written; the message says why and the way out.
        """
        self._require_open()
        refuse_unknown(operation)
        self._require_log()
        self._refuse_if_unwritable()
        if self.log.state.last is None:  # made half, or adopted and not yet written to
            lay_floor(self)
        reserved = reservation_of(self, reserve, operation) if reserve is not None else None
        return Transaction(self, operation, lock_first=lock_first, isolation=isolation, reserved=reserved, first=first)

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        operation: str = "upsert",
        attempts: int = 20,
        timeout_s: float = 600.0,
        backoff_s: float = 0.05,
        lost_work_max_s: float | None = None,
        isolation: str | None = None,
        reserve: Asked | None = None,
        reserve_after: int | None = 1,
    ) -> RunResult[T]:
        """Run ``work`` in a transaction and commit it; on conflict run it again with a fresh instant and snapshot.

        After a loss, short work takes the lock before its snapshot while the table stays contended; long work reserves
        what it touched, and others wait for it.

        Args:
            work: called with the transaction; may run several times, so it must keep nothing from one time to the next.
            attempts: how often at most.
            time_s: no new attempt begins after so many seconds.
            work_s: no new attempt begins when the lost ones took so many seconds together.
            pause_s: jittered pause after the first loss, doubled with each, 5 s at most.
            isolation, reserve: of each attempt, see `transaction`.
            reserve_after: after so many lost attempts the next ones reserve; None: never.

        Raises:
            ConflictError: of the last attempt, when the bounds are reached; a note says how many there were.
        """
        return run_again(
            self,
            work,
            Bounds(attempts, timeout_s, backoff_s, lost_work_max_s, reserve_after),
            operation=operation,
            isolation=isolation,
            reserve=reserve,
        )

    def set_lock(self, url: str, *, jvm_writers_stopped: bool = False) -> Settings:
        """The table has this lock from now on. Writers may run meanwhile: each goes over to it at its next commit.

        Args:
            url: a lock URL, ``table`` or ``none://``. It must be reachable from here now.
            jvm_writers_stopped: say so when the present lock is shared with JVM writers, who would not go over.

        Raises:
            ConfigError: there is no such lock, or it cannot be opened here.
            LockUnavailableError: its server does not answer. The table keeps the lock that it had.
        """
        return self.lock.change(url, jvm_writers_stopped=jvm_writers_stopped)

    def change_settings(self, **changes: Any) -> Settings:
        """The table has these settings from now on, for every writer.

        What would make rows unfindable, or untrue, is compared with all rows first. Transactions that began under other
        buckets or fewer constraints do not land.

        Raises:
            ConfigError: unknown names or values; or the rows do not lie in so many buckets.
            ConstraintError: rows break a new unique constraint; names some.
        """
        self._require_open()
        self._require_log()
        wanted = self.settings.changed(**changes)
        if "lock" in changes:
            if (wanted.bucket_count, wanted.unique_constraints) != (
                self.settings.bucket_count,
                self.settings.unique_constraints,
            ):
                raise ConfigError(
                    f"{self.url}: change the lock by itself; buckets and unique are compared with the rows, under one lock"
                )
            return self.lock.change(**changes)
        if wanted.unique_constraints or "bucket_count" in changes:
            from ..transaction import constrained

            return constrained(self, changes)

        def build(state: LogState) -> LogEntry:
            return Setting(state.settings.changed(**changes), self.writer)

        entry = self.log.append(build)
        assert isinstance(entry, Setting)
        return entry.settings

    def rollback_failed_writes(
        self, *, wait: bool = False, progress: Callable[[float], None] | None = None
    ) -> list[str]:
        """Roll back dead transactions and remove what ended ones left; returns the instants rolled back.

        Args:
            wait: watch silent writers for the table's time-out, or to their next sign of life; otherwise only writers
                that certainly died (their process on this host is gone) or were seen silent before are found.
            progress: called with the seconds that are still to wait.
        """
        self._require_open()
        self._require_log()
        mine, since = self.heart.instants, self.env.monotonic()
        ended = self.cleaner.look(mine)
        while wait and (remaining := self.cleaner.wait_s(mine, since=since)) > 0:
            if progress:
                progress(remaining)
            self.env.sleep(min(remaining, max(self.settings.heartbeat_interval_s / 2, 0.05)))
            ended += self.cleaner.look(mine)
        self.log.publish_last()
        self.cleaner.sweep_leftovers(mine)
        self.cleaner.sweep_strays(read_timeline(self.store, self.config), mine)
        remove_undone(self, self.leases)
        take_archived_away(self)
        self.pruner.prune()
        return ended

    # --- what a transaction needs ----------------------------------------------------------------------------

    def lease(self, why: str, *, max_hold_s: float | None = None) -> TableLease:
        """The table's lock, waited for. Raises `LockTimeoutError` naming the holder."""
        return self.lock.lease(why, max_hold_s=max_hold_s)

    def file_spec(self, instant: str, rows: pa.Schema, current: pa.Schema | None) -> tuple[FileSpec, str]:
        """What files of a transaction have in common, and the table's schema after it as Avro JSON."""
        from ...hudi.table import META_COLUMNS
        from ..staging import FileSpec

        data = _without(rows, META_COLUMNS)
        schema, avro = _settled(current, data, self.config.name)
        missing = [f for f in (*self.config.record_key_fields, *self.config.partition_fields) if f not in schema.names]
        if missing:
            raise InputError(
                f"the rows lack {', '.join(missing)}, which {self.url} needs as record key or partition",
                columns=missing,
            )
        return FileSpec(self.store, instant, schema, self.config, self.settings.bucket_count), avro

    def landed(self, instant: str) -> str | None:
        """The completion time of a transaction of ours that is not open any more; None: nothing of it has landed.

        Raises `CommitStateUnknownError` when a restore took it back, and the log tells of neither any more, or when that cannot
        be looked up.
        """
        with OutcomeGuard(self.url) as doubt:
            doubt.about(instant, instant)
            completion = self.log.landed(instant)
            if completion is None and (restore := read_timeline(self.store, self.config).taken_back().get(instant)):
                raise forgotten(self.url, instant, restore)
            return completion

    def look_after_others(self) -> None:
        """Roll back writers that have died; sweep once what dead cleaners left. Cheap when nothing is to be done."""
        try:
            self._require_open()
            self.cleaner.look(self.heart.instants, at_most_every_s=1.0)
            if not self._swept:
                self._swept = True
                self.cleaner.sweep_leftovers(self.heart.instants)
                take_archived_away(self)
        except LakeLatchError as e:  # theirs, not ours: it must not end the work that is going on here
            _log.warning("%s: cleaning up after others failed; it is tried again: %s", self.url, e)

    def _after_beats(self) -> None:
        """On the heartbeat's thread, so that nobody waits for it."""
        self.look_after_others()
        try:
            self.pruner.look()
        except LakeLatchError as e:
            _log.warning("%s: old epochs of the log could not be removed; tried again later: %s", self.url, e)

    # --- guards ----------------------------------------------------------------------------------------------

    def _read_config(self) -> TableConfig:
        # A JVM writer replaces the file by delete and create, and leaves a copy meanwhile.
        stored = self.store.get(PROPERTIES) or self.store.get(PROPERTIES + ".backup")
        if stored is None:
            if self.store.folders(".hoodie") or self.store.list(".hoodie"):
                raise CorruptTableError(
                    f"{self.url} has a .hoodie folder but no {PROPERTIES}: it was created half, or damaged. If it holds no "
                    "data, delete the .hoodie folder and create the table again",
                    table=self.url,
                )
            next_step = "Create one with lakelatch.create or `lakelatch create`"
            raise TableNotFoundError(not_hudi(self.store, f"there is no {PROPERTIES}", next_step), table=self.url)
        if stored.body != self._properties:
            self.config = TableConfig.from_bytes(stored.body, table=self.url)
            self._properties = stored.body
        return self.config

    def _refuse_if_unwritable(self, *, rows: bool = True) -> None:
        # Read anew at every begin: a JVM writer may have upgraded the table or given it a metadata table.
        self._read_config().refuse_writing(rows=rows)

    def _require_log(self) -> None:
        if not self.writable:
            raise UnsupportedTableError(
                f"{self.url} was not made by this library and has no commit log, so it is read-only; "
                "`lakelatch adopt URL LOCK` makes it writable",
                table=self.url,
            )

    # --- closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the heartbeat thread and the lock's renewer; nothing is read or written with this handle any more.

        Transactions still open will be rolled back. Twice is fine.
        """
        self._closed = True
        if self.writable:
            self.heart.close()
            self._lock.close()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lakelatch.Table {self.url}>"


def open(  # noqa: A001 - lakelatch.open is the name people expect
    url: str,
    *,
    writer: str = "",
    lock: str | None = None,
    strategy: str | None = None,
    isolation: str | None = None,
    priority: int = 0,
    clock_is_right: bool = False,
    env: Environment = SYSTEM,
    **storage: Any,
) -> Table:
    """Open a table. Lock backend, strategy and isolation come from the table itself.

    Args:
        url: a path, ``file://``, ``s3://``, ``gs://`` or ``az://``; every spelling of one place is the same table.
        writer: a name for logs and conflict messages; host and process number otherwise.
        lock, strategy, isolation: what this writer expects; refused when the table says otherwise.
        priority: of this writer's transactions, on tables with strategy ``priority``; the larger goes first.
        clock_is_right: begin also when this host's clock is years ahead of all that the table has: nothing was written
            for so long.
        env: clocks, threads and randomness; for simulators.
        storage: options of the store (endpoint, region, keys).

    Raises:
        TableNotFoundError: there is no table.
        ConfigError: the table is set otherwise than this writer expects; names both values.
    """
    table = Table(open_store(url, **storage), env=env, writer=writer)
    table.priority, table.clock_is_right = priority, clock_is_right
    if table.writable:
        refuse_contradiction(table.settings.strategy, bucket_count=table.settings.bucket_count, priority=priority)
        if lock is not None and lock != table.settings.lock:
            lock = settled(lock, env=env)
        table.settings.refuse_others(table.url, lock=lock, strategy=strategy, isolation=isolation)
        table.lock.expected = lock
    elif lock is not None:
        raise ConfigError(f"{table.url} has no lock setting yet; `lakelatch adopt {table.url} {lock}` gives it one")
    return table


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([f for f in schema if f.name not in names])


@functools.lru_cache(maxsize=64)
def _settled(current: pa.Schema | None, rows: pa.Schema, name: str) -> tuple[pa.Schema, str]:
    from ...hudi.table import storable, to_avro, widen

    schema = storable(rows) if current is None else widen(current, rows)
    return schema, to_avro(schema, name)
