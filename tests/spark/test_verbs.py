"""`update_where`, `merge` and the other verbs through Spark do what those of plain Python do to the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

import lakelatch
from lakelatch.errors import InputError
from lakelatch.occ.check.check import check
from lakelatch.spark import JobSizes

from ..thorough import crossed
from .driver import ROUTES, meanwhile

SCHEMA = "id string, city string, seen long, x double, note string"
ARROW = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("seen", pa.int64()), ("x", pa.float64()), ("note", pa.string())]
)
CITIES = ("Oslo", "50% {off} \U0001f600", None)
IDS = ("a", "b", "c", "{x}%s", "\U0001f600")
Row = dict[str, Any]


def batch(rng: random.Random, least: int = 1) -> list[Row]:
    places = rng.sample([(city, each) for city in CITIES for each in IDS], rng.randrange(least, 8))
    return [
        {
            "id": each,
            "city": city,
            "seen": rng.randrange(6),
            "x": rng.choice([None, float("nan"), -0.0, 1.5]),
            "note": rng.choice([None, "", "delay + 1", "ü{}%"]),
        }
        for city, each in places
    ]


def shown(rows: list[Row]) -> list[str]:
    return sorted(repr([(name, row[name]) for name in ARROW.names]) for row in rows)


Verb = tuple[
    str, str, Callable[[Any, Any, Any], Any]
]  # name, operation, what is done with a table, its rows, F or None


def verbs(rng: random.Random) -> Iterator[tuple[list[Row], Verb]]:
    """Each with rows of its own; ``f`` is `pyspark.sql.functions` for Spark, which may say it otherwise."""
    n = rng.randrange(1, 5)
    city = rng.choice(CITIES)
    yield batch(rng), ("upsert", "upsert", lambda t, rows, f: t.upsert(rows))
    yield (
        [],
        (
            "update_where of a city",
            "upsert",
            lambda t, rows, f: t.update_where(
                "x is null or isnan(x)", {"x": n + 0.25, "note": "delay + 1"}, partition={"city": city}
            ),
        ),
    )
    yield (
        [],
        (
            "update_where by expressions",
            "upsert",
            lambda t, rows, f: t.update_where(
                f.col("seen") >= n if f else [("seen", ">=", n)],
                {
                    "seen": f.col("seen") * 3 + n if f else lakelatch.sql(f"seen * 3 + {n}"),
                    "note": lakelatch.sql("upper(coalesce(note, id))"),
                    "x": pc.add(pc.field("seen"), pc.scalar(1)),
                },
            ),
        ),
    )
    yield (
        batch(rng),
        (
            "merge",
            "upsert",
            lambda t, rows, f: (
                t.merge(rows)
                .when_matched(
                    (f.col("t.seen") > n) & f.col("s.note").isNull() if f else "t.seen > " + str(n) + " and s.note is null",
                    delete=True,
                )
                .when_matched("s.seen >= t.seen", update={"x": lakelatch.sql("s.x"), "seen": f.col("s.seen") + f.lit(10)} if f
                              else {"x": lakelatch.sql("s.x"), "seen": lakelatch.sql("s.seen + 10")})
                .when_not_matched(f.col("s.note") == f.lit("ü{}%") if f else pc.equal(pc.field("s", "note"), "ü{}%"),
                                  insert={"seen": lakelatch.sql("s.seen"), "note": "new"})
                .when_not_matched("s.more = 1" if f else None, insert="all")
                .run()
            ),
        ),
    )  # fmt: skip
    yield [], ("delete_where", "delete", lambda t, rows, f: t.delete_where(f"seen < {n}", partition={"city": city}))
    yield batch(rng)[:2], ("delete", "delete", lambda t, rows, f: t.delete(rows))
    here = [row | {"city": city} for row in batch(rng)]
    here = list({row["id"]: row for row in here}.values())
    yield here, ("overwrite", "insert_overwrite", lambda t, rows, f: t.overwrite(rows, partitions=[{"city": city}]))


WAYS_OF = ROUTES | {"join": JobSizes(small_rows=0, lookup_bytes=0, tasks_per_core=1)}  # as if the table were large
TABLES = [
    ("driver", {}),
    ("join", {}),
    ("tasks", {}),
    ("tasks", {"type": "merge_on_read", "ordering_field": "seen"}),
    ("tasks", {"bucket_count": 2, "type": "merge_on_read"}),
    ("driver", {"type": "merge_on_read"}),
    ("rows that are no DataFrame", {}),
]


@pytest.mark.parametrize(("route", "settings"), TABLES, ids=str)
def test_the_verbs_do_what_those_of_plain_python_do(
    spark: Any, make: Callable[..., Any], tmp_path: Path, route: str, settings: dict[str, Any]
) -> None:
    rng = random.Random(f"{route} {settings}")
    ours = make(sizes=WAYS_OF.get(route, JobSizes()), **settings)
    options = {"record_key": "id", "partition_by": "city", "schema": ARROW} | settings
    with lakelatch.create(str(tmp_path / "plain"), **options) as plain:
        first = batch(rng, 7)
        ours.insert(spark.createDataFrame([tuple(row.values()) for row in first], SCHEMA))
        plain.insert(pa.Table.from_pylist(first, ARROW))
        for rows, (name, operation, do) in verbs(rng):
            frame = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
            table = pa.Table.from_pylist(rows, ARROW)
            if name.startswith("merge"):  # other columns than those of the table, and in another order
                frame = frame.withColumn("more", F.lit(1)).select("more", "seen", "id", "city", "x", "note")
            inside = rng.random() < 0.5 and "bucket_count" not in settings and operation == "upsert"
            given = (frame, F) if route in WAYS_OF else (table.to_pylist() or table, None)
            got = (
                ours.run(lambda txn, do=do, given=given: do(txn, *given), operation=operation).value
                if inside
                else do(ours, *given)
            )
            wanted = do(plain, table, None)
            read = [row.asDict() for row in ours.read().collect()]
            assert shown(read) == shown(plain.read().to_pylist()), name
            assert shown(read) == shown(ours.table.read().to_pylist()), name
            counts = [(each.inserted, each.updated, each.deleted) for each in (got, wanted)]
            assert counts[0] == counts[1], name
    assert not [each for each in check(ours.table.store).findings if each.severity != "note"]


def test_expressions_as_text_and_unknown_columns_are_refused_as_in_plain_python(
    spark: Any, make: Callable[..., Any]
) -> None:
    for name, route in ROUTES.items():
        table = make(f"words {name}", sizes=route)
        table.insert(frame(spark, {"a": 1}))
        for given in ("s.note", "upper(t.note)"):
            with pytest.raises(InputError, match=r"reads as an expression.*lakelatch\.sql"):
                table.merge(frame(spark, {"a": 2})).when_matched(update={"note": given}).run()
        with pytest.raises(InputError, match="reads as an expression"):
            table.update_where("true", {"note": "upper(note)"})
        with pytest.raises(InputError, match=r"cannot hold the text 'seen \+ 1'.*lakelatch\.sql"):
            table.update_where("true", {"seen": "seen + 1"})
        wide = frame(spark, {"a": 2}).withColumn("nota", F.lit("x"))
        for write in ("upsert", "insert", "bulk_insert", "overwrite", "overwrite_table"):
            with pytest.raises(InputError, match=r"no column 'nota' .'nota': did you mean 'note'"):
                getattr(table, write)(wide)
        with pytest.raises(InputError, match="no column 'nota'"):
            table.merge(wide).when_matched(update="all").run()
        table.merge(wide, new_columns="add").when_matched(update="all").run()
        assert [(row.seen, row.nota) for row in table.read().collect()] == [(2, "x")]


def test_a_merge_by_tasks_begins_an_empty_table(spark: Any, make: Callable[..., Any]) -> None:
    for name, partition_by in (("one", ()), ("many", "city")):
        table = make(name, sizes=ROUTES["tasks"], partition_by=partition_by)
        for seen, inserted in ((1, 2), (2, 0)):
            rows = frame(spark, {"a": seen, "b": seen})
            done = table.merge(rows).when_matched(update="all").when_not_matched(insert="all").run()
            assert (done.inserted, done.updated) == (inserted, 2 - inserted)
            assert values(table) == {"a": seen, "b": seen}


def values(table: Any) -> dict[str, int]:
    rows = table.read().collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.seen for row in rows}


def frame(spark: Any, seen: dict[str, int]) -> Any:
    return spark.createDataFrame([(key, "x", value, None, None) for key, value in seen.items()], SCHEMA)


WAYS = [
    ("driver", "copy_on_write"),
    ("driver", "merge_on_read"),
    ("tasks", "merge_on_read"),
    ("tasks", "copy_on_write"),
]


@pytest.mark.parametrize(("how", "verb"), crossed(WAYS, ["merge", "update_where"]))  # each pair of two of the three
def test_two_at_once_lose_no_update(spark: Any, make: Callable[..., Any], how: tuple[str, str], verb: str) -> None:
    route, kind = how
    table = make(sizes=ROUTES[route], type=kind)
    other = lakelatch.spark.open(spark, table.table.url)
    table.insert(frame(spark, {"a": 1, "b": 1}))

    def add(to: Any, number: int) -> Any:
        if verb == "update_where":
            return to.update_where("true", {"seen": F.col("seen") * 10 + number})
        merge = to.merge(frame(spark, {"a": number, f"new{number}": number, "new": number}))
        return (
            merge.when_matched(update={"seen": lakelatch.sql("t.seen * 10 + s.seen")})
            .when_not_matched(insert="all")
            .run()
        )

    meanwhile(table, lambda: add(other, 2))
    done = add(table, 3)
    assert done.attempts <= 2
    wanted = {"a": 123, "b": 1, "new2": 2, "new3": 3, "new": 23}
    assert values(table) == (wanted if verb == "merge" else {"a": 123, "b": 123})
    other.table.close()


def test_a_condition_meets_rows_that_arrive_meanwhile_and_a_users_function(
    spark: Any, make: Callable[..., Any]
) -> None:
    from pyspark.sql.types import LongType

    table = make(sizes=ROUTES["tasks"])
    other = lakelatch.spark.open(spark, table.table.url)
    table.insert(frame(spark, {"a": 1, "b": 2}))
    meanwhile(table, lambda: other.upsert(frame(spark, {"a": 2, "c": 4})))
    twice = F.udf(lambda value: value * 2, LongType())
    done = table.update_where(F.col("seen") % 2 == 0, {"seen": twice("seen")})
    assert done.attempts == 1
    assert values(table) == {"a": 4, "b": 4, "c": 8}
    other.table.close()


def test_several_updates_of_one_transaction_are_run_again_as_one(spark: Any, make: Callable[..., Any]) -> None:
    table = make(sizes=ROUTES["tasks"])
    other = lakelatch.spark.open(spark, table.table.url)
    table.insert(frame(spark, {"a": 1, "b": 2}))
    first = [True]

    def job(txn: Any) -> None:
        txn.update_where("true", {"seen": lakelatch.sql("seen + 1")})
        txn.update_where("seen > 2", {"seen": lakelatch.sql("seen * 10")})
        if first.pop() if first else False:
            other.upsert(frame(spark, {"a": 5}))

    assert table.run(job).attempts == 2
    assert values(table) == {"a": 60, "b": 30}
    other.table.close()


BAD = {
    "no condition": (lambda t, f: t.update_where("", {"seen": 1}), "no condition says which rows"),
    "an unknown column": (lambda t, f: t.update_where("true", {"nope": 1}), "has no column 'nope'"),
    "the key": (lambda t, f: t.update_where("true", {"id": F.lit("x")}), "it stays what it is"),
    "a value that does not fit": (lambda t, f: t.update_where("true", {"seen": F.lit(1.5)}), "seen"),
    "no values": (lambda t, f: t.update_where("true", {}), "does not say what"),
    "a merge without clause": (lambda t, f: t.merge(f).run(), "has no clause"),
    "a function of the user in a clause": (
        lambda t, f: t.merge(f).when_matched(F.udf(lambda v: True, "boolean")("s.seen"), delete=True).run(),
        "<lambda>",
    ),
    "an unknown column in a clause": (
        lambda t, f: t.merge(f).when_matched(F.col("u.seen") > 1, delete=True).run(),
        "says nothing of s, t",
    ),
    "rows without the key": (lambda t, f: t.merge(f.drop("id")).when_not_matched(insert="all").run(), "lack id"),
    "a partition that there is not": (
        lambda t, f: t.update_where("true", {"seen": 1}, partition="nope"),
        "cannot be a partition",
    ),
    "partitions that are no list": (lambda t, f: t.overwrite(f, partitions={"city": "x"}), "give a list"),
}


def test_what_cannot_be_is_refused_and_nothing_is_written(spark: Any, make: Callable[..., Any]) -> None:
    table = make(sizes=ROUTES["tasks"])
    table.insert(frame(spark, {"a": 1}))
    before = len(table.table.timeline().commits)
    rows = frame(spark, {"a": 2})
    for name, (call, said) in BAD.items():
        with pytest.raises(InputError, match=said):
            call(table, rows)
        assert len(table.table.timeline().commits) == before, name
    assert values(table) == {"a": 1}


def test_rows_of_any_kind_are_written_without_a_job(spark: Any, make: Callable[..., Any]) -> None:
    table, started = make(), []
    rows = [{"id": "a", "city": "x", "seen": 1, "x": 0.5, "note": "n"}]
    forms = (
        rows,
        pa.Table.from_pylist(rows, ARROW),
        pa.Table.from_pylist(rows, ARROW).to_reader(),
        pd.DataFrame(rows),
        pl.DataFrame(rows),
    )
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("no jobs", "")
    for form in forms:
        done = table.upsert(form)
        assert done.inserted + done.updated == 1
        table.delete([{"id": "b", "city": "x"}])
        started += tracker.getJobIdsForGroup("no jobs")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert not started
    assert values(table) == {"a": 1}
    with pytest.raises(InputError, match=r"zone=.UTC.*Nothing was written"):
        table.upsert(frame(spark, {"a": 9}), zone="UTC")
    with pytest.raises(InputError, match="Spark sorts a DataFrame only"):
        table.bulk_insert(rows, sort="global")
    with pytest.raises(InputError, match="part of a transaction; give it to `run`"):
        table.run(lambda txn: txn.upsert(rows, attempts=3))


def test_a_transaction_takes_rows_of_both_kinds(spark: Any, make: Callable[..., Any]) -> None:
    table = make()
    table.insert(frame(spark, {"a": 1, "b": 1}))

    def job(txn: Any) -> int:
        assert repr(txn.upsert(frame(spark, {"a": 2, "c": 2}))).startswith("<upsert, not committed yet: 1 inserted, 1 ")
        row = {"id": "b", "city": "x", "seen": 3, "x": 0.5, "note": None}
        assert txn.upsert([row]).updated == 2, "of the file, since the transaction began"
        txn.delete([{"id": "c", "city": "x"}])
        return txn.read().count()

    def beside(txn: Any) -> int:
        left = job(txn)
        if not met:
            met.append(table.upsert([{"id": "a", "city": "x", "seen": 7, "x": 0.5, "note": None}]))
        return left

    met: list[Any] = []
    done = table.run(beside)
    assert (done.value, done.attempts) == (2, 2), "writes of two kinds are run again"
    assert values(table) == {"a": 2, "b": 3}


def test_the_arguments_are_those_of_plain_python(spark: Any, make: Callable[..., Any]) -> None:
    table = make(sizes=ROUTES["tasks"])
    table.insert(frame(spark, {"a": 1, "b": 2}))
    table.insert(frame(spark, {"a": 5}).withColumn("city", F.lit("y")))
    here = table.read(where="seen > 1", partitions=[{"city": "x"}]).collect()
    assert [(row.id, row.seen) for row in here] == [("b", 2)]
    inside = table.run(
        lambda txn: txn.read(where="seen > 1", partitions=["city=y"]).collect(), isolation="serializable"
    )
    assert [(row.id, row.seen) for row in inside.value] == [("a", 5)]
    with pytest.raises(InputError, match="two names of one condition"):
        table.read(filter="true", where="true")
    few = frame(spark, {"b": 7}).drop("x", "note")
    with pytest.raises(InputError, match="lack"):
        table.upsert(few)
    with pytest.raises(InputError, match="neither"):
        table.upsert(few, missing="nothing")
    assert table.upsert(few, missing="null", attempts=1).updated == 1
    with pytest.raises(InputError, match="there is no argument 'tries'"):
        table.upsert(few, tries=3)
    with pytest.raises(InputError, match="part of a transaction; give it to `run`"):
        table.run(lambda txn: txn.delete_all(attempts=3))
    assert table.delete_all(partition={"city": "x"}, timeout_s=60).deleted == 2
    assert values(table) == {"a": 5}


def test_a_spark_table_has_the_verbs_of_a_plain_one() -> None:
    import inspect

    names = (
        "insert",
        "upsert",
        "delete",
        "delete_where",
        "delete_all",
        "update_where",
        "merge",
        "overwrite",
        "overwrite_table",
    )
    for name in names:
        plain, ours = (
            inspect.signature(getattr(kind, name)).parameters for kind in (lakelatch.Table, lakelatch.spark.SparkTable)
        )
        assert list(ours) == list(plain), name
