"""Clients without a token, with wrong paths, too large, too slow, or gone."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.server import Access, Address, Application, Limits, Server, Watched
from lakelatch.testing.contention import PATIENCE_S

from .conftest import TOKEN, Answer, Client, rows, serving

AT = "/api/v1/tables/flights"
EVERY = (
    "/",
    "/metrics",
    "/openapi.json",
    "/api/v1/tables",
    AT,
    f"{AT}/state",
    f"{AT}/events",
    f"{AT}/why/20260101000000000",
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for all that changes nothing."""
    url = str(tmp_path_factory.mktemp("hostile") / "flights")
    with lakelatch.create(url, record_key="id", partition_by="origin") as table:
        table.insert(rows(0))
    with serving({"flights": url}, limits=Limits(requests_s=10_000)) as server:
        yield Client(server.url)


@pytest.mark.parametrize("path", [*EVERY, "/nothing", "/..", "/api/v1/tables/../../etc/passwd"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong-token-of-the-same-len"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Cookie": f"lakelatch={TOKEN}"},
        {"Authorization": "Bearer \xff\xfe"},
    ],
)
def test_nothing_but_health_is_told_without_the_token(ask: Client, path: str, headers: dict[str, str]):
    answer = ask(path, headers=headers)
    assert answer.status in (401, 429)
    assert "token" in answer.error
    assert ask("/healthz", headers={}).json() == {"status": "ok"}


def test_guessing_tokens_becomes_slow_and_the_right_one_still_works(table: lakelatch.Table, serve):
    ask = Client(serve({"flights": table.url}, limits=Limits(failures_s=1.0, requests_s=1000)).url)
    answers = [ask("/api/v1/tables", headers={"Authorization": f"Bearer guess-number-{n:06d}"}) for n in range(10)]
    assert [each.status for each in answers[:2]] == [401, 401]
    assert answers[-1].status == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert ask("/api/v1/tables").status == 200


@pytest.mark.parametrize("path", [*EVERY[:6], "/healthz", "/nothing", f"{AT}/lanes?lanes=x"])
def test_every_answer_has_the_headers_that_keep_browsers_safe(ask: Client, path: str):
    answer = ask(path)
    assert HEADERS.items() <= answer.headers.items()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in answer.headers


def test_the_link_gives_a_cookie_that_lets_look_and_hides_the_token(ask: Client):
    answer = ask(f"/?token={TOKEN}", headers={})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    kept = {"Cookie": cookie.partition(";")[0]}
    assert ask("/api/v1/tables", headers=kept).status == 200
    assert ask("/", headers={"Cookie": kept["Cookie"][:-1]}).status in (401, 429)
    assert ask("/?token=wrong-wrong-wrong-wrong", headers={}).status in (401, 429)
    assert ask(f"/metrics?token={TOKEN}", headers={}).status in (401, 429)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/tables/..",
        "/api/v1/tables/../../etc/passwd",
        "/api/v1/tables/..%2f..%2fetc%2fpasswd",
        "/api/v1/tables/%2e%2e/%2e%2e",
        "/api/v1/tables/%252e%252e",
        "/api/v1/tables/flights%2f..%2f..",
        "/api/v1/tables/flights%00",
        "/api/v1/tables/other",
        "/api/v1/tables//tmp",
        "/api/v1/tables/%ff",
        f"{AT}/",
        f"{AT}/why/..",
        f"{AT}/why/..%2f..%2f..",
        "//evil.example/",
        "/static/../../x",
    ],
)
def test_a_path_leads_nowhere_but_to_the_tables_that_were_named(ask: Client, path: str):
    answer = ask(path)
    assert answer.status in (400, 404)
    assert answer.error


