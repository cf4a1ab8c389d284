"""Rows that a commit hides are found in the files where they still are, and written again once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.errors import CorruptTableError, InputError, TableError
from lakelatch.hudi.timeline import CommitMetadata, Instant, WriteStat, encode_commit, file_name
from lakelatch.occ.check.check import check

TIMELINE = ".hoodie/timeline"
ODD = "ü/%2F 𝄞'=x"


def create(folder: Path, **options: Any) -> lakelatch.Table:
    columns = pa.schema([("id", "string"), ("part", "string"), ("v", "int64")])
    return lakelatch.create(str(folder), record_key="id", schema=columns, **options)


def rows(value: int, *keys: str) -> list[dict[str, Any]]:
    return [{"id": key, "part": ODD, "v": value} for key in keys]


def values(table: lakelatch.Table) -> dict[str, int]:
    return {row["id"]: row["v"] for row in table.read().to_pylist()}


def overwrites(folder: Path, requested: str, value: int) -> None:
    """Another engine gives all rows of the only file group this value, from its first version on; it reads no other."""
    (old, *_) = sorted(folder.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    new = old.with_name(old.name[: old.name.rindex("_") + 1] + f"{requested}.parquet")
    stored = pq.read_table(old)
    for name, each in (("v", value), ("_hoodie_commit_time", requested)):
        at = stored.schema.get_field_index(name)
        kind = stored.schema.field(at)
        stored = stored.set_column(at, kind, pa.array([each] * stored.num_rows, kind.type))
    pq.write_table(stored, new)
    partition = new.parent.relative_to(folder).as_posix().removeprefix(".")
    stat = WriteStat(
        new.name.partition("_")[0],
        new.relative_to(folder).as_posix(),
        partition,
        old.name.rpartition("_")[2].partition(".")[0],
        num_writes=stored.num_rows,
        file_size=new.stat().st_size,
    )
    completed = f"{int(requested) + 1}"
    for state in ("requested", "inflight"):
        (folder / TIMELINE / file_name(Instant(requested, "commit", state))).touch()  # type: ignore[arg-type]
    body = encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)
    (folder / TIMELINE / file_name(Instant(requested, "commit", "completed", completed))).write_bytes(body)


@pytest.fixture(params=["no partitions", "odd partition"])
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[lakelatch.Table, str]:
    """A table in which another engine has written v=7, and then v=8 to one key less, from the version before."""
    options = {} if request.param == "no partitions" else {"partition_by": "part"}
    with create(tmp_path / "t", **options) as table:
        first = table.insert(rows(1, "a", "b", "c")).instant
    lost, kept = (f"{int(first) + n:017}" for n in (100, 200))
    overwrites(tmp_path / "t", lost, 7)
    overwrites(tmp_path / "t", kept, 8)
    return lakelatch.adopt(str(tmp_path / "t")), lost


def test_keys_that_were_written_since_keep_their_values(lost: tuple[lakelatch.Table, str]) -> None:
    table, instant = lost
    assert values(table) == {"a": 8, "b": 8, "c": 8}
    found = table.lost_rows(instant)
    assert (found.rows.num_rows, found.newer) == (0, 3), "the winner has written all of them"
    assert table.rescue(instant).value == found
    assert values(table) == {"a": 8, "b": 8, "c": 8}
    assert [each for each in check(table.store).findings if each.kind == "slice-skipped"] == []
    table.close()
    with pytest.raises(TableError, match="closed"):
        table.lost_rows(instant)


@pytest.mark.parametrize("instant", ["", "yesterday", "2026", 7, None])
def test_what_is_no_instant_is_refused(tmp_path: Path, instant: Any) -> None:
    with create(tmp_path / "t") as table:
        table.insert(rows(1, "a"))
        for call in (table.lost_rows, table.rescue):
            with pytest.raises(InputError):
                call(instant)


def test_rows_of_a_log_file_that_a_compaction_has_left_out(tmp_path: Path) -> None:
    """Its plan lacks the file, and so does its base file: written by an engine that could not see the commit."""
    folder = tmp_path / "t"
    with create(folder, type="merge_on_read", partition_by="part") as table:
        table.add_column("w", "int")
        table.insert(rows(1, "a", "b", "c"), missing="null")
        (old,) = table.snapshot().file_slices()
        table.upsert(rows(2, "a"), missing="null")
        instant = table.upsert(rows(3, "a", "b"), missing="null").instant
        name = next(log.path for log in table.snapshot().file_slices()[0].logs if log.instant == instant)
        compacted = table.compact()
        assert compacted is not None
        (new,) = table.snapshot().file_slices()
        stored = pq.read_table(folder / old.base.path)
        pq.write_table(
            stored.replace_schema_metadata(pq.read_schema(folder / new.base.path).metadata), folder / new.base.path
        )
        table.delete(["c"])
        table.drop_column("w")
    plan = folder / TIMELINE / f"{new.base.instant}.compaction.requested"
    leave_out(plan, name.rpartition("/")[2])
    with lakelatch.open(str(folder)) as table:
        found = table.lost_rows(instant)
        assert (found.paths, found.hidden_by) == ((name,), (new.base.instant,))
        assert found.rows.to_pylist() == rows(3, "a", "b")
        assert table.rescue(instant).value.rows.num_rows == 2
        assert values(table) == {"a": 3, "b": 3}
        assert table.rescue(instant).commit is None, "a second time there is nothing to do"
        assert values(table) == {"a": 3, "b": 3}
        (folder / name).unlink()
        with pytest.raises(CorruptTableError, match="a cleaning has taken it"):
            table.lost_rows(instant)
    plan.write_bytes(plan.read_bytes()[:-40])
    with lakelatch.open(str(folder)) as table:
        assert "slice-skipped" not in {each.kind for each in check(table.store, deep=True).findings}, (
            "a torn plan tells nothing"
        )


def leave_out(plan: Path, name: str) -> None:
    import io

    import fastavro

    reader = fastavro.reader(io.BytesIO(plan.read_bytes()))
    (record,) = list(reader)
    for each in record["operations"]:
        each["deltaFilePaths"] = [path for path in each["deltaFilePaths"] if not path.endswith(name)]
    body = io.BytesIO()
    fastavro.writer(body, reader.writer_schema, [record])
    plan.write_bytes(body.getvalue())


def test_rows_written_to_a_partition_that_was_dropped_before(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with create(folder, partition_by="part") as table:
        first = table.insert(rows(1, "a", "b")).instant
        table.overwrite_table([{"id": "z", "part": "other", "v": 1}])
        dropped = table.timeline().commits[-1]
    requested = f"{int(dropped.completed or '') + 100:017}"
    overwrites(folder, requested, 7)
    with lakelatch.adopt(str(folder)) as table:
        assert values(table) == {"z": 1}
        assert int(first) < int(requested)
        assert table.lost_rows(requested).hidden_by == (dropped.requested,)
        table.rescue(requested)
        assert values(table) == {"a": 7, "b": 7, "z": 1}
