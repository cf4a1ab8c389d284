"""Filled tables that become tables with streams (`Table.adopt_streams`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.files import bucket_of
from lakelatch.occ.check.check import check
from lakelatch.streams import CLEARED, DELETED, UPSERT
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import At, LoseReply, On, Pause, Refuse

from ...streams.model import Model, Row, State
from ...thorough import crossed, some
from ..world import World, Writer, independent_content

SCHEMA = pa.schema(
    [
        *[("id", "string"), ("part", "string"), ("v", "int64"), ("v_at", "float64")],
        *[("b", "string"), ("b_at", "int64"), ("b_seq", "int32"), ("n", "int64"), ("n_at", "int64")],
    ]
)
STREAMS: dict[str, dict[str, Any]] = {
    "v": {"columns": "v", "ordering": "v_at", "on_delete": "row"},
    "b": {"columns": "b", "ordering": ["b_at", "b_seq"], "default": {"b": "?"}},
    "n": {"columns": "n", "ordering": "n_at", "merge": {"n": "sum"}, "foreign_readers": False},
}
TYPES = ("copy_on_write", "merge_on_read")
_NOT_GIVEN = dict.fromkeys(SCHEMA.names)


def row(number: int, **more: Any) -> Row:
    """Some have a value and no ordering value, which then comes from no event."""
    seen = {"b": f"𝄞{number}", "b_at": 7, "b_seq": -1} if number % 3 else {"b": "base"}
    key = {"id": f"k\U0001f600{number}", "part": f"p{number % 2}"}
    return {**_NOT_GIVEN, **key, "v": number, "v_at": 5.0, **seen, "n": number % 4 or None, "n_at": 1, **more}


ROWS = [row(number) for number in range(12)]


def filled(folder: Path, **given: Any) -> lakelatch.Table:
    """A table with some history, in log files where it has such."""
    table = lakelatch.create(
        str(folder),
        **{"record_key": "id", "partition_by": "part", "schema": SCHEMA, "env": FakeEnvironment(seed=1)} | given,
    )
    table.insert([{**each, "v": -1, "v_at": 1.0} for each in ROWS] + [row(99)])
    table.upsert(ROWS)
    table.delete([{"id": row(99)["id"], "part": "p1"}])
    return table


def content(table: lakelatch.Table) -> list[Row]:
    return sorted(table.read().to_pylist(), key=lambda each: each["id"])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of the plainest kind, to be copied."""
    folder = tmp_path_factory.mktemp("base") / "table"
    filled(folder).close()
    return folder


@pytest.fixture
def world(base: Path, folder: Path) -> Iterator[World]:
    made = World(folder / "table", model=base)
    yield made
    made.close()


def modelled(table: lakelatch.Table) -> Model:
    """The rows of before as events: of each stream that has an ordering value, one; other values stand until the first."""
    model = Model(("id",), list(table.streams))
    for each in ROWS:
        state = model.states.setdefault((each["id"],), State(there=True))
        for stream in table.streams:
            order = tuple(each[name] for name in stream.ordered_by)
            if None not in order:
                state.newest[stream.name] = order
            merged = dict(stream.merge)
            for name in stream.columns:
                state.values[name] = ([each[name]] if each[name] is not None else []) if name in merged else each[name]
    return model


_ORDERS = {
    "v": lambda pick: {"v_at": pick.choice((4.0, 5.0, 6.0))},
    "b": lambda pick: {"b_at": pick.choice((6, 7, 8)), "b_seq": pick.choice((-2, -1, 0))},
    "n": lambda pick: {"n_at": pick.choice((0, 1, 2))},
}
_VALUES = {
    "v": lambda pick: {"v": pick.choice((None, 1, 2))},
    "b": lambda pick: {"b": pick.choice((None, "", "x"))},
    "n": lambda pick: {"n": pick.choice((None, 3, -5))},
}


@pytest.mark.parametrize(
    ("kind", "given"),
    crossed(
        [(type_, version) for type_ in TYPES for version in (8, 9)],
        [{}, {"ordering_field": "v_at", "bucket_count": 3}, {"bucket_count": 3}, {"ordering_field": "v_at"}],
    ),
)
def test_rows_from_before_count_as_events_before_and_after_a_compaction(
    folder: Path, kind: tuple[str, int], given: dict[str, Any]
) -> None:
    pick = random.Random(f"{kind} {given}")
    with filled(folder / "t", type=kind[0], table_version=kind[1], **given) as table:
        before = content(table)
        old = lakelatch.open(table.url, env=table.env.peer(), writer="old")
        plan = table.adopt_streams(STREAMS, dry_run=True)
        assert not plan.done
        assert content(table) == before
        assert table.adopt_streams(STREAMS).changes == plan.changes
        assert content(table) == before
        model, keys = modelled(table), [*ROWS, row(20), row(21)]
        for number in range(12):
            name = pick.choice(sorted(STREAMS))
            kind_ = pick.choice((UPSERT, UPSERT, DELETED if name == "v" else CLEARED))
            events = [
                {each: key[each] for each in ("id", "part")}
                | _ORDERS[name](pick)
                | (_VALUES[name](pick) if kind_ == UPSERT else {})
                for key in pick.sample(keys, 5)
            ]
            stream = (old if number % 2 else table).stream(name)
            (stream.upsert if kind_ == UPSERT else stream.delete)(events, batch=("test", number))
            model.apply(name, kind_, events)
            if number in (5, 11):
                for compacts in (False, True):
                    if compacts:
                        table.compact()
                    found = {
                        (each["id"],): {k: v for k, v in each.items() if k not in ("id", "part")}
                        for each in content(old)
                    }
                    assert found == model.rows()
        assert not check(table.store).findings
        old.close()


