"""A data file that another program has deleted fails what needs it; its rows, or older ones, are never missing in silence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakelatch
from lakelatch.errors import CorruptTableError
from lakelatch.hudi.timeline import NOTED

KINDS = {"copy-on-write": {}, "merge-on-read": {"type": "merge_on_read"}}
Write = Callable[[lakelatch.Table], object]


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table whose partition ``a`` has two versions of one file group, and whose partition ``b`` has one."""
    path = tmp_path / "t"
    with lakelatch.create(path, record_key="id", partition_by="p", hive_style=False, **KINDS[request.param]) as t:
        t.insert([{"id": n, "p": "ab"[n % 2], "v": n} for n in range(10)])
        t.upsert([{"id": 0, "p": "a", "v": 100}])
    return path


def delete_newest(folder: Path, partition: str = "a") -> str:
    """Delete the newest file of a partition; return its path in the table."""
    with lakelatch.open(folder) as t:
        (slice_,) = t.snapshot().file_slices(partition)
    path = slice_.logs[-1].path if slice_.logs else slice_.path
    (folder / path).unlink()
    return path


def fails(folder: Path, path: str, use: Write) -> None:
    instant = (
        path.rpartition("_")[2].partition(".")[0] if path.endswith(".parquet") else path.split("_")[-2].split(".")[0]
    )
    with lakelatch.open(folder) as t:
        before = [each.requested for each in t.timeline().completed]
        with pytest.raises(CorruptTableError, match="another program has deleted it") as told:
            use(t)
        assert (told.value.path, told.value.instant) == (path, instant)
        assert told.value.landed is False
        assert [each.requested for each in t.timeline().completed] == before, "nothing landed"


READS: dict[str, Write] = {
    "rows": lambda t: t.read().to_arrow(),
    "count": lambda t: t.read().count(),
    "a condition": lambda t: t.read(where="v > 50").to_arrow(),
    "a pinned state": lambda t: pinned(t),
    "changed rows": lambda t: t.changes(after="0").to_arrow(),
    "the change feed": lambda t: t.change_feed().to_arrow(),
    "a transaction": lambda t: t.run(lambda txn: txn.read().to_arrow()),
}
WRITES: dict[str, Write] = {
    "upsert": lambda t: t.upsert([{"id": 2, "p": "a", "v": 5}]),
    "update_where": lambda t: t.update_where("p = 'a' and v > 50", {"v": 7}),
    "delete_where": lambda t: t.delete_where("p = 'a' and v > 50"),
    "merge": lambda t: t.merge([{"id": 2, "p": "a", "v": 5}]).when_matched(update="all").run(),
}


def pinned(t: lakelatch.Table) -> None:
    with t.pinned() as state:
        state.read().to_arrow()


@pytest.mark.parametrize("read", READS)
def test_a_read_that_needs_it_names_file_and_commit(folder: Path, read: str) -> None:
    fails(folder, delete_newest(folder), READS[read])


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_merges_with_it_does_not_land(folder: Path, write: str) -> None:
    """An upsert took the older version of the file for the newest, and the rows of the other commits were lost for good."""
    with lakelatch.open(folder) as t:
        if t.config.merge_on_read and write == "upsert":  # it reads base files alone, and appends
            t.compact()
    fails(folder, delete_newest(folder), WRITES[write])


def test_a_file_group_of_one_version_does_not_vanish(folder: Path) -> None:
    fails(folder, delete_newest(folder, "b"), lambda t: t.read().to_arrow())


def test_a_partition_that_is_gone_does_not_vanish(folder: Path) -> None:
    path = delete_newest(folder, "b")
    shutil.rmtree(folder / "b")
    fails(folder, path, lambda t: t.read().count())


def test_an_open_handle_misses_it_too(folder: Path) -> None:
    with lakelatch.open(folder) as t:
        assert t.read().to_arrow().num_rows == 10
        path = delete_newest(folder)
        with pytest.raises(CorruptTableError, match="another program has deleted it"):
            t.read().to_arrow()
        t.upsert([{"id": 1, "p": "b", "v": 5}])
        with pytest.raises(CorruptTableError, match="another program has deleted it") as told:
            t.read().to_arrow()
        assert told.value.path == path


def test_what_does_not_need_it_goes_on_and_an_overwrite_gives_its_rows_up(folder: Path) -> None:
    delete_newest(folder)
    with lakelatch.open(folder) as t:
        assert t.read(where="p = 'b'").count() == 5
        t.upsert([{"id": 1, "p": "b", "v": 7}])
        t.overwrite([{"id": 20, "p": "a", "v": 1}])
    with lakelatch.open(folder) as t:
        assert t.read().count() == 6
        t.clean(retain_commits=1)
    with lakelatch.open(folder) as t:
        assert t.read().count() == 6


def test_a_file_that_is_put_back_counts_again(folder: Path) -> None:
    kept = {path: path.read_bytes() for path in folder.glob("a/*")} | {
        p: p.read_bytes() for p in folder.glob("a/.*") if p.is_file()
    }
    path = delete_newest(folder)
    fails(folder, path, lambda t: t.read().count())
    (folder / path).write_bytes(kept[folder / path])
    with lakelatch.open(folder) as t:
        assert sorted(t.read().to_arrow()["v"].to_pylist())[-1] == 100


