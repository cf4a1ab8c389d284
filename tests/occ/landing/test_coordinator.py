"""A coordinator begins and commits for the writers that ask it, and each of them goes on by itself if it hears nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, LockTimeoutError, RolledBackError
from lakelatch.occ.check.check import check
from lakelatch.occ.coordination import Answer, Question
from lakelatch.occ.entries import BeginRequest, Request
from lakelatch.occ.entries.entries import Commit, End, GroupBegin, GroupCommit
from lakelatch.occ.landing import coordinator as leading
from lakelatch.occ.log.commit_log import KnownEntries
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.table.table import Table
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import On, Pause, Refuse

from ...servers import versitygw
from ..coordinated import Direct, asking, begun, log_of, question
from ..world import (
    BEGUN,
    World,
    Writer,
    add,
    check_published,
    check_sound,
    content,
    entries,
    fate,
    independent_content,
    insert,
)


@pytest.fixture
def asked(world: World) -> Direct:
    return Direct(world.writer("leader"))


def sound(world: World, expected: dict[str, int]) -> None:
    assert world.content() == expected
    assert independent_content(world.folder) == expected
    with world.fresh() as table:
        check_sound(table)


# --- what a coordinator does -------------------------------------------------------------------------------------------


def test_a_writer_reads_and_puts_no_entry_of_the_log(world, asked):
    writer = asking(world, asked, "W")
    writer.insert("a", "warm")
    writer.store.calls.clear()
    assert writer.insert("a", "new").published
    assert [call.op for call in writer.store.calls if call.path.startswith(LOG)] == []
    assert [type(each.wanted) for each in asked.asked] == 2 * [BeginRequest, Request]
    sound(world, BEGUN | {"warm": 1, "new": 1})


def test_a_lone_writer_goes_on_by_itself_until_another_comes(world, asked):
    writer, other = asking(world, asked, "W"), asking(world, asked, "other")
    writer.insert("a", "first")
    count = len(asked.asked)
    assert count == 2, "whether others are at work is not known yet"
    world.env.advance(1.5)
    writer.insert("a", "second")
    assert len(asked.asked) == count + 1, "it heard that it is alone, and commits by itself"
    writer.insert("a", "third")
    assert len(asked.asked) == count + 1
    world.env.advance(1.5)
    txn = other.table.transaction("insert")
    writer.insert("a", "fourth")
    assert [type(each.wanted) for each in asked.asked[count + 2 :]] == [BeginRequest, Request], "another is at work"
    insert(txn, "b", "fifth")
    txn.commit()
    sound(world, BEGUN | dict.fromkeys(("first", "second", "third", "fourth", "fifth"), 1))


@pytest.fixture
def many(world: World) -> Iterator[list[Table]]:
    """Handles of one process on threads, which ask one coordinator."""
    shared = lakelatch.LocalCoordinator()
    tables = [lakelatch.open(str(world.folder), writer=f"n{i}", coordinator=shared) for i in range(5)]
    yield tables
    for table in tables:
        table.close()


def test_commits_that_wait_land_by_one_entry_and_so_do_begins(world, many, monkeypatch):
    joined, real = threading.Semaphore(0), leading._Line.join
    monkeypatch.setattr(leading._Line, "join", lambda self, each: (real(self, each), joined.release())[0])
    with world.fresh() as holder:
        holder.change_settings(coordinator_patience_s=60.0)
        txns = [table.transaction("insert") for table in many]
        for each in txns:
            insert(each, "a", each.session.writer)
            assert joined.acquire(timeout=PATIENCE_S)
        lease = holder.session.lease("busy")
        threads = [threading.Thread(target=each.commit) for each in txns]
        for thread in threads:
            thread.start()
            assert joined.acquire(timeout=PATIENCE_S)
        lease.release()
        for thread in threads:
            thread.join(PATIENCE_S)
    groups = [each for each in log_of(world) if isinstance(each, GroupCommit)]
    assert sorted(len(each.members) for each in groups) in ([4], [5], [2, 3], [3, 2])
    assert sum(1 for each in log_of(world) if isinstance(each, Commit | GroupCommit)) <= 4, "and not one entry for each"
    assert {t.session.writer for t in txns} <= set(world.content())
    assert all(each.result is not None and each.result.published for each in txns)
    with world.fresh() as table:
        check_sound(table)


def test_of_those_that_ask_together_each_is_judged_behind_the_others(world, asked):
    """Two change one file group: the first lands, and the other hears that it must decide for itself."""
    a, b, c = (asking(world, asked, name) for name in "ABC")
    txns = [a.begin_add("a"), b.begin_add("a", 10), c.begin_add("b")]
    answers = asked.commit(*map(question, txns))
    assert len(answers) == 3, "also who is left out is told"
    (group,) = [each for each in log_of(world) if isinstance(each, GroupCommit)]
    assert [each.instant for each in group.members] == [txns[0].instant, txns[2].instant]
    assert [txns[0].commit().slot, txns[2].commit().slot] == [group.slot, group.slot]
    with pytest.raises(ConflictError, match=txns[0].instant):
        txns[1].commit()
    sound(world, {"a0": 1, "a1": 1, "b0": 1, "b1": 1})


@pytest.mark.parametrize(
    ("settings", "lease_s"), [({}, 2.0), ({"coordinator_patience_s": 5.0}, 5.0), ({"lease_s": 1.0}, 1.0)]
)
def test_a_coordinator_that_dies_keeps_the_lock_for_as_long_as_its_writers_wait(world, asked, settings, lease_s):
    if settings:
        world.writer("admin").table.change_settings(**settings)
        asked.leader.table.session.log.catch_up()
    now = asked.leader.env.monotonic
    lease = asked.coordinator._lease("a round")
    assert lease.lease.deadline - now() == pytest.approx(lease_s, abs=0.1)
    lease.release()
    lease = asked.leader.table.session.lease("a write of its own")
    assert lease.lease.deadline - now() == pytest.approx(settings.get("lease_s", 30.0), abs=0.1)
    lease.release()


def test_begins_wait_no_longer_for_commits_whose_lock_cannot_be_had(world, asked):
    """The lock was asked for while the last entry was published, and the next one's begins give way to its commits."""
    coordinator, writer = asked.coordinator, asking(world, asked, "W")
    txn = begun(writer, "a", "new")

    class Refused:
        ended = True

        def take(self) -> None:
            raise LockTimeoutError("others hold it", key="table")

    first = asked.leader.env.event()
    coordinator._ahead, coordinator._first = Refused(), first
    asked.commit(question(txn))
    assert coordinator._ahead is None
    assert coordinator._first is None
    assert first.is_set()
    assert txn.commit() is not None
    sound(world, BEGUN | {"new": 1})


