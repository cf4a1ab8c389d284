"""Row groups in which nothing changes are taken over as bytes, and the file is what it would be if all had been decoded."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import math
import multiprocessing as mp
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.listing import BaseFile
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.record_keys import java_order
from lakelatch.hudi.timeline.commit_metadata import WriteStat
from lakelatch.hudi.timeline.snapshot import FileSlice
from lakelatch.occ.check.findings import Findings
from lakelatch.occ.check.footers import _keys, inspect
from lakelatch.occ.liveness.heartbeat import heartbeat_path
from lakelatch.occ.staging.apply_rows import TaskFiles, WritePlan, apply
from lakelatch.occ.staging.file_spec import FileSpec, WantedFacts
from lakelatch.occ.staging.old_file import OldFile
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import At, Call, Crash, Fault, FaultStore, LoseReply, Refuse

from ...thorough import some

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("inner", pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.int32()))])),
    ]
)
SIZE = 20  # rows of a row group
Row = dict[str, Any]


class Group:
    """One bucket of one table, its newest file, and what it has to hold."""

    def __init__(self, folder: Path, *, ordered: bool = True, size: int = SIZE) -> None:
        self.folder, self.size = folder, size
        self.store: Any = LocalStore(str(folder))
        self.config = TableConfig(
            "t", "COPY_ON_WRITE", 8, 2, record_key_fields=("id",), ordering_fields=("ts",) if ordered else ()
        )
        self.slice: FileSlice | None = None
        self.rows: dict[str, Row] = {}
        self.commits = 0
        self.times: dict[str, str] = {}

    def write(self, change: pa.Table | list[str], *, delete: bool = False, **more: Any) -> WriteStat | None:
        """One transaction: rows, or keys to delete."""
        self.commits += 1
        instant = f"20260101{self.commits:09d}"
        self.store.put(heartbeat_path(instant), b"alive")
        wanted = WantedFacts(keys=True, statistics=("ts", "name"))
        spec = FileSpec(
            self.store, instant, SCHEMA, self.config, bucket_count=1, row_group_rows=self.size, wanted=wanted
        )
        rows = pa.table({"id": pa.array(change, pa.string())}) if isinstance(change, list) else change
        delete = delete or isinstance(change, list)
        plan = WritePlan(replace(spec, **more), {"": (self.slice,)} if self.slice else {}, delete=delete)
        with TaskFiles(plan.spec, 0) as files:
            apply(plan, rows, files)
            stat = next(iter(files.stats()), None)
        if stat is not None:
            self.slice = FileSlice(FileGroupId("", stat.file_id), BaseFile.at(stat.path, stat.file_size))
        return stat

    def upsert(self, rows: list[Row], **more: Any) -> WriteStat | None:
        """The rows win unless they are older; the model follows."""
        for row in rows:
            old = self.rows.get(row["id"])
            if old is None or not self.config.ordered_by or row["ts"] >= old["ts"]:
                self.rows[row["id"]] = row
                self.times[row["id"]] = f"20260101{self.commits + 1:09d}"
        return self.write(pa.Table.from_pylist(rows, schema=SCHEMA), **more)

    def delete(self, keys: list[str], **more: Any) -> WriteStat | None:
        for key in keys:
            self.rows.pop(key, None)
        return self.write(keys, **more)

    @property
    def path(self) -> Path:
        assert self.slice is not None
        return self.folder / self.slice.path

    def read(self) -> list[Row]:
        return pq.read_table(self.path, partitioning=None).to_pylist()

    def check(self) -> None:
        """Every reader finds the model's rows, and the footer tells the truth."""
        found = self.read()
        assert {row["_hoodie_record_key"] for row in found} == set(self.rows)
        assert len(found) == len(self.rows)
        for row in found:
            assert row["_hoodie_file_name"] == self.path.name
            assert row["_hoodie_commit_time"] == self.times[row["id"]]
            assert same({name: row[name] for name in SCHEMA.names}, self.rows[row["id"]])
        assert len({row["_hoodie_commit_seqno"] for row in found}) == len(found)
        table = pq.read_table(self.path, partitioning=None)
        assert polars.read_parquet(self.path).height == table.num_rows
        names = ", ".join(f'"{name}"' for name in table.column_names if name not in ("inner", "at"))
        by_duckdb = duckdb.sql(f"select {names} from read_parquet('{self.path}')").fetchall()
        assert same(by_duckdb, [tuple(v for k, v in row.items() if k not in ("inner", "at")) for row in found])
        assert self.slice is not None
        assert self.slice.base is not None
        findings = Findings()
        footer = inspect(self.store, self.config, self.slice.base, None)
        assert footer.problems == ()
        assert footer.summed
        assert _keys(self.store, self.config, self.slice.base, findings, whole=True) is not None
        assert not findings._found
        if found:
            order = sorted(self.rows, key=java_order)
            assert footer.keys == (order[0], order[-1])
        meta = pq.read_metadata(self.path)
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            rows = pq.ParquetFile(self.path).read_row_group(number)
            assert group.num_rows == rows.num_rows
            for at in range(group.num_columns):
                chunk = group.column(at)
                if chunk.is_stats_set and chunk.statistics.has_min_max and chunk.path_in_schema in ("id", "ts"):
                    values = [v for v in rows.column(chunk.path_in_schema).to_pylist() if v is not None]
                    low, high = min(values, key=in_bytes), max(values, key=in_bytes)
                    assert (chunk.statistics.min, chunk.statistics.max) == (low, high)

    def bytes_of(self, column: str) -> list[bytes]:
        """The stored bytes of a column by row group."""
        meta, body = pq.read_metadata(self.path), self.path.read_bytes()
        found = []
        for number in range(meta.num_row_groups):
            chunk = next(
                c for c in map(meta.row_group(number).column, range(meta.num_columns)) if c.path_in_schema == column
            )
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found.append(body[start : start + chunk.total_compressed_size])
        return found


