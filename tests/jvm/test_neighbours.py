"""Hudi's JVM writers and ours on one table at the same time, with neighbours=hudi: every acknowledged row stays."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import lakelatch
from lakelatch.errors import CommitStateUnknownError
from lakelatch.occ.log.publisher import Publisher

from ..servers.zookeeper_server import zookeeper
from ..thorough import some
from .neighbours import KINDS, Shared, row
from .operations import Table, pairs
from .readers import ask_jvm

pytestmark = pytest.mark.jvm


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
    errors, clashes = list[str](), list[str]()
    done = threading.Event()

    def ours() -> None:
        count = 0
        # Without a pause the JVM would lose nearly every time, and merge hundreds of log files in each.
        while not done.wait(0.1):
            count += 1
            rows = [row("p", "ab"[count % 2], number, count) for number in range(3)]
            try:
                shared.table.run(lambda txn, rows=rows: txn.upsert(rows), operation="upsert")
            except CommitStateUnknownError as e:  # a JVM that was paused at the lock's file came in, and may hide this
                clashes.append(str(e))
                for each in rows:
                    acknowledged.pop(each["id"], None)
                done.set()
                return
            acknowledged.update((each["id"], each["v"]) for each in rows)

    writer = threading.Thread(target=ours)
    writer.start()
    try:
        landed = tries = 0
        while landed < 2:
            tries += 1
            assert writer.is_alive() or done.is_set()
            assert tries < 20, errors
            if tries == 6:  # on a loaded machine ours may be too quick for it
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
    kept = {key: v for key, v in acknowledged.items() if not clashes or key.startswith("p")}  # theirs then may be lost
    assert {key: found[key] for key in kept} == kept
    assert all("its lock was lost while it was put" in each for each in clashes)
    if not clashes:
        shared.sound()
    shared.table.close()


@pytest.mark.thorough
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


@pytest.mark.parametrize("kind", some(["copy-on-write, simple index", "merge-on-read, simple index"], 1))
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


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_a_plan_of_the_jvm_is_executed_by_ours(tmp_path: Path, service: str) -> None:
    shared = Shared(tmp_path, **KINDS["merge-on-read, simple index"])
    shared.options["hoodie.compact.inline"] = "false"
    table = shared.table
    table.upsert([row("p", part, 0, 1) for part in "ab"])
    request = {
        "kind": "service",
        "service": f"plan of a {service}",
        "path": str(shared.path),
        "name": table.config.name,
    }
    (answer,) = ask_jvm([request | {"schema": table.config.create_schema, "options": shared.options}], tmp_path)
    assert "rows" in answer, answer["error"]
    (planned,) = [each for each in table.timeline().pending if each.action == service]
    expected = shared.agreed()
    if service == "compaction":  # later log files belong to the base file that it will write
        table.upsert([row("p", "a", 1, 2)])
        expected |= {"p1a": 2}
    done = table.execute(planned.requested)
    assert done.mine
    assert [each.action for each in table.timeline().pending] == []
    assert shared.agreed() == expected
    answer = shared.jvm([row("j", part, 1, 3) for part in "ab"])
    assert "rows" in answer, answer["error"]
    assert shared.agreed() == expected | {"j1a": 3, "j1b": 3}
    shared.sound()
    table.close()


@pytest.mark.parametrize("how", ["two calls", "merged again"])
def test_the_jvm_compacts_log_files_of_a_commit_that_replaces_file_groups(tmp_path: Path, how: str) -> None:
    """A compaction reads no block above the newest deltacommit, and a replacecommit is none (`cover_log_files`)."""
    shared = Shared(tmp_path, **KINDS["merge-on-read, simple index"])
    table = shared.table
    table.upsert([row("p", "a", number, 1) for number in range(3)])
    expected = shared.agreed() | {"p0a": 8}
    if how == "merged again":
        theirs, ours = table.transaction("upsert"), table.transaction("upsert")
        theirs.upsert([row("p", "a", 1, 7)])
        ours.upsert([row("p", "a", 0, 8)])
        theirs.commit()
        ours.commit()
        expected["p1a"] = 7
    elif how == "two calls":
        with table.transaction("upsert") as ours:
            ours.upsert([row("q", "a", 0, 1), row("p", "a", 0, 8)])
            ours.upsert([row("q", "a", 0, 2)])
        expected["q0a"] = 2
    (answer,) = ask_jvm(
        [
            {
                "kind": "service",
                "service": "compaction",
                "path": str(shared.path),
                "name": table.config.name,
                "schema": table.config.create_schema,
                "options": shared.options,
            }
        ],
        tmp_path,
    )
    assert "rows" in answer, answer["error"]
    assert shared.agreed() == expected
    assert [each.logs for each in table.snapshot().file_slices() if each.logs] == []
    shared.sound()
    table.close()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some(["copy-on-write, simple index", "merge-on-read, simple index"], 1))
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
    request = {
        "kind": "service",
        "service": "restore",
        "path": str(shared.path),
        "name": table.config.name,
        "instant": kept,
    }
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


@pytest.mark.parametrize(("kind", "part"), some([(kind, part) for part in range(12) for kind in KINDS], 2))
def test_any_two_operations_at_once_leave_what_one_order_of_them_leaves(tmp_path: Path, kind: str, part: int) -> None:
    """Each of ours beside each of theirs, on the same file group, another one, in another partition; `make test` takes few."""
    table = Table(tmp_path, kind, random.Random(part))
    for pair in some(pairs(kind)[part::12], 4):
        table.run(pair)
    table.shared.sound()
    table.shared.table.close()
