"""Rows of a reader that go through a temporary file make the same table, or the same error, as the same rows in memory."""

from __future__ import annotations

import errno
import gc
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError, StorageError
from lakelatch.occ.incoming import TemporaryBytes, spool
from lakelatch.occ.staging import selection

from ...thorough import THOROUGH, crossed, is_taken, some

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.int64()),
        ("part", pa.string()),
        ("amount", pa.float64()),
        ("ts", pa.int64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
TABLES: dict[str, dict[str, Any]] = {
    "one partition": {"record_key": "id", "ordering_field": "ts"},
    "no ordering": {"record_key": "id", "partition_by": "part"},
    "partitions": {"record_key": "id", "partition_by": "part", "ordering_field": "ts"},
    "two keys": {"record_key": ["id", "day"], "partition_by": "part", "ordering_field": "ts"},
    "a key that is a number": {"record_key": "day", "partition_by": "part", "ordering_field": "ts"},
    "buckets": {"record_key": "id", "partition_by": "part", "ordering_field": "ts", "bucket_count": 3},
    "merge-on-read": {"record_key": "id", "partition_by": "part", "ordering_field": "amount", "type": "merge_on_read"},
    "columns that add up": {"record_key": "id", "ordering_field": "ts", "merge": {"amount": "sum"}},
}
VERBS = ("upsert", "insert", "overwrite", "overwrite_table")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, and bounds so low that a few rows go through them."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(spool, "MEMORY_BYTES", 0)
    monkeypatch.setattr(spool, "_BATCH_BYTES", 400)
    monkeypatch.setattr(spool, "_BATCH_ROWS", 7)
    monkeypatch.setattr(selection, "KEYS_AT_ONCE", 11)
    monkeypatch.setattr(selection, "KEYS_AT_ONCE", 11)
    monkeypatch.setattr(import_module("lakelatch.hudi.table.partition_path"), "_SOME_ROWS", 13)
    return place


@pytest.fixture
def create(folder: Path) -> Iterator[Callable[..., lakelatch.Table]]:
    made: list[lakelatch.Table] = []

    def one(**options: Any) -> lakelatch.Table:
        made.append(lakelatch.create(str(folder / f"t{len(made)}"), **{"schema": SCHEMA} | options))
        return made[-1]

    yield one
    for each in made:
        each.close()


def some_rows(chance: random.Random, count: int, keys: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"k{chance.randrange(keys)}",
            "day": chance.randrange(keys),
            "part": chance.choice(["a", "b", "", None, "ü"]),
            "amount": chance.choice([0.5, -0.0, 1e300]),
            "ts": chance.randrange(5),
            "tags": chance.choice([None, [], ["x", None]]),
        }
        for _ in range(count)
    ]


def batches(rows: pa.Table, chance: random.Random) -> Iterator[pa.RecordBatch]:
    """The rows in batches of any size, empty ones among them."""
    at = 0
    while at < rows.num_rows:
        size = chance.choice([0, 1, 3, 20])
        yield from rows.slice(at, size).combine_chunks().to_batches() or [_empty(rows.schema)]
        at += size


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], each.type) for each in schema], schema=schema)


def reader(rows: pa.Table, chance: random.Random | None = None) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, batches(rows, chance or random.Random(1)))


def outcome(table: lakelatch.Table, verb: str, rows: Any) -> Any:
    try:
        getattr(table, verb)(rows)
    except InputError as e:
        return str(e).replace(table.url, "URL").replace(table.config.name, "NAME")
    found = table.read().to_arrow()
    return sorted(map(repr, found.to_pylist()))


# --- the same as in memory ----------------------------------------------------------------------------------------


