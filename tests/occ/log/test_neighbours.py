"""Other engines beside ours, with neighbours=hudi: their commits are imported, and a completed instant is the commit."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.cli.app import app
from lakelatch.errors import (
    CommitError,
    CommitStateUnknownError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    InputError,
    LakeLatchError,
    RolledBackError,
    StorageError,
)
from lakelatch.hudi.timeline import CommitMetadata, Instant, WriteStat, encode_commit, encode_restore
from lakelatch.hudi.timeline.commit_metadata import encode_container
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.hudi.timeline.service_metadata import encode_clustering_plan
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import Close, Commit, GroupCommit, Import, encode
from lakelatch.occ.log import CommitLog
from lakelatch.occ.log.epochs import slot_path
from lakelatch.occ.session import TableLease
from lakelatch.testing.faults import WRITES, Call, From, On, Refuse

from ...command_line import Runner
from ..transaction.test_columns import begin_wide
from ..world import BEGUN, World, Writer, add, after, content, fate, overwrite, writes
from .test_shared_lock import before_the_lock
from .test_strangers import Engine, engine_commits, skipped, take_over
from .test_uniqueness import insert

TIMELINE = ".hoodie/timeline"


@pytest.fixture
def beside(tmp_path):
    """A table with neighbours."""
    made = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0, neighbours="hudi")
    yield made
    made.close()


def inflight(engine: Engine) -> Engine:
    """The neighbour has read the timeline, and has put its inflight instant."""
    (engine.timeline / f"{engine.requested}.inflight").touch()
    return engine


def later(writer) -> str:
    """The T of a neighbour that begins now."""
    writer.env.advance(1.0)
    return next_label(writer.env.now(), writer.table.session.log.newest_shown)


def imports(world: World) -> list[str]:
    with world.fresh() as table:
        log = table.session.log
        log.catch_up()
        return [e.instant for e in log.entries() if isinstance(e, Commit) and e.imported]


def sound(world: World) -> None:
    with world.fresh() as table:
        assert check(table.store).findings == ()


def test_a_commit_of_a_neighbour_is_imported_and_ours_goes_on(beside):
    a = beside.writer("A")
    a.add("a")
    theirs = Engine(beside, later(a))
    theirs.complete()
    a.env.advance(1.0)
    a.add("a")
    assert imports(beside) == [theirs.requested]
    assert beside.content() == BEGUN | {"a0": 2, "a1": 2}
    sound(beside)


def test_a_neighbour_that_commits_while_ours_is_open_is_merged_with(beside):
    a = beside.writer("A")
    theirs = Engine(beside, later(a))
    a.env.advance(1.0)
    txn = a.table.transaction("upsert")
    txn.upsert([{"id": "a0", "part": "a", "v": 5}])
    theirs.complete()
    a.env.advance(1.0)
    assert txn.commit() is not None
    assert imports(beside) == [theirs.requested]
    assert beside.content() == BEGUN | {"a0": 5}
    sound(beside)


def test_a_neighbour_that_commits_while_ours_waits_for_the_lock_is_seen(beside, monkeypatch):
    a = beside.writer("A")
    a.add("b")
    txn = a.begin_add("a")
    theirs = Engine(beside, later(a))
    before_the_lock(a, theirs.complete, monkeypatch)
    with pytest.raises(ConflictError, match=theirs.requested):
        txn.commit()
    assert imports(beside) == [theirs.requested]
    sound(beside)


def test_one_that_cannot_be_merged_with_is_named_as_the_winner(beside):
    a = beside.writer("A")
    txn = a.table.transaction("insert_overwrite")
    overwrite(txn, "a", "a9")
    theirs = Engine(beside, later(a))
    theirs.complete()
    with pytest.raises(ConflictError, match=f"UPSERT {theirs.requested} of another engine") as told:
        txn.commit()
    assert told.value.winner == theirs.requested
    sound(beside)


def test_a_writer_that_died_after_its_instant_has_committed(beside):
    d = beside.writer("D", host="host-d")
    txn = d.begin_add("a", 10)
    d.store.add(Refuse(On("put_if_absent", ".hoodie/.lakelatch/log"), forever=True))
    result = txn.commit()
    assert result.instant == txn.instant
    d.die()
    a = beside.writer("A")
    a.add("a")
    assert imports(beside) == [txn.instant]
    assert beside.content() == BEGUN | {"a0": 11, "a1": 11}
    sound(beside)


def test_a_writer_that_died_before_its_instant_is_rolled_back_under_the_lock(beside):
    d = beside.writer("D")
    txn = d.begin_add("a", 10)
    d.die()
    a = beside.writer("A")
    assert a.table.rollback_failed_writes(wait=True) == [txn.instant]
    with beside.fresh() as table:
        assert fate(table, txn.instant) == ["begin", "rollback"]
    assert beside.content() == BEGUN
    sound(beside)


def test_a_cleaner_imports_before_it_rolls_back(beside):
    d = beside.writer("D")
    txn = d.begin_add("a", 10)
    d.store.add(Refuse(On("put_if_absent", ".hoodie/.lakelatch/log"), forever=True))
    txn.commit()
    d.die()
    a = beside.writer("A")
    assert a.table.rollback_failed_writes(wait=True) == []
    assert beside.content() == BEGUN | {"a0": 10, "a1": 10}
    sound(beside)


def test_ours_does_not_publish_when_a_neighbour_has_taken_its_pending_instant_away(beside):
    a = beside.writer("A")
    txn = a.begin_add("a")
    for each in (beside.folder / TIMELINE).glob(f"{txn.instant}.*"):
        each.unlink()
    with pytest.raises(
        RolledBackError, match=f"{txn.instant} does not land: another engine has taken its pending instant"
    ):
        txn.commit()
    assert beside.content() == BEGUN


def test_ours_does_not_publish_after_its_heartbeat_was_silent(beside):
    a = beside.writer("A")
    txn = a.begin_add("a")
    a.store.add(Refuse(On("replace_if_match", ".hoodie/.heartbeat"), forever=True))
    a.env.advance(a.table.settings.heartbeat_timeout_s + 1)
    with pytest.raises(RolledBackError, match="its heartbeat was silent for"):
        txn.commit()
    assert beside.content() == BEGUN


def test_a_completed_instant_that_gets_no_answer_is_unknown_and_is_settled_under_the_lock(beside):
    d = beside.writer("D")
    txn = d.begin_add("a", 10)
    d.store.add(Refuse(On("put_if_absent", f"{TIMELINE}/{txn.instant}_"), forever=True))
    with pytest.raises(CommitStateUnknownError, match="may have landed"):
        txn.commit()
    d.die()
    a = beside.writer("A")
    assert a.table.rollback_failed_writes(wait=True) == [txn.instant]
    assert beside.content() == BEGUN
    sound(beside)


def test_a_commit_that_skipped_another_stops_the_next_writer_with_both_names(beside):
    a = beside.writer("A")
    theirs = inflight(Engine(beside, later(a)))
    a.env.advance(1.0)
    txn = a.begin_add("a")
    txn.commit()
    theirs.complete()  # it was paused with the lock, and has not read ours
    a.env.advance(1.0)
    with pytest.raises(CorruptTableError, match="written the same file group on top of") as told:
        a.add("a")
    assert {told.value.lost, told.value.kept} == {theirs.requested, txn.instant}


def wrote_itself(engine: Engine, **values: int) -> None:
    """Give the rows of its file these values of v by id, and say in the file that its commit wrote them."""
    path = engine.world.folder / engine.path
    rows = pq.read_table(path)
    told = [values.get(key, v) for key, v in zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)]
    for name, column in (("v", told), ("_hoodie_commit_time", [engine.requested] * rows.num_rows)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
    pq.write_table(rows, path)


def test_the_rows_that_a_commit_hides_can_be_written_again(beside, caplog):
    a = beside.writer("A")
    theirs = inflight(Engine(beside, later(a)))
    wrote_itself(theirs, a0=7, a1=8)
    a.env.advance(1.0)
    txn = a.table.transaction("upsert")
    txn.upsert([{"id": "a1", "part": "a", "v": 5}])
    txn.commit()
    theirs.complete()  # it was paused with the lock, and has not read ours
    a.env.advance(1.0)
    with pytest.raises(CorruptTableError, match=f"lakelatch rescue URL {theirs.requested}"):
        a.add("a")
    table = take_over(beside).table
    assert theirs.requested in caplog.text
    found = table.lost_rows(theirs.requested)
    assert (found.hidden_by, found.newer) == ((txn.instant,), 1)
    assert found.rows.to_pylist() == [{"id": "a0", "part": "a", "v": 7}]
    assert beside.content() == BEGUN | {"a1": 5}, "looking changes nothing"
    assert skipped(beside)
    told = command("rescue", table.url, theirs.requested)
    assert '"v": 7' in told
    assert "1 key written since: not changed" in told
    assert "nothing was written" in told
    assert beside.content() == BEGUN | {"a1": 5}
    assert "written again by" in command("rescue", table.url, theirs.requested, "--yes")
    assert beside.content() == BEGUN | {"a0": 7, "a1": 5}
    assert not skipped(beside)
    assert table.lost_rows(theirs.requested).rows.num_rows == 0
    with pytest.raises(InputError, match="no commit hides rows of it"):
        table.lost_rows(txn.instant)
    with pytest.raises(InputError, match="not on the active timeline"):
        table.rescue("20200101000000000")


def test_a_commit_under_a_smaller_t_than_the_version_it_was_made_from_stops_the_next_writer(beside):
    a = beside.writer("A")
    early = later(a)
    a.env.advance(1.0)
    a.add("a")
    theirs = Engine(beside, early)  # reads ours, and readers take ours for the newer version
    theirs.complete()
    a.env.advance(1.0)
    with pytest.raises(CorruptTableError, match=f"rows of {theirs.requested} are lost"):
        a.add("a")


def command(*arguments: str) -> str:
    result = Runner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("plan", ["names it", "names another", "torn", "empty"])
def test_a_rollback_plan_of_a_neighbour_stops_the_transaction_that_it_names(beside, plan):
    a = beside.writer("A")
    txn = a.begin_add("a")
    named = txn.instant if plan != "names another" else "20200101000000000"
    target = {"type": "record", "name": "HoodieInstantInfo", "fields": [{"name": "commitTime", "type": "string"}]}
    fields = [{"name": "instantToRollback", "type": target}]
    schema = {"type": "record", "name": "HoodieRollbackPlan", "fields": fields}
    whole = io.BytesIO()
    fastavro.writer(whole, schema, [{"instantToRollback": {"commitTime": named}}])
    body = {"torn": whole.getvalue()[:-9], "empty": b""}.get(plan, whole.getvalue())
    (beside.folder / TIMELINE / f"{later(a)}.rollback.requested").write_bytes(body)
    if plan == "names it":
        with pytest.raises(RolledBackError, match="of another engine names it"):
            txn.commit()
    else:  # the JVM passes over a torn one too
        txn.commit()
        assert beside.content() == BEGUN | {"a0": 1, "a1": 1}


def test_so_does_one_under_a_smaller_t_than_the_version_that_began_its_file_group(beside):
    a = beside.writer("A")
    early = later(a)
    a.env.advance(1.0)
    txn = a.table.transaction("insert_overwrite")
    overwrite(txn, "a", "a9")
    txn.commit()
    Engine(beside, early).complete()  # reads ours, which was made from no other
    a.env.advance(1.0)
    with pytest.raises(CorruptTableError, match=f"rows of {early} are lost: {txn.instant} has the larger T"):
        a.add("a")


def test_an_instant_of_a_transaction_that_was_ended_stops_the_next_writer(beside):
    a, d = beside.writer("A"), beside.writer("D")
    txn = d.begin_add("a")
    d.die()
    a.table.rollback_failed_writes(wait=True)
    engine_commits(beside, txn.instant)
    with pytest.raises(lakelatch.TableError, match="published all the same"):
        a.add("a")


def test_t_is_above_all_times_on_the_timeline_and_older_than_the_clocks_skew(beside):
    a = beside.writer("A")
    pending = later(a)
    for state in ("commit.requested", "inflight"):
        (beside.folder / TIMELINE / f"{pending}.{state}").touch()
    a.env.advance(10.0)
    txn = a.begin_add("a")
    assert pending < txn.instant <= next_label(a.env.now() - 0.2, "0" * 17)
    txn.commit()


def test_ours_does_not_commit_over_a_smaller_t_that_has_not_read_the_timeline(beside):
    """Such a neighbour would take ours for older than its own work, and readers would take ours for newer than its."""
    a = beside.writer("A")
    a.add("b")
    theirs = Engine(beside, later(a))
    txn = a.begin_add("b")
    assert txn.instant > theirs.requested
    after(a, 2.0, lambda: inflight(theirs))
    before = a.env.monotonic()
    txn.commit()
    assert a.env.monotonic() - before >= 2.0
    later_one = Engine(beside, later(a))
    txn = a.begin_add("b")
    with pytest.raises(ConflictError, match=f"has waited for {later_one.requested} of another engine in vain"):
        txn.commit()
    (theirs.timeline / f"{later_one.requested}.commit.requested").unlink()
    a.add("b")


@pytest.mark.parametrize(("age_s", "waits"), [(9.0, True), (11.0, False)])
def test_one_that_has_begun_long_ago_has_read_the_timeline(beside, age_s, waits):
    """Its inflight instant may follow after minutes, and nobody would write until then; so too if it has died."""
    a = beside.writer("A")
    theirs = Engine(beside, later(a))
    put_at = a.env.now() - age_s
    os.utime(theirs.timeline / f"{theirs.requested}.commit.requested", (put_at, put_at))
    txn, before = a.begin_add("b"), a.env.monotonic()
    txn.commit()
    assert (a.env.monotonic() - before >= 0.9) == waits


def at_work(engine: Engine) -> Engine:
    """The neighbour beats, and its inflight instant names the file group that it changes."""
    stat = WriteStat(engine.read.file_id, "", "part=a", engine.read.instant)
    body = encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)
    (engine.timeline / f"{engine.requested}.inflight").write_bytes(body)
    beat(engine).parent.mkdir(exist_ok=True)
    beat(engine).touch()
    now = engine.world.writers[0].env.now()
    os.utime(beat(engine), (now, now))
    return engine


def beat(engine: Engine):
    return engine.world.folder / ".hoodie/.heartbeat" / engine.requested


def fail(engine: Engine, *, cleaned: bool) -> None:
    """The neighbour has lost: its heartbeat ends; ``cleaned``: it has rolled its attempt back as well."""
    beat(engine).unlink()
    if cleaned:
        for state in ("inflight", "commit.requested"):
            (engine.timeline / f"{engine.requested}.{state}").unlink()
        (engine.world.folder / engine.path).unlink()


@pytest.mark.parametrize("cleaned", [False, True], ids=["left behind", "rolled back by itself"])
def test_a_neighbour_that_runs_again_is_waited_for(beside, cleaned):
    """Or ours, being quicker, would win each time. Only what shares its file group waits."""
    a = beside.writer("A")
    first = at_work(Engine(beside, later(a)))
    a.env.advance(1.0)
    a.add("a")  # nobody waits for one that has not lost yet
    fail(first, cleaned=cleaned)
    again = at_work(Engine(beside, later(a)))
    a.env.advance(1.0)
    before = a.env.monotonic()
    a.add("b")
    assert a.env.monotonic() - before < 1.0

    def lands() -> None:
        again.complete()
        beat(again).unlink()

    txn = a.begin_add("a")
    after(a, 2.0, lands)
    with pytest.raises(ConflictError, match=again.requested):
        txn.commit()
    assert a.env.monotonic() - before >= 2.0
    if cleaned:  # it has landed, so the next attempt of anybody is its first
        at_work(Engine(beside, later(a)))
        a.env.advance(1.0)
        before = a.env.monotonic()
        a.add("a")
        assert a.env.monotonic() - before < 1.0


def test_a_restore_waits_for_every_neighbour_at_work(beside):
    """One has read what the restore takes back, and compares with commits alone: it would bring that back."""
    a = beside.writer("A")
    kept = a.add("b").instant
    a.add("a")
    theirs = inflight(Engine(beside, later(a)))
    with pytest.raises(ConflictError, match=f"restore .* has waited for {theirs.requested} .* would bring it back"):
        a.table.restore(kept)
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}, "nothing was taken back"
    for state in ("inflight", "commit.requested"):
        (theirs.timeline / f"{theirs.requested}.{state}").unlink()
    assert a.table.restore(kept).undone
    assert beside.content() == BEGUN | {"b0": 1, "b1": 1}


def test_nothing_is_imported_into_an_epoch_that_could_not_be_opened(beside, monkeypatch):
    """An import as the first entry of an epoch: what came before would be lost to everybody."""
    a, b = beside.writer("A"), beside.writer("B")
    a.add("a")
    theirs = Engine(beside, later(a))
    a.table.session.log.close_epoch()
    theirs.complete()
    b.env.advance(2.0)
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "_open_epoch", lambda *_: False)
        with pytest.raises(StorageError, match="could not be opened; nothing landed"):
            b.add("b")
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1}
    b.add("b")
    assert imports(beside) == [theirs.requested]
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
    sound(beside)


def test_a_commit_behind_its_instant_stays_out_of_an_epoch_that_could_not_be_opened(beside, monkeypatch):
    """The instant is the commit; the entry is left to the next holder of the lock."""
    a, b = beside.writer("A"), beside.writer("B")
    put_first = CommitLog.put_first

    def then_closed(log: CommitLog, commit: Commit) -> None:
        put_first(log, commit)
        if log is a.table.session.log:
            patch.setattr(CommitLog, "_open_epoch", lambda *_: False)
            other = b.table.session.log
            other.catch_up()
            assert other._insist(
                slot_path(other.epoch, other.next_slot), encode(Close(), other.epoch, other.next_slot, "")
            )

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "put_first", then_closed)
        done = a.add("a")
    assert done.completion
    b.env.advance(2.0)
    b.add("b")
    assert imports(beside) == [done.instant]
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
    sound(beside)


@pytest.mark.parametrize("stays", [False, True], ids=["deleted meanwhile", "listed, and never there"])
def test_a_completed_instant_that_vanishes_before_it_is_read_is_looked_for_again(beside, monkeypatch, stays):
    """Ours was paused there; meanwhile it was rolled back, or others imported it and a restore of theirs took it back."""
    a = beside.writer("A")
    theirs = Engine(beside, later(a))
    theirs.complete()
    (done,) = theirs.timeline.glob(f"{theirs.requested}_*.commit")
    a.env.advance(1.0)
    body = a.table.store.body

    def gone(path: str) -> bytes | None:
        if path.endswith(done.name) and not stays:
            for each in theirs.timeline.glob(f"{theirs.requested}*"):
                each.unlink()
        return None if path.endswith(done.name) else body(path)

    monkeypatch.setattr(a.table.store, "body", gone)
    if stays:
        with pytest.raises(CorruptTableError, match=rf"{done.name} is listed .* a retry is safe"):
            a.add("a")
        assert imports(beside) == []
        return
    a.add("a")
    assert imports(beside) == []
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1}


def half_written(theirs: Engine) -> None:
    theirs.complete()
    (done,) = theirs.timeline.glob(f"{theirs.requested}_*.commit")
    done.write_bytes(done.read_bytes()[:-20])


def of_another_kind(theirs: Engine) -> None:
    completed = next_label(0.0, theirs.requested)
    (theirs.timeline / f"{theirs.requested}_{completed}.reshuffle").write_bytes(b"")


def without_its_body(theirs: Engine) -> None:
    completed = next_label(0.0, theirs.requested)
    (theirs.timeline / f"{theirs.requested}_{completed}.restore").write_bytes(b"")


def changed_properties(theirs: Engine, line: str) -> None:
    with (theirs.timeline.parent / "hoodie.properties").open("a") as stream:
        stream.write(f"\n{line}\n")


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (half_written, "{T}"),
        (of_another_kind, "{T}.*reshuffle"),
        (without_its_body, "{T}.*restore"),
        (lambda theirs: changed_properties(theirs, "hoodie.table.version=7"), "version"),
        (lambda theirs: changed_properties(theirs, "hoodie.table.metadata.partitions=files"), "hoodie.metadata.enable"),
    ],
    ids=["half written", "unknown action", "empty restore", "upgraded", "metadata table"],
)
def test_what_a_neighbour_must_not_do_stops_the_next_of_ours_by_name(beside, act, told):
    a = beside.writer("A")
    a.add("b")
    theirs = inflight(Engine(beside, later(a)))
    act(theirs)
    before = {
        path: path.read_bytes()
        for path in beside.folder.rglob("*")
        if path.is_file() and ".lakelatch" not in path.parts
    }
    a.env.advance(2.0)
    with pytest.raises(lakelatch.LakeLatchError, match=told.replace("{T}", theirs.requested)) as error:
        a.add("a")
    assert not isinstance(error.value, CommitStateUnknownError)
    assert {path: path.read_bytes() for path in before if path.exists()} == before, "nothing was deleted or changed"


def test_behind_a_neighbour_whose_clock_is_ahead_times_go_on_from_its_own(beside):
    a = beside.writer("A")
    theirs = Engine(beside, next_label(a.env.now() + 3600.0, ""))
    theirs.complete()
    txn = a.begin_add("a")
    assert txn.commit().completion > txn.instant > theirs.requested
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1}
    sound(beside)


# Of Hudi 1.2, without what nobody reads here.
RESTORE_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRestorePlan",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "instantsToRollback",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieInstantInfo",
                        "fields": [{"name": "commitTime", "type": "string"}, {"name": "action", "type": "string"}],
                    },
                },
            },
            {"name": "version", "type": "int"},
        ],
    }
)


class Restore:
    """A neighbour that takes commits back, as Hudi does: a plan first, then instants and files, the newest first."""

    def __init__(self, world: World, requested: str, *undone: str) -> None:
        self.world, self.requested, self.undone = world, requested, undone
        self.timeline = world.folder / TIMELINE
        plan = {
            "instantsToRollback": [{"commitTime": each, "action": "commit"} for each in sorted(undone, reverse=True)],
            "version": 2,
        }
        (self.timeline / f"{requested}.restore.requested").write_bytes(encode_container(RESTORE_PLAN, plan))
        (self.timeline / f"{requested}.restore.inflight").touch()

    def complete(self) -> str:
        """Return C."""
        taken = [each for each in self.timeline.iterdir() if each.name.startswith(self.undone)]
        for each in taken:
            each.unlink()
        for each in self.world.folder.glob("part=*/*.parquet"):
            if each.stem.endswith(self.undone):
                each.unlink()
        completed = next_label(0.0, self.requested)
        instants = [Instant(each, "commit", "completed") for each in sorted(self.undone, reverse=True)]
        body = encode_restore(instants, started=self.requested, took_ms=1)
        (self.timeline / f"{self.requested}_{completed}.restore").write_bytes(body)
        return completed


def test_a_restore_of_a_neighbour_is_imported(beside):
    a, b = beside.writer("A"), beside.writer("B")
    kept = a.add("b").instant
    gone = [a.add("a").instant, b.add("a").instant]
    began_before = b.begin_add("b")
    theirs = Restore(beside, later(a), *gone)
    completed = theirs.complete()
    assert beside.content() == BEGUN | {"b0": 1, "b1": 1}, "readers follow the timeline"
    a.env.advance(1.0)
    a.add("a", 7)
    assert imports(beside) == [theirs.requested]
    with pytest.raises(ConflictError, match=f"RESTORE {theirs.requested} of another engine"):
        began_before.commit()
    b.add("b")
    assert beside.content() == BEGUN | {"a0": 7, "a1": 7, "b0": 2, "b1": 2}
    with beside.fresh() as table:
        log = table.session.log
        assert [log.outcome(each) for each in (kept, *gone, theirs.requested)] == [
            "commit",
            "undone",
            "undone",
            "commit",
        ]
        (entry,) = [e for e in log.entries() if isinstance(e, Commit) and e.imported]
        assert (entry.completion, entry.action, len(entry.undone)) == (completed, "restore", 2)
    sound(beside)


@pytest.mark.parametrize("neighbours", ["hudi", "none"])
def test_readers_see_no_overwrite_that_a_restore_of_another_engine_takes_back(tmp_path, neighbours):
    """The log has it until the next writer imports the restore, and a timeline is completed from the log."""
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", neighbours=neighbours)
    a, reader = world.writer("A"), world.writer("R")
    with a.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "a", "a9")
    assert content(reader.table) == {"a9": 1, "b0": 0, "b1": 0}
    theirs = Restore(world, later(a), txn.instant)
    reader.env.advance(2.0)
    for table in (reader.table, world.fresh()):
        assert content(table) == BEGUN, "while it is under way"
    theirs.complete()
    reader.env.advance(2.0)
    for table in (reader.table, world.fresh()):
        assert content(table) == BEGUN
    world.close()


def test_an_echo_that_a_neighbour_has_taken_back_stays_away(beside):
    """A commit with new columns that began before another has landed repeats its schema under a T of its own."""
    a, b = beside.writer("A"), beside.writer("B")
    early = begin_wide(a)
    late = b.add("b").instant
    early.commit()
    (landed,) = [each for each in writes(a.table) if each.echo]
    Restore(beside, later(a), early.instant, late, landed.echo.partition("_")[0]).complete()
    a.env.advance(1.0)
    a.add("a", 4)
    c = beside.writer("C")  # looks at the whole epoch, as each new handle does
    c.add("b", 4)
    assert beside.content() == BEGUN | {"a0": 4, "a1": 4, "b0": 4, "b1": 4}
    assert not (beside.folder / TIMELINE / landed.echo).exists()
    sound(beside)


def test_nothing_lands_beside_a_restore_of_a_neighbour(beside):
    """Its plan names what it takes back, and not what lands since: that would stand on files which are gone."""
    a = beside.writer("A")
    gone = a.add("a").instant
    theirs = Restore(beside, later(a), gone)
    a.env.advance(1.0)
    txn = a.begin_add("a")
    with pytest.raises(
        ConflictError, match=f"for restore {theirs.requested} of another engine in vain.*run it again there"
    ):
        txn.commit()
    txn = a.begin_add("a")
    after(a, 2.0, theirs.complete)
    before = a.env.monotonic()
    with pytest.raises(ConflictError, match=f"RESTORE {theirs.requested} of another engine"):
        txn.commit()
    assert a.env.monotonic() - before >= 2.0
    a.table.run(lambda txn: add(txn, "a", 3))
    assert beside.content() == BEGUN | {"a0": 3, "a1": 3}
    sound(beside)


def test_a_restore_of_ours_whose_request_arrives_when_the_log_has_forgotten_it_holds_nobody_up(beside):
    """Theirs puts its plan into its request; ours is empty."""
    a = beside.writer("A")
    a.add("a")
    requested = beside.folder / TIMELINE / f"{later(a)}.restore.requested"
    requested.touch()
    a.env.advance(1.0)
    with pytest.raises(ConflictError, match=r"restore .* of another engine in vain"):  # one of theirs may be writing it
        a.add("a", 4)
    os.utime(requested, (a.env.now() - 20, a.env.now() - 20))
    a.add("a", 4)
    assert beside.content() == BEGUN | {"a0": 5, "a1": 5}


@pytest.mark.parametrize("reader", ["own", "warm", "cold", "of the next epoch"])
def test_every_handle_reads_what_has_landed_although_the_log_could_not_take_it(beside, tmp_path, reader):
    a, b, two = beside.writer("A"), beside.writer("B"), World(tmp_path / "two").writer("C")
    a.table.read().to_arrow()
    txn = a.begin_add("a")
    b.add("b")
    if reader == "of the next epoch":
        b.table.session.log.close_epoch()
    for _ in range(3):
        b.env.advance(2.0)  # it looks at the timeline again
        assert content(b.table) == BEGUN | {"b0": 1, "b1": 1}
    a.store.add(Refuse(On("put_if_absent", "/log/"), errno=errno.ENOSPC, forever=True))
    assert txn.commit() is not None
    with beside.fresh() as fresh:
        table = {"own": a.table, "cold": fresh}.get(reader, b.table)
        for _ in range(3):
            assert content(table) == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
            cut = lakelatch.read_together(table, two.table).read(table).to_pylist()
            assert {row["id"]: row["v"] for row in cut} == content(table)
            b.env.advance(2.0)
    a.store.reset()
    b.add("b")  # imports it
    assert content(a.table) == content(b.table) == BEGUN | {"a0": 1, "a1": 1, "b0": 2, "b1": 2}
    sound(beside)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda table: table.upsert([{"id": "a0", "part": "a", "v": 7}]), BEGUN | {"a0": 7}),
        (lambda table: table.insert([{"id": "new", "part": "a", "v": 7}]), BEGUN | {"new": 7}),
        (lambda table: table.delete([{"id": "a0", "part": "a"}]), {each: 0 for each in BEGUN if each != "a0"}),
        (lambda table: table.update_where("v = 0", {"v": 9}), dict.fromkeys(BEGUN, 9)),
    ],
    ids=["upsert", "insert", "delete", "update_where"],
)
def test_whichever_write_is_the_first_that_finds_the_disk_full_all_handles_tell_of_one_state(tmp_path, change, wanted):
    for number in count(1):
        world = World(tmp_path / f"{number}", lock=f"file://{tmp_path}/lock?jvm=lock", neighbours="hudi")
        a, b = world.writer("A"), world.writer("B")
        assert content(a.table) == content(b.table) == BEGUN
        a.store.reset()
        a.store.add(Refuse(From(number, WRITES), errno=errno.ENOSPC, forever=True))
        possible = [wanted]
        try:
            change(a.table)
        except CommitStateUnknownError:
            possible.append(BEGUN)
            b.env.advance(1.1)
        except LakeLatchError:
            possible = [BEGUN]
        struck = len(a.store.calls) >= number
        a.store.reset()
        there = content(b.table)
        assert there == world.content()
        assert there in possible
        b.env.advance(60.0)
        b.add("b", 100)
        assert content(a.table) == content(b.table) == {each: v + 100 * (each[0] == "b") for each, v in there.items()}
        sound(world)
        world.close()
        if not struck:
            break


def test_no_service_of_ours_lands_beside_one_either(beside):
    a = beside.writer("A")
    gone = a.add("a").instant
    a.add("a")
    theirs = Restore(beside, later(a), gone)
    a.env.advance(1.0)
    with pytest.raises(ConflictError, match=f"restore {theirs.requested} of another engine"):
        a.table.savepoint(gone)
    theirs.complete()


def clustering(world: World, requested: str, partition: str) -> Callable[[], None]:
    """Plan one as another engine does, and return what completes it: the rows as they were then, in a new file group."""
    timeline = world.folder / TIMELINE
    with world.fresh() as table:
        (old,) = table.snapshot().file_slices(partition)
    group = {"partition": partition, "files": [old.path.rpartition("/")[2]]}
    plan = encode_clustering_plan({"groups": [group]}, uri=lambda path: f"{world.folder}/{path}")
    (timeline / f"{requested}.clustering.requested").write_bytes(plan)
    (timeline / f"{requested}.clustering.inflight").touch()
    new = f"{uuid4()}-0"
    path = f"{partition}/{new}_0-0-0_{requested}.parquet"
    shutil.copy(world.folder / old.path, world.folder / path)

    def complete() -> None:
        size = (world.folder / path).stat().st_size
        stats = (WriteStat(new, path, partition, "null", file_size=size, num_writes=2),)
        metadata = CommitMetadata("CLUSTER", stats=stats, replaced={partition: (old.file_id,)})
        completed = next_label(0.0, requested)
        body = encode_commit(metadata, replace=True)
        (timeline / f"{requested}_{completed}.replacecommit").write_bytes(body)

    return complete


@pytest.mark.parametrize("first", ["ours", "theirs"], ids=["ours began before the plan", "and after it"])
@pytest.mark.parametrize("verb", ["upsert", "overwrite"])
def test_ours_does_not_land_in_a_file_group_that_a_neighbour_clusters(beside, first, verb):
    """It would complete without a look at ours, and put the rows of its plan in the place of these."""

    def begin():
        txn = a.table.transaction("insert_overwrite" if verb == "overwrite" else "upsert")
        rows = [{"id": "a0", "part": "a", "v": 5}]
        txn.overwrite(rows) if verb == "overwrite" else txn.upsert(rows)
        return txn

    a = beside.writer("A")
    a.add("a")
    txn = begin() if first == "ours" else None
    complete = clustering(beside, later(a), "part=a")
    a.env.advance(1.0)
    txn = txn or begin()
    a.add("b")  # another file group
    with pytest.raises(ConflictError, match=r"waited for clustering \d+ of another engine in vain.*run it there"):
        txn.commit()
    txn = begin()
    after(a, 2.0, complete)
    with pytest.raises(ConflictError, match=r"CLUSTER .* of another engine"):
        txn.commit()
    begin().commit()
    expected = {"a0": 5} if verb == "overwrite" else {"a0": 5, "a1": 1}
    assert beside.content() == {"b0": 1, "b1": 1} | expected
    sound(beside)


def test_a_plan_of_a_neighbour_is_executed_by_ours_unless_it_executes_it_itself(beside):
    a = beside.writer("A")
    a.add("a")
    planned = later(a)
    clustering(beside, planned, "part=a")
    a.env.advance(1.0)
    with pytest.raises(InputError, match=f"the plan {planned} of another engine is executed there; nothing was begun"):
        a.table.execute(planned)
    (beside.folder / TIMELINE / f"{planned}.clustering.inflight").unlink()
    for each in beside.folder.glob(f"part=a/*{planned}.parquet"):
        each.unlink()  # of its execution
    a.add("b")
    assert a.table.execute(planned).mine
    assert beside.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
    with pytest.raises(InputError, match="it has been executed"):
        a.table.execute(planned)
    a.add("a")
    sound(beside)


def test_a_plan_of_a_neighbour_that_is_older_than_the_log_is_left_to_it(tmp_path):
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", neighbours="hudi")
    a = world.writer("A", epoch_slots=6)
    planned = later(a)
    clustering(world, planned, "part=a")
    (world.folder / TIMELINE / f"{planned}.clustering.inflight").unlink()
    epoch = a.table.session.log.epoch
    while a.table.session.log.epoch == epoch:
        a.env.advance(1.0)
        a.add("b")
    a.add("b")
    with pytest.raises(InputError, match=f"clustering {planned} of another engine is older than .* run it there"):
        a.table.execute(planned)
    world.close()


def test_the_batch_before_a_restore_of_a_neighbour_is_the_newest_again(beside):
    a = beside.writer("A")

    def load(number: int) -> str:
        with a.table.transaction("upsert", batch=("loader", number)) as txn:
            add(txn, "a")
        return txn.instant

    load(1)
    gone = [load(2), load(3)]
    Restore(beside, later(a), *gone).complete()
    a.env.advance(1.0)
    a.add("b")
    assert a.table.last_batch("loader") == 1
    load(2)
    with pytest.raises(lakelatch.BatchLandedError):
        load(1)
    sound(beside)


def committed(writer: Writer, lock: str) -> TableLease:
    """A lease given back behind a commit, with a lock that is beside the table or a service."""
    session = writer.table.session
    lease, ours = session.lease("test"), session.settings
    if lock == "service":  # any lock but a file's: the hosts' clocks differ
        session.log.state.settings = replace(ours, lock="zk://127.0.0.1/locks?key=flights")
    session.keep_for_clocks(lease, next_label(writer.env.now(), "0" * 17))
    session.log.state.settings = ours
    lease.release()
    return lease


def holder(writer: Writer) -> object:
    """Who holds the lock."""
    provider, key = writer.table.session.lock.provider()
    return provider.inspect(key)


@pytest.mark.parametrize(("lock", "waits_s"), [("file", 0.0), ("service", 0.2)])
def test_the_lock_is_kept_until_no_clock_of_another_host_can_be_before_c(beside, lock, waits_s):
    """A neighbour whose clock is behind would commit with a smaller C, which readers at a checkpoint pass over."""
    a = beside.writer("A")
    committed(a, lock)
    before = a.env.monotonic()
    assert (holder(a) is None) == (waits_s == 0.0)
    a.env.advance(0.0)  # what waits runs
    assert a.env.monotonic() - before == pytest.approx(waits_s, abs=0.002)
    assert holder(a) is None


def test_the_next_of_ours_goes_on_with_a_kept_lease_and_for_a_second_at_most(beside):
    a = beside.writer("A")
    before, first = a.env.monotonic(), committed(a, "service")
    while committed(a, "service") is first:
        assert a.env.monotonic() - before <= 1.0
        a.env.suspend(0.15)
    assert 1.0 < a.env.monotonic() - before < 1.5


def test_two_commits_under_one_lease_have_its_token(beside):
    a = beside.writer("A")
    committed(a, "service")
    a.add("a")
    a.add("b")
    assert len({entry.token for entry in writes(a.table)[-2:]}) == 1
    sound(beside)


def test_a_kept_lease_is_not_gone_on_with_once_the_lock_was_changed(beside):
    a = beside.writer("A")
    first, log = committed(a, "service"), a.table.session.log
    log.state.settings = replace(log.state.settings, generation=log.state.settings.generation + 1)
    assert a.table.session.lease("test") is not first


def test_a_handle_that_is_closed_gives_a_kept_lease_back(beside):
    a, b = beside.writer("A"), beside.writer("B")
    committed(a, "service")
    assert holder(b) is not None
    a.table.close()
    assert holder(b) is None


def test_an_imported_commit_keeps_its_batch(beside):
    d = beside.writer("D")
    txn = d.table.transaction("upsert", batch=("loader", 7))
    add(txn, "a")
    d.store.add(Refuse(On("put_if_absent", ".hoodie/.lakelatch/log"), forever=True))
    txn.commit()
    d.die()
    a = beside.writer("A")
    with pytest.raises(lakelatch.BatchLandedError):
        a.table.transaction("upsert", batch=("loader", 7))


def test_the_completed_instant_is_on_disk_before_its_log_entry(beside):
    flushed: list[str] = []

    def flush(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
        os.fsync(handle)

    a = beside.writer("A", flush=flush)
    txn = a.begin_add("a")
    flushed.clear()
    txn.commit()
    log = next(n for n, path in enumerate(flushed) if "/.lakelatch/log/" in path)
    assert any(path.endswith(TIMELINE) for path in flushed[:log])


@pytest.mark.parametrize("service", ["savepoint", "clean", "restore"])
def test_the_next_writer_publishes_a_service_whose_writer_died_after_its_entry(beside, service):
    d = beside.writer("D", host="host-d")
    for _ in range(3):
        d.add("a")
    state = d.table.timeline().commits[-2].requested
    kept = d.table.savepoint(state) if service == "restore" else None

    def completed(call: Call) -> bool:
        name = call.path.removeprefix(f"{TIMELINE}/")
        return call.op == "put_if_absent" and name.endswith(f".{service}") and "_" in name

    d.store.add(Refuse(completed, forever=True))
    run = {
        "savepoint": d.table.savepoint,
        "clean": lambda: d.table.clean(retain_commits=1),
        "restore": lambda: d.table.restore(kept.instant),
    }
    with pytest.raises(CommitStateUnknownError):
        run[service]()
    d.die()
    a = beside.writer("A")
    a.add("b")
    assert [each for each in a.table.timeline().completed if each.action == service]
    assert beside.content()["a0"] == (2 if service == "restore" else 3)
    a.table.rollback_failed_writes()  # also removes files that a restore has taken back
    sound(beside)


def test_the_mode_comes_and_goes_while_writers_run(tmp_path):
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0)
    a, b = world.writer("A"), world.writer("B")
    txn = b.begin_add("b")
    with pytest.raises(CommitError, match=f"(?i)upsert {txn.instant} of B"):
        a.table.change_settings(neighbours="hudi")
    txn.commit()
    a.table.change_settings(neighbours="hudi")
    theirs = Engine(world, later(a))
    theirs.complete()
    b.add("a")
    a.add("a")
    assert imports(world) == [theirs.requested]
    a.table.change_settings(neighbours="none")
    b.add("b")
    assert content(world.fresh()) == BEGUN | {"a0": 2, "a1": 2, "b0": 2, "b1": 2}
    sound(world)
    world.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"neighbours": "delta"},
        {"neighbours": "hudi"},
        {"neighbours": "hudi", "group_commit": True, "lock": "zookeeper://h/locks?key=k"},
        {"neighbours": "hudi", "merge": {"v": "sum"}, "lock": "zookeeper://h/locks?key=k"},
    ],
)
def test_settings_that_do_not_go_with_neighbours_are_refused(tmp_path, wrong):
    with pytest.raises(ConfigError, match="neighbours"):
        lakelatch.create(str(tmp_path / "t"), record_key="id", **wrong)


def test_an_import_is_written_and_read_back(beside):
    a = beside.writer("A")
    theirs = Engine(beside, later(a))
    theirs.complete()
    a.add("b")
    with beside.fresh() as table:
        table.session.log.catch_up()
        assert [e for e in table.session.log.entries() if isinstance(e, Commit) and e.imported]
    assert issubclass(Import, GroupCommit)


def test_an_epoch_closes_with_imports_in_it(tmp_path):
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0, neighbours="hudi")
    a = world.writer("A", epoch_slots=6)
    for _ in range(6):
        Engine(world, later(a)).complete()
        a.env.advance(1.0)
        a.add("a")
    with world.fresh() as table:
        assert table.session.log.catch_up()
        assert table.session.log.epoch > 1
    assert world.content() == BEGUN | {"a0": 6, "a1": 6}
    sound(world)
    world.close()


def next_epoch(writer: Writer) -> None:
    log = writer.table.session.log
    now = log.epoch
    while log.epoch == now or log.state.closed:
        writer.add("b")


def test_one_that_was_pending_at_the_close_is_imported_once_however_small_its_c(tmp_path):
    """Its C may be from before the close: it is taken before the put, and its writer may be paused in between."""
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0, neighbours="hudi")
    a = world.writer("A", epoch_slots=6)
    theirs = inflight(Engine(world, later(a)))
    completed = next_label(a.env.now() + 0.5, theirs.requested)
    a.env.advance(1.0)
    next_epoch(a)
    assert a.table.session.log.state.pending == (theirs.requested,)
    size = (world.folder / theirs.path).stat().st_size
    stat = WriteStat(theirs.read.file_id, theirs.path, "part=a", theirs.read.instant, file_size=size, num_writes=2)
    body = encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)
    (theirs.timeline / f"{theirs.requested}_{completed}.commit").write_bytes(body)
    assert completed < a.table.session.log.state.top
    b = world.writer("B", epoch_slots=6)
    b.add("c")
    a.add("c")
    next_epoch(a)
    b.add("c")
    assert imports(world) == [theirs.requested]
    sound(world)
    world.close()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("theirs_do", ["nothing", "begin", "commit"])
def test_a_commit_is_not_acknowledged_if_a_neighbour_acted_while_both_had_the_lock(
    beside, monkeypatch, theirs_do, full
):
    """A JVM creates its lock file in two steps, so one that is paused between them takes ours for its own."""
    a, lock = beside.writer("A"), beside.folder.parent / "lock/lock"
    txn = a.begin_add("a")
    acted = []

    def both(log, commit):
        lock.write_bytes(b"")
        if theirs_do != "nothing":
            acted.append(Engine(beside, next_label(a.env.now(), commit.completion)))
        if theirs_do == "commit":
            acted[0].complete()
        put(log, commit)
        lock.unlink()
        if full:  # its entry, which follows, is refused
            a.store.add(Refuse(On("put_if_absent", "/log/"), errno=errno.ENOSPC, forever=True))

    put = CommitLog.put_first
    monkeypatch.setattr(CommitLog, "put_first", both)
    if theirs_do == "nothing":
        assert txn.commit() is not None
    else:
        with pytest.raises(CommitStateUnknownError, match="another engine came in with") as raised:
            txn.commit()
        assert acted[0].requested in str(raised.value)
        assert raised.value.instant == txn.instant
    a.store.reset()
    with beside.fresh() as table:
        assert fate(table, txn.instant) == ["begin"] + ([] if full else ["commit"])
        assert txn.instant in [each.requested for each in table.timeline().commits]


@pytest.mark.parametrize("part", ["a", "b"])
def test_a_commit_of_ours_whose_entry_could_not_be_appended_may_have_inserted_any_key(beside, part):
    """Its import knows its files, and not the hashes of its new keys."""
    a, b = beside.writer("A"), beside.writer("B")
    one, two = a.table.transaction("upsert"), b.table.transaction("upsert")
    insert(one, part, "new")
    insert(two, "a", "new")
    b.store.add(Refuse(On("put_if_absent", "/log/"), errno=errno.ENOSPC, forever=True))
    assert two.commit() is not None
    b.store.reset()
    if part == "a":
        with pytest.raises(ConflictError):
            one.commit()
    else:
        assert one.commit() is not None
    with beside.fresh() as table:
        keys = [(row["id"], row["part"]) for row in table.read().to_pylist()]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("there", [True, False])
def test_who_is_interrupted_while_its_instant_is_put_takes_nothing_back(beside, monkeypatch, there, error):
    a = beside.writer("A")
    txn = a.begin_add("a")

    def interrupted(log, commit):
        if there:
            put(log, commit)
        raise error

    put = CommitLog.put_first
    monkeypatch.setattr(CommitLog, "put_first", interrupted)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else CommitStateUnknownError) as raised:
        txn.commit()
    assert txn.instant in str((raised.value, getattr(raised.value, "__notes__", "")))
    assert "nothing landed" not in str(raised.value.__notes__)
    monkeypatch.undo()
    b = beside.writer("B")
    b.add("b")
    if not there:
        a.die()
        assert b.table.rollback_failed_writes(wait=True) == [txn.instant]
    assert beside.content() == BEGUN | {"b0": 1, "b1": 1} | ({"a0": 1, "a1": 1} if there else {})
    sound(beside)
