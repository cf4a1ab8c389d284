"""Early conflict detection while a transaction works: it stops when it cannot land, says to whom, and never without a reason.

A `Pause` in the store lets the rival act at one moment of the victim's work.
"""

from __future__ import annotations

import os
import pickle
import random

import pyarrow as pa
import pytest

from lakelatch.errors import ConflictError, RolledBackError
from lakelatch.hudi.timeline import next_label
from lakelatch.occ.liveness.heartbeat import HEARTBEATS, heartbeat_path
from lakelatch.occ.liveness.markers import MARKERS, list_markers
from lakelatch.occ.turns.early_conflicts import ConflictWatcher
from lakelatch.testing.faults import On, Pause, Refuse

from ...mutants import instead
from ...thorough import some
from ..world import SCHEMA, World, Writer, check_sound, commits, entries, insert, overwrite, rows

PARTS = tuple("cdefgh")


@pytest.fixture
def wide(make_world):
    """A table with eight partitions of one file group each; what two change is not merged again unless it says so."""

    def make(**settings) -> tuple[World, Writer, Writer]:
        world = make_world(early_conflict_detection="direct", **{"rebase": False, **settings})
        with world.writer("founder").table.transaction("insert") as txn:
            for part in PARTS:
                insert(txn, part, f"{part}0", v=0)
        return world, world.writer("rival"), world.writer("victim")

    return make


def everywhere(txn, v: int) -> None:
    """One row in each file group, in the order of the partitions."""
    ids = [f"{part}0" for part in PARTS]
    txn.upsert(pa.table({"id": ids, "part": list(PARTS), "v": [v] * len(ids)}, schema=SCHEMA))


def at_file(victim: Writer, number: int, act) -> None:
    """Let the rival act before the victim's file of that number, when its marker is about to stand."""
    seen = []

    def once() -> None:
        seen.append(None)
        if len(seen) == number:
            act()

    victim.store.add(Pause(On("put_if_absent", MARKERS), once, forever=True))


def files_of(world: World, txn) -> list[str]:
    with world.fresh() as table:
        return [
            f"{folder}/{name}"
            for folder in table.store.folders("")
            if not folder.startswith(".")
            for name in table.store.names(folder)
            if txn in name
        ]


# --- one that goes first is at work ------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [1, 3, 6])
def test_the_younger_one_stops_when_the_older_ones_marker_stands(wide, moment):
    """Wherever that marker is: in a file group that it has written, or one that it would come to last."""
    world, rival, victim = wide()
    older = rival.table.transaction()
    younger = victim.table.transaction()
    at_file(victim, moment, lambda: older.upsert(rows("h" if moment < 6 else "c", {("h0" if moment < 6 else "c0"): 5})))
    with pytest.raises(ConflictError, match="gave way") as lost, younger:
        everywhere(younger, 1)
    error = pickle.loads(pickle.dumps(lost.value))
    assert (error.winner, error.winner_writer, error.early) == (older.instant, "rival", True)
    assert [each.partition("/")[0] for each in error.overlap] == ["part=h" if moment < 6 else "part=c"]
    assert (error.saved_bytes > 0) is (moment < 6)
    assert not files_of(world, younger.instant)
    older.commit()
    with world.fresh() as table:
        check_sound(table)
    assert sum(world.content().values()) == 5


def test_how_much_is_saved_is_said(wide):
    _world, rival, victim = wide()
    older = rival.table.transaction()
    younger = victim.table.transaction()
    at_file(victim, 2, lambda: older.upsert(rows("h", {"h0": 5})))
    with pytest.raises(ConflictError) as lost:
        everywhere(younger, 1)
    left = {slice_.partition: slice_.total_size for slice_ in older.snapshot.file_slices()}
    assert lost.value.saved_bytes == sum(
        size for part, size in left.items() if part[5:] in PARTS and part not in {"part=c", "part=d"}
    )
    assert f"{lost.value.saved_bytes:,} bytes" in str(lost.value)


def test_what_can_be_merged_again_never_stops_for_one_that_is_open(wide):
    world, rival, victim = wide(rebase=True)
    older, younger = rival.table.transaction(), victim.table.transaction()
    at_file(victim, 3, lambda: older.upsert(rows("h", {"h1": 5})))
    everywhere(younger, 1)
    older.commit()
    younger.commit()
    assert world.content() | {"h1": 5} == world.content()
    assert sum(world.content().values()) == 5 + len(PARTS)


def test_a_smaller_priority_stops_for_a_larger_one_that_began_later(wide):
    _world, rival, victim = wide(strategy="priority")
    rival.table.session.priority = 3
    mine = victim.table.transaction()
    held = rival.table.transaction()
    at_file(victim, 2, lambda: held.upsert(rows("c", {"c0": 5})))
    with pytest.raises(ConflictError, match="gave way"), mine:
        everywhere(mine, 1)
    held.commit()


