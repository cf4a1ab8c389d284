"""The commit protocol, searched: sound with all its rules, and at fault without any one of them."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import pytest

from ..thorough import some
from .cases import MISSING, SOUND, Missing
from .explore import Result
from .rules import Bounds, Rules
from .search import Search


@pytest.mark.parametrize("name", some(SOUND, 4))
def test_protocol_has_no_fault(name: str) -> None:
    result = Search(Rules(), SOUND[name]).run()
    print(result)
    assert not result.fault, str(result)
    assert result.states > 1_000, "the bounds let hardly anything happen"


@cache
def with_all_rules(bounds: Bounds) -> Result:
    return Search(Rules(), bounds).run()


@pytest.mark.parametrize("case", MISSING, ids=lambda case: f"{case.rule} [{case.traps}]")
def test_each_rule_is_missed(case: Missing) -> None:
    result = Search(case.rules, case.bounds).run()
    print(result)
    assert case.fault in result.fault, str(result)
    if case.bounds not in SOUND.values():  # those have a test of their own
        assert not with_all_rules(case.bounds).fault, "the rule is not what makes the difference"


def test_every_rule_is_left_out_once() -> None:
    assert sorted(case.rule for case in MISSING) == sorted(rule.name for rule in fields(Rules))


def test_search_that_is_cut_short_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match="too wide"):
        Search(Rules(), Bounds(epochs=2)).run(states_max=100)


def test_every_state_can_end() -> None:
    # Deadlock would hide faults: from the last state that a search reaches, everybody has come to an end.
    search = Search(Rules(), Bounds())
    state = search.world.start()
    while after := [s for _, s in search.steps(state)]:
        state = after[-1]
    assert {process.at for process in state.processes} == {"end"}
    assert state.markers == 0
    assert state.files == state.published == state.hist.committed