def test_a_restore_brings_back_the_state_before_it(folder: Path) -> None:
    with lakelatch.open(folder) as t:
        saved = t.savepoint()
        t.upsert([{"id": 2, "p": "a", "v": 200}])
    delete_newest(folder)
    with lakelatch.open(folder) as t:
        t.restore(saved.instant)
    with lakelatch.open(folder) as t:
        assert max(t.read().to_arrow()["v"].to_pylist()) == 100


def test_a_state_before_it_can_be_read(folder: Path) -> None:
    with lakelatch.open(folder) as t:
        first = t.timeline().commits[-2].completed
    path = delete_newest(folder)
    with lakelatch.open(folder) as t:
        assert t.read(as_of_completion=first).count() == 10
    fails(folder, path, lambda t: t.read(as_of_completion=t.timeline().commits[-1].completed).count())


def test_a_new_epoch_of_the_log_forgets_nothing(folder: Path, tmp_path: Path) -> None:
    """The commit's entry is in an older epoch; the timeline has it."""
    with lakelatch.open(folder) as t:
        log = t.session.log
        log._epoch_slots = 4
        epoch = log.epoch
        while log.epoch < epoch + 2:
            t.insert([{"id": 50 + log.next_slot, "p": "c", "v": 1}])
    fails(folder, delete_newest(folder), lambda t: t.read().count())


def test_a_table_without_our_log_misses_it_too(folder: Path) -> None:
    shutil.rmtree(folder / ".hoodie/.lakelatch")
    path = delete_newest(folder)
    fails(folder, path, lambda t: t.read().count())


# --- archived commits --------------------------------------------------------------------------------------------


@pytest.fixture
def archived(tmp_path: Path) -> Path:
    """A table whose commits of partitions ``a`` and ``b`` are archived, and forgotten by the log."""
    path = tmp_path / "t"
    with lakelatch.create(path, record_key="id", partition_by="p", hive_style=False) as t:
        t.insert([{"id": n, "p": "ab"[n % 2], "v": n} for n in range(10)])
        t.upsert([{"id": 0, "p": "a", "v": 100}])
        t.clean(retain_commits=1)
        t.session.log._epoch_slots = 4
        for n in range(3):
            t.insert([{"id": 100 + n, "p": "c", "v": n}])
        assert t.archive(keep_min=1, keep_max=1).instants
    return path


def test_a_file_of_an_archived_commit_is_missed(archived: Path) -> None:
    fails(archived, delete_newest(archived), lambda t: t.read().count())


def test_the_next_archival_does_not_forget_what_is_missing(archived: Path) -> None:
    path = delete_newest(archived)
    with lakelatch.open(archived) as t:
        for n in range(3):
            t.insert([{"id": 200 + n, "p": "c", "v": n}])
        assert t.archive(keep_min=1, keep_max=1).instants
    fails(archived, path, lambda t: t.read().count())
    fails(archived, path, lambda t: t.upsert([{"id": 2, "p": "a", "v": 5}]))


def test_a_file_that_is_deleted_before_the_archival_is_missed_after_it(folder: Path) -> None:
    with lakelatch.open(folder) as t:
        if t.config.merge_on_read:
            t.compact()
            t.clean(retain_commits=1)
    path = delete_newest(folder)
    with lakelatch.open(folder) as t:
        for n in range(3):
            t.insert([{"id": 200 + n, "p": "c", "v": n}])
        t.archive(keep_min=1, keep_max=1)
    fails(folder, path, lambda t: t.read().count())


def test_what_was_replaced_since_is_not_missed(archived: Path) -> None:
    """By ours, also when that is archived too."""
    with lakelatch.open(archived) as t:
        t.overwrite([{"id": 20, "p": "a", "v": 1}])
        t.clean(retain_commits=1)
        assert t.read().count() == 9
        for n in range(3):
            t.insert([{"id": 200 + n, "p": "c", "v": n}])
        assert t.archive(keep_min=1, keep_max=1).instants
    with lakelatch.open(archived) as t:
        assert t.read().count() == 12


def test_what_an_engine_has_replaced_and_archived_since_is_not_missed(archived: Path) -> None:
    """Its archival writes no note of ours: the history alone tells of the replacement."""
    note = (archived / NOTED).read_bytes()
    with lakelatch.open(archived) as t:
        t.overwrite([{"id": 20, "p": "a", "v": 1}])
        t.clean(retain_commits=1)
        for n in range(3):
            t.insert([{"id": 200 + n, "p": "c", "v": n}])
        assert t.archive(keep_min=1, keep_max=1).instants
    (archived / NOTED).write_bytes(note)
    with lakelatch.open(archived) as t:
        assert t.read(where="p = 'a'").count() == 1


def test_a_note_of_an_older_version_names_nothing_and_hides_nothing(archived: Path) -> None:
    import json

    note = json.loads((archived / NOTED).read_bytes())
    (archived / NOTED).write_text(json.dumps({key: note[key] for key in ("before", "files")}))
    with lakelatch.open(archived) as t:
        assert t.read().count() == 13
