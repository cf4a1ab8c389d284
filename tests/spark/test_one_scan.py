"""Whatever way Spark reads a table, it finds the rows that plain Python finds: of every partition, type and condition."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.conditions import Condition, condition_on, text
from lakelatch.conditions.tree import joined
from lakelatch.errors import InputError
from lakelatch.hudi.table import partition_paths
from lakelatch.spark import JobSizes

from ..conditions import random_conditions as made
from .frames import keys_of, planned

ROWS, CONDITIONS = 24, 8
# The columns that tables are partitioned by, of all types that can be.
LAYOUTS = [("s",), ("d",), ("p",), ("i", "s"), ("ok", "r"), ("b",), (), ("w", "d")]
JOINED = JobSizes(small_rows=0, lookup_bytes=0, tasks_per_core=1)
SCHEMA = pa.schema([pa.field("id", pa.string()), *made.SCHEMA])


Rows = dict[str, dict[str, Any]]


@dataclass
class Drawn:
    """A table, which rows it had after each commit, and conditions that have a result for all of them."""

    table: lakelatch.Table
    moments: list[tuple[str, Rows]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def met(self, condition: Condition, rows: Rows) -> list[str]:
        """The keys of the rows for which the condition is true, by the rows alone."""
        kept = list(rows.values())
        mask = condition.mask(pa.Table.from_pylist(kept, SCHEMA)).to_pylist() if kept else []
        return sorted(row["id"] for row, true in zip(kept, mask, strict=True) if true)


def rows_of(rng: random.Random, number: int, fields: tuple[str, ...], taken: Callable[[pa.Table], bool]) -> pa.Table:
    """Rows of few partitions each, so that a partition has several rows, all of which the table takes."""
    drawn = made.rows(rng, number)
    kept = [n for n in range(number) if not fields or taken(drawn.slice(n, 1))]
    places = [rng.choice(kept) for _ in range(number)]
    for name in fields:
        column = drawn.column(name).take(places)
        drawn = drawn.set_column(drawn.schema.get_field_index(name), drawn.schema.field(name), column)
    return drawn


def draw(folder: Path, seed: int) -> Drawn:
    """A table in some layout, written by three inserts, an upsert and a delete; where it is merge-on-read, it has log files."""
    rng = random.Random(seed)
    fields = LAYOUTS[seed % len(LAYOUTS)]
    kind = "merge_on_read" if rng.random() < 0.5 else "copy_on_write"
    options = {"statistics": "all"} if rng.random() < 0.3 else {}
    table = lakelatch.create(
        str(folder), record_key="id", partition_by=fields, type=kind, hive_style=rng.random() < 0.5, **options
    )
    if rng.random() < 0.3:  # as an engine has made it: we always encode
        table.close()
        file = folder / ".hoodie" / "hoodie.properties"
        file.write_bytes(file.read_bytes().replace(b"urlencode=true", b"urlencode=false"))
        table = lakelatch.open(str(folder))

    def taken(one: pa.Table) -> bool:
        try:
            return bool(partition_paths(one, table.config))
        except InputError:
            return False

    drawn, state = Drawn(table), Rows()

    def told(done: Any, new: Rows, gone: Sequence[str] = ()) -> None:
        nonlocal state
        state = {key: row for key, row in state.items() if key not in gone} | new
        drawn.moments.append((done.completion, state))

    rows = rows_of(rng, ROWS, fields, taken)
    rows = rows.add_column(0, SCHEMA.field("id"), pa.array([f"k{n}" for n in range(ROWS)]))
    for start in range(0, ROWS, ROWS // 3):
        part = rows.slice(start, ROWS // 3)
        told(table.insert(part), by_key(part))
    again = changed(rng, rows.take(rng.sample(range(ROWS), ROWS // 4)), fields)
    told(table.upsert(again), by_key(again))
    gone = rows.take(rng.sample(range(ROWS), 4)).select(["id", *fields])
    told(table.delete(gone), {}, gone.column("id").to_pylist())
    drawn.conditions = conditions(rng, drawn, fields)
    return drawn


def changed(rng: random.Random, rows: pa.Table, fields: Sequence[str]) -> pa.Table:
    """The same keys in the same partitions, with other values."""
    other = made.rows(rng, rows.num_rows)
    columns = {name: (rows if name in ("id", *fields) else other).column(name) for name in rows.column_names}
    return pa.table(columns, schema=rows.schema)


def by_key(rows: pa.Table) -> Rows:
    return {row["id"]: row for row in rows.to_pylist()}


def conditions(rng: random.Random, drawn: Drawn, fields: Sequence[str]) -> list[Condition]:
    """Of comparisons alone, by which files are left out, and of everything else; half of them tell of partitions."""
    ever = pa.Table.from_pylist([row for _, rows in drawn.moments for row in rows.values()], SCHEMA)
    found: list[Condition] = []
    while len(found) < CONDITIONS:
        parts = [made.condition(rng, 0) for _ in range(rng.randint(1, 3))]
        tree = joined("and", parts) if len(found) % 4 < 2 else made.condition(rng, 3)
        try:
            condition = condition_on(SCHEMA, text(tree))
            condition.mask(ever)  # without a result for a row Spark's query would end
        except InputError:
            continue
        if len(found) % 2 and fields and condition.about(fields) is None:
            continue
        found.append(condition)
    return found


def keys(scan: Any) -> list[str]:
    return sorted(scan.to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("seed", [0])
def test_every_way_of_reading_finds_the_same_rows(spark: Any, tmp_path: Path, seed: int) -> None:
    """Of the newest state, in a transaction, of a past state, by changes, by the format; then writes find them, too."""
    lakelatch.spark.register(spark)
    drawn = draw(tmp_path / "t", seed)
    with drawn.table:
        compare(spark, drawn, seed)


def compare(spark: Any, drawn: Drawn, seed: int) -> None:
    table, (then, rows_then), (after, _), (_, rows_now) = drawn.table, *(drawn.moments[n] for n in (2, 1, -1))
    ours = lakelatch.spark.open(spark, table, sizes=JOINED)
    assert in_text(ours.read().toArrow()) == in_text(table.read().to_arrow()) == in_text(rows_now)

    ways: list[tuple[str, Any, list[str]]] = []
    with table.transaction(isolation="serializable") as txn:
        inside, staged = lakelatch.spark.SparkTransaction(spark, table, txn), drawn.moments[0][1]
        txn.upsert(pa.Table.from_pylist(list(staged.values()), SCHEMA))
        for number, condition in enumerate(drawn.conditions):
            sql, now = condition.sql, drawn.met(condition, rows_now)
            assert keys(table.read(where=sql)) == now, sql
            ways.append((f"where {sql}", ours.read(filter=sql), now))
            with_ours = drawn.met(condition, rows_now | staged)
            ways.append((f"in a transaction where {sql}", inside.read(filter=sql), with_ours))
            if number in (1, 2):
                place = {name: row[name] for row in rows_now.values() for name in table.config.partition_fields}
                for what in (
                    {"as_of_completion": then},
                    {"read_optimized": True},
                    {"partitions": [place] if place else []},
                ):
                    plain = keys(table.read(where=sql, **what))
                    ways.append((f"{what} where {sql}", ours.read(filter=sql, **what), plain))
                assert keys(table.read(where=sql, as_of_completion=then)) == drawn.met(condition, rows_then)
                by_format = planned(lambda sql=sql: spark.read.format("lakelatch").option("where", sql).load(table.url))
                ways.append((f"by the format where {sql}", by_format, now))
        ways.append(("changes", ours.read_incremental(after), keys(table.changes(after=after))))
        found = planned(lambda: keys_of([frame for _, frame, _ in ways]))
        wrong = [(what, keys, told) for (what, _, keys), told in zip(ways, found, strict=True) if keys != told]
        assert not wrong, (table.config.partition_fields, wrong)

    kept = pa.Table.from_pylist(list((rows_now | staged).values()), SCHEMA)
    again = changed(random.Random(seed), kept, table.config.partition_fields)
    ours.upsert(spark.createDataFrame(again))  # by a join, where it can be one
    assert in_text(table.read().to_arrow()) == in_text(again)
    condition = drawn.conditions[0]
    try:
        gone = drawn.met(condition, by_key(again))
    except InputError:  # no result for the new rows
        return
    assert ours.delete_where(condition.sql).deleted == len(gone)
    assert keys(table.read()) == sorted(by_key(again).keys() - gone)


def in_text(rows: pa.Table | Rows) -> list[str]:
    """Rows as texts, in which NaN is equal to itself, and -0.0 not to 0.0."""
    plain = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows.values())
    return sorted(repr(sorted(row.items())) for row in plain)


def test_files_are_read_by_spark_in_one_place() -> None:
    """Only the room for reading asks Spark for rows of files, as `spark.read.x`; its own modules `tests/test_rooms.py` guards."""
    for path in (Path(__file__).parents[2] / "spark").rglob("*.py"):
        if path.parent.name != "reading" and path.name != "versions.py":
            names = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
            asked = [each for each in names if getattr(each.value, "attr", "") == "read" or each.attr == "_jvm"]
            assert not asked, path
