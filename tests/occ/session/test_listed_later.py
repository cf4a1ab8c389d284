"""A transaction lists the partitions that it asks for, when it asks: what it sees is the state that it began at."""

from __future__ import annotations

import threading

import pytest

import lakelatch
from lakelatch.hudi.timeline import Snapshot
from lakelatch.hudi.timeline.snapshot import _LISTED_ALONE
from lakelatch.testing.contention import PATIENCE_S

from ..aged import SMALL
from ..world import BEGUN, Writer, content, insert, overwrite, rows


def listed(writer: Writer) -> list[str]:
    """The folders outside `.hoodie` that were listed since the last look."""
    found = [call.path for call in writer.store.calls if call.op == "list" and not call.path.startswith(".hoodie")]
    writer.store.reset()
    writer.store.calls.clear()
    return found


def do(writer: Writer, what: str) -> None:
    """What others do meanwhile."""
    table = writer.table
    if what == "overwrite":
        with table.transaction("insert_overwrite") as txn:
            overwrite(txn, "b", "b7")
    elif what == "insert":
        writer.insert("b", "b8")
        writer.insert("c", "c8")
    elif what == "cluster":
        table.cluster(**SMALL)
    elif what == "clean":
        table.clean(retain_commits=0)
    elif what == "archive":
        table.archive(keep_min=1, keep_max=1)
    else:
        writer.add("b")


MEANWHILE = [
    ("add", "add", "clean"),
    ("add", "insert", "archive", "add"),
    ("overwrite", "clean", "insert", "archive"),
    ("insert", "cluster", "clean", "add", "clean"),
    ("overwrite", "add", "clean", "archive", "overwrite", "clean"),
]


def test_a_cold_transaction_lists_the_partitions_of_its_rows_alone(world):
    writer = world.writer("A")
    listed(writer)
    for _ in range(2):  # the second time it knows
        writer.table.upsert(rows("a", {"a0": 5}))
    writer.table.insert(rows("d", {"d0": 1}))
    writer.table.delete(rows("b", {"b0": 0}).select(["id", "part"]))
    assert listed(writer) == ["part=a", "part=b"]  # who only adds needs to know of none
    assert world.content() == {"a0": 5, "a1": 0, "b1": 0, "d0": 1}


def test_of_many_partitions_all_are_listed_at_once(world):
    writer = world.writer("A")
    many = [f"x{number:02}" for number in range(_LISTED_ALONE + 9)]
    listed(writer)
    writer.table.upsert([{"id": each, "part": each, "v": 1} for each in many])
    assert listed(writer) == [*(f"part={each}" for each in many[:_LISTED_ALONE]), ""]
    assert world.content() == BEGUN | dict.fromkeys(many, 1)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_partition_that_is_listed_later_is_as_it_was_at_the_begin(world, meanwhile):
    a, b = world.writer("A"), world.writer("B")
    with a.table.transaction("upsert") as txn:
        before = world.fresh().snapshot()
        txn.upsert(rows("a", {"a0": 5}))
        for what in meanwhile:
            do(b, what)
            with a.table.transaction("upsert") as later:  # goes on from what this one has listed
                assert later.workspace.snapshot.file_slices("part=a")
        seen = txn.workspace.snapshot
        assert seen.partitions_seen() == ["part=a"]
        assert seen.file_slices("part=b") == before.file_slices("part=b")
        assert seen.file_slices("part=c") == []
        assert seen == before
        with world.fresh() as table:
            assert seen != table.snapshot()


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_landed_between_two_transactions_of_a_handle_is_seen_by_the_second(world, meanwhile):
    a, b = world.writer("A"), world.writer("B")
    a.table.upsert(rows("a", {"a0": 5}))
    for what in (*meanwhile, "add"):
        do(b, what)
        a.table.upsert(rows("a", {"a1": 6}))
    with a.table.transaction("upsert") as txn, world.fresh() as table:
        assert not txn.workspace.snapshot.is_whole
        assert txn.snapshot == table.snapshot() == a.table.snapshot()


def test_a_partition_that_is_listed_after_a_restore_is_refused(world):
    """The files of what was taken back are gone, and older ones show through."""
    a, b = world.writer("A"), world.writer("B")
    first = b.add("a")
    b.add("b")
    txn = a.table.transaction("upsert")
    txn.upsert(rows("a", {"a0": 5}))
    b.table.restore(first.instant)
    with pytest.raises(lakelatch.ConflictError, match="takes back"):
        txn.workspace.snapshot.file_slices("part=b")
    txn.abort()
    a.table.run(lambda again: again.upsert(rows("b", {"b0": 7})))
    assert world.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 7}


def test_a_snapshot_of_a_transaction_can_be_looked_at_after_it(world):
    a, b = world.writer("A"), world.writer("B")
    with a.table.transaction("upsert") as txn:
        seen, before = txn.snapshot, world.fresh().snapshot()
        insert(txn, "a", "a7")
    do(b, "overwrite")
    do(b, "clean")
    assert seen == before
    assert content(a.table) == {"a0": 0, "a1": 0, "a7": 1, "b7": 1}


def test_nobody_waits_for_a_listing_who_derives_the_next_snapshot():
    """Who lists asks the log whether a restore has landed; who holds the log may derive a snapshot. None waits for the other."""

    class Listing:
        def slices_of(self, _partition):
            other = threading.Thread(target=lambda: derived.append(snapshot.after_all([])), daemon=True)
            other.start()
            other.join(PATIENCE_S)
            return {}

        def all_slices(self):
            self.slices_of("")
            return {}

        def after_all(self, _commits):
            return self

    derived = []
    snapshot = Snapshot({}, Listing())
    assert snapshot.file_slices("a") == []
    assert len(derived) == 1
    assert snapshot.partitions() == []
    assert len(derived) == 2
