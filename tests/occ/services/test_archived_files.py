"""What is older than the timeline and was gone when it was archived is not read, however late its files come."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

import lakelatch
from lakelatch.hudi.files import BaseFile
from lakelatch.hudi.timeline import NOTED, ArchivedFiles
from lakelatch.occ.check.check import check
from lakelatch.testing.faults import LoseReply, On, Pause

from ...mutants import answering
from ..aged import AGED
from ..world import World, Writer, independent_content, overwrite, rows

ALL = {"keep_min": 1, "keep_max": 1}


def aborted(writer: Writer) -> tuple[Path, bytes]:
    """A transaction that wrote a file and ended without landing; the file, which is deleted."""
    txn = writer.table.transaction("insert")
    with txn.new_file("part=c") as file:
        file.write(rows("c", {"c9": 9}))
    (path,) = Path(writer.table.url.removeprefix("file://")).rglob(f"*_{txn.instant}.parquet")
    body = path.read_bytes()
    txn.abort()
    assert not path.exists()
    return path, body


def archived_past(world: World) -> tuple[Path, bytes]:
    """The same, when an archival has gone past it, and the log tells of it no more."""
    a = world.writer("A", epoch_slots=12)
    a.table.change_settings(log_epochs=1)
    path, body = aborted(a)
    a.add("a")
    a.add("b")
    assert a.table.archive(**ALL).instants
    epoch = a.table.session.log.epoch
    while a.table.session.log.epoch == epoch:
        a.add("b")
    assert epoch in a.table.session.pruner.prune()
    return path, body


def content(world: World) -> dict[str, int]:
    with world.fresh() as table:
        return table_content(table)


def table_content(table) -> dict[str, int]:
    read = table.read().to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def test_a_file_of_a_dead_transaction_that_comes_after_the_archival_is_not_read(old):
    """The store carries out its put a second time. Seeds 1400091051 and 1500048514."""
    path, body = archived_past(old)
    before = content(old)
    path.write_bytes(body)
    assert content(old) == before
    with old.fresh() as table:
        table.upsert([{"part": "a", "id": "a0", "v": 77}])
        assert table_content(table) == before | {"a0": 77}
        assert not [s for s in table.snapshot().file_slices() if path.name in s.path]
        (found,) = check(table.store).findings
        assert (found.kind, found.path) == ("file-never-committed", f"{path.parent.name}/{path.name}")


def test_other_readers_read_it_which_nobody_here_can_prevent(old):
    path, body = archived_past(old)
    before = content(old)
    path.write_bytes(body)
    with answering(ArchivedFiles, "counts", None):
        assert content(old) == before | {"c9": 9}, "so they do by Hudi's rule"


def test_a_file_that_comes_while_the_instants_leave_is_not_read(old):
    a = old.writer("A")
    path, body = aborted(a)
    a.add("a")
    a.add("b")
    before = content(old)
    a.store.add(Pause(On("delete", ".hoodie/timeline/2"), call=lambda: path.write_bytes(body)))
    assert a.table.archive(**ALL).instants
    assert path.exists()
    assert content(old) == before
    a.table.rollback_failed_writes()
    assert not path.exists(), "while the log tells of it, it is swept"


def cleaned(world: World) -> tuple[Path, bytes]:
    """A file group was replaced and cleaned, and both are archived; the file, which is deleted."""
    a = world.writer("A")
    (slice_,) = (s for s in a.table.snapshot().file_slices("part=b") if "b0" in keys(a, s))
    path = world.folder / slice_.path
    body = path.read_bytes()
    with a.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b7")
    a.add("a")
    assert a.table.clean(retain_commits=1)
    assert not path.exists()
    for _ in range(3):
        a.add("a")
    a.table.clean(retain_commits=1)
    a.add("a")
    assert a.table.archive(**ALL).instants
    assert not [c for c in a.table.timeline().commits if c.action == "replacecommit"]
    return path, body


def keys(writer: Writer, slice_) -> list[str]:
    return writer.table.read_slice(slice_, columns=["id"])["id"].to_pylist()


def test_a_cleaned_file_that_comes_back_is_not_read_and_is_cleaned_again(old):
    """The same with a file that landed and was replaced, when the replacement is archived."""
    path, body = cleaned(old)
    before = content(old)
    path.write_bytes(body)
    assert content(old) == before
    with answering(ArchivedFiles, "counts", None):
        assert content(old) != before, "other engines read it"
    with old.fresh() as table:
        (found,) = check(table.store).findings
        assert (found.kind, found.path) == ("file-came-back", f"{path.parent.name}/{path.name}")
        table.rollback_failed_writes()
        assert not path.exists()
        assert check(table.store).findings == ()
        assert content(old) == before == independent_content(old.folder)


def test_a_file_that_no_clean_has_deleted_counts_again_when_it_is_back(old):
    """Somebody deleted it by mistake, and has brought it back from a copy after an archival, which noted that it is needed."""
    a = old.writer("A")
    (slice_, *_) = a.table.snapshot().file_slices("part=b")
    path = old.folder / slice_.path
    body = path.read_bytes()
    path.unlink()
    a.add("a")
    a.add("a")
    a.table.archive(**ALL)
    path.write_bytes(body)
    wanted = AGED | {"a0": 6, "a1": 6}
    with old.fresh() as table:
        table.rollback_failed_writes()
        table.clean(retain_commits=1)
        assert path.exists()
        assert content(old) == wanted
        assert not [each for each in check(table.store).findings if each.severity != "note"]


def test_each_archival_keeps_what_was_noted_and_forgets_files_that_are_gone(old):
    a = old.writer("A")
    a.table.archive(**ALL)
    first = noted(a)
    for _ in range(2):
        path, body = aborted(a)
        a.add("a")
        a.add("b")
        a.table.archive(**ALL)
        path.write_bytes(body)
        a.table.archive(**ALL)
    a.table.clean(retain_commits=1)
    a.add("a")
    a.add("b")
    a.table.archive(**ALL)
    last = noted(a)
    assert last["before"] > first["before"]
    there = ArchivedFiles(a.table.store, a.table.session.history, begun=True)
    with old.fresh() as table:
        archived = [s for s in table.snapshot().file_slices() if s.instant < last["before"]]
        assert archived
        assert all(there.counts(s.base) for s in archived)
        assert there.counts(BaseFile.at(f"{path.parent.name}/{path.name}", 0)) is False


def noted(writer: Writer):
    return json.loads(writer.table.store.get(NOTED).body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"before": 1, "files": ""}',
        b'{"before": "x", "files": ""}',
        b'{"before": "20260101000000000", "files": "A"}',
        b'{"before": "20260101000000000", "files": "AAAA"}',
        b'{"before": "20260101000000000", "files": [1]}',
    ],
)
def test_bytes_that_are_not_understood_hide_no_row(old, body):
    """They say nothing, and then all that is older than the timeline counts, as for every reader of Hudi's."""
    a = old.writer("A")
    a.table.archive(**ALL)
    path = old.folder / NOTED
    good = path.read_bytes()
    path.write_bytes(body)
    assert content(old) == AGED
    a.add("a")
    a.table.archive(**ALL)
    assert path.read_bytes() not in (body, good), "the next archival writes it again"
    assert content(old) == AGED | {"a0": 5, "a1": 5}


