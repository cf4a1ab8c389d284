"""A table with streams whose commit log was lost: it comes back with all of its events, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.errors import ConfigError, InputError, UnsupportedTableError
from lakelatch.testing import FakeEnvironment

NUMBERS = [(name, pa.int64()) for name in ("n", "at", "seen", "late")]
SCHEMA = pa.schema([("id", pa.string()), ("state", pa.string()), *NUMBERS])
STREAMS: dict[str, dict[str, Any]] = {
    "clicks": {
        "columns": ["n"],
        "ordering": "at",
        "merge": {"n": "sum"},
        "default": {"n": 7},
        "foreign_readers": False,
    },
    "orders": {"columns": ["state"], "ordering": "seen", "on_delete": "row"},
}
PROPERTIES = Path(".hoodie/hoodie.properties")


class Lost:
    """A table with events in base and log files, late ones among them, and its rows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder, FakeEnvironment(seed=1)
        with lakelatch.create(
            str(folder), record_key="id", schema=SCHEMA, bucket_count=4, streams=STREAMS, env=self.env
        ) as t:
            clicks, orders = t.stream("clicks"), t.stream("orders")
            clicks.upsert([{"id": "a", "n": 100, "at": 5}, {"id": "b", "n": 1, "at": 5}], batch=("web", 1))
            orders.upsert([{"id": "a", "state": "paid", "seen": 9}])
            t.compact()
            clicks.upsert([{"id": "a", "n": 1, "at": 1}], batch=("web", 2))
            clicks.upsert([{"id": "a", "n": 2, "at": 2}], batch=("web", 3))
            orders.upsert([{"id": "a", "state": "open", "seen": 1}])
            orders.delete([{"id": "b", "seen": 3}])
            self.rows, self.streams = self.read(t), t.streams
        assert self.rows == {"a": (110, "paid")}

    def lose(self, what: str = ".hoodie/.lakelatch") -> None:
        shutil.rmtree(self.folder / what)
        self.env.advance(100)

    def adopt(self, **given: Any) -> lakelatch.Table:
        return lakelatch.adopt(str(self.folder), env=self.env, **given)

    def edit(self, change: Callable[[list[str]], list[str]]) -> None:
        """Change lines of the properties."""
        path = self.folder / PROPERTIES
        path.write_text("\n".join([*change(path.read_text().splitlines()), ""]))

    def forget(self) -> None:
        """Make the properties those of a version that kept declarations in the log alone."""
        self.edit(lambda lines: [each for each in lines if "streams.declared" not in each])

    @staticmethod
    def read(table: lakelatch.Table) -> dict[str, tuple[Any, Any]]:
        return {row["id"]: (row["n"], row["state"]) for row in table.read().to_pylist()}


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path / "t")


def test_streams_mergers_and_buckets_come_back_from_the_properties(lost: Lost) -> None:
    lost.lose()
    with lakelatch.open(str(lost.folder)) as reader:
        assert not reader.writable
        assert (lost.read(reader), reader.streams) == (lost.rows, lost.streams)
    with lost.adopt() as table:
        assert (table.streams, table.settings.bucket_count) == (lost.streams, 4)
        assert lost.read(table) == lost.rows
        assert table.stream("clicks").upsert([{"id": "a", "n": 2, "at": 2}], batch=("web", 3)).repeated
        table.stream("clicks").upsert([{"id": "a", "n": 1000, "at": 3}], batch=("web", 4))
        table.stream("orders").upsert([{"id": "b", "state": "late", "seen": 2}])
        for _ in range(2):
            assert lost.read(table) == {"a": (1110, "paid")}, "b was deleted at 3"
            table.compact()


def test_what_is_declared_after_that_is_kept_too(lost: Lost) -> None:
    lost.lose()
    with lost.adopt() as table:
        table.add_column("late_at", "int64")
        table.stream("more", columns=["late"], ordering="late_at", default={"late": 3})
    lost.lose()
    with lost.adopt() as table:
        assert [each.name for each in table.streams] == ["clicks", "orders", "more"]
        table.stream("more").upsert([{"id": "z", "late": None, "late_at": 1}])
        assert {row["id"]: row["late"] for row in table.read().to_pylist()} == {"a": None, "z": 3}


def test_a_batch_that_is_archived_is_not_taken_twice(lost: Lost) -> None:
    with lakelatch.open(str(lost.folder), env=lost.env) as table:
        table.compact()
        table.clean(retain_commits=1)
        for n in range(4):
            table.stream("orders").upsert([{"id": "z", "state": "x", "seen": n}])
        table.compact()
        table.clean(retain_commits=1)
        assert table.archive(keep_min=1, keep_max=2).instants >= 5
    lost.lose()
    with lost.adopt() as table:
        for number in (1, 3):
            assert table.stream("clicks").upsert([{"id": "a", "n": 2, "at": 2}], batch=("web", number)).repeated
        assert lost.read(table)["a"] == lost.rows["a"]


