"""One transaction over two tables against two single commits, one after the other.

    python -m benchmarks.commits.several_tables [--rounds 60] [--request-ms 20] [--lock-ms 5] [--seed 1]

``disk``: both tables in a temporary folder, one row updated in each; the two ways take turns, so that a busy machine slows both.
``far``: the real library in the simulator of the tests, in virtual time: a request to the store takes `--request-ms`, the lock
service answers in `--lock-ms`, work of the CPU takes nothing; one file is added to each table.

``ratio``: the median of the transaction by that of both single commits. ``requests``: those of the median round to both stores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.environment import Process
from lakelatch.locks import LeasedLocks, parse_lock_url
from lakelatch.locks.memory import _Space
from lakelatch.occ.table.table import Table
from tests.simulation.environment import SimEnvironment
from tests.simulation.files import put
from tests.simulation.history import Value
from tests.simulation.install import simulated
from tests.simulation.scheduler import Scheduler, SimProcess
from tests.simulation.store import Objects, SimStore

from .._report import machine, show
from .simulated import PART, FairLock, Latency, new_table

WARM = 5
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def figures(singly: list[float], together: list[float], **more: Any) -> dict[str, Any]:
    """The medians of both ways, without the first rounds, and their ratio."""
    one, two = (statistics.median(each[WARM:]) for each in (singly, together))
    return {
        "two_singles_ms": round(one * 1e3, 1),
        "together_ms": round(two * 1e3, 1),
        "ratio": round(two / one, 2),
        **more,
    }


def on_disk(rounds: int) -> dict[str, Any]:
    """Measure on the disk of the temporary folder."""

    def change(target: Any) -> None:
        target.update_where("id = 0", {"v": lakelatch.sql("v + 1")})

    with tempfile.TemporaryDirectory() as folder:
        tables = [lakelatch.create(str(Path(folder, name)), record_key="id", schema=SCHEMA) for name in ("a", "b")]
        for table in tables:
            table.upsert([{"id": number, "v": 0} for number in range(10)])
        singly, together = list[float](), list[float]()
        for _ in range(rounds + WARM):
            began = time.perf_counter()
            for table in tables:
                with table.transaction() as txn:
                    change(txn)
            middle = time.perf_counter()
            with lakelatch.transaction(*tables) as both:
                for table in tables:
                    change(both[table])
            singly.append(middle - began)
            together.append(time.perf_counter() - middle)
        for table in tables:
            table.close()
    return figures(singly, together)


def far(rounds: int, request_s: float, lock_s: float, seed: int) -> dict[str, Any]:
    """Measure on two tables of an object store, in virtual time."""
    scheduler = Scheduler(seed, steps_max=10**9)
    latency = Latency(scheduler, request_s, slow=0.0)
    process = SimProcess(Process("host", "boot", 1, "1"))
    spaces = {f"sim://lock{number}": _Space() for number in range(2)}
    objects = [Objects(new_table(lock)) for lock in spaces]
    env = SimEnvironment(scheduler, process, set(), 1)
    env.open_lock = lambda url: LeasedLocks(FairLock(spaces[url], env, lock_s / 2), parse_lock_url(url), env)
    singly, together, asked = list[float](), list[float](), list[tuple[int, int]]()

    def rounds_of(tables: list[Table]) -> Iterator[Callable[[], None]]:
        value = Value(("one",), 1, 0)

        def alone() -> None:
            for table in tables:
                with table.transaction("insert") as txn:
                    put(txn, PART, env.uuid(), value)

        def both() -> None:
            with lakelatch.transaction(*tables, operation="insert") as txn:
                for table in tables:
                    put(txn[table], PART, env.uuid(), value)

        yield from (alone, both)

    def work() -> None:
        tables = [Table(SimStore(each, latency, name=f"t{n}"), env=env) for n, each in enumerate(objects)]
        for _ in range(rounds + WARM):
            requests = []
            for way, took in zip(rounds_of(tables), (singly, together), strict=True):
                began, before = scheduler.now, sum(latency.requests.values())
                way()
                took.append(scheduler.now - began)
                scheduler.pause(1.0)  # what is done after the answer
                requests.append(sum(latency.requests.values()) - before)
            asked.append((requests[0], requests[1]))

    with simulated():
        scheduler.spawn(process, work, name="work")
        scheduler.run()
    singles, both = (statistics.median(each[way] for each in asked[WARM:]) for way in (0, 1))
    return figures(singly, together, requests={"two_singles": singles, "together": both})


def main() -> None:
    """Print one line for each store."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commits.several_tables", description=__doc__.splitlines()[0]
    )  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--request-ms", type=float, default=20.0)
    parser.add_argument("--lock-ms", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    show("machine", machine())
    show("disk", on_disk(given.rounds))
    show("far", far(given.rounds, given.request_ms / 1e3, given.lock_ms / 1e3, given.seed))


if __name__ == "__main__":
    main()