def test_several_begin_by_one_entry(world, asked):
    held: list[Question] = []
    writers = [asking(world, asked, name) for name in "ABC"]
    asked.hears = lambda question: held.append(question)  # type: ignore[func-returns-value]
    for each in writers:
        each.table.transaction("insert").abort()  # by itself; its question is stale now
    fresh = [
        replace(q, wanted=replace(q.wanted, begin=replace(q.wanted.begin, asked=f"{n:032x}")))
        for n, q in enumerate(held, 1)
    ]
    answers: list[Answer | None] = []
    asked.coordinator._begin([leading._Waiting(each, answers.append) for each in (*held, *fresh, fresh[0])])
    (*alone, group) = [each for each in log_of(world) if isinstance(each, GroupBegin)]
    assert [len(each.members) for each in alone] == [1, 1, 1]
    assert [each.asked for each in group.members] == [f"{n:032x}" for n in (1, 2, 3)], "once each, and no stale one"
    assert [each.instant for each in group.members] == sorted({each.instant for each in group.members})
    assert len(answers) == 7


def test_a_conflict_is_found_without_the_lock(world, asked):
    a, b = asking(world, asked, "A"), asking(world, asked, "B")
    txn = a.table.transaction("upsert", isolation="serializable")
    txn.read()
    add(txn, "a")
    b.add("a")
    lease = b.table.session.lease("busy")
    with pytest.raises(ConflictError, match="landed first"):
        txn.commit()
    lease.release()
    assert fate(b.table, txn.instant) == ["begin", "abort"]
    sound(world, BEGUN | {"a0": 1, "a1": 1})


# --- nothing is heard --------------------------------------------------------------------------------------------------


def test_without_an_answer_a_writer_begins_and_commits_by_itself(world, asked):
    asked.hears = lambda _: None
    writer = asking(world, asked, "W")
    assert writer.insert("a", "new").published
    sound(world, BEGUN | {"new": 1})


def test_who_hears_nothing_finds_in_the_log_that_it_was_taken(world, asked):
    asked.answers = False
    writer = asking(world, asked, "W")
    result = writer.insert("a", "new")
    mine = fate(writer.table, result.instant)
    assert mine == ["begin", "commit"], "once each, by the coordinator"
    sound(world, BEGUN | {"new": 1})


