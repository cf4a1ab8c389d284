"""Writers of several versions on one table: who may write, who is stopped, and that nothing is written by one who may not."""

from __future__ import annotations

import json

import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import settings as settings_module
from lakelatch.occ.entries.entries import Begin, Commit, decode, encode
from lakelatch.occ.log.epochs import LOG

from ..world import BEGUN, World, Writer, content, entries


def raise_version(writer: Writer, monkeypatch, version: int = 2) -> None:
    """As a newer lakelatch does once all writers of the table are known to be as new."""
    with monkeypatch.context() as newer:
        newer.setattr(settings_module, "VERSION", version)
        writer.table.change_settings(min_version=version)


def files(world: World) -> set[str]:
    return {str(p.relative_to(world.folder)) for p in world.folder.rglob("*") if p.is_file()}


def test_a_setting_stops_older_writers_and_no_reader(world, monkeypatch):
    old, new = world.writer("old", host="host-b"), world.writer("new")
    txn = old.begin_add("a")
    raise_version(new, monkeypatch)
    with pytest.raises(lakelatch.UnsupportedTableError, match=r"version 2 of the log's format.*Upgrade") as told:
        txn.commit()
    assert told.value.version == 2
    before = files(world)
    for attempt in (
        lambda: old.add("b"),
        lambda: world.writer("another").add("b"),
        lambda: old.table.change_settings(isolation="serializable"),
        lambda: lakelatch.adopt(str(world.folder), env=world.env.peer()),
    ):
        with pytest.raises(lakelatch.UnsupportedTableError, match="nothing was written"):
            attempt()
    assert files(world) == before
    assert content(old.table) == world.content() == BEGUN
    monkeypatch.setattr(settings_module, "VERSION", 2)
    new.add("a")
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_an_older_writer_opens_no_epoch(world, monkeypatch):
    """It does not know what the newer ones carry over."""
    old, new = world.writer("old"), world.writer("new")
    raise_version(new, monkeypatch)
    old.table.session.log.catch_up()
    new.table.session.log.close_epoch()
    epochs = sorted((world.folder / LOG).iterdir())
    with pytest.raises(lakelatch.UnsupportedTableError):
        old.add("a")
    assert content(old.table) == BEGUN
    assert sorted((world.folder / LOG).iterdir()) == epochs


def test_the_version_is_only_ever_raised_and_not_above_ones_own(world, monkeypatch):
    a = world.writer("A")
    with pytest.raises(
        lakelatch.ConfigError, match="from 1 to 2: it is never lowered, and this writer's own version is 1"
    ):
        a.table.change_settings(min_version=2)
    raise_version(a, monkeypatch)
    monkeypatch.setattr(settings_module, "VERSION", 3)
    with pytest.raises(lakelatch.ConfigError, match="from 2 to 1"):
        a.table.change_settings(min_version=1)
    a.table.change_settings(isolation="serializable")


# --- one entry -----------------------------------------------------------------------------------------------------


def newest_entry(world: World):
    (epoch,) = (world.folder / LOG).iterdir()
    return max(epoch.iterdir())


@pytest.mark.parametrize("change", [{"v": 2}, {"kind": "reserve-all"}])
def test_an_entry_of_a_newer_version_stops_whoever_meets_it(world, change):
    a = world.writer("A")
    a.add("a")
    path = newest_entry(world)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    before = files(world)
    for attempt in (world.fresh, lambda: lakelatch.adopt(str(world.folder), env=world.env.peer())):
        with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
            attempt()
    assert files(world) == before


def test_a_field_that_is_not_known_is_passed_over(world):
    """Such fields only inform. What every writer has to know of comes with a new ``v``, kind or setting."""
    a = world.writer("A")
    txn = a.begin_add("a")
    path = newest_entry(world)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": "good"}))
    b = world.writer("B")
    b.add("b")
    txn.commit()
    assert world.content() == dict.fromkeys(BEGUN, 1)
    assert [e.instant for e in entries(b.table) if isinstance(e, Begin)][-2] == txn.instant


def test_a_setting_that_is_not_known_is_refused(world):
    """It would be a rule that this version does not keep."""
    a = world.writer("A")
    a.table.change_settings(isolation="serializable")
    path = newest_entry(world)
    raw = json.loads(path.read_text())
    raw["settings"]["quorum"] = 3
    path.write_text(json.dumps(raw))
    with pytest.raises(lakelatch.ConfigError, match="settings that this version does not know: quorum; upgrade"):
        world.fresh()


def test_what_an_entry_says_it_says_again(world):
    a = world.writer("A")
    a.add("a")
    for entry in a.table.session.log.entries():
        if isinstance(entry, Begin | Commit):
            assert decode(encode(entry, 1, entry.slot, ""), "path") == entry
    assert check(a.table.store).findings == ()
