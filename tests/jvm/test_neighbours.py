"""Hudi's JVM writers and ours on one table at the same time, with neighbours=hudi: every acknowledged row stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.check import check
from lakelatch.occ.doctor.hudi_writers import writer_options
from lakelatch.occ.log.publisher import Publisher

from ..servers.zookeeper_server import zookeeper
from ..thorough import some
from .cases import WRITE_OPTIONS
from .readers import ask_jvm, by_hudi_rs

pytestmark = pytest.mark.jvm

COLUMNS = pa.schema([("id", "string"), ("part", "string"), ("v", "int64")])
KINDS = {
    "copy-on-write, simple index": {},
    "merge-on-read, simple index": {"type": "merge_on_read"},
    "copy-on-write, buckets": {"bucket_count": 2},
    "merge-on-read, buckets": {"type": "merge_on_read", "bucket_count": 2},
}


class Shared:
    """A table, its JVM writer and ours."""

    def __init__(self, folder: Path, *, lock: str = "", **kind: Any) -> None:
        self.folder, self.path = folder, folder / "table"
        lock = lock or f"file://{self.path}/.hoodie?jvm=lock&jvm_expire=5m"
        self.table = lakelatch.create(
            str(self.path), record_key="id", partition_by="part", schema=COLUMNS, lock=lock, neighbours="hudi", **kind
        )
        self.table.upsert([row(who, part, number, 0) for who in "jp" for part in "ab" for number in range(3)])
        self.options = WRITE_OPTIONS | writer_options(self.table.config, self.table.settings)
        self.options |= {
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.table.name": self.table.config.name,
            "hoodie.write.lock.wait_time_ms_between_retry": "100",
            "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
            "hoodie.write.lock.client.num_retries": "300",
        }
        if self.table.config.merge_on_read:
            self.options |= {
                "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                "hoodie.compact.inline": "true",
                "hoodie.compact.inline.max.delta.commits": "2",
            }

    def jvm(self, rows: list[dict[str, Any]], **more: str) -> dict[str, Any]:
        """The answer of the JVM to a write: all rows then, or its error."""
        options = self.options | {key.replace("__", "."): value for key, value in more.items()}
        (answer,) = ask_jvm([{"kind": "upsert", "path": str(self.path), "rows": rows, "options": options}], self.folder)
        return answer

    def agreed(self) -> dict[str, int]:
        """All rows, as ours, hudi-rs and the JVM read them."""
        (answer,) = ask_jvm([{"kind": "snapshot", "path": str(self.path)}], self.folder)
        with lakelatch.open(str(self.path)) as fresh:
            told = [
                self.table.read().to_arrow().to_pylist(),
                fresh.read().to_arrow().to_pylist(),
                by_hudi_rs(self.path),
            ]
        found = [sorted((each["id"], each["v"]) for each in rows) for rows in (*told, answer["rows"])]
        assert found[0] == found[1] == found[2] == found[3]
        assert len(dict(found[0])) == len(found[0]), "a key stands twice"
        return dict(found[0])

    def sound(self) -> None:
        # Hadoop's local file system leaves checksums of files that it has deleted.
        assert [each for each in check(self.table.store, deep=True).findings if each.kind != "other-files"] == []


def row(who: str, part: str, number: int, value: int) -> dict[str, Any]:
    return {"id": f"{who}{number}{part}", "part": part, "v": value}


@pytest.fixture
def lock(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a lock; "" for the file of Hudi's own."""
    if request.param == "file":
        yield ""
        return
    with zookeeper(tmp_path / "zookeeper") as node:
        yield f"zk://127.0.0.1:{node.port}/hudi?key=flights"


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "lock"),
    some([("copy-on-write, buckets", "zookeeper"), *((kind, "file") for kind in KINDS)], 2),
    indirect=["lock"],
)
def test_both_write_the_same_file_groups_and_no_acknowledged_row_is_lost(tmp_path: Path, kind: str, lock: str) -> None:
    shared = Shared(tmp_path, lock=lock, **KINDS[kind])
    acknowledged: dict[str, int] = {}
    errors: list[str] = []
    done = threading.Event()

    def ours() -> None:
        count = 0
        while not done.is_set():
            count += 1
            rows = [row("p", "ab"[count % 2], number, count) for number in range(3)]
            shared.table.run(lambda txn, rows=rows: txn.upsert(rows), operation="upsert")
            acknowledged.update((each["id"], each["v"]) for each in rows)

    writer = threading.Thread(target=ours)
    writer.start()
    try:
        landed = tries = 0
        while landed < 2:
            tries += 1
            assert writer.is_alive() or done.is_set()
            assert tries < 20, errors
            if tries == 12:  # on a loaded machine ours may be too quick for it
                done.set()
            rows = [row("j", "ab"[tries % 2], number, tries) for number in range(3)]
            answer = shared.jvm(rows)
            if "error" in answer:  # a conflict is what its writers expect; everything else is not
                errors.append(answer["error"])
                assert "Cannot resolve conflicts" in answer["error"]
            else:
                landed += 1
                acknowledged.update((each["id"], each["v"]) for each in rows)
    finally:
        done.set()
        writer.join()
    found = shared.agreed()
    assert {key: found[key] for key in acknowledged} == acknowledged
    shared.sound()
    shared.table.close()


