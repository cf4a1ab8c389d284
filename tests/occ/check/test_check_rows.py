"""`check` reads what it calls sound, says what it could not read, and takes nothing for damage that is none."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.hudi.timeline.archived import Archived, History
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit
from lakelatch.hudi.timeline.instant import Instant, file_name, next_label
from lakelatch.hudi.timeline.timeline import TIMELINE
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.entries import Setting
from lakelatch.occ.log.epochs import epochs
from lakelatch.testing.faults import On, Refuse

from .. import mor
from ..world import BEGUN, World, content, rows


@pytest.fixture
def world(tmp_path: Path):
    found = World(tmp_path / "table", lock="none://", log_epochs=1)
    yield found
    found.close()


def kinds(store: lakelatch.storage.Store, **options: bool) -> set[str]:
    return {each.kind for each in check(store, **options).findings}


# --- what is read ------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path):
    """A table with one file, and what is in it."""
    chance = random.Random(1)
    made = pa.table(
        {
            "id": [f"k{n:03}" for n in range(60)],
            "n": list(range(60)),
            "f": [chance.random() for _ in range(60)],
            "s": [f"text {n % 3}" for n in range(60)],
            "l": [[n, n + 1] for n in range(60)],
        }
    )
    with lakelatch.create(str(tmp_path / "t"), record_key="id", writer="test") as table:
        with table.transaction("insert") as txn:
            txn.new_file("").write(made)
        (path,) = (tmp_path / "t").glob("*.parquet")
        yield table, path


def chunks(path: Path) -> list[tuple[str, int, int]]:
    """Every column chunk: its column, and where it begins and ends."""
    group = pq.read_metadata(path).row_group(0)
    found = []
    for number in range(group.num_columns):
        column = group.column(number)
        start = column.dictionary_page_offset or column.data_page_offset
        found.append((column.path_in_schema, start, start + column.total_compressed_size))
    return found


def test_a_deep_check_notices_when_every_byte_of_a_column_is_another(filled):
    table, path = filled
    sound = path.read_bytes()
    assert check(table.store, deep=True).sound()
    for name, start, end in chunks(path):
        path.write_bytes(sound[:start] + bytes(each ^ 0xFF for each in sound[start:end]) + sound[end:])
        assert "file-torn" in kinds(table.store, deep=True), name


def test_no_byte_of_a_column_can_change_a_row_unnoticed(filled):
    """What else can change is in the heads of pages: statistics, which no reader here looks at."""
    table, path = filled
    sound, was = path.read_bytes(), table.read().to_arrow()
    changed = [place for _, start, end in chunks(path) for place in range(start, end)]
    for place in random.Random(2).sample(changed, 150):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])
        if check(table.store, deep=True).sound():
            assert table.read().to_arrow().equals(was), place


def test_a_deep_check_says_which_rows_it_did_not_read(filled):
    table, path = filled
    with table.transaction("upsert") as txn:
        txn.upsert(table.read().to_arrow().slice(0, 1))
    (told,) = [each for each in check(table.store, deep=True).unchecked if "time travel" in each]
    assert told.startswith("the rows of 1 files")
    newest = max(path.parent.glob("*.parquet"), key=lambda each: each.name.rpartition("_")[2])
    pq.write_table(pq.read_table(newest).replace_schema_metadata(None), newest)  # as another writer
    assert any("checksums" in each for each in check(table.store, deep=True).unchecked)


def test_a_file_that_may_not_be_read_is_no_damage(world):
    writer = world.writer("A")
    writer.store.add(Refuse(On("open", ".parquet"), errno=errno.EACCES, forever=True))
    report = check(writer.store, deep=True)
    assert report.sound(), report.findings
    assert any(".parquet, which could not be read" in each for each in report.unchecked)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is withheld from root")
def test_a_file_without_permission_is_no_damage(filled):
    table, path = filled
    path.chmod(0)
    assert check(table.store, deep=True).sound()


# --- what is no damage -------------------------------------------------------------------------------------------


def test_a_file_that_was_merged_again_is_sound_when_its_commit_is_archived_and_forgotten(world):
    """Its rows are of a commit that began after its own; C, which comes after both, is in the history alone."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    early = a.table.transaction("upsert")
    early.upsert(rows("a", {"a0": 5}))
    with b.table.transaction("upsert") as late:
        late.upsert(rows("a", {"a1": 7}))
    early.commit()
    for _ in range(4):
        a.add("b")
        a.table.session.log.catch_up()
        a.table.session.log.close_epoch()
    a.table.clean(retain_commits=1)
    a.table.archive(keep_min=1, keep_max=1)
    a.table.rollback_failed_writes()
    store = a.table.store
    assert len(epochs(store)) <= 2
    assert early.instant not in {each.requested for each in a.table.timeline().commits}
    report = check(store, deep=True)
    assert report.sound(), report.findings
    assert content(a.table) == BEGUN | {"a0": 5, "a1": 7, "b0": 4, "b1": 4}


