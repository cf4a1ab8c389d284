"""A batch of a source lands once, no matter who sends it how often, whatever fails on the way (docs/exactly-once.md)."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.batches import SOURCES_MAX, Batch, Batches, Landed
from lakelatch.occ.entries.entries import Open, decode, encode
from lakelatch.occ.log.state import LogState
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import PUTS, At, Late, LoseReply, On, Pause, Refuse

from ...thorough import some
from ..world import BEGUN, World, content, struck

ONE = pa.table({"id": ["n"], "part": ["a"], "v": [1]})


@pytest.fixture
def table(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "sum"}) as made:
        yield made


def total(table: Table) -> int:
    return sum(row["n"] for row in table.read().to_pylist())


def test_a_batch_that_is_sent_again_is_not_written_again(table):
    first = table.upsert([{"id": "a", "n": 1}], batch=("clicks", 0))
    assert not first.repeated
    again = table.upsert([{"id": "a", "n": 1}], batch=("clicks", 0))
    assert (again.repeated, again.instant, again.files, again.attempts) == (True, first.instant, 0, 0)
    assert table.last_batch("clicks") == 0
    table.upsert([{"id": "a", "n": 1}], batch=("clicks", 7))
    assert table.upsert([{"id": "a", "n": 1}], batch=("clicks", 6)).repeated, "its successor has landed"
    assert not table.upsert([{"id": "a", "n": 1}], batch=("views", 6)).repeated
    assert total(table) == 3
    assert (table.last_batch("clicks"), table.last_batch("views"), table.last_batch("none")) == (7, 6, None)


def test_a_number_may_come_out_of_a_frame(table):
    table.upsert([{"id": "a", "n": 1}], batch=("all", np.int64(7)))
    assert table.last_batch("all") == 7
    with pytest.raises(lakelatch.InputError, match=r"batch number=1\.0 is not a whole number"):
        table.upsert([{"id": "a", "n": 1}], batch=("all", np.float64(1)))


def test_each_write_takes_it(table):
    table.upsert([{"id": each, "n": 1} for each in "abcd"])
    writes = [
        lambda **given: table.insert([{"id": "e", "n": 1}], **given),
        lambda **given: table.delete([{"id": "a"}], **given),
        lambda **given: table.delete_where("id = 'b'", **given),
        lambda **given: table.update_where("id = 'c'", {"n": lakelatch.sql("n + 5")}, **given),
        lambda **given: table.merge([{"id": "d", "n": 9}], **given).when_matched(update="all").run(),
        lambda **given: table.overwrite_table([{"id": "z", "n": 1}], **given),
    ]
    for number, write in enumerate(writes):
        assert not write(batch=("all", number)).repeated
        before = table.read().to_arrow()
        assert write(batch=("all", number)).repeated
        assert table.read().to_arrow() == before


def test_a_transaction_says_so_by_an_error_that_means_success(table):
    table.run(lambda txn: txn.upsert([{"id": "a", "n": 1}]), batch=Batch("q", 3))
    for again in (
        lambda: table.run(lambda txn: txn.upsert([{"id": "a", "n": 1}]), batch=("q", 3)),
        lambda: table.transaction(batch=("q", 2)),
    ):
        with pytest.raises(lakelatch.BatchLandedError, match="landed before") as told:
            again()
        error = pickle.loads(pickle.dumps(told.value))
        assert (error.landed, error.retryable, error.source, error.last) == (True, False, "q", 3)
    assert not table.session.log.catch_up().open, "nothing was begun"
    assert total(table) == 1


def test_of_two_at_once_one_lands(table):
    other = lakelatch.open(table.url)
    one, two = table.transaction(batch=("q", 1)), other.transaction(batch=("q", 1))
    one.upsert([{"id": "a", "n": 1}])
    two.upsert([{"id": "b", "n": 1}])  # another row, so that nothing else is in its way
    one.commit()
    with pytest.raises(lakelatch.BatchLandedError, match=f"by {one.instant}"):
        two.commit()
    assert total(table) == 1
    assert not check(other.store, deep=True).findings
    other.close()


def test_a_batch_without_effect_has_landed_too(table):
    """Sent again, it might have an effect by then."""
    assert not table.delete([{"id": "a"}], batch=("deletes", 1)).repeated
    table.upsert([{"id": "a", "n": 1}])
    assert table.delete([{"id": "a"}], batch=("deletes", 1)).repeated
    assert total(table) == 1


def test_a_function_that_lost_its_rows_does_not_land_an_empty_batch(table):
    other = lakelatch.open(table.url)
    table.change_settings(rebase=False)
    table.upsert([{"id": "a", "n": 0}])
    rows = iter([{"id": "a", "n": 1}])
    tries = []

    def work(txn):
        given = list(rows)
        if given:
            txn.upsert(given)
        if not tries:
            tries.append(other.upsert([{"id": "a", "n": 10}]))

    with pytest.raises(lakelatch.InputError, match="used up"):
        table.run(work, batch=("q", 1))
    assert table.last_batch("q") is None
    other.close()


def test_it_is_known_in_later_epochs_and_after_archival(tmp_path):
    env = FakeEnvironment(seed=1)
    lakelatch.create(str(tmp_path / "t"), record_key="id", env=env).close()
    with Table(LocalStore(tmp_path / "t"), env=env, epoch_slots=5) as table:
        table.upsert([{"id": "a"}], batch=("old", 1))
        for number in range(30):
            table.upsert([{"id": "b"}], batch=("new", number))
            env.advance(1)
        table.clean(retain_commits=1)
        table.archive(keep_min=1, keep_max=2)
        with Table(LocalStore(tmp_path / "t"), env=env.peer()) as fresh:
            assert fresh.upsert([{"id": "a"}], batch=("old", 1)).repeated
            assert (fresh.last_batch("old"), fresh.last_batch("new")) == (1, 29)


def test_a_restore_takes_batches_back_with_their_rows(table):
    for number in range(4):
        table.upsert([{"id": "a", "n": 1}], batch=("q", number))
    table.restore(table.commits()[-2][0].requested)
    assert (total(table), table.last_batch("q")) == (3, 2)
    assert table.upsert([{"id": "a", "n": 1}], batch=("q", 2)).repeated, "it stands"
    assert not table.upsert([{"id": "a", "n": 1}], batch=("q", 3)).repeated
    assert (total(table), table.last_batch("q")) == (4, 3)


def test_each_source_goes_back_to_what_stands_of_it(table):
    table.upsert([{"id": "a", "n": 1}], batch=("kept", 5))
    table.upsert([{"id": "a", "n": 1}], batch=("both", 7))
    target = table.upsert([{"id": "a", "n": 1}]).instant
    for source in ("gone", "both"):
        table.upsert([{"id": "a", "n": 1}], batch=(source, 9))
    with lakelatch.open(table.url) as other:
        assert other.last_batch("both") == 9
        table.restore(target)
        for each in (table, other):
            assert [each.last_batch(source) for source in ("kept", "both", "gone")] == [5, 7, None]
    with lakelatch.open(table.url) as fresh:
        assert fresh.last_batch("both") == 7


def test_a_restore_after_a_restore_knows_what_stands(table):
    commits = [table.upsert([{"id": "a", "n": 1}], batch=("q", number)).instant for number in range(4)]
    table.restore(commits[2])
    table.upsert([{"id": "a", "n": 1}], batch=("q", 8))
    table.restore(commits[2])
    assert (total(table), table.last_batch("q")) == (3, 2)
    table.restore(commits[0])
    assert (total(table), table.last_batch("q")) == (1, 0)


def test_a_consumer_that_goes_on_where_the_table_is_counts_each_batch_once(tmp_path):
    """As the recipe for micro-batches does, with a stream that adds up."""
    log = [1, 10, 100]
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
    made = lakelatch.create(
        str(tmp_path / "t"), record_key="id", schema=schema, type="merge_on_read", table_version=9, bucket_count=1
    )
    with made as table:
        stream = table.stream("s", columns=["n"], ordering="at", merge={"n": "sum"}, foreign_readers=False)

        def consume() -> None:
            for offset in range(table.last_batch("log") or 0, len(log)):
                stream.upsert([{"id": "k", "n": log[offset], "at": offset}], batch=("log", offset + 1))

        consume()
        table.restore(table.commits()[-2][0].requested)
        assert (total(table), table.last_batch("log")) == (11, 2)
        consume()
        assert total(table) == 111


@pytest.mark.parametrize("archived", [False, True])
def test_a_restore_finds_batches_beyond_epochs_and_archival(tmp_path, archived):
    """No epoch of the log is left that tells of them."""
    env = FakeEnvironment(seed=1)
    lakelatch.create(str(tmp_path / "t"), record_key="id", env=env, log_epochs=1).close()
    with Table(LocalStore(tmp_path / "t"), env=env, epoch_slots=5) as table:
        table.upsert([{"id": "a"}], batch=("old", 1))
        table.upsert([{"id": "a"}], batch=("of two", 1))
        for number in range(30):
            table.upsert([{"id": "b"}], batch=("new", number))
            env.advance(1)
        target = table.commits()[-1][0].requested
        table.savepoint()
        for source in ("old", "of two", "new"):
            for _ in range(4):
                table.upsert([{"id": "c"}], batch=(source, 100 + table.session.log.next_slot))
        if archived:
            table.clean(retain_commits=20)
            assert table.archive(keep_min=16, keep_max=17).instants
        table.delete_savepoint(target)
        table.restore(target)
        assert [table.last_batch(source) for source in ("old", "of two", "new")] == [1, 1, 29]
        with Table(LocalStore(tmp_path / "t"), env=env.peer()) as fresh:
            assert fresh.upsert([{"id": "a"}], batch=("old", 1)).repeated
            assert not check(fresh.store, deep=True).findings


def test_a_batch_of_a_commit_that_another_engine_took_back_is_not_known_to_adopt(tmp_path):
    """Its restore deletes the instant; the log, which it does not read, still says that the batch has landed."""
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id") as table:
        for number in range(3):
            table.upsert([{"id": "a"}], batch=("q", number))
        last = table.commits()[-1][0]
        for name in table.store.names(table.config.timeline_folder):
            if name.startswith(last.requested):
                table.store.delete(f"{table.config.timeline_folder}/{name}")
        max(Path(url).glob(".hoodie/.lakelatch/log/*/*")).write_bytes(b"{torn")
    with lakelatch.adopt(url, "none://") as table:
        assert table.last_batch("q") == 1


def test_an_adopted_table_goes_on_with_what_its_log_said(tmp_path):
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id") as table:
        table.upsert([{"id": "a"}], batch=("q", 5))
        table.transaction().abort()
        max(Path(url).glob(".hoodie/.lakelatch/log/*/*")).write_bytes(b"{torn")
    with lakelatch.adopt(url, "none://") as table:
        assert table.last_batch("q") == 5


def test_no_such_batch(table):
    for bad in (("q",), "q", ("q", 1, 2, 3), 5, [("q", 1)], ["q", 1]):
        with pytest.raises(lakelatch.InputError, match="is no batch"):
            table.upsert([{"id": "a", "n": 1}], batch=bad)
    for source, number in (
        ("", 1),
        (None, 1),
        ("q", -1),
        ("q", 1.0),
        ("q", True),
        ("q", 2**63),
        ("\ud800", 1),
        ("x" * 501, 1),
    ):
        with pytest.raises(lakelatch.InputError):
            table.transaction(batch=(source, number))
    with pytest.raises(lakelatch.InputError, match="no text"):
        table.last_batch("")
    assert not table.commits()[1:], "nothing was written"


def test_a_log_entry_with_a_batch_that_cannot_be_is_damage():
    for bad in (["q"], ["q", -1], ["", 1], [1, 1], "q1", {"q": 1}, ["q", 1, 1], ["q", True]):
        body = (
            b'{"v":1,"kind":"commit","epoch":1,"slot":2,"id":"x","T":"20260101000000000","C":"20260101000000001",'
            b'"action":"commit","op":"UPSERT","writer":"w","token":0,"region":null,"schema":null,"metadata":{},"side":null,'
        )
        version = json.loads(encode(Open("20260101000000000", 0, LogState().settings, slot=1), 1, 1, ""))["v"]
        body = body.replace(b'"v":1', f'"v":{version}'.encode()) + b'"batch":' + json.dumps(bad).encode() + b"}"
        with pytest.raises(lakelatch.CorruptTableError):
            decode(body, "p")


def test_what_is_remembered_is_what_a_dictionary_remembers():
    """Also by who begins with the first entry of a later epoch; of very many sources the longest silent ones go."""
    luck, model, found, landed = random.Random(5), {}, Batches(), {}
    for step in range(4 * SOURCES_MAX):
        instant = f"{20260101000000000 + step}"
        batch = Batch(f"s{luck.randrange(2 * SOURCES_MAX)}", luck.randrange(1000))
        last = model.get(batch.source)
        assert (found.before(batch) is not None) == (last is not None and last[0] >= batch.number)
        if found.before(batch) is None:
            found.add(batch, instant)
            model.pop(batch.source, None)
            model[batch.source] = (batch.number, instant)
            landed[instant] = batch
            if len(model) > SOURCES_MAX:
                del model[next(iter(model))]
        if luck.random() < 0.01:
            gone = luck.sample(sorted(landed), min(3, len(landed)))
            left = {landed[each].source: (luck.randrange(9), instant) for each in gone if luck.random() < 0.5}
            found.take_back(gone, [Landed(Batch(source, n), by) for source, (n, by) in left.items()])
            now = {source: left.get(source) if each[1] in gone else each for source, each in model.items()}
            model = {source: each for source, each in now.items() if each is not None}
        if luck.random() < 0.01:
            opening = Open(instant, 0, LogState().settings, slot=1, batches=tuple(found))
            again = decode(encode(opening, 1, 1, ""), "p")
            assert again == opening
            found = Batches(again.batches)
    assert [(each.batch.source, each.batch.number, each.instant) for each in found] == [
        (s, *each) for s, each in model.items()
    ]
    assert len(model) == SOURCES_MAX


@pytest.mark.parametrize("source", ["clicks", "💥 %s {}\n", "x" * 500])
def test_any_name_of_a_source_is_carried(tmp_path, source):
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        table.upsert([{"id": "a"}], batch=(source, 2**63 - 1))
        table.session.log.close_epoch()
        assert table.upsert([{"id": "a"}], batch=(source, 0)).repeated
        assert table.last_batch(source) == 2**63 - 1


def test_whatever_fails_a_batch_that_is_sent_until_it_is_acknowledged_is_there_once(folder):
    """A fault at each call of the first try; the second is another process's, after which late puts land."""

    def sent(writer):
        return writer.table.upsert(ONE, batch=("q", 1))

    dry = World(folder / "dry")
    writer = dry.writer("A")
    sent(writer)
    calls = writer.store.calls
    dry.close()
    faults = [LoseReply(At(each.number)) for each in calls if each.writes]
    faults += [Late(At(each.number)) for each in calls if each.op in PUTS] + [Refuse(At(each.number)) for each in calls]
    for number, fault in enumerate(some(faults, 10)):
        world = World(folder / str(number))
        first = world.writer("A", host="host-b")
        told = struck(first, fault, sent)
        again = sent(world.writer("B", host="host-c"))
        landed = told.landed if isinstance(told, lakelatch.LakeLatchError) else True
        assert landed is None or again.repeated is landed, (fault, told)
        first.store.land()
        with world.fresh() as table:
            table.rollback_failed_writes(wait=True)
            assert content(table) == BEGUN | {"n": 1}, (fault, told)
            tagged = [entry for entry in table.session.log.entries() if getattr(entry, "batch", None)]
            assert len({entry.instant for entry in tagged}) == 1, (fault, told)
            assert table.upsert(ONE, batch=("q", 1)).repeated
        world.close()


