"""Laws of conflict resolution: what holds for any write sets, and what the answer carries."""

from __future__ import annotations

import pickle
from dataclasses import replace
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.conflict import (
    ISOLATION_LEVELS,
    Party,
    ReadSet,
    Repeatable,
    Reservation,
    Scan,
    WriteSet,
    candidates,
    resolve,
    strategy_names,
)
from lakelatch.conflict.operations import BLIND as BLIND_OPERATIONS
from lakelatch.conflict.operations import COMPLETED, INDIFFERENT, INGESTION, YIELDS_ALWAYS, Kind, kind_of
from lakelatch.conflict.strategies import refuse_contradiction, strategy
from lakelatch.conflict.write_set import NOWHERE, Region
from lakelatch.errors import ConfigError
from lakelatch.hudi.files import FileGroupId

partitions = st.sampled_from(["", "p=1", "p=2", "p=3"])
groups = st.builds(FileGroupId, partitions, st.sampled_from("xyz"))
regions = st.builds(Region, st.frozensets(partitions, max_size=3), st.booleans())
write_sets = st.builds(WriteSet, st.frozensets(groups, max_size=4), st.one_of(st.just(NOWHERE), regions))
read_sets = st.builds(ReadSet, st.one_of(st.just(NOWHERE), regions), st.booleans())
BLIND = ReadSet(blind=True)


def committing(writes: WriteSet, operation: str = "UPSERT") -> Party:
    return Party("9" * 17, "", operation, "me", writes)


def candidate(writes: WriteSet, number: int = 0) -> Party:
    return Party(f"{number:017d}", f"{number + 1:017d}", "UPSERT", "other", writes)


def meet(ours: WriteSet, theirs: WriteSet, reads: ReadSet = BLIND) -> bool:
    return resolve(committing(ours), reads, [candidate(theirs)]).lost is not None


@given(write_sets, write_sets)
def test_file_groups_in_common_conflict_both_ways(one, other):
    if one.groups & other.groups:
        assert meet(one, other)
        assert meet(other, one)


@given(write_sets, write_sets)
def test_for_writers_that_read_what_they_write_conflict_is_symmetric(one, other):
    reading = ReadSet()
    assert meet(one, other, reading) == meet(other, one, reading)


@given(write_sets, read_sets, write_sets, groups)
def test_a_larger_write_set_never_conflicts_less(ours, reads, theirs, more):
    if meet(ours, theirs, reads):
        assert meet(WriteSet(ours.groups | {more}, ours.region), theirs, reads)
        assert meet(ours, WriteSet(theirs.groups | {more}, theirs.region), reads)


@given(write_sets, read_sets, write_sets, regions)
def test_a_larger_region_never_conflicts_less(ours, reads, theirs, more):
    if meet(ours, theirs, reads):
        assert meet(WriteSet(ours.groups, ours.region | more), theirs, reads)
        assert meet(ours, WriteSet(theirs.groups, theirs.region | more), reads)
        assert meet(ours, theirs, ReadSet(reads.region | more, reads.blind))


@given(st.frozensets(groups), st.frozensets(groups), st.booleans())
def test_disjoint_file_groups_never_conflict(one, other, blind):
    assert not meet(WriteSet(one), WriteSet(other - one), ReadSet(blind=blind))


@given(write_sets, read_sets, write_sets)
def test_what_lies_in_other_partitions_never_conflicts(ours, reads, theirs):
    def touched(writes: WriteSet, read: Region = NOWHERE) -> set[str]:
        everything = {"", "p=1", "p=2", "p=3"}
        region = writes.region | read
        named = {g.partition for g in writes.groups} | region.partitions
        return everything if region.whole_table else named

    if touched(ours, reads.region).isdisjoint(touched(theirs)):
        assert not meet(ours, theirs, reads)


@given(regions, groups)
def test_what_appears_in_a_region_that_is_overwritten_or_read_conflicts(region, group):
    inside = meet(WriteSet(region=region), WriteSet(frozenset({group})))
    assert inside == (region.whole_table or group.partition in region.partitions)
    assert inside == meet(WriteSet(), WriteSet(frozenset({group})), ReadSet(region))


@given(regions, regions)
def test_overwrites_conflict_when_their_regions_meet(one, other):
    assert meet(WriteSet(region=one), WriteSet(region=other)) == one.meets(other) == other.meets(one)