def test_a_late_question_changes_nothing(world, asked):
    late: list[Question] = []
    asked.hears = lambda question: late.append(question)  # type: ignore[func-returns-value]
    writer = asking(world, asked, "W")
    writer.insert("a", "new")
    txn = writer.table.transaction("insert")
    insert(txn, "a", "given up")
    late.append(question(txn))
    txn.abort()
    before = len(log_of(world))
    for each in (*late, *late):
        asked.coordinator.ask(each, lambda _: None)
    assert len(log_of(world)) == before
    sound(world, BEGUN | {"new": 1})


def test_writers_with_and_without_a_coordinator_and_two_of_them(world, asked):
    other = Direct(world.writer("other"))
    writers = [asking(world, asked, "A"), asking(world, other, "B"), world.writer("C")]
    for number in range(3):
        for writer in writers:
            writer.add("a")
            writer.insert("b", f"{writer.name}{number}")
    sound(world, BEGUN | {"a0": 9, "a1": 9} | {f"{name}{number}": 1 for name in "ABC" for number in range(3)})


def test_a_coordinator_whose_store_refuses_tells_its_writers_to_go_on(world, asked):
    leader = world.writers[0]
    leader.store.add(Refuse(On("put_if_absent", LOG), forever=True))
    writer = asking(world, asked, "W")
    assert writer.insert("a", "new").published
    leader.store.reset()
    sound(world, BEGUN | {"new": 1})


def test_one_that_cannot_publish_says_so_and_the_next_does_it(world, asked):
    leader = world.writers[0]
    writer = asking(world, asked, "W")
    leader.store.add(Refuse(On("put_if_absent", "timeline/"), forever=True))
    assert not writer.insert("a", "new").published
    leader.store.reset()
    world.writer("next").add("b")
    sound(world, {"a0": 0, "a1": 0, "b0": 1, "b1": 1, "new": 1})


def test_one_that_follows_an_old_epoch_finds_the_new_one(world, asked):
    writer = asking(world, asked, "W")
    with world.fresh() as table:
        table.session.log.close_epoch()
        table.session.log.catch_up()
    assert writer.insert("a", "new").published
    assert writer.insert("a", "more").published
    sound(world, BEGUN | {"new": 1, "more": 1})


def test_nobody_is_told_of_an_entry_before_it_is_known_to_count():
    """Of one that counts follows that those before it do, in this epoch; a larger slot of an older epoch says nothing."""
    known = KnownEntries()
    for slot in range(5, 10):
        known.add(3, slot, str(slot), b"")

    def told(slot: int = 5) -> list[str]:
        return [path for path, _ in known.since(slot)]

    assert told() == []
    known.certify(3, 7)
    assert told() == ["5", "6"]
    known.certify(2, 100)
    known.certify(3, 6)
    assert told() == ["5", "6"]
    known.forget()
    assert told() == []
    known.add(4, 1, "1", b"")  # of a log that was lost and made again
    assert told(1) == []
    known.certify(4, 2)
    assert told(1) == ["1"]


def test_an_entry_of_a_replaced_epoch_does_not_count_because_a_later_one_does(world):
    """Two threads of a coordinator: one is paused behind its put into an emptied slot, the other goes on in the new epoch."""
    leader = world.writer("leader")
    log, known = leader.table.session.log, leader.table.session.log.remember()
    log.catch_up()
    before = log.next_slot
    _emptied(world, leader)
    mine = log.append(lambda state: End("abort", "20200101000000000", "x", "mine"), confirms=False)
    assert mine is not None
    assert mine.slot == before
    log._mutex.acquire()
    log.epoch = 0  # the other thread has looked
    log._mutex.release()
    for name in ("x", "y", "z"):
        world.writer(name).insert("a", name)
    later = log.append(lambda state: End("abort", "20200101000000001", "x", "later"), confirms=False)
    assert later is not None
    assert later.slot > mine.slot
    assert log.confirm(later)
    assert not log.confirm(mine)
    assert not log.confirm(mine)
    assert mine.instant not in b"".join(body for _, body in known.since(log.first_slot)).decode()


def test_what_another_put_into_an_emptied_slot_is_told_to_nobody(world):
    """Two coordinators were paused while their epoch was replaced: one reads the entry of the other before it looks."""
    first, second = (world.writer(name).table.session.log for name in ("first", "second"))
    known = second.remember()
    first.remember()
    first.catch_up(), second.catch_up()
    slot = second.next_slot
    _emptied(world, world.writers[0])
    first.append(lambda state: End("abort", "20200101000000000", "x", "stray"), confirms=False)
    second.glance()
    assert second.next_slot == slot + 1, "it reads the stray entry"
    assert known.since(slot) == ()
    second.catch_up()
    assert b"stray" not in b"".join(body for _, body in known.since(second.first_slot))


