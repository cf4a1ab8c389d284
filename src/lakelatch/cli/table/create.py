"""``lakelatch create`` and ``adopt``.

JSON: ``url``, ``properties`` (as `describe` prints them), ``settings``.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ...occ.entries import Settings
from ..options import HudiOption, HudiOptions, Json, StreamOption, Url, stream_of
from ..output import Waiting, duration_text, print_json, say

if TYPE_CHECKING:
    import pyarrow as pa

    from ...occ.table import Table
    from ...storage import Store


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each setting that it does not name itself."""
    signature = inspect.signature(command, eval_str=True)
    own = {name: each for name, each in signature.parameters.items() if each.kind is not each.VAR_KEYWORD}
    for name, declared in Settings.declared().items():
        if name in own or not declared.choice or declared.option is None:
            continue
        about = re.split(r"[.;] |[.;]$| \(\[", declared.told.replace("``", "'"))[0]
        metavar = "COLUMNS" if name == "statistics" else None
        shown = typer.Option(help=f"{about[:1].upper()}{about[1:]}.", metavar=metavar)
        option = Annotated[declared.option | None, shown]  # type: ignore[name-defined]
        own[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        command.__annotations__[name] = option
    command.__signature__ = signature.replace(parameters=list(own.values()))  # type: ignore[attr-defined]
    return command


@_with_settings
def create(
    url: Url,
    *,
    record_key: Annotated[str, typer.Option(help="Column or columns that identify a row, separated by commas.")] = "",
    no_record_key: Annotated[
        bool, typer.Option("--no-record-key", help="None do: each row gets an id in a column row_id.")
    ] = False,
    partition_by: Annotated[
        str, typer.Option(help="Columns whose values name the partitions, or days(at) of a time.")
    ] = "",
    ordering_field: Annotated[str, typer.Option(help="Column or columns (a,b) that say which row is newer.")] = "",
    schema: Annotated[
        str,
        typer.Option(
            metavar="COLUMNS", help="As 'id string, at timestamp'; or a Parquet file, or one of Avro as JSON."
        ),
    ] = "",
    type: Annotated[  # noqa: A002
        str | None, typer.Option(help="copy_on_write or merge_on_read; merge_on_read with --stream.")
    ] = None,
    stream: StreamOption = None,
    name: Annotated[str, typer.Option(help="The table's name; the last part of URL otherwise.")] = "",
    database: Annotated[str | None, typer.Option(help="The database it belongs to, else 'default'.")] = None,
    table_version: Annotated[int | None, typer.Option(help="Hudi table version, 8 or 9; 8 if left out.")] = None,
    hive_style: Annotated[
        bool | None, typer.Option(help="Name partition folders column=value, as when left out.")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="No error when the table exists already.")] = False,
    lock: Annotated[str | None, typer.Option(help="Lock provider: a URL, 'table' or 'none://'.")] = None,
    option: HudiOption = None,
    options_file: HudiOptions = "",
    unique_constraint: Annotated[
        list[str] | None, typer.Option(metavar="COLUMNS", help="No two rows have the same values in these; repeatable.")
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="No row breaks it, as 'amount >= 0'; repeatable.")
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=MERGER", help="How a column is merged; *= for all; repeatable.")
    ] = None,
    json: Json = False,
    **settings: Any,
) -> None:
    """Create an empty table."""
    from ...occ.session import PROPERTIES
    from ...occ.table import create as make
    from ...storage import open_store

    settings = _settings(
        url,
        option,
        options_file,
        lambda store: name or store.url.rpartition("/")[2] or "table",
        lock=lock,
        unique_constraints=[columns.split(",") for columns in unique_constraint or []] or None,
        check=check or None,
        merge=dict(each.partition("=")[::2] for each in merge or []) or None,
        **settings,
    )
    if bool(record_key) == no_record_key:
        raise InputError(
            "name the column that identifies a row: --record-key id (several: --record-key id,day); or say --no-record-key, and "
            "each row gets an id in a column row_id"
        )
    # With --exist-ok an omitted property is that of the existing table.
    asked: dict[str, Any] = {
        "partition_by": _names(partition_by) or None,
        "ordering_field": _names(ordering_field) or None,
        "schema": _schema(schema) if schema else None,
        "type": type,
        "streams": dict(map(stream_of, stream or [])) or None,
        "name": name or None,
        "database": database,
        "table_version": table_version,
        "hive_style": hive_style,
    }
    there = exist_ok and open_store(url).head(PROPERTIES) is not None
    with make(
        url,
        record_key=_names(record_key) if record_key else None,
        exist_ok=exist_ok,
        **{each: value for each, value in asked.items() if value is not None},
        **settings,
    ) as table:
        _tell(table, "already there:" if there else "created", json=json)


