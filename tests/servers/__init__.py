"""Real servers for tests: each is started on a free port of 127.0.0.1 and stopped at the end of its block.

`scripts/ensure_tools.sh all` puts their programs below .cache/tools. A missing one skips its tests with the reason,
or fails them where CI=true, so that a green run there means that they ran.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from lakelatch.demo.cluster import accepts, free_port
from lakelatch.storage import Store, open_store

TOOLS = Path(__file__).parents[2] / ".cache" / "tools"
START_S_MAX = 120  # Azurite needs two seconds, or ten on a busy machine
BUCKET = "latch"
KEY = "latchlatch"
AZURE_ACCOUNT = "devstoreaccount1"  # Azurite's, published with its key in Microsoft's documentation
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def send_signal(pid: int, number: int) -> None:
    """Returns from a SIGSTOP when every thread has stopped (Linux tells): one that still runs may answer the next request."""
    os.kill(pid, number)
    give_up = time.monotonic() + START_S_MAX
    while number == signal.SIGSTOP and _runs(pid) and time.monotonic() < give_up:
        time.sleep(0.001)  # of which nothing tells us


def _runs(pid: int) -> bool:
    """Whether a thread of the process is not stopped; False where there is no /proc."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # that thread has just ended
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return True
    return False


@dataclass(frozen=True)
class Bucket:
    """A bucket on a running server: its URL and the options that `open_store` needs to reach it."""

    url: str
    port: int
    options: dict[str, str] = field(repr=False)

    def store(self, folder: str = "", *, port: int | None = None, **options: str) -> Store:
        endpoint = self.options["endpoint"].replace(f":{self.port}", f":{port or self.port}")
        return open_store(f"{self.url}/{folder}", **(self.options | {"endpoint": endpoint} | options))


def find(program: str) -> str | None:
    """The path of the program; None where it is not installed."""
    return shutil.which(
        program, path=os.pathsep.join([f"{TOOLS}/bin", f"{TOOLS}/node_modules/.bin", os.environ["PATH"]])
    )


def require(program: str) -> str:
    """The path of the program, or the end of this test with the reason."""
    found = find(program)
    if found is None:
        missing(f"{program} is not installed; scripts/ensure_tools.sh all installs it")
    return found


def missing(reason: str) -> NoReturn:
    """Skip this test; or fail it where everything has to be there."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def versitygw(folder: Path, *, users: bool = False) -> Iterator[Bucket]:
    """An S3 server that keeps its objects as files below ``folder``; with ``users`` it may have more than its root.

    ``folder``/access has a line for each request.
    """
    program, port, objects = require("versitygw"), free_port(), folder / "objects"
    (objects / BUCKET).mkdir(parents=True)  # a folder is a bucket
    command = [program, "--port", f"127.0.0.1:{port}", "--access-log", str(folder / "access"), "posix", str(objects)]
    if users:
        (folder / "users").mkdir()
        command[1:1] = ["--iam-dir", str(folder / "users"), "--iam-cache-disable"]
    environment = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY}
    with running(command, port, folder, environment):
        options = {"access_key_id": KEY, "secret_access_key": KEY, "region": "us-east-1", "allow_http": "true"}
        yield Bucket(f"s3://{BUCKET}", port, {"endpoint": f"http://127.0.0.1:{port}", **options})


@contextmanager
def azurite(folder: Path) -> Iterator[Bucket]:
    """Microsoft's emulator of Azure Blob Storage, in memory."""
    from azure.storage.blob import BlobServiceClient

    program, port = require("azurite-blob"), free_port()
    command = [program, "--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running(command, port, folder, {}):
        endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
        with BlobServiceClient(endpoint, credential=AZURE_KEY) as client:
            client.create_container(BUCKET)
        options = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY, "allow_http": "true"}
        yield Bucket(f"az://{BUCKET}", port, {"endpoint": endpoint, **options})


@contextmanager
def s3s_fs(folder: Path) -> Iterator[Bucket]:
    """An S3 server whose conditional writes are not atomic."""
    program, port = require("s3s-fs"), free_port()
    (folder / BUCKET).mkdir(parents=True)
    command = [
        program,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--access-key",
        KEY,
        "--secret-key",
        KEY,
        str(folder),
    ]
    with running(command, port, folder, {}):
        options = {"access_key_id": KEY, "secret_access_key": KEY, "region": "us-east-1", "allow_http": "true"}
        yield Bucket(f"s3://{BUCKET}", port, {"endpoint": f"http://127.0.0.1:{port}", **options})


@contextmanager
def running(command: list[str], port: int, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """The program, once it accepts connections; its output is in ``folder``/server.log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=output, stderr=output)
    try:
        give_up = time.monotonic() + START_S_MAX
        while not accepts(port):
            if server.poll() is not None or time.monotonic() > give_up:
                pytest.fail(f"{command[0]} does not start (exit code {server.poll()}):\n{log.read_text()[-2000:]}")
            time.sleep(0.02)  # until the program has opened its port, of which nothing tells us
        yield server
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Wire:
    """A TCP relay to a server, which can lose a reply after the server has sent it. A context manager.

    ``delay_s`` is how long each reply is under way. ``replied`` counts the bytes of replies.
    """

    def __init__(self, port: int, *, delay_s: float = 0.0) -> None:
        self.replied = 0
        self._target = port
        self._delay_s = delay_s
        self._lose = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_reply(self) -> None:
        """The next reply is thrown away and its connection cut; then all is well again."""
        self._lose.set()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                threading.Thread(target=self._copy, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, True), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with suppress(OSError):
            while body := source.recv(1 << 16):
                if replies and self._lose.is_set():
                    self._lose.clear()
                    break
                if replies and self._delay_s:
                    threading.Event().wait(self._delay_s)
                self.replied += len(body) if replies else 0
                sink.sendall(body)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in [self._listener, *self._open]:
            each.close()
