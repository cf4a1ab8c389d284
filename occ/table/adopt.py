"""Adoption: make another engine's table writable, rebuild a log, and take over commits that bypassed it.

    no log, or a damaged one     a new epoch, numbered from the time: each process with an older one finds it newer
    a log that was bypassed      the epoch is closed by its own rules, and the next one opened above the foreign times

Either way no older open transaction can commit (traps 8 and 10), and all commits on the timeline count. A live writer would
lose its work; where the log cannot be read to its end, perhaps even a commit that it has not published yet. So heartbeats
are watched first, and live writers make the adoption fail.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa

from ...arguments import suggesting
from ...environment import SYSTEM, Environment
from ...errors import CommitError, ConfigError, CorruptTableError, UnsupportedTableError
from ...hudi.files import DELETE, Block, FileGroupId, StoredParquet, list_data_files, note_of, read_blocks
from ...hudi.table import TableConfig, fields_inside
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    EARLIEST,
    CommitMetadata,
    FileSlice,
    History,
    Timeline,
    has_archive,
    is_time,
    parse_unknown,
    read_timeline,
    skipped,
)
from ...storage import Store
from ...streams import Stream, declared_in, joined, newest_of, refuse_undeclared
from ..check import refuse_misplaced, refuse_other_keys, refuse_other_times
from ..entries import AdoptedSettings, Batches, Commit, Landed, Open, Settings
from ..incoming import null_free
from ..liveness import HEARTBEATS, HeartbeatObserver, instants_with_markers
from ..log import LogState, Publisher, UndecidedError, epochs, finish, known_batches, metadata_of, read_epoch, start_log
from ..session import PROPERTIES, arrow_schema, cold_view, dropped_by, prove, read_config
from ..workspace import refuse_check
from .create import (
    first_entry,
    next_generation,
    refuse_unknown_settings,
    refuse_unsafe,
    settings_for,
    with_floor,
)
from .stream import declarations_of, refuse_at_creation
from .table import Table, store_of

# The streams of a table that is adopted: as its old log, its properties or the caller declare them.
#
# Without its declaration an event counts for nothing, or replaces where it should add. So a table with streams is adopted with
# the declaration of every event in its log files, or not at all.


def with_streams_of(
    store: Store,
    config: TableConfig,
    settings: Settings,
    schema: pa.Schema | None,
    given: Sequence[Stream],
    slices: Sequence[FileSlice],
) -> Settings:
    """Return the settings with the table's streams and buckets.

    Args:
        settings: what the old log said, as far as it could be read, and the caller.
        given: the caller's declarations, for a table that a version made which kept them in the log alone.

    Raises:
        ConfigError: the caller declares streams, or buckets, that are known otherwise.
        UnsupportedTableError: the table has streams, and nothing says how they merge.
    """
    declared = declared_in(config)
    known = newest_of(settings.streams, declared.streams if declared else ())
    if given and known:
        raise ConfigError(
            f"{store.url} knows its streams ({', '.join(each.name for each in known)}) by its log or its properties; leave out "
            "`streams`. Nothing was changed"
        )
    if not (known or given):
        if not config.for_streams:
            for slice_ in slices:
                refuse_undeclared(store, (), slice_.logs)
            return settings
        raise UnsupportedTableError(
            f"{store.url} has streams, and neither a log nor its properties say which: without their mergers and ordering "
            "columns events would be lost. Nothing was changed. Declare them as they were: lakelatch.adopt(url, streams={...}, "
            "bucket_count=...)",
            table=store.url,
            feature="streams",
        )
    buckets = settings.bucket_count
    if declared and buckets not in (None, declared.bucket_count):
        raise ConfigError(
            f"{store.url} has {declared.bucket_count} buckets, as its properties say, and bucket_count={buckets} was asked for: "
            "each writer would look for the rows of another in the wrong files. Leave it out. Nothing was changed",
            setting="bucket_count",
        )
    settings = replace(settings, bucket_count=declared.bucket_count if declared else buckets)
    if given:
        if schema is None:
            raise ConfigError(f"{store.url} has no columns yet, so no streams; leave out `streams`")
        refuse_at_creation(given, schema, config, store.url, settings)
        for each in given:
            known = joined(known, each, since="", table=store.url)
    return replace(settings, streams=known)


def refuse_other_merges(
    store: Store, config: TableConfig, streams: Sequence[Stream], slices: Sequence[FileSlice], foreign: Collection[str]
) -> None:
    """Raise `UnsupportedTableError` if a slice has events that no stream declares, or that another engine has merged.

    Args:
        foreign: T of the commits that the log does not know. Without a log: those after the table had its first stream, with
            base files that this library has not written.
    """
    declared = declared_in(config)
    for each in slices:
        refuse_undeclared(store, streams, each.logs)
        since = declared.since if declared else ""
        later = each.base is not None and bool(since) and each.instant > since and not _is_ours(store, each)
        if each.base is not None and (each.instant in foreign or later):
            raise UnsupportedTableError(
                f"{store.url}: commit {each.instant} of another engine has merged events of streams into {each.path}, where late "
                "ones count, and a sum is what one event contributed. Nothing was changed. Take it back with Hudi, before a "
                f"clean removes the log files: `set hoodie.write.markers.type=DIRECT; call rollback_to_instant(table => ..., "
                f"instant_time => '{each.instant}')`",
                table=store.url,
                instant=each.instant,
                feature="streams",
            )


def _is_ours(store: Store, each: FileSlice) -> bool:
    import pyarrow.parquet as pq

    with store.open(each.path) as stream:
        return bool(note_of(pq.read_metadata(stream)))


_log = logging.getLogger("lakelatch.adopt")


@suggesting
def adopt(
    url: str | os.PathLike[str],
    lock: str | None = None,
    *,
    writer: str = "",
    env: Environment = SYSTEM,
    progress: Callable[[float], None] | None = None,
    streams: Mapping[str, Mapping[str, Any]] | None = None,
    storage: Mapping[str, Any] | None = None,
    **settings: Unpack[AdoptedSettings],
) -> Table:
    """Give a Hudi table a commit log, or rebuild a log that is damaged or was bypassed; return the open table.

    No transaction that was open in an older log can commit any more. Its files are swept where the log names it; others stay,
    and `check` names them. Settings of a readable log are kept where none are given.

    Args:
        url: the table's place.
        lock: URL of the lock. None: that of the old log, or without one the table's own.
        writer: a name for logs and conflict messages; host and process number otherwise.
        progress: called with the seconds for which silent writers must still be watched.
        streams: as of `create`; only where the log is lost and the properties, which have them else, do not tell.
        storage: options of the store, as of `lakelatch.open`.
        settings: fields of `Settings`, for all writers.

    Raises:
        ConfigError: the log is there and sound; or the rows are not laid out in so many ``buckets``.
        CommitError: a writer is alive. Nothing was changed.
        CorruptTableError: there are data files but no commit, so the first commit would make them visible.
        UnsupportedTableError: this library cannot write the table, or another engine has merged events of its streams; the
            message says why and the way out.
    """
    refuse_unknown_settings(adopt, settings)
    declarations = declarations_of(streams)
    store = store_of(url, storage)
    if (properties := store.body(PROPERTIES)) is not None:
        # A table of ours may be half created: its creator has died, or is slow.
        finish(store, properties)
    state, commits = _old_log(store)
    state.settings.refuse_older_versions(store.url)
    for name in ("unique_constraints", "unique_keys", "check"):
        if (wanted_rule := settings.get(name)) and wanted_rule is not True:
            raise ConfigError(
                f"adopt {store.url} first, then call change_settings({name}=...), which looks whether its rows break the "
                "constraint"
            )
    if settings.get("merge") or settings.get("ties"):
        raise ConfigError(
            f"adopt {store.url} first, then call change_settings(merge=...): no writer of Hudi may be at work on it from then on"
        )
    given = settings if lock is None else {"lock": lock, **settings}
    wanted = settings_for(store, given, env, state.settings if state.settings.generation else None)
    table = _readable(store, env)
    if table is not None and not table.session.log.look(now=True):
        table.close()
        raise ConfigError(f"{store.url} has a commit log already; nothing to adopt", table=store.url)
    config = _config(store)
    config.refuse_writing()
    refuse_unsafe(store)
    _refuse_damage(store, config)
    timeline = read_timeline(store, config)
    view = cold_view(store, timeline)
    forgotten = _forgotten(timeline, view.schema)
    refuse_check(config, wanted, store.url, (*dropped_by(view.schema), *forgotten))
    if schema := view.arrow_schema():
        config.refuse_other_columns(schema.names, table=store.url)
        _refuse_marks(store, schema.names)
    slices = view.snapshot.file_slices()
    wanted = with_streams_of(store, config, wanted, schema, declarations, slices)
    if wanted.streams:
        refuse_other_merges(store, config, wanted.streams, slices, table.session.log.look() if table else ())
    refuse_other_keys(store, config, slices)
    refuse_other_times(store, config, slices)
    _refuse_null_ordering(store, config, slices)
    if "bucket_count" in settings or wanted.streams:
        refuse_misplaced(store, config, slices, wanted.bucket_count)
    prove(wanted.lock, store.url, env=env)
    if table is not None:
        with table:
            # The last commit may be unpublishable, as it meets foreign ones.
            with suppress(UnsupportedTableError):
                table.rollback_failed_writes(wait=True, progress=progress)
            log = table.session.log
            _refuse_open(store.url, log.catch_up())
            left = log.take_over(
                next_generation(wanted, env),
                lambda: _latest(store, config),
                lambda said: _landed(store, config, said, whole=True),
                lambda commit: _meets(store, config, commit, log.look()),
            )
        if left:
            _tell_and_sweep(store, env, left)
    else:
        _wait_for_silence(store, env, state, progress)
        publisher = Publisher(store, env, config.timeline_folder)
        _publish(publisher, [c for c in commits if not _is_left_out(store, config, publisher, c, state)])
        publisher.secure()  # the new log cannot restore instants that a power cut loses
        batches = tuple(_landed(store, config, state.batches, whole=False))
        start_log(store, *first_entry(store, env, wanted, top=_latest(store, config), batches=batches))
    made = with_floor(Table(store, env=env, writer=writer))
    if made.streams:
        made.session.secure_streams()
    return _remembering(made, forgotten)


def _remembering(table: Table, forgotten: Sequence[str]) -> Table:
    if forgotten:
        table.run(lambda txn: txn.workspace.remember_dropped(forgotten), operation="insert")
    return table


def _forgotten(timeline: Timeline, now: str | None) -> list[str]:
    """Return dropped columns of which an earlier commit tells and the schema of now does not: JVM writers keep columns only."""
    there = {name.lower() for name in dropped_by(now)}
    for field in arrow_schema(now) if now else ():
        there |= {field.name.lower(), *(path.lower() for path, _ in fields_inside(field.type, field.name))}
    for instant in reversed(timeline.commits):
        if dropped := dropped_by(timeline.metadata(instant).schema):
            return [name for name in dropped if name.lower() not in there]
    return []


def _landed(store: Store, config: TableConfig, said: Batches, *, whole: bool) -> tuple[Landed, ...]:
    """The committed batches by log and timeline: a torn log lacks some, and another engine may have undone others."""
    return known_batches(read_timeline(store, config), History(store, config.timeline_folder), said, whole=whole)


def _old_log(store: Store) -> tuple[LogState, list[Commit]]:
    """Return the state of the newest epoch, as far as it can be read, and its commits."""
    state, commits = LogState(), []
    numbers = epochs(store)
    entries = read_epoch(store, numbers[-1]) if numbers else iter(())
    try:
        first = next(entries, None)
        if isinstance(first, Open):
            state.apply(first)
            commits += [first.last] if first.last else []
            slot = first.slot
            for entry in entries:
                slot = slot if isinstance(entry, Commit) and entry.place else slot + 1
                if entry.slot != slot:
                    break
                state.apply(entry)
                if isinstance(entry, Commit) and state.last is entry:
                    commits.append(entry)
    except CorruptTableError:
        _log.info("%s: the log is read up to an entry that is torn", store.url)
    return state, commits


def _readable(store: Store, env: Environment) -> Table | None:
    """Return the table if its log can be read to the head and published, else None."""
    if not epochs(store):
        return None
    try:
        table = Table(store, env=env)
        table.session.log.look(now=True)
    except CorruptTableError:  # the damaged log is the one to be replaced
        return None
    return table


def _config(store: Store) -> TableConfig:
    return TableConfig.from_bytes(read_config(store), table=store.url)


def _publish(publisher: Publisher, commits: list[Commit]) -> None:
    """Publish the old log's commits: the last one may not be on the timeline yet, and the new log will not know it."""
    try:
        publisher.reconcile(commits)
    except CorruptTableError:
        _log.warning("a commit that is on no timeline cannot be published: what it did is lost", exc_info=True)


