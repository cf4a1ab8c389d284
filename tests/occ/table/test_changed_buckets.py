"""Tables that get another number of buckets, or their first, beside writers (`Table.change_buckets`)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.files import bucket_of
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import encode
from lakelatch.occ.entries.entries import _DECODERS, Commit, decode, prepared
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import At, LoseReply, On, Pause, Refuse

from ...thorough import crossed, some
from ..world import World, Writer, independent_content

SCHEMA = pa.schema([("id", "string"), ("part", "string"), ("v", "int64")])


def row(number: int, v: int = 0) -> dict[str, Any]:
    return {"id": f"k\U0001f600{number}", "part": f"p{number % 2}", "v": v}


ROWS = [row(number) for number in range(12)]
IN_TWO = {"bucket_count": 2}


def filled(folder: Path, **given: Any) -> lakelatch.Table:
    """A table with some history, in log files where it has such."""
    table = lakelatch.create(
        str(folder),
        **{"record_key": "id", "partition_by": "part", "schema": SCHEMA, "env": FakeEnvironment(seed=1)} | given,
    )
    table.insert([row(number, -1) for number in range(13)])
    table.upsert(ROWS)
    table.delete([row(12)])
    return table


def content(table: lakelatch.Table) -> dict[str, int]:
    found = [(each["id"], each["v"]) for each in table.read().to_pylist()]
    assert len(dict(found)) == len(found), "a key stands twice"
    return dict(found)


def in_buckets(table: lakelatch.Table, count: int) -> None:
    """Each key is where a bucket index looks for it, and nobody sees more than so many files of a partition."""
    assert table.session.log.catch_up().settings.bucket_count == count
    places = [(each.partition, bucket_of(each.file_id)) for each in table.snapshot().file_slices()]
    assert len(places) == len(set(places))
    assert {place for _, place in places} <= set(range(count))
    assert not check(table.store, deep=True).findings


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "table"
    filled(folder, **IN_TWO).close()
    return folder


@pytest.fixture
def world(base: Path, folder: Path) -> Iterator[World]:
    made = World(folder / "table", model=base)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "given"),
    crossed(
        [(type_, version) for type_ in ("copy_on_write", "merge_on_read") for version in (8, 9)],
        [{}, IN_TWO, {"ordering_field": "v"}, {"ordering_field": "v", "bucket_count": 3, "strategy": "bucket"}],
    ),
)
def test_every_kind_of_table_keeps_its_rows_and_finds_them(
    folder: Path, kind: tuple[str, int], given: dict[str, Any]
) -> None:
    pick = random.Random(f"{kind} {given}")
    with filled(folder / "t", type=kind[0], table_version=kind[1], **given) as table:
        other, model = lakelatch.open(table.url, env=table.env.peer(), writer="other"), content(table)
        for number, count in enumerate((5, 1, 4)):
            plan = table.change_buckets(count, dry_run=True)
            assert (plan.done, plan.before, plan.partitions) == (False, table.settings.bucket_count, 2)
            assert table.change_buckets(count).files == plan.files > 0
            in_buckets(table, count)
            assert content(table) == content(other) == model
            rows = [row(each, number + 1) for each in pick.sample(range(20), 6)]
            (other.insert if number % 2 else other.upsert)(rows)
            model |= {each["id"]: each["v"] for each in rows}
            gone = pick.choice(sorted(model))
            other.delete(
                [{"id": gone, "part": next(each["part"] for each in map(row, range(20)) if each["id"] == gone)}]
            )
            del model[gone]
            assert content(table) == model
        assert table.change_buckets(4).files == 0
        in_buckets(other, 4)
        assert independent_content(folder / "t") == model or kind[0] == "merge_on_read"
        other.close()


CALLS = 130  # more than a change of this table makes


@pytest.mark.parametrize("at", some(range(1, CALLS), 9))
def test_one_that_was_killed_at_any_call_has_changed_all_or_nothing(world: World, at: int) -> None:
    writer, other = world.writer("A"), world.writer("B")
    writer.store.add(*(Refuse(At(at + more), forever=more < 2) for more in range(300)))
    try:
        writer.table.change_buckets(5)
    except lakelatch.LakeLatchError:
        writer.die()
    with world.fresh() as table:
        assert content(table) == {each["id"]: 0 for each in ROWS}
        in_buckets(table, table.settings.bucket_count or 0)
    assert independent_content(world.folder) == {each["id"]: 0 for each in ROWS}
    other.table.insert([row(0, 7)])
    other.table.change_buckets(5)
    other.table.insert([row(1, 7)])
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert content(table) == {each["id"]: 0 for each in ROWS} | {row(0)["id"]: 7, row(1)["id"]: 7}
        in_buckets(table, 5)


@pytest.mark.parametrize("at", some(range(1, CALLS), 7))
def test_one_request_that_fails_hurts_nothing(world: World, at: int) -> None:
    writer = world.writer("A")
    writer.store.add(LoseReply(At(at)) if at % 2 else Refuse(At(at)))
    for _ in range(2):
        try:
            writer.table.change_buckets(5)
        except lakelatch.LakeLatchError:
            continue
        break
    with world.fresh() as table:
        in_buckets(table, 5)
        assert content(table) == {each["id"]: 0 for each in ROWS}


def during(writer: Writer, what: Callable[[], object], *, forever: bool = False) -> None:
    """While a layout writes the first bucket of a partition."""
    writer.store.add(Pause(On("create", "part=p0/00000000"), what, forever=forever))


@pytest.mark.parametrize("before", [2, None])
def test_rows_that_others_write_meanwhile_are_laid_out_too(world: World, before: int | None) -> None:
    """In a partition that the plan does not know, so that no file group is in both."""
    writer, other = world.writer("A"), world.writer("B")
    if before is None:
        writer.table.change_settings(bucket_count=None)
    new = [{**row(number, 3), "part": "new"} for number in range(50, 60)]
    during(writer, lambda: other.table.insert(new))
    assert writer.table.change_buckets(5).done
    in_buckets(other.table, 5)
    assert content(writer.table) == {each["id"]: each["v"] for each in (*ROWS, *new)}
    other.table.insert([{**each, "v": 4} for each in new])
    assert content(writer.table) == {each["id"]: each["v"] for each in ROWS} | {each["id"]: 4 for each in new}


@pytest.mark.parametrize("before", [2, None])
def test_it_gives_up_beside_one_that_never_stops_inserting(world: World, before: int | None) -> None:
    writer, other = world.writer("A"), world.writer("B")
    writer.table.change_settings(bucket_count=before)
    numbers = iter(range(100, 10_000))

    def insert() -> None:
        number = next(numbers)
        other.table.insert([{**row(number), "part": f"new{number}" if before else "p0"}])

    during(writer, insert, forever=True)
    with pytest.raises(lakelatch.ConflictError, match="pause writers"):
        writer.table.change_buckets(5)
    assert other.table.settings.bucket_count == before
    assert not check(other.table.store, deep=True).findings


def test_writers_at_work_lose_nothing(folder: Path) -> None:
    table = filled(folder / "t", env=lakelatch.environment.SYSTEM, lock="table", **IN_TWO)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with lakelatch.open(table.url, writer=f"w{number}") as mine:
                for turn in range(8):
                    mine.upsert([row(number + 100 + 10 * turn)])
                    mine.insert([row(number, turn + 1)])
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    for each in threads:
        each.start()
    for count in (5, 3):
        table.change_buckets(count)
    for each in threads:
        each.join()
    assert not errors
    in_buckets(table, 3)
    found = {row(number + 100 + 10 * turn)["id"] for number in (0, 1) for turn in range(8)}
    assert content(table) == dict.fromkeys((*found, *(each["id"] for each in ROWS)), 0) | {
        row(0)["id"]: 8,
        row(1)["id"]: 8,
    }
    table.close()


def test_a_transaction_that_began_before_does_not_commit(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    late = other.table.transaction("insert")
    late.insert([{**row(60), "part": "new"}])
    writer.table.change_buckets(5)
    with pytest.raises(lakelatch.ConflictError, match="another number of buckets"):
        late.commit()
    other.table.insert([{**row(60), "part": "new"}])
    in_buckets(other.table, 5)


def test_files_that_were_written_by_a_number_that_came_and_went_do_not_land(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    late = other.table.transaction("insert")
    writer.table.change_buckets(5)
    other.table.session.log.catch_up()
    late.insert([{**row(number), "part": "new"} for number in range(60, 70)])
    writer.table.change_buckets(2)
    with pytest.raises(lakelatch.ConflictError, match="another number of buckets"):
        late.commit()
    in_buckets(other.table, 2)


def test_a_plan_that_was_made_under_other_buckets_is_not_executed(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    during(writer, lambda: other.table.change_settings(bucket_count=None))
    with pytest.raises(lakelatch.ConflictError, match="another number of buckets"):
        writer.table.change_buckets(5)
    assert writer.table.change_buckets(5).before is None
    in_buckets(other.table, 5)


def test_the_entry_is_of_a_kind_of_its_own_that_stays_in_force(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.writer("A").table
    table.change_buckets(5)
    events = table.events(after=table.timeline().commits[0].requested)
    assert (
        next(each.reason for each in events if each.operation == "CLUSTER" and each.event == "commit")
        == "bucket_count=5"
    )
    entry = next(each for each in table.session.log.entries() if isinstance(each, Commit) and each.buckets)
    body = encode(entry, 1, entry.slot, "n")
    assert decode(body, "x") == entry
    raw = json.loads(body)
    for wrong in (0, -1, True, "5", 10**8):
        with pytest.raises(lakelatch.CorruptTableError, match="buckets"):
            decode(json.dumps(raw | {"buckets": wrong}).encode(), "x")
    with pytest.raises(ValueError, match="no number of buckets"):
        prepared(entry.fields(), instant=entry.instant, slot=1)
    monkeypatch.delitem(_DECODERS, entry.kind)  # as earlier versions are
    with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
        decode(body, "x")
    monkeypatch.undo()
    state = table.session.log.catch_up()
    assert state.carried(state.settled + 1).settings.bucket_count == 5


def test_no_restore_goes_behind_it(world: World) -> None:
    table = world.writer("A").table
    target = table.timeline().commits[-1].requested
    table.change_buckets(5)
    with pytest.raises(lakelatch.LakeLatchError, match="bucket_count=5"):
        table.restore(target)
    in_buckets(table, 5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"type": "merge_on_read", "table_version": 9, "streams": {"s": {"columns": "v", "ordering": "at"}},
             "schema": SCHEMA.append(pa.field("at", "int64"))},
            "tables? with streams",
        ),
        ({"neighbours": "hudi", "lock": "file://{folder}/lock?jvm=lock"}, "num.buckets"),
    ],
)  # fmt: skip
def test_tables_whose_writers_would_go_on_with_the_old_number_are_refused(
    folder: Path, given: dict[str, Any], told: str
) -> None:
    asked = {"record_key": "id", "schema": SCHEMA, "bucket_count": 2} | given
    asked["lock"] = asked.get("lock", "table").format(folder=folder)
    with lakelatch.create(str(folder / "t"), **asked) as table:
        for dry_run in (True, False):
            with pytest.raises(lakelatch.ConfigError, match=told):
                table.change_buckets(4, dry_run=dry_run)
        assert table.settings.bucket_count == 2


def test_a_pending_plan_of_another_is_in_the_way(world: World) -> None:
    table = world.writer("A").table
    table.change_settings(bucket_count=None)
    table.insert([row(70)])
    planned = table.plan_clustering()
    assert planned is not None
    with pytest.raises(lakelatch.ConflictError, match="pending plan"):
        table.change_buckets(4)
    table.cancel_plan(planned)
    table.change_buckets(4)
    in_buckets(table, 4)
