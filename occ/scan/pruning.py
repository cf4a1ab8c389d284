"""Partition pruning: choose the partitions that may hold matching rows, by the values in their paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conflict import ColumnStatistics, FileStatistics, may_match, where_of
from ...errors import InputError
from ...hudi.table import TableConfig, named_values, partition_path, possible_values, time_span

if TYPE_CHECKING:
    from ...conditions import Condition, Terms


def partitions_that_may_match(
    paths: Iterable[str], config: TableConfig, schema: pa.Schema, condition: Condition
) -> set[str]:
    """Return the partitions that may hold a matching row; in doubt a partition is included."""
    fields = config.partition_fields
    paths = times_that_may_match(paths, config, schema, condition.terms)
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


def times_that_may_match(paths: Iterable[str], config: TableConfig, schema: pa.Schema, terms: Terms) -> list[str]:
    """Return the partitions that may hold a row for which these comparisons of the time that partitions the table are true."""
    source, unit = config.time_source, config.time_unit
    where = where_of([term for term in terms if term[0] == source])
    if not where:
        return list(paths)
    kind, place = schema.field(source).type, config.partition_fields.index(config.time_column)

    def may(path: str) -> bool:
        known = possible_values(path, config, schema)
        if known is None or (span := time_span(known[0][place], unit, kind)) is None:
            return True
        rows = None if span[0] else 1  # of the partition of nulls each row has one
        return may_match(where, FileStatistics(rows, {source: ColumnStatistics(*span, nulls=rows or 0)}))

    return [path for path in paths if may(path)]


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
