"""Base files: what stands in them, what a second run of a task meets, what is refused."""

import io
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.errors import CommitError, InputError, RolledBackError, StorageError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.merge.rows import merge
from lakelatch.hudi.table.column_types import META_COLUMNS
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.record_keys import RECORD_KEY
from lakelatch.hudi.timeline import FileSlice
from lakelatch.occ.liveness.heartbeat import heartbeat_path
from lakelatch.occ.liveness.markers import list_markers, remove
from lakelatch.occ.staging.base_file import BaseFileWriter
from lakelatch.occ.staging.file_spec import FileSpec, group_id, token
from lakelatch.occ.staging.log_file import LogFileWriter
from lakelatch.occ.staging.meta_columns import COMMIT_TIME, RowNumbers
from lakelatch.storage import Store
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore, On, Pause

T1, T2 = "20260101000000001", "20260101000000002"
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def _spec(root: Path, instant: str = T1, **changes: object) -> FileSpec:
    (root / ".hoodie").mkdir(exist_ok=True)
    store = LocalStore(root)
    store.put(heartbeat_path(instant), b"alive")
    config = TableConfig(
        "t", "COPY_ON_WRITE", 8, 2, record_key_fields=("id",), partition_fields=("city",), keygen="SIMPLE"
    )
    values: dict[str, object] = {"store": store, "instant": instant, "schema": SCHEMA, "config": config, **changes}
    return FileSpec(**values)  # type: ignore[arg-type]


def _rows(first: int, count: int, city: str = "sf", n: int = 0) -> pa.Table:
    ids = [f"k{i:05}" for i in range(first, first + count)]
    return pa.table({"id": ids, "city": [city] * count, "n": [n] * count}, schema=SCHEMA)


def _create(spec: FileSpec, rows: pa.Table, task: int = 0) -> BaseFileWriter:
    file_id = group_id(spec.instant, "sf", task)
    with BaseFileWriter(spec, partition="sf", file_id=file_id, token=token(task)) as writer:
        writer.write(rows)
    return writer


def _files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in (root / "sf").rglob("*"))


def test_a_new_file_holds_the_meta_columns_and_its_statistics(tmp_path: Path) -> None:
    writer = _create(_spec(tmp_path), _rows(0, 10), task=3)
    assert writer.stat is not None
    path = tmp_path / writer.stat.path
    rows = pq.ParquetFile(path).read()
    assert rows.column_names == [*META_COLUMNS, *SCHEMA.names]
    assert all(f.type == pa.string() for f in list(rows.schema)[:5])
    first = rows.slice(0, 1).to_pylist()[0]
    assert first == {
        "_hoodie_commit_time": T1,
        "_hoodie_commit_seqno": f"{T1}_3_0",
        "_hoodie_record_key": "k00000",
        "_hoodie_partition_path": "sf",
        "_hoodie_file_name": path.name,
        "id": "k00000",
        "city": "sf",
        "n": 0,
    }
    footer = pq.read_metadata(path).metadata
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (b"k00000", b"k00009")
    stat = writer.stat
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.prev_commit) == (10, 10, 0, "null")
    assert stat.file_size == stat.total_write_bytes == path.stat().st_size
    assert _files(tmp_path) == ["sf/.hoodie_partition_metadata", stat.path]


def test_copied_rows_keep_their_commit_time_and_new_ones_get_ours(tmp_path: Path) -> None:
    first = _create(_spec(tmp_path), _rows(0, 4))
    assert first.stat is not None
    base = pq.ParquetFile(tmp_path / first.stat.path).read()
    incoming = _rows(2, 3, n=7).add_column(0, RECORD_KEY, [["k00002", "k00003", "k00004"]])
    merged = merge(base, incoming)
    spec = _spec(tmp_path, T2)
    with BaseFileWriter(
        spec, partition="sf", file_id=first.stat.file_id, io="MERGE", prev_commit=T1, token="5-0-0"
    ) as writer:
        writer.counts(inserts=merged.inserts, updates=merged.updates, deletes=0)
        writer.write(merged.rows)
    stat = writer.stat
    assert stat is not None
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.prev_commit) == (5, 1, 2, T1)
    rows = pq.ParquetFile(tmp_path / stat.path).read().to_pylist()
    assert [(r["id"], r["n"], r["_hoodie_commit_time"], r["_hoodie_commit_seqno"]) for r in rows] == [
        ("k00000", 0, T1, f"{T1}_0_0"),
        ("k00001", 0, T1, f"{T1}_0_1"),
        ("k00002", 7, T2, f"{T2}_5_0"),
        ("k00003", 7, T2, f"{T2}_5_1"),
        ("k00004", 7, T2, f"{T2}_5_2"),
    ]
    assert {r["_hoodie_file_name"] for r in rows} == {writer.name}


