"""Rows in a mapped file are chosen, split and taken as the same rows in memory."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakelatch.errors import InputError
from lakelatch.hudi.table import RECORD_KEY, TableConfig, wide_hashes
from lakelatch.occ.staging import selection
from lakelatch.occ.staging.file_spec import FileSpec
from lakelatch.storage import open_store

from ...thorough import THOROUGH


@pytest.fixture(autouse=True)
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "KEYS_AT_ONCE", 7)
    monkeypatch.setattr(selection, "KEYS_AT_ONCE", 7)


def spec_of(folder, keys: str, partitions: str, buckets: int | None) -> FileSpec:
    names = tuple(keys.split(","))
    config = TableConfig(
        "t", "COPY_ON_WRITE", 9, 2, record_key_fields=names, partition_fields=(partitions,) * bool(partitions)
    )
    return FileSpec(open_store(str(folder)), "20260101000000000", pa.schema([]), config, bucket_count=buckets)


def some(chance: random.Random, count: int) -> pa.Table:
    rows = [
        {"id": f"k{chance.randrange(40)}", "n": chance.randrange(40), "part": chance.choice("abc"), "at": at}
        for at in range(count)
    ]
    whole = pa.Table.from_pylist(rows)
    cuts = sorted(chance.randrange(count) for _ in range(6))
    pieces = [whole.slice(start, end - start) for start, end in zip([0, *cuts], [*cuts, count], strict=True)]
    return pa.concat_tables([each.combine_chunks() for each in pieces])


@pytest.mark.parametrize("buckets", [None, 4])
@pytest.mark.parametrize("partitions", ["", "part"])
@pytest.mark.parametrize("keys", ["id", "n", "id,n"])
def test_a_mapped_file_has_the_units_of_rows_in_memory(folder, keys, partitions, buckets):
    spec = spec_of(folder, keys, partitions, buckets)
    for seed in range(5 if THOROUGH else 2):
        chance = random.Random(f"{keys} {partitions} {buckets} {seed}")
        rows = some(chance, 50)
        in_memory = {(path, place): unit for path, place, unit in selection.units(spec, rows)}
        mapped = {(path, place): unit for path, place, unit in selection.units(spec, rows, on_disk=True)}
        assert mapped.keys() == in_memory.keys()
        for name, unit in mapped.items():
            _compare(unit, in_memory[name], chance)
            _compare(unit.unrepeated(["at"]), in_memory[name].unrepeated(["at"]), chance)
            for each in (unit, in_memory[name]):
                each.forget()
            _compare(unit.unrepeated(["n"], "first"), in_memory[name].unrepeated(["n"], "first"), chance)


def _compare(mapped: selection.Selection, in_memory: selection.Selection, chance: random.Random) -> None:
    count = in_memory.num_rows
    assert mapped.num_rows == count
    shuffled = np.array(chance.sample(range(count), count), np.int64)
    for one, other in ((mapped, in_memory), (mapped.at(shuffled), in_memory.at(shuffled))):
        start, size = chance.randrange(count), chance.randrange(count)
        found, expected = one.slice(start, size, hashed=True), other.slice(start, size, hashed=True)
        assert found.to_pydict() == expected.to_pydict()
        assert found.column_names == expected.column_names
        assert one.keys.equals(other.keys)
        assert (one.key_hashes == wide_hashes(other.keys)).all()
        assert one.column("at").to_pylist() == other.column("at").to_pylist()
        assert one.slice().column(RECORD_KEY).to_pylist() == other.keys.to_pylist()
        one.forget()
        assert one.slice().to_pydict() == other.slice().to_pydict()


def test_a_key_that_comes_twice_is_refused_with_all_that_do(folder):
    spec = spec_of(folder, "id", "", None)
    rows = some(random.Random(5), 60)
    refusals = []
    for on_disk in (False, True):
        ((_, _, unit),) = selection.units(spec, rows, on_disk=on_disk)
        with pytest.raises(InputError, match="more than once") as caught:
            unit.unrepeated([])
        refusals.append((str(caught.value), caught.value.keys))
    assert refusals[0] == refusals[1]


def test_hashes_at_both_ends_of_their_range_are_found():
    low, high = np.uint64(0), np.uint64(2**64 - 1)
    runs = [np.array([high, low, 5], np.uint64), np.array([high, 6, low], np.uint64), np.array([2**63, 7], np.uint64)]
    assert selection.repeated_hashes(runs.__getitem__, range(3)).tolist() == [low, high]
    assert selection.repeated_hashes(runs.__getitem__, [0]).tolist() == []
