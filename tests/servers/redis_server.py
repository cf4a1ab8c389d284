"""Real Redis servers: one, with replicas, under Sentinel, or as a cluster; each in a folder, on free ports of 127.0.0.1."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

from . import START_S_MAX, free_port, require, running, send_signal

_SMALL = ["--save", "", "--bind", "127.0.0.1", "--loglevel", "notice"]


@dataclass
class RedisServer:
    """A running redis-server. ``client`` is for the test, not for the locks."""

    folder: Path
    port: int
    options: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    password: str | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password, socket_timeout=START_S_MAX)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [require("redis-server"), "--port", str(self.port), "--dir", str(self.folder), *_SMALL, *self.options]
        with (self.folder / "server.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        until(self._answers, f"redis-server at {self.port} answers; see {self.folder}/server.log")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        send_signal(self.process.pid, number)

    def kill(self) -> None:
        """The end without notice, also of a stopped one. Twice is fine."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def redis_server(folder: Path, *options: str, password: str | None = None) -> Iterator[RedisServer]:
    """One server; ``options`` are those of its command line."""
    server = RedisServer(folder, free_port(), list(options), password=password)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def redis_cluster(folder: Path, masters: int = 3) -> Iterator[list[RedisServer]]:
    """A cluster of masters without replicas, the slots shared out evenly."""
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                redis_server(
                    folder / str(n), "--cluster-enabled", "yes", "--cluster-port", str(free_port()),
                    "--cluster-node-timeout", "20000",
                )
            )
            for n in range(masters)
        ]  # fmt: skip
        command = [require("redis-cli"), "--cluster", "create", *(f"127.0.0.1:{node.port}" for node in nodes)]
        made = subprocess.run([*command, "--cluster-yes"], capture_output=True, text=True, timeout=120)
        if made.returncode:
            pytest.fail(f"no cluster: {made.stdout[-1000:]}{made.stderr[-1000:]}")
        until(
            lambda: all(node.client.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes),
            "the cluster is whole",
        )
        yield nodes


@contextmanager
def redis_sentinel(folder: Path, master: RedisServer, service: str) -> Iterator[int]:
    """A sentinel that decides alone; yields its port."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {service} 127.0.0.1 {master.port} 1\n"
        f"sentinel down-after-milliseconds {service} 5000\nsentinel failover-timeout {service} 3000\n"
    )
    with running([require("redis-server"), str(settings), "--sentinel"], port, folder, {}):
        yield port


def replicate(master: RedisServer, replica: RedisServer, *, port: int | None = None) -> None:
    """Make one server the replica of another, reached at ``port``, and wait until it has all."""
    replica.client.replicaof("127.0.0.1", port or master.port)
    until(lambda: replica.client.info("replication")["master_link_status"] == "up", "the replica is up to date")


def until(true: Callable[[], object], what: str) -> None:
    """Poll the real state; nothing tells us."""
    give_up = time.monotonic() + START_S_MAX
    while not true():
        if time.monotonic() > give_up:
            pytest.fail(f"never came true: {what}")
        time.sleep(0.02)
