"""Partition pruning: choose the partitions that may hold matching rows, by the values in their paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import InputError
from ...hudi.table import TableConfig, named_values, partition_path, possible_values

if TYPE_CHECKING:
    from ...conditions import Condition, Terms


def partitions_that_may_match(
    paths: Iterable[str], config: TableConfig, schema: pa.Schema, condition: Condition
) -> set[str]:
    """Return the partitions that may hold a matching row; in doubt a partition is included."""
    paths, fields = list(paths), config.partition_fields
    part = condition.about(fields) if fields else None
    if part is None:
        return set(paths)
    places, values, unknown = [], [], set()
    for path in paths:
        rows = possible_values(path, config, schema)
        if rows is None:
            unknown.add(path)
        else:
            places += [path] * len(rows)
            values += rows
    columns = list(zip(*values, strict=True)) or [()] * len(fields)
    told = pa.table({f: pa.array(c, schema.field(f).type) for f, c in zip(fields, columns, strict=True)})
    try:
        mask = part.mask(told).to_pylist()
    except InputError:
        # The condition fails on a value in a path, which perhaps no row has: prune nothing.
        return set(paths)
    return unknown | {path for path, met in zip(places, mask, strict=True) if met}


def only_partitions(config: TableConfig, schema: pa.Schema, terms: Terms) -> list[str] | None:
    """Return the only partitions, existing or not, that can hold rows matching the terms; None if the terms leave it open.

    They must fix the values (``=`` or ``in``) of all partition columns.
    """
    fields = config.partition_fields
    told: dict[str, tuple[Any, ...]] = {}
    for name, op, *value in terms:
        if op in ("=", "in"):
            told.setdefault(name, value[0] if op == "in" else (value[0],))
    if not fields or not all(field in told for field in fields):
        return None
    try:
        paths = {
            partition_path(list(named_values(dict(zip(fields, values, strict=True)), config, schema).values()), config)
            for values in itertools.product(*(told[field] for field in fields))
        }
    except InputError:
        # A value that no partition of ours can have, or a key generator that formats values.
        return None
    return sorted(paths)
