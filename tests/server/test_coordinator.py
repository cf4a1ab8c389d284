"""Writers that ask a server to begin and to commit for them, and servers that are none, or not well."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.coordination import Answer, CoordinatorServer, Question
from lakelatch.occ.coordination.connections import Connections
from lakelatch.occ.landing.coordinator import Coordinator
from lakelatch.occ.liveness import ticket
from lakelatch.server import Limits
from lakelatch.testing.contention import PATIENCE_S

from ..servers import free_port
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


def test_what_it_does_is_counted_from_nothing_on(table):
    """Metrics, the summary of the table and the document of the API."""

    def metrics(ask: Client) -> dict[str, float]:
        found = (line.rpartition(" ") for line in ask("/metrics").body.decode().splitlines())
        return {
            name.replace('table="flights",', ""): float(value) for name, _, value in found if "coordinator" in name[:25]
        }

    with serving({"flights": table.url}, coordinate=True) as server:
        ask = Client(server.url)
        assert metrics(ask) == {
            'lakelatch_coordinator_entries_total{kind="begin",table="flights"}': 0,
            'lakelatch_coordinator_entries_total{kind="commit",table="flights"}': 0,
            'lakelatch_coordinator_answers_total{kind="begin",table="flights"}': 0,
            'lakelatch_coordinator_answers_total{kind="commit",table="flights"}': 0,
            'lakelatch_coordinator_answers_total{kind="left out",table="flights"}': 0,
            'lakelatch_coordinator_waiting{table="flights"}': 0,
            'lakelatch_coordinator_unpublished{table="flights"}': 0,
        }
        write(table, server.url)
        assert set(metrics(ask).values()) == {0, 1}
        assert ask("/api/v1/tables/flights").json()["summary"]["coordinator"] == {
            "begun": 1, "begin_entries": 1, "committed": 1, "commit_entries": 1, "left_out": 0, "unpublished": 0, "waiting": 0,
        }  # fmt: skip
        assert "post" in ask("/openapi.json").json()["paths"]["/api/v1/tables/{table}/transactions"]
    with serving({"flights": table.url}) as server:
        assert metrics(Client(server.url)) == {}
        assert Client(server.url)("/api/v1/tables/flights").json()["summary"]["coordinator"] is None


def test_a_restarted_server_is_asked_on_a_new_connection(table, taken):
    port = free_port()
    with serving({"flights": table.url}, coordinate=True, port=port) as server:
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
    thread.join(PATIENCE_S)


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


def test_hostile_clients_with_a_token_keep_nobody_from_writing(table, taken):
    """Too large, torn, left half-way, never read, out of order; and a writer that asks meanwhile lands."""
    head = f"POST {AT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
    with serving({"flights": table.url}, coordinate=True, limits=Limits(requests_s=10_000)) as server:
        ask, port = Client(server.url), int(server.url.rpartition(":")[2])
        asks = CoordinatorServer(server.url, token=TOKEN)
        heard: list[Question] = []
        with lakelatch.open(table.url, writer="B", coordinator=asks) as writer:
            real = writer.session.coordinator.ask
            writer.session.coordinator.ask = lambda question, s: (heard.append(question), real(question, s))[1]
            writer.upsert(rows(1))
        begin, commit = (each.to_bytes() for each in heard)
        with socket.create_connection(("127.0.0.1", port)) as large:
            large.sendall(f"{head}content-length: {2 << 20}\r\n\r\n".encode())
            assert large.recv(100).startswith(b"HTTP/1.1 413 ")
        for torn in (
            begin[:-1],
            commit[:-1],
            commit[: len(commit) // 2],
            commit + b"x",
            begin.replace(b'"v":1', b'"v":9'),
        ):
            assert ask(AT, method="POST", body=torn).status == 400
        with ExitStack() as stack:
            for sent in (
                head,
                f"{head}content-length: 1000\r\n\r\nhalf",
                *[f"{head}content-length: {len(commit)}\r\n\r\n"] * 5,
            ):
                each = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                each.sendall(
                    sent.encode() + (commit if sent.endswith(f"{len(commit)}\r\n\r\n") else b"")
                )  # and reads nothing
            for late in (commit, begin, commit, commit):
                told = Answer.from_bytes(ask(AT, method="POST", body=late).body.lstrip(b"\n"))
                assert told is not None
            before = len(taken)
            write(table, server.url, 2)
            assert taken[before:] == ["BeginRequest", "Request"]
    assert values(table) == {2}
    assert [c.operation for _, c in table.commits() if c.stats].count("UPSERT") == 2
    with lakelatch.open(table.url) as fresh:
        assert not check(fresh.store).findings


def test_an_incremental_reader_of_another_engine_skips_no_commit_while_they_rain(table):
    """hudi-rs asks for what completed after the last completion time that it has seen, again and again."""
    from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

    writers, commits = 4, 6
    failed: list[BaseException] = []

    def work(number: int, url: str) -> None:
        try:
            asks = CoordinatorServer(url, token=TOKEN)
            with lakelatch.open(table.url, writer=f"w{number}", coordinator=asks) as writer:
                for count in range(commits):
                    writer.insert([{"id": f"{number}-{count}", "origin": f"o{number}", "v": count}])
        except BaseException as e:
            failed.append(e)

    table.change_settings(coordinator_patience_s=30.0)
    seen, since = set[str](), max(i.completed for i in table.timeline().commits)
    with serving({"flights": table.url}, coordinate=True) as server:
        threads = [threading.Thread(target=work, args=(n, server.url)) for n in range(writers)]
        for each in threads:
            each.start()
        while True:
            last = not any(each.is_alive() for each in threads)
            reader = HudiTableBuilder.from_base_uri(table.url.removeprefix("file://")).build()
            later = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
            for batch in reader.read(later):
                rows_ = pa.table(batch).to_pydict()
                seen.update(rows_["id"])
                since = max(since, *(_completed(table, t) for t in rows_["_hoodie_commit_time"]))
            if last:
                break
        for each in threads:
            each.join()
    assert not failed, failed[0]
    assert seen >= {f"{n}-{c}" for n in range(writers) for c in range(commits)}


def _completed(table: lakelatch.Table, requested: str) -> str:
    return next(i.completed for i in table.timeline().commits if i.requested == requested)