def _is_left_out(store: Store, config: TableConfig, publisher: Publisher, commit: Commit, state: LogState) -> bool:
    """Return whether a commit of the old log stays off the timeline, since foreign commits changed the same groups later."""
    if publisher.shows(commit):
        return False
    later = (i for i in read_timeline(store, config).commits if (i.completed or "") > commit.completion)
    left_out = _meets(store, config, commit, [i.requested for i in later if i.requested not in state.ended])
    if left_out:
        _tell(store, commit)
    return left_out


def _meets(store: Store, config: TableConfig, commit: Commit, foreign: Collection[str]) -> bool:
    """Return whether a commit changed a file group that one of the ``foreign`` commits (T) changed too."""
    if commit.restores or commit.action not in COMMIT_ACTIONS:
        return commit.restores and bool(foreign)
    timeline = read_timeline(store, config)
    found = [timeline.metadata(each) for each in timeline.commits if each.requested in foreign]
    mine = _groups_of(metadata_of(store, commit))
    return any(not mine.isdisjoint(_groups_of(each)) for each in found)


def _groups_of(metadata: CommitMetadata) -> set[FileGroupId]:
    replaced = {FileGroupId(partition, each) for partition, ids in metadata.replaced.items() for each in ids}
    return replaced | {FileGroupId(stat.partition, stat.file_id) for stat in metadata.stats}