def _emptied(world: World, sleeper: Writer) -> None:
    """When the sleeper next puts an entry, its epoch has been replaced and its folder has been emptied."""
    log = sleeper.table.session.log
    folder = world.folder / LOG / f"{log.epoch:013d}"

    def replaced() -> None:
        for path in folder.iterdir():
            path.unlink()
        world.env.advance(1.0)  # the new epoch is numbered from the time
        lakelatch.adopt(str(world.folder), env=world.env.peer()).close()

    sleeper.store.add(Pause(On("put_if_absent", LOG), replaced))


def test_an_entry_in_an_epoch_that_was_replaced_is_told_to_nobody(world, asked):
    """The coordinator is paused before its put; the log is rebuilt, and its old folder is emptied and then removed."""
    writer = asking(world, asked, "W")
    writer.insert("a", "warm")
    log = asked.leader.table.session.log
    told: list[Answer | None] = []
    asked.hears = lambda question: None
    txn = writer.table.transaction("insert")
    _emptied(world, asked.leader)
    fresh = replace(asked.asked[-1].wanted, begin=replace(asked.asked[-1].wanted.begin, asked="f" * 32))
    asked.coordinator.ask(Question(log.next_slot, fresh), told.append)
    assert told[-1] is None or told[-1].entries == ()
    insert(txn, "a", "of a log that is gone")
    with pytest.raises(RolledBackError):
        txn.commit()
    assert asking(world, asked, "X").insert("a", "new").published
    with world.fresh() as table:
        assert content(table) == BEGUN | {"warm": 1, "new": 1}


# --- what is hostile ---------------------------------------------------------------------------------------------------


def test_a_forged_commit_makes_nobody_believe_that_it_landed(world, asked):
    """Somebody with a token asks for a commit of nothing under the T of another."""

    def forge(question: Question) -> Question:
        request = question.wanted
        if not isinstance(request, Request):
            return question
        nothing = {**request.commit.metadata, "stats": []}
        return replace(question, wanted=replace(request, commit=replace(request.commit, metadata=nothing)))

    asked.hears = forge
    writer = asking(world, asked, "W")
    txn = writer.table.transaction("insert")
    insert(txn, "a", "new")
    with pytest.raises(RolledBackError, match="another content"):
        txn.commit()
    asked.hears = lambda question: question
    sound(world, BEGUN)
    assert writer.insert("a", "new").published
    sound(world, BEGUN | {"new": 1})


def test_nor_who_asks_nobody(world, asked):
    """It has put no request, and somebody else asks for a commit of nothing under its T."""
    victim, hostile = world.writer("W"), asking(world, asked, "W")
    txn = victim.table.transaction("insert")
    insert(txn, "a", "new")
    request = question(txn).wanted
    txn._landing._asked = False
    txn._landing._prepared.clear()
    assert isinstance(request, Request)
    nothing = replace(request, commit=replace(request.commit, metadata={**request.commit.metadata, "stats": []}))
    hostile.table.session.coordinator.ask(Question(0, nothing), 1.0)
    assert fate(hostile.table, txn.instant) == ["begin", "commit"]
    with pytest.raises(RolledBackError, match="another content"):
        txn.commit()
    sound(world, BEGUN)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"v":1', b'"v":2', 1),
        lambda body: body[:-1],
        lambda body: body.replace(b"begin", b"end", 1),
        lambda body: b"\xff" + body,
        lambda body: b'{"v":1,"slot":-1,"kind":"begin"}\n' + body.partition(b"\n")[2],
        lambda body: b'{"v":1,"slot":true,"kind":"begin"}\n' + body.partition(b"\n")[2],
        lambda _: b"",
        lambda _: b"[]\n",
        lambda _: b"[" * 100_000,
    ],
)
def test_a_question_that_cannot_be_understood(world, asked, change):
    writer = asking(world, asked, "W")
    writer.table.transaction("insert").abort()
    body = asked.asked[0].to_bytes()
    assert Question.from_bytes(body) == asked.asked[0]
    assert Question.from_bytes(change(body)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}\n", b"[]\n", b"\xff\n", b'{"v":2,"published":true,"alone":true,"entries":[]}\n', b'{"v":1,"entries":[]}\n',
        b'{"v":1,"published":true,"alone":true,"entries":[["a",2]]}\nx',
        b'{"v":1,"published":true,"alone":true,"entries":[[1,1]]}\nx',
        b'{"v":1,"published":true,"alone":true,"entries":[["a",-1],["b",2]]}\nx',
        b'{"v":1,"published":1,"alone":true,"entries":[]}\n', b'{"v":1,"published":true,"alone":0,"entries":[]}\n',
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_understood(body):
    assert Answer.from_bytes(body) is None


