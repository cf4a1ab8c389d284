"""The known faults of Hudi's concurrency control, one test each, numbered as in docs/guarantees.md.

Each test is a check that our code passes and that fails on a variant of our code which has the fault: the variant is
part of the test, so the check is known to see what it is for. Where the moment matters the other writer acts at every
single call of the store, one schedule for each.

Elsewhere: that a DynamoDB lock never comes back without an object (15), in tests/locks/test_dynamodb.py; starvation at the
lock (16), in the suites of `lakelatch.testing`, for each provider. There is no provider for the Hive metastore: of 17 here is
what can befall any lock.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import lakelatch
from lakelatch.conflict import NOWHERE, Party, ReadSet, WriteSet, resolve
from lakelatch.conflict.write_set import EVERYWHERE
from lakelatch.errors import LockError, StorageError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.timeline.instant import EARLIEST, next_label
from lakelatch.locks import open_provider
from lakelatch.locks.core import provider
from lakelatch.locks.file.generations import Observer
from lakelatch.locks.interface import Release
from lakelatch.locks.memory import _MemoryContender
from lakelatch.occ.entries.entries import Begin, End
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.landing import landing as landing_module
from lakelatch.occ.landing.validator import CommitValidator
from lakelatch.occ.liveness.heartbeat import HEARTBEATS, HeartbeatObserver, HeartbeatSender, heartbeat_path
from lakelatch.occ.liveness.rollback import FailedWriteCleaner
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.rebase.rounds import Rebase
from lakelatch.occ.session import session as session_module
from lakelatch.occ.session.session import Reservations
from lakelatch.occ.session.table_lock import TableLease, TableLock
from lakelatch.occ.staging import data_file, file_spec
from lakelatch.occ.staging.staged import Staged
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import At, FaultStore, On, Pause, Refuse

from ..mutants import Variant, answering, instead
from ..simulation.mutant import method
from ..simulation.mutants_of_commits import candidates_by_requested_time
from .aged import SMALL
from .world import BEGUN, World, Writer, add, after, check_sound, commits, content, fate, insert, overwrite, rows

Check = Callable[..., None]
Proof = Callable[..., None]
ENTRY = On("put_if_absent", "/log/")


@pytest.fixture
def prove(make_world: Callable[..., World]) -> Proof:
    """Ours passes the check, and each variant of it fails with such a message."""

    def run(check: Check, **variants: tuple[Variant, str]) -> None:
        check(make_world)
        for patches, said in variants.values():
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(patch)
                with pytest.raises((AssertionError, lakelatch.LakeLatchError), match=said):
                    check(make_world)

    return run


def landed(txn: Transaction) -> bool:
    """Commit; False when it was told that it has not landed."""
    try:
        txn.commit()
    except (lakelatch.ConflictError, lakelatch.RolledBackError):
        return False
    return True


def at_every_call(start: Callable[[], tuple[Writer, Callable[[], object], Callable[[], object]]]) -> Iterator[int]:
    """Let somebody else act at each call of a writer's work, in a new world each time; yields after each.

    ``start`` makes the world and gives the writer, its work, and what the other one does.
    """
    for number in itertools.count(1):
        writer, work, meanwhile = start()
        writer.store.reset()
        writer.store.add(Pause(At(number), call=meanwhile))
        work()
        if writer.store.armed:
            return  # it makes fewer calls
        yield number


# --- 1: nobody looks at the lease again before the commit is published ----------------------------------------


def entries_are_written_over() -> Variant:
    def insist(self: CommitLog, path: str, body: bytes, entry: object = None) -> bool:
        self._store.put(path, body)
        return True

    return [instead(CommitLog, "_insist", insist)]


def the_lease_is_not_looked_at() -> Variant:
    return [instead(TableLease, "token_at", lambda self, state: self.token)]


@pytest.mark.parametrize("part", ["a", "b"])
def test_fault_01_a_holder_whose_lease_has_ended_publishes_all_the_same(prove, part):
    def check(make_world: Callable[..., World]) -> None:
        def start() -> tuple[Writer, Callable[[], object], Callable[[], object]]:
            nonlocal world, told
            world, told = make_world(), []
            a, b = world.writer("A"), world.writer("B", host="host-b")
            txn = a.begin_add("a")
            # B waits for A's lease to end, if A has one, on its own clock; meanwhile A stands still.
            return a, lambda: told.append(landed(txn)), lambda: b.add(part, 10)

        world: World
        told: list[bool]
        for _ in at_every_call(start):
            expected = dict(BEGUN)
            for who, by in ((part, 10), *((("a", 1),) if told == [True] else ())):
                expected |= {key: expected[key] + by for key in expected if key[0] == who}
            assert world.content() == expected, "rows that were acknowledged are gone"
            with world.fresh() as table:
                tokens = [c.token for c in commits(table)]
                assert tokens == sorted(set(tokens)), "one has landed under a lease that was over"

    if part == "a":
        prove(check, log=(entries_are_written_over(), "acknowledged are gone"))
    else:
        prove(check, lease=(the_lease_is_not_looked_at(), "lease that was over"))


# --- 2: one beat that is slow or fails ends all that would follow -----------------------------------------------


def the_timer_dies_with_a_beat() -> Variant:
    def beat(self: HeartbeatSender) -> None:
        before = self._env.monotonic()
        try:
            for instant, tag in list(self._tags.items()):
                put = self._store.replace_if_match(heartbeat_path(instant), self._body(instant), tag)
                self._remember(instant, put.tag)
            late = self._env.monotonic() - before > self._interval_s()
        except StorageError:
            late = True
        if late and self._timer:
            self._timer.cancel()

    return [instead(HeartbeatSender, "beat", beat)]


@pytest.mark.parametrize("how", ["slow", "failed"])
def test_fault_02_the_heartbeat_dies_of_one_bad_beat(prove, how):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, b = world.writer("A"), world.writer("B", host="host-b")
        txn, interval = a.begin_add("a"), a.table.settings.heartbeat_interval_s
        beat = On("replace_if_match", HEARTBEATS)
        a.store.add(Pause(beat, call=lambda: a.env.suspend(2 * interval)) if how == "slow" else Refuse(beat))
        for _ in range(20):
            a.env.advance(interval)
            assert b.table.rollback_failed_writes() == [], "a living writer was rolled back"
        assert landed(txn)

    prove(check, timer=(the_timer_dies_with_a_beat(), "a living writer was rolled back"))


# --- 3: a job whose heartbeat is dead works on for hours, and fails at its commit ----------------------------------


def the_stop_sign_is_not_looked_at() -> Variant:
    return [
        answering(data_file, "refuse_if_over"),
        answering(file_spec, "refuse_if_over"),
        answering(data_file, "stands", True),
    ]


def test_fault_03_a_writer_that_was_ended_works_on(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, b = world.writer("A"), world.writer("B", host="host-b")
        txn = a.begin_add("a")
        b.table.rollback_failed_writes(wait=True)
        written = 0
        with suppress(lakelatch.RolledBackError):
            for number in range(5):
                with txn.new_file("part=b") as file:
                    file.write(rows("b", {f"late {number}": 1}))
                written += 1
        assert not written, f"{written} files were written for nothing"
        with pytest.raises(lakelatch.RolledBackError):
            txn.check()

    prove(check, stop=(the_stop_sign_is_not_looked_at(), "files were written for nothing"))


# --- 4: a beat that is under way brings the heartbeat of an ended transaction back --------------------------------


def a_beat_makes_the_file() -> Variant:
    def replace_if_match(self: FaultStore, path: str, body: bytes, tag: str) -> object:
        return self._write("replace_if_match", path, lambda: self.inner.put(path, body))

    return [instead(FaultStore, "replace_if_match", replace_if_match)]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_fault_04_a_late_beat_brings_a_heartbeat_back(prove, end):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a = world.writer("A")
        txn = a.begin_add("a")
        a.store.add(Pause(On("replace_if_match", HEARTBEATS), call=getattr(txn, end)))
        a.env.advance(a.table.settings.heartbeat_interval_s)
        assert not a.store.armed
        assert a.store.list(HEARTBEATS) == [], "the transaction is over and its heartbeat is there"
        assert a.table.session.heart.instants == set()

    prove(check, beat=(a_beat_makes_the_file(), "its heartbeat is there"))


# --- 5: who rolls one writer back deletes the heartbeats of all -----------------------------------------------------


def all_heartbeats_go() -> Variant:
    def make(real: Any) -> Any:
        def sweep(self: FailedWriteCleaner, instant: str, action: str) -> int:
            for entry in self._store.list(HEARTBEATS):
                self._store.delete(entry.path)
            return real(self, instant, action)

        return sweep

    return [method(FailedWriteCleaner, "_sweep_dead", make)]


def test_fault_05_a_rollback_takes_the_heartbeats_of_the_living(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        dead, alive, cleaner = world.writer("dead"), world.writer("alive"), world.writer("cleaner", host="host-a")
        gone, txn = dead.begin_add("a"), alive.begin_add("b")
        dead.die()
        assert cleaner.table.rollback_failed_writes() == [gone.instant]
        alive.env.advance(alive.table.settings.heartbeat_interval_s)
        assert {e.name for e in cleaner.store.list(HEARTBEATS)} == {txn.instant}, "not the heartbeats of the living"
        assert landed(txn)

    prove(check, sweep=(all_heartbeats_go(), "not the heartbeats of the living"))


# --- 6, 7: a rollback by what was looked at before ------------------------------------------------------------------


def a_rollback_is_decided_before_its_slot() -> Variant:
    def roll_back(self: FailedWriteCleaner, begin: Begin, *, reason: str, **_: object) -> bool:
        self._log.append(lambda state: End("rollback", begin.instant, "", reason))
        self._sweep_dead(begin.instant, begin.action)
        return True

    return [instead(FailedWriteCleaner, "roll_back", roll_back)]


def silent_too_long(world: World) -> tuple[Writer, Transaction]:
    """A cleaner on another host that has watched a writer for longer than the time-out."""
    slow, cleaner = world.writer("slow"), world.writer("cleaner", host="host-b")
    txn = slow.begin_add("a")
    txn.workspace.close_files()
    cleaner.table.rollback_failed_writes()
    cleaner.env.suspend(cleaner.table.settings.heartbeat_timeout_s + 1)
    return cleaner, txn


def test_fault_06_a_commit_that_has_just_landed_is_rolled_back(prove):
    def check(make_world: Callable[..., World]) -> None:
        def start() -> tuple[Writer, Callable[[], object], Callable[[], object]]:
            nonlocal world, told
            world, told = make_world(), []
            cleaner, txn = silent_too_long(world)
            return cleaner, cleaner.table.rollback_failed_writes, lambda: told.append(landed(txn))

        world: World
        told: list[bool]
        seen = set()
        for _ in at_every_call(start):
            seen |= set(told)
            with world.fresh() as table:
                check_sound(table)
                assert content(table) == BEGUN | ({"a0": 1, "a1": 1} if told[0] else {}), "a commit was rolled back"
        assert seen == {True, False}

    prove(check, late=(a_rollback_is_decided_before_its_slot(), "has ended twice|files are gone|was rolled back"))


def test_fault_07_two_roll_one_writer_back_at_once(prove):
    def check(make_world: Callable[..., World]) -> None:
        def start() -> tuple[Writer, Callable[[], object], Callable[[], object]]:
            nonlocal world, instant, ended
            world, ended = make_world(), []
            cleaner, txn = silent_too_long(world)
            other, instant = world.writer("other", host="host-c"), txn.instant
            return (
                cleaner,
                lambda: ended.append(cleaner.table.rollback_failed_writes()),
                lambda: ended.append(other.table.rollback_failed_writes(wait=True)),
            )

        world: World
        instant: str
        ended: list[list[str]]
        for _ in at_every_call(start):
            with world.fresh() as table:
                assert fate(table, instant) == ["begin", "rollback"], "rolled back twice"
                assert sorted(ended) == [[], [instant]]
                check_sound(table)

    prove(check, late=(a_rollback_is_decided_before_its_slot(), "rolled back twice"))


# --- 8: two writers get the same instant --------------------------------------------------------------------------


def the_clock_alone_gives_t() -> Variant:
    def by_clock(now: float, _top: str, **_: bool) -> str:
        return next_label(now, EARLIEST)

    return [instead(module, "next_label", by_clock) for module in (session_module, landing_module)]


@pytest.mark.parametrize("writers", [2, 5])
def test_fault_08_two_writers_get_the_same_instant(prove, writers):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        all_of_them = [world.writer(f"{n}") for n in range(writers)]
        begun: list[Transaction] = []

        # All have read the same head in the same millisecond; each is overtaken by the next before its entry is in.
        def begin(number: int) -> None:
            if number < writers:
                all_of_them[number].store.add(Pause(ENTRY, call=lambda: begin(number + 1)))
                begun.append(all_of_them[number].table.transaction())

        begin(0)
        assert len({txn.instant for txn in begun}) == writers, "two transactions have one T"
        for number, txn in enumerate(begun):
            insert(txn, "c", f"c{number}")
            txn.commit()
        assert world.content() == BEGUN | {f"c{n}": 1 for n in range(writers)}

    prove(check, clock=(the_clock_alone_gives_t(), "two transactions have one T"))


# --- 9: what a pending one will write is not seen, because its inflight file is empty -----------------------------


def pending_ones_are_read_from_their_inflight_file() -> Variant:
    return [answering(CommitValidator, "announced", WriteSet())]


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
def test_fault_09_a_pending_transaction_is_invisible_to_the_check(prove, operation):
    """Ingestion that goes first by its priority is waited for. A service: the next test."""

    def check(make_world: Callable[..., World]) -> None:
        world = make_world(strategy="priority", yield_wait_s=1)
        first, second = world.writer("first"), world.writer("second")
        first.table.session.priority = 1
        txn = first.table.transaction(operation)
        overwrite(txn, "a", "a9") if operation == "insert_overwrite" else add(txn, "a", 10)
        txn.workspace.close_files()
        inflight = list((world.folder / ".hoodie/timeline").glob(f"{txn.instant}*inflight"))
        assert [path.stat().st_size for path in inflight] == [0]
        assert landed(second.begin_add("b")), "it waits although they have nothing in common"
        assert not landed(second.begin_add("a")), "the pending one was not seen"
        assert landed(txn)

    prove(check, inflight=(pending_ones_are_read_from_their_inflight_file(), "the pending one was not seen"))


def test_fault_09_a_planned_clustering_is_invisible_to_the_check(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world(yield_wait_s=1)  # less than a plan waits for somebody who executes it
        a, b = world.writer("A"), world.writer("B")
        a.insert("b", "b9")
        planned = a.table.plan_clustering(**SMALL)
        assert landed(b.begin_add("a")), "it waits although they have nothing in common"
        assert not landed(b.begin_add("b")), "the planned one was not seen"
        assert a.table.execute(planned).files == 2

    prove(check, plan=(pending_ones_are_read_from_their_inflight_file(), "the planned one was not seen"))


# --- 10: who was requested first and lands last is missed ---------------------------------------------------------


def test_fault_10_a_commit_that_was_requested_earlier_is_missed(prove):
    def check(make_world: Callable[..., World]) -> None:
        for order in itertools.permutations(range(3)):
            world = make_world()
            begun = [world.writer(str(n)).begin_add("a", 10**n) for n in range(3)]
            assert [landed(begun[n]) for n in order] == [True, False, False], f"one was missed, {order}"
            assert world.content() == BEGUN | dict.fromkeys(("a0", "a1"), 10 ** order[0])

    prove(check, times=(candidates_by_requested_time(), "one was missed"))


# --- 11: two replace the same file group --------------------------------------------------------------------------


def what_is_replaced_is_not_written() -> Variant:
    def write_set(self: Staged) -> WriteSet:
        return WriteSet(frozenset(self._stats))

    return [instead(Staged, "write_set", write_set), instead(Staged, "region", NOWHERE)]


KINDS = ("insert_overwrite", "insert_overwrite_table", "delete_partition")


@pytest.mark.parametrize(("one", "other"), list(itertools.product(KINDS, repeat=2)))
def test_fault_11_two_replace_the_same_file_group(prove, one, other):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        begun = []
        for number, kind in enumerate((one, other)):
            txn = world.writer(f"{number}").table.transaction(kind)
            overwrite(txn, "a", *(() if kind == "delete_partition" else (f"a{number}x",)))
            begun.append(txn)
        assert [landed(txn) for txn in begun] == [True, False], "both have replaced it"

    prove(check, writes=(what_is_replaced_is_not_written(), "both have replaced it"))


def a_clustering_is_compared_by_what_it_writes() -> Variant:
    def make(real: Any) -> Any:
        return lambda content: frozenset()

    return [
        method(sys.modules["lakelatch.occ.landing.validator"], "groups_of", make),
        *what_is_replaced_is_not_written(),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_fault_11_a_clustering_replaces_what_an_overwrite_has_replaced(prove, kind):
    def check(make_world: Callable[..., World]) -> None:
        for clusters_first in (True, False):
            world = make_world(strategy="prefer-writer", yield_wait_s=1)
            a, b = world.writer("A"), world.writer("B")
            a.insert("b", "b9")
            planned = a.table.plan_clustering(**SMALL)
            txn = b.table.transaction(kind)
            overwrite(txn, "b", *(() if kind == "delete_partition" else ("b8",)))
            ends = [lambda: executed(a, planned), lambda: landed(txn)]  # noqa: B023 (called in this round)
            assert sum(end() for end in (ends if clusters_first else ends[::-1])) == 1, "both have replaced it"

    prove(check, writes=(a_clustering_is_compared_by_what_it_writes(), "both have replaced it"))


def executed(writer: Writer, planned: str) -> bool:
    try:
        return writer.table.execute(planned) is not None
    except lakelatch.ConflictError:
        return False


# --- 12: a clustering lands over ingestion that has only begun ----------------------------------------------------


def who_has_not_said_what_it_writes_writes_nothing() -> Variant:
    rules = sys.modules["lakelatch.conflict.resolve"]
    others = tuple(check for check in rules._AGAINST_PENDING if check is not rules._still_to_say)
    return [instead(rules, "_AGAINST_PENDING", others)]


def test_fault_12_a_table_service_lands_over_ingestion_that_has_only_begun(prove):
    """The decision for each service. A clustering that runs: the next test."""

    def check(_make_world: object) -> None:
        mine, other = (WriteSet(frozenset({FileGroupId("part=a", name)})) for name in ("f1", "f2"))
        begun = Party("2", "", "UPSERT", "ingestion", silent=True)
        known = Party("2", "", "UPSERT", "ingestion", other)
        for service in ("CLUSTER", "COMPACT", "LOG_COMPACT"):
            ours = Party("1", "", service, "service", mine)
            lost = resolve(ours, ReadSet(), [begun], by="prefer-writer").lost
            assert lost is not None, f"{service} lands and the work of the ingestion is lost"
            assert lost.waits
            assert resolve(ours, ReadSet(), [known], by="prefer-writer").lost is None

    prove(check, silent=(who_has_not_said_what_it_writes_writes_nothing(), "work of the ingestion is lost"))


def test_fault_12_a_clustering_that_runs_lands_over_ingestion_that_has_only_begun(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world(strategy="prefer-writer", yield_wait_s=1)
        a, b = world.writer("A"), world.writer("B")
        a.insert("b", "b9")
        planned = a.table.plan_clustering(**SMALL)
        txn = b.table.transaction("upsert")
        assert not executed(a, planned), "it lands, and the work of the ingestion is lost"
        add(txn, "b", 5)
        assert landed(txn)
        assert world.content() == BEGUN | {"b0": 5, "b1": 5, "b9": 6}

    prove(check, silent=(who_has_not_said_what_it_writes_writes_nothing(), "work of the ingestion is lost"))


# --- 13: the early look compares other keys than the commit does --------------------------------------------------


def announced_keys_are_of_another_form() -> Variant:
    def make(real: Any) -> Any:
        def announced(self: CommitValidator, other: Begin) -> WriteSet:
            return WriteSet(frozenset(FileGroupId("", str(group)) for group in real(self, other).groups))

        return announced

    return [method(CommitValidator, "announced", make)]


def announced_keys_lack_the_partition() -> Variant:
    def make(real: Any) -> Any:
        def announced(self: CommitValidator, other: Begin) -> WriteSet:
            ids = {group.file_id for group in real(self, other).groups}
            return WriteSet(frozenset(FileGroupId(f"part={part}", each) for part in "ab" for each in ids))

        return announced

    return [method(CommitValidator, "announced", make)]


def test_fault_13_the_early_look_compares_other_keys(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world(strategy="priority", yield_wait_s=1)
        first, second = world.writer("first"), world.writer("second")
        same = "5a3e0000-0000-4000-8000-000000000000-0"
        with second.table.transaction("insert") as txn:
            for part in "ab":
                txn.new_file(f"part={part}", file_id=same).write(rows(part, {f"{part}9": 0}))
        first.table.session.priority = 1
        pending = first.table.transaction()
        group = next(g for g in pending.snapshot.file_slices("part=a") if g.file_id == same)
        pending.rewrite(group).write(rows("a", {"a9": 10}))
        pending.workspace.close_files()
        for part, lands in (("b", True), ("a", False)):
            txn = second.table.transaction()
            group = next(g for g in txn.snapshot.file_slices(f"part={part}") if g.file_id == same)
            txn.rewrite(group).write(rows(part, {f"{part}9": 1}))
            assert landed(txn) is lands, f"{part}: the same file group is another, or another the same"
        assert landed(pending)

    prove(
        check,
        form=(announced_keys_are_of_another_form(), "a: the same"),
        partition=(announced_keys_lack_the_partition(), "b: the same"),
    )


# --- 14: a lock that was left behind blocks for ever --------------------------------------------------------------


def a_lease_never_ends() -> Variant:
    return [answering(Observer, "has_ended", False)]


@pytest.mark.parametrize("host", ["host-a", "host-b"])
def test_fault_14_a_lock_that_was_left_behind_blocks_for_ever(prove, host):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, b = world.writer("A", host="host-a"), world.writer("B", host=host)
        lease = a.table.session.lease("about to be killed")
        a.die()
        before = b.env.monotonic()
        b.add("a")
        took_s = b.env.monotonic() - before
        assert took_s <= (1 if host == "host-a" else b.table.settings.lease_s + 10)
        assert lease.token < commits(b.table)[-1].token

    prove(check, expire=(a_lease_never_ends(), "busy|held"))


# --- 15: who wants the whole table for itself, and waits for it, gets optimism ------------------------------------


def nobody_waits_for_who_has_reserved() -> Variant:
    return [answering(Reservations, "first_in_the_way")]


def test_fault_15_a_lock_on_the_whole_table_lets_others_in(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world(yield_wait_s=30)
        a, b = world.writer("A"), world.writer("B")
        txn = a.table.transaction("upsert", reserve="table")
        add(txn, "a")
        after(b, 10, txn.commit)
        b.add("a", 10)
        assert fate(b.table, txn.instant) == ["begin", "commit"], "it was let in"
        assert world.content() == BEGUN | {"a0": 11, "a1": 11}

    prove(check, reserved=(nobody_waits_for_who_has_reserved(), "lost against|it was let in"))


# --- 16: writers of different partitions abort each other ---------------------------------------------------------


def the_whole_table_is_one_place() -> Variant:
    def make(real: Any) -> Any:
        return lambda self: replace(real(self), region=EVERYWHERE)

    return [method(Staged, "write_set", make)]


@pytest.mark.parametrize("operation", ["insert", "upsert", "insert_overwrite"])
def test_fault_16_writers_of_different_partitions_abort_each_other(prove, operation):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        begun = []
        for number in range(16):
            txn = world.writer(f"{number}").table.transaction(operation)
            if operation == "insert_overwrite":
                txn.overwrites(f"part=p{number}")
            insert(txn, f"p{number}", f"p{number}")
            begun.append(txn)
        assert [landed(txn) for txn in reversed(begun)] == [True] * 16, "one of them has lost"
        assert world.content() == BEGUN | {f"p{n}": 1 for n in range(16)}

    prove(check, table=(the_whole_table_is_one_place(), "one of them has lost"))


# --- 17: a request for the lock that was given up stays behind ----------------------------------------------------


def who_gives_up_stays_in_line() -> Variant:
    return [answering(_MemoryContender, "leave")]


def test_fault_17_a_request_for_the_lock_that_was_given_up_blocks_others(prove):
    """Seen with the Hive metastore. Here with the lock of a process; each server's own tests are in tests/locks."""

    def check(make_world: Callable[..., World]) -> None:
        env = make_world().env
        name = f"memory://{uuid.uuid4()}"
        first, second, third = (open_provider(name, env=env.peer()) for _ in range(3))
        lease = first.acquire("t", wait_s=0)
        with pytest.raises(lakelatch.LockTimeoutError):
            second.acquire("t", wait_s=2)
        lease.release()
        assert third.try_acquire("t") is not None, "the lock is kept for somebody who has gone"

    prove(check, leave=(who_gives_up_stays_in_line(), "kept for somebody who has gone"))


