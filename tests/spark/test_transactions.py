"""Jobs that read and write in one transaction, and writes that wait for their turn."""

import logging
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.errors import ConflictError, InputError
from lakelatch.occ.check.check import check
from lakelatch.occ.liveness.markers import list_markers

from ..thorough import some
from .driver import ROUTES

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
    ("asked", "change", "attempts"),
    [
        ({"filter": "n < 10"}, {"new": ("sf", 5)}, 2),  # a row that it would have read
        ({"filter": "N < 10"}, {"new": ("sf", 20)}, 1),  # the statistics exclude it, however the column is spelled
        ({"filter": "CITY = 'sf'"}, {"new": ("la", 5)}, 1),  # another partition
        ({"filter": "city = 'sf' and length(id) = 3"}, {"new": ("sf", 5)}, 2),  # what cannot be told counts as read
        ({"partitions": [{"city": "rome"}]}, {"new": ("rome", 5)}, 2),  # that there was none counts as read
        ({}, {"new": ("la", 20)}, 2),
    ],
)
def test_only_what_a_job_has_read_counts(
    make: Callable[..., Any], spark: Any, asked: dict[str, Any], change: dict[str, tuple[str, int]], attempts: int
) -> None:
    table = make(isolation="serializable")
    table.upsert(rows(spark, **ON_CALL))
    counted = []

    def job(txn: Any) -> None:
        counted.append(txn.read(["id"], **asked).count())
        if len(counted) == 1:
            with lakelatch.open(table.table.url) as handle:
                lakelatch.spark.open(spark, handle).insert(rows(spark, **change))
        assert txn.read(["id"], **asked).count() == counted[-1], "it reads one snapshot"
        txn.upsert(rows(spark, total=("ny", counted[-1])))

    assert table.run(job).attempts == attempts
    assert held(table)["total"] == counted[-1]


def keys(spark: Any, *names: str) -> Any:
    return spark.createDataFrame([(name,) for name in names], "id string")


JOBS: dict[str, Callable[[Any, Any, dict[str, int]], None]] = {}


def job(write: Callable[[Any, Any, dict[str, int]], None]) -> Callable[[Any, Any, dict[str, int]], None]:
    JOBS[write.__name__.rstrip("_")] = write
    return write


@job
def upsert(txn: Any, spark: Any, model: dict[str, int]) -> None:
    result = txn.upsert(rows(spark, ada=("sf", 2), new=("sf", 2)))
    changes = {"ada": 2, "new": 2}
    assert result.inserted == len(changes.keys() - model.keys())
    model.update(changes)


@job
def delete(txn: Any, spark: Any, model: dict[str, int]) -> None:
    assert txn.delete(keys(spark, "ada", "cat")).deleted == len({"ada", "cat"} & model.keys())
    for name in ("ada", "cat"):
        model.pop(name, None)


@job
def delete_where(txn: Any, spark: Any, model: dict[str, int]) -> None:
    gone = [name for name, n in model.items() if n == 2]
    assert txn.delete_where("n = 2").deleted == len(gone)
    for name in gone:
        del model[name]


@job
def insert(txn: Any, spark: Any, model: dict[str, int]) -> None:
    if "cat" not in model:
        txn.insert(rows(spark, cat=("la", 2)))
        model["cat"] = 2


@job
def double(txn: Any, spark: Any, model: dict[str, int]) -> None:
    """Reads what was written before."""
    txn.upsert(txn.read().selectExpr("id", "city", "n * 2 as n"))
    model.update({name: n * 2 for name, n in model.items()})


@job
def delete_all(txn: Any, spark: Any, model: dict[str, int]) -> None:
    txn.delete_all()
    model.clear()


