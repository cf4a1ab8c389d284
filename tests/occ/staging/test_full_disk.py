"""A disk that is full in the middle of a data file."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

import lakelatch
from lakelatch.occ.check import check


def test_a_data_file_that_the_disk_does_not_take_is_told_with_its_path_and_nothing_of_it_stays(tmp_path: Path) -> None:
    rows = [{"id": str(n), "v": os.urandom(40).hex()} for n in range(2000)]
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        table.upsert(rows[:1000])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # more than an entry of the log has
        try:
            with pytest.raises(
                lakelatch.StorageError, match=r"\.parquet was not written: File too large. Raise the limit"
            ):
                table.upsert(rows[1000:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert table.read().count() == 1000
        assert check(table.store, deep=True).findings == ()
        assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
