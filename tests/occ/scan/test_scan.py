"""`Table.read` and `Transaction.read`: what is opened, how it streams, whose state it is, and who keeps its files."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.ahead import Ready, in_order
from lakelatch.environment import SYSTEM
from lakelatch.occ.liveness.reader_leases import READERS
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import At, FaultStore, On, Refuse

from ...jvm.readers import by_hudi_rs, rs_read_optimized
from ...servers import versitygw
from ..mor import Mor, at
from ..world import BEGUN, SCHEMA, add, rows

ROW_GROUP = 65_536


def opened(store: FaultStore) -> list[str]:
    return [call.path.split("/")[0] for call in store.calls if call.op == "open" and call.path.endswith(".parquet")]


def pairs(scan) -> dict[str, int]:
    read = scan.to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


@pytest.fixture
def a(world):
    return world.writer("A")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two partitions, of five row groups each; ``v`` grows with the rows."""
    folder = str(tmp_path_factory.mktemp("large") / "t")
    count = 5 * ROW_GROUP
    with lakelatch.create(folder, record_key="id", partition_by="part", schema=SCHEMA) as table:
        for number, part in enumerate("ab"):
            values = pa.array(range(number * count, (number + 1) * count))
            ids = values.cast(pa.string())
            parts = pa.repeat(pa.scalar(part), count)
            with table.transaction("insert") as txn:
                txn.new_file(f"part={part}").write(pa.table([ids, parts, values], schema=SCHEMA))
    return folder


# --- what is opened ----------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_rows_are_asked_for(a):
    scan = a.table.read()
    assert not opened(a.store)
    assert "not read yet" in repr(scan)
    assert scan.schema == SCHEMA
    assert not opened(a.store)
    assert pairs(scan) == BEGUN
    assert sorted(opened(a.store)) == ["part=a", "part=b"]


@pytest.mark.parametrize(
    "chosen",
    [
        {"partitions": [{"part": "a"}]},
        {"partitions": ["part=a"]},
        {"where": "part = 'a'"},
        {"where": [("part", "=", "a")]},
        {"where": "part in ('a', 'c') and v >= 0"},
        {"where": "part < 'b' or part is null"},
    ],
    ids=str,
)
def test_partitions_that_cannot_match_are_not_opened(a, chosen):
    assert pairs(a.table.read(**chosen)) == {"a0": 0, "a1": 0}
    assert opened(a.store) == ["part=a"]
    told = a.table.read(**chosen).explain()
    assert [each.path.split("/")[0] for each in told.read] == ["part=a"]
    assert [each.path.split("/")[0] for each in told.pruned] == ["part=b"]
    assert "1 of 2 file groups are read" in str(told)


def test_row_groups_that_cannot_match_are_not_read(large):
    with lakelatch.open(large) as table:
        few = table.read(where=f"v >= {2 * ROW_GROUP} and v < {2 * ROW_GROUP + 3}", columns=["v"])
        told = few.explain()
        assert [each.why for each in told.read] == ["1 of 5 row groups may match"]
        assert [each.why for each in told.pruned] == ["its statistics exclude the condition"]
        assert few.to_arrow()["v"].to_pylist() == [2 * ROW_GROUP, 2 * ROW_GROUP + 1, 2 * ROW_GROUP + 2]


def test_a_file_whose_footer_is_known_and_excludes_the_condition_is_not_opened(large):
    store = FaultStore(LocalStore(large))
    with Table(store) as table:
        assert table.read(where="v < 0").count() == 0
        assert sorted(opened(store)) == ["part=a", "part=b"]
        store.reset()
        assert table.read(where="v < 0").count() == 0
        assert table.read(where=f"v < {5 * ROW_GROUP}").count() == 5 * ROW_GROUP
        assert set(opened(store)) == {"part=a"}


def test_rows_are_counted_from_the_footers(large):
    store = FaultStore(LocalStore(large))
    with Table(store) as table:
        before = pa.total_allocated_bytes()
        assert table.read().count() == 10 * ROW_GROUP
        assert table.read(partitions=[{"part": "b"}]).count() == 5 * ROW_GROUP
        assert len(opened(store)) == 2, "each footer is read once"
        assert pa.total_allocated_bytes() - before < 1 << 20