@given(write_sets, read_sets, st.lists(write_sets, max_size=6))
def test_the_oldest_candidate_in_the_way_is_named_with_a_real_overlap(ours, reads, theirs):
    landed = [candidate(writes, number) for number, writes in enumerate(theirs)]
    conflict = resolve(committing(ours), reads, landed).lost
    alone = [c for c in landed if resolve(committing(ours), reads, [c]).lost]
    assert (conflict.winner if conflict else None) == (alone[0] if alone else None)
    if conflict:
        assert conflict.overlap
        assert conflict.overlap == tuple(sorted(conflict.overlap))
        assert conflict.rule
        assert conflict.advice


@given(write_sets)
def test_whoever_reads_nothing_may_insert_after_any_overwrite(theirs):
    ours = WriteSet(frozenset({FileGroupId("p=1", "new")}))
    assert not meet(ours, WriteSet(region=theirs.region), BLIND)


@given(regions)
def test_a_region_survives_json(region):
    assert Region.from_json(region.to_json()) == region
    assert bool(region | NOWHERE) == bool(region)


def test_an_unknown_strategy_names_the_known_ones():
    with pytest.raises(ConfigError, match="known: simple"):
        resolve(committing(WriteSet()), ReadSet(), [candidate(WriteSet())], by="hopeful")


@given(write_sets, read_sets, st.lists(st.tuples(write_sets, st.booleans(), st.integers(-1, 1)), max_size=5))
def test_the_same_inputs_give_the_same_answer(ours, reads, theirs):
    others = [
        Party(f"{n}", "9" if landed else "", "UPSERT", "other", writes, priority)
        for n, (writes, landed, priority) in enumerate(theirs)
    ]
    for name in strategy_names():
        one, other = (resolve(committing(ours), reads, list(others), by=name) for _ in range(2))
        assert one == other
        assert pickle.loads(pickle.dumps(one)) == one


# --- what the answer carries -------------------------------------------------------------------------------------

G, H = FileGroupId("p", "g"), FileGroupId("p", "h")


def party(t: str, operation: str = "UPSERT", *groups: FileGroupId, c: str = "", **more) -> Party:
    return Party(t, c, operation, f"writer of {t}", WriteSet(frozenset(groups or (G,))), **more)


def test_a_verdict_names_winner_loser_overlap_rule_and_what_to_do():
    ours, theirs = party("1", "UPSERT", G, H), party("2", "UPSERT", G, c="3")
    lost = resolve(ours, ReadSet(), [theirs]).lost
    assert lost is not None
    assert (lost.winner, lost.loser, lost.overlap, lost.waits) == (theirs, ours, (G,), False)
    assert lost.rule == "both changed the same file group"
    assert "run the write again" in lost.advice
    plan = resolve(party("1", "CLUSTER"), ReadSet(), [theirs]).lost
    assert plan is not None
    assert "schedule a new one" in plan.advice


def test_whoever_yields_to_a_pending_one_is_told_to_wait():
    lost = resolve(party("1"), ReadSet(), [party("2", "CLUSTER")]).lost
    assert lost is not None
    assert lost.waits
    assert lost.rule == (
        "both changed the same file group, and ingestion, base files yields to clustering while it is pending"
    )
    assert "wait until it has ended" in lost.advice


def test_pending_ones_that_lose_when_ours_lands_are_named():
    pending = [party("2"), party("3", "UPSERT", H), party("4")]
    verdict = resolve(party("1"), ReadSet(), pending)
    assert verdict.lost is None
    assert [(each.winner.instant, each.loser.instant) for each in verdict.beats] == [("1", "2"), ("1", "4")]


# --- strategies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "other", "waits"),
    [
        (0, 1, True),
        (1, 0, False),
        (0, 0, False),
        (-3, -2, True),
    ],
)
def test_the_lower_priority_yields_while_it_is_running(mine, other, waits):
    verdict = resolve(party("1", priority=mine), ReadSet(), [party("2", priority=other)], by="priority")
    assert bool(verdict.lost) == waits
    if verdict.lost:
        assert verdict.lost.waits
        assert f"priority {mine} yields to {other}" in verdict.lost.rule
    assert resolve(party("1", priority=mine), ReadSet(), [party("2", priority=other)]).lost is None, "only there"


def test_priority_cannot_take_back_what_has_landed():
    lost = resolve(party("1", priority=9), ReadSet(), [party("2", c="3")], by="priority").lost
    assert lost is not None
    assert lost.winner.instant == "2"


