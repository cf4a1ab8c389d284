"""A name in a note is no order to delete: markers, plans and log entries are files that others may have written (trap 28)."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import lakelatch
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.occ.entries.entries import Begin, decode
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.liveness.markers import MARKERS, delete_announced, list_markers
from lakelatch.occ.log.epochs import LOG, slot_path
from lakelatch.occ.services.scheduling import finish_decided
from lakelatch.storage.local.store import LocalStore

from ..world import BEGUN, Writer, check_sound, commits, content

T, OTHER = "20260101000000000", "20260101000000001"
GROUP = "01234567-0000-4000-8000-000000000000-0"
OWN = f"{GROUP}_0-0-0_{T}.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table's folder, beside one that is not the table's."""
    for each in ("table/.hoodie", "table/p=a", "outside"):
        (tmp_path / each).mkdir(parents=True)
    return tmp_path / "table"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"precious")
    return path


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie/hoodie.properties",
        f".hoodie/metadata/files/{OWN}",
        f"p=a/{GROUP}_0-0-0_{OTHER}.parquet",
        f"p=a/.{GROUP}_{OTHER}.log.1_0-0-0",
        "p=a/.hoodie_partition_metadata",
        "p=a/notes.txt",
        f"p=a/{T}.parquet",
        f".hidden/{OWN}",
    ],
)
def test_a_marker_deletes_nothing_but_a_data_file_of_its_own_transaction(folder, name):
    victim, own = put(folder / name), put(folder / "p=a" / OWN)
    store = LocalStore(folder)
    for each in (name, f"p=a/{OWN}"):
        put(folder / MARKERS / T / f"{each}.marker.CREATE")
    delete_announced(store, list_markers(store, T))
    assert victim.exists()
    assert not own.exists()
    assert not list((folder / MARKERS).glob("**/*.marker.*")), "the markers themselves go"


def test_a_log_file_of_its_own_transaction_goes_too(folder):
    log = put(folder / f"p=a/.{GROUP}_{T}.log.1_0-0-0")
    put(folder / MARKERS / T / f"p=a/{log.name}.marker.APPEND")
    store = LocalStore(folder)
    delete_announced(store, list_markers(store, T))
    assert not log.exists()


def test_nothing_is_deleted_behind_a_symbolic_link(folder):
    victim = put(folder.parent / "outside" / OWN)
    for link in ("p=b", "p=a/deeper"):
        (folder / link).symlink_to(folder.parent / "outside")
        put(folder / MARKERS / T / f"{link}/{OWN}.marker.CREATE")
    store = LocalStore(folder)
    delete_announced(store, list_markers(store, T))
    assert victim.exists()
    with pytest.raises(lakelatch.InputError, match="p=b is a symbolic link"):
        store.delete(f"p=b/{OWN}")


def test_a_folder_of_markers_that_is_a_link_loses_no_marker_and_stops_nobody(folder):
    marker = put(folder.parent / "outside" / f"{OWN}.marker.CREATE")
    (folder / MARKERS).mkdir()
    (folder / MARKERS / T).symlink_to(folder.parent / "outside")
    store = LocalStore(folder)
    delete_announced(store, list_markers(store, T))
    assert marker.exists()


def test_the_table_itself_may_stand_behind_a_link(folder):
    (folder.parent / "link").symlink_to(folder)
    moved = folder.parent / "moved"
    shutil.move(folder / ".hoodie", moved)
    (folder / ".hoodie").symlink_to(moved)
    store = LocalStore(folder.parent / "link")
    for name in (f"p=a/{OWN}", f".hoodie/.temp/{T}/x.marker.CREATE"):
        victim = put(folder / name)
        store.delete(name)
        assert not victim.exists()


def test_a_marker_of_a_dead_writer_cannot_take_a_committed_file(world):
    """The whole way: its writer dies, and the next one sweeps what its markers name."""
    dead = world.writer("D")
    txn = dead.begin_add("a")
    victim = next(iter(dead.table.snapshot().file_slices("part=b"))).path
    put(world.folder / MARKERS / txn.instant / f"{victim}.marker.CREATE")
    dead.die()
    with world.writer("W").table as table:
        table.rollback_failed_writes()
        assert content(table) == BEGUN
        check_sound(table)


# --- cleaning ----------------------------------------------------------------------------------------------------


def planned(writer: Writer, slices: dict[str, list[str]]) -> None:
    """A clean in the log, as somebody else may have written it."""
    table = writer.table
    for _ in range(2):
        writer.add("a")
    table.session.log.catch_up()
    before = table.session.log.next_slot
    last = commits(table)[-1]
    earliest = {"T": last.instant, "C": last.completion, "action": last.action}
    plan = {"content": {"slices": slices, "earliest": earliest, "last": last.instant, "policy": "x"}}
    table.session.log.append(
        lambda state: Begin(
            next_label(table.env.now(), state.top), "clean", "CLEAN", "evil", None, plan=plan, planned_at=before
        )
    )


