"""Log files: blocks whole and torn, and the rows that a slice has after them, beside what an independent reader says."""

from __future__ import annotations

import itertools
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch
from lakelatch.errors import CorruptTableError, StorageError, UnsupportedTableError
from lakelatch.hudi.files.log_blocks import AVRO, COMMAND, DELETE, NATURAL, PARQUET, Block, Torn, read_blocks
from lakelatch.hudi.merge.log_records import _Changes
from lakelatch.hudi.table import META_COLUMNS, RECORD_KEY
from lakelatch.occ.check.check import check
from lakelatch.storage.local.store import LocalStore

from ..occ.mor import Mor, at, block, data_block, delete_block, rollback_block, rows
from ..occ.world import content, independent_content

ROWS = rows("a", {"k": 1})


def kinds(body: bytes) -> list[str]:
    return ["torn" if isinstance(each, Torn) else each.instant for each in read_blocks(body, "log")]


def test_blocks_of_every_kind_that_is_read():
    body = data_block("1", ROWS) + delete_block("2", ["k", ("l", ("LongWrapper", 4))]) + rollback_block("3", "1")
    data, delete, command = read_blocks(body, "log")
    assert isinstance(data, Block)
    assert isinstance(delete, Block)
    assert isinstance(command, Block)
    assert (data.kind, delete.kind, command.kind) == (AVRO, DELETE, COMMAND)
    assert data.rows().select(["id", "v"]).to_pylist() == [{"id": "k", "v": 1}]
    assert list(delete.deletes()) == [("k", NATURAL), ("l", 4)]
    assert (data.rolls_back, command.rolls_back) == ("", "1")


@pytest.mark.parametrize("wrapper", ["Int", "Long", "Double", "String", "Bytes", "Boolean", "Date", "TimestampMicros"])
def test_ordering_values_of_deletes(wrapper):
    value = {"String": "x", "Bytes": b"x", "Boolean": True}.get(wrapper, 7)
    (found,) = read_blocks(delete_block("1", [("k", (f"{wrapper}Wrapper", value))]), "log")
    assert list(found.deletes()) == [("k", value)]


def test_the_integer_zero_orders_no_delete():
    (found,) = read_blocks(delete_block("1", [("k", ("IntWrapper", 0))]), "log")
    assert list(found.deletes()) == [("k", NATURAL)]


def test_torn_blocks_are_told_and_the_whole_ones_kept():
    one, two = data_block("1", ROWS), data_block("2", ROWS)
    assert kinds(one + two) == ["1", "2"]
    assert kinds(b"") == []
    for cut in range(1, len(two)):
        assert kinds(one + two[:cut]) == ["1", "torn"], cut
    for at_ in (*range(14), *range(len(one) - 8, len(one))):  # in its magic, its size, or its length at the end
        broken = bytearray(one)
        broken[at_] ^= 0xFF
        assert kinds(bytes(broken) + two) == ["torn", "2"], at_
    assert read_blocks(one[:50] + two, "log")[0] == Torn("log", 0, 50)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (block(4, {0: "1"}, b""), "HFile"),
        (block(6, {0: "1"}, b""), "change data"),
        (block(9, {0: "1"}, b""), "kind 9"),
        (data_block("1", ROWS).replace(b"\0\0\0\1\0\0\0\3", b"\0\0\0\2\0\0\0\3", 1), "format version 2"),
    ],
)
def test_blocks_of_other_kinds_are_refused(body, said):
    with pytest.raises(UnsupportedTableError, match=f"{said}.* Compact the table with Hudi"):
        read_blocks(body, "log")


