"""Commits of many processes with a coordinator, without one, and of delta-rs: processes, servers, and one measured table.

A store is ``s3``, a real S3 server (versitygw, which has to be on the PATH) behind a proxy by which each request takes longer;
``far``, a folder in memory, each of whose requests takes as long as it is told; ``memory`` that folder as it is; or ``disk``, a
folder on a disk, where commits are flushed. The lock of the first two is a Redis server that is not delayed; that of the others
is the table's own.

Each writer is a process with a handle and a partition of its own, which inserts ten rows as fast as it can. Of the arms
``alone`` has no coordinator; ``coordinator`` is a `lakelatch server --coordinate`, reached over HTTP on this machine;
``at-once`` the same with the setting `publish_at_once`; ``delta`` is delta-rs, not on ``far``. Requests are those of the writers
and of the coordinator. With ``events`` each writer has a stream of one wide row instead, and upserts ten events. Afterwards
every row has to be there once, or no figure is told.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._report import percentile
from ..latencies import Published

_REQUESTS = frozenset(
    (
        "put_if_absent", "replace_if_match", "put", "get", "body", "head", "list", "names", "folders", "delete", "open", "create",
    )
)  # fmt: skip
TOKEN = "a token of the benchmark".replace(" ", "-")
NAME = "table"


class CountingStore:
    """A store whose requests are counted; each takes as long as it does far away, if that is given."""

    def __init__(self, near: Any, latency: float | Published) -> None:
        self._near, self._latency, self.requests = near, latency, 0
        self._luck = random.Random(os.getpid())
        self.url = "s3://far/table" if latency else near.url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._near, name)
        if name == "secure" and self._latency:
            from lakelatch.storage import Outcome, Put

            return lambda path: Put(Outcome.DONE) if self.head(path) else Put(Outcome.LOST)
        if name not in _REQUESTS:
            return found

        def asked(*given: Any, **more: Any) -> Any:
            self.requests += 1
            takes_s = self._latency.draw(self._luck, name) if isinstance(self._latency, Published) else self._latency
            if takes_s:  # the ways there and back are what is measured
                time.sleep(takes_s / 2)
            answer = found(*given, **more)
            if takes_s:
                time.sleep(takes_s / 2)
            return answer

        return asked


@dataclass(frozen=True)
class Place:
    """The place of a table: its URL, the options of its store, how long a request takes, and its lock."""

    url: str
    lock: str
    latency: float | Published = 0.0
    options: Mapping[str, str] = field(default_factory=dict)

    def table(self, writer: str) -> tuple[CountingStore, Any]:
        from lakelatch.occ.table.table import Table
        from lakelatch.storage import open_store

        store = CountingStore(open_store(self.url, **self.options), self.latency)
        return store, Table(store, writer=writer)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Told:
    """The facts of a writer: how long commits took and when they ended, CPU, requests, failed attempts, and an error."""

    took: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    requests: int = 0
    aborts: int = 0
    error: str = ""


def create(place: Place, arm: str, events: int) -> None:
    """Make the table; ``events``: with so many streams, of one column each."""
    import pyarrow as pa

    if events:
        import lakelatch

        columns = pa.schema(
            [("id", pa.string()), *((f"{c}{n}", pa.int64()) for n in range(events) for c in ("v", "at"))]
        )
        streams = {f"s{n}": {"columns": f"v{n}", "ordering": f"at{n}"} for n in range(events)}
        lakelatch.create(
            place.url, record_key="id", schema=columns, streams=streams, bucket_count=1, lock=place.lock,
            storage=dict(place.options), **_SETTINGS.get(arm, {}),
        ).close()  # fmt: skip
        return
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
    if arm == "delta":
        from deltalake import DeltaTable

        DeltaTable.create(place.url, schema, partition_by=["part"], storage_options=_of_delta(place))
        return
    import lakelatch

    lakelatch.create(
        place.url, record_key="id", partition_by="part", schema=schema, lock=place.lock, storage=dict(place.options),
        **_SETTINGS.get(arm, {}),
    ).close()  # fmt: skip


_SETTINGS: dict[str, dict[str, Any]] = {"at-once": {"publish_at_once": True}}


def _of_delta(place: Place) -> dict[str, str]:
    if not place.options:
        return {}
    names = {"access_key_id", "secret_access_key", "region", "endpoint", "allow_http"}
    given = {f"aws_{name}": value for name, value in place.options.items() if name in names}
    return given | {"aws_conditional_put": "etag"}


def coordinate(place: Place, listening: Any, stop: Any, told: Any) -> None:
    """The coordinator's process."""
    import threading

    from lakelatch import server as room
    from lakelatch.occ.landing import Coordinator

    _, table = place.table("dashboard")
    store, leading = place.table("coordinator")
    limits = room.Limits(markers_s=1e6)
    application = room.Application(
        {NAME: room.Watched(NAME, table)}, room.Access(TOKEN), limits=limits,
        coordinators={NAME: Coordinator(leading.session)},
    )  # fmt: skip
    server = room.Server(application, room.Address("127.0.0.1", 0), listening=listening.put)
    thread = threading.Thread(target=server.run_here)
    thread.start()
    stop.wait()
    used = time.process_time()
    server.should_exit = True
    thread.join()
    told.put((used, store.requests))


