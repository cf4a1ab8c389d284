"""The programs that tell how costs grow: what they count, and that they find powers that are known."""

from __future__ import annotations

import pytest

from benchmarks.commits import growth
from benchmarks.commits.simulated import Run, measured
from lakelatch.storage import open_store
from tests.simulation.install import simulated


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_that_power(power):
    assert growth.exponent([(size, 3.0 * size**power) for size in growth.sizes(10_000, 10)]) == pytest.approx(power)


def test_sizes_end_with_the_greatest_that_was_asked_for():
    assert growth.sizes(1000, 10, 10) == [10, 100, 1000]
    assert growth.sizes(64, 2) == [1, 2, 4, 8, 16, 32, 64]
    assert growth.sizes(0, 10) == []


def test_each_call_of_the_store_counts_once(tmp_path):
    store = growth.Counted(open_store(str(tmp_path)))
    store.put("a", b"x")
    assert store.body("a") == b"x"
    assert store.names("") == ["a"]
    assert store.calls == {"put": 1, "body": 1, "names": 1}


def test_what_grew_most_is_named_first():
    def point(size: int, **own: float) -> growth.Point:
        cost = growth.Cost(1.0, 1.0)
        return growth.Point(size, cost, cost, {"commit": own})

    points = [point(1, read=1.0, wrote=2.0), point(10, read=4.0, wrote=2.0, looked=1.0)]
    assert growth.grown(points, "commit") == ["read +3.00 ms", "looked +1.00 ms"]


def test_a_table_is_as_large_as_it_was_asked_to_be(tmp_path):
    points = growth.by_size(tmp_path, "partitions", 10)
    assert [point.size for point in points] == [1, 10]
    assert all(point.commit.calls >= 10 and point.open.calls >= 10 for point in points)
    table = growth.made(str(tmp_path / "more"))
    with table:
        growth.fill(table, tmp_path / "more", 12, 3)
        slices = table.snapshot().file_slices()
    assert len(slices) == 12 + 1  # and the one whose file has all the names
    assert {each.partition for each in slices} == {"part=0", "part=1", "part=2"}


def test_simulated_writers_take_the_time_of_their_requests_and_land_all():
    with simulated():
        run = Run(writers=3, commits=2, request_s=0.03, slow=0.0, seed=1, lock_s=0.0, coordinated=False)
        run.perform()
        facts = run.facts()
        run.judge()
        # One after another, each request within 30 % of its time; heartbeats are none of a commit's own.
        assert facts["p50_s"] >= 0.7 * 0.03 * 10
        assert facts["commits"] == 6
        slower = Run(writers=3, commits=2, request_s=0.3, slow=0.0, seed=1, lock_s=0.0, coordinated=False)
        slower.perform()
        assert slower.facts()["p50_s"] > 5 * facts["p50_s"]
        run.landed.pop()
        with pytest.raises(AssertionError, match="9 on the timeline, 8 acknowledged"):
            run.judge()


@pytest.mark.parametrize(("at_once", "rate", "p99_s"), [(False, 35, 0.6), (True, 70, 0.3)])
def test_sixteen_writers_of_a_coordinator_share_its_entries(at_once, rate, p99_s):
    """In virtual time, 20 ms a request: commits go before begins, and neither goes alone."""
    facts = measured(16, 10, 0.02, 0.0, 1, lock_s=0.005, coordinated=True, publish_at_once=at_once)
    assert facts["commits_per_s"] >= rate
    assert facts["p99_s"] <= p99_s
    assert facts["requests_per_commit"] <= 11.5