@pytest.mark.parametrize(
    ("kind", "content", "error"),
    [
        (AVRO, b"\0\0\0\2\0\0\0\0", UnsupportedTableError),
        (AVRO, b"\0\0\0\3\0\0\0\1\0\0\0\2xy", CorruptTableError),
        (AVRO, b"\0", CorruptTableError),
        (PARQUET, b"no parquet", CorruptTableError),
    ],
)
def test_content_that_cannot_be_decoded(kind, content, error):
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    (found,) = read_blocks(block(kind, {0: "1", 2: json.dumps(schema)}, content), "log")
    with pytest.raises(error):
        found.rows()


# --- rows --------------------------------------------------------------------------------------------------------

CHANGES = [1, 5, 10, None, "delete", ("LongWrapper", 3), ("LongWrapper", 5), ("IntWrapper", 0)]
BASES = ["absent", None, 5]


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("ordering", ["v", None])
def test_every_sequence_of_three_changes_of_a_row(tmp_path, ordering, version):
    """The ordering values 1, 5, 10 and null, deletes that take all and deletes that are ordered; on three base rows."""
    mor = Mor(tmp_path / "t", ordering=ordering, version=version)
    story = {
        f"k{number}": case
        for number, case in enumerate(
            (base, *changes)
            for length in (1, 2, 3)
            for base in BASES
            for changes in itertools.product(CHANGES, repeat=length)
        )
    }
    mor.base(at(1), at(2), "a", rows("a", {k: case[0] for k, case in story.items() if case[0] != "absent"}))
    for number in (1, 2, 3):
        now = {k: case[number] for k, case in story.items() if len(case) > number}
        body = data_block(at(10 * number), rows("a", {k: v for k, v in now.items() if not isinstance(v, str | tuple)}))
        body += delete_block(at(10 * number), [k for k, v in now.items() if v == "delete"])
        for wrapper in ("LongWrapper", "IntWrapper"):  # one reader refuses blocks that mix two
            keys = [(k, v) for k, v in now.items() if isinstance(v, tuple) and v[0] == wrapper]
            body += delete_block(at(10 * number), keys)
        mor.log(at(10 * number), at(10 * number + 5), "a", body)
    with lakelatch.open(str(mor.folder)) as table:
        ours = content(table)
    assert len(ours) > 500
    assert ours == independent_content(mor.folder)


@pytest.fixture
def mor(tmp_path):
    made = Mor(tmp_path / "t")
    made.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}))
    return made


def both(mor: Mor) -> dict[str, int]:
    """The rows, which both readers agree on."""
    with lakelatch.open(str(mor.folder)) as table:
        ours = content(table)
    assert ours == independent_content(mor.folder)
    return ours


def test_a_group_of_log_files_only(mor):
    mor.update(at(10), at(11), "b", {"b0": 1, "b1": 2})
    mor.update(at(12), at(13), "b", {"b0": 3}, ["b1"])
    assert both(mor) == {"a0": 1, "a1": 1, "b0": 3}
    mor.update(at(14), at(15), "b", {}, ["b0"])
    assert both(mor) == {"a0": 1, "a1": 1}


def test_a_log_file_that_completed_after_a_compaction_began_is_merged_onto_the_new_base_file(mor):
    mor.update(at(10), at(40), "a", {"a0": 9})
    mor.base(at(20), at(30), "a", rows("a", {"a0": 2, "a1": 2}))
    assert both(mor) == {"a0": 9, "a1": 2}


def test_of_a_tie_the_larger_requested_time_wins_whatever_completed_last(tmp_path):
    mor = Mor(tmp_path / "t", ordering=None)
    mor.update(at(13), at(16), "a", {"a0": 13})
    mor.update(at(14), at(15), "a", {"a0": 14})
    assert both(mor) == {"a0": 14}


def test_what_is_not_committed_or_of_another_commit_does_not_count(mor):
    mor.log(at(10), "", "a", data_block(at(10), rows("a", {"a0": 5})))
    mor.log(at(20), at(21), "a", data_block(at(30), rows("a", {"a0": 6})) + data_block(at(20), rows("a", {"a1": 7})))
    assert both(mor) == {"a0": 1, "a1": 7}