@pytest.mark.parametrize(
    "query",
    [
        "/lanes?lanes=0", "/lanes?lanes=201", "/lanes?lanes=-1",
        "/state?newest=0", "/state?lanes=201", "/state?since_ms=5&until_ms=5",
        "/lanes?lanes=1e9", "/lanes?lanes=%D9%A1", "/lanes?lanes=",
        "/lanes?since_ms=5&until_ms=5", "/lanes?since_ms=99999999999999999999", "/lanes?lanes=1&lanes=2", "/lanes?what=1",
        "/timeline?before=yesterday", "/timeline?before=..%2f", "/timeline?limit=1001", "/why/1", "/why/2026010100000000x",
        "/why/99999999999999999", "/why/20260101000000000?x=1", f"/lanes?writer={'x' * 1001}", "/lock?a=b", "?a=b",
        "/files?after=%ff&x", f"/files?{'&'.join(['a=b'] * 60)}", "/files?partition=nowhere", "/files?partition=%00",
    ],
)  # fmt: skip
def test_a_parameter_that_cannot_be_meant_is_refused_in_a_sentence(ask: Client, query: str):
    answer = ask(f"{AT}{query}")
    assert answer.status == 400, answer.body
    assert len(answer.error) > 10


def test_only_get_is_answered(ask: Client):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = ask("/api/v1/tables", method=method)
        assert (answer.status, "GET" in answer.headers["allow"]) == (405, True)
        assert "GET" in answer.error


def test_a_body_of_100_mb_is_refused_before_it_is_sent(ask: Client):
    with socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S) as client:
        head = f"POST {AT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 104857600\r\n\r\n"
        client.sendall(head.encode())
        assert b" 413 " in client.recv(100)
        assert gone(client)
    assert ask("/healthz").status == 200


def test_a_body_without_end_is_not_read(ask: Client):
    with socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S) as client:
        head = f"POST {AT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head.encode())
        assert b" 405 " in client.recv(100)
        assert gone(client)


def test_a_client_that_drips_its_request_is_dropped(table: lakelatch.Table, serve):
    server = serve({"flights": table.url}, limits=Limits(headers_s=1.0))
    host, port = Client(server.url).host, Client(server.url).port
    began = time.monotonic()
    with socket.create_connection((host, port), timeout=PATIENCE_S) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        client.settimeout(0.2)
        while time.monotonic() - began < 60:
            try:
                client.sendall(b"x-slow: 1\r\n")
                if client.recv(10) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("it may drip for ever")


def test_a_client_that_says_nothing_is_dropped(table: lakelatch.Table, serve):
    server = serve({"flights": table.url}, limits=Limits(headers_s=1.0))
    ask = Client(server.url)
    with socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S) as client:
        assert gone(client)


def test_a_client_that_reads_no_answer_is_dropped_and_others_are_served(table: lakelatch.Table, serve):
    server = serve({"flights": table.url}, limits=Limits(write_s=1.0, requests_s=10_000))
    ask = Client(server.url)
    request = f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with socket.create_connection((ask.host, ask.port), timeout=0.2) as client:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                client.sendall(request * 100)
            except TimeoutError:
                assert ask("/healthz").status == 200
            except OSError:
                return
        pytest.fail("it may let its answers lie for ever")


def sent(ask: Client, *pieces: bytes) -> Answer:
    """What comes back for these bytes, the connection then being closed by the server."""
    with socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S) as client:
        for each in pieces:
            client.sendall(each)
        found = HTTPResponse(client)
        found.begin()
        body = found.read()
        assert gone(client)
    return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, body)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: no\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nlong: " + b"x" * (1 << 20) + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ],
)
def test_what_is_no_http_is_told_so_in_json_with_the_same_headers(ask: Client, request_: bytes, status: int):
    answer = sent(ask, request_)
    assert answer.status == status
    assert "cannot be read" in answer.error
    assert HEADERS.items() <= answer.headers.items()
    assert answer.headers["content-type"] == "application/json"


def test_a_body_that_is_none_is_told_so_and_is_no_fault_of_the_server(ask: Client, caplog: pytest.LogCaptureFixture):
    head = f"POST {AT}/markers/20260101000000000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    assert sent(ask, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), b"no chunk\r\n").status == 400
    assert ask("/healthz").status == 200
    assert not caplog.records


