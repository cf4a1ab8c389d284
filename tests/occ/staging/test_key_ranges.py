"""Key ranges that one process keeps for the next one, and what becomes of them when they are lost, torn, late or wrong."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.column_statistics import RANGES, decode_ranges, encode_ranges, ranges_path
from lakelatch.occ.staging import key_spans
from lakelatch.occ.staging.apply_rows import WritePlan, holders, owners, slices_by_partition
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore, On, Refuse

from ...hudi.conftest import unzip
from ...thorough import some
from ..world import content

FILES = 24
P = "p=1"


def rows(*ids: str, v: int = 0, p: str = "1") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids), "v": [v] * len(ids)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Each file of one partition has its own range of keys."""
    table = lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="p", lock="none://")
    with table, table.transaction("insert") as txn:
        for number in range(FILES):
            txn.new_file(P).write(rows(f"k{number:02}a", f"k{number:02}z"))
    return tmp_path / "t"


def in_a_new_process(folder: Path, call: Callable[[Table], Any], *faults: Any) -> FaultStore:
    """As far as what a handle remembers goes."""
    store = FaultStore(LocalStore(folder), *faults)
    with Table(store) as table:
        call(table)
    return store


def opened(store: FaultStore) -> set[str]:
    return {call.path for call in store.calls if call.op == "open"}


def upsert(*ids: str, v: int = 1) -> Callable[[Table], Any]:
    return lambda table: table.upsert(rows(*ids, v=v))


def kept(folder: Path) -> Path:
    return folder / ranges_path(P)


def test_the_next_process_opens_only_files_that_may_hold_its_keys(folder: Path):
    there = set(map(str, (path.relative_to(folder) for path in folder.glob("p=1/*.parquet"))))
    assert len(opened(in_a_new_process(folder, upsert("k07a", "k19z")))) == FILES
    store = in_a_new_process(folder, upsert("k03z", "k21a"))
    # The files of the two keys, and none between them but what the first one wrote.
    assert len(opened(store) & there) == 2
    assert [call.op for call in store.calls if call.path.startswith(RANGES)] == ["get"]
    with lakelatch.open(str(folder)) as table:
        ids = {f"k{n:02}{c}": 0 for n in range(FILES) for c in "az"}
        assert content(table) == ids | dict.fromkeys(("k07a", "k19z", "k03z", "k21a"), 1)
        assert check(table.store, deep=True).sound(strict=True)


def test_a_partition_of_few_files_has_no_object_and_asks_for_none(tmp_path: Path):
    with lakelatch.create(str(tmp_path), record_key="id", partition_by="p", lock="none://") as table:
        table.insert(rows("a", "b"))
    store = in_a_new_process(tmp_path, upsert("a"))
    assert not [call for call in store.calls if call.path.startswith(RANGES)]


def test_a_worker_of_spark_goes_by_the_ranges_and_keeps_them(folder: Path):
    with lakelatch.open(str(folder)) as table, table.transaction("upsert") as txn:
        spec = txn.file_spec(rows("a").schema)
        there = pickle.loads(pickle.dumps(spec))
        there.spans.recall(there.store, txn.snapshot.file_slices())
        assert there.spans.owes(P)
        assert not there.spans.owes(P), "said once"
        txn.abort()


def test_what_is_kept_is_written_again_when_many_files_are_new(folder: Path):
    in_a_new_process(folder, upsert("k07a"))
    before = decode_ranges(P, kept(folder).read_bytes())
    with lakelatch.open(str(folder)) as table, table.transaction("insert") as txn:
        for number in range(FILES):
            txn.new_file(P).write(rows(f"m{number:02}"))
    in_a_new_process(folder, upsert("k08a"))
    after = decode_ranges(P, kept(folder).read_bytes())
    assert len(after) == 2 * FILES
    assert len(before.keys() & after.keys()) == FILES - 1, "the one that was rewritten has gone by itself"


def test_a_handle_asks_again_when_others_have_written_many_files(folder: Path):
    store = FaultStore(LocalStore(folder))
    with Table(store) as mine:
        mine.upsert(rows("k07a", v=1))
        with lakelatch.open(str(folder)) as other, other.transaction("insert") as txn:
            for number in range(FILES):
                txn.new_file(P).write(rows(f"m{number:02}"))
        in_a_new_process(folder, upsert("k08a"))
        there = {each.path for each in mine.snapshot().file_slices()}
        store.reset()
        mine.upsert(rows("m07", v=1))
        assert [call.op for call in store.calls if call.path.startswith(RANGES)] == ["get"]
        assert len(opened(store) & there) <= 3  # of the 24, and of what the other process has written


