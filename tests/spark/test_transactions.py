"""Jobs that read and write in one transaction, and writes that wait for their turn."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.errors import ConflictError, InputError
from lakelatch.spark import write

SCHEMA = "id string, city string, n long"
ON_CALL = {"ada": ("sf", 1), "ben": ("la", 1)}


def rows(spark: Any, **values: tuple[str, int]) -> Any:
    return spark.createDataFrame([(k, *v) for k, v in values.items()], SCHEMA)


def held(table: Any) -> dict[str, int]:
    return {row["id"]: row["n"] for row in table.table.read().to_pylist()}


# --- what a job reads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["snapshot", "write-serializable", "serializable"])
def test_write_skew_of_two_jobs(make: Callable[..., Any], spark: Any, isolation: str) -> None:
    """Each sees that both are on call and signs off one; they write different file groups."""
    table = make(isolation=isolation)
    table.upsert(rows(spark, **ON_CALL))
    tries = []

    def sign_off(name: str, meanwhile: Callable[[], object]) -> Callable[[Any], None]:
        def job(txn: Any) -> None:
            tries.append(name)
            on_call = txn.read(filter="n = 1").count()
            if len(tries) == 1:
                meanwhile()
            if on_call == 2:
                txn.upsert(rows(spark, **{name: (ON_CALL[name][0], 0)}))

        return job

    with lakelatch.open(table.table.url) as handle:
        other = lakelatch.spark.open(spark, handle)
        result = table.run(sign_off("ada", lambda: other.run(sign_off("ben", lambda: None))))
    if isolation == "snapshot":
        assert held(table) == {"ada": 0, "ben": 0}
        assert tries == ["ada", "ben"]
    else:
        assert held(table) == {"ada": 1, "ben": 0}
        assert tries == ["ada", "ben", "ada"]
        assert isinstance(result.losses[0], ConflictError)
        assert "changed what ours had read" in str(result.losses[0])


@pytest.mark.parametrize(
    ("condition", "change", "attempts"),
    [
        ("n < 10", {"new": ("sf", 5)}, 2),  # a row that it would have read
        ("n < 10", {"new": ("sf", 20)}, 1),  # the statistics exclude it
        ("city = 'sf'", {"new": ("la", 5)}, 1),  # another partition
        ("city = 'sf' and length(id) = 3", {"new": ("sf", 5)}, 2),  # what cannot be told counts as read
        (None, {"new": ("la", 20)}, 2),
    ],
)
def test_only_what_a_job_has_read_counts(
    make: Callable[..., Any], spark: Any, condition: str | None, change: dict[str, tuple[str, int]], attempts: int
) -> None:
    table = make(isolation="serializable")
    table.upsert(rows(spark, **ON_CALL))
    counted = []

    def job(txn: Any) -> None:
        counted.append(txn.read(["id"], filter=condition).count())
        if len(counted) == 1:
            with lakelatch.open(table.table.url) as handle:
                lakelatch.spark.open(spark, handle).insert(rows(spark, **change))
        assert txn.read(["id"], filter=condition).count() == counted[-1], "it reads one snapshot"
        txn.upsert(rows(spark, total=("ny", counted[-1])))

    assert table.run(job).attempts == attempts
    assert held(table)["total"] == counted[-1]


def test_a_transaction_has_one_write(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    table.upsert(rows(spark, **ON_CALL))

    def job(txn: Any) -> None:
        assert txn.upsert(rows(spark, ada=("sf", 2))).updated == 1
        txn.delete_where("n = 1")

    with pytest.raises(InputError, match="delete after upsert in one transaction"):
        table.run(job)
    assert held(table) == {"ada": 1, "ben": 1}


def test_what_is_read_can_be_overwritten(make: Callable[..., Any], spark: Any) -> None:
    table = make(isolation="serializable")
    table.upsert(rows(spark, **ON_CALL))
    doubled = table.run(
        lambda txn: txn.overwrite_table(txn.read().selectExpr("id", "city", "n * 2 as n")), operation="insert_overwrite"
    )
    assert doubled.commit is not None
    assert held(table) == {"ada": 2, "ben": 2}


def test_keys_that_occur_twice_are_found_in_a_job_too(
    make: Callable[..., Any], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "small_rows", lambda _rows: None)
    table = make(ordering="n")
    twice = rows(spark, ada=("sf", 1)).union(rows(spark, ada=("sf", 2))).repartition(2)
    table.run(lambda txn: txn.insert(twice), operation="insert")
    assert held(table) == {"ada": 2}


# --- waiting for the turn ----------------------------------------------------------------------------------------


class Ends(logging.Handler):
    """Ends a transaction when somebody waits."""

    def __init__(self, end: Callable[[], object]) -> None:
        super().__init__()
        self.end, self.seen = end, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        self.end()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ends]]:
    log, made = logging.getLogger("lakelatch.waiting"), []

    def ends(end: Callable[[], object]) -> Ends:
        made.append(Ends(end))
        log.addHandler(made[-1])
        return made[-1]

    monkeypatch.setattr(log, "level", logging.INFO)
    yield ends
    for each in made:
        log.removeHandler(each)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "upsert": lambda table, spark: table.upsert(rows(spark, eve=("sf", 7))),
    "delete": lambda table, spark: table.delete(spark.createDataFrame([("eve",)], "id string")),
    "delete_where": lambda table, _spark: table.delete_where("n = 3"),
}


@pytest.mark.parametrize(
    ("kind", "route", "buckets"),
    [
        ("upsert", "driver", None),
        ("upsert", "tasks", None),
        ("upsert", "tasks", 1),
        ("delete", "tasks", None),
        ("delete_where", "driver", None),
    ],
)
def test_a_write_waits_for_its_turn_and_merges_once(
    make: Callable[..., Any],
    spark: Any,
    waits: Callable[..., Ends],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    buckets: int | None,
    route: str,
) -> None:
    monkeypatch.setattr(write, "_TASKS_PER_CORE", 1)
    if route == "tasks":
        monkeypatch.setattr(write, "small_rows", lambda _rows: None)
    table = make(buckets=buckets, early_conflict_detection="wait")
    table.upsert(rows(spark, **ON_CALL, eve=("sf", 3)).coalesce(1))
    with lakelatch.open(table.table.url) as handle:
        for city, name, waited in (("la", "ben", 0), ("sf", "ada", 1)):
            first = handle.transaction()
            first.upsert(pa.table({"id": [name], "city": [city], "n": [5]}))
            ends = waits(first.commit)
            if waited or kind == "upsert":  # the others look for the row wherever it may be
                result = WRITES[kind](table, spark)
                assert (ends.seen, result.attempts) == (waited, 1)
                shown = {each.requested: each.action for each in table.table.timeline().completed}
                assert shown[result.instant] == "commit", "it was merged again"
            ends.end = lambda: None
            if not waited:
                first.commit()
    left = {"eve": 7} if kind == "upsert" else {}
    assert held(table) == {"ada": 5, "ben": 5, **left}


def test_rows_are_computed_once_however_long_it_waits(
    make: Callable[..., Any], spark: Any, waits: Callable[..., Ends], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looked where the rows go has shuffled them for the merge as well."""
    monkeypatch.setattr(write, "small_rows", lambda _rows: None)
    table = make(buckets=2, early_conflict_detection="wait")
    table.upsert(rows(spark, **ON_CALL))
    counted = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counted.add(batch.num_rows)
            yield batch

    with lakelatch.open(table.table.url) as handle:
        first = handle.transaction()
        first.upsert(pa.table({"id": ["ada"], "city": ["sf"], "n": [5]}))
        ends = waits(first.commit)
        table.upsert(rows(spark, ada=("sf", 7), ben=("la", 8)).mapInArrow(count, SCHEMA))
    assert ends.seen == 1
    assert counted.value == 2
    assert held(table) == {"ada": 7, "ben": 8}
