"""A stream overwritten in some partitions (`TableStream.overwrite`), and partitions of a table with streams that are dropped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import ConflictError, InputError
from lakelatch.occ.check.check import check
from lakelatch.testing import FakeEnvironment

Row = dict[str, Any]
_KEPT = [("n", pa.int64()), ("click", pa.string()), ("click_at", pa.int64())]
SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string())]
    + [(name, pa.int64()) for name in ("a", "a_at", "b", "b_at", "s", "s_at", "more", "more_at")]
    + [*_KEPT, ("clicks", pa.list_(pa.struct(_KEPT)))]
)
STREAMS: dict[str, dict[str, Any]] = {
    "a": {"columns": "a", "ordering": "a_at", "on_delete": "row"},
    "b": {"columns": "b", "ordering": "b_at", "default": {"b": -1}},
}
SUMS: dict[str, dict[str, Any]] = {
    "s": {"columns": "s", "ordering": "s_at", "merge": {"s": "sum"}, "default": {"s": 100}, "foreign_readers": False},
    "k": {"columns": "n", "ordering": "click_at", "merge": {"n": "sum"}, "event_id": "click", "events": "clicks"},
}
SUMS["k"]["foreign_readers"] = False


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model") / "t"
    env = FakeEnvironment(seed=1)
    given: dict[str, Any] = {
        "record_key": "id",
        "partition_by": "part",
        "schema": SCHEMA,
        "bucket_count": 2,
        "env": env,
    }
    lakelatch.create(str(made), **given, streams=STREAMS | SUMS).close()
    return made


@pytest.fixture
def table(model: Path, folder: Path) -> Iterator[lakelatch.Table]:
    shutil.copytree(model, folder / "t")
    with lakelatch.open(str(folder / "t"), env=FakeEnvironment(seed=2)) as opened:
        yield opened
        assert not [each for each in check(opened.store).findings if each.severity != "note"]


@pytest.fixture
def other(table: lakelatch.Table) -> Iterator[lakelatch.Table]:
    with lakelatch.open(table.url, env=table.env, writer="other") as opened:
        yield opened


def row(key: str = "x", part: str = "p", **values: Any) -> Row:
    return {"id": key, "part": part} | values


def a(key: str, at: int, value: int, part: str = "p") -> Row:
    return row(key, part, a=value, a_at=at)


def b(key: str, at: int, value: int | None, part: str = "p") -> Row:
    return row(key, part, b=value, b_at=at)


def content(table: lakelatch.Table, *names: str) -> dict[str, Any]:
    read = table.read(columns=["id", "part", *(names or ("a", "b"))]).to_pylist()
    found = {f"{each.pop('part')}/{each.pop('id')}": tuple(each.values()) for each in read}
    assert len(found) == len(read), "a key twice"
    return found


@pytest.mark.parametrize("compacts", [False, True])
def test_what_the_stream_said_before_counts_no_more_and_what_it_says_after_does(
    table: lakelatch.Table, *, compacts: bool
) -> None:
    stream = table.stream("a")
    stream.upsert([a("x", 9, 9), a("y", 9, 9), a("z", 9, 9), a("x", 9, 9, "q")])
    table.stream("b").upsert([b("x", 1, 1), b("z", 1, 1)])
    if compacts:
        table.compact()
    assert stream.overwrite([a("x", 3, 3), a("new", 3, 3), a("x", 2, 2)]).operation == "insert_overwrite"
    expected = {"p/x": (3, 1), "p/z": (None, 1), "p/new": (3, -1), "q/x": (9, -1)}
    for _ in range(2):
        assert content(table) == expected, "y was made by this stream alone"
        table.compact()
    stream.upsert([a("x", 2, 8), a("new", 4, 4), a("z", 0, 0)])
    for _ in range(2):
        assert content(table) == expected | {"p/new": (4, -1), "p/z": (0, 1)}
        table.compact()


def test_named_partitions_may_become_empty_and_rows_of_others_are_refused(table: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 9, 9), a("y", 9, 9, "q")])
    with pytest.raises(InputError, match="rows of partition 'part=q' are not among the partitions to overwrite"):
        table.stream("a").overwrite([a("y", 1, 1, "q")], partitions=[{"part": "p"}])
    with pytest.raises(InputError, match="'part=p/q' cannot be a partition"):
        table.stream("a").overwrite([], partitions=["part=p/q"])
    with pytest.raises(InputError, match="the rows lack a_at of stream 'a'"):
        table.stream("a").overwrite([row(a=1)])
    assert table.stream("a").overwrite([]).instant is None, "no partition occurs"
    table.stream("a").overwrite([], partitions=[{"part": "p"}, {"part": "never"}, {"part": "p/q"}])
    assert content(table) == {"q/y": (9, -1)}


def test_what_is_left_of_other_streams_decides_about_a_row(table: lakelatch.Table) -> None:
    """An event of another stream keeps it, whatever that stream's values are; a default does not."""
    table.stream("a").upsert([a(key, 5, 5) for key in ("null", "cleared", "back", "default")])
    table.stream("b").upsert([b("null", 1, None), b("cleared", 1, 1)])
    table.stream("b").delete([row("cleared", b_at=2)])
    table.compact()  # which writes defaults down
    table.stream("a").overwrite([], partitions=[{"part": "p"}])
    assert content(table) == {"p/null": (None, -1), "p/cleared": (None, -1)}


