"""How large the files of a write become: new rows fill what is there up to the target size, and log files roll at it."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch
from lakelatch.errors import ConfigError
from lakelatch.hudi.table.config import PROPERTIES_PATH
from lakelatch.occ.check.check import check
from lakelatch.occ.staging import GROUP_COLUMN, TaskFiles, WritePlan, apply

from ..world import independent_content

TARGET = 32 << 10
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def rows(begin: int, end: int, seed: int = 1) -> pa.Table:
    """Some 20 bytes each, whatever the codec."""
    values = random.Random(seed)
    return pa.table(
        [[f"{n:07}" for n in range(begin, end)], [values.getrandbits(60) for _ in range(begin, end)]], schema=SCHEMA
    )


def add(given: pa.Table, more: int) -> pa.Table:
    return given.set_column(1, "v", pc.add(given.column("v"), more))


def pairs(given: pa.Table) -> dict[str, int]:
    return dict(zip(given["id"].to_pylist(), given["v"].to_pylist(), strict=True))


def table(folder: Path, **given: object) -> lakelatch.Table:
    made = {
        "record_key": "id",
        "schema": SCHEMA,
        "target_file_bytes": TARGET,
        "small_file_bytes": TARGET * 7 // 8,
    } | given
    return lakelatch.create(str(folder), **made)


def sizes(of: lakelatch.Table) -> list[int]:
    return sorted(each.size for each in of.snapshot().file_slices())


def same(of: lakelatch.Table, expected: pa.Table) -> None:
    assert of.read(columns=["id", "v"]).to_arrow().sort_by("id").equals(expected.sort_by("id"))
    assert not [each for each in check(of.store).findings if each.severity != "note"]


def test_new_rows_of_an_upsert_fill_small_files_and_the_rest_begins_files_of_the_target_size(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t:
        t.upsert(rows(0, 1000))
        first = t.upsert(rows(1000, 20_000)).stats
        assert len(first) == len(sizes(t)) > 4
        assert all(TARGET * 3 // 4 < size < TARGET * 5 // 4 for size in sizes(t)[2:]), sizes(t)
        smallest, full = sizes(t)[0], sizes(t)[1:]
        before = {each.group: each.instant for each in t.snapshot().file_slices()}
        t.upsert(rows(20_000, 20_100))
        after = {each.group: each.instant for each in t.snapshot().file_slices()}
        assert before.keys() == after.keys(), "a small file takes the few new rows"
        assert sizes(t)[1:] == full
        assert sizes(t)[0] > smallest
        t.change_settings(small_file_bytes=0)
        t.upsert(rows(20_100, 20_200))
        assert len(sizes(t)) == len(before) + 1, "none is small"
        same(t, pa.concat_tables([rows(0, 1000), rows(1000, 20_000), rows(20_000, 20_100), rows(20_100, 20_200)]))


def test_a_file_that_is_written_anyway_takes_new_rows_until_it_has_the_target_size(tmp_path: Path) -> None:
    with table(tmp_path / "t", small_file_bytes=0) as t:
        t.upsert(rows(0, 1000))
        t.upsert(pa.concat_tables([rows(0, 1), rows(1000, 1100)]))
        assert len(sizes(t)) == 1
        for begin in range(1100, 13_100, 3000):
            t.upsert(pa.concat_tables([rows(0, 1), rows(begin, begin + 3000)]))
            assert max(sizes(t)) < TARGET * 5 // 4
        assert len(sizes(t)) > 3
        assert t.read().count() == 13_100


def test_inserts_touch_no_file_so_that_they_meet_nobody(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t, lakelatch.open(t.url) as other:
        t.insert(rows(0, 10))
        with t.transaction("insert") as one, other.transaction("insert") as two:
            one.insert(rows(10, 20))
            two.insert(rows(20, 30))
            assert all(len(each.files) == 1 for each in (one, two))
        assert len(sizes(t)) == 3


def test_upserts_of_new_rows_that_fill_one_small_file_at_once_both_land(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t, lakelatch.open(t.url) as other:
        t.upsert(rows(0, 10))
        with t.transaction("upsert") as one, other.transaction("upsert") as two:
            one.upsert(rows(10, 20))
            two.upsert(rows(20, 30))
        assert len(sizes(t)) == 1
        same(t, pa.concat_tables([rows(0, 10), rows(10, 20), rows(20, 30)]))


def test_new_rows_that_a_join_sends_to_a_small_file_overflow_into_new_files(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t:
        t.upsert(rows(0, 1000))
        with t.transaction("upsert") as txn:
            txn.workspace.next_write()
            (old,), spec = txn.current.file_slices(), txn.file_spec(SCHEMA)
            given = rows(500, 12_000).append_column(GROUP_COLUMN, pa.array([old.file_id] * 11_500))
            with TaskFiles(spec, 0) as files:
                apply(WritePlan(spec, {"": (old,)}), given, files)
                txn.add(files.stats())
        assert len(sizes(t)) > 3
        assert max(sizes(t)) < TARGET * 5 // 4
        same(t, pa.concat_tables([rows(0, 500), rows(500, 12_000)]))


def test_wide_rows_end_a_file_before_a_row_group_is_full(tmp_path: Path) -> None:
    bits = random.Random(1)
    wide = pa.table({"id": [str(n) for n in range(3000)], "text": [bits.randbytes(100).hex() for _ in range(3000)]})
    with lakelatch.create(str(tmp_path / "t"), record_key="id", target_file_bytes=TARGET) as t:
        t.insert(wide)
        assert len(sizes(t)) > 5
        assert max(sizes(t)) < TARGET * 5 // 4


# --- log files ---------------------------------------------------------------------------------------------------


def logs(of: lakelatch.Table) -> list[int]:
    (each,) = of.snapshot().file_slices()
    return [log.size for log in each.logs]


@pytest.mark.parametrize("ordering", [None, "v"])
def test_log_files_of_a_write_roll_at_the_target_size_and_count_in_their_order(
    tmp_path: Path, ordering: str | None
) -> None:
    """Also beside a later write of the same transaction, of which every log file comes after those of the first."""
    given = {"type": "merge_on_read", "bucket_count": 1, "ordering_field": ordering}
    with table(tmp_path / "t", **given) as t:
        old, new, newer = (rows(0, 5000, 1), rows(0, 5000, 2), rows(100, 12_000, 3))
        if ordering:  # the values of each write are larger than those before
            old, new, newer = (add(each, number << 60) for number, each in enumerate((old, new, newer)))
        t.upsert(old)
        with t.transaction("upsert") as txn:
            txn.upsert(new)
            txn.upsert(newer)
        first = len(logs(t))
        assert first > 4
        assert max(logs(t)) < TARGET * 5 // 4
        t.delete([{"id": f"{n:07}"} for n in range(0, 12_000, 2)])
        expected = pairs(new) | pairs(newer)
        expected = {key: value for key, value in expected.items() if int(key) % 2}
        found = pairs(t.read(columns=["id", "v"]).to_arrow())
        assert found == independent_content(tmp_path / "t") == expected
        t.compact()
        same(t, pa.table([list(expected), list(expected.values())], schema=SCHEMA))


def test_events_of_streams_roll_too_and_their_deletes_stay_with_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
    given = {"type": "merge_on_read", "bucket_count": 1, "table_version": 9, "target_file_bytes": 4096}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=schema, **given) as t:
        stream = t.stream("s", columns=["v"], ordering="at", on_delete="row")
        stream.upsert(rows(0, 500).append_column("at", pa.array([1] * 500)))
        rolled = len(logs(t))
        assert rolled > 2
        stream.delete(rows(0, 499).drop_columns(["v"]).append_column("at", pa.array([2] * 499)))
        assert len(logs(t)) > rolled + 1
        assert t.read(columns=["id"]).to_arrow()["id"].to_pylist() == ["0000499"]
        t.compact()
        assert t.read(columns=["id"]).to_arrow()["id"].to_pylist() == ["0000499"]


# --- settings ----------------------------------------------------------------------------------------------------


def test_hudis_names_count_where_the_table_has_them_and_no_setting_says_otherwise(tmp_path: Path) -> None:
    with table(tmp_path / "t", target_file_bytes=None, small_file_bytes=None) as t:
        assert (t.session.file_sizes.target, t.session.file_sizes.small) == (120 << 20, 4 << 20)
    properties = tmp_path / "t" / PROPERTIES_PATH

    def told(target: str, small: str) -> None:
        lines = [each for each in properties.read_text().splitlines() if "parquet" not in each]
        lines.insert(1, f"hoodie.parquet.max.file.size={target}\nhoodie.parquet.small.file.limit={small}")
        properties.write_text("\n".join(lines) + "\n")

    told(str(TARGET), "-1")
    with lakelatch.open(str(tmp_path / "t")) as t:
        t.upsert(rows(0, 9000))
        assert max(sizes(t)) < TARGET * 5 // 4
        count = len(sizes(t))
        t.upsert(rows(9000, 9010))
        assert len(sizes(t)) == count + 1
        t.cluster()
        assert len(sizes(t)) == count
    told("many", "-1")
    with lakelatch.open(str(tmp_path / "t")) as t:
        with pytest.raises(ConfigError, match=r"hoodie.parquet.max.file.size='many'"):
            t.upsert(rows(0, 1))
        assert t.read().count() == 9010
        t.change_settings(target_file_bytes=1 << 20)
        t.upsert(rows(0, 1))
