"""Who waits for whom: never in a circle, and somebody can always land. Whatever is open, reserved and declared."""

from __future__ import annotations

import graphlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.conflict import Claim, Party, ReadSet, Reservation, WriteSet, first_in_the_way, in_rank_order, resolve
from lakelatch.conflict.write_set import EVERYWHERE, NOWHERE, Region
from lakelatch.hudi.files import FileGroupId

G = [FileGroupId(partition, f"{bucket:08}-{n}") for partition in "pq" for bucket in (1, 2) for n in "xy"]


def party(instant: str, *groups: FileGroupId, region: Region = NOWHERE, **more: object) -> Party:
    return Party(
        instant,
        more.pop("completion", ""),
        more.pop("operation", "UPSERT"),
        "w",
        WriteSet(frozenset(groups), region),
        **more,
    )


def reserved(*groups: FileGroupId, partitions: str = "") -> Reservation:
    return Reservation(Region(frozenset(partitions)), frozenset(groups))


# --- the rule ----------------------------------------------------------------------------------------------------


def waits(ours: Party, theirs: Party, **more: object) -> bool:
    lost = resolve(ours, ReadSet(), [theirs], **more).lost
    assert lost is None or (lost.waits and lost.winner is theirs)
    return lost is not None


@pytest.mark.parametrize(
    ("kept", "meets"),
    [
        (reserved(G[0]), True),
        (reserved(G[1]), False),
        (reserved(partitions="p"), True),
        (reserved(partitions="q"), False),
        (Reservation(EVERYWHERE), True),
        (Reservation(), False),
    ],
)
def test_what_lies_in_a_reservation_waits(kept, meets):
    assert waits(party("1", G[0]), party("2", reserved=kept, age=5)) is meets


def test_two_file_groups_of_one_bucket_are_one_place():
    keeps = party("2", reserved=reserved(G[1]), age=5)
    assert waits(party("1", G[0]), keeps, bucketed=True)
    assert not waits(party("1", G[2]), keeps, bucketed=True)


def test_an_overwrite_waits_for_a_file_group_reserved_in_its_partition():
    overwrite = party("1", region=Region(frozenset("p")), operation="INSERT_OVERWRITE")
    assert waits(overwrite, party("2", reserved=reserved(G[0]), age=5))
    assert not waits(overwrite, party("2", reserved=reserved(G[-1]), age=5))


def test_of_two_who_have_reserved_the_older_one_goes_first():
    kept = Reservation(EVERYWHERE)
    young, old = party("2", G[0], reserved=kept, age=9), party("1", G[0], reserved=kept, age=4)
    assert waits(young, old)
    assert not waits(old, young)


def test_who_has_not_begun_goes_behind_who_has_and_before_nobody():
    """Or two who begin at once would each wait for the other."""
    new, other, begun = Claim("", None), Claim("", None), Claim("1", 5)
    assert begun.outranks(new, by_priority=False)
    assert not new.outranks(begun, by_priority=False)
    assert not new.outranks(other, by_priority=False)


def test_priority_counts_before_reservation_and_age_only_under_its_strategy():
    kept = Reservation(EVERYWHERE)
    keeps = party("2", reserved=kept, age=1)
    assert waits(party("1", G[0], priority=7, age=9), keeps)
    assert not waits(party("1", G[0], priority=7, age=9), keeps, by="priority")


def test_what_has_landed_decides_at_once():
    """To wait for somebody although all is lost would waste time."""
    keeps = party("2", reserved=Reservation(EVERYWHERE), age=1)
    lost = resolve(party("3", G[0]), ReadSet(), [party("1", G[0], completion="4"), keeps]).lost
    assert lost is not None
    assert not lost.waits


def test_who_has_reserved_waits_for_no_table_service():
    """It would be waiting for us."""
    plan = party("1", G[0], operation="CLUSTER", age=1)
    keeps = party("2", G[0], reserved=reserved(G[0]), age=5)
    assert waits(party("3", G[0]), plan)
    assert not waits(keeps, plan)
    assert waits(plan, keeps)


def test_restore_waits_for_nobody_and_everybody_for_it():
    keeps = party("2", G[0], reserved=Reservation(EVERYWHERE), age=1)
    restore = party("3", operation="RESTORE")
    assert not waits(restore, keeps)
    assert waits(keeps, restore)


# --- for all of them ---------------------------------------------------------------------------------------------

some_groups = st.frozensets(st.sampled_from(G), max_size=3)
regions = st.builds(Region, st.frozensets(st.sampled_from("pqr"), max_size=2), st.booleans())
reservations = st.builds(Reservation, regions, some_groups)
claims = st.builds(
    Claim, st.uuids().map(str), st.integers(0, 99), st.integers(-1, 1), st.none() | reservations.filter(bool)
)


def distinct_ages(found: list[Claim]) -> list[Claim]:
    return [Claim(c.instant, age, c.priority, c.reserved) for age, c in enumerate(found)]


@given(st.lists(claims, max_size=6).map(distinct_ages), st.booleans())
def test_rank_is_a_total_order_among_those_who_have_reserved(found, by_priority):
    ranked = in_rank_order(found, by_priority=by_priority)
    keepers = [each for each in ranked if each.reserved]
    for first, second in pairwise(keepers):
        assert first.outranks(second, by_priority=by_priority)
        assert not second.outranks(first, by_priority=by_priority)
    if keepers:
        top = keepers[0]
        assert first_in_the_way(top, found, by_priority=by_priority, bucketed=False) is None


@st.composite
def parties(draw: st.DrawFn) -> tuple[list[Party], str]:
    by = draw(st.sampled_from(["simple", "bucket", "prefer-writer", "priority"]))
    found = []
    for age in range(draw(st.integers(2, 6))):
        operation = draw(
            st.sampled_from(["UPSERT", "INSERT", "INSERT_OVERWRITE", "CLUSTER", "COMPACT", "LOG_COMPACT", "CLEAN"])
        )
        plan = operation in ("CLUSTER", "COMPACT", "LOG_COMPACT", "CLEAN")
        region = draw(regions) if operation == "INSERT_OVERWRITE" else NOWHERE
        writes = WriteSet(draw(some_groups), region)
        kept = None if plan else draw(st.none() | reservations.filter(bool))
        priority = draw(st.integers(0, 2)) if by == "priority" else 0
        found.append(
            Party(str(age), "", operation, "w", writes, priority, reserved=kept, age=draw(st.integers(0, 3)) * 10 + age)
        )
    return found, by


@given(parties())
def test_nobody_waits_in_a_circle(them):
    """Everybody at the commit at once, each seeing all others as pending: somebody waits for nobody."""
    found, by = them
    waiting = {
        ours.instant: {
            other.instant
            for other in found
            if other is not ours
            and (lost := resolve(ours, ReadSet(blind=True), [other], by=by, bucketed=by == "bucket").lost) is not None
            and lost.waits
        }
        for ours in found
    }
    graphlib.TopologicalSorter(waiting).prepare()  # raises CycleError


@given(reservations, some_groups, regions)
def test_a_reservation_and_its_json_meet_the_same(kept, groups, region):
    again = Reservation.from_json(kept.to_json())
    assert again == kept
    writes = WriteSet(groups, region)
    assert bool(kept.met_by(writes, bucketed=False)) == (
        any(kept.region.covers(g.partition) or g in kept.groups for g in groups)
        or any(region.covers(g.partition) for g in kept.groups)
        or kept.region.meets(region)
    )
