"""Readers' leases: what they pin, and who finds a dead one."""

from __future__ import annotations

from contextlib import suppress

import pytest

import lakelatch
from lakelatch.occ.liveness.reader_leases import READERS
from lakelatch.testing.faults import At, On, Pause, Refuse

from ...thorough import STEP
from ..aged import AGED, BACK, aged, data_files
from ..world import check_sound, content


def leases(world) -> list[str]:
    return [path.name for path in world.folder.glob(f"{READERS}/*")]


def values(view) -> dict[str, int]:
    read = view.read(columns=["id", "v"]).to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def test_a_pinned_view_outlives_many_cleanings(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    with a.table.pinned() as view:
        for _ in range(5):
            b.add("a")
            b.table.clean(retain_commits=1)
        assert values(view) == AGED
        kept = len(data_files(old.folder))
    assert not leases(old), "the lease is given back"
    b.table.clean(retain_commits=1)
    assert len(data_files(old.folder)) == kept - 1
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED | {"a0": 9, "a1": 9}


def test_a_reader_that_begins_at_any_moment_of_a_clean_reads_what_it_sees(folder):
    for number in range(1, 60, STEP):
        world = aged(folder / str(number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        met = []

        def read(b=b, met=met):
            with b.table.pinned() as view:
                met.append(values(view))

        a.store.add(Pause(At(number), call=read))
        a.table.clean(retain_commits=1)
        world.close()
        if not met:
            break
        assert met == [AGED]
    assert number > 25


def test_a_clean_at_any_moment_of_a_reader_leaves_it_what_it_sees(folder):
    """Other writers land and others clean between two calls of a reader."""
    for number in range(1, 40, STEP):
        world = aged(folder / str(number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        met = []

        def act(b=b, met=met):
            b.add("a")
            b.add("a")
            met.append(b.table.clean(retain_commits=1))

        a.store.add(Pause(At(number), call=act))
        # What it sees is not what it said first: somebody lands right after that.
        a.store.add(Pause(On("put_if_absent", READERS), call=lambda b=b: b.add("a"), after=True))
        with a.table.pinned() as view:
            seen = values(view)
        assert seen in (AGED | {"a0": 5, "a1": 5}, AGED | {"a0": 7, "a1": 7}), number
        world.close()
        if not met:
            break
    assert number > 10


@pytest.mark.parametrize("kept", [True, False])
def test_a_past_state_that_is_cleaned_while_its_reader_begins_is_an_error_and_no_wrong_answer(folder, kept):
    for number in range(1, 40, STEP):
        world = aged(folder / str(number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        moment = a.table.timeline().commits[2].completed
        if kept:
            b.table.savepoint(a.table.timeline().commits[2].requested)
        met = []
        a.store.reset()
        a.store.add(Pause(At(number), call=lambda b=b, met=met: met.append(b.table.clean(retain_commits=1))))
        # Without a savepoint it may be refused, or a file may be deleted while it is read.
        allowed = () if kept else (lakelatch.InputError, lakelatch.StorageError)
        with suppress(*allowed), a.table.pinned(as_of_completion=moment) as view:
            assert values(view) == {"a0": 0, "a1": 0, "b0": 0, "b1": 0, "b9": 1}, number
        world.close()
        if not met:
            break
    assert number > 10


def test_a_dead_reader_is_found_and_a_silent_one_only_after_the_timeout(old):
    near, far, b = old.writer("near", host="host-b"), old.writer("far"), old.writer("B", host="host-b")
    first, second = near.table.pinned(), far.table.pinned()
    first.__enter__()
    second.__enter__()
    near.die()
    for _ in range(3):
        b.add("a")
    before = len(data_files(old.folder))
    b.table.clean(retain_commits=1)
    assert len(leases(old)) == 1, "the process of the other one has certainly ended"
    pinned = len(data_files(old.folder))
    assert pinned < before
    # Nobody beats for it any more; anyone who waits sees that.
    b.table.clean(retain_commits=1, wait=True)
    assert not leases(old)
    assert len(data_files(old.folder)) == pinned - 1
    far.env.advance(60)
    with pytest.raises(lakelatch.LockLostError, match="the lease of this reader has ended"):
        second.__exit__(None, None, None)


def test_a_reader_that_beats_is_waited_for_and_keeps_its_files(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    with a.table.pinned() as view:
        b.add("a")
        b.add("a")
        b.add("a")

        def beats():
            a.env.advance(15)
            b.store.add(Pause(On("get", READERS), call=beats))

        beats()  # at every look of the cleaner
        b.table.clean(retain_commits=1, wait=True)
        assert values(view) == AGED


def test_who_cannot_write_is_told_what_to_do(old):
    a = old.writer("A")
    a.store.add(Refuse(On("put_if_absent", READERS), forever=True))
    with pytest.raises(lakelatch.StorageError) as told, a.table.pinned():
        pass
    assert "retention" in "".join(told.value.__notes__)


def test_a_lease_that_cannot_be_read_keeps_everything(old):
    (old.folder / READERS).mkdir(parents=True)
    (old.folder / READERS / "torn").write_bytes(b"{")
    with old.fresh() as table:
        assert table.clean(retain_commits=1) is None
        assert table.clean(retain_commits=1, wait=True).files == 3
        check_sound(table)


def test_a_restore_leaves_the_files_that_a_reader_sees(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    with a.table.pinned() as view:
        done = b.table.restore(b.table.timeline().commits[-3].requested)
        assert done.files == 0
        assert old.content() == BACK
        assert values(view) == AGED
    b.table.rollback_failed_writes()
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == BACK


def test_a_plain_read_during_a_restore_is_of_one_state(folder):
    """At every call of a reader a whole restore happens: what it gives is the state before or after, or an error."""
    for number in range(1, 40, STEP):
        world = aged(folder / str(number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        target = b.table.timeline().commits[-3].requested
        met = []
        a.store.add(Pause(At(number), call=lambda b=b, met=met, t=target: met.append(b.table.restore(t))))
        with suppress(lakelatch.StorageError):  # a file was gone when it was opened
            assert content(a.table) in (AGED, BACK), number
        world.close()
        if not met:
            break
    assert number > 5