def test_a_client_that_leaves_is_no_fault(
    ask: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    begun, ended, body = threading.Event(), threading.Event(), Application._body

    async def waits(self: Application, request: Any) -> bytes:
        begun.set()
        try:
            return await body(self, request)
        finally:
            asyncio.get_running_loop().call_later(0, ended.set)  # when what becomes of it has been answered

    monkeypatch.setattr(Application, "_body", waits)
    head = f"POST {AT}/markers/20260101000000000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S) as client:
        client.sendall(f"{head}Content-Length: 100\r\n\r\nhalf".encode())
        assert begun.wait(PATIENCE_S)
    assert ended.wait(PATIENCE_S)
    assert ask("/healthz").status == 200
    assert not caplog.records


def test_a_fault_is_told_in_json_and_in_the_log_with_its_request_and_traceback(
    table: lakelatch.Table, serve, caplog: pytest.LogCaptureFixture
):
    def fails(_instant: str) -> None:
        raise ZeroDivisionError("a fault of ours")

    watched = Watched("flights", table)
    watched.why = fails  # type: ignore[method-assign]
    ask = Client(serve({}, watched={"flights": watched}).url)
    answer = ask(f"{AT}/why/20260101000000000")
    assert (answer.status, answer.headers["content-type"]) == (500, "application/json")
    assert "ZeroDivisionError" in answer.error
    (record,) = caplog.records
    assert f"GET {AT}/why/20260101000000000" in record.getMessage()
    assert record.exc_info is not None
    assert "in fails" in "".join(traceback.format_exception(record.exc_info[1]))


def test_a_flood_without_the_token_keeps_out_nobody_who_has_it(table: lakelatch.Table, serve):
    # As slow as lets the owner of the token ask six times: a machine that takes long for a request sees a flood, too.
    ask = Client(serve({"flights": table.url}, limits=Limits(requests_s=3.0, failures_s=0.5)).url)
    flood = [ask(path, headers={}).status for path in ("/api/v1/tables", "/healthz") for _ in range(50)]
    assert 429 in flood[:50]
    assert 429 in flood[50:]
    assert [ask("/api/v1/tables").status for _ in range(5)] == [200] * 5
    assert ask("/healthz").status == 200


def test_one_connection_too_many_is_told_so_in_json(table: lakelatch.Table, serve):
    ask = Client(serve({"flights": table.url}, limits=Limits(connections=2)).url)
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(closing(HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)))
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        refused = ask("/api/v1/tables")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "too many connections" in refused.error
    assert HEADERS.items() <= refused.headers.items()


def test_servers_on_free_ports_have_cookies_of_their_own(table: lakelatch.Table, serve):
    links = [Client(serve({"flights": table.url}).url) for _ in range(2)]
    names = {ask(f"/?token={TOKEN}", headers={}).headers["set-cookie"].partition("=")[0] for ask in links}
    assert names == {f"lakelatch-{ask.port}" for ask in links}


def test_clients_that_vanish_in_the_middle_leave_nothing_behind(table: lakelatch.Table, ask: Client):
    for path in (f"{AT}/events", f"{AT}/lanes", "/metrics"):
        for _ in range(5):
            client = socket.create_connection((ask.host, ask.port), timeout=PATIENCE_S)
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.close()
    assert ask(f"{AT}/lanes").status == 200


def test_too_many_live_views_are_refused_and_places_come_free(table: lakelatch.Table, serve):
    ask = Client(serve({"flights": table.url}, limits=Limits(streams=2)).url)
    streams = []
    for _ in range(2):
        connection = HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)
        connection.request("GET", f"{AT}/events", headers=ask.headers)
        streams.append((connection, connection.getresponse()))
        streams[-1][1].readline()
    refused = ask(f"{AT}/events")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    for connection, stream in streams:
        stream.close()
        connection.close()
    until = time.monotonic() + PATIENCE_S
    while True:
        connection = HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)
        connection.request("GET", f"{AT}/events", headers=ask.headers)
        status = connection.getresponse().status
        connection.close()
        if status == 200:
            break
        assert time.monotonic() < until


def test_a_store_that_hangs_costs_a_bounded_number_of_threads_and_a_sentence(table: lakelatch.Table):
    awake = threading.Event()
    watched = Watched("flights", table)
    watched.look()
    watched.why = lambda _instant: awake.wait(PATIENCE_S)  # type: ignore[method-assign]
    limits = Limits(calls=2, answer_s=0.2, requests_s=1000)
    try:
        with serving({}, limits=limits, watched={"flights": watched}) as server:
            ask = Client(server.url)
            answers = [ask(f"{AT}/why/20260101000000000") for _ in range(4)]
            assert [each.status for each in answers] == [504, 504, 503, 503]
            assert "ask again" in answers[0].error
            assert ask("/healthz").status == 200
            awake.set()
            until = time.monotonic() + PATIENCE_S
            while ask(f"{AT}/lock").status != 200:
                assert time.monotonic() < until
    finally:
        awake.set()


