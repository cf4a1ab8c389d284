"""What `lakelatch doctor` says of a table: each piece of advice on facts that ask for it, and on real tables."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.occ.doctor import Facts, OpenWork, advise, gather
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore

from ..world import World, add, content

HEALTHY = Facts(
    "t", settings=lakelatch.Settings(), lock="table", hosts=3, processes=9, commits=20, epochs=5, file_groups=40,
    data_files=120, bytes=3000, current_bytes=1000, ended=900, lost=90,
)  # fmt: skip
DAY = 86400.0


def settings(**changes: object) -> dict[str, object]:
    return {"settings": replace(lakelatch.Settings(), **changes)}


def work(state: str, age_s: float = 10.0) -> dict[str, object]:
    return {"open_work": (OpenWork("20260101000000000", "UPSERT", "w", state, age_s),)}


ILL = [
    ({"foreign": ("20260101000000000",)}, "unsafe", "foreign-commits", "adopt"),
    ({"no_files": ("p/x.parquet (a named pipe)",)}, "unsafe", "no-file", "lakelatch check t"),
    ({"lock": "redis://gone", "lock_error": "no answer"}, "unsafe", "lock-unreachable", "locks check redis://gone"),
    (settings(unique_keys=False), "unsafe", "double-keys", "unique_keys=true"),
    (
        {"jvm_lock": True, **settings(heartbeat_interval_s=61.0, heartbeat_timeout_s=200.0)},
        "unsafe", "jvm-heartbeat", "heartbeat_interval_s=10",
    ),
    ({"jvm_lock": True}, "note", "jvm-writers", "neighbours=hudi"),
    ({"lock": "memory://", **settings(lock="memory://")}, "slow", "lock-of-one-process", "locks set"),
    ({"lock": "none://", **settings(lock="none://")}, "slow", "no-lock", "locks set"),
    ({"crowd": 8.0}, "slow", "crowd", "lakelatch server --table t --coordinate"),
    ({"lost": 300, "lost_s": 7.0}, "slow", "many-losses", "lakelatch why"),
    (settings(rebase=False), "slow", "never-merged", "rebase=true"),
    (work("dead"), "slow", "dead-writer", "rollback"),
    (work("silent"), "slow", "dead-writer", "rollback"),
    (work("planned", 2 * 3600), "slow", "stale-plan", "services execute t 20260101000000000"),
    (work("alive", 2 * DAY), "note", "long-transaction", ""),
    ({"commits": 1001}, "slow", "long-timeline", "services archive"),
    ({"commits": 61, **settings(archive_above=None)}, "slow", "long-timeline", "services archive"),
    ({"epochs": 13}, "slow", "many-epochs", "rollback"),
    ({"small": 20, "small_in": "p=a"}, "slow", "small-files", "services cluster"),
    ({"logs_max": 11}, "slow", "many-log-files", "services compact"),
    ({"data_files": 171, "bytes": 3001}, "slow", "old-files", "services clean"),
    (settings(heartbeat_timeout_s=5.0, heartbeat_interval_s=1.0), "slow", "impatient", "heartbeat_timeout_s=60"),
    ({"refusal": "table version 5"}, "note", "read-only", ""),
    ({"settings": None}, "note", "no-log", "adopt"),
    ({"lagging": 1}, "note", "lagging-log-files", "services compact"),
    ({"savepoints": (("20260101000000000", 31 * DAY),)}, "note", "old-savepoint", "savepoint delete t 20260101000000000"),
    ({"ahead_s": 7200.0}, "note", "clock-ahead", ""),
]  # fmt: skip


def test_a_healthy_table_gets_no_advice() -> None:
    assert advise(HEALTHY) == []
    assert advise(replace(HEALTHY, **work("alive"))) == []
    assert advise(replace(HEALTHY, **work("planned"))) == []
    assert advise(Facts("t", settings=lakelatch.Settings())) == []  # just made
    assert advise(replace(HEALTHY, small=20, settings=lakelatch.Settings(bucket_count=4))) == []


@pytest.mark.parametrize(("facts", "severity", "kind", "mend"), ILL, ids=[each[2] for each in ILL])
def test_each_ill_is_named_with_the_line_that_mends_it(facts, severity, kind, mend) -> None:
    (found,) = advise(replace(HEALTHY, **facts))
    assert (found.severity, found.kind) == (severity, kind)
    assert mend in found.mend
    assert bool(mend) == bool(found.mend)
    assert not found.message.endswith(".")


def test_the_unsafe_comes_first() -> None:
    every = replace(
        HEALTHY, foreign=("20260101000000000",), commits=1000, ahead_s=7200.0, **settings(unique_keys=False)
    )
    severities = [each.severity for each in advise(every)]
    assert severities == sorted(severities, key=["unsafe", "slow", "note"].index)
    assert severities[:2] == ["unsafe", "unsafe"]


def test_what_it_looks_at_on_a_real_table_and_that_it_writes_nothing(world: World) -> None:
    dead, writer = world.writer("dead"), world.writer("w")
    loser = writer.begin_add("a")
    world.writer("winner").add("a")
    with pytest.raises(lakelatch.ConflictError):
        loser.commit()
    left = dead.begin_add("b")
    dead.die()
    writer.table.savepoint()
    files = {path: path.stat().st_mtime_ns for path in world.folder.rglob("*") if path.is_file()}
    facts = gather(writer.table.session)
    assert {path: path.stat().st_mtime_ns for path in world.folder.rglob("*") if path.is_file()} == files
    assert facts.lost == 1
    assert facts.lost_bytes > 0
    assert [(each.instant, each.writer, each.state) for each in facts.open_work] == [(left.instant, "dead", "dead")]
    assert (facts.hosts, facts.lock, facts.refusal, facts.foreign) == (1, "table", "", ())
    assert len(facts.savepoints) == 1
    assert [each.kind for each in advise(facts)] == ["dead-writer"]
    writer.table.rollback_failed_writes()
    assert advise(gather(writer.table.session)) == []


def test_commits_past_the_log_are_unsafe_and_those_of_an_adopted_or_archived_table_are_not(world: World) -> None:
    writer = world.writer("w")
    for _ in range(3):
        writer.add("a")
    newest = writer.table.timeline().commits[-1]
    path = world.folder / writer.table.timeline().path(newest)
    later = str(int(newest.requested) + 60_000)
    path.with_name(f"{later}_{int(later) + 1}.commit").write_bytes(path.read_bytes())
    facts = gather(world.fresh().session)
    assert facts.foreign == (later,)
    assert advise(facts)[0].kind == "foreign-commits"
    path.with_name(f"{later}_{int(later) + 1}.commit").unlink()
    assert gather(world.fresh().session).foreign == ()


def test_none_of_ours_is_foreign_after_epochs_rebases_and_new_columns(world: World) -> None:
    writer, other = world.writer("w", epoch_slots=5), world.writer("o", epoch_slots=5)
    for n in range(5):
        txn = writer.table.transaction()
        other.insert("b", f"x{n}")
        add(txn, "a")
        txn.commit()
    writer.table.savepoint()
    assert gather(world.fresh().session).foreign == ()
    assert len(content(writer.table)) == 9


COLUMNS = {
    "wide": lambda t: t.widen_column("w", "int64"),
    "field": lambda t: t.add_column("s.b", "string"),
    "new": lambda t: t.add_column("x", "int64"),
    "new by rows": lambda t: t.upsert([{"id": 3, "w": 3, "x": 3}], new_columns="add", missing="null"),
    "log": lambda t: t.upsert([{"id": 1, "w": 6, "s": {"a": 2}}], missing="null"),
    "delete": lambda t: t.delete([{"id": 1}]),
    "compact": lambda t: t.compact(),
    "log compaction": lambda t: t.compact_logs(min_logs=2),
}


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(
    "steps",
    [
        ("log", "wide", "log"),
        ("log", "new", "log"),
        ("log", "new", "wide"),
        ("log", "wide", "new"),
        ("log", "wide", "new", "log"),
        ("log", "wide", "new", "log", "log compaction"),
        ("log", "new", "wide", "compact", "log"),
        ("log", "new by rows", "wide"),
        ("new", "wide", "log"),
        ("new", "log", "wide"),
        ("wide", "log", "new"),
        ("delete", "new", "wide"),
        ("log", "field", "log"),
        ("log", "field", "compact", "log"),
        ("field", "log", "wide"),
    ],
    ids=", ".join,
)
def test_log_files_that_hudi_rs_fails_on_are_named_until_they_are_compacted(tmp_path, version, steps) -> None:
    schema = pa.schema([("id", pa.int64()), ("w", pa.int32()), ("s", pa.struct([("a", pa.int32())]))])
    with lakelatch.create(
        str(tmp_path), record_key="id", schema=schema, type="merge_on_read", table_version=version
    ) as table:
        table.insert(pa.table({"id": [1, 2], "w": [1, 2], "s": [{"a": 1}, None]}, schema=schema))
        for step in steps:
            COLUMNS[step](table)
        told = [each.kind for each in advise(gather(table.session))]
    reads = hudi_rs_reads(str(tmp_path))
    if steps in {
        ("log", "wide", "new", "log"),
        ("log", "field", "log"),
    }:  # a newer row of the key hides the one that it fails on
        assert reads
        assert told == ["lagging-log-files"]
    else:
        assert told == ([] if reads else ["lagging-log-files"])


def hudi_rs_reads(url: str) -> bool:
    try:
        HudiTableBuilder.from_base_uri(url).build().read()
    except Exception as error:  # of a class that its package does not name
        if "expects Int64" in str(error):
            return False
        raise
    return True


def test_a_lock_that_cannot_be_reached_is_told_and_not_raised(folder) -> None:
    url = str(folder / "t")
    with lakelatch.create(url, record_key="id", lock=str(folder / "locks")):
        pass
    locks = folder / "locks"
    for path in sorted(locks.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    locks.rmdir()
    locks.write_text("a file where the lock's folder was")
    with lakelatch.open(url) as table:
        facts = gather(table.session)
        assert facts.lock_error
        assert advise(facts)[0].kind == "lock-unreachable"


def test_a_look_at_a_large_log_costs_no_request_for_each_data_file(folder) -> None:
    world = World(folder / "t")
    writer = world.writer("w")
    for n in range(12):
        writer.insert("a", f"x{n}")
    store = FaultStore(LocalStore(world.folder))
    from lakelatch.occ.table.table import Table

    table = Table(store)
    store.reset()
    gather(table.session)
    touched = [call for call in store.calls if ".parquet" in str(call)]
    assert touched == []
    world.close()
