"""Making a table: its properties, its log, and the floor of its timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from ...arguments import flag, instance, names, number, suggesting, text, unknown_argument
from ...environment import SYSTEM, Environment
from ...errors import ConfigError, InputError, StorageError
from ...hudi.files import not_hudi
from ...hudi.table import COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from ...hudi.timeline import EARLIEST, refuse_clock
from ...plain_text import visible
from ...storage import Outcome, Store, put_secured, secured
from ..entries import NO_LOCK, OWN_LOCK, Landed, Open, Settings, encode
from ..log import FOLDER_KEEPER, LOG, is_epoch, slot_path
from ..session import PROPERTIES, prove, settled
from ..transaction import lay_floor
from ..workspace import refuse_unique
from .table import Table, store_of

if TYPE_CHECKING:
    import pyarrow as pa


_TYPES = {"copy_on_write": COPY_ON_WRITE, "merge_on_read": MERGE_ON_READ}


@suggesting
def create(
    url: str,
    *,
    record_key: str | Sequence[str],
    partition_by: str | Sequence[str] = (),
    ordering_field: str | Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    name: str | None = None,
    database: str = "default",
    hive_style: bool = True,
    table_version: int = 8,
    type: Literal["copy_on_write", "merge_on_read"] = "copy_on_write",  # noqa: A002 - Hudi's word
    exist_ok: bool = False,
    writer: str = "",
    env: Environment = SYSTEM,
    storage: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Table:
    """Make an empty Hudi table and open it.

    Args:
        url: where; the folder must be empty or absent.
        record_key: column or columns that identify a row.
        partition_by: columns whose values name the partition folders; none makes an unpartitioned table.
        ordering_field: column that says which of two versions of a row is newer; an older one never replaces a newer one.
            Several, in a table of version 9: the first in which two versions differ says it. Without any the later write wins.
        schema: data columns, so that the empty table can be read.
        name: the table's name in Hudi; the last part of the URL otherwise.
        database: the name of its database in Hudi.
        hive_style: partition folders named ``column=value``.
        table_version: 8 (Hudi 1.0 and later) or 9 (1.1 and later).
        type: ``copy_on_write`` writes a file group anew when its rows change; ``merge_on_read`` appends what has changed,
            which readers and compaction merge. Cheaper writes, dearer reads.
        exist_ok: open the table when there is one already, unless it is another one than was asked for.
        writer: a name for logs and conflict messages; host and process number otherwise.
        storage: options of the store, as of `lakelatch.open`.
        settings: fields of `Settings` (lock, buckets, lease_s, heartbeat_interval_s, ...), shared by all writers.

    Raises:
        InputError: there is a table already, or other files.
        ConfigError: settings that cannot work, or others than those of the table that is there.
        UnsafeStoreError: the store's conditional writes are not atomic.
    """
    refuse_unknown_settings(create, settings)
    writer = text(writer, "writer", empty=True)
    store = store_of(url, storage)
    config = _new_config(
        store, record_key, partition_by, ordering_field, schema, name, database, hive_style, table_version, type
    )
    wanted = settings_for(store, settings, env)
    refuse_unique(config, wanted, store.url)
    if wanted.merge or wanted.ties != "last":
        from ...hudi.merge import rule_of

        rule = rule_of(config, wanted.merge, wanted.ties)
        rule.refuse(schema)
        config = config if rule.as_hudi else config.merging_columns()
    if wanted.unique_constraints and schema is not None:
        from ..staging import wanted_of

        wanted_of(wanted, schema, "insert")
    if store.head(PROPERTIES) is not None:
        if exist_ok:
            return _as_asked(Table(store, env=env, writer=writer), config, {n: getattr(wanted, n) for n in settings})
        raise InputError(
            f"there is a table at {store.url} already; open it with lakelatch.open, or say `exist_ok=True`, which opens it "
            "unless it is another one than was asked for",
            table=store.url,
        )
    _refuse_strange_files(store)
    refuse_clock(env.now(), EARLIEST, store.url, trusted=False)
    refuse_unsafe(store)
    prove(wanted.lock, store.url, env=env)
    body = config.to_bytes()
    put = store.put_if_absent(PROPERTIES, body)
    if put.outcome is Outcome.UNKNOWN and store.body(PROPERTIES) == body:
        put = secured(store, PROPERTIES)
    if put.outcome is Outcome.LOST:
        if exist_ok:
            return _as_asked(Table(store, env=env, writer=writer), config, {n: getattr(wanted, n) for n in settings})
        raise InputError(
            f"somebody else has just made a table at {store.url}; open it with lakelatch.open, or say `exist_ok=True`",
            table=store.url,
        )
    if put.outcome is Outcome.UNKNOWN:
        raise StorageError(
            f"no answer when {store.url} was made ({put.cause}); look whether it is there, then try again"
        )
    # The JVM lists the timeline's folder even when nothing was written yet, and fails when it is not there.
    store.put_if_absent(f"{config.timeline_folder}/{FOLDER_KEEPER}", b"")
    start_log(store, env, wanted, top=EARLIEST)
    return with_floor(Table(store, env=env, writer=writer))


def _as_asked(table: Table, wanted: TableConfig, settings: dict[str, Any]) -> Table:
    """The table that is there. Raises `ConfigError` when it would take rows otherwise than the caller thinks."""
    try:
        for what in ("record_key_fields", "partition_fields", "ordered_by"):
            there, asked = getattr(table.config, what), getattr(wanted, what)
            named = "ordering_field" if what == "ordered_by" else what
            if asked and there != asked:  # what was left out is as it is
                raise ConfigError(
                    f"{table.url} is there with {named}={there!r}, and {asked!r} was asked for; these never change. Make a "
                    "table elsewhere, or open this one with lakelatch.open",
                    table=table.url,
                    setting=named,
                )
        if table.writable:
            table.settings.refuse_others(table.url, **settings)
    except BaseException:
        table.close()
        raise
    return table


def with_floor(table: Table) -> Table:
    """The table, which has a commit to begin with (floor.py)."""
    try:
        lay_floor(table.session)
    except BaseException as e:
        # The table is there all the same, and its first transaction lays the floor.
        e.add_note(f"{table.url} is a table now; open it with lakelatch.open")
        table.close()
        raise
    return table


def next_generation(settings: Settings, env: Environment, epoch: int = 0) -> Settings:
    """Settings for a log whose tokens begin anew: their generation is later than any before, also of a deleted log."""
    return replace(settings, generation=max(settings.generation + 1, int(env.now() * 1000), epoch))


def start_log(
    store: Store, env: Environment, settings: Settings, *, top: str, batches: tuple[Landed, ...] = ()
) -> None:
    """Open an epoch numbered from the time, so that it is newer than any before it, also than a deleted one."""
    epochs = [int(n) for n in store.folders(LOG) if is_epoch(n)]
    epoch = max([int(env.now() * 1000), *(e + 1 for e in epochs)])
    body = encode(Open(top, 0, next_generation(settings, env, epoch), slot=1, batches=batches), epoch, 1, env.uuid())
    path = slot_path(epoch, 1)
    for _ in range(5):
        put = put_secured(store, path, body)
        if put.done:
            return
    raise StorageError(
        f"no answer when the commit log of {store.url} was started ({put.cause}); run `lakelatch adopt` on it",
        table=store.url,
    )


def refuse_unknown_settings(call: Callable[..., Table], given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a word that is neither an argument of the call nor a setting."""
    settings = [each.name for each in fields(Settings) if each.name not in ("generation", "streams")]
    if unknown := sorted(set(given) - set(settings)):
        own = [name for name, each in signature(call).parameters.items() if each.kind is not each.VAR_KEYWORD]
        raise ConfigError(unknown_argument(unknown[0], [*own, *settings]), argument=unknown[0])


