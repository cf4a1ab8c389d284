"""A real server on a free port, for tables that tests write meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.landing import Coordinator
from lakelatch.server import Access, Address, Application, Limits, Server, Watched

TOKEN = "correct-horse-battery-staple"


def rows(value: int, *, origin: str = "JFK") -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(5)], "origin": [origin] * 5, "v": [value] * 5})


def lose(table: lakelatch.Table, *, by: lakelatch.Table | None = None) -> tuple[str, str]:
    """One transaction begins, another changes the same file group and lands; T of the loser and of the winner."""
    loser = table.transaction("upsert")
    with (by or table).transaction("upsert") as winner:
        for group in winner.snapshot.file_slices():
            winner.rewrite(group).write(rows(1))
    for group in loser.snapshot.file_slices():
        loser.rewrite(group).write(rows(2))
    with pytest.raises(lakelatch.ConflictError):
        loser.commit()
    return loser.instant, winner.instant


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of an error."""
        assert set(self.json()) == {"error"}, self.body
        return self.json()["error"]["message"]


class Client:
    """Asks one server; ``headers`` go with each request."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.headers = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers

    def __call__(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: Any = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request(method, path, body=body, headers=self.headers if headers is None else headers)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()


@contextmanager
def serving(
    tables: dict[str, str],
    *,
    limits: Limits | None = None,
    every_s: float = 0.05,
    watched: dict[str, Watched] | None = None,
    coordinate: bool = False,
    port: int = 0,
) -> Iterator[Server]:
    """A server in a thread of its own, which has read each table's log when this begins; drained at the end."""
    started = threading.Event()
    with ExitStack() as stack:
        watched = {
            **(watched or {}),
            **{name: Watched(name, stack.enter_context(lakelatch.open(url))) for name, url in tables.items()},
        }
        for each in watched.values():
            each.look()
        leading = {name: stack.enter_context(lakelatch.open(url)) for name, url in tables.items() if coordinate}
        coordinators = {name: Coordinator(each.session) for name, each in leading.items()}
        application = Application(watched, Access(TOKEN), limits=limits, every_s=every_s, coordinators=coordinators)
        server = Server(application, Address(port=port), listening=lambda _url: started.set())
        thread = threading.Thread(target=server.run_here, name="server")
        thread.start()
        try:
            assert started.wait(120)
            yield server
        finally:
            server.should_exit = True
            thread.join(120)
            assert not thread.is_alive()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    beats = {"heartbeat_interval_s": 0.1, "heartbeat_timeout_s": 5.0}
    with lakelatch.create(
        str(tmp_path / "flights"), record_key="id", partition_by="origin", writer="A", **beats
    ) as table:
        with table.transaction("insert") as txn:
            txn.new_file("origin=JFK").write(rows(0))
        yield table


@pytest.fixture
def ask(table: lakelatch.Table) -> Iterator[Client]:
    with serving({"flights": table.url}, limits=Limits(requests_s=10_000)) as server:
        yield Client(server.url)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Servers with limits of the test's own."""
    with ExitStack() as stack:
        yield lambda tables, **more: stack.enter_context(serving(tables, **more))
