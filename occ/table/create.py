"""Creation of a table: its properties, its log, and the floor of its timeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Unpack

from ...arguments import flag, instance, names, number, suggesting, text, unknown_argument
from ...environment import SYSTEM, Environment
from ...errors import ConfigError, InputError, UnsupportedTableError
from ...hudi.files import not_hudi
from ...hudi.table import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    ROW_ID,
    TIME_UNITS,
    TableConfig,
    can_become,
    from_avro,
    schema_of,
    time_column,
)
from ...hudi.timeline import EARLIEST, refuse_clock
from ...locks import shown
from ...plain_text import visible
from ...storage import Store
from ..entries import NO_LOCK, OWN_LOCK, Landed, Open, Settings, SettingsDict, encode, value_checks
from ..log import LOG, Creation, claim, creation_of, is_epoch, put_properties, start_log, strange_files
from ..session import PROPERTIES, prove, read_config, settled
from ..transaction import lay_floor
from ..workspace import refuse_check, refuse_unique, with_table_keys
from .adopt_streams import BUCKETS
from .stream import declarations_of, declare, refuse_at_creation
from .table import Table, store_of

if TYPE_CHECKING:
    import pyarrow as pa


P = ParamSpec("P")
_TYPES = {"copy_on_write": COPY_ON_WRITE, "merge_on_read": MERGE_ON_READ}
_given: ContextVar[frozenset[str]] = ContextVar("arguments that were given", default=frozenset())


def _notes_what_is_given(made: Callable[P, Table]) -> Callable[P, Table]:
    """Record which arguments were passed: an existing table is compared with those only, and not with defaults."""

    @wraps(made)
    def noted(*args: P.args, **named: P.kwargs) -> Table:
        # None is no name: the table is then called by its URL, whatever the one that is there is called.
        token = _given.set(frozenset(each for each in named if each != "name" or named[each] is not None))
        try:
            return made(*args, **named)
        finally:
            _given.reset(token)

    return noted


@_notes_what_is_given
@suggesting
def create(
    url: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str] = (),
    ordering_field: str | Sequence[str] | None = None,
    schema: pa.Schema | str | None = None,
    name: str | None = None,
    database: str = "default",
    hive_style: bool = True,
    table_version: int = 8,
    type: Literal["copy_on_write", "merge_on_read"] = "copy_on_write",  # noqa: A002 - Hudi's word
    streams: Mapping[str, Mapping[str, Any]] | None = None,
    exist_ok: bool = False,
    writer: str = "",
    env: Environment = SYSTEM,
    storage: Mapping[str, Any] | None = None,
    **settings: Unpack[SettingsDict],
) -> Table:
    """Create an empty Hudi table and open it.

    Args:
        url: the table's place; the folder must be empty or absent.
        record_key: column or columns that identify a row. None: there are none, and each row that is inserted gets an id in a
            column ``row_id``.
        partition_by: columns whose values name the partition folders; without any the table is unpartitioned. One may be hours,
            days, months or years of a time, in UTC: ``"days(at)"`` adds a text column ``at_day``, which is computed.
        ordering_field: column by which the newer of two versions of a row is found; an older one never replaces a newer one.
            Several, in a table of version 9: the first in which two versions differ decides. Without any the later write wins.
        schema: data columns, so that the empty table can be read; also as text: ``"id string not null, at timestamp"``.
        name: the table's name in Hudi; the last part of the URL otherwise.
        database: the name of its database in Hudi.
        hive_style: partition folders named ``column=value``.
        table_version: 8 (Hudi 1.0 and later) or 9 (1.1 and later).
        type: ``copy_on_write`` rewrites a file group when its rows change; ``merge_on_read`` appends the changes, which
            readers and compaction merge: cheaper writes, dearer reads.
        streams: by name, the arguments of `Table.stream` that declare it, as ``{"orders": {"columns": ["amount"], "ordering":
            "paid_at"}}``. Unless said otherwise the table is then what streams need: ``merge_on_read``, of version 9, with
            8 buckets.
        exist_ok: open an existing table, if it agrees with all arguments given here; it may have more columns by now. A table
            that another creator left half made is finished as that one wanted it.
        writer: a name for logs and conflict messages; host and process number otherwise.
        storage: options of the store, as of `lakelatch.open`.
        settings: fields of `Settings` (lock, buckets, lease_s, heartbeat_interval_s, ...), shared by all writers.

    Raises:
        InputError: the folder holds a table already, or other files.
        ConfigError: settings that cannot work; or an existing table that differs, with each difference.
        UnsafeStoreError: the store's conditional writes are not atomic.
    """
    refuse_unknown_settings(create, settings)
    writer = text(writer, "writer", empty=True)
    store = store_of(url, storage)
    declarations = declarations_of(streams)
    if isinstance(schema, str):
        schema = schema_of(schema)
    if declarations and record_key is None:
        raise InputError("streams write the row of a key; name a record_key. Nothing was written")
    if declarations:
        type = type if "type" in _given.get() else "merge_on_read"  # noqa: A001
        table_version = table_version if "table_version" in _given.get() else 9
        settings.setdefault("bucket_count", BUCKETS)
    config = _new_config(
        store, record_key, partition_by, ordering_field, schema, name, database, hive_style, table_version, type
    )
    wanted = with_table_keys(settings_for(store, settings, env), config)
    refuse_unique(config, wanted, store.url)
    refuse_check(config, wanted, store.url)
    if wanted.merge or wanted.ties != "last":
        from ...hudi.merge import rule_of

        rule = rule_of(config, wanted.merge, wanted.ties)
        rule.refuse(schema)
        config = config if rule.as_hudi else config.merging_columns()
    if wanted.unique_constraints and schema is not None:
        from ..staging import wanted_of

        wanted_of(wanted, schema, "insert")
    if declarations:
        if schema is None:
            raise InputError("streams are declared of columns; give create a schema too. Nothing was written")
        refuse_at_creation(declarations, schema, config, store.url, wanted)
    if wanted.check and schema is not None:
        value_checks(wanted.check, schema)
    mine = _make(store, env, config, wanted)
    table = Table(store, env=env, writer=writer)
    try:
        if mine:
            with_floor(table)
        else:
            _refuse_another(table, exist_ok=exist_ok, differences=_differences(table, config, wanted, settings))
        for each in declarations:  # one that is there as it is wanted stays so
            declare(table.session, each)
    except BaseException:
        table.close()
        raise
    return table


def _make(store: Store, env: Environment, config: TableConfig, wanted: Settings) -> bool:
    """Make the table unless it exists. Returns True if this caller's `Creation` won, so that it is as wanted."""
    if store.head(PROPERTIES) is not None:
        return False
    if (creation := creation_of(store)) is None:
        try:
            _refuse_strange_files(store)
        except InputError:  # the files may be those of a concurrent creator
            if store.head(PROPERTIES) is not None:
                return False
            if (creation := creation_of(store)) is None:
                raise
    mine = False
    if creation is None:
        # All refusals come before `claim`, which is the first write.
        refuse_clock(env.now(), EARLIEST, store.url, trusted=False)
        refuse_unsafe(store)
        prove(wanted.lock, store.url, env=env)
        ours = Creation(config.to_bytes(), *first_entry(store, env, wanted, top=EARLIEST))
        creation = claim(store, ours)
        mine = creation == ours
    elif store.folders(LOG):
        # The log comes after the properties: raises that they were lost, unless they have appeared meanwhile.
        read_config(store)
        return False
    if not put_properties(store, creation):
        return False
    start_log(store, creation.epoch, creation.opening)
    return mine


