"""DataFrames have a reader's lease: while Spark can read one of them, a cleaning leaves the files of its state."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lakelatch
import lakelatch.spark
from lakelatch.occ.liveness.reader_leases import READERS
from lakelatch.occ.table import Table
from lakelatch.spark.reading.leases import HELD_S_MAX
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.fake_environment import FakeEnvironment
from lakelatch.testing.faults import On, Refuse

from .driver import DriverStore


class Pair:
    """A writer who cleans, and a reader in Spark whose clock stands still until it is told."""

    def __init__(self, spark: Any, folder: Path, kind: str = "copy_on_write") -> None:
        self.folder, self.env = folder, FakeEnvironment()
        hour = 3600.0  # a day has few beats
        self.writer = lakelatch.create(
            str(folder), record_key="id", type=kind, heartbeat_interval_s=hour, heartbeat_timeout_s=6 * hour
        )
        for value in (1, 2):
            self.writer.upsert([{"id": "a", "n": value}])
        self.store = DriverStore(LocalStore(str(folder)))
        self.reader = lakelatch.spark.open(spark, Table(self.store, env=self.env))
        self.spark = spark

    def leases(self) -> list[str]:
        return [path.read_text() for path in (self.folder / READERS).glob("*")]

    def beat(self) -> None:
        """Two beats of the driver."""
        self.env.advance(2 * self.reader.table.settings.heartbeat_interval_s)

    def forget(self, scans: Sequence[Any]) -> None:
        """The JVM has collected what these refer to: Spark's listeners may have it until they have told of the last job."""
        for _ in range(100):
            gc.collect()
            self.spark._jsc.sc().listenerBus().waitUntilEmpty(600_000)
            self.spark._jvm.java.lang.System.gc()
            if all(each.refersTo(None) for each in scans):
                return
        pytest.fail("something in the JVM keeps the files of a DataFrame that is gone")

    def scans(self) -> list[Any]:
        """Weak references to the files of all DataFrames."""
        return [scan for held in self.reader._reads._lease._held for scan in held.scans]

    def outdate(self) -> None:
        """Every file so far is superseded, and a cleaning comes."""
        self.writer.upsert([{"id": "a", "n": 3}])
        self.writer.compact()  # where there are log files
        self.writer.upsert([{"id": "a", "n": 4}])
        self.writer.clean(retain_commits=1)

    def close(self) -> None:
        self.reader.table.close()
        self.writer.close()


@pytest.fixture
def pair(spark: Any, tmp_path: Path, request: Any) -> Any:
    made = Pair(spark, tmp_path / "t", getattr(request, "param", "copy_on_write"))
    yield made
    made.close()


@pytest.mark.parametrize("pair", ["copy_on_write", "merge_on_read"], indirect=True)
def test_a_cleaning_beside_a_long_query_breaks_nothing(pair: Pair) -> None:
    rows = pair.reader.read().where("n > 0").select("n")  # the DataFrame of `read` itself is gone
    pair.beat()
    pair.outdate()
    assert [row["n"] for row in rows.collect()] == [2]
    assert len(pair.leases()) == 1
    scans = pair.scans()
    del rows
    pair.forget(scans)
    pair.beat()
    assert not pair.leases(), "it ends with the DataFrame"
    # Without a lease the same cleaning takes the files.
    assert pair.writer.clean(retain_commits=1)


def test_what_a_transaction_has_read_stays_when_it_has_ended(pair: Pair) -> None:
    kept: list[Any] = []
    pair.reader.run(lambda txn: kept.append(txn.read(filter="n > 0")))
    pair.beat()
    pair.outdate()
    assert [row["n"] for row in kept[0].collect()] == [2]


def test_a_short_query_writes_nothing(pair: Pair) -> None:
    assert pair.reader.read().count() == 1
    pair.forget(pair.scans())
    pair.beat()
    assert not [call for call in pair.store.calls if call.path.startswith(READERS)]


def test_one_lease_keeps_all_states_from_the_oldest_that_is_read(pair: Pair) -> None:
    first = pair.reader.read()
    pair.beat()
    pair.writer.upsert([{"id": "a", "n": 3}])
    second = pair.reader.read_incremental(None)
    pair.beat()
    pair.outdate()
    assert len(pair.leases()) == 1
    assert ([row["n"] for row in first.collect()], [row["n"] for row in second.collect()]) == ([2], [3])
    scans = pair.scans()[:1]
    del first
    pair.forget(scans)
    pair.beat()
    pair.writer.clean(retain_commits=1)
    assert [row["n"] for row in second.collect()] == [3]


def test_it_ends_after_a_day_and_with_the_handle(pair: Pair) -> None:
    rows = pair.reader.read()
    pair.beat()
    assert pair.leases()
    for _ in range(int(HELD_S_MAX / 3600)):
        pair.env.advance(3600)
    assert not pair.leases()
    other = pair.reader.read()
    pair.beat()
    assert pair.leases()
    pair.reader.table.close()
    pair.beat()
    assert not pair.leases()
    assert [rows.count(), other.count()] == [1, 1]


def test_who_may_not_write_reads_without_a_lease(pair: Pair) -> None:
    rows = pair.reader.read()
    pair.store.add(Refuse(On("put_if_absent", READERS), errno=13, forever=True))
    pair.beat()
    assert rows.count() == 1
    assert not pair.leases()