def test_a_clean_spares_slices_that_are_read_today(world):
    one = world.writer("A")
    live = next(iter(one.table.snapshot().file_slices("part=b"))).path
    partition, _, name = live.rpartition("/")
    put(world.folder / partition / OWN)
    put(world.folder / "part=a/notes.txt")
    planned(one, {partition: [name, OWN], "part=a": ["notes.txt"]})
    finish_decided(one.table.session)
    assert (world.folder / live).exists()
    assert (world.folder / partition / OWN).exists(), "no commit of this table has written it"
    assert (world.folder / "part=a/notes.txt").exists()
    (world.folder / partition / OWN).unlink()
    assert content(one.table) == BEGUN | {"a0": 2, "a1": 2}


def test_a_clean_takes_what_is_superseded(world):
    one = world.writer("A")
    old = next(iter(one.table.snapshot().file_slices("part=a"))).path
    partition, _, name = old.rpartition("/")
    planned(one, {partition: [name]})
    finish_decided(one.table.session)
    assert not (world.folder / old).exists()
    assert content(one.table) == BEGUN | {"a0": 2, "a1": 2}


# --- entries of the log ------------------------------------------------------------------------------------------


def entry(world, kind: str) -> tuple[Path, dict]:
    """The last entry of a kind, and its fields."""
    for path in sorted((world.folder / LOG).glob("*/*"), reverse=True):
        raw = json.loads(path.read_text())
        if raw["kind"] == kind:
            return path, raw
    raise AssertionError(kind)


STAT = {"file_id": "f-0", "partition": "part=a", "path": f"part=a/{OWN}"}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("begin", {"T": "../../x"}),
        ("begin", {"T": 7}),
        ("begin", {"action": "explode"}),
        ("begin", {"plan": {"content": {"slices": {"..": ["x"]}}}}),
        ("begin", {"plan": {"content": {"slices": {"part=a": ["../x"]}}}}),
        ("begin", {"plan": {"side": ".hoodie/hoodie.properties", "sha256": "x"}}),
        ("begin", {"plan": {}}),
        ("commit", {"T": "/etc/passwd"}),
        ("commit", {"C": "20269999000000000"}),
        ("commit", {"undone": ["../../x"]}),
        ("commit", {"named": "../x"}),
        ("commit", {"metadata": None, "side": {"path": f"{SIDES}/../../../x", "sha256": "x"}}),
        ("commit", {"metadata": None, "side": None}),
        ("commit", {"metadata": {"stats": [STAT | {"path": "/etc/passwd"}]}}),
        ("commit", {"metadata": {"stats": [STAT | {"path": "part=a/../../x"}]}}),
        ("commit", {"metadata": {"stats": [STAT | {"path": ".hoodie/hoodie.properties"}]}}),
        ("commit", {"metadata": {"stats": [STAT | {"partition": "../x"}]}}),
        ("commit", {"metadata": {"stats": [STAT | {"path": 7}]}}),
        ("commit", {"metadata": {"stats": 7}}),
        ("commit", {"metadata": {"replaced": {"/": ["f-0"]}}}),
        ("commit", {"metadata": {"replaced": {"part=a": 7}}}),
        ("commit", {"metadata": {"held": {"side": "/etc/passwd", "sha256": "x"}}}),
        ("commit", {"token": "9"}),
        ("open", {"top": "tomorrow"}),
    ],
)
def test_a_log_entry_that_names_what_it_may_not_stops_writers_with_a_sentence(world, kind, changes):
    path, raw = entry(world, kind)
    decode(json.dumps(raw).encode(), "as it was")
    path.write_text(json.dumps(raw | changes))
    with pytest.raises(lakelatch.CorruptTableError, match=r"log entry .* Restore it"), world.fresh() as table:
        table.transaction("insert")


def test_a_side_object_that_names_what_it_may_not_is_damage(world):
    body = json.dumps({"stats": [STAT | {"path": "../../x"}]}).encode()
    side = {"path": f"{SIDES}/{T}-x.json", "sha256": hashlib.sha256(body).hexdigest()}
    (world.folder / SIDES).mkdir(parents=True, exist_ok=True)
    (world.folder / side["path"]).write_bytes(body)
    path, raw = entry(world, "commit")
    path.write_text(json.dumps(raw | {"metadata": None, "side": side}))
    (instant,) = (world.folder / ".hoodie/timeline").glob(f"{raw['T']}_*")
    instant.unlink()
    with pytest.raises(lakelatch.CorruptTableError, match="does not lie in the table"), world.fresh() as table:
        table.transaction("insert")


def test_deep_json_in_a_slot_is_damage(world):
    table = world.fresh()
    path = world.folder / slot_path(table.session.log.epoch, table.session.log.next_slot)
    table.close()
    path.write_bytes(b'{"v":1,"kind":' + b"[" * 200_000)
    with pytest.raises(lakelatch.CorruptTableError, match="torn or not ours"):
        world.fresh()
