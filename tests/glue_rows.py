"""A table with a column of each type, as it is registered in catalogs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch

SCHEMA = pa.schema([
    ("id", pa.string()), ("flag", pa.bool_()), ("n", pa.int32()), ("big", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
    ("raw", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(12, 2)),
    ("tags", pa.list_(pa.string())), ("odds", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ("stop", pa.struct([("city", pa.string()), ("legs", pa.list_(pa.struct([("km", pa.float64())])))])), ("origin", pa.string()),
])  # fmt: skip


def table_in(folder: Path, **more: Any) -> lakelatch.Table:
    given = {"record_key": "id", "partition_by": ["origin", "day"], "schema": SCHEMA, "name": "Flights"} | more
    return lakelatch.create(folder, **given)


def row(n: int, origin: str | None = "JFK") -> dict[str, Any]:
    return {"id": f"k{n}", "day": dt.date(2026, 1, 1 + n), "origin": origin}
