"""Measure markers by a server and direct ones, and what becomes of them when the server is killed.

    python -m benchmarks.markers far [--markers 10000]      a store with 30 ms a request: operations and seconds, both ways
    python -m benchmarks.markers rate [--seconds 5]         markers a second of 64 clients, a hundred each time
    python -m benchmarks.markers rounds [--rounds 100]      rounds of 300 clients with 1,200 markers; killed ten times
    python -m benchmarks.markers start                      start, memory and drain of the server in a writer's process

``far``: tasks of a hundred files, 16 at a time; the store's own pace is local. ``rate``: server and clients are processes of
their own, the server on one core; its store is a local disk, so p99 is told beside the time of one write of a list. ``rounds``:
each client announces four files; after each round the store is asked for every marker that was acknowledged.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.errors import StorageError
from lakelatch.hudi.files import BaseName, base_file_name
from lakelatch.occ.liveness import MARKERS, Io, MarkerClient, announce_all, list_markers, ticket
from lakelatch.occ.liveness.markers import left_by, remove
from lakelatch.occ.table import Table
from lakelatch.testing.faults import FaultStore, On, Pause

from ._report import machine, percentile, show

TOKEN = "a-token-of-this-benchmark"
ASKED_S = 0.03  # how long a far store takes to answer
SERVER = """
import os, signal, sys, time
import lakelatch
from lakelatch.occ.table import Table
from lakelatch.server import Access, Address, Application, Limits, Server, Watched
from lakelatch.testing.faults import FaultStore, On, Pause
url, port, token, pause_s, core = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
if core and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(core)})
table = lakelatch.open(url)
if pause_s:  # the store is slow, as a far one is
    table = Table(FaultStore(table.store, Pause(On("", ".temp"), lambda: time.sleep(pause_s), forever=True)))
signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has ended
app = Application({"t": Watched("t", table)}, Access(token), limits=Limits(requests_s=1e6, markers_s=1e6))
Server(app, Address(port=port), listening=lambda url: print(url, flush=True)).run_here()
if pause_s:
    print(sum(".temp" in call.path for call in table.store.calls), flush=True)
