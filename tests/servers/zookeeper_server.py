"""ZooKeeper servers: one, or an ensemble of three whose members can be cut off from each other and from clients."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from . import START_S_MAX, free_port, missing, require, send_signal

JARS = Path("/usr/share/java")  # where Debian puts them
# A message that was lost in an election is sent again after up to a minute unless told otherwise.
_ELECT_QUICKLY = ("-Dzookeeper.fastleader.maxNotificationInterval=500", "-Dzookeeper.cnxTimeout=1000")
HANGS_S = 20.0  # elections take up to 12 s
TICK_MS = 500  # sessions of 1 s and more, so that tests of their end are quick


def require_zookeeper() -> str:
    """The path of java, or the end of this test with the reason."""
    if not (JARS / "zookeeper.jar").exists():
        missing("ZooKeeper is not installed; scripts/ensure_tools.sh all installs it")
    return require("java")


class Node:
    """One server. ``settings`` are further lines of its zoo.cfg."""

    def __init__(self, folder: Path, *, settings: tuple[str, ...] = (), number: int = 0) -> None:
        self._java = require_zookeeper()
        self.port = free_port()
        self.number = number
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self.configure()

    def configure(self, *more: str) -> None:
        """Write zoo.cfg; further lines are those of this call.

        A server that hears of a leader which is cut off by now waits initLimit for it, often several times in a row:
        20 ticks made elections of up to a minute out of that, 6 make 5 s (12 s at worst in 75).
        """
        lines = [
            f"tickTime={TICK_MS}", "initLimit=6", "syncLimit=4", "minSessionTimeout=1000", "maxSessionTimeout=60000",
            "maxClientCnxns=0", f"clientPort={self.port}", "clientPortAddress=127.0.0.1",
            f"dataDir={self.folder / 'data'}", "admin.enableServer=false", "4lw.commands.whitelist=ruok,srvr,mntr",
            *self._settings, *more,
        ]  # fmt: skip
        (self.folder / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (self.folder / "logback.xml").write_text("<configuration/>")

    def start(self) -> None:
        """Start the process; `wait_ready` says when it serves."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        names = ("zookeeper", "netty-codec", "netty-resolver")  # the last two for TLS
        jars = ":".join(map(str, [self.folder, *(JARS / f"{name}.jar" for name in names)]))
        command = [
            self._java, "-Xmx256m", "-cp", jars, *_ELECT_QUICKLY,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.folder / "zoo.cfg"),
        ]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def wait_ready(self) -> str:
        """What the server is, once it serves: standalone, leader or follower."""
        if mode := self.serves(START_S_MAX):
            return mode
        pytest.fail(f"ZooKeeper does not start:\n{(self.folder / 'server.log').read_text()[-3000:]}")

    def serves(self, wait_s: float) -> str:
        """The same, or "" when it has ended, or does not serve within that time."""
        give_up = time.monotonic() + wait_s
        while not (mode := self.mode()) and self.runs() and time.monotonic() < give_up:
            time.sleep(0.05)  # until the server has opened its port, of which nothing tells us
        return mode

    def mode(self) -> str:
        """What the server says of itself, or "" when it does not serve."""
        for line in self.command("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def command(self, word: str) -> str:
        """The answer to a four-letter command."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as sock:
            sock.sendall(word.encode())
            return b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
        return ""

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        assert self._process is not None
        send_signal(self._process.pid, number)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self.kill()

    def wipe(self) -> None:
        """Forget everything, as a server that was built again."""
        shutil.rmtree(self.folder / "data")


@contextmanager
def zookeeper(folder: Path, *settings: str) -> Iterator[Node]:
    """A single server."""
    node = Node(folder, settings=settings)
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.stop()


class Relay:
    """A TCP relay. Silenced, it takes connections and bytes and passes none on, as a cut cable does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._silent = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._silent.set()

    def heal(self) -> None:
        """Connections that lost bytes are closed; new ones work."""
        if self._silent.is_set():
            self._silent.clear()
            self.reset()

    def reset(self) -> None:
        """Close all present connections."""
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.reset()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                self._open.add(near)
                threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        if self._silent.is_set():
            self._copy(near, near)
            return
        # A server that has just been elected opens its port a moment later; one whose connection was taken and then
        # closed would start another election instead of trying again.
        give_up = time.monotonic() + 2
        while time.monotonic() < give_up:
            with suppress(OSError):
                far = socket.create_connection(("127.0.0.1", self._target))
                break
            time.sleep(0.02)  # until the port is open, of which nothing tells us
        else:
            near.close()
            self._open.discard(near)
            return
        self._open.add(far)
        threading.Thread(target=self._copy, args=(far, near), daemon=True).start()
        self._copy(near, far)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while body := source.recv(1 << 16):
                if not self._silent.is_set() and sink is not source:
                    sink.sendall(body)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            self._open.discard(each)


class Ensemble:
    """Three servers; every connection between two of them, and of clients to them, goes through a relay."""

    def __init__(self, folder: Path) -> None:
        self._closing = ExitStack()
        self.nodes = [Node(folder / str(i), number=i) for i in (1, 2, 3)]
        peers = [(free_port(), free_port()) for _ in self.nodes]
        self._links: dict[tuple[int, int], list[Relay]] = {}
        self.doors = [self._relay(node.port) for node in self.nodes]
        for i, node in enumerate(self.nodes):
            lines = []
            for j, ports in enumerate(peers):
                if i != j:
                    # An answered election connection may be made again without the relay; the one to the leader, over
                    # which all data goes, never is.
                    self._links[i, j] = [self._relay(port) for port in ports]
                    ports = tuple(link.port for link in self._links[i, j])
                lines.append(f"server.{j + 1}=127.0.0.1:{ports[0]}:{ports[1]}")
            node.configure(*lines)

    def _relay(self, port: int) -> Relay:
        relay = Relay(port)
        self._closing.callback(relay.close)
        return relay

    @property
    def hosts(self) -> str:
        """The addresses for clients."""
        return ",".join(f"127.0.0.1:{door.port}" for door in self.doors)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.mend()

    def leader(self) -> int:
        """The place of the leader in ``nodes``, once there is one."""
        give_up = time.monotonic() + START_S_MAX
        while time.monotonic() < give_up:
            for i, node in enumerate(self.nodes):
                if node.mode() == "leader":
                    return i
            time.sleep(0.05)  # an election goes on, of which nothing tells us
        pytest.fail("the ensemble elects no leader")

    def isolate(self, i: int) -> None:
        """Cut server ``i`` off from the others; clients still reach it."""
        for (a, b), links in self._links.items():
            if i in (a, b):
                for link in links:
                    link.silence()

    def heal(self) -> None:
        for links in self._links.values():
            for link in links:
                link.heal()
        for door in self.doors:
            door.heal()

    def restart_leader(self) -> None:
        """Have another leader elected; the old one comes back as a follower."""
        self.nodes[self.leader()].kill()
        self.leader()
        self.mend()

    def mend(self) -> None:
        """All servers run and serve, and every line is whole.

        Seldom an election leaves one hanging for minutes, alive and at no service; that one is started again.
        """
        self.heal()
        for node in self.nodes:
            if not node.runs():
                node.start()
        self.unhang(self.nodes)
        for node in self.nodes:
            node.wait_ready()

    def unhang(self, nodes: Iterable[Node]) -> None:
        """Start again those of them that do not serve within the time that any election takes, or in three times that."""
        for node in nodes:
            for patience in (1, 2, 3):
                if node.serves(patience * HANGS_S):
                    break
                node.kill()
                node.start()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self._closing.close()


@contextmanager
def ensemble(folder: Path) -> Iterator[Ensemble]:
    """Three servers that have elected a leader."""
    made = Ensemble(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def java_class_path() -> str:
    """Curator and what it needs, for a JVM that contends with us."""
    names = (
        "curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api",
        "failureaccess",
    )  # fmt: skip
    if not (JARS / "curator-recipes.jar").exists():
        missing("Curator is not installed; scripts/ensure_tools.sh all installs it")
    return os.pathsep.join(str(JARS / f"{name}.jar") for name in names)
