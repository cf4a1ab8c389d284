"""Measure a rebase: two upserts of 1 % random rows each into the same 48 file groups at the same time, plain Python.

    python -m benchmarks.commits.rebase [--rows 20000] [--groups 48] [--repeat 3] [--folder DIR]

alone      begin, upsert, commit, nobody beside
all        the other one has changed all 48 file groups meanwhile: the second merges all of them again
a tenth    the other one has changed five of them
run again  the other one has changed all, and the second is run again as a whole (what there was without a rebase)
waits      the other one is changing all, and the second waits for its turn (early_conflict_detection="direct")
looks      the same setting, and the other one is writing a file group of its own: what it costs to find that out

Each in a process of its own; CPU seconds of the second writer (all its threads, user and system), the smallest of the
repetitions, so that a busy machine does not matter. Printed: the seconds, and their ratio to alone. In the last two cases
the other writer is another process, which has begun its work before the second and commits a second later.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import resource
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

from .._report import machine, show

CASES = ("alone", "all", "a tenth", "run again", "waits", "looks")


def rows(keys: np.ndarray, seed: int) -> pa.Table:
    """Ten columns: half of them numbers, half of them texts of few and of many values."""
    chance = np.random.default_rng(seed)
    count = len(keys)
    columns = {"id": pa.array(keys)}
    for n in range(5):
        columns[f"number{n}"] = pa.array(chance.integers(0, 10**9, count))
    for n, values in enumerate((10, 100, 1000, 10**9)):
        columns[f"text{n}"] = pa.array([f"value {v}" for v in chance.integers(0, values, count)])
    return pa.table(columns)


def keys_of(group: int, per_group: int) -> np.ndarray:
    return np.arange(group * per_group, (group + 1) * per_group)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def other_writer(url: str, batch: pa.Table, at_work: Any) -> None:
    import lakelatch

    with lakelatch.open(url) as table:
        txn = table.transaction()
        if batch["id"][0].as_py() < 0:
            with txn.new_file() as file:
                file.write(batch)
        else:
            txn.upsert(batch)
        at_work.set()
        time.sleep(1)  # the work that the second may have to wait for
        txn.commit()


def measure(case: str, folder: str, groups: int, per_group: int, answer: mp.Queue) -> None:  # type: ignore[type-arg]
    import lakelatch

    chance = np.random.default_rng(1)
    url = f"{folder}/{case.replace(' ', '-')}"
    with lakelatch.create(url, record_key="id", schema=rows(keys_of(0, 1), 0).schema) as table:
        with table.transaction("bulk_insert") as txn:
            for group in range(groups):
                txn.new_file().write(rows(keys_of(group, per_group), group))
        share = max(groups * per_group // 100, 1)
        # The two change other rows: odd and even ones.
        even = chance.choice(np.arange(0, groups * per_group, 2), share, replace=False)
        odd = chance.choice(np.arange(1, groups * per_group, 2), share, replace=False)
        if case == "a tenth":
            odd = odd[odd < per_group * max(groups // 10, 1)]
        ours, theirs = rows(even, 1001), rows(odd, 1002)
        with table.transaction() as warm:
            warm.upsert(rows(np.array([0]), 5))

        def upsert(batch: pa.Table, *, rebase: bool = True) -> object:
            txn = table.transaction()
            txn.upsert(batch)
            if not rebase:
                txn.workspace.rebase = None
            return txn

        beside = None
        if case in ("waits", "looks"):
            table.change_settings(early_conflict_detection="direct")
            table.session.merged_bytes_s = 1  # it waits, however small the file groups are
            at_work = mp.get_context("spawn").Event()
            batch = theirs if case == "waits" else rows(np.array([-1]), 6)
            beside = mp.get_context("spawn").Process(target=other_writer, args=(url, batch, at_work))
            beside.start()
            at_work.wait()
        before = cpu()
        second = upsert(ours, rebase=case != "run again")
        spent = cpu() - before
        if beside is not None:
            beside.join()
        elif case != "alone":
            first = upsert(theirs)
            first.commit()
        before = cpu()
        try:
            second.commit()
        except lakelatch.ConflictError:
            upsert(ours).commit()
        answer.put((spent + cpu() - before, second.workspace.rebase.round if second.workspace.rebase else None))


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, default=20_000, help="of each file group")
    asked.add_argument("--groups", type=int, default=48)
    asked.add_argument("--repeat", type=int, default=3)
    asked.add_argument("--folder")
    given = asked.parse_args()
    show("machine", machine())
    best: dict[str, float] = {}
    for _ in range(given.repeat):
        for case in CASES:
            with tempfile.TemporaryDirectory(dir=given.folder, prefix="rebase-") as folder:
                answer: mp.Queue = mp.get_context("spawn").Queue()  # type: ignore[type-arg]
                child = mp.get_context("spawn").Process(
                    target=measure, args=(case, folder, given.groups, given.rows, answer)
                )
                child.start()
                seconds, rounds = answer.get(timeout=600)
                child.join()
            best[case] = min(best.get(case, seconds), seconds)
            show("run", {"case": case, "cpu_s": round(seconds, 3), "rounds": rounds})
    for case, seconds in best.items():
        show("best", {"case": case, "cpu_s": round(seconds, 3), "to_alone": round(seconds / best["alone"], 2)})


if __name__ == "__main__":
    main()