# --- lost, torn, late, wrong -----------------------------------------------------------------------------------------


def _other_partition(body: bytes) -> bytes:
    return encode_ranges("p=2", decode_ranges(P, body))


def _other_sizes(body: bytes) -> bytes:
    return encode_ranges(P, {name: (size + 1, b"!", b"!") for name, (size, _, _) in decode_ranges(P, body).items()})


def _other_names(body: bytes) -> bytes:
    return encode_ranges(P, {f"{name}x": each for name, each in decode_ranges(P, body).items()})


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda body: body[: len(body) // 2],
        lambda body: body.replace(b"k07", b"x07"),
        lambda body: body[:-1] + bytes([body[-1] ^ 1]),
        lambda _: b"[" * 5000,
        _other_partition,
        _other_sizes,
        _other_names,
    ],
)
def test_of_an_object_that_is_torn_or_of_others_nothing_is_taken(folder: Path, damage: Callable[[bytes], bytes]):
    in_a_new_process(folder, upsert("k07a"))
    kept(folder).write_bytes(damage(kept(folder).read_bytes()))
    assert len(opened(in_a_new_process(folder, upsert("k07z", "k00a", v=2)))) >= FILES
    with lakelatch.open(str(folder)) as table:
        changed = {"k07a": 1, "k07z": 2, "k00a": 2}
        assert content(table) == {f"k{n:02}{c}": 0 for n in range(FILES) for c in "az"} | changed
    assert len(decode_ranges(P, kept(folder).read_bytes())) == FILES, "it was written again"


@pytest.mark.parametrize("op", ["get", "put"])
def test_a_store_that_refuses_the_object_ends_no_write(folder: Path, op: str):
    refused = Refuse(On(op, RANGES), forever=True)
    assert len(opened(in_a_new_process(folder, upsert("k07a"), refused))) == FILES
    with lakelatch.open(str(folder)) as table:
        assert content(table)["k07a"] == 1


def test_check_finds_a_range_that_is_not_that_of_the_file(folder: Path):
    in_a_new_process(folder, upsert("k07a"))
    known = decode_ranges(P, kept(folder).read_bytes())
    assert check(LocalStore(folder)).sound(strict=True)
    kept(folder).write_bytes(encode_ranges(P, {name: (size, b"a", b"b") for name, (size, _, _) in known.items()}))
    report = check(LocalStore(folder))
    assert {each.kind for each in report.findings} == {"key-range-kept"}
    assert not report.sound()


def test_a_cleaning_removes_what_is_kept_of_partitions_that_are_gone(folder: Path):
    in_a_new_process(folder, upsert("k07a"))
    with lakelatch.open(str(folder)) as table:
        table.insert(rows("b", p="2"))
        assert table.clean(retain_commits=0)
        assert kept(folder).exists()
        with table.transaction("delete_partition") as txn:
            txn.overwrites(P)
            txn.drop_file_groups(txn.snapshot.file_slices(P))
        assert table.clean(retain_commits=0)
        assert not kept(folder).exists()
        assert content(table) == {"b": 0}


@pytest.mark.parametrize("ranges", [{"f": (1, b"\xff", b"\xff")}, {"f": (1, b"a" * 600, b"b")}])
def test_keys_that_are_no_text_or_very_long_are_not_kept(ranges: dict[str, Any]):
    assert decode_ranges(P, encode_ranges(P, ranges)) == {}


def test_an_object_has_a_largest_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lakelatch.occ.entries.column_statistics.RANGES_BYTES", 4096)
    many = {f"f{number}": (7, b"a", b"b") for number in range(1000)}
    body = encode_ranges(P, many)
    assert len(body) <= 4096
    assert 50 < len(decode_ranges(P, body)) < 1000


# --- with and without ------------------------------------------------------------------------------------------------


