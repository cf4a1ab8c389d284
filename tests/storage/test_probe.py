"""A store whose conditional writes are not atomic is noticed, which no question in a row can do."""

from pathlib import Path
from typing import Any

import pytest

from lakelatch.errors import UnsafeStoreError
from lakelatch.storage import Outcome
from lakelatch.storage.local.store import LocalStore
from lakelatch.storage.probe import _ask_listing, probe
from lakelatch.testing.unsafe_store import CheckThenWrite

from ..servers import s3s_fs


def test_a_store_that_looks_first_and_writes_afterwards_is_refused(tmp_path):
    store = CheckThenWrite(tmp_path)
    with pytest.raises(UnsafeStoreError, match=r"must not hold a table: .* told that they had won"):
        probe(store)
    assert list(tmp_path.iterdir()) == []


def test_that_store_answers_every_question_in_a_row_correctly(tmp_path):
    """So the test above shows that the probe races."""
    store = CheckThenWrite(tmp_path)
    tag = store.put_if_absent("a", b"1").tag
    assert store.put_if_absent("a", b"2").outcome is Outcome.LOST
    assert store.replace_if_match("a", b"2", tag).done
    assert store.replace_if_match("a", b"3", tag).outcome is Outcome.LOST


@pytest.mark.thorough  # the server takes a minute to build
@pytest.mark.server
def test_s3s_fs_is_refused(tmp_path):
    with s3s_fs(tmp_path) as bucket, pytest.raises(UnsafeStoreError):
        probe(bucket.store("t"))


class Blind:
    """Lists all objects but the last one."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, folder: str) -> Any:
        return self._store.list(folder)[:-1]


def test_a_store_whose_listing_lacks_what_is_there_is_refused(tmp_path):
    store = Blind(tmp_path)
    for name in ("row", "z"):
        store.put(f"probe/{name}", b"1")
    _ask_listing(LocalStore(tmp_path), "probe", ["probe/row", "probe/z"])
    with pytest.raises(UnsafeStoreError, match="listing differs"):
        _ask_listing(store, "probe", ["probe/row", "probe/z"])


def test_as_many_pairs_of_writers_meet_as_with_eight_at_twenty_four_paths(tmp_path):
    """What a round tells, with half the requests."""
    report = probe(LocalStore(tmp_path))
    pairs = report.writers * (report.writers - 1) // 2
    assert report.rounds // 4 * pairs >= 24 * 28
    tries = report.rounds // 2  # of each act
    assert report.rounds + tries * report.writers * 3 <= 0.52 * (96 + 48 * 8 * 4)