@_with_settings
def adopt(
    url: Url,
    lock: Annotated[str | None, typer.Argument(metavar="[LOCK]", help="A lock URL, 'table' or 'none://'.")] = None,
    *,
    option: HudiOption = None,
    options_file: HudiOptions = "",
    json: Json = False,
    **settings: Any,
) -> None:
    """Give an existing Hudi table a commit log, or rebuild a damaged one.

    Without LOCK the table keeps the lock of its old log, or gets the one in its own folder.
    """
    from ...occ.table import adopt as take_over

    settings = _settings(
        url,
        option,
        options_file,
        _name_of,
        lock=lock,
        **settings,
    )
    with Waiting("looking for living writers") as tell:
        table = take_over(
            url,
            progress=lambda left: tell(f"watching writers for a sign of life, {duration_text(left)} at most"),
            **settings,
        )
    with table:
        _tell(table, "adopted", json=json)


def _settings(
    url: str, options: list[str] | None, options_file: str, named: Callable[[Store], str], **settings: Any
) -> dict[str, Any]:
    """Return the given settings, with those of Hudi's lock options; ``named`` returns the table's name in Hudi."""
    from ...storage import open_store
    from ..locks.table_lock import lock_settings

    given = {key: value for key, value in settings.items() if value is not None}
    if given.get("statistics") not in (None, "all"):
        given["statistics"] = _names(given["statistics"])
    if "unique_keys" in given:
        given["unique_keys"] = {"true": True, "false": False}.get(given["unique_keys"], given["unique_keys"])
    if not options and not options_file:
        return given
    store = open_store(url)
    found = lock_settings(
        given.get("lock"), options or [], options_file, table_name=named(store), base_path=store.url
    )  # fmt: skip
    # A setting given as an option of its own wins over Hudi's.
    return found | given


def _name_of(store: Store) -> str:
    """Return the name under which JVM writers know the table: they derive the lock's key from it."""
    from ...hudi.table import TableConfig
    from ...occ.session import read_config

    return TableConfig.from_bytes(read_config(store), table=store.url).name


def _tell(table: Table, what: str, *, json: bool) -> None:
    settings = table.settings
    if json:
        print_json({"url": table.url, "properties": table.config.to_json(), "settings": settings.to_json()})
        return
    index = f"bucket index of {settings.bucket_count}" if settings.bucket_count else "simple index"
    say(f"{what} {table.url}: lock {settings.lock}, strategy {settings.strategy}, {index}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _schema(said: str) -> pa.Schema:
    """Return the columns of a text, or the data columns of a Parquet file or of an Avro schema as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...errors import CorruptTableError
    from ...hudi.table import META_COLUMNS, from_avro, schema_of
    from ...storage import read_input

    path = Path(said)
    try:
        if " " in said and not path.exists():
            return schema_of(said)
        if path.suffix == ".parquet":
            found = pq.read_schema(path)
        else:
            found = from_avro(read_input(said).decode())
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else str(e)  # Arrow's own text names the file again
        raise InputError(f"{said} cannot be read: {why}; name the file of the columns", path=said) from e
    except (ValueError, KeyError, TypeError, pa.ArrowException, CorruptTableError) as e:
        raise InputError(
            f"{said} is neither a Parquet file (*.parquet) nor an Avro schema as JSON; name a file that is", path=said
        ) from e
    return pa.schema([field for field in found if field.name not in META_COLUMNS])
