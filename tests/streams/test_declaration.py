"""What declares a stream, and what is refused of it."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, InputError
from lakelatch.mergers import Laws
from lakelatch.streams import declared_in
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import FaultStore, On, Pause, Refuse

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string())]
    + [(name, pa.int64()) for name in ("a", "a_at", "b", "b_at", "c")]
    + [("wide", pa.float64()), ("small", pa.int32())]
    + [("flags", pa.list_(pa.int64())), ("day", pa.date32()), ("ratio", pa.decimal128(5, 2)), ("ok", pa.bool_())]
)
MADE = {
    "record_key": "id",
    "partition_by": "part",
    "schema": SCHEMA,
    "type": "merge_on_read",
    "table_version": 9,
    "bucket_count": 2,
}


@pytest.fixture
def table(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), env=FakeEnvironment(seed=1), **MADE) as made:
        yield made


def row(**values):
    return {"id": "x", "part": "p"} | values


def test_every_writer_knows_a_stream_that_one_has_declared(table):
    table.stream("one", columns=["a", "ok"], ordering="a_at", on_delete="row", default={"a": 5, "ok": True})
    with lakelatch.open(table.url, env=table.env) as other:
        stream = other.stream("one")
        assert stream.declaration == table.streams[0]
        assert (stream.declaration.columns, stream.declaration.ordering) == (("a", "ok"), "a_at")
        assert repr(stream) == (
            f"<stream one of {table.url}: a, ok by a_at; on delete row; a = 5 by default; ok = True by default>"
        )
    text = table.store.body(".hoodie/hoodie.properties").decode()
    assert "hoodie.table.partial.update.mode=IGNORE_DEFAULTS" in text


def test_mergers_are_declared_with_their_stream_and_stay(table):
    given = {"columns": ["a"], "ordering": "a_at", "foreign_readers": False}
    table.stream("one", **given, merge={"a": "sum"})
    plain = table.stream("two", columns=["b"], ordering="b_at", merge={"b": "last"}).declaration
    assert plain.merge == (), "what every column has without a merger, which Hudi's readers follow"
    assert "merge" not in plain.to_json()
    with lakelatch.open(table.url, env=table.env) as other:
        assert other.stream("one").declaration.merge == (("a", "sum"),)
        assert "a merged by sum" in repr(other.stream("one"))
        more = {**given, "columns": ["a", "c"], "merge": {"a": "sum", "c": "min"}}
        assert other.stream("one", **more).declaration.merge == (("a", "sum"), ("c", "min"))
        for merge in (None, {"a": "max", "c": "min"}, {"a": "sum"}):
            with pytest.raises(
                InputError, match="is declared otherwise: a, c by a_at; on delete clear; a merged by sum"
            ):
                other.stream("one", **{**more, "merge": merge})
    table.stream("three", columns=["ok"], ordering="small", foreign_readers=False)
    with pytest.raises(InputError, match="merges no columns yet, so what was compacted"):
        table.stream("three", columns=["ok", "day"], ordering="small", merge={"day": "max"}, foreign_readers=False)


def test_a_column_with_a_merger_may_become_wider(table):
    table.stream("one", columns=["small"], ordering="a_at", merge={"small": "max"}, foreign_readers=False)
    table.stream("one").upsert([row(small=7, a_at=1)])
    table.widen_column("small", "int64")
    for value, most in ((5, 7), (2**40, 2**40)):
        table.stream("one").upsert([row(small=value, a_at=1)])
        assert [each["small"] for each in table.read().to_pylist()] == [most]


def test_a_declaration_survives_the_epochs_of_the_log(table):
    table.stream("one", columns="a", ordering="a_at", default={"a": 1})
    before = table.streams
    table.session.log.close_epoch()
    table.stream("one").upsert([row(a=1, a_at=1)])
    with lakelatch.open(table.url, env=table.env) as other:
        assert other.streams == before
        assert (
            json.loads(json.dumps(other.settings.to_json()))
            == table.settings.to_json() | {"streams": json.loads(json.dumps(table.settings.to_json()["streams"]))}
            or other.settings == table.settings
        )


def test_to_declare_a_stream_again_changes_nothing(table):
    for _ in range(2):
        table.stream("one", columns=["a", "a_at"], ordering="a_at")
    slots = table.session.log.next_slot
    table.stream("one", columns=["a"], ordering="a_at")
    assert table.session.log.next_slot == slots


def test_a_stream_gets_more_columns_while_its_writers_are_open(table):
    table.stream("one", columns=["a"], ordering="a_at")
    with lakelatch.open(table.url, env=table.env) as other:
        txn = other.transaction()
        txn.stream("one").upsert([row(a=1, a_at=1)])
        table.add_column("d", "string")
        table.stream("one", columns=["a", "d"], ordering="a_at", default={"d": "?"})
        table.stream("two", columns=["b"], ordering="b_at")
        txn.commit()
        table.stream("one").upsert([row(id="y", a=2, a_at=1, d=None)])
        found = {each["id"]: (each["a"], each["d"]) for each in other.read().to_pylist()}
        assert found == {"x": (1, "?"), "y": (2, "?")}, "both landed after the declaration"
        with pytest.raises(InputError, match="the rows lack d of stream 'one'"):
            other.stream("one").upsert([row(a=1, a_at=1)])


def test_a_default_is_for_rows_that_appear_after_it_was_declared(table):
    """So a row is the same before and after a compaction, whenever that was."""
    table.stream("one", columns=["a"], ordering="a_at")
    table.stream("one").upsert([row(a=1, a_at=1)])
    table.stream("two", columns=["b"], ordering="b_at", default={"b": 7})
    table.stream("one").upsert([row(id="y", a=1, a_at=1)])
    before = sorted((each["id"], each["b"]) for each in table.read().to_pylist())
    assert before == [("x", None), ("y", 7)]
    table.compact()
    assert sorted((each["id"], each["b"]) for each in table.read().to_pylist()) == before
    table.stream("two").delete([row(b_at=1)])
    assert sorted((each["id"], each["b"]) for each in table.read().to_pylist()) == [("x", 7), ("y", 7)]


def test_of_several_ordering_columns_the_first_that_differs_decides(table):
    stream = table.stream("one", columns=["a"], ordering=["day", "ratio", "a_at"], on_delete="row")
    assert stream.declaration.ordered_by == ("day", "ratio", "a_at")
    assert repr(stream).endswith("a by day, ratio, a_at; on delete row>")
    assert stream.declaration.to_json()["then_by"] == ("ratio", "a_at")

    def send(a, day, ratio, at, *, delete=False):
        event = row(day=date(2026, 1, day), ratio=Decimal(ratio), a_at=at)
        (stream.delete if delete else stream.upsert)([event if delete else event | {"a": a}])

    def read():
        return [(each["a"], each["day"].day, each["ratio"], each["a_at"]) for each in table.read().to_pylist()]

    send(1, 2, "1.5", 5)
    for late in ((2, 1, "9", 9), (3, 2, "1.49", 9), (4, 2, "1.5", 4)):
        send(*late)
        assert read() == [(1, 2, Decimal("1.50"), 5)]
    assert [each.counted for each in table.explain_row("x")[0].events] == [True, False, False, False]
    table.compact()
    send(0, 2, "1.5", 4, delete=True)
    assert read() == [(1, 2, Decimal("1.50"), 5)]
    send(5, 2, "1.51", -1)
    assert read() == [(5, 2, Decimal("1.51"), -1)]
    send(0, 3, "-1", 0, delete=True)
    table.compact()
    send(6, 3, "-1.01", 7)
    assert read() == []
    send(7, 3, "-1", 0)
    assert read() == [(7, 3, Decimal("-1.00"), 0)]
    with lakelatch.open(table.url, env=table.env) as other:
        assert other.stream(
            "one", columns=["a"], ordering=("day", "ratio", "a_at"), on_delete="row"
        ).declaration.then_by
        for order in ("day", ["day", "a_at", "ratio"], ["day", "ratio"]):
            with pytest.raises(InputError, match="declared otherwise"):
                other.stream("one", columns=["a"], ordering=order, on_delete="row")
        with pytest.raises(InputError, match=r"1 rows of stream 'one' of .* have no ratio"):
            other.stream("one").upsert([row(a=1, day=date(2026, 1, 9), ratio=None, a_at=1)])
        with pytest.raises(InputError, match=r"the rows lack ratio"):
            other.stream("one").upsert([row(a=1, day=date(2026, 1, 9), a_at=1)])


class Liar:
    """Says that the order is of no account, and that a value may come twice."""

    def __init__(self, how="text"):
        self.how = how

    def laws(self, kind):
        return Laws(commutative=True, associative=True, idempotent=self.how == "twice")

    def merge(self, values, groups):
        parts = [values.to_pylist()[a:b] for a, b in zip(groups.offsets[:-1], groups.offsets[1:], strict=True)]
        of = {"order": lambda p: p[0], "ahead": len, "twice": sum}[self.how]
        return pa.array([of(part) for part in parts], values.type)


ME = f"{__name__}:Liar"
MERGED = {"foreign_readers": False}
REFUSED = [
    (
        {"merge": {"a": "last_non_null"}, **MERGED},
        r"(?s)'order', and events come late.*1 +0\n2 +1\n.*or none: without one",
    ),
    (
        {"columns": ["wide"], "merge": {"wide": "sum"}, **MERGED},
        r"(?s)'order', and .*in the order 1 3 2: value=1\.7.*take a column of decimals",
    ),
    (
        {"columns": ["small"], "merge": {"small": "sum"}, **MERGED},
        "take a column of int64, or of decimals of at least 18",
    ),
    (
        {"columns": ["ratio"], "merge": {"ratio": "sum"}, **MERGED},
        "take a column of int64, or of decimals of at least 18",
    ),
    ({"columns": ["small"], "merge": {"small": "count"}, **MERGED}, "take a column of int64"),
    ({"merge": {"a": f"{ME}('order')"}, **MERGED}, r"(?s)Liar.*breaks the law 'order'"),
    ({"merge": {"a": f"{ME}('ahead')"}, **MERGED}, r"(?s)Liar.*breaks the law '(order|one_at_a_time|compaction)'"),
    ({"merge": {"a": f"{ME}('twice')"}, **MERGED}, r"(?s)a value may come twice, and .*breaks the law 'replay'"),
    ({"merge": {"a": "sum"}}, "merges a, of which Hudi's own readers would show .*; say foreign_readers=False"),
    ({"merge": {"a": "sum"}, "default": {"a": -(2**63)}, **MERGED}, "is more than a thousandth of what int64 holds"),
    ({"merge": {"a_at": "max"}, **MERGED}, "merge names 'a_at', which is no value of the stream"),
    (
        {"name": "two", "columns": ["b", "c"], "ordering": "b_at", "on_delete": "row", "merge": {"c": "max"}, **MERGED},
        "otherwise",
    ),
    ({"name": ""}, "name='' is no text"),
    ({"name": 5}, "name=5 is no text"),
    ({"name": "\ud800"}, "half of a surrogate pair"),
    (
        {"columns": None, "ordering": None, "on_delete": "row"},
        "on_delete declares something .* and no columns are named",
    ),
    ({"name": "two", "columns": None, "ordering": None, "null": "write"}, "null declares something"),
    (
        {"name": "two", "columns": None, "ordering": None, "foreign_readers": False},
        "foreign_readers declares something",
    ),
    ({"name": "two", "columns": None, "ordering": None, "default": {}}, "default declares something"),
    ({"default": {"a": 10**5000}}, "default of column 'a' is a whole number of more than 64 bits"),
    ({"default": {"a": "\ud800"}}, "default of column 'a' is .*half of a surrogate pair"),
    ({"columns": None}, "columns=None names no columns"),
    ({"columns": ["a", "a"]}, "names a column twice"),
    ({"columns": []}, "has no columns beside its ordering column"),
    ({"columns": ["nope"]}, "no column nope; add it with `add_column` first"),
    ({"columns": ["a", "id"]}, "id of .* is part of the key or partition"),
    ({"columns": ["part"]}, "part of .* is part of the key or partition"),
    ({"columns": ["_hoodie_record_key"]}, "_hoodie_record_key.* that Hudi keeps"),
    ({"ordering": None}, "ordering=None is no text"),
    ({"ordering": []}, r"ordering=\[\] is no text"),
    ({"ordering": ["a_at", "a_at"]}, "names a column twice"),
    ({"ordering": ["a_at", 5]}, "names no columns"),
    ({"ordering": ["a_at", "nope"]}, "no column nope"),
    ({"ordering": ["a_at", "flags"]}, "column flags of type list<.*> orders nothing"),
    ({"ordering": ["a_at", "b_at"]}, "stream 'two' of .* writes b_at already"),
    ({"ordering": ["a_at", "id"]}, "id of .* is part of the key or partition"),
    (
        {"name": "two", "columns": ["b"], "ordering": ["b_at", "c"], "on_delete": "row"},
        "declared otherwise: b by b_at;",
    ),
    ({"ordering": "nope"}, "no column nope"),
    ({"ordering": "flags"}, "column flags of type list<.*> orders nothing"),
    ({"ordering": "ok"}, "column ok of type bool orders nothing"),
    ({"on_delete": "drop"}, "on_delete='drop' is unknown; say 'row' or 'clear' or 'ignore'"),
    ({"on_delete": None}, "on_delete=None is unknown"),
    ({"null": "skip"}, "null='skip' is unknown"),
    ({"null": "write"}, "say foreign_readers=False"),
    ({"foreign_readers": "no"}, "neither True nor False"),
    ({"default": 5}, "default=5 is no dict"),
    ({"default": {"a": None}}, "default of column 'a' is None"),
    ({"default": {"a": float("nan")}}, "default of column 'a' is nan"),
    ({"default": {"a": "five"}}, "default 'five' of column 'a' is no value of type int64"),
    ({"default": {"a": True}}, "default True of column 'a' is no value of type int64"),
    ({"default": {"a": 1.5}}, "default 1.5 of column 'a' is no value of type int64"),
    ({"default": {"c": 1}}, "default of 'c', which is no value of it"),
    ({"columns": ["ratio"], "default": {"ratio": "1000000"}}, "is no value of type decimal"),
    ({"columns": ["day"], "default": {"day": "1.1.2020"}}, "is no value of type date32"),
    ({"columns": ["b"]}, "stream 'two' of .* writes b already"),
    ({"columns": ["b_at"]}, "stream 'two' of .* writes b_at already"),
    ({"ordering": "b_at"}, "stream 'two' of .* writes b_at already"),
    ({"on_delete": "row"}, "stream 'two' of .* owns the life of its rows"),
    (
        {"name": "two", "columns": ["b"], "ordering": "a_at"},
        "stream 'two' of .* is declared otherwise: b by b_at; on delete row",
    ),
    ({"name": "two", "columns": ["a"], "ordering": "b_at", "on_delete": "row"}, "declared otherwise"),
    ({"name": "two", "columns": ["b"], "ordering": "b_at"}, "declared otherwise"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_a_declaration_that_cannot_be_kept_is_refused_and_leaves_nothing(table, given, words):
    table.stream("two", columns=["b"], ordering="b_at", on_delete="row")
    before = table.session.log.next_slot
    arguments = {"name": "one", "columns": ["a"], "ordering": "a_at"} | given
    with pytest.raises(InputError, match=words):
        table.stream(arguments.pop("name"), **arguments)
    assert table.session.log.next_slot == before


def test_a_stream_that_nobody_has_declared_is_refused_with_those_that_there_are(table):
    with pytest.raises(InputError, match=r"no stream 'one'; there are: none\. Declare it"):
        table.stream("one")
    table.stream("two", columns=["b"], ordering="b_at")
    for ask in (lambda: table.stream("one"), lambda: table.transaction().stream("one")):
        with pytest.raises(InputError, match="no stream 'one'; there are: two"):
            ask()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "copy_on_write"}, "be merge-on-read"),
        ({"table_version": 8}, "have version 9"),
        ({"bucket_count": None}, "have a bucket index"),
        ({"ordering_field": "c"}, "have no ordering_field: each stream has one"),
    ],
)
def test_a_table_that_cannot_have_streams_says_what_it_would_have_to_be(tmp_path, given, words):
    with lakelatch.create(str(tmp_path / "t"), **(MADE | given)) as table:
        before = table.store.body(".hoodie/hoodie.properties")
        with pytest.raises(ConfigError, match=words):
            table.stream("one", columns=["a"], ordering="a_at")
        assert not table.streams
        assert table.store.body(".hoodie/hoodie.properties") == before


def test_streams_are_no_setting_that_somebody_may_write(table):
    with pytest.raises(ConfigError, match="no such setting: streams"):
        table.change_settings(streams=())


@pytest.mark.parametrize(
    "streams", [5, {"a": 1}, [5], [{}], [{"name": "x", "columns": ["a"], "ordering": "b", "more": 1}]]
)
def test_a_declaration_of_a_newer_version_stops_this_one(table, streams):
    plain = table.settings.to_json() | {"streams": streams}
    with pytest.raises(ConfigError, match=r"upgrade lakelatch|must be a list"):
        type(table.settings).from_json(plain)


# --- beside other writes -----------------------------------------------------------------------------------------


def test_rows_that_are_there_already_are_older_than_every_event(table):
    table.upsert(
        [row(a=1, a_at=9, b=1, b_at=None, c=3, wide=None, small=None, flags=None, day=None, ratio=None, ok=None)]
    )
    table.stream("one", columns=["a"], ordering="a_at")
    table.stream("two", columns=["b"], ordering="b_at")
    table.stream("one").upsert([row(a=2, a_at=8)])
    table.stream("two").upsert([row(b=2, b_at=-8)])
    found = table.read().to_pylist()[0]
    assert (found["a"], found["b"], found["c"]) == (1, 2, 3)


def test_log_files_of_other_writes_are_compacted_before_the_first_stream(table):
    for n in (1, 2):
        table.upsert(pa.Table.from_pylist([row(a=n)], schema=SCHEMA))
    with pytest.raises(ConfigError, match=r"has log files of other writes .* Compact it"):
        table.stream("one", columns=["a"], ordering="a_at")
    table.compact()
    table.stream("one", columns=["a"], ordering="a_at")


def test_a_table_with_streams_takes_no_other_writes(table):
    table.stream("one", columns=["a"], ordering="a_at")
    table.stream("one").upsert([row(a=1, a_at=1)])
    whole = pa.Table.from_pylist([row(a=5)], schema=SCHEMA)
    other = lakelatch.open(table.url, env=table.env)
    for write in (
        lambda: other.upsert(whole),
        lambda: other.insert(whole),
        lambda: other.overwrite(whole),
        lambda: other.overwrite_table(whole),
        lambda: other.delete([row()]),
        lambda: other.delete_where("a = 1"),
        lambda: other.run(lambda txn: txn.new_file("part=p").write(whole), operation="insert"),
        lambda: other.run(lambda txn: txn.overwrites("part=p"), operation="delete_partition"),
    ):
        with pytest.raises(
            InputError, match=r"has streams \(one\), and rows are written and deleted through them only"
        ):
            write()
    assert [each["a"] for each in other.read().to_pylist()] == [1]
    other.close()


def test_what_began_before_the_first_stream_does_not_land(table):
    with lakelatch.open(table.url, env=table.env) as other:
        txn = other.transaction()
        txn.upsert(pa.Table.from_pylist([row(a=1)], schema=SCHEMA))
        table.stream("one", columns=["a"], ordering="a_at")
        with pytest.raises(ConflictError, match="the table has streams since"):
            txn.commit()
        assert other.read().count() == 0


@pytest.mark.parametrize("opened", ["before the declaration", "and begun before it"])
def test_a_handle_that_does_not_know_the_first_stream_yet_writes_through_it(table, opened):
    """Streams never conflict, whatever its handle has seen of the table."""
    with lakelatch.open(table.url, env=table.env) as other:
        begun = other.transaction() if opened.startswith("and") else None
        table.stream("one", columns=["a"], ordering="a_at")
        txn = begun or other.transaction()
        other.session.log.catch_up()
        txn.stream("one").upsert([row(a=1, a_at=1)])
        table.stream("one").upsert([row(a=2, a_at=2)])
        txn.commit()
        assert [each["a"] for each in other.read().to_pylist()] == [2]


def test_events_do_not_bring_rows_with_them_that_were_written_before_the_first_stream(table):
    with lakelatch.open(table.url, env=table.env) as other:
        txn = other.transaction()
        txn.upsert(pa.Table.from_pylist([row(a=1)], schema=SCHEMA))
        table.stream("one", columns=["a"], ordering="a_at")
        other.session.log.catch_up()
        with pytest.raises(InputError, match="through them only"):
            txn.stream("one").upsert([row(a=1, a_at=1)])
        with pytest.raises(ConflictError, match="the table has streams since"):
            txn.commit()
        assert other.read().count() == 0


def test_properties_that_were_not_written_are_written_before_the_first_event(tmp_path):
    """The declaration is in the log when its writer dies; the next one mends the properties, which foreign readers go by."""
    url = str(tmp_path / "t")
    lakelatch.create(url, env=FakeEnvironment(seed=1), **MADE).close()
    store = FaultStore(lakelatch.open(url).store)
    table = lakelatch.occ.table.Table(store, env=FakeEnvironment(seed=2))
    store.add(Refuse(On("replace_if_match"), forever=True))
    with pytest.raises(lakelatch.StorageError):
        table.stream("one", columns=["a"], ordering="a_at")
    store.reset()
    with lakelatch.open(url) as other:
        assert not other.config.for_streams
        other.stream("one").upsert([row(a=1, a_at=1)])
        assert other.config.for_streams
    assert [each["a"] for each in table.read().to_pylist()] == [1]
    table.close()


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"name": "two", "columns": ["b"], "ordering": "b_at"}, ""),
        ({"name": "one", "columns": ["a", "c"], "ordering": "a_at"}, ""),
        ({"name": "one", "columns": ["a"], "ordering": "c"}, "stream 'one' of .* is declared otherwise"),
        ({"name": "two", "columns": ["a"], "ordering": "b_at"}, "stream '(one|two)' of .* writes a already"),
        ({"name": "two", "columns": ["b"], "ordering": "b_at", "on_delete": "row"}, "owns the life of its rows"),
    ],
)
@pytest.mark.parametrize("moment", ["put_if_absent", "replace_if_match"])
def test_of_two_declarations_at_once_both_hold_or_one_is_refused_by_name(tmp_path, second, words, moment):
    """The second one comes before the first one's log entry, and before its write of the properties."""
    given = {
        "name": "one",
        "columns": ["a"],
        "ordering": "a_at",
        "on_delete": "row" if "on_delete" in second else "clear",
    }
    url = str(tmp_path / "t")
    lakelatch.create(url, env=FakeEnvironment(seed=1), **MADE).close()
    other, refused = lakelatch.open(url), []

    def declare(table, arguments):
        try:
            table.stream(**arguments)
        except InputError as e:
            refused.append(str(e))

    store = FaultStore(lakelatch.open(url).store)
    table = lakelatch.occ.table.Table(store, env=FakeEnvironment(seed=2))
    where = "/log/" if moment == "put_if_absent" else "hoodie.properties"
    store.add(Pause(On(moment, where), call=lambda: declare(other, second)))
    declare(table, given)
    assert bool(refused) == bool(words), refused
    assert all(re.search(words, each) for each in refused)
    names = {"one", second["name"]} if not words else {"one"} if moment == "replace_if_match" else {second["name"]}
    for each in (table, other, lakelatch.open(url)):
        each.session.log.catch_up()
        assert {stream.name for stream in each.streams} == names
        assert declared_in(each.session.read_config()).streams == each.streams, "the properties are not behind"
        each.close()
