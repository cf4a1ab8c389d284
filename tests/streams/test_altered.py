"""Streams that are changed and dropped: what it means for the events that were there, and for those on their way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.errors import ConflictError, InputError
from lakelatch.streams import CLEARED, UPSERT, newest_of
from lakelatch.testing import FakeEnvironment

from ..thorough import some
from .model import Model

SCHEMA = "id string, a bigint, word string, a_at bigint, n bigint, n_at bigint"
STREAMS: dict[str, dict[str, Any]] = {
    "a": {"columns": ["a", "word"], "ordering": "a_at", "default": {"a": 1}},
    "n": {"columns": "n", "ordering": "n_at", "on_delete": "row", "merge": {"n": "sum"}, "foreign_readers": False},
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    given: dict[str, Any] = {"record_key": "id", "schema": SCHEMA, "bucket_count": 1, "streams": STREAMS}
    with lakelatch.create(str(tmp_path / "t"), env=FakeEnvironment(seed=1), **given) as made:
        yield made


def read(table: lakelatch.Table, *names: str, **given: Any) -> dict[str, Any]:
    rows = table.read(columns=["id", *names], **given).to_pylist()
    return {row["id"]: row[names[0]] if len(names) == 1 else tuple(row[each] for each in names) for row in rows}


def add(table: lakelatch.Table, key: str, number: int) -> None:
    """A row that appears by another stream, and so with the defaults of a."""
    table.stream("n").upsert([{"id": key, "n": number, "n_at": 1}], batch=("web", number))


@pytest.mark.parametrize("cut", some(range(5), 2))
def test_a_row_keeps_the_default_with_which_it_appeared(table: lakelatch.Table, cut: int) -> None:
    """Whenever a compaction was, and whatever was declared since."""
    stream, times = table.stream("a"), []
    for number, default in enumerate((None, 5, 5, None, 7)):
        if number:
            stream.alter(default={"a": default})
        add(table, f"k{number}", number)
        times.append(table.commits()[-1][0].completed)
        if number == cut:
            table.compact()
        expected = dict(zip([f"k{n}" for n in range(5)], [1, 5, 5, None, 7], strict=True))
        assert read(table, "a") == {key: value for key, value in expected.items() if int(key[1]) <= number}
        (told,) = table.explain_row(f"k{number}")
        assert {each.column: each.value for each in told.cells}["a"] == expected[f"k{number}"]
    assert [each.value for each in stream.declaration.defaults] == [1, 5, None, 7]
    assert stream.declaration.present == {"a": 7}
    assert "a = 7 by default" in repr(stream)
    stream.delete([{"id": "k1", "a_at": 9}])  # a clear is of now
    table.compact()
    assert read(table, "a") == expected | {"k1": 7}
    assert read(table, "a", as_of_completion=times[1]) == {"k0": 1, "k1": 5}
    slots = table.session.log.next_slot
    stream.alter(default={"a": 7})
    assert table.session.log.next_slot == slots, "it is so already"


def test_a_null_is_what_it_was_when_it_was_written(table: lakelatch.Table) -> None:
    stream = table.stream("a")
    stream.upsert([{"id": key, "a": 5, "word": "w", "a_at": 1} for key in "kl"])
    stream.upsert([{"id": "k", "a": None, "word": "x", "a_at": 2}])
    with pytest.raises(InputError, match="foreign_readers=False"):
        stream.alter(null="write")
    assert stream.alter(null="write", foreign_readers=False).null == "write"
    stream.upsert([{"id": "l", "a": None, "word": None, "a_at": 2}])
    expected = {"k": (5, "x"), "l": (None, None)}
    assert read(table, "a", "word") == expected
    for key, values in expected.items():
        (told,) = table.explain_row(key)
        assert tuple(each.value for each in told.cells if each.column in ("a", "word")) == values
    table.compact()
    assert read(table, "a", "word") == expected


def test_a_merger_is_changed_while_there_was_no_event(table: lakelatch.Table) -> None:
    stream = table.stream("n")
    assert stream.alter(merge={"n": "max"}).merge == (("n", "max"),)
    table.stream("a").upsert([{"id": "k", "a": 1, "word": "", "a_at": 1}])
    assert stream.alter(merge={"n": "last"}).merge == ()
    with pytest.raises(InputError, match="can't have the merger first"):
        stream.alter(merge={"n": "first"})
    assert stream.alter(merge={"n": "count"}).merge == (("n", "count"),)
    table.compact()
    stream.delete([{"id": "k", "n_at": 5}], batch=("web", 0))
    for _ in range(2):  # of a row that is gone base files tell that there was one
        with pytest.raises(InputError, match=r"has had events, .* Nothing was changed"):
            stream.alter(merge={"n": "max"})
        table.compact()
    assert stream.declaration.merge == (("n", "count"),)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"default": {"a": "x"}}, "is no value of type int64"),
        ({"default": {"nope": 1}}, "no value of it"),
        ({"default": {"a_at": 1}}, "no value of it"),
        ({"default": 5}, "default=5 is no dict"),
        ({"default": {"a": float("nan")}}, "give a truth value"),
        ({"null": "skip"}, "null='skip' is unknown"),
        ({"merge": {"a": "sum"}}, "foreign_readers=False"),
        ({"merge": {"a": "nope"}, "foreign_readers": False}, "nope"),
        ({"merge": ["a"]}, "no dict of mergers"),
        ({"merge": {"n": "sum"}}, "no value of the stream"),
        ({"foreign_readers": 5}, "foreign_readers"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    table: lakelatch.Table, given: dict[str, Any], told: str
) -> None:
    before = table.streams
    with pytest.raises(InputError, match=told):
        table.stream("a").alter(**given)
    assert table.session.log.catch_up().settings.streams == before


@pytest.mark.parametrize("change", ["drop", "alter"])
def test_an_event_that_was_on_its_way_does_not_land_by_what_was_declared_before(
    table: lakelatch.Table, change: str
) -> None:
    with lakelatch.open(table.url, env=table.env, writer="other") as other:
        lost, alone = other.transaction(), other.transaction()
        lost.stream("a").upsert([{"id": "k", "a": 5, "word": "", "a_at": 1}])
        stream = table.stream("a")
        stream.drop() if change == "drop" else stream.alter(null="write", foreign_readers=False)
        with pytest.raises(ConflictError, match=r"'a' was declared, changed or dropped since\. Nothing of it landed"):
            lost.commit()
        alone.abort()
        event = [{"id": "k", "a": 6, "word": "", "a_at": 1}]
        if change == "alter":
            other.stream("a").upsert(event)
            assert read(table, "a") == {"k": 6}
            return
        for write in (lambda: other.stream("a").upsert(event), lambda: stream.delete([{"id": "k", "a_at": 1}])):
            with pytest.raises(InputError, match="was dropped, and takes no events; nothing was written"):
                write()
        assert read(table, "a") == {}


def test_what_a_dropped_stream_has_written_stays_and_it_can_come_back(table: lakelatch.Table) -> None:
    stream = table.stream("a")
    stream.upsert([{"id": "k", "a": 5, "word": "w", "a_at": 5}])
    before = table.commits()[-1][0].completed
    assert stream.drop().dropped
    assert stream.drop() == stream.declaration, "again: nothing changes"
    add(table, "l", 1)
    for _ in range(2):
        assert read(table, "a") == {"k": 5, "l": None}, "its defaults are gone"
        table.compact()
    assert read(table, "a", as_of_completion=before) == {"k": 5}
    with pytest.raises(InputError, match="was dropped; `undrop` it"):
        stream.alter(default={"a": 2})
    table.add_column("b", "bigint")
    table.add_column("b_at", "bigint")
    with pytest.raises(InputError, match="wrote a already"):
        table.stream("b", columns=["b", "a"], ordering="b_at")
    with pytest.raises(InputError, match="was dropped, and takes no events; `undrop` lets it go on"):
        table.stream("a", **STREAMS["a"])
    for _ in range(2):
        back = stream.undrop()
        assert (back.dropped, back.edition, back.present) == (False, 2, {})
    stream.alter(default={"a": 3})
    table.stream("a").upsert(
        [{"id": "k", "a": 4, "word": "late", "a_at": 4}, {"id": "m", "a": None, "word": "", "a_at": 1}]
    )
    assert read(table, "a") == {"k": 5, "l": None, "m": 3}


def test_who_owns_the_life_of_rows_is_free_once_that_stream_is_dropped(table: lakelatch.Table) -> None:
    add(table, "k", 1)
    table.stream("n").drop()
    table.add_column("b", "bigint")
    table.add_column("b_at", "bigint")
    table.stream("b", columns="b", ordering="b_at", on_delete="row").delete([{"id": "k", "b_at": 1}])
    assert read(table, "n") == {}
    with pytest.raises(InputError, match="only one can"):
        table.stream("n").undrop()


def test_a_table_whose_log_is_lost_knows_what_was_changed_last(table: lakelatch.Table) -> None:
    before = table.streams
    table.stream("a").alter(default={"a": 2})
    table.stream("n").drop()
    now = table.streams
    assert newest_of(before, now) == newest_of(now, before) == now
    with lakelatch.open(table.url, env=table.env) as other:
        assert other.streams == now
    model = Model(("id",), list(now))
    model.apply("a", UPSERT, [{"id": "k", "a": None, "word": "w", "a_at": 1}])
    model.apply("a", CLEARED, [{"id": "k", "a_at": 2}])
    table.stream("a").upsert([{"id": "k", "a": None, "word": "w", "a_at": 1}])
    table.stream("a").delete([{"id": "k", "a_at": 2}])
    assert read(table, "a") == {key: row["a"] for (key,), row in model.rows().items()} == {"k": 2}
