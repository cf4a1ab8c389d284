"""How the simple index reads the files of a partition."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import StorageError
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import FaultStore, On, Refuse

from ..world import content

FILES = 24


def rows(*ids: str, v: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "p": ["1"] * len(ids), "v": [v] * len(ids)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Each file of one partition has two keys; their ranges overlap."""
    table = lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="p", lock="none://")
    with table, table.transaction("insert") as txn:
        for number in range(FILES):
            txn.new_file("p=1").write(rows(f"a{number:02}", f"z{number:02}"))
    return tmp_path / "t"


def opened(store: FaultStore) -> list[str]:
    return [call.path for call in store.calls if call.op == "open"]


class Meeting(FaultStore):
    """Nobody gets a file before so many have asked for one."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(LocalStore(folder))
        self._all, self.met = threading.Barrier(number), False

    @contextmanager
    def open(self, path: str, *, size: int | None = None) -> Iterator[IO[bytes]]:
        if not self.met:
            self._all.wait(timeout=PATIENCE_S)
            self.met = True
        with super().open(path, size=size) as stream:
            yield stream


def test_the_files_of_a_partition_are_read_at_the_same_time(folder: Path):
    store = Meeting(folder, 8)
    with Table(store) as table, table.transaction("upsert") as txn:
        txn.upsert(rows("m", "z07", v=1))
        assert store.met
    assert txn.result
    with lakelatch.open(str(folder)) as table:
        assert content(table)["z07"] == 1


def test_a_file_that_cannot_be_read_fails_the_write_and_nothing_lands(folder: Path):
    store = FaultStore(LocalStore(folder))
    with Table(store) as table:
        store.add(Refuse(On("open", ".parquet")))
        with pytest.raises(StorageError), table.transaction("upsert") as txn:
            txn.upsert(rows("m", v=1))
        assert len(content(table)) == 2 * FILES
    assert not [each for each in threading.enumerate() if each.name.startswith("lakelatch-index")]


def test_the_rest_is_looked_into_when_every_key_is_found_because_inserts_may_have_made_copies(folder: Path):
    store = FaultStore(LocalStore(folder))
    with Table(store) as table:
        first = min(table.snapshot().file_slices(), key=lambda each: each.size)
        key = table.session.read_slice(first, columns=["id"])["id"][0].as_py()
        store.reset()
        with table.transaction("upsert") as txn:
            txn.upsert(rows(key, v=1))
        assert len(set(opened(store))) == FILES


@pytest.mark.parametrize("seed", range(4))
def test_every_row_finds_the_file_that_holds_its_key(folder: Path, seed: int):
    chance = random.Random(seed)
    expected = {f"{letter}{number:02}": 0 for number in range(FILES) for letter in "az"}
    with lakelatch.open(str(folder)) as table:
        for turn in range(1, 5):
            known = sorted({*expected, *(f"{letter}{n}" for letter in "Am~😀" for n in range(5))})
            keys = chance.sample(known, chance.randrange(1, 30))
            with table.transaction("upsert") as txn:
                txn.upsert(rows(*keys, v=turn))
            expected |= dict.fromkeys(keys, turn)
            gone = chance.sample(sorted(expected), 3)
            with table.transaction("delete") as txn:
                txn.delete(rows(*gone).select(["id", "p"]))
            expected = {key: v for key, v in expected.items() if key not in gone}
            assert content(table) == expected


def test_a_file_whose_keys_a_handle_has_met_is_not_opened_for_others(tmp_path: Path):
    table = lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="p", lock="none://")
    with table, table.transaction("insert") as txn:
        for number in range(FILES):
            txn.new_file("p=1").write(rows(f"k{number:02}a", f"k{number:02}z"))
    store = FaultStore(LocalStore(tmp_path / "t"))
    with Table(store) as table:
        table.upsert(rows("k07m", v=1))
        assert len(set(opened(store))) == FILES
        for key in ("k07n", "k07z", "k09a"):
            there = {each.path for each in table.snapshot().file_slices()}
            store.reset()
            table.upsert(rows(key, v=2))
            # Those whose keys surround it, and the one that new keys go into.
            assert len(set(opened(store)) & there) <= 4
        table.delete(rows("k07n").select(["id", "p"]))
        assert content(table) == {
            **{f"k{n:02}{c}": 0 for n in range(FILES) for c in "az"}, "k07m": 1, "k07z": 2, "k09a": 2
        }  # fmt: skip
