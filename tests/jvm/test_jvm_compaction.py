"""Merge-on-read tables: the rows of all three readers before and after services, ours and the JVM's on our plan."""

from __future__ import annotations

import pytest

import lakelatch

from ..occ.mor import at
from .compaction import BY_JVM, EVERY, READ, ROWS, TABLES, VERSIONS, WRITTEN, rows_of
from .readers import by_hudi_rs

pytestmark = pytest.mark.jvm


def plain(rows) -> dict[str, int]:
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows), "a row stands twice"
    return found


@pytest.mark.parametrize(("kind", "version"), [each for each in TABLES if each[0] in (*READ, *EVERY, "executed")])
def test_every_reader_sees_the_same_rows(library, kind, version):
    told = library.compacted[f"{kind}-v{version}"]
    wanted = told.before | ({"a0": 9} if kind == "late" else {})
    known = {"a0": 7, "a2": 8, "b0": 5} if kind == "logs-compacted" else {"a2": 3, "b0": 5}
    assert kind.startswith("every") or wanted.items() >= known.items()
    assert rows_of(told.path) == wanted
    assert plain(by_hudi_rs(told.path)) == wanted
    assert plain(library.jvm(f"{kind}-v{version}", "snapshot")) == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_an_incremental_reader_does_not_see_compacted_rows_again(library, version):
    assert plain(library.jvm(f"executed-v{version}", "incremental", at(11), None)) == {"b0": 5}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_jvm_executes_our_plan(library, version):
    name = f"run-by-jvm-v{version}"
    told = library.compacted[name]
    assert plain(library.jvm(name, "compact")) == ROWS == rows_of(told.path) == plain(by_hudi_rs(told.path))
    assert list((told.path / ".hoodie/timeline").glob(f"{told.planned}_*.commit"))
    with lakelatch.open(str(told.path)) as table:
        assert all(each.base and not each.logs for each in table.snapshot().file_slices())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_jvm_executes_our_log_compaction(library, version):
    name = f"logs-compacted-by-jvm-v{version}"
    told = library.compacted[name]
    rows = plain(library.jvm(name, "compact_logs"))
    assert rows == told.before == rows_of(told.path) == plain(by_hudi_rs(told.path)) == {"a0": 7, "b0": 5}
    assert list((told.path / ".hoodie/timeline").glob(f"{told.planned}_*.deltacommit"))
    with lakelatch.open(str(told.path)) as table:
        table.execute(told.planned)  # the log knows nothing of the JVM's; what is merged twice is the same
        assert rows_of(told.path) == told.before
        assert table.compact()
        assert table.plans() == []
    assert rows_of(told.path) == told.before == plain(by_hudi_rs(told.path))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_jvm_executes_our_clustering_of_log_files(library, version):
    name = f"clustered-by-jvm-v{version}"
    told = library.compacted[name]
    assert plain(library.jvm(name, "cluster")) == told.before == rows_of(told.path) == plain(by_hudi_rs(told.path))
    assert list((told.path / ".hoodie/timeline").glob(f"{told.planned}_*.replacecommit"))


@pytest.mark.parametrize(("kind", "version"), [each for each in TABLES if each[0] in WRITTEN])
def test_what_the_jvm_writes_after_our_services_is_read_and_compacted_again(library, kind, version):
    name = f"{kind}-v{version}"
    told = library.compacted[name]
    wanted = told.before | {row["id"]: row["v"] for row in BY_JVM}
    assert plain(library.jvm(name, "upsert")) == wanted == rows_of(told.path) == plain(by_hudi_rs(told.path))
    for partition, names in told.saved.items():
        for each in names:
            assert (told.path / partition / each).exists(), "the JVM cleans, and keeps log files of our savepoint"
    with lakelatch.adopt(str(told.path)) as table:
        logs = any(each.logs for each in table.snapshot().file_slices())
        # A clustering leaves small base files without log files, which the JVM rewrites with the rows in them; after six
        # commits it compacts, what our log compaction has merged too.
        assert logs == (kind not in ("written-clustered", "written-logs-compacted"))
        assert bool(table.compact()) == logs
    assert rows_of(told.path) == wanted == plain(by_hudi_rs(told.path))