def test_what_the_jvm_does_is_imported_whatever_it_is(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    expected = {f"{who}{number}{part}": 0 for who in "jp" for part in "ab" for number in range(3)}

    def theirs(rows: list[dict[str, Any]], operation: str, **more: str) -> None:
        answer = shared.jvm(rows, hoodie__datasource__write__operation=operation, **more)
        assert "rows" in answer, answer["error"]

    def ours(value: int) -> None:
        shared.table.upsert([row("p", part, 0, value) for part in "ab"])
        expected.update({"p0a": value, "p0b": value})
        assert shared.agreed() == expected

    theirs([row("n", "c", 0, 1)], "insert")
    expected["n0c"] = 1
    ours(1)
    theirs([row("j", "a", 0, 2)], "upsert")
    expected["j0a"] = 2
    ours(2)
    theirs([row("j", "a", 1, 0)], "delete")
    del expected["j1a"]
    ours(3)
    theirs([row("o", "b", 0, 4), row("p", "b", 0, 4)], "insert_overwrite")
    for key in [key for key in expected if key.endswith("b")]:
        del expected[key]
    expected |= {"o0b": 4, "p0b": 4}
    ours(4)
    theirs(
        [row("j", "a", 2, 5)],
        "upsert",
        hoodie__clustering__inline="true",
        hoodie__clustering__inline__max__commits="1",
    )
    expected["j2a"] = 5
    ours(5)
    theirs([], "delete_partition", hoodie__datasource__write__partitions__to__delete="part=c")
    del expected["n0c"]
    ours(6)
    shared.sound()
    shared.table.close()


@pytest.mark.parametrize("kind", some(["copy-on-write, simple index", "merge-on-read, simple index"], 2))
def test_the_jvm_goes_on_beside_table_services_of_ours(tmp_path: Path, kind: str) -> None:
    shared = Shared(tmp_path, **KINDS[kind])
    expected = {f"{who}{number}{part}": 0 for who in "jp" for part in "ab" for number in range(3)}
    table = shared.table
    merge_on_read = table.config.merge_on_read
    services = {
        "savepoint": table.savepoint,
        "compact": table.compact if merge_on_read else lambda: None,
        "log compaction": table.compact_logs if merge_on_read else lambda: None,
        "cluster": lambda: table.cluster(small_bytes=1 << 20, target_bytes=2 << 20, sort_by="id"),
        "clean": lambda: table.clean(retain_commits=1),
        "archive": lambda: table.archive(keep_min=3, keep_max=4),
    }
    for value, (name, service) in enumerate(services.items(), 1):
        table.upsert([row("p", part, 0, value) for part in "ab"])
        expected.update({"p0a": value, "p0b": value})
        service()
        answer = shared.jvm([row("j", "a", 1, value)], hoodie__compact__inline="false")
        assert "rows" in answer, f"{name}: {answer['error']}"
        expected["j1a"] = value
        assert shared.agreed() == expected, name
    before = table.savepoint()
    table.upsert([row("p", "a", 2, 99)])
    table.restore(before.instant)
    answer = shared.jvm([row("j", "a", 1, 50)], hoodie__compact__inline="false")
    assert "rows" in answer, answer["error"]
    expected["j1a"] = 50
    assert shared.agreed() == expected
    shared.sound()
    table.close()


@pytest.mark.parametrize("kind", some(["copy-on-write, simple index", "merge-on-read, simple index"], 2))
def test_a_restore_of_the_jvm_is_imported(tmp_path: Path, kind: str) -> None:
    shared = Shared(tmp_path, **KINDS[kind])
    table = shared.table
    kept = table.upsert([row("p", part, 0, 1) for part in "ab"]).instant
    expected = shared.agreed()
    answer = shared.jvm([row("j", "a", 1, 2)])
    assert "rows" in answer, answer["error"]
    table.upsert([row("p", "b", 1, 3), row("p", "c", 1, 3)])
    began_before = table.transaction("upsert")
    began_before.upsert([row("p", "a", 2, 4)])
    request = {"kind": "restore", "path": str(shared.path), "name": table.config.name, "instant": kept}
    (answer,) = ask_jvm([request | {"schema": table.config.create_schema, "options": shared.options}], tmp_path)
    assert "rows" in answer, answer["error"]
    with pytest.raises(lakelatch.CommitError):  # rolled back by it, or lost against it
        began_before.commit()
    assert shared.agreed() == expected
    table.upsert([row("p", "b", 1, 5)])
    answer = shared.jvm([row("j", "b", 1, 6)])
    assert "rows" in answer, answer["error"]
    assert shared.agreed() == expected | {"p1b": 5, "j1b": 6}
    shared.sound()
    table.close()


def test_the_jvm_begins_nothing_beside_a_restore_of_ours_that_has_died(tmp_path: Path) -> None:
    """Its pending instant stands until the next of ours has taken everything back."""
    shared = Shared(tmp_path)
    kept = shared.table.upsert([row("p", part, 0, 1) for part in "ab"]).instant
    expected = shared.agreed()
    shared.table.upsert([row("p", "a", 0, 2), row("p", "b", 1, 2)])
    with (
        pytest.MonkeyPatch.context() as patch,
        lakelatch.open(str(shared.path), writer="dies") as dying,
    ):
        patch.setattr(Publisher, "take_back", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            dying.restore(kept)
    answer = shared.jvm([row("j", "a", 1, 3)])
    assert "pending restore" in answer["error"]
    shared.table.upsert([row("p", "b", 2, 4)])
    answer = shared.jvm([row("j", "a", 1, 5)])
    assert "rows" in answer, answer["error"]
    assert shared.agreed() == expected | {"p2b": 4, "j1a": 5}
    shared.table.rollback_failed_writes()  # removes the files that were taken back
    shared.sound()
    shared.table.close()
