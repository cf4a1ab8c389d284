"""The lab's own servers, for locks that fail and for catalogs of peers: in a temporary folder, on a free port of 127.0.0.1."""

from __future__ import annotations

import math
import os
import pwd
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, LakeLatchError

_START_S = 180.0
_JARS = Path("/usr/share/java")  # where Debian and Ubuntu put ZooKeeper's
# Ends the server when standard input does: with `stop`, and with the lab, however that ends.
_UNTIL_INPUT_ENDS = '"$@" & server=$!; cat > /dev/null; kill -9 $server; wait $server'


@dataclass(frozen=True, slots=True)
class Kind:
    """A server program.

    Attributes:
        scheme: the scheme of its URLs.
        question, answer: bytes to send, and bytes that a ready server's reply contains.
        missing: returns what is not installed here; "" if nothing is missing.
        command: returns the command line of a server with its data in a folder, on a port.
    """

    scheme: str
    question: bytes
    answer: bytes
    missing: Callable[[], str]
    command: Callable[[Path, int], list[str]]


def _redis_missing() -> str:
    return "" if shutil.which("redis-server") else "redis-server"


def _redis(folder: Path, port: int) -> list[str]:
    # Each change is synced before the answer, so that locks and tokens survive a restart.
    kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), *kept]


def _zookeeper_missing() -> str:
    if not shutil.which("java"):
        return "java"
    return "" if (_JARS / "zookeeper.jar").exists() else f"ZooKeeper ({_JARS}/zookeeper.jar)"


def _zookeeper(folder: Path, port: int) -> list[str]:
    settings = {
        "tickTime": 500, "minSessionTimeout": 1000, "maxSessionTimeout": 60000, "maxClientCnxns": 0, "clientPort": port,
        "clientPortAddress": "127.0.0.1", "dataDir": folder / "data", "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
    }  # fmt: skip
    (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (folder / "logback.xml").write_text("<configuration/>")
    jvm = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{folder}:{_JARS}/zookeeper.jar"]
    return ["java", *jvm, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]


def _postgres_folder() -> Path | None:
    """Return the folder of its programs: on the path, or Debian's of the newest version."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max((each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)


def _postgres_missing() -> str:
    if _postgres_folder() is None:
        return "PostgreSQL (initdb)"
    if os.geteuid() == 0 and "postgres" not in {each.pw_name for each in pwd.getpwall()}:
        return "the user postgres, as which root has to run it,"
    return ""


_POSTGRES = (
    '[ -d "$1/data" ] || "$2/initdb" -D "$1/data" -U postgres -A trust -E UTF8 --locale=C --no-sync || exit 1; '
    'exec "$2/postgres" -D "$1/data" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=1100'
)


def _postgres(folder: Path, port: int) -> list[str]:
    as_user: list[str] = []
    if os.geteuid() == 0:  # it refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(folder, "postgres")
    return [*as_user, "sh", "-c", _POSTGRES, "sh", str(folder), str(_postgres_folder()), str(port)]


# The startup message for user postgres in protocol 3.0, and the reply that no password is needed.
_POSTGRES_HELLO = struct.pack("!ii", 23, 3 << 16) + b"user\0postgres\0\0"
_POSTGRES_WELCOME = b"R\0\0\0\x08\0\0\0\0"

LOCKS = ("redis", "zookeeper")  # the kinds that have locks
KINDS = {
    "postgres": Kind("postgresql", _POSTGRES_HELLO, _POSTGRES_WELCOME, _postgres_missing, _postgres),
    "redis": Kind("redis", b"PING\r\n", b"+PONG", _redis_missing, _redis),
    "zookeeper": Kind("zk", b"srvr", b"Mode: ", _zookeeper_missing, _zookeeper),
}


class Server:
    """One server and its process.

    Attributes:
        url: the URL of its locks, or of its databases.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        # It stays the same after each restart, so the system must not hand it out meanwhile: it lies below those.
        self._port = 0
        while not self._port:
            port = random.SystemRandom().randrange(15_000, 32_000)
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                self._port = port
        self.url = f"{kind.scheme}://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready a moment later."""
        command = self._kind.command(self._folder, self._port)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the lab, which ends its processes itself
            )

    def stop(self) -> None:
        """Kill it, as a power cut would. Idempotent."""
        if self._process is not None:
            self._process.communicate()  # closes its standard input, and waits
            self._process = None

    def wait_ready(self, wait_s: float = _START_S) -> None:
        """Wait until it is ready. Raises `LakeLatchError` if it does not become so."""
        give_up = time.monotonic() + wait_s
        while not self.serves():
            if time.monotonic() > give_up:
                said = (self._folder / "server.log").read_text(errors="replace").strip()[-600:]
                raise LakeLatchError(f"the lab's server {self.url} does not start: {said or 'it said nothing'}")
            time.sleep(0.05)  # a server sends no notification when it has opened its port

    def serves(self) -> bool:
        """Return whether it answers now."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1) as there:
            there.sendall(self._kind.question)
            return self._kind.answer in there.recv(1 << 12)
        return False


@contextmanager
def started(name: str) -> Iterator[Server]:
    """Yield a ready server of a kind; it is removed at the end, with all its data.

    Raises:
        ConfigError: its program is not installed.
        LakeLatchError: it does not start.
    """
    if what := missing(name):
        raise ConfigError(what)
    with tempfile.TemporaryDirectory(prefix="lakelatch-bench") as folder:
        server = Server(KINDS[name], Path(folder))
        server.start()
        try:
            server.wait_ready()
            yield server
        finally:
            server.stop()


def missing(name: str) -> str:
    """Return why there can be no server of a kind here, in a sentence; "" if there can, and for no kind."""
    what = KINDS[name].missing() if name else ""
    return f"the lab starts a server of its own, and {what} is not installed here" if what else ""


class Outages:
    """Repeated outages of a server: it is killed after it has served for some seconds, and started again a moment later.

    Attributes:
        begun: the times of the outages, in seconds of the run.
    """

    def __init__(self, server: Server, *, every_s: float, down_s: float, times: int = 0, until_s: float = 0.0) -> None:
        """Plan the outages: at most ``times``, and none after ``until_s`` seconds of the run; 0 means no limit."""
        self._server, self._every_s, self._down_s = server, every_s, down_s
        self._times, self._until_s = times or math.inf, until_s or math.inf
        self._ends_s = every_s
        self._starts_s = self._serves_after_s = math.inf  # inf unless it is awaited
        self.begun: list[float] = []

    def look(self, now_s: float) -> None:
        """Do what is due by now."""
        if self._serves_after_s <= now_s and self._server.serves():
            # Counted from readiness, so that writers have the same time to recover on a slow machine.
            self._serves_after_s, self._ends_s = math.inf, now_s + self._every_s
        if self._starts_s <= now_s:
            self._server.start()
            self._starts_s, self._serves_after_s = math.inf, now_s
        if self._ends_s <= min(now_s, self._until_s) and len(self.begun) < self._times:
            self._server.stop()
            self.begun.append(now_s)
            self._ends_s, self._starts_s = math.inf, now_s + self._down_s
