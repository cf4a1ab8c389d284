"""A store with long ways: the log is read by many threads at once, in order, and never twice."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

import lakelatch
from lakelatch.occ.log import Tail
from lakelatch.occ.table.table import Table
from lakelatch.server import Watched
from lakelatch.server.ledger import LogBodies
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore

from .conftest import lose, rows


class Far(FaultStore):
    """A local store that says it is none, and counts how often each entry is read, and how many at a time."""

    def __init__(self, inner: LocalStore) -> None:
        super().__init__(inner)
        self.url = f"far://{inner.url}"
        self.reads: Counter[str] = Counter()
        self.at_once = self.most = 0
        self.mutex, self.several = threading.Lock(), threading.Event()

    def body(self, path: str) -> bytes | None:
        with self.mutex:
            self.reads[path] += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            if self.most >= 8:
                self.several.set()
        self.several.wait(0.2)
        try:
            return super().body(path)
        finally:
            with self.mutex:
                self.at_once -= 1


@pytest.fixture
def lost(tmp_path: Path) -> tuple[Path, str]:
    """A table of several epochs, and a transaction that lost."""
    lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="origin", lock="none://").close()
    with Table(LocalStore(str(tmp_path / "t")), writer="A", epoch_slots=8) as table:
        table.insert(rows(0))
        loser, _ = lose(table)
        for value in range(12):
            table.upsert(rows(value))
    return tmp_path / "t", loser


def test_it_is_read_by_many_threads_in_order_and_tells_the_same_as_a_near_one(lost: tuple[Path, str]):
    folder, loser = lost
    far = Far(LocalStore(str(folder)))
    with Table(LocalStore(str(folder))) as near, Table(far) as table:
        one, other = Watched("t", near), Watched("t", table)
        far.reads.clear()
        for each in (one, other):
            each.look()
            assert each.error == ""
        assert far.most >= 8
        assert one.timeline(limit=1000, before="") == other.timeline(limit=1000, before="")
        assert other.why(loser) == one.why(loser)
        there = {path for path in far.reads if "/log/" in path and (folder / path).exists()}
        assert len(there) > 30
        assert {far.reads[path] for path in there} == {1}, "an entry never changes"


def test_what_lands_later_is_known_as_well(lost: tuple[Path, str]):
    folder, _ = lost
    with Table(LocalStore(str(folder))) as near, Table(Far(LocalStore(str(folder)))) as table:
        watched = Watched("t", table)
        watched.look()
        later, _ = lose(near)
        assert watched.why(later)["outcome"] == "lost"


@pytest.mark.parametrize("kept_bytes", [0, 2000, 1 << 20])
def test_more_than_may_be_kept_is_not(lost: tuple[Path, str], kept_bytes: int):
    far = Far(LocalStore(str(lost[0])))
    bodies = LogBodies(far, kept_bytes=kept_bytes)
    with bodies.ahead():
        read = list(Tail(far, newest=False, body=bodies.body).read())
    assert bodies.entries() == (read if kept_bytes > 2000 else None)


def test_a_near_store_is_read_as_it_always_was(lost: tuple[Path, str]):
    bodies = LogBodies(LocalStore(str(lost[0])))
    with bodies.ahead():
        assert bodies.entries() is None
