"""A writer that bypasses the log: its rows are read, and nobody writes over them unseen."""

import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit
from lakelatch.hudi.timeline.instant import Instant, file_name, next_label
from lakelatch.occ.check.check import check
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.log.publisher import metadata_of
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import On, Pause

from ..world import BEGUN, World, Writer, check_clean, content, independent_content
from .test_lost_names import rollback_of

EMPTY = encode_commit(CommitMetadata("UPSERT"), replace=False)


def rows(*ids: str, value: int) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)})


def commit(table: lakelatch.Table, batch: pa.Table) -> None:
    with table.transaction("upsert") as txn:
        groups = txn.snapshot.file_slices()
        (txn.rewrite(groups[0]) if groups else txn.new_file()).write(batch)


def values(table: lakelatch.Table) -> list[int]:
    return sorted(table.read().to_arrow()["value"].to_pylist())


@pytest.fixture
def bypassed(tmp_path):
    """A table on which another engine has rewritten the only file group, as the timeline tells."""
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", "b", value=1))
        # The same work by ours, taken out of the log afterwards: what is left is what a stranger leaves.
        before = {p: p.read_bytes() for p in (tmp_path / "table/.hoodie/.lakelatch/log").rglob("*") if p.is_file()}
        commit(table, rows("a", "b", value=2))
    for path in (tmp_path / "table/.hoodie/.lakelatch/log").rglob("*"):
        if path.is_file() and path not in before:
            path.unlink()
    return url


def test_its_rows_are_read(bypassed):
    with lakelatch.open(bypassed) as table:
        assert values(table) == [2, 2]


def test_a_new_handle_refuses_to_write_and_says_how_to_go_on(bypassed):
    with (
        lakelatch.open(bypassed) as table,
        pytest.raises(lakelatch.UnsupportedTableError, match=r"without the commit log.*lakelatch adopt") as told,
    ):
        commit(table, rows("a", "b", value=3))
    assert len(told.value.strangers) == 1
    assert values(lakelatch.open(bypassed)) == [2, 2]


def test_adopting_takes_its_commits_over(bypassed):
    with lakelatch.adopt(bypassed) as table:
        with table.transaction("upsert") as txn:
            (group,) = txn.snapshot.file_slices()
            assert txn.read_slice(group)["value"].to_pylist() == [2, 2]
            txn.rewrite(group).write(rows("a", "b", value=3))
        assert values(table) == [3, 3]