def test_rows_from_before_the_streams_stay(folder: Path) -> None:
    """One without any value too, of which a stream has said only what was taken back."""
    given: dict[str, Any] = {"record_key": "id", "partition_by": "part", "schema": SCHEMA}
    with lakelatch.create(str(folder / "t"), **given) as table:
        none = dict.fromkeys(SCHEMA.names)
        table.insert([none | row("empty"), none | row("valued", b=5), none | row("default", b=-1)])
        table.adopt_streams(STREAMS | SUMS, bucket_count=2)
        table.stream("a").upsert([a("valued", 1, 1), a("default", 1, 1)])
        table.stream("k").retract([row("empty", click="late")])
        for name in "ak":
            table.stream(name).overwrite([], partitions=[{"part": "p"}])
        assert content(table) == {"p/empty": (None, None), "p/valued": (None, 5)}


def test_deletes_of_the_stream_are_forgotten_and_what_they_did_to_others_is_not(table: lakelatch.Table) -> None:
    table.stream("b").upsert([b("x", 5, 5)])
    table.stream("a").delete([row("x", a_at=9)])
    table.stream("a").overwrite([a("x", 1, 1)])
    assert content(table) == {"p/x": (1, -1)}
    table.stream("b").upsert([b("x", 4, 4)])
    assert content(table) == {"p/x": (1, -1)}, "older than what the stream had written by the delete"
    table.stream("b").upsert([b("x", 5, 6)])
    assert content(table) == {"p/x": (1, 6)}


def test_deletes_remembered_for_other_streams_stay(table: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 1, 1)])
    table.stream("a").delete([row("x", a_at=9)])
    table.stream("b").overwrite([b("y", 1, 1)])
    table.compact()
    table.stream("a").upsert([a("x", 8, 8), a("y", 1, 1)])
    assert content(table) == {"p/y": (1, 1)}


def test_sums_begin_again_and_those_of_others_go_on(table: lakelatch.Table) -> None:
    sums, clicks = table.stream("s"), table.stream("k")
    sums.upsert([row(s=1, s_at=5), row("gone", s=1, s_at=5)], batch=("web", 1))
    sums.delete([row(s_at=9)], batch=("web", 2))  # what is older counts no more, until it is said again
    clicks.upsert([row(n=4, click="one", click_at=1), row(n=5, click="two", click_at=2)])
    clicks.retract([row(click="two"), row(click="late"), row("nobody", click="late")])
    sums.overwrite([row(s=7, s_at=1), row(s=7, s_at=0)], batch=("days", 1))
    expected = {"p/x": (114, 4)}
    for _ in range(2):
        assert content(table, "s", "n") == expected
        assert sums.overwrite([row(s=7, s_at=1)], batch=("days", 1)).repeated
        assert sums.upsert([row(s=1, s_at=5)], batch=("web", 1)).repeated, "older batches stay recorded"
        table.compact()
    sums.upsert([row(s=1, s_at=0)], batch=("web", 3))
    clicks.upsert([row(n=6, click="late", click_at=9), row("nobody", n=6, click="late", click_at=9)])
    clicks.upsert([row("nobody", n=7, click="in time", click_at=9)])
    assert content(table, "s", "n") == {"p/x": (115, 4), "p/nobody": (100, 7)}, "others' retractions are still in force"
    sums.overwrite([row(s=1, s_at=0)])  # none counts twice, so no batch is needed
    with pytest.raises(InputError, match="add more than a thousandth"):
        sums.overwrite([row(s=2**53, s_at=0), row(s=2**53, s_at=1)])


