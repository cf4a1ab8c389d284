"""A Spark standalone cluster from PySpark's own jars: a master and workers on two addresses of the loopback network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import TOOLS, free_port, running

S3A = TOOLS / "s3a" / "jars"


@dataclass
class Cluster:
    """``workers`` are the daemons that start executors, one on each host."""

    url: str
    folder: Path
    workers: list[subprocess.Popen]

    def executors(self) -> list[int]:
        """Process ids of what runs tasks."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                said = place.read_bytes()
                if b"CoarseGrainedExecutorBackend" in said and self.url.removeprefix("spark://").encode() in said:
                    found.append(int(place.parent.name))
        return found


@contextmanager
def spark_cluster(folder: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.2")) -> Iterator[Cluster]:
    """Ends with all of its processes."""
    pyspark = pytest.importorskip("pyspark")
    java = shutil.which("java")
    if java is None:
        pytest.skip("Java 17 is missing")
    home = Path(pyspark.__file__).parent
    port, page = free_port(), free_port()
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # else its launcher looks for a build of Spark to tell
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOG_DIR": str(folder),
        # What a worker imports: the package is installed in this environment, the tests are not.
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    run = [java, "-cp", f"{home}/jars/*", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    master = [*run, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    with ExitStack() as all_of_it:
        all_of_it.enter_context(running([*master, "--webui-port", str(page)], port, folder, environment))
        workers = []
        for number, host in enumerate(hosts):
            work = folder / f"worker{number}"
            work.mkdir()
            at = free_port()
            worker = [*run, "org.apache.spark.deploy.worker.Worker", "--host", host, "--port", str(at)]
            worker += ["--webui-port", str(free_port()), "--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            log = (work / "log").open("wb")
            all_of_it.callback(log.close)
            process = subprocess.Popen(
                [*worker, f"spark://127.0.0.1:{port}"], env=os.environ | environment, stdout=log, stderr=log
            )
            all_of_it.callback(_end, process)
            workers.append(process)
        yield Cluster(f"spark://127.0.0.1:{port}", folder, workers)


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(true: object, what: str, give_up_s: float = 60.0) -> None:
    """Wait for something of another process, of which nothing tells."""
    end = time.monotonic() + give_up_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.05)