@pytest.mark.parametrize("lead", [-5, 5])
def test_no_priority_goes_before_a_restore_or_takes_back_what_a_clean_has_deleted(lead):
    for ours, theirs in (("UPSERT", "RESTORE"), ("SAVEPOINT", "CLEAN")):
        first, second = party("1", ours, priority=lead), party("2", theirs)
        lost = resolve(first, ReadSet(), [second], by="priority").lost
        assert lost is not None
        assert lost.waits
        assert not resolve(second, ReadSet(), [first], by="priority").lost, "and it does not wait in turn"


def test_priority_counts_only_where_both_meet():
    assert not resolve(party("1"), ReadSet(), [party("2", "UPSERT", H, priority=9)], by="priority").lost


def test_a_lower_priority_yields_to_a_pending_overwrite_of_its_partition():
    claimed = WriteSet(region=Region(frozenset({"p"})))
    over = Party("2", "", "INSERT_OVERWRITE", "other", claimed, priority=1)
    assert resolve(party("1"), ReadSet(), [over], by="priority").lost
    assert not resolve(party("1"), ReadSet(), [over]).lost


@pytest.mark.parametrize("name", ["simple", "prefer-writer", "priority"])
def test_two_first_files_of_one_bucket_meet_and_of_two_buckets_do_not(name):
    one, other, same = (FileGroupId("p", f"{n:08d}-{tail}-0") for n, tail in ((1, "a"), (2, "b"), (1, "c")))
    for reads in (ReadSet(), ReadSet(blind=True)):
        for by, bucketed in ((name, True), ("bucket", True)):
            ours = party("1", "UPSERT", one)
            lost = resolve(ours, reads, [party("2", "UPSERT", same, c="3")], by=by, bucketed=bucketed).lost
            assert lost is not None
            assert lost.rule == "both changed the same bucket"
            assert lost.overlap == (same,)
            assert not resolve(ours, reads, [party("2", "UPSERT", other, c="3")], by=by, bucketed=bucketed).lost
    assert not resolve(party("1", "UPSERT", one), ReadSet(), [party("2", "UPSERT", same, c="3")], by=name).lost


def test_a_file_id_without_a_bucket_is_itself_in_a_bucketed_table():
    """Hudi fails here (issue 11516)."""
    odd = FileGroupId("p", "0c3e8f51-7d1e-4a55-9a4f-9d4b1b7f8e22-0")
    assert resolve(
        party("1", "UPSERT", odd), ReadSet(), [party("2", "UPSERT", odd, c="3")], by="bucket", bucketed=True
    ).lost
    near = FileGroupId("p", "0c3e8f51-1")
    assert not resolve(party("1", "UPSERT", odd), ReadSet(), [party("2", "UPSERT", near, c="3")], bucketed=True).lost


@pytest.mark.parametrize("name", strategy_names())
def test_of_two_kinds_at_most_one_yields_so_that_somebody_can_land(name):
    for ours in Kind:
        for theirs in Kind:
            for lead in (-1, 0, 1):
                for stranger in (False, True):
                    mine = strategy(name).yields_to(ours, theirs, lead=lead, stranger=stranger)
                    # A stranger that lands whatever we do needs nobody to yield to it.
                    other = not stranger and strategy(name).yields_to(theirs, ours, lead=-lead)
                    assert not (mine and other), (ours, theirs, lead)


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.parametrize("ours", INGESTION - {Kind.OVERWRITE})
def test_a_pending_clustering_of_the_jvm_is_yielded_to_under_every_strategy(name, ours):
    pending = party("2", "CLUSTER", stranger=True)
    appended = frozenset({G}) if ours is not Kind.REWRITE else frozenset()
    writes = WriteSet(frozenset({G}), appended=appended, streamed=ours is Kind.STREAM)
    writer = Party("1", "", "UPSERT", "me", writes, priority=5)
    assert resolve(writer, ReadSet(), [pending], by=name, bucketed=name == "bucket").lost


def test_under_prefer_writer_a_service_waits_for_ingestion_that_has_not_said_what_it_writes():
    """Fault 12: in Hudi a clustering lands while ingestion is only requested."""
    begun = party("2", silent=True)
    for operation in ("CLUSTER", "COMPACT", "LOG_COMPACT"):
        service = party("1", operation, H)
        lost = resolve(service, ReadSet(), [begun], by="prefer-writer").lost
        assert lost is not None
        assert lost.waits
        assert not resolve(service, ReadSet(), [begun]).lost
    assert not resolve(party("1"), ReadSet(), [begun], by="prefer-writer").lost


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        (
            "hopeful",
            {"bucket_count": None},
            "no conflict strategy 'hopeful'; known: simple, bucket, prefer-writer, priority",
        ),
        ("bucket", {"bucket_count": None}, "the table has no bucket index"),
        (
            "simple",
            {"bucket_count": None, "priority": 3},
            "priority 3 has no effect under the table's strategy 'simple'",
        ),
        ("priority", {"bucket_count": None, "priority": "high"}, "must be a whole number"),
        ("priority", {"bucket_count": None, "priority": True}, "must be a whole number"),
    ],
)
def test_contradictions_are_refused(name, given, words):
    with pytest.raises(ConfigError, match=words):
        refuse_contradiction(name, **given)


