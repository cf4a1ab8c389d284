"""The application: the dashboard, the API, live changes and metrics of the tables it is given."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ..environment import SYSTEM, Environment
from ..errors import InputError, LakeLatchError
from ..occ.coordination import Answer, Question
from ..plain_text import visible_json
from .endpoints import ENDPOINTS, IN_PATH, Endpoint, Parameter, announced_in, described, values
from .guard import Access, Guard, Limits, answer, of_error, refusal
from .markers import BusyError, MarkerBook
from .page import Page, page
from .watched import Watched

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ..occ.landing import Coordinator

_IDLE_S = 5.0  # seconds between two polls of a table that nobody watches
_ATTENDED_S = 60.0  # after a request, a table counts as watched for this long
_BEAT_S = 0.25  # between two bytes for a writer that waits for its coordinator
_PING_S = 15.0  # a proxy must not mistake a quiet stream for a dead one
_log = logging.getLogger("lakelatch.server")
_LINK = (Parameter("token", "of the dashboard's link"),)


class Application:
    """The service of one server.

    Args:
        tables: by the names used in URLs; the caller closes them.
        every_s: seconds between two polls of a watched table.
        batch_s: seconds between two writes of the markers of a transaction.
        coordinators: of tables whose writers may ask to begin and to commit.
        secure: True if the server speaks TLS; cookies are then never sent without it.
    """

    def __init__(
        self, tables: Mapping[str, Watched], access: Access, *, limits: Limits | None = None, every_s: float = 0.5,
        batch_s: float = 0.05, secure: bool = False, coordinators: Mapping[str, Coordinator] = MappingProxyType({}),
        env: Environment = SYSTEM,
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self.access = access
        self._tables, self._every_s, self._secure, self._env = tables, every_s, secure, env
        self._page: Page = page()
        self._openapi = described(list(tables))
        self._threads: anyio.CapacityLimiter
        self._asked_at = env.monotonic()
        self._woken = asyncio.Event()
        self._streams: set[asyncio.Event] = set()
        self._draining = False
        self._hung: list[threading.Event] = []  # abandoned calls that are still running
        self._coordinators = coordinators
        for name, each in coordinators.items():
            tables[name].coordinator = each
        self._books = {name: MarkerBook(each.table.store, interval_s=batch_s) for name, each in tables.items()}
        routes = [
            Route("/healthz", self._healthz),
            Route("/", self._dashboard),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._described),
            Route("/api/v1/tables", self._list),
            Route("/api/v1/tables/{table}/events", self._events),
            Route("/api/v1/tables/{table}/markers/{instant}", self._announce, methods=["POST"]),
            Route("/api/v1/tables/{table}/transactions", self._coordinate, methods=["POST"]),
            *(Route(f"/api/v1/tables/{{table}}{each.path}", partial(self._ask, each)) for each in ENDPOINTS),
        ]
        inner = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={
                HTTPException: _http_error,
                LakeLatchError: _told,
                ClientDisconnect: _left,
                Exception: _fault,
            },
        )
        inner.router.redirect_slashes = False
        self.headers = {
            "content-security-policy": self._page.policy,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), geolocation=(), microphone=()",
            "cache-control": "no-store",
        } | ({"strict-transport-security": "max-age=31536000"} if secure else {})
        self.asgi: ASGIApp = Guard(inner, access, self.limits, env, self.headers)

    def drain(self) -> None:
        """Refuse new work and end live streams; requests being answered go on."""
        self._draining = True
        self._wake_streams()

    # --- following the tables --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        loop, self._threads = asyncio.get_running_loop(), anyio.CapacityLimiter(self.limits.calls)
        for table in self._tables.values():
            table.changed = partial(loop.call_soon_threadsafe, self._wake_streams)
        tasks = [asyncio.create_task(self._follow(table)) for table in self._tables.values()]
        try:
            yield
        finally:
            # Markers that were accepted are written before the loop ends, because their writers wait for the answer.
            for book in self._books.values():
                await book.settled()
            for table in self._tables.values():
                table.changed = lambda: None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, table: Watched) -> None:
        while True:
            try:
                await to_thread.run_sync(table.look, abandon_on_cancel=True)
            except Exception:  # noqa: BLE001 - one failed poll must not end all polls
                _log.exception("looking at table %s failed; it is tried again", table.name)
            # A poll costs requests of the store, so a table that nobody watches is polled rarely.
            watched = self._streams or self._env.monotonic() - self._asked_at < _ATTENDED_S
            self._woken.clear()
            if watched:
                await asyncio.sleep(self._every_s)
            else:
                await _until(self._woken, _IDLE_S)

    def _wake_streams(self) -> None:
        for each in self._streams:
            each.set()

    # --- answers ---------------------------------------------------------------------------------------------

    async def _healthz(self, request: Request) -> Response:
        values(request.scope["query_string"], ())
        return answer({"status": "draining" if self._draining else "ok"}, status=503 if self._draining else 200)

    async def _dashboard(self, request: Request) -> Response:
        query = values(request.scope["query_string"], _LINK)
        if query["token"] is not None:
            # Redirect, so that the token leaves the address bar at once; the cookie stays.
            there = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            if self.access.opens(request.scope["query_string"]):
                there.headers["set-cookie"] = self.access.set_cookie(secure=self._secure)
            return there
        return Response(self._page.body, media_type="text/html; charset=utf-8")

    async def _described(self, request: Request) -> Response:
        values(request.scope["query_string"], ())
        return answer(self._openapi)

    async def _metrics(self, request: Request) -> Response:
        from .metrics import exposition

        values(request.scope["query_string"], ())
        text, kind = await self._call(partial(exposition, list(self._tables.values())))
        return Response(text, headers={"content-type": kind})

    async def _list(self, request: Request) -> Response:
        values(request.scope["query_string"], ())
        tables = list(self._tables.values())
        return answer({"tables": await self._call(lambda: [table.summary() for table in tables])})

    async def _ask(self, endpoint: Endpoint, request: Request) -> Response:
        table = self._table(request)
        query = values(request.scope["query_string"], endpoint.parameters)
        if endpoint.instant:
            query["instant"] = IN_PATH.value(request.path_params["instant"])
        return answer(await self._call(partial(endpoint.call, table, query)))

    async def _announce(self, request: Request) -> Response:
        """Store the markers of one task, and answer once they are stored."""
        table = self._table(request, attended=False)
        values(request.scope["query_string"], ())
        instant = str(IN_PATH.value(request.path_params["instant"]))
        if self._draining:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the server stops; put these markers directly")
        seconds = self.limits.markers_answer_s
        try:
            with anyio.fail_after(seconds):
                names = announced_in(await self._body(request))
                lists = await self._books[table.name].add(instant, names)
        except BusyError as e:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(e)) from None
        except TimeoutError:
            message = (
                f"the table's store did not take these markers within {seconds:g} s; ask again, or put them directly"
            )
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, message) from None
        return answer({"lists": lists})

    async def _coordinate(self, request: Request) -> Response:
        """Begin or commit a transaction; answered when that is in the log, or its writer has to do it by itself."""
        table = self._table(request, attended=False)
        values(request.scope["query_string"], ())
        coordinator = self._coordinators.get(table.name)
        if self._draining or coordinator is None:
            why = "the server stops" if coordinator else "this server was not started with --coordinate"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}; begin and commit by yourself")
        question = Question.from_bytes(await self._body(request))
        if question is None:
            raise InputError("this is no question to a coordinator of this version; begin and commit by yourself")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer | None] = loop.create_future()

        def settle(told: Answer | None) -> None:
            if not answered.done():
                answered.set_result(told)

        def answer_from_round(told: Answer | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(settle, told)

        coordinator.ask(question, answer_from_round)
        # Soon, or with a byte now and then: a writer that hears nothing at all takes the coordinator for dead.
        await asyncio.wait((answered,), timeout=_BEAT_S)
        if answered.done():
            return Response(_told_by(answered), media_type="application/octet-stream")
        return StreamingResponse(self._beats(answered), media_type="application/octet-stream")

    async def _beats(self, answered: asyncio.Future[Answer | None]) -> AsyncIterator[bytes]:
        until = self._env.monotonic() + self.limits.answer_s
        while not answered.done() and self._env.monotonic() < until:
            yield b"\n"
            await asyncio.wait((answered,), timeout=_BEAT_S)
        yield _told_by(answered)

    async def _body(self, request: Request) -> bytes:
        body, most = bytearray(), self.limits.body_bytes
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; send {most:,} bytes at most"
                )
        return bytes(body)

    def _table(self, request: Request, *, attended: bool = True) -> Watched:
        """Return the requested table; ``attended``: somebody watches it, so it is polled more often."""
        name = request.path_params["table"]
        if attended:
            self._asked_at = self._env.monotonic()
            self._woken.set()
        if name not in self._tables:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, f"this server watches no table {name[:100]!r}; /api/v1/tables lists them"
            )
        return self._tables[name]

    async def _call(self, call: Any) -> Any:
        """Run a call on one of a bounded number of threads, within a bounded time."""
        waiting = self._threads.statistics().tasks_waiting
        if self._draining or waiting >= self.limits.calls_waiting or self._hangs():
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the server is busy or stops; ask again in a second")
        # A thread cannot be stopped. The event shows when an abandoned call ends after all, so that it stops counting as
        # hung.
        ended = threading.Event()

        def run() -> Any:
            try:
                return call()
            finally:
                ended.set()

        try:
            with anyio.fail_after(self.limits.answer_s):
                return await to_thread.run_sync(run, limiter=self._threads, abandon_on_cancel=True)
        except TimeoutError:
            self._hung.append(ended)
            seconds = self.limits.answer_s
            message = f"the table did not answer within {seconds:g} s; ask again, or look at its store"
            raise HTTPException(HTTPStatus.GATEWAY_TIMEOUT, message) from None

    def _hangs(self) -> bool:
        """Return whether as many abandoned calls as allowed still run: more would only pile up."""
        self._hung = [each for each in self._hung if not each.is_set()]
        return len(self._hung) >= self.limits.calls

    async def _events(self, request: Request) -> Response:
        table = self._table(request)
        values(request.scope["query_string"], ())
        if self._draining or len(self._streams) >= self.limits.streams:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many live views are open; close one, or ask again in a second"
            )
        # A HEAD request must not open a stream that never ends.
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(
            self._changes(table), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )  # fmt: skip

    async def _changes(self, table: Watched) -> AsyncIterator[bytes]:
        woken = asyncio.Event()
        self._streams.add(woken)
        told = -1
        try:
            while not self._draining:
                woken.clear()
                if table.version != told:
                    told = table.version
                    told_of = await to_thread.run_sync(table.summary, abandon_on_cancel=True)
                    summary = visible_json(json.dumps(told_of, ensure_ascii=False))
                    yield f"event: change\nid: {told}\ndata: {summary}\n\n".encode()
                elif not await _until(woken, _PING_S):
                    yield b": still there\n\n"
            yield b"event: stopping\ndata: {}\n\n"
        finally:
            self._streams.discard(woken)


def _told_by(answered: asyncio.Future[Answer | None]) -> bytes:
    """The body of an answer; empty without one: its writer has to begin or commit by itself."""
    told = answered.result() if answered.done() else None
    return b"" if told is None else told.to_bytes()


async def _until(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event; return False if it did not come within that many seconds."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
        return True
    except TimeoutError:
        return False


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    words = {
        HTTPStatus.NOT_FOUND: "there is nothing here; /openapi.json says what can be asked",
        HTTPStatus.METHOD_NOT_ALLOWED: "this only answers GET, and markers also POST; /openapi.json says what can be asked",
    }
    detail = error.detail if error.detail != status.phrase else words.get(status, error.detail)
    found = refusal(status, detail, retry_s=1.0 if status is HTTPStatus.SERVICE_UNAVAILABLE else None)
    found.headers.update(error.headers or {})
    return found


async def _told(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LakeLatchError)
    return of_error(error)


async def _left(_request: Request, _error: Exception) -> Response:
    return refusal(HTTPStatus.BAD_REQUEST, "the client left before all of its request had come")


async def _fault(request: Request, error: Exception) -> Response:
    _log.error(
        "%s %s: something is wrong in lakelatch itself: %s",
        request.method,
        request.url.path,
        type(error).__name__,
        exc_info=error,
    )
    return refusal(
        HTTPStatus.INTERNAL_SERVER_ERROR, f"something is wrong in lakelatch itself: {type(error).__name__}; see the server's log"
    )  # fmt: skip


def named(tables: Sequence[str]) -> dict[str, str]:
    """Return URLs by name from ``--table`` arguments: a URL, whose last part is the name, or NAME=URL.

    Raises:
        InputError: two have one name, or one has none.
    """
    found: dict[str, str] = {}
    for each in tables:
        name, equals, url = each.partition("=")
        if not equals or any(char in name for char in "/:\\"):
            name, url = each.rstrip("/").rpartition("/")[2], each
        if not name or not url or not name.isprintable() or name in (".", "..") or "/" in name:
            raise InputError(f"--table {each} has no name; say --table NAME={url or 'URL'}", table=each)
        if name in found:
            raise InputError(f"two tables are called {name}; say --table NAME={url} for one of them", table=each)
        found[name] = url
    return found
