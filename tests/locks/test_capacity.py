"""How many leases are allowed where each renewal is a request of its own."""

from __future__ import annotations

import pytest

from lakelatch.locks.core.backend import LEASES_MAX, Capacity


@pytest.mark.parametrize(("lease_s", "write_s", "leases"), [(30.0, 0.01, 500), (30.0, 0.05, 100), (3.0, 0.01, 50)])
def test_renewals_fit_into_half_of_a_third_of_the_lease(lease_s: float, write_s: float, leases: int) -> None:
    capacity = Capacity(lease_s, guess_s=1.0)
    for _ in range(5):
        capacity.took(write_s)
    assert capacity.leases == leases
    assert leases * write_s <= lease_s / 6 * 1.0001


def test_one_slow_answer_changes_nothing_and_many_do() -> None:
    capacity = Capacity(30.0, guess_s=0.01)
    for _ in range(31):
        capacity.took(0.01)
    capacity.took(5.0)
    assert capacity.leases == 500
    for _ in range(16):
        capacity.took(5.0)
    assert capacity.leases == 1


def test_no_more_than_was_ever_tried() -> None:
    capacity = Capacity(24 * 3600.0, guess_s=0.0)
    assert capacity.leases == LEASES_MAX
