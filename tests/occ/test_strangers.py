"""A writer that bypasses the log: its rows are read, and nobody writes over them unseen."""

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.avro import encode_commit
from lakelatch.occ.instant import Instant, file_name


def rows(*ids: str, value: int) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)})


def commit(table: lakelatch.Table, batch: pa.Table) -> None:
    with table.transaction("upsert") as txn:
        groups = txn.snapshot.file_groups()
        (txn.replace(groups[0]) if groups else txn.create()).write(batch)


def values(table: lakelatch.Table) -> list[int]:
    return sorted(table.read()["value"].to_pylist())


@pytest.fixture
def bypassed(tmp_path):
    """A table on which another engine has rewritten the only file group, as the timeline tells."""
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", "b", value=1))
        # The same work by ours, taken out of the log afterwards: what is left is what a stranger leaves.
        before = {p: p.read_bytes() for p in (tmp_path / "table/.hoodie/.lakelatch/log").rglob("*") if p.is_file()}
        commit(table, rows("a", "b", value=2))
    for path in (tmp_path / "table/.hoodie/.lakelatch/log").rglob("*"):
        if path.is_file() and path not in before:
            path.unlink()
    return url


def test_its_rows_are_read(bypassed):
    with lakelatch.open(bypassed) as table:
        assert values(table) == [2, 2]


def test_a_new_handle_refuses_to_write_and_says_how_to_go_on(bypassed):
    with (
        lakelatch.open(bypassed) as table,
        pytest.raises(lakelatch.UnsupportedTableError, match=r"without the commit log.*init --adopt") as told,
    ):
        commit(table, rows("a", "b", value=3))
    assert len(told.value.strangers) == 1
    assert values(lakelatch.open(bypassed)) == [2, 2]


def test_adopting_takes_its_commits_over(bypassed):
    with lakelatch.adopt(bypassed) as table:
        with table.transaction("upsert") as txn:
            (group,) = txn.snapshot.file_groups()
            assert txn.read(group)["value"].to_pylist() == [2, 2]
            txn.replace(group).write(rows("a", "b", value=3))
        assert values(table) == [3, 3]


def test_commits_of_our_own_are_no_strangers(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        for value in range(3):
            commit(table, rows("a", value=value))
        table.log.close_epoch()
        with lakelatch.open(url) as other:
            commit(other, rows("a", value=7))
            assert other.log.strangers() == []
        assert values(table) == [7]
        with pytest.raises(lakelatch.ConfigError, match="nothing to adopt"):
            lakelatch.adopt(url)


def test_an_unpublished_commit_is_read_by_one_who_may_not_publish(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", value=1))
        commit(table, rows("a", value=2))
        last = table.log.state.last
        name = file_name(Instant(last.instant, "commit", "completed", last.completion))
        instant = tmp_path / "table/.hoodie/timeline" / name
        body = instant.read_bytes()
        instant.unlink()
    with lakelatch.open(url) as reader:
        assert values(reader) == [2]
        assert not instant.exists()
        commit(reader, rows("a", value=3))
    assert instant.read_bytes() == body, "the next writer publishes it, byte for byte"


def test_the_published_bytes_are_a_function_of_the_entry(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", value=1))
        metadata = table._metadata_of(table.log.state.last)
    assert encode_commit(metadata, replace=False) == encode_commit(metadata, replace=False)
