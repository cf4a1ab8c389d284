"""The declaration of a stream: its columns, the column that orders its events, and the effect of its deletes."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ..arguments import brief, encodable, flag, names, text
from ..errors import ConfigError, CorruptTableError, InputError
from ..hudi.table import (
    COMMIT_TIME_ORDERING,
    MERGE_ON_READ,
    META_COLUMNS,
    STREAMS_KEY,
    TableConfig,
    refuse_no_columns,
)

ROW, CLEAR, IGNORE = ON_DELETE = ("row", "clear", "ignore")
KEEP, WRITE = NULL = ("keep", "write")
_WORDS = {"on_delete": ON_DELETE, "null": NULL}
IGNORE_DEFAULTS = "IGNORE_DEFAULTS"  # Hudi's name for: a null keeps the old value
_VERSION = 9  # the first with that mode


@dataclass(frozen=True, slots=True)
class Default:
    """The value of a column in rows that appear, or are cleared, by commits that complete after ``since``; None ends it."""

    column: str
    value: bool | int | float | str | None
    since: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a table.

    Attributes:
        name: by which it is written.
        columns: its value columns, which no other stream writes.
        ordering: the column whose value decides which event is newer; it belongs to this stream alone.
        then_by: more such columns, each for events that are equal by those before it.
        event_id: the value column that tells its events apart; "" if it keeps none.
        events: the column that keeps the events of a row, from which all columns are merged (`kept`).
        dropped: True if no event of it is written any more. Those that were stay, and what they wrote.
        edition: how often it was changed. An event of an earlier edition does not land.
        on_delete: the effect of its deletes: ``row`` removes the row, ``clear`` empties the stream's columns, ``ignore`` nothing.
        null: ``keep``: a null keeps the old value. ``write``: it replaces it.
        foreign_readers: True if Hudi's own readers are to see what they can of it before a compaction.
        defaults: the values of columns that no event has set; of one column the last that is old enough for a row.
        merge: columns and their mergers; other columns have the newest event's value.
    """

    name: str
    columns: tuple[str, ...]
    ordering: str
    on_delete: str = CLEAR
    null: str = KEEP
    foreign_readers: bool = True
    defaults: tuple[Default, ...] = ()
    merge: tuple[tuple[str, str], ...] = ()
    then_by: tuple[str, ...] = ()
    event_id: str = ""
    events: str = ""
    dropped: bool = False
    edition: int = 0

    @property
    def present(self) -> dict[str, Any]:
        """The defaults of rows that appear from now on, by column."""
        return {
            column: value for column, value in {d.column: d.value for d in self.defaults}.items() if value is not None
        }

    @property
    def gathers(self) -> bool:
        """True if events contribute to some column however late they come."""
        return bool(self.merge or self.event_id)

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The ordering columns, the first that differs decides."""
        return (self.ordering, *self.then_by)

    @property
    def own(self) -> tuple[str, ...]:
        """All columns that it writes, the ordering columns first."""
        return (*self.ordered_by, *self.columns, *([self.events] if self.events else []))

    def needed(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return more columns that are read to merge these: where it keeps its events the values are merged from them."""
        if not self.event_id or not {*self.columns, self.events} & set(columns):
            return ()
        return (self.event_id, self.events, *(self.columns if self.events in columns else ()))

    def order_of(self, event: Mapping[str, Any]) -> Any:
        """Return the value by which an event is ordered, a tuple of several; None if the stream has set none of them."""
        values = tuple(event.get(name) for name in self.ordered_by)
        return None if None in values else values if self.then_by else values[0]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry. Earlier versions of this library read it without the fields left out."""
        later = ("merge", "then_by", "event_id", "events", "dropped", "edition")
        return {name: value for name, value in asdict(self).items() if name not in later or value}

    @classmethod
    def from_json(cls, value: Any) -> Stream:
        """Reverse `to_json`. Raises `ConfigError` for anything else."""
        try:
            made = cls(
                **value
                | {
                    "columns": tuple(value["columns"]),
                    "defaults": tuple(Default(**each) for each in value.get("defaults", ())),
                    "merge": tuple((column, merger) for column, merger in value.get("merge", ())),
                    "then_by": tuple(value.get("then_by", ())),
                }
            )
        except (TypeError, KeyError, ValueError) as e:
            raise ConfigError(f"{value!r:.80} declares no stream that this version knows; upgrade lakelatch") from e
        strange = made.on_delete not in ON_DELETE or made.null not in NULL or bool(made.event_id) != bool(made.events)
        told = (made.name, made.event_id, made.events, *made.own, *(each for pair in made.merge for each in pair))
        if strange or not all(isinstance(each, str) for each in told):
            raise ConfigError(f"stream {made.name!r} is declared as this version cannot read it; upgrade lakelatch")
        return made


def declared(
    name: Any,
    *,
    columns: Any,
    ordering: Any,
    on_delete: Any = CLEAR,
    null: Any = KEEP,
    default: Mapping[str, Any] | None = None,
    merge: Mapping[str, str] | None = None,
    foreign_readers: Any = True,
    event_id: Any = None,
    events: Any = None,
) -> Stream:
    """Return the declaration that these arguments of `Table.stream` make; it is not compared with a table yet.

    Raises:
        InputError: an argument is no name, word or value.
    """
    several = isinstance(ordering, list | tuple) and ordering
    order, *then_by = names(ordering, "ordering") if several else [text(ordering, "ordering")]
    if (event_id is None) != (events is None):
        raise InputError(
            f"stream {name!r}: event_id and events go together, the column with the id of an event and the one that keeps the "
            "events of a row; give both, or neither"
        )
    kept = ("", "") if event_id is None and events is None else (text(event_id, "event_id"), text(events, "events"))
    given = tuple(each for each in names(columns, "columns") if each not in (order, *then_by, *kept))
    for what, value in (("on_delete", on_delete), ("null", null)):
        if value not in _WORDS[what]:
            raise InputError(f"{what}={value!r} is unknown; say {' or '.join(map(repr, _WORDS[what]))}")
    flag(foreign_readers, "foreign_readers")
    if null == WRITE and foreign_readers:
        raise InputError(
            f"stream {name!r} writes nulls, and Hudi's own readers take a null for 'keep what was there' until the table is "
            "compacted; say foreign_readers=False if only this library reads the table, or null='keep'"
        )
    if default is not None and not isinstance(default, Mapping):
        raise InputError(f'default={brief(default)} is no dict; give values by column, as {{"clicks": 0}}')
    mergers = _mergers(merge, given)
    if mergers and foreign_readers:
        raise InputError(
            f"stream {name!r} merges {', '.join(column for column, _ in mergers)}, of which Hudi's own readers would show what "
            "one event contributed, until the table is compacted; say foreign_readers=False if only this library reads the table"
        )
    if kept[0]:
        _refuse_kept(name, kept, (order, *then_by), default, foreign_readers=foreign_readers)
        given = (*given, kept[0])
    return Stream(
        text(name, "stream name"),
        given,
        order,
        on_delete,
        null,
        foreign_readers,
        tuple(Default(column, _plain(column, value), "") for column, value in (default or {}).items()),
        mergers,
        tuple(then_by),
        *kept,
    )


def _refuse_kept(
    name: Any, kept: tuple[str, str], ordering: Collection[str], default: Any, *, foreign_readers: bool
) -> None:
    """Raise `InputError` for a stream that keeps its events and is declared so that it cannot."""
    if kept[0] == kept[1] or set(kept) & set(ordering):
        raise InputError(
            f"stream {name!r}: event_id={kept[0]!r} and events={kept[1]!r} name two columns of their own, beside the ordering "
            "columns: one with the id of an event, one that keeps the events of a row"
        )
    if default:
        raise InputError(
            f"stream {name!r} keeps its events, and a column without an event that counts is null; leave out `default`, and "
            "fill the nulls when you read"
        )
    if foreign_readers:
        raise InputError(
            f"stream {name!r} keeps its events, and Hudi's own readers would show one alone until the table is compacted; say "
            "foreign_readers=False if only this library reads the table"
        )


def _mergers(merge: Any, columns: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return mergers as they are stored; ``last`` is left out, because it is the rule without a merger."""
    pairs = dict(merge) if isinstance(merge, Mapping) else {}
    if not (merge is None or isinstance(merge, Mapping)) or not all(isinstance(v, str) and v for v in pairs.values()):
        raise InputError(
            f'merge={brief(merge)} is no dict of mergers; give their names by column, as {{"clicks": "sum"}}'
        )
    if strange := [column for column in pairs if column not in columns]:
        raise InputError(
            f"merge names {strange[0]!r}, which is no value of the stream; it has {', '.join(columns) or 'no columns'}"
        )
    if bad := [each for each in pairs.values() if not encodable(each)]:
        raise InputError(f"merger {bad[0]!r} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    return tuple(sorted((column, spec) for column, spec in pairs.items() if spec != "last"))


def _plain(column: Any, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(
            f"default of column {column!r} is {value!r}; give a truth value, a number or a text (times and decimals as text)",
            column=column,
        )
    # Not shown: Python refuses to print the longest.
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(
            f"default of column {column!r} is a whole number of more than 64 bits; give it as text, if the column can hold it",
            column=column,
        )
    if isinstance(value, str) and not encodable(value):
        raise InputError(
            f"default of column {column!r} is {value!r}, which holds half of a surrogate pair; UTF-8 cannot hold it",
            column=column,
        )
    return value


def refuse_incomplete(name: Any, said: Mapping[str, Any]) -> None:
    """Raise `InputError` for arguments of `Table.stream` that declare something while no columns are named.

    Without columns the stream is opened as declared, and these arguments would be silently ignored.

    Args:
        said: each of these arguments and its value.
    """
    usual = {"on_delete": CLEAR, "null": KEEP, "foreign_readers": True}
    usual |= dict.fromkeys(("default", "merge", "event_id", "events"))
    # 1 equals True in Python, so types are compared too.
    if other := [what for what, value in said.items() if type(value) is not type(usual[what]) or value != usual[what]]:
        raise InputError(
            f"stream {name!r}: {', '.join(other)} declares something of a stream, and no columns are named; give columns and "
            "ordering too, or the name alone to open the stream as it was declared"
        )


def joined(streams: Sequence[Stream], wanted: Stream, *, since: str, table: str) -> tuple[Stream, ...]:
    """Return all streams of a table with ``wanted``, which is new or an existing one with more columns.

    Args:
        since: the newest time of the table; new defaults do not apply to commits completed until then.

    Raises:
        InputError: it is already declared differently, or another stream has one of its columns.
    """
    old = next((each for each in streams if each.name == wanted.name), None)
    if old is not None:
        wanted = _extended(old, wanted, table, streams)
    # A known default keeps its time: rows that appeared since then were created with it.
    known = old.defaults if old else ()
    defaults = tuple(each if each in known else replace(each, since=since) for each in wanted.defaults)
    made, others = replace(wanted, defaults=defaults), [each for each in streams if each.name != wanted.name]
    for other in others:
        if shared := [column for column in made.own if column in other.own]:
            raise InputError(
                f"stream {other.name!r} of {table} {'wrote' if other.dropped else 'writes'} {', '.join(shared)} already, and a "
                "column belongs to one stream; give each stream columns and an ordering column of its own",
                columns=shared,
            )
        _refuse_two_owners(made, other, table)
    return tuple(made if each is old else each for each in streams) if old else (*streams, made)


def _refuse_two_owners(made: Stream, other: Stream, table: str) -> None:
    if made.on_delete == other.on_delete == ROW and not other.dropped:
        raise InputError(
            f"stream {other.name!r} of {table} owns the life of its rows (on_delete='row'), and only one can; declare "
            f"{made.name!r} with on_delete='clear' or 'ignore'"
        )


def _extended(old: Stream, wanted: Stream, table: str, streams: Sequence[Stream]) -> Stream:
    if old.dropped:  # jobs declare their streams whenever they start, which does not bring one back
        raise InputError(f"stream {old.name!r} of {table} was dropped, and takes no events; `undrop` lets it go on")
    now = old.present
    asked = {each.column: each.value for each in wanted.defaults if each.column in old.columns}
    # In Python False is 0, and in a table it is not.
    same = all(n in now and now[n] == v and isinstance(now[n], bool) == isinstance(v, bool) for n, v in asked.items())
    # Name, ordering, deletes and nulls must be as declared; only columns can be added.
    bare = [replace(each, columns=(), defaults=(), merge=(), edition=0) for each in (old, wanted)]
    merged = tuple(each for each in wanted.merge if each[0] in old.columns) == old.merge
    if old.event_id and set(old.columns) < set(wanted.columns):
        raise InputError(
            f"stream {old.name!r} of {table} keeps its events, and those in {old.events} have no value of another column; give "
            "it to another stream"
        )
    if bare[0] != bare[1] or not set(old.columns) <= set(wanted.columns) or not (same and merged):
        raise InputError(
            f"stream {old.name!r} of {table} is declared otherwise: {described(old)}; more columns can be given to it here, and "
            "some other things be changed by `alter`"
        )
    more = tuple(each for each in wanted.columns if each not in old.columns)
    new = tuple(each for each in wanted.defaults if each.column in more)
    # A stream without mergers keeps no floor at which it was emptied, so it cannot be computed afterwards.
    emptied = old.on_delete != IGNORE or any(each.on_delete == ROW for each in streams)
    if wanted.merge and not old.merge and emptied:
        raise InputError(
            f"stream {old.name!r} of {table} merges no columns yet, so what was compacted does not tell what emptied it: late "
            f"events of {wanted.merge[0][0]} could not be told from those that must not count; give it to another stream. "
            "Only where no delete can have emptied it (on_delete='ignore', and no stream has 'row') could it have mergers now"
        )
    return replace(old, columns=(*old.columns, *more), defaults=(*old.defaults, *new), merge=wanted.merge)


def altered(
    old: Stream,
    *,
    since: str,
    default: Any = None,
    null: Any = None,
    foreign_readers: Any = None,
    merge: Any = None,
) -> Stream:
    """Return the stream with these things changed; None leaves one as it is.

    Args:
        since: the newest time of the table. Rows that appeared until then keep the defaults that they appeared with.
        default: by column; a None ends the default of a column.
        merge: by column; ``last`` takes the merger of a column away.

    Raises:
        InputError: an argument is no value, or names no column of the stream; or they do not go together.
    """
    what = f"stream {old.name!r}"
    if old.dropped:
        raise InputError(f"{what} was dropped; `undrop` it, then change it")
    if default is not None and not isinstance(default, Mapping):
        raise InputError(f'default={brief(default)} is no dict; give values by column, as {{"clicks": 0}}')
    given = {column: None if value is None else _plain(column, value) for column, value in (default or {}).items()}
    if strange := [column for column in given if column not in old.columns]:
        raise InputError(f"{what}: default of {strange[0]!r}, which is no value of it; leave it out")
    if old.event_id and (given or null is not None):
        raise InputError(
            f"{what} keeps its events, so it has no defaults, and its null rule stays, by which all were merged"
        )
    now = old.present
    new = [Default(n, v, since) for n, v in given.items() if (type(now.get(n)), now.get(n)) != (type(v), v)]
    mergers = dict(old.merge) | dict(merge) if isinstance(merge, Mapping) else merge
    made = declared(
        old.name,
        columns=list(old.columns),
        ordering=list(old.ordered_by),
        on_delete=old.on_delete,
        null=old.null if null is None else null,
        merge=dict(old.merge) if merge is None else mergers,
        foreign_readers=old.foreign_readers if foreign_readers is None else foreign_readers,
        event_id=old.event_id or None,
        events=old.events or None,
    )
    made = replace(made, columns=old.columns, defaults=(*old.defaults, *new), edition=old.edition)
    return old if made == old else replace(made, edition=old.edition + 1)


def dropped(old: Stream, *, since: str) -> Stream:
    """Return the stream after its drop: no row that appears from now on has its defaults."""
    if old.dropped:
        return old
    ended = tuple(Default(column, None, since) for column in old.present)
    return replace(old, dropped=True, defaults=(*old.defaults, *ended), edition=old.edition + 1)


def undropped(streams: Sequence[Stream], name: str, table: str) -> tuple[Stream, ...]:
    """Return the streams with this one taking events again, without defaults.

    Raises:
        InputError: another one owns the life of the rows since.
    """
    made = of_name(streams, name, table)
    if not made.dropped:
        return tuple(streams)
    for other in streams:
        if other.name != name:
            _refuse_two_owners(made, other, table)
    return tuple(replace(made, dropped=False, edition=made.edition + 1) if each is made else each for each in streams)


def outdated(began: Iterable[Stream], now: Iterable[Stream], *, overwrites: bool) -> str:
    """Return a stream that was changed since, so that events written by its earlier declaration cannot land; "" for none.

    An overwrite writes rows with defaults, so it cannot land after a declaration of more of these either.
    """
    known = {each.name: each for each in began}
    for each in now:
        before = known.get(each.name, replace(each, edition=0, defaults=()))
        if each.edition != before.edition or (overwrites and each.defaults != before.defaults):
            return each.name
    return ""


def described(stream: Stream) -> str:
    """Return the declaration in words."""
    more = [f"null {stream.null}"] * (stream.null != KEEP) + ["for our readers alone"] * (not stream.foreign_readers)
    more += ["dropped"] * stream.dropped
    defaults = [f"{column} = {value!r} by default" for column, value in stream.present.items()]
    mergers = [f"{column} merged by {merger}" for column, merger in stream.merge]
    mergers += [f"events kept in {stream.events} by {stream.event_id}"] * bool(stream.event_id)
    what = [
        f"{', '.join(stream.columns) or 'no columns'} by {', '.join(stream.ordered_by)}",
        f"on delete {stream.on_delete}",
    ]
    return "; ".join((*what, *mergers, *defaults, *more))


# --- and the table ---------------------------------------------------------------------------------------------------


def refuse_table(config: TableConfig, table: str, *, buckets: int | None, rules: bool) -> None:
    """Raise `ConfigError` for a table that cannot have streams, with the properties that it would need."""
    lacks = [
        (not config.merge_on_read, 'be merge-on-read (type="merge_on_read")'),
        (config.version < _VERSION, f"have version {_VERSION} (table_version={_VERSION})"),
        (buckets is None, "have a bucket index (bucket_count=...), so that all writers agree on the file of a key"),
        (
            config.merge_mode not in (None, COMMIT_TIME_ORDERING) or bool(config.ordered_by),
            "have no ordering_field: each stream has one",
        ),
        (config.row_ids, "have a record key, by which streams find their rows"),
        (bool(config.time_unit), "be partitioned by columns of its rows, and not by a time"),
        (rules, "have no unique constraints, no check, and no rule of merging of its own"),
        (config.partial_update_mode not in (None, IGNORE_DEFAULTS), "have no other mode of partial updates"),
    ]
    if missing := [what for lack, what in lacks if lack]:
        raise ConfigError(f"{table} cannot have streams: it would have to {', and to '.join(missing)}", table=table)


def refuse_columns(stream: Stream, schema: pa.Schema | None, config: TableConfig, table: str) -> None:
    """Raise `InputError` for a declaration that does not fit the table's columns."""
    if schema is None:
        raise InputError(f"{table} has no columns yet; create it with `schema`, then declare its streams")
    refuse_no_columns(stream.own, f"stream {stream.name!r} of {table}")
    if unknown := [column for column in stream.own if column not in schema.names]:
        raise InputError(
            f"stream {stream.name!r}: {table} has no column {', '.join(unknown)}; add it with `add_column` first",
            columns=unknown,
        )
    taken = {*config.record_key_fields, *config.partition_fields, *META_COLUMNS}
    if shared := [column for column in stream.own if column in taken]:
        raise InputError(
            f"stream {stream.name!r}: {', '.join(shared)} of {table} is part of the key or partition, which every stream "
            "writes; leave it out",
            columns=shared,
        )
    if not stream.columns:
        raise InputError(f"stream {stream.name!r} of {table} has no columns beside its ordering column; name some")
    for name in stream.ordered_by:
        if not any(is_kind(schema.field(name).type) for is_kind in _ORDERS):
            raise InputError(
                f"stream {stream.name!r}: column {name} of type {schema.field(name).type} orders nothing; take a number, a text, "
                "a date or a time",
                column=name,
            )
    if stream.event_id:
        _refuse_entries(stream, schema, table)
    for each in stream.defaults:
        if each.column not in stream.columns:
            raise InputError(
                f"stream {stream.name!r}: default of {each.column!r}, which is no value of it; leave it out"
            )
        scalar(each, schema.field(each.column).type)


def _refuse_entries(stream: Stream, schema: pa.Schema, table: str) -> None:
    """Raise `InputError` unless the stream's events can be told apart, and its column can keep them."""
    if not any(is_kind(schema.field(stream.event_id).type) for is_kind in (pa.types.is_integer, pa.types.is_string)):
        raise InputError(
            f"stream {stream.name!r}: column {stream.event_id} of type {schema.field(stream.event_id).type} tells no events "
            "apart; take a text or a whole number",
            column=stream.event_id,
        )
    kind = schema.field(stream.events).type
    names = (*stream.ordered_by, *stream.columns)
    wanted = {name: schema.field(name).type for name in names}
    element = kind.value_type if pa.types.is_list(kind) else pa.null()
    found = {field.name: field.type for field in element} if pa.types.is_struct(element) else {}
    if found != wanted:
        kept = pa.list_(pa.field("element", pa.struct(list(wanted.items()))))
        raise InputError(
            f"stream {stream.name!r}: column {stream.events} of {table} has type {kind} and cannot keep the events; it has to be "
            f"{kept}",
            column=stream.events,
        )


_ORDERS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
)


def scalar(default: Default, kind: pa.DataType) -> pa.Scalar:
    """Return the default in the type of its column.

    Raises:
        InputError: the type cannot hold it unchanged.
    """
    if default.value is None:
        return pa.scalar(None, kind)
    # Arrow would convert a number to a boolean, and a boolean to a number.
    fits = isinstance(default.value, str) or pa.types.is_boolean(kind) == isinstance(default.value, bool)
    try:
        if fits:
            return pa.scalar(default.value).cast(kind)
    except pa.ArrowException:
        pass
    raise InputError(
        f"default {default.value!r} of column {default.column!r} is no value of type {kind}", column=default.column
    )


def of_name(streams: Iterable[Stream], name: str, table: str) -> Stream:
    """Return the stream of that name. Raises `InputError` naming the known ones."""
    for each in streams:
        if each.name == name:
            return each
    known = ", ".join(sorted(each.name for each in streams)) or "none"
    raise InputError(
        f"{table} has no stream {name!r}; there are: {known}. Declare it: stream(name, columns=[...], ordering=...)"
    )


def shared_columns(streams: Iterable[Stream], columns: Collection[str]) -> list[str]:
    """Return the columns that no stream has: keys, partitions, and columns that nobody writes."""
    own = {column for each in streams for column in each.own}
    return [column for column in columns if column not in own]


# The streams as ``hoodie.properties`` keep them beside the log, so that a table whose log was lost gets them back.
#
# The log is the authority. A writer brings the properties up to it before its first event of a stream, so the properties know
# every stream and column that an event was written for.

DECLARED_KEY = "lakelatch.streams.declared"
# A write option that Hudi takes from the table's properties, unless a job sets its own. Of an unknown value each of its
# clients says that there is no such constant, before it plans, compacts, clusters or writes; its readers do not look at it.
_NOT_BY_JVM = {"hoodie.write.markers.type": "ONLY_LAKELATCH_WRITES_AND_COMPACTS_TABLES_WITH_STREAMS"}


@dataclass(frozen=True, slots=True)
class Declared:
    """The streams of a table, the buckets that all their writers share, and the newest time before the first event."""

    streams: tuple[Stream, ...]
    bucket_count: int
    since: str


def prepared_for_streams(config: TableConfig) -> TableConfig:
    """Return the properties of a table whose base files hold all its rows, made ready for streams."""
    return replace(
        config,
        table_type=MERGE_ON_READ,
        version=max(config.version, _VERSION),
        precombine_fields=(),
        ordering_fields=(),
        merge_mode=COMMIT_TIME_ORDERING if config.merge_mode or config.ordered_by else None,
        raw={key: value for key, value in config.raw.items() if key != "hoodie.table.legacy.payload.class"},
    )


def with_streams(config: TableConfig, streams: Iterable[Stream], bucket_count: int, *, since: str) -> TableConfig:
    """Return the properties for a table with these streams: a null keeps the old value, and the JVM neither writes nor
    compacts it.

    Args:
        since: the newest time of the table. One that the properties have is kept.
    """
    before = declared_in(config)
    content = {"bucket_count": bucket_count, "since": before.since if before else since}
    declared = json.dumps(content | {"streams": [each.to_json() for each in streams]}, sort_keys=True)
    # A table that is adopted is declared in the log first, and its properties follow before the first event.
    guarded = prepared_for_streams(config).merging_columns()
    raw = {**guarded.raw, **_NOT_BY_JVM, STREAMS_KEY: "true", DECLARED_KEY: declared}
    return replace(guarded, partial_update_mode=IGNORE_DEFAULTS, raw=raw)


def declared_in(config: TableConfig) -> Declared | None:
    """Return the streams in the properties; None for a table without any, or of a version that did not keep them there.

    Raises:
        ConfigError: a newer version has written them.
        CorruptTableError: they cannot be read.
    """
    stored = config.raw.get(DECLARED_KEY)
    return None if stored is None else _parsed(stored)


@lru_cache(maxsize=64)
def _parsed(stored: str) -> Declared:
    try:
        content = json.loads(stored)
        return Declared(
            tuple(map(Stream.from_json, content["streams"])), int(content["bucket_count"]), str(content["since"])
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise CorruptTableError(
            f"{DECLARED_KEY} of .hoodie/hoodie.properties cannot be read ({e}), by which the table's streams come back when its "
            "log is lost. Restore the file from a copy; nothing was written",
            path=".hoodie/hoodie.properties",
        ) from e


def newest_of(known: Sequence[Stream], others: Sequence[Stream]) -> tuple[Stream, ...]:
    """Return the streams of two states of one table. Of a stream in both, the one that was changed more often, or has more
    columns, is the later one.
    """
    found = {each.name: each for each in known}
    for each in others:
        if each.name not in found or _age(each) > _age(found[each.name]):
            found[each.name] = each
    return tuple(found.values())


def _age(stream: Stream) -> tuple[int, int]:
    return stream.edition, len(stream.columns)
