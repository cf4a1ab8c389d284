"""Nobody starves: long jobs among short ones, a hundred at once, priorities, and a reserver that dies; real processes.

    python benchmarks/starvation.py [--scale 0.1] [--repeat 3] [--jobs 100] [--only delete,jobs,priority,dead] [--folder DIR]
                                    [--early off|wait|fail]

delete    a delete by condition that works for 60 s (times the scale), among upserts every 8 s (times the scale) into a
          random half of the same partitions, at each isolation level: attempts of the delete, what upserts took beside
          it and alone, and how long they waited for it; with ``--early`` the table detects conflicts early
jobs      so many transactions, ten to a process, each changing rows of its own in the same few file groups: attempts
priority  many writers of priority 0 and one of priority 9 on the same rows: how long that one takes
dead      whoever has reserved the table is killed: how long the next one waits
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import random
import signal
import tempfile
import threading
import time
from typing import Any

import pyarrow as pa
from _report import machine, percentile, show

PARTS, PER_PART = 4, 200
MP = mp.get_context("spawn")


def rows(part: int, ids: Any, v: int) -> pa.Table:
    names = [f"{part}-{n}" for n in ids]
    return pa.table({"id": names, "part": [f"p{part}"] * len(names), "v": pa.array([v] * len(names), pa.int64())})


def make(folder: str, **settings: Any) -> str:
    import lakelatch

    url = f"{folder}/table-{time.monotonic_ns()}"
    schema = rows(0, [0], 0).schema
    table = lakelatch.create(url, record_key="id", partition_by="part", schema=schema, **settings)
    with table, table.transaction("insert") as txn:
        for part in range(PARTS):
            txn.new_file(f"part=p{part}").write(rows(part, range(PER_PART), 0))
    return url


# --- a long delete among ingestion -------------------------------------------------------------------------------


def ingest(url: str, every_s: float, stop: Any, answer: Any, seed: int) -> None:
    import lakelatch

    chance, took, number = random.Random(seed), [], 0
    with lakelatch.open(url, writer="ingest") as table:
        table.run(lambda txn: txn.upsert(rows(0, [PER_PART], 1)))  # whatever is imported late
        answer.put("ready")
        due = time.monotonic()
        while not stop.is_set():
            number += 1
            parts = chance.sample(range(PARTS), PARTS // 2)
            began = time.monotonic()

            def work(txn: Any, parts: list[int] = parts, number: int = number) -> None:
                for part in parts:
                    txn.upsert(rows(part, [PER_PART + number, 100 + number % 50], 1))

            table.run(work)
            took.append(time.monotonic() - began)
            due = max(due + every_s, time.monotonic())
            stop.wait(max(due - time.monotonic(), 0))
    answer.put(took)


def ingested(url: str, every_s: float, seconds: float, beside: Any = None) -> list[float]:
    stop, answer = MP.Event(), MP.Queue()
    child = MP.Process(target=ingest, args=(url, every_s, stop, answer, 1))
    child.start()
    answer.get(timeout=120)
    if beside is not None:
        beside()
    else:
        time.sleep(seconds)  # ingestion alone, for so long
    stop.set()
    took: list[float] = answer.get(timeout=300)
    child.join()
    return took


def long_delete(folder: str, scale: float, repeat: int, early: str) -> None:
    import lakelatch

    for isolation in ("snapshot", "write-serializable", "serializable"):
        url = make(folder, isolation=isolation, early_conflict_detection=early)
        alone = ingested(url, 8 * scale, 60 * scale * repeat)
        told: dict[str, Any] = {}

        def beside(url: str = url, told: dict[str, Any] = told) -> None:
            time.sleep(8 * scale)  # into the middle of ingestion
            with lakelatch.open(url, writer="delete") as table:
                for number in range(repeat):

                    def work(txn: Any, number: int = number) -> None:
                        txn.delete_where([("v", "=", number)])
                        time.sleep(60 * scale)  # what a longer job does in the meantime

                    done = table.run(work, operation="delete", timeout_s=3600)
                    told.setdefault("attempts", []).append(done.attempts)
                    told["wasted_s"] = round(told.get("wasted_s", 0) + done.wasted_s, 2)

        took = ingested(url, 8 * scale, 0, beside)
        for name, times in (("alone", alone), ("beside", took)):
            told[f"ingest_{name}_s"] = {q: round(percentile(times, q), 3) for q in (0.5, 0.99)} | {"n": len(times)}
        told["p99_to_alone"] = round(percentile(took, 0.99) / percentile(alone, 0.99), 2)
        show(f"delete, {isolation}, {early}", told)


# --- many at once ------------------------------------------------------------------------------------------------


def job(url: str, numbers: list[int], start: Any, answer: Any) -> None:
    import lakelatch

    told: list[tuple[int, float]] = []
    with lakelatch.open(url) as table:

        def one(number: int) -> None:
            began = time.monotonic()

            def work(txn: Any) -> None:
                for part in (number % PARTS, (number + 1) % PARTS):
                    txn.upsert(rows(part, [number], number))
                if not waited:
                    waited.append(start.wait(120))  # all have begun before the first one lands

            waited: list[Any] = []
            done = table.run(work)
            told.append((done.attempts, time.monotonic() - began))

        threads = [threading.Thread(target=one, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    answer.put(told)


def many_jobs(folder: str, count: int) -> None:
    import lakelatch

    url, answer = make(folder), MP.Queue()
    start = MP.Barrier(count)
    children = [
        MP.Process(target=job, args=(url, list(range(first, min(first + 10, count))), start, answer))
        for first in range(0, count, 10)
    ]
    for child in children:
        child.start()
    told = [each for _ in children for each in answer.get(timeout=600)]
    for child in children:
        child.join()
    with lakelatch.open(url) as table:
        read = table.read().to_arrow().to_pydict()
    values = dict(zip(read["id"], read["v"], strict=True))
    right = all(values[f"{p % PARTS}-{n}"] == n for n in range(count) for p in (n, n + 1))
    attempts = [each for each, _ in told]
    show(
        "jobs",
        {
            "finished": len(told),
            "all_rows_right": right,
            "attempts_mean": round(sum(attempts) / len(attempts), 2),
            "attempts_max": max(attempts),
            "slowest_s": round(max(seconds for _, seconds in told), 1),
        },
    )


# --- priorities and deaths ---------------------------------------------------------------------------------------


def hammer(url: str, priority: int, stop: Any, ready: Any) -> None:
    import lakelatch

    with lakelatch.open(url, priority=priority) as table:
        ready.put(os.getpid())
        while not stop.is_set():
            table.run(lambda txn: txn.upsert(rows(0, range(10), priority)), timeout_s=60)


def priorities(folder: str, scale: float) -> None:
    import lakelatch

    url, stop, ready = make(folder, strategy="priority"), MP.Event(), MP.Queue()
    children = [MP.Process(target=hammer, args=(url, 0, stop, ready)) for _ in range(4)]
    for child in children:
        child.start()
        ready.get(timeout=60)
    with lakelatch.open(url, priority=9) as table:

        def work(txn: Any) -> None:
            txn.upsert(rows(0, range(10), 9))
            time.sleep(20 * scale)  # the work of a longer job, into which the others commit

        began = time.monotonic()
        done = table.run(work)
        show("priority 9 among four of 0", {"attempts": done.attempts, "took_s": round(time.monotonic() - began, 2)})
    stop.set()
    for child in children:
        child.join()


def hold(url: str, ready: Any) -> None:
    import lakelatch

    lakelatch.open(url).transaction(reserve="table")
    ready.put(os.getpid())
    time.sleep(600)  # it is killed long before


def dead_reserver(folder: str) -> None:
    import lakelatch

    url, ready = make(folder), MP.Queue()
    child = MP.Process(target=hold, args=(url, ready))
    child.start()
    pid = ready.get(timeout=60)
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    with lakelatch.open(url) as table:
        began = time.monotonic()
        table.run(lambda txn: txn.upsert(rows(0, [1], 5)))
        show("dead reserver, killed after 1 s", {"waited_s": round(time.monotonic() - began, 2)})
    child.join()


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--scale", type=float, default=0.1)
    asked.add_argument("--repeat", type=int, default=3, help="of the long delete")
    asked.add_argument("--jobs", type=int, default=100)
    asked.add_argument("--only", default="delete,jobs,priority,dead")
    asked.add_argument("--early", default="off")
    asked.add_argument("--folder")
    given = asked.parse_args()
    show("machine", machine())
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="starvation-") as folder:
        chosen = given.only.split(",")
        if "delete" in chosen:
            long_delete(folder, given.scale, given.repeat, given.early)
        if "jobs" in chosen:
            many_jobs(folder, given.jobs)
        if "priority" in chosen:
            priorities(folder, given.scale)
        if "dead" in chosen:
            dead_reserver(folder)


if __name__ == "__main__":
    main()