_COMPARED = {
    "record_key": "keyed_by",
    "partition_by": "partitioned_by",
    "ordering_field": "ordered_by",
    "type": "table_type",
    "table_version": "version",
    "hive_style": "hive_style",
    "name": "name",
    "database": "database",
}


def _differences(
    table: Table,
    config: TableConfig,
    wanted: Settings,
    settings: Collection[str],
) -> dict[str, tuple[Any, Any]]:
    """The passed arguments from which the table differs, by name: (the table's value, the one asked for)."""
    words = {each: word for word, each in _TYPES.items()}
    found: dict[str, tuple[Any, Any]] = {}
    for name, field in _COMPARED.items():
        there, asked = getattr(table.config, field), getattr(config, field)
        if name in _given.get() and there != asked:
            found[name] = (words.get(there, there), words.get(asked, asked))
    for name in settings:
        there = getattr(table.settings, name) if table.writable else "no commit log, so no settings"
        if there != getattr(wanted, name):
            found[name] = (there, getattr(wanted, name))
    if "lock" in found:
        found["lock"] = (shown(found["lock"][0]), shown(found["lock"][1]))
    if config.create_schema is not None and config.create_schema != table.config.create_schema:
        found |= _other_columns(table, from_avro(config.create_schema))
    return found


def _other_columns(table: Table, wanted: pa.Schema) -> dict[str, tuple[Any, Any]]:
    """The columns that differ from those the table was made with. Columns added or changed since are no difference."""
    there, asked = _columns(table.schema()), _columns(wanted)
    made = _columns(from_avro(table.config.create_schema)) if table.config.create_schema else {}

    def grew(new: pa.Field, old: pa.Field) -> bool:
        return old == made.get(old.name, old) and can_become(old.type, new.type) and old.nullable == new.nullable

    lacks = [
        name
        for name, field in asked.items()
        if name not in there or (there[name] != field and not grew(there[name], field))
    ]
    others = [*lacks, *(name for name in made if name not in asked)]

    def told(field: pa.Field | None, otherwise: str) -> str:
        return otherwise if field is None else f"{field.type}{'' if field.nullable else ' not null'}"

    return {
        f"column {name}": (told(there.get(name), "not there"), told(asked.get(name), "left out")) for name in others
    }


