"""Taking over a table that has no commit log, or none that is sound: what was there before must not come back."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.cli.history.timeline import newest
from lakelatch.errors import ConfigError, InputError, UnsupportedTableError
from lakelatch.hudi.table.avro_schema import to_avro
from lakelatch.hudi.timeline.commit_metadata import decode_commit, encode_commit
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.hudi.timeline.timeline import TIMELINE
from lakelatch.occ.check.check import check
from lakelatch.occ.liveness.heartbeat import HEARTBEATS, heartbeat_path
from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.occ.log.epochs import LOG
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import On, Pause, Refuse

from ..world import BEGUN, World, check_sound, commits, content, independent_content, insert


def take_history(world: World) -> None:
    """What another engine leaves that has made a table and committed nothing."""
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    for instant in (world.folder / TIMELINE).glob("[0-9]*"):
        instant.unlink()


def adopt(world: World) -> lakelatch.Table:
    return world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter")).table


def test_an_empty_table_gets_a_floor(make_world):
    world = make_world(empty=True)
    take_history(world)
    table = adopt(world)
    (floor,) = commits(table)
    assert floor.empty
    assert [each.requested for each in table.timeline().commits] == [floor.instant]
    assert content(table) == {}
    with table.transaction("insert") as txn:
        insert(txn, "a", "a0")
    assert content(table) == independent_content(world.folder) == {"a0": 1}
    check_sound(table)


def test_a_table_with_commits_needs_none(world):
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    table = adopt(world)
    assert commits(table) == []
    with table.transaction("insert") as txn:
        insert(txn, "c", "c0")
    assert [each.empty for each in commits(table)] == [False]
    assert content(table) == BEGUN | {"c0": 1}


def test_files_that_the_first_commit_would_make_visible_are_refused(world):
    take_history(world)
    with pytest.raises(lakelatch.CorruptTableError, match=r"2 data files .* adopt the table"):
        adopt(world)
    assert not (world.folder / LOG).exists()


@pytest.mark.parametrize("place", [HEARTBEATS, MARKERS])
def test_a_time_that_an_older_log_gave_away_is_not_given_again(world, place):
    """Its host's clock was ahead, its log is gone, and its writer may still be alive: trap 8."""
    ahead = next_label(world.env.now() + 86_400, "")
    left = world.folder / place / ahead
    if place == HEARTBEATS:
        left.parent.mkdir(exist_ok=True)
        left.touch()
    else:
        left.mkdir(parents=True)
        (left / "a.parquet.marker.CREATE").touch()
    (world.folder / HEARTBEATS / "README").touch()  # no time
    shutil.rmtree(world.folder / LOG)
    table = adopt(world)
    with table.transaction("insert") as txn:
        insert(txn, "c", "c0")
    assert txn.instant > ahead
    assert content(table) == BEGUN | {"c0": 1}


def test_a_rest_too_short_for_the_clock_is_waited_for_as_well(world):
    """On this fake clock what is left of the time-out falls to 1e-13 s, less than the clock can tell."""
    told = []
    w = world.writer("W")
    w.begin_add("a")
    w.die()
    shutil.rmtree(world.folder / LOG)
    world.env.advance(0.1)

    def progress(seconds):
        told.append(seconds)
        assert len(told) < 100

    lakelatch.adopt(str(world.folder), env=world.env.peer(), progress=progress).close()
    assert told


