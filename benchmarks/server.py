"""Measure `lakelatch server`: its start, its memory, and how soon a change is told.

    python -m benchmarks.server [--changes 30] [--history 1000]

A table on local disk with so many commits, a server in a process of its own; seconds from the return of a commit to its event
at a client, and of one answer for the picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch

from ._report import machine, percentile, show

TOKEN = "a-token-of-this-benchmark"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", type=int, default=30)
    parser.add_argument("--history", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakelatch-server-") as name:
        folder = Path(name)
        with lakelatch.create(str(folder / "t"), record_key="id", bucket_count=1) as table:
            for value in range(given.history):
                table.upsert(pa.table({"id": ["a"], "v": [value]}))
            show("machine", machine("starlette", "uvicorn"))
            show(f"server, {given.history:,} commits", measured(folder, table, given.changes))


def measured(folder: Path, table: lakelatch.Table, changes: int) -> dict[str, Any]:
    (folder / "token").write_text(TOKEN)
    began = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-m", "lakelatch.cli", "server", "--table", table.url, "--port", "0", "--token-file", folder / "token"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(server.stdout.readline().rpartition(":")[2])
        ask(port, "/healthz")
        start_s = time.monotonic() - began
        while not ask(port, "/api/v1/tables/t")["summary"]["ready"]:
            time.sleep(0.01)  # the server is another process, and tells this only when asked
        ready_s = time.monotonic() - began
        pictures = []
        for _ in range(10):
            at = time.monotonic()
            ask(port, "/api/v1/tables/t/lanes?since_ms=0")
            pictures.append(time.monotonic() - at)
        told = delays(port, table, changes)
        memory = next(line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if "VmRSS" in line)
        return {
            "start_s": round(start_s, 2), "log_read_s": round(ready_s, 2), "rss_mb": int(memory.split()[1]) // 1024,
            "picture_ms": round(1000 * statistics.median(pictures)),
            "told_ms": {"p50": round(1000 * percentile(told, 0.5)), "worst": round(1000 * max(told))},
        }  # fmt: skip
    finally:
        server.terminate()
        server.wait()


def delays(port: int, table: lakelatch.Table, changes: int) -> list[float]:
    """Seconds from the return of each commit to the event that tells of it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/v1/tables/t/events", headers=HEADERS)
    stream = connection.getresponse()
    found = []
    for value in range(changes):
        done = table.upsert(pa.table({"id": ["a"], "v": [value]}))
        at = time.monotonic()
        while True:
            line = stream.readline()
            if line.startswith(b"data: ") and json.loads(line[6:])["last_commit"]["instant"] == done.instant:
                break
        found.append(time.monotonic() - at)
    connection.close()
    return found


def ask(port: int, path: str) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=HEADERS)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


if __name__ == "__main__":
    main()
