"""Anyone who only adds learns the table's schema from the log, and lists no data file for it."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.session.snapshot_cache import cold_view
from lakelatch.occ.table.table import Table

from ..world import SCHEMA, World, Writer, check_sound

COLUMNS = ("w", "x", "y", "z")


def append(writer: Writer, part: str, key: str, *more: str) -> None:
    """One row, with these columns beside those of every table here."""
    schema = pa.schema([*SCHEMA, *(pa.field(name, pa.int64()) for name in more)])
    with writer.table.transaction("insert") as txn:
        values = {"id": [key], "part": [part], "v": [1]} | {name: [1] for name in more}
        txn.new_file(f"part={part}").write(pa.table(values, schema=schema))


def listed(writer: Writer) -> list[str]:
    """What it listed of the table's data since the last reset."""
    return [c.path for c in writer.store.calls if c.op in ("list", "folders") and not c.path.startswith(".hoodie")]


def told(table: Table) -> str | None:
    table.session.log.catch_up()
    return table.session.log.state.schema_before(table.session.log.next_slot)


def new_epoch(writer: Writer) -> None:
    log = writer.table.session.log
    log.catch_up()
    log.close_epoch()
    log.catch_up()


def without_schema(world: World) -> int:
    """The epochs' first entries as an older version writes them."""
    changed = 0
    for path in (world.folder / LOG).glob("*/*"):
        entry = json.loads(path.read_bytes())
        if entry["kind"] == "open" and entry.pop("schema", None):
            path.write_text(json.dumps(entry, separators=(",", ":"), ensure_ascii=False))
            changed += 1
    return changed


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_the_first_append_of_a_handle_lists_no_data_file(world, epochs: int):
    founder = world.writer("founder")
    append(founder, "a", "new", "w")
    for _ in range(epochs):
        new_epoch(founder)
    writer = world.writer("A")
    append(writer, "a", "x", "w")
    append(writer, "b", "y", "w")
    assert listed(writer) == []
    assert world.content() == {"a0": 0, "a1": 0, "b0": 0, "b1": 0, "new": 1, "x": 1, "y": 1}
    with world.fresh() as table:
        assert table.schema().names == [*SCHEMA.names, "w"]
        check_sound(table)


def test_a_log_that_does_not_tell_is_no_hindrance(world):
    new_epoch(world.writer("founder"))
    assert without_schema(world) == 1
    writer = world.writer("A")
    assert told(writer.table) is None
    writer.insert("a", "x")
    assert listed(writer) == []  # the newest commit on the timeline tells
    world.writer("B").insert("a", "y")
    assert world.content().keys() >= {"x", "y"}


def test_a_writer_goes_on_where_an_older_version_has_opened_the_epoch(world):
    writer, other = world.writer("A"), world.writer("B")
    writer.insert("a", "x")
    new_epoch(other)
    assert without_schema(world) == 1
    writer.insert("a", "y")
    assert world.content().keys() >= {"x", "y"}


def test_what_a_restore_takes_back_is_not_told(world):
    writer = world.writer("A")
    before = writer.table.savepoint()
    append(writer, "a", "new", "w")
    assert "w" in told(writer.table)
    writer.table.restore(before.instant)
    for _ in range(2):
        assert told(writer.table) is None
        later = world.writer("later")
        later.insert("a", "x")
        assert later.table.schema().names == SCHEMA.names
        with later.table.transaction("insert") as txn:
            assert txn.schema.names == SCHEMA.names
            txn.allow_empty()
        writer.table.restore(before.instant)
        new_epoch(writer)


@pytest.mark.parametrize("seed", range(4))
def test_what_the_log_tells_is_what_the_timeline_says(make_world, seed: int):
    """At every begin, of new handles and of those that have been there all the time."""
    chance, world = random.Random(seed), make_world()
    writers = [world.writer("A"), world.writer("B")]
    begun, told_of = [], 0
    saved = writers[0].table.savepoint()
    for number in range(24):
        writer = chance.choice(writers)
        with world.fresh() as fresh:
            columns = fresh.schema().names[3:]
        match chance.choice(("add", "add", "widen", "close", "restore", "begin", "begin", "abort")):
            case "add":
                append(writer, chance.choice("ab"), f"x{number}", *columns)
            case "widen":
                append(writer, "a", f"x{number}", *dict.fromkeys((*columns, chance.choice(COLUMNS))))
            case "close":
                new_epoch(writer)
            case "restore" if not begun:
                writer.table.restore(saved.instant)
            case "begin":
                txn = writer.table.transaction("insert")
                begun.append((txn, cold_view(txn.session.store, txn.session.timeline(), as_of_completion=txn.instant)))
            case "abort" if begun:
                begun.pop()[0].abort()
        with world.fresh() as fresh:
            if (schema := told(fresh)) is not None:
                told_of += 1
                assert schema == cold_view(fresh.store, fresh.session.timeline()).schema
    for txn, view in begun:
        assert txn._attempt.schema_text == view.schema
        txn.abort()
    assert told_of
