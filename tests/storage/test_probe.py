"""A store whose conditional writes are not atomic is noticed, which no question in a row can do."""

import pytest

from lakelatch.errors import UnsafeStoreError
from lakelatch.storage import Outcome
from lakelatch.storage.probe import probe
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


@pytest.mark.server
def test_s3s_fs_is_refused(tmp_path):
    with s3s_fs(tmp_path) as bucket, pytest.raises(UnsafeStoreError):
        probe(bucket.store("t"))
