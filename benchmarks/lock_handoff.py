"""How fast and how evenly one lock goes from process to process.

    python benchmarks/lock_handoff.py --processes 1 4 16 --seconds 3 --hold-ms 1

N processes acquire and release one key in a loop. Printed for each N: hand-offs per second, grants of the slowest and
the fastest process, waits; for one process also the cost of a cycle without hold. Exclusion is checked on the way (each
holder does an unprotected read-modify-write on shared memory): the sum must come out.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lakelatch
from lakelatch.locks import open_provider


def worker(url: str, folder: Path, seconds: float, hold_s: float) -> None:
    """Contend until the time is over; print own facts as one JSON line."""
    waits: list[float] = []
    with (
        open(folder / "counter", "r+b") as file,
        mmap.mmap(file.fileno(), 8) as counter,
        open_provider(url) as provider,
    ):
        with provider.acquire("warm-up", wait_s=60):
            pass
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + seconds
        while (before := time.monotonic()) < end:
            with provider.acquire("bench", wait_s=60):
                waits.append(time.monotonic() - before)
                if hold_s:
                    (value,) = struct.unpack("q", counter)
                    time.sleep(hold_s)
                    counter[:] = struct.pack("q", value + 1)
    print(json.dumps(waits), flush=True)


def run(processes: int, url: str | None, seconds: float, hold_s: float) -> None:
    """One line of results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "counter").write_bytes(bytes(8))
        place = url or f"file://{folder}/locks"
        command = [sys.executable, __file__, "--worker", place, str(folder), str(seconds), str(hold_s)]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        results = [json.loads(child.communicate()[0]) for child in children]
        grants = sorted(len(waits) for waits in results)
        total = sum(grants)
        lost = total - struct.unpack("q", (folder / "counter").read_bytes())[0] if hold_s else 0
    waits_ms = sorted(1000 * wait for waits in results for wait in waits)
    cuts = statistics.quantiles(waits_ms, n=100)
    print(
        f"processes={processes} hold_ms={1000 * hold_s:g} per_s={total / seconds:.0f} grants_min={grants[0]} "
        f"grants_max={grants[-1]} min/max={grants[0] / grants[-1]:.2f} wait_p50_ms={cuts[49]:.2f} "
        f"wait_p99_ms={cuts[98]:.1f} wait_max_ms={waits_ms[-1]:.1f} lost={lost}",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        url, folder, seconds, hold_s = sys.argv[2:]
        worker(url, Path(folder), float(seconds), float(hold_s))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--hold-ms", type=float, default=1.0)
    parser.add_argument("--url", help="default: file locks in a temporary folder")
    args = parser.parse_args()
    version = getattr(lakelatch, "__version__", "unknown")
    print(
        f"lakelatch={version} python={platform.python_version()} system={platform.system()}-{platform.release()} "
        f"cpus={os.cpu_count()} load={os.getloadavg()[0]:.1f}"
    )
    run(1, args.url, args.seconds, 0.0)
    for processes in args.processes:
        run(processes, args.url, args.seconds, args.hold_ms / 1000)


if __name__ == "__main__":
    main()
