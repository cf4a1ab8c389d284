"""Writers on a standalone cluster, their table in S3 and their lock in Redis, while what they run on dies or goes wrong."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import lakelatch
from lakelatch.cli.worker_zip import FOLDER
from lakelatch.demo.cluster import Cluster, until
from lakelatch.testing.contention import PATIENCE_S

from ..jvm.readers import by_hudi_rs
from ..servers import BUCKET, KEY, Bucket, missing, versitygw
from ..servers.redis_server import redis_server
from ..servers.short_keys import SECRET, short_keys
from ..servers.spark_cluster import S3A, WITH_S3A, spark_cluster
from .cluster_job import ROWS
from .driver import swept

ROOT = Path(__file__).parents[2]
KEYS = (KEY.encode(), SECRET.encode())
FAKETIME = [str(each) for each in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]


@dataclass
class Stage:
    cluster: Cluster
    bucket: Bucket
    folder: Path
    lock: str

    def create(
        self, name: str, bucket: Bucket | None = None, storage: dict[str, str] | None = None, folder: Path | None = None
    ) -> dict[str, Any]:
        """A table, in another bucket where one is given, whose server has its files in ``folder``."""
        url = f"{(bucket or self.bucket).url}/{name}"
        storage = dict(storage or self.bucket.options)
        lakelatch.create(
            url,
            record_key="id",
            partition_by="city",
            lock=self.lock,
            storage=storage,
            unique_keys=False,
            heartbeat_interval_s=1,
            heartbeat_timeout_s=4,
        ).close()
        (self.folder / "events").mkdir(exist_ok=True)
        return {
            "url": url,
            "storage": storage,
            "files": str((folder or self.folder) / "objects" / BUCKET / name),
            "events": str(self.folder / "events"),
        }

    def job(
        self,
        place: dict[str, Any],
        *steps: str,
        python: str = sys.executable,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[str]:
        log = (self.folder / f"driver-{place['url'].rpartition('/')[2]}").open("w")
        given = self.folder / "place.json"
        given.write_text(json.dumps(place))
        with given.open() as told, log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_job", self.cluster.url, str(self.folder), *steps],
                cwd=ROOT,
                env=os.environ | WITH_S3A | {"PYSPARK_PYTHON": python} | environment,
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def done(self, place: dict[str, Any], *steps: str, **more: Any) -> tuple[str, str]:
        """What a job printed, and the end of its log."""
        out, _ = self.job(place, *steps, **more).communicate(timeout=500)
        return out, self.log(place)

    def log(self, place: dict[str, Any]) -> str:
        return (self.folder / f"driver-{place['url'].rpartition('/')[2]}").read_text()[-3000:]

    def flag(self, name: str) -> Path:
        return self.folder / name

    def judge(self, place: dict[str, Any], steps: list[str]) -> None:
        """Every row of these writes is there once, in files that are sound, the same for every reader, and nothing else is."""
        until(lambda: not self.cluster.executors(), "the executors of the job go on")
        with lakelatch.open(place["url"], storage=place["storage"]) as table:
            found = {row["id"]: row["drawn"] for row in table.read().to_pylist()}
            assert table.read().count() == len(found)
            assert found.keys() == {f"{s}-{n}" for s in steps for n in range(ROWS)}
            assert len(set(found.values())) == len(found)
            swept(table)
        if steps:  # the other reader takes no table without rows; the server keeps its objects as files
            theirs = by_hudi_rs(Path(place["files"]))
            assert sorted((row["id"], row["drawn"]) for row in theirs) == sorted(found.items())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if not S3A.is_dir():
        missing("hadoop-aws is not installed; scripts/ensure_tools.sh all installs it")
    folder = tmp_path_factory.mktemp("cluster")
    with (
        versitygw(folder) as bucket,
        redis_server(folder) as redis,
        spark_cluster(folder) as cluster,
    ):
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


@pytest.mark.thorough
def test_a_worker_without_the_package_says_so_and_runs_with_the_archive(stage: Stage, bare: str) -> None:
    place = stage.create("bare")
    out, said = stage.done(place, "plain+insert", python=bare)
    assert out.startswith(f"plain+insert ConfigError {place['url']}: the Python of worker ")
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


@pytest.mark.thorough
def test_keys_that_are_wrong_on_the_workers_alone_are_told_as_theirs(stage: Stage, tmp_path: Path) -> None:
    """The driver finds its keys in its environment, the executors others in theirs: of an unknown user, and a wrong secret.

    This server tells an unknown user that objects are not there.
    """
    right = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    place = stage.create("wrong-keys")
    bare = place | {"storage": {k: v for k, v in place["storage"].items() if "key" not in k}, "events": str(tmp_path)}
    for wrong, error, worker in (
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "ConfigError", "does not find what the driver does"),
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "StorageError", "and the driver reaches the table"),
    ):
        settings = {f"spark.executorEnv.{name}": value for name, value in (right | wrong).items()}
        out, said = stage.done(bare | {"settings": settings}, "plain+insert", environment=right)
        assert out.startswith(f"plain+insert {error} "), out + said
        assert f"worker {platform.node()}" in out
        assert worker in out
        assert "Give keys to `open(storage=...)`" in out
    with lakelatch.open(place["url"], storage=place["storage"]) as table:
        table.rollback_failed_writes()
        assert table.session.log.catch_up().open == {}
    stage.judge(place, [])


@dataclass
class Mischief:
    """A job whose steps each stop while they write, so that something can happen to them."""

    stage: Stage
    job: subprocess.Popen[str]

    @contextmanager
    def during(self, step: str) -> Iterator[None]:
        """What the block does happens after the first task of the step has begun to write, and before it goes on."""
        until(self.stage.flag(step).exists, f"no task of {step} writes", 200)
        yield
        self.stage.flag(f"{step}-on").touch()

    def line(self) -> str:
        assert self.job.stdout is not None
        return self.job.stdout.readline().strip()


def limit(pids: list[int], size: int) -> None:
    """Files of these processes, and of those that they start, may be so long: their disk is full."""
    for pid in pids:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def below(pids: list[int]) -> list[int]:
    """The processes that these have started, and theirs."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) in pids:
                found.append(int(place.parent.name))
    return [*found, *below(found)] if found else []