def test_kept_events_and_what_was_taken_back_of_them_go(table: lakelatch.Table) -> None:
    clicks = table.stream("k")
    clicks.upsert([row(n=4, click="one", click_at=1)])
    clicks.retract([row(click="two"), row("nobody", click="two")])
    table.stream("a").upsert([a("x", 1, 1)])
    table.compact()
    clicks.overwrite([row(n=8, click="three", click_at=0)])
    clicks.upsert([row(n=1, click="two", click_at=2), row("nobody", n=2, click="two", click_at=2)])
    assert content(table, "n", "a") == {"p/x": (9, 1), "p/nobody": (2, None)}
    (told,) = table.explain_row("x")
    assert {each.column: each.value for each in told.cells if each.column in ("n", "a")} == {"n": 9, "a": 1}


@pytest.mark.parametrize("compacts", [False, True])
def test_an_event_meanwhile_is_not_lost(table: lakelatch.Table, other: lakelatch.Table, *, compacts: bool) -> None:
    """Also one that begins a bucket, and one of another stream; a compaction hurts nobody."""
    table.stream("a").upsert([a("x", 5, 5), a("x", 5, 5, "q")])
    for event, partition in ((a("x", 1, 9), "p"), (b("bucket of its own", 1, 9), "p"), (a("x", 1, 9, "new"), "new")):
        txn = table.transaction("insert_overwrite")
        txn.stream("a").overwrite([a("y", 1, 1, partition)])
        if compacts:
            other.compact()
        other.stream("a" if "a" in event else "b").upsert([event])
        with pytest.raises(ConflictError, match=f"part={partition}"):
            txn.commit()
    txn = table.transaction("insert_overwrite")
    txn.stream("a").overwrite([a("y", 1, 1)])
    other.compact()
    other.stream("a").upsert([a("x", 9, 9, "q")])  # in another partition
    assert txn.commit() is not None
    assert content(table) == {"p/y": (1, -1), "p/bucket of its own": (None, 9), "q/x": (9, -1), "new/x": (9, -1)}


def test_an_event_that_began_before_is_written_again_after(table: lakelatch.Table, other: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 5, 5)])
    runs = []

    def work(txn: Any) -> None:
        txn.stream("a").upsert([a("x", 1, 9), a("x", 1, 9, "new")])
        if not runs:
            table.stream("a").overwrite([a("y", 1, 1), a("y", 1, 1, "new")])
        runs.append(txn.instant)

    assert other.run(work).attempts == 2
    assert content(table) == {"p/x": (9, -1), "p/y": (1, -1), "new/x": (9, -1), "new/y": (1, -1)}


def test_one_that_loses_reserves_its_place_and_lands(table: lakelatch.Table, other: lakelatch.Table) -> None:
    table.change_settings(yield_wait_s=1.0)
    table.stream("a").upsert([a("x", 5, 5)])
    held: list[Any] = []

    def work(txn: Any) -> None:
        txn.stream("a").overwrite([a("y", 1, 1)])
        rival = other.transaction()
        rival.stream("a").upsert([a("x", 1, 9)])
        if held:
            with pytest.raises(ConflictError, match=r"has reserved .*part=p"):
                rival.commit()
        else:
            rival.commit()
        held.append(txn.instant)

    assert table.run(work, operation="insert_overwrite").attempts == 2
    assert content(table) == {"p/y": (1, -1)}


