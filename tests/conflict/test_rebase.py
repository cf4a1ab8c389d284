"""What can be merged again, and what is lost: the decision alone."""

from __future__ import annotations

import pytest

from lakelatch.conflict import Decision, Party, ReadSet, Repeatable, Reservation, Scan, WriteSet, resolve
from lakelatch.conflict.write_set import EVERYWHERE, NOWHERE, Region
from lakelatch.hudi.files import FileGroupId

A, B, NEW = FileGroupId("p", "a"), FileGroupId("p", "b"), FileGroupId("p", "new")
P = Region(frozenset("p"))


def landed(*groups: FileGroupId, operation: str = "UPSERT", region: Region = NOWHERE, **more: object) -> Party:
    return Party("5", "9", operation, "w", WriteSet(frozenset(groups), region), **more)


def decide(*candidates: Party, reads: ReadSet | None = None, **more: object) -> Decision:
    ours = Party("3", "", more.pop("operation", "UPSERT"), "me", WriteSet(frozenset({A, B})))
    mends = Repeatable(frozenset({A, B}), more.pop("looks", False))
    return resolve(ours, reads or ReadSet(scans=()), candidates, repeatable=mends, **more)


def test_the_same_file_group_is_merged_again():
    decision = decide(landed(A, NEW), landed(NEW))
    assert decision.lost is None
    assert decision.groups == {A}
    assert [c.overlap for c in decision.again] == [(A,)]


def test_log_files_of_others_are_merged_with_too():
    log = Party("5", "9", "UPSERT", "w", WriteSet(frozenset({A}), appended=frozenset({A})))
    assert decide(log).groups == {A}


def test_all_that_is_lost_is_merged_at_once():
    assert decide(landed(A), landed(B)).groups == {A, B}


def test_a_file_group_that_cannot_be_merged_is_lost():
    ours = Party("3", "", "UPSERT", "me", WriteSet(frozenset({A, B})))
    lost = resolve(ours, ReadSet(), [landed(A), landed(B)], repeatable=Repeatable(frozenset({A}))).lost
    assert lost is not None
    assert lost.overlap == (B,)


@pytest.mark.parametrize(
    "winner",
    [
        landed(A, operation="CLUSTER"),
        landed(A, operation="COMPACT"),
        landed(A, operation="INSERT_OVERWRITE", region=P),
        landed(operation="DELETE_PARTITION", region=P),
        landed(operation="RESTORE"),
        landed(A, stranger=True),
    ],
    ids=["clustering", "compaction", "overwrite", "overwrite-of-the-place", "restore", "stranger"],
)
def test_what_is_more_than_rows_is_lost(winner):
    decision = decide(landed(B), winner)
    assert decision.lost is not None
    assert decision.lost.winner is winner
    assert not decision.again


def test_an_overwrite_of_ours_is_never_merged():
    assert decide(landed(A), operation="INSERT_OVERWRITE").lost is not None


LOOKUPS = ReadSet(scans=(), lookups=(Scan(P),))
CONDITION = ReadSet(P, scans=())


@pytest.mark.parametrize("reads", [LOOKUPS, CONDITION], ids=["keys", "condition"])
@pytest.mark.parametrize("isolation", ["snapshot", "write-serializable", "serializable"])
@pytest.mark.parametrize("looks", [True, False])
def test_what_was_looked_up_is_looked_up_again_but_not_under_serializable(reads, isolation, looks):
    decision = decide(landed(NEW), reads=reads, isolation=isolation, looks=looks)
    if reads is LOOKUPS and isolation == "snapshot":
        assert decision == Decision()
    elif looks and isolation != "serializable":
        assert decision.again
        assert decision.groups == frozenset()
    else:
        assert decision.lost is not None


def test_what_was_read_besides_is_not_read_again():
    reads = ReadSet(scans=(Scan(groups=frozenset({NEW})),), lookups=(Scan(P),))
    assert decide(landed(NEW), reads=reads, isolation="write-serializable", looks=True).lost is not None
    assert decide(landed(A), reads=ReadSet(), isolation="write-serializable", looks=True).lost is not None


def test_who_waits_merges_afterwards():
    """The other way round the merge would be outdated when the waiting ends."""
    keeps = Party("6", "", "UPSERT", "w", reserved=Reservation(EVERYWHERE), age=1)
    decision = decide(landed(A), keeps)
    assert decision.lost is not None
    assert decision.lost.waits


def test_who_is_merged_again_comes_after_a_blind_insert_too():
    """Otherwise it comes before it, whatever it read; but the winner may have seen the inserted rows. Soak, seed 50115556."""
    insert = landed(NEW, operation="INSERT")
    reads = ReadSet(scans=(Scan(P),))
    assert decide(insert, reads=reads, isolation="write-serializable") == Decision()
    winner = landed(FileGroupId("q", "a"), operation="UPSERT")
    ours = Party("3", "", "UPSERT", "me", WriteSet(frozenset({FileGroupId("q", "a")})))
    mends = Repeatable(ours.writes.groups)
    decision = resolve(ours, reads, [insert, winner], isolation="write-serializable", repeatable=mends)
    assert decision.lost is not None
    assert decision.lost.winner is insert
    assert resolve(ours, reads, [insert, winner], isolation="snapshot", repeatable=mends).groups == ours.writes.groups
