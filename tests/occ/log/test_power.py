"""Flushes that fail, and power cuts after them: what somebody was told has landed is there when the power comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.table.table import Table
from lakelatch.storage import open_store
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import On, Pause, Refuse

from ...power import PowerDisk
from ...thorough import some
from ..aged import SMALL, finish
from ..world import BEGUN, SCHEMA, add, check_sound, content, independent_content, insert, overwrite

LOG, DATA = ".hoodie/.lakelatch/log/", "part=a"


@pytest.fixture
def after_cut(folder: Path) -> Callable[[PowerDisk], Table]:
    """Opens the table as the disk has it when the power comes back."""
    made: list[Table] = []

    def cut(disk: PowerDisk) -> Table:
        to = folder / f"cut-{len(made)}"
        disk.cut(to)
        made.append(Table(LocalStore(to), env=FakeEnvironment(seed=9), writer="next"))
        return made[-1]

    yield cut
    for table in made:
        table.close()


def fail(disk: PowerDisk, part: str, *, once: bool = False) -> None:
    """The flushes of folders with this in their paths fail. Files are flushed before they have one."""

    def fails(_: int, path: str) -> bool:
        if not path.startswith(part):
            return False
        if once:
            disk.fails = lambda _, path: False
        return True

    disk.fails = fails


@pytest.mark.parametrize("part", [LOG, DATA])
def test_a_commit_that_was_acknowledged_after_a_failed_flush_survives_a_power_cut(world, after_cut, part):
    disk = PowerDisk(world.folder)
    a = world.writer("A", flush=disk.flush)
    txn = a.begin_add("a")
    fail(disk, part, once=True)
    assert txn.commit()
    with after_cut(disk) as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        assert check(table.store).sound()


@pytest.mark.parametrize("part", [LOG, DATA])
def test_a_commit_whose_flushes_all_fail_is_never_acknowledged(world, after_cut, part):
    disk = PowerDisk(world.folder)
    a = world.writer("A", flush=disk.flush)
    txn = a.begin_add("a")
    fail(disk, part)
    with pytest.raises(lakelatch.LakeLatchError) as told:
        txn.commit()
    assert told.value.landed is (None if part == LOG else False)
    with after_cut(disk) as table:
        assert content(table) == BEGUN


def test_a_commit_whose_epoch_is_pruned_while_it_is_written_anew_has_landed(world):
    """Seed 2000034207 of the simulator: A's entry stands, its flush has failed, and others need its epoch no more."""
    disk = PowerDisk(world.folder)
    a, b = (world.writer(n, host=f"host-{n}", epoch_slots=8, flush=disk.flush) for n in "AB")
    a.table.change_settings(log_epochs=1)
    txn = a.begin_add("a")
    log = a.table.session.log
    mine = log.epoch

    def others() -> None:
        while mine not in b.table.session.pruner.prune():
            b.add("b")

    fail(disk, LOG, once=True)
    a.store.add(Pause(On("list", "/log/"), call=others))
    assert txn.commit()
    assert log.epoch > mine
    assert content(a.table).items() >= {"a0": 1, "a1": 1}.items()
    with world.fresh() as table:
        assert check(table.store).sound()
        assert content(table) == content(a.table)


def test_a_hole_in_the_log_is_damage_and_not_its_head(world, after_cut):
    """B is told that it has landed behind an entry that A cannot bring to disk; A dies, and the power goes."""
    disk = PowerDisk(world.folder)
    a, b = world.writer("A", flush=disk.flush), world.writer("B", host="host-b", flush=disk.flush)
    txn = a.begin_add("a")
    b.add("b")  # which flushes A's begin entry
    fail(disk, LOG, once=True)
    a.store.add(Pause(On("list", "/log/"), call=lambda: b.add("b")), Refuse(On("secure"), forever=True))
    with pytest.raises(lakelatch.CommitStateUnknownError):
        txn.commit()
    with pytest.raises(lakelatch.CorruptTableError, match="entries behind it"):
        after_cut(disk)


