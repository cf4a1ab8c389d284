"""Writers of another engine: what Hudi's `TransactionManager` and LAZY cleaning do, over the simulated store and lock.

A stranger knows the file formats, and neither the log nor the protocol of this library:

    begin    lock; fail if a restore is pending; T is its clock's; wait the skew that clocks may have; heartbeat, requested
             instant; unlock
    read     list the timeline: the newest T completed, and what is pending; read the files; inflight instant, naming groups
    write    marker, file
    commit   lock; list again: has anything newer than that, or pending then, completed and changed these groups? has a
             clustering been planned of them? own heartbeat expired? put the completed instant, with the clock's C; unlock
    fail     stop the heartbeat, and leave everything else
    clean    list; roll back what is pending and silent: plan under the lock, without a second look; delete its files
             by its markers; lock; delete its pending instants, complete the rollback

Source: Apache Hudi 1.2, measured beside ours (`tests/jvm/test_neighbours.py`). Its job fails at a request without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import fastavro

from lakelatch.environment import Timer
from lakelatch.errors import CorruptTableError, LockUnavailableError, StorageError
from lakelatch.hudi.files import FileGroupId, list_data_files
from lakelatch.hudi.files.file_names import BaseName, base_file_name, bucket_of, join, new_file_id
from lakelatch.hudi.timeline import (
    COMMIT_ACTIONS,
    TIMELINE,
    CommitMetadata,
    FileSlice,
    Instant,
    Timeline,
    WriteStat,
    build,
    decode_container,
    encode_commit,
    file_name,
    from_epoch_ms,
    parse,
    read_timeline,
)
from lakelatch.hudi.timeline.commit_metadata import encode_container
from lakelatch.locks.core.backend import LockRequest
from lakelatch.storage import Outcome

from ..occ.world import rollback_of
from .faults import Network
from .files import decode, encode
from .history import Attempt, State, Value
from .locks import SimBackend
from .rows import rows_of
from .scheduler import SimProcess
from .shape import SHARED_LOCK
from .store import SimStore

if TYPE_CHECKING:
    from .world import World

READS_S = 3.0  # until it has read the timeline, unless it is paused
SILENT_S = (
    12.0  # after which its kind take each other for failed: as much longer than a lease and a time-out as in Hudi
)
SKEW_S = 0.2  # between two clocks
_LEASE_S, _LOCK_WAIT_S, _BEAT_S = 5.0, 30.0, 2.0
_HEARTBEATS, _MARKERS, _INFIX = ".hoodie/.heartbeat", ".hoodie/.temp", ".marker."
_PARTITIONS = ("part=a", "part=b")
_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRollbackPlan",
        "fields": [
            {
                "name": "instantToRollback",
                "type": {
                    "type": "record",
                    "name": "HoodieInstantInfo",
                    "fields": [{"name": "commitTime", "type": "string"}, {"name": "action", "type": "string"}],
                },
            },
            {"name": "version", "type": "int"},
        ],
    }
)


class JobFailedError(Exception):
    """Its job fails; the next one begins again."""


class LostError(JobFailedError):
    """Somebody else has changed its file groups."""


class RefusedError(JobFailedError):
    """It may not begin beside a restore."""


class UnknownError(JobFailedError):
    """Its completed instant got no answer."""


class WithoutLate(Network):
    """The network of a stranger: a request of a dead job arrives at once or never. Hudi does not fence one that comes late."""

    def send_later(self, step: str, act: Callable[[float], Any]) -> None:
        pass


@dataclass(frozen=True)
class View:
    """What a writer knows of the table when it begins to read."""

    timeline: Timeline
    newest: str
    pending: frozenset[str]


class Stranger:
    """One process of another engine."""

    def __init__(self, world: World, process: SimProcess) -> None:
        self._world, self._process, self._luck = world, process, world.scheduler.random
        self._env = world.environment(process)
        network = WithoutLate(world.scheduler, process, world.faults)
        self._store = SimStore(world.objects, network)
        self._lock = SimBackend(world.lock_servers[SHARED_LOCK], self._env, network)
        self._locked = 0

    # --- jobs -------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run some jobs, and clean now and then."""
        world = self._world
        world.scheduler.pause(0.5)  # what was there before the schedule has times up to its beginning
        for _ in range(world.shape.transactions + 1):
            world.scheduler.pause(self._luck.random() * 0.6)
            if self._luck.random() < 0.3:
                self.clean()
            for _ in range(2):
                attempt = world.attempt(world.scheduler.now)
                if self._run(attempt) != "conflict":
                    break

    def clean(self) -> None:
        """Roll back what looks dead."""
        with suppress(JobFailedError, StorageError):
            for each in self._silent():
                self._roll_back(each)

    def _run(self, attempt: Attempt) -> str:
        attempt.level, attempt.outcome = "snapshot", "cut off"
        job = _Job(self, attempt)
        try:
            job.run()
            outcome = "committed"
        except LostError:
            outcome = "conflict"
        except UnknownError:
            outcome = "unknown"
        except RefusedError:
            outcome = "aborted"
        except (JobFailedError, StorageError, CorruptTableError):  # a cleaning may have taken what it reads
            outcome = "failed"
        job.over(landed=outcome == "committed")
        attempt.outcome, attempt.ended = outcome, self._world.scheduler.now
        self._world.scheduler.note(f"{attempt.name} {outcome}")
        return outcome

    # --- the lock ---------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the table's lock."""
        self._locked += 1
        owner = f"{self._process.name} {self._locked}"
        request = LockRequest("table", owner, self._process.identity, _LEASE_S, None, 0, "another engine", waits=True)
        contender, until = self._lock.line_up("table"), self._env.monotonic() + _LOCK_WAIT_S
        try:
            while (grant := self._lock.try_grant(request, contender)) is None:
                if self._env.monotonic() > until:
                    raise JobFailedError("the lock is busy")
                contender.wait(0.5)
        except LockUnavailableError as e:
            contender.leave()
            raise JobFailedError("no answer from the lock") from e
        renewing = self._env.every(_LEASE_S / 4, grant.renew, name="another engine's lease")
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(LockUnavailableError):
                grant.release()

    def clock(self) -> str:
        """A time that no other clock gives from when this returns. Under the lock."""
        now = self._env.now()
        self._env.sleep(SKEW_S)
        return from_epoch_ms(int(now * 1000))

    # --- cleaning ---------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """At the end: roll back all that is pending, and take away heartbeats and markers of jobs that ended otherwise."""
        for each in self._silent():
            self._roll_back(each)
        for instant in sorted(self._world.neighbourhood.foreign):
            for path in [each.path for each in self._store.list(f"{_MARKERS}/{instant}", recursive=True)]:
                self.delete(path)
            self.delete(f"{_HEARTBEATS}/{instant}")

    def _silent(self) -> list[Instant]:
        """Pending writes whose heartbeat has expired or is not there: still pending after that was seen, as Hudi looks again."""
        silent = {each.requested for each in self._pending() if self._is_silent(each.requested)}
        return [each for each in self._pending() if each.requested in silent] if silent else []

    def _pending(self) -> list[Instant]:
        timeline = self.timeline()
        done = {each.requested for each in timeline.completed}
        return [each for each in timeline.pending if each.action in COMMIT_ACTIONS and each.requested not in done]

    def _is_silent(self, instant: str) -> bool:
        beat = self._store.head(f"{_HEARTBEATS}/{instant}")
        return beat is None or self._env.now() - beat.mtime > SILENT_S

    def _roll_back(self, dead: Instant) -> None:
        with self.locked():
            planned = self._plan_of(dead)
            if planned is None:
                planned = Instant(self.clock(), "rollback", "requested")
                plan = {"instantToRollback": {"commitTime": dead.requested, "action": dead.action}, "version": 1}
                self.put(planned, encode_container(_PLAN, plan))
        inflight = replace(planned, state="inflight")
        self.put(inflight, again=True)
        folder = f"{_MARKERS}/{dead.requested}"
        markers = self._store.names(folder, recursive=True)
        for marker in markers:
            self.delete(marker.partition(_INFIX)[0])
        with self.locked():
            if any(
                each.action == "rollback" and each.requested == planned.requested for each in self.timeline().completed
            ):
                return  # another one has carried it out
            for state in ("inflight", "requested"):
                self.delete(f"{TIMELINE}/{file_name(replace(dead, state=state))}")  # type: ignore[arg-type]
            done = replace(planned, state="completed", completed=self.clock())
            self.put(done, rollback_of(dead.requested))
        for marker in markers:
            self.delete(f"{folder}/{marker}")
        self.delete(f"{_HEARTBEATS}/{dead.requested}")

    def _plan_of(self, dead: Instant) -> Instant | None:
        """A rollback of it that somebody has planned and not finished."""
        for each in self.timeline().pending:
            requested = replace(each, state="requested")
            if each.action == "rollback" and (body := self._store.body(f"{TIMELINE}/{file_name(requested)}")):
                named = decode_container(body, "HoodieRollbackPlan", name=file_name(requested))["instantToRollback"]
                if named["commitTime"] == dead.requested:
                    return requested
        return None

    # --- requests ---------------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        return read_timeline(self._store, self._world.config)

    def put(self, instant: Instant | str, body: bytes = b"", *, again: bool = False) -> None:
        """Make an object; ``again``: an earlier try may have."""
        path = instant if isinstance(instant, str) else f"{TIMELINE}/{file_name(instant)}"
        put = self._store.put_if_absent(path, body)
        if not put.done and not (again and put.outcome is Outcome.LOST):
            raise JobFailedError(f"{path}: {put.outcome}")

    def delete(self, path: str) -> None:
        """Delete an object; without an answer the job fails, and what it rolls back stays planned."""
        if self._store.delete(path) is Outcome.UNKNOWN:
            raise JobFailedError(f"{path} may still be there")