"""


def files(instant: str, count: int, first: int = 0) -> list[tuple[str, Io]]:
    name = "0123{:04x}-{:04x}-4000-8000-000000000000-0"
    return [
        (f"day={n % 30:02}/{base_file_name(BaseName(name.format(n >> 16, n & 0xFFFF), '0-0-0', instant))}", "MERGE")
        for n in range(first, first + count)
    ]


@contextmanager
def served(
    url: str, *, pause_s: float = 0.0, port: int = 0, core: str = ""
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    given = [url, str(port), TOKEN, str(pause_s), core]
    server = subprocess.Popen([sys.executable, "-c", SERVER, *given], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), server
    finally:
        server.kill()
        server.wait()


def desk_of(url: str) -> MarkerClient:
    return MarkerClient(url, "t", ticket(TOKEN, "t", int(time.time()) + 3600), apart_max_s=0.0)


@contextmanager
def opened() -> Iterator[tuple[Table, str]]:
    with tempfile.TemporaryDirectory(prefix="lakelatch-markers-") as folder:
        settings = {"heartbeat_interval_s": 5.0, "heartbeat_timeout_s": 3600.0}
        with lakelatch.create(f"{folder}/t", record_key="id", **settings) as table:
            txn = table.transaction()
            try:
                yield table, txn.instant
            finally:
                txn.abort()


def far_store() -> None:
    """Before each call of it."""
    time.sleep(ASKED_S)  # the way to it and back, which no event ends


def far(count: int) -> None:
    with opened() as (table, instant):
        store = FaultStore(table.store, Pause(On("", MARKERS), far_store, forever=True))

        def announce(marker_client: MarkerClient | None) -> float:
            began = time.monotonic()
            with ThreadPoolExecutor(16) as tasks:
                starts = range(0, count, 100)
                list(
                    tasks.map(
                        lambda n: announce_all(store, instant, files(instant, 100, n), marker_client=marker_client),
                        starts,
                    )
                )
            return time.monotonic() - began

        def sweep() -> dict[str, Any]:
            left = left_by(table.store, instant)
            assert len(left.markers) == count
            with_pause = FaultStore(table.store, Pause(On("", MARKERS), far_store, forever=True))
            began = time.monotonic()
            left = left_by(with_pause, instant)
            remove(with_pause, left.markers, lists=left.lists)
            return {"sweep_operations": len(with_pause.calls), "sweep_s": round(time.monotonic() - began, 1)}

        seconds = announce(None)
        directly = {"operations": len(store.calls), "seconds": round(seconds, 2)} | sweep()
        show("directly", directly)
        with served(table.url, pause_s=ASKED_S) as (url, server):
            seconds = announce(desk_of(url))
            server.send_signal(signal.SIGTERM)
            assert server.stdout is not None
            operations = int(server.stdout.readline())
        by_server = {"operations": operations, "seconds": round(seconds, 2)} | sweep()
        show("by the server", by_server)
        ratios = {name: round(directly[name] / by_server[name], 1) for name in ("operations", "seconds")}
        show("directly / by the server", ratios)


def clients(url: str, instant: str, seconds: float, first: int) -> None:
    """One process of clients: 16 threads. Prints the markers that were taken, and the seconds of each request."""
    marker_client, times, untaken = desk_of(url), list[float](), 0
    starts = time.monotonic()
    ends = starts + seconds

    def client(number: int) -> None:
        nonlocal untaken
        n = first + number * 10_000_000
        while time.monotonic() < ends:
            names = [f"{path}.marker.{io}" for path, io in files(instant, 100, n)]
            began = time.monotonic()
            untaken += marker_client.take(instant, names) is None
            times.append(time.monotonic() - began)
            n += 100

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(16)))
    took, taken = time.monotonic() - starts, 100 * (len(times) - untaken)
    print(taken, untaken, percentile(times, 0.5), percentile(times, 0.99), taken / took, flush=True)


def rate(seconds: float) -> None:
    with opened() as (table, instant), served(table.url, core="0") as (url, server):
        began = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.markers", "clients", "--url", url, "--instant", instant]
        pool = [
            subprocess.Popen(
                [*command, "--seconds", str(seconds), "--first", str(n)], stdout=subprocess.PIPE, text=True
            )
            for n in range(0, 4_000_000, 1_000_000)
        ]
        told = [each.communicate()[0].split() for each in pool]
        took = time.monotonic() - began
        cpu_s = sum(float(x) for x in Path(f"/proc/{server.pid}/stat").read_text().split()[13:15]) / os.sysconf(
            "SC_CLK_TCK"
        )
        taken = sum(int(each[0]) for each in told)
        assert len(list_markers(table.store, instant)) == taken
        bodies = [table.store.get(path) for path in left_by(table.store, instant).lists[:5]]
        times = []
        for number, each in enumerate(bodies):
            assert each is not None
            at = time.monotonic()
            table.store.put_if_absent(f"{MARKERS}/{instant}/probe{number}", each.body)
            times.append(time.monotonic() - at)
        show(
            "64 clients, batches of 100",
            {
                "markers_s": round(sum(float(each[4]) for each in told)), "untaken": sum(int(each[1]) for each in told),
                "markers_per_cpu_s_of_the_server": round(taken / cpu_s), "seconds": round(took, 1),
                "p50_ms": [round(1000 * float(each[2]), 1) for each in told],
                "p99_ms": [round(1000 * float(each[3]), 1) for each in told],
                "one_list_ms": round(1000 * statistics.median(times), 1),
            },
        )  # fmt: skip


def rounds(count: int, kills: int) -> None:
    """Each round is a transaction of its own; a killed server dies when a fifth of the clients have their answer."""
    fallen, slowest, acknowledged, lost, timed_out = 0, 0.0, 0, 0, 0
    last_of = {count * (n + 1) // (kills + 1) for n in range(kills)}
    with opened() as (table, _), ThreadPoolExecutor(300) as pool:
        with served(table.url) as (url, _first):
            port = int(url.rpartition(":")[2])
        marker_client, server = desk_of(url), served(table.url, port=port)
        _, process = server.__enter__()
        try:
            for number in range(count):
                txn, half = table.transaction(), threading.Event()

                def client(n: int, instant: str = txn.instant, half: threading.Event = half) -> tuple[float, list[Any]]:
                    began = time.monotonic()
                    found = announce_all(table.store, instant, files(instant, 4, 4 * n), marker_client=marker_client)
                    if n >= 60:
                        half.set()
                    return time.monotonic() - began, found

                running = [pool.submit(client, n) for n in range(300)]
                if number in last_of:
                    half.wait()
                    process.kill()
                    process.wait()
                told: set[str] = set()
                for each in running:
                    try:
                        seconds, found = each.result()
                    except StorageError:
                        timed_out += 1
                        continue
                    slowest = max(slowest, seconds)
                    fallen += sum(not marker.list for marker in found)
                    told |= {marker.name for marker in found}
                acknowledged += len(told)
                lost += len(told - {each.name for each in list_markers(table.store, txn.instant)})
                txn.abort()
                if number in last_of:
                    server.__exit__(None, None, None)
                    server = served(table.url, port=port)
                    _, process = server.__enter__()
        finally:
            server.__exit__(None, None, None)
    show(
        "rounds of 300 clients with 1,200 markers",
        {
            "rounds": count, "killed": len(last_of), "acknowledged": acknowledged, "put_directly": fallen, "lost": lost,
            "without_an_answer": timed_out, "slowest_s": round(slowest, 2),
        },
    )  # fmt: skip


START = """
import os, signal, sys, time
import lakelatch, pyarrow
def rss(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
table = lakelatch.open(sys.argv[1])
table.session.marker_client
before, cpu, wall = rss(), time.process_time(), time.monotonic()
from lakelatch.server import Embedded
table.session.markers = Embedded()
assert table.session.marker_client
print(rss() - before, time.process_time() - cpu, time.monotonic() - wall, end=" ")
wall = time.monotonic()
table.close()
print(time.monotonic() - wall)
"""


def start() -> None:
    with opened() as (table, _):
        found = []
        for _ in range(5):
            told = subprocess.run([sys.executable, "-c", START, table.url], capture_output=True, text=True, check=True)
            found.append([float(each) for each in told.stdout.split()])
        names = ("memory_mib", "cpu_s", "wall_s", "close_s")
        show("embedded server", {name: sorted(round(each[n], 2) for each in found) for n, name in enumerate(names)})


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("far", "rate", "rounds", "start", "clients"))
    asked.add_argument("--markers", type=int, default=10_000)
    asked.add_argument("--seconds", type=float, default=5.0)
    asked.add_argument("--rounds", type=int, default=100)
    asked.add_argument("--kills", type=int, default=10)
    asked.add_argument("--url")
    asked.add_argument("--instant")
    asked.add_argument("--first", type=int, default=0)
    given = asked.parse_args()
    if given.what == "clients":
        clients(given.url, given.instant, given.seconds, given.first)
        return
    show("machine", machine("starlette", "uvicorn"))
    if given.what == "far":
        far(given.markers)
    elif given.what == "rate":
        rate(given.seconds)
    elif given.what == "rounds":
        rounds(given.rounds, given.kills)
    else:
        start()


if __name__ == "__main__":
    main()
