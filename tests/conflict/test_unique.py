"""Values that no two rows may share: two transactions meet exactly when they have one in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.conflict import Party, ReadSet, WriteSet, resolve
from lakelatch.conflict.resolve import Repeatable
from lakelatch.conflict.write_set import Values, shared
from lakelatch.hudi.files import FileGroupId

ALL = ("", "\U0010ffff")


def values(hashes, **spans: tuple[str, str]) -> Values:
    found = None if hashes is None else np.array(sorted(set(hashes)), np.uint64)
    return Values(spans or {"p": ALL}, lambda: found)


def party(name: str, group: str = "", *, landed: bool = True, operation: str = "UPSERT", **unique: Values) -> Party:
    writes = WriteSet(frozenset({FileGroupId("p", group or name)}), unique={k.strip("_"): v for k, v in unique.items()})
    return Party(name, name if landed else "", operation, f"writer of {name}", writes)


def rule(ours: Party, *others: Party, **how) -> str | None:
    lost = resolve(ours, ReadSet(), others, **how).lost
    return lost and lost.rule


@given(st.sets(st.integers(0, 300), max_size=200), st.sets(st.integers(0, 300), max_size=200))
def test_two_sets_meet_when_they_share_a_value_and_only_then(one, other):
    assert bool(shared(values(one), values(other))) is not one.isdisjoint(other)


@given(*[st.dictionaries(st.sampled_from("pqr"), st.tuples(*[st.text("ab", max_size=2)] * 2), max_size=3)] * 2)
def test_hashes_are_asked_for_only_where_spans_meet(one, other):
    one, other = ({p: (min(s), max(s)) for p, s in each.items()} for each in (one, other))
    asked = []
    mine = Values(one, lambda: asked.append(1) or np.array([1], np.uint64))
    theirs = Values(other, lambda: np.array([1], np.uint64))
    near = {p for p in one.keys() & other.keys() if one[p][0] <= other[p][1] and other[p][0] <= one[p][1]}
    assert set(shared(mine, theirs)) == near
    assert bool(asked) is bool(near)


def test_what_nobody_knows_any_more_may_be_anything():
    assert shared(values([1]), values(None)) == ("p",)
    assert shared(values([1], p=("a", "b")), values(None, p=("c", "d"))) == ()


def test_the_same_new_key_in_two_file_groups_is_a_conflict():
    ours, theirs = party("2", _=values([1, 2])), party("1", _=values([2, 3]))
    lost = resolve(ours, ReadSet(), [theirs]).lost
    assert lost is not None
    assert (lost.rule, lost.winner, lost.overlap, lost.final) == (
        "both inserted the same new key",
        theirs,
        (FileGroupId("p", ""),),
        False,
    )
    assert rule(party("2", _=values([1])), theirs) is None
    assert rule(party("2"), theirs) is None


@pytest.mark.parametrize("blind", [False, True])
def test_a_blind_insert_must_not_run_again_and_one_that_looked_may(blind):
    ours, theirs = party("2", operation="INSERT", _=values([1])), party("1", _=values([1]))
    lost = resolve(ours, ReadSet(blind=blind), [theirs]).lost
    assert lost is not None
    assert lost.final is blind
    assert ("upsert" in lost.advice) is blind


def test_a_constraint_is_over_all_partitions_and_a_repetition_will_name_the_rows():
    ours = party("2", email=values([7], **{"": ALL}))
    theirs = party("1", email=values([7], **{"": ALL}), phone=values([8], **{"": ALL}))
    for blind in (False, True):
        lost = resolve(ours, ReadSet(blind=blind), [theirs]).lost
        assert lost is not None
        assert lost.rule == "both wrote the same value of what is unique (email)"
        assert not lost.final
    assert rule(party("2", phone=values([7], **{"": ALL})), theirs) is None


def test_a_repeated_merge_does_not_mend_it():
    group = FileGroupId("p", "g")
    ours, theirs = party("2", "g", _=values([1])), party("1", "g", _=values([1]))
    can = Repeatable(frozenset({group}), looks=True)
    assert rule(ours, theirs, repeatable=can) == "both inserted the same new key"
    assert rule(party("2", "g", _=values([2])), theirs, repeatable=can) is None


def test_a_pending_one_is_met_when_it_commits():
    assert rule(party("2", _=values([1])), party("1", landed=False, _=values([1])), by="prefer-writer") is None