def test_what_an_older_log_left_is_named_by_check_and_left_by_clean(world):
    """Nobody knows its outcome any more, so nobody deletes it; and it can do no harm."""
    w = world.writer("W")
    txn = w.begin_add("a")
    txn.workspace.close_files()
    w.die()
    shutil.rmtree(world.folder / LOG)
    world.env.advance(10.0)
    table = adopt(world)
    assert table.rollback_failed_writes(wait=True) == []
    (pending,) = check(table.store).findings
    assert pending.kind == "pending-unknown"
    assert f"{MARKERS}/{txn.instant}" in pending.next_step
    for name in (world.folder / TIMELINE).glob(f"{txn.instant}.*"):  # and when that is gone, but not the rest
        name.unlink()
    report = check(table.store)
    assert {each.kind for each in report.findings} == {"orphan-file", "markers-of-ended", "heartbeat-of-ended"}
    assert all(txn.instant in each.message and "rollback" not in each.next_step for each in report.findings)
    table.rollback_failed_writes(wait=True)
    assert check(table.store) == report
    assert content(table) == independent_content(world.folder) == BEGUN
    # As the operations page says.
    for each in report.findings:
        path = Path(world.folder, each.path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not (world.folder / heartbeat_path(txn.instant)).exists()
    assert check(table.store).findings == ()


@pytest.mark.parametrize("torn", ["the begin", "an entry after it"])
def test_what_a_torn_log_left_is_no_obstacle(world, torn):
    """With the folder of the old log there, its begin entry tells that the transaction was ours, if it can be read."""
    w = world.writer("W")
    txn = w.begin_add("a")
    txn.workspace.close_files()
    if torn == "an entry after it":
        w.insert("b", "b5")
    w.die()
    (epoch,) = (world.folder / LOG).iterdir()
    max(epoch.iterdir()).write_bytes(b'{"v":1,"kind')
    world.env.advance(10.0)
    table = adopt(world)
    table.rollback_failed_writes(wait=True)
    assert newest(table, 1)[0].requested >= txn.instant, "the timeline can be told"
    kinds = {each.kind for each in check(table.store).findings}
    assert kinds == ({"pending-unknown"} if torn == "the begin" else set())
    assert {k: v for k, v in content(table).items() if k != "b5"} == BEGUN
    with table.transaction("insert") as more:
        insert(more, "c", "c0")
    assert content(table)["c0"] == 1


# --- rebuilding ----------------------------------------------------------------------------------------------------


def tear(world: World) -> None:
    (epoch,) = (world.folder / LOG).iterdir()
    max(epoch.iterdir()).write_bytes(b'{"v":1,"kind')


def test_settings_that_can_be_read_are_kept(make_world):
    """With another number of buckets the same keys would go to other files."""
    world = make_world(isolation="serializable", strategy="bucket", bucket_count=4, lease_s=7.0, lock="none://")
    tear(world)
    table = lakelatch.adopt(str(world.folder), env=world.env.peer(), isolation="snapshot")
    kept = table.settings
    assert (kept.bucket_count, kept.strategy, kept.lease_s, kept.isolation) == (4, "bucket", 7.0, "snapshot")
    assert kept.lock == "none://"
    table.close()


@pytest.mark.parametrize("torn", [False, True])
def test_a_commit_that_was_not_published_yet_is_not_lost(world, torn):
    """Its writer was told that it has landed."""
    w = world.writer("W")
    txn = w.begin_add("a")
    w.store.add(Refuse(On("put_if_absent", "/timeline/"), forever=True))
    result = txn.commit()
    assert result is not None
    assert not result.published
    if torn:
        (epoch,) = (world.folder / LOG).iterdir()
        Path(epoch, f"{result.slot + 1:020d}").write_bytes(b"{")
    else:
        shutil.copy(next(iter((world.folder / TIMELINE).glob("*_*"))), world.folder / TIMELINE / stranger(world))
    w.die()
    table = adopt(world)
    assert content(table) == independent_content(world.folder) == BEGUN | {"a0": 1, "a1": 1}


def stranger(world: World) -> str:
    t = next_label(world.env.now() + 3600, "")
    return f"{t}_{next_label(0.0, t)}.commit"


@pytest.mark.parametrize("how", ["deleted", "torn"])
def test_a_living_writer_is_refused(world, how):
    w = world.writer("W", host="host-b")
    txn = w.begin_add("a")
    if how == "deleted":
        shutil.rmtree(world.folder / LOG)
    else:
        tear(world)
    env = world.env.peer()
    sleep, beats = env.sleep, []

    def beside(seconds: float) -> None:
        w.table.session.heart.beat()
        beats.append(env.monotonic())
        sleep(seconds)

    env.sleep = beside  # type: ignore[method-assign]
    with pytest.raises(lakelatch.CommitError, match=rf"a writer is alive \({txn.instant}\)"):
        lakelatch.adopt(str(world.folder), env=env)
    assert len(beats) == 1, "the first sign of life is enough"
    w.table.close()  # its heart stops
    with lakelatch.adopt(str(world.folder), env=world.env.peer()) as table:
        assert content(table) == BEGUN


def test_one_who_died_on_this_host_is_not_waited_for(world):
    w = world.writer("W")
    w.begin_add("a")
    env = world.writer("on the same host").env
    (epoch,) = (world.folder / LOG).iterdir()
    Path(epoch, f"{w.table.session.log.next_slot:020d}").write_bytes(b"{")
    w.die()
    before = env.monotonic()
    lakelatch.adopt(str(world.folder), env=env).close()
    assert env.monotonic() == before


def test_a_store_that_fails_is_no_damage(world, monkeypatch):
    def unreachable(self: LocalStore, path: str) -> None:
        raise lakelatch.StorageError(f"{path} cannot be read now")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "get", unreachable)
        with pytest.raises(lakelatch.StorageError, match="cannot be read now"):
            adopt(world)
    with pytest.raises(lakelatch.ConfigError, match="nothing to adopt"):
        adopt(world)


