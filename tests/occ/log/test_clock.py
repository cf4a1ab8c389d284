"""Clocks that are years off: they may not begin, and a table where one has been at work goes on."""

from __future__ import annotations

import os
import shutil

import pytest

import lakelatch
from lakelatch.hudi.timeline.instant import AHEAD_MAX_S, EARLIEST, from_epoch_ms, next_label, to_epoch_ms
from lakelatch.occ.check.check import check
from lakelatch.testing import FakeEnvironment

from ..world import BEGUN, World, check_sound, content, make_empty

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
FUTURE = "20990101000000000"


def wall(world: World, years: float) -> float:
    return world.env.now() + years * YEAR_S


@pytest.mark.parametrize(
    ("years", "words"), [(3, "years after the table's newest time"), (73, "cannot be; nothing was written")]
)
def test_a_clock_that_is_years_ahead_begins_nothing(world, years, words):
    right, wrong = world.writer("A"), world.writer("B", wall=wall(world, years))
    right.insert("a", "a8")
    right.insert("a", "a9")
    before = right.table.session.log.state.top
    begun = (
        lambda: wrong.add("a"),
        lambda: wrong.table.plan_clustering(small_bytes=1 << 20, target_bytes=1 << 20),
        lambda: wrong.table.savepoint(),
    )
    for begin in begun:
        with pytest.raises(lakelatch.ConfigError, match=words) as refused:
            begin()
        assert "clock" in str(refused.value)
    assert right.table.session.log.catch_up().top == before
    right.add("a")
    assert right.table.session.log.catch_up().top < from_epoch_ms(int((right.env.now() + DAY_S) * 1000))
    check_sound(right.table)


def test_nor_makes_a_table(tmp_path):
    env = FakeEnvironment(seed=1)
    with pytest.raises(lakelatch.ConfigError, match="clock of this host"):
        make_empty(tmp_path / "t", env.peer(wall=env.now() + 73 * YEAR_S))
    assert list(tmp_path.rglob("hoodie.properties")) == []


def test_a_clock_that_is_months_ahead_or_years_behind_goes_on(world):
    for number, years in enumerate((-50.0, -3.0, 0.4)):
        world.writer(str(number), wall=wall(world, years)).add("a")
    assert world.content() == BEGUN | {"a0": 3, "a1": 3}
    with world.fresh() as table:
        check_sound(table)


def test_a_clock_that_jumps_ahead_during_a_transaction_does_not_take_the_labels_along(world):
    writer = world.writer("A")
    txn = writer.begin_add("a")
    writer.env.set_wall(wall(world, 30))
    result = txn.commit()
    assert result.completion == next_label(0.0, txn.instant)
    with pytest.raises(lakelatch.ConfigError, match="clock"):
        writer.add("a")


def test_a_table_that_was_idle_for_years_is_written_to_when_somebody_says_that_the_clock_is_right(world):
    late = wall(world, 5)
    writer = world.writer("A", wall=late)
    with pytest.raises(lakelatch.ConfigError, match="clock_is_right=True"):
        writer.add("a")
    with lakelatch.open(str(world.folder), env=world.env.peer(wall=late), clock_is_right=True) as table:
        world.writer_of(table).add("a")
    writer.add("a")
    assert to_epoch_ms(writer.table.session.log.state.top) / 1000 >= late


@pytest.fixture
def poisoned(make_world):
    """A table that an engine with a clock of 2099 has written to, and that was adopted since."""
    world = make_world(lock="none://")
    a = world.writer("A")
    result = a.add("a")
    timeline = world.folder / ".hoodie/timeline"
    (there,) = timeline.glob(f"{result.instant}_*.commit")
    there.rename(there.with_name(f"{result.instant}_{FUTURE}.commit"))
    a.table.close()
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    with lakelatch.adopt(str(world.folder), env=world.env.peer()):
        pass
    return world


def test_a_table_with_a_commit_from_the_future_stays_usable_and_check_names_it(poisoned):
    a, b = poisoned.writer("A"), poisoned.writer("B")
    for writer in (a, b, a):
        writer.add("a")
    assert content(b.table) == BEGUN | {"a0": 4, "a1": 4}
    assert b.table.session.log.state.top[:14] == FUTURE[:14], "in steps of a millisecond"
    report = check(b.table.store, deep=True, env=poisoned.env)
    assert {each.kind for each in report.findings} == {"instant-ahead"}
    assert report.sound()
    assert "4 commits have times ahead of this clock" in report.findings[0].message


def test_cleaning_by_hours_goes_by_when_such_a_commit_was_written(poisoned):
    a = poisoned.writer("A")
    for _ in range(3):
        a.add("a")
    poisoned.env.sleep(DAY_S)
    timeline, now = poisoned.folder / ".hoodie/timeline", a.env.now()
    for age, path in enumerate(sorted(timeline.glob("*_2099*.commit"), reverse=True)):
        os.utime(path, (now - age * 3600, now - age * 3600))
    assert a.table.clean(retain_hours=25) is None
    assert a.table.clean(retain_hours=1.5).files > 0
    older = a.table.clean(retain_hours=0)
    assert older is not None
    assert a.table.clean(retain_hours=0) is None
    assert content(a.table) == BEGUN | {"a0": 4, "a1": 4}


def test_a_label_is_never_far_ahead_of_what_the_table_has():
    top = "20251121000000000"
    seconds = to_epoch_ms(top) / 1000
    assert next_label(seconds + AHEAD_MAX_S - 1, top) > "20271101"
    assert next_label(seconds + AHEAD_MAX_S + 1, top) == "20251121000000001"
    assert next_label(seconds + AHEAD_MAX_S + 1, EARLIEST) > "20271101"
    assert next_label(seconds + AHEAD_MAX_S + 1, top, trusted=True) > "20271101"


def test_a_table_whose_times_are_used_up_says_so():
    with pytest.raises(lakelatch.UnsupportedTableError, match="99991231235959999"):
        next_label(0.0, "99991231235959999")