def test_the_properties_are_those_of_a_table_that_is_made_with_streams(folder: Path) -> None:
    made = lakelatch.create(
        str(folder / "t"), record_key="id", partition_by="part", schema=SCHEMA, streams=STREAMS, table_version=9
    )
    for given in (
        {},
        {"ordering_field": "v_at"},
        {"type": "merge_on_read", "table_version": 9, "ordering_field": ["v_at", "n_at"]},
    ):
        with filled(folder / str(len(given)) / "t", **given) as table:
            table.adopt_streams(STREAMS)
            here, there = (dict(each.read_config().raw) for each in (table.session, made.session))
            for times in (here, there):  # when the table was made, and its first version
                for name in ("lakelatch.streams.declared", "hoodie.table.initial.version"):
                    times.pop(name)
            assert here == there
    made.close()


CALLS = 338  # more than an adoption of this table makes


@pytest.mark.parametrize("at", some(range(1, CALLS), 9))
def test_one_that_was_killed_at_any_call_is_taken_up_by_the_next(world: World, at: int) -> None:
    writer, other = world.writer("A"), world.writer("B")
    writer.store.add(Refuse(At(at), forever=True), Refuse(At(at + 1), forever=True))
    writer.store.add(*(Refuse(At(at + more)) for more in range(2, 400)))
    try:
        writer.table.adopt_streams(STREAMS)
    except lakelatch.LakeLatchError:
        writer.die()
    with world.fresh() as table:
        before = sorted(content(table), key=str)
        assert [each["v"] for each in sorted(before, key=lambda each: each["v"])] == [*range(12)]
    other.table.adopt_streams(STREAMS)
    other.table.stream("v").upsert([{"id": ROWS[0]["id"], "part": "p0", "v": 100, "v_at": 6.0}])
    with world.fresh() as table:
        assert content(table)[0] == {**ROWS[0], "v": 100, "v_at": 6.0}
        assert len(content(table)) == len(ROWS)
        table.rollback_failed_writes()
        assert not [each for each in check(table.store).findings if each.severity == "damage"]
    assert set(independent_content(world.folder).values()) == {*range(1, 12), 100}


@pytest.mark.parametrize("at", some(range(1, CALLS), 7))
def test_one_request_that_fails_hurts_nothing(world: World, at: int) -> None:
    writer = world.writer("A")
    writer.store.add(LoseReply(At(at)) if at % 2 else Refuse(At(at)))
    for _ in range(2):
        try:
            writer.table.adopt_streams(STREAMS)
        except lakelatch.LakeLatchError:
            continue
        break
    assert writer.table.session.read_config().merge_on_read
    with world.fresh() as table:
        assert content(table) == sorted(ROWS, key=lambda each: each["id"])
        assert {bucket_of(each.file_id) for each in table.snapshot().file_slices()} <= set(range(8))


def during(writer: Writer, what: Callable[[], object], *, forever: bool = False) -> None:
    """While a layout writes the first bucket of a partition."""
    writer.store.add(Pause(On("create", "part=p0/00000000"), what, forever=forever))