def lookups(table: Table, keys: list[str], delete: bool) -> list[Any]:
    """What a lookup finds with what is kept, and without it."""
    asked, found = pa.array(keys), []
    with table.transaction("upsert") as txn:
        fresh = txn.file_spec(txn.workspace.written_schema or rows("a").schema)
        for spans in (key_spans.KeySpans(), None):
            spec = pickle.loads(pickle.dumps(fresh))
            object.__setattr__(spec, "spans", spans)
            plan = WritePlan(spec, slices_by_partition(txn.snapshot.file_slices()), delete=delete)
            there = []
            for partition in sorted(plan.slices):
                took, left = (holders(plan, partition, asked), None) if delete else owners(plan, partition, asked)
                there.append(
                    ([(old.path, mine.tolist()) for old, mine, _ in took], None if left is None else left.tolist())
                )
            found.append(there)
        txn.abort()
    return found


def _restore(table: Table) -> None:
    commits = table.timeline().commits
    table.restore(commits[-2].requested)


SERVICES: list[Callable[[Table], Any]] = [
    lambda table: table.cluster(small_bytes=1 << 20),
    lambda table: table.clean(retain_commits=1),
    _restore,
    lambda table: table.overwrite(rows("k03m", "k50", v=9)),
    lambda table: table.config.merge_on_read and table.compact(),
]


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("seed", some(range(3), 2))
def test_lookups_find_the_same_with_and_without_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
):
    monkeypatch.setattr(key_spans, "_WORTH", 1)
    chance, folder = random.Random(seed), tmp_path / "t"
    names = [f"k{n:02}{c}" for n in range(12) for c in "am"] + ["\ufb01", "\U0001f600", "\U0001f680x", "A", "~", ""]
    options: dict[str, Any] = {"record_key": "id", "partition_by": "p", "lock": "none://"}
    lakelatch.create(str(folder), type=kind, **options).close()
    took = 0
    for turn in range(14):
        some = [key for key in chance.sample(names, chance.randrange(1, 6)) if key]

        def change(table: Table, some: list[str] = some, turn: int = turn) -> None:
            p = chance.choice("12")
            match chance.randrange(5):
                case 0 | 1:
                    with table.transaction("insert") as txn:
                        txn.new_file(f"p={p}").write(rows(*some, v=turn, p=p))
                case 2 | 3:
                    table.upsert(rows(*some, v=turn, p=p))
                case 4:
                    table.delete(rows(*some, p=p).select(["id", "p"]))

        if turn in (5, 8, 10, 12):
            service = chance.choice(SERVICES)
            in_a_new_process(folder, service)
        else:
            in_a_new_process(folder, change)
        took += sum(path.stat().st_size > 200 for path in (folder / RANGES).glob("*"))
        with lakelatch.open(str(folder)) as table:
            for delete in (False, True):
                kept_too, without = lookups(table, chance.sample(names, 8), delete)
                assert kept_too == without
    assert took, "nothing was ever kept"
    assert np.all([path.parent.name == "keys" for path in (folder / RANGES).glob("*")])
    with lakelatch.open(str(folder)) as table:
        damage = [each for each in check(table.store).findings if each.severity == "damage"]
        assert not damage


@pytest.mark.parametrize(
    "name", ["cow/v9_txns_simple_nometa", "cow/v9_txns_nonpart_nometa", "mor/avro/v9_txns_complex_nometa"]
)
def test_lookups_find_the_same_in_files_that_the_jvm_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(key_spans, "_WORTH", 1)
    root = unzip(f"sample_table/{name}", tmp_path).root
    with lakelatch.adopt(str(root), "none://") as table:
        keys = [key for each in table.snapshot().file_slices() for key in _keys(table, each)]
        with table.transaction("upsert") as txn:
            spec, by_partition = (
                txn.file_spec(txn.workspace.written_schema),
                slices_by_partition(txn.snapshot.file_slices()),
            )
            for partition, slices in by_partition.items():
                owners(WritePlan(spec, by_partition), partition, pa.array(["none"]))
                assert spec.spans.owes(partition)
                spec.spans.keep(table.store, partition, slices)
                assert len(decode_ranges(partition, (root / ranges_path(partition)).read_bytes())) == len(slices)
            txn.abort()
        for key in [*keys, "none", "TXN-007x"]:
            for delete in (False, True):
                kept_too, without = lookups(table, [key], delete)
                assert kept_too == without


def _keys(table: Table, slice_: Any) -> list[str]:
    return pq.read_table(table.store.uri(slice_.path).removeprefix("file://"), columns=["_hoodie_record_key"])[
        0
    ].to_pylist()