def test_it_yields_early_to_what_has_landed(table: lakelatch.Table, other: lakelatch.Table) -> None:
    """Before it has written the second of two files."""
    table.change_settings(early_conflict_detection="direct")
    table.stream("a").upsert([a("x", 5, 5)])
    txn = table.transaction("insert_overwrite")
    other.stream("a").upsert([a("x", 1, 9)])
    with pytest.raises(ConflictError, match="both changed the same"):
        txn.stream("a").overwrite([a("y", 1, 1)])
    txn.abort()


def test_one_by_a_declaration_that_has_changed_does_not_land(table: lakelatch.Table, other: lakelatch.Table) -> None:
    """Also one beside a declaration of more defaults, which its rows lack."""
    for name, declare in (
        ("a", lambda stream: stream.alter(default={"a": 7})),
        ("late", lambda _: other.stream("late", columns="more", ordering="more_at", default={"more": 8})),
    ):
        txn = table.transaction("insert_overwrite")
        txn.stream("b").overwrite([b("x", 1, 1)])
        declare(other.stream("a"))
        with pytest.raises(ConflictError, match=f"stream '{name}' was declared, changed or dropped since"):
            txn.commit()
    assert content(table) == {}
    table.stream("b").overwrite([b("x", 1, 1)])
    assert content(table, "a", "more") == {"p/x": (7, 8)}


def test_several_in_one_transaction_land_together_or_not_at_all(table: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 5, 5), a("y", 5, 5)])
    table.stream("b").upsert([b("x", 5, 5), b("y", 5, 5)])

    def work(txn: Any) -> None:
        txn.stream("a").overwrite([a("x", 1, 1)])
        txn.stream("b").overwrite([b("x", 1, 1)])
        txn.stream("a").overwrite([a("x", 0, 0), a("z", 0, 0)])

    txn = table.transaction("insert_overwrite")
    work(txn)
    assert content(table) == {"p/x": (5, 5), "p/y": (5, 5)}
    txn.abort()
    assert content(table) == {"p/x": (5, 5), "p/y": (5, 5)}
    table.run(work, operation="insert_overwrite")
    assert content(table) == {"p/x": (0, 1), "p/z": (0, -1)}


def test_beside_it_a_transaction_replaces_nothing_by_hand(table: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 5, 5)])
    for write in (
        lambda txn: txn.new_file("part=p"),
        lambda txn: txn.drop_file_groups(txn.current.file_slices()),
        lambda txn: txn.stream("a").upsert([a("x", 6, 6)]),
    ):

        def work(txn: Any, write: Callable[[Any], Any] = write) -> None:
            txn.stream("a").overwrite([a("y", 1, 1)])
            write(txn)

        with pytest.raises(InputError, match=r"has streams|overwrite streams in it"):
            table.run(work, operation="insert_overwrite")
    with pytest.raises(InputError, match="was begun as 'upsert'"):
        table.run(lambda txn: txn.stream("a").overwrite([a("y", 1, 1)]))
    assert content(table) == {"p/x": (5, -1)}


@pytest.mark.parametrize("named", [None, {"part": "p"}])
def test_dropped_partitions_forget_all_streams(table: lakelatch.Table, named: Any) -> None:
    table.stream("a").upsert([a("x", 5, 5), a("y", 5, 5), a("x", 5, 5, "q")])
    table.stream("a").delete([row("y", a_at=9)])
    table.stream("k").retract([row(click="late")])
    table.compact()
    table.stream("b").upsert([b("x", 5, 5)])
    assert table.delete_all(partition=named).operation == "delete_partition"
    rest = {"q/x": (5, -1)} if named else {}
    assert content(table) == rest
    table.stream("a").upsert([a("y", 1, 1)])
    table.stream("k").upsert([row("y", n=1, click="late", click_at=1), row(n=1, click="late", click_at=1)])
    for _ in range(2):
        assert content(table, "a", "n") == {"p/y": (1, 1), "p/x": (None, 1)} | dict.fromkeys(rest, (5, None))
        table.compact()
    with pytest.raises(InputError, match="has no partition"):
        table.delete_all(partition={"part": "never"})