@pytest.mark.thorough
def test_what_goes_wrong_while_a_job_writes_is_told_in_a_sentence_and_leaves_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    """One job: its keys expire, its bucket vanishes, its hosts' disks are full, the workers' clocks are an hour ahead."""
    if not FAKETIME:
        missing("faketime is not installed; scripts/ensure_tools.sh all installs it")
    steps = ["keys+insert", "gone+insert", "disk+insert", "shuffle+upsert", "clock+insert"]
    with versitygw(tmp_path, users=True) as bucket, short_keys(bucket, tmp_path) as keys:
        place = stage.create("mischief", bucket, keys.options, tmp_path)
        clock, python = tmp_path / "clock", tmp_path / "python"
        clock.write_text("+0")
        python.write_text(
            f"#!/bin/sh\nexport LD_PRELOAD={FAKETIME[0]} FAKETIME_NO_CACHE=1 FAKETIME_TIMESTAMP_FILE={clock}\n"
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        job = Mischief(stage, stage.job(place, *steps, python=str(python)))

        with job.during("keys+insert"):
            keys.replace()
        assert job.line() == f"keys+insert {ROWS}", stage.log(place)

        objects, away = tmp_path / "objects" / BUCKET, tmp_path / "away"
        with job.during("gone+insert"):
            objects.rename(away)
        told = job.line()
        away.rename(objects)
        assert told.startswith("gone+insert StorageError "), told
        assert "NoSuchBucket" in told

        with job.during("disk+insert"):
            executors = stage.cluster.executors()
            workers = below(executors)
            assert workers
            limit(workers, 16)
        told = job.line()
        limit(workers, resource.RLIM_INFINITY)
        assert told.startswith("disk+insert StorageError "), told
        assert "File too large" in told

        with job.during("shuffle+upsert"):
            executors = stage.cluster.executors()
            limit(executors, 16)
        told = job.line()
        limit(executors, resource.RLIM_INFINITY)
        assert told.startswith("shuffle+upsert "), told
        assert "File too large" in told

        with job.during("clock+insert"):
            clock.write_text("+1h")
        told = job.line()
        assert told.startswith("clock+insert StorageError "), told
        assert "the clock of" in told  # a HEAD is refused without a reason, all else with RequestTimeTooSkewed
        assert job.job.wait(PATIENCE_S) == 0
        with lakelatch.open(place["url"], storage=place["storage"]) as table:
            table.rollback_failed_writes(wait=True)  # of the time when there was no bucket
        stage.judge(place, steps[:1])


@pytest.mark.thorough
def test_each_row_is_there_once_whatever_dies_and_whatever_runs_twice(stage: Stage) -> None:
    """One job: an executor dies while rows are shuffled, a slow task gets a copy, a worker dies. `make demo-cluster` has more."""
    place = stage.create("dying")
    steps = ["dying+upsert", "slow+insert", "waiting+insert"]
    job = Mischief(stage, stage.job(place, *steps))
    assert job.line() == f"dying+upsert {ROWS}", stage.log(place)
    assert stage.flag("dying+upsert").exists()
    assert job.line() == f"slow+insert {ROWS}", stage.log(place)
    assert stage.flag("slow+insert-copy").exists()  # a second run of the slow task has begun, on the other host
    with job.during("waiting+insert"):
        stage.cluster.workers[1].kill()
    assert job.line() == f"waiting+insert {ROWS}", stage.log(place)
    assert job.job.wait(PATIENCE_S) == 0
    stage.judge(place, steps)
    # What stays: event logs, and the logs and work folders of workers and executors. The package itself was unpacked there.
    written = [*stage.flag("events").rglob("*"), *stage.folder.glob("worker*/**/*")]
    written = [each for each in written if FOLDER not in each.parts]
    said = b"".join(each.read_bytes() for each in written if each.is_file())
    assert b"lakelatch-cluster" in said
    assert b"CoarseGrainedExecutorBackend" in said
    assert not [each for each in written if each.is_file() and any(key in each.read_bytes() for key in KEYS)]