def in_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def row(key: str, ts: int = 0, seed: int = 0) -> Row:
    lots = random.Random(f"{key} {ts} {seed}")
    return {
        "id": key,
        "ts": ts,
        "v": lots.choice([0.5, -0.0, math.nan, None, math.inf]),
        "name": lots.choice(["", "%s {x}", None, "é" * 50, "\U0001f600"]),
        "day": lots.choice([dt.date(1, 1, 1), dt.date(1582, 10, 10), None, dt.date(9999, 12, 31)]),
        "at": dt.datetime(1500 + lots.randrange(1000), 1, 1, tzinfo=dt.UTC),
        "inner": lots.choice([None, {"a": [1, None], "b": [("x", 1)]}, {"a": [], "b": None}]),
    }


def keys(count: int, first: int = 0) -> list[str]:
    return [f"k{n:05d}" for n in range(first, first + count)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    return Group(tmp_path)


def test_an_update_of_one_row_leaves_the_bytes_of_all_other_row_groups(group: Group) -> None:
    group.upsert([row(key) for key in keys(100)])
    before = {name: group.bytes_of(name) for name in ("id", "ts", "_hoodie_commit_seqno", "inner.a.list.element")}
    names = group.bytes_of("_hoodie_file_name")
    stat = group.upsert([row("k00047", ts=1)])
    assert stat is not None
    assert (stat.num_inserts, stat.num_updates, stat.num_writes) == (0, 1, 100)
    for name, chunks in before.items():
        now = group.bytes_of(name)
        assert [n for n in range(5) if now[n] != chunks[n]] in ([2], [])
    assert all(now != old for now, old in zip(group.bytes_of("_hoodie_file_name"), names, strict=True))
    group.check()


def test_rows_that_are_removed_are_in_no_byte_of_the_successor(group: Group) -> None:
    secrets = {key: hashlib.sha256(key.encode()).hexdigest() for key in keys(100)}
    group.upsert([row(key) | {"name": secret} for key, secret in secrets.items()], codec="none")
    group.delete(["k00047"], codec="none")
    stored = group.path.read_bytes()
    assert [key for key, secret in secrets.items() if secret[5:].encode() not in stored] == ["k00047"]
    group.check()


def test_new_rows_join_a_small_last_row_group_and_never_make_many_small_ones(group: Group) -> None:
    group.upsert([row(key) for key in keys(45)])
    for number in range(30):
        group.upsert([row(f"n{number:05d}")])
    meta = pq.read_metadata(group.path)
    sizes = [meta.row_group(n).num_rows for n in range(meta.num_row_groups)]
    assert sum(sizes) == 75
    assert len(sizes) <= 5
    group.check()


def test_row_groups_that_have_become_small_are_joined_again(group: Group) -> None:
    group.upsert([row(key) for key in keys(200)])
    for start in range(0, 200, 10):
        group.delete(keys(9, start))
        group.check()
    meta = pq.read_metadata(group.path)
    assert meta.num_rows == 20
    assert meta.num_row_groups <= 4


def test_a_file_whose_rows_are_all_gone_has_none(group: Group) -> None:
    group.upsert([row(key) for key in keys(50)])
    group.delete(keys(50))
    assert group.read() == []
    group.upsert([row("new")])
    group.check()


def test_all_that_is_left_may_be_taken_over(group: Group) -> None:
    group.upsert([row(key) for key in keys(60)])
    group.delete(keys(20))
    group.check()
    group.delete(keys(20, 40))
    group.check()
    assert len(group.rows) == 20


@pytest.mark.parametrize("ordered", [True, False])
def test_an_older_row_changes_nothing_and_no_file_is_written(tmp_path: Path, ordered: bool) -> None:
    group = Group(tmp_path, ordered=ordered)
    group.upsert([row(key, ts=5) for key in keys(60)])
    assert (group.upsert([row("k00003", ts=4)]) is None) == ordered
    assert group.delete(["nobody"]) is None
    group.check()


@pytest.mark.parametrize("buckets", [1, None])
@pytest.mark.parametrize("seed", some(range(5), 2))
def test_deletes_that_have_times_spare_what_is_newer_than_all_of_them(tmp_path: Path, seed: int, buckets: Any) -> None:
    lots, group = random.Random(seed), Group(tmp_path)
    group.upsert([row(key, ts=lots.randrange(9)) for key in keys(100)])
    for _ in range(4):
        said = [(lots.choice(keys(60, 10)), lots.choice([None, *range(9)])) for _ in range(lots.choice([1, 20]))]
        for key, ts in said:
            if key in group.rows and ts is not None and group.rows[key]["ts"] <= ts:
                del group.rows[key]
        ids, times = zip(*said, strict=True)
        group.write(pa.table({"id": ids, "ts": pa.array(times, pa.int64())}), delete=True, bucket_count=buckets)
        group.check()


def test_a_file_of_another_codec_or_with_smaller_row_groups_is_taken_over_too(group: Group) -> None:
    group.upsert([row(key) for key in keys(100)], codec="snappy")
    group.upsert([row("k00000", ts=1)], codec="zstd")
    meta = pq.read_metadata(group.path)
    assert [meta.row_group(n).column(0).compression for n in range(5)] == ["ZSTD", *["SNAPPY"] * 4]
    group.check()
    group.size = 100
    group.upsert([row("k00000", ts=2)])
    assert pq.read_metadata(group.path).num_row_groups == 1
    group.check()


FOREIGN: list[dict[str, Any]] = [
    {"write_page_index": True},
    {"write_page_index": True, "data_page_version": "2.0", "data_page_size": 64},
    {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.01}, "name": {"ndv": 100, "fpp": 0.01}}},
    {"use_dictionary": False, "write_statistics": False, "compression": "none"},
    {"sorting_columns": [pq.SortingColumn(2)], "write_page_checksum": True, "compression": "brotli"},
]


