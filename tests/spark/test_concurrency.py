"""Several writers in one session, tasks that run twice, jobs that are cancelled."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.errors import ConflictError
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.occ.table import Table
from lakelatch.spark import JobSizes
from lakelatch.spark.writing import jobs
from lakelatch.spark.writing.incoming import Shuffled
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import Crash, FaultStore, On, Pause

from ..thorough import crossed
from .driver import DriverStore, meanwhile

SCHEMA = "id string, city string, n long"
TASKS = JobSizes(small_rows=0)


def data_files(table: Any) -> list[Path]:
    root = Path(table.table.store.inner.root)
    return [p for p in root.rglob("*.parquet") if ".hoodie" not in p.parts]


def assert_clean(table: Any) -> None:
    """Every file belongs to a commit, and no marker or heartbeat is left."""
    root = Path(table.table.store.inner.root)
    known = {root / s.path for i in table.table.timeline().commits for s in table.table.timeline().metadata(i).stats}
    assert set(data_files(table)) <= known
    for folder in (MARKERS, HEARTBEATS):
        assert not [p for p in (root / folder).rglob("*") if p.is_file()]


def numbers(spark: Any, count: int, n: int, *, pieces: int = 4) -> Any:
    return spark.range(count, numPartitions=pieces).selectExpr(
        "concat('k', id) id", "if(id % 2 = 0, 'sf', 'la') city", f"cast({n} as long) n"
    )


class FirstFile:
    """Some task has just published a file, for the first time; travels by value."""

    def __init__(self, flag: Path) -> None:
        self._flag, self._driver = str(flag), os.getpid()

    def __call__(self, call: Any) -> bool:
        if call.op != "publish" or os.getpid() == self._driver:
            return False
        try:
            os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


FirstFile.__module__ = "__main__"


def dying_once(spark: Any, table: Any, scratch: Path) -> tuple[Any, Path]:
    """The table for writes in whose tasks one worker is killed after it has published a file; the flag is then there."""
    flag = scratch / "died"
    store = FaultStore(table.table.store.inner, Crash(FirstFile(flag), after=True))
    return lakelatch.spark.open(spark, Table(store), sizes=TASKS), flag


@pytest.mark.parametrize(("operation", "bucket_count"), crossed(["insert", "upsert", "overwrite"], [None, 2]))
def test_a_task_that_runs_again_after_it_published_leaves_one_file_for_each_group(
    make: Callable[..., Any],
    spark: Any,
    tmp_path: Path,
    operation: str,
    bucket_count: int | None,
) -> None:
    table = make(bucket_count=bucket_count, sizes=TASKS)
    table.upsert(numbers(spark, 50, 0))
    table, flag = dying_once(spark, table, tmp_path)
    rows = numbers(spark, 60, 1) if operation != "insert" else numbers(spark, 60, 1).where("id >= 'k5'")
    result = getattr(table, operation)(rows)
    assert flag.exists()
    assert result.attempts == 1
    written = [p for p in data_files(table) if result.instant in p.name]
    assert sorted(p.name for p in written) == sorted(Path(s.path).name for s in result.stats)
    assert len({p.name.split("_")[0] for p in written}) == len(written)
    assert_clean(table)
    if operation != "insert" or bucket_count:
        assert {r["n"] for r in table.read().collect()} <= {0, 1}
        assert table.read().where("n = 1").count() == rows.count()


def test_a_task_whose_rows_change_when_it_runs_again_is_refused(
    make: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    table, _ = dying_once(spark, make(), tmp_path)
    unsteady = spark.range(20, numPartitions=1).selectExpr("uuid() id", "'sf' city", "id n")
    changing = unsteady.mapInArrow(_random_keys(), unsteady.schema)
    with pytest.raises(Exception, match="written twice with different rows"):
        table.insert(changing)
    assert data_files(table) == []


def _random_keys() -> Any:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        for batch in batches:
            keys = pa.array([str(uuid.uuid4()) for _ in range(batch.num_rows)])
            yield pa.RecordBatch.from_arrays([keys, *batch.columns[1:]], names=batch.schema.names)

    run.__module__ = "__main__"
    return run


def both_begin_first(table: Any) -> None:
    """Two threads both have their snapshot before one of them commits: the other one finds its file group changed."""
    both_have_begun = threading.Barrier(2, timeout=PATIENCE_S)
    begun = set()

    def wait() -> None:
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            both_have_begun.wait()

    # The first call after the begin entry.
    table.table.store.add(Pause(On("put_if_absent", HEARTBEATS), call=wait, forever=True))


@pytest.mark.parametrize("route", ["driver", "tasks"])
def test_two_upserts_of_one_group_both_land(make: Callable[..., Any], spark: Any, route: str) -> None:
    table = make(sizes=TASKS if route == "tasks" else JobSizes())
    table.insert(numbers(spark, 20, 0, pieces=1))
    both_begin_first(table)
    results: dict[int, Any] = {}

    def upsert(n: int) -> None:
        rows = numbers(spark, 20, n, pieces=2).where(f"cast(substr(id, 2) as int) % 5 = {n}")
        results[n] = table.upsert(rows)

    threads = [threading.Thread(target=upsert, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.attempts for r in results.values()] == [1, 1]
    counted = {r["n"]: r["count"] for r in table.read().groupBy("n").count().collect()}
    assert counted == {0: 12, 1: 4, 2: 4}
    assert_clean(table)


def test_threads_of_a_driver_write_through_a_coordinator(make: Callable[..., Any], spark: Any) -> None:
    """Each with a handle, rows that are tasks' and rows that are the driver's, as jobs of Spark usually run beside each other."""
    plain, shared = make(), lakelatch.LocalCoordinator()
    asked: list[str] = []

    def write(number: int) -> None:
        with lakelatch.open(plain.table.url, writer=f"t{number}", coordinator=shared) as table:
            ask = table.session.coordinator.ask
            table.session.coordinator.ask = lambda question, s: (asked.append(table.writer), ask(question, s))[1]
            for sizes in (TASKS, JobSizes()):
                t = lakelatch.spark.open(spark, table, sizes=sizes)
                rows = numbers(spark, 10, number, pieces=2).selectExpr(
                    f"concat('{number}-{len(asked)}-', id) id", "city", "n"
                )
                assert t.insert(rows).attempts == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert {r["n"]: r["count"] for r in plain.read().groupBy("n").count().collect()} == dict.fromkeys(range(4), 20)
    assert set(asked) == {f"t{n}" for n in range(4)}
    assert_clean(plain)


def test_two_writers_that_make_the_same_bucket_do_not_make_it_twice(make: Callable[..., Any], spark: Any) -> None:
    table = make(bucket_count=1)
    both_begin_first(table)
    rows = [spark.createDataFrame([("same", "sf", n)], SCHEMA) for n in (1, 2)]
    threads = [threading.Thread(target=table.upsert, args=(each,)) for each in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table.table.snapshot().file_slices()) == 1
    assert table.read().count() == 1


def test_a_delete_by_condition_sees_rows_that_arrive_meanwhile(make: Callable[..., Any], spark: Any) -> None:
    table = make()
    table.insert(numbers(spark, 10, 0))
    arrivals = [
        spark.createDataFrame([("late", "sf", 0)], SCHEMA),
        spark.createDataFrame([("else", "rome", 0)], SCHEMA),
    ]

    def arrive() -> None:
        while arrivals:
            assert table.insert(arrivals.pop()).attempts == 1

    meanwhile(table, arrive)
    result = table.delete_where("city = 'sf' and n = 0")
    # The condition was evaluated on what arrived in sf; what arrived in rome is no concern of it.
    assert (result.attempts, result.deleted) == (1, 6)
    assert table.read(filter="city = 'sf'").count() == 0
    # A handle that has lost lately takes the lock first; another one shows that this arrival is no conflict.
    arrivals.append(spark.createDataFrame([("more", "rome", 0)], SCHEMA))
    with Table(DriverStore(table.table.store.inner)) as handle:
        other = lakelatch.spark.open(spark, handle)
        meanwhile(other, arrive)
        assert other.delete_where("city = 'la'").attempts == 1


def test_rows_whose_shuffle_failed_are_shuffled_anew(make: Callable[..., Any], spark: Any, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()

    def failing(batches: Iterable[pa.RecordBatch], flag: str = str(flag)) -> Iterator[pa.RecordBatch]:
        import os

        if os.path.exists(flag):
            raise RuntimeError("the executor is lost")
        yield from batches

    def task(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        import pyarrow as pa

        from lakelatch.spark.tasks import Answer

        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(Answer(idle=True))], pa.binary())], ["answer"])

    failing.__module__ = task.__module__ = "__main__"
    rows = spark.range(8, numPartitions=2).mapInArrow(failing, "id long")
    shuffled, table = Shuffled(rows.repartition(2, "id")), make().table
    with table.transaction() as txn:
        with pytest.raises(Exception, match="the executor is lost"):
            jobs.collect(spark, table.store, txn, shuffled, task, text="")
        flag.unlink()
        assert [each.idle for each in jobs.collect(spark, table.store, txn, shuffled, task, text="")] == [True, True]


def test_the_callers_job_group_and_tags_hold_for_the_jobs_of_a_write(make: Callable[..., Any], spark: Any) -> None:
    """Their own `cancelJobGroup` finds these jobs; ours goes by a tag beside theirs."""
    context, seen = spark.sparkContext, []

    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        names = ("spark.jobGroup.id", "spark.job.tags")
        for batch in batches:
            told = [TaskContext.get().getLocalProperty(name) or "" for name in names]
            yield batch.set_column(1, "city", pa.array(["|".join(told)] * batch.num_rows))

    told.__module__ = "__main__"
    context.setJobGroup("mine", "what I do")
    context.addJobTag("my-tag")
    try:
        table = make(sizes=TASKS)
        rows = numbers(spark, 4, 0)
        table.insert(rows.mapInArrow(told, rows.schema))
        (seen,) = {row["city"] for row in table.read().collect()}
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "what I do"
        assert [*context.getJobTags()] == ["my-tag"]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
        context.removeJobTag("my-tag")
    group, _, tags = seen.partition("|")
    assert group == "mine"
    assert {"my-tag", jobs.tag_of(table.table.timeline().commits[-1].requested)} <= set(tags.split(","))


class PublishInATask:
    """Where a task is about to publish a data file; it waits there until its job is cancelled, or fails the test."""

    def __init__(self, driver: int) -> None:
        self._driver = driver

    def __call__(self, call: Any) -> bool:
        return call.op == "publish" and os.getpid() != self._driver


def _wait_to_be_cancelled() -> None:
    time.sleep(2 * PATIENCE_S)


_wait_to_be_cancelled.__module__ = "__main__"


def test_a_job_that_cannot_land_is_cancelled_while_its_tasks_write(make: Callable[..., Any], spark: Any) -> None:
    """The older writer's marker stands after the job has begun; the job ends at once and leaves nothing."""
    plain = make(
        rebase=False,
        early_conflict_detection="direct",
        bucket_count=2,
        heartbeat_interval_s=0.2,
        heartbeat_timeout_s=600,
    )
    plain.insert(numbers(spark, 20, 0))
    before, root = data_files(plain), Path(plain.table.store.inner.root)
    store = FaultStore(plain.table.store.inner, Pause(PublishInATask(os.getpid()), _wait_to_be_cancelled, forever=True))
    errors: list[ConflictError] = []
    with lakelatch.open(plain.table.url) as other, Table(store) as handle:
        older = other.transaction()
        table = lakelatch.spark.open(spark, handle, sizes=TASKS)

        def upsert() -> None:
            try:
                table.run(lambda txn: txn.upsert(numbers(spark, 20, 1)), attempts=1)
            except ConflictError as e:
                errors.append(e)

        writer = threading.Thread(target=upsert)
        writer.start()
        wait = threading.Event()
        while not (own := list((root / MARKERS).rglob("*.MERGE"))):
            wait.wait(0.05)
        assert older.instant not in str(own)
        older.upsert(pa.table({"id": ["k0"], "city": ["sf"], "n": [7]}))
        writer.join(PATIENCE_S)
        assert not writer.is_alive(), "it waits for the older one's heartbeat to stop"
        assert [(e.winner, e.early, len(e.overlap)) for e in errors] == [(older.instant, True, 1)]
        older.commit()
    assert len(data_files(plain)) == len(before) + 1
    plain.table.rollback_failed_writes()
    assert_clean(plain)
    assert plain.read().where("n = 7").count() == 1


def test_a_job_asks_where_its_rows_go_before_it_writes(make: Callable[..., Any], spark: Any) -> None:
    """Where an older writer is at work already, no file is begun."""
    table = make(rebase=False, early_conflict_detection="direct", sizes=TASKS)
    table.insert(numbers(spark, 20, 0))
    with lakelatch.open(table.table.url) as other:
        older = other.transaction()
        older.upsert(pa.table({"id": ["k0"], "city": ["sf"], "n": [7]}))
        before = len(data_files(table))
        with pytest.raises(ConflictError, match="gave way") as lost:
            table.run(lambda txn: txn.upsert(numbers(spark, 20, 1)), attempts=1)
        assert lost.value.saved_bytes > 0
        assert len(data_files(table)) == before
        older.commit()
