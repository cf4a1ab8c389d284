"""Streams through Spark: what it writes and reads is what plain Python does, and what a model in memory says."""

from __future__ import annotations

import random
import threading
from collections import Counter
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakelatch.spark
from lakelatch.errors import InputError
from lakelatch.spark.versions import spark_schema
from lakelatch.streams import CLEARED, DELETED, UPSERT

from ..streams import test_cuts as stories
from ..streams.model import Model
from .driver import ROUTES

SCHEMA = pa.schema(
    [
        *[("id", pa.string()), ("city", pa.string())],
        *[("a", pa.int64()), ("a2", pa.string()), ("a_at", pa.int64())],
        *[("b", pa.float64()), ("b_at", pa.timestamp("us", "UTC"))],
        *[("c", pa.int64()), ("c2", pa.list_(pa.string())), ("c_at", pa.int64())],
    ]
)
MADE: dict[str, Any] = {"schema": SCHEMA, "type": "merge_on_read", "table_version": 9, "bucket_count": 2}
KINDS = {"a": DELETED, "b": CLEARED, "c": CLEARED}
MERGE = {"c": "sum", "c2": "collect_set(2)"}
FRAMES = {
    "a": "id string, city string, a_at long, a int, a2 string",
    "b": "id string, city string, b_at timestamp, b double",
    "c": "id string, city string, c_at long, c int, c2 array<string>",
}


@pytest.fixture
def table(make, request):
    made = make(sizes=ROUTES[request.param], **MADE)
    made.stream("a", columns=["a", "a2"], ordering="a_at", on_delete="row")
    made.stream("b", columns=["b"], ordering="b_at", default={"b": 0.5})
    made.stream("c", columns=["c", "c2"], ordering="c_at", default={"c": 5}, merge=MERGE, foreign_readers=False)
    return made


def events(rng: random.Random, name: str) -> list[dict[str, Any]]:
    def at() -> Any:
        n = rng.randint(0, 5)
        return n if name != "b" else pa.scalar(n * 10**9, pa.timestamp("us", "UTC")).as_py().replace(tzinfo=None)

    found: list[dict[str, Any]] = []
    for _ in range(6):
        city = rng.choice("xy")
        row = {"id": f"{city}{rng.randint(0, 4)}", "city": city, f"{name}_at": at()}
        values = {
            "a": {"a": rng.choice([None, 1, 2]), "a2": rng.choice([None, "", "𝄞"])},
            "b": {"b": rng.random()},
            "c": {"c": rng.choice([None, 1, 10]), "c2": rng.choice([None, [], ["", "𝄞"], ["a"]])},
        }[name]
        found.append(row | values)
    return found


def as_rows(read: list[Any]) -> dict[Any, Any]:
    found = {(row["city"], row["id"]): {n: row[n] for n in SCHEMA.names if n not in ("id", "city")} for row in read}
    assert len(found) == len(read), "a key twice"
    return found


def naive(rows: dict[Any, Any]) -> dict[Any, Any]:
    return {key: row | {"b_at": row["b_at"] and row["b_at"].replace(tzinfo=None)} for key, row in rows.items()}


@pytest.mark.parametrize("table", ["driver", "tasks"], indirect=True)
def test_what_spark_writes_and_reads_is_the_serial_merge_of_all_events(spark, table):
    rng, model = random.Random(7), Model(("city", "id"), list(table.table.streams))
    for step in range(10):
        name = rng.choice("abcc")
        delete, overwrites = step % 4 == 3, step % 4 == 2
        batch = events(rng, name)
        frame = spark.createDataFrame([tuple(row.values()) for row in batch], FRAMES[name])
        stream = table.stream(name)
        batch_of = {"batch": ("a query", step)} if name == "c" else {}
        write = stream.overwrite if overwrites else stream.delete if delete else stream.upsert
        assert write(frame, **batch_of).files > 0
        if overwrites:
            model.overwrite(name, {row["city"] for row in batch}, batch)
        else:
            model.apply(name, KINDS[name] if delete else UPSERT, batch)
        if step in (4, 7):
            table.table.compact()
        expected = naive(model.rows())
        assert naive(as_rows(table.table.read().to_pylist())) == expected
        assert as_rows([row.asDict() for row in table.read().collect()]) == expected
        if step % 3:
            continue
        assert as_rows([row.asDict() for row in table.read(filter="city = 'x'").collect()]) == {
            key: row for key, row in expected.items() if key[0] == "x"
        }