def test_a_compaction_that_was_planned_before_ends(table: lakelatch.Table, other: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 5, 5)])
    plan = other.plan_compaction()
    assert plan is not None
    table.stream("a").overwrite([a("y", 1, 1)])
    table.stream("a").upsert([a("z", 1, 1)])
    with pytest.raises(ConflictError):
        other.execute(plan)
    other.run_services()
    assert content(table) == {"p/y": (1, -1), "p/z": (1, -1)}


def test_changes_and_the_past_are_told_of_it(table: lakelatch.Table) -> None:
    table.stream("a").upsert([a("x", 5, 5), a("y", 5, 5), a("z", 5, 5)])
    table.stream("b").upsert([b("z", 1, 1), b("w", 1, 1)])
    before = table.change_feed().completion
    table.stream("a").overwrite([a("x", 1, 1), a("new", 1, 1)])
    feed = table.change_feed(after=before, columns=["id", "a", "b"]).to_pylist()
    assert sorted((each["_change"], each["id"], each["a"], each["b"]) for each in feed) == [
        ("delete", "y", 5, -1),
        ("insert", "new", 1, -1),
        ("update_after", "x", 1, -1),
        ("update_after", "z", None, 1),
        ("update_before", "x", 5, -1),
        ("update_before", "z", 5, 1),
    ]
    changes = table.changes(after=before).to_pylist()
    assert sorted(each["id"] for each in changes) == ["new", "x", "z"], "w is as it was"
    past = table.read(as_of_completion=before).to_pylist()
    assert {each["id"]: each["a"] for each in past} == {"x": 5, "y": 5, "z": 5, "w": None}
    table.clean(retain_commits=1)
    assert content(table) == {"p/x": (1, -1), "p/z": (None, 1), "p/w": (None, 1), "p/new": (1, -1)}


def test_hudi_rs_reads_right_after_it(folder: Path) -> None:
    given: dict[str, Any] = {"record_key": "id", "partition_by": "part", "bucket_count": 2, "streams": STREAMS}
    with lakelatch.create(str(folder / "t"), schema=pa.schema([*SCHEMA][:6]), **given) as table:
        table.stream("a").upsert([a("x", 5, 5), a("y", 5, 5), a("x", 5, 5, "q")])
        table.stream("a").upsert([a("x", 4, 4)])  # late, so hudi-rs is wrong from here to the next compaction
        table.stream("b").upsert([b("x", 1, 1)])
        table.stream("b").overwrite([b("x", 0, 0), b("new", 0, 0)])
        assert by_hudi_rs(folder / "t") == {("x", 5, 0), ("y", 5, -1), ("new", None, 0), ("x", 5, None)}
        table.delete_all(partition={"part": "p"})
        assert by_hudi_rs(folder / "t") == {("x", 5, None)}
        table.stream("b").upsert([b("y", 1, 1)])
        assert by_hudi_rs(folder / "t") == {("x", 5, None), ("y", None, 1)}


def by_hudi_rs(folder: Path) -> set[tuple[Any, ...]]:
    read = HudiTableBuilder.from_base_uri(str(folder)).build().read()
    return {(each["id"], each["a"], each["b"]) for each in pa.Table.from_batches(read).to_pylist()}


def test_one_whose_files_a_restore_has_taken_lost_against_it(table: lakelatch.Table, other: lakelatch.Table) -> None:
    first = table.stream("a").upsert([a("x", 1, 1)])
    table.stream("b").upsert([b("x", 1, 1)])
    txn = table.transaction("insert_overwrite")
    assert txn.snapshot.file_slices()
    assert first.instant is not None
    other.restore(first.instant)
    with pytest.raises(ConflictError, match="which landed first and takes back what ours reads"):
        txn.stream("a").overwrite([a("x", 0, 0)])
    txn.abort("it lost")
    assert content(table) == {"p/x": (1, -1)}
