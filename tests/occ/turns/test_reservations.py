"""Nobody starves: waiting, reservations, and what `Table.run` does with them. Two threads of real time for none of it:
a fake clock passes while somebody waits, and what happens meanwhile is a timer of the test.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from lakelatch.cli.history.timeline import newest
from lakelatch.cli.table.describe import facts_of
from lakelatch.conflict import Reservation
from lakelatch.conflict.write_set import EVERYWHERE
from lakelatch.errors import ConflictError, InputError, RolledBackError
from lakelatch.hudi.files import FileGroupId
from lakelatch.occ.entries.entries import decode, encode

from ..world import BEGUN, Writer, add, after, check_sound, insert, overwrite, rows, writes


def group(writer: Writer, part: str) -> FileGroupId:
    (only,) = writer.table.snapshot().file_slices(f"part={part}")
    return only.group


# --- waiting at the commit ---------------------------------------------------------------------------------------


@pytest.fixture
def two(world) -> tuple[Writer, Writer]:
    return world.writer("reserver"), world.writer("other")


def test_who_meets_a_reservation_waits_for_its_end_and_lands(two, caplog):
    """Without the lock in hand, or the reserver could not land: then it is decided by what has landed."""
    reserver, other = two
    caplog.set_level(logging.INFO, "lakelatch.waiting")
    keeps = reserver.table.transaction(reserve=["part=a"])
    ours = other.table.transaction("insert")
    insert(ours, "a", "new")
    began = other.env.monotonic()
    after(other, 20, lambda: (insert(keeps, "a", "kept"), keeps.commit()))
    ours.commit()
    assert [c.instant for c in writes(other.table)][-2:] == [keeps.instant, ours.instant]
    assert 20 <= other.env.monotonic() - began < 30
    assert f"waits for UPSERT {keeps.instant} of reserver: it has reserved partition part=a" in caplog.text


def test_who_waited_and_lost_says_so(two):
    reserver, other = two
    keeps = reserver.table.transaction(reserve=[group(reserver, "a")])
    add(keeps, "a", 5)
    ours = other.begin_add("a")
    after(other, 3, keeps.commit)
    with pytest.raises(ConflictError, match="landed first") as lost:
        ours.commit()
    assert lost.value.winner == keeps.instant


@pytest.mark.parametrize("end", ["abort", "death"])
def test_a_reservation_ends_with_its_transaction(two, end):
    """However that ends: nobody has to give it back."""
    reserver, other = two
    keeps = reserver.table.transaction(reserve="table")
    after(other, 5, keeps.abort if end == "abort" else reserver.die)
    other.add("a")
    assert not other.table.session.log.state.open
    with pytest.raises(RolledBackError) if end == "death" else pytest.raises(Exception, match="is over"):
        keeps.check()


def test_a_writer_that_is_silent_does_not_hold_others_up_for_longer_than_its_heartbeat(world):
    reserver, other = world.writer("reserver"), world.writer("other", host="host-b")
    reserver.table.transaction(reserve="table")
    reserver.env.kill(reserver.env.process())  # nobody on host-b can see that
    began = other.env.monotonic()
    other.add("a")
    assert 60 <= other.env.monotonic() - began < 90


def test_waiting_has_a_bound_and_says_for_whom(make_world):
    world = make_world(yield_wait_s=10)
    reserver, other = world.writer("reserver"), world.writer("other")
    ours = other.begin_add("a")
    keeps = reserver.table.transaction(reserve=["part=a"])
    with pytest.raises(ConflictError, match="is still running: it has reserved partition part=a") as lost:
        ours.commit()
    assert lost.value.winner == keeps.instant
    assert "waited" in lost.value.__notes__[-1]


def test_a_reservation_is_forgotten_after_its_time(make_world):
    """By the clock of each who has seen it: its transaction goes on, protected by nothing but the validation."""
    world = make_world(reservation_s=30)
    reserver, other = world.writer("reserver"), world.writer("other")
    keeps = reserver.table.transaction(reserve="table")
    beats = reserver.env.every(5, reserver.table.session.heart.beat, name="test")
    began = other.env.monotonic()

    def pass_on(seconds: float) -> None:
        reserver.env.advance(seconds)

    other.env.sleep = pass_on  # time passes for both
    other.add("a")
    assert 30 <= other.env.monotonic() - began < 40
    assert keeps.instant in other.table.session.log.state.open
    beats.cancel()


def test_what_is_not_reserved_is_free(two):
    reserver, other = two
    reserver.table.transaction(reserve=[group(reserver, "a"), "part=c"])
    began = other.env.monotonic()
    other.add("b")
    other.insert("a", "beside")
    assert other.env.monotonic() - began < 1


def test_a_lease_is_given_back_before_waiting(two):
    reserver, other = two
    keeps = reserver.table.transaction(reserve=["part=a"])
    ours = other.table.transaction(lock_first=True)
    add(ours, "a")

    def land() -> None:
        insert(keeps, "c", "c0")
        keeps.commit()  # takes the lock that the other one had

    began = other.env.monotonic()
    after(other, 3, land)
    assert ours.commit() is not None
    assert other.env.monotonic() - began < 10


def test_priority_goes_before_reservations(make_world):
    """The one with the larger number waits for nobody below it, whatever they have reserved."""
    world = make_world(strategy="priority")
    low, high = world.writer("low"), world.writer("high")
    high.table.session.priority = 5
    keeps = low.table.transaction(reserve="table")
    add(keeps, "a")
    high.add("a", 10)
    with pytest.raises(ConflictError):
        keeps.commit()


def test_a_small_priority_waits_for_a_larger_one_that_is_running(make_world):
    """Priority inversion: the small one gives its lease back, so that the large one can land, and lands after it."""
    world = make_world(strategy="priority")
    low, high = world.writer("low"), world.writer("high")
    high.table.session.priority = 5
    urgent = high.begin_add("a", 10)
    ours = low.begin_add("a")
    after(low, 3, urgent.commit)
    with pytest.raises(ConflictError, match="landed first"):
        ours.commit()
    done = low.table.run(lambda txn: add(txn, "a"))
    assert done.attempts == 1


# --- waiting at the begin ----------------------------------------------------------------------------------------


def test_a_second_reserver_takes_its_snapshot_after_the_first_has_ended(two):
    first, second = two
    keeps = first.table.transaction(reserve=["part=a"])

    def land() -> None:
        add(keeps, "a", 5)
        keeps.commit()

    after(second, 7, land)
    ours = second.table.transaction(reserve=["part=a", "part=b"])
    assert ours.begin_slot > keeps.result.slot
    add(ours, "a", 1)
    assert ours.commit() is not None
    with second.table as table:
        check_sound(table)


def test_the_table_reserved_is_a_lock_that_others_wait_for(make_world):
    """Also those that reserve nothing, before they waste work; but for so long only."""
    world = make_world(yield_wait_s=30)
    reserver, other = world.writer("reserver"), world.writer("other")
    keeps = reserver.table.transaction("insert_overwrite", reserve="table")
    overwrite(keeps, "a", "a9")
    after(other, 10, keeps.commit)
    done = other.table.run(lambda txn: add(txn, "a"), attempts=1)
    assert done.attempts == 1
    keeps = reserver.table.transaction(reserve="table")
    with pytest.raises(ConflictError, match=r"waited 30 s .*reserved the table and is still running"):
        other.table.transaction()
    assert len(other.table.session.log.catch_up().open) == 1
    keeps.abort()


def test_disjoint_reservations_stand_side_by_side(two):
    first, second = two
    one, other = first.table.transaction(reserve=["part=a"]), second.table.transaction(reserve=["part=b"])
    add(one, "a")
    add(other, "b")
    other.commit()
    one.commit()


@pytest.mark.parametrize(
    ("wanted", "operation", "says"),
    [
        ("part=a", "upsert", r"reserve=\['part=a'\]"),
        (["part=z"], "delete", "no partition 'part=z'"),
        (["z"], "upsert", "cannot be a partition"),
        ([("part=a", "nothing-0")], "upsert", "no file group part=a/nothing-0"),
    ],
)
def test_what_does_not_exist_is_not_reserved(world, wanted, operation, says):
    writer = world.writer("a")
    slots = writer.table.session.log.catch_up() and writer.table.session.log.next_slot
    with pytest.raises(InputError, match=says):
        writer.table.transaction(operation, reserve=wanted)
    writer.table.session.log.catch_up()
    assert writer.table.session.log.next_slot == slots


def test_a_partition_that_an_insert_may_make_can_be_reserved(two):
    reserver, other = two
    keeps = reserver.table.transaction("insert", reserve=["part=new"])
    after(other, 4, lambda: (insert(keeps, "new", "n1"), keeps.commit()))
    other.insert("new", "n2")
    assert [c.writer for c in writes(other.table)][-2:] == ["reserver", "other"]


def test_reservations_survive_the_epoch(world):
    """They are carried over with their open transaction, rank included."""
    writer = world.writer("a")
    keeps = writer.table.transaction(reserve=[group(writer, "a"), "part=b"], first=2)
    before = writer.table.session.log.epoch
    writer.table.session.log.close_epoch()
    with world.fresh() as table:
        begin = table.session.log.state.open[keeps.instant]
        assert begin.age == 2
        assert begin.reserved == keeps.claim.reserved
        assert table.session.log.epoch > before
    assert decode(encode(begin, 1, begin.slot, "x"), "x") == begin
    whole = Reservation(EVERYWHERE)
    assert Reservation.from_json(whole.to_json()) == whole


def test_show_and_timeline_tell_who_has_reserved_and_who_is_behind(two):
    reserver, other = two
    waits = other.begin_add("a")
    waits.workspace.close_files()
    keeps = reserver.table.transaction(reserve=["part=a"])
    free = other.begin_add("b")
    told = facts_of(other.table)["writers"]
    assert [(each["instant"], each["reserved"], each["behind"]) for each in told] == [
        (keeps.instant, "partition part=a", []),
        (waits.instant, None, [keeps.instant]),
        (free.instant, None, []),
    ]
    assert {row.requested: row.reserved for row in newest(other.table, 10)}[keeps.instant] == "partition part=a"


# --- running again -----------------------------------------------------------------------------------------------


def long_delete(world_writer: Writer, meanwhile: Callable[[], object]) -> Callable[..., None]:
    """60 s of work on both partitions, during which somebody else does something every 8 s."""

    def work(txn) -> None:
        timer = world_writer.env.every(8, meanwhile, name="ingest")
        for part in "ab":
            add(txn, part, 100)
        world_writer.env.sleep(60)
        timer.cancel()

    return work


def test_a_long_job_reserves_after_its_first_loss_and_lands_on_its_second_attempt(two):
    """The seeds' case: 60 s against an ingest each 8 s. Those that meet it wait, and land after it."""
    job, ingest = two
    waiting = []

    def write() -> None:
        if any(begin.reserved for begin in ingest.table.session.log.catch_up().open.values()):
            waiting.append(ingest.begin_add("a"))  # would wait at its commit; here it comes when the job has landed
        else:
            ingest.add("a")

    done = job.table.run(long_delete(job, write))
    assert (done.attempts, len(done.losses)) == (2, 1)
    assert 60 <= done.wasted_s < 70
    assert len(waiting) >= 6
    with pytest.raises(ConflictError):
        waiting[0].commit()
    (begin,) = [
        e
        for e in job.table.session.log.entries()
        if getattr(e, "instant", "") == done.commit.instant and e.kind == "begin"
    ]
    assert begin.reserved.groups == {group(job, part) for part in "ab"}
    assert begin.first == begin.age < begin.slot


