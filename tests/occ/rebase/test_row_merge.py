"""What one transaction did in a file group, done again on what another one left there: as if one had run after the other."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelatch.errors import ConflictError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.listing import BaseFile
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.timeline.commit_metadata import WriteStat
from lakelatch.hudi.timeline.snapshot import FileSlice
from lakelatch.occ.liveness.heartbeat import heartbeat_path
from lakelatch.occ.rebase.rebase import Lost, OwnFile, Unit
from lakelatch.occ.rebase.replay_rows import merge_unit
from lakelatch.occ.staging.apply_rows import TaskFiles, WritePlan, apply
from lakelatch.occ.staging.file_spec import FileSpec
from lakelatch.storage.local.store import LocalStore

from ...thorough import THOROUGH

Rows = dict[str, tuple[int | None, int]]  # key -> (ordering value, value)
KEYS = st.sampled_from("abcdef")
ROWS = st.dictionaries(KEYS, st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(-9, 9)), max_size=6)
CHANGE = st.one_of(ROWS, st.frozensets(KEYS, max_size=4))  # an upsert, or a delete
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
T0, T1, T2 = "20260101000000001", "20260101000000002", "20260101000000003"


def age(row: tuple[int | None, int]) -> int:
    return -1 if row[0] is None else row[0]


def after(rows: Rows, change: Any, *, ordered: bool) -> Rows:
    """The rows when a single writer has made the change."""
    if isinstance(change, frozenset):
        return {k: v for k, v in rows.items() if k not in change}
    return rows | {k: v for k, v in change.items() if k in touched(rows, change, ordered=ordered)}


def touched(rows: Rows, change: Any, *, ordered: bool) -> set[str]:
    """Keys of the rows on which the change has an effect."""
    if isinstance(change, frozenset):
        return set(rows) & change
    return {k for k, v in change.items() if k not in rows or not ordered or age(v) >= age(rows[k])}


class Folder:
    """Files of one bucket of one table, written by the library's own merge."""

    def __init__(self, root: str, *, ordered: bool) -> None:
        self.root, self.store = Path(root), LocalStore(root)
        self.config = TableConfig(
            "t", "COPY_ON_WRITE", 8, 2, record_key_fields=("id",), ordering_fields=("ts",) if ordered else ()
        )

    def spec(self, instant: str) -> FileSpec:
        self.store.put(heartbeat_path(instant), b"alive")
        return FileSpec(self.store, instant, SCHEMA, self.config, bucket_count=1)

    def written(self, instant: str, change: Any, old: FileSlice | None) -> FileSlice | None:
        """The slice that a transaction makes; None when it changes nothing."""
        plan = WritePlan(self.spec(instant), {"": (old,)} if old else {}, delete=isinstance(change, frozenset))
        listed = sorted(change) if plan.delete else [(k, *v) for k, v in change.items()]
        rows = pa.table({"id": listed}, pa.schema([SCHEMA.field("id")])) if plan.delete else table(listed)
        with TaskFiles(plan.spec, 0) as files:
            apply(plan, rows, files)
            return next((slice_of(stat) for stat in files.stats()), None)

    def rows(self, path: str) -> Rows:
        read = pq.read_table(self.root / path, partitioning=None).to_pylist()
        assert len({r["id"] for r in read}) == len(read), "a key is there twice"
        assert all(r["_hoodie_record_key"] == r["id"] for r in read)
        return {r["id"]: (r["ts"], r["v"]) for r in read}


def table(listed: list[Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in listed], schema=SCHEMA)


def slice_of(stat: WriteStat) -> FileSlice:
    return FileSlice(FileGroupId(stat.partition, stat.file_id), BaseFile.at(stat.path, stat.file_size))


@settings(max_examples=100 if THOROUGH else 50)
@given(ROWS, CHANGE, CHANGE, st.booleans(), st.booleans())
def test_two_changes_of_one_file_group_are_one_after_the_other_or_the_same_rows_are_named(
    base: Rows, ours: Any, theirs: Any, ordered: bool, we_are_older: bool
) -> None:
    own_time, other = (T1, T2) if we_are_older else (T2, T1)
    with tempfile.TemporaryDirectory() as root:
        folder = Folder(root, ordered=ordered)
        old = folder.written(T0, base, None) if base else None
        own, now = folder.written(own_time, ours, old), folder.written(other, theirs, old)
        if own is None or now is None:
            return  # one of them changed nothing: no file group is lost
        unit = Unit("", (OwnFile(own.group, own.path, old),), (now,))
        lost = Lost(folder.spec(own_time), 1, (unit,), winners={other: "UPSERT"})
        left = after(base, theirs, ordered=ordered)
        both = touched(base, ours, ordered=ordered) & touched(base, theirs, ordered=ordered)
        if isinstance(ours, frozenset):
            undecided = both & set(left)  # removed by both is no question
        else:
            undecided = set() if ordered else both
        with TaskFiles(lost.spec, 0, round=1) as files:
            if undecided:
                with pytest.raises(ConflictError) as refused:
                    merge_unit(lost, unit, files)
                assert set(refused.value.overlap) <= undecided
                return
            merge_unit(lost, unit, files)
            stats = files.stats()
        found = folder.rows(stats[0].path if stats else now.path)
        mine = touched(base, ours, ordered=ordered)
        assert found == after(left, _only(ours, mine), ordered=ordered)
        if mine == set(ours) and touched(base, theirs, ordered=ordered) == set(theirs):
            # A row that was looked at and left as it is was read, not changed: write skew is possible there, as ever.
            first = after(base, ours, ordered=ordered)
            assert found in (after(left, ours, ordered=ordered), after(first, theirs, ordered=ordered))
        for stat in stats:
            assert stat.file_id not in (own.file_id, now.file_id)
            assert stat.path not in (own.path, now.path)
            changed = (stat.num_inserts, stat.num_updates, stat.num_deletes)
            assert sum(changed) == len({k for k in {*left, *found} if left.get(k) != found.get(k)} | _same(ours, left))


def _only(change: Any, keys: set[str]) -> Any:
    return change & keys if isinstance(change, frozenset) else {k: v for k, v in change.items() if k in keys}


def _same(ours: Any, left: Rows) -> set[str]:
    """Rows that were set to what they were already count as changed."""
    return set() if isinstance(ours, frozenset) else {k for k, v in ours.items() if left.get(k) == v}