def test_begin_entries_behind_a_hole_are_nobodys_loss(world, after_cut):
    disk = PowerDisk(world.folder)
    a, b = world.writer("A", flush=disk.flush), world.writer("B", host="host-b", flush=disk.flush)
    a.begin_add("a")
    b.begin_add("b")
    (entry,) = sorted((world.folder / LOG).rglob("*"))[-2:-1]
    disk.flush(os.open(entry.parent, os.O_RDONLY))
    disk.forget(entry)
    with after_cut(disk) as table:
        table.rollback_failed_writes(wait=True)
        with table.transaction() as txn:
            add(txn, "a", 7)
        assert content(table) == BEGUN | {"a0": 7, "a1": 7}
        check_sound(table)


# --- every flush of the library ------------------------------------------------------------------------------------


class Life:
    """What a table goes through, step by step; a step that fails is done once more, as its user would."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.disk, self.env = PowerDisk(folder), FakeEnvironment(seed=1)
        self.folder, self.table = folder, None

    def create(self) -> None:
        storage = {"flush": self.disk.flush}
        try:
            self.table = lakelatch.create(
                str(self.folder),
                record_key="id",
                partition_by="part",
                schema=SCHEMA,
                env=self.env,
                storage=storage,
                lock="none://",
            )
        except lakelatch.InputError:  # the properties are there since the first try
            shutil.rmtree(self.folder / ".hoodie")
            self.create()

    def open(self) -> None:
        assert self.table is not None
        self.table.close()
        store = open_store(self.folder, flush=self.disk.flush)
        self.table = Table(store, env=self.env, writer="A", epoch_slots=12)

    def insert(self, part: str, *ids: str) -> None:
        with self.table.transaction("insert") as txn:
            insert(txn, part, *ids)

    def add(self, part: str) -> None:
        with self.table.transaction() as txn:
            add(txn, part)

    def large(self) -> None:
        session, before = self.table.session, self.table.session.inline_bytes
        session.inline_bytes = 0
        try:
            self.add("a")
        finally:
            session.inline_bytes = before

    def cluster(self) -> None:
        if not self.table.cluster(**SMALL):
            finish(self.table)

    def overwrite(self) -> None:
        with self.table.transaction("insert_overwrite") as txn:
            overwrite(txn, "b", "b7")

    def steps(self) -> list[Callable[[], object]]:
        return [
            self.create,
            self.open,
            lambda: self.insert("a", "a0"),
            lambda: self.insert("a", "a1"),
            lambda: self.insert("b", "b0"),
            lambda: self.add("a"),
            self.large,
            self.cluster,
            self.overwrite,
            lambda: self.table.savepoint(),
            lambda: self.add("a"),
            lambda: self.table.clean(retain_commits=1),
            lambda: self.table.archive(keep_min=2, keep_max=3),
            lambda: self.table.session.log.close_epoch(),
            lambda: self.add("b"),
            self.beat,
        ]

    def beat(self) -> None:
        with self.table.pinned():
            txn = self.table.transaction()
            self.env.advance(5.0)
            add(txn, "b")
            txn.commit()

    def run(self) -> None:
        for step in self.steps():
            try:
                step()
            except lakelatch.LakeLatchError as e:
                if e.landed is not True:
                    step()
            self.env.advance(1.0)


def test_no_failed_flush_loses_what_was_acknowledged(folder):
    """Each flush of a table's life fails once, then the power goes."""
    dry = Life(folder / "dry")
    dry.run()
    expected = content(dry.table)
    failures = []
    for number in some(range(len(dry.disk.flushed)), 10):
        life = Life(folder / str(number))
        life.disk.fails = lambda n, _, number=number: n == number
        try:
            life.run()
            to = folder / f"{number} cut"
            life.disk.cut(to)
            with Table(LocalStore(to), env=FakeEnvironment(seed=9), writer="next") as table:
                assert content(table) == content(life.table) == expected
                table.rollback_failed_writes()
                assert content(table) == expected
                assert check(table.store).sound(), check(table.store).findings
                assert independent_content(to) == expected
        except (AssertionError, lakelatch.LakeLatchError) as e:
            failures.append(f"{number} {dry.disk.flushed[number]}: {type(e).__name__} {str(e)[:300]}")
        finally:
            if life.table is not None:
                life.table.close()
            shutil.rmtree(life.folder)
    dry.table.close()
    assert not failures, "\n".join(failures)