@pytest.mark.parametrize("table", ["driver", "tasks"], indirect=True)
def test_a_stream_is_overwritten_in_some_partitions_and_others_are_dropped(spark, table):
    def frame(*keys: str) -> Any:
        return spark.createDataFrame([(key, key[0], 1, 7, "") for key in keys], FRAMES["a"])

    def read() -> dict[str, Any]:
        return {row.id: row.a for row in table.read().collect()}

    stream = table.stream("a")
    stream.upsert([{"id": f"{c}{n}", "city": c, "a_at": 9, "a": n, "a2": ""} for c in "xyz" for n in range(4)])
    done = stream.overwrite(frame("x1", "x9"), partitions=[{"city": "x"}, {"city": "y"}])
    assert done.operation == "insert_overwrite"
    assert read() == {"x1": 7, "x9": 7} | {f"z{n}": n for n in range(4)}
    with pytest.raises(InputError, match="rows of partition 'city=z' are not among the partitions"):
        stream.overwrite(frame("x1", "z1"), partitions=[{"city": "x"}])

    def work(txn: Any) -> None:
        txn.stream("a").overwrite(frame("z1"))
        txn.stream("a").overwrite([{"id": "y1", "city": "y", "a_at": 9, "a": 1, "a2": ""}])

    table.run(work, operation="insert_overwrite")
    assert read() == {"x1": 7, "x9": 7, "y1": 1, "z1": 7}
    assert table.delete_all(partition={"city": "x"}).operation == "delete_partition"
    stream.upsert(frame("x2"))
    assert read() == {"x2": 7, "y1": 1, "z1": 7}


@pytest.mark.parametrize("table", ["driver", "tasks"], indirect=True)
def test_events_that_are_not_whole_are_refused_and_nothing_is_written(spark, table):
    def frame(schema: str, *values: Any) -> Any:
        return spark.createDataFrame([values], schema)

    for rows, words in (
        (frame("id string, city string, a_at long, a long", "x", "x", 1, 1), "lack a2 of stream 'a'"),
        (
            frame("id string, city string, a_at long, a long, a2 string, b double", "x", "x", 1, 1, "", 1.0),
            "have b, which stream",
        ),
        (frame("id string, city string, a_at long, a long, a2 string", "x", "x", None, 1, ""), "have no a_at"),
        (frame("id string, city string, a_at long, a double, a2 string", "x", "x", 1, 1.5, ""), "'a'"),
    ):
        with pytest.raises(InputError, match=words):
            table.stream("a").upsert(rows)
    with pytest.raises(InputError, match="give the write the number of its batch"):
        table.stream("c").upsert(
            frame("id string, city string, c_at long, c long, c2 array<string>", "x", "x", 1, 1, [])
        )
    assert table.read().count() == 0
    with pytest.raises(InputError, match="through them only"):
        table.upsert(frame("id string, city string, a_at long, a long, a2 string", "x", "x", 1, 1, ""))


@pytest.mark.parametrize("route", ["driver", "tasks"])
def test_events_are_taken_back(spark, make, route):
    fields = [("e_at", pa.int64()), ("e", pa.int64()), ("eid", pa.string())]
    schema = pa.schema([*SCHEMA, *fields, ("kept", pa.list_(pa.struct(fields)))])
    table = make(sizes=ROUTES[route], **{**MADE, "schema": schema})
    given = {"merge": {"e": "sum"}, "event_id": "eid", "events": "kept", "foreign_readers": False}
    stream = table.stream("e", columns="e", ordering="e_at", **given)
    frame = "id string, city string, e_at long, e long, eid string"
    back = spark.createDataFrame([("k", "x", 0, "b"), ("l", "x", 0, "𝄞")], "id string, city string, e int, eid string")
    assert stream.retract(back).files > 0
    rows = [(key, "x", n, 10**n, eid) for n, (key, eid) in enumerate(product("kl", "ab𝄞"))]
    stream.upsert(spark.createDataFrame(rows, frame))
    expected = {"k": 1 + 100, "l": 1000 + 10_000}
    assert {row.id: row.e for row in table.read().collect()} == expected
    table.compact()
    back = spark.createDataFrame([("k", "x", "a")], "id string, city string, eid string")
    table.run(lambda txn: txn.stream("e").retract(back), operation="upsert")
    assert {row.id: row.e for row in table.read().collect()} == expected | {"k": 100}
    with pytest.raises(InputError, match="have no eid"):
        stream.retract(spark.createDataFrame([("k", "x", None)], "id string, city string, eid string"))


