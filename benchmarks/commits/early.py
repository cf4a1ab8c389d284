"""Work that a writer does in vain after its rival's marker stood, and how soon a Spark job ends.

    python -m benchmarks.commits.early [--groups 48] [--rows 20000] [--repeat 3] [--folder F] [--spark]

A table of so many file groups whose commits are not merged again (rebase=False). The victim upserts rows into all of
them; an older writer announces a quarter of them, spread evenly, when the victim has written none, a third or two
thirds. Work is bytes of data files published. ``off`` is the same without early detection: the victim learns of it at its
commit. With ``--spark`` the victim is a Spark job whose tasks take a while for each file, and the seconds are those from
the end of the rival's last marker to the end of the job.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakelatch
from lakelatch.occ.liveness import MARKERS
from lakelatch.occ.table import Table
from lakelatch.testing.faults import FaultStore, On, Pause

from .._report import machine, percentile, show

MODES = ("off", "direct")
MOMENTS = (0.0, 1 / 3, 2 / 3)
SHARE = 4  # the rival is in each fourth file group


def rows(groups: list[int], per_group: int, v: int) -> pa.Table:
    keys = np.concatenate([np.arange(per_group) + group * per_group for group in groups])
    parts = np.repeat(np.array([f"p{group:03}" for group in groups]), per_group)
    noise = np.random.default_rng(v).integers(0, 1 << 40, len(keys))
    return pa.table({"id": keys, "part": parts, "v": np.full(len(keys), v), "noise": noise})


def make(folder: str, groups: int, per_group: int, mode: str) -> str:
    whole = rows(list(range(groups)), per_group, 1)
    with lakelatch.create(
        folder, record_key="id", partition_by="part", schema=whole.schema, rebase=False,
        early_conflict_detection=mode, heartbeat_interval_s=0.5, heartbeat_timeout_s=60,
    ) as table, table.transaction("bulk_insert") as txn:  # fmt: skip
        for group in range(groups):
            txn.new_file(f"part=p{group:03}").write(rows([group], per_group, 1))
    return folder


class Published:
    """Counts the victim's data files; the rival acts when so many stand."""

    def __init__(self, store: Any, meeting: int, act: Any) -> None:
        self.files: list[str] = []
        self.at: int | None = None
        self._meeting, self._act, self._mutex = meeting, act, threading.Lock()
        self.store = FaultStore(store, Pause(On("publish"), self._count, after=True, forever=True))
        self.store.add(Pause(On("put_if_absent", MARKERS), self._look, forever=True))
        self._begun = 0

    def _count(self) -> None:
        with self._mutex:
            self.files.append("")

    def _look(self) -> None:
        with self._mutex:
            self._begun += 1
            first = self.at is None and self._begun > 0 and len(self.files) >= self._meeting
            if first:
                self.at = len(self.files)
        if first:
            self._act()


def doomed(folder: str, groups: int, per_group: int, mode: str, moment: float) -> dict[str, float]:
    url = make(folder, groups, per_group, mode)
    theirs = rows(list(range(SHARE - 1, groups, SHARE)), per_group, 2)
    with lakelatch.open(url, writer="rival") as rival:
        older = rival.transaction()
        watch = Published(rival.store, int(groups * moment), lambda: older.upsert(theirs))
        with Table(watch.store, writer="victim") as victim:
            victim.session.threads = 1
            mine = victim.transaction()
            saved = 0
            try:
                mine.upsert(rows(list(range(groups)), per_group, 3))
                older.commit()
                mine.commit()
                raise AssertionError("both have landed")
            except lakelatch.ConflictError as error:
                saved = error.details.get("saved_bytes", 0)
            mine.abort()
    at = watch.at or 0
    return {"files": len(watch.files), "after": len(watch.files) - at, "saved_bytes": saved}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--groups", type=int, default=48)
    asked.add_argument("--rows", type=int, default=20_000, help="of each file group")
    asked.add_argument("--repeat", type=int, default=3)
    asked.add_argument("--folder")
    asked.add_argument("--spark", action="store_true")
    given = asked.parse_args()
    show("machine", machine())
    if given.spark:
        spark_job(given)
        return
    for mode in MODES:
        for moment in MOMENTS:
            found = []
            for _ in range(given.repeat):
                with tempfile.TemporaryDirectory(dir=given.folder, prefix="early-") as folder:
                    found.append(doomed(f"{folder}/t", given.groups, given.rows, mode, moment))
            after = [each["after"] / given.groups for each in found]
            show(
                f"{mode}, met after {moment:.0%}",
                {
                    "files_after_the_marker_of_all_its_work": [round(each, 3) for each in after],
                    "files_written": [each["files"] for each in found],
                    "saved_mb": [round(each["saved_bytes"] / 2**20, 1) for each in found],
                },
            )


# --- a Spark job ----------------------------------------------------------------------------------------------------


class InATask:
    """Each data file of a task takes a while: what a larger one would."""

    def __init__(self, driver: int, op: str) -> None:
        self._driver, self._op = driver, op

    def __call__(self, call: Any) -> bool:
        return bool(call.op == self._op) and os.getpid() != self._driver


def a_while() -> None:
    time.sleep(0.2)  # the time itself is what it stands for: no event ends it


def spark_job(given: argparse.Namespace) -> None:
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    import lakelatch.spark
    from lakelatch.spark import JobSizes

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ends = []
    for _ in range(given.repeat):
        for moment in MOMENTS:
            with tempfile.TemporaryDirectory(dir=given.folder, prefix="early-") as folder:
                url = make(f"{folder}/t", given.groups, given.rows, "direct")
                theirs = rows(list(range(SHARE - 1, given.groups, SHARE)), given.rows, 2)
                with lakelatch.open(url, writer="rival") as rival:
                    older = rival.transaction()
                    slow = FaultStore(rival.store, Pause(InATask(os.getpid(), "publish"), a_while, forever=True))
                    with Table(slow, writer="victim") as victim:
                        table = lakelatch.spark.open(spark, victim, sizes=JobSizes(small_rows=0))
                        ours = spark.createDataFrame(rows(list(range(given.groups)), given.rows, 3).to_pandas())
                        ended: list[float] = []

                        def work(table: Any = table, ours: Any = ours, ended: list[float] = ended) -> None:
                            try:
                                table.run(lambda txn: txn.upsert(ours), attempts=1)
                            except lakelatch.ConflictError:
                                ended.append(time.monotonic())

                        thread = threading.Thread(target=work)
                        thread.start()
                        root = Path(url) / MARKERS
                        while len({p for p in root.rglob("*.MERGE") if older.instant not in str(p)}) < max(
                            given.groups * moment, 1
                        ):
                            time.sleep(0.02)  # workers are other processes, which tell nobody of their markers
                        older.upsert(theirs)
                        stood = time.monotonic()
                        thread.join()
                        ends.append(ended[0] - stood)
                        left = [p for p in Path(url).rglob("*.parquet") if ".hoodie" not in p.parts]
                        show(
                            f"Spark, met after {moment:.0%}",
                            {"marker_to_end_s": round(ends[-1], 2), "files": len(left)},
                        )
                        older.commit()
    show("marker to end of the job", {"median_s": round(percentile(ends, 0.5), 2), "worst_s": round(max(ends), 2)})


if __name__ == "__main__":
    main()
