"""The change feed: played back, it gives the table; on both types of tables, through rebases, services and late commits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch
from lakelatch.errors import InputError, TableError

from ...thorough import some

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
KEYS = [f"{part}{n}" for part in ("a", "b", "50% {x} \U0001f600") for n in range(5)]
KINDS: dict[str, dict[str, Any]] = {
    "copy_on_write": {},
    "ordered": {"ordering_field": "v"},
    "merge_on_read": {"type": "merge_on_read"},
    "buckets": {"type": "merge_on_read", "bucket_count": 2},
}


def table(folder: Path, **options: Any) -> lakelatch.Table:
    options = {"record_key": "id", "partition_by": "part", "schema": SCHEMA, "writer": "founder"} | options
    return lakelatch.create(str(folder), **options)


def rows(values: dict[str, int]) -> pa.Table:
    found = [{"id": k, "part": k[:-1], "v": v, "x": None if v % 2 else float("nan")} for k, v in values.items()]
    return pa.Table.from_pylist(found, SCHEMA)


def state(of: lakelatch.Table) -> dict[str, str]:
    return {row["id"]: repr(row) for row in of.read().to_pylist()}


def play(was: dict[str, str], feed: list[dict[str, Any]]) -> dict[str, str]:
    """The rows after these changes, each of which has to fit what is there."""
    now, before = dict(was), None
    for row in feed:
        data = repr({name: row[name] for name in SCHEMA.names})
        match row["_change"]:
            case "insert":
                assert row["id"] not in now
                now[row["id"]] = data
            case "delete":
                assert now.pop(row["id"]) == data
            case "update_before":
                assert now[row["id"]] == data
                before = row["id"]
            case "update_after":
                assert before == row["id"]
                assert now[row["id"]] != data
                now[row["id"]] = data
    return now


@pytest.mark.parametrize("seed", some(range(4), 2))
@pytest.mark.parametrize("kind", KINDS)
def test_played_back_it_gives_every_state(tmp_path: Path, kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    with table(tmp_path / "t", **KINDS[kind]) as t, lakelatch.open(str(tmp_path / "t"), writer="other") as other:
        t.insert(rows({key: rng.randrange(5) for key in KEYS[::2]}))
        moments = [(None, {}), (t.commits()[-1][0].order[0], state(t))]

        def a_few() -> pa.Table:
            return rows({key: rng.randrange(9) for key in rng.sample(KEYS, 3)})

        for _ in range(7):
            match rng.randrange(7):
                case 0:
                    t.upsert(a_few())
                case 1:
                    t.delete(a_few().select(["id", "part"]))
                case 2:
                    other.update_where(f"v < {rng.randrange(5)}", set={"v": lakelatch.sql("v + 5")})
                case 3:
                    t.delete_where(f"v = {rng.randrange(6)}")
                case 4:
                    t.compact() if t.config.merge_on_read else t.cluster()
                case 5:
                    t.overwrite(rows({"a0": 3, "a4": 4}))
                case 6:  # merged again onto what the other one has landed
                    txn = t.transaction()
                    txn.upsert(rows({"b0": 7, "a1": 7}))
                    other.upsert(rows({"b1": 8, "a2": 8}))
                    txn.commit()
            if (completion := t.commits()[-1][0].order[0]) != moments[-1][0]:
                moments.append((completion, state(t)))
        spans = [(one, other) for n, one in enumerate(moments) for other in moments[max(n, 1) :]]
        for (after, was), (until, wanted) in some(spans, 8):
            feed = t.change_feed(after=after, until=until)
            assert play(was, feed.to_pylist()) == wanted
        feed = t.change_feed(after=moments[1][0])
        assert feed.completion == moments[-1][0]
        assert feed.to_arrow().schema == feed.schema == pa.table(feed).schema
        assert t.change_feed(after=feed.completion).to_pylist() == []


def test_it_tells_commit_and_writer_and_leaves_out_what_did_not_change(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t, lakelatch.open(str(tmp_path / "t"), writer="{other}%s") as other:
        first = t.insert(rows({"a0": 1, "a1": 2}))
        second = other.upsert(rows({"a0": 1, "a1": 3}))
        found = t.change_feed(after=first.completion, columns=["id", "v"]).to_pylist()
        commit = {
            "_commit_completion": second.completion,
            "_commit_instant": second.instant,
            "_commit_writer": "{other}%s",
            "_commit_note": None,
        }
        assert found == [
            {"_change": "update_before", **commit, "id": "a1", "v": 2},
            {"_change": "update_after", **commit, "id": "a1", "v": 3},
        ]
        assert t.change_feed(after=first.completion, columns=["part"]).to_pylist() == []
        assert [row["_change"] for row in t.change_feed().to_pylist()] == ["insert"] * 2 + [
            "update_before",
            "update_after",
        ]
        t.add_column("new", "int64")
        assert t.change_feed(after=second.completion).to_pylist() == []
        t.upsert(rows({"a0": 9}).append_column("new", pa.array([5], pa.int64())))
        assert [row["new"] for row in t.change_feed(after=second.completion).to_pylist()] == [None, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_span_that_was_cleaned_is_refused_and_not_told_as_inserts(tmp_path: Path, kind: str) -> None:
    with table(tmp_path / "t", **KINDS[kind]) as t:
        times = [t.upsert(rows({"a0": n, "a1": n})).completion for n in range(1, 6)]
        if t.config.merge_on_read:
            t.compact()
            times += [t.upsert(rows({"a0": n})).completion for n in (6, 7)]
        was = state(t)
        late = t.change_feed(after=times[0])
        t.clean(retain_commits=1)
        with pytest.raises(InputError, match="have been cleaned; begin with `read`, and go on with after="):
            t.change_feed()
        with pytest.raises(InputError, match="have been cleaned"):
            t.change_feed(after=times[0])
        with pytest.raises(lakelatch.StorageError, match="a cleaning has taken it since"):
            late.to_arrow()
        t.upsert(rows({"a0": 9}))
        assert play(was, t.change_feed(after=times[-1]).to_pylist()) == state(t)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t:
        assert t.change_feed().to_pylist() == []
        t.insert(rows({"a0": 1}))
        with pytest.raises(InputError, match="no column 'nope'"):
            t.change_feed(columns=["nope"])
        with pytest.raises(InputError):
            t.change_feed(after="yesterday evening")
        feed = t.change_feed()
        t.add_column("_change", "string")
        with pytest.raises(InputError, match="a column _change of its own"):
            t.change_feed()
    with pytest.raises(TableError, match="closed"):
        feed.to_arrow()


@pytest.mark.parametrize("kind", KINDS)
def test_times_that_python_has_none_for_are_compared(tmp_path: Path, kind: str) -> None:
    """Of the years before 1 and after 9999, on their own and inside of other values."""
    moment = pa.timestamp("us", "UTC")
    inner = pa.struct([("at", moment)])
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64()), ("at", moment), ("in", inner)])

    def at(micros: int) -> pa.Table:
        column = pa.array([micros], moment)
        nested = pa.StructArray.from_arrays([column], fields=[inner.field(0)])
        return pa.table([["a"], ["p"], [1], column, nested], schema=schema)

    with table(tmp_path / "t", schema=schema, **KINDS[kind]) as made:
        for micros in (2**60, 2**60 + 1, 2**60 + 1, -(2**60)):
            made.upsert(at(micros))
        feed = made.change_feed().to_arrow()
    kinds = ["insert", "update_before", "update_after", "update_before", "update_after"]
    assert feed.column("_change").to_pylist() == kinds
    numbers = [2**60, 2**60, 2**60 + 1, 2**60 + 1, -(2**60)]
    for column in (feed.column("at"), pc.struct_field(feed.column("in"), "at")):
        assert column.cast(pa.int64()).to_pylist() == numbers


@pytest.mark.parametrize("replaced", [False, True])
def test_a_savepoint_is_not_taken_for_the_state_before_a_commit(tmp_path: Path, replaced: bool) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as t:
        first = t.insert([{"id": 1, "v": 1}])
        t.savepoint(first.instant)
        second = t.upsert([{"id": 1, "v": 2}])
        (t.overwrite_table if replaced else t.upsert)([{"id": 1, "v": 3}])
        t.clean(retain_commits=0)
        for after in (None, first.completion, second.completion):
            with pytest.raises(InputError, match="have been cleaned; begin with `read`"):
                t.change_feed(after=after)