def test_files_that_a_writer_fills_itself_are_looked_at(wide):
    """Nothing is known of what it will write, so it stops at what it has begun."""
    _world, rival, victim = wide()
    older, younger = rival.table.transaction(), victim.table.transaction()
    slices = {each.partition: each for each in younger.snapshot.file_slices()}
    older.upsert(rows("d", {"d0": 5}))

    def fill(part: str) -> None:
        younger.rewrite(slices[f"part={part}"]).write(rows(part, {f"{part}0": 1}))

    fill("c")
    with pytest.raises(ConflictError, match="gave way"):
        fill("d")
    younger.abort()
    older.commit()


@pytest.mark.parametrize("how", ["process", "heartbeat"])
def test_markers_of_the_dead_do_not_count(wide, how):
    """Also before anybody has rolled them back, and by a handle that has never watched them."""
    world, rival, victim = wide()
    older = rival.table.transaction()
    older.upsert(rows("h", {"h0": 5}))
    if how == "process":
        rival.die()
    else:
        beat = world.folder / heartbeat_path(older.instant)
        os.utime(beat, (beat.stat().st_mtime - 3600,) * 2)
    younger = victim.table.transaction()
    everywhere(younger, 1)
    assert younger.commit()
    assert sum(world.content().values()) == len(PARTS)


# --- one has landed ----------------------------------------------------------------------------------------------


def test_it_stops_when_one_that_landed_makes_it_lose(wide):
    """However young that one is."""
    world, rival, victim = wide()
    mine, theirs = victim.table.transaction(), rival.table.transaction()
    theirs.upsert(rows("c", {"c0": 5}))
    at_file(victim, 2, theirs.commit)
    with pytest.raises(ConflictError, match="landed first: both changed the same file group") as lost, mine:
        everywhere(mine, 1)
    assert lost.value.winner == commits(rival.table)[-1].instant
    assert not files_of(world, mine.instant)
    with world.fresh() as table:
        assert table.why(mine.instant).winner.instant == lost.value.winner


def test_a_conflict_that_no_merge_mends_stops_what_can_be_merged(wide):
    world, rival, victim = wide(rebase=True)
    mine = victim.table.transaction()

    def replace() -> None:
        with rival.table.transaction("insert_overwrite") as txn:
            overwrite(txn, "c", "c9", v=5)

    at_file(victim, 3, replace)
    with pytest.raises(ConflictError, match="landed first"), mine:
        everywhere(mine, 1)
    assert sum(world.content().values()) == 5


def test_commits_elsewhere_and_inserts_stop_nobody(wide):
    world, rival, victim = wide()
    mine = victim.table.transaction()

    def beside() -> None:
        rival.table.run(lambda txn: txn.upsert(rows("a", {"a0": 5})))
        rival.insert("c", "c7", v=5)

    at_file(victim, 2, beside)
    everywhere(mine, 1)
    assert mine.commit()
    assert sum(world.content().values()) == len(PARTS) + 10


# --- the known faults of Hudi's detection ------------------------------------------------------------------------


def test_hudi_8057_a_commit_is_compared_by_partition_and_file_id(wide):
    """There, the server compares "partition/file id" with bare file ids, and direct markers leave the partition out."""
    _world, rival, victim = wide()
    same = "5a3e0000-0000-4000-8000-000000000000-0"
    with rival.table.transaction("insert") as txn:
        for part in "xy":
            txn.new_file(f"part={part}", file_id=same).write(rows(part, {f"{part}9": 0}))
    for theirs, stops in (("y", False), ("x", True)):
        mine, younger = victim.table.transaction(), rival.table.transaction()
        younger.upsert(rows(theirs, {f"{theirs}9": 2}))
        mine.upsert(rows("x", {"x9": 1}))
        younger.commit()
        mine.watcher.look()
        if stops:
            with pytest.raises(ConflictError, match=f"part=x/{same}"):
                mine.watcher.refuse_if_beaten()
        else:
            mine.watcher.refuse_if_beaten()
        mine.abort()


def test_hudi_12522_who_was_ended_works_no_further(wide):
    """There, a job whose heartbeat was dead after eleven minutes learned it after ten hours, at its commit."""
    world, _rival, victim = wide()
    mine = victim.table.transaction()

    def end() -> None:
        with world.fresh() as table:
            begin = table.session.log.catch_up().open[mine.instant]
            assert table.session.cleaner.roll_back(begin, reason="its heartbeat stopped")

    at_file(victim, 2, end)
    with pytest.raises(RolledBackError), mine:
        everywhere(mine, 1)
    written = [call for call in victim.store.calls if call.op == "publish"]
    assert len(written) <= 2
    assert not files_of(world, mine.instant)


