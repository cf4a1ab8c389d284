"""How many requests it takes to list a table's data files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakelatch.hudi.files.listing import list_data_files
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore

NAME = "{:08}-0000-0000-0000-000000000000-0_0-1-0_20260101000000000.parquet"


@pytest.mark.parametrize("partitions", [1, 40])
def test_one_request_lists_the_data_files_of_all_partitions(tmp_path: Path, partitions: int):
    store = FaultStore(LocalStore(tmp_path))
    for number in range(partitions):
        store.put(f"day={number}/{NAME.format(number)}", b"x")
        store.put(f".hoodie/metadata/files/{NAME.format(number)}", b"x")
    store.reset()
    assert len(list_data_files(store).bases) == partitions
    assert [(call.op, call.path) for call in store.calls] == [("list", "")]


def test_a_partition_may_be_a_link(tmp_path: Path):
    store = LocalStore(tmp_path / "table")
    store.put(f"a/{NAME.format(1)}", b"x")
    elsewhere = LocalStore(tmp_path / "elsewhere")
    elsewhere.put(NAME.format(2), b"x")
    os.symlink(tmp_path / "elsewhere", tmp_path / "table/b")
    os.symlink(tmp_path / "table", tmp_path / "table/a/up")
    assert [each.partition for each in list_data_files(store).bases] == ["a", "b"]
