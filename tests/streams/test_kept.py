"""Streams that keep their events: what is taken back, in every order of arrival and with compactions in between."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.hudi.files import LogFile, list_data_files
from lakelatch.hudi.table import META_COLUMNS, RECORD_KEY
from lakelatch.mergers import Groups, Laws
from lakelatch.streams import CLEARED, DELETED, RETRACTED, UPSERT, Stream
from lakelatch.streams.events import BlockNote, Events
from lakelatch.streams.merge import Stitched, _stitched
from lakelatch.testing import FakeEnvironment

from ..mergers.model import MODEL
from ..mergers.test_mergers import columns_of
from ..thorough import THOROUGH
from .model import Model, Row

STREAM = Stream(
    "s",
    ("n", "first", "top", "all", "word", "eid"),
    "at",
    foreign_readers=False,
    merge=(("all", "collect_list(3)"), ("first", "first"), ("n", "sum"), ("top", "top_n(2)")),
    event_id="eid",
    events="parts",
)
ROWS = Stream("r", ("x",), "x_at", on_delete="row")
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("at", pa.int64()), ("n", pa.int64()), ("first", pa.string()), ("top", pa.list_(pa.int64())),
    ("all", pa.list_(pa.int64())), ("word", pa.string()), ("eid", pa.string()),
]  # fmt: skip
SCHEMA = pa.schema(
    [(name, pa.string()) for name in META_COLUMNS]
    + [("id", pa.string()), *_FIELDS, ("parts", pa.list_(pa.struct(_FIELDS))), ("x", pa.int64()), ("x_at", pa.int64())]
)
Step = tuple[str, str, list[Row]]  # stream, kind, rows


def event(key: str, at: int, eid: str, n: int | None = 1) -> Row:
    lists = None if n is None else [n]
    return {
        "id": key,
        "at": at,
        "eid": eid,
        "n": n,
        "first": eid if n else None,
        "top": lists,
        "all": lists,
        "word": f"{n}",
    }


def block(number: int, step: Step) -> Events:
    name, kind, rows = step
    stream = {"s": STREAM, "r": ROWS}[name]
    columns = {UPSERT: stream.columns, RETRACTED: (stream.event_id,)}.get(kind, stream.columns)
    written = {"id", *META_COLUMNS, *stream.ordered_by, *columns}
    content = [dict.fromkeys(META_COLUMNS, "") | {RECORD_KEY: row["id"]} | row for row in rows]
    table = pa.Table.from_pylist(content, pa.schema([each for each in SCHEMA if each.name in written]))
    at = f"{number:017d}"
    log = LogFile("", "", "f", at, 1, "0-0-0", 0, completed=at)
    return Events(stream, BlockNote(name, kind, columns), log, table, SCHEMA)


def compacted(steps: Iterable[Step], cuts: Iterable[int] = (), columns: list[str] | None = None) -> Stitched:
    """What is read after these steps, the earlier ones compacted at the cuts."""
    base, floors, pending = None, None, list[Events]()
    for number, step in enumerate(steps):
        pending.append(block(number, step))
        if number in cuts:
            made = _stitched(base, floors, pending, [STREAM, ROWS], None)
            base = made.rows.select([name for name in SCHEMA.names if name in made.rows.column_names])
            floors, pending = made.floors if made.floors.num_rows else None, []
    return _stitched(base, floors, pending, [STREAM, ROWS], columns)


def seen(made: Stitched) -> dict[str, Row]:
    rows = made.rows.drop_columns([name for name in META_COLUMNS if name != RECORD_KEY]).to_pylist()
    return {row.pop(RECORD_KEY): {name: value for name, value in row.items() if value is not None} for row in rows}


def modelled(steps: Iterable[Step]) -> dict[str, Row]:
    model = Model(("id",), [STREAM, ROWS])
    for step in steps:
        model.apply(*step)
    return {
        key: {name: value for name, value in {"id": key, **row}.items() if value is not None}
        for (key,), row in model.rows().items()
    }


EVENTS: list[Step] = [
    ("s", UPSERT, [event("k", 5, "a", 1)]),
    ("s", UPSERT, [event("k", 3, "b", 10)]),
    ("s", UPSERT, [event("k", 3, "b", 10), event("k", 5, "c", 100)]),
    ("s", RETRACTED, [{"id": "k", "eid": "a"}]),
    ("s", RETRACTED, [{"id": "k", "eid": "a"}, {"id": "k", "eid": "nobody"}]),
]


def test_events_and_retractions_make_one_row_in_every_order_and_however_often_they_come() -> None:
    expected = modelled(EVENTS)
    assert (expected["k"]["n"], expected["k"]["first"], expected["k"]["all"]) == (110, "b", [10, 100])
    for number, order in enumerate(permutations(EVENTS)):
        cuts = ((), (0,), (2,), (1, 3))[number % 4]
        assert seen(compacted(order, cuts)) == expected, (order, cuts)
        if number % 5 == 0:
            assert seen(compacted([*order, *order[::-1]], (3,))) == expected, order


def some_steps(dice: random.Random) -> Iterator[Step]:
    for _ in range(dice.randint(1, 9)):
        keys = [dice.choice("kl") for _ in range(dice.randint(1, 3))]
        match dice.randint(0, 9):
            case 0:
                yield "s", CLEARED, [{"id": key, "at": dice.randint(0, 5)} for key in set(keys)]
            case 1:
                yield "r", DELETED, [{"id": key, "x_at": dice.randint(0, 5)} for key in set(keys)]
            case 2:
                yield "r", UPSERT, [{"id": key, "x": 1, "x_at": dice.randint(0, 5)} for key in set(keys)]
            case 3 | 4 | 5:
                yield "s", RETRACTED, [{"id": key, "eid": dice.choice("ab𝄞")} for key in keys]
            case _:
                sent = [
                    event(key, dice.randint(0, 5), dice.choice("ab𝄞"), dice.choice([None, 0, 2, 7])) for key in keys
                ]
                yield "s", UPSERT, sorted(sent, key=lambda row: (row["id"], row["at"]))


def test_whatever_comes_and_is_compacted_is_what_the_model_has() -> None:
    dice = random.Random(5)
    for _ in range(3000 if THOROUGH else 120):
        steps = list(some_steps(dice))
        cuts = {number for number in range(len(steps)) if dice.random() < 0.3}
        expected = modelled(steps)
        assert seen(compacted(steps, cuts)) == expected, (steps, cuts)
        few = dice.choice([["n"], ["parts", "x"], ["all", "at"]])
        found = seen(compacted(steps, cuts, few))
        assert found == {key: {n: v for n, v in row.items() if n in few} for key, row in expected.items()}, (
            steps,
            cuts,
        )


# --- on a table -------------------------------------------------------------------------------------------------------

KEPT: dict[str, Any] = {
    "columns": "n", "ordering": "at", "event_id": "eid", "events": "parts", "merge": {"n": "sum"}, "foreign_readers": False
}  # fmt: skip
COLUMNS = (
    "id string, n bigint, at bigint, eid string, parts array<struct<at: bigint, n: bigint, eid: string>>, f double"
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    given: dict[str, Any] = {"record_key": "id", "schema": COLUMNS + ", x bigint, x_at bigint", "bucket_count": 1}
    with lakelatch.create(str(tmp_path / "t"), env=FakeEnvironment(seed=1), streams={"s": KEPT}, **given) as made:
        yield made


def sent(eid: str, n: int, at: int = 1, key: str = "k") -> Row:
    return {"id": key, "at": at, "eid": eid, "n": n}


def totals(table: lakelatch.Table) -> dict[str, Any]:
    return {row["id"]: row["n"] for row in table.read(columns=["id", "n"]).to_pylist()}


def test_an_event_is_taken_back_and_needs_no_batch(table: lakelatch.Table) -> None:
    stream = table.stream("s")
    assert "events kept in parts by eid" in repr(stream)
    for _ in range(2):
        stream.upsert([sent("a", 5, at=3), sent("b", 7)])
    done = stream.retract([sent("a", 5), {**sent("z", 1), "f": 1.0}])
    assert done.instant is not None
    assert totals(table) == {"k": 7}
    (told,) = table.explain_row("k")
    cells = {each.column: each for each in told.cells}
    assert (cells["n"].value, cells["n"].why, cells["n"].parts[0][:2]) == (7, "sum of 1 events", (7, 1))
    assert [(each.kind, each.ordering) for each in told.events][-2:] == [("retract", "a"), ("retract", "z")]
    table.compact()
    assert totals(table) == {"k": 7}
    with table.transaction("upsert") as txn:
        txn.stream("s").retract([{"id": "k", "eid": "b"}, {"id": "new", "eid": "c"}])
        txn.stream("s").upsert([sent("a", 5, at=9), sent("z", 100), sent("c", 1, key="new"), sent("d", 2, key="new")])
    assert totals(table) == {"k": None, "new": 2}
    changed = table.changes(after=table.commits()[-2][0].completed).to_pylist()
    assert {row["id"] for row in changed} == {"k", "new"}, "the row of which an event was taken back has changed"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"id": "k"}], "the rows lack eid of stream 's'"),
        (
            [{"id": "k", "eid": None}],
            r"1 rows of stream 's' of .* have no eid \(id 'k'\), by which its events are told apart",
        ),
        ([{"eid": "a"}], "lack id"),
        ([{"id": "k", "eid": 1.5}], "eid"),
    ],
)
def test_a_retraction_that_names_no_event_is_refused(table: lakelatch.Table, rows: list[Row], told: str) -> None:
    with pytest.raises(InputError, match=told):
        table.stream("s").retract(rows)
    with pytest.raises(InputError, match="have no eid"):
        table.stream("s").upsert([{**sent("a", 1), "eid": None}])
    with pytest.raises(InputError, match="have parts, which it fills itself; leave it out"):
        table.stream("s").upsert([{**sent("a", 1), "parts": []}])
    assert not list_data_files(table.store).logs


def test_a_stream_without_ids_takes_nothing_back(table: lakelatch.Table) -> None:
    table.stream("x", columns="x", ordering="x_at", merge={"x": "sum"}, foreign_readers=False)
    with pytest.raises(InputError, match=r"declares no event_id, .*nothing was written"):
        table.stream("x").retract([{"id": "k", "x_at": 1}])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"event_id": None}, "go together"),
        ({"events": None}, "go together"),
        ({"events": "eid"}, "two columns of their own"),
        ({"event_id": "at"}, "two columns of their own"),
        ({"default": {"n": 0}}, "leave out `default`"),
        ({"foreign_readers": True}, "foreign_readers=False"),
        ({"event_id": "f"}, "tells no events apart"),
        (
            {"columns": ["n", "f"]},
            "cannot keep the events; it has to be list<element: struct<at: int64, n: int64, f: double, eid",
        ),
        ({"events": "x"}, "has type int64 and cannot keep the events"),
        ({"merge": {"n": "top_n"}}, "can't have the merger"),
        ({"merge": {"eid": "sum"}}, "no value of the stream"),
    ],
)
def test_a_declaration_that_could_keep_no_events_is_refused(tmp_path: Path, more: Row, told: str) -> None:
    given: dict[str, Any] = {"record_key": "id", "schema": COLUMNS + ", x bigint"}
    with pytest.raises(InputError, match=told):
        lakelatch.create(str(tmp_path / "t"), streams={"s": KEPT | more}, **given)
    assert not (tmp_path / "t").exists()


def test_what_it_keeps_stays_as_it_is(table: lakelatch.Table) -> None:
    assert table.stream("s", **KEPT).declaration == table.streams[0]
    table.add_column("more", "bigint")
    for given in ({"columns": ["n", "more"]}, {"event_id": None, "events": None}):
        with pytest.raises(InputError, match=r"give it to another stream|is declared otherwise"):
            table.stream("s", **{**KEPT, **given})
    with pytest.raises(InputError, match="column 'n' cannot become"):
        table.widen_column("n", "bigint")
    with pytest.raises(InputError, match="event_id declares something of a stream"):
        table.stream("s", event_id="eid")


def test_values_that_no_event_tells_of_are_not_lost(tmp_path: Path) -> None:
    made: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=COLUMNS, **made) as table:
        table.upsert(pa.table({"id": ["k"], "n": [7]}), missing="null")
        with pytest.raises(InputError, match="has values of 'n' that no event tells of"):
            table.stream("s", **KEPT)
        table.add_column("n2", "bigint")
        table.add_column("parts2", "array<struct<at: bigint, n2: bigint, eid: string>>")
        given = {"columns": "n2", "events": "parts2", "merge": {"n2": "sum"}}
        table.stream("s", **{**KEPT, **given}).upsert([{"id": "k", "n2": 1, "at": 1, "eid": "a"}])
        assert table.read(columns=["n", "n2"]).to_pylist() == [{"n": 7, "n2": 1}]


def test_a_total_fits_whatever_is_taken_back(table: lakelatch.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gains and losses that cancel each other would not fit once one side is taken back."""
    share, stream = 2**63 // 1000, table.stream("s")
    gained = [sent(f"+{n}", share, at=n) for n in range(500)]
    with monkeypatch.context() as patch:  # else 500 commits
        patch.setattr("lakelatch.occ.staging.stream_files.keep_within_range", lambda *_: None)
        stream.upsert(gained)
    for _ in range(2):
        with pytest.raises(InputError, match="beyond half of what int64 holds"):
            stream.upsert([sent("other", share, key="other"), sent("-", -share)])
        assert totals(table) == {"k": 500 * share}
        table.compact()
    stream.retract(gained[1:])
    stream.upsert([sent("-", -share)])
    assert totals(table) == {"k": 0}


