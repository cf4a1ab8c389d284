"""Tables after clean, savepoint, clustering and restore, and with plans pending: read by us, hudi-rs and the JVM."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import lakelatch

from .readers import by_hudi_rs, by_us, in_order, rs_as_of, rs_between
from .services import BY_JVM, SERVED, WRITTEN

pytestmark = pytest.mark.jvm


@pytest.fixture(params=SERVED)
def name(request):
    return request.param


def changed_since(path, begin):
    """Rows of commits that completed later, by the commit times in our own files."""
    with lakelatch.open(str(path)) as table:
        later = {i.requested for i in table.timeline().commits if (i.completed or "") > begin}
        slices = table.snapshot().file_slices()
    found = [row for each in slices for row in pq.read_table(path / each.path, partitioning=None).to_pylist()]
    return in_order(row for row in found if row["_hoodie_commit_time"] in later)


def test_every_reader_sees_the_same_rows(library, name):
    path = library.served[name].path
    wanted = in_order(by_us(path))
    assert len(wanted) > 3
    assert in_order(by_hudi_rs(path)) == wanted
    assert in_order(library.jvm(name, "snapshot")) == wanted


def test_incremental_readers_skip_nothing_and_see_no_row_again(library, name):
    told = library.served[name]
    for begin in told.since:
        wanted = changed_since(told.path, begin)
        assert in_order(by_hudi_rs(told.path, rs_between(begin, None))) == wanted, begin
        assert in_order(library.jvm(name, "incremental", begin, None)) == wanted, begin


def test_incremental_readers_go_on_from_before_the_archive(library):
    """hudi-rs does not read the history, and shows what changed since the oldest commit that is active."""
    told = library.served["archived"]
    for begin in told.old:
        with lakelatch.open(str(told.path)) as table:
            later = {instant.requested for instant, _ in table.commits(after=begin)}
            slices = table.snapshot().file_slices()
        found = [r for s in slices for r in pq.read_table(told.path / s.path, partitioning=None).to_pylist()]
        wanted = in_order(row for row in found if row["_hoodie_commit_time"] in later)
        assert in_order(library.jvm("archived", "incremental", begin, None)) == wanted, begin
    assert len(wanted) > 2


def test_the_jvm_archives_after_us(library):
    path = library.served["archived-written"].path
    history = path / ".hoodie" / "timeline" / "history"
    assert (history / "_version_").read_text() == "2"
    with lakelatch.open(str(path)) as table:
        assert len(table.session.history.manifest().files) == 2
        instants = [instant for instant, _ in table.commits()]
        assert len(instants) == len({each.requested for each in instants})
    with lakelatch.open(str(library.served["archived"].path)) as table:
        assert len(instants) == len(table.commits()) + 1
        assert len(table.timeline().commits) < 5, "two and two of ours, and its own"


def test_time_travel_to_what_is_kept(library, name):
    told = library.served[name]
    for instant in told.as_of:
        wanted = in_order(by_us(told.path, as_of=instant))
        assert in_order(by_hudi_rs(told.path, rs_as_of(instant))) == wanted, instant
        if told.saved:
            # Hudi 1.2.0 does not travel past what was cleaned, not to a savepoint either.
            assert "Cleaner cleaned up the timestamp" in library.answers[name, "as_of", instant]["error"]
        else:
            assert in_order(library.jvm(name, "as_of", instant)) == wanted, instant


@pytest.mark.parametrize("name", WRITTEN)
def test_the_jvm_writes_and_cleans_after_our_services(library, name):
    path = library.served[f"{name}-written"].path
    before = {row["id"]: row for row in by_us(library.served[name].path)}
    wanted = in_order((before | {row["id"]: row for row in BY_JVM}).values())
    assert in_order(library.jvm(f"{name}-written", "upsert")) == wanted
    assert in_order(by_hudi_rs(path)) == wanted
    assert in_order(by_us(path)) == wanted
    assert list((path / ".hoodie" / "timeline").glob("*.clean")), "the JVM or we have cleaned"
    for partition, names in library.served[f"{name}-written"].saved.items():
        for each in names:
            assert (path / partition / each).exists(), "the JVM honours our savepoint"
