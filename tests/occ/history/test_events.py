"""`Table.events`: what happens to a table, in order, each once, across epochs."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

import lakelatch
from lakelatch.occ.entries.entries import End, encode
from lakelatch.occ.history import follow
from lakelatch.occ.log.epochs import LOG, slot_path

from ..world import World


def told(table: lakelatch.Table, **after) -> list[tuple[str, str]]:
    return [(each.event, each.instant) for each in follow(table.session, ends=True, **after)]


def test_each_thing_that_happens_is_told_once_in_order(world: World) -> None:
    writer, other = world.writer("w"), world.writer("o")
    other.insert("b", "b9")
    start = writer.table.timeline().commits[-1].completed
    loser = writer.begin_add("a")
    landed = other.add("a")
    with pytest.raises(lakelatch.ConflictError):
        loser.commit()
    other.table.change_settings(lock_wait_s=7)
    plan = other.table.plan_clustering()
    found = list(follow(world.fresh().session, after=start, ends=True))
    assert [each.event for each in found] == ["begin", "begin", "commit", "abort", "setting", "plan"]
    assert [each.instant for each in found] == [
        loser.instant, landed.instant, landed.instant, loser.instant, "", plan
    ]  # fmt: skip
    begin, _, commit, abort, setting, _ = found
    assert (begin.writer, begin.operation, commit.completion) == ("w", "UPSERT", landed.completion)
    assert (abort.winner, abort.reason) == (landed.instant, "both changed the same file group")
    assert setting.reason == "lock_wait_s=7"
    assert [each.slot for each in found] == sorted({each.slot for each in found})


def test_only_what_happens_from_now_on_with_a_fake_clock(world: World) -> None:
    writer, watcher = world.writer("w"), world.writer("watcher")
    events = watcher.table.events(every_s=5.0)
    began = watcher.env.monotonic()
    # While the watcher sleeps, others work: on its own thread of time.
    timer = watcher.env.every(12.0, lambda: writer.add("a"), name="test")
    first, second = islice(events, 2)
    timer.cancel()
    assert (first.event, second.event) == ("begin", "commit")
    assert first.instant == second.instant
    assert 12.0 <= watcher.env.monotonic() - began <= 20.0


def test_epochs_that_close_are_passed_and_entries_that_count_for_nothing_are_not_told(world: World) -> None:
    writer = world.writer("w", epoch_slots=5)
    start = writer.table.timeline().commits[-1].completed
    landed = [writer.add("a").instant for _ in range(6)]
    log = writer.table.session.log
    end = End("rollback", landed[-1], "zombie", "late")
    (world.folder / slot_path(log.epoch, log.next_slot)).write_bytes(encode(end, log.epoch, log.next_slot, "z"))
    assert len(list((world.folder / LOG).iterdir())) > 1
    found = told(world.fresh(), after=start)
    assert found == [(event, instant) for instant in landed for event in ("begin", "commit")]


def test_a_watcher_goes_on_in_a_log_that_was_made_anew(world: World) -> None:
    writer, watcher = world.writer("w"), world.writer("watcher")
    events = watcher.table.events(after="2000-01-01", every_s=1.0)
    assert next(events).event == "begin"
    seen = [next(events).event]
    assert seen == ["commit"]
    newest = writer.table.timeline().commits[-1].completed
    writer.table.session.log.take_over(writer.table.settings, lambda: newest, tuple)
    landed = world.writer("later").add("b")
    assert any(each.instant == landed.instant for each in islice(events, 8))


def test_nonsense_is_refused_and_a_closed_handle_says_so(world: World) -> None:
    table = world.fresh()
    for nonsense in ("", "yesterday", "{}", "%s", "\N{FOX FACE}"):
        with pytest.raises(lakelatch.InputError):
            table.events(after=nonsense)
    table.close()
    for call in (lambda: table.events(), lambda: table.why("20260101000000000")):
        with pytest.raises(lakelatch.TableError):
            call()


def test_to_look_costs_one_read_and_one_listing_when_nothing_happens(world: World) -> None:
    watcher = world.writer("watcher")
    events = watcher.table.events(every_s=1.0)
    writer = world.writer("w")
    counted: list[int] = []

    def tick() -> None:
        counted.append(len(watcher.store.calls))
        if len(counted) == 6:
            writer.add("a")

    timer = watcher.env.every(1.0, tick, name="test")
    next(events)
    timer.cancel()
    assert [b - a for a, b in pairwise(counted)] == [2] * 5


def test_a_setting_that_entries_leave_out_at_its_default_is_told(world: World) -> None:
    writer = world.writer("w")
    start = writer.table.timeline().commits[-1].completed
    writer.add("a")
    writer.table.change_settings(archive_above=7)
    writer.table.change_settings(archive_above=500)
    found = list(follow(world.fresh().session, after=start, ends=True))
    assert [each.reason for each in found[2:]] == ["archive_above=7", "archive_above=500"]
