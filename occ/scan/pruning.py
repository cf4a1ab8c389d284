"""Which partitions can hold a row that meets a condition, by the values in their paths."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ...conditions import Condition
from ...errors import InputError
from ...hudi.table import TableConfig, possible_values


def partitions_that_may_match(
    paths: Iterable[str], config: TableConfig, schema: pa.Schema, condition: Condition
) -> set[str]:
    """Those that a row which meets the condition can lie in; in doubt they are among them."""
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
    except InputError:  # it has no result for a value, which may be in no row that is asked
        return set(paths)
    return unknown | {path for path, met in zip(places, mask, strict=True) if met}
