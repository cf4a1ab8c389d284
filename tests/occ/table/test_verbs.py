"""The verbs of a table in plain Python, one line each: what they do to its rows, and what they tell of it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, InputError, UnsupportedTableError

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("origin", pa.string()),
        ("delay", pa.int32()),
        ("late", pa.bool_()),
        ("note", pa.string()),
        ("updated", pa.int64()),
    ]
)
ODD = "50% {off} ü \U0001f600"


def flight(id_: str, origin: str | None = "JFK", delay: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"id": id_, "origin": origin, "delay": delay, "late": None, "note": None, "updated": 1} | more


@pytest.fixture(params=[None, 2], ids=["simple", "buckets"])
def table(tmp_path: Any, request: pytest.FixtureRequest) -> Any:
    more = {} if request.param is None else {"bucket_count": request.param}
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", partition_by="origin", ordering_field="updated", schema=SCHEMA, **more
    ) as made:
        made.upsert([flight("a"), flight("b", delay=20), flight("c", ODD, 5), flight("d", None, None)])
        yield made


def rows(table: Any) -> dict[str, dict[str, Any]]:
    listed = table.read().to_pylist()
    found = {row["id"]: row for row in listed}
    assert len(found) == len(listed)
    return found


def delays(table: Any) -> dict[str, Any]:
    return {key: row["delay"] for key, row in sorted(rows(table).items())}


def test_a_write_tells_what_it_did(table: Any) -> None:
    done = table.upsert([flight("a", delay=1), flight("new", delay=2)])
    assert (done.inserted, done.updated, done.deleted, done.attempts, done.wasted_s) == (1, 1, 0, 1, 0.0)
    assert done.files == len(done.stats) >= 1
    assert done.bytes == sum(each.file_size for each in done.stats) > 0
    assert done.instant < done.completion
    assert table.delete([{"id": "a", "origin": "JFK"}]).deleted == 1
    nothing = table.delete([{"id": "nobody"}])
    assert (nothing.instant, nothing.files) == (None, 0)


def test_rows_are_changed_by_condition_to_values_and_expressions(table: Any) -> None:
    done = table.update_where(
        "delay > 1", set={"delay": lakelatch.sql("delay + 1"), "late": lakelatch.sql("delay > 15")}
    )
    assert done.updated == 2
    assert delays(table) == {"a": 0, "b": 21, "c": 6, "d": None}
    assert [rows(table)[key]["late"] for key in "abc"] == [None, True, False]
    table.update_where([("delay", "is null")], set={"delay": pc.field("updated") * 7, "note": "delay + 1"})
    assert rows(table)["d"] == flight("d", None, 7, note="delay + 1")
    table.update_where("true", set={"delay": 0, "note": None}, partition={"origin": ODD})
    assert delays(table) == {"a": 0, "b": 21, "c": 0, "d": 7}
    assert table.update_where("delay > 1000", set={"delay": 0}).instant is None


def test_all_expressions_see_the_row_as_it_was_before(table: Any) -> None:
    swap = {"delay": lakelatch.sql("cast(updated as int)"), "updated": lakelatch.sql("cast(delay as bigint)")}
    table.update_where("id = 'b'", set=swap)
    assert (rows(table)["b"]["delay"], rows(table)["b"]["updated"]) == (1, 20)


@pytest.mark.parametrize(
    ("where", "given", "words"),
    [
        ((), {"delay": 0}, "no condition says"),
        (None, {"delay": 0}, "no condition says"),
        ("delay > 1", {}, "does not say what"),
        ("delay > 1", {"id": "x"}, "stays what it is"),
        ("delay > 1", {"origin": "x"}, "stays what it is"),
        ("delay > 1", {"speed": 1}, "no column 'speed'"),
        ("delay > 1", {"delay": "much"}, "delay"),
        ("delay > 1", {"delay": 2**40}, "delay"),
        ("delay > 1", {"delay": lakelatch.sql("delay / 3")}, "delay"),
        ("delay > 1", {"delay": lakelatch.sql("speed + 1")}, "no column 'speed'"),
        ("delay > 1", {"delay": lakelatch.sql("delay +")}, "missing"),
        ("delay > 1", {"late": dt.date(2026, 1, 1)}, "late"),
        ("dely > 1", {"delay": 1}, "did you mean 'delay'"),
    ],
)
def test_an_update_that_does_not_fit_is_refused_and_nothing_is_written(
    table: Any, where: Any, given: Any, words: str
) -> None:
    before, commits = rows(table), len(table.commits())
    with pytest.raises(InputError, match=words):
        table.update_where(where, set=given)
    assert (rows(table), len(table.commits())) == (before, commits)


EXPRESSIONS = [
    "s.note",
    "t.note",
    "S.note",
    "s.nota",
    "t.delay + s.delay",
    "upper(s.note)",
    "coalesce(t.note, 'x')",
    "uuid()",
]


@pytest.mark.parametrize("said", EXPRESSIONS)
def test_an_expression_that_is_given_as_text_is_refused_with_the_two_ways_to_say_it(table: Any, said: str) -> None:
    incoming = [flight("a", note="new", updated=5), flight("z")]
    for clause in ({"update": {"note": said}}, {"insert": {"note": said}}, {"update": {"delay": said}}):
        merge, commits = table.merge(incoming), table.commits()
        with pytest.raises(InputError, match=r"reads as an expression") as found:
            (merge.when_matched(**clause) if "update" in clause else merge.when_not_matched(**clause)).run()
        assert f"lakelatch.sql({said!r})" in str(found.value)
        assert f"pyarrow.compute.scalar({said!r})" in str(found.value)
        assert table.commits() == commits
    table.merge(incoming).when_matched(update={"note": pc.scalar(said)}).run()
    assert rows(table)["a"]["note"] == said


def test_a_call_that_is_given_as_text_is_no_value_of_an_update(table: Any) -> None:
    for said in ("upper(note)", "upper(nota)", "concat('a', 'b')", "length(note) + 1"):
        with pytest.raises(InputError, match="reads as an expression"):
            table.update_where("id = 'a'", set={"note": said})
    prose = [
        "s.note",
        "Berlin (Mitte)",
        "item(s)",
        "main()",
        "https://t.co/a",
        "note",
        "see upper(note)",
        "l'eau (f)",
        ODD,
    ]
    for said in prose:
        table.update_where("id = 'a'", set={"note": said})
        assert rows(table)["a"]["note"] == said


def test_a_text_for_a_column_of_numbers_is_refused_with_the_word_for_expressions(table: Any) -> None:
    for where, clauses in (("delay", "delay + 1"), ("late", "delay > 3")):
        with pytest.raises(InputError, match="cannot hold the text") as found:
            table.update_where("id = 'a'", set={where: clauses})
        assert f"lakelatch.sql({clauses!r})" in str(found.value)


def test_an_overwrite_replaces_the_partitions_of_its_rows_or_those_that_are_named(table: Any) -> None:
    table.overwrite([flight("x"), flight("y", "LAX")])
    assert sorted(rows(table)) == ["c", "d", "x", "y"]
    table.overwrite([flight("z")], partitions=[{"origin": "JFK"}, {"origin": ODD}])
    assert sorted(rows(table)) == ["d", "y", "z"]
    with pytest.raises(InputError, match="not among the partitions"):
        table.overwrite([flight("w", "BER")], partitions=[{"origin": "JFK"}])
    assert table.overwrite([]).instant is None
    table.overwrite_table([flight("only", None)])
    assert sorted(rows(table)) == ["only"]
    table.overwrite_table([])
    assert rows(table) == {}


def test_an_insert_adds_rows(table: Any) -> None:
    assert table.insert([flight("e"), flight("f", "LAX")]).inserted == 2
    assert sorted(rows(table)) == ["a", "b", "c", "d", "e", "f"]
    assert table.insert([]).instant is None


def test_a_delete_takes_every_row_with_the_key_though_an_insert_made_it_twice(table: Any) -> None:
    again = [flight("a", delay=1), flight("b", delay=1)]
    table.insert(again)
    table.insert(again)
    done = table.delete([{"id": "a", "origin": "JFK"}])
    assert "a" not in table.read(columns=["id"]).to_arrow()["id"].to_pylist()
    assert done.deleted == (1 if table.settings.bucket_count else 3)
    table.delete([{"id": "b"}])  # in whatever partition
    assert {row["id"] for row in table.read(columns=["id"]).to_pylist()} == {"c", "d"}


@pytest.mark.parametrize("kind", [list, tuple, set, np.array, pd.Series, pd.Index, pa.array, pl.Series, dict.fromkeys])
def test_keys_of_one_column_are_deleted_from_a_list_or_array_of_them(table: Any, kind: Any) -> None:
    given = kind(["a", "d"])
    assert table.delete(given.keys() if isinstance(given, dict) else given).deleted == 2
    assert sorted(rows(table)) == ["b", "c"]
    assert table.delete(pa.array([], pa.string())).instant is None
    for wrong in ([None], ["b", None], np.array([["b"]]), (each for each in "b"), "b", np.arange(100_000)):
        with pytest.raises(InputError, match=r"nothing was (deleted|written)") as found:
            table.delete(wrong)
        assert len(str(found.value)) < 600
    assert sorted(rows(table)) == ["b", "c"]


def test_keys_of_two_columns_are_rows(tmp_path: Any) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key=["id", "day"]) as table:
        table.insert([{"id": 1, "day": 1}])
        with pytest.raises(InputError, match="are no rows of id, day"):
            table.delete([1])


@pytest.mark.parametrize("door", [
    lambda t, x: t.read(columns=x), lambda t, x: t.read(partitions=x), lambda t, x: t.read(as_of=x),
    lambda t, x: t.update_where("true", set=x), lambda t, x: t.update_where("true", set={"note": x}),
    lambda t, x: t.update_where("true", set={"note": "x"}, partition=x), lambda t, x: t.update_where(x, set={"note": "x"}),
    lambda t, x: t.delete_where(x), lambda t, x: t.upsert(x), lambda t, x: t.upsert([flight("a", note=x)]),
    lambda t, x: t.upsert([flight("a")], zone=x), lambda t, x: t.upsert([flight("a")], missing=x),
    lambda t, x: t.upsert([flight("a")], batch=x), lambda t, x: t.upsert([flight("a")], attempts=x),
    lambda t, x: t.merge([flight("a")]).when_matched(update=x).run(), lambda t, x: t.transaction(x),
    lambda t, x: t.transaction(reserve=x), lambda t, x: t.change_settings(lock=x), lambda t, x: t.add_column(x, "int64"),
    lambda t, x: t.add_column("z", x), lambda t, x: t.why(x), lambda t, x: t.compact(partitions=x), lambda t, x: t.stream(x),
    lambda t, x: lakelatch.open(x), lambda t, x: lakelatch.open(t.url, storage=x),
])  # fmt: skip
def test_no_door_prints_a_whole_array(table: Any, door: Any) -> None:
    for given in (np.arange(100_000), pd.Series(range(100_000)), list(range(100_000)), pa.array(range(100_000))):
        with pytest.raises((InputError, ConfigError, UnsupportedTableError)) as found:
            door(table, given)
        assert len(str(found.value)) < 1000
        assert "99999" not in str(found.value)


def test_everything_can_be_deleted(table: Any) -> None:
    assert table.delete_where("delay > 1").deleted == 2
    assert sorted(rows(table)) == ["a", "d"]
    table.delete_all(partition={"origin": None})
    assert sorted(rows(table)) == ["a"]
    table.delete_all()
    assert rows(table) == {}


@pytest.mark.parametrize("partition", [{"origin": "nowhere"}, "origin=nowhere", "nowhere"])
def test_a_partition_that_there_is_not_is_refused_by_changes_of_one_partition(table: Any, partition: Any) -> None:
    before = rows(table)
    with pytest.raises(InputError, match=r"no partition|cannot be a partition"):
        table.update_where("true", set={"delay": 9}, partition=partition)
    with pytest.raises(InputError, match=r"no partition|cannot be a partition"):
        table.delete_all(partition=partition)
    assert rows(table) == before


def test_a_merge_follows_the_first_clause_that_is_true(table: Any) -> None:
    source = [
        {**flight("a", delay=7, updated=2), "gone": False},
        {**flight("b", delay=8, updated=1), "gone": False},
        {**flight("c", ODD, 9, updated=9), "gone": True},
        {**flight("n", None, 10), "gone": False},
        {**flight("m", "LAX", 11), "gone": True},
    ]
    done = (
        table.merge(source)
        .when_matched(delete=True, where="s.gone")
        .when_matched("s.updated > t.updated", update="all")
        .when_matched(update={"delay": lakelatch.sql("s.delay + t.delay"), "note": "both"})
        .when_not_matched("not s.gone", insert="all")
        .run()
    )
    assert (done.inserted, done.updated, done.deleted) == (1, 2, 1)
    assert delays(table) == {"a": 7, "b": 28, "d": None, "n": 10}
    assert rows(table)["b"]["note"] == "both"
    assert "gone" not in table.schema().names


def test_a_merge_inserts_values_by_column(table: Any) -> None:
    table.merge([{"id": "n", "origin": "LAX", "km": 5}]).when_not_matched(
        "s.km > 1", insert={"delay": lakelatch.sql("s.km * 2"), "note": ODD}
    ).run()
    assert rows(table)["n"] == flight("n", "LAX", 10, note=ODD, updated=None)


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        (lambda m: m, "no clause"),
        (lambda m: m.when_matched("s.updated > t.updated"), "either"),
        (lambda m: m.when_matched(update="all", delete=True), "either"),
        (lambda m: m.when_matched(update="some"), "neither"),
        (lambda m: m.when_matched("delay > 1", delete=True), "no column 'delay'"),
        (lambda m: m.when_not_matched("t.delay > 1", insert="all"), "no column 't'"),
        (lambda m: m.when_matched(update={"id": "x"}), "stays what it is"),
        (lambda m: m.when_matched(update="all"), "wants every column"),
    ],
)
def test_a_merge_that_does_not_fit_is_refused_and_nothing_is_written(table: Any, clauses: Any, words: str) -> None:
    before = rows(table)
    with pytest.raises(InputError, match=words):
        clauses(table.merge([{"id": "a", "origin": "JFK", "delay": 3, "updated": 5}])).run()
    assert rows(table) == before


def test_a_key_that_occurs_twice_in_the_source_is_settled_by_the_ordering_field(table: Any) -> None:
    twice = [flight("a", delay=1, updated=5), flight("a", delay=2, updated=4)]
    table.merge(twice).when_matched(update="all").run()
    assert delays(table)["a"] == 1
    with pytest.raises(InputError, match="more than once"):
        table.merge([{"id": "a", "origin": "JFK"}] * 2).when_matched(delete=True).run()


def test_several_writes_of_one_transaction_see_one_another(table: Any) -> None:
    with table.transaction() as txn:
        txn.insert([flight("e", delay=3)])
        txn.update_where("delay >= 3", set={"delay": lakelatch.sql("delay * 2")})
        txn.merge([flight("e", updated=9)]).when_matched(update={"note": "met"}).when_not_matched(insert="all").run()
        txn.update_where("note = 'met'", set={"late": True})
        txn.delete_where("delay = 40")
    assert delays(table) == {"a": 0, "c": 10, "d": None, "e": 6}
    assert (rows(table)["e"]["note"], rows(table)["e"]["late"]) == ("met", True)


def test_a_reader_is_read_once_for_all_attempts(table: Any) -> None:
    batch = pa.RecordBatch.from_pylist([flight("r")], SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, [batch])
    seen: list[int] = []
    work = table.run

    def losing_first(job: Any, **more: Any) -> Any:
        def once(txn: Any) -> Any:
            found = job(txn)
            seen.append(len(txn.files))
            if len(seen) == 1:
                raise ConflictError("another writer was first", table=table.url, instant=txn.instant)
            return found

        return work(once, **more)

    table.run = losing_first
    done = table.upsert(reader)
    assert (done.attempts, len(done.losses), seen[0]) == (2, 1, seen[1])
    assert "r" in rows(table)
    with pytest.raises(InputError, match="was read before"):
        table.upsert(reader)


def test_an_overwrite_that_replaces_nothing_is_refused_at_its_commit(table: Any) -> None:
    before = rows(table)
    with pytest.raises(InputError, match="says nothing that it replaces"), table.transaction("insert_overwrite") as txn:
        txn.new_file("origin=JFK").write(pa.Table.from_pylist([flight("x")], SCHEMA))
    assert rows(table) == before


def test_a_transaction_says_how_it_has_to_be_begun(table: Any) -> None:
    with pytest.raises(InputError, match="Begin it as 'insert_overwrite'"), table.transaction() as txn:
        txn.overwrite([flight("x")])
    with pytest.raises(InputError, match="Begin it as 'upsert'"), table.transaction("insert_overwrite") as txn:
        txn.update_where("true", set={"delay": 0})
    with table.transaction("insert_overwrite") as txn:
        txn.overwrite([flight("x")])
        txn.overwrite([flight("y")])
    assert sorted(rows(table)) == ["c", "d", "y"]