def _tell(store: Store, commit: Commit) -> None:
    _log.warning(
        "%s: %s %s of %s was never on the timeline, and another engine has committed to the same file groups since; it counts "
        "for nothing, run it again",
        store.url, commit.operation.lower(), commit.instant, commit.writer,
    )  # fmt: skip


def _tell_and_sweep(store: Store, env: Environment, left: Iterable[Commit]) -> None:
    for each in left:
        _tell(store, each)
    with Table(store, env=env) as table:
        table.rollback_failed_writes()  # the files of these commits are orphans now


def _latest(store: Store, config: TableConfig) -> str:
    """The largest time on the table, including transactions that an older log left open (trap 8)."""
    left = [*instants_with_markers(store), *store.names(HEARTBEATS)]
    return max([read_timeline(store, config).latest_time or EARLIEST, *(name for name in left if is_time(name))])


def _wait_for_silence(
    store: Store, env: Environment, state: LogState, progress: Callable[[float], None] | None
) -> None:
    """Wait until all heartbeats have been silent for the time-out. The log cannot name the open ones, so all count."""
    watch, since, settings = HeartbeatObserver(store, env), env.monotonic(), state.settings
    while True:
        left = [name for name in store.names(HEARTBEATS) if is_time(name)]
        waits = {
            instant: settings.heartbeat_timeout_s - watch.silent_for(instant)
            for instant in left
            if not (begin := state.open.get(instant)) or not begin.process or not env.is_dead(begin.process)
        }
        _refuse_the_living(store.url, [instant for instant in waits if watch.has_beaten(instant, since=since)])
        if (longest := max(waits.values(), default=0.0)) <= 0:
            return
        if progress:
            progress(longest)
        # At least a millisecond: the rest may be below the clock's resolution.
        env.sleep(min(max(longest, 0.001), max(settings.heartbeat_interval_s / 2, 0.05)))