def test_what_goes_together_is_not_refused():
    for name in strategy_names():
        refuse_contradiction(name, bucket_count=4)
        refuse_contradiction(name, bucket_count=4, priority=0)
    refuse_contradiction("priority", bucket_count=None, priority=-2)


# --- restore, rollback, and what the candidates are --------------------------------------------------------------


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.parametrize("kind", set(Kind) - {Kind.ROLLBACK})
def test_nothing_lands_beside_a_restore(name, kind):
    ours = Party("1", "", kind.name if kind_of(kind.name) is kind else "UPSERT", "me", WriteSet(frozenset({H})), 9)
    landed = party("2", "RESTORE", c="3")
    lost = resolve(ours, ReadSet(), [landed], by=name).lost
    assert lost is not None
    assert not lost.waits
    pending = resolve(ours, ReadSet(), [party("2", "RESTORE")], by=name).lost
    assert (pending is not None and pending.waits) == (ours.kind is not Kind.RESTORE), "of two restores the first lands"
    assert not resolve(party("2", "RESTORE"), ReadSet(), [party("1", c="")], by=name).lost, "it is not held up"
    assert resolve(party("2", "RESTORE"), ReadSet(), [party("1", c="4")], by=name).lost, "its plan is outdated"


def test_whoever_is_rolled_back_loses_and_who_has_landed_is_not_rolled_back():
    rollback = party("2", "ROLLBACK", undoes=frozenset({"1"}))
    lost = resolve(party("1"), ReadSet(), [rollback]).lost
    assert lost is not None
    assert "takes this transaction back" in lost.rule
    kept = resolve(rollback, ReadSet(), [party("1", c="3")]).lost
    assert kept is not None
    assert "nothing to take back" in kept.rule


def test_candidates_are_what_landed_since_whatever_its_time():
    """HUDI-3355: requested before ours and landed after our begin; requested after ours and seen by our snapshot."""
    early, late, seen = party("1", c="9"), party("8", c="9"), party("7", c="8")
    running, own = party("2"), party("5")
    found = candidates({"7"}, [seen, early, late, running, own], own="5")
    assert [each.instant for each in found] == ["1", "8", "2"]


def test_the_grid_is_whole_and_its_words_are_known():
    assert set(COMPLETED) == {(a, b) for a in Kind for b in Kind}
    assert set(COMPLETED.values()) == {".", "x", "X"}
    assert {kind_of(name) for name in BLIND_OPERATIONS} == {Kind.REWRITE}
    assert kind_of("delete_partition") is Kind.OVERWRITE
    assert kind_of("SOMETHING_NEW") is Kind.REWRITE
    assert all(COMPLETED[theirs, ours] != "." for ours, theirs in YIELDS_ALWAYS), "nobody yields without need"


def test_an_overwrite_loses_to_a_clustering_that_made_other_file_groups_in_its_partition():
    """What it replaces is named by the groups of its snapshot, and the rows are in new ones now."""
    claimed = Party("1", "", "DELETE_PARTITION", "me", WriteSet(region=Region(frozenset({"p"}))))
    assert resolve(claimed, ReadSet(), [party("2", "CLUSTER", c="3")]).lost
    assert not resolve(claimed, ReadSet(), [party("2", "COMPACT", c="3")]).lost


# --- kinds that never mind each other: nobody looks for the file groups that they share ---------------------------------

places = st.builds(FileGroupId, st.just("p=1"), st.sampled_from(["x", "00000001-a-0", "00000001-b-0"]))
scans = st.builds(Scan, st.one_of(st.just(NOWHERE), regions), groups=st.frozensets(places, max_size=2))


OPERATIONS = ["UPSERT", "INSERT", "INSERT_OVERWRITE", "COMPACT", "LOG_COMPACT", "CLUSTER"]
OPERATIONS += ["CLEAN", "SAVEPOINT", "ROLLBACK", "RESTORE"]