def write(
    place: Place,
    arm: str,
    number: int,
    url: str,
    profile: str,
    ready: Any,
    start: Any,
    seconds: float,
    commits: int,
    events: bool,
    told: Any,
) -> None:
    """One writer, for so long or until it has made so many commits."""
    import pyarrow as pa

    aborts = 0

    def rows_of(count: int) -> pa.Table:
        ids = [f"{number}-{count}-{each}" for each in range(10)]
        if events:
            return pa.table({"id": ids, f"v{number}": [count] * 10, f"at{number}": [count] * 10})
        return pa.table({"id": ids, "part": [f"p{number}"] * 10, "v": [count] * 10})

    try:
        if arm == "delta":
            from deltalake import CommitProperties, DeltaTable, write_deltalake
            from deltalake.exceptions import CommitFailedError

            delta = DeltaTable(place.url, storage_options=_of_delta(place))
            properties = CommitProperties(max_commit_retries=10_000)

            def commit(count: int) -> None:
                nonlocal aborts
                while True:
                    try:
                        delta.update_incremental()
                        write_deltalake(
                            delta, rows_of(count), mode="append", partition_by=["part"], commit_properties=properties
                        )
                        return
                    except CommitFailedError:
                        aborts += 1

            def requests() -> int:
                return 0
        else:
            from lakelatch.occ.coordination import CoordinatorServer

            store, table = place.table(f"w{number}")
            if url:
                asks = CoordinatorServer(url, token=TOKEN, table=NAME)
                table.session.coordinator = asks.for_table(store, table.session.env)  # type: ignore[arg-type]

            def commit(count: int) -> None:
                if events:
                    table.stream(f"s{number}").upsert(rows_of(count))
                else:
                    table.insert(rows_of(count))

            def requests() -> int:
                return store.requests

        commit(0)
        ready.release()
        start.wait()
        before, cpu_s, took, ended = requests(), time.process_time(), list[float](), list[float]()
        until = time.monotonic() + seconds
        profiler = None
        if profile and not number:
            import cProfile

            profiler = cProfile.Profile()
            profiler.enable()
        while len(took) < commits if commits else time.monotonic() < until:
            began = time.monotonic()
            commit(len(took) + 1)
            ended.append(time.monotonic())
            took.append(ended[-1] - began)
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(profile)
        told.put(Told(took, ended, time.process_time() - cpu_s, requests() - before, aborts))
        if arm != "delta":
            table.close()
    except Exception as e:
        ready.release()
        told.put(Told(error=f"w{number}: {e!r}"))


