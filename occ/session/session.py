"""One open table: its store, properties, log, lock and heartbeat, and its views. Everything above works with this.

A session changes nothing by itself, except that it cleans up after dead writers (`look_after_others`).
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...ahead import Task, in_order
from ...conflict import Claim, first_in_the_way
from ...environment import SYSTEM, Environment
from ...errors import CorruptTableError, InputError, LakeLatchError, StorageError, TableError, UnsupportedTableError
from ...hudi.files import Footers
from ...hudi.table import TableConfig
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    EARLIEST,
    CommitMetadata,
    History,
    Instant,
    Slices,
    Time,
    Timeline,
    decode_commit,
    decode_container,
    file_name,
    has_archive,
    named_slices,
    next_label,
    parse,
    read_timeline,
    refuse_clock,
    time_of,
    to_epoch_ms,
)
from ...storage import Store, is_far, open_beside
from ...streams import declared_in
from ...tracing import step
from ..coordination import Coordinating
from ..entries import INLINE_BYTES, Begin, Commit, FileSizes, Settings, echo, undone_by
from ..liveness import (
    FailedWriteCleaner,
    HeartbeatSender,
    MarkerClient,
    MarkerService,
    NeighboursAtWork,
    OwnRecord,
    Pruner,
    ReaderLeases,
)
from ..log import (
    EPOCH_SLOTS,
    LOG,
    CommitLog,
    Follower,
    LogState,
    OutcomeGuard,
    Publisher,
    files_of,
    files_only,
    finish,
    metadata_of,
    refuse_obstacle,
)
from .outcome import forgotten, listed_beside
from .partners import Partners
from .properties import for_streams, read_config, secure_streams
from .snapshot_cache import View, ViewCache, cold_view, declared_schema, view_listed_later
from .table_lock import TableLease, TableLock
from .whole_states import refuse_cleaned

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import FileSlice, Snapshot
    from ...streams import Stream
    from ..staging import FileSpec, KeySpans


@dataclass
class Contention:
    """The contention seen on a table; after a recent loss the next attempts take the lock before their snapshot.

    An attempt under the lock cannot lose. It costs others their concurrency, so it ends with the contention, and long
    work is never done under the lock: others would wait for it, or time out.
    """

    calm_after_s: float = 5.0
    short_s: float = 5.0
    _lost_at: float | None = None

    def lost(self, now: float, *, took_s: float) -> None:
        """Note a loss at this monotonic time, after so many seconds of work."""
        self._lost_at = now if took_s <= self.short_s else None

    def lasts(self, now: float) -> bool:
        """Return whether a loss is recent."""
        return self._lost_at is not None and now - self._lost_at < self.calm_after_s


class Reservations:
    """The reservations that one handle has seen, and since when, by its own monotonic clock."""

    def __init__(self, env: Environment, log: CommitLog) -> None:
        self._env, self._log = env, log
        self._mutex = threading.Lock()
        self._seen: dict[str, float] = {}

    def counts(self, begin: Begin) -> bool:
        """Return whether an open transaction has a reservation that has not expired."""
        if not begin.reserved:
            return False
        now, state = self._env.monotonic(), self._log.state
        with self._mutex:
            since = self._seen.setdefault(begin.instant, now)
            # Forget ended transactions now and then, so that the memory does not grow with the history.
            if len(self._seen) > 2 * len(state.open) + 100:
                self._seen = {each: at for each, at in self._seen.items() if each in state.open}
        return now - since < state.settings.reservation_s

    def first_in_the_way(self, state: LogState, mine: Claim) -> Claim | None:
        """The transaction that must end before this one may begin; None if there is none."""
        settings = state.settings
        return first_in_the_way(
            mine,
            self.claims(state),
            by_priority=settings.strategy == "priority",
            bucketed=settings.bucket_count is not None,
        )

    def claims(self, state: LogState) -> list[Claim]:
        """All reservations in force, for people to see."""
        return [begin.claim for begin in state.open.values() if self.counts(begin)]


T = TypeVar("T")
CLOCK_SKEW_S = 0.2  # the default of Hudi's hoodie.time.generator.max_expected_clock_skew_ms
_READS = 64  # commits that are read at a time from a far store
_log = logging.getLogger("lakelatch")


class Session:
    """The parts of one handle on a table; safe to share between threads.

    Attributes:
        url: the one spelling of its place.
        config: the parsed ``hoodie.properties``.
        writable: False for a Hudi table without our log, until it is adopted. Then there is no log, lock or heartbeat.
        writer: its name in logs and messages; ``priority`` that of its transactions.
        inline_bytes: a commit or plan larger than this is stored beside the log, not in its entry.
        clock_is_right: begin even if this host's clock is years ahead of the table.
        threads: the file groups a write works on at a time; as many as this process has cores.
        merged_bytes_s: the assumed speed of a merge, in bytes of file slices per second, before it has written any.
        rounds: by T, called with each heartbeat while the transaction beats.
        markers: the server that takes its markers; None: they are put directly.
        coordinator: begins and commits for it; None: it does all by itself. So it does until ``alone_until`` (monotonic).
            Until ``led_until`` the coordinator, which was heard, looks after dead writers.
        far: True if a request to its store takes long.
        partners: the sessions of tables that take part in transactions with this one.
        records: by T, the state of its open transactions, known without a request to a far store.
        first_sweep: called once, when the session first looks after others.
        landed_one: called after each commit, on the thread of its writer.
        closed: the handle was closed.
    """

    def __init__(
        self, store: Store, *, env: Environment = SYSTEM, writer: str = "", epoch_slots: int = EPOCH_SLOTS
    ) -> None:
        self.store, self.env, self.url = store, env, store.url
        self._opened_with = store, env, writer, epoch_slots
        process = env.process()
        self.writer = writer or f"{process.host}:{process.pid}"
        self._properties: bytes | None = None
        self._publisher: Publisher | None = None
        self._checked: tuple[TableConfig, str | None] | None = None  # properties and schema that can be written
        self.config = self.read_config()
        self.config.refuse_opening()
        self.writable = bool(store.folders(LOG)) or self._finish_creation()
        self.contention = Contention()
        self.priority, self.clock_is_right, self.inline_bytes = 0, False, INLINE_BYTES
        self.threads = _cores()
        self.merged_bytes_s = 16 << 20
        self.first_sweep: Callable[[], object] = lambda: None
        self.landed_one: Callable[[], object] = lambda: None
        self.markers: MarkerService | None = None
        self.coordinator: Coordinating | None = None
        self.alone_until = self.led_until = 0.0
        self.far = is_far(store.url)
        self.records: dict[str, OwnRecord] = {}
        self._partitions = set[str]()  # that have their metadata file
        self._named: tuple[dict[str, Mapping[str, Any]], Slices | None] = {}, None  # by T; and what they add up to
        self._spans: KeySpans | None = None
        self._behind: list[Task[None]] = []
        self._mutex = threading.Lock()  # guards that list
        self.partners = Partners(lambda url: Session(open_beside(store, url), env=env, writer=self.writer))
        self.footers = Footers(store)
        self.history = History(store, self.config.timeline_folder)
        self.closed = self._swept = False
        self._secured: Settings | None = None  # the settings that the properties have of streams
        if self.writable:
            self._publisher = publisher = Publisher(
                store, env, self.config.timeline_folder, merge_on_read=self.config.merge_on_read
            )
            self.log = CommitLog(store, env, publisher, epoch_slots=epoch_slots)
            self.log.catch_up()
            self._refuse_other_columns()
            self._lock = TableLock(self.log, store, env, self.writer)
            self.cleaner = FailedWriteCleaner(
                store,
                self.log,
                env,
                self.config.timeline_folder,
                lease=partial(self._lock.lease, "rolling back a dead writer"),
            )
            self.neighbours = NeighboursAtWork(store, env, self.config.timeline_folder)
            self.pruner = Pruner(store, self.log, self.cleaner, publisher)
            self.leases = ReaderLeases(store, env)
            self.heart = HeartbeatSender(
                store, env, interval_s=lambda: self.settings.heartbeat_interval_s, after=self._after_beats
            )
            self.reservations = Reservations(env, self.log)
            self.views = ViewCache(self.log, self._cold_view, lambda: self._followed(self._newest), self.files_of)

    @property
    def settings(self) -> Settings:
        """The settings shared by all writers of the table, as of the last read of the log."""
        if not self.writable:
            self.require_log()
        return self.log.state.settings

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The table's streams, as of the last read of the log, which is never older than a view.

        Without a log those that the properties declare.
        """
        if self.writable:
            return self.settings.streams
        declared = declared_in(self.config)
        return declared.streams if declared else ()

    @property
    def lock(self) -> TableLock:
        """The table's lock: its provider, taking it, changing it."""
        if self.closed or not self.writable:
            self.require_open()
            self.require_log()
        return self._lock

    def lease(self, why: str, *, max_hold_s: float | None = None, lease_s: float | None = None) -> TableLease:
        """Take the table's lock, waiting for it; see `TableLock.lease`. Raises `LockTimeoutError` naming the holder."""
        with step("lock"):
            return self.lock.lease(why, max_hold_s=max_hold_s, lease_s=lease_s)

    def publish_last(self) -> None:
        """Publish the newest commit; takes the table's lock for it if JVM writers share the lock.

        Raises:
            UnsupportedTableError: as in `CommitLog.publish_last`.
        """
        if not self.log.publish_last():
            with self.lease("publishing what another writer left"):
                self.log.publish_last(locked=True)

    def close(self) -> None:
        """Stop the heartbeat thread and the lock's renewer. Idempotent."""
        for task in self._behind:  # they use the handle until they end
            task.wait()
        self.closed = True
        if self._publisher is not None:
            self._publisher.close()
            self.heart.close()
            self._lock.close()
        if self.markers is not None:
            self.markers.close(self.store)
        if self.coordinator is not None:
            self.coordinator.close()
        self.partners.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments that open the table again elsewhere.

        The token of a server for markers is left out; markers are put directly there.
        """
        self.require_open()
        given = {"priority": self.priority, "clock_is_right": self.clock_is_right}
        if self.threads != _cores():
            given["threads"] = self.threads
        return _reopened, (*self._opened_with, given, self._lock.expected if self.writable else None)

    @property
    def asks(self) -> Coordinating | None:
        """The coordinator to be asked now; None: the transaction begins or commits by itself."""
        return self.coordinator if self.env.monotonic() >= self.alone_until else None

    @property
    def marker_client(self) -> MarkerClient | None:
        """The client that announces data files for this process and its workers; None: markers are put directly."""
        return self.markers.marker_client(self.store, self.env) if self.markers is not None else None

    # --- guards ----------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise `TableError` if this handle was closed."""
        if self.closed:
            raise TableError(f"this handle on {self.url} was closed; open the table again", table=self.url)

    def require_log(self) -> None:
        """Raise `UnsupportedTableError` for a table without our log, `StorageError` if something stands in its place."""
        if not self.writable:
            refuse_obstacle(self.store)
            raise UnsupportedTableError(
                f"{self.url} was not made by this library and has no commit log, so it is read-only; "
                "`lakelatch adopt URL LOCK` makes it writable",
                table=self.url,
            )

    def refuse_if_unwritable(self) -> None:
        """Raise `UnsupportedTableError` for a table that cannot be written.

        Reads the properties again: a JVM writer may have upgraded the table or given it a metadata table.
        """
        now = self.read_config(), self.log.state.schema_before(sys.maxsize) if self.writable else None
        if now != self._checked:
            now[0].refuse_writing()
            self._refuse_other_columns()
            self._checked = now

    def _finish_creation(self) -> bool:
        """Start the log of a table whose creator stopped before. False if the table has no log for another reason."""
        try:
            return self._properties is not None and finish(self.store, self._properties)
        except (StorageError, CorruptTableError) as e:
            # Without write access it reads as an empty table.
            _log.info("%s: its creation was not finished: %s", self.url, e)
            return False

    def read_config(self) -> TableConfig:
        """Read ``hoodie.properties``; parsed only when it has changed."""
        body = read_config(self.store)
        if body != self._properties:
            self.config = TableConfig.from_bytes(body, table=self.url)
            self._properties = body
            if self._publisher is not None:  # the table may have become merge-on-read (`Table.adopt_streams`)
                self._publisher.merge_on_read = self.config.merge_on_read
        return self.config

    def _refuse_other_columns(self) -> None:
        """Raise `CorruptTableError` if the properties name columns that the table lacks, as far as the log knows."""
        if self.writable and (schema := self.log.state.schema_before(sys.maxsize)):
            self.config.refuse_other_columns([each["name"] for each in json.loads(schema)["fields"]], table=self.url)

    def secure_streams(self) -> None:
        """Bring the properties up to the streams of the log, before the first event of one is written.

        The declaration in the log is the authority; any process that finds the properties behind it mends them.

        Raises:
            StorageError: the store gave no answer, or another process keeps changing the file.
        """
        # The settings are one object until an entry of the log changes them.
        if self._secured is self.settings:
            return
        if for_streams(self.config, self.settings, "").to_bytes() == self.config.to_bytes():
            self._secured = self.settings
            return
        self._secured = secure_streams(self.store, self.env, self.log.catch_up)
        self.read_config()

    # --- others ----------------------------------------------------------------------------------------------

    def look_after_others(self) -> None:
        """Roll back dead writers; sweep once what dead cleaners left. Cheap if there is nothing to do."""
        try:
            self.require_open()
            self.cleaner.look(self.heart.instants, at_most_every_s=1.0)
            # Once per handle, because it lists what all transactions left; the dead found above are swept at once.
            if not self._swept:
                self._swept = True
                self.cleaner.sweep_leftovers(self.heart.instants)
                self.first_sweep()
        except LakeLatchError as e:  # an error about others must not end our own work
            if not self.closed:  # else another thread has closed the handle, and with it this
                _log.warning("%s: cleaning up after others failed; it is tried again: %s", self.url, e)

    def afterwards(self, call: Callable[[], object], what: str, *, long: bool = False) -> None:
        """Make a call that only `close` waits for; on another thread if it is ``long`` or the store far.

        Its errors are logged; another handle finds the work left undone.
        """

        def run() -> None:
            try:
                call()
            except LakeLatchError as e:
                _log.warning("%s: %s: %s", self.url, what, e)

        if not (self.far or long) or self.closed:
            run()
            return
        with self._mutex:
            self._behind = [*(each for each in self._behind if not each.ended), Task(self.env, run)]

    def record(self, instant: str) -> OwnRecord | None:
        """Start the record of a transaction that this process begins; None if asking the store costs little."""
        if not self.far or self.markers is not None:
            return None

        def lives() -> bool:
            return self.heart.longest_silence_s(instant) < self.settings.heartbeat_timeout_s / 2

        found = self.records[instant] = OwnRecord(lives, self._partitions)
        return found

    def _after_beats(self) -> None:
        """Look after others on the heartbeat's thread, so that nobody waits for it."""
        if self.env.monotonic() >= self.led_until:
            self.look_after_others()
        try:
            self.pruner.look()
        except LakeLatchError as e:
            _log.warning("%s: old epochs of the log could not be removed; tried again later: %s", self.url, e)

    def landed(self, instant: str) -> str | None:
        """The completion time of a transaction that is not open any more; None: nothing of it was committed.

        Raises `CommitStateUnknownError` if a restore took it back and the log has forgotten both, or if that cannot be
        read.
        """
        with OutcomeGuard(self.url) as doubt:
            doubt.about(instant, instant)
            completion = self.log.landed(instant)
            if completion is None and (restore := read_timeline(self.store, self.config).taken_back().get(instant)):
                raise forgotten(self.url, instant, restore)
            return completion

    def refuse_rule(self, settings: Settings, schema: pa.Schema | None) -> None:
        """Raise `ConfigError` if rows can't be merged by the settings in a table with these columns (None: any)."""
        if settings.merge or settings.ties != "last":
            from ...hudi.merge import rule_of

            rule_of(self.config, settings.merge, settings.ties).refuse(schema)

    @property
    def file_sizes(self) -> FileSizes:
        """The target and small file sizes; `ConfigError` if the table's properties have an invalid size."""
        return FileSizes.of(self.settings, self.config)

    def file_spec(
        self,
        instant: str,
        rows: pa.Schema,
        current: pa.Schema | None,
        required: tuple[str, ...] = (),
        dropped: tuple[str, ...] = (),
    ) -> tuple[FileSpec, str]:
        """The common spec of a transaction's files, and the table's schema after it as Avro JSON."""
        from ...hudi.table import META_COLUMNS, refuse_grown_maps
        from ..staging import FileSpec, KeySpans

        if self._spans is None:
            self._spans = KeySpans()
        schema, avro = _settled(current, _without(rows, META_COLUMNS), self.config.name, required, dropped)
        if current is not None:
            self.config.refuse_other_columns(current.names, table=self.url)
            if self.config.merge_on_read and schema != current:
                refuse_grown_maps(current, schema)
        missing = [f for f in (*self.config.record_key_fields, *self.config.partition_fields) if f not in schema.names]
        if missing:
            raise InputError(
                f"the rows lack {', '.join(missing)}, which {self.url} needs as record key or partition",
                columns=missing,
            )
        settings, sizes = self.settings, self.file_sizes
        spec = FileSpec(
            self.store,
            instant,
            schema,
            self.config,
            settings.bucket_count,
            required=required,
            merge=settings.merge,
            ties=settings.ties,
            streams=settings.streams,
            target_file_bytes=sizes.target,
            small_file_bytes=sizes.small,
            marker_client=self.marker_client,
            spans=self._spans,
            known_footers=self.footers,
            record=self.records.get(instant),
        )
        self.refuse_rule(settings, schema)
        return spec, avro

    # --- what it shows -----------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """The table's instants, from one listing, without commits that a restore has taken back.

        A publisher that slept during the restore may have published one again. A caller working with it would bring its
        rows back, or lose those that it replaced.
        """
        self.require_open()
        timeline = read_timeline(self.store, self.config)
        undone = timeline.taken_back()
        return timeline.without(undone) if undone else timeline

    def newest(self, top: str) -> str:
        """The time that a new instant must exceed; ``top`` is the log's. With neighbours theirs count too."""
        return max(top, self.log.newest_shown) if self.settings.timeline_first else top

    def next_instant(self, top: str) -> str:
        """The T of a transaction that begins now, greater than ``top``, the newest of all; `ConfigError` for a wrong clock."""
        # Hudi's writers allow each other's clocks a skew of 200 ms: each waits that long under the lock after it has taken
        # T. Ours takes a T that is so old instead, above all that are on the timeline. A C is never set back: Hudi's
        # writers compare with what was completed after their T.
        now = self.env.now()
        if self.settings.timeline_first:
            now, top = now - CLOCK_SKEW_S, self.newest(top)
        refuse_clock(now, top, self.url, trusted=self.clock_is_right)
        return next_label(now, top, trusted=self.clock_is_right)

    def keep_for_clocks(self, lease: TableLease, completion: str) -> None:
        """Let the lease be given back when no clock of a neighbour, if there may be any, can be before this C of ours.

            t=0  ours commits at C=100, and gives the lock back
            t=1  a JVM whose clock is behind takes it and commits at C=99
            t=2  a reader that has been told everything up to 100 asks for what came later, and never hears of 99

        Nothing is waited for if the lock's file is beside the table on a disk: then all writers are on this host.
        """
        if self.settings.timeline_first and not self.settings.lock.startswith("file:"):
            left = to_epoch_ms(completion) / 1000 + CLOCK_SKEW_S - self.env.now()
            lease.until = self.env.monotonic() + min(max(left, 0.0), 2 * CLOCK_SKEW_S)

    def time_of(self, value: Time, what: str = "the time") -> str:
        """Convert a time in any accepted form (`times`) to the timeline's format. `InputError` for anything else."""
        return time_of(value, what, utc=self.config.timeline_timezone == "UTC")

    def commits(self, *, after: Time | None = None, until: Time | None = None) -> list[tuple[Instant, CommitMetadata]]:
        """See `Table.commits`."""
        first = "" if after is None or after in ("0", "000") else self.time_of(after, "after")
        last = None if until is None else self.time_of(until, "until")
        timeline = self._steadily(lambda timeline: timeline) if self.writable else self.timeline()
        if self.config.layout == 1 and first < (timeline.first_active or "") and has_archive(self.store, self.config):
            raise UnsupportedTableError(
                f"{self.url}: what changed since {first or 'the beginning'} cannot be told: commits before "
                f"{timeline.first_active} are in an archive of table version 6, which this library does not read. Begin with a "
                "snapshot read",
                table=self.url,
            )
        found = {
            each: timeline.metadata(each) for each in timeline.completed_by(completed=last) if each.order[0] > first
        }
        archived = [i for i in self.history.instants().values() if first < i.order[0] and i.action in COMMIT_ACTIONS]
        bodies = self.history.contents(i for i in archived if last is None or i.order[0] <= last)
        for each, body in bodies.items():
            found.setdefault(each, decode_commit(body, name=file_name(each), layout=2, table=self.url))
        return sorted(found.items(), key=lambda item: item[0].order)

    def snapshot(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> Snapshot:
        """See `Table.snapshot`."""
        return self.view(as_of=as_of, as_of_completion=as_of_completion).snapshot

    def schema(self) -> pa.Schema | None:
        """The data columns, without Hudi's meta columns; None before the first commit."""
        return self.view().arrow_schema()

    def declared_schema(self) -> pa.Schema | None:
        """The data columns, like `schema`; columns declared not null are not nullable."""
        text = self.view().schema
        return declared_schema(text) if text else None

    def view(self, *, as_of: Time | None = None, as_of_completion: Time | None = None, whole: bool = True) -> View:
        """Snapshot and schema together, of one moment; arguments and errors of `snapshot`.

        ``whole`` False: also if a cleaning has removed files of that state; the caller checks that itself.
        """
        self.require_open()
        requested = None if as_of is None else self.time_of(as_of, "as_of")
        completed = None if as_of_completion is None else self.time_of(as_of_completion, "as_of_completion")
        old = requested is not None or completed is not None

        def past(timeline: Timeline) -> View:
            found = cold_view(
                self.store, timeline, as_of=requested, as_of_completion=completed, whole=old, named=self.named
            )
            if old and not len(found.snapshot):
                self._refuse_before_the_first(timeline, requested, completed)
            return found

        if self.writable and not old:
            return self.latest()[0]
        view = self._steadily(past) if self.writable else past(self.timeline())
        if old and whole:
            # After the listing, because a cleaning decided before it may have removed files from it.
            refuse_cleaned(self, as_of=requested, as_of_completion=completed)
        return view

    def named(self, timeline: Timeline, landed: Mapping[str, str]) -> Slices:
        """Return the slices that commits left, whether or not another program has deleted their files since.

        Args:
            timeline: commits on it are read, unless the log's newest entries have them.
            landed: T -> C of the commits that count. Archived ones are left out: `ArchivedFiles` names their files.
        """
        known, slices = self._named
        if known.keys() == landed.keys() and slices is not None:
            return slices
        shown = {each.requested: each for each in timeline.commits}

        def read(requested: str) -> Mapping[str, Any]:
            try:
                return files_only(timeline.metadata(shown[requested]).to_json())
            except CorruptTableError as e:  # `check` reports it; other files than its own can be read
                _log.info("%s: which files commit %s wrote is not known: %s", self.url, requested, e)
                return {}

        told = {t: self.log.recent_files.of(t, c) for t, c in landed.items()} if self.writable else {}
        contents: dict[str, Mapping[str, Any]] = {t: each for t in landed if (each := known.get(t) or told.get(t))}
        missing = [t for t in landed if t not in contents and t in shown]
        found = in_order(self.env, (partial(read, t) for t in missing), _READS if self.far else 1)
        contents |= zip(missing, found, strict=True)
        slices = named_slices((contents[t], t, landed[t]) for t in sorted(contents, key=lambda t: (landed[t], t)))
        self._named = contents, slices
        return slices

    def _refuse_before_the_first(self, timeline: Timeline, requested: str | None, completed: str | None) -> None:
        def known(**bounds: str | None) -> tuple[Instant, ...]:
            return timeline.completed_by(**bounds) or timeline.archived_by(**bounds)

        if not known(requested=requested, completed=completed) and (ever := known()):
            first = ever[0]
            raise InputError(
                f"{self.url} had no commit yet at {requested or completed}: the first that is known is {first.requested}"
                + (f", completed at {first.completed}" if first.completed else "")
                + ". Choose a later time (`lakelatch timeline` lists them)",
                table=self.url,
                first=first.requested,
            )

    def latest(self) -> tuple[View, str]:
        """The view now, and the largest completion time that it holds."""
        self.require_open()
        view = self.views.newest()
        return view, view.completion

    def _newest(self, timeline: Timeline) -> View:
        last, shown, schema = self.log.state.last, timeline.commits, None
        if (
            last is not None and shown and shown[-1].requested == last.instant
        ):  # else the timeline shows another commit than the log's last
            schema = self.log.state.schema_before(last.slot + 1)
        return cold_view(self.store, timeline, schema=schema, named=self.named)

    def _steadily(self, look: Callable[[Timeline], T]) -> T:
        """Return `look(timeline)` of a timeline that no restore interferes with."""
        found, _, later = self._followed(look)
        self.log.unfollow(later)
        return found

    def _followed(self, look: Callable[[Timeline], T]) -> tuple[T, int, Follower]:
        """Return `look(timeline)`, the slot whose state that is, and a follower of the commits from there on."""
        # The log first: its unpublished commits are merged in, and later commits are on the timeline or not seen at
        # all.
        while True:
            last, follower = self.log.catch_up().last, self.log.follow(Follower())
            kept = False
            try:
                timeline = self.timeline()
                if any((i.completed or "") > (last.completion if last else EARLIEST) for i in timeline.commits):
                    # If two were committed during the listing, it may show only the later one.
                    self.log.catch_up()
                timeline, slot = self._whole(timeline, follower)
                found = look(timeline)
                if not self._restored_since(follower):
                    kept = True
                    return found, slot, follower
            except (CorruptTableError, StorageError):
                if not self._restored_since(follower):
                    raise
            finally:
                if not kept:
                    self.log.unfollow(follower)

    def _whole(self, timeline: Timeline, follower: Follower) -> tuple[Timeline, int]:
        """Complete the timeline by the log, also drop undone commits; return it with the slot of that state.

        Names on the timeline are flushed when an epoch is closed. A power cut before that may remove any of them, and
        the next writer puts them back. A reader alone must not show a state that never was (trap 24).
        """
        shown = {file_name(each) for each in timeline.completed}
        known, lost = self.log.missing(shown, follower.commits)
        undone = {each.requested for commit in known if commit.restores for each in undone_by(commit)}
        if others := self._taken_back_by_others(timeline):
            undone |= others
            lost = [(commit, name) for commit, name in lost if commit.instant not in others]
        timeline = timeline.without(undone) if undone else timeline
        more = {
            instant: echo(commit.schema) if name == commit.echo else metadata_of(self.store, commit)
            for commit, name in lost
            if commit.action in COMMIT_ACTIONS and (instant := parse(name, layout=2))
        }
        return timeline.plus(more) if more else timeline, known[-1].slot + 1 if known else 0

    def _taken_back_by_others(self, timeline: Timeline) -> set[str]:
        """T of what restores of other engines that the log does not know yet have taken back, or are taking back now.

        What such a restore deletes from the timeline must not be completed from the log, as after a power cut.
        """
        found = set[str]()
        for each in (*timeline.completed, *timeline.pending):
            if each.action == "restore" and each.state != "requested" and self.log.is_unknown(each):
                path = timeline.path(replace(each, state="requested", completed=None))
                with suppress(CorruptTableError):  # it has taken nothing back then
                    if body := self.store.body(path):
                        plan = decode_container(body, "HoodieRestorePlan", name=path, table=self.url)
                        found |= {each["commitTime"] for each in plan["instantsToRollback"]}
        return found

    def _restored_since(self, follower: Follower) -> bool:
        """Return whether a restore ran during a listing: it removes instants and files, so both states may be mixed."""
        self.log.catch_up()
        return not follower.complete or any(commit.restores for commit in follower.commits)

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of one file slice; columns that the file does not have yet are left out."""
        from ...hudi.table import META_COLUMNS

        self.require_open()
        self.config.refuse_reading()
        if group.logs:
            from ...streams import slice_rows

            rows = slice_rows(self.store, self.config, self.streams, group, columns=columns, meta=meta)
            return rows if meta else rows.select([n for n in rows.column_names if n not in META_COLUMNS])
        with self.footers.open(group.path, group.size) as file:
            there = file.schema_arrow.names
            wanted = [n for n in there if n not in META_COLUMNS and (columns is None or n in columns)]
            return file.read([*META_COLUMNS, *wanted] if meta else wanted, use_threads=False)

    def files_of(self, commit: Commit) -> Any:
        """The files of a committed transaction, as plain values."""
        return files_of(self.store, commit)

    def _cold_view(self, top: str, schema: str | None) -> View:
        """The view that a transaction begins with: its partitions are listed one by one when it asks for them."""
        if (
            self.far or self.coordinator is not None
        ):  # if many begin together, nobody has published the newest commit yet
            self.log.publish_last()
        return view_listed_later(self.timeline(), top, schema, self._refuse_if_restored, self.named)

    def _refuse_if_restored(self, since: str) -> None:
        """Raise `ConflictError` if a restore was committed after that completion time."""
        self.log.catch_up()
        restore = self.log.restore
        if restore is not None and restore.completion > since:
            raise listed_beside(self.url, restore)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _reopened(
    store: Store, env: Environment, writer: str, epoch_slots: int, given: dict[str, Any], lock: str | None
) -> Session:
    session = Session(store, env=env, writer=writer, epoch_slots=epoch_slots)
    for name, value in given.items():
        setattr(session, name, value)
    if lock is not None and session.writable:
        session.lock.expected = lock
    return session


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([f for f in schema if f.name not in names])


@functools.lru_cache(maxsize=64)
def _settled(
    current: pa.Schema | None, rows: pa.Schema, name: str, required: tuple[str, ...], dropped: tuple[str, ...]
) -> tuple[pa.Schema, str]:
    from ...hudi.table import storable, to_avro, widen, with_required

    schema = storable(rows) if current is None else widen(current, rows)
    return schema, to_avro(with_required(schema, required), name, dropped)