@st.composite
def of_any_kind(draw, number: int) -> Party:
    """A transaction that appends everywhere, somewhere or nowhere, of a stream or not, and of any operation."""
    groups = draw(st.frozensets(places, min_size=1, max_size=3))
    appended = draw(st.sampled_from([frozenset(), groups, frozenset(list(groups)), frozenset(list(groups)[:1])]))
    region = draw(st.one_of(st.just(NOWHERE), regions))
    return Party(
        f"{number:03d}",
        draw(st.sampled_from(["", f"{number + 500:03d}"])),
        draw(st.sampled_from(OPERATIONS)),
        f"writer {number}",
        WriteSet(groups, region, appended, streamed=draw(st.booleans())),
        draw(st.integers(-1, 1)),
        stranger=draw(st.booleans()),
        undoes=draw(st.sampled_from([frozenset()] * 4 + [frozenset({"100"})])),
        silent=draw(st.booleans()),
        reads_too=draw(st.booleans()),
        reserved=draw(st.sampled_from([None, Reservation(groups=groups)])),
        age=number,
    )


@st.composite
def decisions(draw) -> dict:
    ours = replace(draw(of_any_kind(100)), completion="", stranger=False)
    return {
        "ours": ours,
        "reads": ReadSet(
            draw(st.one_of(st.just(NOWHERE), regions)),
            draw(st.booleans()),
            tuple(draw(st.lists(scans, max_size=1))),
            draw(st.one_of(st.none(), st.lists(scans, max_size=2).map(tuple))),
            tuple(draw(st.lists(scans, max_size=1))),
        ),
        "candidates": [draw(of_any_kind(n)) for n in range(draw(st.integers(0, 4)))],
        "by": draw(st.sampled_from(strategy_names())),
        "isolation": draw(st.sampled_from(ISOLATION_LEVELS)),
        "bucketed": draw(st.booleans()),
        "repeatable": draw(st.one_of(st.none(), st.just(Repeatable(ours.writes.groups, looks=True)))),
    }


@given(decisions())
def test_whoever_looks_for_shared_file_groups_all_the_same_decides_the_same(how):
    quick = resolve(**how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("lakelatch.conflict.resolve"), "INDIFFERENT", frozenset())
        assert resolve(**how) == quick


def test_so_they_do_for_every_pair_of_kinds():
    shared = frozenset({G, H})
    appended = [frozenset(), frozenset({G}), shared]
    ways = [WriteSet(shared, appended=some, streamed=streamed) for some in appended for streamed in (True, False)]
    ours = [Party("5", "", operation, "me", writes) for operation in OPERATIONS for writes in ways]
    theirs = [replace(each, instant="4", completion=c) for each in ours for c in ("", "6")]

    def decided() -> list:
        how = {"isolation": "serializable", "repeatable": Repeatable(shared)}
        return [resolve(mine, ReadSet(scans=()), [other], **how) for mine in ours for other in theirs]

    quick = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("lakelatch.conflict.resolve"), "INDIFFERENT", frozenset())
        assert decided() == quick


class Unseen(frozenset):
    """Nobody may look into it."""

    def _refuse(self, *_others: object) -> bool:
        raise AssertionError("these file groups are not to be looked at")

    __iter__ = __contains__ = __and__ = __rand__ = __le__ = __eq__ = isdisjoint = _refuse
    __hash__ = frozenset.__hash__


@pytest.mark.parametrize("bucketed", [True, False])
@pytest.mark.parametrize("pending", [True, False])
def test_of_two_commits_of_streams_no_file_group_is_looked_at(bucketed, pending):
    groups = Unseen({G, H})
    writes = WriteSet(groups, appended=groups, streamed=True)
    ours = Party("1", "", "UPSERT", "one stream", writes)
    theirs = Party("2", "" if pending else "3", "UPSERT", "another", writes)
    verdict = resolve(ours, ReadSet(scans=()), [theirs], bucketed=bucketed)
    assert (verdict.lost, verdict.beats, verdict.again) == (None, (), ())
    with pytest.raises(AssertionError, match="not to be looked at"):
        resolve(ours, ReadSet(scans=()), [replace(theirs, operation="CLUSTER")], bucketed=bucketed)


def test_a_write_set_knows_that_it_only_appends_however_it_is_made():
    both = frozenset({G, H})
    appends = WriteSet(both, appended=frozenset([G, H]))
    assert appends.only_appends
    assert replace(appends, streamed=True).only_appends
    assert pickle.loads(pickle.dumps(appends)).only_appends
    assert not WriteSet(both, appended=frozenset({G})).only_appends
    assert not WriteSet(both).only_appends


def test_streams_never_mind_each_other():
    assert (Kind.STREAM, Kind.STREAM) in INDIFFERENT