def test_rows_that_others_insert_meanwhile_are_laid_out_too(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    during(writer, lambda: other.table.insert([row(50)]))
    writer.table.adopt_streams(STREAMS)
    assert content(writer.table) == sorted([*ROWS, row(50)], key=lambda each: each["id"])
    other.table.stream("v").upsert([{"id": row(50)["id"], "part": "p0", "v": 7, "v_at": 9.0}])
    assert len(content(writer.table)) == len(ROWS) + 1


def test_it_gives_up_beside_one_that_never_stops_inserting(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    numbers = iter(range(100, 10_000, 2))
    during(writer, lambda: other.table.insert([row(next(numbers))]), forever=True)
    with pytest.raises(lakelatch.ConflictError, match="pause writers"):
        writer.table.adopt_streams(STREAMS)
    assert not writer.table.streams
    other.table.upsert([row(0, v=1)])


def test_a_transaction_that_began_before_does_not_commit(world: World) -> None:
    writer, other = world.writer("A"), world.writer("B")
    late, events = other.table.transaction("insert"), world.writer("C").table.transaction("upsert")
    late.insert([row(60)])
    writer.table.adopt_streams(STREAMS)
    with pytest.raises(lakelatch.ConflictError, match="has streams since"):
        late.commit()
    events.session.log.catch_up()
    with pytest.raises(lakelatch.ConflictError, match="run it again"):
        events.stream("v").upsert([{"id": "x", "part": "p0", "v": 7, "v_at": 9.0}])
    events.abort()
    with pytest.raises(lakelatch.InputError, match="has streams"):
        other.table.insert([row(60)])


def test_a_clustering_that_was_planned_before_moves_no_row_out_of_its_bucket(world: World) -> None:
    writer = world.writer("A")
    writer.table.insert([row(70)])
    planned = writer.table.plan_clustering()
    assert planned is not None
    with pytest.raises(lakelatch.ConflictError, match="pending plan"):
        writer.table.adopt_streams(STREAMS)
    writer.table.cancel_plan(planned)
    writer.table.adopt_streams(STREAMS)
    with filled(world.folder.parent / "other") as table:
        table.insert([row(70)])
        planned = table.plan_clustering(partitions=["part=p0"])
        table.compact()
        session = table.session
        from lakelatch.occ.entries import Setting

        assert session.log.append(lambda state: Setting(state.settings.changed(bucket_count=4), "another")) is not None
        with pytest.raises(lakelatch.UnsupportedTableError, match="services cancel"):
            table.execute(planned or "")


@pytest.mark.parametrize(
    ("rows", "streams", "told"),
    [
        ([row(0, v_at=float("nan"))], STREAMS, "a NaN in v_at"),
        ([row(1, b_seq=None)], STREAMS, "not the others"),
        ([], STREAMS | {"v": {"columns": "nope", "ordering": "v_at"}}, "no column nope"),
        ([], STREAMS | {"v": {"columns": "v", "ordering": "n_at"}}, "n_at"),
        ([], {}, "name the streams"),
        ([], STREAMS | {"n": STREAMS["n"] | {"merge": {"n": "last_non_null"}}}, "last_non_null"),
    ],
)
def test_rows_and_streams_that_do_not_go_are_refused_before_anything_is_written(
    world: World, rows: list[Row], streams: dict[str, Any], told: str
) -> None:
    table = world.writer("A").table
    if rows:
        table.upsert(rows)
    slot = table.session.log.catch_up() and table.session.log.next_slot
    for dry_run in (True, False):
        with pytest.raises((lakelatch.InputError, lakelatch.ConfigError), match=told):
            table.adopt_streams(streams, dry_run=dry_run)
    table.session.log.catch_up()
    assert table.session.log.next_slot == slot


def test_a_key_that_is_there_twice_is_named(world: World) -> None:
    table = world.writer("A").table
    table.insert([row(3)])
    with pytest.raises(lakelatch.InputError, match=f"several rows of one key.*{row(3)['id']}"):
        table.adopt_streams(STREAMS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"unique_constraints": [["v"]]}, "unique constraints"),
        ({"record_key": None}, "have a record key"),
        ({"check": "v > -5"}, "no check"),
        ({"merge": {"n": "sum"}}, "rule of merging"),
        ({"partition_by": "days(b_day)", "schema": SCHEMA.append(pa.field("b_day", "date32"))}, "not by a time"),
        ({"schema": SCHEMA.set(4, pa.field("b", "string", nullable=False))}, "not null"),
        ({"bucket_count": 2}, "leave it out"),
    ],
)
def test_tables_that_cannot_have_streams_say_why(folder: Path, given: dict[str, Any], told: str) -> None:
    asked = {"record_key": "id", "schema": SCHEMA} | given
    with lakelatch.create(str(folder / "t"), **asked) as table:
        for dry_run in (True, False):
            with pytest.raises((lakelatch.InputError, lakelatch.ConfigError), match=told):
                table.adopt_streams(STREAMS, bucket_count=4, dry_run=dry_run)


def test_no_restore_brings_back_what_is_no_event(folder: Path) -> None:
    with filled(folder / "t", type="merge_on_read", bucket_count=2) as table:
        target = table.timeline().commits[-1].requested
        table.adopt_streams(STREAMS)
        with pytest.raises(lakelatch.UnsupportedTableError, match="not written by a stream"):
            table.restore(target)
        assert content(table) == sorted(ROWS, key=lambda each: each["id"])


def test_a_stream_of_a_table_that_can_have_some_is_refused_for_the_same_rows(folder: Path) -> None:
    with filled(folder / "t", type="merge_on_read", table_version=9, bucket_count=2) as table:
        table.upsert([row(0, v_at=float("nan"))])
        table.compact()
        with pytest.raises(lakelatch.InputError, match="a NaN in v_at"):
            table.stream("v", columns="v", ordering="v_at")
        assert table.stream("n", **STREAMS["n"]).declaration.columns == ("n",)
