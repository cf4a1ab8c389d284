"""File groups are worked on by several threads, and what comes out is what one thread makes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.occ.staging.worker_pool import WorkerPool
from lakelatch.testing.contention import PATIENCE_S

ROWS = 40_000


def rows(first: int = 0, count: int = ROWS, v: int = 0) -> pa.Table:
    ids = np.arange(first, first + count)
    noise = np.random.default_rng(first).integers(0, 2**62, count)  # which no codec makes small
    return pa.table({"id": ids.astype(str), "part": (ids % 6).astype(str), "v": np.full(count, v), "noise": noise})


@pytest.mark.parametrize("buckets", [None, 2])
def test_the_rows_are_the_same_however_many_threads_work(tmp_path: Path, buckets: int | None) -> None:
    found = []
    for threads in (1, 3):
        folder = str(tmp_path / f"t{threads}")
        more = {"bucket_count": buckets} if buckets else {}
        lakelatch.create(folder, record_key="id", partition_by="part", **more).close()
        with lakelatch.open(folder, threads=threads) as table:
            done = [table.insert(rows()), table.upsert(rows(ROWS // 2, v=1))]
            done += [table.update_where("v = 1", set={"v": lakelatch.sql("v + 1")}), table.delete_where("v = 0")]
            counts = [(each.inserted, each.updated, each.deleted, each.files) for each in done]
            read = table.read(columns=["id", "part", "v", "noise", "_hoodie_commit_seqno"]).to_arrow()
            assert len(read["_hoodie_commit_seqno"].unique()) == read.num_rows
            found.append((counts, read.drop_columns(["_hoodie_commit_seqno"]).sort_by("id")))
    assert found[0] == found[1]
    assert found[0][0][1][:2] == (ROWS // 2, ROWS // 2)


def test_file_groups_are_worked_on_at_the_same_time() -> None:
    meet = threading.Barrier(2, timeout=PATIENCE_S)  # which nobody passes alone

    def meeting() -> None:
        meet.wait()

    with WorkerPool(2) as pool:
        for _ in range(4):
            pool.do(meeting)


def test_what_waits_for_a_thread_is_not_handed_over_yet() -> None:
    handed: list[int] = []
    ahead: list[int] = []
    with WorkerPool(3) as pool:
        for number in range(100):
            handed.append(number)
            pool.do(lambda number: ahead.append(len(handed) - number), number)
    assert max(ahead) <= 3 + 1


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_follows_from_a_piece_of_work_is_done_too(threads: int) -> None:
    done: list[int] = []

    def work(number: int) -> list[tuple[Any, ...]]:
        done.append(number)
        return [(work, number // 2)] * 2 if number else []

    with WorkerPool(threads) as pool:
        for _ in range(3):
            pool.do(work, 4)
    assert sorted(done) == sorted(3 * ([4] + [2] * 2 + [1] * 4 + [0] * 8))


def test_the_first_error_stops_what_has_not_begun_and_is_raised() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        done.append(number)

    def all_of_them() -> None:
        with WorkerPool(2) as pool:
            for number in range(1000):
                pool.do(work, number)

    with pytest.raises(ValueError, match="1"):
        all_of_them()
    assert len(done) < 1000


def test_a_write_whose_unit_fails_leaves_no_file_and_the_next_one_lands(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    lakelatch.create(folder, record_key="id", partition_by="part").close()
    with lakelatch.open(folder, threads=3) as table:
        table.insert(rows())
        before = sorted(tmp_path.rglob("*.parquet"))
        with pytest.raises(InputError, match="division by zero"):
            table.update_where("true", set={"v": lakelatch.sql("10 div (v * 0)")})
        assert sorted(tmp_path.rglob("*.parquet")) == before
        assert table.update_where("true", set={"v": 5}).updated == ROWS


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_threads_are_a_number_from_one_on(tmp_path: Path, threads: Any) -> None:
    lakelatch.create(str(tmp_path / "t"), record_key="id").close()
    with pytest.raises(lakelatch.ConfigError, match="threads"):
        lakelatch.open(str(tmp_path / "t"), threads=threads)
