"""The servers of the demonstration on a cluster: an S3 server, Redis, and a Spark standalone cluster of two hosts.

All are processes of this machine; the hosts are two addresses of its loopback network. They end with their blocks.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..errors import ConfigError

HOSTS = ("127.0.0.1", "127.0.0.2")
BUCKET = "latch"
_KEY = "demodemo"  # of a server that nobody else reaches, for a minute
_START_S_MAX = 180.0  # a machine that others use
_END_S_MAX = 20.0
_claims: list[socket.socket] = []  # of ports, until this process ends


@dataclass(frozen=True)
class Cluster:
    """``workers`` are the daemons that start executors, one on each host."""

    url: str
    workers: list[subprocess.Popen[bytes]]

    def executors(self, application: str = "") -> list[int]:
        """Return the process ids of executors: of one application, by Spark's id, or of all."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has just ended
                said = place.read_bytes().decode(errors="replace").split("\0")
                if "--worker-url" not in said or "--app-id" not in said:
                    continue
                worker = said[said.index("--worker-url") + 1]
                mine = any(f"@{at}" in worker for at in self._addresses)
                if mine and application in ("", said[said.index("--app-id") + 1]):
                    found.append(int(place.parent.name))
        return found

    @property
    def _addresses(self) -> list[str]:
        words = [[str(each) for each in worker.args] for worker in self.workers if isinstance(worker.args, list)]
        return [f"{each[each.index('--host') + 1]}:{each[each.index('--port') + 1]}" for each in words]


@contextmanager
def spark_cluster(
    folder: Path,
    *,
    cores: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Run a master and a worker on each of `HOSTS`, from PySpark's own jars; their logs and work folders are in ``folder``.

    Args:
        cores: of each worker, as far as Spark knows.
        environment: of all; executors inherit it.

    Raises:
        ConfigError: PySpark or Java is missing, or a process does not start.
    """
    java, spark = java_or_refuse(), find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ConfigError("the demo's cluster needs PySpark: pip install 'lakelatch[demo]'")
    home = Path(spark.origin).parent
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # else its launcher looks for a build of Spark to tell
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOG_DIR": str(folder),
        **(environment or {}),
    }
    run = [java, "-cp", f"{home}/jars/*", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    with ExitStack() as stack:
        at = free_port()
        master = [*run, "org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(at)]
        master += ["--webui-port", str(free_port())]
        stack.enter_context(running(master, folder / "master.log", variables, lambda: accepts(at)))
        workers = []
        for number, host in enumerate(HOSTS):
            work = folder / f"worker{number}"
            work.mkdir()
            worker = [*run, "org.apache.spark.deploy.worker.Worker", "--host", host, "--port", str(free_port())]
            worker += ["--webui-port", str(free_port()), "--cores", str(cores), "--memory", f"{cores}g"]
            worker += ["--work-dir", str(work), f"spark://{HOSTS[0]}:{at}"]
            workers.append(stack.enter_context(running(worker, work / "log", variables, lambda: True)))
        yield Cluster(f"spark://{HOSTS[0]}:{at}", workers)


@contextmanager
def s3_server(folder: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """Run an S3 server. Yield the URL of a bucket, the options of its store, and the folder in which its objects are files."""
    program, port, objects = _found("versitygw", "an S3 server"), free_port(), folder / "objects"
    (objects / BUCKET).mkdir(parents=True)  # a folder is a bucket
    command = [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(objects)]
    keys = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _KEY}
    with running(command, folder / "s3.log", keys, lambda: accepts(port)):
        options = {"access_key_id": _KEY, "secret_access_key": _KEY, "region": "us-east-1", "allow_http": "true"}
        yield f"s3://{BUCKET}", {"endpoint": f"http://127.0.0.1:{port}", **options}, objects / BUCKET


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis server. Yield the URL of its locks."""
    port = free_port()
    command = [_found("redis-server", "the lock's server"), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--dir", str(folder), "--save", ""]
    with running(command, folder / "redis.log", {}, lambda: accepts(port)):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str], ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process. Yield it once it is ready; it ends with the block. Raises `ConfigError` when it does not start."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: ready() or process.poll() is not None, f"{command[0]} does not start; see {log}")
        if process.poll() is not None:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise ConfigError(f"{command[0]} ended with {process.returncode} instead of starting:\n{said}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true: Callable[[], object], what: str, give_up_s: float = _START_S_MAX) -> None:
    """Wait for something of another process, of which nothing tells. Raises `ConfigError`, which says ``what``."""
    end = time.monotonic() + give_up_s
    while not true():
        if time.monotonic() > end:
            raise ConfigError(what)
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of the loopback network for this process's servers, which may end there and start again.

    One that the system picks it may pick for another process before a server has it. So it lies below those, and on Linux
    a name that ends with this process keeps it from other processes that ask here.
    """
    while True:
        claim, port = socket.socket(socket.AF_UNIX), random.SystemRandom().randrange(15_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            if sys.platform == "linux":
                claim.bind(f"\0lakelatch-port-{port}")
            probe.bind(("127.0.0.1", port))
            _claims.append(claim)
            return port
        claim.close()


def accepts(port: int) -> bool:
    """Return whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def java_or_refuse() -> str:
    """Return the Java that Spark would start. Raises `ConfigError` when it could not."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', said)
    except OSError:
        version = None
    if version is None or int(version[1]) < 17:
        raise ConfigError(
            f"the demo's Spark writers need Java 17 or newer, and {java} is {version[1] if version else 'not there'}: "
            "`apt-get install openjdk-17-jre-headless` on Debian and Ubuntu, or point JAVA_HOME at one"
        )
    return java


def _found(program: str, what: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ConfigError(
            f"the demo on a cluster needs {program}, {what}, which is not on the PATH: `make demo-cluster` in the source "
            "tree installs it"
        )
    return found