def test_a_torn_log_loses_no_declaration(lost: Lost) -> None:
    """Its entries are read up to the torn one, which stands before the second declaration."""
    (epoch,) = (lost.folder / ".hoodie/.lakelatch/log").iterdir()
    settings = [path for path in sorted(epoch.iterdir()) if json.loads(path.read_text())["kind"] == "setting"]
    assert len(settings) == 2
    settings[1].write_bytes(b'{"v":1,"kind')
    lost.env.advance(100)
    with lost.adopt() as table:
        assert table.streams == lost.streams
        assert lost.read(table) == lost.rows


def test_declarations_that_nobody_kept_are_asked_for_and_compared_with_the_events(lost: Lost) -> None:
    lost.forget()
    lost.lose()
    with pytest.raises(UnsupportedTableError, match="has streams, and neither a log nor its properties say which"):
        lost.adopt(bucket_count=4)
    with lakelatch.open(str(lost.folder)) as reader, pytest.raises(UnsupportedTableError, match="has streams"):
        reader.read().to_arrow()
    wrong = [
        ({"clicks": STREAMS["clicks"]}, UnsupportedTableError, "events of stream 'orders' with state"),
        (
            STREAMS | {"clicks": {"columns": ["late"], "ordering": "at"}},
            UnsupportedTableError,
            "stream 'clicks' with n, which",
        ),
        (STREAMS | {"clicks": {"columns": ["n"], "ordering": "seen"}}, InputError, "writes seen already"),
    ]
    for streams, error, words in wrong:
        with pytest.raises(error, match=words):
            lost.adopt(bucket_count=4, streams=streams)
    with pytest.raises(ConfigError, match="have a bucket index"):
        lost.adopt(streams=STREAMS)
    with pytest.raises(ConfigError, match="cannot have bucket_count=1"):
        lost.adopt(bucket_count=1, streams=STREAMS)
    assert not (lost.folder / ".hoodie/.lakelatch").exists()
    with lost.adopt(bucket_count=4, streams=STREAMS) as table:
        assert lost.read(table) == lost.rows
    lost.lose()
    with lost.adopt() as table:
        assert lost.read(table) == lost.rows, "the properties have them now"


def test_what_is_known_is_not_declared_otherwise(lost: Lost) -> None:
    lost.lose()
    with pytest.raises(ConfigError, match="knows its streams"):
        lost.adopt(streams=STREAMS)
    with pytest.raises(ConfigError, match="has 4 buckets, as its properties say, and bucket_count=8 was asked for"):
        lost.adopt(bucket_count=8)
    with lost.adopt(bucket_count=4) as table:
        assert lost.read(table) == lost.rows


def test_properties_that_know_of_no_streams_do_not_make_rows_of_events(lost: Lost) -> None:
    lost.edit(lambda lines: [each for each in lines if "lakelatch" not in each.lower() and "partial" not in each])
    lost.lose()
    words = r"has events of a stream, and .*hoodie\.properties does not say"
    with lakelatch.open(str(lost.folder)) as reader, pytest.raises(UnsupportedTableError, match=words):
        reader.read().to_arrow()
    with pytest.raises(UnsupportedTableError, match="neither a log nor the properties declare so"):
        lost.adopt(bucket_count=4)


def test_declarations_that_cannot_be_read_are_damage(lost: Lost) -> None:
    lost.edit(lambda lines: [each[:60] if "streams.declared" in each else each for each in lines])
    lost.lose()
    with pytest.raises(lakelatch.CorruptTableError, match=r"lakelatch.streams.declared of .* cannot be read"):
        lost.adopt()


def test_base_files_that_another_engine_has_merged_are_not_adopted(lost: Lost) -> None:
    with lakelatch.open(str(lost.folder), env=lost.env) as table:
        table.compact()
    path = max(lost.folder.glob("*.parquet"), key=lambda each: each.name.rpartition("_")[2])
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    lost.lose()
    with pytest.raises(UnsupportedTableError, match=r"of another engine has merged events .* rollback_to_instant"):
        lost.adopt()
    assert not (lost.folder / ".hoodie/.lakelatch").exists()


def test_the_properties_are_never_older_than_an_event(lost: Lost) -> None:
    """A writer that knows a stream which the properties lack tells them before its first event."""
    lost.forget()
    with lakelatch.open(str(lost.folder), env=lost.env) as table:
        table.stream("clicks").upsert([{"id": "q", "n": 1, "at": 1}], batch=("web", 9))
    lost.lose()
    with lost.adopt() as table:
        assert lost.read(table) == lost.rows | {"q": (8, None)}