def test_commits_of_our_own_are_no_strangers(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        for value in range(3):
            commit(table, rows("a", value=value))
        table.session.log.close_epoch()
        with lakelatch.open(url) as other:
            commit(other, rows("a", value=7))
            assert other.session.log.look(now=True) == []
        assert values(table) == [7]
        with pytest.raises(lakelatch.ConfigError, match="nothing to adopt"):
            lakelatch.adopt(url)


def test_an_unpublished_commit_is_read_by_one_who_may_not_publish(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", value=1))
        commit(table, rows("a", value=2))
        last = table.session.log.state.last
        name = file_name(Instant(last.instant, "commit", "completed", last.completion))
        instant = tmp_path / "table/.hoodie/timeline" / name
        body = instant.read_bytes()
        instant.unlink()
    with lakelatch.open(url) as reader:
        assert values(reader) == [2]
        assert not instant.exists()
        commit(reader, rows("a", value=3))
    assert instant.read_bytes() == body, "the next writer publishes it, byte for byte"


def test_the_published_bytes_are_a_function_of_the_entry(tmp_path):
    url = str(tmp_path / "table")
    with lakelatch.create(url, record_key="id", schema=rows("a", value=0).schema) as table:
        commit(table, rows("a", value=1))
        metadata = metadata_of(table.store, table.session.log.state.last)
    assert encode_commit(metadata, replace=False) == encode_commit(metadata, replace=False)


# --- noticed by handles that have been open for long ---------------------------------------------------------------


def engine_commits(
    world: World, requested: str, completed: str | None = None, *, action: str = "commit", body: bytes = EMPTY
) -> str:
    """Another engine makes a commit; its T."""
    completed = completed or next_label(world.env.now(), requested)
    (world.folder / f".hoodie/timeline/{requested}_{completed}.{action}").write_bytes(body)
    return requested


def now(world: World) -> str:
    return next_label(world.env.now() + 3600, "")


def test_a_handle_that_reads_for_long_sees_what_another_engine_did(world):
    """Once a second it looks, and as soon as one has committed, every time: that may be rolled back."""
    reader = world.writer("A")
    assert content(reader.table) == BEGUN
    (group,) = reader.table.snapshot().file_slices("part=a")
    theirs = now(world)
    rewritten = world.folder / group.path.replace(group.instant, theirs)
    batch = pq.read_table(world.folder / group.path)
    pq.write_table(batch.set_column(batch.schema.get_field_index("v"), "v", pa.array([5, 5])), rewritten)
    engine_commits(world, theirs)
    assert content(reader.table) == BEGUN
    reader.env.advance(1.0)
    assert content(reader.table) == BEGUN | {"a0": 5, "a1": 5}
    (instant,) = (world.folder / ".hoodie/timeline").glob(f"{theirs}_*")
    instant.unlink()
    rewritten.unlink()
    assert content(reader.table) == BEGUN

    # One of ours that this reader has taken into its view, rolled back by another engine.
    other = world.writer("B")
    other.add("a")
    assert content(reader.table) == BEGUN | {"a0": 1, "a1": 1}
    last = other.table.session.log.state.last
    (group,) = other.table.snapshot().file_slices("part=a")
    (world.folder / ".hoodie/timeline" / last.shown).unlink()
    (world.folder / group.path).unlink()
    # As the newest commit of the log is shown wherever the timeline lacks it, another one has to come.
    engine_commits(world, now(world), action="rollback", body=rollback_of(last.instant))
    reader.env.advance(1.0)
    other.add("b")
    assert content(reader.table) == BEGUN | {"b0": 1, "b1": 1}


def test_a_handle_that_is_open_for_long_notices_too(world):
    a = world.writer("A")
    a.add("a")
    theirs = engine_commits(world, now(world))
    a.env.advance(1.0)
    with pytest.raises(lakelatch.UnsupportedTableError, match=f"has committed {theirs} without the commit log"):
        a.add("a")
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_an_open_transaction_does_not_land_and_what_it_wrote_goes(world):
    a = world.writer("A")
    txn = a.begin_add("a")
    engine_commits(world, now(world))
    a.env.advance(1.0)
    with pytest.raises(lakelatch.UnsupportedTableError, match="overlaps with it cannot be seen"):
        txn.commit()
    assert a.table.session.log.outcome(txn.instant) == "abort", "to end a transaction is always safe"
    with world.fresh() as table:
        check_clean(table)
        assert content(table) == BEGUN


def test_one_that_was_at_work_for_long_is_noticed_whatever_its_t(world):
    """It has begun before the epoch, and completes in it."""
    early = next_label(world.env.now() - 3600, "")
    a = world.writer("A")
    (world.folder / f".hoodie/timeline/{early}.commit.requested").touch()
    a.table.session.log.close_epoch()
    for _ in range(3):
        a.env.advance(1.0)
        a.add("a")
    engine_commits(world, early, now(world))
    for handle in (a, world.writer("new")):
        handle.env.advance(1.0)
        with pytest.raises(lakelatch.UnsupportedTableError, match=early):
            handle.add("a")


def test_looking_is_bounded_in_its_share_of_the_time(world):
    looks, slow_s = [], 0.02
    a = world.writer("A")
    a.add("a")  # the first look at the table lists it for other reasons too

    def look() -> None:
        looks.append(a.env.monotonic())
        a.env.suspend(slow_s)

    a.store.add(Pause(On("list", ".hoodie/timeline"), call=look, forever=True))
    started = a.env.monotonic()
    while a.env.monotonic() - started < 80.0:
        a.add("a")
        a.env.suspend(0.5)
    assert 2 <= len(looks) <= 80.0 * 0.001 / slow_s + 1


def test_an_epoch_is_not_closed_over_a_strangers_commit(world):
    a = world.writer("A")
    a.add("a")
    engine_commits(world, now(world))
    with pytest.raises(lakelatch.UnsupportedTableError):
        a.table.session.log.close_epoch()
    with pytest.raises(lakelatch.UnsupportedTableError):
        world.writer("new").add("a")


def test_the_check_knows_one_that_was_at_work_for_long(world):
    early = next_label(world.env.now() - 3600, "")
    shutil.rmtree(world.folder / LOG)
    a = take_over(world)
    a.add("a")
    engine_commits(world, early, now(world))
    with world.fresh() as table:
        assert "stranger-commit" in {each.kind for each in check(table.store).findings}


# --- beside ours ---------------------------------------------------------------------------------------------------


class Engine:
    """Another engine that changes partition *a* without our log: it reads, writes the next base file, and completes."""

    def __init__(self, world: World, requested: str) -> None:
        self.world, self.requested = world, requested
        self.timeline = world.folder / ".hoodie/timeline"
        (self.timeline / f"{requested}.commit.requested").touch()
        with world.fresh() as table:
            (self.read,) = table.snapshot().file_slices("part=a")
        path = self.read.base.path
        self.path = path[: path.rindex("_") + 1] + f"{requested}.parquet"
        shutil.copy(world.folder / path, world.folder / self.path)

    def complete(self) -> None:
        """Its commit is acknowledged."""
        size = (self.world.folder / self.path).stat().st_size
        stat = WriteStat(self.read.file_id, self.path, "part=a", self.read.instant, file_size=size, num_writes=2)
        body = encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)
        engine_commits(self.world, self.requested, body=body)


def skipped(world: World) -> list[str]:
    """What the check says of slices that the next one was not built on."""
    with world.fresh() as table:
        return [each.message for each in check(table.store).findings if each.kind == "slice-skipped"]


@pytest.mark.parametrize("last", ["ours", "theirs"])
def test_the_check_names_a_slice_that_the_next_one_was_not_built_on(world, caplog, last):
    a = world.writer("A")
    theirs = Engine(world, next_label(a.env.now(), a.table.session.log.state.top)) if last == "ours" else None
    a.env.advance(0.01)
    txn = a.begin_add("a")
    theirs = theirs or Engine(world, next_label(a.env.now(), txn.instant))
    txn.commit()
    assert not skipped(world)
    theirs.complete()
    lost, kept = (theirs.requested, txn.instant) if last == "ours" else (txn.instant, theirs.requested)
    (said,) = skipped(world)
    assert lost in said
    assert kept in said
    a.env.advance(1.0)
    with pytest.raises(lakelatch.UnsupportedTableError, match="lakelatch check"):
        a.add("a")
    take_over(world).add("a")
    assert f"rows of {lost}" in caplog.text, "who takes it over is told"
    assert skipped(world) == [said], "and it is not forgotten by that"


def test_slices_that_were_built_on_each_other_are_not_named(world):
    a = world.writer("A")
    a.add("a")
    theirs = Engine(world, next_label(a.env.now(), a.table.session.log.state.top))
    theirs.complete()
    take_over(world).add("a")
    assert not skipped(world)


def test_the_next_begin_refuses_when_one_has_completed_that_was_seen_at_work(world):
    a = world.writer("A")
    a.add("a")
    theirs = Engine(world, next_label(a.env.now(), a.table.session.log.state.top))
    a.env.advance(1.0)
    a.add("b")  # when it is time to look
    a.add("b")
    theirs.complete()
    with pytest.raises(lakelatch.UnsupportedTableError, match=theirs.requested):
        a.add("b")


def test_one_that_has_been_at_work_for_very_long_is_not_looked_for_at_every_begin(world):
    a = world.writer("A")
    Engine(world, next_label(a.env.now(), a.table.session.log.state.top))
    timeline = f"{world.folder}/.hoodie/timeline"
    for seconds, looks in ((1.0, 2), (3600.0, 1)):
        a.env.advance(seconds)
        a.add("b")
        a.store.reset()
        a.add("b")
        assert len([c for c in a.store.calls if c.op == "names" and timeline.endswith(c.path)]) <= looks, seconds


# --- taken over ----------------------------------------------------------------------------------------------------


def take_over(world: World, env: FakeEnvironment | None = None) -> Writer:
    return world.writer_of(lakelatch.adopt(str(world.folder), env=env or world.env.peer(), writer="adopter"))


def test_what_is_open_here_cannot_land_beside_what_was_taken_over(world):
    w, b = world.writer("W", host="host-b"), world.writer("B")
    txn = w.begin_add("a")
    epoch = b.table.session.log.epoch
    engine_commits(world, now(world))
    x = take_over(world)
    assert x.table.session.log.epoch == epoch + 1, "the log goes on, and others follow without reading all of it again"
    x.add("a", 10)
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    b.add("b")
    w.add("a")
    assert world.content() == {"a0": 11, "a1": 11, "b0": 1, "b1": 1}
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert check(table.store).findings == ()


def test_a_living_writer_is_waited_for_by_nobody_and_refused(world):
    w = world.writer("W", host="host-b")
    txn = w.begin_add("a")
    engine_commits(world, now(world))
    env = beating(world, w)
    before = list((world.folder / LOG).rglob("*"))
    with pytest.raises(lakelatch.CommitError, match=rf"a writer is alive \({txn.instant}\).* Nothing was changed"):
        take_over(world, env)
    assert list((world.folder / LOG).rglob("*")) == before
    w.table.close()
    take_over(world).add("a")
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def beating(world: World, writer: Writer) -> FakeEnvironment:
    """An environment in which the writer's heart beats while its owner sleeps."""
    env = world.env.peer()
    real = env.sleep

    def sleep(seconds: float) -> None:
        writer.table.session.heart.beat()
        real(seconds)

    env.sleep = sleep  # type: ignore[method-assign]
    return env


def take_over_below_the_living(writer: Writer, world: World) -> None:
    settings = replace(writer.table.settings, generation=writer.table.settings.generation + 1)
    writer.table.session.log.take_over(settings, lambda: next_label(0.0, now(world)), tuple)


@pytest.mark.parametrize("other", ["takes over", "reads on"])
def test_whoever_opens_the_next_epoch_before_there_is_one_log(world, other):
    """A is paused between its close and its open entry."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    theirs = engine_commits(world, now(world))
    act = (lambda: take_over(world)) if other == "takes over" else b.table.session.log.catch_up
    a.store.add(Pause(On("put_if_absent", "/log/"), call=act, after=True))
    take_over_below_the_living(a, world)
    for each in (a, b, world.writer("new")):
        each.env.advance(1.0)
        each.add("a")
        assert each.table.session.log.look(now=True) == []
    assert theirs in {i.requested for i in a.table.timeline().commits}
    assert world.content() == BEGUN | {"a0": 3, "a1": 3}


def test_who_begins_after_the_living_were_looked_for_does_not_land(world):
    a, w = world.writer("A"), world.writer("W", host="host-b")
    txn = w.begin_add("a")
    engine_commits(world, now(world))
    take_over_below_the_living(a, world)
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    a.add("b")
    with world.fresh() as table:
        table.rollback_failed_writes(wait=True)
        check_clean(table)
        assert content(table) == BEGUN | {"b0": 1, "b1": 1}


# --- damaged, or not understood ------------------------------------------------------------------------------------


def outside(world: World) -> bytes:
    stat = WriteStat("f", "part=a/../../../f_0-0-0_1.parquet", "part=a")
    return encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)


@pytest.mark.parametrize(
    ("action", "body", "error", "words"),
    [
        ("commit", b"Obj\x01torn", lakelatch.CorruptTableError, "is torn or not an Avro file"),
        ("commit", outside, lakelatch.CorruptTableError, "does not lie in the table. Nothing there was touched"),
        ("replacecommit", outside, lakelatch.CorruptTableError, "does not lie in the table. Nothing there was touched"),
        ("reindex", b"", lakelatch.UnsupportedTableError, "of action reindex, which this version does not know"),
    ],
)
def test_what_it_wrote_is_damaged_or_not_understood(world, action, body, error, words):
    """Noticed, named, not taken over, and nothing is lost: without it the table goes on."""
    a = world.writer("A")
    txn = a.begin_add("a")
    theirs = engine_commits(world, now(world), action=action, body=body(world) if callable(body) else body)
    a.env.advance(1.0)
    with pytest.raises(lakelatch.LakeLatchError, match=rf"has committed {theirs}"):
        txn.commit()
    log = sorted((world.folder / LOG).rglob("*"))
    with pytest.raises(error, match=words):
        take_over(world)
    assert sorted((world.folder / LOG).rglob("*")) == log
    with world.fresh() as table:
        assert {"instant-torn", "instant-outside", "instant-unknown"} & {f.kind for f in check(table.store).findings}
    next((world.folder / ".hoodie/timeline").glob(f"{theirs}_*")).unlink()  # as its own engine would
    a.add("a")
    world.writer("new").add("a")
    assert world.content() == independent_content(world.folder) == BEGUN | {"a0": 2, "a1": 2}
