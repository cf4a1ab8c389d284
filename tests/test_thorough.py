"""The part of an enumeration that `make test` takes has every value in it, and `make thorough` all of it."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from . import thorough

SQUARE = list(product("abcde", range(3), (False, True)))


def test_of_a_product_each_value_is_taken_and_none_much_oftener_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thorough, "THOROUGH", False)
    taken = [SQUARE[n] for n in thorough.covering(SQUARE)]
    assert len(taken) == 5, "as many as the longest column has values"
    for column, values in enumerate(("abcde", range(3), (False, True))):
        times = Counter(row[column] for row in taken)
        assert set(times) == set(values)
        assert max(times.values()) - min(times.values()) <= 1
    assert thorough.covering([(1, 2)]) == [0]


def test_a_thorough_run_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thorough, "THOROUGH", True)
    assert thorough.covering(SQUARE) == list(range(30))
    assert thorough.some(SQUARE, 2) == SQUARE


def test_a_run_takes_a_part_of_what_is_parametrised_twice(request: pytest.FixtureRequest) -> None:
    """The two below are nine cases, of which three have every value."""
    here = [item for item in request.session.items if item.name.startswith("test_crossed[")]
    named = any("::" in each for each in request.config.args)  # then nothing is left out
    assert len(here) in ({9} if thorough.THOROUGH else {1, 9} if named else {3})


@pytest.mark.parametrize("one", [1, 2, 3])
@pytest.mark.parametrize("other", "abc")
def test_crossed(one: int, other: str) -> None:
    assert (one, other) in product((1, 2, 3), "abc")
