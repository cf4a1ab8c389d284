"""The memory of a coordinator with many connections and a table of very many file groups."""

from __future__ import annotations

import http.client
import multiprocessing
import queue
import tempfile
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import lakelatch

from ..scale import SCHEMA, fill, rows
from .rates import NAME, TOKEN, Place, coordinate

_OF_HANDLE = 64  # threads, and so connections that a handle keeps
_PARTITIONS = 10_000


def ask(url: str, server: str, connections: int, commits: int, first: Any, told: Any) -> None:
    """Commits by so many threads, beside so many connections that have asked once and are kept until the end."""
    failed, start = list[str](), threading.Barrier(connections)
    asks = lakelatch.CoordinatorServer(server, token=TOKEN, table=NAME)
    tables = [
        lakelatch.open(url, writer=f"w{n}", coordinator=asks)
        for n in range((connections + _OF_HANDLE - 1) // _OF_HANDLE)
    ]

    def work(number: int) -> None:
        try:
            start.wait()
            for count in range(commits):
                tables[number // _OF_HANDLE].insert(rows(number + 2, 10**6 + 10 * count, 10))
        except Exception as e:
            failed.append(f"{number}: {e!r}")

    kept = [HTTPConnection(server.removeprefix("http://")) for _ in range(connections)]
    for each in kept:
        # No question: it is refused, and the connection is kept.
        each.request("POST", f"/api/v1/tables/{NAME}/transactions", b"", {"Authorization": f"Bearer {TOKEN}"})
        answer = each.getresponse()
        if answer.status != http.client.BAD_REQUEST or not answer.read():
            failed.append(f"{answer.status}")
    threads = [threading.Thread(target=work, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put(failed[:3])
    first.wait()  # the coordinator is looked at while the connections are open
    for table in tables:
        table.close()


def held(pid: int) -> dict[str, int]:
    """The memory of a process in MB: at most so far, and now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        name: int(status.partition(f"{field}:")[2].split()[0]) >> 10
        for name, field in (("peak_mb", "VmHWM"), ("mb", "VmRSS"))
    }


def connected(pid: int) -> int:
    """Return the number of sockets that a process has open."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += "socket" in str(each.readlink())
    return found


def memory(connections: int, groups: int, commits: int) -> dict[str, Any]:
    """Measure a coordinator of a table of so many file groups, after so many commits over each connection.

    The file groups are hard links to a few files, in `_PARTITIONS` partitions; the entries that name them are real.
    """
    spawned = multiprocessing.get_context("spawn")  # a process that has imported what it needs, and nothing else
    with tempfile.TemporaryDirectory(dir="/dev/shm") as below:
        place = Place(f"{below}/{NAME}", "table")
        fill(place.url, groups, min(_PARTITIONS, groups // 10), 0)
        with lakelatch.open(place.url) as table:
            table.change_settings(coordinator_patience_s=60.0)  # this machine is busy with all of them
        listening, stop, led, told, over = (
            spawned.Queue(), spawned.Event(), spawned.Queue(), spawned.Queue(), spawned.Event(),
        )  # fmt: skip
        leader = spawned.Process(target=coordinate, args=(place, listening, stop, led))
        leader.start()
        url = listening.get(timeout=60)
        assert leader.pid is not None
        before = held(leader.pid)
        began = time.monotonic()
        writers = spawned.Process(target=ask, args=(place.url, url, connections, commits, over, told))
        writers.start()
        failed, sockets = None, 0
        while failed is None:  # a server closes connections that are idle for long
            sockets = max(sockets, connected(leader.pid))
            with suppress(queue.Empty):
                failed = told.get(timeout=0.5)
        seconds, found = time.monotonic() - began, held(leader.pid)
        over.set()
        writers.join()
        stop.set()
        led.get()
        leader.join()
        assert not failed, failed
        return {
            "file_groups": groups,
            "connections": connections,
            "sockets": sockets,
            "commits": connections * commits,
            "seconds": round(seconds, 1),
            "before_mb": before["mb"],
            **found,
            "columns": len(SCHEMA),
        }
