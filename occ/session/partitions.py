"""Partitions as callers name them: by value (``{"origin": "JFK"}``) or by path (``"origin=JFK"``).

An impossible or unknown path is refused, with the known ones in the message: otherwise ``x`` for ``p=x`` would read as
a partition without rows, and a claim on it would protect nothing. Values cannot be misspelled: they are checked against
the columns' types, and values without rows name no partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arguments import brief, many
from ...errors import InputError
from ...hudi.files import PARTITION_METADATA, join
from ...hudi.table import TableConfig, named_values, parse_partition_path, partition_path, possible_values

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import Snapshot
    from ...storage import Store

_SHOWN = 5
Partition = Mapping[str, Any] | str  # values of some or all partition columns, or a path


def some(names: Sequence[str]) -> str:
    """The first of many names, for a message."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "") or "none"


def known_partition(store: Store, config: TableConfig, snapshot: Snapshot, partition: str) -> str:
    """Return the path of a partition that has or had rows; raise `InputError` for any other."""
    wanted = partition.strip("/") if isinstance(partition, str) else partition
    known = snapshot.partitions()
    if isinstance(wanted, str) and wanted in known:
        return wanted
    refuse_misspelled(store.url, config, wanted, known)
    # A known partition without rows is an answer, not a mistake.
    if known and store.head(join(wanted, PARTITION_METADATA)) is None:
        raise InputError(f"{store.url} has no partition {brief(wanted)}; it has {some(known)}", partition=wanted)
    return wanted


def refuse_misspelled(url: str, config: TableConfig, partition: str, known: Sequence[str] = ()) -> None:
    """Raise `InputError` for a path that no row of the table can belong to."""
    fields = config.partition_fields
    try:
        fits = isinstance(partition, str) and bool(parse_partition_path(partition, config)) == bool(fields)
    except InputError:
        fits = False
    # Where values are encoded, a slash in one is %2F in the path.
    fits = fits and not (config.url_encode and len(fields) == 1 and "/" in partition)
    if fits and fields and config.hive_style:
        elements = partition.split("/") if len(fields) > 1 else [partition]
        fits = all(each.startswith(f"{name}=") for name, each in zip(fields, elements, strict=True))
    if not fits:
        form = "/".join(f"{name}=VALUE" if config.hive_style else name.upper() for name in fields)
        there = f"; it has {some(known)}" if known else ""
        raise InputError(
            f"{brief(partition)} cannot be a partition of {url}, which is "
            + (f"partitioned as {form}" if fields else "not partitioned (its one partition is '')")
            + f"{there}. Nothing was written; name it as `lakelatch files` prints it",
            partition=partition,
        )


def several(partitions: Iterable[str] | None, what: str = "partitions") -> list[str] | None:
    """Return the paths as a list, or None; raise `InputError` for one text, which would be split into letters."""
    if isinstance(partitions, str):
        raise InputError(f"{what}={partitions!r}: give a list, {what}=[{partitions!r}]")
    return None if partitions is None else list(many(partitions, what))


def chosen_partitions(
    store: Store, config: TableConfig, schema: pa.Schema | None, snapshot: Snapshot, partitions: Iterable[Partition]
) -> list[str]:
    """Return the sorted paths of the named partitions of the snapshot; values of some columns name several.

    Null and an empty text have one partition, as Hudi stores them.

    Raises:
        InputError: an unknown path, a column that does not partition the table, a value of another type.
    """
    found: set[str] = set()
    for each in listed(partitions):
        if isinstance(each, Mapping):
            found |= partitions_with(each, config, schema, snapshot)
        else:
            found.add(known_partition(store, config, snapshot, each))
    return sorted(found)


def listed(partitions: Iterable[Partition]) -> list[Partition]:
    """Return the named partitions as a list; raise `InputError` for one without a list around it."""
    if isinstance(partitions, str | Mapping):
        raise InputError(f"partitions={brief(partitions)}: give a list, partitions=[{brief(partitions)}]")
    return list(many(partitions, "partitions"))


def partitions_with(
    named: Mapping[str, Any], config: TableConfig, schema: pa.Schema | None, snapshot: Snapshot
) -> set[str]:
    """The paths of the snapshot's partitions with these values."""
    if schema is None:  # nothing was written yet, so no partition has these values
        return set()
    values, fields = named_values(named, config, schema), config.partition_fields
    if len(values) == len(fields):
        return {partition_path([values[field] for field in fields], config)}.intersection(snapshot.partitions())
    matching = set()
    for path in snapshot.partitions():
        rows = possible_values(path, config, schema)
        if rows is None:
            raise InputError(
                f"{path!r} does not tell the values of {', '.join(fields)}, so that the partitions with {brief(dict(named))} "
                "cannot be told; name them by path",
                partition=path,
            )
        places = [fields.index(name) for name in values]
        if any(all(row[n] == values[fields[n]] for n in places) for row in rows):
            matching.add(path)
    return matching


def partition_path_of(url: str, config: TableConfig, schema: pa.Schema | None, named: Partition) -> str:
    """The path of a partition, named by the values of all partition columns or by its path.

    Raises:
        InputError: some columns are missing, a value is of another type, or the table has no columns yet.
    """
    if not isinstance(named, Mapping):
        return named
    if not schema:
        raise InputError(f"{url} has no columns yet, and so no partition {brief(dict(named))}; write some rows first")
    values = named_values(named, config, schema)
    if missing := [field for field in config.partition_fields if field not in values]:
        raise InputError(
            f"partition={brief(dict(named))} lacks {', '.join(missing)} of {url}; put values of some partition columns into "
            "the condition",
            columns=missing,
        )
    return partition_path([values[field] for field in config.partition_fields], config)