def looks_before_its_marker():
    """As Hudi does: the look, under a lock that is given back, and then the marker."""
    real = ConflictWatcher.announcing

    def announcing(self, group):
        from contextlib import contextmanager

        @contextmanager
        def early():
            with real(self, group):
                pass
            yield

        return early()

    return instead(ConflictWatcher, "announcing", announcing)


@pytest.mark.parametrize("fault", [False, True])
def test_hudi_section_5_nobody_comes_between_the_look_and_the_marker(wide, fault):
    """There, the lock is given back before the marker exists: both look, see nothing, and both write the last file."""
    _world, rival, victim = wide()
    older, younger = rival.table.transaction(), victim.table.transaction()
    slices = {each.partition: each for each in younger.snapshot.file_slices()}
    at_file(victim, 1, lambda: older.upsert(rows("c", {"c0": 5})))
    if fault:
        with looks_before_its_marker():
            younger.rewrite(slices["part=c"]).write(rows("c", {"c0": 1}))  # unnoticed
    else:
        with pytest.raises(ConflictError, match="gave way"):
            younger.rewrite(slices["part=c"]).write(rows("c", {"c0": 1}))


# --- other engines -----------------------------------------------------------------------------------------------


def engine_at_work(world: World, path: str, *, form: str, ago_s: float = 3600, silent_s: float = 0) -> str:
    """A JVM writer that has announced this file."""
    env = world.env
    instant = next_label(env.now() - ago_s, "")
    for name in (f".hoodie/timeline/{instant}.commit.requested", f".hoodie/timeline/{instant}.inflight"):
        (world.folder / name).write_bytes(b"")
    folder = world.folder / MARKERS / instant
    folder.mkdir(parents=True)
    name = f"{path.rpartition('_')[0]}_{instant}.parquet.marker.MERGE"
    if form == "direct":
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"")
    else:
        (folder / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
        other = "part=zz/00000009-0-0-0-0_0-1-2_x.parquet.marker.CREATE"
        (folder / "MARKERS0").write_text(f"{other},{name}" if form == "joined" else f"{other}\n{name}\n")
    beat = world.folder / HEARTBEATS / instant
    beat.write_bytes(b"")
    os.utime(beat, (beat.stat().st_mtime - silent_s,) * 2)
    return instant


@pytest.mark.parametrize("form", ["direct", "lines", "joined"])
def test_markers_of_a_jvm_writer_count_in_each_of_their_forms(wide, form):
    world, _rival, victim = wide()
    path = next(each.path for each in victim.table.snapshot().file_slices("part=d"))
    engine = engine_at_work(world, path, form=form)
    mine = victim.table.transaction()
    with pytest.raises(ConflictError, match="another engine") as lost, mine:
        everywhere(mine, 1)
    assert lost.value.winner == engine
    assert lost.value.overlap[0].startswith("part=d/")


@pytest.mark.parametrize("why", ["silent", "younger", "elsewhere", "service", "can be merged"])
def test_a_jvm_writer_that_is_no_rival_does_not_count(wide, why):
    world, _rival, victim = wide(rebase=why == "can be merged")
    path = next(each.path for each in victim.table.snapshot().file_slices("part=d"))
    engine = engine_at_work(
        world,
        path.replace("part=d", "part=q") if why == "elsewhere" else path,
        form="lines",
        silent_s=300 if why == "silent" else 0,
        ago_s=-3600 if why == "younger" else 3600,
    )
    if why == "service":
        for state in ("commit.requested", "inflight"):
            (world.folder / f".hoodie/timeline/{engine}.{state}").unlink()
        (world.folder / f".hoodie/timeline/{engine}.clustering.inflight").write_bytes(b"")
    mine = victim.table.transaction()
    everywhere(mine, 1)
    mine.watcher.refuse_if_beaten()
    mine.abort()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n\n,,\n",
        b"\xff\xfe\x00",
        b"no marker at all",
        b".marker.MERGE",
        b"../../x.marker.MERGE\n",
        b"a" * 100_000,
    ],
)
def test_a_torn_list_of_markers_is_read_as_far_as_it_goes(wide, body):
    world, _rival, victim = wide()
    path = next(each.path for each in victim.table.snapshot().file_slices("part=d"))
    engine = engine_at_work(world, path, form="lines")
    (world.folder / MARKERS / engine / "MARKERS1").write_bytes(body)
    paths = [each.path for each in list_markers(victim.table.store, engine)]
    assert any(each.startswith("part=d/") for each in paths)
    mine = victim.table.transaction()
    with pytest.raises(ConflictError, match="another engine"), mine:
        everywhere(mine, 1)