def test_a_log_that_is_made_anew_while_one_verifies_it_is_verified_anew(world):
    """A lists the timeline, on which B's commit is that A has not read; before A reads on, that log is gone.

    In the new one a power cut takes away the name of a commit that is not the newest.
    """
    a, b = world.writer("A"), world.writer("B", host="host-b")

    def meanwhile() -> None:
        shutil.rmtree(world.folder / LOG)
        world.env.advance(10.0)
        adopt(world).close()
        new = world.writer("N", host="host-c")
        lost = new.add("b")
        new.add("b")
        next((world.folder / TIMELINE).glob(f"{lost.instant}_*")).unlink()

    listing = On("list", "/timeline")
    a.store.add(Pause(listing, call=lambda: b.add("b")), Pause(listing, call=meanwhile, after=True))
    a.add("a")
    assert a.table.session.log.look(now=True) == []
    assert content(a.table) == independent_content(world.folder) == BEGUN | {"a0": 1, "a1": 1, "b0": 3, "b1": 3}
    assert check(a.table.store).findings == ()


def keyed(folder: Path, kind: str) -> None:
    """A table with three rows, and without its log; of a merge-on-read one with buckets all rows are in log files."""
    how = {"bucket_count": 1} if kind == "merge_on_read" else {}
    with lakelatch.create(str(folder), record_key="id", partition_by=["c", "d"], type=kind, **how) as table:
        for number in range(3):
            table.upsert([{"id": str(number), "c": "x", "d": "y"}])
    shutil.rmtree(folder / ".hoodie/.lakelatch")


def refuses(folder: Path, said: str, feature: str = "record_keys") -> None:
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    with pytest.raises(UnsupportedTableError, match=re.escape(said)) as refused:
        lakelatch.adopt(str(folder))
    assert refused.value.details["feature"] == feature
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before


def test_rows_whose_keys_are_spelled_otherwise_are_refused(tmp_path):
    """As JVM Hudi 1.2.0 spells them with its complex key generator, where there is one key field."""
    folder = tmp_path / "t"
    keyed(folder, "copy_on_write")
    (newest,) = sorted(folder.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])[-1:]
    rows = pq.read_table(newest)
    place = rows.schema.get_field_index("_hoodie_record_key")
    keys = pc.binary_join_element_wise("id:", rows.column(place), "")
    pq.write_table(rows.set_column(place, "_hoodie_record_key", keys), newest)
    refuses(folder, "has the _hoodie_record_key 'id:")


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_rows_in_partitions_that_are_spelled_otherwise_are_refused(tmp_path, kind):
    keyed(tmp_path, kind)
    with (tmp_path / ".hoodie/hoodie.properties").open("a") as properties:
        properties.write("hoodie.datasource.write.hive_style_partitioning=false\n")
    refuses(tmp_path, "has the _hoodie_partition_path 'c=x/d=y', and written here it would have 'x/y'")


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_rows_that_are_spelled_as_ours_are_adopted(tmp_path, kind):
    keyed(tmp_path, kind)
    with lakelatch.adopt(str(tmp_path)) as table:
        table.upsert([{"id": "0", "c": "x", "d": "y"}])
        assert sorted(table.read().to_arrow()["id"].to_pylist()) == ["0", "1", "2"]


def test_columns_that_hudi_s_schema_on_read_has_changed_are_refused(tmp_path):
    """Without its option the JVM itself shows nulls in a renamed column."""
    keyed(tmp_path, "copy_on_write")
    newest = max((tmp_path / TIMELINE).glob("*_*.commit"))
    content = decode_commit(newest.read_bytes(), name=newest.name, layout=2, table="")
    newest.write_bytes(encode_commit(replace(content, extra={"latest_schema": "{}"}), replace=False))
    refuses(tmp_path, "were changed by Hudi's schema-on-read", "schema_on_read")
    with (
        lakelatch.open(str(tmp_path)) as table,
        pytest.raises(UnsupportedTableError, match=r"hoodie\.schema\.on\.read\.enable=true"),
    ):
        table.read()


def test_names_of_dropped_columns_stay_taken_when_another_engine_has_written(tmp_path):
    """Its schema has the columns alone."""
    keyed(tmp_path, "copy_on_write")
    with lakelatch.adopt(str(tmp_path)) as table:
        table.upsert([{"id": "0", "c": "x", "d": "y", "gone": 1, "back": 2}], new_columns="add", missing="null")
        for name in ("gone", "back"):
            table.drop_column(name)
    newest = max((tmp_path / TIMELINE).glob("*_*.commit"))
    content = decode_commit(newest.read_bytes(), name=newest.name, layout=2, table="")
    plain = to_avro(pa.schema([(name, pa.string()) for name in ("id", "c", "d", "back")]), "t")
    newest.write_bytes(encode_commit(replace(content, schema=plain), replace=False))
    shutil.rmtree(tmp_path / ".hoodie/.lakelatch")
    with pytest.raises(ConfigError, match="has dropped gone, and neighbours=hudi"):
        lakelatch.adopt(str(tmp_path), neighbours="hudi", lock=f"file://{tmp_path}/locks?jvm=lock")
    with lakelatch.adopt(str(tmp_path)) as table:
        assert "back" in table.schema().names
        with pytest.raises(InputError, match="'gone' was dropped"):
            table.add_column("Gone", "int")
