"""Two writers change the same file groups at the same time: both land, as if one had run after the other."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.errors import ConflictError
from lakelatch.occ.check.check import check
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.spark import JobSizes, SparkTransaction

from ..thorough import crossed, some
from .driver import meanwhile

SCHEMA = "id string, city string, ts long, n long"
Model = dict[str, tuple[str, int, int]]  # id -> city, ts, n
CITIES = ("sf", "la")
ONE_TASK = JobSizes(tasks_per_core=1)
NOTHING_HERE = JobSizes(small_rows=0, driver_bytes=0)  # Spark's tasks do all of it


def base() -> Model:
    numbers = {4: 49, 5: 49, 6: 49, 7: 49, 12: 55, 13: 55, 14: 55, 15: 55}
    return {f"k{i}": (CITIES[i % 2], 1, numbers.get(i, 11)) for i in range(16)}


def rows(spark: Any, model: Model) -> Any:
    return spark.createDataFrame([(k, *v) for k, v in model.items()], SCHEMA)


class Step:
    """One write: how the table makes it, and how a dictionary does."""

    def __init__(self, kind: str, start: int) -> None:
        self.kind, self.start = kind, start
        # Other rows for each writer, and both upsert rows for which the other one's condition is true.
        self.upserted = {f"k{i}": (CITIES[i % 2], 2, 700 + 35 * i) for i in range(start, start + 4)}
        self.upserted |= {f"new{start}{city}": (city, 2, 9) for city in CITIES}
        self.removed = [f"k{i}" for i in range(start + 4, start + 8)]
        self.divisor = 5 if start else 7

    @property
    def operation(self) -> str:
        return self.kind.removesuffix("_where")

    def run(self, table: Any, spark: Any) -> Any:
        if self.kind == "upsert":
            return table.upsert(rows(spark, self.upserted))
        if self.kind == "delete":
            return table.delete(spark.createDataFrame([(k,) for k in self.removed], "id string"))
        return table.delete_where(f"n % {self.divisor} = 0")

    def after(self, model: Model) -> Model:
        if self.kind == "upsert":
            return model | self.upserted
        if self.kind == "delete":
            return {k: v for k, v in model.items() if k not in self.removed}
        return {k: v for k, v in model.items() if v[2] % self.divisor}


@pytest.fixture
def staged(spark: Any) -> Iterator[Callable[..., Transaction]]:
    """Begins and stages a write through a handle of its own, for the test to commit when it likes."""
    handles = []

    def stage(
        table: Any, write: Callable[[Any], Any], *, operation: str = "upsert", sizes: JobSizes = ONE_TASK
    ) -> Transaction:
        handle = lakelatch.open(table.table.url)
        handles.append(handle)
        txn = handle.transaction(operation)
        write(SparkTransaction(spark, handle, txn, sizes))
        return txn

    yield stage
    for handle in handles:
        handle.close()


def arrives(table: Any, spark: Any, change: Model) -> None:
    """Somebody else upserts."""
    with lakelatch.open(table.table.url) as other:
        lakelatch.spark.open(spark, other).upsert(rows(spark, change))


def held(table: Any) -> Model:
    found = table.table.read().to_pylist()
    assert len({r["id"] for r in found}) == len(found), "a key is there twice"
    return {r["id"]: (r["city"], r["ts"], r["n"]) for r in found}


def by_hudi_rs(table: Any) -> Model:
    import hudi

    found = pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(table.table.url).build().read()).to_pylist()
    assert len({r["id"] for r in found}) == len(found), "a key is there twice"
    return {r["id"]: (r["city"], r["ts"], r["n"]) for r in found}


def assert_holds(table: Any, *models: Model) -> None:
    """The table holds one of these, for both readers, and nothing is wrong with it."""
    found = held(table)
    assert found in models
    assert by_hudi_rs(table) == found
    assert check(table.table.store, deep=True).findings == ()


KINDS = ("upsert", "delete", "delete_where")


@pytest.mark.parametrize(("bucket_count", "winner_is_older"), some(product([None, 2], [False, True]), 2))
def test_two_writes_of_the_same_file_groups_both_land(
    make: Callable[..., Any],
    spark: Any,
    staged: Any,
    bucket_count: int | None,
    winner_is_older: bool,
) -> None:
    for mine in KINDS:
        for other in KINDS:
            table = make(f"{mine}-{other}", bucket_count=bucket_count)
            table.insert(rows(spark, base()).coalesce(1))
            ours, theirs = Step(mine, 0), Step(other, 8)
            first, second = (theirs, ours) if winner_is_older else (ours, theirs)
            txns = {
                each: staged(table, partial(each.run, spark=spark), operation=each.operation)
                for each in (first, second)
            }
            begun = {s.path for s in txns[ours].snapshot.file_slices()}
            txns[theirs].commit()
            assert txns[ours].commit() is not None, (mine, other)
            after_theirs = ours.after(theirs.after(base()))
            orders = [after_theirs] if mine == "delete_where" else [after_theirs, theirs.after(ours.after(base()))]
            assert_holds(table, *orders)
            assert begun.isdisjoint(s.path for s in table.table.snapshot().file_slices()), "not one group was shared"


@pytest.mark.parametrize("kind", KINDS)
def test_sparks_tasks_do_the_same_as_the_driver(make: Callable[..., Any], spark: Any, staged: Any, kind: str) -> None:
    sizes = replace(NOTHING_HERE, tasks_per_core=1)  # several file groups for each task
    if kind == "delete":
        sizes = replace(sizes, property_bytes=0)  # as if the table had very many file groups
    table = make(bucket_count=4, sizes=sizes)
    table.upsert(rows(spark, base()))
    ours, theirs = Step(kind, 0), Step("upsert", 8)
    txns = [
        staged(table, partial(each.run, spark=spark), operation=each.operation, sizes=sizes) for each in (ours, theirs)
    ]
    txns[1].commit()
    txns[0].commit()
    assert_holds(table, ours.after(theirs.after(base())))


@pytest.mark.parametrize("bucket_count", [None, 1], ids=["simple", "bucket"])
def test_rows_are_found_where_a_winner_has_moved_them(
    make: Callable[..., Any], spark: Any, staged: Any, bucket_count: int | None
) -> None:
    table = make(bucket_count=bucket_count)
    table.insert(rows(spark, base()).coalesce(1))
    before = {s.group for s in table.table.snapshot().file_slices()}
    changes: list[Model] = [{f"k{i}": (CITIES[i % 2], 2, n) for i in (2 * n, 2 * n + 1)} for n in range(4)]
    txns = [staged(table, lambda t, c=change: t.upsert(rows(spark, c))) for change in changes]
    txns[3].commit()
    txns[2].commit()  # moves its file groups, because those of the winner carry a larger T
    moved = {s.group for s in table.table.snapshot().file_slices()}
    assert moved.isdisjoint(before)
    txns[1].commit()
    txns[0].commit()
    assert_holds(table, base() | {k: v for change in changes for k, v in change.items()})


@pytest.mark.parametrize(("ours_ts", "winner_is_older"), crossed([1, 2, 3], [False, True]))
def test_the_ordering_field_settles_a_row_that_both_changed(
    make: Callable[..., Any], spark: Any, staged: Any, ours_ts: int, winner_is_older: bool
) -> None:
    table = make(ordering_field="ts")
    table.upsert(rows(spark, base()))
    ours: Model = {"k0": ("sf", ours_ts, 1), "k2": ("sf", 2, 1), "new": ("sf", ours_ts, 1)}
    theirs: Model = {"k0": ("sf", 2, 2), "k4": ("sf", 2, 2)}
    first, second = (theirs, ours) if winner_is_older else (ours, theirs)
    txns = {each["k0"][2]: staged(table, lambda t, e=each: t.upsert(rows(spark, e))) for each in (first, second)}
    txns[2].commit()
    txns[1].commit()
    newest = ours["k0"] if ours_ts >= 2 else theirs["k0"]  # the later commit on a tie, as in every merge
    assert_holds(table, base() | theirs | ours | {"k0": newest})


@pytest.mark.parametrize("kind", ["upsert", "delete"])
def test_without_an_ordering_field_a_row_that_both_changed_is_a_conflict_and_the_write_runs_again(
    make: Callable[..., Any], spark: Any, staged: Any, kind: str
) -> None:
    table = make()
    table.upsert(rows(spark, base()))
    theirs: Model = {"k0": ("sf", 2, 2), "k4": ("sf", 2, 2)}
    ours: Model = {"k0": ("sf", 2, 1), "k2": ("sf", 2, 1)}

    def write_ours(into: Any) -> Any:
        return into.upsert(rows(spark, ours)) if kind == "upsert" else into.delete(rows(spark, ours))

    txn = staged(table, write_ours, operation=kind)
    table.upsert(rows(spark, theirs))
    with pytest.raises(ConflictError, match="k0") as lost:
        txn.commit()
    assert not lost.value.landed
    assert lost.value.overlap == ("k0",)
    assert_holds(table, base() | theirs)
    # By itself the write runs again, and then it comes after the other one.
    meanwhile(table, lambda: arrives(table, spark, {"k0": ("sf", 3, 3), "k6": ("sf", 3, 3)}))
    result = write_ours(table)
    assert (result.attempts, len(result.losses)) == (2, 1)
    left = base() | theirs | {"k6": ("sf", 3, 3)}
    assert_holds(table, left | ours if kind == "upsert" else {k: v for k, v in left.items() if k not in ours})


def test_no_user_code_runs_twice_in_a_rebase_nor_in_a_retry(make: Callable[..., Any], spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    table = make(bucket_count=2, sizes=NOTHING_HERE)
    table.upsert(rows(spark, base()))
    for arrival, attempts in (({"k1": ("la", 2, 2)}, 1), ({"k0": ("sf", 2, 2)}, 2)):
        calls = spark.sparkContext.accumulator(0)

        @F.udf("long")
        def counted(n, calls=calls):  # type: ignore[no-untyped-def]  # Spark reads hints
            calls.add(1)
            return n

        meanwhile(table, partial(arrives, table, spark, arrival))
        ours: Model = {"k0": ("sf", 2, attempts), "k2": ("sf", 2, attempts), "k5": ("la", 2, attempts)}
        result = table.upsert(rows(spark, ours).withColumn("n", counted("n")))
        assert result.attempts == attempts
        assert result.updated == 3
        assert calls.value == 3
        assert {k: v for k, v in held(table).items() if k in ours} == ours


def test_a_condition_is_evaluated_on_what_has_landed_meanwhile_and_on_nothing_else(
    make: Callable[..., Any], spark: Any, staged: Any
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    table, evaluated = make(), spark.sparkContext.accumulator(0)

    @F.udf("boolean")
    def large(n):  # type: ignore[no-untyped-def]  # Spark reads hints
        evaluated.add(1)
        return n >= 49

    for city in CITIES:
        table.bulk_insert(rows(spark, {k: v for k, v in base().items() if v[0] == city}).coalesce(1))
    txn = staged(table, lambda t: t.delete_where(large("n")), operation="delete")
    assert evaluated.value == len(base())
    table.bulk_insert(rows(spark, {"late": ("sf", 2, 90), "stays": ("sf", 2, 1)}).coalesce(1))
    table.upsert(rows(spark, {"k0": ("sf", 2, 60)}))
    before = {s.path for s in txn.snapshot.file_slices()}
    since = [s for s in table.table.snapshot().file_slices() if s.path not in before]
    txn.commit()
    assert evaluated.value - len(base()) == sum(table.table.read_slice(s).num_rows for s in since)
    assert_holds(table, {k: v for k, v in base().items() if v[2] < 49 and k != "k0"} | {"stays": ("sf", 2, 1)})


@pytest.mark.thorough
def test_an_incremental_read_tells_each_row_once_whichever_span_it_asks_for(
    make: Callable[..., Any], spark: Any, staged: Any
) -> None:
    table = make(bucket_count=1)
    begun = table.upsert(rows(spark, base()))
    txns = [staged(table, upsert_of(spark, {f"k{n}": (CITIES[n % 2], 2, n)})) for n in range(4)]
    checkpoints = [begun.completion, *(txn.commit().completion for txn in reversed(txns))]
    for first in range(5):
        for last in range(first, 5):
            found = table.read_incremental(checkpoints[first], checkpoints[last]).collect()
            assert sorted(r["id"] for r in found) == sorted(f"k{4 - n}" for n in range(first + 1, last + 1))


def upsert_of(spark: Any, model: Model) -> Callable[[Any], Any]:
    return lambda table: table.upsert(rows(spark, model))


@pytest.mark.parametrize("isolation", ["write-serializable", "serializable"])
def test_an_upsert_has_read_the_buckets_of_its_keys_and_nothing_else(
    make: Callable[..., Any], spark: Any, staged: Any, isolation: str
) -> None:
    table = make(bucket_count=8, isolation=isolation)
    table.upsert(rows(spark, {f"k{i}": ("sf", 1, 0) for i in range(32)}))
    group_of = {
        key: each.file_id
        for each in table.table.snapshot().file_slices()
        for key in table.table.read_slice(each)["id"].to_pylist()
    }
    same = next(k for k in group_of if k != "k0" and group_of[k] == group_of["k0"])
    other = next(k for k in group_of if group_of[k] != group_of["k0"])
    txn = staged(table, upsert_of(spark, {"k0": ("sf", 2, 1)}))
    table.upsert(rows(spark, {other: ("sf", 2, 2)}))
    assert txn.commit() is not None
    txn = staged(table, upsert_of(spark, {"k0": ("sf", 3, 3)}))
    table.upsert(rows(spark, {same: ("sf", 3, 4)}))
    if isolation == "serializable":
        with pytest.raises(ConflictError, match="had read"):
            txn.commit()
    else:
        assert txn.commit() is not None
        assert {held(table)[k][2] for k in ("k0", same)} == {3, 4}


def test_with_the_simple_index_an_upsert_has_read_the_partitions_of_its_rows(
    make: Callable[..., Any], spark: Any, staged: Any
) -> None:
    table = make(isolation="serializable", ordering_field="ts")
    table.upsert(rows(spark, base()))
    for change, lands in (({"k1": ("la", 2, 1)}, True), ({"k2": ("sf", 2, 1)}, False)):
        txn = staged(table, upsert_of(spark, {"k0": ("sf", 2, 0)}))
        table.upsert(rows(spark, change))
        if lands:
            assert txn.commit() is not None
        else:
            with pytest.raises(ConflictError, match="had read"):
                txn.commit()
    insert = staged(table, lambda t: t.insert(rows(spark, {"fresh": ("sf", 1, 1)})), operation="insert")
    table.upsert(rows(spark, {"k4": ("sf", 3, 1)}))
    assert insert.commit() is not None  # it has read nothing


def test_a_row_that_was_too_old_is_not_looked_at_again_so_it_counts_as_read(
    make: Callable[..., Any], spark: Any, staged: Any
) -> None:
    table = make(isolation="write-serializable", ordering_field="ts")
    table.upsert(rows(spark, base()))
    late = staged(table, upsert_of(spark, {"k0": ("sf", 0, 0), "k2": ("sf", 2, 0)}))
    timely = staged(table, upsert_of(spark, {"k6": ("sf", 2, 0)}))
    table.delete(rows(spark, {"k0": ("sf", 1, 11)}))
    assert timely.commit() is not None
    with pytest.raises(ConflictError, match="had read"):
        late.commit()


@pytest.mark.parametrize("isolation", ["write-serializable", "serializable"])
def test_a_delete_by_condition_has_read_the_partitions_that_its_condition_names(
    make: Callable[..., Any], spark: Any, staged: Any, isolation: str
) -> None:
    table = make(isolation=isolation)
    table.upsert(rows(spark, base()))
    txn = staged(table, lambda t: t.delete_where("city = 'sf' and n >= 49"), operation="delete")
    table.upsert(rows(spark, {"k1": ("la", 2, 90)}))
    assert txn.commit() is not None
    txn = staged(table, lambda t: t.delete_where("city = 'la' and n >= 49"), operation="delete")
    table.upsert(rows(spark, {"k3": ("la", 2, 91)}))
    if isolation == "serializable":
        with pytest.raises(ConflictError, match="condition"):
            txn.commit()
    else:
        assert txn.commit() is not None
        assert held(table) == {k: v for k, v in base().items() if v[2] < 49 and k not in ("k1", "k3")}


@pytest.mark.parametrize("bucket_count", [None, 2], ids=["simple", "bucket"])
def test_an_overwrite_has_read_nothing_of_what_it_leaves(
    make: Callable[..., Any], spark: Any, staged: Any, bucket_count: int | None
) -> None:
    table = make(bucket_count=bucket_count, isolation="serializable")
    table.upsert(rows(spark, base()))
    fresh: Model = {"k0": ("sf", 5, 5)}
    txn = staged(table, lambda t: t.overwrite(rows(spark, fresh)), operation="insert_overwrite")
    table.upsert(rows(spark, {"k1": ("la", 2, 1)}))
    assert txn.commit() is not None
    assert_holds(table, {k: v for k, v in base().items() if v[0] == "la"} | {"k1": ("la", 2, 1)} | fresh)


def test_two_threads_upsert_the_same_groups_and_neither_runs_again(make: Callable[..., Any], spark: Any) -> None:
    table = make(bucket_count=2)
    table.upsert(rows(spark, base()))
    changes: list[Model] = [{f"k{i}": (CITIES[i % 2], 2, n) for i in range(n, 16, 4)} for n in range(4)]
    done: dict[int, Any] = {}

    def upsert(number: int) -> None:
        with lakelatch.open(table.table.url) as handle:
            done[number] = lakelatch.spark.open(spark, handle).upsert(rows(spark, changes[number]))

    threads = [threading.Thread(target=upsert, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done[n].attempts for n in range(4)] == [1, 1, 1, 1]
    assert_holds(table, base() | {k: v for change in changes for k, v in change.items()})