@pytest.mark.parametrize("options", FOREIGN, ids=lambda each: "+".join(each))
def test_what_stands_beside_row_groups_is_not_told_of_those_that_are_taken_over(
    group: Group, options: dict[str, Any]
) -> None:
    """Page indexes and bloom filters stay behind: a footer that told where they were would send readers astray."""
    group.upsert([row(key) for key in keys(100)])
    table, notes = pq.read_table(group.path, partitioning=None), pq.read_metadata(group.path).metadata
    told = {"coerce_timestamps": "us", "store_schema": False, "write_statistics": ["id", "ts", "name"]} | options
    with pq.ParquetWriter(group.path, table.schema, **told) as writer:
        writer.write_table(table, row_group_size=SIZE)
        writer.add_key_value_metadata(notes)
    before = group.bytes_of("id")
    group.upsert([row("k00047", ts=1), row("new")])
    assert [old == new for old, new in zip(before, group.bytes_of("id"), strict=False)] == [n != 2 for n in range(5)]
    meta = pq.read_metadata(group.path)
    chunks = [meta.row_group(n).column(at) for n in range(meta.num_row_groups) for at in range(meta.num_columns)]
    assert not any(chunk.has_column_index or chunk.has_offset_index for chunk in chunks)
    group.check()
    for key in ("k00001", "k00047", "k00099", "nobody"):
        there = pq.read_table(group.path, partitioning=None, filters=[("id", "==", key)]).num_rows
        assert there == len(polars.scan_parquet(group.path).filter(polars.col("id") == key).collect())
        assert (
            there
            == duckdb.sql(f"select * from read_parquet('{group.path}') where id = '{key}'").arrow().read_all().num_rows
        )
        assert there == (key in group.rows)