def _refuse_open(table: str, state: LogState) -> None:
    for prepared in state.prepared.values():
        raise UndecidedError(table, prepared)  # the new log would not know that it may have landed
    _refuse_the_living(table, [begin.instant for begin in state.open.values() if not begin.waits])


def _refuse_the_living(table: str, instants: Iterable[str]) -> None:
    if alive := sorted(instants):
        raise CommitError(
            f"{table}: a writer is alive ({', '.join(alive[:3])}), and a new log would end what it does. Nothing was changed; "
            "stop it, or wait for it, and try again. `lakelatch describe` says who it is, where the log can be read",
            table=table,
            instants=tuple(alive),
        )


def _refuse_damage(store: Store, config: TableConfig) -> None:
    """Raise if an instant is damaged or unknown: from now on all instants on the timeline count."""
    timeline = read_timeline(store, config)
    contents = [(instant, timeline.metadata(instant)) for instant in timeline.commits]

    def read(name: str) -> bytes | None:
        return store.body(f"{config.timeline_folder}/{name}")

    for each in skipped(contents, read, merge_on_read=config.merge_on_read):
        _log.warning("%s: %s. They are in %s until a cleaning takes it", store.url, each, each.path)
    for entry in store.list(config.timeline_folder):
        if unknown := parse_unknown(entry.name):
            raise UnsupportedTableError(
                f"{store.url}: {entry.name} is of action {unknown.action}, which this version does not know, so what it did "
                "is not known either. Nothing was changed; upgrade lakelatch",
                table=store.url,
                instant=entry.name,
            )
    if not timeline.commits and not has_archive(store, config):
        _refuse_files_without_commit(store)


