"""Servers on hosts: each can be killed, stopped, and started again with the disk that it had or an empty one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..servers import BUCKET, KEY, TOOLS
from .hosts import Host

_JARS = Path("/usr/share/java")
_READY_S = 60.0
REGION, SERVICE, COORDINATED = "eu-west-1", "locks", 8047


class Proxy:
    """A proxy on the server's host, at the port that its clients know (`tests.weather.proxy`)."""

    def __init__(self, host: Host, port: int, target: str, speech: str, folder: Path) -> None:
        self.speech, self.target = speech, target
        self.host, self._control, self._folder = host, folder / "ill.json", folder
        self._control.write_text("")
        self._command = [sys.executable, "-m", "tests.weather.proxy", f"{host.address}:{port}", target,
                         str(self._control), speech]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "proxy.log").open("ab") as log:
            self._process = self.host.start(
                self._command, stdout=log, stderr=log, environment={"PYTHONPATH": os.getcwd()}
            )

    def befall(self, ill: str, share: float) -> None:
        """Let this happen to a share of the requests; "" ends it."""
        self._control.write_text(json.dumps({"ill": ill, "share": share}) if ill else "")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Server:
    """A program on a host, with a log beside its data.

    Args:
        port: the one that clients know.
        data: what it keeps on its disk, if it can do without it.
    """

    def __init__(
        self, host: Host, port: int, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None,
        *, proxy: Proxy | None = None, data: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        self.host, self.port, self.proxy, self.command = host, port, proxy, command
        self._folder, self._environment, self._data = folder, dict(environment or {}), data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait_ready` says when it accepts connections."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = self.host.start(self.command, stdout=log, stderr=log, environment=self._environment)
        if self.proxy is not None:
            self.proxy.start()

    def wait_ready(self) -> None:
        """Return when it accepts connections from its own host."""
        place = self.proxy.target if self.proxy is not None else f"{self.host.address}:{self.port}"
        give_up = time.monotonic() + _READY_S
        while time.monotonic() < give_up:
            probe = self.host.start(
                ["bash", "-c", f"exec 3<>/dev/tcp/{place.replace(':', '/')}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, environment={},
            )  # fmt: skip
            if probe.wait() == 0:
                return
            time.sleep(0.1)  # until it listens, of which nothing tells us
        raise TimeoutError(f"{self.command[0]} on {self.host.name} does not start; see {self._folder}/server.log")

    @property
    def pid(self) -> int | None:
        """Its process: the one that `ip netns exec` has become."""
        return self._process.pid if self._process is not None else None

    def signal(self, number: int) -> None:
        """Send it a signal."""
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
        if self.proxy is not None:
            self.proxy.kill()

    def restart(self) -> None:
        """Start one that was killed; returns when it accepts connections: until then it is not healed."""
        self.start()
        self.wait_ready()

    def revive(self) -> None:
        """Start it again if it has ended by itself, as an init system does."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
            self.start()

    def forget(self) -> None:
        """Empty the disk of one that was killed."""
        for each in self._data:
            shutil.rmtree(each)
            each.mkdir()

    @property
    def forgets(self) -> bool:
        """True if it may be started with an empty disk."""
        return bool(self._data)


def _redis(host: Host, folder: Path, *lines: str, port: int = 6379, **options: object) -> Server:
    (folder / "data").mkdir(parents=True)
    settings = folder / "redis.conf"  # a file: Sentinel has servers write there what they have become
    settings.write_text("\n".join([
        f"bind {host.address}", f"port {port}", f"dir {folder / 'data'}", "protected-mode no", 'save ""', "appendonly yes",
        "appendfsync always", *lines,
    ]) + "\n")  # fmt: skip
    return Server(host, 6379, ["redis-server", str(settings)], folder, **options)  # type: ignore[arg-type]


def redis(host: Host, folder: Path) -> Server:
    """A Redis that syncs each change before it answers, behind a proxy."""
    folder.mkdir(parents=True)
    proxy = Proxy(host, 6379, f"{host.address}:6380", "tcp", folder)
    return _redis(host, folder, port=6380, proxy=proxy, data=[folder / "data"])


def sentinel(hosts: Sequence[Host], folder: Path) -> list[Server]:
    """A master with replicas, and a sentinel on the host of each; two of three decide."""
    found, master = [], hosts[0].address
    for number, host in enumerate(hosts):
        replica = [f"replicaof {master} 6379"] if number else []
        found.append(_redis(host, folder / host.name, *replica))
        own = folder / f"{host.name}-sentinel"
        own.mkdir(parents=True)
        (own / "sentinel.conf").write_text(
            f"bind {host.address}\nport 26379\ndir {own}\nprotected-mode no\n"
            f"sentinel monitor {SERVICE} {master} 6379 2\nsentinel down-after-milliseconds {SERVICE} 1000\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )
        found.append(Server(host, 26379, ["redis-server", str(own / "sentinel.conf"), "--sentinel"], own))
    return found


def redis_cluster(hosts: Sequence[Host], folder: Path) -> list[Server]:
    """Three masters, and for each a replica; `redis_cluster_made` makes a cluster of them."""
    return [
        _redis(
            host,
            folder / host.name,
            "cluster-enabled yes",
            "cluster-node-timeout 2000",
            "cluster-require-full-coverage no",
        )
        for host in hosts
    ]


def redis_cluster_made(home: Host, members: Sequence[Server]) -> None:
    """Make the cluster; returns when it serves."""
    places = [f"{each.host.address}:6379" for each in members]
    for command in (
        ["redis-cli", "--cluster", "create", *places, "--cluster-replicas", "1", "--cluster-yes"],
        [
            "bash",
            "-c",
            f"until redis-cli -h {members[0].host.address} cluster info | grep -q state:ok; do sleep 0.2; done",
        ],
    ):
        made = home.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, environment={})
        told, _ = made.communicate(timeout=_READY_S)
        if made.returncode:
            raise RuntimeError(f"no cluster: {told.decode()[-1000:]}")


def dynamodb(host: Host, folder: Path) -> Server:
    """Amazon's emulator, which listens on its own host alone, behind a proxy."""
    (folder / "data").mkdir(parents=True)
    home = TOOLS / "dynamodb" / "LoopbackDynamo"
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.library.path={home}/lib", "-cp",
               f"{home}/classes:{home}/lib/*", "LoopbackDynamo", "-dbPath", str(folder / "data"), "-port", "8001",
               "-disableTelemetry"]  # fmt: skip
    proxy = Proxy(host, 8000, "127.0.0.1:8001", "dynamodb", folder)
    return Server(host, 8000, command, folder, proxy=proxy, data=[folder / "data"])


def coordinator(host: Host, folder: Path, urls: Sequence[str], environment: Mapping[str, str]) -> Server:
    """`lakelatch server --coordinate` of some tables; ``token`` below its folder is its token's file."""
    folder.mkdir(parents=True)
    (folder / "token").write_text("in-any-weather-0123456789\n")
    named = [each for url in urls for each in ("--table", url)]
    command = [str(Path(sys.executable).with_name("lakelatch")), "server", *named, "--host", host.address, "--port",
               str(COORDINATED), "--token-file", str(folder / "token"), "--plain-http", "--coordinate"]  # fmt: skip
    return Server(host, COORDINATED, command, folder, environment)


def zookeeper(hosts: Sequence[Host], folder: Path) -> list[Server]:
    """An ensemble, one server a host."""
    members = [f"server.{n}={host.address}:2888:3888" for n, host in enumerate(hosts, 1)]
    servers = []
    for number, host in enumerate(hosts, 1):
        own = folder / host.name
        (own / "data" / "version-2").mkdir(parents=True)
        (own / "data" / "myid").write_text(f"{number}\n")
        proxy = Proxy(host, 2181, f"{host.address}:2182", "tcp", own)
        lines = ["tickTime=500", "initLimit=6", "syncLimit=4", "minSessionTimeout=1000", "maxSessionTimeout=60000",
                 "maxClientCnxns=0", "clientPort=2182", f"clientPortAddress={host.address}", f"dataDir={own / 'data'}",
                 "admin.enableServer=false", *members]  # fmt: skip
        (own / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (own / "logback.xml").write_text("<configuration/>")
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{own}:{_JARS}/zookeeper.jar",
                   "-Dzookeeper.fastleader.maxNotificationInterval=500", "-Dzookeeper.cnxTimeout=1000",
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(own / "zoo.cfg")]  # fmt: skip
        servers.append(Server(host, 2181, command, own, proxy=proxy, data=[own / "data" / "version-2"]))
    return servers


def s3(host: Host, folder: Path, objects: Path) -> Server:
    """An S3 server that keeps its ``objects`` as files, behind a proxy."""
    folder.mkdir(parents=True)
    (objects / BUCKET).mkdir(parents=True)
    program = shutil.which("versitygw", path=os.pathsep.join([f"{TOOLS}/bin", os.environ["PATH"]])) or "versitygw"
    command = [program, "--quiet", "--port", f"{host.address}:7071", "posix", str(objects)]
    credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY}
    proxy = Proxy(host, 7070, f"{host.address}:7071", "s3", folder)
    return Server(host, 7070, command, folder, credentials, proxy=proxy)
