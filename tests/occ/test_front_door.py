"""What is refused before anything is written, and places that are one place however they are spelled."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.locks import open_provider
from lakelatch.occ.table_lock import OWN_LOCK_FOLDER

ROWS = pa.table({"id": ["a", "b"], "place": ["JFK", "LGA"], "value": [1, 2]})


def made(folder: Path, **options: object) -> lakelatch.Table:
    return lakelatch.create(str(folder), record_key="id", partition_by="place", schema=ROWS.schema, **options)


def files(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "spell",
    [
        lambda p: f"{p}/",
        lambda p: f"file://{p}",
        lambda p: f"file:{p}//",
        lambda p: f"{p}/../{p.name}",
        lambda p: os.path.relpath(p),
        lambda p: str(p.parent / "link"),
    ],
    ids=["slash", "url", "short-url", "dots", "relative", "link"],
)
def test_every_spelling_is_the_same_table_and_the_same_lock(tmp_path, spell):
    table = made(tmp_path / "table")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    with lakelatch.open(spell(tmp_path / "table")) as other:
        assert other.url == table.url
        with table.lease("first"):
            holder = holder_of(other)
            assert holder is not None
            assert "first" in holder.reason


def holder_of(table: lakelatch.Table):
    with open_provider(table.store.uri(OWN_LOCK_FOLDER)) as provider:
        return provider.inspect("table")


def test_a_folder_with_other_files_is_not_made_a_table(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(lakelatch.InputError, match=r"not empty \(notes.txt\)"):
        made(tmp_path)
    assert files(tmp_path) == {Path("notes.txt"): b"mine"}


def test_a_folder_that_is_no_table_is_not_opened(tmp_path):
    with pytest.raises(lakelatch.NotATableError, match="lakelatch init"):
        lakelatch.open(str(tmp_path))
    assert files(tmp_path) == {}


def test_a_table_is_not_made_twice(tmp_path):
    made(tmp_path / "t").close()
    before = files(tmp_path)
    with pytest.raises(lakelatch.InputError, match=r"a table at .* already"):
        made(tmp_path / "t")
    assert files(tmp_path) == before
    with made(tmp_path / "t", exist_ok=True) as table:
        assert table.read().num_rows == 0


def test_a_table_made_half_says_what_to_do(tmp_path):
    made(tmp_path / "t").close()
    (tmp_path / "t/.hoodie/hoodie.properties").unlink()
    with pytest.raises(lakelatch.DamagedTableError, match="created half"):
        lakelatch.open(str(tmp_path / "t"))


def test_a_table_without_our_log_is_read_only_until_it_is_adopted(tmp_path):
    with made(tmp_path / "t") as table, table.transaction("insert") as txn:
        txn.create("place=JFK").write(ROWS.slice(0, 1))
    shutil.rmtree(tmp_path / "t/.hoodie/.lakelatch")
    with lakelatch.open(str(tmp_path / "t")) as table:
        assert table.read()["id"].to_pylist() == ["a"]
        with pytest.raises(lakelatch.UnsupportedTableError, match="init --adopt"):
            table.transaction()
    with lakelatch.adopt(str(tmp_path / "t")) as table, table.transaction("insert") as txn:
        txn.create("place=LGA").write(ROWS.slice(1, 1))
    assert lakelatch.open(str(tmp_path / "t")).read().num_rows == 2


def test_a_wrong_checksum_is_refused(tmp_path):
    made(tmp_path / "t").close()
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("hoodie.table.checksum=", "hoodie.table.checksum=1"))
    with pytest.raises(lakelatch.DamagedTableError, match="checksum"):
        lakelatch.open(str(tmp_path / "t"))


def test_a_metadata_table_that_appears_later_stops_writers(tmp_path):
    with made(tmp_path / "t") as table:
        with (tmp_path / "t/.hoodie/hoodie.properties").open("a") as file:
            file.write("hoodie.table.metadata.partitions=files\n")
        with pytest.raises(lakelatch.UnsupportedTableError, match=r"hoodie\.metadata\.enable=false"):
            table.transaction()


@pytest.mark.parametrize("name", ["nobody", "lease"])
def test_unknown_settings_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(lakelatch.ConfigError, match=name):
        made(tmp_path / "t", **{name: 1})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("url", ["nobody://x", "file:///x?lease=never"])
def test_a_lock_that_cannot_work_is_refused_before_anything_is_written(tmp_path, url):
    with pytest.raises(lakelatch.ConfigError):
        made(tmp_path / "t", lock=url)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("place", ["a/../b", "..", "x\0y", ".hidden", "p" * 300])
def test_a_partition_never_leads_out_of_the_table(tmp_path, place):
    with made(tmp_path / "t", hive_style=False) as table:
        before = files(tmp_path)
        rows = pa.table({"id": ["a"], "place": [place], "value": [1]})
        with pytest.raises(lakelatch.LatchError), table.transaction("insert") as txn:
            txn.create(place).write(rows)
        assert {p for p in files(tmp_path) if p.suffix == ".parquet"} == {p for p in before if p.suffix == ".parquet"}
        assert table.read().num_rows == 0
    assert {p.name for p in tmp_path.iterdir()} == {"t"}
