"""Real lock servers for benchmarks.locks.floors_and_faults: those of the tests, each in a folder of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.servers import dynamodb_server, redis_server, zookeeper_server

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A place for locks, and the processes that serve them (none for a folder or memory)."""

    url: str
    folder: Path
    pids: tuple[int, ...] = ()

    def with_lease(self, lease_s: float) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}lease={lease_s:g}s"

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def cpu_s(self) -> float:
        """Used so far, on any core."""
        return sum(sum(map(int, _stat(pid)[11:13])) for pid in self.pids) * _TICK_S


@contextmanager
def memory(folder: Path) -> Iterator[str]:  # noqa: ARG001
    yield "memory://bench"


@contextmanager
def file(folder: Path) -> Iterator[str]:
    yield f"file://{folder}/locks"


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    with redis_server.redis_server(folder) as server:
        yield server.url


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    with zookeeper_server.zookeeper(folder) as node:
        yield f"zk://127.0.0.1:{node.port}/bench"


@contextmanager
def dynamodb(folder: Path) -> Iterator[str]:
    os.environ.update(dynamodb_server.CREDENTIALS)
    with dynamodb_server.dynamodb_local(folder, memory=True) as server:
        yield server.url()


@contextmanager
def s3(folder: Path) -> Iterator[str]:
    os.environ.update({"AWS_ACCESS_KEY_ID": servers.KEY, "AWS_SECRET_ACCESS_KEY": servers.KEY})
    with servers.versitygw(folder) as bucket:
        yield f"{bucket.url}/locks?endpoint={bucket.options['endpoint']}&region=us-east-1&allow_http=1"


_START: dict[str, Callable] = {
    "memory": memory, "file": file, "redis": redis, "zk": zookeeper, "dynamodb": dynamodb, "s3": s3,
}  # fmt: skip
FLOORS = {"file": "file", "redis": "redis", "zk": "zookeeper", "dynamodb": "dynamodb", "s3": "objects"}
NAMES = tuple(_START)


@contextmanager
def start(name: str, folder: Path) -> Iterator[Server]:
    """The backend's server, stopped at the end. Raises `RuntimeError` when it is not installed or does not start."""
    before = _children()
    folder.mkdir(parents=True)
    try:
        entered = _START[name](folder)
        url = entered.__enter__()
    except BaseException as e:
        if type(e).__module__ == "_pytest.outcomes":  # what the servers of the tests raise instead
            raise RuntimeError(str(e)) from None
        raise
    server = Server(url, folder, tuple(_children() - before))
    try:
        yield server
    finally:
        server.signal(signal.SIGCONT)
        entered.__exit__(None, None, None)


def _children() -> set[int]:
    return {int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _stat(int(p.name))[1:2] == [ME]}


ME = str(os.getpid())


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold spaces; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
