"""A program that uses every public call, for type checkers: it is never run. A wrong word is marked as an error to expect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import lakelatch
from lakelatch import sql
from lakelatch.locks import Lease, Release, metrics, open_provider
from lakelatch.occ.transaction import RunResult
from lakelatch.server import Embedded
from lakelatch.testing import FaultStore

ROWS: Any = [{"id": "a", "n": 1}]


def tables(place: Path) -> None:
    with lakelatch.create(place, record_key="id", check="n >= 0", exist_ok=True) as made:
        assert_type(made, lakelatch.Table)
    chosen: lakelatch.SettingsDict = {"bucket_count": 4, "merge": {"n": "sum"}, "check": ["n >= 0"], "lease_s": 10.0}
    lakelatch.create(place, record_key="id", **chosen).close()
    lakelatch.create(place, record_key=None).close()
    lakelatch.create(place, record_key="id", buckets=4)  # type: ignore[call-arg]
    lakelatch.create(place, record_key="id", ties="both")  # type: ignore[arg-type]
    lakelatch.adopt(place, "none://", rebase=False).close()
    lakelatch.opne(place)  # type: ignore[attr-defined]
    table = lakelatch.open(place, isolation="serializable", strategy="priority", priority=3)
    lakelatch.open(place, coordinator=lakelatch.LocalCoordinator()).close()
    lakelatch.open(place, coordinator=lakelatch.CoordinatorServer("http://127.0.0.1:8047", token="x")).close()
    lakelatch.open(place, isolation="perfect")  # type: ignore[arg-type]
    lakelatch.open(place, strategy="luck")  # type: ignore[arg-type]
    done = table.upsert(
        ROWS, missing="null", new_columns="add", zone="UTC", note={"job": "x"}, batch=("q", 1), attempts=3
    )
    assert_type(done, lakelatch.WriteResult)
    assert_type(done.inserted + done.updated + done.deleted + done.files + done.bytes, int)
    assert_type(done.took_s, float)
    table.upsert(ROWS, missing="nil")  # type: ignore[arg-type]
    table.upsert(ROWS, new_columns="maybe")  # type: ignore[arg-type]
    table.upsert(ROWS, isolation="perfect")  # type: ignore[arg-type]
    table.upsert(ROWS, attempts="3")  # type: ignore[arg-type]
    table.upsert(ROWS, retries=3)  # type: ignore[call-arg]
    table.upsert(ROWS, note={"job": 7})  # type: ignore[dict-item]
    table.insert(ROWS, progress=lambda progress: print(progress.done))
    table.overwrite(ROWS, partitions=[{"day": "mon"}])
    table.overwrite_table(ROWS)
    table.delete(ROWS)
    table.delete_where("n > 1", partition="day=mon")
    table.delete_all()
    table.update_where("n > 1", {"n": sql("n + 1")})
    merge = table.merge(ROWS).when_matched("s.n > t.n", update="all").when_not_matched(insert="all")
    assert_type(merge, lakelatch.Merge[lakelatch.WriteResult])
    assert_type(merge.run(), lakelatch.WriteResult)
    assert_type(table.run(lambda txn: txn.instant, operation="upsert"), RunResult[str])
    table.run(lambda txn: txn.instant, operation="upset")  # type: ignore[arg-type]
    table.add_column("m", "bigint", note={"why": "x"})
    table.widen_column("m", "bigint")
    table.drop_column("m", note={"why": "x"})
    assert_type(table.last_batch("q"), int | None)
    assert_type(table.settings, lakelatch.Settings)
    table.change_settings(lease_s=10.0, unique_constraints=["email", ["country", "number"]])
    table.change_settings(lease_s="10")  # type: ignore[arg-type]
    table.set_lock("none://")
    print(table.lock, table.config, table.streams, table.schema(), table.snapshot(), table.view(), table.timeline())
    for instant, metadata in table.commits(after=None):
        print(instant.requested, metadata.extra)
        print(table.why(instant.requested).note, table.lost_rows(instant.requested), table.rescue(instant.requested))
    for event in table.events(every_s=1.0):
        print(event.writer)
    print(table.rollback_failed_writes(wait=True), table.explain_row("a"))
    table.close()


def reads(table: lakelatch.Table) -> None:
    scan = table.read(columns=["id"], where="n > 1", as_of="2026-11-24", limit=10)
    assert_type(scan, lakelatch.Scan)
    print(scan.to_arrow(), scan.to_pandas(), scan.to_polars(), scan.to_duckdb(), scan.to_pylist(), scan.to_batches())
    print(scan.head(3), scan.explain(), scan.parts(1 << 20), scan.limited(5), scan.schema, scan.completion)
    assert_type(scan.count(), int)
    print(table.changes(after=None).to_arrow(), table.change_feed(after=None).to_pylist())
    with table.pinned() as pinned:
        print(pinned)
    for each in table.snapshot().file_slices():
        print(table.read_slice(each))


def catalogs(table: lakelatch.Table) -> None:
    (synced,) = lakelatch.glue.sync(table, "analytics", name="trips", dry_run=True)
    assert_type(synced, lakelatch.glue.Synced)
    print(synced.change, synced.to_json())


def services(table: lakelatch.Table) -> None:
    for planned in (
        table.plan_clean(), table.plan_archive(), table.plan_clustering(), table.plan_compaction(), table.plan_log_compaction()
    ):  # fmt: skip
        if planned is not None:
            table.execute(planned)
    print([table.cancel_plan(each.instant) for each in table.plans()])
    table.clean(retain_commits=0)
    table.archive(keep_min=2)
    table.cluster(sort_by=["n"], layout="z-order")
    table.cluster(layout="spiral")  # type: ignore[arg-type]
    table.compact()
    table.compact_logs()
    table.run_services(cluster=True)
    kept = table.savepoint(comment="x")
    print(table.savepoints(), table.restore(kept.instant))
    table.delete_savepoint(kept.instant)


def transactions(table: lakelatch.Table) -> None:
    with table.transaction("insert_overwrite", isolation="serializable", note={"job": "x"}, lock_first=True) as txn:
        assert_type(txn, lakelatch.Transaction)
        txn.upsert(ROWS, missing="null")
        txn.insert(ROWS)
        txn.overwrite(ROWS)
        txn.overwrite_table(ROWS)
        txn.delete(ROWS)
        txn.delete_where("n > 1")
        txn.delete_all()
        txn.update_where("n > 1", {"n": 1})
        assert_type(txn.merge(ROWS).when_matched(delete=True), lakelatch.Merge[None])
        txn.add_column("m", "bigint")
        txn.widen_column("m", "bigint")
        txn.drop_column("m")
        print(txn.read().to_arrow(), txn.depends_on(None), txn.schema, txn.instant, txn.isolation, txn.result)
        txn.check()
        txn.allow_empty()
        txn.stream("s").upsert(ROWS)
        txn.stream("s").overwrite(ROWS, partitions=["day=1"])
        assert_type(txn.commit(), lakelatch.CommitResult | None)
    table.transaction("upset")  # type: ignore[arg-type]
    table.transaction().abort()


def several_tables(one: lakelatch.Table, other: lakelatch.Table) -> None:
    with lakelatch.transaction(one, other, isolation="serializable", note={"job": "x"}) as txn:
        assert_type(txn, lakelatch.SeveralTransaction)
        assert_type(txn[one], lakelatch.Transaction)
    result = lakelatch.run(lambda txn: txn[one].delete_all(), one, other, attempts=3)
    print(result.commits)
    cut = lakelatch.read_together(one, other)
    assert_type(cut, lakelatch.Cut)
    assert_type(cut.read(one, columns=["n"], where="n > 1"), lakelatch.Scan)


def streams(table: lakelatch.Table) -> None:
    stream = table.stream("clicks", columns=["n"], ordering="at", on_delete="row", null="keep")
    assert_type(stream, lakelatch.TableStream)
    table.stream("clicks", on_delete="gone")  # type: ignore[arg-type]
    print(stream.upsert(ROWS, batch=("q", 1)), stream.delete(ROWS), stream.declaration, stream.retract(ROWS))
    print(table.change_buckets(4, dry_run=True).files)
    print(table.adopt_streams({"clicks": {"columns": "n", "ordering": "at"}}, bucket_count=8, dry_run=True).changes)
    print(
        stream.alter(default={"n": 1}, null="keep"),
        stream.drop(),
        stream.undrop(),
        stream.overwrite(ROWS, partitions=["day=1"]),
    )


def locks() -> None:
    with lakelatch.lock("memory://x", "k", wait_s=1) as lease:
        assert_type(lease, Lease)
        lease.ensure_held(fresh=True)
    with lakelatch.lock("memory://x", ["a", "b"]) as (one, other):
        print(one.token, other.token)
    print(lakelatch.lock("memory://x", "k").ask_revoke(wait_s=1))
    with open_provider("memory://x") as provider:
        held = provider.acquire("k", wait_s=1)
        assert_type(held.release(), Release)
        print(provider.try_acquire("k"), provider.inspect("k"), provider.breaks("k"))
        provider.break_lease("k", token=1, reason="stuck", who="me")
    metrics.enable()


def on_spark(spark: Any) -> None:
    lakelatch.spark.register(spark)
    table = lakelatch.spark.create(spark, "place", record_key="id")
    assert_type(table, lakelatch.spark.SparkTable)
    assert_type(lakelatch.spark.open(spark, "place", sizes=lakelatch.spark.JobSizes()), lakelatch.spark.SparkTable)
    assert_type(table.upsert(ROWS, missing="null", attempts=3), lakelatch.WriteResult)
    table.upsert(ROWS, missing="nil")  # type: ignore[arg-type]
    table.insert(ROWS)
    table.bulk_insert(ROWS, sort="partition", sort_by=["n"])
    table.overwrite(ROWS, partitions=["day=mon"])
    table.overwrite_table(ROWS)
    table.delete(ROWS)
    table.delete_where("n > 1")
    table.delete_all(partition="day=mon")
    table.update_where("n > 1", {"n": 1})
    assert_type(table.merge(ROWS).when_matched(update="all").run(), lakelatch.WriteResult)
    assert_type(table.run(lambda txn: txn.bulk_insert(ROWS), attempts=3), RunResult[lakelatch.WriteResult])
    table.run(lambda txn: txn.delete_all(), attempts="3")  # type: ignore[arg-type]
    print(
        table.read(filter="n > 1"), table.explain().files, table.read_incremental(None), table.change_feed(after=None)
    )
    print(
        table.clean(), table.cluster(), table.compact(), table.compact_logs(), table.execute("T"), table.run_services()
    )
    stream = table.stream("clicks", columns=["n"], ordering="at")
    assert_type(stream, lakelatch.spark.SparkStream)
    print(stream.upsert(ROWS), stream.delete(ROWS), stream.retract(ROWS), stream.sink(), table.sink("insert"))
    print(stream.overwrite(ROWS, partitions=[{"day": 1}]))
    with lakelatch.transaction(table.table) as txn:
        assert_type(table.within(txn), lakelatch.spark.SparkTransaction)
    print(lakelatch.spark.sql(spark, "delete from t", {"t": table}), Embedded, FaultStore)
    rows = lakelatch.spark.join(table.read(), "left", left="n", right="at")
    lakelatch.spark.join(rows, "cross", left="n", right="at")  # type: ignore[arg-type]
    lakelatch.spark.top_n_per_key(rows, 3, key=["id"], by="at").show()
    table.close()


def errors(error: lakelatch.ConflictError, rows: lakelatch.ConstraintError, lock: lakelatch.LockError) -> None:
    print(error.landed, error.retryable, error.docs, error.details, error.early)
    assert_type(error.winner, str)
    assert_type(error.overlap, tuple[str, ...])
    assert_type(error.table, str | None)
    assert_type(rows.keys, list[str])
    assert_type(lock.token, int | None)
    print(error.winers)  # type: ignore[attr-defined]
    print(lakelatch.MarkerServer, lakelatch.Progress, lakelatch.RunResult, lakelatch.locks, lakelatch.__version__)