def _refuse_another(table: Table, *, exist_ok: bool, differences: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise `InputError` unless ``exist_ok``; `ConfigError` if the table differs from what was asked for."""
    others = "; ".join(
        f"{name} is {there!r}, and {asked!r} was asked for" for name, (there, asked) in differences.items()
    )
    if not exist_ok:
        raise InputError(
            f"there is a table at {table.url} already{f', and it is another one: {others}' if others else ''}; open it with "
            "lakelatch.open, or say `exist_ok=True`, which opens it unless it is another one than was asked for",
            table=table.url,
            differences=dict(differences),
        )
    if differences:
        raise ConfigError(
            f"{table.url} is there, and is another table than was asked for: {others}. Nothing was written. Make a table "
            "elsewhere, open this one with lakelatch.open, or change its settings (`change_settings`) first",
            table=table.url,
            setting=next(iter(differences)),
            differences=dict(differences),
        )


def _columns(schema: pa.Schema | None) -> dict[str, pa.Field]:
    return {field.name: field for field in schema or ()}


def with_floor(table: Table) -> Table:
    """Give the table its first commit (floor.py) and return it."""
    try:
        lay_floor(table.session)
    except BaseException as e:
        # The table exists all the same: its first transaction lays the floor.
        e.add_note(f"{table.url} is a table now; open it with lakelatch.open")
        table.close()
        raise
    return table


def next_generation(settings: Settings, env: Environment, epoch: int = 0) -> Settings:
    """Settings for a new log, whose tokens start over: the generation exceeds all earlier ones, even of a deleted log."""
    return replace(settings, generation=max(settings.generation + 1, int(env.now() * 1000), epoch))


def first_entry(
    store: Store, env: Environment, settings: Settings, *, top: str, batches: tuple[Landed, ...] = ()
) -> tuple[int, bytes]:
    """Return the number of a new epoch, taken from the time so that it exceeds even a deleted one's, and its opening entry."""
    epochs = [int(n) for n in store.folders(LOG) if is_epoch(n)]
    epoch = max([int(env.now() * 1000), *(e + 1 for e in epochs)])
    return epoch, encode(
        Open(top, 0, next_generation(settings, env, epoch), slot=1, batches=batches), epoch, 1, env.uuid()
    )


def refuse_unknown_settings(call: Callable[..., Table], given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a name is neither an argument of the call nor a setting."""
    settings = [each.name for each in fields(Settings) if each.name not in ("generation", "streams")]
    if unknown := sorted(set(given) - set(settings)):
        own = [name for name, each in signature(call).parameters.items() if each.kind is not each.VAR_KEYWORD]
        raise ConfigError(unknown_argument(unknown[0], [*own, *settings]), argument=unknown[0])


def settings_for(store: Store, given: Mapping[str, Any], env: Environment, base: Settings | None = None) -> Settings:
    """Return the settings that a new log begins with; those of ``base`` where none are given."""
    local = store.url.startswith("file:")
    settings = (base or Settings(lock=OWN_LOCK if local else NO_LOCK)).changed(**given)
    if settings.lock == OWN_LOCK and not local:
        raise ConfigError(
            f"the table's own lock needs a local folder, and {store.url} is none; name a lock URL, or none:// to leave the "
            "order of commits to the log alone"
        )
    return settings.changed(lock=settled(settings.lock, env=env))


def _new_config(  # noqa: C901 - one check after the other
    store: Store,
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str],
    ordering_field: str | Sequence[str] | None,
    schema: pa.Schema | None,
    name: str | None,
    database: str,
    hive_style: bool,
    table_version: int,
    kind: str,
) -> TableConfig:
    import pyarrow as pa

    from ...hudi.table import declared, refuse_no_columns, to_avro

    flag(hive_style, "hive_style")
    number(table_version, "table_version", whole=True)
    if table_version not in (8, 9):
        raise UnsupportedTableError(f"table_version={table_version} is not written; give 8 or 9")
    for value, what in ((name, "name"), (database, "database")):
        if value is not None or what == "database":
            given = text(value, what, empty=True)
            if given != visible(given) or given != given.strip():
                raise InputError(f"{what}={value!r} has blanks at an end, or control characters; leave them out")
    if schema is not None:
        instance(
            schema,
            pa.Schema,
            "schema",
            "the columns as a pyarrow.Schema, such as `table.schema`, or as text, such as 'id string, at timestamp'",
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"no table type {kind!r}; known: {', '.join(_TYPES)}")
    keys = (ROW_ID,) if record_key is None else names(record_key, "record_key")
    partitions, by_time = _partitions(partition_by)
    ordering = _ordering(ordering_field, table_version)
    for what, named in (("record_key", keys), ("partition_by", partitions), ("ordering_field", ordering)):
        refuse_no_columns(named, f"{what}={_as_given(named)}")
    if by_time[0]:
        refuse_no_columns(by_time[1:], f"partition_by={_as_given(names(partition_by, 'partition_by'))}")
    refuse_no_columns((*keys, *partitions, *ordering), "record_key, partition_by and ordering_field together")
    if not keys:
        raise InputError("a table needs a record key: name the column or columns that identify a row")
    if schema is not None and by_time[1] in schema.names:
        schema = _with_time(schema, *by_time)
    if schema is not None and record_key is None:
        schema = _with_row_id(schema)
    title = name or store.url.rstrip("/").rpartition("/")[2] or "table"
    if schema is not None and (missing := [c for c in (*keys, *partitions, *ordering) if c not in schema.names]):
        raise InputError(f"the schema lacks {', '.join(missing)}, which the table needs", columns=missing)
    keygen = "NON_PARTITION" if not partitions else "SIMPLE" if len(keys) == len(partitions) == 1 else "COMPLEX"
    config = TableConfig(
        name=title,
        table_type=_TYPES[kind],
        version=table_version,
        layout=2,
        database=database,
        record_key_fields=keys,
        partition_fields=partitions,
        by_time=by_time,
        row_ids=record_key is None,
        keygen=keygen,
        precombine_fields=ordering if table_version == 8 else (),
        ordering_fields=ordering if table_version != 8 else (),
        merge_mode="EVENT_TIME_ORDERING" if ordering else "COMMIT_TIME_ORDERING",
        hive_style=hive_style,
        url_encode=True,
        create_schema=to_avro(declared(schema), title) if schema is not None else None,
        timeline_timezone="UTC",
    )
    config.refuse_writing()
    return config


def _partitions(given: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Return the partition columns, and the unit and time of one like ``days(at)``."""
    named = names(given, "partition_by")
    found = [(each, *each[:-1].split("(", 1)) for each in named if each.endswith(")") and "(" in each]
    if not found:
        return named, ("", "")
    if len(found) > 1:
        raise InputError(f"partition_by={_as_given(named)}: a table is partitioned by one time; give one of them")
    ((whole, unit, column),) = found
    if unit not in TIME_UNITS:
        raise InputError(
            f"partition_by={_as_given(named)}: there are no partitions by {unit!r}; name a column, or {', '.join(TIME_UNITS)} of "
            "one, such as 'days(at)'. For even file groups give bucket_count"
        )
    made = time_column(unit, column)
    if made in named:
        raise InputError(f"partition_by={_as_given(named)}: {whole} makes the column {made!r}; name it once")
    return tuple(made if each == whole else each for each in named), (unit, column)


def _with_time(schema: pa.Schema, unit: str, source: str) -> pa.Schema:
    """Return the schema with the column that is computed from the time."""
    import pyarrow as pa

    from ...hudi.table import refuse_no_time, storable

    made = time_column(unit, source)
    refuse_no_time(source, storable(pa.schema([schema.field(source)])).field(0).type, unit)
    if made not in schema.names:
        return schema.append(pa.field(made, pa.string()))
    if schema.field(made).type != pa.string():
        raise InputError(
            f"the schema has a column {made!r} of type {schema.field(made).type}, and {unit}({source}) makes a text "
            "column of that name; leave it out",
            column=made,
        )
    return schema


def _with_row_id(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    if ROW_ID in schema.names:
        raise InputError(
            f"the schema has a column {ROW_ID!r}, in which a table without a record key keeps ids of its own; rename it, or "
            "name a record key",
            column=ROW_ID,
        )
    return schema.append(pa.field(ROW_ID, pa.string()))


def _as_given(names: Sequence[str]) -> str:
    return repr(names[0] if len(names) == 1 else list(names))


def _ordering(given: str | Sequence[str] | None, table_version: int) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, list | tuple) and not given:
        raise InputError(
            f"ordering_field={given!r} names no column; leave it out, and the later write wins, or name the columns"
        )
    ordering = names(text(given, "ordering_field") if isinstance(given, str) else given, "ordering_field")
    if commas := [name for name in ordering if "," in name]:
        raise InputError(
            f"ordering_field={commas[0]!r} holds a comma, by which Hudi tells several apart; name them in a list"
        )
    if len(ordering) > 1 and table_version == 8:
        raise InputError(
            f"ordering_field={given!r}: a table of version 8 has one ordering field; make the table with table_version=9"
        )
    return ordering


def _refuse_strange_files(store: Store) -> None:
    if there := strange_files(store):
        why = f"it is not empty ({', '.join(there[:3])}), and readers would take such files for data"
        raise InputError(not_hudi(store, why, "Choose an empty folder"), table=store.url)


def refuse_unsafe(store: Store) -> None:
    """Raise `UnsafeStoreError` if the store's conditional writes are not atomic."""
    # Local disks link atomically. Others are probed: some stores answer a single put correctly and fail in a race.
    if not store.url.startswith("file:"):
        from ...storage.probe import probe

        probe(store)
