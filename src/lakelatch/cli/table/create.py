"""``lakelatch create`` and ``adopt``.

JSON: ``url``, ``properties`` (as `describe` prints them), ``settings``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..output import Waiting, duration_text, print_json, say

if TYPE_CHECKING:
    import pyarrow as pa

    from ...occ.table import Table
    from ...storage import Store


def create(
    url: str, *, record_key: str, partition_by: str, ordering_field: str, schema: str, name: str, options: list[str],
    options_file: str, settings: dict[str, Any], json: bool, **properties: Any,
) -> None:  # fmt: skip
    """Create an empty table and describe it."""
    from ...occ.table import create as make

    given = _settings(
        url, settings, options, options_file, name=lambda store: name or store.url.rpartition("/")[2] or "table"
    )
    if not record_key:
        raise InputError("name the column that identifies a row: --record-key id (several: --record-key id,day)")
    # With --exist-ok an omitted property is that of the existing table.
    asked = {
        "partition_by": _names(partition_by) or None,
        "ordering_field": _names(ordering_field) or None,
        "schema": _schema(schema) if schema else None,
        "name": name or None,
        **properties,
    }
    with make(
        url,
        record_key=_names(record_key),
        **{each: value for each, value in asked.items() if value is not None},
        **given,
    ) as table:
        _tell(table, "created", json=json)


def adopt(url: str, *, options: list[str], options_file: str, settings: dict[str, Any], json: bool) -> None:
    """Give a Hudi table a commit log."""
    from ...occ.table import adopt as take_over

    given = _settings(url, settings, options, options_file, name=_name_of)
    with Waiting("looking for living writers") as tell:
        table = take_over(
            url,
            progress=lambda left: tell(f"watching writers for a sign of life, {duration_text(left)} at most"),
            **given,
        )
    with table:
        _tell(table, "adopted", json=json)


def _settings(
    url: str, settings: dict[str, Any], options: list[str], options_file: str, *, name: Callable[[Store], str]
) -> dict[str, Any]:
    """Return the given settings, with those of Hudi's lock options; ``name`` returns the table's name in Hudi."""
    from ...storage import open_store
    from ..locks.table_lock import lock_settings

    given = {key: value for key, value in settings.items() if value is not None}
    if given.get("statistics") not in (None, "all"):
        given["statistics"] = _names(given["statistics"])
    if not options and not options_file:
        return given
    store = open_store(url)
    found = lock_settings(given.get("lock"), options, options_file, table_name=name(store), base_path=store.url)
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


def _schema(file: str) -> pa.Schema:
    """Return the data columns of a Parquet file, or of an Avro schema as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ...errors import CorruptTableError
    from ...hudi.table import META_COLUMNS, from_avro
    from ...storage import read_input

    path = Path(file)
    try:
        if path.suffix == ".parquet":
            found = pq.read_schema(path)
        else:
            found = from_avro(read_input(file).decode())
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, CorruptTableError) as e:
        raise InputError(f"{file} is neither a Parquet file nor an Avro schema as JSON: {e}", path=file) from e
    return pa.schema([field for field in found if field.name not in META_COLUMNS])