def test_what_is_older_than_all_that_is_archived_counts(old):
    """A table of an older version has an archive of another form, which is not read."""
    a = old.writer("A")
    (slice_, *_) = a.table.snapshot().file_slices("part=b")
    ancient = old.folder / "part=b" / f"{'e' * 36}-0_0-0-0_20010101000000000.parquet"
    ancient.write_bytes((old.folder / slice_.path).read_bytes())
    a.table.archive(**ALL)
    with old.fresh() as table:
        assert ancient.name in {s.path.rpartition("/")[2] for s in table.snapshot().file_slices()}
        table.rollback_failed_writes()
        assert ancient.exists()


def test_two_archivals_at_once_leave_the_later_bound(old):
    """One that was suspended does not take back what another has noted since."""
    a, b = old.writer("A"), old.writer("B", host="host-b")
    later: list[str] = []

    def meanwhile() -> None:
        b.add("a")
        b.add("b")
        for plan in b.table.plans():
            b.table.execute(plan.instant)
        b.table.archive(**ALL)
        later.append(noted(b)["before"])

    plan = a.table.plan_archive(**ALL)
    a.store.add(Pause(On("put_if_absent", NOTED), call=meanwhile))
    with suppress(lakelatch.RolledBackError):
        a.table.execute(plan)
    assert noted(a)["before"] == later[0]


def test_an_answer_that_is_lost_is_asked_for_again(old):
    a = old.writer("A")
    a.store.add(LoseReply(On("put_if_absent", NOTED)))
    assert a.table.archive(**ALL).instants
    a.add("a")
    a.store.add(LoseReply(On("replace_if_match", NOTED)))
    assert a.table.archive(**ALL).instants
    assert content(old) == AGED | {"a0": 5, "a1": 5}


def test_a_pending_instant_that_comes_after_the_archival_hides_no_row_from_our_readers(old):
    """It is the first active instant then, and other readers take the archived commits after it for unfinished ones."""
    a = old.writer("A", epoch_slots=12)
    a.table.change_settings(log_epochs=1)
    txn = a.begin_add("a")
    (inflight,) = (old.folder / ".hoodie/timeline").glob(f"{txn.instant}.inflight")
    body = inflight.read_bytes()
    txn.abort()
    for _ in range(3):
        a.insert("c", f"c{_}")
    a.add("b")
    a.table.archive(**ALL)
    before = content(old)
    inflight.write_bytes(body)
    assert content(old) == before
    with answering(ArchivedFiles, "counts", None):
        assert content(old) != before, "other engines miss rows"


def test_a_listing_that_an_archival_overtakes_is_made_again(old):
    """All that was listed is archived by the time that the history is read, and what landed since was not listed: the
    timeline looked empty, and so did the table. Seed 1630066422.
    """
    a, b = old.writer("A"), old.writer("B", host="host-b")

    def meanwhile() -> None:
        a.add("a")
        assert a.table.archive(**ALL).instants

    wanted = AGED | {"a0": 5, "a1": 5}
    b.store.add(Pause(On("head", "/history/_version_"), call=meanwhile))
    assert b.table.timeline().commits
    assert table_content(b.table) == wanted


class Overtaken:
    """A store whose first listing of the timeline meets only what was there all the time, as stores may list."""

    def __init__(self, inner, meanwhile):
        self.inner, self.meanwhile = inner, [meanwhile]

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def list(self, folder, **how):
        before = self.inner.list(folder, **how)
        if not folder.endswith("/timeline") or not self.meanwhile:
            return before
        self.meanwhile.pop()()
        after = {each.path for each in self.inner.list(folder, **how)}
        return [each for each in before if each.path in after]


def test_a_listing_in_which_all_went_and_all_that_came_was_passed_is_made_again(old):
    """Of what was there the archival took all, and the new commit's name was passed when it came. Seed 1700192256."""
    a, b = old.writer("A"), old.writer("B", host="host-b")

    def meanwhile() -> None:
        a.add("a")
        assert a.table.archive(**ALL).instants

    b.store.inner = Overtaken(b.store.inner, meanwhile)
    assert b.table.timeline().commits
    assert not b.store.inner.meanwhile