def rows(place: Place, arm: str, told: Any) -> None:
    if arm == "delta":
        from deltalake import DeltaTable

        ids = DeltaTable(place.url, storage_options=_of_delta(place)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        told.put((len(ids), len(set(ids)), []))
        return
    from lakelatch.occ.check import check

    _, table = place.table("reader")
    ids = table.read(columns=["id"]).to_arrow().column("id").to_pylist()
    told.put(
        (len(ids), len(set(ids)), [str(each) for each in check(table.store).findings if each.severity.name == "ERROR"])
    )


def delay(port: int, request_s: float, listening: Any) -> None:
    """A proxy's process: bytes to and from that port arrive half of ``request_s`` later."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        late: deque[tuple[float, asyncio.Transport, bytes]] = deque()  # all take as long, so they are due in this order

        def pass_on() -> None:
            while late and late[0][0] <= loop.time() + 0.0005:
                _, to, data = late.popleft()
                to.write(data) if data else to.close()
            if late:
                loop.call_at(late[0][0], pass_on)

        class Side(asyncio.Protocol):
            def __init__(self, other: asyncio.Transport | None = None) -> None:
                self.other, self.early = other, list[bytes]()

            def connection_made(self, transport: Any) -> None:
                if self.other is None:
                    self.reaches = asyncio.ensure_future(self.reach(transport))

            async def reach(self, transport: asyncio.Transport) -> None:
                self.other, _ = await loop.create_connection(lambda: Side(transport), "127.0.0.1", port)
                for data in self.early:
                    self.data_received(data)

            def data_received(self, data: bytes) -> None:
                if self.other is None:
                    self.early.append(data)
                    return
                late.append((loop.time() + request_s / 2, self.other, data))
                if len(late) == 1:
                    loop.call_at(late[0][0], pass_on)

            def connection_lost(self, _: Exception | None) -> None:
                self.data_received(b"")

        server = await loop.create_server(Side, "127.0.0.1", 0, backlog=1024)
        listening.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def measure(
    place: Place,
    arm: str,
    writers: int,
    seconds: float,
    *,
    commits: int = 0,
    kills: bool = False,
    events: bool = False,
    profile: str = "",
) -> dict[str, Any]:
    """Measure one new table.

    Args:
        events: of a table with a stream for each writer.
        commits: each writer ends when it has made so many, and not after ``seconds``.
        kills: kill the coordinator half-way, and tell how long each writer's next commit took.
    """
    fork = multiprocessing.get_context("fork")
    ready, start, stop = fork.Semaphore(0), fork.Event(), fork.Event()
    told, led, listening = fork.Queue(), fork.Queue(), fork.Queue()

    def child(work: Any, *given: Any) -> Any:
        process = fork.Process(target=functools.partial(work, *given))
        process.start()
        return process

    child(create, place, arm, writers if events else 0).join()
    url = ""
    leader = child(coordinate, place, listening, stop, led) if arm in ("coordinator", "at-once") else None
    if leader is not None:
        url = listening.get(timeout=60)
    processes = [
        child(write, place, arm, n, url, profile, ready, start, seconds, commits, events, told) for n in range(writers)
    ]
    for _ in processes:
        ready.acquire()
    began = time.monotonic()
    start.set()
    if leader is not None and kills:
        time.sleep(seconds / 2)  # the coordinator is at work for that long
        killed = time.monotonic()
        os.kill(leader.pid, signal.SIGKILL)
    found: list[Told] = [told.get() for _ in processes]
    for process in processes:
        process.join()
    cpu_s, requests = 0.0, 0
    if leader is not None and not kills:
        stop.set()
        cpu_s, requests = led.get()
    if leader is not None:
        leader.join()
    child(rows, place, arm, told).join()
    count, different, wrong = told.get()
    took = [each for one in found for each in one.took]
    failed = [one.error for one in found if one.error]
    if failed or wrong or count != different or count != 10 * (len(took) + writers):
        return {
            "arm": arm,
            "failed": failed[:3],
            "wrong": wrong[:3],
            "rows": count,
            "expected": 10 * (len(took) + writers),
        }
    each = [len(one.took) for one in found]
    ended = [moment for one in found for moment in one.ended]
    if kills:
        first = [next((e - killed for e in one.ended if e > killed), float("inf")) for one in found]
        return {
            "arm": arm,
            "writers": writers,
            "first_s": round(max(first), 2),
            "median_first_s": round(percentile(first, 0.5), 2),
            "before": round(sum(e < killed for e in ended) / (killed - began), 1),
            "after": round(sum(e > killed for e in ended) / (seconds / 2), 1),
        }
    return {
        "arm": arm,
        "writers": writers,
        "commits_s": round(len(took) / (max(ended) - began if commits else seconds), 1),
        "all_s": round(max(ended) - began, 2),
        "p50_ms": round(1000 * percentile(took, 0.5)),
        "p99_ms": round(1000 * percentile(took, 0.99)),
        "fair": round(min(each) / max(each), 2),
        "requests": round((sum(one.requests for one in found) + requests) / len(took), 1),
        "cpu_ms": round(1000 * sum(one.cpu_s for one in found) / len(took), 1),
        "coordinator_cpu_ms": round(1000 * cpu_s / len(took), 1),
        "aborts": sum(one.aborts for one in found),
    }


@contextmanager
def places(kind: str, latency: float | Published, folder: str | None) -> Iterator[Callable[[int], Place]]:
    """Yield a function that returns a new place of this kind; ``folder``: the one for temporary files, of ``disk``."""
    from lakelatch.demo.cluster import redis_server, s3_server

    with ExitStack() as stack:
        below = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder if kind == "disk" else "/dev/shm")))
        if kind in ("disk", "memory"):
            yield lambda number: Place(f"{below}/{number}/{NAME}", "table")
            return
        lock = stack.enter_context(redis_server(below))
        if kind == "far":
            yield lambda number: Place(f"{below}/{number}/{NAME}", lock, latency)
            return
        assert isinstance(latency, float), "the proxy adds the same to each request"
        url, options, _ = stack.enter_context(s3_server(below))
        fork = multiprocessing.get_context("fork")
        listening = fork.Queue()
        port = int(options["endpoint"].rpartition(":")[2])
        proxy = fork.Process(target=delay, args=(port, latency, listening), daemon=True)
        proxy.start()
        stack.callback(proxy.terminate)
        delayed = options | {"endpoint": f"http://127.0.0.1:{listening.get(timeout=60)}"}
        yield lambda number: Place(f"{url}/{number}/{NAME}", lock, options=delayed)
