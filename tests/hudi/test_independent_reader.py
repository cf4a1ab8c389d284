"""Names, types and properties that this layer writes, put together by hand, are read back by an independent reader."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

from lakelatch.hudi.files.file_names import (
    PARTITION_METADATA,
    BaseName,
    base_file_name,
    join,
    new_file_id,
    partition_metadata,
    write_token,
)
from lakelatch.hudi.files.listing import list_data_files
from lakelatch.hudi.table.avro_schema import to_avro
from lakelatch.hudi.table.column_types import META_COLUMNS, storable
from lakelatch.hudi.table.config import PROPERTIES_PATH, TableConfig
from lakelatch.hudi.table.partition_path import partition_path
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit
from lakelatch.hudi.timeline.instant import Instant, file_name
from lakelatch.hudi.timeline.snapshot import build
from lakelatch.hudi.timeline.timeline import TIMELINE, read_timeline
from lakelatch.storage.local.store import LocalStore

T, C = "20240101000000000", "20240101000001000"
UNPARTITIONED = TableConfig(
    name="t",
    table_type="COPY_ON_WRITE",
    version=8,
    layout=2,
    database="default",
    record_key_fields=("id",),
    keygen="NON_PARTITION",
    merge_mode="COMMIT_TIME_ORDERING",
    timeline_timezone="UTC",
)
PARTITIONED = dataclasses.replace(UNPARTITIONED, partition_fields=("p",), keygen="SIMPLE")

# Each was read back by the reader when this was written; what it cannot find is refused (test_partition_path).
VALUES = ["plain", "a b", "a%b", "a%2Fb", "a#b", "a?b", "a=b", "a:b", "a*b", 'a"b', "a'b", "a[b]", "a{b}", "a^b", "a|b"]
VALUES += [
    "a<b>",
    "a~b",
    "a`b",
    "a&b",
    "a+b",
    "a,b",
    "a;b",
    "ü",
    "日本",
    "😀",
    "_x",
    "-x",
    "x.",
    "x..y",
    " lead",
    "trail ",
]
ENCODED = ["a/b", "a\\b", "a\tb", "a\nb"]

TYPES = {
    "id": pa.array(["a", None]),
    "flag": pa.array([True, None]),
    "small": pa.array([1, None], pa.int8()),
    "long": pa.array([1, None]),
    "float": pa.array([1.5, None], pa.float32()),
    "double": pa.array([1.5, None]),
    "bytes": pa.array([b"x", None]),
    "money": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(15, 2)),
    "wide": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(38, 2)),
    "day": pa.array([dt.date(2024, 1, 1), None]),
    "at": pa.array([1, None], pa.timestamp("ms", "UTC")),
    "list": pa.array([[1, None], None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1, "y": {"z": decimal.Decimal("2.0")}}, None]),
    "structs": pa.array([[{"q": "1"}], None]),
}


def write_table(store: LocalStore, config: TableConfig, partitions: dict[str, pa.Table]) -> None:
    """One commit with one base file for each partition path."""
    assert store.put_if_absent(PROPERTIES_PATH, config.to_bytes()).done
    stats = []
    for path, rows in partitions.items():
        name = base_file_name(BaseName(new_file_id(str(uuid.uuid4())), write_token(0, 0, 0), T))
        meta = [pa.array([value] * rows.num_rows) for value in (T, f"{T}_0_0", "k", path, name)]
        whole = pa.table([*meta, *rows.columns], names=[*META_COLUMNS, *rows.column_names])
        sink = pa.BufferOutputStream()
        pq.write_table(whole, sink, store_schema=False)
        body = sink.getvalue().to_pybytes()
        store.put_if_absent(join(path, PARTITION_METADATA), partition_metadata(T, path))
        store.put_if_absent(join(path, name), body)
        stats.append(WriteStat(name.partition("_")[0], join(path, name), path, file_size=len(body)))
    schema = to_avro(next(iter(partitions.values())).schema, config.name)
    body = encode_commit(CommitMetadata("INSERT", schema, stats=tuple(stats)), replace=False)
    assert store.put_if_absent(f"{TIMELINE}/{file_name(Instant(T, 'commit', 'completed', C))}", body).done


def read(store: LocalStore, options: HudiReadOptions | None = None) -> pa.Table:
    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(store.root).build().read(options))


@pytest.mark.parametrize("version", [8, 9])
def test_every_type_is_read_back(tmp_path, version):
    rows = pa.table(TYPES)
    rows = rows.cast(storable(rows.schema))
    store = LocalStore(tmp_path)
    write_table(store, dataclasses.replace(UNPARTITIONED, version=version), {"": rows})
    found = read(store).select(rows.column_names)
    assert found.schema.types == rows.schema.types
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("hive", [False, True])
@pytest.mark.parametrize("encode", [False, True])
def test_every_partition_value_that_is_not_refused_is_found_again(tmp_path, hive, encode):
    config = dataclasses.replace(PARTITIONED, hive_style=hive, url_encode=encode)
    values = [*VALUES, *(ENCODED if encode else []), None]
    store = LocalStore(tmp_path)
    write_table(
        store,
        config,
        {partition_path([value], config): pa.table({"id": [value], "p": pa.array([value])}) for value in values},
    )
    assert sorted(read(store)["p"].to_pylist(), key=str) == sorted(values, key=str)
    listing = list_data_files(store)
    assert (listing.unmarked, listing.others) == ((), ())
    snapshot = build(listing, read_timeline(store, config).view(), config)
    assert len(snapshot) == len(values)
    for value in VALUES:
        (row,) = read(store, HudiReadOptions(filters=[("p", "=", value)]))["p"].to_pylist()
        assert row == value
