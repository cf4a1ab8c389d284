"""Times as people give them, at every door of a table that takes one; and partitions as people name them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.table.config import PROPERTIES_PATH
from lakelatch.hudi.timeline.instant import to_epoch_ms

from ...hudi.test_times import EAST, NO_TIMES
from ..world import rows


@pytest.fixture
def days(make_world):
    """A table with one commit at the start of each of three days, and the founding one before them."""
    world = make_world(empty=True)
    writer = world.writer("A")
    for day in range(3):
        world.env.sleep(86_400)
        writer.insert("a", f"a{day}")
    return writer


DOORS = {
    "read as_of": lambda t, time: t.read(as_of=time).to_arrow(),
    "read as_of_completion": lambda t, time: t.read(as_of_completion=time).to_arrow(),
    "snapshot": lambda t, time: t.snapshot(as_of=time),
    "view": lambda t, time: t.view(as_of_completion=time),
    "commits after": lambda t, time: t.commits(after=time),
    "commits until": lambda t, time: t.commits(until=time),
    "pinned": lambda t, time: t.pinned(as_of_completion=time).__enter__(),
    "savepoint": lambda t, time: t.savepoint(time),
    "delete_savepoint": lambda t, time: t.delete_savepoint(time),
    "restore": lambda t, time: t.restore(time),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", NO_TIMES)
def test_no_door_takes_what_is_no_time(days, door, value):
    slot = days.table.session.log.next_slot
    with pytest.raises(lakelatch.InputError, match="no time"):
        DOORS[door](days.table, value)
    days.table.session.log.catch_up()
    assert days.table.session.log.next_slot == slot


def ids(read: pa.Table) -> list[str]:
    return sorted(read["id"].to_pylist())


def forms(instant: str) -> list:
    moment = datetime.fromtimestamp(to_epoch_ms(instant) / 1000, UTC)
    east = moment.astimezone(EAST)
    return [instant, moment, moment.replace(tzinfo=None), east, moment.isoformat(), east.isoformat(), str(east)]


def test_every_form_of_one_time_reads_the_same_state(days):
    table = days.table
    second = table.timeline().commits[2]
    for time in forms(second.requested):
        assert ids(table.read(as_of=time).to_arrow()) == ["a0", "a1"]
    for time in forms(second.completed):
        assert ids(table.read(as_of_completion=time).to_arrow()) == ["a0", "a1"]
        assert [i.requested for i, _ in table.commits(until=time)][-1] == second.requested
        assert [i.requested for i, _ in table.commits(after=time)] == [table.timeline().commits[3].requested]
        with table.pinned(as_of_completion=time) as view:
            assert ids(view.read().to_arrow()) == ["a0", "a1"]


def test_a_date_is_its_start(days):
    commits = days.table.timeline().commits
    day = datetime.fromtimestamp(to_epoch_ms(commits[2].requested) / 1000, UTC).date()
    assert ids(days.table.read(as_of=day).to_arrow()) == ids(days.table.read(as_of=str(day)).to_arrow()) == ["a0"]
    assert ids(days.table.read(as_of=day + timedelta(days=1)).to_arrow()) == ["a0", "a1"]


def test_a_time_before_the_first_commit_is_refused_and_one_after_the_last_is_the_present(days):
    table = days.table
    for bound in ("as_of", "as_of_completion"):
        with pytest.raises(lakelatch.InputError, match="no commit yet at 20000101"):
            table.read(**{bound: "2000-01-01"}).to_arrow()
        assert ids(table.read(**{bound: "2199-01-01"}).to_arrow()) == ["a0", "a1", "a2"]
    assert len(table.commits(after="2000-01-01")) == len(table.commits()) == 4
    assert table.commits(after="2199-01-01") == table.commits(until="2000-01-01") == []


def test_a_reader_at_a_time_to_come_keeps_the_state_that_it_reads(make_world):
    world = make_world()
    a, b = world.writer("A"), world.writer("B")
    with b.table.pinned(as_of_completion="2199-01-01") as view:
        for delta in range(3):
            a.add("a", delta + 1)
        a.table.clean(retain_commits=1)
        assert sum(view.read().to_arrow()["v"].to_pylist()) == 0


def test_a_state_to_restore_or_to_save_is_named_by_its_commit_in_any_form(days):
    table = days.table
    commits = table.timeline().commits
    saved = table.savepoint(forms(commits[1].requested)[1])
    assert saved.instant == commits[1].requested
    table.delete_savepoint(forms(saved.instant)[4])
    assert table.restore(forms(commits[2].requested)[3]).instant == commits[2].requested
    assert ids(table.read().to_arrow()) == ["a0", "a1"]
    with pytest.raises(lakelatch.InputError, match=f"{commits[1].requested} was the newest one at that time"):
        table.restore(datetime.fromtimestamp(to_epoch_ms(commits[2].requested) / 1000 - 60, UTC))


def test_a_zone_is_not_compared_with_local_times(days, folder):
    path = next(folder.glob("table*")) / PROPERTIES_PATH
    path.write_text(path.read_text().replace("timezone=UTC", "timezone=LOCAL"))
    with lakelatch.open(days.table.url) as table:
        with pytest.raises(lakelatch.InputError, match="local times of its writers"):
            table.read(as_of="2026-11-24T09:30:00Z").to_arrow()
        assert table.read(as_of="2199-01-01T00:00").count() == 3


# --- partitions ---------------------------------------------------------------------------------------------------


def by_partition(txn, partition):
    txn.delete_where([("v", "=", 0)], partition=partition)


NAMES = {
    "read": lambda t, partition: t.read(partitions=[partition]).to_arrow(),
    "cluster": lambda t, partition: t.plan_clustering(partitions=[partition]),
    "delete_where": lambda t, partition: t.run(lambda txn: by_partition(txn, partition)),
}
CLAIMS = {
    "depends_on": lambda t, partition: t.run(lambda txn: txn.depends_on(partition)),
    "mark_scanned": lambda t, partition: t.run(lambda txn: txn.mark_scanned(partition)),
    "mark_lookup": lambda t, partition: t.run(lambda txn: txn.mark_lookup(partition)),
    "overwrites": lambda t, partition: t.run(lambda txn: txn.overwrites(partition), operation="insert_overwrite"),
}


@pytest.mark.parametrize("door", NAMES)
@pytest.mark.parametrize("name", ["a", "part=nope", "nope", "", "part=a/x=1", "other=a", 5])
def test_a_partition_that_is_none_is_refused_with_those_that_there_are(world, door, name):
    with pytest.raises(lakelatch.InputError, match="part=a, part=b"):
        NAMES[door](world.writer("A").table, name)


@pytest.mark.parametrize("door", CLAIMS)
def test_what_cannot_be_a_partition_is_not_claimed_and_a_new_one_is(world, door):
    table = world.writer("A").table
    for name in ("a", "nope", "", "other=a"):
        with pytest.raises(lakelatch.InputError, match="part=VALUE"):
            CLAIMS[door](table, name)
    CLAIMS[door](table, "part=new")


def test_many_partitions_are_not_all_listed(make_world):
    world = make_world()
    a = world.writer("A")
    with a.table.transaction("insert") as txn:
        for number in range(30):
            txn.new_file(f"part=p{number:02}").write(rows(f"p{number:02}", {f"k{number}": 1}))
    with pytest.raises(lakelatch.InputError, match=r"part=p02 and 27 more"):
        a.table.read(partitions=["part=nope"]).to_arrow()


def test_a_partition_without_rows_any_more_reads_as_empty(world):
    table = world.writer("A").table
    with table.transaction("delete_partition") as txn:
        txn.overwrites("part=a")
        txn.drop_file_groups(txn.snapshot.file_slices("part=a"))
    assert table.read(partitions=["part=a"]).count() == 0
    assert table.read(partitions=["part=b/"]).count() == 2
    table.run(lambda txn: by_partition(txn, "part=a"))


def test_partitions_given_as_one_text_are_not_taken_letter_by_letter(world):
    with pytest.raises(lakelatch.InputError, match=r"partitions=\['part=a'\]"):
        world.writer("A").table.cluster(partitions="part=a")


def test_a_column_that_is_none_is_refused_with_those_that_there_are(world):
    table = world.writer("A").table
    with pytest.raises(lakelatch.InputError, match=r"'w'; it has id, part, v"):
        table.read(columns=["id", "w"]).to_arrow()
    assert table.read(columns="id").to_arrow().column_names == ["id"]


def test_a_table_without_partitions_has_one_that_is_named_by_nothing(folder):
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        table.run(lambda txn: txn.upsert(pa.table({"id": ["a", "b"], "v": [1, 0]})))
        table.run(lambda txn: by_partition(txn, ""))
        assert ids(table.read(partitions=[""]).to_arrow()) == ["a"]
        with pytest.raises(lakelatch.InputError, match="not partitioned"):
            table.read(partitions=["v=1"]).to_arrow()
