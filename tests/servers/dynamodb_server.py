"""DynamoDB Local (Amazon's emulator, on Java) and dynalite (on Node), a client to look into their tables, and Amazon's
lock client for Java."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3

from . import TOOLS, free_port, missing, require, running, send_signal

REGION = "eu-west-1"
LOOPBACK = TOOLS / "dynamodb/LoopbackDynamo/classes/LoopbackDynamo.class"  # Amazon's emulator
# The emulators take any credentials and keep a database for each. The third spares botocore a look for a cloud host.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "latch",
    "AWS_SECRET_ACCESS_KEY": "latch",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class DynamoAt:
    """What runs at a port of this machine; who uses it has `CREDENTIALS` in the environment."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, table: str = "locks", *, port: int | None = None, more: str = "") -> str:
        return f"dynamodb://{REGION}/{table}?endpoint=http://127.0.0.1:{port or self.port}{more}"

    @cached_property
    def client(self) -> Any:
        return boto3.client(
            "dynamodb",
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )


class Dynamo(DynamoAt):
    """An emulator that can be stopped and started again on its port."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        super().__init__(port)
        self._command = command
        self._folder = folder
        self._running = ExitStack()
        self.start()

    def start(self) -> None:
        self._server = self._running.enter_context(running(self._command, self.port, self._folder, {}))

    def stop(self) -> None:
        self._running.close()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._server.wait()
        self.stop()

    def signal(self, number: int) -> None:
        send_signal(self._server.pid, number)


@contextmanager
def dynamodb_local(folder: Path, *, memory: bool = False) -> Iterator[Dynamo]:
    """Keeps its tables in a file below ``folder``, also when it is killed; in ``memory`` it is quicker."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    options = [*(["-inMemory"] if memory else ["-dbPath", str(folder)]), "-port", str(port), "-disableTelemetry"]
    server = Dynamo([*_java("LoopbackDynamo"), *options], port, folder)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def dynalite(folder: Path) -> Iterator[Dynamo]:
    """In memory; returns no item when a condition fails."""
    port = free_port()
    command = [require("dynalite"), "--port", str(port), "--host", "127.0.0.1"]
    server = Dynamo([*command, "--createTableMs", "200", "--deleteTableMs", "0"], port, folder)
    try:
        yield server
    finally:
        server.stop()


class AmazonLock:
    """Amazon's client in a process of its own. A context manager."""

    def __init__(self, server: Dynamo, key: str, *, lease_s: float = 3.0, delete: bool = True) -> None:
        more = [server.endpoint, REGION, "locks", key, str(int(lease_s * 1000)), str(delete).lower()]
        self.process = subprocess.Popen(
            [*_java("AmazonLock"), *more],
            env=os.environ | CREDENTIALS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # its logging library complains that it is not set up
            text=True,
        )

    def tell(self, command: str) -> str:
        """Its answer to "acquire" (held, busy) or "release" (released, lost)."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self) -> "AmazonLock":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _java(program: str) -> list[str]:
    home = TOOLS / "dynamodb" / program
    if not (home / "classes" / f"{program}.class").exists():
        missing(f"{program} is not there; scripts/ensure_tools.sh all makes it")
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else require("java")
    quick = ["-Xmx256m", f"-Djava.library.path={home}/lib"]
    return [java, *quick, "-cp", f"{home}/classes:{home}/lib/*", program]