@pytest.mark.parametrize(
    ("route", "bucket_count"), some([("driver", 2), ("driver", None), ("tasks", 2), ("tasks", None)], 2)
)
def test_writes_of_one_job_apply_one_after_the_other(
    make: Callable[..., Any], spark: Any, bucket_count: int | None, route: str
) -> None:
    pairs = list(product(JOBS, repeat=2))
    for number in range(4):  # each pair once, spread over the kinds of tables
        if (number % 2, number // 2) == (bucket_count is None, route == "driver"):
            for kinds in [*pairs[number::4], ("upsert", "insert", "delete_where", "double", "upsert", "delete")]:
                table = make(f"t-{'-'.join(kinds)}", bucket_count=bucket_count, sizes=ROUTES[route])
                table.upsert(rows(spark, **ON_CALL))
                model = {"ada": 1, "ben": 1}

                def work(txn: Any, kinds: tuple[str, ...] = kinds, model: dict[str, int] = model) -> None:
                    for kind in kinds:
                        JOBS[kind](txn, spark, model)

                table.run(work)
                assert held(table) == model, kinds
                assert {row["id"]: row["n"] for row in table.read().collect()} == model
                assert not check(table.table.store, deep=True).findings


def test_what_several_writes_of_a_job_changed_is_merged_again_as_one(make: Callable[..., Any], spark: Any) -> None:
    table, tries = make(), []
    table.upsert(rows(spark, **ON_CALL, eve=("sf", 3)).coalesce(1))

    def work(txn: Any) -> None:
        tries.append(txn.upsert(rows(spark, ada=("sf", 5), new=("sf", 5))))
        txn.upsert(rows(spark, ada=("sf", 6)))
        txn.delete(keys(spark, "ben"))
        if len(tries) == 1:
            with lakelatch.open(table.table.url) as handle, handle.transaction() as other:
                other.upsert(pa.table({"id": ["eve"], "city": ["sf"], "n": [9]}))

    table.run(work)
    assert len(tries) == 1
    assert held(table) == {"ada": 6, "new": 5, "eve": 9}


def test_two_conditions_of_a_job_are_evaluated_on_what_has_landed_meanwhile(
    make: Callable[..., Any], spark: Any
) -> None:
    table, tries = make(), []
    table.upsert(rows(spark, **ON_CALL, eve=("sf", 3)).coalesce(1))

    def work(txn: Any) -> None:
        tries.append(txn.delete_where("n = 3"))
        txn.delete_where("id = 'ben'")
        if len(tries) == 1:
            with lakelatch.open(table.table.url) as handle, handle.transaction() as other:
                other.upsert(pa.table({"id": ["ada", "kim"], "city": ["sf", "ny"], "n": [3, 1]}))

    table.run(work)
    assert len(tries) == 1
    assert held(table) == {"kim": 1}


WRONG_WORDS: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "upsert": ("insert_overwrite", lambda txn, spark: txn.upsert(rows(spark, ada=("sf", 2)))),
    "insert": ("insert_overwrite", lambda txn, spark: txn.insert(rows(spark, new=("sf", 2)))),
    "delete": ("insert_overwrite_table", lambda txn, spark: txn.delete(keys(spark, "ada"))),
    "delete_where": ("delete_partition", lambda txn, spark: txn.delete_where("n = 1")),
    "delete_all": ("delete_partition", lambda txn, spark: txn.delete_all()),
    "overwrite": ("upsert", lambda txn, spark: txn.overwrite(rows(spark, ada=("sf", 2)))),
    "overwrite_table": ("delete", lambda txn, spark: txn.overwrite_table(rows(spark, ada=("sf", 2)))),
    "overwrite of partitions": ("insert_overwrite_table", lambda txn, spark: txn.overwrite(rows(spark, ada=("sf", 2)))),
}


def test_a_write_that_is_not_what_the_transaction_was_begun_for_is_refused(
    make: Callable[..., Any], spark: Any
) -> None:
    table = make()
    table.upsert(rows(spark, **ON_CALL))
    for what, (operation, write_wrong) in WRONG_WORDS.items():

        def work(txn: Any, write_wrong: Callable[[Any, Any], object] = write_wrong) -> None:
            with pytest.raises(InputError, match="nothing was written"):
                write_wrong(txn, spark)
            assert not list_markers(table.table.store, txn.txn.instant)

        table.run(work, operation=operation)
        assert {row["id"]: row["n"] for row in table.table.read().to_pylist()} == {"ada": 1, "ben": 1}, what