def test_a_factor_that_was_taken_back_is_none(table: lakelatch.Table) -> None:
    """Of a product nobody could divide the zero out."""
    for name, kind in (
        ("p_at", "bigint"),
        ("p", "array<struct<p_at: bigint, f: double, eid2: string>>"),
        ("eid2", "string"),
    ):
        table.add_column(name, kind)
    given: dict[str, Any] = {"columns": "f", "ordering": "p_at", "merge": {"f": "product"}, "foreign_readers": False}
    with pytest.raises(InputError, match=r"(?s)can't have the merger product: .* Keep the stream's events"):
        table.stream("p", **given)
    stream = table.stream("p", **given, event_id="eid2", events="p")
    stream.upsert(
        [{"id": "k", "p_at": n, "f": factor, "eid2": f"{n}"} for n, factor in enumerate((3.0, 0.0, None, -0.5))]
    )
    assert table.read(columns=["f"]).to_pylist() == [{"f": -0.0}]
    table.compact()
    stream.retract([{"id": "k", "eid2": "1"}])
    assert table.read(columns=["f"]).to_pylist() == [{"f": -1.5}]


@pytest.mark.parametrize("spec", [each for each in MODEL if each != "sum"])  # a sum has limits of its own
def test_every_merger_works_on_events_that_are_kept(tmp_path: Path, spec: str) -> None:
    """Whatever laws it keeps: it gives what it gives for the events that are left, in their order."""
    kind, values = next(iter(columns_of(spec)))
    if spec == "count":
        kind, values = pa.int64(), [1, None]
    dice = random.Random(spec)
    sent = [(n, dice.choice(values)) for n in range(6)]
    fields = [("at", pa.int64()), ("v", kind), ("eid", pa.int64())]
    schema = pa.schema([("id", pa.string()), *fields, ("parts", pa.list_(pa.struct(fields)))])
    streams = {"s": KEPT | {"columns": "v", "merge": {"v": spec}}}
    made: dict[str, Any] = {"record_key": "id", "schema": schema, "streams": streams, "bucket_count": 1}
    with lakelatch.create(str(tmp_path / "t"), env=FakeEnvironment(seed=1), **made) as table:
        for n, value in dice.sample(sent, 6):
            rows = {"id": ["k"], "at": [n], "v": pa.array([value], kind), "eid": [n]}
            table.stream("s").upsert(pa.table(rows))
            if n == 3:
                table.compact()
        table.stream("s").retract([{"id": "k", "eid": 2}])
        expected = MODEL[spec]([value for n, value in sent if n != 2])
        for _ in range(2):
            (row,) = table.read(columns=["v"]).to_pylist()
            assert repr(row["v"]) == repr(expected)
            table.compact()