@pytest.mark.parametrize("how", ["clustered", "written again"])
def test_files_that_another_engine_has_replaced_cleaned_and_archived_are_not_missing(world, how):
    """Our log tells of the file; only the history, of the commit that took its place."""
    a = world.writer("A")
    a.add("a")
    (old,) = a.table.snapshot().file_slices("part=a")
    store = a.table.store
    requested = next_label(world.env.now() + 3600, "")
    completed = next_label(world.env.now() + 3600, requested)
    group = "fedcba98-0000-4000-8000-000000000000-0" if how == "clustered" else old.file_id
    new = f"part=a/{group}_0-0-0_{requested}.parquet"
    (world.folder / new).write_bytes((world.folder / old.path).read_bytes())
    stat = WriteStat(group, new, "part=a", num_writes=2, file_size=(world.folder / new).stat().st_size)
    replaced = {"part=a": (old.file_id,)} if how == "clustered" else {}
    action = "replacecommit" if replaced else "commit"
    theirs = Instant(requested, action, "completed", completed)
    body = encode_commit(CommitMetadata("UPSERT", None, {}, (stat,), replaced), replace=bool(replaced))
    (world.folder / TIMELINE / file_name(theirs)).write_bytes(body)
    for each in (world.folder / "part=a").glob(f"{old.file_id}_*.parquet"):
        if each.name != new.rpartition("/")[2]:
            each.unlink()
    with world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter")).table as table:
        with table.transaction("insert") as txn:
            txn.new_file("part=b").write(rows("b", {"b9": 1}))
        History(store, TIMELINE).add([Archived(theirs, body)])
        (world.folder / TIMELINE / file_name(theirs)).unlink()
        assert "file-missing" not in kinds(store)


# --- keys and values that stand twice ----------------------------------------------------------------------------


OTHER = "99999999-0000-4000-8000-000000000000-0"


@pytest.mark.parametrize(
    ("logged", "deleted", "beside", "twice"),
    [
        ({"a2": 3}, [], {"a2": 1}, "'a2'"),  # a row that is in a log file only
        ({"a2": 3}, ["a1"], {"a1": 1}, ""),  # one that is in the base file only, and deleted
        ({"a0": 9}, [], {"a0": 1}, "'a0'"),  # one that is in both
        ({"a2": 3}, ["a2"], {"a2": 1}, ""),
    ],
)
@pytest.mark.parametrize("base", [True, False], ids=["base and log", "log alone"])
def test_a_key_that_stands_in_two_file_groups_is_found_in_their_log_files(
    tmp_path, logged, deleted, beside, twice, base
):
    """What counts are the rows that a reader sees."""
    table = mor.Mor(tmp_path / "t", ordering=None)
    if base:
        table.base(mor.at(1), mor.at(2), "a", mor.rows("a", {"a0": 1, "a1": 1}))
    table.update(mor.at(10), mor.at(11), "a", logged, deleted)
    table.base(mor.at(12), mor.at(13), "a", mor.rows("a", beside), file_id=OTHER)
    with lakelatch.adopt(str(tmp_path / "t")) as adopted:
        ids = adopted.read().to_arrow()["id"].to_pylist()
        assert (len(set(ids)) < len(ids)) is bool(twice)
        findings = check(adopted.store, deep=True).findings
        assert [each.kind for each in findings] == ["duplicate-keys"] * bool(twice), findings
        assert twice in "".join(each.message for each in findings)


def test_values_that_stand_twice_are_named_with_their_rows(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="p") as table:
        table.insert(
            [{"id": "1", "p": "a", "u": "x"}, {"id": "2", "p": "a", "u": None}, {"id": "3", "p": "a", "u": None}]
        )
        table.insert([{"id": "4", "p": "b", "u": "x"}, {"id": "5", "p": "b", "u": "y"}])
        assert check(table.store, deep=True).sound()
        table.session.log.append(lambda state: Setting(state.settings.changed(unique_constraints=["u"]), "test"))
        assert check(table.store).sound(), "the rows are not read"
        (found,) = check(table.store, deep=True).findings
        assert (found.kind, found.severity) == ("duplicate-values", "damage")
        assert "u='x' in rows '1' and '4'" in found.message