@pytest.mark.parametrize("route", ["driver", "tasks"])
def test_a_total_that_others_could_not_read_is_refused_by_key(spark, make, route):
    table = make(sizes=ROUTES[route], **MADE)
    half = 2**62
    table.table.upsert(pa.Table.from_pylist([{"id": "x", "city": "x", "c": half - 7}], schema=SCHEMA))
    stream = table.stream("c", columns=["c"], ordering="c_at", merge={"c": "sum"}, foreign_readers=False)
    for number, (value, refused) in enumerate(
        [(3, ""), (5, f"key 'x' from {half - 4} to {half + 1}"), (half // 100, "thousandth")]
    ):
        rows = spark.sql(f"select id, 'x' as city, 1L as c_at, {value}L as c from values ('x'), ('y') as t(id)")
        if refused:
            with pytest.raises(InputError, match=refused):
                stream.upsert(rows, batch=("test", number))
        else:
            stream.upsert(rows, batch=("test", number))
        assert {row["id"]: row["c"] for row in table.read().collect()} == {"x": half - 4, "y": 3}


def test_one_call_makes_a_table_and_one_sink_fills_several_streams_each_batch_once(spark, tmp_path):
    at = pa.scalar(7, pa.timestamp("s")).as_py()
    rows = [("x", "order", 5, at, "/", 3), ("y", "click", 1, at, "/b", 4)]
    both = spark.createDataFrame(rows, "id string, kind string, amount long, paid_at timestamp, page string, seen long")
    streams = {
        "orders": {"columns": ["amount"], "ordering": "paid_at"},
        "clicks": {"columns": ["page"], "ordering": "seen"},
    }
    with lakelatch.spark.create(
        spark, str(tmp_path / "t"), record_key="id", schema=both.drop("kind").schema, streams=streams
    ).table as made:
        assert made.schema().field("paid_at").type == pa.timestamp("us", "UTC")
        table = lakelatch.spark.open(spark, made)
        parts = {
            "orders": lambda rows: rows.where("kind = 'order'").select("id", "amount", "paid_at"),
            "clicks": lambda rows: rows.select("id", "page", "seen"),
        }
        with pytest.raises(InputError, match="no stream 'more'"):
            table.sink(streams=parts | {"more": parts["orders"]})
        for wrong in ({"orders": "id"}, ["orders"]):
            with pytest.raises(InputError, match="give a function by the name of each stream"):
                table.sink(streams=wrong)
        sink, commits = table.sink(streams=parts, source="events"), len(made.commits())
        assert [sink(both, 1).repeated, sink(both, 1).repeated] == [False, True]
        assert len(made.commits()) == commits + 1, "both streams in one commit"
        assert {row.id: (row.amount, row.page) for row in table.read().collect()} == {"x": (5, "/"), "y": (None, "/b")}
        bad = {**parts, "clicks": lambda rows: rows.select("id", "page")}
        with pytest.raises(InputError, match="lack seen of stream 'clicks'"):
            table.sink(streams=bad, source="events")(both, 2)
        assert made.last_batch("events") == 1
        assert not both.is_cached


@pytest.mark.parametrize("table", ["tasks"], indirect=True)
def test_streams_of_one_session_at_once_and_a_compaction_beside_them(spark, table):
    failures: list[Any] = []

    def work(name: str) -> None:
        try:
            for n in range(3):
                values = {
                    "a": f"{n} as a, string(null) as a2, {n}L as a_at",
                    "b": f"{n}.0D as b, timestamp_seconds({n}) as b_at",
                }
                rows = spark.sql(f"select concat('x', id) as id, 'x' as city, {values[name]} from range(20)")
                if (done := table.stream(name).upsert(rows)).losses:
                    failures.append(done.losses)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    table.table.compact()
    for each in threads:
        each.join()
    assert not failures
    read = table.read().collect()
    assert len(read) == 20
    assert {(row.a, row.b) for row in read} == {(2, 2.0)}


@pytest.mark.parametrize("table", ["driver", "tasks"], indirect=True)
def test_events_of_two_streams_land_in_one_commit(spark, table):
    def job(txn: Any) -> None:
        txn.stream("a").upsert(spark.createDataFrame([("x1", "x", 1, 5, "s")], FRAMES["a"]))
        txn.stream("b").upsert(spark.sql("select 'x1' id, 'x' city, timestamp_seconds(1) b_at, 2.0D b"))
        assert table.read().count() == 0

    commits = len(table.table.commits())
    table.run(job)
    assert len(table.table.commits()) == commits + 1
    assert [(row.a, row.b) for row in table.read().collect()] == [(5, 2.0)]


@pytest.mark.parametrize("route", ["driver", "tasks"])
@pytest.mark.parametrize("cuts", [[], [2]])
def test_events_of_a_frame_count_in_its_order_wherever_it_is_cut(spark, make, route, cuts):
    stream, merge = stories.STREAMS["keep, mergers"], {name: spec for name, (spec, _) in stories.MERGERS.items()}
    names = (*stream.columns, *merge)
    given = {**MADE, "schema": stories.SCHEMA, "partition_by": ()}
    made = make(sizes=ROUTES[route], **given)
    opened = made.stream("s", columns=names, ordering="at", merge=merge, foreign_readers=False)
    told = [
        stories.story(f"k{n}", each, names) for n, each in enumerate(product(stories.EVENTS, repeat=stories.LENGTH))
    ]
    model = Model(("id",), list(made.table.streams))
    for number, batch in enumerate(stories.in_cuts(told, cuts)):
        seen = Counter[str]()
        rows = sorted(
            batch, key=lambda row: seen.update([row["id"]]) or seen[row["id"]]
        )  # a key's are in many partitions
        # Spark has maps as dictionaries, Arrow as pairs.
        maps = [row | {"n_map": None if row["n_map"] is None else dict(row["n_map"])} for row in rows]
        values = [tuple(row[name] for name in stories.SCHEMA.names) for row in maps]
        opened.upsert(spark.createDataFrame(values, spark_schema(stories.SCHEMA)), batch=("test", number))
        model.apply("s", UPSERT, batch)
    expected = {key: row | {"n_map": dict(row["n_map"] or ()) or None} for (key,), row in model.rows().items()}
    for _ in range(2):
        assert {row.id: row.asDict(recursive=True) for row in made.read().collect()} == {
            k: row | {"id": k} for k, row in expected.items()
        }
        made.table.compact()