def test_a_block_that_a_later_one_rolls_back_does_not_count(mor):
    mor.update(at(10), at(11), "a", {"a0": 5})
    mor.log(at(12), at(13), "a", data_block(at(12), rows("a", {"a1": 6})) + rollback_block(at(12), at(10)))
    assert both(mor) == {"a0": 1, "a1": 6}


def test_a_torn_block_is_left_out_and_told(mor, caplog):
    body = data_block(at(10), rows("a", {"a0": 5})) + data_block(at(10), rows("a", {"a1": 5}))[:-3]
    mor.log(at(10), at(11), "a", body)
    with caplog.at_level(logging.WARNING):
        assert both(mor) == {"a0": 5, "a1": 1}
    assert "is torn from byte" in caplog.text
    (found,) = check(LocalStore(mor.folder)).findings
    assert (found.kind, found.severity) == ("log-torn", "damage")


def test_rows_that_say_that_they_are_deleted(mor):
    more = {"name": "_hoodie_is_deleted", "type": ["null", "boolean"], "default": None}
    schema = json.loads(mor.schema)
    mor.schema = json.dumps(schema | {"fields": [*schema["fields"], more]})
    gone = [row | {"_hoodie_is_deleted": row["v"] != 4} for row in rows("a", {"a0": 5, "a1": 0, "a2": 4})]
    mor.log(at(10), at(11), "a", data_block(at(10), gone, more=[more]))
    assert both(mor) == {"a1": 1, "a2": 4}, "a0 is deleted, and a1 would have been by an older row"


def test_chosen_columns_and_meta_columns(mor):
    mor.update(at(10), at(11), "a", {"a0": 5, "a2": 2}, [("a1", ("LongWrapper", -5))])
    with lakelatch.open(str(mor.folder)) as table:
        assert table.read(columns=["id"]).to_arrow().to_pydict() == {"id": ["a1", "a0", "a2"]}, "changed rows are last"
        (only,) = table.snapshot().file_slices()
        found = table.read_slice(only, columns=["id"], meta=True).to_pydict()
        assert found["id"] == ["a0", "a1", "a2"], "rows to be written again keep their places"
        assert found["_hoodie_commit_time"] == [at(10), at(1), at(10)]
        assert table.read(columns=["part"]).count() == 3
        assert set(found) == {"id", *(n for n in found if n.startswith("_hoodie_"))}


def test_columns_that_log_files_add(mor):
    wide = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64()), ("new", pa.string())])
    row = {"id": "a0", "part": "a", "v": 4, "new": "x"}
    mor.log(at(10), at(11), "a", data_block(at(10), [row], schema=wide))
    with lakelatch.open(str(mor.folder)) as table:
        (only,) = table.snapshot().file_slices()
        assert table.read_slice(only).to_pylist() == [row, {"id": "a1", "part": "a", "v": 1, "new": None}]


def test_columns_of_a_narrower_type_in_the_base_file(mor):
    wide = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.float64())])
    row = {"id": "a0", "part": "a", "v": 4.5}
    mor.log(at(10), at(11), "a", data_block(at(10), [row], schema=wide))
    with lakelatch.open(str(mor.folder)) as table:
        (only,) = table.snapshot().file_slices()
        assert table.read_slice(only).to_pylist() == [row, {"id": "a1", "part": "a", "v": 1.0}]


def test_rows_without_meta_columns_are_damage(mor):
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    content_ = b"\0\0\0\3\0\0\0\1\0\0\0\3\4xy"
    mor.log(at(10), at(11), "a", block(AVRO, {0: at(10), 2: json.dumps(schema)}, content_))
    with (
        lakelatch.open(str(mor.folder)) as table,
        pytest.raises(CorruptTableError, match="without _hoodie_commit_time"),
    ):
        table.read().to_arrow()


