"""What is read of a slice's blocks, and blocks that no stream can have written."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, CorruptTableError, InputError, TableError, UnsupportedTableError
from lakelatch.hudi.files import STREAM_NOTE
from lakelatch.mergers import find
from lakelatch.streams import Stream, folded, stitched
from lakelatch.streams.events import BlockNote, floors_of, floors_to_footer
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


@pytest.fixture
def adding(tmp_path):
    columns = [*SCHEMA, pa.field("n", pa.int64()), pa.field("most", pa.int64()), pa.field("n_at", pa.int64())]
    given = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1, "env": FakeEnvironment(seed=1)}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=pa.schema(columns), **given) as made:
        made.stream("a", columns=["a"], ordering="a_at", on_delete="row")
        merge = {"n": "sum", "most": "max"}
        made.stream("n", columns=["n", "most"], ordering="n_at", merge=merge, default={"n": 100}, foreign_readers=False)
        yield made


def send(table, number, *events, delete=False):
    rows = [{"id": "k", "n_at": at} | ({} if delete else {"n": n, "most": n}) for at, n in events]
    stream = table.stream("n")
    (stream.delete if delete else stream.upsert)(rows, batch=("test", number))


def of(table, **given):
    return [(row["n"], row["most"], row["n_at"]) for row in table.read(**given).to_pylist()]


@pytest.mark.parametrize("compacted", range(6))
def test_a_late_event_counts_unless_it_is_older_than_what_emptied_the_column(adding, compacted):
    """Whenever a compaction was, each state is the same, and those of before are what they were."""
    steps = [
        lambda: send(adding, 1, (5, 1), (3, 10)),
        lambda: send(adding, 2, (4, 1000)),
        lambda: send(adding, 3, (4, 0), delete=True),  # late itself: it empties nothing
        lambda: send(adding, 4, (5, 0), delete=True),
        lambda: send(adding, 5, (6, 7), (4, 70), (5, 700)),
        lambda: send(adding, 6, (5, -1), (4, -10)),
    ]
    expected = [(111, 10, 5), (1111, 1000, 5), (1111, 1000, 5), (100, None, 5), (807, 700, 6), (806, 700, 6)]
    times = []
    for number, (step, seen) in enumerate(zip(steps, expected, strict=True)):
        step()
        times.append(adding.commits()[-1][0].completed)
        if number == compacted:
            adding.compact()
        assert of(adding) == [seen]
        (told,) = adding.explain_row("k")
        assert {each.column: each.value for each in told.cells if each.column in ("n", "most")} == dict(
            zip(("n", "most"), seen, strict=False)
        )
    assert [of(adding, as_of_completion=each) for each in times] == [[each] for each in expected]
    adding.stream("a").delete([{"id": "k", "a_at": 1}])
    send(adding, 7, (5, 1))
    assert of(adding) == []
    adding.compact()
    send(adding, 8, (6, 1))
    send(adding, 9, (5, 1000))
    assert of(adding) == [(101, 1, 6)], "what was older than the delete stays lost, also when the row is there again"
    fed = adding.change_feed(columns=["n"]).to_pylist()
    assert [row["n"] for row in fed if row["_change"] in ("insert", "update_after")] == [111, 1111, 100, 807, 806, 101]


def test_what_a_value_is_made_of_is_told(adding):
    send(adding, 1, (5, 1), (3, 10))
    first = adding.session.log.state.last.instant
    send(adding, 2, (4, 2))
    (told,) = adding.explain_row("k")
    cell = next(each for each in told.cells if each.column == "n")
    second = adding.session.log.state.last.instant
    assert cell.parts == ((100, None, ""), (10, 3, first), (1, 5, first), (2, 4, second))
    assert (cell.value, cell.why, cell.beat) == (113, "sum of 4", ())
    assert [(each.counted, each.late) for each in told.events] == [(True, False), (True, False), (True, True)]
    adding.compact()
    send(adding, 3, (1, 1))
    (told,) = adding.explain_row("k")
    assert [part[:2] for part in next(each for each in told.cells if each.column == "n").parts] == [(113, None), (1, 1)]


def test_a_sum_that_does_not_fit_is_told_with_its_keys_and_goes_with_a_clear(adding, monkeypatch):
    """Writers of before, which did not look, could make one."""
    with monkeypatch.context() as patch:
        patch.setattr("lakelatch.occ.staging.stream_files.keep_within_range", lambda *_: None)
        send(adding, 1, *((at, 2**63 // 1000) for at in range(1001)))
    for act in (lambda: of(adding), adding.compact, lambda: adding.explain_row("k")):
        with pytest.raises(TableError, match=r"column 'n' of .* cannot be merged: a sum does not fit into int64"):
            act()
    with pytest.raises(TableError, match=r"record keys 'k'\)\. Other columns can be read\. Empty it with an event"):
        of(adding)
    assert adding.read(columns=["id", "most"]).count() == 1
    with pytest.raises(InputError, match=r"column 'n': a sum does not fit into int64.*nothing was written"):
        send(adding, 2, *((1, 2**63 // 1000) for _ in range(1001)))
    send(adding, 3, (1000, 0), delete=True)
    assert of(adding) == [(100, None, 1000)]
    adding.compact()
    assert of(adding) == [(100, None, 1000)]


NULLS = """
import pyarrow as pa
from lakelatch.mergers import Laws

class Product:
    def laws(self, kind):
        return Laws(commutative=True, associative=True, idempotent=False)

    def merge(self, values, groups):
        made = []
        for a, b in zip(groups.offsets, groups.offsets[1:]):
            made.append(1)
            for each in values[a:b].to_pylist():
                made[-1] *= each
        return pa.array(made, values.type)
