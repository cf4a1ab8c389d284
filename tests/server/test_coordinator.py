"""Writers that ask a server to begin and to commit for them, and servers that are none, or not well."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import lakelatch
from lakelatch.occ.coordination import CoordinatorServer
from lakelatch.occ.coordination.connections import Connections
from lakelatch.occ.landing.coordinator import Coordinator
from lakelatch.occ.liveness import ticket

from .conftest import TOKEN, Client, rows, serving

AT = "/api/v1/tables/flights/transactions"


def write(table: lakelatch.Table, url: str, value: int = 1, *, token: str = TOKEN, name: str = "") -> lakelatch.Table:
    """A writer that asks the server at this URL lands a row."""
    asks = CoordinatorServer(url, token=token, table=name)
    with lakelatch.open(table.url, writer="B", coordinator=asks) as writer:
        writer.upsert(rows(value))
    return writer


def values(table: lakelatch.Table) -> set[int]:
    return set(table.read().to_arrow().column("v").to_pylist())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What coordinators were asked."""
    found: list[str] = []
    real = Coordinator.ask

    def ask(self: Coordinator, question: object, answer: Callable[[object], object]) -> None:
        found.append(type(question.wanted).__name__)  # type: ignore[attr-defined]
        real(self, question, answer)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinator, "ask", ask)
    return found


def test_a_writer_begins_and_commits_over_one_connection(table, taken, monkeypatch):
    made: list[object] = []
    real = Connections._opened
    monkeypatch.setattr(Connections, "_opened", lambda self: (made.append(self), real(self))[1])
    with serving({"flights": table.url}, coordinate=True) as server:
        asks = CoordinatorServer(server.url, token=TOKEN)
        with lakelatch.open(table.url, writer="B", coordinator=asks) as writer:
            for value in (1, 2, 3):
                writer.upsert(rows(value))
    assert taken == ["BeginRequest", "Request"] * 3
    assert len(made) == 1
    assert values(table) == {3}


def test_a_restarted_server_is_asked_on_a_new_connection(table, taken):
    with serving({"flights": table.url}, coordinate=True) as server:
        port = int(server.url.rpartition(":")[2])
        asks = CoordinatorServer(server.url, token=TOKEN)
        writer = lakelatch.open(table.url, writer="B", coordinator=asks)
        writer.upsert(rows(1))
    with serving({"flights": table.url}, coordinate=True, port=port), writer:
        writer.upsert(rows(2))
    assert taken == ["BeginRequest", "Request"] * 2
    assert values(table) == {2}


def test_a_server_that_coordinates_nothing_or_another_table(table, taken, caplog):
    with serving({"flights": table.url}) as server:
        write(table, server.url, 1)
        assert "503" in caplog.text
        assert "--coordinate" in caplog.text
    with serving({"flights": table.url}, coordinate=True) as server:
        write(table, server.url, 2, name="others")
        assert "404" in caplog.text
        write(table, server.url, 3, token="wrong" * 5)
        assert "401" in caplog.text
        assert TOKEN not in caplog.text
    assert taken == []
    assert values(table) == {3}


def test_nobody_listens(table):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        write(table, f"http://127.0.0.1:{free.getsockname()[1]}", 1)
    assert values(table) == {1}


@contextmanager
def answering(body: bytes | None) -> Iterator[str]:
    """A server that answers everything like this, or never."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            kept = []
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                if body is not None:
                    connection.recv(1 << 16)
                    connection.sendall(body)
                    connection.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"what?\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[]\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n[]\n",
        b'HTTP/1.1 200 OK\r\n\r\n{"v":2,"published":true,"entries":[]}\n',
        b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_a_server_that_is_silent_or_talks_nonsense(table, body, caplog):
    table.change_settings(coordinator_patience_s=0.2)
    with answering(body) as url, caplog.at_level(logging.WARNING):
        write(table, url, 1)
    assert "go on without it" in caplog.text
    assert values(table) == {1}


def test_who_has_no_token_asks_nothing(table, taken):
    with serving({"flights": table.url}, coordinate=True) as server:
        ask = Client(server.url)
        opened = ask(f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition(";")[0]
        marks = ticket(TOKEN, "flights", 2**33)
        for headers in ({}, {"Cookie": opened}, {"Authorization": f"Bearer {marks}"}):
            assert ask(AT, method="POST", headers=headers, body=b"x").status == 401
        assert ask(AT).status in (404, 405)
    assert taken == []


@pytest.mark.parametrize("body", [b"", b"{}\n", b'{"v":1,"slot":0,"kind":"commit"}\n' + b"x" * 100, b"\xff" * 1000])
def test_what_is_no_question_is_refused(table, taken, body):
    with serving({"flights": table.url}, coordinate=True) as server:
        answer = Client(server.url)(AT, method="POST", body=body)
        assert answer.status == 400
        assert "by yourself" in answer.error
    assert taken == []
    table.upsert(rows(1))
    assert values(table) == {1}