def test_a_file_without_rows_is_still_a_file(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    with BaseFileWriter(spec, partition="sf", file_id=group_id(T1, "sf", 0), io="MERGE") as writer:
        writer.counts(inserts=0, updates=0, deletes=4)
    assert writer.stat is not None
    assert writer.stat.num_deletes == 4
    assert pq.ParquetFile(tmp_path / writer.stat.path).read().column_names == [*META_COLUMNS, *SCHEMA.names]


def test_row_groups_are_whole_however_the_rows_arrive(tmp_path: Path) -> None:
    spec = _spec(tmp_path, row_group_rows=100)
    with BaseFileWriter(spec, partition="sf", file_id=group_id(T1, "sf", 0)) as writer:
        for first in range(0, 350, 35):
            writer.write(_rows(first, 35))
            assert writer.waiting_rows < 100
    assert writer.stat is not None
    footer = pq.read_metadata(tmp_path / writer.stat.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [100, 100, 100, 50]
    keys = pq.ParquetFile(tmp_path / writer.stat.path).read(["id", "_hoodie_commit_seqno"]).to_pylist()
    assert [r["id"] for r in keys] == [f"k{i:05}" for i in range(350)]
    assert len({r["_hoodie_commit_seqno"] for r in keys}) == 350


def test_a_second_run_of_a_task_reports_the_file_of_the_first(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    first = _create(spec, _rows(0, 10))
    shuffled = _rows(0, 10).take(pa.array([3, 1, 2, 0, 9, 8, 7, 6, 5, 4]))
    assert _create(spec, shuffled).stat == first.stat
    assert len(_files(tmp_path)) == 2


def test_a_second_run_with_other_rows_is_refused(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    _create(spec, _rows(0, 10))
    with pytest.raises(CommitError, match="written twice with different rows"):
        _create(spec, _rows(1, 10))


def test_nothing_is_written_once_the_heartbeat_is_gone(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    spec.store.delete(heartbeat_path(T1))
    with pytest.raises(RolledBackError, match="heartbeat is gone"):
        _create(spec, _rows(0, 1))
    assert not (tmp_path / "sf").exists()


@pytest.mark.parametrize("what", ["marker", "heartbeat"])
def test_a_file_is_withheld_when_the_transaction_ended_while_it_was_written(tmp_path: Path, what: str) -> None:
    spec = _spec(tmp_path)
    writer = BaseFileWriter(spec, partition="sf", file_id=group_id(T1, "sf", 0))
    with pytest.raises(RolledBackError), writer:  # noqa: PT012 - leaving the block is what raises
        writer.write(_rows(0, 1))
        if what == "marker":
            remove(spec.store, list_markers(spec.store, T1))
        else:
            spec.store.delete(heartbeat_path(T1))
    assert _files(tmp_path) == ["sf/.hoodie_partition_metadata"]


def test_an_error_inside_the_block_leaves_only_the_marker(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    writer = BaseFileWriter(spec, partition="sf", file_id=group_id(T1, "sf", 0))
    with pytest.raises(ZeroDivisionError), writer:  # noqa: PT012 - leaving the block is what is tested
        writer.write(_rows(0, 1))
        raise ZeroDivisionError
    assert _files(tmp_path) == ["sf/.hoodie_partition_metadata"]
    assert [m.path for m in list_markers(spec.store, T1)] == [writer.path]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_rows(0, 2).set_column(0, "id", pa.array(["a", None])), "1 of 2 rows have no record key"),
        (_rows(0, 2).set_column(0, "id", pa.array(["a", ""])), "1 of 2 rows have no record key"),
        (_rows(0, 1, city="la"), "partition 'la' were written into a file group of 'sf'"),
        (_rows(0, 1).append_column("x", pa.array([1])), "lacks: x"),
        (_rows(0, 1).set_column(2, "n", pa.array(["no number"])), "'n' is string in the rows"),
    ],
)
def test_bad_rows_are_refused_in_a_sentence(tmp_path: Path, rows: pa.Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _create(_spec(tmp_path), rows)
    assert _files(tmp_path) == ["sf/.hoodie_partition_metadata"]


def test_the_spec_travels_to_workers(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    again = pickle.loads(pickle.dumps(spec))
    assert again.schema == spec.schema
    assert again.config == spec.config


def test_unique_text_is_stored_by_its_differences(tmp_path: Path) -> None:
    writer = _create(_spec(tmp_path), _rows(0, 2000))
    assert writer.stat is not None
    group = pq.read_metadata(io.BytesIO((tmp_path / writer.stat.path).read_bytes())).row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    for column in ("_hoodie_commit_seqno", "_hoodie_record_key", "id"):
        assert "DELTA_BYTE_ARRAY" in encodings[column]
    assert "RLE_DICTIONARY" in encodings["city"]


@pytest.mark.parametrize("rows", [3, 3000])
def test_floats_have_no_bounds_and_no_dictionary_at_any_depth(tmp_path: Path, rows: int) -> None:
    """NaN is in no bounds and -0.0 in no dictionary that has 0.0: engines would skip rows that a filter asks for."""
    values = [float("nan"), -0.0, 0.5] * (rows // 3)
    deep = [{"x": v, "n": 1, "l": [v], "m": [("a", v)]} for v in values]
    kind = pa.struct(
        [
            ("x", pa.float64()),
            ("n", pa.int64()),
            ("l", pa.list_(pa.float32())),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    schema = pa.schema([*SCHEMA, ("d", pa.float64()), ("f", pa.float32()), ("deep", kind), ("c", pa.decimal128(9, 2))])
    columns = [pa.array(values, pa.float64()), pa.array(values, pa.float32()), pa.array(deep, kind)]
    table = _rows(0, rows)
    for field, column in zip(
        list(schema)[3:], [*columns, pa.array([Decimal(1)] * rows, pa.decimal128(9, 2))], strict=True
    ):
        table = table.append_column(field, column)
    writer = _create(_spec(tmp_path, schema=schema), table)
    assert writer.stat is not None
    group = pq.read_metadata(tmp_path / writer.stat.path).row_group(0)
    chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    floats = {"d", "f", "deep.x", "deep.l.list.element", "deep.m.key_value.value"}
    assert floats < set(chunks)
    assert {name for name, chunk in chunks.items() if not chunk.is_stats_set} == floats
    assert {name for name, chunk in chunks.items() if chunk.has_dictionary_page} >= {"city", "deep.n"}
    assert not any(chunks[name].has_dictionary_page for name in floats)


@pytest.mark.parametrize(("rows", "large"), [(10, ()), (1000, (RECORD_KEY,)), (1100, (RECORD_KEY, COMMIT_TIME))])
def test_only_small_columns_are_written_without_a_codec(tmp_path: Path, rows: int, large: tuple[str, ...]) -> None:
    writer = _create(_spec(tmp_path), _rows(0, rows))
    group = pq.read_metadata(tmp_path / writer.path).row_group(0)
    codecs = {each.path_in_schema: each.compression for each in map(group.column, range(group.num_columns))}
    assert {codecs[name] for name in large} <= {"ZSTD"}
    assert {codecs[name] for name in {RECORD_KEY, COMMIT_TIME} - {*large}} <= {"UNCOMPRESSED"}


def test_a_few_rows_that_more_may_follow_have_the_codec(tmp_path: Path) -> None:
    with BaseFileWriter(_spec(tmp_path), partition="sf", file_id=group_id(T1, "sf", 0)) as writer:
        writer.write(_rows(0, 10))
        writer.flush()
        writer.write(_rows(10, 1000))
    footer = pq.read_metadata(tmp_path / writer.path)
    assert footer.row_group(footer.num_row_groups - 1).column(0).compression == "ZSTD"


def test_a_file_says_that_its_days_are_in_the_calendar_of_parquet(tmp_path: Path) -> None:
    """Spark 3 refuses days before October 1582 in a file that does not (`tests/differential` asks the JVM)."""
    writer = _create(_spec(tmp_path), _rows(0, 1))
    assert writer.stat is not None
    assert pq.read_metadata(tmp_path / writer.stat.path).metadata[b"org.apache.spark.version"] >= b"3.1"


@pytest.mark.parametrize("ended", [True, False])
def test_a_log_file_that_is_rolled_back_while_it_is_compared_says_so(tmp_path: Path, ended: bool) -> None:
    """Seed 2200087073 of the simulator: the second run of a task finds the first one's file, sleeps, and reads it."""
    spec = _spec(tmp_path)

    def log_file(store: Store) -> LogFileWriter:
        onto = FileSlice(FileGroupId("sf", group_id(T1, "sf", 0)), None, ())
        writer = LogFileWriter(replace(spec, store=store), onto, token=token(0), numbers=RowNumbers())
        writer.delete(["k00001"])
        return writer

    first = log_file(spec.store).publish()

    def rolled_back() -> None:
        (tmp_path / first.path).unlink()
        if ended:
            spec.store.delete(heartbeat_path(T1))

    late = log_file(FaultStore(spec.store, Pause(On("get", first.path), call=rolled_back)))
    with pytest.raises(RolledBackError if ended else StorageError, match="is over" if ended else "is gone"):
        late.publish()