class Lies:
    """The first value, said to be the same in every order."""

    def laws(self, kind: pa.DataType) -> Laws:
        return Laws(commutative=True, associative=True, idempotent=True)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        return values.take(pa.array(groups.starts))


def test_a_merger_of_ones_own_gets_the_events_in_their_order(table: lakelatch.Table) -> None:
    """Whatever laws it keeps: it gets all of them at once."""
    kept = "array<struct<m_at: bigint, m: bigint, mid: bigint>>"
    for name, kind in (("m", "bigint"), ("m_at", "bigint"), ("mid", "bigint"), ("ms", kept)):
        table.add_column(name, kind)
    given: dict[str, Any] = {"merge": {"m": f"{__name__}:Lies"}, "foreign_readers": False}
    with pytest.raises(InputError, match="does not keep the law 'order'"):
        table.stream("lies", columns="m", ordering="m_at", **given)
    stream = table.stream("lies", columns="m", ordering="m_at", event_id="mid", events="ms", **given)
    for n in (3, 1, 2):
        stream.upsert([{"id": "k", "m_at": n, "m": n, "mid": -n}])
        table.compact()
    assert table.read(columns=["m"]).to_pylist() == [{"m": 1}]
    stream.retract([{"id": "k", "mid": -1}])
    assert table.read(columns=["m"]).to_pylist() == [{"m": 2}]
