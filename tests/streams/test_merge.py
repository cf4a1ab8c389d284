"""What is read of a slice's blocks, and blocks that no stream can have written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import CorruptTableError, UnsupportedTableError
from lakelatch.streams import Stream, folded, stitched
from lakelatch.streams.notes import STREAM, BlockNote, floors_of, floors_to_footer
from lakelatch.testing import FakeEnvironment

SCHEMA = pa.schema(
    [("id", pa.string()), ("a", pa.int64()), ("a_at", pa.int64()), ("b", pa.string()), ("b_at", pa.int64())]
)


@pytest.fixture
def table(tmp_path):
    given = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1, "env": FakeEnvironment(seed=1)}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=SCHEMA, **given) as made:
        made.stream("a", columns=["a"], ordering="a_at", on_delete="row")
        made.stream("b", columns=["b"], ordering="b_at", default={"b": "-"})
        yield made


def slice_of(table):
    (found,) = table.snapshot().file_slices()
    return found


def test_fewer_columns_have_the_values_that_all_of_them_have(table):
    table.stream("a").upsert([{"id": f"k{n}", "a": n, "a_at": 1} for n in range(5)])
    table.compact()
    table.stream("a").upsert([{"id": "k1", "a": 9, "a_at": 2}, {"id": "k9", "a": 9, "a_at": 2}])
    table.stream("b").upsert([{"id": "k2", "b": "x", "b_at": 2}])
    table.stream("a").delete([{"id": "k3", "a_at": 2}])
    whole = {row["id"]: row for row in table.read().to_pylist()}
    for columns in (["id", "b"], ["id", "a_at"], ["id", "a", "b_at"], ["id"]):
        read = table.read(columns=columns).to_pylist()
        assert {row["id"]: row for row in read} == {
            key: {name: row[name] for name in columns} for key, row in whole.items()
        }
    assert table.read(where="b = '-'").count() == 4
    assert table.read(where="a = 9 and b_at is null").count() == 2
    made = stitched(table.store, table.streams, slice_of(table))
    assert made.floors.to_pylist() == [{"_hoodie_record_key": "k3", "a_at": 2, "b_at": None}]


def test_an_incremental_read_has_the_rows_that_events_changed(table):
    table.stream("a").upsert([{"id": f"k{n}", "a": n, "a_at": 5} for n in range(3)])
    first = table.commits()[-1][0].completed
    table.stream("b").upsert([{"id": "k1", "b": "x", "b_at": 1}])
    table.stream("a").upsert([{"id": "k2", "a": 9, "a_at": 4}])  # late: it changes nothing
    assert [(row["id"], row["b"]) for row in table.changes(after=first).to_pylist()] == [("k1", "x")]
    table.compact()
    assert [(row["id"], row["b"]) for row in table.changes(after=first).to_pylist()] == [("k1", "x")]


def test_of_one_batch_the_newest_event_counts_and_its_nulls_are_filled():
    stream = Stream("s", ("x", "y"), "at")
    rows = pa.table(
        {"_hoodie_record_key": ["k", "l", "k", "k"], "at": [1, 1, 2, 2], "x": [1, 7, None, None], "y": [1, 7, 2, 3]}
    )
    assert folded(rows, stream).to_pylist() == [
        {"_hoodie_record_key": "l", "at": 1, "x": 7, "y": 7},
        {"_hoodie_record_key": "k", "at": 2, "x": 1, "y": 3},
    ]
    written = Stream("s", ("x", "y"), "at", null="write", foreign_readers=False)
    assert folded(rows, written).to_pylist()[1]["x"] is None


def test_a_log_file_of_other_writes_is_refused_by_readers_and_compaction(table):
    """As a JVM writer would leave it, who knows nothing of streams."""
    table.stream("a").upsert([{"id": "k", "a": 1, "a_at": 1}])
    folder = Path(table.url.removeprefix("file://"))
    (log,) = folder.glob(".*.log.*")
    body = log.read_bytes()
    log.write_bytes(body.replace(STREAM.encode(), b"lakelatch.strean"))
    for act in (lambda: table.read().to_arrow(), table.compact):
        with pytest.raises(UnsupportedTableError, match="was not written by a stream"):
            act()
    log.write_bytes(body)
    assert table.read().count() == 1


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"5",
        b"[]",
        b'{"stream": "a"}',
        b'{"stream": "a", "kind": "drop", "columns": []}',
        b'{"stream": "a", "kind": "upsert", "columns": [5]}',
        b'{"stream": 5, "kind": "upsert", "columns": []}',
        b"\xff",
    ],
)
def test_a_note_that_no_block_can_have_is_damage(note):
    with pytest.raises(CorruptTableError, match="note of its stream"):
        BlockNote.of({STREAM.encode(): note}, "x.log")


def test_notes_and_floors_come_back_as_they_were():
    note = BlockNote("ü{}%𝄞", "clear", ("a", "𝄞"))
    assert BlockNote.of({k.encode(): v.encode() for k, v in note.to_footer().items()}, "x") == note
    assert json.loads(note.to_footer()[STREAM])["kind"] == "clear"
    floors = pa.table({"_hoodie_record_key": ["𝄞", "b"], "at": pa.array([None, 5], pa.int64())})
    stored = {k.encode(): v.encode() for k, v in floors_to_footer(floors).items()}
    assert floors_of(stored, "x").equals(floors)
    assert floors_to_footer(floors.slice(0, 0)) == {}
    for bad in (b"", b"!", b"AAAA", stored[b"lakelatch.floors"][:40]):
        with pytest.raises(CorruptTableError, match="floors of rows"):
            floors_of({b"lakelatch.floors": bad}, "x.parquet")
