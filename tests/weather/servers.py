"""Servers on hosts: each can be killed, stopped, and started again with the disk that it had."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..servers import BUCKET, KEY, TOOLS
from .hosts import Host

_JARS = Path("/usr/share/java")
_READY_S = 60.0


class Server:
    """A program on a host, with a log beside its data."""

    def __init__(
        self, host: Host, port: int, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.host, self.port, self._command = host, port, command
        self._folder, self._environment = folder, dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait_ready` says when it accepts connections."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = self.host.start(self._command, stdout=log, stderr=log, environment=self._environment)

    def wait_ready(self) -> None:
        """Return when it accepts connections from its own host."""
        give_up = time.monotonic() + _READY_S
        while time.monotonic() < give_up:
            probe = self.host.start(
                ["bash", "-c", f"exec 3<>/dev/tcp/{self.host.address}/{self.port}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, environment={},
            )  # fmt: skip
            if probe.wait() == 0:
                return
            time.sleep(0.1)  # until it listens, of which nothing tells us
        raise TimeoutError(f"{self._command[0]} on {self.host.name} does not start; see {self._folder}/server.log")

    def signal(self, number: int) -> None:
        """Send it a signal: its process is the one that `ip netns exec` has become."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """End it without notice."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None


def redis(host: Host, folder: Path) -> Server:
    """A Redis that syncs each change before it answers."""
    folder.mkdir(parents=True)
    command = ["redis-server", "--bind", host.address, "--port", "6379", "--dir", str(folder), "--protected-mode", "no",
               "--save", "", "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip
    return Server(host, 6379, command, folder)


def zookeeper(hosts: Sequence[Host], folder: Path) -> list[Server]:
    """An ensemble, one server a host."""
    members = [f"server.{n}={host.address}:2888:3888" for n, host in enumerate(hosts, 1)]
    servers = []
    for number, host in enumerate(hosts, 1):
        own = folder / host.name
        (own / "data").mkdir(parents=True)
        (own / "data" / "myid").write_text(f"{number}\n")
        lines = ["tickTime=500", "initLimit=6", "syncLimit=4", "minSessionTimeout=1000", "maxSessionTimeout=60000",
                 "maxClientCnxns=0", "clientPort=2181", f"clientPortAddress={host.address}", f"dataDir={own / 'data'}",
                 "admin.enableServer=false", *members]  # fmt: skip
        (own / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (own / "logback.xml").write_text("<configuration/>")
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{own}:{_JARS}/zookeeper.jar",
                   "-Dzookeeper.fastleader.maxNotificationInterval=500", "-Dzookeeper.cnxTimeout=1000",
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(own / "zoo.cfg")]  # fmt: skip
        servers.append(Server(host, 2181, command, own))
    return servers


def s3(host: Host, folder: Path) -> Server:
    """An S3 server that keeps its objects as files."""
    (folder / "objects" / BUCKET).mkdir(parents=True)
    program = shutil.which("versitygw", path=os.pathsep.join([f"{TOOLS}/bin", os.environ["PATH"]])) or "versitygw"
    command = [program, "--quiet", "--port", f"{host.address}:7070", "posix", str(folder / "objects")]
    return Server(host, 7070, command, folder, {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY})
