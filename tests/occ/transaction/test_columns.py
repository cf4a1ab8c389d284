"""New columns, seen by readers that take the schema of the commit with the largest T (trap 23)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.cli.history.timeline import newest
from lakelatch.hudi.timeline.instant import parse
from lakelatch.occ.check.check import check
from lakelatch.testing.faults import On, Refuse

from ..world import SCHEMA, Writer, check_sound, commits, independent_content

WIDE = [*SCHEMA.names, "w"]


def begin_wide(writer: Writer, part: str = "a", column: str = "w") -> lakelatch.Transaction:
    """Have begun to write rows with one more column."""
    txn = writer.table.transaction("upsert")
    (group,) = txn.snapshot.file_slices(f"part={part}")
    old = txn.read_slice(group)
    txn.rewrite(group).write(old.append_column(column, pa.array([7] * old.num_rows)))
    return txn


def columns(folder: Path) -> list[str]:
    """Of the table, as hudi-rs shows them."""
    return HudiTableBuilder.from_base_uri(str(folder)).build().get_schema().names


def columns_of(writer: Writer) -> list[str]:
    return writer.table.read().to_arrow().column_names


@pytest.fixture
def overtaken(world):
    """A has landed with a new column after B, which began later: A, and the table."""
    a, b = world.writer("a"), world.writer("b")
    early = begin_wide(a)
    late = b.begin_add("b")
    late.commit()
    assert early.instant < late.instant
    assert columns(world.folder) == SCHEMA.names
    early.commit()
    return a, world


def test_a_new_column_of_the_older_transaction_is_shown_by_every_reader(overtaken):
    a, world = overtaken
    assert columns_of(a) == WIDE
    assert columns(world.folder) == WIDE
    assert independent_content(world.folder) == world.content()
    check_sound(a.table)
    assert check(a.table.store).sound(strict=True)


@pytest.mark.parametrize("order", ["begun before", "begun after"])
def test_who_lands_later_with_the_old_columns_hides_no_new_one(world, order):
    a, b = world.writer("a"), world.writer("b")
    if order == "begun before":
        late = b.begin_add("b")
        begin_wide(a).commit()
    else:
        early = begin_wide(a)
        late = b.begin_add("b")
        early.commit()
    late.commit()
    assert columns(world.folder) == columns_of(b) == WIDE
    assert not [c.echo for c in commits(a.table) if c.echo], "nobody has hidden it"
    check_sound(a.table)


def test_a_commit_that_changes_no_column_makes_one_instant(overtaken):
    a, world = overtaken
    before = len(a.table.timeline().completed)
    older, younger = a.begin_add("a"), world.writer("c").begin_add("b")
    younger.commit()
    older.commit()
    assert len(a.table.timeline().completed) == before + 2
    assert columns(world.folder) == WIDE


def test_columns_of_several_that_were_overtaken_are_all_shown(world):
    a, b, c = (world.writer(name) for name in "abc")
    early, later = a.begin_add("a"), begin_wide(b, "b")
    with c.table.transaction("insert") as txn:
        txn.allow_empty()
    later.commit()
    assert columns(world.folder) == WIDE
    early.commit()  # under the smallest T of all
    assert columns(world.folder) == columns_of(c) == WIDE
    check_sound(a.table)


def test_the_first_schema_of_a_table_is_shown_although_an_empty_commit_is_younger(folder):
    with lakelatch.create(str(folder / "t"), record_key="id", partition_by="part") as table:
        early = table.transaction("insert")
        with table.transaction("insert") as txn:
            txn.allow_empty()
        early.new_file("part=a").write(pa.table({"id": ["x"], "part": ["a"], "v": [1]}, schema=SCHEMA))
        early.commit()
        assert columns(folder / "t") == SCHEMA.names
        check_sound(table)


@pytest.mark.parametrize("missing", ["both", "its own"])
def test_whoever_comes_next_publishes_what_its_writer_did_not(world, missing):
    a, b = world.writer("a"), world.writer("b")
    early = begin_wide(a)
    b.add("b")
    where = "/timeline/" if missing == "both" else f"/timeline/{early.instant}_"
    a.store.add(Refuse(On("put_if_absent", where), forever=True))
    early.commit()
    assert not early.result.published
    assert columns(world.folder) == (SCHEMA.names if missing == "both" else WIDE), "the echo is the first of the two"
    kinds = [f.kind for f in check(a.table.store.inner).findings]
    assert kinds == ["commit-to-publish"] * (2 if missing == "both" else 1)
    b.table.session.log.catch_up()
    b.table.session.log.publish_last()
    assert columns(world.folder) == columns_of(b) == WIDE
    assert independent_content(world.folder) == world.content()
    check_sound(b.table)


def test_its_two_instants_appear_in_the_order_of_their_times(overtaken):
    a, _ = overtaken
    (landed,) = [c for c in commits(a.table) if c.echo]
    echo, own = (parse(name, layout=2) for name in landed.published)
    assert landed.instant == own.requested < echo.requested < echo.completed < own.completed == landed.completion
    assert a.table.timeline().metadata(echo).stats == ()


def test_a_restore_to_it_keeps_its_columns_and_one_below_it_takes_them_back(overtaken):
    a, world = overtaken
    (landed,) = [c for c in commits(a.table) if c.echo]
    before = [c for c in commits(a.table) if c.slot < landed.slot][-1]
    a.add("b")
    a.table.restore(landed.instant)
    assert columns(world.folder) == columns_of(world.writer("c")) == WIDE
    a.table.restore(before.instant)
    assert columns(world.folder) == columns_of(world.writer("d")) == SCHEMA.names
    assert independent_content(world.folder) == world.content()
    check_sound(a.table)


def test_archival_takes_both_instants_and_the_columns_stay(overtaken):
    a, world = overtaken
    for _ in range(4):
        a.add("b")
    assert a.table.archive(keep_min=2, keep_max=3).instants
    assert columns(world.folder) == columns_of(world.writer("c")) == WIDE
    a.table.session.log.close_epoch()
    world.writer("d").add("a")
    check_sound(a.table)
    assert check(a.table.store).sound(strict=True)


def test_a_new_epoch_knows_the_second_instant_for_ours(overtaken):
    a, world = overtaken
    a.table.session.log.close_epoch()
    other = world.writer("c")
    other.add("a")
    assert other.table.session.log.look(now=True) == []
    assert check(a.table.store).sound(strict=True)


def test_the_check_names_columns_that_other_readers_do_not_see(world):
    """As tables are that a version before this one has written."""
    a, b = world.writer("a"), world.writer("b")
    early = begin_wide(a)
    b.add("b")
    early.commit()
    (landed,) = [c for c in commits(a.table) if c.echo]
    (world.folder / ".hoodie/timeline" / landed.echo).unlink()
    assert columns(world.folder) == SCHEMA.names
    (found,) = [f for f in check(a.table.store).findings if f.kind == "columns-hidden"]
    assert "w" in found.message
    b.add("b")
    assert columns(world.folder) == WIDE
    assert not [f for f in check(a.table.store).findings if f.kind == "columns-hidden"]


def test_the_timeline_says_what_the_second_instant_is_for(overtaken):
    a, _ = overtaken
    (landed,) = [c for c in commits(a.table) if c.echo]
    (row,) = [each for each in newest(a.table, 20) if each.requested == landed.schema_under]
    assert (row.writer, row.outcome) == ("a", "committed")
    assert landed.instant in row.reason