@pytest.mark.parametrize(("isolation", "attempts"), [("snapshot", 1), ("write-serializable", 1), ("serializable", 2)])
@pytest.mark.parametrize("seed", range(3))
def test_a_long_delete_by_condition_lands_at_once_by_rebase_or_on_its_second_attempt(
    make_world, isolation, attempts, seed
):
    """Among upserts every 8 s into a random one of its partitions; those never wait but for a reservation."""
    world, chance = make_world(isolation=isolation), random.Random(seed)
    job, ingest = world.writer("job"), world.writer("ingest")
    wrote, met = [], 0

    def write() -> None:
        nonlocal met
        if any(begin.reserved for begin in ingest.table.session.log.catch_up().open.values()):
            met += 1  # it would wait now, and here nothing goes on while somebody waits
            return
        part, name = chance.choice("ab"), f"n{len(wrote)}"
        with ingest.table.transaction() as txn:
            txn.upsert(rows(part, {f"{part}0": 1, name: chance.choice((0, 2))}))
        wrote.append(txn.result)

    def work(txn) -> None:
        timer = job.env.every(8, write, name="ingest")
        txn.delete_where([("v", "=", 0)])
        job.env.sleep(60)
        timer.cancel()

    done = job.table.run(work, operation="delete")
    assert done.attempts == attempts
    assert len(wrote) >= 7
    assert bool(met) is (isolation == "serializable")
    left = world.content()
    assert set(left.values()) == {1, 2} or set(left.values()) == {1}
    with world.fresh() as table:
        check_sound(table)


