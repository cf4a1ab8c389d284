"""A base file that is torn is told by its name, by anyone who needs it, and nothing lands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.errors import CorruptTableError

CALLS: dict[str, Callable[[lakelatch.Table], Any]] = {
    "read": lambda t: t.read().to_arrow(),
    "read where": lambda t: t.read(where="v = 1").to_arrow(),
    "count": lambda t: t.read().count(),
    "changes": lambda t: t.changes(after=None).to_arrow(),
    "upsert": lambda t: t.upsert([{"id": "k1", "v": 2}]),
    "delete": lambda t: t.delete([{"id": "k1"}]),
    "delete_where": lambda t: t.delete_where("v = 1"),
    "update_where": lambda t: t.update_where("v = 1", set={"v": 2}),
    "cluster": lambda t: t.cluster(),
    "compact": lambda t: t.compact(),
}


def torn(folder: Path, size: int, **settings: Any) -> str:
    """A table of two base files, the first of which lacks its end; the file's name."""
    with lakelatch.create(str(folder), record_key="id", **settings) as table:
        for first in (0, 10):
            table.insert(pa.table({"id": [f"k{n}" for n in range(first, first + 10)], "v": list(range(10))}))
        if settings:
            table.upsert([{"id": f"k{n}", "v": 1} for n in range(20)])
    file = min(each for each in folder.glob("*.parquet") if each.stat().st_size)
    file.write_bytes(file.read_bytes()[:size])
    return file.name


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("size", [0, -20])
def test_a_torn_file_is_named_and_nothing_lands(tmp_path: Path, kind: str, size: int) -> None:
    name = torn(tmp_path / "t", size, **({"type": kind} if kind == "merge_on_read" else {}))
    for what, call in CALLS.items():
        if what == ("cluster" if kind == "merge_on_read" else "compact"):
            continue
        with lakelatch.open(str(tmp_path / "t")) as table:
            commits = len(table.commits())
            with pytest.raises(CorruptTableError, match="is no whole Parquet file") as told:
                call(table)
            assert name in str(told.value), what
            assert told.value.details["table"] == table.url
            assert len(table.commits()) == commits, what
            assert table.plans() == [], what


# Pages that do not decode, behind a footer that is whole ------------------------------------------------------------


def spoiled(folder: Path, **settings: Any) -> list[str]:
    """A table of one commit or more whose base files have no page that can be decoded; their names."""
    with lakelatch.create(str(folder), record_key="id", **settings) as table:
        for first in (0, 100):
            with table.transaction("insert") as txn:
                rows = {"id": [f"k{n}" for n in range(first, first + 100)], "v": list(range(first, first + 100))}
                txn.new_file("").write(pa.table(rows))
        if settings.get("type") == "merge_on_read":
            table.upsert([{"id": "k1", "v": 0}])
    names = []
    for file in folder.glob("*.parquet"):
        metadata = pq.read_metadata(file)
        body = bytearray(file.read_bytes())
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                start = column.dictionary_page_offset or column.data_page_offset
                body[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
        file.write_bytes(body)
        names.append(file.name)
    return names


PAGES: dict[str, Callable[[lakelatch.Table], Any]] = {
    **{name: call for name, call in CALLS.items() if name not in ("count", "compact")},
    "count where": lambda t: t.read(where="v > 3").count(),
    "pages": lambda t: t.read().to_pylist(),
    "batches": lambda t: t.read().to_batches().read_all(),
    "arrow stream": lambda t: pa.RecordBatchReader.from_stream(t.read()).read_all(),
    "duckdb": lambda t: t.read().to_duckdb().fetchall(),
    "parts": lambda t: [list(part.to_batches()) for part in t.read().parts(1 << 30)],
    "merge": lambda t: t.merge([{"id": "k1", "v": 2}]).when_matched("s.v > t.v", update="all").run(),
    "unique constraint": lambda t: t.change_settings(unique_constraints=[["v"]]),
    "compact": lambda t: t.compact(),
    "sorted clustering": lambda t: t.cluster(sort_by="v"),
}


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_pages_that_do_not_decode_are_told_with_the_files_name(tmp_path: Path, kind: str) -> None:
    names = spoiled(tmp_path / "t", **({"type": kind} if kind == "merge_on_read" else {}))
    assert names
    for what, call in PAGES.items():
        if what == ("compact" if kind == "copy_on_write" else "unique constraint"):
            continue
        with lakelatch.open(str(tmp_path / "t")) as table:
            commits = len(table.commits())
            with pytest.raises((CorruptTableError, *FOREIGN.get(what, ()))) as told:
                call(table)
            assert any(name in str(told.value) for name in names), (what, told.value)
            assert len(table.commits()) == commits, what


FOREIGN = {
    "duckdb": (Exception,),
    "batches": (pa.ArrowException, OSError),
    "arrow stream": (pa.ArrowException, OSError),
}
