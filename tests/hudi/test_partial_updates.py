"""Partial updates in log files, which Spark's MERGE INTO writes: as one after the other, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import UnsupportedTableError

from ..occ.mor import Mor, at, data_block, delete_block
from ..thorough import some

KINDS = {"id": pa.string(), "part": pa.string(), "v": pa.int64(), "w": pa.int64(), "x": pa.string()}
SCHEMA = pa.schema(list(KINDS.items()))
Change = dict[str, Any] | None  # columns that are set, or a delete
BASES: list[Change] = [None, {"v": 3, "w": 30, "x": "base"}]
BY_COMMITS: list[Change] = [{"v": 1, "w": 10, "x": "row"}, {"w": 11}, {"w": None, "x": "𝄞{}%s"}, None]
BY_EVENTS: list[Change] = [
    *({"v": v, "w": 10 + v, "x": f"row {v}"} for v in (2, 4)),
    *({"v": v, "w": 50 + v} for v in (2, 5)),
    {"v": 4, "x": None},
]


def body(instant: str, key: str, change: Change) -> bytes:
    if change is None:
        return delete_block(instant, [key])
    names = [each for each in SCHEMA.names if each in change or (len(change) == 3 and each in ("id", "part"))]
    schema = pa.schema([SCHEMA.field(each) for each in names])
    return data_block(instant, [change | {"id": key, "part": "p"}], schema=schema, partial=len(change) < 3)


def serially(base: Change, changes: Sequence[Change], *, by_events: bool) -> Change | str:
    """The row after all changes, one after the other; "refused" where some of its columns are not known."""
    row = base
    for change in changes:
        if change is None:
            row = None
        elif row is None or not by_events or change["v"] >= row["v"]:
            row = change if len(change) == 3 else (row or {"unknown": True}) | change
    return "refused" if row and "unknown" in row else row


def meets_no_row(base: Change, *changes: Change) -> bool:
    befores = (serially(base, changes[:n], by_events=False) for n in range(len(changes)))
    return any(before is None and change and len(change) < 3 for before, change in zip(befores, changes, strict=True))


def group(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000-0"


def made(folder: Path, stories: Sequence[Sequence[Change]], *, by_events: bool) -> Mor:
    """A table of which each file group has a story: the row in its base file, and a log file for each change."""
    mor = Mor(folder, version=9, ordering="v" if by_events else None, columns=SCHEMA)
    for number, (base, *_) in enumerate(stories):
        if base is not None:
            key = f"k{number}"
            mor.base(at(10 * number), at(10 * number + 1), "p", [base | {"id": key, "part": "p"}], group(number))
    for number, (_, *changes) in enumerate(stories):
        for place, change in enumerate(changes):
            instant = 10 * number + 2 * place + 2
            mor.log(at(instant), at(instant + 1), "p", body(at(instant), f"k{number}", change), file_id=group(number))
    return mor


def read(table: lakelatch.Table, number: int) -> Change | str:
    """The row of a story, or "refused"."""
    each = next((each for each in table.snapshot().file_slices() if each.file_id == group(number)), None)
    try:
        rows = [] if each is None else table.read_slice(each).to_pylist()
    except UnsupportedTableError as e:
        return "refused" if e.feature == "partial_updates" else str(e)
    return {name: rows[0][name] for name in ("v", "w", "x")} if rows else None


@pytest.mark.parametrize("by_events", [False, True])
def test_every_sequence_is_one_change_after_the_other_or_refused(tmp_path, by_events):
    changes = BY_EVENTS if by_events else BY_COMMITS
    stories = [(base, *then) for n in (1, 2, 3) for base in BASES[n // 3 :] for then in product(changes, repeat=n)]
    stories = some([each for each in stories if any(change and len(change) < 3 for change in each[1:])], 60)
    mor = made(tmp_path / "t", stories, by_events=by_events)
    with lakelatch.open(str(mor.folder)) as table:
        found = {number: read(table, number) for number in range(len(stories))}
    wrong = {
        number: (stories[number], row)
        for number, row in found.items()
        if row not in ("refused", serially(stories[number][0], stories[number][1:], by_events=by_events))
    }
    assert not wrong
    refused = [stories[number] for number, row in found.items() if row == "refused"]
    if not by_events:
        assert all(meets_no_row(*each) for each in refused)
    assert 0 < len(refused) < len(stories) * 0.6


def test_what_is_read_is_what_another_reader_reads_and_a_compaction_writes(tmp_path):
    """Where a row of all columns follows, hudi-rs reads something else than the JVM; where it is read, it is as here."""
    stories = [(BASES[1], *then) for n in (1, 2, 3) for then in product(BY_COMMITS[1:3], repeat=n)]
    stories += [(base, BY_COMMITS[0], *then) for base in BASES for then in product(BY_COMMITS[1:3], repeat=2)]
    mor = made(tmp_path / "t", stories, by_events=False)
    expected = {f"k{number}": serially(base, then, by_events=False) for number, (base, *then) in enumerate(stories)}
    independent = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(mor.folder)).build().read()).to_pylist()
    assert {row["id"]: {name: row[name] for name in ("v", "w", "x")} for row in independent} == expected
    with lakelatch.adopt(str(mor.folder)) as table:
        for compacted in (False, True):
            rows = table.read().to_pylist()
            assert {row["id"]: {name: row[name] for name in ("v", "w", "x")} for row in rows} == expected
            assert table.read(columns=["w"]).count() == len(stories)
            assert table.read(where="x = 'base'", columns=["id"]).count() == sum(
                r["x"] == "base" for r in expected.values()
            )
            if not compacted:
                with pytest.raises(UnsupportedTableError, match="would be merged apart"):
                    table.compact_logs(min_logs=2)
                assert table.compact()


def test_updates_without_the_ordering_field_are_refused(tmp_path):
    mor = made(tmp_path / "t", [(BASES[1], {"w": 1})], by_events=True)
    with lakelatch.open(str(mor.folder)) as table, pytest.raises(UnsupportedTableError, match="lack v, by which"):
        table.read().to_arrow()
