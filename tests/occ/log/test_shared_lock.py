"""A lock that JVM writers share: what one of them commits while ours waits, or after one of ours has died, is seen in time."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.errors import CommitStateUnknownError, LockTimeoutError, UnsupportedTableError
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.occ.check.check import check
from lakelatch.testing.faults import On, Pause, Refuse

from ..world import BEGUN, World, Writer, add, commits, content, fate, insert, overwrite
from .test_strangers import Engine, engine_commits, now, skipped

TIMELINE = ".hoodie/timeline"


@pytest.fixture
def shared(tmp_path):
    """A table whose lock JVM writers can take."""
    made = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0)
    yield made
    made.close()


def before_the_lock(writer: Writer, call, monkeypatch) -> None:
    """A JVM writer acts while ours waits for the lock, once."""
    lock, todo = writer.table.lock, [call]
    take = lock.lease

    def lease(*given, **named):
        writer.env.advance(0.1)  # two times of the same millisecond would be one
        if todo:
            todo.pop()()
        return take(*given, **named)

    monkeypatch.setattr(lock, "lease", lease)


def files_of(world: World, instant: str) -> list[str]:
    return [each.name for each in world.folder.rglob(f"*{instant}*") if ".lakelatch" not in str(each)]


WRITES = {
    "upsert": ("upsert", lambda txn: add(txn, "a")),
    "insert": ("insert", lambda txn: insert(txn, "a", "a9")),
    "overwrite": ("insert_overwrite", lambda txn: overwrite(txn, "a", "a9")),
    "delete": ("delete", lambda txn: txn.delete([{"id": "a0", "part": "a"}])),
    "another partition": ("upsert", lambda txn: add(txn, "b")),
    "a column": ("insert", lambda txn: txn.add_column("w", "int64")),
}


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_committed_while_ours_waits_for_the_lock_is_seen(shared, monkeypatch, write, first):
    a, (operation, stage) = shared.writer("A"), WRITES[write]
    a.add("b")  # its first look at the timeline is over
    began = next_label(a.env.now(), a.table.session.log.state.top)
    theirs = Engine(shared, began) if first == "theirs" else None
    a.env.advance(0.5)
    txn = a.table.transaction(operation)
    stage(txn)
    theirs = theirs or Engine(shared, next_label(a.env.now(), txn.instant))
    before_the_lock(a, theirs.complete, monkeypatch)
    with pytest.raises(UnsupportedTableError, match=f"another engine has committed {theirs.requested}"):
        txn.commit()
    with shared.fresh() as table:
        assert fate(table, txn.instant) == ["begin", "abort"]
        assert files_of(shared, txn.instant) == []
    assert not skipped(shared)


@pytest.mark.parametrize("service", ["savepoint", "clean", "cluster", "archive"])
def test_a_table_service_sees_it_as_well(shared, monkeypatch, service):
    a = shared.writer("A")
    for _ in range(3):
        a.add("a")
    theirs = Engine(shared, next_label(a.env.now(), a.table.session.log.state.top))
    a.env.advance(0.1)
    before_the_lock(a, theirs.complete, monkeypatch)
    run = {
        "savepoint": a.table.savepoint,
        "clean": lambda: a.table.clean(retain_commits=0),
        "cluster": lambda: a.table.cluster(sort_by="v"),
        "archive": lambda: a.table.archive(keep_min=1, keep_max=2),
    }
    before = sorted(shared.folder.rglob("*.parquet"))
    with pytest.raises(UnsupportedTableError, match=theirs.requested):
        run[service]()
    assert sorted(shared.folder.rglob("*.parquet")) == before


def test_settings_that_the_rows_must_go_with_see_it(shared, monkeypatch):
    a = shared.writer("A")
    a.add("a")
    theirs = Engine(shared, next_label(a.env.now(), a.table.session.log.state.top))
    before_the_lock(a, theirs.complete, monkeypatch)
    with pytest.raises(UnsupportedTableError, match=theirs.requested):
        a.table.change_settings(unique_constraints=["id"])
    with shared.fresh() as table:
        assert table.settings.unique_constraints == ()


def listings(world: World) -> int:
    """How often one commit of a warm handle lists the timeline."""
    a = world.writer("A")
    for _ in range(3):
        a.add("a")
    a.store.reset()
    a.add("a")
    return len([each for each in a.store.calls if each.op == "list" and each.path == TIMELINE])


def test_that_costs_one_listing_and_nothing_where_no_jvm_takes_the_lock(shared, tmp_path):
    alone = World(tmp_path / "alone", lock=f"file://{tmp_path}/lock", lock_wait_s=30.0)
    assert (listings(alone), listings(shared)) == (0, 1)
    alone.close()


# --- a writer that died between its log entry and its publication ---------------------------------------------------


def left_by_dead(world: World, part: str = "a") -> str:
    """T of a commit whose writer was killed before it was on the timeline."""
    d = world.writer("D", host="host-d")
    txn = d.begin_add(part, 10)
    d.store.add(Refuse(On("put_if_absent", f"{TIMELINE}/{txn.instant}_"), forever=True))
    with pytest.raises(CommitStateUnknownError, match="in the log but not on the timeline"):
        txn.commit()
    d.die()
    assert not published(world, txn.instant)
    return txn.instant


def published(world: World, instant: str) -> bool:
    return bool(list((world.folder / TIMELINE).glob(f"{instant}_*")))


NEXT = {
    "begins": lambda writer: writer.add("b"),
    "begins with the lock": lambda writer: writer.table.transaction("upsert", lock_first=True),
    "plans": lambda writer: writer.table.cluster(sort_by="v"),
    "cleans up": lambda writer: writer.table.rollback_failed_writes(),
    "closes the epoch": lambda writer: writer.table.session.log.close_epoch(),
    "has an open transaction": lambda writer: writer.open.commit(),
}


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "new"])
@pytest.mark.parametrize("then", NEXT)
def test_a_dead_writers_commit_is_not_published_over_a_foreign_one(shared, then, warm):
    x = shared.writer("X")
    if warm or then == "has an open transaction":
        x.add("b")
        x.open = x.begin_add("b")
    theirs = Engine(shared, now(shared))
    dead = left_by_dead(shared)
    theirs.complete()
    with pytest.raises(UnsupportedTableError, match=theirs.requested):
        NEXT[then](x)
    assert not published(shared, dead)


def test_whoever_adopts_takes_the_foreign_commit_over_and_leaves_the_dead_one_out(shared, caplog):
    warm = shared.writer("warm")
    warm.add("b")
    theirs = Engine(shared, now(shared))
    dead = left_by_dead(shared)
    theirs.complete()
    lakelatch.adopt(str(shared.folder), env=shared.env.peer(), writer="adopter").close()
    assert f"{dead} of D was never on the timeline" in caplog.text
    with shared.fresh() as table:
        assert table.session.log.outcome(dead) == "rollback"
        assert not published(shared, dead)
        assert files_of(shared, dead) == []
        assert check(table.store).findings == ()
    warm.add("a")
    assert shared.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
    assert not skipped(shared)


def test_a_dead_commit_in_another_place_is_published_by_whoever_adopts(shared):
    theirs = Engine(shared, now(shared))
    dead = left_by_dead(shared, "b")
    theirs.complete()
    lakelatch.adopt(str(shared.folder), env=shared.env.peer(), writer="adopter").close()
    assert published(shared, dead)
    assert shared.content() == BEGUN | {"b0": 10, "b1": 10}


def test_a_log_that_cannot_be_read_leaves_it_out_as_well(shared):
    theirs = Engine(shared, now(shared))
    dead = left_by_dead(shared)
    theirs.complete()
    epoch = max((shared.folder / ".hoodie/.lakelatch/log").iterdir())
    last = max(epoch.iterdir())
    (epoch / f"{int(last.name) + 1:020d}").write_bytes(b"torn")
    env = shared.env.peer()
    lakelatch.adopt(str(shared.folder), env=env, writer="adopter").close()
    assert not published(shared, dead)
    assert shared.content() == BEGUN


def test_what_is_left_is_published_under_the_lock(shared):
    """A JVM writer that holds it may be about to commit over the same files."""
    dead = left_by_dead(shared)
    x = shared.writer("X")
    jvm = shared.folder.parent / "lock/lock"
    jvm.write_bytes(b"{}")
    with pytest.raises(LockTimeoutError):
        x.add("b")
    assert not published(shared, dead)
    jvm.unlink()
    x.add("b")
    assert published(shared, dead)
    assert shared.content() == BEGUN | {"a0": 10, "a1": 10, "b0": 1, "b1": 1}


def test_who_begins_under_the_lock_publishes_under_it(shared):
    dead = left_by_dead(shared)
    with shared.writer("X").table.transaction("upsert", lock_first=True) as txn:
        add(txn, "a")
    assert published(shared, dead)
    assert shared.content() == BEGUN | {"a0": 11, "a1": 11}


def test_a_holder_that_has_lost_the_lock_looks_again_before_it_publishes(shared, monkeypatch):
    a = shared.writer("A")
    a.add("b")
    txn = a.begin_add("a")
    theirs = Engine(shared, next_label(a.env.now(), txn.instant))

    def meanwhile() -> None:
        a.env.suspend(3600.0)  # the lease ends
        (shared.folder.parent / "lock/lock").unlink(missing_ok=True)
        theirs.complete()

    a.store.add(Pause(On("put_if_absent", "/log/"), call=meanwhile, after=True))
    with pytest.raises(CommitStateUnknownError, match=rf"{txn.instant} is in the log.*{theirs.requested}"):
        txn.commit()
    assert not published(shared, txn.instant)


def test_a_new_handle_looks_first_whatever_the_lock(world):
    """One listing shows both, so it costs nothing."""
    d = world.writer("D", host="host-d")
    txn = d.begin_add("a", 10)
    d.store.add(Refuse(On("put_if_absent", f"{TIMELINE}/{txn.instant}_"), forever=True))
    assert not txn.commit().published
    theirs = engine_commits(world, now(world))
    with pytest.raises(UnsupportedTableError, match=theirs):
        world.writer("X").add("b")
    assert not published(world, txn.instant)
    with world.fresh() as table:
        assert [each.instant for each in commits(table)][-1] == txn.instant
        assert content(table) == BEGUN | {"a0": 10, "a1": 10}, "who only reads shows what the log has"
