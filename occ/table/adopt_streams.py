"""Give a filled table streams: what has to change, and the steps that change it.

    rewrite   lay the rows out in buckets (`change_buckets`), and compact log files: table services, so that writers of rows
              go on meanwhile, and what was done stays if this process dies
    declare   one entry of the log declares all streams, unless rows were written since they were looked at. From here on
              rows are written through streams, and transactions that began before do not commit
    secure    the properties follow (`Session.secure_streams`), before the first event

Each state between is a sound table: after the entry base files hold all rows, whatever type and version the properties still
tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ConfigError, ConflictError, InputError
from ...hudi.table import RECORD_KEY, shown
from ...hudi.timeline import FileSlice
from ...progress import Reporter
from ...streams import Stream, joined, prepared_for_streams
from ..entries import LogEntry, Setting, Settings
from ..log import LogState
from ..services import SERVICES, Runner, compaction, out_of_buckets, perform, refuse_types
from ..session import Session
from .buckets import change_buckets
from .stream import declare, last_slot, refuse_at_creation, refuse_orders, refuse_required, refuse_stored

BUCKETS = 8  # unless told otherwise: events of this many files are merged side by side
_TRIES = 5


@dataclass(frozen=True, slots=True)
class StreamAdoption:
    """The changes that give a table these streams.

    Attributes:
        streams: all that it has then.
        bucket_count: the number of its buckets then.
        changes: the changes, in words; empty if there is nothing to do.
        files: how many data files are read and replaced.
        bytes: their size.
        done: True if the table has the streams now.
    """

    streams: tuple[Stream, ...]
    bucket_count: int
    changes: tuple[str, ...]
    files: int
    bytes: int
    done: bool


def planned(session: Session, wanted: Sequence[Stream], bucket_count: int | None) -> StreamAdoption:
    """Return what `adopt_streams` would do; reads the keys of all rows. Errors as there."""
    session.require_log()
    session.refuse_if_unwritable()
    state, config = session.log.catch_up(), session.config
    if state.settings.streams:
        session.secure_streams()
        streams = state.settings.streams
        for each in wanted:
            streams = joined(streams, each, since=state.top, table=session.url)
        new = [each for each in streams if each not in state.settings.streams]
        told = [f"declares {', '.join(each.name for each in new)} beside its other streams"] if new else []
        count = state.settings.bucket_count
        assert count is not None, "streams have a bucket index"
        return StreamAdoption(streams, count, tuple(told), 0, 0, not new)
    after = _settings(session, state, wanted, bucket_count)
    count = after.bucket_count
    assert count is not None, "a default is filled in"
    slices = session.snapshot().file_slices()
    _refuse_rows(session, wanted, slices)
    found = [] if state.settings.bucket_count else list(out_of_buckets(session, slices, count))
    moved = [each for _, some in found for each in some]
    rewritten = [*moved, *(each for each in slices if each.logs and each not in moved)]
    then = prepared_for_streams(config)
    told = [
        f"{what} {_told(now)} becomes {_told(later)}"
        for what, now, later in (
            ("type", config.table_type, then.table_type),
            ("version", config.version, then.version),
            ("ordering field", ", ".join(config.ordered_by), ""),
            ("bucket_count", state.settings.bucket_count, count),
        )
        if now != later
    ]
    if moved:
        told.append(f"the rows of {len(found)} partitions are written into {count} buckets each")
    if logged := len(rewritten) - len(moved):
        told.append(f"the log files of {logged} file slices are compacted")
    told.append(
        f"declares {', '.join(each.name for each in wanted)}; from then on rows are written through streams only"
    )
    files, size = sum(len(each.paths) for each in rewritten), sum(each.total_size for each in rewritten)
    return StreamAdoption(after.streams, count, tuple(told), files, size, done=False)


def _told(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def adopt_streams(
    session: Session, wanted: Sequence[Stream], bucket_count: int | None, report: Reporter, runner: Runner
) -> StreamAdoption:
    """Carry `planned` out, and return it as it was before. See `Table.adopt_streams`."""
    plan = planned(session, wanted, bucket_count)
    seen = set[str]()
    if session.streams:
        for each in wanted:
            declare(session, each)
        return replace(plan, done=True)
    for _ in range(_TRIES):
        if session.settings.bucket_count is None:
            change_buckets(session, plan.bucket_count, report, runner)
        perform(
            session, SERVICES["COMPACT"], lambda state: compaction.find(session, state, None), report, runner=runner
        )
        if _declared(session, wanted, bucket_count, seen):
            session.secure_streams()
            return replace(plan, done=True)
    rule = "a table gets streams when its rows are in base files, and nobody has written since they were looked at"
    raise ConflictError.without_winner(
        f"{session.url}: others wrote rows meanwhile, {_TRIES} times, so no stream was declared. Its rows stay as they are, and "
        "what was laid out is not laid out again: pause writers that insert rows, then try again",
        table=session.url,
        instant="",
        rule=rule,
    )


def _declared(session: Session, wanted: Sequence[Stream], bucket_count: int | None, seen: set[str]) -> bool:
    """Append the entry that declares the streams; False if rows have to be rewritten first.

    Args:
        seen: the data files whose rows were looked at before; more are added.
    """
    # Under the lock nobody commits meanwhile. Where there is none, the slot of the last commit tells.
    with session.lease("declaring streams"):
        for _ in range(_TRIES):
            state, slices = session.log.catch_up(), session.snapshot().file_slices()
            settings, slot = state.settings, last_slot(state)
            after = _settings(session, state, wanted, bucket_count)
            new = {each.partition for each in slices if not each.paths <= seen}
            again = [each for each in slices if each.partition in new]
            if settings.bucket_count is None or any(each.logs for each in again):
                return False
            _refuse_rows(session, wanted, again)
            seen.update(path for each in again for path in each.paths)

            def build(
                state: LogState, settings: Settings = settings, slot: int = slot, after: Settings = after
            ) -> LogEntry | None:
                same = state.settings == settings and last_slot(state) == slot
                return Setting(after, session.writer) if same else None

            if session.log.append(build, look=session.lock.shared_with_jvm or None) is not None:
                return True
    return False


def _settings(session: Session, state: LogState, wanted: Sequence[Stream], bucket_count: int | None) -> Settings:
    """Return the settings of the table with these streams. Raises unless it can have them."""
    settings, url, schema = state.settings, session.url, session.schema()
    if not wanted:
        raise InputError(f"name the streams that {url} shall have, as of lakelatch.create")
    if schema is None:
        raise InputError(f"{url} has no columns yet; create it with `schema` and `streams`")
    had = settings.bucket_count
    if had is not None and bucket_count not in (None, had):
        raise ConfigError(
            f"{url} has {had} buckets, in which its rows lie, and bucket_count={bucket_count} was asked for; leave it out. "
            "Nothing was changed",
            setting="bucket_count",
        )
    settings = settings.changed(bucket_count=had or bucket_count or BUCKETS)
    refuse_at_creation(wanted, schema, prepared_for_streams(session.config), url, settings)
    refuse_required(wanted, session.view().schema, session.config, url)
    streams: tuple[Stream, ...] = ()
    for each in wanted:
        streams = joined(streams, each, since=state.top, table=url)
        refuse_stored(session, each)
    refuse_types(session, schema, "compact")
    return replace(settings, streams=streams)


def _refuse_rows(session: Session, streams: Sequence[Stream], slices: Sequence[FileSlice]) -> None:
    """Raise `InputError` for rows that could not be told from events, or from each other."""
    refuse_orders(session, streams, slices)
    for partition, some in _by_partition(slices).items():
        keys = pa.chunked_array(
            [
                chunk
                for each in some
                for chunk in session.read_slice(each, columns=[RECORD_KEY], meta=True).column(RECORD_KEY).chunks
            ],
            pa.string(),
        )
        if pc.count_distinct(keys).as_py() == len(keys):
            continue
        counts = pc.value_counts(keys)
        twice = counts.field(0).filter(pc.greater(counts.field(1), 1))
        raise InputError(
            f"{session.url} has several rows of one key in {f'partition {partition!r}' if partition else 'it'} "
            f"({shown(twice)}), of which events would change one. Nothing was changed; delete these keys, and write the right "
            "row of each again"
        )


def _by_partition(slices: Sequence[FileSlice]) -> dict[str, list[FileSlice]]:
    found = defaultdict(list)
    for each in slices:
        found[each.partition].append(each)
    return found
