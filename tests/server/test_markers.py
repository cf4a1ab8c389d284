"""Markers by the server: one request a task, many transactions, servers that are killed, and what falls back to direct ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anyio
import pytest

import lakelatch
from lakelatch.environment import SYSTEM
from lakelatch.errors import ConfigError, InputError, RolledBackError, StorageError
from lakelatch.hudi.files import BaseName, base_file_name
from lakelatch.occ.liveness import MarkerClient, MarkerServer, delete_announced, marker_client, ticket
from lakelatch.occ.liveness.markers import MARKERS, Marker, announce_all, left_by, list_markers, stands
from lakelatch.occ.table import Table
from lakelatch.server import Embedded, Limits, MarkerBook, Watched
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import FaultStore, LoseReply, On, Pause, Refuse

from ..servers import free_port
from .conftest import TOKEN, Client, rows, serving

GROUP = "01234567-0000-4000-8000-{:012d}-0"


def name(instant: str, number: int, *, partition: str = "origin=JFK", io: str = "MERGE") -> str:
    file = base_file_name(BaseName(GROUP.format(number), "0-0-0", instant))
    return f"{partition}/{file}.marker.{io}"


def files(instant: str, count: int, *, first: int = 0) -> list[tuple[str, str]]:
    return [(name(instant, first + n).removesuffix(".marker.MERGE"), "MERGE") for n in range(count)]


def names_left(table: Table, instant: str) -> set[str]:
    return {each.name for each in list_markers(table.store, instant)}


def objects(table: Table, instant: str) -> list[str]:
    return table.store.names(f"{MARKERS}/{instant}", recursive=True)


def desk_of(url: str, *, table: str = "flights", token: str = TOKEN, apart_max_s: float = 0.0) -> MarkerClient:
    return MarkerClient(url, table, ticket(token, table, int(SYSTEM.now()) + 3600), apart_max_s=apart_max_s)


# --- a writer -------------------------------------------------------------------------------------------------------


def test_an_embedded_server_takes_the_markers_of_a_write_in_one_request(table: lakelatch.Table):
    many = {"id": [f"n{n}" for n in range(20)], "origin": [f"X{n}" for n in range(20)], "v": [1] * 20}
    served = Embedded()
    with lakelatch.open(table.url, writer="B", markers=served) as writer, writer.transaction() as txn:
        txn.upsert([dict(zip(many, row, strict=True)) for row in zip(*many.values(), strict=True)])
        there = objects(writer, txn.instant)
        assert "MARKERS.type" in there
        assert not [each for each in there if ".marker." in each]
        assert len(list_markers(writer.store, txn.instant)) == 20
        assert served.link(writer.url)
        instant = txn.instant
    assert not objects(table, instant), "what has landed leaves no marker, and no list"
    assert served.link(table.url) is None, "it ends with its table"
    assert table.read(columns=["id"]).to_arrow().num_rows == 25


def test_a_transaction_that_ends_removes_what_it_announced_in_both_forms(table: lakelatch.Table):
    with lakelatch.open(table.url, markers=Embedded()) as writer:
        txn = writer.transaction()
        txn.upsert([{"id": "a", "origin": "LAX", "v": 1}])
        announce_all(writer.store, txn.instant, files(txn.instant, 2))  # as tasks do that do not reach the server
        assert {bool(each.list) for each in list_markers(writer.store, txn.instant)} == {True, False}
        txn.abort()
        assert not objects(table, txn.instant)
    assert not [p for p in Path(table.url.removeprefix("file://")).rglob(f"*{txn.instant}*") if p.suffix == ".parquet"]


def test_files_of_a_failed_task_are_struck_out_of_the_list_and_those_of_the_commit_stay(table: lakelatch.Table):
    with serving({"flights": table.url}) as server, table.transaction() as txn:
        marker_client = desk_of(server.url)
        kept, failed = announce_all(table.store, txn.instant, files(txn.instant, 2), marker_client=marker_client)
        delete_announced(table.store, [failed])
        assert stands(table.store, kept)
        assert not stands(table.store, failed)
        # The server does not bring it back with the next names of that list.
        more = announce_all(table.store, txn.instant, files(txn.instant, 60, first=10), marker_client=marker_client)
        assert all(stands(table.store, each) for each in [kept, *more])
        for n in range(25):  # every list is written again
            announce_all(table.store, txn.instant, files(txn.instant, 1, first=100 + n), marker_client=marker_client)
        assert not stands(table.store, failed)
        assert all(stands(table.store, each) for each in [kept, *more])


# --- falling back ---------------------------------------------------------------------------------------------------


def test_a_server_that_is_gone_costs_no_write(table: lakelatch.Table):
    with serving({"flights": table.url}) as server:
        url = server.url
    with lakelatch.open(table.url, markers=MarkerServer(url, token=TOKEN)) as writer, writer.transaction() as txn:
        txn.upsert(rows(7))
        assert [each.list for each in list_markers(writer.store, txn.instant)] == [""]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda url: desk_of(url, token="another-token-of-somebody"),
        lambda url: desk_of(url, table="hotels"),
        lambda url: desk_of(url, table="../flights"),
        lambda url: MarkerClient(url, "flights", ticket(TOKEN, "hotels", int(SYSTEM.now()) + 3600)),
        lambda url: MarkerClient(url, "flights", ticket(TOKEN, "flights", int(SYSTEM.now()) - 1)),
        lambda url: MarkerClient(url, "flights", ""),
        lambda url: MarkerClient(url + "/elsewhere", "flights", TOKEN),
    ],
)
def test_whoever_is_refused_puts_direct_markers(table: lakelatch.Table, wrong):
    with serving({"flights": table.url}) as server, table.transaction() as txn:
        found = announce_all(table.store, txn.instant, files(txn.instant, 3), marker_client=wrong(server.url))
        assert [each.list for each in found] == [""] * 3
        assert all(stands(table.store, each) for each in found)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, b'{"error": {"type": "NotFound", "message": "there is no /api/v1 here, take /api/v2"}}'),
        (200, b"<html>welcome</html>"),
        (200, b'{"taken": 3}'),
        (200, b'{"lists": ["MARKERS0"]}'),
        (200, b'{"lists": [0, 1, 2]}'),
        (200, b'{"lists": ["MARKERS0", "MARKERS0", "../hoodie.properties"]}'),
        (200, b""),
        (301, b""),
    ],
)
def test_a_server_of_another_version_costs_no_write(table: lakelatch.Table, status: int, told: bytes):
    class Other(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_args):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other, table.transaction() as txn:
        threading.Thread(target=other.handle_request, daemon=True).start()
        marker_client = desk_of(f"http://127.0.0.1:{other.server_port}")
        found = announce_all(table.store, txn.instant, files(txn.instant, 3), marker_client=marker_client)
        assert [each.list for each in found] == [""] * 3
        assert all(stands(table.store, each) for each in found)


def test_the_way_back_to_direct_markers_is_taken_for_each_request_by_itself(table: lakelatch.Table):

    store = FaultStore(table.store, Refuse(On("put_if_absent", "MARKERS")))
    with Table(store) as watched, table.transaction() as txn:
        with serving({}, watched={"flights": Watched("flights", watched)}) as server:
            marker_client = desk_of(server.url)
            first = announce_all(table.store, txn.instant, files(txn.instant, 2), marker_client=marker_client)
            assert [each.list for each in first] == ["", ""], "the store refused once"
            second = announce_all(table.store, txn.instant, files(txn.instant, 2, first=2), marker_client=marker_client)
            assert all(each.list for each in second)
        assert {each.path for each in list_markers(table.store, txn.instant)} == {p for p, _ in files(txn.instant, 4)}


def test_a_busy_server_says_when_to_come_again_and_is_left_alone_until_then(
    table: lakelatch.Table, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(marker_client, "SYSTEM", FakeEnvironment())  # the second that it is left alone does not end
    answered = threading.Event()
    store = FaultStore(table.store, Pause(On("put_if_absent", "MARKERS.type"), lambda: answered.wait(PATIENCE_S)))
    limits = Limits(markers_answer_s=0.2)
    with (
        Table(store) as watched,
        table.transaction() as txn,
        serving({}, watched={"flights": Watched("flights", watched)}, limits=limits) as server,
    ):
        patient = desk_of(server.url, apart_max_s=60.0)
        path = f"/api/v1/tables/flights/markers/{txn.instant}"
        body = json.dumps({"markers": [name(txn.instant, 0)]})
        busy = Client(server.url)(path, method="POST", body=body)
        assert busy.status == 503
        assert int(busy.headers["retry-after"]) >= 1
        assert announce_all(table.store, txn.instant, files(txn.instant, 1), marker_client=patient)[0].list == ""
        asked = server.server_state.total_requests
        assert announce_all(table.store, txn.instant, files(txn.instant, 1), marker_client=patient)[0].list == ""
        assert server.server_state.total_requests == asked, "left alone"
        answered.set()
        # What was answered with 503 may stand nevertheless; asked again it is told once.
        again = Client(server.url)(path, method="POST", body=body)
        assert again.status == 200
    assert table.read(columns=["id"]).to_arrow().num_rows == 5


# --- what is lost, and what is not ----------------------------------------------------------------------------------


def test_asking_again_writes_nothing(table: lakelatch.Table):
    store = FaultStore(table.store)

    async def twice() -> None:
        book = MarkerBook(store)
        asked = [name(instant, n) for n in range(50)]
        first = await book.add(instant, asked)
        store.reset()
        assert await book.add(instant, asked) == first
        assert not store.calls

    with table.transaction() as txn:
        instant = txn.instant
        anyio.run(twice)


def test_a_server_started_again_knows_what_the_last_one_took_torn_lines_and_commas_too(table: lakelatch.Table):
    with table.transaction() as txn:
        instant, store = txn.instant, table.store
        folder = Path(table.url.removeprefix("file://")) / MARKERS / instant
        folder.mkdir(parents=True)
        (folder / "MARKERS.type").write_bytes(b"TIMELINE_SERVER_BASED")
        (folder / "MARKERS0").write_text(
            f"{name(instant, 0)}\n{name(instant, 1)},{name(instant, 2)}\n{name(instant, 3)[:-3]}"
        )
        (folder / "MARKERS25").write_text(name(instant, 4))  # of a server with more lists than ours
        assert names_left(table, instant) == {name(instant, n) for n in (0, 1, 2, 4)}

        async def more() -> list[str]:
            book = MarkerBook(store)
            known = await book.add(instant, [name(instant, n) for n in (0, 1, 2, 4)])
            for n in range(30):
                await book.add(instant, [name(instant, 10 + n)])
            return known

        assert anyio.run(more) == ["MARKERS0"] * 3 + ["MARKERS25"]
        assert names_left(table, instant) == {name(instant, n) for n in (0, 1, 2, 4, *range(10, 40))}
        lines = (folder / "MARKERS0").read_text().splitlines()
        assert lines[:3] == [name(instant, n) for n in range(3)], "each on a line of its own"
        assert not [each for each in lines if not each.endswith(".marker.MERGE")], "the torn line is gone"


def test_two_servers_for_one_table_lose_nothing_to_each_other(table: lakelatch.Table):
    async def both() -> None:
        books = [MarkerBook(table.store, interval_s=0.001, lists=3) for _ in range(2)]

        async def some(book: MarkerBook, first: int) -> None:
            for n in range(0, 40, 4):
                asked = [name(instant, first + n + more) for more in range(4)]
                lists = await book.add(instant, asked)
                assert all(stands(table.store, marker(each, of)) for each, of in zip(asked, lists, strict=True))

        async with anyio.create_task_group() as group:
            for number, book in enumerate(books * 2):
                group.start_soon(some, book, 1000 * number)

    def marker(each: str, of: str) -> Marker:
        return Marker(instant, each.removesuffix(".marker.MERGE"), "MERGE", of)

    with table.transaction() as txn:
        instant = txn.instant
        anyio.run(both)
        assert len(names_left(table, instant)) == 160


@pytest.mark.parametrize(
    "fault", [LoseReply(On("replace_if_match", "MARKERS")), LoseReply(On("put_if_absent", "MARKERS0"))]
)
def test_a_lost_answer_of_the_store_is_looked_up(table: lakelatch.Table, fault):
    store = FaultStore(table.store, fault)

    async def add() -> None:
        book = MarkerBook(store, lists=1, interval_s=0.0)
        for n in range(4):
            assert await book.add(instant, [name(instant, n)]) == ["MARKERS0"]

    with table.transaction() as txn:
        instant = txn.instant
        anyio.run(add)
        assert names_left(table, instant) == {name(instant, n) for n in range(4)}
        assert table.store.body(f"{MARKERS}/{instant}/MARKERS0").count(b"\n") == 4


def test_a_full_disk_fails_the_request_and_the_next_one_stands(table: lakelatch.Table):
    store = FaultStore(table.store, Refuse(On("replace_if_match", "MARKERS0"), errno=28))

    async def add() -> None:
        book = MarkerBook(store, lists=1, interval_s=0.0)
        await book.add(instant, [name(instant, 0)])
        with pytest.raises(StorageError):
            await book.add(instant, [name(instant, 1)])
        await book.add(instant, [name(instant, 1), name(instant, 2)])

    with table.transaction() as txn:
        instant = txn.instant
        anyio.run(add)
        assert names_left(table, instant) == {name(instant, n) for n in range(3)}


def test_a_sweep_is_final_for_the_server_too(table: lakelatch.Table):
    async def late() -> None:
        book = MarkerBook(table.store, lists=1, interval_s=0.0)
        await book.add(txn.instant, [name(txn.instant, 0)])
        txn.abort()
        assert not objects(table, txn.instant)
        with pytest.raises(RolledBackError):
            await book.add(txn.instant, [name(txn.instant, 1)])
        with pytest.raises(RolledBackError):
            await MarkerBook(table.store).add(txn.instant, [name(txn.instant, 2)])
        assert not objects(table, txn.instant)

    txn = table.transaction()
    anyio.run(late)


KILLED = """
import sys, threading
import lakelatch
from lakelatch.server import Access, Address, Application, Server, Watched
url, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
app = Application({"flights": Watched("flights", lakelatch.open(url))}, Access(token), batch_s=0.002)
Server(app, Address(port=port), listening=lambda url: print(url, flush=True)).run_here()
"""


def test_killed_servers_lose_no_marker_that_was_answered(table: lakelatch.Table):
    """Clients announce without a pause while the server is killed and started three times; what stands is asked of the store."""

    def start(port: int) -> tuple[subprocess.Popen[str], str]:
        server = subprocess.Popen(
            [sys.executable, "-c", KILLED, table.url, str(port), TOKEN], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        return server, server.stdout.readline().strip()

    port = free_port()
    server, url = start(port)
    stop, told, direct = threading.Event(), [], []
    with table.transaction() as txn:

        def client(number: int) -> None:
            n = 0
            while not stop.is_set():
                found = announce_all(
                    table.store,
                    txn.instant,
                    files(txn.instant, 5, first=number * 100_000 + n),
                    marker_client=desk_of(url),
                )
                told.extend(found)
                direct.extend(each for each in found if not each.list)
                n += 5

        try:
            with ThreadPoolExecutor(4) as pool:
                clients = [pool.submit(client, number) for number in range(4)]
                for _ in range(3):
                    seen = len(told)
                    while len(told) < seen + 200:
                        assert not any(each.done() for each in clients), [
                            each.result() for each in clients if each.done()
                        ]
                    os.kill(server.pid, signal.SIGKILL)
                    server.wait()
                    seen = len(direct)
                    while len(direct) < seen + 5:
                        assert not any(each.done() for each in clients), [
                            each.result() for each in clients if each.done()
                        ]
                    server, _ = start(port)
                stop.set()
        finally:
            stop.set()
            server.kill()
            server.wait()
        assert {each.path for each in told} <= {each.path for each in list_markers(table.store, txn.instant)}
        assert any(each.list for each in told)
        assert direct
        assert all(stands(table.store, each) for each in told)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"markers": "a"}',
        b'{"markers": [1]}',
        b'{"markers": [], "more": 1}',
        b'{"markers": ["../../etc/passwd.marker.CREATE"]}',
        b'{"markers": ["\\ud800.marker.CREATE"]}',
        b'{"markers": [' + b"[" * 100_000 + b"]}",
        json.dumps({"markers": [name("20260101000000000", 0)]}).encode(),
        json.dumps({"markers": ["x" * 1001]}).encode(),
        json.dumps({"markers": [""] * 10_001}).encode(),
    ],
)
def test_a_body_that_announces_nothing_is_refused_in_a_sentence(table: lakelatch.Table, ask: Client, body: bytes):
    with table.transaction() as txn:
        answer = ask(f"/api/v1/tables/flights/markers/{txn.instant}", method="POST", body=body)
        assert answer.status == 400
        assert len(answer.error) < 700
        assert not objects(table, txn.instant)


@pytest.mark.parametrize(
    "bad",
    [
        "origin=JFK/../../outside/{file}.marker.MERGE",
        "/etc/{file}.marker.MERGE",
        ".hoodie/{file}.marker.MERGE",
        "origin=JFK/{file}.marker.DELETE",
        "origin=JFK/{file}",
        "origin=JFK/{file}.marker.MERGE\n{file}.marker.MERGE",
        "origin=J\rFK/{file}.marker.MERGE",
        "origin=%2e%2e/../{file}.marker.MERGE",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(table: lakelatch.Table, ask: Client, bad: str):
    with table.transaction() as txn:
        file = base_file_name(BaseName(GROUP.format(0), "0-0-0", txn.instant))
        body = json.dumps({"markers": [name(txn.instant, 1), bad.format(file=file)]})
        answer = ask(f"/api/v1/tables/flights/markers/{txn.instant}", method="POST", body=body)
        assert (answer.status, answer.json()["error"]["type"]) == (400, "InputError")
        assert not objects(table, txn.instant), "nothing of a request that is refused"


@pytest.mark.parametrize("instant", ["20200101000000000", "..", "%2e%2e", "2020", "20200101000000000%2f..", "x" * 2000])
def test_an_instant_that_is_no_open_transaction_gets_no_folder(table: lakelatch.Table, ask: Client, instant: str):
    body = json.dumps({"markers": [name("20200101000000000", 0)]})
    answer = ask(f"/api/v1/tables/flights/markers/{instant}", method="POST", body=body)
    assert answer.status in (400, 404, 409)
    assert answer.error
    assert not table.store.folders(MARKERS)


def test_a_body_that_never_ends_is_cut_off(table: lakelatch.Table, ask: Client):
    connection = HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)
    with table.transaction() as txn:
        connection.putrequest("POST", f"/api/v1/tables/flights/markers/{txn.instant}")
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        sent = 0
        try:
            for _ in range(100):
                connection.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                sent += 0x10000
        except OSError:
            assert sent < 100 * 0x10000
        else:
            assert connection.getresponse().status == 413
        connection.close()
    assert ask("/healthz").status == 200


def test_a_browser_looks_at_markers_and_announces_none(table: lakelatch.Table, ask: Client):
    cookie = ask(f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition(";")[0]
    with table.transaction() as txn:
        path = f"/api/v1/tables/flights/markers/{txn.instant}"
        body = json.dumps({"markers": [name(txn.instant, 0)]})
        assert ask(path, method="POST", body=body, headers={"Cookie": cookie}).status == 401
        assert ask(path, method="POST", body=body).json() == {"lists": ["MARKERS0"]}
        path_of = name(txn.instant, 0).removesuffix(".marker.MERGE")
        told = {"path": path_of, "io": "MERGE", "list": "MARKERS0"}
        assert ask(path, headers={"Cookie": cookie}).json() == {"markers": [told], "total": 1}


def test_a_ticket_opens_the_markers_of_its_table_and_nothing_else(table: lakelatch.Table, ask: Client):
    bearer = {"Authorization": f"Bearer {ticket(TOKEN, 'flights', int(SYSTEM.now()) + 3600)}"}
    with table.transaction() as txn:
        path = f"/api/v1/tables/flights/markers/{txn.instant}"
        assert ask(path, headers=bearer).status == 401
        assert ask("/api/v1/tables", headers=bearer).status == 401
        assert ask("/api/v1/tables/flights", method="POST", headers=bearer).status == 401
        body = json.dumps({"markers": [name(txn.instant, 0)]})
        assert ask(path, method="POST", body=body, headers=bearer).status == 200


def test_the_token_travels_in_no_message_and_no_representation():
    server = MarkerServer("http://127.0.0.1:8047", token=TOKEN)
    marker_client = desk_of("http://127.0.0.1:8047")
    assert TOKEN not in repr(server) + repr(marker_client)
    assert TOKEN not in repr(vars(marker_client))
    assert marker_client.ticket not in repr(marker_client)


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("", {"token": TOKEN}),
        ("flights", {"token": TOKEN}),
        ("ftp://127.0.0.1", {"token": TOKEN}),
        ("http://user:secret@127.0.0.1", {"token": TOKEN}),
        ("http://127.0.0.1:99999999", {"token": TOKEN}),
        ("http://lake.example:8047", {"token": TOKEN}),
        ("http://127.0.0.1:8047?token=x", {"token": TOKEN}),
        ("http://127.0.0.1:8047", {}),
        ("http://127.0.0.1:8047", {"token": TOKEN, "token_file": "x"}),
        ("http://127.0.0.1:8047", {"token": "tök en\n"}),
        ("http://127.0.0.1:8047", {"token_file": "/no/such/file"}),
        ("https://127.0.0.1:8047", {"token": TOKEN, "authority_file": "/no/such/file"}),
    ],
)
def test_a_server_that_cannot_be_reached_safely_is_refused_at_once(url: str, more: dict[str, str]):
    with pytest.raises((ConfigError, InputError)) as raised:
        MarkerServer(url, **more)
    assert "secret" not in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_markers_that_are_no_server_are_refused_before_anything_is_opened(table: lakelatch.Table):
    for wrong in ("embedded", True, object()):
        with pytest.raises(ConfigError, match="markers="):
            lakelatch.open(table.url, markers=wrong)


def test_an_empty_or_torn_list_of_an_ended_transaction_goes_as_well(table: lakelatch.Table):
    txn = table.transaction()
    folder = Path(table.url.removeprefix("file://")) / MARKERS / txn.instant
    folder.mkdir(parents=True)
    (folder / "MARKERS.type").write_bytes(b"TIMELINE_SERVER_BASED")
    (folder / "MARKERS0").write_bytes(b"")
    (folder / "MARKERS1").write_bytes(b"origin=JFK/half.parq")
    assert len(left_by(table.store, txn.instant).lists) == 3
    txn.abort()
    assert not folder.exists()
