"""`Table.run_services`: what is due runs, what fails is told, and the rest still runs."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, TableError
from lakelatch.occ.services import run_round

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def written(folder: Path, **given) -> lakelatch.Table:
    table = lakelatch.create(str(folder), record_key="id", schema=SCHEMA, **given)
    for n in range(4):
        table.upsert([{"id": "a", "v": n}])
    return table


def test_only_what_is_due_runs(tmp_path: Path) -> None:
    with written(tmp_path / "t") as table:
        nothing = table.run_services()
        assert (nothing.done, nothing.failed, nothing.not_begun) == ({}, {}, ())
        done = table.run_services(retain_commits=1, keep_min=2, keep_max=3).done
        assert list(done) == ["clean", "archive"]
        assert done["archive"].instants > 0
        assert not table.run_services(retain_commits=1, keep_min=2, keep_max=3).done
        table.insert([{"id": "b", "v": 1}])
        with table.transaction("insert") as txn:
            txn.new_file().write(pa.table({"id": ["c"], "v": [1]}))
        assert not table.run_services().done
        assert list(table.run_services(cluster=True).done) == ["cluster"]
        assert {row["id"] for row in table.read().to_arrow().to_pylist()} == {"a", "b", "c"}


def test_each_service_of_a_round_tells_how_far_it_has_come(tmp_path: Path) -> None:
    told: list[lakelatch.Progress] = []
    with written(tmp_path / "t", type="merge_on_read") as table:
        done = table.run_services(retain_commits=0, keep_min=2, keep_max=3, progress=told.append).done
        assert list(done) == ["compact", "clean", "archive"]
    ends = {(each.what, each.unit): (each.done, each.total) for each in told}
    assert list(ends) == [("compact", "file groups"), ("clean", "files"), ("archive", "instants")]
    assert all(total in (None, reached) for reached, total in ends.values())  # of an archival nobody knows it before


def test_what_is_told_ends_a_round_by_raising(tmp_path: Path) -> None:
    def enough(_now: lakelatch.Progress) -> None:
        raise ZeroDivisionError

    with written(tmp_path / "t", type="merge_on_read") as table:
        with pytest.raises(ZeroDivisionError):
            table.run_services(progress=enough)
        assert table.plans() == []
        assert table.snapshot().file_slices()[0].logs
        assert list(table.run_services().done) == ["compact"]


def test_log_files_are_compacted(tmp_path: Path) -> None:
    with written(tmp_path / "t", type="merge_on_read") as table:
        assert list(table.run_services().done) == ["compact"]
        assert not table.run_services().done
        assert table.read().to_arrow()["v"].to_pylist() == [3]


def test_small_log_files_of_a_large_base_file_are_merged_into_one_another(tmp_path: Path) -> None:
    """A compaction would write the base file again for little; but in the end one comes, so that an archival can go on."""
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=SCHEMA, type="merge_on_read") as table:
        many = random.Random(1)  # whose values nothing compresses
        table.upsert(
            pa.table({"id": [f"{n:09}" for n in range(50_000)], "v": [many.getrandbits(60) for _ in range(50_000)]})
        )

        def appended(times: int) -> list[str]:
            for n in range(times):
                table.upsert([{"id": "0" * 9, "v": n}])
            return list(table.run_services().done)

        assert appended(4) == []  # too few
        assert appended(1) == ["compact_logs"]
        assert appended(1) == []
        assert len(table.snapshot().file_slices()[0].logs) == 7
        assert next(iter(table.run_services(keep_min=2, keep_max=5).done)) == "compact"
        assert not table.snapshot().file_slices()[0].logs
        assert {row["v"] for row in table.read(where="id = '000000000'").to_arrow().to_pylist()} == {0}
        assert list(table.run_services(cluster=True, sort_by=iter(["v"])).done) == ["cluster"]
        assert table.read().to_arrow()["v"].to_pylist()[0] == 0
        assert not table.run_services(cluster=True, sort_by="v").done


def test_a_service_that_fails_is_told_and_the_next_ones_still_run(tmp_path: Path) -> None:
    with written(tmp_path / "t") as table:
        with lakelatch.open(table.url) as closed:
            pass
        told = run_round({"cluster": closed.cluster, "clean": lambda: table.clean(retain_commits=1)}, lambda: False)
        assert isinstance(told.failed["cluster"], TableError)
        assert (list(told.failed), list(told.done), told.not_begun) == (["cluster"], ["clean"], ())


def test_a_round_that_is_told_to_stop_leaves_what_it_has_not_begun(tmp_path: Path) -> None:
    answers = iter([False, True])
    with written(tmp_path / "t") as table:
        left = table.run_services(retain_commits=1, keep_min=2, keep_max=3, stop=lambda: next(answers))
        assert (list(left.done), left.not_begun) == (["clean"], ("archive",))


def test_bad_arguments_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with written(tmp_path / "t", type="merge_on_read") as table:
        with pytest.raises(ConfigError):
            table.run_services(keep_min=0)
        assert list(table.run_services().done) == ["compact"]
