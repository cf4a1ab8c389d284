"""Partitions as callers name them: a path that cannot be one, or is none, is refused with those that there are.

Otherwise ``x`` for ``p=x`` would read as a partition without rows, and whoever claims it would be protected from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...hudi.files import PARTITION_METADATA, join
from ...hudi.table import TableConfig, parse_partition_path

if TYPE_CHECKING:
    from ...hudi.timeline import Snapshot
    from ...storage import Store

_SHOWN = 5


def some(names: Sequence[str]) -> str:
    """A few of many names, for a message."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "") or "none"


def known_partition(store: Store, config: TableConfig, snapshot: Snapshot, partition: str) -> str:
    """The path of a partition that has rows, or has had some; `InputError` for another."""
    wanted = partition.strip("/") if isinstance(partition, str) else partition
    known = snapshot.partitions()
    if wanted in known:
        return wanted
    refuse_misspelled(store.url, config, wanted, known)
    # No rows are left in it, or none were there at that moment: that is an answer, and no mistake.
    if known and store.head(join(wanted, PARTITION_METADATA)) is None:
        raise InputError(f"{store.url} has no partition {wanted!r}; it has {some(known)}", partition=wanted)
    return wanted


def refuse_misspelled(url: str, config: TableConfig, partition: str, known: Sequence[str] = ()) -> None:
    """Raise `InputError` for a path that no row of the table can belong to."""
    fields = config.partition_fields
    try:
        fits = isinstance(partition, str) and bool(parse_partition_path(partition, config)) == bool(fields)
    except InputError:
        fits = False
    if fits and fields and config.hive_style:
        elements = partition.split("/") if len(fields) > 1 else [partition]
        fits = all(each.startswith(f"{name}=") for name, each in zip(fields, elements, strict=True))
    if not fits:
        form = "/".join(f"{name}=VALUE" if config.hive_style else name.upper() for name in fields)
        there = f"; it has {some(known)}" if known else ""
        raise InputError(
            f"{partition!r} cannot be a partition of {url}, which is "
            + (f"partitioned as {form}" if fields else "not partitioned (its one partition is '')")
            + f"{there}. Nothing was written; name it as `lakelatch files` prints it",
            partition=partition,
        )


def several(partitions: Iterable[str] | None, what: str = "partitions") -> list[str] | None:
    """The paths, None for None; `InputError` for one text, which would be taken letter by letter."""
    if isinstance(partitions, str):
        raise InputError(f"{what}={partitions!r}: give a list, {what}=[{partitions!r}]")
    return None if partitions is None else list(partitions)