"""


def test_a_merger_of_ones_own_gets_no_nulls_and_who_lacks_it_reads_the_rest(adding, tmp_path, monkeypatch):
    (tmp_path / "own_mergers.py").write_text(NULLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    adding.add_column("p", "int64")
    adding.add_column("p_at", "int64")
    product = {"p": "own_mergers:Product"}
    adding.stream("p", columns="p", ordering="p_at", merge=product, foreign_readers=False)
    for number, value in enumerate((None, 2, None, 3)):
        adding.stream("p").upsert([{"id": "k", "p": value, "p_at": 0}], batch=("own", number))
        if number == 1:
            adding.compact()
    assert adding.read(columns=["p"]).to_pylist() == [{"p": 6}]
    monkeypatch.delitem(sys.modules, "own_mergers")
    (tmp_path / "own_mergers.py").unlink()
    find.cache_clear()
    importlib.invalidate_caches()
    for act in (
        lambda: adding.read().to_arrow(),
        adding.compact,
        lambda: adding.stream("p").upsert([{"id": "k", "p": 1, "p_at": 0}], batch=("own", 9)),
    ):
        with pytest.raises(ConfigError, match="merger 'own_mergers:Product' can't be imported here"):
            act()
    assert adding.read(columns=["id", "n"]).to_pylist() == [{"id": "k", "n": 100}]


def test_of_one_batch_those_events_are_written_that_the_table_may_want():
    """The newest, and the older ones that fill its nulls: whether these are too old for the table is not known."""
    rows = pa.table(
        {
            "_hoodie_record_key": ["k", "l", "k", "k", "k", "k"],
            "at": [1, 1, 2, 3, 3, 2],
            "x": [1, 7, 5, None, None, 9],  # the last one is late
            "y": [1, 7, None, 2, 3, 9],
        }
    )
    stream = Stream("s", ("x", "y"), "at")
    assert folded(rows, stream).to_pylist() == [
        {"_hoodie_record_key": "l", "at": 1, "x": 7, "y": 7},
        {"_hoodie_record_key": "k", "at": 2, "x": 5, "y": None},
        {"_hoodie_record_key": "k", "at": 3, "x": None, "y": 3},
    ]
    for alone in (Stream("s", ("x", "y"), "at", null="write", foreign_readers=False), Stream("s", ("y",), "at")):
        assert folded(rows, alone).to_pylist()[1:] == [{"_hoodie_record_key": "k", "at": 3, "x": None, "y": 3}]


def test_a_log_file_of_other_writes_is_refused_by_readers_and_compaction(table):
    """As a JVM writer would leave it, who knows nothing of streams."""
    table.stream("a").upsert([{"id": "k", "a": 1, "a_at": 1}])
    folder = Path(table.url.removeprefix("file://"))
    (log,) = folder.glob(".*.log.*")
    body = log.read_bytes()
    log.write_bytes(body.replace(STREAM_NOTE.encode(), b"lakelatch.strean"))
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
        BlockNote.of({STREAM_NOTE.encode(): note}, "x.log")


def test_notes_and_floors_come_back_as_they_were():
    note = BlockNote("ü{}%𝄞", "clear", ("a", "𝄞"))
    assert BlockNote.of({k.encode(): v.encode() for k, v in note.to_footer().items()}, "x") == note
    assert json.loads(note.to_footer()[STREAM_NOTE])["kind"] == "clear"
    floors = pa.table({"_hoodie_record_key": ["𝄞", "b"], "at": pa.array([None, 5], pa.int64())})
    stored = {k.encode(): v.encode() for k, v in floors_to_footer(floors).items()}
    assert floors_of(stored, "x").equals(floors)
    assert floors_to_footer(floors.slice(0, 0)) == {}
    for bad in (b"", b"!", b"AAAA", stored[b"lakelatch.floors"][:40]):
        with pytest.raises(CorruptTableError, match="floors of rows"):
            floors_of({b"lakelatch.floors": bad}, "x.parquet")


@pytest.mark.parametrize("compacted", [False, True])
def test_a_stream_that_nothing_can_have_emptied_gets_a_column_that_adds_up(tmp_path, compacted):
    columns = [pa.field("n", pa.int64()), pa.field("n_at", pa.int64()), pa.field("word", pa.string())]
    schema = pa.schema([*SCHEMA, *columns])
    made = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1, "env": FakeEnvironment(seed=1)}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=schema, **made) as table:
        given = {"ordering": "n_at", "on_delete": "ignore", "foreign_readers": False}
        table.stream("n", columns=["word"], **given).upsert([{"id": "k", "word": "old", "n_at": 5}])
        if compacted:
            table.compact()
        stream = table.stream("n", columns=["word", "n"], merge={"n": "sum"}, default={"n": 100}, **given)
        stream.upsert([{"id": "k", "word": "late", "n": 1, "n_at": 3}], batch=("test", 1))
        stream.upsert(
            [{"id": "k", "word": "new", "n": 10, "n_at": 6}, {"id": "l", "word": "", "n": 7, "n_at": 1}],
            batch=("test", 2),
        )
        seen = {row["id"]: (row["word"], row["n"]) for row in table.read().to_pylist()}
        assert seen == {"k": ("new", 11), "l": ("", 107)}, "a row that was there has no default"
        table.compact()
        assert {row["id"]: (row["word"], row["n"]) for row in table.read().to_pylist()} == seen
        table.stream("a", columns=["a"], ordering="a_at", on_delete="row")
        table.stream("b", columns=["b"], ordering="b_at", on_delete="ignore", foreign_readers=False)
        table.add_column("m", "int64")
        given = {"ordering": "b_at", "on_delete": "ignore", "merge": {"m": "max"}, "foreign_readers": False}
        with pytest.raises(InputError, match="no delete can have emptied it"):
            table.stream("b", columns=["b", "m"], **given)