def settings_for(store: Store, given: dict[str, Any], env: Environment, base: Settings | None = None) -> Settings:
    """The settings that a new log begins with; those of ``base`` where none are given."""
    local = store.url.startswith("file:")
    settings = (base or Settings(lock=OWN_LOCK if local else NO_LOCK)).changed(**given)
    if settings.lock == OWN_LOCK and not local:
        raise ConfigError(
            f"the table's own lock needs a local folder, and {store.url} is none; name a lock URL, or none:// to leave the "
            "order of commits to the log alone"
        )
    return settings.changed(lock=settled(settings.lock, env=env))


def _new_config(
    store: Store,
    record_key: str | Sequence[str],
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
    for value, what in ((name, "name"), (database, "database")):
        if value is not None or what == "database":
            given = text(value, what, empty=True)
            if given != visible(given) or given != given.strip():
                raise InputError(f"{what}={value!r} has blanks at an end, or control characters; leave them out")
    if schema is not None:
        instance(schema, pa.Schema, "schema", "the columns as a pyarrow.Schema, such as `table.schema`")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"no table type {kind!r}; known: {', '.join(_TYPES)}")
    keys = names(record_key, "record_key")
    partitions = names(partition_by, "partition_by")
    ordering = _ordering(ordering_field, table_version)
    for what, named in (("record_key", keys), ("partition_by", partitions), ("ordering_field", ordering)):
        refuse_no_columns(named, f"{what}={_as_given(named)}")
    refuse_no_columns((*keys, *partitions, *ordering), "record_key, partition_by and ordering_field together")
    if not keys:
        raise InputError("a table needs a record key: name the column or columns that identify a row")
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
    there = [e.name for e in store.list("")] + [f + "/" for f in store.folders("")]
    if there:
        why = f"it is not empty ({', '.join(sorted(there)[:3])}), and readers would take such files for data"
        raise InputError(not_hudi(store, why, "Choose an empty folder"), table=store.url)


def refuse_unsafe(store: Store) -> None:
    """Raise `UnsafeStoreError` when the store's conditional writes are not atomic."""
    # Local disks link atomically; every other store has to show it, because some answer right and race wrong.
    if not store.url.startswith("file:"):
        from ...storage.probe import probe

        probe(store)
