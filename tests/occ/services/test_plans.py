"""Plans without an executor: nobody waits for one longer than for a writer that has died (trap 25)."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.occ.log.epochs import LOG
from lakelatch.testing.faults import On, Pause, Refuse

from ..aged import AGED, SMALL
from ..mor import ROWS, merge_on_read
from ..world import Writer, at_work, check_sound, content, fate, independent_content

ADDED = {"b0": 1, "b1": 1, "b9": 2}  # what `add` makes of partition b, where clustering joins two files
PLANNED = On("put_if_absent", "/timeline/")  # the next call after the plan's entry and its first beat
STAGES = {
    "before its first beat": On("put_if_absent", "/.heartbeat/"),
    "planned": PLANNED,
    "at work": On("", ".parquet"),
}


def kill(writer: Writer, when: On, act: str = "cluster", **given) -> str:
    """``act`` is cut off there, as by ``kill -9``, and its process is gone; T of the plan that it leaves."""
    writer.store.add(Refuse(when))
    with pytest.raises(lakelatch.StorageError):
        getattr(writer.table, act)(**given)
    writer.table.session.heart.close()
    writer.die()
    (plan,) = writer.table.plans()
    return plan.instant


def waited(writer: Writer, act) -> float:
    """Seconds until it was done."""
    began = writer.env.monotonic()
    act()
    return writer.env.monotonic() - began


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("host", ["host-a", "host-b"])
def test_an_upsert_goes_on_when_a_clustering_was_killed(old, stage, host):
    a, b = old.writer("A"), old.writer("B", host=host)
    planned = kill(a, STAGES[stage], **SMALL)
    took_s = waited(b, lambda: b.add("b"))
    assert took_s < (1 if host == "host-a" else b.table.settings.heartbeat_timeout_s + 5)
    assert fate(b.table, planned) == ["begin", "rollback"]
    with old.fresh() as table:
        assert content(table) == independent_content(old.folder) == AGED | ADDED
        check_sound(table)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("host", ["host-a", "host-b"])
def test_clean_ends_a_clustering_that_was_killed(old, stage, host):
    a, b = old.writer("A"), old.writer("B", host=host)
    planned = kill(a, STAGES[stage], **SMALL)
    assert b.table.rollback_failed_writes(wait=host != "host-a") == [planned]
    assert not b.table.plans()
    with old.fresh() as table:
        check_sound(table)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("host", ["host-a", "host-b"])
def test_the_next_clustering_takes_the_place_of_one_that_was_killed(old, stage, host):
    a, b = old.writer("A"), old.writer("B", host=host)
    planned = kill(a, STAGES[stage], **SMALL)
    done = b.table.cluster(**SMALL)
    assert done.mine
    assert fate(b.table, planned) == ["begin", "rollback"]
    with old.fresh() as table:
        assert content(table) == independent_content(old.folder) == AGED
        check_sound(table)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("host", ["host-a", "host-b"])
def test_the_next_compaction_takes_the_place_of_one_that_was_killed(folder, stage, host):
    world = merge_on_read(folder / "table", small=True)
    a, b = world.writer("A"), world.writer("B", host=host)
    planned = kill(a, STAGES[stage], "compact")
    assert b.table.compact().mine
    assert fate(b.table, planned) == ["begin", "rollback"]
    assert not any(each.logs for each in b.table.snapshot().file_slices())
    assert content(b.table) == ROWS
    world.close()


@pytest.mark.parametrize("stage", STAGES)
def test_a_clustering_that_failed_holds_nobody_up_although_its_process_lives(old, stage):
    a, b = old.writer("A"), old.writer("B")
    a.store.add(Refuse(STAGES[stage]))
    with pytest.raises(lakelatch.StorageError):
        a.table.cluster(**SMALL)
    (planned,) = a.table.plans()
    other = a.table.transaction("insert")
    with at_work(a, other.instant, seen_by=b):  # its heart goes on beating for what else it has open
        assert waited(b, lambda: b.add("b")) < b.table.settings.heartbeat_timeout_s + 5
    other.abort()
    assert fate(b.table, planned.instant) == ["begin", "rollback"]


def test_a_clustering_at_work_is_waited_for(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")

    def upsert() -> None:
        (plan,) = b.table.plans()
        with at_work(a, plan.instant, seen_by=b), pytest.raises(lakelatch.ConflictError, match="is planned") as told:
            b.add("b")
        assert "services execute" in "".join(told.value.__notes__)

    a.store.add(Pause(On("create", ".parquet"), upsert))
    assert a.table.cluster(**SMALL).mine
    with old.fresh() as table:
        assert content(table) == AGED
        check_sound(table)


def test_a_plan_for_others_lives_until_somebody_has_to_wait_for_it(old):
    a, b, c = old.writer("A"), old.writer("B", host="host-b"), old.writer("C")
    planned = a.table.plan_clustering(**SMALL)
    a.die()
    c.table.rollback_failed_writes(wait=True)
    b.table.rollback_failed_writes(wait=True)
    b.insert("c", "c0")
    assert [plan.instant for plan in b.table.plans()] == [planned]
    assert waited(b, lambda: b.add("b")) < 2 * b.table.settings.heartbeat_timeout_s
    assert fate(b.table, planned) == ["begin", "rollback"]
    with pytest.raises(lakelatch.InputError, match="it was cancelled"):
        c.table.execute(planned)
    with old.fresh() as table:
        assert content(table) == AGED | ADDED | {"c0": 1}
        check_sound(table)


def test_a_plan_for_others_whose_execution_has_begun_lives_as_long_as_that(old):
    a, b, c = old.writer("A"), old.writer("B"), old.writer("C")
    planned = a.table.plan_clustering(**SMALL)
    a.die()
    b.store.add(Refuse(STAGES["at work"]))
    with pytest.raises(lakelatch.StorageError):
        b.table.execute(planned)
    b.table.session.heart.close()
    b.die()
    assert waited(c, lambda: c.add("b")) < 1, "B's process is gone, and nobody else has begun"
    with old.fresh() as table:
        check_sound(table)


def test_an_execution_that_joins_one_that_dies_keeps_the_plan_alive(old):
    """A has planned and dies at it; B has joined in, so C waits for B."""
    a, b, c = old.writer("A"), old.writer("B"), old.writer("C")
    planned = kill(a, PLANNED, **SMALL)

    def look() -> None:
        assert c.table.rollback_failed_writes() == []
        assert [plan.instant for plan in c.table.plans()] == [planned]

    b.store.add(Pause(On("create", ".parquet"), look))
    assert b.table.execute(planned).mine
    with old.fresh() as table:
        assert content(table) == AGED
        check_sound(table)


def test_a_plan_that_another_engine_may_be_executing_is_left_alone(old):
    """It gives no sign of life: its inflight instant, without a heartbeat beside it, is all that shows it."""
    a, b = old.writer("A"), old.writer("B", host="host-b")
    planned = a.table.plan_clustering(**SMALL)
    (old.folder / f".hoodie/timeline/{planned}.clustering.inflight").touch()
    with pytest.raises(lakelatch.ConflictError):
        b.add("b")
    assert [plan.instant for plan in b.table.plans()] == [planned]


def test_one_that_cannot_end_a_plan_goes_on_waiting(old):
    a, b = old.writer("A"), old.writer("B")
    planned = a.table.plan_clustering(**SMALL)
    txn = b.begin_add("b")
    b.store.add(Pause(On("get", f".heartbeat/{planned}"), lambda: b.store.add(Refuse(On("put_if_absent", f"{LOG}/")))))
    txn.commit()
    assert fate(b.table, planned) == ["begin", "rollback"]