def test_asking_for_the_head_of_a_live_view_opens_none(ask: Client):
    assert ask(f"{AT}/events", method="HEAD").status == 200
    assert ask(AT, method="HEAD").body == b""


def test_requests_beyond_the_rate_wait(table: lakelatch.Table, serve):
    ask = Client(serve({"flights": table.url}, limits=Limits(requests_s=0.5)).url)
    assert ask("/healthz").status == 200
    refused = next(each for each in (ask("/healthz") for _ in range(20)) if each.status == 429)
    assert int(refused.headers["retry-after"]) >= 1


def test_a_server_that_stops_ends_its_live_views_and_answers_what_was_asked(table: lakelatch.Table):
    with serving({"flights": table.url}, limits=Limits(drain_s=600.0)) as server:
        ask = Client(server.url)
        connection = HTTPConnection(ask.host, ask.port, timeout=PATIENCE_S)
        connection.request("GET", f"{AT}/events", headers=ask.headers)
        stream = connection.getresponse()
        stream.readline()
    assert b"event: stopping" in stream.read()  # it has ended, in less time than it may take for that
    connection.close()
    with pytest.raises(OSError):
        ask("/healthz")


def gone(client: socket.socket) -> bool:
    """Whether the other side has closed, when all that it sent is read."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


# --- its address and its token ------------------------------------------------------------------------------------


def test_beyond_this_machine_it_wants_tls():
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        with pytest.raises(lakelatch.ConfigError, match="without TLS"):
            Address(host).refuse_unsafe()
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        Address(host).refuse_unsafe()
    Address("0.0.0.0", plain=True).refuse_unsafe()
    with pytest.raises(lakelatch.ConfigError, match="both"):
        Address(certificate="x.pem").refuse_unsafe()


def test_a_port_that_is_taken_is_said(table: lakelatch.Table):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(lakelatch.ConfigError, match=f"port {port}"):
            Server(Application({}, Access(TOKEN)), Address(port=port))


@pytest.mark.parametrize("text", ["", "short", "with blank with blank", "tokén-tokén-tokén-tokén", "\n" + TOKEN])
def test_a_token_that_could_be_guessed_or_sent_wrongly_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(lakelatch.ConfigError, match="16 characters"):
        Access.from_file(str(file))
    with pytest.raises(lakelatch.ConfigError, match="cannot be read"):
        Access.from_file(str(tmp_path / "none"))


def test_it_speaks_tls(table: lakelatch.Table, tmp_path: Path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl here")
    with program(
        table.url, tmp_path, "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")
    ) as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        port = int(url.rpartition(":")[2])
        plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with trusted.wrap_socket(plain, server_hostname="localhost") as client:
            head = f"GET /api/v1/tables HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")


class program:  # noqa: N801 - used as a function
    """`lakelatch server` as a process of its own; its URL."""

    def __init__(self, url: str, folder: Path, *more: str) -> None:
        token = folder / "token-file"
        token.write_text(f"{TOKEN}\n")
        self._arguments = ["--table", url, "--port", "0", "--token-file", str(token), *more]

    def __enter__(self) -> str:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakelatch.cli", "server", *self._arguments], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        return line.rpartition(" ")[2].strip()

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.rest = self.process.stdout.read()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def test_the_command_serves_and_ends_when_it_is_told_to(table: lakelatch.Table, tmp_path: Path):
    served = program(table.url, tmp_path)
    with served as url:
        assert Client(url)("/api/v1/tables").json()["tables"][0]["name"] == "flights"
    assert TOKEN not in served.rest
    assert served.process.returncode in (0, -15)


def test_without_a_file_a_token_is_made_and_printed_once(table: lakelatch.Table):
    process = subprocess.Popen(
        [sys.executable, "-m", "lakelatch.cli", "server", "--table", f"mine={table.url}", "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stdout.readline()
        link = process.stdout.readline().rpartition(" ")[2].strip()
        url, _, token = link.partition("/?token=")
        assert Client(url, {"Authorization": f"Bearer {token}"})("/api/v1/tables/mine").status == 200
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()