# --- faults and costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["list", "folders", "names", "body"])
def test_what_cannot_be_read_ends_nothing(wide, what):
    """Each look at markers, heartbeats or the folder of markers, refused one after another until the write needs it no more."""
    world, rival, victim = wide()
    older = rival.table.transaction()
    older.upsert(rows("h", {"h0": 5}))
    for part in (MARKERS, HEARTBEATS):
        victim.store.reset()
        mine = victim.table.transaction()
        victim.store.add(Refuse(On(what, part), forever=True))
        try:
            everywhere(mine, 1)
        except ConflictError as e:  # it could be read all the same
            assert "gave way" in str(e)  # noqa: PT017
        victim.store.reset()
        mine.abort()
    older.commit()
    assert sum(world.content().values()) == 5


@pytest.mark.parametrize("rebase", [True, False])
def test_off_costs_no_request(make_world, rebase):
    """Neither alone nor beside others; and what a lone writer pays for it."""
    asked = {}
    for mode in ("off", "direct"):
        world = make_world(early_conflict_detection=mode, rebase=rebase)
        writer, other = world.writer("writer"), world.writer("other")
        for case in ("first", "alone", "beside"):
            if case == "beside":
                other.table.transaction().upsert(rows("b", {"b1": 3}))
            mine = writer.table.transaction()
            writer.store.calls.clear()
            mine.upsert(rows("a", {"a0": 5}))
            asked[mode, case] = [(call.op, call.path.partition("/")[0]) for call in writer.store.calls]
            mine.commit()
    assert asked["off", "alone"] == asked["off", "beside"]
    assert not [op for op, _ in asked["off", "alone"] if op in ("list", "folders", "names")]
    assert len(asked["direct", "alone"]) <= len(asked["off", "alone"]) + 8


def test_a_watcher_does_not_travel_to_the_tasks(wide):
    _world, _rival, victim = wide()
    mine = victim.table.transaction()
    spec = mine.file_spec(SCHEMA)
    assert spec.watcher is mine.watcher
    victim.store.reset()
    assert pickle.loads(pickle.dumps(spec)).watcher is None
    mine.abort()


# --- at random ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "direct"])
@pytest.mark.parametrize("rebase", [True, False])
def test_no_setting_changes_what_the_landed_ones_leave(make_world, mode, rebase):
    """The table is what its commits give one after another; who was stopped had been beaten, or somebody went first.

    With merging nobody is stopped: all that begin land, as without early detection.
    """
    early = sum(one_schedule(make_world, random.Random(seed), mode, rebase=rebase) for seed in some(range(8), 2))
    assert (early > 0) is (mode != "off" and not rebase)


def one_schedule(make_world, chance: random.Random, mode: str, *, rebase: bool) -> int:
    """How many were stopped before their commit."""
    world = make_world(early_conflict_detection=mode, rebase=rebase, yield_wait_s=2)
    writers = [world.writer(f"w{n}") for n in range(3)]
    if chance.random() < 0.5:
        for each in writers:
            each.table.session.merged_bytes_s = 2_000
    founder = world.writer("founder")
    for part in "ab":
        founder.insert(part, *(f"{part}x{n}" for n in range(len(writers))), v=0)
    open_, wrote, stopped = {}, {}, {}
    for step in range(40):
        number = chance.randrange(len(writers))
        writer = writers[number]
        if number not in open_:
            open_[number] = txn = writer.table.transaction()
            wrote[number] = {}
            continue
        txn, what = open_[number], chance.random()
        try:
            if what < 0.6:
                part = chance.choice("ab")
                txn.upsert(rows(part, {f"{part}x{number}": step}))  # rows of its own, so that merges always can
                wrote[number][f"{part}x{number}"] = step
                continue
            if what < 0.9:
                txn.commit()
                if txn.result:
                    stopped[txn.instant] = ("landed", dict(wrote[number]))
            else:
                txn.abort()
        except ConflictError as e:
            txn.abort()
            stopped[txn.instant] = (e, None)
        del open_[number]
    for txn in open_.values():
        txn.abort()
    model = dict.fromkeys(world_ids(writers), 0)
    for commit in commits(founder.table):
        if commit.instant in stopped and stopped[commit.instant][0] == "landed":
            model |= stopped[commit.instant][1]
    content = {key: v for key, v in world.content().items() if "x" in key}
    assert content == model
    begun = [e.instant for e in entries(founder.table) if e.kind == "begin"]
    landed = [each.instant for each in commits(founder.table)]
    for instant, (error, _) in stopped.items():
        if error == "landed":
            continue
        assert not rebase, f"stopped although it could have been merged: {error}"
        older = begun.index(error.winner) < begun.index(instant)
        assert error.winner in landed or (older and error.early)
    with world.fresh() as table:
        check_sound(table)
    return sum("early" in error.details for error, _ in stopped.values() if error != "landed")


def world_ids(writers: list[Writer]) -> list[str]:
    return [f"{part}x{n}" for part in "ab" for n in range(len(writers))]