def test_a_file_of_another_writer_is_decoded_whatever_it_says(group: Group) -> None:
    """Its pages may lack checksums, and its columns be of other Parquet types."""
    group.upsert([row(key) for key in keys(100)])
    table = pq.read_table(group.path, partitioning=None)
    notes = {k: v for k, v in (pq.read_metadata(group.path).metadata or {}).items() if not k.startswith(b"lakelatch")}
    pq.write_table(table.replace_schema_metadata(notes), group.path, row_group_size=SIZE, write_page_index=True)
    foreign = group.bytes_of("id")
    group.upsert([row("k00000", ts=1)])
    assert not set(foreign) & set(group.bytes_of("id"))
    group.check()


def test_a_column_that_was_added_or_widened_since_is_in_every_row_group(tmp_path: Path) -> None:
    group = Group(tmp_path, ordered=False)
    narrow = pa.schema([("id", pa.string()), ("ts", pa.int32())])
    group.write(pa.table({"id": keys(100), "ts": pa.array(range(100), pa.int32())}, narrow), schema=narrow)
    last = row("k00099", ts=7)
    group.write(pa.Table.from_pylist([last], schema=SCHEMA))
    read = pq.read_table(group.path, partitioning=None)
    assert last["name"] is not None
    assert read["name"].to_pylist() == [*[None] * 99, last["name"]]
    assert read.schema.field("ts").type == pa.int64()
    assert read["ts"].to_pylist() == [*range(99), 7]
    assert read["inner"].null_count in (99, 100)


@pytest.mark.parametrize("seed", some(range(12), 3))
def test_random_changes_of_a_file_group_are_those_of_a_dict(tmp_path: Path, seed: int) -> None:
    lots = random.Random(seed)
    strange = ["", "%d{}", "é", "\uffff", "\U0001f600", "\ue000x", "z" * 5000, "\0", "'", "k\n"]
    group = Group(tmp_path, ordered=lots.random() < 0.5, size=lots.choice([1, 2, 7, 20, 1000]))
    names = [*keys(120), *(f"{lots.choice(strange)}{n}" for n in range(20))]
    for step in range(12):
        near = lots.randrange(len(names))
        count = lots.choice([1, 3, 30, 100])
        some = names[near : near + count] if lots.random() < 0.6 else lots.sample(names, count)
        if step and lots.random() < 0.35:
            group.delete(some)
        else:
            group.upsert([row(key, lots.randrange(4), step) for key in some])
        if group.slice is not None:
            group.check()


EVERY = pa.schema(
    [
        ("id", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("half", pa.float32()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("price", pa.decimal128(9, 2)),
        ("wide", pa.decimal128(38, 18)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.decimal128(20, 2))),
        ("deep", pa.struct([("l", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())])))])),
    ]
)


def anything(key: str, lots: random.Random) -> Row:
    real = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, None]
    texts = ["", "\0", "{%s}", "\U0001f600", "\uffff", "z" * 300, None]
    years = [1, 1582, 1900, 9999]
    times = [dt.datetime(lots.choice(years), 10, 10, 1, 2, 3, 999_999), None]
    decimals = [Decimal("-9999999.99"), Decimal("0.00"), Decimal("0.01"), None]
    return {
        "id": key,
        "flag": lots.choice([True, False, None]),
        "small": lots.choice([-(2**31), 2**31 - 1, 0, None]),
        "half": lots.choice(real[:-2]),
        "real": lots.choice(real),
        "text": lots.choice(texts),
        "bytes": lots.choice([b"", b"\xff\0", None]),
        "price": lots.choice(decimals),
        "wide": lots.choice([Decimal("-1e-18"), Decimal("9" * 20 + "." + "9" * 18), None]),
        "day": lots.choice([dt.date(each, 1, 1) for each in years]),
        "at": lots.choice([times[0].replace(tzinfo=dt.UTC) if times[0] else None, None]),
        "local": lots.choice(times),
        "list": lots.choice([None, [], [None], real]),
        "map": lots.choice([None, [], [(text, each) for text, each in zip("abc", decimals, strict=False)]]),
        "deep": lots.choice(
            [None, {"l": None}, {"l": []}, {"l": [None, {"x": lots.randrange(3), "y": lots.choice(texts)}]}]
        ),
    }


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_values_of_every_type_are_those_of_a_file_that_was_encoded_as_a_whole(tmp_path: Path, codec: str) -> None:
    lots = random.Random(codec)
    copying, whole = (Group(tmp_path / name, ordered=False, size=size) for name, size in (("a", 20), ("b", 100_000)))
    names, copied = keys(200), 0
    for step in range(8):
        near = lots.randrange(180)
        some = names if not step else names[near : near + 20] if step % 2 else lots.sample(names, 3)
        change: pa.Table | list[str] = some
        if step % 4 != 3:
            change = pa.Table.from_pylist([anything(key, lots) for key in some], EVERY)
            if step == 2:  # as pandas's categories come
                change = change.set_column(5, "text", change.column("text").dictionary_encode())
        before = set(copying.bytes_of("_hoodie_commit_seqno")) if step else set()
        for group in (copying, whole):
            group.write(change, schema=EVERY, codec=codec)
        copied += len(before & set(copying.bytes_of("_hoodie_commit_seqno")))
        one, other = (pq.read_table(each.path, partitioning=None).sort_by("id") for each in (copying, whole))
        for name in EVERY.names:
            assert repr(one[name].to_pylist()) == repr(other[name].to_pylist()), name
        assert repr(polars.read_parquet(copying.path, columns=EVERY.names).sort("id").rows()) == repr(
            polars.read_parquet(whole.path, columns=EVERY.names).sort("id").rows()
        )
        statistics_are_true(copying.path)
    assert copied > 20