def _refuse_marks(store: Store, columns: Sequence[str]) -> None:
    """Raise if a column marks rows as deleted: such rows would be stored here."""
    if found := [name for name in columns if name in ("_hoodie_is_deleted", "_hoodie_operation")]:
        raise UnsupportedTableError(
            f"{store.url} has a column {found[0]}, by which Hudi's writers delete rows, and that is not known here. Nothing was "
            "changed. Write the table with Hudi, or a copy of its other columns into a new table",
            table=store.url,
            feature="merge_mode",
        )


def _refuse_null_ordering(store: Store, config: TableConfig, slices: Sequence[FileSlice]) -> None:
    """Raise if an ordering field holds a null. Our writers refuse nulls there; stored ones would stay."""
    if not (names := null_free(config)):
        return
    what, why = (
        ("merge-on-read and ordered by", "readers fail as soon as a log file changes such a row")
        if config.merge_on_read
        else ("ordered by several fields, of which one is", "writers fail as soon as they change such a row")
    )
    for each in slices:
        if null := next((name for name in names if _has_null(store, each, name)), None):
            raise UnsupportedTableError(
                f"{store.url} is {what} {null!r}, which is null in rows of file group {each.group}: Hudi's JVM {why}. Nothing "
                "was changed. Write its rows with the column filled into a new table; `lakelatch.open` reads this one",
                table=store.url,
                feature="null_ordering",
            )


def _has_null(store: Store, each: FileSlice, name: str) -> bool:
    """Return whether a file of the slice has a row without this value; superseded rows of log files count."""
    for log in each.logs:
        for block in read_blocks(store.body(log.path) or b"", log.path):
            if isinstance(block, Block) and block.kind != DELETE and not block.rolls_back:
                rows = block.rows()
                if name not in rows.column_names or rows.column(name).null_count:
                    return True
    return each.base is not None and _has_null_in(store, each.base.path, name)


def _has_null_in(store: Store, path: str, name: str) -> bool:
    with store.open(path) as stream:
        file = StoredParquet(store, path, stream)
        names = [file.metadata.schema.column(n).path for n in range(file.metadata.num_columns)]
        if name not in names:
            return bool(file.metadata.num_rows)
        chunks = [file.metadata.row_group(n).column(names.index(name)) for n in range(file.metadata.num_row_groups)]
        told = [chunk.statistics.null_count if chunk.is_stats_set else None for chunk in chunks]
        return any(told) or (None in told and bool(file.read([name]).column(0).null_count))


def _refuse_files_without_commit(store: Store) -> None:
    listing = list_data_files(store)
    if files := [*(base.path for base in listing.bases), *(log.path for log in listing.logs)]:
        raise CorruptTableError(
            f"{store.url} has {len(files)} data files ({files[0]}), but no commit: no reader counts them now, and every "
            "reader would once there is a commit. Restore the timeline from a copy, or delete the files, then adopt the "
            "table",
            table=store.url,
            path=files[0],
        )
