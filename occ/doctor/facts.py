"""Gather the facts that `advice` judges. Read-only: reads the log and the timeline, lists the data files once, and reads the
log files that are older than a change of the table's columns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...errors import ConfigError, CorruptTableError, LakeLatchError, StorageError, TableError
from ...hudi.files import DELETE, Block, LogFile, list_data_files, read_blocks
from ...hudi.merge import standing
from ...hudi.table import from_avro
from ...hudi.timeline import FileSlice, Timeline, to_epoch_ms
from ...locks import shown
from ..check import data_files, no_files
from ..entries import Begin, Commit, End, Loss, Open, Settings, Single
from ..liveness import beat_age_s
from ..log import LogState, epochs
from ..services import Sizes
from ..session import Session, savepoints

_NEWEST = 200  # commits of which `Facts.crowd` is told


@dataclass(frozen=True, slots=True)
class OpenWork:
    """An open transaction or a plan. ``state``: alive, silent (for the table's time-out), dead, or ``planned`` for a plan."""

    instant: str
    operation: str
    writer: str
    state: str
    age_s: float


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a table.

    Attributes:
        url: the table's URL.
        refusal: the reason why it cannot be written, or "".
        settings: the table's settings; None without a commit log.
        lock: the lock's URL without secrets.
        lock_error: the reason why this process cannot reach the lock; "" if it can, or if there is no lock.
        jvm_lock: the lock's URL says that JVM writers take it too.
        hosts, processes: numbers of hosts and processes among the writers in the log.
        foreign: T of commits that another engine made past the log.
        commits: number of commits on the active timeline.
        epochs: number of the log's epochs.
        open_work: the open transactions and plans.
        file_groups: number that readers see; ``small``: the most small ones in one partition.
        logs_max: the most log files of one file slice.
        lagging: file groups with rows in log files of before a nested column changed, or before another column was added and one
            widened.
        data_files, bytes: all files in the table; ``current_bytes``: bytes that readers see.
        savepoints: T and age in seconds.
        ended, lost: transactions that the log saw end, and those of them that lost to another writer.
        crowd: how many transactions were open on average when one of the last ones committed.
        lost_s, lost_bytes: seconds and bytes that these had spent.
        no_files: paths where a file or a folder belongs and something else stands.
        ahead_s: seconds by which the table's newest time is in the future.
    """

    url: str
    refusal: str = ""
    settings: Settings | None = None
    lock: str = ""
    lock_error: str = ""
    jvm_lock: bool = False
    hosts: int = 0
    processes: int = 0
    foreign: tuple[str, ...] = ()
    commits: int = 0
    epochs: int = 0
    open_work: tuple[OpenWork, ...] = ()
    file_groups: int = 0
    small: int = 0
    small_in: str = ""
    logs_max: int = 0
    lagging: int = 0
    data_files: int = 0
    bytes: int = 0
    current_bytes: int = 0
    savepoints: tuple[tuple[str, float], ...] = ()
    ended: int = 0
    lost: int = 0
    crowd: float = 0.0
    lost_s: float = 0.0
    lost_bytes: int = 0
    no_files: tuple[str, ...] = ()
    ahead_s: float = 0.0


def gather(session: Session) -> Facts:
    """Gather the facts of a table. Raises only if it cannot be read at all."""
    timeline, listing = session.timeline(), list_data_files(session.store)
    slices = session.snapshot().file_slices()
    now = session.env.now()
    size = {each: (each.base.size if each.base else 0) + sum(log.size for log in each.logs) for each in slices}
    limit = _small_bytes(session)
    small = Counter(each.partition for each in slices if each.base and not each.logs and size[each] < limit)
    worst, most = max(small.items(), key=lambda item: item[1], default=("", 0))
    newest = max((each.completed or each.requested for each in timeline.completed), default="")
    facts = Facts(
        session.url,
        refusal=_refusal(session),
        commits=len(timeline.commits),
        file_groups=len(slices),
        small=most,
        small_in=worst,
        logs_max=max((len(each.logs) for each in slices), default=0),
        lagging=_lagging(session, timeline, slices),
        data_files=len(listing.bases) + len(listing.logs),
        bytes=sum(each.size for each in data_files(listing)),
        current_bytes=sum(size.values()),
        savepoints=tuple(
            (each.instant, round(now - to_epoch_ms(each.shown.requested) / 1000, 3))
            for each in savepoints(session.store, timeline)
        ),
        no_files=tuple(f"{path} ({kind})" for path, kind, _ in no_files(session.store)),
        ahead_s=round(max(to_epoch_ms(newest) / 1000 - now, 0.0), 3) if newest else 0.0,
    )
    if not session.writable:
        return facts
    return _with_log(session, facts, [each.requested for each in timeline.commits])


def _lagging(session: Session, timeline: Timeline, slices: Iterable[FileSlice]) -> int:
    import pyarrow as pa

    now = {field.name: field.type for field in session.schema() or ()}
    logs = {each.group: each.logs for each in slices if each.logs}
    written = {log.instant for each in logs.values() for log in each}
    behind = set[str]()
    for each in timeline.commits if written else ():
        if each.requested in written and (schema := timeline.metadata(each).schema):
            then = {field.name: field.type for field in from_avro(schema)}
            changed = [kind for name, kind in then.items() if now.get(name, kind) != kind]
            if changed and (now.keys() - then or any(map(pa.types.is_nested, changed))):
                behind.add(each.requested)
    return sum(_has_rows_of(session, each, behind) for each in logs.values())


def _has_rows_of(session: Session, logs: Sequence[LogFile], commits: set[str]) -> bool:
    if not any(log.instant in commits for log in logs):
        return False
    try:
        counting = commits & standing(session.store, logs).keys()
        bodies = ((log.path, session.store.body(log.path) or b"") for log in logs if log.instant in counting)
        blocks = [block for path, body in bodies for block in read_blocks(body, path)]
    except CorruptTableError:  # `check` reports it
        return False
    return any(isinstance(block, Block) and block.kind != DELETE for block in blocks)


def _with_log(session: Session, facts: Facts, commits: list[str]) -> Facts:
    settings, entries = session.settings, list(session.log.entries())
    begins = [entry for entry in entries if isinstance(entry, Begin)]
    writers = {(each.process.host, each.process.pid) for each in begins if each.process is not None}
    ended, losses, crowd = _ended(entries)
    return replace(
        facts,
        settings=settings,
        lock=shown(settings.lock),
        lock_error=_lock_error(session),
        jvm_lock=bool(settings.shared_with_jvm),
        hosts=len({host for host, _pid in writers}),
        processes=len(writers),
        foreign=_foreign(entries, commits),
        epochs=len(epochs(session.store)),
        open_work=tuple(_work(session, each) for each in list(session.log.catch_up().open.values())),
        ended=ended,
        lost=len(losses),
        crowd=crowd,
        lost_s=round(sum(each.took_s for each in losses), 3),
        lost_bytes=sum(each.bytes for each in losses),
    )


def _ended(entries: list[Single]) -> tuple[int, list[Loss], float]:
    ended, losses, state, crowds = 0, [], LogState(), deque[int](maxlen=_NEWEST)
    for entry in entries:
        if isinstance(entry, Commit | End) and entry.instant in state.open:
            ended += 1
            if isinstance(entry, End) and entry.lost is not None:
                losses.append(entry.lost)
            if isinstance(entry, Commit):
                crowds.append(sum(not each.waits for each in state.open.values()))
        state.apply(entry)
    return ended, losses, round(sum(crowds) / len(crowds), 1) if crowds else 0.0


def _foreign(entries: list[Single], commits: list[str]) -> tuple[str, ...]:
    """Return the commits on the timeline that the log does not know, as far back as it goes."""
    first = entries[0] if entries else None
    if not isinstance(first, Open):
        return ()
    ours = [each for each in entries if isinstance(each, Commit)] + ([first.last] if first.last else [])
    known = {name for each in ours for name in (each.instant, each.named, each.schema_under)}
    # Any commit up to the first entry's time may be ours: its log entries have been removed.
    return tuple(each for each in commits if each > first.top and each not in known)


def _work(session: Session, begin: Begin) -> OpenWork:
    age = round(session.env.now() - to_epoch_ms(begin.instant) / 1000, 3)
    state = "planned" if begin.waits else state_of(session, begin)[0]
    return OpenWork(begin.instant, begin.operation, begin.writer, state, age)


def state_of(session: Session, begin: Begin) -> tuple[str, float | None]:
    """Return the writer's state, ``alive``, ``silent`` or ``dead``, and the age of its last beat in seconds, if known."""
    beat = beat_age_s(session.store, session.env, begin.instant)
    if begin.process is not None and session.env.is_dead(begin.process):
        return "dead", beat
    alive = beat is not None and beat < session.settings.heartbeat_timeout_s
    return ("alive" if alive else "silent"), beat


def _refusal(session: Session) -> str:
    try:
        session.config.refuse_writing()
        Sizes.asked(None, None, session.file_sizes)
    except (TableError, ConfigError, StorageError) as e:
        return str(e)
    return ""


def _small_bytes(session: Session) -> int:
    """The size in bytes below which a clustering joins files; 0 if it cannot be computed."""
    try:
        return Sizes.asked(None, None, session.file_sizes).small
    except (TableError, ConfigError, StorageError):  # `_refusal` reports it
        return 0


def _lock_error(session: Session) -> str:
    try:
        if found := session.lock.provider():
            found[0].inspect(found[1])
    except LakeLatchError as e:
        return str(e)
    return ""