SHAPES_AND_VERBS = [
    (shape, verb)
    for row, shape in enumerate(TABLES)
    for column, verb in enumerate(VERBS)
    if is_taken(row // 2, column, 2)  # each verb meets tables of both halves, and each table two verbs
]


@pytest.mark.parametrize(("shape", "verb"), SHAPES_AND_VERBS)
def test_a_reader_makes_the_table_that_its_rows_in_memory_make(create, shape, verb):
    for seed in range(2 if THOROUGH else 1):
        chance = random.Random(f"{shape} {verb} {seed}")
        by_reader, in_memory = create(**TABLES[shape]), create(**TABLES[shape])
        for first in (True, False):
            rows = pa.Table.from_pylist(some_rows(chance, 60, 500 if first else 80), schema=SCHEMA)
            expected = outcome(in_memory, verb, rows)
            assert outcome(by_reader, verb, reader(rows, chance)) == expected
            if isinstance(expected, str) and "more than once" not in expected:
                raise AssertionError(expected)


WRONG = {
    "a value that its column does not hold": {"ts": 1.5},
    "no key": {"id": ""},
    "null for a key": {"id": None},
    "a partition that is no folder": {"part": ".."},
    "NaN to order by": {"amount": float("nan")},
}


@pytest.mark.parametrize(("what", "verb"), crossed(WRONG, ["upsert", "insert"]))
def test_a_reader_has_the_error_that_its_rows_in_memory_have(create, what, verb):
    options = {"record_key": "id", "partition_by": "part", "ordering_field": "amount"}
    chance = random.Random(what)
    rows = [row | {"id": f"k{number}", "part": "a"} for number, row in enumerate(some_rows(chance, 50, 9))]
    rows[37] |= WRONG[what]
    given = pa.Table.from_pylist(rows, schema=SCHEMA.set(4, pa.field("ts", pa.float64())))
    by_reader, in_memory = create(**options), create(**options)
    expected = outcome(in_memory, verb, given)
    assert isinstance(expected, str)
    assert outcome(by_reader, verb, reader(given)) == expected
    assert len(by_reader.commits()) == 1  # of its creation


@pytest.mark.parametrize("verb", ["delete", "merge"])
def test_keys_and_sources_come_from_a_reader(create, verb):
    table = create(**TABLES["partitions"])
    rows = pa.Table.from_pylist(
        [row | {"id": f"k{n}"} for n, row in enumerate(some_rows(random.Random(3), 40, 9))], SCHEMA
    )
    table.insert(rows)
    if verb == "delete":
        table.delete(reader(rows.slice(5).select(["id", "part"])))
        assert table.read().count() == 5
        return
    table.merge(reader(rows.slice(5))).when_matched(update={"amount": 7.0}).run()
    assert sorted(table.read(columns=["amount"]).to_arrow()["amount"].to_pylist()) == sorted(
        [*rows["amount"].to_pylist()[:5], *[7.0] * 35]
    )


def test_every_batch_may_have_a_dictionary_of_its_own(create):
    kind = pa.dictionary(pa.int8(), pa.string())
    pieces = [
        pa.record_batch({"id": pa.array(keys).cast(kind), "note": pa.array(notes).cast(kind)})
        for keys, notes in ([["a", "b"], ["x", None]], [["c"], ["y"]], [[], []], [["d", "e"], ["x", "x"]])
        if keys
    ]
    table = create(record_key="id", schema=None)
    table.insert(pa.RecordBatchReader.from_batches(pieces[0].schema, pieces))
    assert table.schema().types == [pa.string(), pa.string()]
    found = table.read().to_arrow().sort_by("id").to_pydict()
    assert found == {"id": ["a", "b", "c", "d", "e"], "note": ["x", None, "y", "x", "x"]}


@pytest.mark.parametrize(("verb", "empty_batches"), crossed(VERBS, [0, 1]))
def test_a_reader_without_rows_is_no_rows(create, verb, empty_batches):
    by_reader, in_memory = create(record_key="id"), create(record_key="id")
    given = pa.RecordBatchReader.from_batches(SCHEMA, [_empty(SCHEMA)] * empty_batches)
    assert outcome(by_reader, verb, given) == outcome(in_memory, verb, SCHEMA.empty_table()) == []


def test_text_views_are_plain_text(create):
    table = create(record_key="id", schema=pa.schema([("id", pa.string())]))
    table.insert(pl.DataFrame({"id": ["a", "b" * 40]}).lazy())
    views = pa.record_batch({"id": pa.array(["c", "d" * 40], pa.string_view())})
    table.insert(pa.RecordBatchReader.from_batches(views.schema, [views]))
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == ["a", "b" * 40, "c", "d" * 40]


def test_what_is_in_memory_already_stays_there(create, monkeypatch):
    def refused(*_: object) -> None:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    rows = pa.Table.from_pylist(some_rows(random.Random(5), 40, 10_000), schema=SCHEMA)
    for given in (rows, rows.to_batches(max_chunksize=3), rows.to_pylist(), rows.to_pandas(), pl.from_arrow(rows)):
        create(record_key="id").insert(given)
    monkeypatch.setattr(spool, "MEMORY_BYTES", 1 << 20)
    create(record_key="id").insert(reader(rows))


# --- again ----------------------------------------------------------------------------------------------------------


def test_an_attempt_that_lost_reads_the_file_again(create):
    table = create(record_key="id")
    with lakelatch.open(table.url) as other:
        meddled: list[int] = []

        def meddle(_progress: object) -> None:
            if not meddled:
                meddled.append(1)
                other.insert([{"id": "foreign", **dict.fromkeys(SCHEMA.names[1:])}])

        rows = pa.Table.from_pylist(
            [row | {"id": str(n)} for n, row in enumerate(some_rows(random.Random(6), 50, 9))], SCHEMA
        )
        result = table.overwrite_table(reader(rows), progress=meddle)
    assert result.attempts == 2
    assert table.read().to_arrow().sort_by("id").equals(rows.sort_by("id"))


@pytest.mark.parametrize("by", ["key", "clauses"])
def test_what_was_lost_is_merged_again_from_the_file(create, temporary, by):
    table = create(record_key="id")
    rows = pa.Table.from_pylist(
        [row | {"id": str(n)} for n, row in enumerate(some_rows(random.Random(13), 80, 9))], SCHEMA
    )
    table.insert(rows)
    with lakelatch.open(table.url) as other:
        meddled: list[int] = []

        def meddle(_progress: object) -> None:
            if not meddled:
                meddled.append(1)
                other.upsert(rows.slice(70, 5).set_column(4, "ts", pa.array([99] * 5)))

        changed = rows.slice(0, 70).set_column(3, "amount", pa.array([7.0] * 70))
        mixed = changed.take(random.Random(14).sample(range(70), 70))
        if by == "key":
            result = table.upsert(reader(mixed), progress=meddle)
        else:
            result = table.merge(reader(mixed), progress=meddle).when_matched(update="all").run()
    assert (meddled, result.attempts) == ([1], 1)
    assert result.updated == 70
    found = table.read().to_arrow().to_pylist()
    expected = (
        changed.to_pylist() + [r | {"ts": 99} for r in rows.slice(70, 5).to_pylist()] + rows.slice(75).to_pylist()
    )
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert _left(temporary) == []


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_merge_that_is_run_twice_has_its_rows_or_is_refused(create, monkeypatch, memory):
    monkeypatch.setattr(spool, "MEMORY_BYTES", memory)
    table = create(record_key="id")
    rows = pa.Table.from_pylist(
        [row | {"id": str(n)} for n, row in enumerate(some_rows(random.Random(15), 9, 9))], SCHEMA
    )
    merge = table.merge(rows).when_not_matched(insert="all")
    assert merge.run().inserted == 9
    table.delete_all()
    assert merge.run().inserted == 9
    table.delete_all()
    merge = table.merge(reader(rows)).when_not_matched(insert="all")
    assert merge.run().inserted == 9
    table.delete_all()
    with pytest.raises(InputError, match="the reader was read before"):
        merge.run()


def test_an_attempt_that_finds_other_types_fits_what_is_in_the_file(create, temporary, monkeypatch):
    files = []
    monkeypatch.setattr(spool, "TemporaryBytes", lambda what: files.append(what) or TemporaryBytes(what))
    table = create(record_key="id", schema=pa.schema([("id", pa.int32()), ("v", pa.int32())]))
    with lakelatch.open(table.url) as other:
        meddled: list[int] = []

        def meddle(_progress: object) -> None:
            if not meddled:
                meddled.append(1)
                other.widen_column("v", "int64")
                other.insert([{"id": -1, "v": 1 << 40}])

        given = pa.table({"id": pa.array(range(100), pa.int16()), "v": pa.array(range(100), pa.int16())})
        result = table.overwrite_table(reader(given), progress=meddle)
    assert result.attempts == 2
    assert table.schema().field("v").type == pa.int64()
    assert sorted(table.read().to_arrow()["v"].to_pylist()) == list(range(100))
    assert files == ["rows of a reader"] * 2
    assert _left(temporary) == []


def test_rows_are_read_before_the_transaction_begins(create):
    table = create(record_key="id")
    seen = []

    def watched() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist(some_rows(random.Random(7), 40, 10_000), schema=SCHEMA).to_batches()
        seen.append(len(table.timeline().pending))

    table.insert(pa.RecordBatchReader.from_batches(SCHEMA, watched()))
    assert seen == [0]


def test_a_transaction_takes_the_types_that_it_has_made(create):
    table = create(record_key="id", schema=pa.schema([("id", pa.int32()), ("v", pa.int32())]))
    with table.transaction() as txn:
        txn.widen_column("v", "int64")
        txn.upsert(reader(pa.table({"id": pa.array(range(30)), "v": pa.array(range(1 << 40, (1 << 40) + 30))})))
    assert table.read().count() == 30


# --- nothing is left ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nothing here waits for the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def _left(temporary: Path) -> list[str]:
    """What is in the folder, open or mapped."""
    found = [str(each) for each in temporary.iterdir()]
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(each))
        except FileNotFoundError:  # of this listing itself
            continue
    found += Path("/proc/self/maps").read_text().splitlines()
    return [each for each in found if str(temporary) in each]


