"""A note with a commit: on every verb, whatever it has to go through, for our readers and Hudi's."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.cli.app import app
from lakelatch.hudi.timeline.commit_metadata import decode_commit
from lakelatch.occ.entries.batches import NOTE_BYTES, note_in
from lakelatch.occ.entries.entries import Commit
from lakelatch.testing.faults import On, Refuse

from ...command_line import Runner
from ..coordinated import Direct, begun, question, together_in
from ..world import add, rows

NOTE = {"job": "nightly 🌙", "run": "7"}


@pytest.fixture
def table(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as made:
        made.upsert([{"id": each, "n": 1} for each in "abcd"])
        yield made


def noted(table: lakelatch.Table) -> dict[str, str]:
    """The note of the newest commit, in the file that Hudi's readers open; the log's entry has the same."""
    instant, metadata = table.commits()[-1]
    name = f"{instant.requested}_{instant.completed}.{instant.action}"
    body = table.store.body(f"{table.config.timeline_folder}/{name}")
    assert note_in(decode_commit(body, name=name, layout=2).extra) == note_in(metadata.extra)
    entries = [each for each in table.session.log.entries() if isinstance(each, Commit)]
    logged = next(each for each in entries if each.instant == instant.requested)
    assert note_in((logged.metadata or {}).get("extra", {})) == note_in(metadata.extra)
    return note_in(metadata.extra)


def test_each_write_takes_it(table):
    writes = [
        lambda **given: table.upsert([{"id": "a", "n": 2}], **given),
        lambda **given: table.insert([{"id": "e", "n": 1}], **given),
        lambda **given: table.delete([{"id": "a"}], **given),
        lambda **given: table.delete_where("id = 'b'", **given),
        lambda **given: table.update_where("id = 'c'", {"n": lakelatch.sql("n + 5")}, **given),
        lambda **given: table.merge([{"id": "d", "n": 9}], **given).when_matched(update="all").run(),
        lambda **given: table.overwrite_table([{"id": "z", "n": 1}], **given),
        lambda **given: table.add_column("more", "string", **given),
        lambda **given: table.run(lambda txn: txn.upsert([{"id": "y", "n": 1, "more": None}]), **given),
        lambda **given: table.delete_all(**given),
    ]
    for number, write in enumerate(writes):
        write(note={"number": str(number), **NOTE})
        assert noted(table) == {"number": str(number), **NOTE}
    with table.transaction(note=NOTE, batch=("q", 1)) as txn:
        txn.upsert([{"id": "y", "n": 1, "more": None}])
        txn.delete([{"id": "y"}])
    assert noted(table) == NOTE
    assert table.last_batch("q") == 1
    table.upsert([{"id": "x", "n": 1, "more": None}])
    assert noted(table) == {}


def test_a_write_that_changes_nothing_leaves_no_trace_with_a_note_either(table):
    before = table.commits()
    assert table.delete([{"id": "nope"}], note=NOTE).instant is None
    assert table.commits() == before


def test_it_survives_a_lost_attempt_and_a_rebase(make_world):
    world = make_world()
    a, b = world.writer("A"), world.writer("B")
    calls = []

    def work(txn):
        calls.append(txn.instant)
        add(txn, "a")
        if len(calls) == 1:  # a conflict that is not merged: both rewrite the file without a way to do it again
            with b.table.transaction() as other:
                add(other, "a")

    done = a.table.run(work, note=NOTE)
    assert done.attempts == 2
    assert noted(a.table) == NOTE
    txn = a.table.transaction(note=NOTE | {"rebased": "yes"})
    txn.upsert(rows("a", {"a0": 5}))
    b.table.upsert(rows("a", {"a1": 6}))
    txn.commit()
    assert noted(a.table) == NOTE | {"rebased": "yes"}
    assert a.table.why(txn.instant).merged_over, "it was merged again"


def test_members_of_one_entry_keep_their_own(make_world):
    world = make_world()
    asked = Direct(world.writer("leader"))
    txns = [begun(world.writer(name), "a", f"new {name}", note={"who": name}) for name in "AC"]
    asked.commit(*map(question, txns))
    told = {each.requested: note_in(metadata.extra) for each, metadata in asked.leader.table.commits()}
    assert [told[txn.instant] for txn in txns] == [{"who": "A"}, {"who": "C"}]
    assert len(together_in(world)[-1]) == 2


def test_it_is_published_by_another_when_its_writer_has_died(make_world):
    world = make_world()
    d = world.writer("D")
    txn = d.table.transaction(note=NOTE)
    add(txn, "a")
    d.store.add(Refuse(On("put_if_absent", ".hoodie/timeline"), forever=True))
    txn.commit()
    d.die()
    a = world.writer("A")
    a.table.upsert(rows("b", {"b0": 3}))
    told = {each.requested: note_in(metadata.extra) for each, metadata in a.table.commits()}
    assert told[txn.instant] == NOTE


def test_why_feed_and_timeline_show_it(table):
    done = table.upsert([{"id": "a", "n": 2}], note=NOTE)
    plain = table.upsert([{"id": "a", "n": 3}])
    assert table.why(done.instant).note == NOTE
    assert table.why(plain.instant).note == {}
    told = {row["_commit_instant"]: row["_commit_note"] for row in table.change_feed().to_pylist()}
    assert json.loads(told[done.instant]) == NOTE
    assert told[plain.instant] is None
    run = Runner()
    assert "nightly 🌙" in run.invoke(app, ["why", table.url, done.instant]).stdout
    for asked, found in (
        ("job", [done.instant]),
        ("run=7", [done.instant]),
        ("run=8", []),
        ("job=", []),
        ("lakelatch.batch", []),
    ):
        out = run.invoke(app, ["timeline", table.url, "--note", asked, "--json", "-n", "1"]).stdout
        assert [each["requested"] for each in json.loads(out)["instants"]] == found, asked
    both = ["timeline", table.url, "--note", "run=7", "--note", "job=x"]
    assert "no commit has such a note" in run.invoke(app, both).output
    assert "job=nightly 🌙, run=7" in run.invoke(app, ["timeline", table.url]).stdout


def test_the_timeline_finds_it_behind_many_others_and_in_the_archive(table):
    done = table.upsert([{"id": "a", "n": 2}], note=NOTE)
    for n in range(8):
        table.upsert([{"id": "a", "n": n}])
    table.archive(keep_min=2, keep_max=3)
    assert done.instant not in {each.requested for each in table.timeline().commits}
    out = Runner().invoke(app, ["timeline", table.url, "--note", "job", "--json", "-n", "1"]).stdout
    (found,) = json.loads(out)["instants"]
    assert (found["requested"], found["note"], found["outcome"]) == (done.instant, NOTE, "archived")


def test_the_command_line_writes_it(table, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "a", "n": 9}\n')
    run = Runner()
    assert run.invoke(app, ["upsert", table.url, str(file), "--note", "job=a=b", "--note", "x="]).exit_code == 0
    assert noted(table) == {"job": "a=b", "x": ""}
    before = table.commits()
    for wrong in (["--note", "job"], ["--note", "a=1", "--note", "a=2"], ["--note", "=x"], ["--note", "schema=x"]):
        told = run.invoke(app, ["upsert", table.url, str(file), *wrong])
        assert told.exit_code == 2, told.output
    assert table.commits() == before


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


def test_a_text_of_a_subclass_is_stored_as_the_text_it_is(table):
    table.upsert([{"id": "a", "n": 2}], note={Shout("mon"): Shout("day")})
    assert noted(table) == {"mon": "day"}


@pytest.mark.parametrize(
    "note",
    [
        {"k": "v" * (NOTE_BYTES - 1)},
        {"🌙" * 100: ""},
        {"\x00": "\x1b[2J\u202e"},
        {"\ufeff ": '\n\r\t"\\{}%s'},
    ],
)
def test_any_text_comes_back(table, note):
    done = table.upsert([{"id": "a", "n": 2}], note=note)
    assert noted(table) == note
    shown = (
        Runner().invoke(app, ["timeline", table.url]).stdout
        + Runner().invoke(app, ["why", table.url, done.instant]).stdout
    )
    assert not any(each in shown for each in "\x1b\x00\u202e"), "a terminal would obey it"


@pytest.mark.parametrize(
    ("note", "why"),
    [
        ("job", "is no note"),
        ([("a", "b")], "is no note"),
        ({"a": 1}, "'a' is 1, which is no text"),
        ({"a": None}, "'a' is None"),
        ({1: "a"}, "1 is no key"),
        ({"": "a"}, "'' is no key"),
        ({"k" * 101: "a"}, "is no key"),
        ({"schema": "x"}, "'schema' is one of"),
        ({"latest_schema": "x"}, "is one of"),
        ({"lakelatch.batch": '["q", 9]'}, "is one of"),
        ({"hoodie.x": "x"}, "is one of"),
        ({"deltastreamer.checkpoint.key": "x"}, "is one of"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": "v" * NOTE_BYTES}, r"4,097 bytes, of at most 4,096, and 'a'"),
    ],
)
def test_what_is_no_note_is_refused_before_anything_begins(table, note, why):
    before = list(table.session.log.entries())
    for write in (
        lambda: table.upsert([{"id": "a", "n": 2}], note=note),
        lambda: table.transaction(note=note),
        lambda: table.run(lambda txn: None, note=note),
    ):
        with pytest.raises(lakelatch.InputError, match=why):
            write()
    assert list(table.session.log.entries()) == before


def test_it_is_imported_from_the_timeline_with_a_neighbour(make_world, tmp_path):
    beside = make_world(lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0, neighbours="hudi")
    d = beside.writer("D")
    txn = d.table.transaction("upsert", note=NOTE)
    add(txn, "a")
    d.store.add(Refuse(On("put_if_absent", ".hoodie/.lakelatch/log"), forever=True))
    txn.commit()
    d.die()
    a = beside.writer("A")
    a.table.upsert(rows("b", {"b0": 3}))
    told = {each.requested: note_in(metadata.extra) for each, metadata in a.table.commits()}
    assert told[txn.instant] == NOTE


def test_a_commit_without_one_has_the_bytes_that_it_had(table):
    done = table.upsert([{"id": "a", "n": 2}])
    (entry,) = [
        each for each in table.session.log.entries() if isinstance(each, Commit) and each.instant == done.instant
    ]
    assert "extra" not in (entry.metadata or {})


def test_a_coordinator_commits_it_for_its_writer(make_world):
    world = make_world()
    asked = Direct(world.writer("leader"))
    a = world.writer("A")
    a.table.session.coordinator = asked
    done = a.table.upsert(rows("a", {"a0": 5}), note=NOTE)
    assert asked.asked, "it was asked"
    told = {each.requested: note_in(metadata.extra) for each, metadata in world.writer("B").table.commits()}
    assert told[done.instant] == NOTE


def test_events_of_a_stream_have_one(tmp_path):
    schema = pa.schema([("id", pa.string()), ("at", pa.int64()), ("seen", pa.string())])
    kind = {"type": "merge_on_read", "table_version": 9, "bucket_count": 2}
    with lakelatch.create(tmp_path / "t", record_key="id", schema=schema, **kind) as made:
        stream = made.stream("s", columns="seen", ordering="at")
        stream.upsert([{"id": "a", "at": 1, "seen": "x"}], note=NOTE)
        assert noted(made) == NOTE
