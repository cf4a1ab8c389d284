"""Writers on a standalone cluster, their table in S3 and their lock in Redis, while executors, workers and a driver die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.occ.check import check

from ..jvm.readers import by_hudi_rs
from ..servers import KEY, Bucket, missing, versitygw
from ..servers.redis_server import redis_server
from ..servers.spark_cluster import S3A, Cluster, spark_cluster, until
from .cluster_job import ROWS

ROOT = Path(__file__).parents[2]


@dataclass
class Stage:
    cluster: Cluster
    bucket: Bucket
    folder: Path
    lock: str

    def create(self, name: str) -> dict[str, Any]:
        url = f"{self.bucket.url}/{name}"
        lakelatch.create(
            url,
            record_key="id",
            partition_by="city",
            lock=self.lock,
            storage=self.bucket.options,
            unique_keys=False,
            heartbeat_interval_s=1,
            heartbeat_timeout_s=4,
        ).close()
        (self.folder / "events").mkdir(exist_ok=True)
        return {
            "url": url,
            "storage": dict(self.bucket.options),
            "jars": f"{S3A}/*",
            "events": str(self.folder / "events"),
        }

    def job(self, place: dict[str, Any], *steps: str) -> subprocess.Popen[str]:
        log = (self.folder / f"driver-{place['url'].rpartition('/')[2]}").open("w")
        given = self.folder / "place.json"
        given.write_text(json.dumps(place))
        with given.open() as told, log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_job", self.cluster.url, str(self.folder), *steps],
                cwd=ROOT,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def flag(self, name: str) -> Path:
        return self.folder / name

    def judge(self, place: dict[str, Any], steps: list[str]) -> None:
        """Every row of these writes is there once, in files that are sound, the same for every reader, and nothing else is."""
        with lakelatch.open(place["url"], storage=place["storage"]) as table:
            found = {row["id"]: row["drawn"] for row in table.read().to_pylist()}
            assert table.read().count() == len(found)
            assert found.keys() == {f"{s}-{n}" for s in steps for n in range(ROWS)}
            assert len(set(found.values())) == len(found)
            assert check(table.store, deep=True).findings == ()
        # The server keeps its objects as files, which the other reader takes for a table on a disk.
        name = place["url"].rpartition("/")[2]
        theirs = by_hudi_rs(self.folder / "objects" / "latch" / name)
        assert sorted((row["id"], row["drawn"]) for row in theirs) == sorted(found.items())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if not S3A.is_dir():
        missing("hadoop-aws is not installed; scripts/ensure_tools.sh all installs it")
    folder = tmp_path_factory.mktemp("cluster")
    with versitygw(folder) as bucket, redis_server(folder) as redis, spark_cluster(folder) as cluster:
        yield Stage(cluster, bucket, folder, redis.url)


def test_executors_that_die_and_tasks_that_run_twice_leave_each_row_once(stage: Stage) -> None:
    place = stage.create("executors")
    steps = ["dying+insert", "dying+upsert", "slow+insert"]
    job = stage.job(place, *steps)
    out, _ = job.communicate(timeout=300)
    said = (stage.folder / "driver-executors").read_text()[-3000:]
    assert job.returncode == 0, said
    assert out.split("\n")[:-1] == [f"{step} {ROWS}" for step in steps], said
    assert stage.flag("slow+insert-copy").exists()  # a second run of the slow task has begun, on the other host
    stage.judge(place, steps)
    events = b"".join(each.read_bytes() for each in stage.flag("events").rglob("*") if each.is_file())
    assert b"lakelatch" in events
    assert KEY.encode() not in events


def test_what_a_killed_driver_left_is_rolled_back_and_a_worker_that_is_gone_is_done_without(stage: Stage) -> None:
    place = stage.create("drivers")
    doomed = stage.job(place, "waiting+insert")
    until(stage.flag("waiting+insert").exists, "no task of the first driver writes")
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    stage.flag("waiting+insert-on").touch()
    until(lambda: not stage.cluster.executors(), "the executors of the killed driver go on")

    second = stage.job(place, "waiting+upsert")
    until(stage.flag("waiting+upsert").exists, "no task of the second driver writes")
    stage.cluster.workers[1].kill()
    stage.flag("waiting+upsert-on").touch()
    out, _ = second.communicate(timeout=300)
    said = (stage.folder / "driver-drivers").read_text()[-3000:]
    assert (second.returncode, out) == (0, f"waiting+upsert {ROWS}\n"), said
    with lakelatch.open(place["url"], storage=place["storage"]) as table:
        table.rollback_failed_writes()  # what the second driver found too early to be sure of
    stage.judge(place, ["waiting+upsert"])