def statistics_are_true(path: Path) -> None:
    """Of each column of each row group as of a file in which it is alone."""
    file = pq.ParquetFile(path)
    plain = [name for name in EVERY.names if not pa.types.is_nested(EVERY.field(name).type)]
    for number in range(file.num_row_groups):
        alone = io.BytesIO()
        pq.write_table(file.read_row_group(number, plain), alone)
        wanted = pq.read_metadata(alone).row_group(0)
        told = {
            file.metadata.row_group(number).column(at).path_in_schema: at for at in range(file.metadata.num_columns)
        }
        for at, name in enumerate(plain):
            chunk = file.metadata.row_group(number).column(told[name])
            if pa.types.is_floating(EVERY.field(name).type):
                assert not chunk.is_stats_set or not chunk.statistics.has_min_max
                continue
            for what in ("min", "max", "null_count", "num_values"):
                assert getattr(chunk.statistics, what) == getattr(wanted.column(at).statistics, what), (name, what)


def begun(folder: Path, *faults: Fault) -> Group:
    """Five row groups, and a store that fails from now on."""
    group = Group(folder)
    group.upsert([row(key) for key in keys(100)])
    group.store = FaultStore(group.store, *faults)
    return group


def change_some(group: Group) -> WriteStat | None:
    """Of the first and the third row group; the others are taken over."""
    return group.upsert([row("k00047", ts=1), row("k00012", ts=1), row("new")])


def calls_of_a_change(folder: Path) -> list[Call]:
    group = begun(folder)
    change_some(group)
    return group.store.calls


def go_on(group: Group) -> None:
    """What is there is whole, and the same change lands."""
    for path in group.folder.glob("*.parquet"):  # under its final name a file is whole, no matter who was told of it
        assert pq.read_table(path, partitioning=None).num_rows in (100, 101)
    group.store = LocalStore(str(group.folder))
    group.check()
    change_some(group)
    group.check()
    assert len(group.rows) == 101


def test_a_store_that_fails_at_any_call_leaves_the_rows_before_or_those_after(tmp_path: Path) -> None:
    for number, _ in enumerate(calls_of_a_change(tmp_path / "undisturbed"), 1):
        for fault in (Refuse(At(number)), LoseReply(At(number))):
            group = begun(tmp_path / f"{type(fault).__name__}-{number}", fault)
            before = dict(group.rows), dict(group.times), group.slice
            with suppress(lakelatch.LakeLatchError):
                change_some(group)
            if group.slice == before[2]:
                group.rows, group.times = before[:2]
            go_on(group)


def test_a_writer_that_is_killed_at_any_of_its_writes_leaves_no_half_file(tmp_path: Path) -> None:
    writes = [each.number for each in calls_of_a_change(tmp_path / "undisturbed") if each.writes]
    for number in some(writes, 3):
        for after in (False, True):
            folder = tmp_path / f"{number}-{after}"
            killed = mp.get_context("spawn").Process(target=_killed, args=(folder, number, after))
            killed.start()
            killed.join()
            assert killed.exitcode == -signal.SIGKILL
            group = begun(tmp_path / f"{number}-{after}-again")
            for path in folder.glob("*.parquet"):
                shutil.copy(path, group.folder)
            group.commits += 1
            go_on(group)


