"""kill -9 at every write of a table service: others finish it, and no row is lost or comes back."""

from __future__ import annotations

import shutil

import pytest

import lakelatch
from lakelatch.occ.check.check import check

from ..occ.aged import AGED, BACK, aged, finish
from ..occ.mor import ROWS, merge_on_read
from ..occ.world import add, check_sound, content, independent_content
from ..thorough import STEP
from .test_kill import moments

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("service", "after"),
    [("clean", AGED), ("archive", AGED), ("cluster", AGED), ("savepoint", AGED), ("restore", BACK)],
)
def test_a_service_killed_at_every_write(forge, folder, service, after):
    aged(folder / "model").close()
    shutil.copytree(folder / "model", folder / "dry")
    kills = list(moments(forge, "serve", folder / "dry", service=service))
    # Nothing differs between a write and the calls before the next one.
    kills = [(number, True) for number, after_it in kills if after_it]
    for turn, (number, after_it) in enumerate(kills[::STEP]):
        table = folder / f"table {turn}"
        shutil.copytree(folder / "model", table)
        assert forge.run("serve", folder=table, service=service, number=number, after=after_it) == -9
        with lakelatch.open(str(table), writer="next") as handle:
            found = content(handle)
            assert found in (AGED, after)
            handle.rollback_failed_writes()
            finish(handle)
            with handle.transaction() as txn:
                add(txn, "b", 5)
            handle.clean(retain_commits=1)
            check_sound(handle)
            assert content(handle) == found | {"b0": 5, "b1": 5, "b9": 6}
        if turn % 4 == 0:
            assert independent_content(table) == found | {"b0": 5, "b1": 5, "b9": 6}
        shutil.rmtree(table)
    assert len(kills) > 4


def test_an_upsert_goes_on_whenever_a_clustering_was_killed(forge, folder):
    aged(folder / "model", yield_wait_s=20).close()
    shutil.copytree(folder / "model", folder / "dry")
    kills = [number for number, after_it in moments(forge, "serve", folder / "dry", service="cluster") if after_it]
    left = 0
    for number in kills[::STEP]:
        table = folder / f"table {number}"
        shutil.copytree(folder / "model", table)
        assert forge.run("serve", folder=table, service="cluster", number=number, after=True) == -9
        with lakelatch.open(str(table), writer="next") as handle:
            left += len(handle.plans())
            with handle.transaction() as txn:  # raises ConflictError when it has waited in vain
                add(txn, "b", 5)
            assert not handle.plans()
            assert content(handle) == AGED | {"b0": 5, "b1": 5, "b9": 6}
            handle.rollback_failed_writes()
            check_sound(handle)
        shutil.rmtree(table)
    assert left > 4 / STEP, "it was killed while its plan was pending"


def test_a_compaction_killed_at_every_write(forge, folder):
    merge_on_read(folder / "model", small=True).close()
    shutil.copytree(folder / "model", folder / "dry")
    kills = [number for number, after_it in moments(forge, "serve", folder / "dry", service="compact") if after_it]
    for number in kills[::STEP]:
        table = folder / f"table {number}"
        shutil.copytree(folder / "model", table)
        assert forge.run("serve", folder=table, service="compact", number=number, after=True) == -9
        with lakelatch.open(str(table), writer="next") as handle:
            assert content(handle) == ROWS
            handle.compact()
            assert not handle.plans()
            handle.rollback_failed_writes()
            assert not any(each.logs for each in handle.snapshot().file_slices())
            assert content(handle) == ROWS
            assert check(handle.store).findings == ()
        shutil.rmtree(table)
    assert len(kills) > 4
