"""``lakelatch init``. JSON: ``url``, ``adopted``, ``properties`` (as `show` prints them), ``settings``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .output import Waiting, duration_text, print_json, say

if TYPE_CHECKING:
    import pyarrow as pa

    from ..occ.table import Table


def create(
    url: str, *, record_key: str, partition_by: str, ordering_field: str, schema: str, settings: dict[str, Any], json: bool,
    exist_ok: bool, **properties: Any,
) -> None:  # fmt: skip
    """Make an empty table and say what it is."""
    from ..occ.table import create as make

    if not record_key:
        raise InputError("name the column that identifies a row: --record-key id (several: --record-key id,day)")
    with make(
        url,
        record_key=_names(record_key),
        partition_by=_names(partition_by),
        ordering_field=ordering_field or None,
        schema=_schema(schema) if schema else None,
        name=properties.pop("name") or None,
        exist_ok=exist_ok,
        **properties,
        **settings,
    ) as table:
        _tell(table, "made", json=json)


def adopt(url: str, lock: str, settings: dict[str, Any], *, columns: tuple[str, ...], json: bool) -> None:
    """Give a Hudi table a commit log."""
    from ..occ.table import adopt as take_over

    if any(columns):
        raise InputError(
            "--adopt keeps the table's own keys, partitions, ordering, schema and name; leave those options out"
        )
    if settings.pop("lock", lock) != lock:
        raise InputError("--adopt LOCK_URL names the lock already; leave --lock out")
    with Waiting("looking for living writers") as tell:
        table = take_over(
            url,
            lock,
            progress=lambda left: tell(f"watching writers for a sign of life, {duration_text(left)} at most"),
            **settings,
        )
    with table:
        _tell(table, "adopted", json=json)


def with_hudi_options(
    url: str, settings: dict[str, Any], options: list[str], options_file: str, *, name: str
) -> dict[str, Any]:
    """The settings with those that Hudi's lock options ask for; what is given by name wins, but for the lock."""
    from ..storage import location
    from .locks import lock_settings

    place = location.parse(url).url
    found = lock_settings(
        settings.get("lock"), options, options_file, table_name=name or place.rpartition("/")[2], base_path=place
    )  # fmt: skip
    return found | settings


def _tell(table: Table, what: str, *, json: bool) -> None:
    settings = table.settings
    if json:
        from .show import properties_json

        print_json(
            {
                "url": table.url,
                "adopted": what == "adopted",
                "properties": properties_json(table.config),
                "settings": settings.to_json(),
            }
        )
        return
    index = f"bucket index of {settings.bucket_count}" if settings.bucket_count else "simple index"
    say(f"{what} {table.url}: lock {settings.lock}, strategy {settings.strategy}, {index}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _schema(file: str) -> pa.Schema:
    """The data columns of a Parquet file, or of an Avro schema as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..errors import CorruptTableError
    from ..hudi.table import META_COLUMNS, from_avro

    path = Path(file)
    try:
        if path.suffix == ".parquet":
            found = pq.read_schema(path)
        else:
            found = from_avro(path.read_text())
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, CorruptTableError) as e:
        raise InputError(f"{file} is neither a Parquet file nor an Avro schema as JSON: {e}", path=file) from e
    return pa.schema([field for field in found if field.name not in META_COLUMNS])