def test_each_further_loss_reserves_more(world):
    """File groups, then their partitions, then the table: whatever is in the way, it ends."""
    writer, other = world.writer("a"), world.writer("b")
    seen = []

    def work(txn) -> None:
        seen.append(txn.claim.reserved)
        add(txn, "a")
        writer.env.sleep(10)
        if len(seen) < 4:
            # Somebody who does not see reservations: an older version, or one that has seen this for too long.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(other.table.session.reservations, "counts", lambda _: False)
                other.add("a")

    done = writer.table.run(work)
    assert done.attempts == 4
    assert seen[0] is None
    assert (seen[1].groups, seen[1].region.partitions) == ({group(writer, "a")}, frozenset())
    assert seen[2].region.partitions == {"part=a"}
    assert seen[3] == Reservation(EVERYWHERE)


def test_work_has_a_bound(world):
    writer, other = world.writer("a"), world.writer("b")

    def work(txn) -> None:
        add(txn, "a")
        writer.env.sleep(10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(other.table.session.reservations, "counts", lambda _: False)
            other.add("a")

    with pytest.raises(ConflictError) as lost:
        writer.table.run(work, lost_work_max_s=25)
    assert "gave up after 3 attempts" in lost.value.__notes__[-1]
    assert "of work were wasted" in lost.value.__notes__[-1]


def test_a_loser_waits_for_a_winner_that_has_not_ended(make_world):
    """Rather than come back and lose again."""
    world = make_world(yield_wait_s=5)
    reserver, other = world.writer("reserver"), world.writer("other")
    keeps = reserver.table.transaction(reserve=[group(reserver, "a")])
    after(other, 100, keeps.abort)
    done = other.table.run(lambda txn: add(txn, "a"))
    assert done.attempts == 2


def test_a_function_that_keeps_a_transaction_is_told_so(world):
    writer, other = world.writer("a"), world.writer("b")
    kept = []

    def work(txn) -> None:
        kept.append(txn)
        add(kept[0], "a")
        if len(kept) == 1:
            other.add("a")

    with pytest.raises(InputError, match="of an earlier attempt"):
        writer.table.run(work)


class Feed:
    """Rows that come once."""

    def __init__(self, batches) -> None:
        self.batches = batches

    def write(self, txn) -> None:
        for batch in self.batches:
            txn.upsert(batch)


def once(kind: str):
    """A function that has rows for its first call only."""
    batches = iter([rows("a", {"a0": 1})])
    if kind == "closure":
        return lambda txn: [txn.upsert(batch) for batch in batches]
    if kind == "default":
        return lambda txn, batches=batches: [txn.upsert(batch) for batch in batches]
    if kind == "bound object":
        return Feed(batches).write
    return partial(lambda given, txn: [txn.upsert(batch) for batch in given], (batch for batch in batches))


@pytest.mark.parametrize("kind", ["closure", "default", "bound object", "partial"])
def test_a_function_that_uses_up_its_input_is_told_so(world, kind):
    """Nothing landed, and it is not taken for a work that has nothing to do any more."""
    writer, other = world.writer("a"), world.writer("b")
    function, calls = once(kind), []

    def work(txn) -> None:
        function(txn)
        calls.append(txn)
        if len(calls) == 1:
            with other.table.transaction() as rival:
                rival.upsert(rows("a", {"a0": 2}))

    with pytest.raises(InputError, match="has used up"):
        writer.table.run(work)
    assert world.content()["a0"] == 2


def test_a_function_that_has_nothing_left_to_do_may_have_kept_something(world, caplog):
    """Which cannot be told from an honest one, so it is only said."""
    writer, other = world.writer("a"), world.writer("b")
    left = [rows("a", {"a0": 1})]

    def work(txn) -> None:
        if not left:
            return
        txn.upsert(left.pop())
        with other.table.transaction() as rival:
            rival.upsert(rows("a", {"a0": 2}))

    assert writer.table.run(work).commit is None
    assert "does the function keep state between its calls" in caplog.text


def test_a_run_may_raise_its_isolation(world):
    writer, other = world.writer("a"), world.writer("b")
    times = []

    def work(txn) -> None:
        times.append(txn.snapshot)
        txn.mark_scanned("part=b")
        insert(txn, "c", "c0")
        if len(times) == 1:
            other.add("b")

    assert writer.table.run(work, isolation="serializable").attempts == 2


def test_a_hundred_jobs_on_the_same_rows_all_end(make_world):
    """Each adds one row to the same file groups, all began before the first landed: merged again, nobody runs twice."""
    world = make_world(empty=True)
    founder = world.writer("founder")
    with founder.table.transaction("insert") as txn:
        insert(txn, "a", "base")
    writers = [world.writer(f"w{n}") for n in range(4)]
    jobs = []
    for n in range(100):
        txn = writers[n % 4].table.transaction()
        txn.upsert(pa.concat_tables([rows("a", {"base": 0}).slice(0, 0), rows("a", {f"k{n}": n})]))
        jobs.append(txn)
    rounds = []
    for txn in reversed(jobs):
        txn.commit()
        rounds.append(txn.workspace.rebase.round)
    assert max(rounds) <= 2
    with world.fresh() as table:
        assert len(table.read().to_arrow()) == 101
    assert BEGUN