# --- 18: a writer or cleaner that is configured otherwise, or not at all ------------------------------------------


def each_writer_has_its_own_settings() -> Variant:
    return [answering(Settings, "refuse_others")]


def failed_writes_are_cleaned_eagerly() -> Variant:
    return [answering(HeartbeatObserver, "is_dead", True)]


def refused(url: str, world: World, **other: str) -> bool:
    try:
        lakelatch.open(url, env=world.env.peer(), **other).close()
    except lakelatch.ConfigError:
        return True
    return False


def test_fault_18_a_cleaner_with_other_settings_harms_the_writers(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, url = world.writer("A"), str(world.folder)
        txn = a.begin_add("a")
        for other in ({"lock": "none://"}, {"strategy": "prefer-writer"}, {"isolation": "serializable"}):
            assert refused(url, world, **other), f"a writer with other settings was let in: {other}"
        with lakelatch.open(url, env=world.env.peer()) as cleaner:
            assert cleaner.settings == a.table.settings
            assert cleaner.rollback_failed_writes() == [], "a writer that lives was rolled back"
        assert landed(txn)

    prove(
        check,
        settings=(each_writer_has_its_own_settings(), "was let in"),
        eager=(failed_writes_are_cleaned_eagerly(), "a writer that lives was rolled back"),
    )


# --- 19: the lock is released by another, or entered twice --------------------------------------------------------


def a_release_ends_whoever_holds() -> Variant:
    def release(self: TableLease) -> Release:
        locks, key = self._locks
        holder = locks.inspect(key)
        if holder is not None:
            locks.break_lease(key, token=holder.token, reason="", who="")
        return Release.RELEASED

    def make(real: Any) -> Any:
        def lease(self: TableLock, why: str, **how: Any) -> TableLease:
            taken = real(self, why, **how)
            taken._locks = self.provider()
            return taken

        return lease

    return [method(TableLock, "lease", make), instead(TableLease, "release", release)]


def a_flag_says_that_the_lock_is_held() -> Variant:
    def make(real: Any) -> Any:
        def lease(self: TableLock, why: str, **how: Any) -> TableLease:
            if getattr(self, "_has_lock", None) is None:
                self._has_lock = real(self, why, **how)
            return self._has_lock

        return lease

    return [method(TableLock, "lease", make)]


def test_fault_19_a_lock_is_released_by_another_or_entered_twice(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world(lock_wait_s=40.0)
        a, b = world.writer("A"), world.writer("B", host="host-b")
        entered: list[TableLease] = []

        def second_thread() -> None:
            with suppress(LockError):
                entered.append(a.table.session.lease("another thread of the same handle"))

        late = a.table.session.lease("about to sleep")
        thread = Thread(target=second_thread)
        thread.start()
        thread.join()
        assert not entered, "two threads are inside"
        a.env.suspend(a.table.settings.lease_s + 1)
        lease = b.table.session.lease("after its end")
        late.release()
        lease.ensure_held(fresh=True)
        lease.release()

    prove(
        check,
        owner=(a_release_ends_whoever_holds(), "is gone"),
        flag=(a_flag_says_that_the_lock_is_held(), "two threads are inside"),
    )


# --- 20: one table has as many locks as spellings -----------------------------------------------------------------


def the_url_is_taken_as_it_is_written() -> Variant:
    def make(real: Any) -> Any:
        def open_store(url: str, **options: Any) -> Any:
            store = real(url, **options)
            store.url = url if url.startswith("file:") else f"file://{url}"
            return store

        return open_store

    return [
        method(lakelatch.occ.table.table, "open_store", make),
        instead(provider, "normal_key", lambda key: key),
    ]


def test_fault_20_two_spellings_of_a_table_are_two_locks(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        folder = world.folder
        (link := Path(f"{folder}-link")).symlink_to(folder)
        with world.fresh() as table:
            table.set_lock(f"file://{folder}-locks")
        spelled = [
            f"{folder}",
            f"{folder}/",
            f"file://{folder}",
            f"file:{folder}//",
            f"{folder}/../{folder.name}",
            f"{link}",
        ]
        for one, other in itertools.pairwise(spelled):
            with lakelatch.open(one, env=world.env.peer()) as a, lakelatch.open(other, env=world.env.peer()) as b:
                locks, key = b.lock.provider()
                with a.session.lease("the one"):
                    assert locks.try_acquire(key) is None, f"{one} and {other} have two locks"

    prove(check, url=(the_url_is_taken_as_it_is_written(), "have two locks"))


# --- 21: a lost conflict fails the job ----------------------------------------------------------------------------


def nothing_is_tried_again() -> Variant:
    def make(real: Any) -> Any:
        return lambda table, work, bounds, **more: real(table, work, replace(bounds, attempts=1), **more)

    return [method(lakelatch.occ.table.table, "run_again", make)]


@pytest.mark.parametrize("losses", [1, 3])
def test_fault_21_a_lost_conflict_fails_the_job(prove, losses):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, b = world.writer("A"), world.writer("B")
        tries: list[str] = []

        def work(txn: Transaction) -> None:
            add(txn, "a")
            tries.append(txn.instant)
            a.env.advance(6.0)  # long work, which is not done under the lock
            if len(tries) <= losses:
                b.add("a", 10)

        done = a.table.run(work, reserve_after=None)  # or the second attempt would keep the others waiting
        assert done.attempts == losses + 1
        assert world.content() == BEGUN | dict.fromkeys(("a0", "a1"), 1 + 10 * losses)

    prove(check, attempts=(nothing_is_tried_again(), "lost against"))


def nothing_is_merged_again() -> Variant:
    return [answering(Rebase, "repeatable")]


def test_fault_21_a_lost_batch_is_computed_anew(prove):
    def check(make_world: Callable[..., World]) -> None:
        world = make_world()
        a, b = world.writer("A"), world.writer("B")
        runs: list[str] = []

        def work(txn: Transaction) -> None:
            runs.append(txn.instant)
            txn.upsert(rows("a", {"a0": 5}))
            if len(runs) == 1:
                with b.table.transaction("upsert") as other:
                    other.upsert(rows("a", {"a1": 7}))

        a.table.run(work)
        assert world.content() == BEGUN | {"a0": 5, "a1": 7}
        assert len(runs) == 1, "all of it was computed again"

    prove(check, again=(nothing_is_merged_again(), "all of it was computed again"))
