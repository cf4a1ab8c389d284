"""Writers on a standalone cluster, their table in S3 and their lock in Redis, while executors, workers and a driver die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.demo.cluster import Cluster, until
from lakelatch.occ.check import check

from ..jvm.readers import by_hudi_rs
from ..servers import KEY, Bucket, missing, versitygw
from ..servers.redis_server import redis_server
from ..servers.spark_cluster import S3A, spark_cluster
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

    def job(self, place: dict[str, Any], *steps: str, python: str = sys.executable) -> subprocess.Popen[str]:
        log = (self.folder / f"driver-{place['url'].rpartition('/')[2]}").open("w")
        given = self.folder / "place.json"
        given.write_text(json.dumps(place))
        with given.open() as told, log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_job", self.cluster.url, str(self.folder), *steps],
                cwd=ROOT,
                env=os.environ | {"PYSPARK_PYTHON": python},
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def done(self, place: dict[str, Any], *steps: str, **more: str) -> tuple[str, str]:
        """What a job printed, and the end of its log."""
        out, _ = self.job(place, *steps, **more).communicate(timeout=300)
        return out, self.log(place)

    def log(self, place: dict[str, Any]) -> str:
        return (self.folder / f"driver-{place['url'].rpartition('/')[2]}").read_text()[-3000:]

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


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python that has nothing but pyarrow and numpy."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in ("pyarrow", "numpy"):
        package = Path(str(find_spec(name).origin)).parent  # type: ignore[union-attr]
        for each in package.parent.glob(f"{name}*"):
            (folder / each.name).symlink_to(each)
    venv.create(tmp_path / "venv", symlinks=True)
    inside = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (inside / "packages.pth").write_text(f"{folder}\n")
    return str(tmp_path / "venv/bin/python")


def test_executors_that_die_and_tasks_that_run_twice_leave_each_row_once(stage: Stage) -> None:
    place = stage.create("executors")
    steps = ["dying+insert", "dying+upsert", "slow+insert"]
    out, said = stage.done(place, *steps)
    assert out.split("\n")[:-1] == [f"{step} {ROWS}" for step in steps], said
    assert stage.flag("slow+insert-copy").exists()  # a second run of the slow task has begun, on the other host
    stage.judge(place, steps)
    # What stays: event logs, and the logs and work folders of workers and executors.
    written = [*stage.flag("events").rglob("*"), *stage.folder.glob("worker*/**/*")]
    said = b"".join(each.read_bytes() for each in written if each.is_file())
    assert b"lakelatch-cluster" in said
    assert b"CoarseGrainedExecutorBackend" in said
    assert KEY.encode() not in said


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
    assert (second.returncode, out) == (0, f"waiting+upsert {ROWS}\n"), stage.log(place)
    with lakelatch.open(place["url"], storage=place["storage"]) as table:
        table.rollback_failed_writes()  # what the second driver found too early to be sure of
    stage.judge(place, ["waiting+upsert"])


def test_a_worker_without_the_package_says_so_and_runs_with_the_archive(stage: Stage, bare: str) -> None:
    place = stage.create("bare")
    out, said = stage.done(place, "plain+insert", python=bare)
    assert out.startswith("plain+insert ConfigError the Python of worker ")
    assert "has no module 'lakelatch'; nothing was written by this task. Install one version" in out, said
    stage.judge(place, [])

    archive = stage.folder / "worker.zip"
    run = subprocess.run(
        [sys.executable, "-m", "lakelatch.cli", "worker-zip", str(archive)], capture_output=True, text=True, check=True
    )
    settings = dict(word.split("=", 1) for word in run.stdout.split("\n")[-2].split() if "=" in word)
    out, said = stage.done(place | {"settings": settings}, "plain+insert", "plain+upsert", python=bare)
    assert out == f"plain+insert {ROWS}\nplain+upsert {ROWS}\n", said
    stage.judge(place, ["plain+insert", "plain+upsert"])