def test_an_answer_travels_as_it_is():
    for answer in (Answer(), Answer((("a", b"x\n{}"), ("b", b"")), published=False, alone=True)):
        assert Answer.from_bytes(answer.to_bytes()) == answer


def test_entries_that_are_none_of_the_log_are_of_no_use(world, asked):
    writer = asking(world, asked, "W")
    real = asked.ask
    path = f"{LOG}/0/0"

    def lie(question: Question, patience_s: float) -> Answer | None:
        told = real(question, patience_s)
        assert told is not None
        return Answer(tuple((path, b"{torn") for path, _ in told.entries) or ((path, b""),))

    asked.ask = lie  # type: ignore[method-assign]
    assert writer.insert("a", "new").published
    sound(world, BEGUN | {"new": 1})


# --- which coordinator -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["localhost:8047", "ftp://a", "http://", "https://u:p@a", "http://a?b=c", "http://a:0"])
def test_what_is_no_url_of_a_coordinator_is_refused(world, url):
    with world.fresh() as table, pytest.raises(ConfigError, match="coordinator"):
        table.change_settings(coordinator=url)


def test_the_settings_name_the_coordinator_of_every_writer(world, monkeypatch, caplog):
    with world.fresh() as table:
        table.change_settings(coordinator="http://127.0.0.1:9")
    with lakelatch.open(str(world.folder)) as table:
        assert table.session.coordinator is None
        assert "no token" in caplog.text
    monkeypatch.setenv("LAKELATCH_COORDINATOR_TOKEN", "x" * 20)
    with lakelatch.open(str(world.folder)) as table:
        assert table.session.coordinator is not None
        assert table.session.coordinator.url == "http://127.0.0.1:9"
        with table.transaction("insert") as txn:  # nobody listens there
            insert(txn, "a", "new")
    with lakelatch.open(str(world.folder), coordinator="") as table:
        assert table.session.coordinator is None
        assert content(table) == BEGUN | {"new": 1}


def test_what_is_no_coordinator_is_refused(world):
    with pytest.raises(ConfigError, match="LocalCoordinator"):
        lakelatch.open(str(world.folder), coordinator=3)
    with pytest.raises(ConfigError, match="token"):
        lakelatch.open(str(world.folder), coordinator="http://127.0.0.1:9")


def test_a_local_coordinator_closes_with_the_last_handle(world):
    shared = lakelatch.LocalCoordinator()
    first, second = (lakelatch.open(str(world.folder), coordinator=shared) for _ in range(2))
    session = first.session.coordinator._shared.session
    first.close()
    first.close()
    session.require_open()
    second.close()
    with pytest.raises(lakelatch.TableError):
        session.require_open()


def test_writers_on_a_real_s3_server_land_together(tmp_path):
    """Threads with handles of their own, on a store that is far: entries ahead of their confirmation, instants at once."""
    with versitygw(tmp_path / "s3") as bucket:
        url, shared, writers, commits = f"{bucket.url}/t", lakelatch.LocalCoordinator(), 4, 3
        lakelatch.create(
            url, record_key="id", partition_by="part", lock=f"file://{tmp_path}/locks", storage=bucket.options,
            publish_at_once=True, schema=pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())]),
        ).close()  # fmt: skip

        def work(number: int) -> None:
            with lakelatch.open(url, writer=f"w{number}", storage=bucket.options, coordinator=shared) as table:
                for count in range(commits):
                    table.insert([{"id": f"{number}-{count}", "part": f"p{number}", "v": count}])

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(work, range(writers)))
        with lakelatch.open(url, storage=bucket.options) as table:
            ids = table.read(columns=["id"]).to_arrow()["id"].to_pylist()
            assert sorted(ids) == sorted(f"{n}-{c}" for n in range(writers) for c in range(commits))
            slots = Counter(each.slot for each in entries(table))
            assert max(slots.values()) > 1, "no entry has begins or commits of several"
            check_published(table)
            assert not check(table.store).findings