def _killed(folder: Path, number: int, after: bool) -> None:
    change_some(begun(folder, Crash(At(number), after=after)))


def test_a_large_file_is_rewritten_within_a_few_row_groups_of_memory(tmp_path: Path) -> None:
    group = Group(tmp_path, ordered=False, size=20_000)
    rows = 400_000
    narrow = pa.schema([("id", pa.string()), ("body", pa.string())])

    def some(first: int, count: int, step: int) -> pa.Table:
        ids = [f"k{n:09d}" for n in range(first, first + count * step, step)]
        return pa.table({"id": ids, "body": [f"{hash(i):x}" * 8 for i in ids]}, narrow)

    group.write(some(0, rows, 1), schema=narrow)
    one = some(0, group.size, 1).nbytes
    changed = some(0, 20, rows // 20)  # one in each row group, so that all are decoded
    peak, done = [0], threading.Event()
    before = pa.total_allocated_bytes()

    def watch() -> None:
        while not done.wait(0.001):
            peak[0] = max(peak[0], pa.total_allocated_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    stat = group.write(changed, schema=narrow)
    done.set()
    watcher.join()
    assert stat is not None
    assert (stat.num_updates, stat.num_writes) == (20, rows)
    assert peak[0] < 6 * one, (peak[0], one)  # of 20 of them


def test_a_few_keys_are_looked_up_with_the_keys_of_one_row_group_in_memory(tmp_path: Path) -> None:
    group = Group(tmp_path, ordered=False, size=20_000)
    narrow = pa.schema([("id", pa.string()), ("body", pa.string())])
    ids = [f"k{n:09d}" for n in range(400_000)]
    group.write(pa.table({"id": ids, "body": ids}, narrow), schema=narrow)
    spec = FileSpec(group.store, "20260102", narrow, group.config)
    with OldFile(spec, group.slice.path) as file:
        one, keys_of, held, before = file.keys(0).nbytes, file.keys, list[int](), pa.total_allocated_bytes()

        def watched(number: int) -> pa.Array:
            keys = keys_of(number)
            held.append(pa.total_allocated_bytes() - before)
            return keys

        file.keys = watched  # type: ignore[method-assign]
        partners = file.partners(pa.array([ids[123_456], "none"]))
        assert len(held) == 20
        assert max(held) < 4 * one, (held, one)
        assert np.flatnonzero(partners >= 0).tolist() == [123_456]
        assert partners.nbytes == len(ids)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 32_768, 32_769])
def test_partners_are_as_narrow_as_their_number_allows(tmp_path: Path, count: int) -> None:
    group = Group(tmp_path, ordered=False, size=30_000)
    narrow = pa.schema([("id", pa.string())])
    ids = [f"k{n:09d}" for n in range(count)]
    group.write(pa.table({"id": ids}, narrow), schema=narrow)
    with OldFile(FileSpec(group.store, "20260102", narrow, group.config), group.slice.path) as file:
        assert file.partners(pa.array(ids)).tolist() == list(range(count))
        assert file.partners(pa.array(["none", ids[-1], *ids[:-1]])).tolist() == [*range(2, count + 1), 1]


def test_of_a_row_group_that_changes_the_old_columns_and_the_new_ones_are_not_in_memory_together(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, ordered=False, size=20_000)
    wide = pa.schema([("id", pa.string()), *((f"c{n}", pa.string()) for n in range(20))])
    ids = [f"k{n:09d}" for n in range(20_000)]
    bodies = {f"c{n}": [hashlib.sha256(f"{n}{each}".encode()).hexdigest() for each in ids] for n in range(20)}
    group.write(pa.table({"id": ids, **bodies}, wide), schema=wide)
    with OldFile(FileSpec(group.store, "20260102", wide, group.config), group.slice.path) as file:
        size, held, before = file.rows(0).nbytes, list[int](), pa.total_allocated_bytes()

        def again(some: pa.Table) -> pa.Table:
            changed = some.take(pa.array(range(some.num_rows - 1, -1, -1)))
            held.append(pa.total_allocated_bytes() - before)
            return changed

        rows = file.rows(0, change=again)
        assert rows["id"].to_pylist() == ids[::-1]
        assert rows["c7"].to_pylist() == bodies["c7"][::-1]
        assert max(held) < 1.5 * size, (held, size)
