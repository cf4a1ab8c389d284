"""Which file slices a cleaning takes away, and which it never does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.listing import BaseFile, Listing
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.timeline import decode_container
from lakelatch.hudi.timeline.avro_schemas import schema_of
from lakelatch.hudi.timeline.commit_metadata import encode_container
from lakelatch.hudi.timeline.snapshot import Replacement, TimelineView, build
from lakelatch.occ.scan import differences
from lakelatch.occ.services.clean import Retention, superseded
from lakelatch.testing.faults import At, On, Pause

from ...thorough import STEP
from ..aged import AGED, aged, data_files
from ..world import add, check_sound, content, fate, independent_content, insert, overwrite


def seen_at(table, moment: str) -> set[str]:
    return {each.path for each in table.snapshot(as_of_completion=moment).file_slices()}


# --- pure --------------------------------------------------------------------------------------------------------

CONFIG = TableConfig.from_bytes(
    b"hoodie.table.name=t\nhoodie.table.version=8\nhoodie.timeline.layout.version=2\nhoodie.table.type=COPY_ON_WRITE\n"
)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12),
    st.sets(st.integers(0, 12), max_size=4),
)
def test_exactly_the_files_that_no_kept_moment_sees_go(history, kept):
    """Each commit rewrites a file group, or replaces it by another one."""
    files, completion, replaced = [], {}, []
    alive = dict.fromkeys(range(4), 0)
    for number, (group, replaces) in enumerate(history, 1):
        t, c = f"{number:013d}0000", f"{number:013d}0001"
        if replaces:
            replaced.append(Replacement(t, c, (FileGroupId("p", f"g{group}-{alive[group]}"),)))
            alive[group] += 1
        path = f"p/g{group}-{alive[group]}_0-0-0_{t}.parquet"
        files.append(BaseFile.at(path, 1))
        completion[t] = c
    listing, view = Listing(tuple(files)), TimelineView(completion, f"{0:013d}0000", tuple(replaced))
    moments = {f"{number:013d}0001" for number in kept}
    gone = superseded(listing, view, CONFIG, moments)
    for moment in moments:
        seen = {each.path for each in build(listing, view, CONFIG, as_of_completion=moment).file_slices()}
        assert not gone & seen
    left = Listing(tuple(file for file in files if file.path not in gone))
    needed = {
        each.path for moment in moments for each in build(left, view, CONFIG, as_of_completion=moment).file_slices()
    }
    later = {f.path for f in files if completion[f.instant] > max(moments, default="")}
    assert not gone & later, "what landed after the timeline was listed was seen at no moment of it"
    several = {f.path for f in files if sum(o.group == f.group for o in files) > 1 or f.group in _groups(replaced)}
    assert ({f.path for f in left.bases} & several) - later <= needed


def _groups(replaced):
    return {group for each in replaced for group in each.groups}


@pytest.mark.parametrize(
    ("retention", "index"),
    [
        (Retention(0), 4),
        (Retention(0, 2.5), 2),
        (Retention(1), 4),
        (Retention(3), 2),
        (Retention(99), 0),
        (Retention(None, 2.5), 2),
        (Retention(None, 0), 4),
        (Retention(None, 99), 0),
        (Retention(1, 2.5), 2),
        (Retention(4, 0.5), 1),
    ],
)
def test_retention_by_number_and_by_hours_keeps_whatever_either_keeps(retention, index):
    # One commit an hour, 08:00 to 12:00; it is 12:00.
    completed_s = [1795262400.0 - 3600 * (4 - hour) for hour in range(5)]
    assert retention.earliest(completed_s, 1795262400.0) == index


@pytest.mark.parametrize("wrong", [{"retain_commits": -1}, {"retain_commits": True}, {"retain_hours": -1.0}])
def test_a_retention_below_nothing_is_refused(old, wrong):
    with old.fresh() as table, pytest.raises(lakelatch.ConfigError, match=r"retain_(commits|hours)=.* at least"):
        table.clean(**wrong)
    with pytest.raises(lakelatch.ConfigError):
        Retention(None, None)


# --- on a table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retain", [1, 2, 3, 5])
def test_the_states_of_the_newest_commits_stay_readable(old, retain):
    with old.fresh() as table:
        moments = [i.completed for i in table.timeline().commits][-retain - 1 :]
        before = {m: table.read(as_of_completion=m).to_pylist() for m in moments}
        had = data_files(old.folder)
        done = table.clean(retain_commits=retain)
        assert done is None if retain == 5 else len(data_files(old.folder)) == len(had) - done.files
        assert {m: table.read(as_of_completion=m).to_pylist() for m in moments} == before
        assert content(table) == AGED == independent_content(old.folder)
        assert table.clean(retain_commits=retain) is None, "nothing is left to do, and no empty plan is made"
        check_sound(table)


def test_with_none_retained_the_newest_state_alone_stays_and_what_somebody_needs(old):
    with old.fresh() as table, old.fresh() as other:
        table.delete_where("id = 'a0'")
        with table.pinned() as pinned:
            kept = pinned.read().to_pylist()
            txn = other.transaction()
            txn.delete_where("id = 'b0'")
            txn.commit()
            table.clean(retain_commits=0)
            assert pinned.read().to_pylist() == kept
        table.clean(retain_commits=0)
        assert {f"{each.path}" for each in table.snapshot().file_slices()} == {
            str(path.relative_to(old.folder)) for path in old.folder.glob("part=*/*.parquet")
        }
        assert table.clean(retain_commits=0) is None
        assert "b0" not in content(table)
        assert content(table) == independent_content(old.folder)
        with pytest.raises(lakelatch.InputError, match="have been cleaned"):
            table.change_feed(after=table.commits()[-2][0].completed)
        check_sound(table)


def test_files_of_replaced_file_groups_go(old):
    with old.fresh() as table:
        with table.transaction("insert_overwrite") as txn:
            overwrite(txn, "a", "a9")
        for _ in range(2):
            with table.transaction() as txn:
                add(txn, "b")
        table.clean(retain_commits=1)
        assert len(list(old.folder.glob("part=a/*.parquet"))) == 1
        assert content(table) == independent_content(old.folder) == {"a9": 1, "b0": 2, "b1": 2, "b9": 3}
        check_sound(table)


def test_what_an_open_transaction_sees_stays(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    txn = a.table.transaction()
    for _ in range(4):
        b.add("a")
    assert b.table.clean(retain_commits=1)
    add(txn, "a")  # reads the slice that it saw at its begin
    assert len(txn.snapshot.file_slices()) == 3
    txn.abort()
    b.table.clean(retain_commits=1)
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED | {"a0": 8, "a1": 8}


def test_a_transaction_that_begins_while_a_clean_is_planned_loses_nothing(folder):
    """At every call of the planner another writer begins, and reads its snapshot when all is over."""
    for number in range(1, 40, STEP):
        world = aged(folder / str(number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        begun = []
        a.store.add(Pause(At(number), call=lambda b=b, begun=begun: begun.append(b.table.transaction())))
        done = a.table.clean(retain_commits=1)
        if not begun:
            world.close()
            break
        add(begun[0], "a")
        begun[0].commit()
        assert world.content() == AGED | {"a0": 5, "a1": 5}
        assert done is not None
        world.close()
    assert number > 25


def test_a_clean_is_decided_before_it_deletes(old):
    a = old.writer("A")
    done = a.table.clean(retain_commits=1)
    writes = [call for call in a.store.calls if call.writes]
    begin = next(n for n, c in enumerate(writes) if c.op == "put_if_absent" and "/log/" in c.path)
    deleted = [n for n, c in enumerate(writes) if c.op == "delete" and c.path.endswith(".parquet")]
    assert len(deleted) == done.files
    assert begin < min(deleted)
    assert fate(a.table, done.instant) == ["begin", "commit"]


def test_a_savepoint_that_lands_while_a_clean_is_planned_is_honoured(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    first = b.table.timeline().commits[1]
    before = seen_at(b.table, first.completed)
    a.store.add(Pause(On("list", "readers"), call=lambda: b.table.savepoint(first.requested)))
    a.table.clean(retain_commits=1)
    with old.fresh() as table:
        assert seen_at(table, first.completed) == before
        assert table.read(as_of_completion=first.completed).count() == 5 - 1
        check_sound(table)


def test_other_engines_savepoints_keep_their_files(old):
    with old.fresh() as table:
        saved = table.savepoint(table.timeline().commits[1].requested)
        names = {name for names in saved.files.values() for name in names}
        table.clean(retain_commits=1)
        assert names <= data_files(old.folder)
        table.delete_savepoint(saved.instant)
        table.clean(retain_commits=1)
        assert not names <= data_files(old.folder)
        check_sound(table)


LOOKS_BACK = {
    "read": lambda table, t, c: table.read(as_of=t),
    "read by C": lambda table, t, c: table.read(as_of_completion=c),
    "snapshot": lambda table, t, c: table.snapshot(as_of=t),
    "changes": lambda table, t, c: table.changes(until=c),
    "diff": lambda table, t, c: list(differences(table.session, t, table.timeline().commits[-1].requested)),
    "pinned": lambda table, t, c: table.pinned(as_of_completion=c).__enter__(),
    "restore": lambda table, t, c: table.restore(t),
    "savepoint": lambda table, t, c: table.savepoint(t),
}


@pytest.mark.parametrize("look", LOOKS_BACK.values(), ids=LOOKS_BACK)
def test_time_travel_to_what_was_cleaned_is_refused_where_it_is_asked_for(old, look):
    with old.fresh() as table:
        first, *_, last = table.timeline().commits
        table.clean(retain_commits=0)
        with pytest.raises(lakelatch.InputError, match="has been cleaned; states are whole from"):
            look(table, first.requested, first.completed)
        assert table.read(as_of=last.requested).count() == table.read().count()


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy on write", "merge on read"])
def test_a_state_is_read_whole_or_refused(tmp_path, merge_on_read):
    """Two partitions, so that what is left of a state that was cleaned looks like one."""
    kind = "merge_on_read" if merge_on_read else "copy_on_write"
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="p", type=kind) as table:
        table.insert([{"id": "a", "p": "x", "v": 0}, {"id": "b", "p": "y", "v": 0}])
        for number in range(1, 6):
            table.upsert([{"id": "a", "p": "x", "v": number}])
            if merge_on_read and number % 2:
                table.compact()
        saved = table.savepoint(table.timeline().commits[2].requested)
        states = {i: table.read(as_of=i.requested).to_pylist() for i in table.timeline().commits}
        for retain in (3, 1, 0):
            table.clean(retain_commits=retain)
            told = {}
            for each in states:
                with suppress(lakelatch.InputError):
                    told[each] = table.read(as_of=each.requested).to_pylist()
                    assert told[each] == table.read(as_of_completion=each.completed).to_pylist()
            assert told == {each: states[each] for each in told}
            assert len(told) >= (retain + 2 if retain else 2), "what a clean keeps stays readable, and the savepoint"
        assert len(told) < len(states)
        table.restore(saved.instant)
        assert table.read(as_of=saved.instant).to_pylist() == table.read().to_pylist()
        with pytest.raises(lakelatch.InputError, match="has been cleaned"):
            table.read(as_of=table.timeline().commits[0].requested)


def test_a_state_that_another_engines_clean_of_file_versions_took_from_is_refused(old):
    with old.fresh() as table:
        first, *_, last = table.timeline().commits
        table.clean(retain_commits=0)
        clean = next(each for each in table.timeline().completed if each.action == "clean")
        path = old.folder / table.timeline().path(clean)
        content = decode_container(path.read_bytes(), "HoodieCleanMetadata", name="clean")
        content |= {"earliestCommitToRetain": "", "extraMetadata": {}}
        path.write_bytes(encode_container(schema_of("HoodieCleanMetadata"), content))
        with pytest.raises(lakelatch.InputError, match="has been cleaned"):
            table.read(as_of=first.requested)
        assert table.read(as_of=last.requested).count() == table.read().count()


def test_an_insert_meanwhile_is_no_reason_to_plan_again(old):
    a, b = old.writer("A"), old.writer("B")

    def meanwhile():
        with b.table.transaction("insert") as txn:
            insert(txn, "b", "b8")

    a.store.add(Pause(On("list", "readers"), call=meanwhile))
    begin = a.table.session.log.next_slot
    planned = a.table.plan_clean(retain_commits=1)
    (plan,) = a.table.plans()
    assert plan.instant == planned
    assert plan.planned_at <= begin + 1, "what was superseded stays so"
    a.table.execute(planned)
    assert old.content() == AGED | {"b8": 1}
