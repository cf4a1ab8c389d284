"""The features, searched: sound with their rules, at fault without any of them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ..thorough import some
from . import begins, confirmation, coordinator, rebase, reservation
from .explore import explore
from .features import FEATURES, HARMLESS, MISSING, Missing, search, sound_searches


@pytest.mark.parametrize(("feature", "name"), some(sound_searches(), 6))
def test_feature_has_no_fault(feature: str, name: str) -> None:
    result = search(feature, FEATURES[feature].sound[name])
    print(result)
    assert not result.fault, str(result)
    assert result.states > 100, "the bounds let hardly anything happen"


@pytest.mark.parametrize("case", MISSING, ids=lambda case: f"{case.feature}: {case.rule}={case.instead} [{case.traps}]")
def test_each_rule_of_a_feature_is_missed(case: Missing) -> None:
    result = case.search()
    print(result)
    assert case.fault in result.fault, str(result)
    if case.besides or case.bounds not in FEATURES[case.feature].sound.values():
        assert not case.search(with_rule=True).fault, "the rule is not what makes the difference"


def test_every_rule_of_a_feature_is_left_out() -> None:
    known = {(name, rule.name) for name, feature in FEATURES.items() for rule in fields(feature.rules)}
    assert {(case.feature, case.rule) for case in MISSING} == {each for each in known if each[1] not in HARMLESS}


@pytest.mark.parametrize(("from_merge", "lands"), [(True, True), (False, False)])
def test_a_rebase_lands_because_it_is_compared_from_its_merge_on(from_merge: bool, lands: bool) -> None:
    model = rebase.Rebase(rebase.Rules(from_merge=from_merge), rebase.Bounds(), seek=True)
    assert (explore(model).fault == "landed after a rebase") is lands


def test_safety_does_not_hang_on_reservations() -> None:
    bounds = reservation.Bounds(declared=1, deaths=1, epochs=1)
    result = search("reservations", bounds, heeded_at_commit=False, begins_after=False)
    assert not result.fault, str(result)


class _Seek(coordinator.Coordinated):
    """Takes it for a fault that an entry with so many members lands, and everybody hears of it."""

    size = 0

    def judge(self, s: coordinator.State) -> str:
        sizes = [len(e.members) for e in s.log if e.kind == "commit"]
        done = s.acknowledged.bit_count() == self.bounds.writers and self.size in sizes
        return super().judge(s) or ("all landed" if done else "")


class _SeekBegins(begins.Begins):
    """Takes it for a fault that so many have begun by one entry, and all have ended."""

    size = 0

    def judge(self, s: begins.State) -> str:
        done = all(p.at == "end" for p in s.askers) and self.size in [len(e.members) for e in s.log[1:]]
        return super().judge(s) or ("all have ended" if done else "")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_as_many_as_ask_begin_together(size: int) -> None:
    model = _SeekBegins(begins.Rules(), begins.Bounds(askers=3, gives_up=False))
    model.size = size
    assert explore(model).fault == "all have ended"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_groups_of_every_size_land(size: int) -> None:
    model = _Seek(coordinator.Rules(), coordinator.Bounds(writers=3, conflicts=frozenset(), gives_up=False))
    model.size = size
    assert explore(model).fault == "all landed"


def test_a_coordinator_puts_the_next_entry_while_the_last_one_is_in_doubt() -> None:
    model = confirmation.Confirmation(confirmation.Rules(), confirmation.Bounds(beginners=0))

    def doubtful(s: confirmation.State) -> int:
        return sum(t.at == "confirm" for t in s.coordinators[0].threads)

    state, seen = model.start(), list[str]()
    for wanted in ("reads on", "decides on commit(0)", "puts", "reads on", "decides on commit(1)", "puts"):
        what, state = next((what, after) for what, after in model.steps(state) if wanted in what)
        seen.append(what)
    assert doubtful(state) == 2, seen
    told = model._told(state.coordinators[0])
    assert told == []
    while doubtful(state):
        what, state = next(
            (what, after) for what, after in model.steps(state) if "counts" in what or "publishes" in what
        )
    assert [e.members for e in model._told(state.coordinators[0]) if e.kind == "commit"] == [(0,), (1,)]