def test_a_log_file_that_is_cleaned_away_while_it_is_read(mor):
    path = mor.update(at(10), at(11), "a", {"a0": 5})
    with lakelatch.open(str(mor.folder)) as table:
        (only,) = table.snapshot().file_slices()
        path.unlink()
        with pytest.raises(StorageError, match="is gone since it was listed"):
            table.read_slice(only)


# --- blocks of whole rows: the newest of each key is found at once, and as one by one -------------------------------------

_ORDERS = {
    "numbers": (pa.int64(), st.integers(-2, 2)),
    "texts": (pa.string(), st.sampled_from(["", "a", "é", "𝄞", "\uffff"])),
    "times": (pa.timestamp("us", "UTC"), st.integers(-2, 2)),
    "floats": (pa.float64(), st.sampled_from([1.0, float("nan")])),
}


@st.composite
def changes(draw, *, kinds: list[str]) -> tuple[tuple[str, ...], pa.Table, list[Block]]:
    """The ordering field, the rows of a base file, and blocks: of rows, seldom of deletes, or with null ordering values."""
    kind, values = _ORDERS[draw(st.sampled_from(kinds))]
    nulls = draw(st.sampled_from([False] * 4 + [True]))

    def some(keys: list[str], name: str) -> pa.Table:
        orders = [None if nulls and draw(st.booleans()) else draw(values) for _ in keys]
        columns = {each: pa.array([f"{name} {key}" for key in keys], pa.string()) for each in META_COLUMNS}
        columns |= {RECORD_KEY: pa.array(keys, pa.string()), "at": pa.array(orders, kind)}
        return pa.table(columns | {"v": pa.array([f"{name}{key}" for key in keys], pa.string())})

    def made(number: int) -> Block:
        if draw(st.integers(0, 5)) == 0:
            (found,) = read_blocks(delete_block("1", [draw(st.sampled_from("abc"))]), "log")
            return found
        sink = pa.BufferOutputStream()
        pq.write_table(some(draw(st.lists(st.sampled_from("abc"), max_size=4)), f"{number}"), sink)
        return Block("log", PARQUET, {}, sink.getvalue().to_pybytes())

    base = some(draw(st.lists(st.sampled_from("abc"), unique=True)), "base")
    blocks = [made(number) for number in range(draw(st.integers(1, 4)))]
    return draw(st.sampled_from([(), ("at",)])), base, blocks


@given(changes(kinds=[*_ORDERS]), st.sampled_from([None, ("v",), ("at", "v")]))
def test_the_newest_of_whole_rows_are_those_that_are_found_one_by_one(given_, columns):
    ordering, base, blocks = given_
    needed = None if columns is None else {*columns, RECORD_KEY, *ordering}
    if needed is not None:
        base = base.select([name for name in base.column_names if name in needed])

    def read() -> list[dict]:
        found = _Changes(ordering, needed)
        found.take(blocks)
        return found.onto(base).to_pylist()

    quick = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Changes, "_are_whole", lambda *_: False)
        assert str(read()) == str(quick)  # as text, since NaN is not equal to itself


@given(changes(kinds=["numbers", "texts", "times"]))
def test_whole_rows_are_not_looked_at_one_by_one(given_):
    ordering, base, blocks = given_
    whole = [each for each in blocks if each.kind == PARQUET and not each.rows().column("at").null_count]
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(_Changes, "_look_at")
        found = _Changes(ordering)
        found.take(whole)
        found.onto(base)


def test_only_the_columns_that_are_asked_for_are_read_from_a_block():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1], "b": [2]}), sink)
    block = Block("log", PARQUET, {}, sink.getvalue().to_pybytes())
    assert block.rows(lambda names: names[1:]).to_pylist() == [{"b": 2}]
    (avro,) = read_blocks(data_block("1", ROWS), "log")
    assert avro.rows(lambda names: [name for name in names if name == "v"]).to_pylist() == [{"v": 1}]