def test_overwrites_of_one_job_apply_one_after_the_other(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    table.upsert(rows(spark, **ON_CALL))

    def work(txn: Any) -> None:
        txn.overwrite(rows(spark, eve=("sf", 2), kim=("ny", 2)))
        txn.overwrite(rows(spark, joe=("ny", 3)))

    table.run(work, operation="insert_overwrite")
    assert held(table) == {"ben": 1, "eve": 2, "joe": 3}


def test_a_deletion_without_a_condition_is_refused_here_too(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    table.upsert(rows(spark, **ON_CALL))
    conditions: list[Any] = ["", "  ", None, [], ()]
    for condition in conditions:
        with pytest.raises(InputError, match="delete_all"):
            table.delete_where(condition)
    assert held(table) == {"ada": 1, "ben": 1}
    assert table.delete_all().deleted == 2
    assert held(table) == {}


def test_what_is_read_can_be_overwritten(make: Callable[..., Any], spark: Any) -> None:
    table = make(isolation="serializable")
    table.upsert(rows(spark, **ON_CALL))
    doubled = table.run(
        lambda txn: txn.overwrite_table(txn.read().selectExpr("id", "city", "n * 2 as n")), operation="insert_overwrite"
    )
    assert doubled.commit is not None
    assert held(table) == {"ada": 2, "ben": 2}


def test_keys_that_occur_twice_are_found_in_a_job_too(make: Callable[..., Any], spark: Any) -> None:
    table = make(ordering_field="n", sizes=ROUTES["tasks"])
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
def waits() -> Iterator[Callable[..., Ends]]:
    log, made = logging.getLogger("lakelatch.waiting"), []
    before = log.level

    def ends(end: Callable[[], object]) -> Ends:
        made.append(Ends(end))
        log.addHandler(made[-1])
        return made[-1]

    log.setLevel(logging.INFO)
    yield ends
    log.setLevel(before)
    for each in made:
        log.removeHandler(each)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "upsert": lambda table, spark: table.upsert(rows(spark, eve=("sf", 7))),
    "delete": lambda table, spark: table.delete(spark.createDataFrame([("eve",)], "id string")),
    "delete_where": lambda table, _spark: table.delete_where("n = 3"),
}


@pytest.mark.parametrize(
    ("kind", "route", "bucket_count"),
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
    kind: str,
    bucket_count: int | None,
    route: str,
) -> None:
    table = make(bucket_count=bucket_count, early_conflict_detection="direct", sizes=ROUTES[route])
    table.table.session.merged_bytes_s = 1  # so that it is worth waiting
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
    make: Callable[..., Any], spark: Any, waits: Callable[..., Ends]
) -> None:
    """What looked where the rows go has shuffled them for the merge as well."""
    table = make(bucket_count=2, early_conflict_detection="direct", sizes=ROUTES["tasks"])
    table.table.session.merged_bytes_s = 1  # so that it is worth waiting
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


# --- several tables ----------------------------------------------------------------------------------------------


def test_one_transaction_over_two_tables_takes_data_frames_too(make: Callable[..., Any], spark: Any) -> None:
    orders, stock = make("orders"), make("stock")
    orders.upsert(rows(spark, a=("sf", 1)))
    stock.upsert(rows(spark, a=("sf", 9), b=("la", 9)))
    with lakelatch.transaction(orders.table, stock.table) as txn:
        assert orders.within(txn).read(filter="n = 1").count() == 1
        orders.within(txn).upsert(rows(spark, b=("la", 1)))
        stock.within(txn).update_where("id = 'b'", {"n": lakelatch.sql("n - 1")})
        stock.upsert(rows(spark, b=("la", 5)))  # another job: what is in its way is merged again
    assert held(orders) == {"a": 1, "b": 1}
    assert held(stock) == {"a": 9, "b": 4}
    with lakelatch.transaction(orders.table, stock.table) as txn, pytest.raises(InputError, match="no table of this"):
        make("third").within(txn)
