"""Memory of an upsert of ten rows into one file of some 104 MB, above that of the process before.

    python -m benchmarks.verbs.upsert_memory [--rows 1570000] [--rounds 3] [--folder DIR]

Each round has a process of its own, which has upserted into a small table of the same columns before, so that all imports are
there. The peak is that of the whole process (`VmHWM`, which is set back before), mapped files included, and the largest
anonymous memory seen by a thread that looks every two milliseconds.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import shutil
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakelatch

from .._report import machine

_TEXTS = 4
_NUMBERS = 4


def rows(first: int, count: int, *, seed: int = 7) -> pa.Table:
    """Rows with the keys from ``first`` on, of some 100 bytes that no codec makes much smaller."""
    draw = np.random.default_rng(seed + first)
    keys = pc.binary_join_element_wise(
        "k", pc.utf8_lpad(pa.array(np.arange(first, first + count)).cast("string"), 9, "0"), ""
    )
    columns: dict[str, Any] = {"id": keys}
    for number in range(_TEXTS):
        hexes = np.frombuffer(draw.bytes(8 * count).hex().encode(), "S16")
        columns[f"s{number}"] = pa.array(hexes.astype("U16"))
    for number in range(_NUMBERS):
        columns[f"n{number}"] = draw.integers(0, 1 << 62, count)
    return pa.table(columns)


def _status(field: str) -> int:
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field))
    return int(line.split()[1]) * 1024


def _measure(place: str, answer: Connection) -> None:
    # A first upsert elsewhere: imports, pools and threads are there.
    with lakelatch.open(f"{place}-small") as small:
        small.upsert(rows(0, 10, seed=1))
    with lakelatch.open(place) as table:
        incoming = rows(500_000, 10, seed=1)
        Path("/proc/self/clear_refs").write_text("5")
        before, anonymous = _status("VmRSS"), _status("RssAnon")
        done, most = threading.Event(), [anonymous]

        def watch() -> None:
            while not done.wait(0.002):
                most[0] = max(most[0], _status("RssAnon"))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        table.upsert(incoming)
        done.set()
        thread.join()
        answer.send((_status("VmHWM") - before, most[0] - anonymous))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_570_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--folder", default=None)
    given = arguments.parse_args()
    print(machine())
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-", dir=given.folder))
    place = str(scratch / "t")
    spawn = mp.get_context("spawn")
    try:
        with lakelatch.create(f"{place}-small", record_key="id") as small:
            small.upsert(rows(0, 100))
        with lakelatch.create(place, record_key="id") as table:
            table.upsert(rows(0, given.rows))
            (only,) = table.snapshot().file_slices()
            footer = pq.read_metadata(scratch / "t" / only.path)
            group = rows(0, 65_536).nbytes
            print(
                f"one file of {only.size / 1e6:.0f} MB, {footer.num_rows:,} rows in {footer.num_row_groups} row groups of "
                f"{group / 2**20:.1f} MiB in Arrow"
            )
        for number in range(given.rounds):
            copy = f"{place}-{number}"
            shutil.copytree(place, copy)
            shutil.copytree(f"{place}-small", f"{copy}-small")
            mine, theirs = spawn.Pipe()
            process = spawn.Process(target=_measure, args=(copy, theirs))
            process.start()
            peak, anonymous = mine.recv()
            process.join()
            print(f"round {number + 1}: +{peak / 2**20:.0f} MiB at most, +{anonymous / 2**20:.0f} MiB of it anonymous")
            shutil.rmtree(copy)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