def test_the_file_has_no_name_and_goes_with_the_write(create, temporary):
    table = create(record_key="id")
    names = []

    def watched() -> Iterator[pa.RecordBatch]:
        for start in range(0, 300, 30):
            rows = [row | {"id": str(start + n)} for n, row in enumerate(some_rows(random.Random(8), 30, 9))]
            yield from pa.Table.from_pylist(rows, schema=SCHEMA).to_batches()
            names.append((list(temporary.iterdir()), len(_left(temporary))))

    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, watched()))
    assert names[-1] == ([], 1)  # open, and in no folder: whatever ends the process ends it too
    assert _left(temporary) == []


class _Broken(Exception):
    pass


@pytest.mark.parametrize(("verb", "error"), crossed(VERBS, [_Broken, pa.ArrowInvalid, KeyboardInterrupt]))
def test_a_reader_that_raises_half_way_leaves_nothing(create, temporary, verb, error):
    table = create(record_key="id")

    def broken() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist(some_rows(random.Random(9), 60, 10_000), schema=SCHEMA).to_batches()
        raise error("torn")

    given = pa.RecordBatchReader.from_batches(SCHEMA, broken())
    if error is pa.ArrowInvalid:
        with pytest.raises(InputError, match="the reader failed after 60 rows: torn; nothing was written") as caught:
            getattr(table, verb)(given)
        assert isinstance(caught.value.__cause__, pa.ArrowInvalid)
    else:
        with pytest.raises(error) as caught:
            getattr(table, verb)(given)
    assert len(table.commits()) == 1  # of its creation
    assert not table.timeline().pending
    caught = given = None
    assert _left(temporary) == []