def test_a_condition_of_no_column_is_met_by_all_rows_or_none(a):
    assert pairs(a.table.read(where="1 = 1")) == BEGUN
    assert a.table.read(where="1 = 1").count() == 4
    assert a.table.read(where="1 = 2").count() == 0
    assert a.table.read(where=[]).count() == 4


# --- how it streams ----------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_partitions_and_file_groups(large):
    with lakelatch.open(large) as table:
        assert table.read(columns=["v"]).to_arrow()["v"].to_pylist() == list(range(10 * ROW_GROUP))
        batches = table.read(columns=["v"]).to_batches()
        firsts = [batch["v"][0].as_py() for batch in batches]
        assert firsts == sorted(firsts)


_STREAM = """
import sys, pyarrow as pa, lakelatch
pa.set_cpu_count(int(sys.argv[2]))
rows = largest = 0
for batch in lakelatch.open(sys.argv[1]).read().to_batches():
    rows, largest = rows + batch.num_rows, max(largest, batch.nbytes)
print(rows, largest, pa.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_keeps_a_few_row_groups_in_memory(large, threads):
    done = subprocess.run(
        [sys.executable, "-c", _STREAM, large, str(threads)], capture_output=True, text=True, check=True
    )
    count, row_group, peak = map(int, done.stdout.split())
    assert count == 10 * ROW_GROUP
    assert peak < {1: 4, 2: 7}[threads] * row_group, peak / row_group


def test_a_stream_that_is_dropped_half_way_leaves_nothing_behind(large):
    with lakelatch.open(large) as table:
        reader = table.read().to_batches()
        assert reader.read_next_batch().num_rows == ROW_GROUP
        del reader
        gc.collect()
        assert "lakelatch-reader" not in {each.name for each in threading.enumerate()}, "nobody beats for it"


def test_results_come_in_order_and_errors_in_their_turn():
    def fail():
        raise ValueError("third")

    for at_once in (1, 2, 5):
        calls = [lambda: 1, Ready(2), fail, lambda: 4]
        found = in_order(SYSTEM, calls, at_once)
        assert [next(found), next(found)] == [1, 2]
        with pytest.raises(ValueError, match="third"):
            next(found)
    assert list(in_order(SYSTEM, [], 3)) == []


def test_no_more_calls_are_begun_than_asked_for():
    begun = []
    found = in_order(SYSTEM, (lambda n=n: begun.append(n) or n for n in range(100)), 3)
    assert next(found) == 0
    found.close()
    assert len(begun) <= 4


def test_rows_are_read_from_an_object_store(tmp_path):
    with versitygw(tmp_path) as bucket:
        url = f"{bucket.url}/t"
        made = lakelatch.create(
            url, record_key="id", partition_by="part", schema=SCHEMA, storage=bucket.options, lock="memory://scans"
        )
        with made as table:
            for part in ("a", "b", "c"):
                with table.transaction("insert") as txn:
                    txn.new_file(f"part={part}").write(rows(part, {f"{part}{n}": n for n in range(50)}))
            assert table.read().count() == 150
            assert pairs(table.read(where="v = 7")) == {"a7": 7, "b7": 7, "c7": 7}
            assert table.read(partitions=[{"part": "b"}]).to_batches().read_all().num_rows == 50


def test_everything_that_knows_the_arrow_stream_takes_a_scan(a):
    duckdb, pd, pl = pytest.importorskip("duckdb"), pytest.importorskip("pandas"), pytest.importorskip("polars")
    scan = a.table.read(where="id <> 'a1'")
    wanted = {"id": ["a0", "b0", "b1"], "part": ["a", "b", "b"], "v": [0, 0, 0]}
    assert pa.table(scan).to_pydict() == wanted
    assert pl.DataFrame(scan).to_dict(as_series=False) == wanted == scan.to_polars().to_dict(as_series=False)
    assert scan.to_pandas().to_dict("list") == wanted
    assert isinstance(scan.to_pandas(), pd.DataFrame)
    assert scan.to_pylist()[0] == {"id": "a0", "part": "a", "v": 0}
    assert pa.RecordBatchReader.from_stream(scan).read_all().to_pydict() == wanted
    with duckdb.connect() as connection:
        relation = scan.to_duckdb(connection)
        for _ in range(2):
            assert relation.aggregate("count(*)").fetchall() == [(3,)], "it may be executed again"
        assert connection.sql("select max(id) from scan").fetchall() == [("b1",)]
    with pytest.raises(TypeError, match="to_batches"):
        list(scan)


def test_a_missing_library_is_told_with_the_line_that_installs_it(a, tmp_path, monkeypatch):
    (tmp_path / "polars.py").write_text("raise ImportError('no polars')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "polars", raising=False)
    with pytest.raises(lakelatch.ConfigError, match="pip install polars"):
        a.table.read().to_polars()


# --- whose state it is -------------------------------------------------------------------------------------------


def test_a_scan_reads_the_state_that_read_was_called_at(world, a):
    scan = a.table.read()
    world.writer("B").add("a")
    assert pairs(scan) == BEGUN
    assert pairs(scan) == BEGUN, "it may be read again"
    assert pairs(a.table.read()) == BEGUN | {"a0": 1, "a1": 1}


def test_a_file_that_was_cleaned_away_meanwhile_is_told(old):
    a = old.writer("A")
    past = a.table.read()
    a.add("a")
    a.add("a")
    a.table.clean(retain_commits=1)
    with pytest.raises(lakelatch.StorageError, match="a cleaning has taken it since `read` was called, or another"):
        past.to_arrow()
    with pytest.raises(lakelatch.StorageError, match="Read again"):
        past.to_batches().read_all()


def test_a_scan_that_is_read_for_long_holds_its_files(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    scan = a.table.read()
    reader = scan.to_batches()
    first = reader.read_next_batch()
    assert not list(old.folder.glob(f"{READERS}/*")), "a short one writes nothing"
    a.env.advance(a.table.settings.heartbeat_interval_s)
    b.add("a")
    b.add("b")
    b.add("b")
    b.table.clean(retain_commits=1)
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == 5
    assert not list(old.folder.glob(f"{READERS}/*")), "the lease is given back"


def test_who_may_not_write_reads_without_a_lease(old):
    a = old.writer("A")
    reader = a.table.read().to_batches()
    reader.read_next_batch()
    a.store.add(Refuse(On("put_if_absent", READERS), errno=13))
    a.env.advance(3 * a.table.settings.heartbeat_interval_s)
    assert reader.read_all().num_rows == 3
    assert not list(old.folder.glob(f"{READERS}/*"))


def test_a_closed_table_reads_nothing_more(a):
    scan = a.table.read()
    a.table.close()
    for read in (scan.to_arrow, scan.count, scan.explain, lambda: scan.to_batches().read_all(), a.table.read):
        with pytest.raises(lakelatch.TableError, match="was closed"):
            read()


def test_a_failing_store_fails_the_read(a):
    scan = a.table.read()
    a.store.reset()
    a.store.add(Refuse(At(1), errno=5))
    with pytest.raises(lakelatch.StorageError):
        scan.to_arrow()


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"columns": ["w"]}, r"no column 'w'; it has id, part, v"),
        ({"columns": []}, "at least one column"),
        ({"columns": ["id", "id"]}, "none twice"),
        ({"partitions": "part=a"}, r"give a list, partitions=\['part=a'\]"),
        ({"partitions": {"part": "a"}}, r"give a list, partitions=\[\{'part': 'a'\}\]"),
        ({"partitions": ["part=nope"]}, "has no partition 'part=nope'"),
        ({"partitions": ["nope"]}, "cannot be a partition"),
        ({"partitions": [{"v": 1}]}, "names no partition .* partitioned by part"),
        ({"partitions": [{}]}, "names no partition"),
        ({"partitions": [{"part": 1}]}, "1 is no value of partition column 'part', which is of type string"),
        ({"partitions": [7]}, "cannot be a partition"),
        ({"where": "w = 1"}, "w"),
        ({"where": "v ="}, "v ="),
        ({"where": 7}, "7"),
        ({"as_of": "yesterday"}, "yesterday"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_before_anything_is_opened(a, wrong, said):
    with pytest.raises(lakelatch.InputError, match=said):
        a.table.read(**wrong)
    assert not opened(a.store)


def test_a_value_that_no_partition_has_names_nothing(a):
    assert a.table.read(partitions=[{"part": "c"}, {"part": None}, {"part": ""}]).count() == 0
    assert a.table.read(partitions=[]).to_arrow() == SCHEMA.empty_table()


def test_meta_columns_are_read_when_they_are_named(a):
    found = a.table.read(columns=["v", "_hoodie_record_key"], where="_hoodie_record_key > 'b'").to_arrow()
    assert found.to_pydict() == {"v": [0, 0], "_hoodie_record_key": ["b0", "b1"]}


def test_a_table_without_a_schema_reads_as_nothing(folder):
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        assert table.read().to_arrow() == pa.table({})
        assert table.read().count() == table.changes().count() == 0
        assert "0 of 0" in str(table.read().explain())


# --- log files ---------------------------------------------------------------------------------------------------


def test_slices_with_log_files_are_merged_and_told(tmp_path):
    mor = Mor(tmp_path / "t")
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}).to_pylist())
    mor.base(at(3), at(4), "b", rows("b", {"b0": 1}).to_pylist())
    mor.update(at(10), at(11), "a", {"a0": 9, "a2": 5})
    with lakelatch.open(str(mor.folder)) as table:
        assert pairs(table.read(where="v > 1")) == {"a0": 9, "a2": 5}
        assert table.read(where="v > 1", columns=["id"]).to_arrow()["id"].to_pylist() == ["a0", "a2"]
        assert table.read().count() == 4
        assert table.read(where="v = 1").count() == 2
        told = [each.why for each in table.read().explain().read]
        assert [why.startswith("merges 1 log files onto") for why in told] == [True, False]
        assert pairs(table.changes(after=at(5))) == {"a0": 9, "a2": 5}


# --- in a transaction --------------------------------------------------------------------------------------------


def test_a_transaction_reads_what_it_has_staged(world, a):
    with a.table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 7, "new": 8}))
        scan = txn.read()
        assert pairs(scan) == BEGUN | {"a0": 7, "new": 8}
        assert pairs(txn.read(where="v > 0")) == {"a0": 7, "new": 8}
        assert pairs(txn.read(partitions=[{"part": "b"}])) == {"b0": 0, "b1": 0}
        assert txn.read(partitions=["part=none"]).count() == 0
        world.writer("B").add("b")
        assert txn.read().count() == 5, "of its own snapshot"
    with pytest.raises(lakelatch.LakeLatchError, match="is over"):
        scan.to_arrow()


@pytest.mark.parametrize(
    ("read", "loses"),
    [
        ({}, True),
        ({"partitions": [{"part": "b"}]}, True),
        ({"where": "part = 'b'"}, True),
        ({"where": "part in ('b', 'c')"}, True),
        ({"where": "v >= 0"}, True),
        ({"where": "v < 0 or id = 'b0'"}, True),
        ({"where": "part = 'a'"}, False),
        ({"partitions": [{"part": "a"}]}, False),
        ({"partitions": [{"part": "new"}]}, False),
        ({"where": "v > 100"}, False),
    ],
    ids=str,
)
def test_what_a_transaction_read_is_protected_above_snapshot_isolation(make_world, read, loses):
    world = make_world(statistics="all")
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.table.transaction(isolation="serializable")
    txn.read(**read).to_arrow()
    txn.reads_complete()
    txn.new_file("part=a").write(rows("a", {"a9": 1}))
    b.add("b", 3)
    if loses:
        with pytest.raises(lakelatch.ConflictError):
            txn.commit()
    else:
        assert txn.commit() is not None


def test_a_partition_that_appears_is_a_phantom_of_who_read_it_by_value(world):
    for read in ({"partitions": [{"part": "c"}]}, {"where": "part = 'c'"}):
        a, b = world.writer("A"), world.writer("B", host="host-b")
        txn = a.table.transaction(isolation="serializable")
        assert txn.read(**read).count() == 0
        txn.reads_complete()
        txn.new_file("part=a").write(rows("a", {"a9": 1}))
        b.insert("c", f"c{len(world.writers)}")
        with pytest.raises(lakelatch.ConflictError):
            txn.commit()
        with b.table.transaction("delete_partition") as gone:
            gone.overwrites("part=c")
            gone.drop_file_groups(gone.snapshot.file_slices("part=c"))


# --- changes -----------------------------------------------------------------------------------------------------


def test_changes_are_the_newest_rows_of_the_commits_since(world, a):
    start = a.table.read().completion
    assert a.table.changes(after=start).count() == 0
    assert a.table.changes(after=start).completion == start
    first = a.insert("b", "b9", v=5)
    second = a.add("a")
    found = a.table.changes(after=start)
    assert found.completion == second.completion
    table = found.to_arrow()
    assert table.column_names == ["id", "part", "v", "_commit_completion"]
    told = dict(zip(table["id"].to_pylist(), table["_commit_completion"].to_pylist(), strict=True))
    assert told == {"b9": first.completion, "a0": second.completion, "a1": second.completion}
    assert pairs(a.table.changes(after=first.completion)) == {"a0": 1, "a1": 1}
    assert pairs(a.table.changes(after=start, until=first.completion)) == {"b9": 5}
    assert found.count() == 3
    only = a.table.changes(after=first.completion, columns=["v"]).to_arrow()
    assert only.column_names == ["v", "_commit_completion"]
    assert sorted(pairs(a.table.changes())) == ["a0", "a1", "b0", "b1", "b9"]


def test_rows_that_a_clustering_moves_are_no_changes(old):
    with old.fresh() as table:
        before = table.read().completion
        assert table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)
        assert table.read().completion > before
        assert table.changes(after=before).count() == 0
        everything = pairs(table.changes())
        assert everything == pairs(table.read())


def test_changes_that_are_followed_from_checkpoint_to_checkpoint_give_every_row(world, a):
    at_, seen = None, {}
    for number in range(6):
        if number % 2:
            a.insert("b", f"x{number}", v=number)
        else:
            with a.table.transaction() as txn:
                add(txn, "a", number)
        scan = a.table.changes(after=at_)
        seen |= pairs(scan)
        at_ = scan.completion
    assert seen == pairs(a.table.read())


def test_a_read_optimized_scan_reads_base_files_only_as_hudi_rs_does(tmp_path):
    mor = Mor(tmp_path / "t")
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}).to_pylist())
    mor.update(at(10), at(11), "a", {"a0": 9, "a2": 5}, ["a1"])
    mor.update(at(12), at(13), "b", {"b0": 5})  # log files only
    with lakelatch.adopt(str(mor.folder)) as table:
        for wanted in ({"a0": 1, "a1": 1}, {"a0": 9, "a2": 5, "b0": 5}):
            scan = table.read(read_optimized=True)
            independent = by_hudi_rs(mor.folder, rs_read_optimized())
            assert pairs(scan) == wanted == {row["id"]: row["v"] for row in independent}
            assert scan.count() == len(wanted)
            assert not any("merges" in each.why for each in scan.explain().files)
            assert pairs(table.read(where="v > 1", read_optimized=True)) == {k: v for k, v in wanted.items() if v > 1}
            table.compact()
        table.upsert([{"id": "a0", "part": "a", "v": 11}])
        table.delete([{"id": "b0", "part": "b"}])
        assert pairs(table.read(read_optimized=True)) == {"a0": 9, "a2": 5, "b0": 5}
        assert pairs(table.read()) == {"a0": 11, "a2": 5}