def test_who_waits_for_the_lock_while_its_batch_lands_is_told(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: b.table.upsert(ONE, batch=("q", 1))))
    result = a.table.upsert(ONE, batch=("q", 1))
    assert result.repeated or b.table.last_batch("q") == 1
    with world.fresh() as table:
        assert len([entry for entry in table.session.log.entries() if getattr(entry, "batch", None)]) == 1


def test_a_batch_may_follow_one_only(table):
    """Two consumers of one topic, cut differently: the second one's overlaps, and is refused."""
    add = lambda *batch: table.upsert([{"id": "a", "n": 1}], batch=("topic", *batch))  # noqa: E731
    assert not add(100, None).repeated
    assert not add(130, 100).repeated
    with pytest.raises(
        lakelatch.BatchConflictError, match=r"batch 150 of 'topic' follows 100, and the newest is 130"
    ) as told:
        add(150, 100)
    assert (told.value.last, told.value.landed, told.value.retryable) == (130, False, False)
    assert add(120, 100).repeated, "its events are in the other's"
    with pytest.raises(lakelatch.BatchConflictError, match="is to be the first of its source"):
        add(150, None)
    assert not add(150, 130).repeated
    with pytest.raises(lakelatch.BatchConflictError, match="there is none"):
        table.upsert([{"id": "a", "n": 1}], batch=("other", 7, 3))
    for wrong in (
        ("topic", 150, 150),
        ("topic", 150, -2),
        ("topic", 150, 1.0),
        ("topic", 150, "x"),
        ("topic", 1, 2, 3),
    ):
        with pytest.raises(lakelatch.InputError, match=r"batch|the numbers of a source grow"):
            add(*wrong[1:])
    assert total(table) == 3


def test_of_two_that_follow_the_same_batch_one_lands(table):
    table.upsert([{"id": "a", "n": 1}], batch=("topic", 100))
    with lakelatch.open(table.url) as other:
        late = other.transaction(batch=("topic", 150, 100))
        late.upsert([{"id": "b", "n": 1}])
        table.upsert([{"id": "c", "n": 1}], batch=("topic", 130, 100))
        with pytest.raises(lakelatch.BatchConflictError, match="Nothing was written"):
            late.commit()
    assert total(table) == 2


def test_a_restore_takes_back_what_a_batch_follows(table):
    first = table.upsert([{"id": "a", "n": 1}], batch=("topic", 100))
    table.upsert([{"id": "a", "n": 1}], batch=("topic", 130, 100))
    table.restore(first.instant)
    with pytest.raises(lakelatch.BatchConflictError, match="the newest is 100"):
        table.upsert([{"id": "a", "n": 1}], batch=("topic", 150, 130))
    assert not table.upsert([{"id": "a", "n": 1}], batch=("topic", 150, table.last_batch("topic"))).repeated