def test_a_full_disk_is_told_with_its_folder(create, temporary, monkeypatch):
    table = create(record_key="id")
    rows = pa.Table.from_pylist(some_rows(random.Random(10), 2000, 10_000), schema=SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b"))  # noqa: SIM115 - the code's to close
        with pytest.raises(StorageError, match="nothing was written") as caught:
            table.insert(reader(rows))
    assert str(temporary) in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert len(table.commits()) == 1  # of its creation
    assert _left(temporary) == []


@pytest.mark.parametrize("room", some(range(0, 40_000, 4_000), 6))
def test_the_disk_may_be_full_at_any_byte(create, temporary, monkeypatch, room):
    """In the rows, in the places of rows, in the hashes of keys: each time nothing lands."""
    table = create(record_key="id", partition_by="part", ordering_field="ts")
    rows = pa.Table.from_pylist(some_rows(random.Random(11), 200, 10_000), schema=SCHEMA)
    left = [room]

    class Small:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, body: bytes) -> int:
            left[0] -= len(body)
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(self._file.write(body))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    made = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: Small(made(**given)))
    try:
        table.upsert(reader(rows))
    except StorageError as e:
        assert "nothing was written" in str(e)  # noqa: PT017 - with room enough there is none
        assert left[0] < 0
        assert table.read().count() == 0
    else:
        assert left[0] >= 0
    assert _left(temporary) == []


def test_no_temporary_folder_is_told(create, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", _no_folder)
    rows = pa.Table.from_pylist(some_rows(random.Random(12), 20, 10_000), schema=SCHEMA)
    with pytest.raises(StorageError, match="any temporary folder"):
        create(record_key="id").insert(reader(rows))


def _no_folder() -> str:
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")


# --- memory ---------------------------------------------------------------------------------------------------------


def test_arrow_holds_a_part_of_the_rows(create, monkeypatch):
    monkeypatch.setattr(spool, "MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(spool, "_BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(spool, "_BATCH_ROWS", 1 << 20)
    monkeypatch.setattr(selection, "KEYS_AT_ONCE", 1 << 16)
    table = create(record_key="id", schema=None)
    text, count = "x" * 200, 1_000_000

    def made() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, 10_000):
            keys = pa.array(range(start, start + 10_000)).cast(pa.string())
            yield pa.record_batch({"id": keys, "text": pa.array([text] * 10_000)})

    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        table.insert(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.string()), ("text", pa.string())]), made()))
        assert pool.max_memory() < count * 200 / 2
    finally:
        pa.set_memory_pool(before)
