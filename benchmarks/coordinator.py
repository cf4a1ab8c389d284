"""Measure commits of many processes with a coordinator against the same without one.

    python -m benchmarks.coordinator [--store far,disk] [--writers 1,16,64] [--seconds 10] [--request-ms 20] [--folder DIR]

``far``: a store each of whose requests takes `--request-ms`, over a folder in memory, with a Redis lock that is not delayed.
``disk``: the folder as it is, on the table's own lock; commits are flushed. Each writer is a process with a handle and a
partition of its own, which inserts ten rows as fast as it can. A coordinator is a `lakelatch server --coordinate`, reached over
HTTP on this machine. Requests are those of the writers and of the coordinator. Afterwards every row has to be there once, or no
figure is printed.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ._report import machine, percentile, show

_REQUESTS = frozenset(
    (
        "put_if_absent",
        "replace_if_match",
        "put",
        "get",
        "body",
        "head",
        "list",
        "names",
        "folders",
        "delete",
        "open",
        "create",
    )
)
_TOKEN = "a token of the benchmark".replace(" ", "-")
_NAME = "table"


class FarStore:
    """A store on a local folder that behaves as one far away: each request takes its time and is counted."""

    def __init__(self, folder: str, request_s: float) -> None:
        from lakelatch.storage.local.store import LocalStore

        self._near, self._request_s, self.requests = LocalStore(folder), request_s, 0
        self.url = "s3://far/table" if request_s else self._near.url

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


def opened(folder: str, request_s: float, writer: str) -> tuple[FarStore, Any]:
    from lakelatch.occ.table.table import Table

    store = FarStore(folder, request_s)
    return store, Table(store, writer=writer)  # type: ignore[arg-type]


def create(folder: str, lock: str, at_once: bool) -> None:
    import pyarrow as pa

    import lakelatch

    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
    lakelatch.create(
        folder, record_key="id", partition_by="part", schema=schema, lock=lock, publish_at_once=at_once
    ).close()


def coordinate(folder: str, request_s: float, listening: Any, stop: Any, told: Any) -> None:
    """The coordinator's process."""
    import threading

    from lakelatch import server as room
    from lakelatch.occ.landing import Coordinator

    _, table = opened(folder, request_s, "dashboard")
    store, leading = opened(folder, request_s, "coordinator")
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
    number: int, folder: str, request_s: float, url: str, ready: Any, start: Any, seconds: float, told: Any
) -> None:
    """One writer."""
    import pyarrow as pa

    from lakelatch.occ.coordination import CoordinatorServer

    store, table = opened(folder, request_s, f"w{number}")
    if url:
        table.session.coordinator = CoordinatorServer(url, token=_TOKEN, table=_NAME).for_table(
            store, table.session.env
        )  # type: ignore[arg-type]

    def commit(count: int) -> None:
        ids = [f"{number}-{count}-{each}" for each in range(10)]
        table.insert(pa.table({"id": ids, "part": [f"p{number}"] * 10, "v": [count] * 10}))

    try:
        commit(0)
        ready.release()
        start.wait()
        before, cpu_s, took = store.requests, time.process_time(), list[float]()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            commit(len(took) + 1)
            took.append(time.monotonic() - began)
        told.put((took, time.process_time() - cpu_s, store.requests - before, ""))
        table.close()
    except Exception as e:
        ready.release()
        told.put(([], 0.0, 0, f"w{number}: {e!r}"))


def rows(folder: str, told: Any) -> None:
    import lakelatch
    from lakelatch.occ.check import check

    with lakelatch.open(folder) as table:
        ids = table.read(columns=["id"]).to_arrow().column("id").to_pylist()
        told.put(
            (
                len(ids),
                len(set(ids)),
                [str(each) for each in check(table.store).findings if each.severity.name == "ERROR"],
            )
        )


@contextmanager
def redis() -> Iterator[str]:
    """A Redis server of this run."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
    )
    try:
        while True:  # a server sends no notification when it has opened its port
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def measure(
    place: str, lock: str, writers: int, seconds: float, request_s: float, *, coordinated: bool, at_once: bool
) -> dict[str, Any]:
    """Measure one new table."""
    fork = multiprocessing.get_context("fork")
    folder = str(Path(place, _NAME))
    shutil.rmtree(folder, ignore_errors=True)
    ready, start, stop = fork.Semaphore(0), fork.Event(), fork.Event()
    told, led, listening = fork.Queue(), fork.Queue(), fork.Queue()

    def child(work: Any, *given: Any) -> Any:
        process = fork.Process(target=functools.partial(work, *given))
        process.start()
        return process

    child(create, folder, lock, at_once).join()
    url = ""
    leader = child(coordinate, folder, request_s, listening, stop, led) if coordinated else None
    if leader is not None:
        url = listening.get(timeout=60)
    processes = [child(write, n, folder, request_s, url, ready, start, seconds, told) for n in range(writers)]
    for _ in processes:
        ready.acquire()
    start.set()
    found = [told.get() for _ in processes]
    for process in processes:
        process.join()
    cpu_s, requests = 0.0, 0
    if leader is not None:
        stop.set()
        cpu_s, requests = led.get()
        leader.join()
    child(rows, folder, told).join()
    count, different, wrong = told.get()
    took = [each for took, *_ in found for each in took]
    failed = [error for *_, error in found if error]
    if failed or wrong or count != different or count != 10 * (len(took) + writers):
        return {"failed": failed[:3], "wrong": wrong[:3], "rows": count, "expected": 10 * (len(took) + writers)}
    each = [len(took) for took, *_ in found]
    return {
        "writers": writers,
        "coordinator": coordinated,
        "commits_s": round(len(took) / seconds, 1),
        "p50_ms": round(1000 * percentile(took, 0.5)),
        "p99_ms": round(1000 * percentile(took, 0.99)),
        "fair": round(min(each) / max(each), 2),
        "requests": round((sum(r for _, _, r, _ in found) + requests) / len(took), 1),
        "cpu_ms": round(1000 * sum(c for _, c, *_ in found) / len(took), 1),
        "coordinator_cpu_ms": round(1000 * cpu_s / len(took), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="far,disk")
    parser.add_argument("--writers", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--request-ms", type=float, default=20.0)
    parser.add_argument(
        "--folder", default=None, help="on the disk to be measured; the one for temporary files otherwise"
    )
    parser.add_argument("--at-once", action="store_true", help="with the setting publish_at_once")
    parser.add_argument("--rounds", type=int, default=1, help="both in turn, so often")
    given = parser.parse_args()
    import pyarrow.parquet  # noqa: F401 - imported once, and not by each writer

    import lakelatch.occ.table
    import lakelatch.server  # noqa: F401

    show("machine", machine("redis", "uvicorn"))
    for kind in given.store.split(","):
        with ExitStack() as stack:
            far = kind == "far"
            place = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm" if far else given.folder))
            lock = stack.enter_context(redis()) if far else "table"
            for writers in map(int, given.writers.split(",")):
                for _ in range(given.rounds):
                    for coordinated in (False, True):
                        request_s = given.request_ms / 1000 if far else 0.0
                        show(
                            kind,
                            measure(
                                place,
                                lock,
                                writers,
                                given.seconds,
                                request_s,
                                coordinated=coordinated,
                                at_once=given.at_once,
                            ),
                        )


if __name__ == "__main__":
    main()
