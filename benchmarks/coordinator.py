"""Measure commits of many processes with a coordinator against the same without one, and against delta-rs.

    python -m benchmarks.coordinator [--store far,disk,s3] [--writers 1,16,64] [--arms alone,coordinator] [--rounds 3]

`--store`: ``s3`` is a real S3 server (versitygw, which has to be on the PATH) behind a proxy by which each request takes
`--request-ms` longer; ``far`` a folder in memory, each of whose requests takes `--request-ms`; ``disk`` the folder as it is, on
the table's own lock, where commits are flushed. The lock of the others is a Redis server that is not delayed.

Each writer is a process with a handle and a partition of its own, which inserts ten rows as fast as it can. `--arms` take turns:
``alone`` has no coordinator; ``coordinator`` is a `lakelatch server --coordinate`, reached over HTTP on this machine; ``at-once``
the same with the setting `publish_at_once`; ``delta`` is delta-rs, not on ``far``. Requests are those of the writers and of the
coordinator. Afterwards every row has to be there once, or no figure is printed. `--profile FILE` keeps the profile of one
writer.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._report import machine, percentile, show

_REQUESTS = frozenset(
    (
        "put_if_absent", "replace_if_match", "put", "get", "body", "head", "list", "names", "folders", "delete", "open", "create",
    )
)  # fmt: skip
_TOKEN = "a token of the benchmark".replace(" ", "-")
_NAME = "table"


class CountingStore:
    """A store whose requests are counted; each takes ``request_s``, as if a folder were far away."""

    def __init__(self, near: Any, request_s: float) -> None:
        self._near, self._request_s, self.requests = near, request_s, 0
        self.url = "s3://far/table" if request_s else near.url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._near, name)
        if name == "secure" and self._request_s:
            from lakelatch.storage import Outcome, Put

            return lambda path: Put(Outcome.DONE) if self.head(path) else Put(Outcome.LOST)
        if name not in _REQUESTS:
            return found

        def asked(*given: Any, **more: Any) -> Any:
            self.requests += 1
            if self._request_s:  # the ways there and back are what is measured
                time.sleep(self._request_s / 2)
            answer = found(*given, **more)
            if self._request_s:
                time.sleep(self._request_s / 2)
            return answer

        return asked


@dataclass(frozen=True)
class Place:
    """The place of a table: its URL, the options of its store, how long a request takes, and its lock."""

    url: str
    lock: str
    request_s: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)

    def table(self, writer: str) -> tuple[CountingStore, Any]:
        from lakelatch.occ.table.table import Table
        from lakelatch.storage import open_store

        store = CountingStore(open_store(self.url, **self.options), self.request_s)
        return store, Table(store, writer=writer)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Told:
    """The facts that a writer tells: how long its commits took, its CPU and requests, the attempts that failed, and an error."""

    took: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    requests: int = 0
    aborts: int = 0
    error: str = ""


def create(place: Place, arm: str) -> None:
    import pyarrow as pa

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
        {_NAME: room.Watched(_NAME, table)}, room.Access(_TOKEN), limits=limits,
        coordinators={_NAME: Coordinator(leading.session)},
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
    place: Place, arm: str, number: int, url: str, profile: str, ready: Any, start: Any, seconds: float, told: Any
) -> None:
    """One writer."""
    import pyarrow as pa

    aborts = 0

    def rows_of(count: int) -> pa.Table:
        ids = [f"{number}-{count}-{each}" for each in range(10)]
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
                asks = CoordinatorServer(url, token=_TOKEN, table=_NAME)
                table.session.coordinator = asks.for_table(store, table.session.env)  # type: ignore[arg-type]

            def commit(count: int) -> None:
                table.insert(rows_of(count))

            def requests() -> int:
                return store.requests

        commit(0)
        ready.release()
        start.wait()
        before, cpu_s, took = requests(), time.process_time(), list[float]()
        until = time.monotonic() + seconds
        profiler = None
        if profile and not number:
            import cProfile

            profiler = cProfile.Profile()
            profiler.enable()
        while time.monotonic() < until:
            began = time.monotonic()
            commit(len(took) + 1)
            took.append(time.monotonic() - began)
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(profile)
        told.put(Told(took, time.process_time() - cpu_s, requests() - before, aborts))
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


def measure(place: Place, arm: str, writers: int, seconds: float, profile: str) -> dict[str, Any]:
    """Measure one new table."""
    fork = multiprocessing.get_context("fork")
    ready, start, stop = fork.Semaphore(0), fork.Event(), fork.Event()
    told, led, listening = fork.Queue(), fork.Queue(), fork.Queue()

    def child(work: Any, *given: Any) -> Any:
        process = fork.Process(target=functools.partial(work, *given))
        process.start()
        return process

    child(create, place, arm).join()
    url = ""
    leader = child(coordinate, place, listening, stop, led) if arm in ("coordinator", "at-once") else None
    if leader is not None:
        url = listening.get(timeout=60)
    processes = [child(write, place, arm, n, url, profile, ready, start, seconds, told) for n in range(writers)]
    for _ in processes:
        ready.acquire()
    start.set()
    found: list[Told] = [told.get() for _ in processes]
    for process in processes:
        process.join()
    cpu_s, requests = 0.0, 0
    if leader is not None:
        stop.set()
        cpu_s, requests = led.get()
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
    return {
        "arm": arm,
        "writers": writers,
        "commits_s": round(len(took) / seconds, 1),
        "p50_ms": round(1000 * percentile(took, 0.5)),
        "p99_ms": round(1000 * percentile(took, 0.99)),
        "fair": round(min(each) / max(each), 2),
        "requests": round((sum(one.requests for one in found) + requests) / len(took), 1),
        "cpu_ms": round(1000 * sum(one.cpu_s for one in found) / len(took), 1),
        "coordinator_cpu_ms": round(1000 * cpu_s / len(took), 1),
        "aborts": sum(one.aborts for one in found),
    }


@contextmanager
def places(kind: str, request_s: float, folder: str | None) -> Iterator[Any]:
    """Yield a function that returns a new place of this kind."""
    from lakelatch.demo.cluster import redis_server, s3_server

    with ExitStack() as stack:
        below = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder if kind == "disk" else "/dev/shm")))
        if kind == "disk":
            yield lambda number: Place(f"{below}/{number}/{_NAME}", "table")
            return
        lock = stack.enter_context(redis_server(below))
        if kind == "far":
            yield lambda number: Place(f"{below}/{number}/{_NAME}", lock, request_s)
            return
        url, options, _ = stack.enter_context(s3_server(below))
        fork = multiprocessing.get_context("fork")
        listening = fork.Queue()
        port = int(options["endpoint"].rpartition(":")[2])
        proxy = fork.Process(target=delay, args=(port, request_s, listening), daemon=True)
        proxy.start()
        stack.callback(proxy.terminate)
        delayed = options | {"endpoint": f"http://127.0.0.1:{listening.get(timeout=60)}"}
        yield lambda number: Place(f"{url}/{number}/{_NAME}", lock, options=delayed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="far,disk")
    parser.add_argument("--writers", default="1,16,64")
    parser.add_argument("--arms", default="alone,coordinator")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--request-ms", type=float, default=20.0)
    parser.add_argument(
        "--folder", default=None, help="on the disk to be measured; the one for temporary files otherwise"
    )
    parser.add_argument("--rounds", type=int, default=1, help="the arms in turn, so often; medians are printed too")
    parser.add_argument("--profile", default="", help="a file for the profile of one writer")
    given = parser.parse_args()
    import pyarrow.parquet  # noqa: F401 - imported once, and not by each writer

    import lakelatch.occ.table
    import lakelatch.server  # noqa: F401

    show("machine", machine("redis", "uvicorn", "deltalake"))
    for kind in given.store.split(","):
        with places(kind, given.request_ms / 1000, given.folder) as new:
            number = 0
            for writers in map(int, given.writers.split(",")):
                found: dict[str, list[dict[str, Any]]] = {}
                for _ in range(given.rounds):
                    for arm in given.arms.split(","):
                        number += 1
                        place = new(number)
                        one = measure(place, arm, writers, given.seconds, given.profile)
                        show(kind, one)
                        found.setdefault(arm, []).append(one)
                        if "://" not in place.url:
                            shutil.rmtree(place.url, ignore_errors=True)
                for arm, runs in found.items() if given.rounds > 1 else ():
                    sound = [each for each in runs if "commits_s" in each]
                    if sound:
                        keys = [key for key, value in sound[0].items() if key not in ("arm", "writers")]
                        medians = {key: statistics.median(each[key] for each in sound) for key in keys}
                        show(f"{kind}, median of {len(sound)}", {"arm": arm, "writers": writers} | medians)


if __name__ == "__main__":
    main()