class _Job:
    """One transaction of a stranger."""

    def __init__(self, stranger: Stranger, attempt: Attempt) -> None:
        self._stranger, self._attempt = stranger, attempt
        self._store, self._luck = stranger._store, stranger._luck
        self._stats: list[WriteStat] = []
        self._replaced: dict[str, list[str]] = {}
        self._buckets = stranger._world.shape.bucket_count
        self._overwrites = not self._buckets and self._luck.random() < 0.1
        self._timer: Timer | None = None
        self._alive, self.instant = True, ""
        self._beat_at = self._longest_s = 0.0

    @property
    def _action(self) -> str:
        return "replacecommit" if self._overwrites else "commit"

    def run(self) -> None:
        self._begin()
        view = self._read()
        luck = self._luck
        snapshot = build(list_data_files(self._store), view.timeline.view(), view.timeline.config)
        slices = snapshot.file_slices()
        if self._overwrites:
            self._overwrite(luck.choice(_PARTITIONS), slices)
        elif slices and luck.random() < 0.8:
            self._update(luck.sample(slices, luck.randint(1, min(2, len(slices)))))
        else:
            self._insert(luck.choice(_PARTITIONS), slices)
        self._stranger._env.sleep(luck.random() * luck.choice((0.1, 1.0, 4.0)))
        self._commit(view)

    # --- steps ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        stranger, world = self._stranger, self._stranger._world
        with stranger.locked():
            self._refuse_restore()
            self.instant = stranger.clock()
            world.neighbourhood.begins(stranger._process, self._attempt, self.instant)
            try:
                self._beat()
            except (JobFailedError, StorageError):
                if f"{_HEARTBEATS}/{self.instant}" not in world.objects.stored:
                    self._attempt.instant = ""  # nobody has seen this T, and somebody else may take it
                raise
            self._timer = stranger._env.every(_BEAT_S, self._beat, name="another engine's heartbeat")
            stranger.put(Instant(self.instant, self._action, "requested"))

    def _refuse_restore(self) -> None:
        """Hudi: "Found pending restore in active timeline. Please complete the restore fully before proceeding"."""
        stored = self._stranger._world.objects.stored
        found = [parse(path.rpartition("/")[2], layout=2) for path in stored if path.startswith(TIMELINE)]
        restores = [each for each in found if each is not None and each.action == "restore"]
        if {each.requested for each in restores} - {each.requested for each in restores if each.completed}:
            raise RefusedError("a restore is pending")

    def _beat(self) -> None:
        """Its heartbeat is the modification time of a file. A job whose first beat gets no answer fails."""
        if self._alive:
            self._beat_at, before = self._stranger._env.monotonic(), self._beat_at
            self._longest_s = max(self._longest_s, self._beat_at - (before or self._beat_at))
            put = self._store.put(f"{_HEARTBEATS}/{self.instant}", b"")
            if not before and not put.done:
                raise JobFailedError(f"{_HEARTBEATS}: {put.outcome}")

    def _read(self) -> View:
        """Some time after its begin."""
        self._stranger._env.sleep(self._luck.random() * self._luck.choice((0.05, 1.0)))
        timeline = self._stranger.timeline()
        newest = max((each.requested for each in timeline.commits), default="")
        done = {each.requested for each in timeline.completed}
        pending = frozenset(each.requested for each in timeline.pending if each.requested not in done | {self.instant})
        return View(timeline, newest, pending)

    def _update(self, chosen: list[FileSlice]) -> None:
        """Append its name to the lists of some file groups."""
        self._refuse_clustered(self._stranger.timeline(), {each.group for each in chosen})
        self._show_inflight(chosen)
        for each in chosen:
            with self._store.open(each.path) as stream:
                seen = decode(stream.read())
            self._saw(seen)
            name = self._attempt.name
            content = {root: old._replace(names=(*old.names, name), count=old.count + 1) for root, old in seen.items()}
            self._write(each.group, content, prev=each.instant)

    def _insert(self, partition: str, slices: Iterable[FileSlice]) -> None:
        """Begin a file group; in a bucket that has one, change that."""
        bucket = self._luck.randrange(self._buckets) if self._buckets else None
        there = [s for s in slices if self._buckets and (s.partition, bucket_of(s.file_id)) == (partition, bucket)]
        if there:
            return self._update(there)
        self._show_inflight([])
        return self._new_group(partition, Value((self._attempt.name,), 1, 0), bucket)

    def _overwrite(self, partition: str, slices: Iterable[FileSlice]) -> None:
        """Put one new file group in the place of those of a partition."""
        gone, groups = State(), [each for each in slices if each.partition == partition]
        self._refuse_clustered(self._stranger.timeline(), {each.group for each in groups})
        self._show_inflight(groups)
        for each in groups:
            with self._store.open(each.path) as stream:
                gone |= decode(stream.read())
        self._saw(gone)
        self._attempt.drops = set(gone)
        self._replaced = {partition: [each.file_id for each in groups]} if groups else {}
        balance = sum(value.balance for value in gone.values())
        rows = tuple(sorted(rows_of(gone, partition).items()))
        self._new_group(partition, Value((self._attempt.name,), 1, balance, rows))

    def _saw(self, seen: State) -> None:
        """It has no snapshot as of a slot of the log."""
        self._attempt.reads |= seen
        self._attempt.merged |= seen

    def _new_group(self, partition: str, value: Value, bucket: int | None = None) -> None:
        group = FileGroupId(partition, new_file_id(self._stranger._env.uuid(), bucket=bucket))
        self._write(group, {group: value})

    def _show_inflight(self, groups: Iterable[FileSlice]) -> None:
        """The inflight instant names the file groups that it updates."""
        stats = tuple(WriteStat(each.file_id, "", each.partition, each.instant) for each in groups)
        body = encode_commit(CommitMetadata("UPSERT", stats=stats), replace=False)
        self._stranger.put(Instant(self.instant, self._action, "inflight"), body)
        self._stranger._world.neighbourhood.has_read(self.instant)

    def _write(self, group: FileGroupId, content: State, *, prev: str = "null") -> None:
        path = join(group.partition, base_file_name(BaseName(group.file_id, "0-0-0", self.instant)))
        io = "CREATE" if prev == "null" else "MERGE"
        self._stranger.put(f"{_MARKERS}/{self.instant}/{path}{_INFIX}{io}")
        body = encode(content)
        self._stranger.put(path, body)
        self._attempt.writes |= content
        self._stats.append(WriteStat(group.file_id, path, group.partition, prev, num_writes=1, file_size=len(body)))

    def _commit(self, view: View) -> None:
        stranger = self._stranger
        groups = {FileGroupId(each.partition, each.file_id) for each in self._stats}
        groups |= {FileGroupId(partition, each) for partition, ids in self._replaced.items() for each in ids}
        # Its kind have no rule for each other's begins: a schedule in which two meet there says nothing of ours.
        while stranger._world.neighbourhood.is_reading(before=self.instant):
            stranger._env.sleep(0.2)
        with stranger.locked():
            timeline = stranger.timeline()
            for each in timeline.commits:
                # Measured: by T, and not by what it has read.
                if each.requested > view.newest or each.requested in view.pending:
                    self._refuse(groups & {*self._same_bucket(groups, _groups_of(timeline.metadata(each)))})
            self._refuse_clustered(timeline, groups)
            if stranger._env.monotonic() - self._beat_at > SILENT_S:
                raise JobFailedError("its heartbeat has expired")
            stats = tuple(self._stats)
            metadata = CommitMetadata(
                "INSERT_OVERWRITE" if self._overwrites else "UPSERT",
                self._schema(),
                stats=stats,
                replaced={partition: tuple(ids) for partition, ids in self._replaced.items()},
            )
            done = Instant(self.instant, self._action, "completed", stranger.clock())
            path, body = f"{TIMELINE}/{file_name(done)}", encode_commit(metadata, replace=self._overwrites)
            stranger._world.neighbourhood.was_silent(self.instant, self._longest_s)
            put = self._store.put_if_absent(path, body)
            if not put.done:
                raise UnknownError(path)

    def _schema(self) -> str:
        """The table's schema, spelled otherwise."""
        return json.dumps(json.loads(self._stranger._world.config.create_schema or "{}") | {"name": "theirs_record"})

    def _same_bucket(self, ours: Iterable[FileGroupId], theirs: Iterable[FileGroupId]) -> Iterator[FileGroupId]:
        """Those of ours that meet with theirs: equal file groups, or equal buckets where the table has some."""

        def place(group: FileGroupId) -> object:
            return (group.partition, bucket_of(group.file_id)) if self._buckets else group

        there = {place(each) for each in theirs}
        return (each for each in ours if place(each) in there)

    def _refuse_clustered(self, timeline: Timeline, groups: set[FileGroupId]) -> None:
        """Fail if a clustering of these file groups is planned."""
        for each in timeline.pending:
            if each.action == "clustering":
                name = file_name(replace(each, state="requested"))
                if body := self._store.body(f"{TIMELINE}/{name}"):
                    self._refuse(
                        groups & {*_clustered(decode_container(body, "HoodieRequestedReplaceMetadata", name=name))}
                    )

    def _refuse(self, meets: set[FileGroupId]) -> None:
        if meets:
            raise LostError(f"{sorted(meets)}")

    def over(self, *, landed: bool) -> None:
        """Its heartbeat ends; one that has failed leaves all else to a cleaning."""
        self._alive = False
        self._stranger._world.neighbourhood.has_read(self.instant)
        if self._timer is None:
            return
        self._timer.cancel()
        with suppress(StorageError, JobFailedError):
            if landed:
                for each in self._store.names(f"{_MARKERS}/{self.instant}", recursive=True):
                    self._stranger.delete(f"{_MARKERS}/{self.instant}/{each}")
            self._stranger.delete(f"{_HEARTBEATS}/{self.instant}")


def _groups_of(content: CommitMetadata) -> Iterator[FileGroupId]:
    """The file groups that a commit has written or replaced."""
    for stat in content.stats:
        yield FileGroupId(stat.partition, stat.file_id)
    for partition, ids in content.replaced.items():
        for each in ids:
            yield FileGroupId(partition, each)


def _clustered(plan: Mapping[str, Any]) -> Iterator[FileGroupId]:
    for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or ():
        for each in group["slices"] or ():
            yield FileGroupId(each["partitionPath"] or "", each["fileId"] or "")
