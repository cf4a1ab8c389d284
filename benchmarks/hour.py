"""Measure whether a writer and `lakelatch server` keep their memory and descriptors over an hour.

    python -m benchmarks.hour [--minutes 60] [--pause 1.5]

One process commits to a table on local disk, runs its due services, reads it now and then, and opens it again every hundred
commits; a server watches it, a client keeps its picture and events. Every minute: resident memory in MB and open descriptors.
Growth is the mean of the last ten minutes over that of the ten after the first ten.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
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

from ._report import machine, show

HEADERS = {"Authorization": "Bearer a-token-of-this-benchmark"}
_WARM = 10  # minutes


def write(url: str, pause_s: float) -> None:
    """Commit until this process is ended."""
    count = 0
    while True:
        with lakelatch.open(url) as table:
            for _ in range(100):
                count += 1
                ids = [str(n * 7919 % 5000) for n in range(count, count + 20)]
                table.upsert(pa.table({"id": ids, "v": [float(count)] * len(ids)}))
                if not count % 10:
                    table.delete(keys=ids[:2])
                    table.read(columns=["v"], where="v > 10")
                if not count % 25:
                    table.run_services()
                time.sleep(pause_s)  # an hour of commits, and not of load


def used(pid: int) -> tuple[float, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def measured(folder: Path, minutes: int, pause_s: float) -> dict[str, Any]:
    (folder / "token").write_text(HEADERS["Authorization"].split()[1])
    url = str(folder / "t")
    lakelatch.create(url, record_key="id", schema=pa.schema({"id": pa.string(), "v": pa.float64()})).close()
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(url, pause_s), daemon=True)
    writer.start()
    server = subprocess.Popen(
        [sys.executable, "-m", "lakelatch.cli", "server", "--table", url, "--port", "0", "--token-file", folder / "token"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(server.stdout.readline().rpartition(":")[2])
        seen: dict[str, list[tuple[float, int]]] = {"writer": [], "server": []}
        for minute in range(minutes):
            until = time.monotonic() + 60
            while time.monotonic() < until:
                connection = HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/api/v1/tables/t/lanes?since_ms=0", headers=HEADERS)
                connection.getresponse().read()
                connection.close()
                time.sleep(1)  # as often as a dashboard asks
            assert writer.is_alive()
            seen["writer"].append(used(writer.pid or 0))
            seen["server"].append(used(server.pid))
            show(f"minute {minute + 1}", {name: each[-1] for name, each in seen.items()})
        with lakelatch.open(url) as table:
            commits = len(table.commits())
        return {"commits": commits} | {name: grown(each) for name, each in seen.items()}
    finally:
        server.terminate()
        server.wait()
        writer.kill()
        writer.join()


def grown(seen: list[tuple[float, int]]) -> dict[str, Any]:
    """The growth of memory in percent, and descriptors then and now."""
    tail = max(1, min(10, len(seen) // 3))
    early, late = seen[_WARM : _WARM + tail] or seen[:tail], seen[-tail:]
    before, after = (statistics.mean(mb for mb, _ in part) for part in (early, late))
    return {
        "mb": round(after), "growth_percent": round(100 * (after / before - 1), 1),
        "descriptors": [max(n for _, n in early), max(n for _, n in late)],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two commits")
    given = parser.parse_args()
    show("machine", machine("starlette", "uvicorn"))
    with tempfile.TemporaryDirectory(prefix="lakelatch-hour-") as name:
        print(json.dumps(measured(Path(name), given.minutes, given.pause)))


if __name__ == "__main__":
    main()
