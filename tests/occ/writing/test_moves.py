"""Tables whose keys are unique over all partitions (`unique_keys="table"`): an upsert moves a row, and one stays one."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.cli.app import app
from lakelatch.errors import ConfigError, ConflictError, ConstraintError
from lakelatch.occ.check.check import check

from ...command_line import Runner

Rows = list[tuple[int, str, int]]


def made(path: Path, **settings: Any) -> lakelatch.Table:
    return lakelatch.create(path, record_key="id", partition_by="p", unique_keys="table", hive_style=False, **settings)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    with made(tmp_path / "t") as t:
        t.insert(rows((0, "a", 0), (1, "b", 1), (2, "a", 2), (3, "b", 3)))
        yield t


def rows(*given: tuple[int, str, int | None]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "p", "v"), each, strict=True)) for each in given]


def content(t: lakelatch.Table) -> Rows:
    return sorted((row["id"], row["p"], row["v"]) for row in t.read().to_pylist())


def test_an_upsert_moves_a_row_in_one_commit(table: lakelatch.Table) -> None:
    before = table.upsert(rows((1, "b", 10))).completion
    done = table.upsert(rows((0, "b", 5), (4, "c", 4), (3, "b", 33)))
    assert (done.inserted, done.updated, done.deleted) == (2, 1, 1)
    assert content(table) == [(0, "b", 5), (1, "b", 10), (2, "a", 2), (3, "b", 33), (4, "c", 4)]
    feed = table.change_feed(after=before).to_pylist()
    assert sorted((row["_change"], row["id"], row["p"]) for row in feed) == [
        ("delete", 0, "a"),
        ("insert", 0, "b"),
        ("insert", 4, "c"),
        ("update_after", 3, "b"),
        ("update_before", 3, "b"),
    ]
    table.upsert(rows((0, "a", 6)))
    assert content(table)[0] == (0, "a", 6)


def test_it_moves_within_one_transaction_too(table: lakelatch.Table) -> None:
    with table.transaction() as txn:
        txn.upsert(rows((0, "b", 5)))
        txn.upsert(rows((0, "c", 6)))
        txn.upsert(rows((9, "c", 9)))
        txn.upsert(rows((9, "a", 10)))
    assert content(table) == [(0, "c", 6), (1, "b", 1), (2, "a", 2), (3, "b", 3), (9, "a", 10)]


def test_rows_of_a_reader_move(tmp_path: Path) -> None:
    with made(tmp_path / "t") as t:
        t.insert(pa.table({"id": range(1000), "p": [str(n % 7) for n in range(1000)], "v": range(1000)}))
        moved = pa.table({"id": range(500), "p": ["new"] * 500, "v": range(500)})
        t.upsert(moved.to_reader(max_chunksize=100))
        assert t.read(where="p = 'new'").count() == 500
        assert sorted(t.read().to_arrow()["id"].to_pylist()) == list(range(1000))


def test_a_row_that_is_older_than_the_stored_one_does_not_move(tmp_path: Path) -> None:
    with made(tmp_path / "t", ordering_field="v") as t:
        t.insert(rows((0, "a", 5), (1, "a", 5), (2, "a", 5), (3, "a", None)))
        t.upsert(rows((0, "b", 4), (1, "b", 5), (2, "b", 6), (3, "b", None), (4, "b", 1)))
        assert [each[:2] for each in content_of_nulls(t)] == [(0, "a"), (1, "b"), (2, "b"), (3, "b"), (4, "b")]
        t.upsert(rows((2, "c", None)))
        assert (2, "b", 6) in content_of_nulls(t)


def content_of_nulls(t: lakelatch.Table) -> list[Any]:
    return sorted(((row["id"], row["p"], row["v"]) for row in t.read().to_pylist()), key=lambda row: row[:2])


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.insert(rows((0, "b", 1))),
        lambda t: t.upsert(rows((9, "a", 1), (9, "b", 1))),
        lambda t: t.overwrite(rows((0, "c", 1))),
        lambda t: t.merge(rows((0, "b", 1))).when_not_matched(insert="all").run(),
    ],
    ids=["insert", "one batch", "overwrite", "merge"],
)
def test_what_would_store_a_key_twice_is_refused(table: lakelatch.Table, write: Any) -> None:
    before = content(table)
    with pytest.raises(ConstraintError, match=r"unique in this table \(id\)"):
        write(table)
    assert content(table) == before


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (rows((9, "a", 1)), rows((9, "b", 2))),  # both insert it
        (rows((0, "b", 1)), rows((0, "c", 2))),  # both move it
        (rows((0, "a", 1)), rows((0, "b", 2))),  # one updates what the other moves
        (rows((0, "b", 1)), rows((0, "a", 2))),
    ],
)
def test_a_key_that_another_writer_has_put_elsewhere_since_the_begin_is_a_conflict(
    table: lakelatch.Table, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> None:
    with lakelatch.open(table.url) as other:
        txn = table.transaction()
        txn.upsert(ours)
        other.upsert(theirs)
        with pytest.raises(ConflictError) as lost:
            txn.commit()
        assert lost.value.landed is False
        found = [row for row in content(table) if row[0] == ours[0]["id"]]
        assert found == [tuple(theirs[0].values())]
    # The verb runs again by itself.
    table.upsert(ours)
    assert [row for row in content(table) if row[0] == ours[0]["id"]] == [tuple(ours[0].values())]


def test_other_keys_of_one_file_are_merged_again(table: lakelatch.Table) -> None:
    with lakelatch.open(table.url) as other, table.transaction() as txn:
        txn.upsert(rows((0, "a", 10)))
        other.upsert(rows((2, "a", 20)))
    assert content(table) == [(0, "a", 10), (1, "b", 1), (2, "a", 20), (3, "b", 3)]


def test_beside_a_delete_of_the_row_that_moves_there_is_an_order(table: lakelatch.Table) -> None:
    with lakelatch.open(table.url) as other:
        txn = table.transaction()
        txn.upsert(rows((0, "b", 10)))
        other.delete([0])
        with pytest.raises(ConflictError):
            txn.commit()
        assert 0 not in [row[0] for row in content(table)]


def test_writers_that_throw_one_key_about_leave_one_row(tmp_path: Path) -> None:
    made(tmp_path / "t", lock_wait_s=60).close()
    done: dict[int, list[tuple[str, int]]] = {0: [], 1: [], 2: []}
    errors: list[BaseException] = []

    def writer(number: int) -> None:
        chance = random.Random(number)
        try:
            with lakelatch.open(tmp_path / "t") as t:
                for step in range(6):
                    key, part = chance.randrange(3), chance.choice("abc")
                    t.upsert(rows((key, part, 10 * step + number)), attempts=50)
                    done[key].append((part, 10 * step + number))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    with lakelatch.open(tmp_path / "t") as t:
        left = content(t)
        assert [row[0] for row in left] == sorted(key for key, written in done.items() if written)
        assert all((part, v) in done[key] for key, part, v in left)
        assert not check(t.store, deep=True).findings


def test_the_setting_checks_the_rows_that_are_there(tmp_path: Path) -> None:
    with lakelatch.create(tmp_path / "t", record_key="id", partition_by="p") as t:
        t.insert(rows((1, "a", 1), (1, "b", 1)))
        with pytest.raises(ConstraintError, match="id=1"):
            t.change_settings(unique_keys="table")
        t.delete([{"id": 1, "p": "b"}])
        now = t.change_settings(unique_keys="table")
        assert now.unique_constraints == (("id",),)
        assert t.change_settings(unique_constraints=["v"]).unique_constraints == (("v",), ("id",))
        t.upsert(rows((1, "c", 2)))
        assert t.read().count() == 1
        assert t.change_settings(unique_keys=True).unique_constraints == (("v",),)
        t.upsert(rows((1, "d", 3)))
        assert t.read().count() == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"type": "merge_on_read"}, "copy-on-write"),
        ({"merge": {"v": "sum"}}, "merge"),
        ({"ties": "first"}, "ties"),
        ({"unique_keys": "everywhere"}, "True, False or 'table'"),
        ({"unique_keys": 1}, "True, False or 'table'"),
    ],
)
def test_what_goes_with_it_not_is_refused_before_there_is_a_table(tmp_path: Path, settings: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        lakelatch.create(
            tmp_path / "t", **{"record_key": "id", "partition_by": "p", "unique_keys": "table", **settings}
        )
    assert not (tmp_path / "t").exists()


def test_the_same_arguments_open_it(table: lakelatch.Table, tmp_path: Path) -> None:
    made(tmp_path / "t", exist_ok=True).close()
    with pytest.raises(ConfigError, match="unique_keys"):
        lakelatch.create(tmp_path / "t", record_key="id", partition_by="p", unique_keys=False, exist_ok=True)


def test_the_command_line_makes_such_tables(tmp_path: Path) -> None:
    url, data = str(tmp_path / "t"), tmp_path / "rows.csv"
    columns = "id bigint, p string, v bigint"

    def run(*args: str) -> Any:
        return Runner().invoke(app, args)

    created = run(
        "create", url, "--record-key", "id", "--partition-by", "p", "--schema", columns, "--unique-keys", "table"
    )
    assert created.exit_code == 0, created.output
    for part in "ab":
        data.write_text(f"id,p,v\n1,{part},1\n")
        assert run("upsert", url, str(data)).exit_code == 0
    with lakelatch.open(url) as t:
        assert content(t) == [(1, "b", 1)]
    assert run("settings", url, "unique_keys=false").exit_code == 0
    with lakelatch.open(url) as t:
        assert t.settings.unique_keys is False
